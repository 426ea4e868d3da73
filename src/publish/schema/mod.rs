//! Reads the body of a publish request: its schema, the number, size and depth of events, and the
//! rules of the schema. The result is a draft with all events, or the first error.
//!
//! Publishing adds stamped properties, and drops white space between an event's properties (Event
//! Grid schema) or around it (other schemas). Every value is copied as sent: numbers, escapes and
//! `data` do not change.
//!
//! The order of the checks is Azure's: is there a body, is it too large, is its content type known,
//! is it JSON, is an event too large, is an event valid.

mod binary;
mod checks;
mod cloud_events;
mod custom;
mod event_grid;
mod json;
mod scan;

use std::{
    cell::RefCell,
    ops::Deref,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use serde_json::value::RawValue;

pub use self::checks::{DataChecks, Nonconforming};
use self::{checks::DataCheck, custom::EventMapping, json::ArrayElements};
use super::{PublishLimits, Refusal, refusal::JsonToken};
use gridhook_engine::control::catalogue::Catalogue;
use gridhook_event::{IdMap, PartitionId, Schema, TextRange, chunk::ChunkBuilder, unescape_text};
use gridhook_record::{ingress::InputSchemaMapping, topic::TopicRecord};

/// Maximum number of topics whose properties a thread keeps.
const TARGETS_KEPT: usize = 1024;

thread_local! {
    static TARGETS: RefCell<IdMap<PartitionId, KeptTarget>> = RefCell::default();
}

/// The record that the properties were taken from, and the properties.
type KeptTarget = (Weak<TopicRecord>, Arc<TargetProperties>);

/// The properties of a topic that reading events needs.
#[derive(Debug)]
pub struct TargetProperties {
    pub schema: Schema,
    /// The topic's resource id, which an event's `topic` must have if present.
    resource_id: String,
    /// The resource id as a JSON string.
    stamp: String,
    /// The mapping of a custom schema.
    mapping: EventMapping,
    /// Whether the topic is a domain, whose events each name a domain topic.
    is_domain: bool,
    /// Whether the topic is in a namespace, where CloudEvents may have data of any kind.
    is_in_namespace: bool,
}

/// A topic that events of a request are read for.
#[derive(Clone, Debug)]
pub struct EventTarget {
    properties: Arc<TargetProperties>,
    /// The event types whose data is checked.
    catalogue: Option<Arc<Catalogue>>,
    /// The data to check of the events that were read.
    checks: RefCell<Vec<DataCheck>>,
}

impl Deref for EventTarget {
    type Target = TargetProperties;

    fn deref(&self) -> &TargetProperties {
        &self.properties
    }
}

impl TargetProperties {
    fn from_record(topic: &TopicRecord) -> Self {
        let resource_id = topic.resource_id();
        let stamp = serde_json::to_string(&resource_id).expect("a string serialises");
        let mapping = topic.ingress.mapping.as_ref().map_or_else(
            || EventMapping::from_mapping(&InputSchemaMapping::default()),
            EventMapping::from_mapping,
        );
        let is_in_namespace = topic.namespace.is_some();
        let schema = topic.input_schema;
        let is_domain = topic.is_domain();
        Self {
            schema,
            resource_id,
            stamp,
            mapping,
            is_domain,
            is_in_namespace,
        }
    }

    /// The properties of a topic, computed once for each thread and record.
    fn cached_for(topic: &Arc<TopicRecord>) -> Arc<Self> {
        let Some(partition) = topic.partitions.first() else {
            return Arc::new(Self::from_record(topic));
        };
        TARGETS.with_borrow_mut(|targets| {
            // While the reference exists, no other record is at its address.
            let entry = targets
                .get(partition)
                .filter(|(record, _)| record.as_ptr() == Arc::as_ptr(topic));
            if let Some((_, entry)) = entry {
                return Arc::clone(entry);
            }
            if targets.len() >= TARGETS_KEPT {
                targets.clear();
            }
            let properties = Arc::new(Self::from_record(topic));
            targets.insert(*partition, (Arc::downgrade(topic), Arc::clone(&properties)));
            properties
        })
    }
}

impl EventTarget {
    pub fn for_topic(topic: &TopicRecord) -> Self {
        Self::new(Arc::new(TargetProperties::from_record(topic)))
    }

    /// The target for a topic, whose properties are computed once for each thread and record.
    pub(super) fn cached_for(topic: &Arc<TopicRecord>) -> Self {
        Self::new(TargetProperties::cached_for(topic))
    }

    fn new(properties: Arc<TargetProperties>) -> Self {
        Self {
            properties,
            catalogue: None,
            checks: RefCell::default(),
        }
    }

    /// Checks the data of events.
    #[must_use]
    pub fn with_catalogue(self, catalogue: Option<Arc<Catalogue>>) -> Self {
        Self { catalogue, ..self }
    }

    /// The checks of the data of the events that were read. They may cost more than reading them.
    pub fn take_checks(&self) -> DataChecks {
        let refuses = self
            .catalogue
            .as_ref()
            .is_some_and(|catalogue| catalogue.refuses);
        DataChecks::new(self.schema, refuses, self.checks.take())
    }

    /// Notes that the data of the next event of the draft is to be checked against the schema of
    /// its type. The event type and the version are the contents of JSON strings.
    fn note_check(
        &self,
        draft: &ChunkBuilder,
        [event_type, version]: [Option<&str>; 2],
        data: Option<&str>,
        body: &Bytes,
    ) {
        let Some(catalogue) = &self.catalogue else {
            return;
        };
        let [event_type, version] = [event_type, version]
            .map(|inside| unescape_text(inside.unwrap_or_default().as_bytes()));
        let Some(declared) = catalogue.find_schema(&event_type, &version) else {
            return;
        };
        let data = data.map(|data| shared_part(body, data));
        self.checks.borrow_mut().push(DataCheck {
            event: draft.count(),
            declared: Arc::clone(declared),
            data,
        });
    }

    /// The domain topic that the content of a JSON string names: all of it, or the last segment of
    /// a domain topic's resource id. [`None`] where this is not a domain.
    fn domain_topic<'a>(&self, inside: &'a str) -> Option<&'a str> {
        if !self.is_domain {
            return None;
        }
        let rest = inside
            .get(self.resource_id.len()..)
            .and_then(|rest| rest.strip_prefix("/topics/"));
        let is_ours = inside.len() > self.resource_id.len()
            && inside.as_bytes()[..self.resource_id.len()]
                .eq_ignore_ascii_case(self.resource_id.as_bytes());
        Some(
            rest.filter(|rest| is_ours && !rest.is_empty())
                .unwrap_or(inside),
        )
    }
}

