//! A dead letter, as people read it and as it can be sent again: from any of the five shapes that files are known to have.
//!
//! ```text
//! Event Grid           {…event…, "deadLetterReason", "deliveryAttempts", "lastDeliveryOutcome", …}
//! CloudEvents          {…event…, "deadletterreason", "deliveryattempts", "lastdeliveryoutcome", …}
//! custom               the first one, the topic's own object whole as its `data`
//! namespace            {"event": {…}, "customDeliveryProperties": {…}, "deadletterProperties": {…}}
//! namespace, flat      {…CloudEvent…, "customDeliveryProperties": {…}, "deadletterProperties": {…}}
//! ```
//!
//! A file is an array of them, or one alone, as samples have it. What a namespace's file tells of the end is also found
//! under `deadLetterProperties` and `brokerProperties`: sources disagree. Every value of the event is passed on byte for
//! byte. Reading is total: a letter that is damaged is told with the reason, and does not hide those beside it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::file::{self, Members, members};
use crate::{
    event::{Schema, Timestamp},
    journal::WaitingDeadLetter,
};

/// Under which names a namespace's file tells of the end.
const PROPERTIES: [&str; 3] = ["deadletterProperties", "deadLetterProperties", "brokerProperties"];

/// What such a file tells of the delivery: it belongs to the subscription, not to the event.
const DELIVERY: &str = "customDeliveryProperties";

/// So many letters are read of a file: twenty times as many as this server writes into one.
const LETTERS_MAX: usize = 100_000;

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterEvent {
    /// The event as it was before it was given up, as JSON.
    pub event: String,
    /// The schema that this is.
    pub schema: Schema,
    /// Its id.
    pub id: Option<String>,
    /// Its type.
    pub event_type: Option<String>,
    /// Its subject.
    pub subject: Option<String>,
    /// The resource id of its topic, where Event Grid has put it there; a CloudEvent's `source` is its publisher's.
    pub topic: Option<String>,
    /// What became of it.
    pub fate: DeadLetterFate,
}

/// What is told of an event's end; what a file does not say is [`None`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFate {
    /// Why it was given up.
    pub reason: Option<String>,
    /// After how many attempts.
    pub attempts: Option<u32>,
    /// How the last one ended.
    pub outcome: Option<String>,
    /// With which status.
    pub status: Option<u16>,
    /// When it was published.
    pub published: Option<Timestamp>,
    /// When the last attempt was made.
    pub tried: Option<Timestamp>,
}

impl DeadLetterEvent {
    /// The one that waits.
    pub fn waiting(waiting: &WaitingDeadLetter) -> Option<Self> {
        let (event, dead) = (waiting.event.as_ref()?, &waiting.dead);
        let said = |text: Cow<'_, str>| Some(text.into_owned()).filter(|text| !text.is_empty());
        Some(Self {
            event: String::from_utf8_lossy(event.wire_bytes()).into_owned(),
            schema: event.schema,
            id: said(event.id()),
            event_type: said(event.event_type()),
            subject: said(event.subject()),
            topic: None,
            fate: DeadLetterFate {
                reason: Some(dead.reason.to_string()),
                attempts: Some(dead.attempts),
                outcome: Some(dead.outcome.to_string()),
                status: dead.status,
                published: Some(dead.published),
                tried: dead.tried,
            },
        })
    }

    /// When it was last tried, or else published: what a range of time asks for.
    pub fn at(&self) -> Option<Timestamp> {
        self.fate.tried.or(self.fate.published)
    }

    /// Its event without what a topic stamps on it: as its publisher wrote it.
    pub fn without_topic(&self) -> String {
        match members(self.event.as_bytes()) {
            Ok(all) => without(&all, |name| matches!(name, "topic" | "metadataVersion")),
            // What can't be read is told by whoever reads it next.
            Err(_) => self.event.clone(),
        }
    }

    /// What stands in a file as `letter`. `custom`: its topic has a custom schema.
    ///
    /// # Errors
    /// Where it is none of the five shapes, with what is wrong.
    pub fn read(letter: &str, custom: bool) -> Result<Self, String> {
        let all = members(letter.as_bytes()).map_err(|error| error.to_string())?;
        let told = PROPERTIES.iter().find_map(|name| value(&all, name));
        let (event, fate) = match (value(&all, "event").filter(|event| is_object(event)), told) {
            (Some(event), Some(told)) => (event.get().to_owned(), namespace_fate(told)?),
            (None, Some(told)) => {
                (without(&all, |name| name == DELIVERY || PROPERTIES.contains(&name)), namespace_fate(told)?)
            }
            (_, None) => {
                let is_cloud_event = value(&all, "specversion").is_some();
                let fate = if is_cloud_event { cloud_event_fate(&all) } else { event_grid_fate(&all) };
                if fate.reason.is_none() {
                    return Err("it is no dead letter: it has neither deadLetterReason, deadletterreason nor \
                                deadletterProperties"
                        .to_owned());
                }
                let custom = custom && !is_cloud_event;
                let event = file::event_of(letter, custom).map_err(|error| error.to_string())?;
                let described = Self::of(event, &all, fate)?;
                let schema = if custom { Schema::Custom } else { described.schema };
                return Ok(Self { schema, ..described });
            }
        };
        let inner = members(event.as_bytes()).map_err(|error| format!("event: {error}"))?;
        if value(&inner, "specversion").is_none() {
            return Err("event is no CloudEvent: it has no specversion".to_owned());
        }
        let described = Self::of(String::new(), &inner, fate)?;
        Ok(Self { event, ..described })
    }

