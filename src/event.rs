//! The words everybody shares: an event, its place in a topic's log, names and points in time.
//!
//! An [`Event`] is the *wire form* of one published event (the bytes that a subscriber of the topic's own schema
//! receives) with the places of the few strings that routing asks for. Nothing here parses JSON documents but
//! [`cloud_event`], reads a clock or knows a store: every other module may import this one, and this one imports none of
//! them.

mod cloud;
mod convert;
mod forms;

use std::{borrow::Cow, fmt, ops::Range, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
pub use cloud::cloud_event;
pub use forms::EventForms;
use serde::{Deserialize, Serialize};

/// A partition of a topic: the unit of ownership. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(pub u32);

/// An event subscription. Numbers are never used again, even where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SubscriptionId(pub u32);

/// A subscription's share in one partition: who has a cursor, owes events and is fenced as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionKey {
    /// The log it reads.
    pub partition: PartitionId,
    /// The subscription that reads it.
    pub subscription: SubscriptionId,
}

/// The place of an event in its partition's log. Growing, but not dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The first place in a log.
    pub const FIRST: Self = Self(1);

    /// From here on places are in no log: they are given to events that are kept apart for one subscription, and are read
    /// by nobody else.
    pub const APART: Self = Self(1 << 63);

    /// Whether it is such a place.
    pub fn is_apart(self) -> bool {
        self >= Self::APART
    }

    /// The place `by` further on.
    pub fn plus(self, by: u64) -> Self {
        Self(self.0 + by)
    }
}

/// What a subscription owes an event for. An obligation is (subscription, lane, sequence): an event that is replayed
/// while it is still owed is two obligations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u16);

impl Lane {
    /// Events as they are published.
    pub const LIVE: Self = Self(0);
    /// What gathered while the endpoint was away, worked off beside the live events.
    pub const BACKLOG: Self = Self(1);
    /// What outlived its time to live before it was read: given up by ranges, while the others send.
    pub const EXPIRY: Self = Self(2);
    /// What had to go unread because the topic's backlog reached its bound: given up likewise.
    pub const OVERFLOW: Self = Self(3);
    /// The first of the lanes that replay jobs and redrives are given, one each.
    pub const FIRST_JOB: Self = Self(16);

    /// Whether it is a job's: whatever an event is owed for there, it is not what its publisher asked for.
    pub fn is_job(self) -> bool {
        self >= Self::FIRST_JOB
    }
}

/// The life of an actor: a later one fences all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Which request of a subscription an answer belongs to, whichever life of its actor sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A point in time: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Later than everything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `by` later; [`Timestamp::NEVER`] where that is past all counting.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The point `by` earlier, not before the epoch.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long it is from `earlier` to here; zero where `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    fn civil(self) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_microsecond(i64::try_from(self.0).ok()?).ok()
    }

    /// Event Grid's own form: seven digits of a second and `Z`, as `2020-08-13T17:18:14.0265758Z`.
    pub fn to_event_grid(self) -> String {
        match self.civil() {
            Some(at) => at.strftime("%Y-%m-%dT%H:%M:%S.%6f0Z").to_string(),
            None => "never".to_owned(),
        }
    }

    /// Year, month, day and hour in UTC: the folders of a dead-letter file.
    pub fn hour(self) -> (i16, i8, i8, i8) {
        let at = self.civil().unwrap_or(jiff::Timestamp::MAX).to_zoned(jiff::tz::TimeZone::UTC);
        (at.year(), at.month(), at.day(), at.hour())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_event_grid())
    }
}

/// The schema that events are published or delivered in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Schema {
    /// Event Grid's own.
    #[default]
    #[serde(rename = "EventGridSchema")]
    EventGrid,
    /// CloudEvents 1.0 in JSON.
    #[serde(rename = "CloudEventSchemaV1_0")]
    CloudEvents,
    /// Whatever the topic's input mapping says.
    #[serde(rename = "CustomEventSchema", alias = "CustomInputSchema")]
    Custom,
}

