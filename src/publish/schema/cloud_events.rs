//! A CloudEvents 1.0 event in its JSON form.
//!
//! Nothing is stamped, so the wire form is the object as sent, with unknown extensions. The rules
//! are those of the specification and its JSON format: attribute names of lower-case letters and
//! digits; values that are strings, booleans or integers; `null` for an absent attribute.
//!
//! Two rules are relaxed on purpose, because clients break them: an empty `subject` and any
//! `datacontenttype` are accepted.

use std::{borrow::Cow, collections::HashSet};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;

use super::{
    EventTarget,
    json::{self, JsonValue, ObjectMembers},
    literal_range, offset_in, scan, unquoted_range,
};
use crate::{PublishLimits, Refusal, refusal::JsonToken};
use gridhook_event::{
    EventRanges, Schema,
    chunk::{ChunkBuilder, EncodedEvent},
    is_rfc3339,
};

const SCHEMA: Schema = Schema::CloudEvents;

/// The maximum length of an extension's name in namespaces; the specification recommends it.
const NAMESPACE_NAME_CHARS_MAX: usize = 20;

/// The members that the specification defines, as sent.
#[derive(Default)]
pub(super) struct CloudEventMembers<'a> {
    id: Option<JsonValue<'a>>,
    source: Option<JsonValue<'a>>,
    kind: Option<JsonValue<'a>>,
    specversion: Option<JsonValue<'a>>,
    subject: Option<JsonValue<'a>>,
    time: Option<JsonValue<'a>>,
    datacontenttype: Option<JsonValue<'a>>,
    dataschema: Option<JsonValue<'a>>,
    data: Option<JsonValue<'a>>,
    data_base64: Option<JsonValue<'a>>,
    /// The names, to find a duplicate. A set, because an event can have a hundred thousand
    /// extensions.
    extensions: HashSet<Cow<'a, str>>,
    /// The maximum length of an extension's name.
    name_chars_max: usize,
}

/// Checks the events of a body and appends them to the draft, in one pass over `text`. [`None`]:
/// something is wrong, or an event may be too large. What is reported first then takes a second
/// look at all events, with [`read_event`].
pub(super) fn read_all_events(
    target: &EventTarget,
    body: &Bytes,
    text: &str,
    is_batch: bool,
    limits: &PublishLimits,
    draft: &mut ChunkBuilder,
) -> Option<()> {
    if text.len() > limits.event_bytes_max {
        return None;
    }
    let depth_max = limits.depth_max.checked_sub(1)?;
    if !is_batch {
        let mut members = CloudEventMembers::for_target(target);
        let object = scan::scan_one_object(text, depth_max, &mut members)?;
        return members.append_event(target, body, object, draft).ok();
    }
    let mut count = 0;
    scan::scan_objects(
        text,
        depth_max,
        || CloudEventMembers::for_target(target),
        |members, object| {
            count += 1;
            (count <= limits.events_max).then_some(())?;
            members.append_event(target, body, object, draft).ok()
        },
    )
}

/// Checks the event `object` and appends it to the draft.
pub(super) fn read_event(
    target: &EventTarget,
    body: &Bytes,
    object: &RawValue,
    draft: &mut ChunkBuilder,
) -> Result<(), Refusal> {
    let mut members = CloudEventMembers::for_target(target);
    json::read_members(object, |name, value| {
        members.put_member(name, JsonValue::from_raw(value))
    })
    .map_err(|error| Refusal::not_json(SCHEMA, error.to_string()))??;
    members.append_event(target, body, object.get(), draft)
}

impl<'a> ObjectMembers<'a> for CloudEventMembers<'a> {
    fn put(&mut self, name: &'a str, value: JsonValue<'a>) -> Result<(), Refusal> {
        self.put_member(Cow::Borrowed(name), value)
    }
}

impl<'a> CloudEventMembers<'a> {
    pub(super) fn for_target(target: &EventTarget) -> Self {
        let name_chars_max = if target.is_in_namespace {
            NAMESPACE_NAME_CHARS_MAX
        } else {
            usize::MAX
        };
        Self {
            name_chars_max,
            ..Self::default()
        }
    }

    /// Checks the event with these members and appends it to the draft. In a domain its `source`
    /// names the domain topic.
    pub(super) fn append_event(
        &self,
        target: &EventTarget,
        body: &Bytes,
        object: &str,
        draft: &mut ChunkBuilder,
    ) -> Result<(), Refusal> {
        self.check_members()?;
        // Data that is not JSON has no schema.
        if self.data_base64.is_none() {
            let event_type = self.kind.map(|kind| kind.literal_content());
            // The last segment of the schema's address is its version.
            let version = self
                .dataschema
                .and_then(|schema| schema.literal_content().rsplit('/').next());
            let data = self.data.map(|data| data.text);
            target.note_check(draft, [event_type, version], data, body);
        }
        draft.push(|out| self.write_wire_form(target, object, out));
        Ok(())
    }

