//! Functions that call a lambda for each element: `map(array, lambda('x', …))`.

use std::cmp::Ordering;

use gridhook_escape::count_with_noun;
use serde_json::{Map, Value};

use super::{Evaluated, EvaluationScope, Expression, Function, lazy_function, scoped_function};
use crate::{EvaluationError, kind_of};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = &[
    lazy_function("filter", 2..=2, filter),
    lazy_function("groupBy", 2..=2, group_by),
    lazy_function("lambda", 1..=usize::MAX, |_, _| Err(EvaluationError::invalid("lambda is only allowed as \
        an argument of map, filter, reduce, sort, toObject, groupBy and mapValues"))),
    scoped_function("lambdaVariables", 1..=1, |scope, args| lambda_variable_value(scope, args.text_argument(0)?)),
    lazy_function("map", 2..=2, map),
    lazy_function("mapValues", 2..=2, map_values),
    lazy_function("reduce", 3..=3, reduce),
    lazy_function("sort", 2..=2, sort),
    lazy_function("toObject", 2..=3, to_object),
];

/// A lambda and the scope that it sees.
struct Lambda<'a> {
    scope: &'a EvaluationScope<'a>,
    variables: Vec<&'a str>,
    body: &'a Expression,
}

impl<'a> Lambda<'a> {
    fn read(
        scope: &'a EvaluationScope<'a>,
        expression: &'a Expression,
    ) -> Result<Self, EvaluationError> {
        let expectation = "an argument is no lambda; expected, for example, lambda('x', \
            lambdaVariables('x'))";
        let problem = || EvaluationError::invalid(expectation);
        let Expression::Call {
            function,
            arguments,
        } = expression
        else {
            return Err(problem());
        };
        let (body, names) = arguments.split_last().ok_or_else(problem)?;
        if !function.eq_ignore_ascii_case("lambda") {
            return Err(problem());
        }
        let mut variables = Vec::with_capacity(names.len());
        for name in names {
            let Expression::Text(name) = name else {
                return Err(problem());
            };
            variables.push(name.as_str());
        }
        Ok(Self {
            scope,
            variables,
            body,
        })
    }

    /// The result for these values. A lambda may leave out the last variables.
    fn call_with(&self, values: &[&Value]) -> Evaluated {
        if self.variables.len() > values.len() {
            let problem = format!(
                "a lambda has {}; expected {}",
                count_with_noun(self.variables.len(), "variable"),
                values.len()
            );
            return Err(EvaluationError::invalid(problem));
        }
        let variables = self
            .variables
            .iter()
            .zip(values)
            .map(|(name, value)| ((*name).to_owned(), (*value).clone()));
        let local = self.scope.local.with_variables(variables);
        EvaluationScope {
            local: &local,
            ..*self.scope
        }
        .evaluate_expression(self.body)
    }

    fn is_true_for(&self, values: &[&Value]) -> Result<bool, EvaluationError> {
        let result = self.call_with(values)?;
        result.as_bool().ok_or_else(|| {
            let kind = kind_of(&result);
            EvaluationError::invalid(format!("a lambda returns {kind}; expected a boolean"))
        })
    }

    fn group_key(&self, value: &Value) -> Result<String, EvaluationError> {
        let result = self.call_with(&[value])?;
        match result {
            Value::String(key) => Ok(key),
            other => {
                let kind = kind_of(&other);
                let problem = format!("a lambda returns {kind}; expected a string");
                Err(EvaluationError::invalid(problem))
            }
        }
    }
}

fn lambda_variable_value(scope: &EvaluationScope<'_>, name: &str) -> Evaluated {
    let all = scope.local.lambdas.iter().rev();
    let value = all
        .into_iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.clone());
    value.ok_or_else(|| {
        EvaluationError::invalid(format!("no lambda around it has the variable '{name}'"))
    })
}

fn list_argument(
    scope: &EvaluationScope<'_>,
    expression: &Expression,
) -> Result<Vec<Value>, EvaluationError> {
    match scope.evaluate_expression(expression)? {
        Value::Array(list) => Ok(list),
        other => Err(EvaluationError::invalid(format!(
            "the first argument is {}; expected an array",
            kind_of(&other)
        ))),
    }
}

fn map(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    let lambda = Lambda::read(scope, &arguments[1])?;
    let list = list_argument(scope, &arguments[0])?;
    list.iter()
        .enumerate()
        .map(|(index, one)| lambda.call_with(&[one, &index.into()]))
        .collect()
}

fn filter(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    let lambda = Lambda::read(scope, &arguments[1])?;
    let mut items = Vec::new();
    for (index, one) in list_argument(scope, &arguments[0])?.into_iter().enumerate() {
        if lambda.is_true_for(&[&one, &index.into()])? {
            items.push(one);
        }
    }
    Ok(items.into())
}

fn reduce(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    let lambda = Lambda::read(scope, &arguments[2])?;
    let mut result = scope.evaluate_expression(&arguments[1])?;
    for (index, one) in list_argument(scope, &arguments[0])?.iter().enumerate() {
        result = lambda.call_with(&[&result, one, &index.into()])?;
    }
    Ok(result)
}

/// Sorts with a lambda that says whether the first of two elements comes first.
fn sort(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    let lambda = Lambda::read(scope, &arguments[1])?;
    let mut items = list_argument(scope, &arguments[0])?;
    let mut failure = None;
    items.sort_by(|first, second| {
        match (
            lambda.is_true_for(&[first, second]),
            lambda.is_true_for(&[second, first]),
        ) {
            (Ok(true), Ok(false)) => Ordering::Less,
            (Ok(false), Ok(true)) => Ordering::Greater,
            (Ok(_), Ok(_)) => Ordering::Equal,
            (Err(error), _) | (_, Err(error)) => {
                failure.get_or_insert(error);
                Ordering::Equal
            }
        }
    });
    failure.map_or(Ok(items.into()), Err)
}

fn to_object(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    let key = Lambda::read(scope, &arguments[1])?;
    let value = arguments
        .get(2)
        .map(|argument| Lambda::read(scope, argument))
        .transpose()?;
    let mut object = Map::new();
    for one in list_argument(scope, &arguments[0])? {
        let result = value
            .as_ref()
            .map_or_else(|| Ok(one.clone()), |value| value.call_with(&[&one]))?;
        object.insert(key.group_key(&one)?, result);
    }
    Ok(object.into())
}

fn group_by(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    let key = Lambda::read(scope, &arguments[1])?;
    let mut groups: Map<String, Value> = Map::new();
    for one in list_argument(scope, &arguments[0])? {
        let group = groups
            .entry(key.group_key(&one)?)
            .or_insert_with(|| Value::Array(Vec::new()));
        group
            .as_array_mut()
            .into_iter()
            .for_each(|group| group.push(one.clone()));
    }
    Ok(groups.into())
}

fn map_values(scope: &EvaluationScope<'_>, arguments: &[Expression]) -> Evaluated {
    let lambda = Lambda::read(scope, &arguments[1])?;
    let Value::Object(object) = scope.evaluate_expression(&arguments[0])? else {
        return Err(EvaluationError::invalid(
            "the first argument of mapValues is not an object; expected an object",
        ));
    };
    let result: Result<Map<_, _>, _> = object
        .into_iter()
        .map(|(key, value)| Ok((key, lambda.call_with(&[&value])?)))
        .collect();
    Ok(result?.into())
}
