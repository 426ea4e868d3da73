//! The expressions of a template: `[concat(parameters('name'), '/billing')]`.
//!
//! Supported are the functions that the portal exports: `parameters`, `variables`, `concat`, `resourceId` and
//! `resourceGroup().location`. Any other function of ARM is an error with its name.

use std::{cell::Cell, collections::BTreeMap};

use serde_json::Value;

use super::ResourceGroup;

/// The maximum depth of expressions.
const DEPTH_MAX: usize = 32;

/// 4 MiB: the maximum size of all results of a template. A small file can double a variable many times.
const RESULTS_BYTES_MAX: usize = 4 << 20;

/// The size that a call counts beside its result, because variables can also double empty text.
const CALL_BYTES: usize = 64;

/// The value of a parameter.
pub(super) enum Parameter {
    /// It was given: text that looks like an expression is text.
    Given(Value),
    /// The default value of the template, which may be or have expressions.
    Default(Value),
}

/// The parameters and variables of expressions.
pub(super) struct ExpressionScope<'a> {
    pub(super) parameters: BTreeMap<String, Parameter>,
    pub(super) variables: BTreeMap<String, Value>,
    pub(super) group: &'a ResourceGroup,
    /// The size that the results may still have.
    room: Cell<usize>,
}

impl<'a> ExpressionScope<'a> {
    pub(super) fn new(
        parameters: BTreeMap<String, Parameter>,
        variables: BTreeMap<String, Value>,
        group: &'a ResourceGroup,
    ) -> Self {
        Self { parameters, variables, group, room: Cell::new(RESULTS_BYTES_MAX) }
    }

    /// Evaluates the default values, also those that no resource uses.
    pub(super) fn check_defaults(&self) -> Result<(), String> {
        for (name, parameter) in &self.parameters {
            self.parameter(parameter, 0)
                .map_err(|what| format!("the default value of the parameter '{name}': {what}"))?;
        }
        Ok(())
    }

    fn parameter(&self, parameter: &Parameter, depth: usize) -> Result<Value, String> {
        match parameter {
            Parameter::Given(value) => Ok(value.clone()),
            Parameter::Default(value) => self.value_at(value.clone(), depth),
        }
    }

    /// Counts the result of a call.
    fn spend(&self, value: &Value) -> Result<(), String> {
        let left = self.room.get().checked_sub(CALL_BYTES + bytes(value));
        self.room.set(left.ok_or("the expressions of the template return more than 4 MiB in total")?);
        Ok(())
    }

    /// Evaluates every expression in the value.
    pub(super) fn value(&self, value: Value) -> Result<Value, String> {
        self.value_at(value, 0)
    }

    fn value_at(&self, value: Value, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("a value is nested deeper than {DEPTH_MAX} levels"));
        }
        match value {
            Value::String(text) => self.text(&text, depth),
            Value::Array(list) => list.into_iter().map(|value| self.value_at(value, depth + 1)).collect(),
            Value::Object(map) => {
                map.into_iter().map(|(key, value)| Ok((key, self.value_at(value, depth + 1)?))).collect()
            }
            other => Ok(other),
        }
    }

    fn text(&self, text: &str, depth: usize) -> Result<Value, String> {
        if let Some(literal) = text.strip_prefix("[[") {
            return Ok(format!("[{literal}").into());
        }
        let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else {
            return Ok(text.into());
        };
        let mut reader = ExpressionParser { rest: inner.trim(), scope: self };
        let value = reader.expression(depth).map_err(|what| format!("the expression {text}: {what}"))?;
        match reader.rest.trim() {
            "" => Ok(value),
            rest => Err(format!("the expression {text}: '{rest}' follows its end")),
        }
    }
}

/// The approximate memory of a value.
fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(|value| CALL_BYTES + bytes(value)).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| CALL_BYTES + key.len() + bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

struct ExpressionParser<'a> {
    rest: &'a str,
    scope: &'a ExpressionScope<'a>,
}

