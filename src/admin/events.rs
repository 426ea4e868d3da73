//! Events of a topic: `GET …/events` lists them, `GET …/events/{sequence}` returns one as it is
//! stored, and `POST …/publish` publishes events for an operator.

use actix_web::{HttpMessage, HttpResponse};
use bytes::Bytes;
use serde::Deserialize;
use uuid::Uuid;

use super::{
    AdminError,
    arm::Call,
    model::{CheckResult, InvalidRequest},
    query,
};
use crate::{AdminResult, model::refuse_value, respond_json};
use gridhook_api::events::{EventLine, EventList};
use gridhook_engine::control::{audit::record_intent, registry::TopicHandle};
use gridhook_event::{Event, Schema, Seq};
use gridhook_publish::OneOfShards;

/// Default number of listed events.
pub(super) const TOP: usize = 50;

/// Maximum number of listed events.
pub(super) const TOP_MAX: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    top: Option<String>,
    before: Option<String>,
    #[serde(rename = "type")]
    event_type: Option<String>,
    subject: Option<String>,
    id: Option<String>,
}

/// `GET …/events`.
pub(super) async fn list_events(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?;
    let query: EventsQuery = query::read(
        call.request()?.query_string(),
        "top, before, type, subject or id",
    )?;
    let top = query::parse_number("top", query.top.as_deref(), TOP, 1..=TOP_MAX, "events")?;
    let before = query
        .before
        .as_deref()
        .map(|given| sequence_number("before", given))
        .transpose()?;
    let is_domain = topic.record().is_domain();
    let line = move |event: &Event| query.selects(event).then(|| event_line(event, is_domain));
    let search = |_| async move { topic.events_before(before, top, &line).await };
    let page = call.compute(search).await??;
    respond_json(&EventList {
        events: page.events,
        before: page.next.map(|next| next.0.to_string()),
        log_from_sequence: Some(page.log.start.0),
        log_before_sequence: Some(page.log.end.0),
    })
}

impl EventsQuery {
    fn selects(&self, event: &Event) -> bool {
        let is_type = |wanted: &String| event.event_type() == wanted.as_str();
        let is_subject = |wanted: &String| event.subject().contains(wanted.as_str());
        let is_id = |wanted: &String| event.id() == wanted.as_str();
        self.event_type.as_ref().is_none_or(is_type)
            && self.subject.as_ref().is_none_or(is_subject)
            && self.id.as_ref().is_none_or(is_id)
    }
}

fn event_line(event: &Event, is_domain: bool) -> EventLine {
    EventLine {
        shard: None,
        sequence: event.seq.0,
        at: event.appended.to_string(),
        id: event.id().into_owned(),
        event_type: event.event_type().into_owned(),
        subject: event.subject().into_owned(),
        domain_topic: is_domain.then(|| event.domain_topic().into_owned()),
        bytes: event.wire_len(),
    }
}

fn sequence_number(name: &str, given: &str) -> CheckResult<Seq> {
    let unexpected = |_| InvalidRequest::unexpected(name, given, "a sequence number");
    given.parse().map(Seq).map_err(unexpected)
}

/// Refuses a request about sequences of a spread topic that names no shard.
pub(super) fn require_shard(call: Call<'_>, topic: &TopicHandle) -> AdminResult<()> {
    let names_shard = call.request()?.extensions().contains::<OneOfShards>();
    if topic.record().is_spread() && !names_shard {
        let last = call.control.shard_count() - 1;
        let problem = format!(
            "is missing; expected 0 to {last}, because each shard of this topic has sequences of \
             its own"
        );
        return refuse_value("shard", problem);
    }
    Ok(())
}

/// `GET …/events/{sequence}`. Each shard of a spread topic has such a sequence, so the request
/// names one.
pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let sequence = call.path.name("sequence")?;
    let topic = call.find_topic()?;
    require_shard(call, &topic)?;
    let seq = sequence_number("sequence", sequence)?;
    let event = topic.read_event(seq).await?;
    let event = event.ok_or_else(|| {
        AdminError::NotFound(format!(
            "The log of the topic has no event with the sequence {sequence}."
        ))
    })?;
    let content_type = match topic.record().input_schema {
        Schema::CloudEvents => "application/cloudevents+json",
        Schema::EventGrid | Schema::Custom => "application/json",
    };
    Ok(HttpResponse::Ok()
        .content_type(content_type)
        .body(Bytes::copy_from_slice(event.wire_bytes())))
}

/// `POST …/publish`. A refusal has the body that a publisher receives.
pub(super) async fn publish_events(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?;
    let publisher = call
        .control
        .exposition
        .publisher()
        .ok_or(AdminError::Broken("no publisher is set up"))?;
    record_intent().await;
    match publisher
        .publish_for_operator(&topic, call.request()?, Bytes::copy_from_slice(call.body))
        .await
    {
        Ok(()) => Ok(HttpResponse::Ok().finish()),
        Err(refusal) => Ok(refusal.to_response(Uuid::new_v4(), call.control.clock.wall_time())),
    }
}
