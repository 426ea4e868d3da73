//! Evaluates expressions in the scope of a template.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use serde_json::{Map, Value, json};

use super::{
    DeploymentContext, EvaluationError, StateKey, States,
    expression::{Expression, parse_expression},
    find_entry, functions, kind_of, list_keys,
};

/// Maximum depth of values and calls, across parameters, variables and functions of the template.
const DEPTH_MAX: usize = 150;

/// Maximum number of calls of functions.
const CALLS_MAX: usize = 200_000;

/// 16 MiB: the maximum size of all results and loops of a template. A small file can double a
/// variable many times.
const RESULTS_BYTES_MAX: usize = 16 << 20;

/// The size that a call or an iteration counts beside its result, because variables can also double
/// empty text.
const CALL_BYTES: usize = 64;

/// Maximum number of iterations of a loop, as in Azure.
pub(crate) const COPIES_MAX: i64 = 800;

/// Characters of an expression in an error.
const SHOWN_CHARS: usize = 200;

/// State that all templates of a deployment share.
pub(crate) struct Shared<'a> {
    pub(crate) context: &'a DeploymentContext,
    pub(crate) states: RefCell<States>,
    /// Results of `newGuid` so far.
    pub(crate) guids: Cell<u64>,
    calls: Cell<usize>,
    bytes: Cell<usize>,
    depth: Cell<usize>,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(context: &'a DeploymentContext, states: &States) -> Self {
        Self {
            context,
            states: RefCell::new(states.clone()),
            guids: Cell::new(0),
            calls: Cell::new(0),
            bytes: Cell::new(0),
            depth: Cell::new(0),
        }
    }

    fn count_call(&self, value: &Value) -> Result<(), EvaluationError> {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get() > CALLS_MAX {
            return Err(EvaluationError::invalid(format!(
                "the expressions of the template make more than {CALLS_MAX} calls"
            )));
        }
        self.count_value(value)
    }

    /// Counts the result of a call, or what an iteration of a loop makes.
    pub(crate) fn count_value(&self, value: &Value) -> Result<(), EvaluationError> {
        self.count_bytes(CALL_BYTES + value_bytes(value))
    }

    fn count_bytes(&self, bytes: usize) -> Result<(), EvaluationError> {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.check_size(0)
    }

    /// Refuses a result of this size before it is made, if it exceeds what is left.
    pub(crate) fn check_size(&self, size: usize) -> Result<(), EvaluationError> {
        if self.bytes.get().saturating_add(size) > RESULTS_BYTES_MAX {
            let megabytes = RESULTS_BYTES_MAX >> 20;
            let problem = format!(
                "the expressions and loops of the template make more than {megabytes} MiB in total"
            );
            return Err(EvaluationError::invalid(problem));
        }
        Ok(())
    }
}

