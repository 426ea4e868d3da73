//! Transformations: what a subscription sends instead of an event.
//!
//! A transformation is a set of JMESPath expressions. `body` makes the JSON value that takes the
//! event's place; the others make parts of the request. Their input is the event as it would be
//! delivered.
//!
//! Invariants:
//! - The result depends on the event and the expressions only: there is no time, no randomness and
//!   no other input.
//! - Time and memory are bounded before anything is evaluated: see `bound`.
//! - Numbers that an expression does not compute stay as they are written. Whole numbers are
//!   computed exactly.
//! - An event cannot leave its place in the request: segments of the path are percent-encoded, and
//!   none is `.` or `..`.

mod bound;
mod evaluate;
mod functions;
mod value;

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use jmespath::{Expression, JmespathError};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use self::{bound::Size, evaluate::Evaluator, value::Value};
use crate::property;
use gridhook_event::{Event, Schema, Transformation, Transformed};

/// 16 KiB of each expression: longer programs belong into the endpoint.
pub const SOURCE_BYTES_MAX: usize = 16 * 1024;

/// 512 brackets and operators of an expression, which is evaluated recursively.
const OPERATORS_MAX: usize = 512;

/// The characters that count as brackets and operators, wherever they are: also in literals.
const OPERATORS: &str = "!([{|&.*<>=";

/// 1 MiB of result, as much as an event.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// 32 MiB of what an expression could make of an event.
const BOUND_BYTES_MAX: f64 = 32.0 * 1024.0 * 1024.0;

/// An expression that could make too much of an event of 4 KiB is refused.
const USUAL_EVENT_BYTES: f64 = 4096.0;

/// 2 KiB of path, a quarter of what servers accept.
const PATH_BYTES_MAX: usize = 2048;

/// Methods that carry a body.
const METHODS: [&str; 3] = ["PATCH", "POST", "PUT"];

/// The characters of a segment that stay as they are in a path.
const KEPT_IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

const BODY: &str = "body";
const PATH_SUFFIX: &str = "pathSuffix";

/// A transformation as the subscription has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transform {
    /// Expression of the JSON value that takes the event's place. [`None`]: the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The HTTP method. [`None`]: `POST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Expression of the segments that are appended to the path of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_suffix: Option<String>,
    /// Expressions of headers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// Why a transformation is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} {problem}")]
pub struct InvalidTransform {
    /// The key, such as `body` or `headers.x-order`.
    pub at: String,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

impl InvalidTransform {
    fn new(at: &str, problem: impl Into<String>) -> Self {
        let at = at.to_owned();
        let problem = problem.into();
        Self { at, problem }
    }
}

/// Why there is nothing to send for an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    /// An expression has no result that can be sent.
    #[error("transform.{at}: {problem}")]
    Part {
        /// The key of the expression, such as `body`.
        at: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// The stored event cannot be decoded.
    #[error("the event cannot be read: {0}")]
    UnreadableEvent(String),
}

impl TransformError {
    fn new(at: &str, problem: impl fmt::Display) -> Self {
        Self::Part {
            at: at.to_owned(),
            problem: problem.to_string(),
        }
    }

    fn for_unreadable_event(error: impl fmt::Display) -> Self {
        Self::UnreadableEvent(error.to_string())
    }
}

/// What is wrong with an expression or its result, and what is allowed.
#[derive(Debug, thiserror::Error)]
enum ExpressionError {
    #[error("has {0} bytes; expected at most {SOURCE_BYTES_MAX}")]
    SourceBytes(usize),
    #[error("has {0} of the characters {OPERATORS}; expected at most {OPERATORS_MAX}")]
    Operators(usize),
    #[error("{}", with_position(.0))]
    Expression(#[from] JmespathError),
    #[error(
        "could make too much of an event: each list, object and projection may repeat it; {0:.0} \
         bytes of an event of {USUAL_EVENT_BYTES:.0} bytes, expected at most {BOUND_BYTES_MAX}"
    )]
    Bound(f64),
    #[error("could make {0:.0} bytes of this event; expected at most {BOUND_BYTES_MAX}")]
    EventBound(f64),
    #[error("the result has {0} bytes; expected at most {1}")]
    ResultBytes(usize, usize),
    #[error("the result is not a string, a number or a boolean, or a list of these")]
    ResultType,
    #[error("the result has a segment . or .., which would leave the path of the endpoint")]
    Dots,
}

