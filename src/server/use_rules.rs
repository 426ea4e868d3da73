//! Who may use what event subscriptions refer to, as the settings say it.

use std::collections::BTreeMap;

use gridhook_admin::uses::UseRules;
use gridhook_config::Config;
use gridhook_deliver::resource::Connections;
use gridhook_record::{
    subscription::TokenAudience,
    token::{InvalidGrant, UserScopes},
};

/// A rule cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: \"{rule}\": {problem}")]
pub struct UseRuleError {
    setting: String,
    rule: String,
    problem: String,
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
    let wrong = |invalid: InvalidGrant| UseRuleError {
        setting: setting.to_owned(),
        rule: texts.join(", "),
        problem: invalid.to_string(),
    };
    UserScopes::parse(texts.iter().map(String::as_str)).map_err(wrong)
}

/// Reads rules of the form `NAME SCOPE,SCOPE`.
fn parse_named_rules(
    setting: &str,
    rules: &[String],
) -> Result<BTreeMap<String, UserScopes>, UseRuleError> {
    let mut rules_by_name = BTreeMap::new();
    for rule in rules {
        let wrong = |problem: String| UseRuleError {
            setting: setting.to_owned(),
            rule: rule.clone(),
            problem,
        };
        let words: Vec<&str> = rule.split_whitespace().collect();
        let [name, scopes] = words[..] else {
            return Err(wrong(
                "expected \"NAME SCOPE,SCOPE\", such as \"billing topics/orders\"".to_owned(),
            ));
        };
        let users =
            UserScopes::parse(scopes.split(',')).map_err(|invalid| wrong(invalid.to_string()))?;
        if rules_by_name.insert(name.to_owned(), users).is_some() {
            return Err(wrong(format!(
                "another rule is for {name}, too; expected one with all scopes"
            )));
        }
    }
    Ok(rules_by_name)
}
