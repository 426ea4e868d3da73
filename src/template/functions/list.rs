//! Functions of arrays and objects, and those that also take strings.

use std::collections::HashSet;

use gridhook_escape::count_with_noun;
use serde_json::{Map, Value, json};

use super::{Arguments, Evaluated, Function, MANY, eager_function};
use crate::{evaluate::check_is_known, find_entry, kind_of};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = &[
    eager_function("array", 1..=1, array),
    eager_function("concat", 0..=MANY, concat),
    eager_function("contains", 2..=2, contains),
    eager_function("createArray", 0..=MANY, |args| Ok(args.values.clone().into())),
    eager_function("createObject", 0..=MANY, create_object),
    eager_function("distinct", 1..=1, |args| args.list_argument(0).and_then(|_| union(args))),
    eager_function("empty", 1..=1, |args| Ok((args.value_argument(0)?.is_null() || length(args)? == 0).into())),
    eager_function("first", 1..=1, |args| first_or_last(args, false)),
    eager_function("flatten", 1..=1, flatten),
    eager_function("intersection", 2..=MANY, intersection),
    eager_function("items", 1..=1, items),
    eager_function("last", 1..=1, |args| first_or_last(args, true)),
    eager_function("length", 1..=1, |args| Ok(length(args)?.into())),
    eager_function("objectKeys", 1..=1, object_keys),
    eager_function("range", 2..=2, range),
    eager_function("shallowMerge", 1..=1, shallow_merge),
    eager_function("skip", 2..=2, |args| take_or_skip(args, true)),
    eager_function("take", 2..=2, |args| take_or_skip(args, false)),
    eager_function("tryGet", 2..=MANY, try_get),
    eager_function("tryIndexFromEnd", 2..=2, |args| Ok(from_end(args)?.unwrap_or_default())),
    eager_function("indexFromEnd", 2..=2, |args| from_end(args)?.ok_or_else(|| args.invalid_call("the index is outside \
        of the array"))),
    eager_function("union", 1..=MANY, union),
];

/// The argument if it is an array, or an array with it.
fn array(args: &Arguments<'_>) -> Evaluated {
    let value = args.value_argument(0)?;
    Ok(if value.is_array() {
        value.clone()
    } else {
        json!([value])
    })
}

fn object_keys(args: &Arguments<'_>) -> Evaluated {
    let keys = args.object_argument(0)?.keys();
    Ok(keys.map(|key| Value::from(key.as_str())).collect())
}

/// Maximum number of elements of `range`, as in Azure.
const RANGE_MAX: i64 = 10_000;

fn concat(args: &Arguments<'_>) -> Evaluated {
    if args.values.first().is_some_and(Value::is_array) {
        let mut all = Vec::new();
        for index in 0..args.len() {
            all.extend(args.list_argument(index)?.iter().cloned());
        }
        return Ok(all.into());
    }
    let texts = args.text_arguments(0)?;
    args.check_size(texts.iter().map(String::len).sum())?;
    Ok(texts.concat().into())
}

fn contains(args: &Arguments<'_>) -> Evaluated {
    let is_there = match args.value_argument(0)? {
        Value::String(text) => text.contains(&args.to_text(1)?),
        Value::Array(list) => list.contains(args.value_argument(1)?),
        Value::Object(object) => find_entry(object, &args.to_text(1)?).is_some(),
        _ => return Err(args.wrong_argument(0, "a string, an array or an object")),
    };
    Ok(is_there.into())
}

fn create_object(args: &Arguments<'_>) -> Evaluated {
    let mut object = Map::new();
    if args.len() % 2 == 1 {
        return Err(args.invalid_call(format!(
            "it has {}; expected a value for each key",
            count_with_noun(args.len(), "argument")
        )));
    }
    for (index, pair) in args.values.chunks_exact(2).enumerate() {
        object.insert(args.text_argument(2 * index)?.to_owned(), pair[1].clone());
    }
    Ok(object.into())
}

fn length(args: &Arguments<'_>) -> Result<usize, crate::EvaluationError> {
    match args.value_argument(0)? {
        Value::String(text) => Ok(text.chars().count()),
        Value::Array(list) => Ok(list.len()),
        Value::Object(object) => Ok(object.len()),
        _ => Err(args.wrong_argument(0, "a string, an array or an object")),
    }
}

fn first_or_last(args: &Arguments<'_>, is_last: bool) -> Evaluated {
    match args.value_argument(0)? {
        Value::String(text) => {
            let item = if is_last {
                text.chars().next_back()
            } else {
                text.chars().next()
            };
            Ok(item.map(String::from).unwrap_or_default().into())
        }
        Value::Array(list) => Ok(if is_last { list.last() } else { list.first() }
            .cloned()
            .unwrap_or_default()),
        _ => Err(args.wrong_argument(0, "a string or an array")),
    }
}

fn flatten(args: &Arguments<'_>) -> Evaluated {
    let mut all = Vec::new();
    for one in args.list_argument(0)? {
        let list = one.as_array();
        all.extend(
            list.ok_or_else(|| {
                args.invalid_call(format!("an element is {}; expected an array", kind_of(one)))
            })?
            .clone(),
        );
    }
    Ok(all.into())
}

