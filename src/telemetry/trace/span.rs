//! Spans and their attributes.

use super::{SpanContext, SpanId};
use gridhook_event::Timestamp;

/// The kind of a span, with OTLP's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    Text(String),
    Number(i64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for AttributeValue {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// 256 bytes of an event's text, which can have a megabyte.
const TEXT_BYTES_MAX: usize = 256;

impl AttributeValue {
    /// A text of an event, truncated.
    pub fn truncated(text: &str) -> Self {
        Self::Text(text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub context: SpanContext,
    /// The span that this one is part of; [`None`] if this one begins the trace.
    pub parent: Option<SpanId>,
    /// The operation, in two words.
    pub name: String,
    pub kind: SpanKind,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Related spans of other traces.
    pub links: Vec<SpanContext>,
    /// The error, if the operation failed.
    pub error: Option<String>,
}
