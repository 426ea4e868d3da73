//! Basic types: events, their positions in a topic's log, names and points in time.
//!
//! An [`Event`] is the *wire form* of one published event (the bytes that a subscriber with the
//! topic's own schema receives) and the positions of the few strings needed for routing.
//!
//! What it does not do: it reads no clock and no store, and parses no JSON documents except in
//! [`cloud_event`]. Every crate may import this one; it imports none.

#![warn(missing_docs)]

mod block;
pub mod chunk;
mod cloud;
#[expect(
    missing_docs,
    reason = "the methods are named after the types that they read"
)]
pub mod codec;
mod convert;
mod forms;
mod id_map;
mod instant;
mod request_map;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

pub use block::{EventBlock, EventParts, EventTable};
pub use block::{EventRanges, TextRange};
use bytes::{Bytes, BytesMut};
pub use cloud::{cloud_event, is_rfc3339};
pub use convert::DeliveredBytes;
pub use id_map::IdMap;
pub use instant::{instant_at, parse_instant, parse_instant_or_utc};
pub use request_map::RequestMap;
use serde::{Deserialize, Serialize};

/// A partition of a topic: the unit of ownership. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(pub u32);

/// An event subscription. Numbers are never reused, even if a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SubscriptionId(pub u32);

/// A subscription in one partition: the unit with a cursor, pending deliveries and fencing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionKey {
    /// The partition whose log it reads.
    pub partition: PartitionId,
    /// Its number, the same in all partitions of a topic.
    pub subscription: SubscriptionId,
}

/// The position of an event in its partition's log. Positions ascend, with gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The first position in a log.
    pub const FIRST: Self = Self(1);

    /// Positions from here on are in no log. They are given to events that are stored for a single
    /// subscription.
    pub const APART: Self = Self(1 << 63);

    /// Whether the event is stored for a single subscription.
    pub fn is_apart(self) -> bool {
        self >= Self::APART
    }

    /// The position `by` further on.
    pub fn plus(self, by: u64) -> Self {
        Self(self.0 + by)
    }
}

/// A lane of a subscription. A pending delivery is identified by (subscription, lane, sequence): an
/// event that is replayed while it is still pending has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u16);

impl Lane {
    /// Newly published events.
    pub const LIVE: Self = Self(0);
    /// The backlog of an unavailable endpoint, sent next to live events.
    pub const BACKLOG: Self = Self(1);
    /// Events that expired before they were read: given up by ranges.
    pub const EXPIRY: Self = Self(2);
    /// Events dropped unread because the topic's backlog reached its limit: given up by ranges.
    pub const OVERFLOW: Self = Self(3);
    /// Events published shortly before an endpoint was found to be back: sent before the backlog.
    pub const RECENT: Self = Self(4);
    /// The first lane of jobs (replays and redrives), which have one each.
    pub const FIRST_JOB: Self = Self(16);

    /// Whether the lane belongs to a job.
    pub fn is_job(self) -> bool {
        self >= Self::FIRST_JOB
    }
}

/// The incarnation of an actor. A later one fences all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A request of a subscription, unique across incarnations of its actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A point in time: microseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Later than any event.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time `by` later, at most [`Timestamp::NEVER`].
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// The time `by` earlier, at least the epoch.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// The duration since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    fn to_civil(self) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_microsecond(i64::try_from(self.0).ok()?).ok()
    }

    /// Event Grid's format: seven digits of a second and `Z`, as `2020-08-13T17:18:14.0265758Z`.
    pub fn to_event_grid(self) -> String {
        match self.to_civil() {
            Some(at) => at.strftime("%Y-%m-%dT%H:%M:%S.%6f0Z").to_string(),
            None => "never".to_owned(),
        }
    }

    /// Year, month, day and hour in UTC: the folders of a dead-letter file.
    pub fn utc_hour(self) -> (i16, i8, i8, i8) {
        let at = self
            .to_civil()
            .unwrap_or(jiff::Timestamp::MAX)
            .to_zoned(jiff::tz::TimeZone::UTC);
        (at.year(), at.month(), at.day(), at.hour())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_event_grid())
    }
}

