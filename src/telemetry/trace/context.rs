//! The context of a span in the W3C form: `traceparent` and `tracestate`.

use std::{fmt, sync::Arc};

/// 512 bytes of `tracestate`: the minimum that W3C requires to propagate. A longer value is
/// dropped.
const STATE_BYTES_MAX: usize = 512;

/// The length of a `traceparent` of version 00.
const LEN: usize = 55;

/// The id of a trace. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The id of a span. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub u64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The context that a span passes to its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: TraceId,
    pub span: SpanId,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// The `tracestate` of other systems, propagated unchanged.
    pub state: Option<Arc<str>>,
}

impl SpanContext {
    /// Parses the two headers; [`None`] if the first is invalid. An invalid `tracestate` is
    /// dropped.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let parent = parent.trim();
        let bytes = parent.as_bytes();
        let version = parse_hex(parent.get(..2)?)?;
        // A later version may continue after a hyphen.
        let is_whole = bytes.len() == LEN || (version > 0 && bytes.get(LEN) == Some(&b'-'));
        if version == 0xff || !is_whole || [2, 35, 52].iter().any(|index| bytes[*index] != b'-') {
            return None;
        }
        let trace = parse_hex(parent.get(3..35)?).filter(|trace| *trace != 0)?;
        let span = parse_hex(parent.get(36..52)?).filter(|span| *span != 0)?;
        let flags = parse_hex(parent.get(53..LEN)?)?;
        let plain = |state: &&str| {
            (1..=STATE_BYTES_MAX).contains(&state.len())
                && state.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        let state = state.map(str::trim).filter(plain).map(Arc::from);
        Some(Self {
            trace: TraceId(trace),
            span: SpanId(span as u64),
            is_sampled: flags & 1 == 1,
            state,
        })
    }

    pub fn to_traceparent(&self) -> String {
        format!(
            "00-{}-{}-{:02x}",
            self.trace,
            self.span,
            u8::from(self.is_sampled)
        )
    }

    /// The form that is stored beside an event: both headers with a space between.
    pub fn to_stored(&self) -> String {
        match &self.state {
            Some(state) => format!("{} {state}", self.to_traceparent()),
            None => self.to_traceparent(),
        }
    }

    pub fn parse_stored(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some((parent, state)) => Self::parse(parent, Some(state)),
            None => Self::parse(text, None),
        }
    }
}

/// Parses lower-case digits, as W3C requires.
fn parse_hex(digits: &str) -> Option<u128> {
    let is_lower = digits
        .bytes()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if is_lower {
        u128::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}
