//! Spans of a delivery attempt and of its settlement, below the span of the event.
//!
//! The parent is read from the event at each attempt, so that an attempt after a restart has the
//! same parent. A request with several events belongs to the trace of the first, with links to the
//! others.

use std::{borrow::Cow, sync::Arc};

use crate::{plan::DeliveryPlan, shared_state::SharedState};
use gridhook_deliver::RequestHeader;
use gridhook_event::{Event, Lane, RequestId, Schema, Timestamp};
use gridhook_policy::{
    OutgoingBatch,
    outcome::{Outcome, RequestResult},
    record::{LedgerEntry, LedgerEvent, RecordChange},
};
use gridhook_telemetry::trace::{
    AttributeValue, Span, SpanContext, SpanId, SpanKind, Tracer, carrier,
};

/// Maximum links of a span. Further events are only in its message count.
const LINKS_MAX: usize = 32;

pub(super) struct AttemptSpan {
    /// The context that is sent to the endpoint.
    pub(super) context: SpanContext,
    span: Option<Box<OpenSpan>>,
}

/// A span that has not ended.
struct OpenSpan {
    tracer: Tracer,
    parent: SpanId,
    links: Vec<SpanContext>,
    attributes: Vec<(&'static str, AttributeValue)>,
    began: Timestamp,
}

impl AttemptSpan {
    /// Begins the span of a request with `events`. [`None`] if tracing is off or no event belongs
    /// to a trace.
    pub(super) fn begin_span(
        tracer: &Tracer,
        plan: &DeliveryPlan,
        events: &[Event],
        before: u32,
        now: Timestamp,
    ) -> Option<Self> {
        if !tracer.is_on() {
            return None;
        }
        let mut contexts: Vec<SpanContext> = Vec::new();
        for context in events.iter().filter_map(context_of) {
            if contexts.len() <= LINKS_MAX && !contexts.contains(&context) {
                contexts.push(context);
            }
        }
        let parent = (!contexts.is_empty()).then(|| contexts.remove(0))?;
        let Some(context) = tracer.new_context(Some(&parent)) else {
            // The trace is not recorded (not sampled). The endpoint receives the parent's context.
            return Some(Self {
                context: parent,
                span: None,
            });
        };
        let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("messaging.system", "gridhook".into()),
            ("messaging.operation.name", "deliver".into()),
            (
                "messaging.destination.subscription.name",
                plan.record.name.as_str().into(),
            ),
            ("messaging.batch.message_count", events.len().into()),
            ("gridhook.attempt", before.saturating_add(1).into()),
            ("http.request.method", "POST".into()),
            ("url.full", plan.record.destination_name().into()),
        ];
        if let [event] = events {
            attributes.push((
                "messaging.message.id",
                AttributeValue::truncated(&event.id()),
            ));
            attributes.push((
                "cloudevents.event_type",
                AttributeValue::truncated(&event.event_type()),
            ));
        }
        let open = OpenSpan {
            tracer: tracer.clone(),
            parent: parent.span,
            links: contexts,
            attributes,
            began: now,
        };
        Some(Self {
            context,
            span: Some(Box::new(open)),
        })
    }

    pub(super) fn trace_headers(&self) -> impl Iterator<Item = RequestHeader> + use<> {
        let state = self
            .context
            .state
            .as_deref()
            .map(|state| ("tracestate", Cow::Owned(state.to_owned())));
        [("traceparent", self.context.to_traceparent().into())]
            .into_iter()
            .chain(state)
    }