/// The description of a body by the request's headers.
#[derive(Clone, Debug, Default)]
pub struct RequestContent<'a> {
    pub content_type: Option<&'a str>,
    /// The attributes of a CloudEvent from the headers `ce-…`, with names without `ce-`, as sent.
    pub attributes: Vec<(&'a str, &'a [u8])>,
}

impl RequestContent<'_> {
    /// The content type without parameters.
    fn media_type(&self) -> String {
        let content_type = self.content_type.unwrap_or_default();
        content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    }

    pub(super) fn is_binary(&self) -> bool {
        self.attributes
            .iter()
            .any(|(name, _)| binary::REQUIRED.contains(name))
    }
}

/// The encoding of events in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentMode {
    /// The body is one event as an object.
    Structured,
    Batch,
    /// The body is the data of one event, whose attributes are headers.
    Binary,
}

/// Reads all events of a body.
pub fn read(
    target: &EventTarget,
    content: &RequestContent<'_>,
    body: &Bytes,
    limits: &PublishLimits,
) -> Result<ChunkBuilder, Refusal> {
    read_into(
        || ChunkBuilder::new(target.schema).with_body_bytes(body.len()),
        target,
        content,
        body,
        limits,
    )
}

/// Reads all events of a body like [`read`], with the trace context of the request.
pub(super) fn read_traced(
    target: &EventTarget,
    content: &RequestContent<'_>,
    body: &Bytes,
    limits: &PublishLimits,
    trace_context: &str,
) -> Result<ChunkBuilder, Refusal> {
    let new_draft = || ChunkBuilder::new(target.schema).with_body_bytes(body.len());
    let new_traced = || new_draft().with_trace(trace_context);
    read_into(new_traced, target, content, body, limits)
}

