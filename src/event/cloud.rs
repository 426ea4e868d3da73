//! Converts Event Grid events to CloudEvents, for delivery and for dead letters in that schema.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::instant::{parse_civil, parse_instant};

/// The members of an Event Grid event that a CloudEvent has too, unparsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CloudEventMembers<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    topic: &'a RawValue,
    #[serde(borrow)]
    event_type: &'a RawValue,
    #[serde(borrow)]
    event_time: &'a RawValue,
    #[serde(borrow)]
    subject: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// The CloudEvent of an Event Grid event. Every value is copied byte for byte, except for a time
/// that CloudEvents does not allow.
///
/// # Errors
/// `wire` is not an Event Grid event.
pub fn cloud_event(wire: &[u8]) -> Result<Bytes, serde_json::Error> {
    let event: CloudEventMembers<'_> = serde_json::from_slice(wire)?;
    let mut out = String::with_capacity(wire.len() + 32);
    out.push_str(r#"{"id":"#);
    out.push_str(event.id.get());
    // CloudEvents requires a subject to be a nonempty string.
    let subject = event
        .subject
        .filter(|subject| !matches!(subject.get(), r#""""#));
    let event_time: Cow<'_, str> = serde_json::from_str(event.event_time.get())?;
    let time = cloud_time(&event_time).map(|time| format!("\"{time}\""));
    let members = [
        (r#","source":"#, Some(event.topic.get())),
        (r#","type":"#, Some(event.event_type.get())),
        (r#","time":"#, time.as_deref()),
        (r#","subject":"#, subject.map(RawValue::get)),
        (r#","data":"#, event.data.map(RawValue::get)),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            out.push_str(name);
            out.push_str(value);
        }
    }
    out.push_str(r#","specversion":"1.0"}"#);
    Ok(Bytes::from(out))
}

/// The time of an Event Grid event as CloudEvents requires it. A time in RFC 3339 stays as it is;
/// another form of ISO 8601, such as one without a zone, is written in UTC. [`None`]: RFC 3339 has
/// no such time.
pub(super) fn cloud_time(event_time: &str) -> Option<Cow<'_, str>> {
    if is_rfc3339(event_time) {
        return Some(Cow::Borrowed(event_time));
    }
    let time = match parse_civil(event_time) {
        Some(utc) => format!("{utc}Z"),
        None => parse_instant(event_time)?.to_string(),
    };
    Some(time).filter(|time| is_rfc3339(time)).map(Cow::Owned)
}

/// Whether a text is a date and time in RFC 3339. jiff accepts more: times without seconds, offsets
/// without a colon, a comma before the fraction, time zone names.
pub fn is_rfc3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape =
        |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|byte| allowed.contains(byte));
    let clock =
        shape(4, b"-") && shape(7, b"-") && shape(10, b"Tt ") && shape(13, b":") && shape(16, b":");
    let zone = matches!(
        bytes,
        [.., b'Z' | b'z'] | [.., b'+' | b'-', _, _, b':', _, _]
    );
    clock && zone && !text.contains(',') && parse_instant(text).is_some()
}
