//! A CloudEvent in the binary mode of HTTP: attributes in headers (`ce-id`, `ce-type`, …), `data`
//! as the body.
//!
//! It is converted to its JSON form with the body byte for byte as `data`, and then checked by
//! [`cloud_events`]. An event may have no body. The basic tier takes JSON bodies only. Namespaces
//! take any body; one that is not JSON by its content type is stored as `data_base64`.
//!
//! Header values are decoded as the HTTP binding says: first quotes and their escapes, then percent
//! encoding.

use std::{borrow::Cow, ops::Range};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use percent_encoding::percent_decode;
use serde_json::value::RawValue;

use super::{
    EventTarget, RequestContent,
    cloud_events::CloudEventMembers,
    json::{self, JsonValue},
    scan,
};
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
    let data = data_member(content, body, limits.depth_max)?;
    let StructuredJson { object, members } = structured_json(content, data.as_ref())?;
    if object.len() > limits.event_bytes_max {
        return Err(Refusal::TooLarge {
            bytes_max: limits.event_bytes_max,
        });
    }
    let is_checked = data.is_none_or(|data| data.is_checked);
    if !is_checked && json::is_deeper(&object, limits.depth_max) {
        return Err(Refusal::too_deep(SCHEMA, limits.depth_max));
    }
    let mut event = CloudEventMembers::for_target(target);
    for (name, range) in members {
        event.put_member(name, JsonValue::from_text(&object[range]))?;
    }
    event.append_event(target, body, &object, draft)
}

/// The member of the JSON form that holds the body.
struct DataMember<'a> {
    name: &'static str,
    value: Cow<'a, str>,
    /// Whether the value is known not to be nested too deep.
    is_checked: bool,
}

fn data_member<'a>(
    content: &RequestContent<'_>,
    body: &'a [u8],
    depth_max: usize,
) -> Result<Option<DataMember<'a>>, Refusal> {
    if body.is_empty() {
        return Ok(None);
    }
    if !is_json(&content.media_type()) {
        return Ok(Some(DataMember {
            name: "data_base64",
            value: format!("\"{}\"", STANDARD.encode(body)).into(),
            is_checked: true,
        }));
    }
    let text = super::require_utf8(SCHEMA, body)?;
    let scan = scan::scan_one_value(text, depth_max.saturating_sub(1));
    let value = match scan {
        Some(value) => value.text,
        None => serde_json::from_str::<&RawValue>(text)
            .map_err(|error| super::not_json(SCHEMA, &error))?
            .get(),
    };
    Ok(Some(DataMember {
        name: "data",
        value: value.into(),
        is_checked: scan.is_some(),
    }))
}

/// Whether the type is `*/json` or `*/*+json`.
fn is_json(media_type: &str) -> bool {
    media_type
        .split_once('/')
        .is_some_and(|(_, kind)| kind == "json" || kind.ends_with("+json"))
}

/// The JSON form of an event, and where the values of its members are.
struct StructuredJson<'a> {
    object: String,
    members: Vec<(Cow<'a, str>, Range<usize>)>,
}

impl<'a> StructuredJson<'a> {
    fn put_member(&mut self, name: &'a str, write_value: impl FnOnce(&mut String)) {
        let object = &mut self.object;
        object.push(if object.is_empty() { '{' } else { ',' });
        put_literal(object, name);
        object.push(':');
        let start = object.len();
        write_value(object);
        self.members.push((name.into(), start..object.len()));
    }
}

fn put_literal(out: &mut String, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.extend(["\"", text, "\""]);
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}

fn structured_json<'a>(
    content: &RequestContent<'a>,
    data: Option<&DataMember<'_>>,
) -> Result<StructuredJson<'a>, Refusal> {
    let mut attributes = Vec::with_capacity(content.attributes.len());
    for (name, value) in &content.attributes {
        attributes.push((*name, decode_header(name, value)?));
    }
    for name in REQUIRED {
        let is_given = |(given, value): &(&str, Cow<'_, str>)| *given == name && !value.is_empty();
        if !attributes.iter().any(is_given) {
            return Err(Refusal::MissingHeader { name });
        }
    }
    if let Some(content_type) = content.content_type {
        attributes.push((DATA_CONTENT_TYPE, Cow::Borrowed(content_type)));
    }
    let data_bytes = data.map_or(0, |data| data.value.len());
    let mut json = StructuredJson {
        object: String::with_capacity(data_bytes + 256),
        members: Vec::with_capacity(attributes.len() + 1),
    };
    for (name, value) in &attributes {
        json.put_member(name, |object| put_literal(object, value));
    }
    if let Some(data) = data {
        json.put_member(data.name, |object| object.push_str(&data.value));
    }
    json.object.push('}');
    Ok(json)
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
