//! A dead-letter file: a JSON array with one event per line, each with the reason and the time of
//! its dead-lettering.
//!
//! There are two layouts. That of namespaces keeps an event and its result apart
//! ([`namespace`](self)). In the basic tier, an event has its delivery schema, in the order of the
//! samples in the Event Grid documentation: first the members of the event, then the result. An
//! event of the custom schema gets an Event Grid envelope, with its own object as `data` in the
//! last place. Every value, `data` above all, is copied byte for byte.
//!
//! A CloudEvent that was dead-lettered before and published again already has these attributes. The
//! new ones replace them, so that no name appears twice.

mod namespace;
mod object;

use bytes::Bytes;
use serde_json::value::RawValue;

use self::object::JsonObjectBuilder;
pub(super) use self::object::{Members, parse_members};
use crate::DeadLetterTarget;
use gridhook_event as event;
use gridhook_event::{Event, Lane, Schema, Seq, Timestamp};
use gridhook_policy::{edition::FileLayout, property::DeliveryProperty, record::DeadLetterRecord};

/// The order of members in the samples.
const EVENT_GRID: [&str; 8] = [
    "id",
    "eventTime",
    "eventType",
    "dataVersion",
    "metadataVersion",
    "topic",
    "subject",
    "data",
];

/// Attributes that are added to a CloudEvent. Existing ones are from an earlier dead-lettering.
const CLOUD_EVENT_ADDED: [&str; 5] = [
    "deadletterreason",
    "deliveryattempts",
    "lastdeliveryoutcome",
    "publishtime",
    "replayjob",
];

/// Members that are added to an Event Grid event, and to a custom event's envelope.
const EVENT_GRID_ADDED: [&str; 7] = [
    "deadLetterReason",
    "deliveryAttempts",
    "lastDeliveryOutcome",
    "publishTime",
    "lastDeliveryAttemptTime",
    "lastHttpStatusCode",
    "replayJob",
];

/// The stored event does not match its schema.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the event at {seq:?}")]
pub struct UnreadableEvent {
    pub seq: Seq,
    #[source]
    source: serde_json::Error,
}

/// The context that all events of a file share.
#[derive(Clone, Copy, Debug)]
pub struct FileContext<'a> {
    pub layout: FileLayout,
    pub delivery: Schema,
    /// The resource id of the topic or the domain.
    pub topic: &'a str,
    /// Delivery properties that are not secret.
    pub properties: &'a [DeliveryProperty],
}

#[derive(Debug)]
pub struct FileBuilder {
    text: String,
    bytes_max: usize,
    count: usize,
}

impl FileBuilder {
    /// An empty file of at most `bytes_max` bytes. It takes at least one event.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            text: "[".to_owned(),
            bytes_max,
            count: 0,
        }
    }

    /// Adds an event that was dead-lettered in this lane. False if the file is full; it is
    /// unchanged.
    ///
    /// # Errors
    /// If the event is not an object with the members of its schema. The file is unchanged.
    pub fn add(
        &mut self,
        context: FileContext<'_>,
        event: &Event,
        lane: Lane,
        dead: &DeadLetterRecord,
    ) -> Result<bool, UnreadableEvent> {
        let result = DeliveryResult { lane, dead };
        let before = self.text.len();
        if self.count > 0 {
            self.text.push_str(",\n");
        }
        let wire = event.to_wire_bytes();
        let written = match context.layout {
            FileLayout::Namespace => {
                namespace::dead_letter(&mut self.text, &wire, context, event, result)
            }
            FileLayout::Basic => write_basic(&mut self.text, &wire, context, event, result),
        };
        if let Err(source) = written {
            self.text.truncate(before);
            return Err(UnreadableEvent {
                seq: event.seq,
                source,
            });
        }
        // One more byte for the closing bracket.
        if self.count > 0 && self.text.len() + 1 > self.bytes_max {
            self.text.truncate(before);
            return Ok(false);
        }
        self.count += 1;
        Ok(true)
    }

    pub fn event_count(&self) -> usize {
        self.count
    }

    /// The text of the file.
    pub fn finish(mut self) -> String {
        self.text.push(']');
        self.text
    }
}

/// The result of an event's delivery.
#[derive(Clone, Copy)]
struct DeliveryResult<'a> {
    lane: Lane,
    dead: &'a DeadLetterRecord,
}

fn write_basic(
    out: &mut String,
    wire: &Bytes,
    context: FileContext<'_>,
    event: &Event,
    result: DeliveryResult<'_>,
) -> Result<(), serde_json::Error> {
    match (event.schema, context.delivery) {
        (Schema::EventGrid, Schema::EventGrid | Schema::Custom) => event_grid(out, wire, result),
        (Schema::EventGrid, Schema::CloudEvents) => {
            event::cloud_event(wire).and_then(|wire| cloud_event(out, &wire, result))
        }
        (Schema::CloudEvents, Schema::EventGrid | Schema::CloudEvents | Schema::Custom) => {
            cloud_event(out, wire, result)
        }
        (Schema::Custom, Schema::CloudEvents) => event
            .to_delivered_bytes(Schema::CloudEvents)
            .and_then(|wire| cloud_event(out, &wire, result)),
        (Schema::Custom, Schema::EventGrid | Schema::Custom) => {
            write_custom(out, wire, context, event, result)
        }
    }
}