/// A point in time by the machine's wall clock, in microseconds since 1970-01-01T00:00:00Z: for
/// whatever other parties compare with their own clocks, such as signatures, tokens and dates in
/// headers.
///
/// A type of its own, because a [`Timestamp`] follows the wall clock slowly: after a step of two
/// hours it is wrong for 40 hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl WallTime {
    /// The time `by` later, at most [`Timestamp::NEVER`].
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.to_timestamp().after(by).0)
    }

    /// The duration since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.to_timestamp().since(earlier.to_timestamp())
    }

    /// The time since 1970-01-01T00:00:00Z.
    pub fn since_epoch(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// By how many seconds it is ahead of `time`; negative if it is behind.
    pub fn seconds_ahead_of(self, time: Timestamp) -> f64 {
        self.to_timestamp().since(time).as_secs_f64()
            - time.since(self.to_timestamp()).as_secs_f64()
    }

    /// The time for records and for comparisons with times that other parties have set, such as the
    /// expiry of a token.
    pub fn to_timestamp(self) -> Timestamp {
        Timestamp(self.0)
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_timestamp().fmt(f)
    }
}

/// The schema of published or delivered events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Schema {
    /// Event Grid's own schema, with `eventType` and `dataVersion`.
    #[default]
    #[serde(rename = "EventGridSchema")]
    EventGrid,
    /// CloudEvents 1.0 in JSON.
    #[serde(rename = "CloudEventSchemaV1_0")]
    CloudEvents,
    /// Custom input, described by the topic's input mapping.
    #[serde(rename = "CustomEventSchema", alias = "CustomInputSchema")]
    Custom,
}

impl Schema {
    /// The delivery schemas for events published in this one; the first is the default.
    pub fn delivery_schemas(self) -> &'static [Self] {
        match self {
            Self::EventGrid => &[Self::EventGrid, Self::CloudEvents],
            Self::CloudEvents => &[Self::CloudEvents],
            Self::Custom => &[Self::Custom, Self::EventGrid, Self::CloudEvents],
        }
    }
}

/// The name of a topic, stored as given and compared without case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    /// Creates a name that was checked before.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// As the creator of the topic spelled it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// In lower case, as ASCII: the same for names that differ in case only.
    pub fn key(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Name {}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The strings of an event as stored: the contents of JSON string literals, empty if missing.
#[derive(Clone, Copy, Debug)]
pub struct EventStrings<'a> {
    /// `id`, which all schemas require.
    pub id: &'a [u8],
    /// `eventType`, or CloudEvents' `type`.
    pub event_type: &'a [u8],
    /// `subject`, which CloudEvents may omit.
    pub subject: &'a [u8],
    /// `dataVersion`; none in CloudEvents.
    pub data_version: &'a [u8],
    /// The topic's resource id, for custom events only.
    pub topic: &'a [u8],
    /// `eventTime`, if a custom event has it.
    pub event_time: &'a [u8],
}

/// One event of a topic's log. It shares its bytes with the other events of its chunk, so copying
/// it copies none.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its position in the log.
    pub seq: Seq,
    /// When the journal appended it. Time to live, retention and replay count from here.
    pub appended: Timestamp,
    /// The schema of the wire form.
    pub schema: Schema,
    /// Its index in the block.
    index: u32,
    block: Arc<EventBlock>,
    /// What is delivered instead of it, once that is known.
    transformation: Option<Arc<Transformation>>,
}

/// What a subscription's transformation makes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transformation {
    /// What is delivered instead of the event.
    Succeeded(Transformed),
    /// Why there is nothing to deliver.
    Failed(String),
}