    pub(super) fn end_span(self, plan: &DeliveryPlan, result: &RequestResult) {
        let Some(open) = self.span else { return };
        let OpenSpan {
            tracer,
            parent,
            links,
            mut attributes,
            began,
        } = *open;
        attributes.push(("gridhook.outcome", result.outcome.to_string().into()));
        if let Some(status) = result.status {
            attributes.push(("http.response.status_code", u32::from(status).into()));
        }
        let error = (result.outcome != Outcome::Delivered).then(|| result.outcome.to_string());
        if let Some(outcome) = &error {
            attributes.push(("error.type", outcome.clone().into()));
        }
        tracer.record_span(Span {
            context: self.context,
            parent: Some(parent),
            name: format!("deliver {}", plan.record.name),
            kind: SpanKind::Client,
            began,
            ended: began.after(result.latency),
            attributes,
            links,
            error: error.map(|outcome| {
                if result.detail.is_empty() {
                    outcome
                } else {
                    result.detail.clone()
                }
            }),
        });
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.span.is_some()
    }
}

/// The parent of an event's spans: the span that published it, unless the event has a trace context
/// of its own.
fn context_of(event: &Event) -> Option<SpanContext> {
    let stored_context = event.trace().and_then(SpanContext::parse_stored);
    let own = match event.schema {
        Schema::CloudEvents => carrier::event_context(event.wire_bytes()),
        Schema::EventGrid | Schema::Custom => None,
    };
    match (stored_context, own) {
        (Some(stored_context), Some(own)) if stored_context.trace != own.trace => Some(own),
        (Some(stored_context), _) => Some(stored_context),
        (None, own) => own,
    }
}

/// Spans of outcomes that are being written.
pub(super) struct SettleSpans {
    tracer: Tracer,
    spans: Vec<Span>,
}

impl SettleSpans {
    /// Begins the spans of the requests whose outcome is in these changes.
    pub(super) fn for_outcomes(
        tracer: &Tracer,
        shared: &SharedState,
        name: &str,
        landed: &[RequestId],
        changes: &[RecordChange],
        now: Timestamp,
    ) -> Option<Self> {
        if !tracer.is_on() {
            return None;
        }
        let mut spans = Vec::new();
        for (request, attempt) in shared.traced_requests(landed) {
            let Some(context) = tracer.new_context(Some(&attempt)) else {
                continue;
            };
            let (result, more) = describe_settlement(&request, changes);
            let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
                ("messaging.operation.name", "settle".into()),
                ("messaging.destination.subscription.name", name.into()),
                ("gridhook.became", result.into()),
            ];
            attributes.extend(more);
            spans.push(Span {
                context,
                parent: Some(attempt.span),
                name: format!("settle {name}"),
                kind: SpanKind::Internal,
                began: now,
                ended: now,
                attributes,
                links: Vec::new(),
                error: None,
            });
        }
        (!spans.is_empty()).then(|| Self {
            tracer: tracer.clone(),
            spans,
        })
    }

    pub(super) fn end_spans(self, now: Timestamp) {
        for span in self.spans {
            self.tracer.record_span(Span {
                ended: now.max(span.began),
                ..span
            });
        }
    }
}

/// Describes the settlement of the first event of a request: its last line in the ledger.
fn describe_settlement(
    request: &Arc<OutgoingBatch>,
    changes: &[RecordChange],
) -> (&'static str, Vec<(&'static str, AttributeValue)>) {
    let first = request.items.first().map(|item| item.key());
    let is_of_first = |lane: Lane, entry: &LedgerEntry| {
        first.is_some_and(|(of, seq)| of == lane && entry.contains_event(seq))
    };
    let lines = changes.iter().filter_map(|change| match change {
        RecordChange::Note { lane, entry, .. } if is_of_first(*lane, entry) => Some(&entry.what),
        _ => None,
    });
    let mut result = ("settled", Vec::new());
    for what in lines {
        result = match what {
            LedgerEvent::Attempted {
                outcome: Outcome::Delivered,
                ..
            } => ("delivered", Vec::new()),
            LedgerEvent::Attempted {
                next: Some(next), ..
            } => (
                "deferred",
                vec![("gridhook.next_attempt", next.to_string().into())],
            ),
            LedgerEvent::GivenUp {
                reason,
                dead_lettered,
            } => {
                let result = if *dead_lettered {
                    "deadLettered"
                } else {
                    "dropped"
                };
                (result, vec![("gridhook.reason", reason.to_string().into())])
            }
            _ => result,
        };
    }
    result
}
