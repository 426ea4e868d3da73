//! The functions of JMESPath.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range, sync::Arc};

use super::value::Value;

/// Why a function has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FunctionError {
    #[error("argument {position} of {function} is {actual}; expected {allowed}")]
    Argument {
        function: String,
        position: usize,
        actual: String,
        allowed: &'static str,
    },
    #[error("{function} has {actual} arguments; expected {allowed}")]
    Arity {
        function: String,
        actual: usize,
        allowed: String,
    },
    #[error(
        "the values that {function} compares are {actual}; expected numbers only or strings only"
    )]
    Mixed { function: String, actual: String },
    #[error("the result of {function} is not a number that JSON can have")]
    Overflow { function: String },
    #[error("the function {function} is unknown")]
    Unknown { function: String },
}

/// The numbers of arguments that a function takes.
fn argument_range(function: &str) -> Option<Range<usize>> {
    Some(match function {
        "abs" | "avg" | "ceil" | "floor" | "keys" | "length" | "max" | "min" | "reverse"
        | "sort" | "sum" | "to_array" | "to_number" | "to_string" | "type" | "values" => 1..2,
        "contains" | "ends_with" | "join" | "map" | "max_by" | "min_by" | "sort_by"
        | "starts_with" => 2..3,
        "merge" => 0..usize::MAX,
        "not_null" => 1..usize::MAX,
        _ => return None,
    })
}

/// Whether there is a function with this name. A new one whose result can be larger than its
/// arguments needs a bound of its own (`bound::output_size`).
pub(super) fn is_known(function: &str) -> bool {
    argument_range(function).is_some()
}

