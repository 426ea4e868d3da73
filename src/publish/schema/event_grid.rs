//! An event in the Event Grid schema.
//!
//! Its wire form has a fixed order: `id, topic, subject, data, eventType, eventTime, metadataVersion, dataVersion`. An absent
//! `data` is not written.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;

use super::{
    EventTarget, bare, inside,
    json::{self, ObjectMembers},
    span,
};
use crate::{
    event::{EventRanges, Schema, TextRange},
    publish::{PublishLimits, Refusal},
    store::chunk::{ChunkBuilder, WriterStamp},
};

const SCHEMA: Schema = Schema::EventGrid;

/// Bytes of a wire form besides its values: names and punctuation.
const PUNCTUATION: usize = 128;

/// The properties of an event, as sent. There are no others.
#[derive(Default)]
struct EventGridMembers<'a> {
    id: Option<&'a RawValue>,
    topic: Option<&'a RawValue>,
    subject: Option<&'a RawValue>,
    data: Option<&'a RawValue>,
    event_type: Option<&'a RawValue>,
    event_time: Option<&'a RawValue>,
    metadata_version: Option<&'a RawValue>,
    data_version: Option<&'a RawValue>,
}

/// An event whose properties are complete and valid.
struct CheckedEvent<'a> {
    id: &'a RawValue,
    /// In a domain: the content of the string that names the domain topic.
    domain_topic: Option<&'a str>,
    subject: &'a RawValue,
    event_type: &'a RawValue,
    event_time: &'a RawValue,
    data: Option<&'a RawValue>,
    data_version: Option<&'a RawValue>,
}

/// A string, as sent and decoded.
struct JsonText<'a> {
    sent: &'a RawValue,
    text: Cow<'a, str>,
}

/// Checks the events of an array and appends their wire forms to the draft, in one pass over `text`. [`None`]: something is
/// wrong, or an event may be too large. What Event Grid reports first then takes a second look at all events, with [`read`].
pub(super) fn read_all(
    target: &EventTarget,
    text: &str,
    limits: &PublishLimits,
    draft: &mut ChunkBuilder,
) -> Option<()> {
    if text.len() > limits.event_bytes_max {
        return None;
    }
    // Only `data` has levels of its own.
    let data_depth_max = limits.depth_max.checked_sub(1)?;
    json::objects(text, |properties: EventGridMembers<'_>| {
        let is_deeper = properties.data.is_some_and(|data| json::is_deeper(data.get(), data_depth_max));
        if is_deeper || draft.count() as usize == limits.events_max {
            return None;
        }
        properties.check(target).ok()?.append(target, draft).ok()
    })?;
    (draft.count() > 0).then_some(())
}

/// Checks the event `object` and appends its wire form to the draft.
pub(super) fn read(target: &EventTarget, object: &RawValue, draft: &mut ChunkBuilder) -> Result<(), Refusal> {
    let mut properties = EventGridMembers::default();
    json::members(object, |name, value| properties.put(&name, value))
        .map_err(|error| Refusal::not_json(SCHEMA, error.to_string()))??;
    properties.check(target)?.append(target, draft)
}

impl<'a> ObjectMembers<'a> for EventGridMembers<'a> {
    fn put(&mut self, name: &str, value: &'a RawValue) -> Result<(), Refusal> {
        let member = match name {
            "id" => &mut self.id,
            "topic" => &mut self.topic,
            "subject" => &mut self.subject,
            "data" => &mut self.data,
            "eventType" => &mut self.event_type,
            "eventTime" => &mut self.event_time,
            "metadataVersion" => &mut self.metadata_version,
            "dataVersion" => &mut self.data_version,
            _ => return Err(Refusal::unexpected(SCHEMA, name)),
        };
        match member.replace(value) {
            None => Ok(()),
            Some(_) => Err(wrong(format!("Property '{name}' is given more than once"))),
        }
    }
}

impl<'a> EventGridMembers<'a> {
    /// Checks in Event Grid's order, so that the same missing property is reported first.
    fn check(self, target: &EventTarget) -> Result<CheckedEvent<'a>, Refusal> {
        let subject = required("subject", self.subject)?;
        let id = required("id", self.id)?;
        let event_type = required("eventType", self.event_type)?;
        let event_time = required("eventTime", self.event_time)?;
        // The subject may be empty. An event without an id or a type cannot be routed.
        for (property, given) in [("id", &id), ("eventType", &event_type), ("eventTime", &event_time)] {
            if given.text.is_empty() {
                return Err(Refusal::Missing { schema: SCHEMA, property: property.to_owned() });
            }
        }
        if !is_date_time(&event_time.text) {
            return Err(wrong("Property 'eventTime' is not an ISO 8601 date and time".to_owned()));
        }
        if optional("metadataVersion", self.metadata_version)?.is_some_and(|version| version.text != "1") {
            return Err(wrong("Property 'metadataVersion' can only be \"1\"".to_owned()));
        }
        // Some clients write an empty topic.
        let topic = optional("topic", self.topic)?.filter(|topic| !topic.text.is_empty());
        let domain_topic = match topic {
            Some(topic) => match target.domain_topic(inside(topic.sent)) {
                Some(domain_topic) => Some(domain_topic),
                None if topic.text == target.resource_id => None,
                None => return Err(Refusal::OtherTopic { topic: target.resource_id.clone() }),
            },
            None if target.is_domain => {
                return Err(Refusal::Missing { schema: SCHEMA, property: "topic".to_owned() });
            }
            None => None,
        };
        let data_version = optional("dataVersion", self.data_version)?.map(|version| version.sent);
        let (id, subject) = (id.sent, subject.sent);
        Ok(CheckedEvent {
            id,
            domain_topic,
            subject,
            event_type: event_type.sent,
            event_time: event_time.sent,
            data: self.data,
            data_version,
        })
    }
}

