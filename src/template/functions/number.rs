//! Functions of numbers, booleans and comparisons.

use std::cmp::Ordering;

use serde_json::Value;

use super::{
    Arguments, Evaluated, EvaluationScope, Expression, Function, MANY, lazy, scoped, values,
};
use crate::{EvaluationError, kind_of};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = &[
    values("add", 2..=2, |a| compute(a, i64::checked_add)),
    lazy("and", 2..=MANY, |scope, arguments| combine(scope, "and", arguments, false)),
    values("bool", 1..=1, to_bool),
    lazy("coalesce", 1..=MANY, coalesce),
    scoped("copyIndex", 0..=2, copy_index),
    values("div", 2..=2, |a| compute(a, i64::checked_div)),
    values("equals", 2..=2, |a| Ok((a.value(0)? == a.value(1)?).into())),
    values("false", 0..=0, |_| Ok(false.into())),
    values("float", 1..=1, to_float),
    values("greater", 2..=2, |a| compare(a, |order| order == Ordering::Greater)),
    values("greaterOrEquals", 2..=2, |a| compare(a, |order| order != Ordering::Less)),
    lazy("if", 3..=3, choose),
    values("int", 1..=1, to_int),
    values("less", 2..=2, |a| compare(a, |order| order == Ordering::Less)),
    values("lessOrEquals", 2..=2, |a| compare(a, |order| order != Ordering::Greater)),
    values("max", 1..=MANY, |a| extreme(a, Ordering::Greater)),
    values("min", 1..=MANY, |a| extreme(a, Ordering::Less)),
    values("mod", 2..=2, |a| compute(a, i64::checked_rem)),
    values("mul", 2..=2, |a| compute(a, i64::checked_mul)),
    values("not", 1..=1, |a| Ok((!a.flag(0)?).into())),
    values("null", 0..=0, |_| Ok(Value::Null)),
    lazy("or", 2..=MANY, |scope, arguments| combine(scope, "or", arguments, true)),
    values("sub", 2..=2, |a| compute(a, i64::checked_sub)),
    values("true", 0..=0, |_| Ok(true.into())),
];

fn compute(a: &Arguments<'_>, operation: fn(i64, i64) -> Option<i64>) -> Evaluated {
    let result = operation(a.whole(0)?, a.whole(1)?);
    result
        .map(Value::from)
        .ok_or_else(|| a.invalid("the result is no whole number of 64 bits"))
}

/// Evaluates arguments until one has the value that decides.
fn combine(
    scope: &EvaluationScope<'_>,
    name: &str,
    arguments: &[Expression],
    decisive: bool,
) -> Evaluated {
    for argument in arguments {
        match scope.expression(argument)? {
            Value::Bool(value) if value == decisive => return Ok(decisive.into()),
            Value::Bool(_) => {}
            other => {
                return Err(EvaluationError::invalid(format!(
                    "{name}: an argument is {}; allowed is a boolean",
                    kind_of(&other)
                )));
            }
        }
    }
    Ok((!decisive).into())
}

fn choose(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    match scope.expression(&arguments[0])? {
        Value::Bool(true) => scope.expression(&arguments[1]),
        Value::Bool(false) => scope.expression(&arguments[2]),
        other => Err(EvaluationError::invalid(format!(
            "if: the condition is {}; allowed is a boolean",
            kind_of(&other)
        ))),
    }
}

fn coalesce(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    for argument in arguments {
        let value = scope.expression(argument)?;
        if !value.is_null() {
            return Ok(value);
        }
    }
    Ok(Value::Null)
}

/// The iteration of the named or innermost loop, plus an offset.
fn copy_index(scope: &EvaluationScope<'_>, a: &Arguments<'_>) -> Evaluated {
    let name = a.values.first().and_then(Value::as_str);
    let copies = &scope.local.copies;
    let current = match name {
        Some(name) => copies
            .iter()
            .rev()
            .find(|(known, _)| known.eq_ignore_ascii_case(name)),
        None => copies.last(),
    };
    let (_, index) = current.ok_or_else(|| match name {
        Some(name) => a.invalid(format!("there is no loop '{name}' around it")),
        None => a.invalid("there is no loop around it"),
    })?;
    let offset = match (name.is_some(), a.len()) {
        (true, 2) => a.whole(1)?,
        (false, 1) => a.whole(0)?,
        (true, _) | (false, 0) => 0,
        (false, _) => return Err(a.wrong(0, "the name of a loop")),
    };
    index
        .checked_add(offset)
        .map(Value::from)
        .ok_or_else(|| a.invalid("the offset is too large"))
}

fn to_bool(a: &Arguments<'_>) -> Evaluated {
    let value = match a.value(0)? {
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
        .ok_or_else(|| a.wrong(0, "true, false or a number"))
}

fn to_int(a: &Arguments<'_>) -> Evaluated {
    let value = match a.value(0)? {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|number| number as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    value
        .map(Value::from)
        .ok_or_else(|| a.wrong(0, "a whole number, or text that is one"))
}

fn to_float(a: &Arguments<'_>) -> Evaluated {
    let value = match a.value(0)? {
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
        .ok_or_else(|| a.wrong(0, "a number, or text that is one"))
}

fn compare(a: &Arguments<'_>, holds: fn(Ordering) -> bool) -> Evaluated {
    let order = match (a.value(0)?, a.value(1)?) {
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
        .ok_or_else(|| a.invalid("allowed are two numbers or two strings"))
}

fn extreme(a: &Arguments<'_>, wanted: Ordering) -> Evaluated {
    let list: &[Value] = match a.values.as_slice() {
        [Value::Array(list)] => list,
        all => all,
    };
    let mut best: Option<i64> = None;
    for value in list {
        let number = value.as_i64().ok_or_else(|| {
            a.invalid(format!(
                "a value is {}; allowed are whole numbers",
                kind_of(value)
            ))
        })?;
        best = best
            .filter(|best| number.cmp(best) != wanted)
            .or(Some(number));
    }
    best.map(Value::from)
        .ok_or_else(|| a.invalid("the array is empty"))
}