impl ExpressionParser<'_> {
    fn expression(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
        }
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('\'') {
            return self.literal().map(Value::from);
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        if let Ok(number) = word.parse::<i64>() {
            return Ok(number.into());
        }
        if !self.take('(') {
            return Err(format!("'{word}' is not a function; allowed are {FUNCTIONS}"));
        }
        let mut arguments = Vec::new();
        while !self.take(')') {
            if !arguments.is_empty() && !self.take(',') {
                return Err("a comma or a closing bracket is missing".to_owned());
            }
            arguments.push(self.expression(depth + 1)?);
        }
        let value = self.call(word, &arguments, depth)?;
        self.scope.spend(&value)?;
        Ok(value)
    }

    fn call(&mut self, function: &str, arguments: &[Value], depth: usize) -> Result<Value, String> {
        match function.to_ascii_lowercase().as_str() {
            "parameters" => {
                let parameter = find("parameter", &self.scope.parameters, one_text(function, arguments)?)?;
                self.scope.parameter(parameter, depth + 1)
            }
            // A variable may itself be an expression.
            "variables" => {
                let variable = find("variable", &self.scope.variables, one_text(function, arguments)?)?;
                self.scope.value_at(variable.clone(), depth + 1)
            }
            "concat" => Ok(texts(function, arguments)?.concat().into()),
            "resourceid" => self.resource_id(&texts(function, arguments)?),
            "resourcegroup" if arguments.is_empty() => match self.rest.strip_prefix(".location") {
                Some(rest) => {
                    self.rest = rest;
                    Ok("local".into())
                }
                None => Err("resourceGroup() supports .location only".to_owned()),
            },
            _ => Err(format!("the function {function} is not supported; allowed are {FUNCTIONS}")),
        }
    }

    /// `resourceId('Microsoft.EventGrid/topics', 'orders')`, with an optional subscription and resource group before.
    fn resource_id(&self, texts: &[String]) -> Result<Value, String> {
        let kind = texts.iter().position(|text| text.contains('/')).filter(|at| *at <= 2);
        let kind = kind.ok_or("resourceId has no type such as Microsoft.EventGrid/topics")?;
        let ResourceGroup { subscription, resource_group } = self.scope.group;
        let (subscription, group) = match &texts[..kind] {
            [] => (subscription, resource_group),
            [group] => (subscription, group),
            [subscription, group, ..] => (subscription, group),
        };
        let mut words = texts[kind].split('/');
        let (provider, types, names) = (words.next().unwrap_or_default(), words, &texts[kind + 1..]);
        let pairs: Vec<String> = types.zip(names).map(|(word, name)| format!("/{word}/{name}")).collect();
        if pairs.len() != names.len() || pairs.len() + 1 != texts[kind].split('/').count() {
            return Err(format!("the number of names of resourceId differs from that of the type {}", texts[kind]));
        }
        Ok(format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{provider}{}", pairs.concat())
            .into())
    }

    /// A string in single quotes, in which two quotes stand for one.
    fn literal(&mut self) -> Result<String, String> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '\'' if chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                    chars.next();
                    text.push('\'');
                }
                '\'' => {
                    self.rest = self.rest[at + 1..].trim_start();
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err("a string has no closing quote".to_owned())
    }

    fn take(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }
}

const FUNCTIONS: &str = "parameters, variables, concat, resourceId and resourceGroup().location";

/// The value with this name; names are compared without case.
fn find<'a, T>(what: &str, all: &'a BTreeMap<String, T>, name: &str) -> Result<&'a T, String> {
    let named = all.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).ok_or_else(|| format!("there is no {what} '{name}'"))
}

fn texts(function: &str, values: &[Value]) -> Result<Vec<String>, String> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("the argument of {function} is {other}; allowed are strings")),
    };
    values.iter().map(text).collect()
}

fn one_text<'a>(function: &str, values: &'a [Value]) -> Result<&'a str, String> {
    match values {
        [Value::String(text)] => Ok(text),
        _ => Err(format!("{function} takes one name")),
    }
}
