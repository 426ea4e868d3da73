//! Descriptions of schemas and their properties: the comments of the types.

use serde_json::{Value, json};

/// Minimum number of words of a description: fewer only repeat the name of the type.
const WORDS_MIN: usize = 3;

/// Makes descriptions of the comments in a schema and in its inner schemas.
pub(super) fn describe_schema(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let comment = members.remove("description");
            let comment = comment.as_ref().and_then(Value::as_str);
            if let Some(text) = comment.and_then(comment_to_description) {
                members.insert("description".to_owned(), text.into());
            }
            for (key, value) in &mut *members {
                match (key.as_str(), value) {
                    // The keys are names of properties, and one may be "description".
                    ("properties", Value::Object(properties)) => {
                        properties.values_mut().for_each(describe_schema);
                        properties.values_mut().for_each(describe_constant);
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

/// Describes the property that has the name of a variant, which has no comment.
fn describe_constant(property: &mut Value) {
    if property["description"].is_null()
        && let [Value::String(name)] = property["enum"].as_array().map_or(&[][..], Vec::as_slice)
    {
        property["description"] = format!("Always `{name}` in this case").into();
    }
}

/// A comment as a description: on one line, without the full stop.
fn comment_to_description(comment: &str) -> Option<String> {
    let words: Vec<&str> = comment.split_whitespace().collect();
    let line = words.join(" ");
    let text = line.strip_suffix('.').unwrap_or(&line);
    (words.len() >= WORDS_MIN).then(|| text.to_owned())
}