/// Calls a function whose arguments are values.
pub(super) fn call_function(function: &str, args: &[Value]) -> Result<Value, FunctionError> {
    let arity = argument_range(function).ok_or_else(|| FunctionError::Unknown {
        function: function.to_owned(),
    })?;
    if !arity.contains(&args.len()) {
        let expected_count = if arity.end == usize::MAX {
            format!("{} or more", arity.start)
        } else {
            arity.start.to_string()
        };
        return Err(FunctionError::Arity {
            function: function.to_owned(),
            actual: args.len(),
            allowed: expected_count,
        });
    }
    let argument = |position: usize| &args[position - 1];
    let refuse = |at, allowed| Err(invalid_argument(function, at, argument(at), allowed));
    Ok(match (function, args) {
        ("abs", [Value::Number(number)]) => Value::Number(number.trim_start_matches('-').into()),
        ("ceil", [Value::Number(number)]) => round_number(function, number, 1)?,
        ("floor", [Value::Number(number)]) => round_number(function, number, -1)?,
        ("abs" | "ceil" | "floor", _) => return refuse(1, "a number"),
        ("avg", [list]) => {
            let numbers = number_arguments(function, list)?;
            if numbers.is_empty() {
                Value::Null
            } else {
                divide_numbers(function, &numbers)?
            }
        }
        ("sum", [list]) => sum_numbers(function, &number_arguments(function, list)?)?,
        ("contains", [Value::String(text), part]) => match part {
            Value::String(part) => Value::Bool(text.contains(&**part)),
            _ => Value::Bool(false),
        },
        ("contains", [Value::Array(items), item]) => Value::Bool(items.contains(item)),
        ("contains", _) => return refuse(1, "a string or an array"),
        ("ends_with", [Value::String(text), Value::String(end)]) => {
            Value::Bool(text.ends_with(&**end))
        }
        ("starts_with", [Value::String(text), Value::String(start)]) => {
            Value::Bool(text.starts_with(&**start))
        }
        ("ends_with" | "starts_with", [Value::String(_), _]) => return refuse(2, "a string"),
        ("ends_with" | "starts_with", _) => return refuse(1, "a string"),
        ("join", [Value::String(glue), list]) => {
            let mut texts = Vec::new();
            for item in array_argument(function, 2, list)? {
                let Value::String(text) = item else {
                    return refuse(2, "an array of strings");
                };
                texts.push(&**text);
            }
            Value::from_text(&texts.join(glue))
        }
        ("join", _) => return refuse(1, "a string"),
        ("keys", [Value::Object(members)]) => {
            Value::Array(members.keys().cloned().map(Value::String).collect())
        }
        ("values", [Value::Object(members)]) => Value::Array(members.values().cloned().collect()),
        ("keys" | "values", _) => return refuse(1, "an object"),
        ("length", [Value::String(text)]) => count_value(text.chars().count()),
        ("length", [Value::Array(items)]) => count_value(items.len()),
        ("length", [Value::Object(members)]) => count_value(members.len()),
        ("length", _) => return refuse(1, "a string, an array or an object"),
        ("max" | "min" | "sort", [list]) => {
            let keyed_items = array_argument(function, 1, list)?
                .iter()
                .map(|item| (item.clone(), item.clone()))
                .collect();
            choose_by(function, keyed_items)?
        }
        ("merge", _) => {
            let mut all = BTreeMap::new();
            for (index, arg) in args.iter().enumerate() {
                let Value::Object(members) = arg else {
                    return refuse(index + 1, "an object");
                };
                all.extend(
                    members
                        .iter()
                        .map(|(name, value)| (Arc::clone(name), value.clone())),
                );
            }
            Value::Object(Arc::new(all))
        }
        ("not_null", _) => args
            .iter()
            .find(|arg| !arg.is_null())
            .cloned()
            .unwrap_or(Value::Null),
        ("reverse", [Value::String(text)]) => {
            Value::from_text(&text.chars().rev().collect::<String>())
        }
        ("reverse", [Value::Array(items)]) => Value::Array(items.iter().rev().cloned().collect()),
        ("reverse", _) => return refuse(1, "a string or an array"),
        ("to_array", [list @ Value::Array(_)]) => list.clone(),
        ("to_array", [item]) => Value::Array([item.clone()].into()),
        ("to_number", [number @ Value::Number(_)]) => number.clone(),
        ("to_number", [Value::String(text)]) => parse_number(text),
        ("to_number", _) => Value::Null,
        ("to_string", [text @ Value::String(_)]) => text.clone(),
        ("to_string", [value]) => {
            let mut json = String::new();
            value.write_json(&mut json);
            Value::from_text(&json)
        }
        ("type", [value]) => Value::from_text(value.type_name()),
        // Functions that take an expression, which `bound` has checked.
        _ => {
            return Err(FunctionError::Unknown {
                function: function.to_owned(),
            });
        }
    })
}

/// The items of an argument.
pub(super) fn array_argument<'a>(
    function: &str,
    position: usize,
    value: &'a Value,
) -> Result<&'a [Value], FunctionError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(invalid_argument(function, position, other, "an array")),
    }
}

/// Sorts values by their keys, or chooses the one with the least or greatest key.
pub(super) fn choose_by(
    function: &str,
    mut keyed: Vec<(Value, Value)>,
) -> Result<Value, FunctionError> {
    let is_comparable = |(key, _): &&(Value, Value)| key.compare(&keyed[0].0).is_some();
    if let Some((key, _)) = keyed.iter().find(|pair| !is_comparable(pair)) {
        let actual = if matches!(keyed[0].0, Value::Number(_) | Value::String(_)) {
            format!("{} and {}", keyed[0].0.type_name(), key.type_name())
        } else {
            keyed[0].0.type_name().to_owned()
        };
        return Err(FunctionError::Mixed {
            function: function.to_owned(),
            actual,
        });
    }
    let compare = |left: &(Value, Value), right: &(Value, Value)| {
        left.0.compare(&right.0).unwrap_or(Ordering::Equal)
    };
    let chosen = match function {
        "max" | "max_by" => keyed.into_iter().rev().max_by(compare),
        "min" | "min_by" => keyed.into_iter().min_by(compare),
        _ => {
            keyed.sort_by(compare);
            return Ok(Value::Array(
                keyed.into_iter().map(|(_, value)| value).collect(),
            ));
        }
    };
    Ok(chosen.map_or(Value::Null, |(_, value)| value))
}

