//! A CloudEvent in the binary mode of HTTP: attributes in headers (`ce-id`, `ce-type`, …), `data`
//! as the body.
//!
//! It is converted to its JSON form with the body byte for byte as `data`, and then checked by
//! [`cloud_events`]. An event may have no body. The basic tier takes JSON bodies only. Namespaces
//! take any body; one that is not JSON by its content type is stored as `data_base64`.
//!
//! Header values are decoded as the HTTP binding says: first quotes and their escapes, then percent
//! encoding.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use percent_encoding::percent_decode;
use serde_json::value::RawValue;

use super::{EventTarget, RequestContent, cloud_events, json};
use crate::{PublishLimits, Refusal};
use gridhook_event::{Schema, chunk::ChunkBuilder};

const SCHEMA: Schema = Schema::CloudEvents;

/// The required attributes. Any of them among the headers selects this mode.
pub(super) const REQUIRED: [&str; 4] = ["id", "source", "type", "specversion"];

/// The attribute that the body's content type provides in this mode.
const DATA_CONTENT_TYPE: &str = "datacontenttype";

/// Maximum characters of a media type in an error.
const MEDIA_TYPE_CHARS_MAX: usize = 100;

/// Reads the event with the attributes of `content` and the data `body`.
pub(super) fn read(
    target: &EventTarget,
    content: &RequestContent<'_>,
    body: &Bytes,
    limits: &PublishLimits,
    draft: &mut ChunkBuilder,
) -> Result<(), Refusal> {
    // An empty body is not data of another type.
    if !target.is_in_namespace && !body.is_empty() && content.media_type() != "application/json" {
        return Err(match content.media_type() {
            missing if missing.is_empty() => Refusal::ContentType,
            given => Refusal::BinaryContentType {
                given: given.escape_debug().take(MEDIA_TYPE_CHARS_MAX).collect(),
            },
        });
    }
    if target.is_in_namespace
        && content
            .attributes
            .iter()
            .any(|(name, _)| *name == DATA_CONTENT_TYPE)
    {
        let why = "Header 'ce-datacontenttype' is not allowed: the Content-Type header gives the \
            type of the data";
        return Err(Refusal::Nonconforming {
            schema: SCHEMA,
            why: why.to_owned(),
        });
    }
    let object = structured_json(content, body)?;
    if object.len() > limits.event_bytes_max {
        return Err(Refusal::TooLarge {
            bytes_max: limits.event_bytes_max,
        });
    }
    if json::is_deeper(&object, limits.depth_max) {
        return Err(Refusal::too_deep(SCHEMA, limits.depth_max));
    }
    let object: &RawValue =
        serde_json::from_str(&object).map_err(|error| super::not_json(SCHEMA, &error))?;
    cloud_events::read(target, body, object, draft)
}

/// The member of the JSON form that holds the body: its name and its value.
fn data_member<'a>(
    content: &RequestContent<'_>,
    body: &'a [u8],
) -> Result<Option<(&'static str, Cow<'a, str>)>, Refusal> {
    if body.is_empty() {
        return Ok(None);
    }
    if !is_json(&content.media_type()) {
        return Ok(Some((
            "data_base64",
            format!("\"{}\"", STANDARD.encode(body)).into(),
        )));
    }
    let text = super::require_utf8(SCHEMA, body)?;
    let data: &RawValue =
        serde_json::from_str(text).map_err(|error| super::not_json(SCHEMA, &error))?;
    Ok(Some(("data", data.get().into())))
}

/// Whether the type is `*/json` or `*/*+json`.
fn is_json(media_type: &str) -> bool {
    media_type
        .split_once('/')
        .is_some_and(|(_, kind)| kind == "json" || kind.ends_with("+json"))
}

/// The JSON form of the event.
fn structured_json(content: &RequestContent<'_>, body: &[u8]) -> Result<String, Refusal> {
    let data = data_member(content, body)?;
    let mut attributes = Vec::with_capacity(content.attributes.len());
    for (name, value) in &content.attributes {
        attributes.push((*name, decode_header(name, value)?));
    }
    let has = |wanted: &str| {
        attributes
            .iter()
            .any(|(name, value)| *name == wanted && !value.is_empty())
    };
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

fn decode_header<'a>(name: &str, value: &'a [u8]) -> Result<Cow<'a, str>, Refusal> {
    let value = value.trim_ascii();
    let text = match value {
        [b'"', inside @ .., b'"'] => percent_decode(&remove_backslashes(inside))
            .decode_utf8()
            .map(|text| text.into_owned().into()),
        _ => percent_decode(value).decode_utf8(),
    };
    text.map_err(|_| {
        let name = Refusal::shorten_name(name);
        Refusal::Nonconforming {
            schema: SCHEMA,
            why: format!("Header 'ce-{name}' is not UTF-8"),
        }
    })
}

/// Removes the backslashes of a quoted string: `\"` becomes `"`, and `\\` becomes `\`.
fn remove_backslashes(inside: &[u8]) -> Vec<u8> {
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
