//! Parameters: their values, defaults, types and limits, and files of them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{EvaluationError, evaluate::Parameter, find_entry, kind_of, list_keys};

#[derive(Clone, Debug, PartialEq)]
pub enum ParameterInput {
    Value(Value),
    /// Text of a command line: a string, or JSON if the parameter has another type.
    Text(String),
}

/// Depth of references between definitions.
const REFERENCES_MAX: usize = 32;

/// The parameters of a parameter file, or of the `parameters` of a deployment.
///
/// # Errors
/// A parameter has no value.
pub fn parameters_of_file(
    file: &Value,
) -> Result<BTreeMap<String, ParameterInput>, EvaluationError> {
    let all = if file["parameters"].is_object() {
        &file["parameters"]
    } else {
        file
    };
    let Some(all) = all.as_object() else {
        return Err(EvaluationError::invalid(format!(
            "the parameters are {}; expected an object",
            kind_of(file)
        )));
    };
    all.iter()
        .map(|(name, input)| Ok((name.clone(), read_parameter(name, input)?)))
        .collect()
}

fn read_parameter(name: &str, input: &Value) -> Result<ParameterInput, EvaluationError> {
    let problem = match input {
        Value::Object(object) if object.contains_key("value") => {
            return Ok(ParameterInput::Value(object["value"].clone()));
        }
        Value::Object(object) if object.contains_key("reference") => {
            "refers to a key vault, which does not exist here; give its value"
        }
        _ => "has no value; expected {\"value\": …}",
    };
    Err(EvaluationError::invalid(format!(
        "the parameter '{name}' {problem}"
    )))
}

/// Whether values of the type must not be shown.
pub(crate) fn is_secure(declared: &Value) -> bool {
    let kind = declared["type"].as_str().unwrap_or_default();
    kind.eq_ignore_ascii_case("securestring") || kind.eq_ignore_ascii_case("secureobject")
}

/// The given parameters, and the defaults of the others. Names are compared without case.
pub(crate) fn resolve_parameters(
    declared: &Map<String, Value>,
    definitions: &Value,
    given: &BTreeMap<String, ParameterInput>,
) -> Result<BTreeMap<String, Parameter>, EvaluationError> {
    if let Some(unknown) = given
        .keys()
        .find(|name| find_entry(declared, name).is_none())
    {
        let problem = format!(
            "the template has no parameter '{unknown}'; it has {}",
            list_keys(declared)
        );
        return Err(EvaluationError::invalid(problem));
    }
    let mut parameters = BTreeMap::new();
    for (name, parameter) in declared {
        let parameter = &resolve_definition(parameter, definitions)?;
        let given_input = given
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, input)| input);
        let value = given_input
            .map(|input| read_input(name, parameter, input))
            .transpose()?
            .filter(|value| !value.is_null());
        let default = parameter
            .get("defaultValue")
            .filter(|value| !value.is_null())
            .cloned();
        let value = match (value, default) {
            (Some(value), _) => Parameter::Given(value),
            (None, Some(default)) => Parameter::Default(default),
            (None, None) if parameter["nullable"] == true => Parameter::Given(Value::Null),
            (None, None) => {
                let problem = format!(
                    "the parameter '{name}' has no default value; give it with --parameter \
                     {name}=VALUE, or a default"
                );
                return Err(EvaluationError::invalid(problem));
            }
        };
        parameters.insert(name.clone(), value);
    }
    Ok(parameters)
}

fn read_input(
    name: &str,
    declared: &Value,
    input: &ParameterInput,
) -> Result<Value, EvaluationError> {
    let kind = declared["type"]
        .as_str()
        .unwrap_or_default()
        .to_ascii_lowercase();
    match input {
        ParameterInput::Value(value) => Ok(value.clone()),
        ParameterInput::Text(text) if kind == "string" || kind == "securestring" => {
            Ok(text.as_str().into())
        }
        ParameterInput::Text(text) => parse_text(&kind, text).map_err(|expected| {
            EvaluationError::invalid(format!(
                "the parameter '{name}' is of the type {kind}, and its text is not {expected}"
            ))
        }),
    }
}

