//! Bodies and views of `deliveryAttributeMappings`.
//!
//! Errors never contain a static value, which may be a secret. A view has it only if it is not
//! secret.

use serde_json::{Map, Value};

use super::secrets::HIDDEN;
use crate::model::{
    BODY, CheckResult, InvalidRequest, canonical_name, read as read_value, refuse_value,
    tolerance::boolean_of, value_of,
};
use gridhook_api::subscription::DeliveryAttributeMapping;
use gridhook_event::Schema;
use gridhook_policy::{
    filter::key::FilterKey,
    property::{self, DeliveryProperty, PROPERTIES_MAX, PropertySource},
};

/// Reads the mappings at `at`, for events in schema `input` that are delivered in schema
/// `delivery`.
pub(super) fn read(
    at: &str,
    given: Vec<Value>,
    input: Schema,
    delivery: Schema,
) -> CheckResult<Vec<DeliveryProperty>> {
    if given.len() > PROPERTIES_MAX {
        let count = given.len();
        return refuse_value(
            at,
            format!("has {count} entries; expected at most {PROPERTIES_MAX}"),
        );
    }
    let mut read: Vec<DeliveryProperty> = Vec::new();
    for (index, mapping) in given.into_iter().enumerate() {
        let at = format!("{at}[{index}]");
        let property = read_property(mapping, input, delivery)
            .map_err(|invalid| invalid.prefixed_with(&at))?;
        if read
            .iter()
            .any(|other| other.name.eq_ignore_ascii_case(&property.name))
        {
            let problem = format!(
                "is \"{}\" for a second time; a header has one value",
                property.name
            );
            return refuse_value(format!("{at}.name"), problem);
        }
        read.push(property);
    }
    Ok(read)
}

fn read_property(mapping: Value, input: Schema, delivery: Schema) -> CheckResult<DeliveryProperty> {
    let not_an_object = |at: &str| InvalidRequest::new(at, "is not an object; expected an object");
    if !mapping.is_object() {
        return Err(not_an_object(BODY));
    }
    let DeliveryAttributeMapping {
        name,
        kind,
        properties,
    } = read_value(mapping)?;
    let Value::Object(mut properties) = properties else {
        return Err(not_an_object("properties"));
    };
    property::check_name(&name, delivery)
        .map_err(|error| InvalidRequest::new("name", error.to_string()))?;
    let kind = canonical_name(&kind, &["Static", "Dynamic"]);
    let source = match kind {
        "Static" => source_static(&mut properties)?,
        "Dynamic" => source_dynamic(&mut properties, input)?,
        _ => {
            return refuse_value("type", "is unknown; expected Static or Dynamic");
        }
    };
    match properties.into_iter().find(|(_, value)| !value.is_null()) {
        Some((member, _)) => refuse_value(
            format!("properties.{member}"),
            format!("is no member of {kind}; leave it out"),
        ),
        None => Ok(DeliveryProperty { name, source }),
    }
}

fn source_static(properties: &mut Map<String, Value>) -> CheckResult<PropertySource> {
    let at = "properties.value";
    let value = match properties.remove("value") {
        Some(Value::String(value))
            if value == HIDDEN && properties.get("isSecret").and_then(boolean_of) == Some(true) =>
        {
            let problem = "is \"Hidden\", which stands for a secret that exists; the event \
                subscription has none of this name";
            return refuse_value(at, problem);
        }
        Some(Value::String(value)) => value,
        Some(Value::Null) | None => {
            let problem = "is missing; a secret may be left out only where the event subscription \
                has one of this name";
            return refuse_value(at, problem);
        }
        Some(_) => {
            return refuse_value(at, "is not a string; expected a string");
        }
    };
    property::check_value(&value).map_err(|error| InvalidRequest::new(at, error.to_string()))?;
    let given = properties.remove("isSecret").unwrap_or_default();
    let Some(is_secret) = boolean_of(&given).or_else(|| given.is_null().then_some(false)) else {
        return refuse_value(
            "properties.isSecret",
            "is not a boolean; expected true or false",
        );
    };
    Ok(PropertySource::Static { value, is_secret })
}

fn source_dynamic(
    properties: &mut Map<String, Value>,
    input: Schema,
) -> CheckResult<PropertySource> {
    let invalid = |problem: String| InvalidRequest::new("properties.sourceField", problem);
    let Some(Value::String(field)) = properties.remove("sourceField") else {
        return Err(invalid(
            "is missing, or not a string; expected the name of a property, such as data.total"
                .to_owned(),
        ));
    };
    let source_field = FilterKey::from(field);
    source_field
        .check_schema(input)
        .map_err(|error| invalid(error.to_string()))?;
    Ok(PropertySource::Dynamic { source_field })
}

/// The mappings with their secrets.
pub(super) fn to_json(properties: &[DeliveryProperty]) -> Vec<Value> {
    properties.iter().map(value_of).collect()
}
