//! An event in a custom schema: any JSON object. The topic's mapping locates the properties that
//! Event Grid routes by.
//!
//! The wire form is the object as sent. Properties that it lacks (defaults, a generated id, the
//! topic) are stored behind it in the log, and are used only for delivery in another schema.
//!
//! In a domain the mapped topic names a domain topic; otherwise it must be the topic itself.
//!
//! A property is a string, a number or a boolean; the last two are taken as written. `null` and the
//! empty string count as absent, except for the subject and the data version, which may be empty.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    EventTarget, event_grid::is_date_time, json, literal_range, offset_in, unquoted_range,
};
use crate::{Refusal, refusal::JsonToken};
use gridhook_event::{
    EventRanges, Schema, TextRange,
    chunk::{ChunkBuilder, EncodedEvent},
};
use gridhook_record::ingress::{InputSchemaMapping, MappedField, MappedFieldOrDefault};

const SCHEMA: Schema = Schema::Custom;

/// The location of a property, and its default.
#[derive(Clone, Debug)]
struct MappedProperty {
    property: &'static str,
    member: Option<String>,
    /// The content of a JSON string literal.
    default: Option<String>,
    may_be_empty: bool,
}

impl MappedProperty {
    fn without_default(property: &'static str, source: &Option<MappedField>) -> Self {
        let source = source.as_ref();
        Self {
            property,
            member: source.and_then(|source| source.source_field.clone()),
            default: None,
            may_be_empty: false,
        }
    }

    fn with_default(
        property: &'static str,
        source: &Option<MappedFieldOrDefault>,
        may_be_empty: bool,
    ) -> Self {
        let source = source.clone().unwrap_or_default();
        let default = source.default_value.as_deref();
        Self {
            property,
            member: source.source_field,
            default: default
                .filter(|value| may_be_empty || !value.is_empty())
                .map(json_literal_content),
            may_be_empty,
        }
    }
}

/// A topic's mapping, prepared for reading events.
#[derive(Clone, Debug)]
pub(super) struct EventMapping([MappedProperty; PROPERTIES]);

/// The number of properties that can be mapped.
const PROPERTIES: usize = 6;

impl EventMapping {
    pub(super) fn from_mapping(mapping: &InputSchemaMapping) -> Self {
        let only = MappedProperty::without_default;
        let or_default = MappedProperty::with_default;
        // In the order of `EventRanges::all_ranges`, which also has the domain topic.
        Self([
            only("id", &mapping.id),
            or_default("eventType", &mapping.event_type, false),
            or_default("subject", &mapping.subject, true),
            or_default("dataVersion", &mapping.data_version, true),
            only("topic", &mapping.topic),
            only("eventTime", &mapping.event_time),
        ])
    }
}

/// The value of a mapped property.
enum MappedValue<'a> {
    /// A member of the published object.
    Published(&'a RawValue),
    /// The content of a JSON string literal, from the mapping's default or generated.
    Default(String),
    /// The resource id of a domain topic, and the length of the domain topic's name at its end.
    DomainTopic(String, usize),
}

impl MappedValue<'_> {
    /// The content of the JSON string literal.
    fn literal_content(&self) -> &str {
        match self {
            Self::Published(value) => super::literal_content(value),
            Self::Default(text) | Self::DomainTopic(text, _) => text,
        }
    }
}

/// Checks the event `object` and appends it to the draft.
pub(super) fn read_event(
    target: &EventTarget,
    body: &Bytes,
    object: &RawValue,
    draft: &mut ChunkBuilder,
) -> Result<(), Refusal> {
    let EventMapping(fields) = &target.mapping;
    let mut members = [None; PROPERTIES];
    json::read_members(object, |name, value| {
        for (field, member) in fields.iter().zip(&mut members) {
            if field.member.as_deref() == Some(&*name) && member.replace(value).is_some() {
                return Err(malformed_event(format!(
                    "Property '{}' is given more than once",
                    Refusal::shorten_name(&name)
                )));
            }
        }
        Ok(())
    })
    .map_err(|error| Refusal::not_json(SCHEMA, error.to_string()))??;
    let mut values = Vec::with_capacity(fields.len());
    for (field, member) in fields.iter().zip(members) {
        values.push(field.map_value(member, target)?);
    }
    let [_, event_type, _, data_version, ..] = values.as_slice() else {
        unreachable!("each property has a value")
    };
    let [event_type, data_version] =
        [event_type, data_version].map(|value| value.as_ref().map(MappedValue::literal_content));
    target.note_check(draft, [event_type, data_version], Some(object.get()), body);
    draft.push(|out| write_event(object, &values, out));
    Ok(())
}

