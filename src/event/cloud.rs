//! An Event Grid event as a CloudEvent: for who is delivered to in that schema, and for what is put aside in it.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The members of an Event Grid event that a CloudEvent has too, as they stand.
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

/// The CloudEvent of an Event Grid event, every value copied byte for byte.
///
/// # Errors
/// Where it is no Event Grid event as it is stored.
pub fn cloud_event(wire: &[u8]) -> Result<Bytes, serde_json::Error> {
    let event: CloudEventMembers<'_> = serde_json::from_slice(wire)?;
    let mut out = String::with_capacity(wire.len() + 32);
    out.push_str(r#"{"id":"#);
    out.push_str(event.id.get());
    // CloudEvents wants a subject to be a string with something in it.
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
