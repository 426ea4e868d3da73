//! The changes that a PUT would make: each changed value before and after, without secrets.

use serde_json::{Map, Value};

use super::subscription::secrets;
use gridhook_api::what_if::{Difference, ValueChange};

/// The difference of two states of the settable properties, with their secrets.
pub fn difference_between(before: Option<&Value>, after: &Value) -> Difference {
    let mut changes = Vec::new();
    compare_values("", before.unwrap_or(&Value::Null), after, &mut changes);
    Difference {
        exists: before.is_some(),
        changes,
        ..Difference::default()
    }
}

fn compare_values(at: &str, before: &Value, after: &Value, changes: &mut Vec<ValueChange>) {
    if before == after {
        return;
    }
    let nothing = Map::new();
    let (old, new) = match (before, after) {
        (Value::Object(old), Value::Object(new)) => (old, new),
        (Value::Null, Value::Object(new)) => (&nothing, new),
        (Value::Object(old), Value::Null) => (old, &nothing),
        _ => return changes.push(value_change(at, before, after)),
    };
    let removed_keys = old.keys().filter(|key| !new.contains_key(*key));
    for key in new.keys().chain(removed_keys) {
        let inner = if at.is_empty() {
            key.clone()
        } else {
            format!("{at}.{key}")
        };
        let value = |of: &Map<String, Value>| of.get(key).cloned().unwrap_or_default();
        compare_values(&inner, &value(old), &value(new), changes);
    }
}

fn value_change(at: &str, before: &Value, after: &Value) -> ValueChange {
    let was = without_secrets(at, before);
    let mut is = without_secrets(at, after);
    if was == is {
        is = match is {
            Value::String(text) => format!("{text} (another secret)").into(),
            _ => "(another secret)".into(),
        };
    }
    ValueChange {
        at: at.to_owned(),
        before: was,
        after: is,
    }
}

fn without_secrets(at: &str, value: &Value) -> Value {
    match (at.rsplit('.').next().unwrap_or_default(), value) {
        ("endpointUrl", Value::String(url)) => match url.split_once('?') {
            Some((base, _)) => format!("{base}?[hidden]").into(),
            None => value.clone(),
        },
        ("secrets", Value::Array(secrets)) => secrets
            .iter()
            .map(|secret| secrets::hidden_signing(secret.as_str().unwrap_or_default()))
            .collect(),
        ("deliveryAttributeMappings", Value::Array(mappings)) => {
            let mut mappings = mappings.clone();
            secrets::hide_attributes(&mut mappings);
            mappings.into()
        }
        (_, value) => value.clone(),
    }
}
