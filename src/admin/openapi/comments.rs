//! Descriptions of schemas and their properties: the comments of the types.

use serde_json::{Value, json};

/// Makes descriptions of the comments in a schema and in its inner schemas.
pub(super) fn describe_schema(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = comment_to_description(text);
            }
            for (key, value) in &mut *members {
                match (key.as_str(), value) {
                    // The keys are names of properties, and one may be "description".
                    ("properties", Value::Object(properties)) => {
                        properties.values_mut().for_each(describe_schema);
                    }
                    ("example" | "examples" | "default" | "enum", _) => {}
                    (_, value) => describe_schema(value),
                }
            }
            if let Some(text) = take_optional_description(schema) {
                schema["description"] = text;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(describe_schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Takes the comment of an optional field of another type: the derive describes the type with it,
/// not the property.
fn take_optional_description(schema: &mut Value) -> Option<Value> {
    let alternatives = schema.get_mut("oneOf")?.as_array_mut()?;
    let is_optional = alternatives.contains(&json!({"type": "null"}));
    let reference = alternatives.iter_mut().find(|one| one["$ref"].is_string());
    reference
        .filter(|_| is_optional)?
        .as_object_mut()?
        .remove("description")
}

/// A comment as a description: on one line, without the full stop.
fn comment_to_description(comment: &str) -> String {
    let line = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    line.strip_suffix('.').map_or(line.clone(), str::to_owned)
}