    /// `event`, described by the members of its envelope.
    fn of(event: String, envelope: &Members<'_>, fate: DeadLetterFate) -> Result<Self, String> {
        let is_cloud_event = value(envelope, "specversion").is_some();
        let (schema, kind) = match is_cloud_event {
            true => (Schema::CloudEvents, "type"),
            false => (Schema::EventGrid, "eventType"),
        };
        let id = text(envelope, "id");
        if id.is_none() {
            return Err("its event has no id".to_owned());
        }
        let (event_type, subject) = (text(envelope, kind), text(envelope, "subject"));
        let topic = text(envelope, "topic").filter(|_| !is_cloud_event);
        Ok(Self { event, schema, id, event_type, subject, topic, fate })
    }
}

/// The letters of a file, in order. `custom`: its topic has a custom schema.
///
/// # Errors
/// Where the file is no JSON, or has more letters than any file.
pub fn read(file: &[u8], custom: bool) -> Result<Vec<Result<DeadLetterEvent, String>>, String> {
    let text = std::str::from_utf8(file).map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to()))?;
    if text.trim_start().starts_with('{') {
        serde_json::from_str::<&RawValue>(text).map_err(|error| error.to_string())?;
        return Ok(vec![DeadLetterEvent::read(text, custom)]);
    }
    let letters: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if letters.len() > LETTERS_MAX {
        return Err(format!("it has {} elements; at most {LETTERS_MAX} are read", letters.len()));
    }
    Ok(letters.into_iter().map(|letter| DeadLetterEvent::read(letter.get(), custom)).collect())
}

fn event_grid_fate(all: &Members<'_>) -> DeadLetterFate {
    DeadLetterFate {
        reason: text(all, "deadLetterReason"),
        attempts: number(all, "deliveryAttempts"),
        outcome: text(all, "lastDeliveryOutcome"),
        status: number(all, "lastHttpStatusCode"),
        published: time(all, "publishTime"),
        tried: time(all, "lastDeliveryAttemptTime"),
    }
}

fn cloud_event_fate(all: &Members<'_>) -> DeadLetterFate {
    DeadLetterFate {
        reason: text(all, "deadletterreason"),
        attempts: number(all, "deliveryattempts"),
        outcome: text(all, "lastdeliveryoutcome"),
        status: None,
        published: time(all, "publishtime"),
        tried: time(all, "lastdeliveryattempttime"),
    }
}

fn namespace_fate(told: &RawValue) -> Result<DeadLetterFate, String> {
    let all = members(told.get().as_bytes()).map_err(|error| format!("deadletterProperties: {error}"))?;
    Ok(DeadLetterFate {
        reason: text(&all, "deadletterreason"),
        attempts: number(&all, "deliveryattempts"),
        outcome: text(&all, "deliveryresult"),
        status: None,
        published: time(&all, "publishutc"),
        tried: time(&all, "deliveryattemptutc"),
    })
}

fn value<'a>(members: &Members<'a>, wanted: &str) -> Option<&'a RawValue> {
    members.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value)
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// The object again, without the members that are to be left out.
fn without(all: &Members<'_>, left_out: impl Fn(&str) -> bool) -> String {
    let kept = all.iter().filter(|(name, _)| !left_out(name));
    let kept = kept.map(|(name, value)| format!("{}:{}", serde_json::Value::from(name.as_ref()), value.get()));
    format!("{{{}}}", kept.collect::<Vec<_>>().join(","))
}

fn text(all: &Members<'_>, name: &str) -> Option<String> {
    serde_json::from_str(value(all, name)?.get()).ok()
}

/// A number, also where a writer has put it into a string.
fn number<T: std::str::FromStr>(all: &Members<'_>, name: &str) -> Option<T> {
    value(all, name)?.get().trim_matches('"').parse().ok()
}

fn time(all: &Members<'_>, name: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text(all, name)?.parse().ok()?;
    u64::try_from(at.as_microsecond()).ok().map(Timestamp)
}
