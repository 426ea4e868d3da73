//! Templates of Azure Resource Manager: evaluates their expressions, and expands loops, conditions,
//! child resources and nested deployments into a flat list of resources with their bodies, and
//! outputs.
//!
//! Invariants:
//! - pure: no input or output, no clock, no randomness. Time and the seed of `newGuid` are in the
//!   [`DeploymentContext`], what exists is in [`States`];
//! - bounded: the depth of expressions and values, the number of calls, the size of all results
//!   together, and the number of resources;
//! - an error has the kind of a wrong value, not the value, because it may be secret. Only names,
//!   such as of a property or a resource, and counts that an expression computes can be in it.
//!
//! Functions such as `reference` need the state of a resource. If it is not in [`States`], what
//! needs it is returned as [`Expansion::pending`]; the caller finds the state, perhaps by creating
//! the resource, and expands the template again.

mod evaluate;
mod expression;
mod functions;
mod naming;
mod parameters;
mod resources;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub use self::{
    expression::{Expression, parse_expression},
    functions::function_names,
    parameters::{ParameterInput, parameters_of_file},
    resources::{RESOURCES_MAX, expand_template},
};

/// Why an expression or a template has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The text says what is wrong, and what is allowed.
    #[error("{0}")]
    Invalid(String),
    /// The value needs the state of a resource that is not known.
    #[error("it needs the state of {}, which does not exist", .0.id)]
    Unknown(StateKey),
}

impl EvaluationError {
    fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// Puts where the error is before its text.
    fn with_location(self, at: impl std::fmt::Display) -> Self {
        match self {
            Self::Invalid(what) => Self::Invalid(format!("{at}: {what}")),
            unknown @ Self::Unknown(_) => unknown,
        }
    }
}

/// A state of a resource that a function needs: the response of a GET, or of a POST of an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateKey {
    /// The id of the resource in lower case.
    pub id: String,
    /// The action such as `listKeys`, or [`None`] for GET.
    pub action: Option<String>,
}

impl StateKey {
    /// The state that a GET of the resource returns.
    pub fn get(id: &str) -> Self {
        Self {
            id: id.to_ascii_lowercase(),
            action: None,
        }
    }
}

/// The path whose GET returns what `environment()` does.
pub const ENVIRONMENT_PATH: &str = "/metadata/endpoints?api-version=2022-09-01";

pub type States = BTreeMap<StateKey, Value>;

/// The place and time of a deployment.
#[derive(Clone, Debug)]
pub struct DeploymentContext {
    pub subscription: String,
    pub resource_group: String,
    /// The location of the resource group.
    pub location: String,
    /// The tags of the resource group.
    pub tags: BTreeMap<String, String>,
    /// The name of the deployment.
    pub deployment: String,
    pub tenant: String,
    /// The result of `environment()`; [`None`] if that is a state as of a resource
    /// ([`ENVIRONMENT_PATH`]).
    pub environment: Option<Value>,
    pub now: jiff::Timestamp,
    /// The text from which the results of `newGuid()` are derived.
    pub seed: String,
}

/// A resource of an expanded template.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateResource {
    pub id: String,
    /// The whole type such as `Microsoft.EventGrid/topics/eventSubscriptions`.
    pub kind: String,
    /// The names of all levels of the type, joined with slashes.
    pub name: String,
    /// The id of the resource that it extends, if any.
    pub scope: Option<String>,
    pub subscription: String,
    pub resource_group: String,
    /// The body of the PUT request. Of resources of other providers only deployments are evaluated.
    pub body: Value,
    /// Whether it is left as it is if it exists (`@onlyIfNotExists()` of Bicep).
    pub only_if_not_exists: bool,
}

/// Something that needs a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingValue {
    /// What needs the state, such as a resource id or the name of an output.
    pub what: String,
    /// The id of the resource, or of the nested deployment with the output; [`None`] for an output
    /// of the template itself.
    pub owner: Option<String>,
    pub needs: StateKey,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expansion {
    /// The resources of Event Grid whose values are known, in the order of the template.
    pub resources: Vec<TemplateResource>,
    /// Resources of other providers, which are not evaluated.
    pub foreign: Vec<TemplateResource>,
    /// Resources and outputs that need a state.
    pub pending: Vec<PendingValue>,
    /// The outputs of the template: type and value. Those of a secure type have no value.
    pub outputs: Map<String, Value>,
    /// The given or default values of its parameters: type and value. Those of a secure type have
    /// no value.
    pub parameters: Map<String, Value>,
    /// The values of secure parameters, which must not be shown.
    pub secrets: Vec<String>,
}

/// The entry with this key, which ARM compares without case.
fn find_entry<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    if let Some(value) = object.get(key) {
        return Some(value);
    }
    let mut entries = object.iter();
    let (_, value) = entries.find(|(known, _)| known.eq_ignore_ascii_case(key))?;
    Some(value)
}

/// The first keys of an object, for errors.
fn list_keys(object: &Map<String, Value>) -> String {
    if object.is_empty() {
        return "none".to_owned();
    }
    let keys: Vec<&str> = object.keys().map(String::as_str).take(20).collect();
    keys.join(", ")
}

/// The kind of a value, for errors.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