/// The result of a subscription's transformation: what is delivered instead of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transformed {
    /// The JSON value that takes the event's place. [`None`]: the event itself.
    pub body: Option<Bytes>,
    /// The HTTP method, if it is not `POST`.
    pub method: Option<String>,
    /// Appended to the path of the endpoint; percent-encoded.
    pub path_suffix: Option<String>,
    /// Header fields that it adds to the request.
    pub headers: Vec<(String, String)>,
}

impl Transformed {
    /// The memory that it takes, approximately.
    pub fn bytes(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        self.body.as_ref().map_or(0, Bytes::len)
            + self.path_suffix.as_ref().map_or(0, String::len)
            + headers
    }
}

impl Event {
    /// An event in `chunk` with its wire form at `wire`.
    ///
    /// # Panics
    /// A range is outside of the chunk: decoders check before.
    pub fn new(
        seq: Seq,
        appended: Timestamp,
        schema: Schema,
        chunk: Bytes,
        wire: TextRange,
        ranges: EventRanges,
    ) -> Self {
        let end = ranges
            .all_ranges()
            .iter()
            .fold(wire.range().end, |end, range| end.max(range.range().end));
        assert!(
            end <= chunk.len(),
            "an event ends at {end}, outside of a chunk of {} bytes",
            chunk.len()
        );
        let block = EventBlock::new(chunk, EventTable::new(EventParts { wire, ranges }));
        Self {
            seq,
            appended,
            schema,
            index: 0,
            block: Arc::new(block),
            transformation: None,
        }
    }

    /// The events of `block`, from `first` on without gaps.
    pub fn from_block(
        first: Seq,
        appended: Timestamp,
        schema: Schema,
        block: EventBlock,
    ) -> Vec<Self> {
        let count = block.count() as u32;
        let block = Arc::new(block);
        (0..count)
            .map(|index| Self {
                seq: first.plus(u64::from(index)),
                appended,
                schema,
                index,
                block: Arc::clone(&block),
                transformation: None,
            })
            .collect()
    }

    /// The event with what a transformation makes of it.
    #[must_use]
    pub fn with_transformation(self, transformation: Transformation) -> Self {
        Self {
            transformation: Some(Arc::new(transformation)),
            ..self
        }
    }

    /// What a transformation makes of the event; [`None`] without one, or before it.
    pub fn transformation(&self) -> Option<&Transformation> {
        self.transformation.as_deref()
    }

    /// What is delivered instead of the event.
    pub fn transformed(&self) -> Option<&Transformed> {
        match self.transformation()? {
            Transformation::Succeeded(transformed) => Some(transformed),
            Transformation::Failed(_) => None,
        }
    }

    /// The memory for the event and for what is delivered instead of it, approximately.
    pub fn memory_len(&self) -> usize {
        self.wire_len() + self.transformed().map_or(0, Transformed::bytes)
    }

    /// The event in another schema, converted by `make` on first use.
    pub fn convert_once<E>(
        &self,
        schema: Schema,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        self.block.convert_once(self.index, schema, make)
    }

    /// The bytes that a subscriber with the topic's own schema receives.
    pub fn to_wire_bytes(&self) -> Bytes {
        self.block.bytes().slice(self.parts().wire.range())
    }

    /// As [`Event::to_wire_bytes`], without a reference to the chunk.
    pub fn wire_bytes(&self) -> &[u8] {
        self.block.slice_of(self.parts().wire)
    }

    /// Length of the wire form in bytes.
    pub fn wire_len(&self) -> usize {
        self.parts().wire.len as usize
    }

