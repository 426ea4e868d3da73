//! The settings that limit which event subscriptions may use a connection, a dead-letter store, a
//! client certificate or the server's identity.

use std::{collections::BTreeMap, fmt::Display};

use gridhook_admin::uses::UseRules;
use gridhook_config::Config;
use gridhook_deliver::resource::Connections;
use gridhook_record::{subscription::TokenAudience, token::UserScopes};

/// A rule cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: \"{rule}\": {problem}")]
pub struct UseRuleError {
    setting: String,
    rule: String,
    problem: String,
}

impl UseRuleError {
    fn new(setting: &str, rule: &str, problem: impl Display) -> Self {
        Self {
            setting: setting.to_owned(),
            rule: rule.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// Reads the rules. `connections` are those of the same settings.
pub(super) fn read(config: &Config, connections: Connections) -> Result<UseRules, UseRuleError> {
    let mut rules = UseRules {
        connections,
        stores: config.dead_letter.named_stores.clone(),
        ..UseRules::default()
    };
    for service in &config.delivery.resources {
        let setting = format!("delivery.resources.{}.used_by", service.name);
        rules.of_services.insert(
            service.name.clone(),
            parse_scopes(&setting, &service.used_by)?,
        );
    }
    for (name, used_by) in &config.dead_letter.used_by {
        rules.of_stores.insert(
            name.clone(),
            parse_scopes("used_by of a dead-letter store", used_by)?,
        );
    }
    for (name, users) in parse_named_rules(
        "delivery.client_certificates_used_by",
        &config.delivery.client_certificates_used_by,
    )? {
        rules.of_certificates.insert(name, users);
    }
    for (audience, users) in parse_named_rules(
        "delivery.identity_audiences",
        &config.delivery.identity_audiences,
    )? {
        let (application, tenant) = match audience.split_once('@') {
            Some((application, tenant)) => (application, Some(tenant.to_owned())),
            None => (audience.as_str(), None),
        };
        rules.of_audiences.insert(
            TokenAudience {
                tenant,
                application: application.to_owned(),
            },
            users,
        );
    }
    Ok(rules)
}

fn parse_scopes(setting: &str, texts: &[String]) -> Result<UserScopes, UseRuleError> {
    let scopes = UserScopes::parse(texts.iter().map(String::as_str));
    scopes.map_err(|invalid| UseRuleError::new(setting, &texts.join(", "), invalid))
}

/// Reads rules of the form `NAME SCOPE,SCOPE`.
fn parse_named_rules(
    setting: &str,
    rules: &[String],
) -> Result<BTreeMap<String, UserScopes>, UseRuleError> {
    let mut rules_by_name = BTreeMap::new();
    for rule in rules {
        let wrong = |problem: &dyn Display| UseRuleError::new(setting, rule, problem);
        let words: Vec<&str> = rule.split_whitespace().collect();
        let [name, scopes] = words[..] else {
            let problem = "expected \"NAME SCOPE,SCOPE\", such as \"billing topics/orders\"";
            return Err(wrong(&problem));
        };
        let users = UserScopes::parse(scopes.split(',')).map_err(|invalid| wrong(&invalid))?;
        if rules_by_name.insert(name.to_owned(), users).is_some() {
            let problem = format!("another rule is for {name}, too; expected one with all scopes");
            return Err(wrong(&problem));
        }
    }
    Ok(rules_by_name)
}
