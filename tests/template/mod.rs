//! Templates of Azure Resource Manager: their functions, and how their resources are expanded.

mod expand;
mod functions;
mod limits;
mod parameters;

use std::collections::BTreeMap;

use gridhook::template::{
    DeploymentContext, EvaluationError, Expansion, ParameterInput, States, expand_template,
};
use serde_json::{Value, json};

fn context() -> DeploymentContext {
    DeploymentContext {
        subscription: "s-1".to_owned(),
        resource_group: "rg".to_owned(),
        location: "westus2".to_owned(),
        tags: BTreeMap::from([("team".to_owned(), "shop".to_owned())]),
        deployment: "main".to_owned(),
        tenant: "00000000-0000-0000-0000-000000000000".to_owned(),
        environment: Some(
            json!({"name": "gridhook", "suffixes": {"storage": "storage.gridhook.invalid"}}),
        ),
        now: "2026-11-29T12:34:56.789Z".parse().expect("a time"),
        seed: "seed".to_owned(),
    }
}

fn expand_with(
    template: &Value,
    parameters: &Value,
    states: &States,
) -> Result<Expansion, EvaluationError> {
    let given = parameters
        .as_object()
        .expect("an object")
        .clone()
        .into_iter();
    let given = given
        .map(|(name, value)| (name, ParameterInput::Value(value)))
        .collect();
    expand_template(template, &given, &context(), states)
}

/// The template's expansion.
fn expanded(template: &Value, parameters: &Value) -> Expansion {
    expand_with(template, parameters, &States::new()).unwrap_or_else(|error| panic!("{error}"))
}

/// The value of an expression, or its error.
fn evaluate(expression: &str) -> Result<Value, String> {
    let template =
        json!({"resources": [], "outputs": {"result": {"value": format!("[{expression}]")}}});
    match expand_with(&template, &json!({}), &States::new()) {
        Ok(Expansion { pending, .. }) if !pending.is_empty() => {
            Err(format!("needs {}", pending[0].needs.id))
        }
        Ok(mut expansion) => Ok(expansion.outputs["result"]["value"].take()),
        Err(error) => Err(error.to_string()),
    }
}
