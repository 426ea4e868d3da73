//! The secrets of a destination: hidden in views, and restored in bodies.
//!
//! A client that reads an event subscription and writes it back does not know the secrets. An
//! existing secret is kept if the body has `"Hidden"`, `null` or nothing for it.

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::model::{CheckResult, InvalidRequest, tolerance::boolean_of};
use gridhook_policy::property::PropertySource;
use gridhook_record::subscription::{SubscriptionRecord, Webhook};

/// The text that GET shows instead of a secret, as Azure does.
pub(super) const HIDDEN: &str = "Hidden";

/// Bytes of the hash of a signing secret that are shown.
const FINGERPRINT_BYTES: usize = 2;

/// Hides the secrets that sign requests.
pub(super) fn hide_signing(signing: &mut Value) {
    let secrets = signing["secrets"].as_array_mut();
    for secret in secrets.into_iter().flatten() {
        *secret = hidden_signing(secret.as_str().unwrap_or_default()).into();
    }
}

/// Hides the secrets in a list of delivery attribute mappings.
pub(crate) fn hide_attributes(mappings: &mut [Value]) {
    for mapping in mappings {
        let properties = &mut mapping["properties"];
        if properties["isSecret"] == true {
            properties["value"] = HIDDEN.into();
        }
    }
}

/// A signing secret is shown by its kind and a fingerprint: `whsec_[hidden:3f2a]`. The fingerprint
/// is too short to help guess 24 random bytes, and long enough to distinguish the secrets of an
/// operator.
pub(crate) fn hidden_signing(secret: &str) -> String {
    if is_hidden_signing(secret) {
        return secret.to_owned();
    }
    let fingerprint = HEXLOWER.encode(&Sha256::digest(secret)[..FINGERPRINT_BYTES]);
    format!("{}_[hidden:{fingerprint}]", kind_of(secret))
}

fn is_hidden_signing(text: &str) -> bool {
    text.split_once("_[hidden")
        .is_some_and(|(_, rest)| rest.ends_with(']'))
}

fn kind_of(secret: &str) -> &str {
    secret.split('_').next().unwrap_or_default()
}

/// Finds the one of `secrets` that `hidden` stands for. Older servers showed no fingerprint: then
/// the secret must be the only one of its kind.
fn hidden_secret<'a>(hidden: &str, secrets: &'a [String]) -> Result<&'a str, String> {
    let has_fingerprint = hidden.contains("[hidden:");
    let mut meant: Vec<&String> = if has_fingerprint {
        secrets
            .iter()
            .filter(|secret| hidden_signing(secret) == hidden)
            .collect()
    } else {
        let kind = kind_of(hidden);
        secrets
            .iter()
            .filter(|secret| kind_of(secret) == kind)
            .collect()
    };
    meant.dedup();
    match meant[..] {
        [secret] => Ok(secret),
        [] => {
            let known: Vec<String> = secrets
                .iter()
                .map(|secret| hidden_signing(secret))
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            Err(format!(
                "is \"{hidden}\", which is no secret of the event subscription; it has {known}"
            ))
        }
        _ => Err(format!(
            "is \"{hidden}\", which stands for several secrets of the event subscription; expected \
             the secret itself, or the form with its fingerprint that GET shows"
        )),
    }
}

/// Restores the secrets of `existing` that the properties of a destination omit.
///
/// # Errors
/// If it has the hidden form of a signing secret that does not stand for exactly one of them.
pub(super) fn restore_secrets(
    endpoint_type: &str,
    properties: &mut Value,
    existing: Option<&SubscriptionRecord>,
) -> CheckResult {
    let secrets = existing
        .and_then(|record| record.webhook.signing.as_deref())
        .map(|signing| &signing.secrets[..]);
    let given = properties
        .pointer_mut("/signing/secrets")
        .and_then(Value::as_array_mut);
    if let Some(given) = given {
        restore_signing(given, secrets.unwrap_or_default())?;
    }
    if let Some(record) = existing {
        restore_others(endpoint_type, properties, record);
    }
    Ok(())
}

fn restore_signing(given: &mut [Value], secrets: &[String]) -> CheckResult {
    for index in 0..given.len() {
        let Some(hidden) = given[index].as_str().filter(|text| is_hidden_signing(text)) else {
            continue;
        };
        let target = format!("destination.properties.signing.secrets[{index}]");
        let invalid = |problem: String| InvalidRequest::new(&target, problem);
        let secret = hidden_secret(hidden, secrets).map_err(invalid)?;
        if given.iter().any(|other| other == secret) {
            return Err(invalid(format!(
                "is \"{hidden}\", and the list has this secret already; expected each once"
            )));
        }
        given[index] = secret.into();
    }
    Ok(())
}

fn restore_others(endpoint_type: &str, webhook: &mut Value, record: &SubscriptionRecord) {
    let existing = &record.webhook;
    let is_webhook = record.resource.is_none() && endpoint_type == super::WEBHOOK;
    // The query of the URL may be a secret, and GET shows the URL without it.
    if is_webhook && webhook["endpointUrl"].is_null() {
        webhook["endpointUrl"] = existing.endpoint_url.as_str().into();
    }
    let mappings = webhook
        .get_mut("deliveryAttributeMappings")
        .and_then(Value::as_array_mut);
    for mapping in mappings.into_iter().flatten() {
        restore_attribute(mapping, existing);
    }
}

fn restore_attribute(mapping: &mut Value, existing: &Webhook) {
    let kind = mapping["type"].as_str().unwrap_or_default();
    let is_static = kind.eq_ignore_ascii_case("Static");
    let name = mapping["name"].as_str().unwrap_or_default();
    let secret = existing
        .delivery_properties
        .iter()
        .find_map(|property| match &property.source {
            PropertySource::Static {
                value,
                is_secret: true,
            } if property.name.eq_ignore_ascii_case(name) => Some(value),
            PropertySource::Static { .. } | PropertySource::Dynamic { .. } => None,
        });
    let Some(secret) = secret.filter(|_| is_static) else {
        return;
    };
    let properties = &mut mapping["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    let is_hidden = properties["value"].is_null() || properties["value"] == HIDDEN;
    if is_hidden && boolean_of(&properties["isSecret"]) != Some(false) {
        properties["value"] = secret.as_str().into();
        properties["isSecret"] = true.into();
    }
}
