//! A dead letter in the layout of namespaces: `event`, `customDeliveryProperties` and
//! `deadletterProperties`, in this order.
//!
//! The event is a CloudEvent as it was published: `data` if that was JSON, `data_base64` otherwise.
//! Nothing is added to it, so it can be published again. The examples of the documentation disagree
//! on the name of the properties and on wrapping the event; this is the layout of most of them.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    DeliveryResult, FileContext,
    object::{JsonObjectBuilder, parse_members},
};
use gridhook_event as event;
use gridhook_event::{Event, Schema};
use gridhook_policy::{
    outcome::{Failure, LastOutcome, Reason},
    property,
    record::DeadLetterRecord,
};

pub(super) fn dead_letter(
    out: &mut String,
    wire: &Bytes,
    context: FileContext<'_>,
    event: &Event,
    result: DeliveryResult<'_>,
) -> Result<(), serde_json::Error> {
    let wire = match event.schema {
        Schema::CloudEvents => wire.clone(),
        Schema::EventGrid => event::cloud_event(wire)?,
        Schema::Custom => cloud_event_of_custom(wire, context, event)?,
    };
    parse_members(&wire)?;
    let whole: &RawValue = serde_json::from_slice(&wire)?;
    let mut object = JsonObjectBuilder::begin_object(out);
    object.put_json("event", whole.get());
    let headers = property::request_headers(context.properties, Some(event));
    if !headers.is_empty() {
        object.put_object("customDeliveryProperties", |inner| {
            for (name, value) in &headers {
                inner.put_text(name, value);
            }
        });
    }
    object.put_object("deadletterProperties", |inner| {
        result.put_into_namespace(inner)
    });
    object.end_object();
    Ok(())
}

impl DeliveryResult<'_> {
    fn put_into_namespace(self, object: &mut JsonObjectBuilder<'_>) {
        let Self { lane, dead } = self;
        object.put_text("deadletterreason", &reason_sentence(dead.reason));
        object.put_json("deliveryattempts", &dead.attempts.to_string());
        object.put_text("deliveryresult", &delivery_result(dead));
        object.put_text("publishutc", &dead.published.to_event_grid());
        if let Some(tried) = dead.tried {
            // After the clock was set back, the attempt would be before the publication.
            object.put_text(
                "deliveryattemptutc",
                &tried.max(dead.published).to_event_grid(),
            );
        }
        if lane.is_job() {
            object.put_text("replayjob", &lane.0.to_string());
        }
    }
}

/// How delivery ended: by an outcome, or, with pull delivery, in the words of the documentation.
fn delivery_result(dead: &DeadLetterRecord) -> Cow<'static, str> {
    match (dead.outcome, dead.reason) {
        (LastOutcome::Delivering, Reason::Rejected) => "Event was rejected.".into(),
        (LastOutcome::Delivering, _) => "Event was not acknowledged nor rejected.".into(),
        (outcome, _) => outcome.to_string().into(),
    }
}

/// The reason as a sentence. The first two are from the documentation.
fn reason_sentence(reason: Reason) -> Cow<'static, str> {
    let sentence = match reason {
        Reason::Undeliverable(
            Failure::BadRequest
            | Failure::Unauthorized
            | Failure::Forbidden
            | Failure::NotFound
            | Failure::PayloadTooLarge
            | Failure::GenericError,
        )
        | Reason::ProbationCausedByClientError => "Undeliverable due to client error",
        Reason::MaxDeliveryAttemptsExceeded => "Maximum delivery attempts was exceeded.",
        Reason::TimeToLiveExceeded => "Time to live was exceeded.",
        Reason::Rejected => "Event was rejected.",
        Reason::Quarantined => "Event is a poison message.",
        Reason::BacklogExceeded => "Backlog was exceeded.",
        Reason::RedriveCanceled => "Redrive was canceled.",
        Reason::Missing => "Event is missing.",
        Reason::Undeliverable(outcome) => return format!("Undeliverable due to {outcome}").into(),
    };
    sentence.into()
}

/// The CloudEvent for an event of the custom schema.
fn cloud_event_of_custom(
    wire: &[u8],
    context: FileContext<'_>,
    event: &Event,
) -> Result<Bytes, serde_json::Error> {
    let own: &RawValue = serde_json::from_slice(wire)?;
    let mut out = String::with_capacity(wire.len() + 256);
    let mut object = JsonObjectBuilder::begin_object(&mut out);
    object.put_text("specversion", "1.0");
    object.put_text("type", &event.event_type());
    object.put_text("source", context.topic);
    object.put_text("id", &event.id());
    object.put_text(
        "time",
        &event
            .event_time()
            .unwrap_or_else(|| event.appended.to_event_grid().into()),
    );
    let subject = event.subject();
    if !subject.is_empty() {
        object.put_text("subject", &subject);
    }
    object.put_text("datacontenttype", "application/json");
    object.put_json("data", own.get());
    object.end_object();
    Ok(out.into())
}

/// The folder of a subscription: namespace, topic and subscription, in their original case. A
/// domain topic is below its domain, any other topic below its resource group.
pub(super) fn subscription_folder(topic: &str, subscription: &str) -> String {
    let parts: Vec<&str> = topic.split('/').collect();
    // By position, because a name may be any word of a resource id:
    // /subscriptions/{}/resourceGroups/{}/providers/Microsoft.EventGrid/{kind}/{}, and /topics/{}
    // behind it.
    let (parent, topic) = match parts[..] {
        ["", _, _, _, group, _, _, _, topic] => (group, topic),
        ["", _, _, _, _, _, _, _, parent, _, topic] => (parent, topic),
        _ => ("", parts.last().copied().unwrap_or_default()),
    };
    format!("{parent}/{topic}/{subscription}")
}
