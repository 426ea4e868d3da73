//! A CloudEvent in the binary mode of HTTP: its attributes are headers (`ce-id`, `ce-type`, …), the body is its `data`.
//!
//! What is kept is the same event in its JSON form, the body byte for byte as `data`; from there on there is one set of
//! rules, that of [`cloud_events`]. An event may have no body. The basic tier takes JSON bodies only. Namespaces take any: what its content type does
//! not call JSON is kept as `data_base64`.
//!
//! A header's value is read as the binding says: quotes around it are taken off, with the escapes inside, and then percent
//! signs are decoded.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode;
use serde_json::value::RawValue;

use super::{EventTarget, RequestContent, cloud_events, json};
use crate::{
    event::Schema,
    publish::{PublishLimits, Refusal},
    store::chunk::ChunkBuilder,
};

const SCHEMA: Schema = Schema::CloudEvents;

/// The attributes that every event has. Any of them among the headers means this mode.
pub(super) const REQUIRED: [&str; 4] = ["id", "source", "type", "specversion"];

/// What says of which kind the data is. Here that is the body's content type.
const DATA_CONTENT_TYPE: &str = "datacontenttype";

/// Reads the event whose attributes are in `content` and whose data is `body`.
pub(super) fn read(
    target: &EventTarget,
    content: &RequestContent<'_>,
    body: &[u8],
    limits: &PublishLimits,
    draft: &mut ChunkBuilder,
) -> Result<(), Refusal> {
    // Without data there is nothing that could be other than JSON.
    if !target.is_in_namespace && !body.is_empty() && content.media_type() != "application/json" {
        return Err(Refusal::ContentType);
    }
    if target.is_in_namespace && content.attributes.iter().any(|(name, _)| *name == DATA_CONTENT_TYPE) {
        let why = "Header 'ce-datacontenttype' is not allowed: the Content-Type header says of which kind the data is";
        return Err(Refusal::Nonconforming { schema: SCHEMA, why: why.to_owned() });
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

/// What stands for a body in an event's JSON form: a member's name and its value.
fn data<'a>(content: &RequestContent<'_>, body: &'a [u8]) -> Result<Option<(&'static str, Cow<'a, str>)>, Refusal> {
    if body.is_empty() {
        return Ok(None);
    }
    if !is_json(&content.media_type()) {
        return Ok(Some(("data_base64", format!("\"{}\"", STANDARD.encode(body)).into())));
    }
    let text = super::utf8(SCHEMA, body)?;
    let data: &RawValue = serde_json::from_str(text).map_err(|error| super::not_json(SCHEMA, &error))?;
    Ok(Some(("data", data.get().into())))
}

/// `*/json` and `*/*+json`.
fn is_json(media_type: &str) -> bool {
    media_type.split_once('/').is_some_and(|(_, kind)| kind == "json" || kind.ends_with("+json"))
}

/// The JSON form.
fn structured(content: &RequestContent<'_>, body: &[u8]) -> Result<String, Refusal> {
    let data = data(content, body)?;
    let mut attributes = Vec::with_capacity(content.attributes.len());
    for (name, value) in &content.attributes {
        attributes.push((*name, decoded(name, value)?));
    }
    let has = |wanted: &str| attributes.iter().any(|(name, value)| *name == wanted && !value.is_empty());
    if let Some(name) = REQUIRED.into_iter().find(|name| !has(name)) {
        return Err(Refusal::MissingHeader { name });
    }
    if let Some(content_type) = content.content_type {
        attributes.push((DATA_CONTENT_TYPE, Cow::Borrowed(content_type)));
    }
    let mut object = String::with_capacity(body.len() + 256);
    for (name, value) in &attributes {
        object.push(if object.is_empty() { '{' } else { ',' });
        object.push_str(&serde_json::Value::from(*name).to_string());
        object.push(':');
        object.push_str(&serde_json::Value::from(&**value).to_string());
    }
    if let Some((name, value)) = data {
        object.push_str(&format!(r#","{name}":"#));
        object.push_str(&value);
    }
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
