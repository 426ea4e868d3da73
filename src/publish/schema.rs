//! Reads a request's body: which schema, how many events, none too large and none too deep, every one as its schema
//! asks. What comes out is whole: a draft with all events, or the first thing that was wrong.
//!
//! Publishing adds what it stamps and drops the white space between an event's properties (Event Grid schema) or around it
//! (CloudEvents). Every value is copied as it was sent: no number is rounded, no string escaped in another way, no `data`
//! written again.

use bytes::Bytes;

use super::{
    Limits, Refusal, cloud_events, event_grid,
    json::{self, Elements},
    refusal::Token,
};
use crate::{
    event::{Schema, Span},
    journal::chunk::Draft,
    topic::record::TopicRecord,
};

/// What must be known of a topic to read events for it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The schema its publishers use.
    pub schema: Schema,
    /// Its resource id: what an event's `topic` must be, if it is given.
    pub(super) resource_id: String,
    /// The same as a JSON string, to be stamped.
    pub(super) stamp: String,
}

impl Target {
    /// Of a topic.
    pub fn of(topic: &TopicRecord) -> Self {
        let resource_id = topic.resource_id();
        let stamp = serde_json::Value::from(resource_id.as_str()).to_string();
        Self { schema: topic.input_schema, resource_id, stamp }
    }
}

/// What a request's headers say of its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content<'a> {
    /// `Content-Type`.
    pub content_type: Option<&'a str>,
    /// Whether attributes of a CloudEvent are among the headers (`ce-…`): the binary mode.
    pub has_attributes: bool,
}

/// How many events a CloudEvents body has, by its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Exactly one, an object.
    Structured,
    /// An array.
    Batch,
}

/// Reads all events of a body.
pub fn read(target: &Target, content: Content<'_>, body: &Bytes, limits: &Limits) -> Result<Draft, Refusal> {
    if body.len() > limits.request_bytes_max {
        return Err(Refusal::TooLarge { bytes_max: limits.request_bytes_max });
    }
    let schema = target.schema;
    let mode = match schema {
        Schema::EventGrid => Mode::Batch,
        Schema::CloudEvents => mode(content)?,
        Schema::Custom => return Err(Refusal::CustomSchema),
    };
    let text = std::str::from_utf8(body)
        .map_err(|error| Refusal::not_json(schema, format!("byte {} is not UTF-8", error.valid_up_to())))?;
    let events = split(schema, mode, text, limits)?;
    for event in &events.kept {
        if event.get().len() > limits.event_bytes_max {
            return Err(Refusal::TooLarge { bytes_max: limits.event_bytes_max });
        }
    }
    let mut draft = Draft::new(schema);
    for event in events.kept {
        expect(schema, Token::StartObject, event.get())?;
        if json::is_deeper(event.get(), limits.depth_max) {
            let why = format!("An event is nested more than {} levels deep", limits.depth_max);
            return Err(Refusal::Nonconforming { schema, why });
        }
        match schema {
            Schema::EventGrid => event_grid::read(target, event, &mut draft)?,
            Schema::CloudEvents => cloud_events::read(event, &mut draft)?,
            Schema::Custom => return Err(Refusal::CustomSchema),
        }
    }
    Ok(draft)
}

/// Takes a body apart into its events, without a look into them.
fn split<'a>(schema: Schema, mode: Mode, text: &'a str, limits: &Limits) -> Result<Elements<'a>, Refusal> {
    let not_json = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Eof => Refusal::CutOff,
        serde_json::error::Category::Syntax | serde_json::error::Category::Data | serde_json::error::Category::Io => {
            Refusal::not_json(schema, error.to_string())
        }
    };
    match mode {
        Mode::Structured => {
            expect(schema, Token::StartObject, text)?;
            let event = serde_json::from_str(text).map_err(not_json)?;
            Ok(Elements { kept: vec![event], count: 1 })
        }
        Mode::Batch => {
            expect(schema, Token::StartArray, text)?;
            let events = json::elements(text, limits.events_max).map_err(not_json)?;
            match events.count {
                0 => Err(Refusal::Empty { schema }),
                count if count > limits.events_max => Err(Refusal::TooMany { events_max: limits.events_max }),
                _ => Ok(events),
            }
        }
    }
}

fn expect(schema: Schema, expected: Token, text: &str) -> Result<(), Refusal> {
    match json::token(text) {
        Some(actual) if actual == expected => Ok(()),
        Some(Token::Undefined) => Err(Refusal::not_json(schema, "it begins with no JSON value".to_owned())),
        Some(actual) => Err(Refusal::Token { schema, expected, actual }),
        None => Err(Refusal::CutOff),
    }
}

fn mode(content: Content<'_>) -> Result<Mode, Refusal> {
    let media_type = content.content_type.unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if content.has_attributes {
        let structured = media_type.starts_with("application/cloudevents");
        return Err(if structured { Refusal::ConflictingModes } else { Refusal::BinaryMode });
    }
    match media_type.as_str() {
        "application/cloudevents+json" | "application/json" => Ok(Mode::Structured),
        "application/cloudevents-batch+json" => Ok(Mode::Batch),
        _ => Err(Refusal::ContentType),
    }
}

/// The place of a string's inside, where its literal, quotes and all, has `len` bytes and begins at `start`.
pub(super) fn span(start: usize, len: usize) -> Span {
    // An empty string has no place: [`Span`] says absent and empty alike.
    if len <= 2 {
        return Span::default();
    }
    let number = |value: usize| u32::try_from(value).expect("a request is far smaller than 4 GiB");
    Span { start: number(start + 1), len: number(len - 2) }
}