impl CheckedEvent<'_> {
    /// Checks the event's data and appends the event to the draft.
    fn append(&self, target: &EventTarget, draft: &mut ChunkBuilder) -> Result<(), Refusal> {
        target.check_data(draft, [Some(inside(self.event_type)), self.data_version.map(inside)], self.data)?;
        draft.push(|out| self.write(target, out));
        Ok(())
    }

    fn write(&self, target: &EventTarget, out: &mut BytesMut) -> WriterStamp {
        let values = [Some(self.id), Some(self.subject), Some(self.event_type), Some(self.event_time)];
        let values = values.into_iter().chain([self.data, self.data_version]).flatten();
        let values: usize = values.map(|value| value.get().len()).sum();
        out.reserve(values + self.domain_topic.map_or(0, str::len) + target.stamp.len() + PUNCTUATION);
        out.put_slice(b"{\"id\":");
        let id = put_string(out, self.id);
        out.put_slice(b",\"topic\":");
        let domain_topic = put_topic(out, &target.stamp, self.domain_topic);
        out.put_slice(b",\"subject\":");
        let subject = put_string(out, self.subject);
        if let Some(data) = self.data {
            out.put_slice(b",\"data\":");
            out.put_slice(data.get().as_bytes());
        }
        out.put_slice(b",\"eventType\":");
        let event_type = put_string(out, self.event_type);
        out.put_slice(b",\"eventTime\":");
        put_string(out, self.event_time);
        out.put_slice(b",\"metadataVersion\":\"1\",\"dataVersion\":");
        let data_version = match self.data_version {
            Some(version) => put_string(out, version),
            None => {
                out.put_slice(b"\"\"");
                TextRange::default()
            }
        };
        out.put_slice(b"}");
        let spans = EventRanges { id, event_type, subject, data_version, domain_topic, ..EventRanges::default() };
        WriterStamp { wire_end: out.len(), spans }
    }
}

/// Writes the resource id and, in a domain, the name of the domain topic.
fn put_topic(out: &mut BytesMut, stamp: &str, domain_topic: Option<&str>) -> TextRange {
    let Some(name) = domain_topic else {
        out.put_slice(stamp.as_bytes());
        return TextRange::default();
    };
    out.put_slice(&stamp.as_bytes()[..stamp.len() - 1]);
    out.put_slice(b"/topics/");
    let start = out.len();
    out.put_slice(name.as_bytes());
    out.put_slice(b"\"");
    bare(start, name.len())
}

fn put_string(out: &mut BytesMut, value: &RawValue) -> TextRange {
    let start = out.len();
    out.put_slice(value.get().as_bytes());
    span(start, value.get().len())
}

fn required<'a>(name: &'static str, value: Option<&'a RawValue>) -> Result<JsonText<'a>, Refusal> {
    optional(name, value)?.ok_or_else(|| Refusal::Missing { schema: SCHEMA, property: name.to_owned() })
}

/// Some clients write `null` for an absent property.
fn optional<'a>(name: &'static str, value: Option<&'a RawValue>) -> Result<Option<JsonText<'a>>, Refusal> {
    let Some(sent) = value.filter(|value| !json::is_null(value)) else { return Ok(None) };
    match json::text(sent) {
        Some(text) => Ok(Some(JsonText { sent, text })),
        None => Err(wrong(format!("Property '{name}' is not a string"))),
    }
}

/// Accepts an offset (`Z`, `+01:00`, or `+0000` as `date +%z` writes it), or none for UTC. jiff also reads time zone names in
/// brackets, which ISO 8601 does not have.
pub(super) fn is_date_time(text: &str) -> bool {
    let has_time = text.contains(['T', 't', ' ']);
    has_time
        && !text.contains('[')
        && (text.parse::<jiff::Timestamp>().is_ok() || text.parse::<jiff::civil::DateTime>().is_ok())
}

fn wrong(why: String) -> Refusal {
    Refusal::Nonconforming { schema: SCHEMA, why }
}
