//! Evaluates JMESPath expressions on values whose numbers are exact.
//!
//! The crate jmespath parses expressions. It evaluates with doubles, so it is not used for that.
//! Two results differ from those of doubles: numbers are compared by their digits, and whole
//! numbers stay whole numbers.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use jmespath::{
    Variable,
    ast::{Ast, Comparator, KeyValuePair},
};

use super::{
    functions::{self, FunctionError},
    value::Value,
};

/// Why an expression has no result for an event.
#[derive(Debug)]
pub(super) struct EvaluationError {
    /// Where in the expression it happened.
    pub(super) offset: usize,
    pub(super) error: FunctionError,
}

/// Evaluates an expression, of which it has the text.
#[derive(Clone, Copy)]
pub(super) struct Evaluator<'a>(pub(super) &'a str);

impl Evaluator<'_> {
    /// The result of `node` for `data`. Each kind of node has a function, so that a level of the
    /// recursion takes little of the stack.
    ///
    /// # Errors
    /// A function is called with an argument that it does not accept.
    pub(super) fn evaluate_node(self, node: &Ast, data: &Value) -> Result<Value, EvaluationError> {
        match node {
            Ast::Identity { .. } => Ok(data.clone()),
            Ast::Field { name, .. } => Ok(data.member_or_null(name)),
            Ast::Literal { offset, value } => Ok(self.read_literal(*offset, value)),
            Ast::Index { idx, .. } => Ok(item_at(data, *idx)),
            Ast::Slice {
                start, stop, step, ..
            } => Ok(slice_list(data, *start, *stop, *step)),
            Ast::Subexpr { lhs, rhs, .. } => self.evaluate_subexpression(lhs, rhs, data),
            Ast::Or { lhs, rhs, .. } => self.evaluate_or(lhs, rhs, data),
            Ast::And { lhs, rhs, .. } => self.evaluate_and(lhs, rhs, data),
            Ast::Not { node, .. } => self.evaluate_not(node, data),
            Ast::Condition {
                predicate, then, ..
            } => self.evaluate_condition(predicate, then, data),
            Ast::Comparison {
                comparator,
                lhs,
                rhs,
                ..
            } => self.evaluate_comparison(comparator, lhs, rhs, data),
            Ast::ObjectValues { node, .. } => self.list_values(node, data),
            Ast::Projection { lhs, rhs, .. } => self.project_list(lhs, rhs, data),
            Ast::Flatten { node, .. } => self.evaluate_flatten(node, data),
            Ast::MultiList { .. } | Ast::MultiHash { .. } if data.is_null() => Ok(Value::Null),
            Ast::MultiList { elements, .. } => self.make_list(elements, data),
            Ast::MultiHash { elements, .. } => self.make_object(elements, data),
            Ast::Function { offset, name, args } => self.call_function(*offset, name, args, data),
            // `bound` refuses it elsewhere than in the functions that take it.
            Ast::Expref { .. } => Ok(Value::Null),
        }
    }

    fn read_literal(self, offset: usize, value: &Variable) -> Value {
        let json = literal_json(self.0, offset);
        let exact = json.and_then(|json| Value::parse(json.as_bytes()).ok());
        exact.unwrap_or_else(|| Value::from_variable(value))
    }

    fn evaluate_subexpression(
        self,
        lhs: &Ast,
        rhs: &Ast,
        data: &Value,
    ) -> Result<Value, EvaluationError> {
        let left = self.evaluate_node(lhs, data)?;
        self.evaluate_node(rhs, &left)
    }

    fn evaluate_or(self, lhs: &Ast, rhs: &Ast, data: &Value) -> Result<Value, EvaluationError> {
        let left = self.evaluate_node(lhs, data)?;
        if left.is_true() {
            Ok(left)
        } else {
            self.evaluate_node(rhs, data)
        }
    }

    fn evaluate_and(self, lhs: &Ast, rhs: &Ast, data: &Value) -> Result<Value, EvaluationError> {
        let left = self.evaluate_node(lhs, data)?;
        if left.is_true() {
            self.evaluate_node(rhs, data)
        } else {
            Ok(left)
        }
    }

    fn evaluate_not(self, node: &Ast, data: &Value) -> Result<Value, EvaluationError> {
        let value = self.evaluate_node(node, data)?;
        Ok(Value::Bool(!value.is_true()))
    }

    fn evaluate_condition(
        self,
        predicate: &Ast,
        then: &Ast,
        data: &Value,
    ) -> Result<Value, EvaluationError> {
        if self.evaluate_node(predicate, data)?.is_true() {
            self.evaluate_node(then, data)
        } else {
            Ok(Value::Null)
        }
    }

    fn evaluate_comparison(
        self,
        comparator: &Comparator,
        lhs: &Ast,
        rhs: &Ast,
        data: &Value,
    ) -> Result<Value, EvaluationError> {
        let left = self.evaluate_node(lhs, data)?;
        let right = self.evaluate_node(rhs, data)?;
        Ok(compare_values(comparator, &left, &right))
    }

    fn list_values(self, node: &Ast, data: &Value) -> Result<Value, EvaluationError> {
        Ok(match self.evaluate_node(node, data)? {
            Value::Object(members) => Value::Array(members.values().cloned().collect()),
            _ => Value::Null,
        })
    }

    fn project_list(self, lhs: &Ast, rhs: &Ast, data: &Value) -> Result<Value, EvaluationError> {
        let Value::Array(items) = self.evaluate_node(lhs, data)? else {
            return Ok(Value::Null);
        };
        let mut results = Vec::new();
        for item in items.iter() {
            let result = self.evaluate_node(rhs, item)?;
            if !result.is_null() {
                results.push(result);
            }
        }
        Ok(Value::Array(results.into()))
    }

    fn evaluate_flatten(self, node: &Ast, data: &Value) -> Result<Value, EvaluationError> {
        Ok(match self.evaluate_node(node, data)? {
            Value::Array(items) => Value::Array(flatten_list(&items)),
            _ => Value::Null,
        })
    }

    fn make_list(self, elements: &[Ast], data: &Value) -> Result<Value, EvaluationError> {
        let items: Result<Vec<Value>, _> = elements
            .iter()
            .map(|node| self.evaluate_node(node, data))
            .collect();
        Ok(Value::Array(items?.into()))
    }

    fn make_object(
        self,
        elements: &[KeyValuePair],
        data: &Value,
    ) -> Result<Value, EvaluationError> {
        let mut members = BTreeMap::new();
        for pair in elements {
            members.insert(
                Arc::from(pair.key.as_str()),
                self.evaluate_node(&pair.value, data)?,
            );
        }
        Ok(Value::Object(Arc::new(members)))
    }

    fn call_function(
        self,
        offset: usize,
        name: &str,
        args: &[Ast],
        data: &Value,
    ) -> Result<Value, EvaluationError> {
        let error_here = |error| EvaluationError { offset, error };
        match (name, args) {
            ("map", [Ast::Expref { ast, .. }, list]) => {
                let list = self.evaluate_node(list, data)?;
                let items = functions::array_argument(name, 2, &list).map_err(error_here)?;
                let results: Result<Vec<Value>, _> = items
                    .iter()
                    .map(|item| self.evaluate_node(ast, item))
                    .collect();
                Ok(Value::Array(results?.into()))
            }
            ("sort_by" | "min_by" | "max_by", [list, Ast::Expref { ast, .. }]) => {
                let list = self.evaluate_node(list, data)?;
                let items = functions::array_argument(name, 1, &list).map_err(error_here)?;
                let mut keyed_items = Vec::with_capacity(items.len());
                for item in items {
                    keyed_items.push((self.evaluate_node(ast, item)?, item.clone()));
                }
                functions::choose_by(name, keyed_items).map_err(error_here)
            }
            _ => {
                let args: Result<Vec<Value>, _> = args
                    .iter()
                    .map(|node| self.evaluate_node(node, data))
                    .collect();
                functions::call_function(name, &args?).map_err(error_here)
            }
        }
    }
}

