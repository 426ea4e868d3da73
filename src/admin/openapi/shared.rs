//! Parameters and error responses that several operations have: they stand in the components once.

use std::collections::{BTreeMap, btree_map::Entry};

use actix_web::http::StatusCode;
use serde_json::{Map, Value, json};

/// Components by their names, and their names by what they are.
#[derive(Default)]
struct SharedSchemas {
    named: Map<String, Value>,
    names: BTreeMap<String, String>,
}

impl SharedSchemas {
    /// Replaces `value` with a reference to a component `name`, with a number if the name is taken.
    fn share_component(&mut self, kind: &str, name: &str, value: &mut Value) {
        let name = match self.names.entry(value.to_string()) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(free) => {
                let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
                let candidates = (2..).map(|number| format!("{plain}{number}"));
                let mut names = std::iter::once(plain.clone()).chain(candidates);
                let fresh = names
                    .find(|name| !self.named.contains_key(name))
                    .unwrap_or_default();
                self.named.insert(fresh.clone(), value.clone());
                free.insert(fresh).clone()
            }
        };
        *value = json!({"$ref": format!("#/components/{kind}/{name}")});
    }
}

/// Moves the parameters and the error responses of `paths` to components, and returns both.
pub(super) fn take_out(paths: &mut Value) -> (Map<String, Value>, Map<String, Value>) {
    let mut parameters = SharedSchemas::default();
    let mut responses = SharedSchemas::default();
    let items = paths.as_object_mut().into_iter().flat_map(Map::values_mut);
    for item in items {
        take_parameters(&mut parameters, item);
        for (_, operation) in item
            .as_object_mut()
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "parameters")
        {
            take_parameters(&mut parameters, operation);
            let operation_responses = operation
                .get_mut("responses")
                .and_then(Value::as_object_mut);
            for (status, response) in operation_responses.into_iter().flatten() {
                let status = status
                    .parse()
                    .ok()
                    .and_then(|status: u16| StatusCode::from_u16(status).ok());
                if let Some(status) = status.filter(|status| status.as_u16() >= 400) {
                    responses.share_component(
                        "responses",
                        status.canonical_reason().unwrap_or("Error"),
                        response,
                    );
                }
            }
        }
    }
    (parameters.named, responses.named)
}

fn take_parameters(shared: &mut SharedSchemas, of: &mut Value) {
    let parameters = of.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        shared.share_component("parameters", &name, parameter);
    }
}