/// The approximate memory of a value.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list
            .iter()
            .map(|value| CALL_BYTES + value_bytes(value))
            .sum(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| CALL_BYTES + key.len() + value_bytes(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// A parameter of a template.
pub(crate) enum Parameter {
    /// Given: text that looks like an expression is text.
    Given(Value),
    /// The default value, which may be or have expressions.
    Default(Value),
}

/// The meanings of the names in the expressions of one template.
#[derive(Default)]
pub(crate) struct Frame {
    pub(crate) parameters: BTreeMap<String, Parameter>,
    pub(crate) variables: Map<String, Value>,
    /// The functions of the template, by `namespace.name` in lower case.
    pub(crate) functions: BTreeMap<String, Value>,
    /// The names of its extensions, by alias.
    pub(crate) extensions: BTreeMap<String, String>,
    /// The name, Azure subscription and resource group of the deployment.
    pub(crate) deployment: String,
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    /// The template itself, for `deployment()`.
    pub(crate) template: Value,
    /// The ids of the template's resources by symbolic name, in lower case: several for a loop.
    pub(crate) ids: RefCell<BTreeMap<String, Vec<String>>>,
    /// Their ids by name, in lower case. A symbolic name comes first.
    pub(crate) ids_by_name: RefCell<BTreeMap<String, String>>,
    /// Parameters and variables that were evaluated; [`None`] while one is.
    pub(crate) results: RefCell<BTreeMap<String, Option<Value>>>,
}

impl Frame {
    /// The frame of a call of a function of this template. It has neither the parameters and
    /// variables of the template nor its resources.
    pub(crate) fn for_function(&self) -> Self {
        Self {
            functions: self.functions.clone(),
            deployment: self.deployment.clone(),
            subscription: self.subscription.clone(),
            resource_group: self.resource_group.clone(),
            template: self.template.clone(),
            ..Self::default()
        }
    }

    /// Records the symbolic name of a loop, which may have no iterations.
    pub(crate) fn add_loop(&self, symbol: &str) {
        let mut ids = self.ids.borrow_mut();
        ids.entry(symbol.to_ascii_lowercase()).or_default();
    }

    /// Records the id of a resource by its symbolic name.
    pub(crate) fn add_symbol(&self, symbol: &str, id: &str) {
        let mut ids = self.ids.borrow_mut();
        let ids_of_symbol = ids.entry(symbol.to_ascii_lowercase()).or_default();
        ids_of_symbol.push(id.to_owned());
    }

    /// Records the id of a resource by its name. If several resources have the name, it stands for
    /// the first one.
    pub(crate) fn add_name(&self, name: &str, id: &str) {
        let mut ids_by_name = self.ids_by_name.borrow_mut();
        for name in [name, name.rsplit('/').next().unwrap_or_default()] {
            let id_of_name = ids_by_name.entry(name.to_ascii_lowercase());
            id_of_name.or_insert_with(|| id.to_owned());
        }
    }

    /// The ids that a symbolic name or a name stands for; [`None`] if the template has neither.
    pub(crate) fn ids_of(&self, name: &str) -> Option<Vec<String>> {
        let key = name.to_ascii_lowercase();
        if let Some(ids) = self.ids.borrow().get(&key) {
            return Some(ids.clone());
        }
        let id = self.ids_by_name.borrow().get(&key)?.clone();
        Some(vec![id])
    }
}

/// The names that loops and lambdas add to a scope.
#[derive(Clone, Default)]
pub(crate) struct Local {
    /// The loops around, with their names and iterations; the innermost is the last one.
    pub(crate) copies: Vec<(String, i64)>,
    pub(crate) lambdas: Vec<(String, Value)>,
}

impl Local {
    pub(crate) fn in_copy(&self, name: &str, index: i64) -> Self {
        let mut local = self.clone();
        local.copies.push((name.to_owned(), index));
        local
    }

    pub(crate) fn with_variables(
        &self,
        variables: impl IntoIterator<Item = (String, Value)>,
    ) -> Self {
        let mut local = self.clone();
        local.lambdas.extend(variables);
        local
    }
}

/// The scope in which an expression is evaluated.
#[derive(Clone, Copy)]
pub(crate) struct EvaluationScope<'a> {
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) frame: &'a Frame,
    pub(crate) local: &'a Local,
}

