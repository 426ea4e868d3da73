//! The functions of expressions: one table, and a module for each kind.

mod json;
mod lambda;
mod list;
mod number;
mod resource;
mod text;
mod time;
mod uri;

use std::ops::RangeInclusive;

use gridhook_escape::count_with_noun;
use serde_json::{Map, Value};

use super::{
    EvaluationError, evaluate::EvaluationScope, evaluate::Local, expression::Expression, kind_of,
};
use crate::parameters;

type Evaluated = Result<Value, EvaluationError>;

struct Function {
    name: &'static str,
    arguments: RangeInclusive<usize>,
    body: Body,
}

enum Body {
    /// A function whose result depends on its arguments only.
    Values(fn(&Arguments<'_>) -> Evaluated),
    /// A function whose result depends on the template, too.
    Scoped(fn(&EvaluationScope<'_>, &Arguments<'_>) -> Evaluated),
    /// A function that evaluates its arguments itself, perhaps not all of them.
    Lazy(fn(&EvaluationScope<'_>, &[Expression]) -> Evaluated),
}

const fn eager_function(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    body: fn(&Arguments<'_>) -> Evaluated,
) -> Function {
    Function {
        name,
        arguments,
        body: Body::Values(body),
    }
}

const fn scoped_function(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    body: fn(&EvaluationScope<'_>, &Arguments<'_>) -> Evaluated,
) -> Function {
    Function {
        name,
        arguments,
        body: Body::Scoped(body),
    }
}

const fn lazy_function(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    body: fn(&EvaluationScope<'_>, &[Expression]) -> Evaluated,
) -> Function {
    Function {
        name,
        arguments,
        body: Body::Lazy(body),
    }
}

const MANY: usize = usize::MAX;

/// All functions, except `list…`, whose name has the action.
static FUNCTIONS: [&[Function]; 7] = [
    text::FUNCTIONS,
    uri::FUNCTIONS,
    list::FUNCTIONS,
    number::FUNCTIONS,
    lambda::FUNCTIONS,
    time::FUNCTIONS,
    resource::FUNCTIONS,
];

/// The names of all functions in alphabetical order.
pub fn function_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = FUNCTIONS
        .iter()
        .flat_map(|some| some.iter())
        .map(|function| function.name)
        .collect();
    names.push("list*");
    names.sort_unstable_by_key(|name| name.to_ascii_lowercase());
    names
}

/// Functions of Azure that make no sense here, and why.
const REFUSED: [(&str, &str); 10] = [
    ("extensions", "there are no extensions of templates"),
    ("managementGroup", "there are no management groups"),
    (
        "managementGroupResourceId",
        "there are no management groups",
    ),
    ("toLogicalZone", "there are no zones"),
    ("toLogicalZones", "there are no zones"),
    ("toPhysicalZone", "there are no zones"),
    ("toPhysicalZones", "there are no zones"),
    ("cidrHost", "there are no networks"),
    ("cidrSubnet", "there are no networks"),
    ("parseCidr", "there are no networks"),
];

pub(crate) fn call_function(
    scope: &EvaluationScope<'_>,
    name: &str,
    arguments: &[Expression],
) -> Evaluated {
    if name.contains('.') {
        return call_own(scope, name, arguments);
    }
    let all = FUNCTIONS.iter().flat_map(|some| some.iter());
    let Some(function) = all
        .into_iter()
        .find(|function| function.name.eq_ignore_ascii_case(name))
    else {
        return resource::list_action(scope, name, arguments)
            .unwrap_or_else(|| Err(unknown_function(name)));
    };
    let count = arguments.len();
    if !function.arguments.contains(&count) {
        return Err(EvaluationError::invalid(format!(
            "{} has {}; {}",
            function.name,
            count_with_noun(count, "argument"),
            describe_range(&function.arguments)
        )));
    }
    match function.body {
        Body::Values(body) => body(&Arguments::evaluate(scope, function.name, arguments)?),
        Body::Scoped(body) => body(
            scope,
            &Arguments::evaluate(scope, function.name, arguments)?,
        ),
        Body::Lazy(body) => body(scope, arguments),
    }
}

fn describe_range(arguments: &RangeInclusive<usize>) -> String {
    match (*arguments.start(), *arguments.end()) {
        (least, most) if least == most => format!("expected {least}"),
        (least, MANY) => format!("expected {least} or more"),
        (least, most) => format!("expected {least} to {most}"),
    }
}

fn unknown_function(name: &str) -> EvaluationError {
    let refusal = REFUSED
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    EvaluationError::invalid(match refusal {
        Some((known, reason)) => format!("the function {known} is not supported: {reason}"),
        None => format!(
            "the function {name} is not known; expected one of {}",
            function_names().join(", ")
        ),
    })
}

/// Calls a function of the template.
fn call_own(scope: &EvaluationScope<'_>, name: &str, arguments: &[Expression]) -> Evaluated {
    let function = scope.frame.functions.get(&name.to_ascii_lowercase());
    let function = function
        .ok_or_else(|| EvaluationError::invalid(format!("the template has no function {name}")))?;
    let empty = Vec::new();
    let declarations = function["parameters"].as_array().unwrap_or(&empty);
    if declarations.len() != arguments.len() {
        let problem = format!(
            "{name} has {}; expected {}",
            count_with_noun(arguments.len(), "argument"),
            declarations.len()
        );
        return Err(EvaluationError::invalid(problem));
    }
    let mut frame = scope.frame.for_function();
    for (parameter, argument) in declarations.iter().zip(arguments) {
        let parameter_name = parameter["name"].as_str().unwrap_or_default().to_owned();
        let value = scope.evaluate_expression(argument)?;
        let is_absent = value.is_null() && parameter["nullable"] == true;
        if !is_absent {
            parameters::check_type(parameter, &value).map_err(|error| {
                error.with_location(format!("the parameter {parameter_name} of {name}"))
            })?;
        }
        frame
            .parameters
            .insert(parameter_name, super::evaluate::Parameter::Given(value));
    }
    let own = EvaluationScope {
        frame: &frame,
        local: &Local::default(),
        shared: scope.shared,
    };
    own.evaluate_value(&function["output"]["value"])
        .map_err(|error| error.with_location(format!("the function {name}")))
}

/// The arguments of a call.
struct Arguments<'a> {
    scope: &'a EvaluationScope<'a>,
    function: &'static str,
    values: Vec<Value>,
}

impl<'a> Arguments<'a> {
    fn evaluate(
        scope: &'a EvaluationScope<'a>,
        function: &'static str,
        arguments: &[Expression],
    ) -> Result<Self, EvaluationError> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(scope.evaluate_expression(argument)?);
        }
        Ok(Self {
            scope,
            function,
            values,
        })
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    /// An error that names the function.
    fn invalid_call(&self, what: impl std::fmt::Display) -> EvaluationError {
        EvaluationError::invalid(format!("{}: {what}", self.function))
    }

    fn wrong_argument(&self, index: usize, allowed: &str) -> EvaluationError {
        let kind = self.values.get(index).map_or("missing", kind_of);
        self.invalid_call(format!(
            "the argument {} is {kind}; expected {allowed}",
            index + 1
        ))
    }

    fn value_argument(&self, index: usize) -> Result<&Value, EvaluationError> {
        self.values
            .get(index)
            .ok_or_else(|| self.wrong_argument(index, "a value"))
    }

    fn text_argument(&self, index: usize) -> Result<&str, EvaluationError> {
        self.value_argument(index)?
            .as_str()
            .ok_or_else(|| self.wrong_argument(index, "a string"))
    }

    /// The texts of the arguments from the index `from` on.
    fn text_arguments(&self, from: usize) -> Result<Vec<String>, EvaluationError> {
        (from..self.len())
            .map(|index| self.to_text(index))
            .collect()
    }

    /// A string, or a number or boolean as text.
    fn to_text(&self, index: usize) -> Result<String, EvaluationError> {
        match self.value_argument(index)? {
            Value::String(text) => Ok(text.clone()),
            value @ (Value::Number(_) | Value::Bool(_)) => Ok(text::text_of(value)),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                Err(self.wrong_argument(index, "a string"))
            }
        }
    }

    fn integer_argument(&self, index: usize) -> Result<i64, EvaluationError> {
        self.value_argument(index)?
            .as_i64()
            .ok_or_else(|| self.wrong_argument(index, "a whole number"))
    }

    fn bool_argument(&self, index: usize) -> Result<bool, EvaluationError> {
        self.value_argument(index)?
            .as_bool()
            .ok_or_else(|| self.wrong_argument(index, "a boolean"))
    }

    fn list_argument(&self, index: usize) -> Result<&Vec<Value>, EvaluationError> {
        self.value_argument(index)?
            .as_array()
            .ok_or_else(|| self.wrong_argument(index, "an array"))
    }

    fn object_argument(&self, index: usize) -> Result<&Map<String, Value>, EvaluationError> {
        self.value_argument(index)?
            .as_object()
            .ok_or_else(|| self.wrong_argument(index, "an object"))
    }

    /// Refuses a result of this size, if it is too large.
    fn check_size(&self, size: usize) -> Result<(), EvaluationError> {
        self.scope.shared.check_size(size)
    }
}
