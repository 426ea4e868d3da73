//! An event in the schema that its subscription asked for. Every value, `data` above all, is copied byte for byte and
//! not serialised again.
//!
//! What there is a way for is said by [`Schema::deliveries`]: an Event Grid event becomes a CloudEvent, a custom event
//! becomes either, with the whole of its object as `data`. A CloudEvent stays one. An event is made into another schema
//! once, however many subscriptions ask for it while it is held ([`Event::form`]).

use bytes::{BufMut, Bytes, BytesMut};

use super::request::Error;
use crate::event::{Event, Literals, Schema, cloud_event};

/// How an event gets from the schema it is stored in to the one it is delivered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is stored.
    Wire,
    /// From Event Grid's own to CloudEvents.
    CloudEvent,
    /// A custom event in an envelope of Event Grid's.
    Enveloped,
    /// A custom event in an envelope of CloudEvents.
    CloudEnveloped,
}

impl Form {
    /// The way from one schema to the other.
    pub(super) fn of(from: Schema, to: Schema) -> Result<Self, Error> {
        if !from.deliveries().contains(&to) {
            return Err(Error::Schema { from, to });
        }
        Ok(match (from, to) {
            (Schema::EventGrid, Schema::CloudEvents) => Self::CloudEvent,
            (Schema::Custom, Schema::EventGrid) => Self::Enveloped,
            (Schema::Custom, Schema::CloudEvents) => Self::CloudEnveloped,
            (Schema::EventGrid, Schema::EventGrid | Schema::Custom)
            | (Schema::CloudEvents, Schema::EventGrid | Schema::CloudEvents | Schema::Custom)
            | (Schema::Custom, Schema::Custom) => Self::Wire,
        })
    }
}

/// The bytes of `event` as a subscriber with `schema` receives them.
///
/// # Errors
/// Where there is no way to that schema, or the event is not what its own schema says.
pub fn delivered(event: &Event, schema: Schema) -> Result<Bytes, Error> {
    let form = Form::of(event.schema, schema)?;
    let unreadable = |error: serde_json::Error| Error::Unreadable { seq: event.seq, detail: error.to_string() };
    match form {
        Form::Wire => Ok(event.wire()),
        Form::CloudEvent => event.form(schema, || cloud_event(&event.wire()).map_err(unreadable)),
        Form::Enveloped => event.form(schema, || Ok(enveloped(event))),
        Form::CloudEnveloped => event.form(schema, || Ok(cloud_enveloped(event))),
    }
}

/// Names and punctuation of an envelope, with something to spare.
const ENVELOPE_BYTES: usize = 192;

fn enveloped(event: &Event) -> Bytes {
    let wire = event.wire();
    let Literals { id, event_type, subject, data_version, topic, event_time } = event.literals();
    let arrived = event.appended.to_event_grid();
    let event_time = if event_time.is_empty() { arrived.as_bytes() } else { event_time };
    let mut out = BytesMut::with_capacity(wire.len() + ENVELOPE_BYTES + topic.len() + subject.len());
    for (before, value) in [
        (&br#"{"id":""#[..], id),
        (br#"","topic":""#, topic),
        (br#"","subject":""#, subject),
        (br#"","data":"#, &wire),
        (br#","eventType":""#, event_type),
        (br#"","eventTime":""#, event_time),
        (br#"","metadataVersion":"1","dataVersion":""#, data_version),
    ] {
        out.put_slice(before);
        out.put_slice(value);
    }
    out.put_slice(br#""}"#);
    out.freeze()
}

fn cloud_enveloped(event: &Event) -> Bytes {
    let wire = event.wire();
    let Literals { id, event_type, subject, data_version: _, topic, event_time } = event.literals();
    let arrived = event.appended.to_event_grid();
    let event_time = if event_time.is_empty() { arrived.as_bytes() } else { event_time };
    let mut out = BytesMut::with_capacity(wire.len() + ENVELOPE_BYTES + topic.len() + subject.len());
    for (before, value) in [
        (&br#"{"id":""#[..], id),
        (br#"","source":""#, topic),
        (br#"","type":""#, event_type),
        (br#"","time":""#, event_time),
    ] {
        out.put_slice(before);
        out.put_slice(value);
    }
    if !subject.is_empty() {
        out.put_slice(br#"","subject":""#);
        out.put_slice(subject);
    }
    out.put_slice(br#"","data":"#);
    out.put_slice(&wire);
    out.put_slice(br#","specversion":"1.0"}"#);
    out.freeze()
}
