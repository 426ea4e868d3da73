//! Request bodies with values of a wrong type: the errors speak of JSON, not of this program's
//! types.

use std::collections::BTreeSet;

use gridhook::admin::{ChaosMode, openapi::generate_document};
use serde_json::{Value, json};

use super::control::ControlFixture;

/// The expectations that an error may name.
const EXPECTED: [&str; 9] = [
    "a string",
    "a boolean",
    "an object",
    "an array",
    "a whole number",
    "a number",
    "one of `",
    "`",
    // Of an event that is tested, as Azure says it of one that is published.
    "schema",
];

/// The paths of all properties of a schema, down to `depth`; `[]` is an element of an array.
fn properties(
    document: &Value,
    schema: &Value,
    at: &[String],
    depth: usize,
    found: &mut BTreeSet<Vec<String>>,
) {
    if depth == 0 {
        return;
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document
            .pointer(reference.trim_start_matches('#'))
            .expect("a schema");
        return properties(document, target, at, depth, found);
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        for schema in schema[key].as_array().into_iter().flatten() {
            properties(document, schema, at, depth, found);
        }
    }
    let mut below = |name: &str, schema: &Value| {
        let path: Vec<String> = at.iter().cloned().chain([name.to_owned()]).collect();
        found.insert(path.clone());
        properties(document, schema, &path, depth - 1, found);
    };
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        below(name, schema);
    }
    if schema["items"].is_object() {
        below("[]", &schema["items"]);
    }
}

/// A body with only this value.
fn body(path: &[String], value: &Value) -> Value {
    path.iter()
        .rev()
        .fold(value.clone(), |value, name| match name.as_str() {
            "[]" => json!([value]),
            name => json!({ name: value }),
        })
}

/// The expectation in an error of the JSON reader, if it has one that is not allowed.
fn foreign(message: &str) -> Option<&str> {
    let (_, expected) = message.rsplit_once(", expected ")?;
    (!EXPECTED.iter().any(|allowed| expected.starts_with(allowed))).then_some(expected)
}

#[actix_web::test]
async fn errors_of_bodies_speak_of_json_and_not_of_types_of_the_program() {
    let control = ControlFixture::new(ChaosMode::Enabled)
        .with_subscription()
        .await;
    let document = generate_document(ChaosMode::Enabled);
    let mut bodies = 0;
    let mut refused = 0;
    let mut wrong = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        // A body of events has the errors of a publisher, and these tests have none.
        let is_ours = !path.ends_with("/publish")
            && (path.starts_with("/subscriptions/{subscriptionId}/resourceGroups/")
                || path.starts_with("/chaos/"));
        for (method, operation) in item
            .as_object()
            .expect("operations")
            .iter()
            .filter(|_| is_ours)
        {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_null() {
                continue;
            }
            bodies += 1;
            let real = path
                .replace("{subscriptionId}", "s-1")
                .replace("{resourceGroupName}", "rg")
                .replace("{topicName}", "orders")
                .replace("{eventSubscriptionName}", "to-shop");
            let real = real.replace(['{', '}'], "");
            let mut found = BTreeSet::new();
            properties(&document, schema, &[], 5, &mut found);
            for at in found {
                for value in [
                    json!(-3.5),
                    json!("x"),
                    json!([]),
                    json!(["x", 1]),
                    json!(true),
                    json!({"x": 1}),
                ] {
                    let response = control
                        .call(&method.to_ascii_uppercase(), &real, body(&at, &value))
                        .await;
                    refused += usize::from(response.status == 400);
                    assert_ne!(
                        response.status, 500,
                        "{method} {path} {at:?} {value}: {}",
                        response.text
                    );
                    if response.status == 400
                        && let Some(foreign) = foreign(
                            response.json()["error"]["message"]
                                .as_str()
                                .expect("a message"),
                        )
                    {
                        wrong.insert(format!("{} = {value}: expected {foreign}", at.join(".")));
                    }
                }
            }
        }
    }
    assert!(
        bodies > 20 && refused > 1_000,
        "{bodies} bodies were tried, {refused} requests were refused"
    );
    assert!(
        wrong.is_empty(),
        "{}",
        wrong.into_iter().collect::<Vec<_>>().join("\n")
    );
}