impl MappedProperty {
    fn map_value<'a>(
        &self,
        member: Option<&'a RawValue>,
        target: &EventTarget,
    ) -> Result<Option<MappedValue<'a>>, Refusal> {
        let raw_value = match member.filter(|value| !json::is_null(value)) {
            Some(value) if value.get() == r#""""# && !self.may_be_empty => None,
            value => value,
        };
        let Some(value) = raw_value else {
            return self.default_value(target);
        };
        match json::first_token(value.get()) {
            Some(JsonToken::String) if json::decode_string(value).is_some() => {}
            Some(JsonToken::Integer | JsonToken::Float | JsonToken::Boolean) => {}
            Some(
                JsonToken::String
                | JsonToken::StartObject
                | JsonToken::StartArray
                | JsonToken::Null
                | JsonToken::Undefined,
            )
            | None => {
                return Err(self.invalid_property("is not a string, a number or a boolean"));
            }
        }
        match self.property {
            "topic" if let Some(name) = target.domain_topic(super::literal_content(value)) => {
                let id = format!(
                    "{}/topics/{name}",
                    json_literal_content(&target.resource_id)
                );
                Ok(Some(MappedValue::DomainTopic(id, name.len())))
            }
            "eventTime" if !json::decode_string(value).is_some_and(|time| is_date_time(&time)) => {
                Err(self.invalid_property("is not an ISO 8601 date and time"))
            }
            "topic"
                if json::decode_string(value).is_none_or(|topic| topic != target.resource_id) =>
            {
                Err(Refusal::OtherTopic {
                    topic: target.resource_id.clone(),
                })
            }
            // The topic's own id, written once in the server's form.
            "topic" => self.default_value(target),
            _ => Ok(Some(MappedValue::Published(value))),
        }
    }

    fn default_value<'a>(&self, target: &EventTarget) -> Result<Option<MappedValue<'a>>, Refusal> {
        if let Some(default) = &self.default {
            return Ok(Some(MappedValue::Default(default.clone())));
        }
        match (self.property, &self.member) {
            ("id", _) => Ok(Some(MappedValue::Default(Uuid::new_v4().to_string()))),
            ("topic", member) if target.is_domain => {
                let property = member.as_deref().unwrap_or("topic").to_owned();
                Err(Refusal::Missing {
                    schema: SCHEMA,
                    property,
                })
            }
            ("topic", _) => Ok(Some(MappedValue::Default(json_literal_content(
                &target.resource_id,
            )))),
            // The time of arrival is in the log already.
            ("eventTime", _) => Ok(None),
            (_, None) => Ok(None),
            (_, Some(member)) => Err(Refusal::Missing {
                schema: SCHEMA,
                property: member.clone(),
            }),
        }
    }

    fn invalid_property(&self, what: &str) -> Refusal {
        let member = Refusal::shorten_name(self.member.as_deref().unwrap_or_default());
        malformed_event(format!(
            "Property '{member}', which is the event's '{}', {what}",
            self.property
        ))
    }
}

fn write_event(
    object: &RawValue,
    values: &[Option<MappedValue<'_>>],
    out: &mut BytesMut,
) -> EncodedEvent {
    let start = out.len();
    out.put_slice(object.get().as_bytes());
    let wire_end = out.len();
    let mut ranges = [TextRange::default(); EventRanges::COUNT];
    let mut domain_topic = TextRange::default();
    for (range, value) in ranges.iter_mut().zip(values) {
        *range = match value {
            None => TextRange::default(),
            Some(MappedValue::Default(text)) => {
                out.put_slice(text.as_bytes());
                unquoted_range(out.len() - text.len(), text.len())
            }
            Some(MappedValue::DomainTopic(id, name)) => {
                out.put_slice(id.as_bytes());
                domain_topic = unquoted_range(out.len() - name, *name);
                unquoted_range(out.len() - id.len(), id.len())
            }
            Some(MappedValue::Published(value)) => {
                let at = start + offset_in(object.get(), value.get());
                let len = value.get().len();
                if value.get().starts_with('"') {
                    literal_range(at, len)
                } else {
                    unquoted_range(at, len)
                }
            }
        };
    }
    EncodedEvent {
        wire_end,
        ranges: EventRanges {
            domain_topic,
            ..EventRanges::from_ranges(ranges)
        },
    }
}

/// The content of the JSON string literal of `text`.
fn json_literal_content(text: &str) -> String {
    let literal = serde_json::Value::from(text).to_string();
    literal[1..literal.len() - 1].to_owned()
}

fn malformed_event(why: String) -> Refusal {
    Refusal::Nonconforming {
        schema: SCHEMA,
        why,
    }
}
