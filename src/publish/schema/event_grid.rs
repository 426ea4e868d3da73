//! An event in the Event Grid schema.
//!
//! Its wire form has a fixed order: `id, topic, subject, data, eventType, eventTime,
//! metadataVersion, dataVersion`. An absent `data` is not written.
//!
//! A number or a boolean in the place of a string is taken as its text: Microsoft's own samples
//! send numbers as `id` and `dataVersion`.

use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;

use super::{
    EventTarget,
    json::{self, JsonValue, ObjectMembers},
    literal_range, scan, unquoted_range,
};
use crate::{PublishLimits, Refusal};
use gridhook_event::{
    EventRanges, Schema, TextRange,
    chunk::{ChunkBuilder, EncodedEvent},
    parse_instant_or_utc,
};

// Members go from function to function in registers: a processor waits for a value that was stored
// in two parts and is loaded as one, and calls would do that for each member.

const SCHEMA: Schema = Schema::EventGrid;

/// Bytes of a wire form besides its values: names and punctuation.
const PUNCTUATION: usize = 128;

/// The properties of an event, as sent. There are no others.
#[derive(Default)]
struct EventGridMembers<'a> {
    id: Option<JsonValue<'a>>,
    topic: Option<JsonValue<'a>>,
    subject: Option<JsonValue<'a>>,
    data: Option<JsonValue<'a>>,
    event_type: Option<JsonValue<'a>>,
    event_time: Option<JsonValue<'a>>,
    metadata_version: Option<JsonValue<'a>>,
    data_version: Option<JsonValue<'a>>,
}

/// An event whose properties are complete and valid.
struct CheckedEvent<'a> {
    id: JsonValue<'a>,
    /// The content of the string that names the domain topic; [`None`] outside of domains.
    domain_topic: Option<&'a str>,
    subject: JsonValue<'a>,
    event_type: JsonValue<'a>,
    event_time: JsonValue<'a>,
    data: Option<JsonValue<'a>>,
    data_version: Option<JsonValue<'a>>,
}

/// Checks the events of an array and appends their wire forms to the draft, in one pass over
/// `text`. [`None`]: something is wrong, or an event may be too large. What Event Grid reports
/// first then takes a second look at all events, with [`read_event`].
pub(super) fn read_all_events(
    target: &EventTarget,
    body: &Bytes,
    text: &str,
    limits: &PublishLimits,
    draft: &mut ChunkBuilder,
) -> Option<()> {
    if text.len() > limits.event_bytes_max {
        return None;
    }
    let mut count = 0;
    scan::scan_objects(
        text,
        limits.depth_max.checked_sub(1)?,
        EventGridMembers::default,
        |properties, _| {
            count += 1;
            (count <= limits.events_max).then_some(())?;
            properties
                .check_event(target)
                .ok()?
                .append_event(target, body, draft);
            Some(())
        },
    )
}

/// Checks the event `object` and appends its wire form to the draft.
pub(super) fn read_event(
    target: &EventTarget,
    body: &Bytes,
    object: &RawValue,
    draft: &mut ChunkBuilder,
) -> Result<(), Refusal> {
    let mut properties = EventGridMembers::default();
    json::read_members(object, |name, value| {
        properties.put_member(&name, JsonValue::from_raw(value))
    })
    .map_err(|error| Refusal::not_json(SCHEMA, error.to_string()))??;
    properties
        .check_event(target)?
        .append_event(target, body, draft);
    Ok(())
}

impl<'a> ObjectMembers<'a> for EventGridMembers<'a> {
    #[inline(always)]
    fn put(&mut self, name: &'a str, value: JsonValue<'a>) -> Result<(), Refusal> {
        self.put_member(name, value)
    }
}

impl<'a> EventGridMembers<'a> {
    #[inline(always)]
    fn put_member(&mut self, name: &str, value: JsonValue<'a>) -> Result<(), Refusal> {
        let member = match name {
            "id" => &mut self.id,
            "topic" => &mut self.topic,
            "subject" => &mut self.subject,
            "data" => &mut self.data,
            "eventType" => &mut self.event_type,
            "eventTime" => &mut self.event_time,
            "metadataVersion" => &mut self.metadata_version,
            "dataVersion" => &mut self.data_version,
            _ => return Err(Refusal::unexpected_property(SCHEMA, name)),
        };
        match member.replace(value) {
            None => Ok(()),
            Some(_) => Err(malformed_event(format!(
                "Property '{name}' is given more than once"
            ))),
        }
    }

