//! Where an event itself says which trace it belongs to: CloudEvents' extension of distributed tracing.

use std::borrow::Cow;

use serde::Deserialize;

use super::SpanContext;

/// The two attributes. Whatever else is there is not looked at.
#[derive(Deserialize)]
struct TraceContextAttributes<'a> {
    #[serde(borrow, default)]
    traceparent: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tracestate: Option<Cow<'a, str>>,
}

impl TraceContextAttributes<'_> {
    fn context(&self) -> Option<SpanContext> {
        SpanContext::parse(self.traceparent.as_deref()?, self.tracestate.as_deref())
    }
}

/// Of an event in the JSON form of CloudEvents.
pub fn of_event(event: &[u8]) -> Option<SpanContext> {
    serde_json::from_slice::<TraceContextAttributes<'_>>(event).ok()?.context()
}

/// Of the first event of an array that says it.
pub fn of_first(events: &[u8]) -> Option<SpanContext> {
    let events: Vec<TraceContextAttributes<'_>> = serde_json::from_slice(events).ok()?;
    events.iter().find_map(TraceContextAttributes::context)
}