/// Parses the text of a parameter that is no string. A boolean is in any case, as with `az`:
/// PowerShell writes `True`. An error is what the text should be.
fn parse_text(kind: &str, text: &str) -> Result<Value, &'static str> {
    let text = text.trim();
    match kind {
        "bool" if text.eq_ignore_ascii_case("true") => Ok(Value::Bool(true)),
        "bool" if text.eq_ignore_ascii_case("false") => Ok(Value::Bool(false)),
        "bool" if text == "null" => Ok(Value::Null),
        "bool" => Err("true or false"),
        "int" => serde_json::from_str(text).map_err(|_| "a whole number"),
        _ => serde_json::from_str(text).map_err(|_| "JSON"),
    }
}

/// A declaration with that of its definition, which its own keys override.
fn resolve_definition(declared: &Value, definitions: &Value) -> Result<Value, EvaluationError> {
    let mut declaration = declared.clone();
    for _ in 0..REFERENCES_MAX {
        let Some(reference) = declaration
            .as_object_mut()
            .and_then(|declaration| declaration.remove("$ref"))
        else {
            return Ok(declaration);
        };
        let name = reference.as_str().unwrap_or_default();
        let definition = name
            .strip_prefix("#/definitions/")
            .and_then(|name| definitions.get(name));
        let Some(definition) = definition else {
            return Err(EvaluationError::invalid(format!(
                "the definition {name} does not exist; expected #/definitions/NAME"
            )));
        };
        let Some(mut merged) = definition.as_object().cloned() else {
            return Err(EvaluationError::invalid(format!(
                "the definition {name} is {}; expected an object",
                kind_of(definition)
            )));
        };
        for (key, value) in declaration.as_object().into_iter().flatten() {
            merged.insert(key.clone(), value.clone());
        }
        declaration = Value::Object(merged);
    }
    Err(EvaluationError::invalid(format!(
        "definitions refer to each other over more than {REFERENCES_MAX} steps"
    )))
}

/// Checks a value with its declaration: type, allowed values and limits.
pub(crate) fn check_value(
    declared: &Value,
    definitions: &Value,
    value: &Value,
) -> Result<(), EvaluationError> {
    let declaration = &resolve_definition(declared, definitions)?;
    if value.is_null() && declaration["nullable"] == true {
        return Ok(());
    }
    check_type(declaration, value)?;
    check_limits(declaration, value)?;
    match value {
        Value::Array(list) => {
            let items = declaration.get("items").filter(|items| items.is_object());
            for (index, one) in list.iter().enumerate() {
                let prefix = declaration["prefixItems"].get(index);
                let Some(item) = prefix.or(items) else {
                    continue;
                };
                check_value(item, definitions, one)
                    .map_err(|error| error.with_location(format!("element {index}")))?;
            }
            Ok(())
        }
        Value::Object(object) => check_properties(declaration, definitions, object),
        _ => Ok(()),
    }
}

fn check_properties(
    declared: &Value,
    definitions: &Value,
    object: &Map<String, Value>,
) -> Result<(), EvaluationError> {
    let declared = &one_of_several(declared, definitions, object)?;
    let properties = declared["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        let property = &resolve_definition(property, definitions)?;
        match find_entry(object, name) {
            Some(value) => check_value(property, definitions, value)
                .map_err(|error| error.with_location(name))?,
            None if property["nullable"] == true => {}
            None => {
                return Err(EvaluationError::invalid(format!(
                    "the property '{name}' is missing"
                )));
            }
        }
    }
    let is_known =
        |name: &str| properties.is_some_and(|properties| find_entry(properties, name).is_some());
    for (name, value) in object.iter().filter(|(name, _)| !is_known(name)) {
        match &declared["additionalProperties"] {
            Value::Bool(false) => {
                return Err(EvaluationError::invalid(format!(
                    "the property '{name}' is not allowed"
                )));
            }
            other @ Value::Object(_) => {
                check_value(other, definitions, value).map_err(|error| error.with_location(name))?
            }
            _ => {}
        }
    }
    Ok(())
}

