//! Converts an event to the delivery schema of a subscription. Every value, `data` above all, is
//! copied byte for byte; only a time that CloudEvents does not allow is written anew.
//!
//! An Event Grid event becomes a CloudEvent. A custom event becomes either, with its whole object
//! as `data`. A CloudEvent is not converted. Each conversion is made once while the event is in
//! memory, however many subscriptions need it ([`Event::convert_once`]).

use std::ops::Deref;

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    Event, EventStrings, Schema,
    cloud::{cloud_event, cloud_time},
};

/// The bytes that a subscriber receives.
pub enum DeliveredBytes<'a> {
    /// The bytes of the stored event.
    Stored(&'a [u8]),
    /// The bytes of another form of it.
    Shared(Bytes),
}

impl Deref for DeliveredBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Event {
    /// The bytes that a subscriber with `schema` receives: the result of the transformation if
    /// there is one, and the wire form if there is no conversion to that schema.
    ///
    /// # Errors
    /// The stored event does not conform to its own schema.
    pub fn to_delivered_bytes(&self, schema: Schema) -> Result<Bytes, serde_json::Error> {
        if let Some(body) = self
            .transformed()
            .and_then(|transformed| transformed.body.clone())
        {
            return Ok(body);
        }
        match (self.schema, schema) {
            (Schema::EventGrid, Schema::CloudEvents) => {
                self.convert_once(schema, || cloud_event(&self.to_wire_bytes()))
            }
            (Schema::Custom, Schema::EventGrid) => {
                self.convert_once(schema, || Ok(event_grid_envelope(self)))
            }
            (Schema::Custom, Schema::CloudEvents) => {
                self.convert_once(schema, || Ok(cloud_event_envelope(self)))
            }
            (Schema::EventGrid, Schema::EventGrid | Schema::Custom)
            | (Schema::CloudEvents, Schema::EventGrid | Schema::CloudEvents | Schema::Custom)
            | (Schema::Custom, Schema::Custom) => Ok(self.to_wire_bytes()),
        }
    }

    /// As [`Event::to_delivered_bytes`], but borrowed if the event is delivered as it is stored.
    ///
    /// # Errors
    /// The stored event does not conform to its own schema.
    pub fn delivered_bytes(&self, schema: Schema) -> Result<DeliveredBytes<'_>, serde_json::Error> {
        if self.schema == schema && self.transformed().is_none() {
            return Ok(DeliveredBytes::Stored(self.wire_bytes()));
        }
        self.to_delivered_bytes(schema).map(DeliveredBytes::Shared)
    }

    /// Length of these bytes. An event that cannot be converted counts with its wire form.
    pub fn delivered_len(&self, schema: Schema) -> usize {
        if self.schema == schema && self.transformed().is_none() {
            return self.wire_len();
        }
        self.to_delivered_bytes(schema)
            .map_or(self.wire_len(), |form| form.len())
    }
}

/// Approximate size of an envelope's names and punctuation.
const ENVELOPE_BYTES: usize = 192;

fn event_grid_envelope(event: &Event) -> Bytes {
    let wire = event.to_wire_bytes();
    let EventStrings {
        id,
        event_type,
        subject,
        data_version,
        topic,
        event_time,
    } = event.stored_strings();
    let append_time = event.appended.to_event_grid();
    let event_time = if event_time.is_empty() {
        append_time.as_bytes()
    } else {
        event_time
    };
    let mut out =
        BytesMut::with_capacity(wire.len() + ENVELOPE_BYTES + topic.len() + subject.len());
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

fn cloud_event_envelope(event: &Event) -> Bytes {
    let wire = event.to_wire_bytes();
    let EventStrings {
        id,
        event_type,
        subject,
        data_version: _,
        topic,
        event_time: _,
    } = event.stored_strings();
    let event_time = event
        .event_time()
        .unwrap_or_else(|| event.appended.to_event_grid().into());
    let mut out =
        BytesMut::with_capacity(wire.len() + ENVELOPE_BYTES + topic.len() + subject.len());
    for (before, value) in [
        (&br#"{"id":""#[..], id),
        (br#"","source":""#, topic),
        (br#"","type":""#, event_type),
    ] {
        out.put_slice(before);
        out.put_slice(value);
    }
    if let Some(time) = cloud_time(&event_time) {
        out.put_slice(br#"","time":""#);
        out.put_slice(time.as_bytes());
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
