//! A dead letter, read from any of the five known shapes, for display and redrive.
//!
//! ```text
//! Event Grid           {…event…, "deadLetterReason", "deliveryAttempts", "lastDeliveryOutcome", …}
//! CloudEvents          {…event…, "deadletterreason", "deliveryattempts", "lastdeliveryoutcome", …}
//! custom               the first one, with the topic's own object as its `data`
//! namespace            {"event": {…}, "customDeliveryProperties": {…}, "deadletterProperties": {…}}
//! namespace, flat      {…CloudEvent…, "customDeliveryProperties": {…}, "deadletterProperties": {…}}
//! ```
//!
//! A file is an array of them, or a single one as in samples. Sources disagree on the name of a
//! namespace's properties: `deadLetterProperties` and `brokerProperties` are read too. Every value
//! of the event is kept byte for byte. A damaged dead letter is reported with the reason and does
//! not hide the others.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::file::{self, Members, parse_members};
use gridhook_event::{Schema, Timestamp, parse_instant};
use gridhook_journal::WaitingDeadLetter;

/// Names under which a namespace's file has the delivery result.
const PROPERTIES: [&str; 3] = [
    "deadletterProperties",
    "deadLetterProperties",
    "brokerProperties",
];

/// Delivery headers in such a file. They belong to the subscription, not to the event.
const DELIVERY: &str = "customDeliveryProperties";

/// Maximum dead letters read from a file: twenty times what this server writes into one.
const DEAD_LETTERS_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterEvent {
    /// The event before it was dead-lettered, as JSON.
    pub event: String,
    pub schema: Schema,
    pub id: Option<String>,
    pub event_type: Option<String>,
    pub subject: Option<String>,
    /// The resource id of the topic, if Event Grid added it. A CloudEvent's `source` comes from its
    /// publisher.
    pub topic: Option<String>,
    /// The result of the event's delivery.
    pub result: DeadLetterResult,
}

/// The result of an event's delivery. What a file does not contain is [`None`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterResult {
    pub reason: Option<String>,
    pub attempts: Option<u32>,
    /// The outcome of the last attempt.
    pub outcome: Option<String>,
    /// The HTTP status of the last attempt.
    pub status: Option<u16>,
    pub published: Option<Timestamp>,
    /// The time of the last attempt.
    pub tried: Option<Timestamp>,
}

impl DeadLetterEvent {
    /// A waiting dead letter. [`None`] if its event is missing.
    pub fn from_waiting(waiting: &WaitingDeadLetter) -> Option<Self> {
        let event = waiting.event.as_ref()?;
        let dead = &waiting.dead;
        let non_empty =
            |text: Cow<'_, str>| Some(text.into_owned()).filter(|text| !text.is_empty());
        Some(Self {
            event: String::from_utf8_lossy(event.wire_bytes()).into_owned(),
            schema: event.schema,
            id: non_empty(event.id()),
            event_type: non_empty(event.event_type()),
            subject: non_empty(event.subject()),
            topic: None,
            result: DeadLetterResult {
                reason: Some(dead.reason.to_string()),
                attempts: Some(dead.attempts),
                outcome: Some(dead.outcome.to_string()),
                status: dead.status,
                published: Some(dead.published),
                tried: dead.tried,
            },
        })
    }

    /// The time of the last attempt, or else of the publication. Time ranges select by it.
    pub fn last_attempted(&self) -> Option<Timestamp> {
        self.result.tried.or(self.result.published)
    }

    /// The event as its publisher wrote it, without what a topic adds.
    pub fn without_topic(&self) -> String {
        match parse_members(self.event.as_bytes()) {
            Ok(all) => without_members(&all, |name| matches!(name, "topic" | "metadataVersion")),
            // The next reader reports the error.
            Err(_) => self.event.clone(),
        }
    }

    /// Reads a dead letter of a file. `custom`: its topic has the custom input schema.
    ///
    /// # Errors
    /// What is wrong, if it has none of the five shapes.
    pub fn read(dead_letter: &str, custom: bool) -> Result<Self, String> {
        let all = parse_members(dead_letter.as_bytes()).map_err(|error| error.to_string())?;
        let properties = PROPERTIES.iter().find_map(|name| member_value(&all, name));
        let (event, result) = match (
            member_value(&all, "event").filter(|event| is_object(event)),
            properties,
        ) {
            (Some(event), Some(properties)) => {
                (event.get().to_owned(), namespace_result(properties)?)
            }
            (None, Some(properties)) => (
                without_members(&all, |name| name == DELIVERY || PROPERTIES.contains(&name)),
                namespace_result(properties)?,
            ),
            (_, None) => {
                let is_cloud_event = member_value(&all, "specversion").is_some();
                let result = if is_cloud_event {
                    cloud_event_result(&all)
                } else {
                    event_grid_result(&all)
                };
                if result.reason.is_none() {
                    return Err("it is not a dead letter: it has none of deadLetterReason, \
                        deadletterreason and deadletterProperties"
                        .to_owned());
                }
                let custom = custom && !is_cloud_event;
                let event =
                    file::event_of(dead_letter, custom).map_err(|error| error.to_string())?;
                let described = Self::from_members(event, &all, result)?;
                let schema = if custom {
                    Schema::Custom
                } else {
                    described.schema
                };
                return Ok(Self {
                    schema,
                    ..described
                });
            }
        };
        let inner = parse_members(event.as_bytes()).map_err(|error| format!("event: {error}"))?;
        if member_value(&inner, "specversion").is_none() {
            return Err("event is not a CloudEvent: it has no specversion".to_owned());
        }
        let described = Self::from_members(String::new(), &inner, result)?;
        Ok(Self { event, ..described })
    }