fn invalid_argument(
    function: &str,
    position: usize,
    value: &Value,
    allowed: &'static str,
) -> FunctionError {
    let name = value.type_name();
    let article = if name.starts_with(['a', 'o']) {
        "an "
    } else {
        "a "
    };
    let actual = if value.is_null() {
        name.to_owned()
    } else {
        format!("{article}{name}")
    };
    FunctionError::Argument {
        function: function.to_owned(),
        position,
        actual,
        allowed,
    }
}

fn count_value(count: usize) -> Value {
    Value::Number(count.to_string().into())
}

fn number_arguments<'a>(function: &str, list: &'a Value) -> Result<Vec<&'a str>, FunctionError> {
    let mut numbers = Vec::new();
    for item in array_argument(function, 1, list)? {
        match item {
            Value::Number(number) => numbers.push(&**number),
            _ => return Err(invalid_argument(function, 1, list, "an array of numbers")),
        }
    }
    Ok(numbers)
}

/// The sum of whole numbers; [`None`] if one of them is not written as such, or the sum is too
/// large.
fn sum_whole(numbers: &[&str]) -> Option<i128> {
    numbers
        .iter()
        .try_fold(0_i128, |sum, number| sum.checked_add(number.parse().ok()?))
}

fn sum_numbers(function: &str, numbers: &[&str]) -> Result<Value, FunctionError> {
    match sum_whole(numbers) {
        Some(sum) => Ok(Value::Number(sum.to_string().into())),
        None => from_double(function, sum_doubles(numbers)),
    }
}

fn divide_numbers(function: &str, numbers: &[&str]) -> Result<Value, FunctionError> {
    let count = numbers.len();
    match sum_whole(numbers) {
        Some(sum) if sum % count as i128 == 0 => {
            Ok(Value::Number((sum / count as i128).to_string().into()))
        }
        _ => from_double(function, sum_doubles(numbers) / count as f64),
    }
}

fn sum_doubles(numbers: &[&str]) -> f64 {
    numbers
        .iter()
        .map(|number| number.parse::<f64>().unwrap_or(f64::NAN))
        .sum()
}

/// Rounds up or down to a whole number.
fn round_number(function: &str, number: &str, direction: i128) -> Result<Value, FunctionError> {
    let is_whole = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_whole {
        return Ok(Value::Number(number.into()));
    }
    if let Some((whole, fraction)) = number.split_once('.')
        && let Ok(truncated) = whole.parse::<i128>()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
    {
        let is_exact = fraction.bytes().all(|digit| digit == b'0');
        let is_away_from_zero = number.starts_with('-') == (direction < 0);
        let rounded = if is_exact || !is_away_from_zero {
            truncated
        } else {
            truncated + direction
        };
        return Ok(Value::Number(rounded.to_string().into()));
    }
    let double = number.parse::<f64>().unwrap_or(f64::NAN);
    if double.is_infinite() {
        // So large that it has no fraction.
        return Ok(Value::Number(number.into()));
    }
    from_double(
        function,
        if direction > 0 {
            double.ceil()
        } else {
            double.floor()
        },
    )
}

/// A double as JSON, without a fraction if it is a whole number.
fn from_double(function: &str, double: f64) -> Result<Value, FunctionError> {
    if double.fract() == 0.0 && double.abs() < 1e17 {
        return Ok(Value::Number((double as i128).to_string().into()));
    }
    match serde_json::Number::from_f64(double) {
        Some(number) => Ok(Value::Number(number.to_string().into())),
        None => Err(FunctionError::Overflow {
            function: function.to_owned(),
        }),
    }
}

/// The number that a text has; `null` if it is not one.
fn parse_number(text: &str) -> Value {
    match Value::parse(text.as_bytes()) {
        Ok(number @ Value::Number(_)) => number,
        Ok(_) | Err(_) => Value::Null,
    }
}