    /// Checks in Event Grid's order, so that the same missing property is reported first.
    #[inline(always)]
    fn check_event(&self, target: &EventTarget) -> Result<CheckedEvent<'a>, Refusal> {
        let subject = require_value("subject", self.subject)?;
        let id = require_value("id", self.id)?;
        let event_type = require_value("eventType", self.event_type)?;
        let event_time = require_value("eventTime", self.event_time)?;
        // The subject may be empty. An event without an id or a type cannot be routed.
        for (property, value) in [
            ("id", id),
            ("eventType", event_type),
            ("eventTime", event_time),
        ] {
            if value.literal_content().is_empty() {
                return Err(missing_property(property));
            }
        }
        if !event_time
            .decode_characters()
            .is_some_and(|time| is_date_time(&time))
        {
            return Err(malformed_event(
                "Property 'eventTime' is not an ISO 8601 date and time".to_owned(),
            ));
        }
        let metadata_version = optional_value("metadataVersion", self.metadata_version)?;
        if metadata_version
            .and_then(|version| version.scalar_text())
            .is_some_and(|version| version != "1")
        {
            return Err(malformed_event(
                "Property 'metadataVersion' can only be \"1\"".to_owned(),
            ));
        }
        // Some clients write an empty topic.
        let topic = optional_value("topic", self.topic)?
            .filter(|topic| !topic.literal_content().is_empty());
        let domain_topic = match topic {
            Some(topic) => match target.domain_topic(topic.literal_content()) {
                Some(domain_topic) => Some(domain_topic),
                None if topic
                    .scalar_text()
                    .is_some_and(|topic| topic == target.resource_id) =>
                {
                    None
                }
                None => {
                    return Err(Refusal::OtherTopic {
                        topic: target.resource_id.clone(),
                    });
                }
            },
            None if target.is_domain => return Err(missing_property("topic")),
            None => None,
        };
        let data_version = optional_value("dataVersion", self.data_version)?;
        Ok(CheckedEvent {
            id,
            domain_topic,
            subject,
            event_type,
            event_time,
            data: self.data,
            data_version,
        })
    }
}

impl CheckedEvent<'_> {
    /// Appends the event to the draft, and notes that its data is to be checked.
    fn append_event(&self, target: &EventTarget, body: &Bytes, draft: &mut ChunkBuilder) {
        let version = self.data_version.map(|version| version.literal_content());
        let data = self.data.map(|data| data.text);
        target.note_check(
            draft,
            [Some(self.event_type.literal_content()), version],
            data,
            body,
        );
        draft.push(|out| self.write_wire_form(target, out));
    }

    fn write_wire_form(&self, target: &EventTarget, out: &mut BytesMut) -> EncodedEvent {
        let values = [
            Some(self.id),
            Some(self.subject),
            Some(self.event_type),
            Some(self.event_time),
        ];
        let values = values
            .into_iter()
            .chain([self.data, self.data_version])
            .flatten();
        let values: usize = values.map(|value| value.text.len()).sum();
        out.reserve(
            values
                + self.domain_topic.map_or(0, str::len)
                + target.resource_id_json.len()
                + PUNCTUATION,
        );
        out.extend_from_slice(b"{\"id\":");
        let id = put_string(out, self.id);
        out.extend_from_slice(b",\"topic\":");
        let domain_topic = put_topic(out, &target.resource_id_json, self.domain_topic);
        out.extend_from_slice(b",\"subject\":");
        let subject = put_string(out, self.subject);
        if let Some(data) = self.data {
            out.extend_from_slice(b",\"data\":");
            out.extend_from_slice(data.text.as_bytes());
        }
        out.extend_from_slice(b",\"eventType\":");
        let event_type = put_string(out, self.event_type);
        out.extend_from_slice(b",\"eventTime\":");
        put_string(out, self.event_time);
        out.extend_from_slice(b",\"metadataVersion\":\"1\",\"dataVersion\":");
        let data_version = match self.data_version {
            Some(version) => put_string(out, version),
            None => {
                out.extend_from_slice(b"\"\"");
                TextRange::default()
            }
        };
        out.extend_from_slice(b"}");
        let ranges = EventRanges {
            id,
            event_type,
            subject,
            data_version,
            domain_topic,
            ..EventRanges::default()
        };
        EncodedEvent {
            wire_end: out.len(),
            ranges,
        }
    }
}