impl Schema {
    /// The schemas that events published in this one can be delivered in; the first where a subscription names none.
    pub fn deliveries(self) -> &'static [Self] {
        match self {
            Self::EventGrid => &[Self::EventGrid, Self::CloudEvents],
            Self::CloudEvents => &[Self::CloudEvents],
            Self::Custom => &[Self::Custom, Self::EventGrid, Self::CloudEvents],
        }
    }
}

/// The name of a topic: as it was given, compared without case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    /// Takes a name that its reader has checked.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The form that names are looked up by.
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

/// Where a string stands in an event's chunk: the inside of a JSON string literal, quotes left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextRange {
    /// Its first byte.
    pub start: u32,
    /// How many bytes; 0 where the event has no such string.
    pub len: u32,
}

impl TextRange {
    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// The strings of an event that routing and headers ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRanges {
    /// The event's own id.
    pub id: TextRange,
    /// `eventType`, or CloudEvents' `type`.
    pub event_type: TextRange,
    /// `subject`.
    pub subject: TextRange,
    /// `dataVersion`; none in CloudEvents.
    pub data_version: TextRange,
    /// The topic's resource id, of a custom event only: the other wire forms say it themselves.
    pub topic: TextRange,
    /// `eventTime`, of a custom event that says it.
    pub event_time: TextRange,
    /// Which of a domain's topics the event is for: a name only, which may lie inside of a resource id. None outside of
    /// domains.
    pub domain_topic: TextRange,
    /// The place of its publishing in a trace, where that is recorded. It stands beside the wire form, and is no JSON.
    pub trace: TextRange,
}

impl EventRanges {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// How many an event has that is not traced: all but the last.
    pub const UNTRACED: usize = Self::COUNT - 1;

    /// All of them, in the order of a chunk's table.
    pub fn all(&self) -> [TextRange; Self::COUNT] {
        let Self { id, event_type, subject, data_version, topic, event_time, domain_topic, trace } = *self;
        [id, event_type, subject, data_version, topic, event_time, domain_topic, trace]
    }

    /// The same again, from that order.
    pub fn of(all: [TextRange; Self::COUNT]) -> Self {
        let [id, event_type, subject, data_version, topic, event_time, domain_topic, trace] = all;
        Self { id, event_type, subject, data_version, topic, event_time, domain_topic, trace }
    }
}

/// The strings of an event as they stand: the insides of JSON string literals, empty where there is none.
#[derive(Clone, Copy, Debug)]
pub struct EventStrings<'a> {
    /// The event's own id.
    pub id: &'a [u8],
    /// `eventType`.
    pub event_type: &'a [u8],
    /// `subject`.
    pub subject: &'a [u8],
    /// `dataVersion`.
    pub data_version: &'a [u8],
    /// The topic's resource id, of a custom event only.
    pub topic: &'a [u8],
    /// `eventTime`, of a custom event that says it.
    pub event_time: &'a [u8],
}

/// One event of a topic's log.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its place in the log.
    pub seq: Seq,
    /// When the journal took it: time to live, retention and replay count from here.
    pub appended: Timestamp,
    /// The schema of the wire form.
    pub schema: Schema,
    chunk: Bytes,
    wire: TextRange,
    spans: EventRanges,
    /// Shared with the events beside it in its chunk, and its place among these.
    forms: Option<(Arc<EventForms>, u32)>,
}

impl Event {
    /// An event that lies in `chunk`, its wire form at `wire`.
    ///
    /// # Panics
    /// Where a span lies outside of the chunk: whoever decodes a chunk checks first.
    pub fn new(
        seq: Seq,
        appended: Timestamp,
        schema: Schema,
        chunk: Bytes,
        wire: TextRange,
        spans: EventRanges,
    ) -> Self {
        for span in spans.all().into_iter().chain([wire]) {
            assert!(span.range().end <= chunk.len(), "{span:?} lies outside of a chunk of {} bytes", chunk.len());
        }
        Self { seq, appended, schema, chunk, wire, spans, forms: None }
    }

    /// The event at `index` of the chunk whose forms these are.
    #[must_use]
    pub fn sharing(self, forms: Arc<EventForms>, index: u32) -> Self {
        Self { forms: Some((forms, index)), ..self }
    }