    /// Builds a dead letter from `event` and the members of its envelope.
    fn from_members(
        event: String,
        envelope: &Members<'_>,
        result: DeadLetterResult,
    ) -> Result<Self, String> {
        let is_cloud_event = member_value(envelope, "specversion").is_some();
        let (schema, kind) = if is_cloud_event {
            (Schema::CloudEvents, "type")
        } else {
            (Schema::EventGrid, "eventType")
        };
        let id = member_text(envelope, "id");
        if id.is_none() {
            return Err("its event has no id".to_owned());
        }
        let event_type = member_text(envelope, kind);
        let subject = member_text(envelope, "subject");
        let topic = member_text(envelope, "topic").filter(|_| !is_cloud_event);
        Ok(Self {
            event,
            schema,
            id,
            event_type,
            subject,
            topic,
            result,
        })
    }
}

/// The dead letters of a file, in order. `custom`: its topic has the custom input schema.
///
/// # Errors
/// If the file is not JSON, or has too many elements.
pub fn read(file: &[u8], custom: bool) -> Result<Vec<Result<DeadLetterEvent, String>>, String> {
    let text = std::str::from_utf8(file)
        .map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to()))?;
    if text.trim_start().starts_with('{') {
        serde_json::from_str::<&RawValue>(text).map_err(|error| error.to_string())?;
        return Ok(vec![DeadLetterEvent::read(text, custom)]);
    }
    let dead_letters: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    if dead_letters.len() > DEAD_LETTERS_MAX {
        return Err(format!(
            "it has {} elements; at most {DEAD_LETTERS_MAX} are read",
            dead_letters.len()
        ));
    }
    Ok(dead_letters
        .into_iter()
        .map(|dead_letter| DeadLetterEvent::read(dead_letter.get(), custom))
        .collect())
}

fn event_grid_result(all: &Members<'_>) -> DeadLetterResult {
    DeadLetterResult {
        reason: member_text(all, "deadLetterReason"),
        attempts: member_number(all, "deliveryAttempts"),
        outcome: member_text(all, "lastDeliveryOutcome"),
        status: member_number(all, "lastHttpStatusCode"),
        published: member_time(all, "publishTime"),
        tried: member_time(all, "lastDeliveryAttemptTime"),
    }
}

fn cloud_event_result(all: &Members<'_>) -> DeadLetterResult {
    DeadLetterResult {
        reason: member_text(all, "deadletterreason"),
        attempts: member_number(all, "deliveryattempts"),
        outcome: member_text(all, "lastdeliveryoutcome"),
        status: None,
        published: member_time(all, "publishtime"),
        tried: member_time(all, "lastdeliveryattempttime"),
    }
}

fn namespace_result(properties: &RawValue) -> Result<DeadLetterResult, String> {
    let all = parse_members(properties.get().as_bytes())
        .map_err(|error| format!("deadletterProperties: {error}"))?;
    Ok(DeadLetterResult {
        reason: member_text(&all, "deadletterreason"),
        attempts: member_number(&all, "deliveryattempts"),
        outcome: member_text(&all, "deliveryresult"),
        status: None,
        published: member_time(&all, "publishutc"),
        tried: member_time(&all, "deliveryattemptutc"),
    })
}

fn member_value<'a>(members: &Members<'a>, wanted: &str) -> Option<&'a RawValue> {
    members
        .iter()
        .find(|(name, _)| name == wanted)
        .map(|(_, value)| *value)
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// The object without some members.
fn without_members(all: &Members<'_>, left_out: impl Fn(&str) -> bool) -> String {
    let kept_members = all.iter().filter(|(name, _)| !left_out(name));
    let kept_members = kept_members
        .map(|(name, value)| format!("{}:{}", serde_json::Value::from(name.as_ref()), value.get()));
    format!("{{{}}}", kept_members.collect::<Vec<_>>().join(","))
}

fn member_text(all: &Members<'_>, name: &str) -> Option<String> {
    serde_json::from_str(member_value(all, name)?.get()).ok()
}

/// Reads a number, also if it was written as a string.
fn member_number<T: std::str::FromStr>(all: &Members<'_>, name: &str) -> Option<T> {
    member_value(all, name)?
        .get()
        .trim_matches('"')
        .parse()
        .ok()
}

fn member_time(all: &Members<'_>, name: &str) -> Option<Timestamp> {
    let at = parse_instant(&member_text(all, name)?)?;
    u64::try_from(at.as_microsecond()).ok().map(Timestamp)
}
