//! A CloudEvent in the binary mode of HTTP: its attributes are headers (`ce-id`, `ce-type`, …), the body is its `data`.
//!
//! What is kept is the same event in its JSON form, the body byte for byte as `data`; from there on there is one set of
//! rules, that of [`cloud_events`]. The basic tier takes JSON bodies only.
//!
//! A header's value is read as the binding says: quotes around it are taken off, with the escapes inside, and then percent
//! signs are decoded.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use serde_json::value::RawValue;

use super::{Content, Target, cloud_events, json};
use crate::{
    event::Schema,
    journal::chunk::Draft,
    publish::{Limits, Refusal},
};

const SCHEMA: Schema = Schema::CloudEvents;

/// The attributes that every event has. Any of them among the headers means this mode.
pub(super) const REQUIRED: [&str; 4] = ["id", "source", "type", "specversion"];

/// Reads the event whose attributes are in `content` and whose data is `body`.
pub(super) fn read(
    target: &Target,
    content: &Content<'_>,
    body: &str,
    limits: &Limits,
    draft: &mut Draft,
) -> Result<(), Refusal> {
    if content.media_type() != "application/json" {
        return Err(Refusal::ContentType);
    }
    let object = structured(content, body)?;
    if object.len() > limits.event_bytes_max {
        return Err(Refusal::TooLarge { bytes_max: limits.event_bytes_max });
    }
    if json::is_deeper(&object, limits.depth_max) {
        return Err(Refusal::too_deep(SCHEMA, limits.depth_max));
    }
    let object: &RawValue = serde_json::from_str(&object).map_err(|error| super::not_json(SCHEMA, &error))?;
    cloud_events::read(target, object, draft)
}

/// The JSON form.
fn structured(content: &Content<'_>, body: &str) -> Result<String, Refusal> {
    let data: &RawValue = serde_json::from_str(body).map_err(|error| super::not_json(SCHEMA, &error))?;
    let mut attributes = Vec::with_capacity(content.attributes.len());
    for (name, value) in &content.attributes {
        attributes.push((*name, decoded(name, value)?));
    }
    let has = |wanted: &str| attributes.iter().any(|(name, value)| *name == wanted && !value.is_empty());
    if let Some(name) = REQUIRED.into_iter().find(|name| !has(name)) {
        return Err(Refusal::MissingHeader { name });
    }
    let content_type = content.content_type.unwrap_or_default();
    attributes.push(("datacontenttype", Cow::Borrowed(content_type)));
    let mut object = String::with_capacity(data.get().len() + 256);
    for (name, value) in &attributes {
        object.push(if object.is_empty() { '{' } else { ',' });
        object.push_str(&serde_json::Value::from(*name).to_string());
        object.push(':');
        object.push_str(&serde_json::Value::from(&**value).to_string());
    }
    object.push_str(r#","data":"#);
    object.push_str(data.get());
    object.push('}');
    Ok(object)
}

fn decoded<'a>(name: &str, value: &'a [u8]) -> Result<Cow<'a, str>, Refusal> {
    let value = value.trim_ascii();
    let text = match value {
        [b'"', inside @ .., b'"'] => {
            percent_decode(&unescaped(inside)).decode_utf8().map(|text| text.into_owned().into())
        }
        _ => percent_decode(value).decode_utf8(),
    };
    text.map_err(|_| {
        let name = Refusal::shortened(name);
        Refusal::Nonconforming { schema: SCHEMA, why: format!("Header 'ce-{name}' is not UTF-8") }
    })
}

/// Without the backslashes of a quoted string: `\"` is `"`, and `\\` is `\`.
fn unescaped(inside: &[u8]) -> Vec<u8> {
    let mut bytes = inside.iter();
    let mut plain = Vec::with_capacity(inside.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => plain.extend(bytes.next()),
            byte => plain.push(*byte),
        }
    }
    plain
}