    fn write_wire_form(
        &self,
        target: &EventTarget,
        object: &str,
        out: &mut BytesMut,
    ) -> EncodedEvent {
        let start = out.len();
        out.extend_from_slice(object.as_bytes());
        let position = |part: &str| start + offset_in(object, part);
        let range_of = |value: Option<JsonValue<'_>>| {
            let text = value.filter(|value| !value.is_null())?.text;
            Some(literal_range(position(text), text.len()))
        };
        let domain_topic = self
            .source
            .and_then(|source| target.domain_topic(source.literal_content()));
        let ranges = EventRanges {
            id: range_of(self.id).unwrap_or_default(),
            event_type: range_of(self.kind).unwrap_or_default(),
            subject: range_of(self.subject).unwrap_or_default(),
            domain_topic: domain_topic
                .map(|name| unquoted_range(position(name), name.len()))
                .unwrap_or_default(),
            ..EventRanges::default()
        };
        EncodedEvent {
            wire_end: out.len(),
            ranges,
        }
    }

    pub(super) fn put_member(
        &mut self,
        name: Cow<'a, str>,
        value: JsonValue<'a>,
    ) -> Result<(), Refusal> {
        let member = match name.as_ref() {
            "id" => &mut self.id,
            "source" => &mut self.source,
            "type" => &mut self.kind,
            "specversion" => &mut self.specversion,
            "subject" => &mut self.subject,
            "time" => &mut self.time,
            "datacontenttype" => &mut self.datacontenttype,
            "dataschema" => &mut self.dataschema,
            "data" => &mut self.data,
            "data_base64" => &mut self.data_base64,
            _ => return self.put_extension(name, value),
        };
        match member.replace(value) {
            None => Ok(()),
            Some(_) => Err(duplicate_member(&name)),
        }
    }

    fn put_extension(&mut self, name: Cow<'a, str>, value: JsonValue<'a>) -> Result<(), Refusal> {
        let is_name = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if name.is_empty() || !is_name(&name) {
            return Err(Refusal::unexpected_property(SCHEMA, &name));
        }
        if name.len() > self.name_chars_max {
            let name = Refusal::shorten_name(&name);
            let most = self.name_chars_max;
            return Err(malformed_event(format!(
                "The name of the extension '{name}' has more than {most} characters"
            )));
        }
        let is_value = match json::first_token(value.text) {
            Some(JsonToken::String) => value.is_string(),
            Some(JsonToken::Integer) => value.text.parse::<i32>().is_ok(),
            Some(JsonToken::Boolean | JsonToken::Null) => true,
            Some(
                JsonToken::Float
                | JsonToken::StartObject
                | JsonToken::StartArray
                | JsonToken::Undefined,
            )
            | None => false,
        };
        if !is_value {
            let name = Refusal::shorten_name(&name);
            return Err(malformed_event(format!(
                "Extension '{name}' is not a string, a boolean or an integer of 32 bits"
            )));
        }
        if self.extensions.contains(&name) {
            return Err(duplicate_member(&name));
        }
        self.extensions.insert(name);
        Ok(())
    }

    fn check_members(&self) -> Result<(), Refusal> {
        require_string("id", "id", self.id)?;
        require_string("source", "source", self.source)?;
        // Event Grid calls this property eventType in its error.
        require_string("type", "eventType", self.kind)?;
        if require_string("specversion", "specversion", self.specversion)? != "1.0" {
            return Err(malformed_event(
                "Property 'specversion' can only be \"1.0\"".to_owned(),
            ));
        }
        optional_string("subject", self.subject)?;
        optional_string("datacontenttype", self.datacontenttype)?;
        optional_string("dataschema", self.dataschema)?;
        if optional_string("time", self.time)?.is_some_and(|time| !is_rfc3339(&time)) {
            return Err(malformed_event(
                "Property 'time' is not an RFC 3339 date and time".to_owned(),
            ));
        }
        let Some(encoded) = optional_string("data_base64", self.data_base64)? else {
            return Ok(());
        };
        if self.data.is_some_and(|data| !data.is_null()) {
            return Err(malformed_event(
                "Properties 'data' and 'data_base64' are both given".to_owned(),
            ));
        }
        match STANDARD.decode(encoded.as_bytes()) {
            Ok(_) => Ok(()),
            Err(_) => Err(malformed_event(
                "Property 'data_base64' is not base64".to_owned(),
            )),
        }
    }
}

fn require_string<'a>(
    name: &'static str,
    property: &'static str,
    value: Option<JsonValue<'a>>,
) -> Result<Cow<'a, str>, Refusal> {
    optional_string(name, value)?
        .filter(|text| !text.is_empty())
        .ok_or_else(|| Refusal::Missing {
            schema: SCHEMA,
            property: property.to_owned(),
        })
}

fn optional_string<'a>(
    name: &'static str,
    value: Option<JsonValue<'a>>,
) -> Result<Option<Cow<'a, str>>, Refusal> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    match value.decode_characters() {
        Some(text) => Ok(Some(text)),
        None => Err(malformed_event(format!(
            "Property '{name}' is not a string"
        ))),
    }
}

fn duplicate_member(name: &str) -> Refusal {
    malformed_event(format!(
        "Property '{}' is given more than once",
        Refusal::shorten_name(name)
    ))
}

fn malformed_event(why: String) -> Refusal {
    Refusal::Nonconforming {
        schema: SCHEMA,
        why,
    }
}
