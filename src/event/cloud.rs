//! Converts Event Grid events to CloudEvents, for delivery and for dead letters in that schema.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

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

/// The CloudEvent of an Event Grid event, with every value copied byte for byte.
///
/// # Errors
/// `wire` is not an Event Grid event.
pub fn cloud_event(wire: &[u8]) -> Result<Bytes, serde_json::Error> {
    let event: CloudEventMembers<'_> = serde_json::from_slice(wire)?;
    let mut out = String::with_capacity(wire.len() + 32);
    out.push_str(r#"{"id":"#);
    out.push_str(event.id.get());
    // CloudEvents requires a subject to be a nonempty string.
    let subject = event.subject.filter(|subject| !matches!(subject.get(), r#""""#));
    let members = [
        (r#","source":"#, Some(event.topic)),
        (r#","type":"#, Some(event.event_type)),
        (r#","time":"#, Some(event.event_time)),
        (r#","subject":"#, subject),
        (r#","data":"#, event.data),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            out.push_str(name);
            out.push_str(value.get());
        }
    }
    out.push_str(r#","specversion":"1.0"}"#);
    Ok(Bytes::from(out))
}