    /// The event in another schema, as `make` makes it where nobody has asked before.
    pub fn form<E>(&self, schema: Schema, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        match &self.forms {
            Some((forms, index)) => forms.get(*index as usize, schema, make),
            None => make(),
        }
    }

    /// The bytes that a subscriber of the topic's own schema receives.
    pub fn wire(&self) -> Bytes {
        self.chunk.slice(self.wire.range())
    }

    /// The same, where they are only looked at.
    pub fn wire_bytes(&self) -> &[u8] {
        &self.chunk[self.wire.range()]
    }

    /// How many bytes the wire form has.
    pub fn wire_len(&self) -> usize {
        self.wire.len as usize
    }

    /// The event's own id.
    pub fn id(&self) -> Cow<'_, str> {
        self.text(self.spans.id)
    }

    /// `eventType`, or CloudEvents' `type`.
    pub fn event_type(&self) -> Cow<'_, str> {
        self.text(self.spans.event_type)
    }

    /// `subject`; empty where there is none.
    pub fn subject(&self) -> Cow<'_, str> {
        self.text(self.spans.subject)
    }

    /// `dataVersion`; empty where there is none.
    pub fn data_version(&self) -> Cow<'_, str> {
        self.text(self.spans.data_version)
    }

    /// When it happened, as a custom event says; [`None`] where it says nothing, and of events of other schemas.
    pub fn event_time(&self) -> Option<Cow<'_, str>> {
        (self.spans.event_time.len > 0).then(|| self.text(self.spans.event_time))
    }

    /// Which of a domain's topics it is for, compared without case; empty outside of domains.
    pub fn domain_topic(&self) -> Cow<'_, str> {
        self.text(self.spans.domain_topic)
    }

    /// The place of its publishing in a trace, as whoever published it wrote it down; [`None`] where it was not traced.
    pub fn trace(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.chunk[self.spans.trace.range()]).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// Its strings as they stand, to be copied into another schema's form.
    pub fn literals(&self) -> EventStrings<'_> {
        let [id, event_type, subject, data_version, topic, event_time, _, _] =
            self.spans.all().map(|span| &self.chunk[span.range()]);
        EventStrings { id, event_type, subject, data_version, topic, event_time }
    }

    /// Appends the event to `out`: its wire form, and then the strings that do not stand in it. Returns where the wire
    /// form ends and where in `out` the strings stand.
    pub fn copy_to(&self, out: &mut BytesMut) -> (usize, EventRanges) {
        let start = out.len();
        out.extend_from_slice(&self.chunk[self.wire.range()]);
        let wire_end = out.len();
        let mut moved = |span: TextRange| {
            let within = self.wire.start <= span.start && span.range().end <= self.wire.range().end;
            let at = if within { start + (span.start - self.wire.start) as usize } else { out.len() };
            if !within && span.len > 0 {
                out.extend_from_slice(&self.chunk[span.range()]);
            }
            TextRange { start: at as u32, len: span.len }
        };
        let spans = EventRanges::of(self.spans.all().map(&mut moved));
        (wire_end, spans)
    }

    /// The same event in bytes of its own, without the rest of its chunk.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut own = BytesMut::with_capacity(self.wire_len());
        let (wire_end, spans) = self.copy_to(&mut own);
        let wire = TextRange { start: 0, len: wire_end as u32 };
        Self::new(self.seq, self.appended, self.schema, own.freeze(), wire, spans)
    }

    fn text(&self, span: TextRange) -> Cow<'_, str> {
        text(&self.chunk[span.range()])
    }
}

/// What the inside of a JSON string literal says, unescaped where it must be. What is not JSON after all is given as it
/// stands, so that damage shows instead of hiding.
pub(crate) fn text(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw).map_or_else(|_| String::from_utf8_lossy(raw), Cow::Borrowed);
    }
    let literal = [b"\"", raw, b"\""].concat();
    match serde_json::from_slice::<String>(&literal) {
        Ok(text) => Cow::Owned(text),
        Err(_) => String::from_utf8_lossy(raw),
    }
}