/// The declaration that the discriminator of an object chooses.
fn one_of_several(
    declared: &Value,
    definitions: &Value,
    object: &Map<String, Value>,
) -> Result<Value, EvaluationError> {
    let Some(property) = declared["discriminator"]["propertyName"].as_str() else {
        return Ok(declared.clone());
    };
    let kind = find_entry(object, property)
        .and_then(Value::as_str)
        .unwrap_or_default();
    match declared["discriminator"]["mapping"].get(kind) {
        Some(one) => resolve_definition(one, definitions),
        None => {
            let kinds = declared["discriminator"]["mapping"]
                .as_object()
                .into_iter()
                .flatten();
            let kinds: Vec<&str> = kinds.map(|(kind, _)| kind.as_str()).collect();
            Err(EvaluationError::invalid(format!(
                "the property '{property}' has no known value; expected one of {}",
                kinds.join(", ")
            )))
        }
    }
}

pub(crate) fn check_type(declared: &Value, value: &Value) -> Result<(), EvaluationError> {
    let kind = declared["type"]
        .as_str()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let (is_right, allowed) = match kind.as_str() {
        "string" | "securestring" => (value.is_string(), "a string"),
        "int" => (value.is_i64() || value.is_u64(), "a whole number"),
        "bool" => (value.is_boolean(), "a boolean"),
        "array" => (value.is_array(), "an array"),
        "object" | "secureobject" => (value.is_object(), "an object"),
        "" => (true, ""),
        other => {
            let problem = format!(
                "the type {other} is not known; expected string, securestring, int, bool, \
                 array, object or secureObject"
            );
            return Err(EvaluationError::invalid(problem));
        }
    };
    if is_right {
        return Ok(());
    }
    Err(EvaluationError::invalid(format!(
        "the value is {}; expected {allowed}",
        kind_of(value)
    )))
}

fn check_limits(declared: &Value, value: &Value) -> Result<(), EvaluationError> {
    // Values of a list restrict the elements of an array.
    if let Some(allowed) = declared["allowedValues"].as_array() {
        let is_allowed = |one: &Value| allowed.iter().any(|known| is_same(known, one));
        let all_allowed = is_allowed(value)
            || value
                .as_array()
                .is_some_and(|list| list.iter().all(is_allowed));
        if !all_allowed {
            let shown: Vec<String> = allowed.iter().map(Value::to_string).collect();
            return Err(EvaluationError::invalid(format!(
                "the value is not allowed; expected one of {}",
                shown.join(", ")
            )));
        }
    }
    let length = match value {
        Value::String(text) => Some(text.chars().count() as u64),
        Value::Array(list) => Some(list.len() as u64),
        _ => None,
    };
    if let Some(length) = length {
        let least = declared["minLength"].as_u64().unwrap_or(0);
        let most = declared["maxLength"].as_u64().unwrap_or(u64::MAX);
        if !(least..=most).contains(&length) {
            return Err(EvaluationError::invalid(format!(
                "the length is {length}; expected {}",
                format_range(least, most == u64::MAX, most)
            )));
        }
    }
    if let Some(number) = value.as_i64() {
        let least = declared["minValue"].as_i64().unwrap_or(i64::MIN);
        let most = declared["maxValue"].as_i64().unwrap_or(i64::MAX);
        if !(least..=most).contains(&number) {
            let allowed = match (least, most) {
                (i64::MIN, most) => format!("at most {most}"),
                (least, i64::MAX) => format!("{least} or more"),
                (least, most) => format!("{least} to {most}"),
            };
            return Err(EvaluationError::invalid(format!(
                "the number is out of range; expected {allowed}"
            )));
        }
    }
    Ok(())
}

fn format_range(least: u64, is_open: bool, most: u64) -> String {
    if is_open {
        format!("{least} or more")
    } else {
        format!("{least} to {most}")
    }
}

/// ARM compares allowed strings without case.
fn is_same(known: &Value, given: &Value) -> bool {
    match (known.as_str(), given.as_str()) {
        (Some(known), Some(given)) => known.eq_ignore_ascii_case(given),
        _ => known == given,
    }
}