/// Writes the resource id and, in a domain, the name of the domain topic.
fn put_topic(out: &mut BytesMut, resource_id_json: &str, domain_topic: Option<&str>) -> TextRange {
    let Some(name) = domain_topic else {
        out.extend_from_slice(resource_id_json.as_bytes());
        return TextRange::default();
    };
    out.extend_from_slice(&resource_id_json.as_bytes()[..resource_id_json.len() - 1]);
    out.extend_from_slice(b"/topics/");
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\"");
    unquoted_range(start, name.len())
}

fn put_string(out: &mut BytesMut, value: JsonValue<'_>) -> TextRange {
    let start = out.len();
    if value.is_literal() {
        out.extend_from_slice(value.text.as_bytes());
    } else {
        out.extend_from_slice(b"\"");
        out.extend_from_slice(value.text.as_bytes());
        out.extend_from_slice(b"\"");
    }
    literal_range(start, out.len() - start)
}

#[inline(always)]
fn require_value<'a>(
    name: &'static str,
    value: Option<JsonValue<'a>>,
) -> Result<JsonValue<'a>, Refusal> {
    optional_value(name, value)?.ok_or_else(|| missing_property(name))
}

/// Some clients write `null` for an absent property.
#[inline(always)]
fn optional_value<'a>(
    name: &'static str,
    value: Option<JsonValue<'a>>,
) -> Result<Option<JsonValue<'a>>, Refusal> {
    match value.filter(|value| !value.is_null()) {
        Some(value) if !value.is_text() => Err(malformed_event(format!(
            "Property '{name}' is not a string"
        ))),
        value => Ok(value),
    }
}

#[cold]
fn missing_property(property: &str) -> Refusal {
    Refusal::Missing {
        schema: SCHEMA,
        property: property.to_owned(),
    }
}

/// Accepts an offset (`Z`, `+01:00`, or `+0000` as `date +%z` writes it), or none for UTC.
pub(super) fn is_date_time(text: &str) -> bool {
    if is_usual_date_time(text) {
        return true;
    }
    text.contains(['T', 't', ' ']) && parse_instant_or_utc(text).is_some()
}

/// Whether the text is a point in time as most clients write it, on a day that every month has:
/// `2026-11-20T17:18:13Z`, with up to nine digits of a second.
fn is_usual_date_time(text: &str) -> bool {
    let [
        y0,
        y1,
        y2,
        y3,
        b'-',
        m0,
        m1,
        b'-',
        d0,
        d1,
        b'T',
        h0,
        h1,
        b':',
        n0,
        n1,
        b':',
        s0,
        s1,
        rest @ ..,
    ] = text.as_bytes()
    else {
        return false;
    };
    let is_fraction = match rest {
        [b'Z'] => true,
        [b'.', digits @ .., b'Z'] => {
            (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    is_fraction
        && (10..=99).contains(&two_digits(y0, y1))
        && two_digits(y2, y3) <= 99
        && (1..=12).contains(&two_digits(m0, m1))
        && (1..=28).contains(&two_digits(d0, d1))
        && two_digits(h0, h1) <= 23
        && two_digits(n0, n1) <= 59
        && two_digits(s0, s1) <= 59
}

/// The number of two decimal digits; above all of them if one is not a digit.
fn two_digits(tens: &u8, ones: &u8) -> u8 {
    match (tens, ones) {
        (b'0'..=b'9', b'0'..=b'9') => (tens - b'0') * 10 + (ones - b'0'),
        _ => u8::MAX,
    }
}

#[cold]
fn malformed_event(why: String) -> Refusal {
    Refusal::Nonconforming {
        schema: SCHEMA,
        why,
    }
}
