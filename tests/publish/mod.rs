//! Publishing: every rule of the schemas, and every refusal with its message.

pub(crate) mod bearer;
mod binary;
mod bytes;
mod cloud_events;
mod custom;
mod domains;
mod duplicates;
mod encoding;
mod event_grid;
mod event_types;
mod forward;
mod fuzz;
mod garbage;
mod host;
mod http;
mod in_flight_bytes;
mod limits;
mod namespace;
mod network;
mod rate;
mod refusals;
pub(crate) mod sas;

use ::bytes::Bytes;
use gridhook::{
    event::{
        Event, Schema, Seq, Timestamp,
        chunk::{Chunk, ChunkBuilder, RunningTotals},
    },
    publish::{
        PublishLimits, Refusal,
        schema::{self, EventTarget, RequestContent},
    },
};

use crate::support::publisher::{mapping, topic};

/// Reads `body` as a topic of `schema` does.
fn read(
    schema: Schema,
    content_type: &str,
    body: &[u8],
    limits: &PublishLimits,
) -> Result<Vec<Event>, Refusal> {
    let content = RequestContent {
        content_type: Some(content_type),
        attributes: Vec::new(),
    };
    let body = Bytes::copy_from_slice(body);
    schema::read_events(&target(schema), &content, &body, limits).map(decode)
}

/// A topic of `schema`; a custom one has the mapping of the specification.
fn target(schema: Schema) -> EventTarget {
    let mut record = topic("orders", schema);
    record.ingress.mapping = (schema == Schema::Custom).then(mapping);
    EventTarget::for_topic(&record)
}

/// The way through the log: sealed, stamped, read again.
pub(crate) fn decode(draft: ChunkBuilder) -> Vec<Event> {
    let mut first = Seq::FIRST;
    let mut events = Vec::new();
    for sealed in draft.into_chunks() {
        let bytes = sealed.stamp_record(Timestamp(1), RunningTotals::default());
        let chunk = Chunk::decode(first, bytes).expect("what was written is read");
        first = chunk.end_seq();
        events.extend(chunk.decode_events().expect("what was written is read"));
    }
    events
}

fn event_grid(body: &[u8]) -> Result<Vec<Event>, Refusal> {
    read(
        Schema::EventGrid,
        "application/json",
        body,
        &PublishLimits::default(),
    )
}

fn cloud_event(body: &[u8]) -> Result<Vec<Event>, Refusal> {
    read(
        Schema::CloudEvents,
        "application/cloudevents+json; charset=utf-8",
        body,
        &PublishLimits::default(),
    )
}

fn cloud_events(body: &[u8]) -> Result<Vec<Event>, Refusal> {
    read(
        Schema::CloudEvents,
        "application/cloudevents-batch+json; charset=UTF-8",
        body,
        &PublishLimits::default(),
    )
}

fn custom(body: &[u8]) -> Result<Vec<Event>, Refusal> {
    read(
        Schema::Custom,
        "application/json",
        body,
        &PublishLimits::default(),
    )
}

/// The wire forms, or the error of the publisher. What every line would have is shortened: the
/// topic's resource id, and the sentences that most complaints begin with
/// (`a_complaint_begins_with_the_schema` has them in full).
fn shown(result: Result<Vec<Event>, Refusal>) -> String {
    let all = match result {
        Ok(events) => {
            let wires = events
                .iter()
                .map(|event| String::from_utf8_lossy(&event.to_wire_bytes()).into_owned());
            wires.collect::<Vec<_>>().join("\n")
        }
        Err(refusal) => {
            let (status, detail) = refusal.status();
            format!("{} {detail}: {refusal}", status.as_u16())
        }
    };
    let mut short = all.replace(
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders",
        "<id>",
    );
    for name in ["EventGridEvent", "CloudEventV10", "CustomInputEvent"] {
        let configured =
            format!("This resource is configured to receive event in '{name}' schema. ");
        let conform =
            format!("{configured}The JSON received does not conform to the expected schema.");
        short = short.replace(
            &format!("400 InputJsonInvalid: {conform}"),
            "nonconforming.",
        );
        short = short.replace(
            &format!("400 InputJsonInvalid: {configured}"),
            "nonconforming. ",
        );
        let requires = format!(
            "400 InputJsonInvalid: This resource is configured for '{name}' schema and requires"
        );
        short = short.replace(&requires, "requires");
    }
    short
}

#[test]
fn a_complaint_begins_with_the_schema() {
    let grid = event_grid(b"[]")
        .map(|_| ())
        .expect_err("it is empty")
        .to_string();
    assert_eq!(
        grid,
        "This resource is configured to receive event in 'EventGridEvent' schema. \
         The JSON received does not conform to the expected schema."
    );
    let cloud = cloud_event(b"{}")
        .map(|_| ())
        .expect_err("it has no id")
        .to_string();
    assert_eq!(
        cloud,
        "This resource is configured for 'CloudEventV10' schema and requires 'id' property to be \
         set."
    );
}