/// A transformation whose expressions compile and stay below the limits.
pub struct Program {
    source: Transform,
    /// By the key of its part.
    expressions: BTreeMap<String, (Expression<'static>, Size)>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Program {
    /// Checks a transformation. `batched`: a request may have several events. `schema`: of
    /// delivered events.
    ///
    /// # Errors
    /// The first part that is not allowed.
    pub fn new(
        source: &Transform,
        batched: bool,
        schema: Schema,
    ) -> Result<Self, InvalidTransform> {
        if *source == Transform::default() {
            let problem =
                "is empty; expected an expression in body, pathSuffix or headers, or a method";
            return Err(InvalidTransform::new("transform", problem));
        }
        if let Some(method) = source
            .method
            .as_deref()
            .filter(|method| !METHODS.contains(method))
        {
            let problem = format!(
                "is \"{}\"; expected one of {}",
                method.escape_debug(),
                METHODS.join(", ")
            );
            return Err(InvalidTransform::new("method", problem));
        }
        if batched && (source.path_suffix.is_some() || !source.headers.is_empty()) {
            let at = if source.path_suffix.is_some() {
                PATH_SUFFIX
            } else {
                "headers"
            };
            let problem = "is set, but a request may have several events; expected it with a \
                maxEventsPerBatch of 1";
            return Err(InvalidTransform::new(at, problem));
        }
        if source.headers.len() > property::PROPERTIES_MAX {
            let problem = format!(
                "has {} entries; expected at most {}",
                source.headers.len(),
                property::PROPERTIES_MAX
            );
            return Err(InvalidTransform::new("headers", problem));
        }
        for name in source.headers.keys() {
            property::check_name(name, schema)
                .map_err(|error| InvalidTransform::new("headers", error.to_string()))?;
        }
        let mut expressions = BTreeMap::new();
        for (at, text) in source.expressions() {
            let expression = compile_expression(text)
                .map_err(|error| InvalidTransform::new(&at, error.to_string()))?;
            expressions.insert(at, expression);
        }
        Ok(Self {
            source: source.clone(),
            expressions,
        })
    }

    /// The most bytes that an expression can make of an event of this length.
    pub fn output_bytes_max(&self, bytes: usize) -> f64 {
        self.expressions
            .values()
            .map(|(_, size)| size.bytes_for(bytes as f64))
            .fold(0.0, f64::max)
    }

    /// The bytes that all expressions together could make of an event of this length: the cost of a
    /// transformation.
    pub fn total_output_bytes_max(&self, bytes: usize) -> f64 {
        self.expressions
            .values()
            .map(|(_, size)| size.bytes_for(bytes as f64))
            .sum::<f64>()
            + bytes as f64
    }

    /// The event with what is delivered instead of it, unless it has that already.
    pub fn transform(&self, event: Event, schema: Schema) -> Event {
        if event.transformation().is_some() {
            return event;
        }
        let transformation = match self.apply(&event, schema) {
            Ok(transformed) => Transformation::Succeeded(transformed),
            Err(error) => Transformation::Failed(error.to_string()),
        };
        event.with_transformation(transformation)
    }

    /// What is delivered instead of `event` in `schema`.
    ///
    /// # Errors
    /// An expression fails, exceeds its bounds, or makes what cannot be sent.
    pub fn apply(&self, event: &Event, schema: Schema) -> Result<Transformed, TransformError> {
        let wire = event
            .to_delivered_bytes(schema)
            .map_err(TransformError::for_unreadable_event)?;
        let input = Value::parse(&wire).map_err(TransformError::for_unreadable_event)?;
        let mut made = Transformed {
            method: self.source.method.clone(),
            ..Transformed::default()
        };
        for (at, (expression, size)) in &self.expressions {
            let bound = size.bytes_for(wire.len() as f64);
            if bound > BOUND_BYTES_MAX {
                return Err(TransformError::new(at, ExpressionError::EventBound(bound)));
            }
            let source = expression.as_str();
            let result = Evaluator(source)
                .evaluate_node(expression.as_ast(), &input)
                .map_err(|error| {
                    // A `JmespathError` finds the line and column of an offset.
                    let reason = jmespath::ErrorReason::Parse(error.error.to_string());
                    let error = JmespathError::new(source, error.offset, reason);
                    TransformError::new(at, with_position(&error))
                })?;
            let unusable = |error: ExpressionError| TransformError::new(at, error);
            match at.as_str() {
                BODY => made.body = Some(result_body(&result).map_err(unusable)?),
                PATH_SUFFIX => made.path_suffix = Some(result_path(&result).map_err(unusable)?),
                header => {
                    let name = header.strip_prefix(HEADERS).unwrap_or(header);
                    let value = result_text(&result).filter(|value| property::is_value(value));
                    // A header without a usable value is omitted, as a delivery property is.
                    if let Some(value) = value {
                        made.headers.push((name.to_owned(), value));
                    }
                }
            }
        }
        Ok(made)
    }
}

impl Transform {
    /// The expressions with their keys.
    fn expressions(&self) -> impl Iterator<Item = (String, &str)> {
        let parts = [(BODY, &self.body), (PATH_SUFFIX, &self.path_suffix)].into_iter();
        let parts = parts.filter_map(|(at, text)| Some((at.to_owned(), text.as_deref()?)));
        parts.chain(
            self.headers
                .iter()
                .map(|(name, text)| (format!("{HEADERS}{name}"), text.as_str())),
        )
    }
}

const HEADERS: &str = "headers.";

fn compile_expression(text: &str) -> Result<(Expression<'static>, Size), ExpressionError> {
    if text.len() > SOURCE_BYTES_MAX {
        return Err(ExpressionError::SourceBytes(text.len()));
    }
    let operators = text.chars().filter(|c| OPERATORS.contains(*c)).count();
    if operators > OPERATORS_MAX {
        return Err(ExpressionError::Operators(operators));
    }
    let expression = jmespath::compile(text)?;
    let size = bound::output_size(text, expression.as_ast()).map_err(|(offset, problem)| {
        let reason = jmespath::ErrorReason::Parse(problem);
        JmespathError::new(text, offset, reason)
    })?;
    let bound = size.bytes_for(USUAL_EVENT_BYTES);
    if bound > BOUND_BYTES_MAX {
        return Err(ExpressionError::Bound(bound));
    }
    Ok((expression, size))
}

fn with_position(error: &JmespathError) -> String {
    let reason = error.reason.to_string();
    let reason = reason
        .trim_start_matches("Parse error: ")
        .trim_start_matches("Runtime error: ");
    // Without the expression, which a parser repeats in further lines.
    let reason = reason.lines().next().unwrap_or_default();
    let line = error.line + 1;
    let column = error.column + 1;
    match reason.split_once(" -- found ") {
        Some((expected, token)) => format!(
            "line {line}, column {column}: {}",
            in_plain_terms(expected, token)
        ),
        None => format!("line {line}, column {column}: {reason}"),
    }
}

/// The tokens of JMESPath: the parser's name, and the text.
const TOKENS: [(&str, &str); 25] = [
    ("Dot", "."),
    ("Star", "*"),
    ("Flatten", "[]"),
    ("And", "&&"),
    ("Or", "||"),
    ("Pipe", "|"),
    ("Filter", "[?"),
    ("Lbracket", "["),
    ("Rbracket", "]"),
    ("Comma", ","),
    ("Colon", ":"),
    ("Not", "!"),
    ("Ne", "!="),
    ("Eq", "=="),
    ("Gt", ">"),
    ("Gte", ">="),
    ("Lt", "<"),
    ("Lte", "<="),
    ("At", "@"),
    ("Ampersand", "&"),
    ("Lparen", "("),
    ("Rparen", ")"),
    ("Lbrace", "{"),
    ("Rbrace", "}"),
    ("Eof", ""),
];

/// A parser's error in the terms of the language: the parser names its own functions and types.
fn in_plain_terms(expected: &str, token: &str) -> String {
    let problem = match TOKENS.iter().find(|(name, _)| *name == token) {
        Some((_, "")) => "the expression ends too early".to_owned(),
        Some((_, text)) => format!("unexpected {text}"),
        // A name, a number or a literal with its value.
        None => match token.split_once('(') {
            Some(("Identifier" | "QuotedIdentifier" | "Number", value)) => {
                format!("unexpected {}", value.trim_end_matches(')'))
            }
            _ => "unexpected literal".to_owned(),
        },
    };
    match expected.strip_prefix("Expected ") {
        Some(expected) => format!("{problem}; expected {expected}"),
        None => problem,
    }
}

fn result_body(result: &Value) -> Result<Bytes, ExpressionError> {
    let mut body = String::new();
    result.write_json(&mut body);
    if body.len() > RESULT_BYTES_MAX {
        return Err(ExpressionError::ResultBytes(body.len(), RESULT_BYTES_MAX));
    }
    Ok(body.into())
}

/// The text of a scalar.
fn result_text(result: &Value) -> Option<String> {
    match result {
        Value::String(text) | Value::Number(text) => Some(text.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A path of one segment or of several.
fn result_path(result: &Value) -> Result<String, ExpressionError> {
    let segments = match result {
        Value::Array(segments) => segments.iter().map(result_text).collect(),
        segment => result_text(segment).map(|segment| vec![segment]),
    };
    let segments: Vec<String> = segments.ok_or(ExpressionError::ResultType)?;
    if segments
        .iter()
        .any(|segment| matches!(segment.as_str(), "." | ".."))
    {
        return Err(ExpressionError::Dots);
    }
    let encode_segment =
        |segment: &String| format!("/{}", utf8_percent_encode(segment, KEPT_IN_PATH));
    let path: String = segments.iter().map(encode_segment).collect();
    if path.len() > PATH_BYTES_MAX {
        return Err(ExpressionError::ResultBytes(path.len(), PATH_BYTES_MAX));
    }
    Ok(path)
}
