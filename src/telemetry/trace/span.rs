//! A span: something that took a time, and what is told of it.

use super::{SpanContext, SpanId};
use crate::event::Timestamp;

/// What a span is, towards those before and after it. The numbers are OTLP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Within the server.
    Internal = 1,
    /// Somebody asked.
    Server = 2,
    /// Somebody was asked.
    Client = 3,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number.
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

/// 256 bytes of what an event says: it may be a megabyte, and is in the event.
const TEXT_BYTES_MAX: usize = 256;

impl AttributeValue {
    /// What others say, cut where it is long.
    pub fn cut(text: &str) -> Self {
        Self::Text(text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned())
    }
}

/// A span that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its place.
    pub context: SpanContext,
    /// The span above it; [`None`] where it begins its trace.
    pub parent: Option<SpanId>,
    /// What happened, in two words.
    pub name: String,
    /// What it is.
    pub kind: SpanKind,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What else is told.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Spans of other traces that it belongs to as well.
    pub links: Vec<SpanContext>,
    /// Why it failed, where it did.
    pub error: Option<String>,
}