fn read_into(
    new_draft: impl Fn() -> ChunkBuilder,
    target: &EventTarget,
    content: &RequestContent<'_>,
    body: &Bytes,
    limits: &PublishLimits,
) -> Result<ChunkBuilder, Refusal> {
    let schema = target.schema;
    // A CloudEvent in binary mode may have no data.
    if body.is_empty() && !content.is_binary() {
        return Err(Refusal::CutOff);
    }
    if body.len() > limits.request_bytes_max {
        return Err(Refusal::TooLarge {
            bytes_max: limits.request_bytes_max,
        });
    }
    let mode = match schema {
        Schema::EventGrid | Schema::Custom => ContentMode::Batch,
        Schema::CloudEvents if target.is_in_namespace => mode_by_body(content, body)?,
        Schema::CloudEvents => content_mode(content)?,
    };
    let mut draft = new_draft();
    // Nearly every body is valid, and then one pass over it is enough.
    if has_one_pass_reader(schema, mode) {
        let text = require_utf8(schema, body)?;
        if read_in_one_pass(target, mode, body, text, limits, &mut draft).is_some() {
            return Ok(draft);
        }
        draft = new_draft();
        // The second look notes them again.
        target.checks.take();
    }
    let events = match mode {
        ContentMode::Binary => {
            binary::read(target, content, body, limits, &mut draft)?;
            return Ok(draft);
        }
        ContentMode::Structured => single_event(schema, require_utf8(schema, body)?)?,
        ContentMode::Batch => event_array(schema, require_utf8(schema, body)?, limits)?,
    };
    for event in &events {
        if event.get().len() > limits.event_bytes_max {
            return Err(Refusal::TooLarge {
                bytes_max: limits.event_bytes_max,
            });
        }
    }
    for event in events {
        expect_token(schema, JsonToken::StartObject, event.get())?;
        if json::is_deeper(event.get(), limits.depth_max) {
            return Err(Refusal::too_deep(schema, limits.depth_max));
        }
        match schema {
            Schema::EventGrid => event_grid::read(target, body, event, &mut draft)?,
            Schema::CloudEvents => cloud_events::read(target, body, event, &mut draft)?,
            Schema::Custom => custom::read(target, body, event, &mut draft)?,
        }
    }
    Ok(draft)
}

/// Whether events are first read in one pass. A binary body is the data of one event.
fn has_one_pass_reader(schema: Schema, mode: ContentMode) -> bool {
    match schema {
        Schema::EventGrid => true,
        Schema::CloudEvents => mode != ContentMode::Binary,
        Schema::Custom => false,
    }
}

/// Reads all events in one pass. Returns [`None`] if anything is wrong.
fn read_in_one_pass(
    target: &EventTarget,
    mode: ContentMode,
    body: &Bytes,
    text: &str,
    limits: &PublishLimits,
    draft: &mut ChunkBuilder,
) -> Option<()> {
    match target.schema {
        Schema::EventGrid => event_grid::read_all(target, body, text, limits, draft),
        Schema::CloudEvents => {
            let is_batch = mode == ContentMode::Batch;
            cloud_events::read_all(target, body, text, is_batch, limits, draft)
        }
        Schema::Custom => None,
    }
}

fn require_utf8(schema: Schema, body: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(body).map_err(|error| {
        Refusal::not_json(schema, format!("byte {} is not UTF-8", error.valid_up_to()))
    })
}

/// The event of a body that has only one, not yet parsed.
fn single_event(schema: Schema, text: &str) -> Result<Vec<&RawValue>, Refusal> {
    expect_token(schema, JsonToken::StartObject, text)?;
    Ok(vec![
        serde_json::from_str(text).map_err(|error| not_json(schema, &error))?,
    ])
}

