//! The trace context of an event: the distributed tracing extension of CloudEvents.

use std::borrow::Cow;

use serde::Deserialize;

use super::SpanContext;

/// The two attributes; others are ignored.
#[derive(Deserialize)]
struct TraceContextAttributes<'a> {
    #[serde(borrow, default)]
    traceparent: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tracestate: Option<Cow<'a, str>>,
}

impl TraceContextAttributes<'_> {
    fn read_context(&self) -> Option<SpanContext> {
        SpanContext::parse(self.traceparent.as_deref()?, self.tracestate.as_deref())
    }
}

/// The context of an event in the JSON form of CloudEvents.
pub fn event_context(event: &[u8]) -> Option<SpanContext> {
    serde_json::from_slice::<TraceContextAttributes<'_>>(event)
        .ok()?
        .read_context()
}

/// The context of the first event in an array that has one.
pub fn first_context(events: &[u8]) -> Option<SpanContext> {
    let events: Vec<TraceContextAttributes<'_>> = serde_json::from_slice(events).ok()?;
    events.iter().find_map(TraceContextAttributes::read_context)
}
