//! JSON values whose numbers stay as they are written.
//!
//! A number is its text: it is never parsed as a double, which would round integers beyond 2^53 and
//! refuse `1e400`.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use jmespath::Variable;
use serde_json::value::RawValue;

use crate::filter::number::ExactNumber;

/// The depth of JSON that serde_json reads, too.
const LEVELS: usize = 128;

/// A JSON value. Clones share its parts.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// The text of the number.
    Number(Arc<str>),
    String(Arc<str>),
    Array(Arc<[Value]>),
    Object(Arc<BTreeMap<Arc<str>, Value>>),
}

impl Value {
    /// Parses a JSON document.
    ///
    /// # Errors
    /// If it is not JSON.
    pub(super) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        // The whole document is checked first, so that the parser below meets only JSON.
        let document: &RawValue = serde_json::from_slice(json)?;
        let mut parser = JsonParser {
            rest: document.get(),
        };
        parser.parse_value(0)
    }

    pub(super) fn from_variable(variable: &Variable) -> Self {
        match variable {
            Variable::Null | Variable::Expref(_) => Self::Null,
            Variable::Bool(value) => Self::Bool(*value),
            Variable::Number(number) => Self::Number(number.to_string().into()),
            Variable::String(text) => Self::String(text.as_str().into()),
            Variable::Array(items) => {
                Self::Array(items.iter().map(|item| Self::from_variable(item)).collect())
            }
            Variable::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| (name.as_str().into(), Self::from_variable(value)));
                Self::Object(Arc::new(members.collect()))
            }
        }
    }

    pub(super) fn from_text(text: &str) -> Self {
        Self::String(text.into())
    }

    /// Appends the value as JSON.
    pub(super) fn write_json(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(text) => out.push_str(text),
            Self::String(text) => write_string(out, text),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(out, name);
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }

    /// The member of an object, else `null`.
    pub(super) fn member_or_null(&self, name: &str) -> Self {
        match self {
            Self::Object(members) => members.get(name).cloned().unwrap_or(Self::Null),
            _ => Self::Null,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether a condition with this value holds: JMESPath has `null`, `false` and everything that
    /// is empty as false.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(value) => *value,
            Self::Number(_) => true,
            Self::String(text) => !text.is_empty(),
            Self::Array(items) => !items.is_empty(),
            Self::Object(members) => !members.is_empty(),
        }
    }

    /// The name of its type in JMESPath.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// The order of two numbers or of two strings.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => {
                Some(ExactNumber::new(left).cmp(&ExactNumber::new(right)))
            }
            (Self::String(left), Self::String(right)) => Some(left.cmp(right)),
            _ => None,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::Array(left), Self::Array(right)) => left == right,
            (Self::Object(left), Self::Object(right)) => left == right,
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }
}

fn write_string(out: &mut String, text: &str) {
    // Infallible: a string serialises.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// Parses text that is JSON.
struct JsonParser<'a> {
    rest: &'a str,
}

impl JsonParser<'_> {
    fn parse_value(&mut self, level: usize) -> Result<Value, serde_json::Error> {
        if level > LEVELS {
            return Err(serde::de::Error::custom("recursion limit exceeded"));
        }
        self.skip_space();
        match self.rest.as_bytes().first() {
            Some(b'"') => self.parse_string().map(Value::String),
            Some(b'[') => {
                let mut items = Vec::new();
                while self.begins_item(b']') {
                    items.push(self.parse_value(level + 1)?);
                }
                Ok(Value::Array(items.into()))
            }
            Some(b'{') => {
                let mut members = BTreeMap::new();
                while self.begins_item(b'}') {
                    let name = self.parse_string()?;
                    self.skip_space();
                    // The colon.
                    self.rest = &self.rest[1..];
                    members.insert(name, self.parse_value(level + 1)?);
                }
                Ok(Value::Object(Arc::new(members)))
            }
            _ => {
                let is_end = |c: char| matches!(c, ',' | ']' | '}') || c.is_ascii_whitespace();
                let (word, rest) = self
                    .rest
                    .split_at(self.rest.find(is_end).unwrap_or(self.rest.len()));
                self.rest = rest;
                Ok(match word {
                    "null" => Value::Null,
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    number => Value::Number(number.into()),
                })
            }
        }
    }

    /// Skips the bracket or the comma before an item, or the bracket after the last one.
    fn begins_item(&mut self, end: u8) -> bool {
        self.skip_space();
        let is_end = |rest: &str| rest.as_bytes().first().is_none_or(|byte| *byte == end);
        if !is_end(self.rest) {
            self.rest = &self.rest[1..];
            self.skip_space();
            if !is_end(self.rest) {
                return true;
            }
        }
        self.rest = self.rest.get(1..).unwrap_or_default();
        false
    }

    fn parse_string(&mut self) -> Result<Arc<str>, serde_json::Error> {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        let mut has_escapes = false;
        while let Some(byte) = bytes.get(end).filter(|byte| **byte != b'"') {
            has_escapes |= *byte == b'\\';
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        let (literal, rest) = self.rest.split_at((end + 1).min(self.rest.len()));
        self.rest = rest;
        if has_escapes {
            return serde_json::from_str::<String>(literal).map(Arc::from);
        }
        Ok(literal[1..literal.len() - 1].into())
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }
}
