//! A body as events: its schema, its rate, and the write to the journal.
//!
//! Every way into a topic ends here, so the events of all publishers have the same checks. The
//! reserved bytes travel with the events into the journal, which frees them.

use std::time::Duration;

use actix_web::http::header::{CONTENT_TYPE, HeaderMap};
use bytes::Bytes;

use super::Publisher;
use crate::{
    PublishLimits, Refusal,
    in_flight_bytes::Permit,
    schema::{self, DataChecks, EventTarget, Nonconforming, RequestContent},
    strip_byte_order_mark,
    traced::{TracedPublish, TracedRequest},
};
use gridhook_compute::ComputeCaller;
use gridhook_engine::control::registry::TopicHandle;
use gridhook_event::{Schema, SubscriptionId, Timestamp, chunk::ChunkBuilder};
use gridhook_journal as journal;

/// The number of nonconforming events of which one is logged: a publisher's mistake is in each of
/// its events.
const LOGGED_EVERY: u64 = 1_000;

/// The prefix of attribute headers in the binary mode of CloudEvents.
const ATTRIBUTE_PREFIX: &str = "ce-";

impl Publisher {
    /// Reads and appends a body that is admitted.
    pub(super) async fn append_body(
        &self,
        topic: &TopicHandle,
        headers: &HeaderMap,
        limits: &PublishLimits,
        body: Bytes,
        permit: Permit,
        began: Timestamp,
    ) -> Result<(), Refusal> {
        let record = topic.record();
        let target = EventTarget::cached_for(&record).with_catalogue(topic.catalogue());
        let content = request_content(headers, target.schema);
        let body = if content.is_binary() {
            body
        } else {
            strip_byte_order_mark(body)
        };
        let trace = TracedRequest::begin_trace(
            &self.tracer,
            headers,
            target.schema,
            &content,
            &body,
            began,
        );
        let draft = match &trace {
            Some(trace) => schema::read_traced_events(
                &target,
                &content,
                &body,
                limits,
                &trace.stored_context(),
            )?,
            None => schema::read_events(&target, &content, &body, limits)?,
        };
        note_nonconforming(topic, self.check_data(topic, target.take_checks()).await?);
        let events = draft.count();
        let bytes = body.len();
        let append_began = if trace.is_some() || self.throttle.is_limited() {
            self.clock.now()
        } else {
            began
        };
        self.throttle
            .take_tokens(topic.partition(), events, bytes, append_began);
        drop(body);
        let result = self
            .append_events(topic, draft, record.ingress.duplicate_window(), permit)
            .await;
        if let Some(trace) = trace {
            let topic = record.name.as_str();
            trace.end_trace(
                &TracedPublish {
                    topic,
                    events,
                    bytes,
                    append_began,
                    append_ended: self.clock.now(),
                },
                &result,
            );
        }
        result
    }

    /// Checks the data of events on the threads for computations, unless that costs little.
    async fn check_data(
        &self,
        topic: &TopicHandle,
        checks: DataChecks,
    ) -> Result<Option<Nonconforming>, Refusal> {
        if checks.are_quick() {
            return checks.check_all();
        }
        let caller = ComputeCaller::Topic(topic.partition());
        let result = self
            .compute
            .run(caller, |meter| checks.check_in_slices(meter))
            .await;
        result.unwrap_or(Err(Refusal::Unchecked))
    }

    async fn append_events(
        &self,
        topic: &TopicHandle,
        draft: ChunkBuilder,
        window: Option<Duration>,
        permit: Permit,
    ) -> Result<(), Refusal> {
        let partition = topic.partition();
        let chunks = draft.into_chunks();
        let permit = Some(Box::new(permit) as journal::Permit);
        match self
            .journal
            .append_new_events(partition, chunks, window, permit)?
            .await
        {
            Ok(receipt) => {
                topic.meter().count_duplicates(receipt.duplicates.into());
                Ok(())
            }
            Err(journal::Error::Backlog(laggard)) => Err(backlog_full(topic, laggard)),
            Err(error) => {
                if let journal::Error::Damaged(what) = &error {
                    tracing::error!(topic = %topic.record().name, what, "publish failed: the \
                        journal is damaged");
                }
                Err(error.into())
            }
        }
    }
}

/// Counts the events whose data does not match their schema, and logs one of a thousand.
fn note_nonconforming(topic: &TopicHandle, nonconforming: Option<Nonconforming>) {
    let Some(Nonconforming { events, first }) = nonconforming else {
        return;
    };
    let before = topic.meter().count_nonconforming(events);
    if before == 0 || before / LOGGED_EVERY != (before + events) / LOGGED_EVERY {
        tracing::warn!(topic = %topic.record().name, events = before + events, first, "events do \
            not match their schema");
    }
}

/// The refusal of a topic whose backlog is at its limit.
pub(super) fn backlog_full(topic: &TopicHandle, laggard: SubscriptionId) -> Refusal {
    let name = topic
        .subscription_name(laggard)
        .map(|name| name.to_string());
    Refusal::Backlog {
        laggard: name.unwrap_or_else(|| laggard.0.to_string()),
    }
}

fn request_content(headers: &HeaderMap, schema: Schema) -> RequestContent<'_> {
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let attributes = match schema {
        Schema::EventGrid | Schema::Custom => Vec::new(),
        Schema::CloudEvents => headers
            .iter()
            .filter_map(|(name, value)| {
                Some((
                    name.as_str().strip_prefix(ATTRIBUTE_PREFIX)?,
                    value.as_bytes(),
                ))
            })
            .collect(),
    };
    RequestContent {
        content_type,
        attributes,
    }
}