impl EvaluationScope<'_> {
    /// Evaluates every expression in the value, and expands its loops.
    pub(crate) fn evaluate_value(&self, value: &Value) -> Result<Value, EvaluationError> {
        self.with_depth(|| match value {
            Value::String(text) => self.evaluate_text(text),
            Value::Array(list) => list
                .iter()
                .map(|value| self.evaluate_value(value))
                .collect(),
            Value::Object(object) => self.evaluate_object(object),
            other => Ok(other.clone()),
        })
    }

    /// Counts the depth while `evaluate` runs.
    fn with_depth(
        &self,
        evaluate: impl FnOnce() -> Result<Value, EvaluationError>,
    ) -> Result<Value, EvaluationError> {
        let depth = &self.shared.depth;
        if depth.get() >= DEPTH_MAX {
            return Err(EvaluationError::invalid(format!(
                "it is nested deeper than {DEPTH_MAX} levels"
            )));
        }
        depth.set(depth.get() + 1);
        let result = evaluate();
        depth.set(depth.get() - 1);
        result
    }

    fn evaluate_object(&self, object: &Map<String, Value>) -> Result<Value, EvaluationError> {
        let mut output = Map::new();
        for (key, value) in object {
            if let Some(loops) = find_loops(key, value) {
                for one in loops {
                    let (name, list) = self.expand_property(one)?;
                    output.insert(name, list);
                }
                continue;
            }
            let name = match self.evaluate_text(key)? {
                Value::String(name) => name,
                other => {
                    return Err(EvaluationError::invalid(format!(
                        "a name is {}; expected a string",
                        kind_of(&other)
                    )));
                }
            };
            output.insert(
                name,
                self.evaluate_value(value)
                    .map_err(|error| error.with_location(key))?,
            );
        }
        Ok(Value::Object(output))
    }

    /// The name of a loop's property, and its elements.
    fn expand_property(&self, definition: &Value) -> Result<(String, Value), EvaluationError> {
        let name = definition["name"].as_str().unwrap_or_default().to_owned();
        let count = self
            .evaluate_count(&definition["count"])
            .map_err(|error| error.with_location(format!("copy {name}")))?;
        let list = self.expand_loop(&name, count, &definition["input"])?;
        Ok((name, list))
    }

    /// The elements of a loop: its input, evaluated in each iteration.
    pub(crate) fn expand_loop(
        &self,
        name: &str,
        count: i64,
        input: &Value,
    ) -> Result<Value, EvaluationError> {
        let mut list = Vec::new();
        for index in 0..count {
            let local = self.local.in_copy(name, index);
            let scope = EvaluationScope {
                local: &local,
                ..*self
            };
            let element = scope.evaluate_value(input)?;
            self.shared.count_value(&element)?;
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    /// The count of a loop.
    pub(crate) fn evaluate_count(&self, count: &Value) -> Result<i64, EvaluationError> {
        match self.evaluate_value(count)?.as_i64() {
            Some(count) if (0..=COPIES_MAX).contains(&count) => Ok(count),
            Some(count) => Err(EvaluationError::invalid(format!(
                "the count of a loop is {count}; expected 0 to {COPIES_MAX}"
            ))),
            None => Err(EvaluationError::invalid(
                "the count of a loop is not a number; expected a whole number",
            )),
        }
    }

    /// A text, which may be an expression.
    pub(crate) fn evaluate_text(&self, text: &str) -> Result<Value, EvaluationError> {
        if let Some(literal) = text.strip_prefix("[[") {
            return Ok(format!("[{literal}").into());
        }
        let Some(inner) = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'))
        else {
            return Ok(text.into());
        };
        let result =
            parse_expression(inner).and_then(|expression| self.evaluate_expression(&expression));
        result.map_err(|error| {
            let shown: String = text.chars().take(SHOWN_CHARS).collect();
            let is_whole = shown.len() == text.len();
            error.with_location(format!(
                "the expression {shown}{}",
                if is_whole { "" } else { "…" }
            ))
        })
    }

    pub(crate) fn evaluate_expression(
        &self,
        expression: &Expression,
    ) -> Result<Value, EvaluationError> {
        self.with_depth(|| match expression {
            Expression::Text(text) => {
                // A lambda can repeat it for each element of a list.
                self.shared.count_bytes(text.len())?;
                Ok(text.as_str().into())
            }
            Expression::Number(number) => Ok((*number).into()),
            Expression::Call {
                function,
                arguments,
            } => {
                let value = functions::call_function(self, function, arguments)?;
                self.shared.count_call(&value)?;
                Ok(value)
            }
            Expression::Property(base, name) => {
                read_property(&self.evaluate_expression(base)?, name)
            }
            Expression::Element(base, index) => read_element(
                &self.evaluate_expression(base)?,
                &self.evaluate_expression(index)?,
            ),
        })
    }

    pub(crate) fn parameter_value(&self, name: &str) -> Result<Value, EvaluationError> {
        let own_parameter = self
            .frame
            .parameters
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        match own_parameter {
            Some((_, Parameter::Given(value))) => Ok(value.clone()),
            Some((known, Parameter::Default(value))) => {
                self.evaluate_once(&format!("default value of the parameter '{known}'"), value)
            }
            None => Err(EvaluationError::invalid(format!(
                "there is no parameter '{name}'"
            ))),
        }
    }

    pub(crate) fn variable_value(&self, name: &str) -> Result<Value, EvaluationError> {
        let variables = &self.frame.variables;
        if let Some((known, value)) = variables
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
        {
            return self.evaluate_once(&format!("variable '{known}'"), value);
        }
        let loops = variables
            .iter()
            .filter_map(|(key, value)| find_loops(key, value))
            .flatten();
        let loop_item = loops.into_iter().find(|one| {
            one["name"]
                .as_str()
                .is_some_and(|of| of.eq_ignore_ascii_case(name))
        });
        match loop_item {
            Some(one) => {
                let whole = Value::Object(Map::from_iter([(
                    "copy".to_owned(),
                    Value::Array(vec![one.clone()]),
                )]));
                let whole_value = self.evaluate_once(&format!("variable '{name}'"), &whole)?;
                read_property(&whole_value, name)
            }
            None => Err(EvaluationError::invalid(format!(
                "there is no variable '{name}'"
            ))),
        }
    }

    /// Evaluates a parameter or variable once.
    fn evaluate_once(&self, key: &str, value: &Value) -> Result<Value, EvaluationError> {
        let stored_result = self.frame.results.borrow().get(key).cloned();
        match stored_result {
            Some(Some(value)) => return Ok(value),
            Some(None) => {
                return Err(EvaluationError::invalid(format!(
                    "the {key} refers to itself"
                )));
            }
            None => {}
        }
        self.frame.results.borrow_mut().insert(key.to_owned(), None);
        // Parameters and variables do not see the loops and lambdas around their use.
        let result = EvaluationScope {
            local: &Local::default(),
            ..*self
        }
        .evaluate_value(value);
        let mut results = self.frame.results.borrow_mut();
        match &result {
            Ok(value) => results.insert(key.to_owned(), Some(value.clone())),
            Err(_) => results.remove(key),
        };
        drop(results);
        result.map_err(|error| error.with_location(format!("the {key}")))
    }
}

/// The loops of a key `copy`.
fn find_loops<'a>(key: &str, value: &'a Value) -> Option<&'a Vec<Value>> {
    let list = value
        .as_array()
        .filter(|list| key.eq_ignore_ascii_case("copy") && !list.is_empty())?;
    list.iter()
        .all(|one| one["name"].is_string() && one.get("count").is_some())
        .then_some(list)
}