/// The JSON of a literal between backticks. A backslash before a backtick is not a part of it.
pub(super) fn literal_json(expression: &str, offset: usize) -> Option<String> {
    let literal = expression.get(offset..)?.strip_prefix('`')?;
    let mut json = String::new();
    let mut chars = literal.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('`', _) => return Some(json),
            ('\\', Some('`')) => json.extend(chars.next()),
            ('\\', _) => {
                json.push(c);
                json.extend(chars.next());
            }
            _ => json.push(c),
        }
    }
    None
}

fn item_at(data: &Value, index: i32) -> Value {
    let Value::Array(items) = data else {
        return Value::Null;
    };
    let at = i64::from(index) + if index < 0 { items.len() as i64 } else { 0 };
    usize::try_from(at)
        .ok()
        .and_then(|at| items.get(at))
        .cloned()
        .unwrap_or(Value::Null)
}

/// As Python slices a list. `bound` limits the step.
fn slice_list(data: &Value, start: Option<i32>, stop: Option<i32>, step: i32) -> Value {
    let Value::Array(items) = data else {
        return Value::Null;
    };
    let len = items.len() as i64;
    let (first, last) = if step < 0 { (-1, len - 1) } else { (0, len) };
    let limit = |end: i32| (i64::from(end) + if end < 0 { len } else { 0 }).clamp(first, last);
    let mut at = start.map_or(if step < 0 { last } else { first }, limit);
    let stop = stop.map_or(if step < 0 { first } else { last }, limit);
    let mut chosen = Vec::new();
    while if step < 0 { at > stop } else { at < stop } {
        chosen.extend(
            usize::try_from(at)
                .ok()
                .and_then(|at| items.get(at))
                .cloned(),
        );
        at += i64::from(step);
    }
    Value::Array(chosen.into())
}

fn flatten_list(items: &[Value]) -> Arc<[Value]> {
    let mut flat = Vec::new();
    for item in items {
        match item {
            Value::Array(inner) => flat.extend(inner.iter().cloned()),
            other => flat.push(other.clone()),
        }
    }
    flat.into()
}

/// JMESPath orders numbers only; for anything else the result is `null`.
fn compare_values(comparator: &Comparator, left: &Value, right: &Value) -> Value {
    let order = match (left, right) {
        (Value::Number(_), Value::Number(_)) => left.compare(right),
        _ => None,
    };
    let holds = match comparator {
        Comparator::Equal => Some(left == right),
        Comparator::NotEqual => Some(left != right),
        Comparator::LessThan => order.map(Ordering::is_lt),
        Comparator::LessThanEqual => order.map(Ordering::is_le),
        Comparator::GreaterThan => order.map(Ordering::is_gt),
        Comparator::GreaterThanEqual => order.map(Ordering::is_ge),
    };
    holds.map_or(Value::Null, Value::Bool)
}