    /// `id`, copied only if it has JSON escapes.
    pub fn id(&self) -> Cow<'_, str> {
        self.unescaped_text(self.parts().ranges.id)
    }

    /// `eventType`, or CloudEvents' `type`.
    pub fn event_type(&self) -> Cow<'_, str> {
        self.unescaped_text(self.parts().ranges.event_type)
    }

    /// `subject`; empty if missing.
    pub fn subject(&self) -> Cow<'_, str> {
        self.unescaped_text(self.parts().ranges.subject)
    }

    /// `eventType`, or CloudEvents' `type`, and `subject` as stored: the contents of JSON string
    /// literals.
    pub fn type_and_subject_literals(&self) -> (&[u8], &[u8]) {
        let ranges = &self.parts().ranges;
        (
            self.block.slice_of(ranges.event_type),
            self.block.slice_of(ranges.subject),
        )
    }

    /// `dataVersion`; empty if missing.
    pub fn data_version(&self) -> Cow<'_, str> {
        self.unescaped_text(self.parts().ranges.data_version)
    }

    /// `eventTime` of a custom event; [`None`] if it has none, and for events of other schemas.
    pub fn event_time(&self) -> Option<Cow<'_, str>> {
        (self.parts().ranges.event_time.len > 0)
            .then(|| self.unescaped_text(self.parts().ranges.event_time))
    }

    /// The domain topic, compared without case; empty outside of domains.
    pub fn domain_topic(&self) -> Cow<'_, str> {
        self.unescaped_text(self.parts().ranges.domain_topic)
    }

    /// The trace context of the publish request; [`None`] if it was not traced.
    pub fn trace(&self) -> Option<&str> {
        let text = std::str::from_utf8(self.block.slice_of(self.parts().ranges.trace)).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// Its strings as stored, for copying into another schema's form.
    pub fn stored_strings(&self) -> EventStrings<'_> {
        let [
            id,
            event_type,
            subject,
            data_version,
            topic,
            event_time,
            _,
            _,
        ] = self
            .parts()
            .ranges
            .all_ranges()
            .map(|range| self.block.slice_of(range));
        EventStrings {
            id,
            event_type,
            subject,
            data_version,
            topic,
            event_time,
        }
    }

    /// Appends the wire form to `out`, and then the strings that are not in it. Returns the end of
    /// the wire form and the ranges of the strings in `out`.
    pub fn copy_to(&self, out: &mut BytesMut) -> (usize, EventRanges) {
        let start = out.len();
        let EventParts { wire, ranges } = *self.parts();
        out.extend_from_slice(self.block.slice_of(wire));
        let wire_end = out.len();
        let mut move_range = |range: TextRange| {
            let within = wire.start <= range.start && range.range().end <= wire.range().end;
            let at = if within {
                start + (range.start - wire.start) as usize
            } else {
                out.len()
            };
            if !within && range.len > 0 {
                out.extend_from_slice(self.block.slice_of(range));
            }
            TextRange {
                start: at as u32,
                len: range.len,
            }
        };
        let ranges = EventRanges::from_ranges(ranges.all_ranges().map(&mut move_range));
        (wire_end, ranges)
    }

    /// The event in memory of its own, without the rest of its chunk, and with its transformation.
    /// Converted forms are made again.
    #[must_use]
    pub fn detach_from_chunk(&self) -> Self {
        let mut own = BytesMut::with_capacity(self.wire_len());
        let (wire_end, ranges) = self.copy_to(&mut own);
        let wire = TextRange {
            start: 0,
            len: wire_end as u32,
        };
        let event = Self::new(
            self.seq,
            self.appended,
            self.schema,
            own.freeze(),
            wire,
            ranges,
        );
        Self {
            transformation: self.transformation.clone(),
            ..event
        }
    }

    fn parts(&self) -> &EventParts {
        self.block.parts(self.index)
    }

    fn unescaped_text(&self, range: TextRange) -> Cow<'_, str> {
        unescape_text(self.block.slice_of(range))
    }
}

/// Unescapes the contents of a JSON string literal. Invalid contents are returned as they are, so
/// that damage is visible.
pub fn unescape_text(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw)
            .map_or_else(|_| String::from_utf8_lossy(raw), Cow::Borrowed);
    }
    let literal = [b"\"", raw, b"\""].concat();
    match serde_json::from_slice::<String>(&literal) {
        Ok(text) => Cow::Owned(text),
        Err(_) => String::from_utf8_lossy(raw),
    }
}