fn intersection(args: &Arguments<'_>) -> Evaluated {
    if args.value_argument(0)?.is_array() {
        let mut others: Vec<HashSet<&Value>> = Vec::new();
        for index in 1..args.len() {
            others.push(args.list_argument(index)?.iter().collect());
        }
        let mut seen: HashSet<&Value> = HashSet::new();
        let mut common: Vec<Value> = Vec::new();
        for one in args.list_argument(0)? {
            if others.iter().all(|other| other.contains(one)) && seen.insert(one) {
                common.push(one.clone());
            }
        }
        return Ok(common.into());
    }
    let mut common = args.object_argument(0)?.clone();
    for index in 1..args.len() {
        let other = args.object_argument(index)?;
        common.retain(|key, value| find_entry(other, key) == Some(value));
    }
    Ok(common.into())
}

/// The pairs of an object in the order of their keys.
fn items(args: &Arguments<'_>) -> Evaluated {
    let mut pairs: Vec<(&String, &Value)> = args.object_argument(0)?.iter().collect();
    pairs.sort_by_key(|(key, _)| key.to_lowercase());
    Ok(pairs
        .into_iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect())
}

fn range(args: &Arguments<'_>) -> Evaluated {
    let start = args.integer_argument(0)?;
    let count = args.integer_argument(1)?;
    if !(0..=RANGE_MAX).contains(&count) || start.checked_add(count).is_none() {
        return Err(args.invalid_call(format!("the count is {count}; expected 0 to {RANGE_MAX}")));
    }
    Ok((start..start + count).map(Value::from).collect())
}

fn shallow_merge(args: &Arguments<'_>) -> Evaluated {
    let mut object_out = Map::new();
    for one in args.list_argument(0)? {
        let object = one.as_object();
        let object = object.ok_or_else(|| {
            args.invalid_call(format!(
                "an element is {}; expected an object",
                kind_of(one)
            ))
        })?;
        object_out.extend(object.clone());
    }
    Ok(object_out.into())
}

/// `skip` and `take`: without the first `count` elements or characters, or only these.
fn take_or_skip(args: &Arguments<'_>, is_skip: bool) -> Evaluated {
    let count = usize::try_from(args.integer_argument(1)?.max(0)).unwrap_or(usize::MAX);
    match args.value_argument(0)? {
        Value::String(text) if is_skip => Ok(text.chars().skip(count).collect::<String>().into()),
        Value::String(text) => Ok(text.chars().take(count).collect::<String>().into()),
        Value::Array(list) if is_skip => Ok(list.iter().skip(count).cloned().collect()),
        Value::Array(list) => Ok(list.iter().take(count).cloned().collect()),
        _ => Err(args.wrong_argument(0, "a string or an array")),
    }
}

/// The value behind several keys and indexes, or null.
fn try_get(args: &Arguments<'_>) -> Evaluated {
    let mut value = args.value_argument(0)?;
    for key in &args.values[1..] {
        check_is_known(value)?;
        let next = match (value, key) {
            (Value::Object(object), Value::String(name)) => find_entry(object, name),
            (Value::Array(list), Value::Number(index)) => index
                .as_u64()
                .and_then(|index| list.get(usize::try_from(index).ok()?)),
            (Value::Null, _) => None,
            (other, key) => {
                let problem = format!(
                    "{} has no {}; expected a name of an object or a number of an array",
                    kind_of(other),
                    kind_of(key)
                );
                return Err(args.invalid_call(problem));
            }
        };
        let Some(next) = next else {
            return Ok(Value::Null);
        };
        value = next;
    }
    Ok(value.clone())
}

/// The element at a place that is counted from the end, from 1.
fn from_end(args: &Arguments<'_>) -> Result<Option<Value>, crate::EvaluationError> {
    let list = args.list_argument(0)?;
    let place = usize::try_from(args.integer_argument(1)?)
        .ok()
        .filter(|place| *place > 0);
    Ok(place
        .and_then(|place| list.get(list.len().checked_sub(place)?))
        .cloned())
}

/// All elements of arrays once, or objects merged in depth.
fn union(args: &Arguments<'_>) -> Evaluated {
    if args.value_argument(0)?.is_array() {
        let mut seen: HashSet<&Value> = HashSet::new();
        let mut all: Vec<Value> = Vec::new();
        for index in 0..args.len() {
            for one in args.list_argument(index)? {
                if seen.insert(one) {
                    all.push(one.clone());
                }
            }
        }
        return Ok(all.into());
    }
    let mut object_out = Map::new();
    for index in 0..args.len() {
        merge(&mut object_out, args.object_argument(index)?);
    }
    Ok(object_out.into())
}

fn merge(target: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (key, value) in other {
        match (target.get_mut(key), value) {
            (Some(Value::Object(inner)), Value::Object(value)) => merge(inner, value),
            _ => drop(target.insert(key.clone(), value.clone())),
        }
    }
}
