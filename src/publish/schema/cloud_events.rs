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
use bytes::{BufMut, Bytes};
use serde_json::value::RawValue;

use super::{EventTarget, json, literal_content, literal_range, offset_in, unquoted_range};
use crate::{Refusal, refusal::JsonToken};
use gridhook_event::{
    EventRanges, Schema, TextRange,
    chunk::{ChunkBuilder, EncodedEvent},
    is_rfc3339,
};

const SCHEMA: Schema = Schema::CloudEvents;

/// The maximum length of an extension's name in namespaces; the specification recommends it.
const NAMESPACE_NAME_CHARS_MAX: usize = 20;

/// The members that the specification defines, as sent.
#[derive(Default)]
struct CloudEventMembers<'a> {
    id: Option<&'a RawValue>,
    source: Option<&'a RawValue>,
    kind: Option<&'a RawValue>,
    specversion: Option<&'a RawValue>,
    subject: Option<&'a RawValue>,
    time: Option<&'a RawValue>,
    datacontenttype: Option<&'a RawValue>,
    dataschema: Option<&'a RawValue>,
    data: Option<&'a RawValue>,
    data_base64: Option<&'a RawValue>,
    /// The names, to find a duplicate. A set, because an event can have a hundred thousand
    /// extensions.
    extensions: HashSet<Cow<'a, str>>,
    /// The maximum length of an extension's name.
    name_chars_max: usize,
}

/// Checks the event `object` and appends it to the draft. In a domain its `source` names the domain
/// topic.
pub(super) fn read(
    target: &EventTarget,
    body: &Bytes,
    object: &RawValue,
    draft: &mut ChunkBuilder,
) -> Result<(), Refusal> {
    let name_chars_max = if target.is_in_namespace {
        NAMESPACE_NAME_CHARS_MAX
    } else {
        usize::MAX
    };
    let mut members = CloudEventMembers {
        name_chars_max,
        ..CloudEventMembers::default()
    };
    json::read_members(object, |name, value| members.put_member(name, value))
        .map_err(|error| Refusal::not_json(SCHEMA, error.to_string()))??;
    members.check_members()?;
    // Data that is not JSON has no schema.
    if members.data_base64.is_none() {
        // The last segment of the schema's address is its version.
        let version = members
            .dataschema
            .and_then(|schema| literal_content(schema).rsplit('/').next());
        target.note_check(
            draft,
            [members.kind.map(literal_content), version],
            members.data.map(RawValue::get),
            body,
        );
    }
    draft.push(|out| {
        let start = out.len();
        out.put_slice(object.get().as_bytes());
        let member = |value: Option<&RawValue>| match value.filter(|value| !json::is_null(value)) {
            Some(value) => literal_range(start + offset_in(object, value.get()), value.get().len()),
            None => TextRange::default(),
        };
        let spans = EventRanges {
            id: member(members.id),
            event_type: member(members.kind),
            subject: member(members.subject),
            domain_topic: match members
                .source
                .and_then(|source| target.domain_topic(literal_content(source)))
            {
                Some(name) => unquoted_range(start + offset_in(object, name), name.len()),
                None => TextRange::default(),
            },
            ..EventRanges::default()
        };
        EncodedEvent {
            wire_end: out.len(),
            spans,
        }
    });
    Ok(())
}

impl<'a> CloudEventMembers<'a> {
    fn put_member(&mut self, name: Cow<'a, str>, value: &'a RawValue) -> Result<(), Refusal> {
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

    fn put_extension(&mut self, name: Cow<'a, str>, value: &'a RawValue) -> Result<(), Refusal> {
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
        let is_value = match json::first_token(value.get()) {
            Some(JsonToken::String) => json::decode_string(value).is_some(),
            Some(JsonToken::Integer) => value.get().parse::<i32>().is_ok(),
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
        if self.data.is_some_and(|data| !json::is_null(data)) {
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
    value: Option<&'a RawValue>,
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
    value: Option<&'a RawValue>,
) -> Result<Option<Cow<'a, str>>, Refusal> {
    let Some(value) = value.filter(|value| !json::is_null(value)) else {
        return Ok(None);
    };
    match json::decode_string(value) {
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