/// A body with an array of events, not yet parsed.
fn event_array<'a>(
    schema: Schema,
    text: &'a str,
    limits: &PublishLimits,
) -> Result<Vec<&'a RawValue>, Refusal> {
    expect_token(schema, JsonToken::StartArray, text)?;
    let ArrayElements { kept, count } =
        json::read_elements(text, limits.events_max).map_err(|error| not_json(schema, &error))?;
    match count {
        0 => Err(Refusal::Empty { schema }),
        count if count > limits.events_max => Err(Refusal::TooMany {
            events_max: limits.events_max,
        }),
        _ => Ok(kept),
    }
}

fn not_json(schema: Schema, error: &serde_json::Error) -> Refusal {
    match error.classify() {
        serde_json::error::Category::Eof => Refusal::CutOff,
        serde_json::error::Category::Syntax
        | serde_json::error::Category::Data
        | serde_json::error::Category::Io => Refusal::not_json(schema, error.to_string()),
    }
}

fn expect_token(schema: Schema, expected: JsonToken, text: &str) -> Result<(), Refusal> {
    match json::first_token(text) {
        Some(actual) if actual == expected => Ok(()),
        Some(JsonToken::Undefined) => Err(Refusal::not_json(
            schema,
            "it does not begin with a JSON value".to_owned(),
        )),
        Some(actual) => Err(Refusal::Token {
            schema,
            expected,
            actual,
        }),
        None => Err(Refusal::CutOff),
    }
}

fn content_mode(content: &RequestContent<'_>) -> Result<ContentMode, Refusal> {
    let media_type = content.media_type();
    if content.is_binary() {
        let is_structured = media_type.starts_with("application/cloudevents");
        return if is_structured {
            Err(Refusal::ConflictingModes)
        } else {
            Ok(ContentMode::Binary)
        };
    }
    match media_type.as_str() {
        "application/cloudevents+json" | "application/json" => Ok(ContentMode::Structured),
        "application/cloudevents-batch+json" => Ok(ContentMode::Batch),
        _ => Err(Refusal::ContentType),
    }
}

/// The mode of a body sent to a namespace. The body itself decides between one event and several,
/// because clients send arrays under the content type of one event.
fn mode_by_body(content: &RequestContent<'_>, body: &[u8]) -> Result<ContentMode, Refusal> {
    if content.is_binary() {
        return content_mode(content);
    }
    Ok(if body.trim_ascii_start().starts_with(b"[") {
        ContentMode::Batch
    } else {
        ContentMode::Structured
    })
}

/// The offset of `part` in `object`. Both borrow from the same body.
fn offset_in(object: &str, part: &str) -> usize {
    part.as_ptr().addr() - object.as_ptr().addr()
}

/// A part of `body` without a copy; the body of an event in binary mode was written anew.
fn shared_part(body: &Bytes, part: &str) -> Bytes {
    let bytes = part.as_bytes();
    let is_inside = body.as_ptr_range().start <= bytes.as_ptr()
        && bytes.as_ptr_range().end <= body.as_ptr_range().end;
    if is_inside {
        body.slice_ref(bytes)
    } else {
        Bytes::copy_from_slice(bytes)
    }
}

/// The content of a string literal; other values as they are.
fn literal_content(value: &RawValue) -> &str {
    let text = value.get();
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}

/// The range of a string's content, whose literal has `len` bytes and begins at `start`.
fn literal_range(start: usize, len: usize) -> TextRange {
    unquoted_range(start + 1, len.saturating_sub(2))
}

/// The range of text without quotes. Empty text has no range: [`TextRange`] does not distinguish
/// empty from absent.
fn unquoted_range(start: usize, len: usize) -> TextRange {
    if len == 0 {
        return TextRange::default();
    }
    let number = |value: usize| u32::try_from(value).expect("a request is far smaller than 4 GiB");
    TextRange {
        start: number(start),
        len: number(len),
    }
}