fn event_grid(
    out: &mut String,
    wire: &[u8],
    result: DeliveryResult<'_>,
) -> Result<(), serde_json::Error> {
    let members = parse_members(wire)?;
    let mut object = JsonObjectBuilder::begin_object(out);
    for name in EVENT_GRID {
        if let Some((_, value)) = members.iter().find(|(member, _)| member == name) {
            object.put_json(name, value.get());
        }
    }
    result.put_members(&mut object);
    object.end_object();
    Ok(())
}

fn cloud_event(
    out: &mut String,
    wire: &[u8],
    result: DeliveryResult<'_>,
) -> Result<(), serde_json::Error> {
    let members = parse_members(wire)?;
    let mut object = JsonObjectBuilder::begin_object(out);
    for (name, value) in members {
        if !CLOUD_EVENT_ADDED.contains(&name.as_ref()) {
            object.put_json(&name, value.get());
        }
    }
    result.put_into_cloud_event(&mut object);
    object.end_object();
    Ok(())
}

fn write_custom(
    out: &mut String,
    wire: &[u8],
    context: FileContext<'_>,
    event: &Event,
    result: DeliveryResult<'_>,
) -> Result<(), serde_json::Error> {
    let own: &RawValue = serde_json::from_slice(wire)?;
    let mut object = JsonObjectBuilder::begin_object(out);
    object.put_text("id", &event.id());
    match event.event_time() {
        Some(time) => object.put_text("eventTime", &time),
        None => object.put_text("eventTime", &event.appended.to_event_grid()),
    }
    object.put_text("eventType", &event.event_type());
    let version = event.data_version();
    object.put_text(
        "dataVersion",
        if version.is_empty() { "1.0" } else { &version },
    );
    object.put_text("metadataVersion", "1");
    match event.domain_topic() {
        topic if topic.is_empty() => object.put_text("topic", context.topic),
        topic => object.put_text("topic", &format!("{}/topics/{topic}", context.topic)),
    }
    object.put_text("subject", &event.subject());
    result.put_members(&mut object);
    object.put_json("data", own.get());
    object.end_object();
    Ok(())
}

impl DeliveryResult<'_> {
    fn put_members(self, object: &mut JsonObjectBuilder<'_>) {
        let Self { lane, dead } = self;
        object.put_text("deadLetterReason", &dead.reason.to_string());
        object.put_json("deliveryAttempts", &dead.attempts.to_string());
        object.put_text("lastDeliveryOutcome", &dead.outcome.to_string());
        object.put_text("publishTime", &dead.published.to_event_grid());
        if let Some(tried) = dead.tried {
            object.put_text("lastDeliveryAttemptTime", &tried.to_event_grid());
        }
        if let Some(status) = dead.status {
            object.put_json("lastHttpStatusCode", &status.to_string());
        }
        if lane.is_job() {
            object.put_text("replayJob", &lane.0.to_string());
        }
    }

    /// The four attributes of the sample, which has neither the time nor the status of the last
    /// attempt. An event of a job has one more, an extension.
    fn put_into_cloud_event(self, object: &mut JsonObjectBuilder<'_>) {
        let Self { lane, dead } = self;
        let [reason, attempts, outcome, published, job] = CLOUD_EVENT_ADDED;
        object.put_text(reason, &dead.reason.to_string());
        object.put_json(attempts, &dead.attempts.to_string());
        object.put_text(outcome, &dead.outcome.to_string());
        object.put_text(published, &dead.published.to_event_grid());
        if lane.is_job() {
            object.put_text(job, &lane.0.to_string());
        }
    }
}

/// The event of a dead letter as it was before: it can be published again. `custom`: its topic has
/// the custom input schema, so the event is `data` of the envelope.
///
/// # Errors
/// If it is not an object, or a custom one has no `data`.
pub fn event_of(dead_letter: &str, custom: bool) -> Result<String, serde_json::Error> {
    let members = parse_members(dead_letter.as_bytes())?;
    if custom {
        let data = members
            .iter()
            .find(|(name, _)| name == "data")
            .map(|(_, data)| data.get().to_owned());
        return data.ok_or_else(|| serde::de::Error::missing_field("data"));
    }
    let is_cloud_event = members.iter().any(|(name, _)| name == "specversion");
    let dead_letter_fields: &[&str] = if is_cloud_event {
        &CLOUD_EVENT_ADDED
    } else {
        &EVENT_GRID_ADDED
    };
    let mut event = String::with_capacity(dead_letter.len());
    let mut object = JsonObjectBuilder::begin_object(&mut event);
    for (name, value) in members
        .iter()
        .filter(|(name, _)| !dead_letter_fields.contains(&name.as_ref()))
    {
        object.put_json(name, value.get());
    }
    object.end_object();
    Ok(event)
}

/// The folder of all files for `target`, below the store's address. In the basic tier, its last
/// part is the name of the subscription in upper case.
pub fn target_folder(target: &DeadLetterTarget) -> String {
    let own = match target.layout {
        FileLayout::Basic => target.subscription_name.to_uppercase(),
        FileLayout::Namespace => {
            namespace::subscription_folder(&target.topic, &target.subscription_name)
        }
    };
    if target.folder.is_empty() {
        own
    } else {
        format!("{}/{own}", target.folder)
    }
}

/// The path of a file: in the subscription's folder, by the hour of its creation, in UTC and
/// without leading zeros.
pub fn file_path(folder: &str, made: Timestamp, id: uuid::Uuid) -> String {
    let (year, month, day, hour) = made.utc_hour();
    format!("{folder}/{year}/{month}/{day}/{hour}/{id}.json")
}