/// The key of what stands for an output of a nested deployment that needs a state. No name of a
/// property has a control character.
const MISSING: &str = "\u{1}needs";

/// The value that stands for an output that needs a state.
pub(crate) fn missing_output(needs: &StateKey) -> Value {
    json!({MISSING: {"id": needs.id, "action": needs.action}})
}

/// Refuses to read what stands for an output that needs a state.
pub(crate) fn check_is_known(value: &Value) -> Result<(), EvaluationError> {
    let Some(needs) = value.get(MISSING) else {
        return Ok(());
    };
    Err(EvaluationError::Unknown(StateKey {
        id: needs["id"].as_str().unwrap_or_default().to_owned(),
        action: needs["action"].as_str().map(str::to_owned),
    }))
}

/// Refuses to read a value that contains what stands for an output that needs a state.
pub(crate) fn check_all_known(value: &Value) -> Result<(), EvaluationError> {
    check_is_known(value)?;
    match value {
        Value::Array(list) => list.iter().try_for_each(check_all_known),
        Value::Object(object) => object.values().try_for_each(check_all_known),
        _ => Ok(()),
    }
}

pub(crate) fn read_property(value: &Value, name: &str) -> Result<Value, EvaluationError> {
    check_is_known(value)?;
    match value {
        Value::Object(object) => find_entry(object, name).cloned().ok_or_else(|| {
            EvaluationError::invalid(format!(
                "the object has no property '{name}'; it has {}",
                list_keys(object)
            ))
        }),
        other => {
            let problem = format!("'.{name}' follows {}; expected an object", kind_of(other));
            Err(EvaluationError::invalid(problem))
        }
    }
}

pub(crate) fn read_element(value: &Value, index: &Value) -> Result<Value, EvaluationError> {
    match (value, index) {
        (Value::Array(list), Value::Number(number)) => {
            let item = number
                .as_u64()
                .and_then(|index| list.get(usize::try_from(index).ok()?));
            item.cloned().ok_or_else(|| {
                EvaluationError::invalid(format!(
                    "the index {number} is outside of an array of {}",
                    list.len()
                ))
            })
        }
        (Value::Object(_), Value::String(name)) => read_property(value, name),
        (value, index) => {
            let problem = format!(
                "[{}] follows {}; expected the number of an element or the name of a property",
                kind_of(index),
                kind_of(value)
            );
            Err(EvaluationError::invalid(problem))
        }
    }
}
