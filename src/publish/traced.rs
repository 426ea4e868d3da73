//! Traces of publish requests.
//!
//! The parent is the request's header `traceparent`; without it, that of the first event with the
//! attribute; without both, a new trace begins. The context of the publish span is stored beside
//! each event in the log, so that delivery attempts become its children, in whichever process.

use actix_web::http::header::HeaderMap;

use super::{Refusal, schema::RequestContent};
use gridhook_event::{Schema, Timestamp};
use gridhook_telemetry::trace::{Span, SpanContext, SpanId, SpanKind, Tracer, carrier};

pub(super) struct TracedRequest {
    tracer: Tracer,
    context: SpanContext,
    parent: Option<SpanId>,
    began: Timestamp,
}

/// The result of a traced request.
pub(super) struct TracedPublish<'a> {
    pub(super) topic: &'a str,
    pub(super) events: u32,
    pub(super) bytes: usize,
    /// The time at which the journal received the events.
    pub(super) asked: Timestamp,
    /// The time at which the journal had stored them.
    pub(super) answered: Timestamp,
}

impl TracedRequest {
    /// Begins the trace of a request that has been read; [`None`] where it is not recorded.
    pub(super) fn begin_trace(
        tracer: &Tracer,
        headers: &HeaderMap,
        schema: Schema,
        content: &RequestContent<'_>,
        body: &[u8],
        began: Timestamp,
    ) -> Option<Self> {
        if !tracer.is_on() {
            return None;
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let of_header =
            text("traceparent").and_then(|parent| SpanContext::parse(parent, text("tracestate")));
        let parent = of_header.or_else(|| match schema {
            Schema::CloudEvents => events_context(content, body),
            Schema::EventGrid | Schema::Custom => None,
        });
        let context = tracer.new_context(parent.as_ref())?;
        Some(Self {
            tracer: tracer.clone(),
            context,
            parent: parent.map(|parent| parent.span),
            began,
        })
    }

    /// The context that is stored beside the events.
    pub(super) fn stored_context(&self) -> String {
        self.context.to_stored()
    }

    /// Records the spans of the request.
    pub(super) fn end_trace(self, published: &TracedPublish<'_>, result: &Result<(), Refusal>) {
        let TracedPublish {
            topic,
            events,
            bytes,
            asked,
            answered,
        } = *published;
        let Self {
            tracer,
            context,
            parent,
            began,
        } = self;
        let error = result.as_ref().err().map(ToString::to_string);
        if let Some(journal_context) = tracer.new_context(Some(&context)) {
            tracer.record_span(Span {
                context: journal_context,
                parent: Some(context.span),
                name: format!("journal {topic}"),
                kind: SpanKind::Internal,
                began: asked,
                ended: answered,
                attributes: vec![("messaging.destination.name", topic.into())],
                links: Vec::new(),
                error: error.clone(),
            });
        }
        let status = result
            .as_ref()
            .map_or_else(|refusal| refusal.status().0.as_u16(), |()| 200);
        tracer.record_span(Span {
            context,
            parent,
            name: format!("publish {topic}"),
            kind: SpanKind::Server,
            began,
            ended: answered,
            attributes: vec![
                ("messaging.system", "gridhook".into()),
                ("messaging.operation.name", "publish".into()),
                ("messaging.destination.name", topic.into()),
                ("messaging.batch.message_count", events.into()),
                ("http.request.body.size", bytes.into()),
                ("http.request.method", "POST".into()),
                ("http.response.status_code", u32::from(status).into()),
            ],
            links: Vec::new(),
            error,
        });
    }
}

/// The trace context of the first event. In binary mode the attributes are headers.
fn events_context(content: &RequestContent<'_>, body: &[u8]) -> Option<SpanContext> {
    if content.is_binary() {
        let parent = find_attribute(content, "traceparent")?;
        return SpanContext::parse(parent, find_attribute(content, "tracestate"));
    }
    match body.trim_ascii_start().first() {
        Some(b'[') => carrier::first_context(body),
        Some(_) | None => carrier::event_context(body),
    }
}

fn find_attribute<'a>(content: &'a RequestContent<'_>, name: &str) -> Option<&'a str> {
    let mut attributes = content.attributes.iter();
    let (_, value) = attributes.find(|attribute| attribute.0 == name)?;
    std::str::from_utf8(value).ok()
}
