//! The secrets of a destination: hidden in views, and restored in bodies.
//!
//! A client that reads an event subscription and writes it back does not know the secrets. An existing secret is kept if the
//! body has `"Hidden"`, `null` or nothing for it.

use serde_json::Value;

use gridhook_policy::property::PropertySource;
use gridhook_record::subscription::{Signing, SubscriptionRecord, Webhook};

/// What GET shows instead of a secret, as Azure does.
pub(super) const HIDDEN: &str = "Hidden";

/// Hides the secrets that sign requests.
pub(super) fn hide_signing(Signing { secrets }: &mut Signing) {
    secrets.iter_mut().for_each(|secret| *secret = hidden_signing(secret));
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

/// A signing secret is shown by its kind: `whsec_[hidden]`.
fn hidden_signing(secret: &str) -> String {
    let kind = secret.split('_').next().unwrap_or_default();
    format!("{kind}_[hidden]")
}

/// Restores the secrets of `existing` that a destination omits.
pub(super) fn restore(destination: Option<&mut Value>, existing: Option<&SubscriptionRecord>) {
    let (Some(destination), Some(record)) = (destination, existing) else { return };
    let existing = &record.webhook;
    let is_webhook = record.resource.is_none() && destination["endpointType"] == super::WEBHOOK;
    let Some(webhook) = destination.get_mut("properties") else { return };
    // The query of the URL may be a secret, and GET shows the URL without it.
    if is_webhook && webhook["endpointUrl"].is_null() && webhook.is_object() {
        webhook["endpointUrl"] = existing.endpoint_url.as_str().into();
    }
    let mappings = webhook.get_mut("deliveryAttributeMappings").and_then(Value::as_array_mut);
    for mapping in mappings.into_iter().flatten() {
        restore_attribute(mapping, existing);
    }
    if let (Some(Value::Array(given)), Some(Signing { secrets })) =
        (webhook.pointer_mut("/signing/secrets"), existing.signing.as_deref())
    {
        for (given, secret) in given.iter_mut().zip(secrets) {
            if given.as_str() == Some(hidden_signing(secret).as_str()) {
                *given = secret.as_str().into();
            }
        }
    }
}

fn restore_attribute(mapping: &mut Value, existing: &Webhook) {
    let is_static = mapping["type"] == "Static";
    let name = mapping["name"].as_str().unwrap_or_default();
    let secret = existing.delivery_properties.iter().find_map(|property| match &property.source {
        PropertySource::Static { value, is_secret: true } if property.name.eq_ignore_ascii_case(name) => Some(value),
        PropertySource::Static { .. } | PropertySource::Dynamic { .. } => None,
    });
    let Some(secret) = secret.filter(|_| is_static) else { return };
    let properties = &mut mapping["properties"];
    if !properties.is_object() {
        *properties = Value::Object(serde_json::Map::new());
    }
    let is_hidden = properties["value"].is_null() || properties["value"] == HIDDEN;
    if is_hidden && properties["isSecret"] != false {
        properties["value"] = secret.as_str().into();
        properties["isSecret"] = true.into();
    }
}
