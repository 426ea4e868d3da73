//! Functions of numbers, booleans and comparisons.

use std::cmp::Ordering;

use serde_json::Value;

use super::{
    Arguments, Evaluated, EvaluationScope, Expression, Function, MANY, eager_function,
    lazy_function, scoped_function,
};
use crate::{EvaluationError, kind_of};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = &[
    eager_function("add", 2..=2, |args| compute_checked(args, i64::checked_add)),
    lazy_function("and", 2..=MANY, |scope, arguments| combine_until(scope, "and", arguments, false)),
    eager_function("bool", 1..=1, to_bool),
    lazy_function("coalesce", 1..=MANY, coalesce),
    scoped_function("copyIndex", 0..=2, copy_index),
    eager_function("div", 2..=2, |args| compute_checked(args, i64::checked_div)),
    eager_function("equals", 2..=2, |args| Ok((args.value_argument(0)? == args.value_argument(1)?).into())),
    eager_function("false", 0..=0, |_| Ok(false.into())),
    eager_function("float", 1..=1, to_float),
    eager_function("greater", 2..=2, |args| compare(args, |order| order == Ordering::Greater)),
    eager_function("greaterOrEquals", 2..=2, |args| compare(args, |order| order != Ordering::Less)),
    lazy_function("if", 3..=3, choose),
    eager_function("int", 1..=1, to_int),
    eager_function("less", 2..=2, |args| compare(args, |order| order == Ordering::Less)),
    eager_function("lessOrEquals", 2..=2, |args| compare(args, |order| order != Ordering::Greater)),
    eager_function("max", 1..=MANY, |args| min_or_max(args, Ordering::Greater)),
    eager_function("min", 1..=MANY, |args| min_or_max(args, Ordering::Less)),
    eager_function("mod", 2..=2, |args| compute_checked(args, i64::checked_rem)),
    eager_function("mul", 2..=2, |args| compute_checked(args, i64::checked_mul)),
    eager_function("not", 1..=1, |args| Ok((!args.bool_argument(0)?).into())),
    eager_function("null", 0..=0, |_| Ok(Value::Null)),
    lazy_function("or", 2..=MANY, |scope, arguments| combine_until(scope, "or", arguments, true)),
    eager_function("sub", 2..=2, |args| compute_checked(args, i64::checked_sub)),
    eager_function("true", 0..=0, |_| Ok(true.into())),
];

fn compute_checked(args: &Arguments<'_>, operation: fn(i64, i64) -> Option<i64>) -> Evaluated {
    let result = operation(args.integer_argument(0)?, args.integer_argument(1)?);
    result
        .map(Value::from)
        .ok_or_else(|| args.invalid_call("the result is no whole number of 64 bits"))
}

/// Evaluates arguments until one has the value that decides.
fn combine_until(
    scope: &EvaluationScope<'_>,
    name: &str,
    arguments: &[Expression],
    decisive: bool,
) -> Evaluated {
    for argument in arguments {
        match scope.evaluate_expression(argument)? {
            Value::Bool(value) if value == decisive => return Ok(decisive.into()),
            Value::Bool(_) => {}
            other => {
                return Err(EvaluationError::invalid(format!(
                    "{name}: an argument is {}; expected a boolean",
                    kind_of(&other)
                )));
            }
        }
    }
    Ok((!decisive).into())
}

fn choose(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    match scope.evaluate_expression(&arguments[0])? {
        Value::Bool(true) => scope.evaluate_expression(&arguments[1]),
        Value::Bool(false) => scope.evaluate_expression(&arguments[2]),
        other => Err(EvaluationError::invalid(format!(
            "if: the condition is {}; expected a boolean",
            kind_of(&other)
        ))),
    }
}

fn coalesce(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    for argument in arguments {
        let value = scope.evaluate_expression(argument)?;
        if !value.is_null() {
            return Ok(value);
        }
    }
    Ok(Value::Null)
}

/// The iteration of the named or innermost loop, plus an offset.
fn copy_index(scope: &EvaluationScope<'_>, args: &Arguments<'_>) -> Evaluated {
    let name = args.values.first().and_then(Value::as_str);
    let copies = &scope.local.copies;
    let current = match name {
        Some(name) => copies
            .iter()
            .rev()
            .find(|(known, _)| known.eq_ignore_ascii_case(name)),
        None => copies.last(),
    };
    let (_, index) = current.ok_or_else(|| match name {
        Some(name) => args.invalid_call(format!("there is no loop '{name}' around it")),
        None => args.invalid_call("there is no loop around it"),
    })?;
    let offset = match (name.is_some(), args.len()) {
        (true, 2) => args.integer_argument(1)?,
        (false, 1) => args.integer_argument(0)?,
        (true, _) | (false, 0) => 0,
        (false, _) => return Err(args.wrong_argument(0, "the name of a loop")),
    };
    index
        .checked_add(offset)
        .map(Value::from)
        .ok_or_else(|| args.invalid_call("the offset is too large"))
}

fn to_bool(args: &Arguments<'_>) -> Evaluated {
    let value = match args.value_argument(0)? {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => Some(number.as_i64() != Some(0)),
        Value::String(text) => ["false", "true"]
            .iter()
            .position(|word| text.eq_ignore_ascii_case(word))
            .map(|at| at == 1),
        _ => None,
    };
    value
        .map(Value::from)
        .ok_or_else(|| args.wrong_argument(0, "true, false or a number"))
}

fn to_int(args: &Arguments<'_>) -> Evaluated {
    let value = match args.value_argument(0)? {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|number| number as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    value
        .map(Value::from)
        .ok_or_else(|| args.wrong_argument(0, "a whole number, or text that is one"))
}

fn to_float(args: &Arguments<'_>) -> Evaluated {
    let value = match args.value_argument(0)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text
            .trim()
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite()),
        _ => None,
    };
    value
        .map(Value::from)
        .ok_or_else(|| args.wrong_argument(0, "a number, or text that is one"))
}

fn compare(args: &Arguments<'_>, holds: fn(Ordering) -> bool) -> Evaluated {
    let order = match (args.value_argument(0)?, args.value_argument(1)?) {
        (Value::Number(first), Value::Number(second)) => match (first.as_i64(), second.as_i64()) {
            (Some(first), Some(second)) => Some(first.cmp(&second)),
            _ => first
                .as_f64()
                .zip(second.as_f64())
                .and_then(|(first, second)| first.partial_cmp(&second)),
        },
        (Value::String(first), Value::String(second)) => Some(first.cmp(second)),
        _ => None,
    };
    order
        .map(|order| holds(order).into())
        .ok_or_else(|| args.invalid_call("expected two numbers or two strings"))
}

fn min_or_max(args: &Arguments<'_>, wanted: Ordering) -> Evaluated {
    let list: &[Value] = match args.values.as_slice() {
        [Value::Array(list)] => list,
        all => all,
    };
    let mut best: Option<i64> = None;
    for value in list {
        let number = value.as_i64().ok_or_else(|| {
            args.invalid_call(format!(
                "a value is {}; expected a whole number",
                kind_of(value)
            ))
        })?;
        best = best
            .filter(|best| number.cmp(best) != wanted)
            .or(Some(number));
    }
    best.map(Value::from)
        .ok_or_else(|| args.invalid_call("the array is empty"))
}
