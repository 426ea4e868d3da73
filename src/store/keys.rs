//! The bytes of keys.
//!
//! ```text
//! meta    kind | what 1 | name
//! log     kind | partition 4 | first sequence 8
//! cursor  kind | partition 4 | subscription 4
//! owed    kind | partition 4 | sequence 8 | subscription 4 | lane 2            (Family::Pending)
//! due     kind | partition 4 | subscription 4 | due 8 | lane 2 | sequence 8
//! held    kind | partition 4 | sequence 8
//! pin     kind | partition 4 | sequence 8 | subscription 4 | lane 2
//! dead    kind | partition 4 | subscription 4 | due 8 | sequence 8 | lane 2
//! ledger  kind | partition 4 | subscription 4 | first sequence 8 | lane 2 | when 8 | attempt 4 | what 1
//!         kind | partition 4 | subscription 4 | when 8 | first sequence 8 | lane 2 | attempt 4 | what 1
//! excerpt kind | partition 4 | subscription 4 | minute 4 | status 2 | hash 8
//! ids     kind | partition 4 | block 8
//! ```
//!
//! Invariants:
//! - All numbers are big-endian, so keys sort like their fields.
//! - Keys of a kind have the same length, except those of `meta`, which end with a name.
//! - No kind is 255, so every range has an upper bound.
//! - The kind comes first although each family except the ledger has only one: a key without its family, in a file or a
//!   dump, identifies itself.
//!
//! Ranges are half open, as [`store::Store::scan`](crate::store::Store::scan) takes them. A parser returns `None` for a
//! key that is too short, too long or of another kind.

use std::ops::Range;

use super::codec::RecordReader;
use crate::{
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    policy::record::{ExcerptKey, LEDGER_BLOCK},
    store::Family,
};

/// Prefix of the names of jobs that remove the records of a deleted subscription.
const REAP: &str = "reap";

/// Prefix of the names of jobs that have ended.
const ENDED: &str = "ended";

/// The first byte of every key. A byte is never reused, even if its kind is removed: 9 was a form of ledger lines that
/// neither time nor block could find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyKind {
    /// [`Family::Meta`].
    Meta = 1,
    /// [`Family::Log`].
    Log = 2,
    /// [`Family::Cursor`].
    Cursor = 3,
    /// [`Family::Pending`].
    Pending = 4,
    /// [`Family::Due`].
    Due = 5,
    /// [`Family::Held`].
    Held = 6,
    /// [`Family::Pin`].
    Pin = 7,
    /// [`Family::Dead`].
    Dead = 8,
    /// [`Family::Ledger`], by event.
    Ledger = 10,
    /// [`Family::Ledger`], by time.
    LedgerByTime = 11,
    /// [`Family::Excerpt`].
    Excerpt = 12,
    /// [`Family::Ids`].
    Ids = 13,
}

impl KeyKind {
    /// The kind of a family's keys; for the ledger, the kind that is ordered by event.
    pub fn of(family: Family) -> Self {
        match family {
            Family::Meta => Self::Meta,
            Family::Log => Self::Log,
            Family::Cursor => Self::Cursor,
            Family::Pending => Self::Pending,
            Family::Due => Self::Due,
            Family::Held => Self::Held,
            Family::Pin => Self::Pin,
            Family::Dead => Self::Dead,
            Family::Ledger => Self::Ledger,
            Family::Excerpt => Self::Excerpt,
            Family::Ids => Self::Ids,
        }
    }
}

/// The second byte of a key of `meta`. A byte is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MetaKind {
    /// The version of the store's format.
    Format = 1,
    /// A topic; named by its name.
    Topic = 2,
    /// An event subscription; named by the names of its topic and its own.
    Subscription = 3,
    /// The counters from which ids are assigned.
    Numbers = 4,
    /// The writer's state of a partition; named by its number.
    Floor = 5,
    /// The dead-letter actor's totals and the file that it is writing.
    DeadLetters = 6,
    /// A replay or redrive that has ended, or the job that removes the records of a deleted subscription. Running
    /// replays and redrives are in their subscription's cursor.
    Job = 7,
    /// A subscription whose endpoint is not validated yet; named by the names of its topic and its own.
    Proposal = 8,
    /// A topic of a domain; named by the names of both.
    DomainTopic = 9,
    /// A version of a subscription's filter; named by partition, subscription and version.
    Filter = 10,
    /// The progress of a redrive; named by its subscription and its lane.
    Redrive = 11,
    /// A namespace; named by its name.
    Namespace = 12,
    /// A secret of the server; named by its purpose.
    Secret = 13,
    /// Events that an operator accepted as lost; named by partition and first sequence.
    Loss = 20,
}

impl MetaKind {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::Format,
        Self::Topic,
        Self::Subscription,
        Self::Numbers,
        Self::Floor,
        Self::DeadLetters,
        Self::Job,
        Self::Proposal,
        Self::DomainTopic,
        Self::Filter,
        Self::Redrive,
        Self::Namespace,
        Self::Secret,
        Self::Loss,
    ];
}

/// Builds a key. Each method appends one field.
struct KeyBuilder(Vec<u8>);

impl KeyBuilder {
    /// 40 bytes: longer than every key except those of `meta`, so that a key is allocated once.
    fn new(kind: KeyKind) -> Self {
        let mut key = Vec::with_capacity(40);
        key.push(kind as u8);
        Self(key)
    }

    fn word8(mut self, word: u8) -> Self {
        self.0.push(word);
        self
    }

    fn lane(mut self, lane: Lane) -> Self {
        self.0.extend_from_slice(&lane.0.to_be_bytes());
        self
    }

    fn word32(mut self, word: u32) -> Self {
        self.0.extend_from_slice(&word.to_be_bytes());
        self
    }

    fn word64(mut self, word: u64) -> Self {
        self.0.extend_from_slice(&word.to_be_bytes());
        self
    }

    fn subscription_key(self, subscription_key: SubscriptionKey) -> Self {
        self.word32(subscription_key.partition.0).word32(subscription_key.subscription.0)
    }

    /// The range of all keys that begin with this one.
    fn prefix(self) -> Range<Vec<u8>> {
        let mut end = self.0.clone();
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        // The kind is the first byte and never 255: something is left.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        self.0..end
    }
}

/// Reads a key after its kind.
fn body(key: &[u8], kind: KeyKind) -> Option<RecordReader<'_>> {
    let mut reader = RecordReader::new(key);
    (reader.u8()? == kind as u8).then_some(reader)
}

fn read_subscription_key(reader: &mut RecordReader<'_>) -> Option<SubscriptionKey> {
    Some(SubscriptionKey { partition: PartitionId(reader.u32()?), subscription: SubscriptionId(reader.u32()?) })
}

/// Returns `parsed` if nothing follows it.
fn whole<T>(reader: &RecordReader<'_>, parsed: T) -> Option<T> {
    reader.is_empty().then_some(parsed)
}

/// The range of a family's keys.
pub fn all(family: Family) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::of(family)).prefix()
}

/// The range of all keys of any kind.
pub fn everything() -> Range<Vec<u8>> {
    vec![0]..vec![u8::MAX]
}

/// The key of a record in `meta`.
pub fn meta(kind: MetaKind, name: &[u8]) -> Vec<u8> {
    let mut key = KeyBuilder::new(KeyKind::Meta).word8(kind as u8).0;
    key.extend_from_slice(name);
    key
}

/// Parses a key of [`meta`].
pub fn parse_meta(key: &[u8]) -> Option<(MetaKind, &[u8])> {
    let (kind, name) = key.strip_prefix(&[KeyKind::Meta as u8])?.split_first()?;
    let kind = MetaKind::ALL.into_iter().find(|known| *known as u8 == *kind)?;
    Some((kind, name))
}

/// The range of one kind in `meta`.
pub fn meta_of(kind: MetaKind) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Meta).word8(kind as u8).prefix()
}

/// The key of the writer's state of a partition, in `meta`.
pub fn floor(partition: PartitionId) -> Vec<u8> {
    meta(MetaKind::Floor, &partition.0.to_be_bytes())
}

/// Parses a key of [`floor`].
pub fn parse_floor(key: &[u8]) -> Option<PartitionId> {
    let (kind, name) = parse_meta(key)?;
    let name = name.try_into().ok()?;
    (kind == MetaKind::Floor).then_some(PartitionId(u32::from_be_bytes(name)))
}

/// The key of a range of events that an operator accepted as lost, in `meta`.
pub fn loss(partition: PartitionId, first: Seq) -> Vec<u8> {
    let mut name = partition.0.to_be_bytes().to_vec();
    name.extend_from_slice(&first.0.to_be_bytes());
    meta(MetaKind::Loss, &name)
}

/// The value of [`loss`]: the sequence after the last lost event.
pub fn loss_value(end: Seq) -> Vec<u8> {
    end.0.to_be_bytes().to_vec()
}

/// Parses [`loss`] and [`loss_value`].
pub fn parse_loss(key: &[u8], value: &[u8]) -> Option<(PartitionId, Seq, Seq)> {
    let (kind, name) = parse_meta(key)?;
    let (mut name, mut value) = (RecordReader::new(name), RecordReader::new(value));
    let parsed = (PartitionId(name.u32()?), Seq(name.u64()?), Seq(value.u64()?));
    (kind == MetaKind::Loss && value.is_empty()).then_some(())?;
    whole(&name, parsed)
}

/// The key of a chunk of the log: the sequence of its first event.
pub fn log(partition: PartitionId, first: Seq) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Log).word32(partition.0).word64(first.0).0
}

/// Parses a key of [`log`].
pub fn parse_log(key: &[u8]) -> Option<(PartitionId, Seq)> {
    let mut reader = body(key, KeyKind::Log)?;
    let parsed = (PartitionId(reader.u32()?), Seq(reader.u64()?));
    whole(&reader, parsed)
}

/// The key of the job that removes the records of a deleted subscription.
pub fn reap(subscription_key: SubscriptionKey) -> Vec<u8> {
    meta(
        MetaKind::Job,
        format!("{REAP}/{}/{}", subscription_key.partition.0, subscription_key.subscription.0).as_bytes(),
    )
}

/// Parses a key of [`reap`].
pub fn parse_reap(key: &[u8]) -> Option<SubscriptionKey> {
    let (_, name) = parse_meta(key)?;
    let mut parts = std::str::from_utf8(name).ok()?.split('/');
    if parts.next() != Some(REAP) {
        return None;
    }
    let mut number = || parts.next()?.parse().ok();
    Some(SubscriptionKey { partition: PartitionId(number()?), subscription: SubscriptionId(number()?) })
}

/// The range of the jobs that remove the records of deleted subscriptions.
pub fn reaps() -> Range<Vec<u8>> {
    KeyBuilder(meta(MetaKind::Job, format!("{REAP}/").as_bytes())).prefix()
}

/// The name of the totals of a subscription's dead letters.
pub fn dead_letters_name(subscription_key: SubscriptionKey) -> String {
    format!("{}/{}", subscription_key.partition.0, subscription_key.subscription.0)
}

/// The key of the totals of a subscription's dead letters.
pub fn dead_letters(subscription_key: SubscriptionKey) -> Vec<u8> {
    meta(MetaKind::DeadLetters, dead_letters_name(subscription_key).as_bytes())
}

/// The name of the progress record of a redrive.
pub fn redrive_name(subscription_key: SubscriptionKey, lane: Lane) -> String {
    format!("{}/{}/{}", subscription_key.partition.0, subscription_key.subscription.0, lane.0)
}

/// Parses a name of [`redrive_name`].
pub fn parse_redrive_name(name: &str) -> Option<(SubscriptionKey, Lane)> {
    let (partition, rest) = name.split_once('/')?;
    let (subscription, lane) = rest.split_once('/')?;
    let partition = PartitionId(partition.parse().ok()?);
    let subscription_key = SubscriptionKey { partition, subscription: SubscriptionId(subscription.parse().ok()?) };
    Some((subscription_key, Lane(lane.parse().ok()?)))
}

/// The key of the progress record of a redrive.
pub fn redrive(subscription_key: SubscriptionKey, lane: Lane) -> Vec<u8> {
    meta(MetaKind::Redrive, redrive_name(subscription_key, lane).as_bytes())
}

/// The key of a job that has ended.
pub fn ended_job(subscription_key: SubscriptionKey, lane: Lane) -> Vec<u8> {
    // Zero-padded, so that names sort like lanes.
    let mut key = ended_jobs_of(subscription_key).start;
    key.extend_from_slice(format!("{:05}", lane.0).as_bytes());
    key
}

/// The range of a subscription's jobs that have ended.
pub fn ended_jobs_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    let name = format!("{ENDED}/{}/{}/", subscription_key.partition.0, subscription_key.subscription.0);
    KeyBuilder(meta(MetaKind::Job, name.as_bytes())).prefix()
}

/// The range of a partition's log.
pub fn log_of(partition: PartitionId) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Log).word32(partition.0).prefix()
}

/// The range of the chunks that begin at `seq` or later.
pub fn log_from(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    log(partition, seq)..log_of(partition).end
}

/// The range of the chunks that begin below `seq`. The last of them may reach over it.
pub fn log_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    log_of(partition).start..log(partition, seq)
}

/// The key of a cursor.
pub fn cursor(subscription_key: SubscriptionKey) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Cursor).subscription_key(subscription_key).0
}

/// Parses a key of [`cursor`].
pub fn parse_cursor(key: &[u8]) -> Option<SubscriptionKey> {
    let mut reader = body(key, KeyKind::Cursor)?;
    let parsed = read_subscription_key(&mut reader)?;
    whole(&reader, parsed)
}

/// The range of all cursors.
pub fn cursors() -> Range<Vec<u8>> {
    all(Family::Cursor)
}

/// The range of the cursors in a partition.
pub fn cursors_of(partition: PartitionId) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Cursor).word32(partition.0).prefix()
}

/// A key that is ordered by event: that of `pending` and of `pin`.
fn by_event(kind: KeyKind, partition: PartitionId, seq: Seq, subscription: SubscriptionId, lane: Lane) -> Vec<u8> {
    KeyBuilder::new(kind).word32(partition.0).word64(seq.0).word32(subscription.0).lane(lane).0
}

fn parse_by_event(key: &[u8], kind: KeyKind) -> Option<(PartitionId, Seq, SubscriptionId, Lane)> {
    let mut reader = body(key, kind)?;
    let (partition, seq) = (PartitionId(reader.u32()?), Seq(reader.u64()?));
    let parsed = (partition, seq, SubscriptionId(reader.u32()?), Lane(reader.u16()?));
    whole(&reader, parsed)
}

fn below(kind: KeyKind, partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    KeyBuilder::new(kind).word32(partition.0).0..KeyBuilder::new(kind).word32(partition.0).word64(seq.0).0
}

/// The key of a pending delivery.
pub fn pending(partition: PartitionId, seq: Seq, subscription: SubscriptionId, lane: Lane) -> Vec<u8> {
    by_event(KeyKind::Pending, partition, seq, subscription, lane)
}

/// Parses a key of [`pending`].
pub fn parse_pending(key: &[u8]) -> Option<(PartitionId, Seq, SubscriptionId, Lane)> {
    parse_by_event(key, KeyKind::Pending)
}

/// The range of the pending deliveries of an event.
pub fn pending_of_event(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Pending).word32(partition.0).word64(seq.0).prefix()
}

/// The range of the pending deliveries of events below `seq`.
pub fn pending_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    below(KeyKind::Pending, partition, seq)
}

/// The key of the due time of a pending delivery.
pub fn due(subscription_key: SubscriptionKey, due: Timestamp, lane: Lane, seq: Seq) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Due).subscription_key(subscription_key).word64(due.0).lane(lane).word64(seq.0).0
}

/// Parses a key of [`due`].
pub fn parse_due(key: &[u8]) -> Option<(SubscriptionKey, Timestamp, Lane, Seq)> {
    let mut reader = body(key, KeyKind::Due)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let parsed = (subscription_key, Timestamp(reader.u64()?), Lane(reader.u16()?), Seq(reader.u64()?));
    whole(&reader, parsed)
}

/// The range of a subscription's due times, the earliest first.
pub fn due_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Due).subscription_key(subscription_key).prefix()
}

/// The key of a held event.
pub fn held(partition: PartitionId, seq: Seq) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Held).word32(partition.0).word64(seq.0).0
}

/// Parses a key of [`held`].
pub fn parse_held(key: &[u8]) -> Option<(PartitionId, Seq)> {
    let mut reader = body(key, KeyKind::Held)?;
    let parsed = (PartitionId(reader.u32()?), Seq(reader.u64()?));
    whole(&reader, parsed)
}

/// The range of the held events of a partition.
pub fn held_of(partition: PartitionId) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Held).word32(partition.0).prefix()
}

/// The range of the held events of a partition below `seq`.
pub fn held_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    below(KeyKind::Held, partition, seq)
}

/// The key of a pin: the event must stay readable for a dead letter of the subscription.
pub fn pin(partition: PartitionId, seq: Seq, subscription: SubscriptionId, lane: Lane) -> Vec<u8> {
    by_event(KeyKind::Pin, partition, seq, subscription, lane)
}

/// Parses a key of [`pin`].
pub fn parse_pin(key: &[u8]) -> Option<(PartitionId, Seq, SubscriptionId, Lane)> {
    parse_by_event(key, KeyKind::Pin)
}

/// The range of the pins of an event.
pub fn pins_of_event(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Pin).word32(partition.0).word64(seq.0).prefix()
}

/// The range of the pins of events below `seq`.
pub fn pins_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    below(KeyKind::Pin, partition, seq)
}

/// The key of a dead letter that waits to be written to its destination.
pub fn dead(subscription_key: SubscriptionKey, due: Timestamp, seq: Seq, lane: Lane) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Dead).subscription_key(subscription_key).word64(due.0).word64(seq.0).lane(lane).0
}

/// Parses a key of [`dead`].
pub fn parse_dead(key: &[u8]) -> Option<(SubscriptionKey, Timestamp, Seq, Lane)> {
    let mut reader = body(key, KeyKind::Dead)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let parsed = (subscription_key, Timestamp(reader.u64()?), Seq(reader.u64()?), Lane(reader.u16()?));
    whole(&reader, parsed)
}

/// The range of a subscription's waiting dead letters, the earliest due first.
pub fn dead_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Dead).subscription_key(subscription_key).prefix()
}

/// The fields of a ledger line's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineKey {
    /// The subscription.
    pub subscription_key: SubscriptionKey,
    /// The lane.
    pub lane: Lane,
    /// The first event that the line covers.
    pub first: Seq,
    /// The time of writing.
    pub at: Timestamp,
    /// The number of the attempt; 0 if the line is not about an attempt.
    pub attempt: u32,
    /// [`records::event_byte`](super::records::event_byte) of its entry.
    pub what: u8,
}

/// The key of a ledger line by event. A line that covers several blocks is split, with one key for each block.
pub fn ledger(LineKey { subscription_key, lane, first, at, attempt, what }: LineKey) -> Vec<u8> {
    let key =
        KeyBuilder::new(KeyKind::Ledger).subscription_key(subscription_key).word64(first.0).lane(lane).word64(at.0);
    key.word32(attempt).word8(what).0
}

/// Parses a key of [`ledger`].
pub fn parse_ledger(key: &[u8]) -> Option<LineKey> {
    let mut reader = body(key, KeyKind::Ledger)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let (first, lane, at) = (Seq(reader.u64()?), Lane(reader.u16()?), Timestamp(reader.u64()?));
    let parsed = LineKey { subscription_key, lane, first, at, attempt: reader.u32()?, what: reader.u8()? };
    whole(&reader, parsed)
}

/// The key of a ledger line by time.
pub fn ledger_by_time(LineKey { subscription_key, lane, first, at, attempt, what }: LineKey) -> Vec<u8> {
    let key = KeyBuilder::new(KeyKind::LedgerByTime)
        .subscription_key(subscription_key)
        .word64(at.0)
        .word64(first.0)
        .lane(lane);
    key.word32(attempt).word8(what).0
}

/// Parses a key of [`ledger_by_time`].
pub fn parse_ledger_by_time(key: &[u8]) -> Option<LineKey> {
    let mut reader = body(key, KeyKind::LedgerByTime)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let (at, first, lane) = (Timestamp(reader.u64()?), Seq(reader.u64()?), Lane(reader.u16()?));
    let parsed = LineKey { subscription_key, lane, first, at, attempt: reader.u32()?, what: reader.u8()? };
    whole(&reader, parsed)
}

/// The range of a subscription's ledger, by event.
pub fn ledger_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Ledger).subscription_key(subscription_key).prefix()
}

/// The range of the lines that may cover `seq`: they begin in its block, at or before it.
pub fn ledger_upto(subscription_key: SubscriptionKey, seq: Seq) -> Range<Vec<u8>> {
    let block = seq.0 - seq.0 % LEDGER_BLOCK;
    let at = |first: u64| KeyBuilder::new(KeyKind::Ledger).subscription_key(subscription_key).word64(first).0;
    at(block)..at(seq.0 + 1)
}

/// The range of a subscription's lines from `from` (included) to `to` (excluded).
pub fn ledger_between(subscription_key: SubscriptionKey, from: Timestamp, to: Timestamp) -> Range<Vec<u8>> {
    let at = |at: Timestamp| KeyBuilder::new(KeyKind::LedgerByTime).subscription_key(subscription_key).word64(at.0).0;
    at(from)..at(to)
}

/// The range of all ledger lines, by event and by time.
pub fn ledgers() -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Ledger).0..KeyBuilder::new(KeyKind::LedgerByTime).prefix().end
}

/// The key of a response excerpt.
pub fn excerpt(subscription_key: SubscriptionKey, ExcerptKey { minute, status, hash }: ExcerptKey) -> Vec<u8> {
    let mut key = KeyBuilder::new(KeyKind::Excerpt).subscription_key(subscription_key).word32(minute).0;
    key.extend_from_slice(&status.to_be_bytes());
    key.extend_from_slice(&hash.to_be_bytes());
    key
}

/// Parses a key of [`excerpt`].
pub fn parse_excerpt(key: &[u8]) -> Option<(SubscriptionKey, ExcerptKey)> {
    let mut reader = body(key, KeyKind::Excerpt)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let parsed = (subscription_key, ExcerptKey { minute: reader.u32()?, status: reader.u16()?, hash: reader.u64()? });
    whole(&reader, parsed)
}

/// The key of the id filter of a block of the log.
pub fn ids(partition: PartitionId, block: u64) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Ids).word32(partition.0).word64(block).0
}

/// Parses a key of [`ids`].
pub fn parse_ids(key: &[u8]) -> Option<(PartitionId, u64)> {
    let mut reader = body(key, KeyKind::Ids)?;
    let parsed = (PartitionId(reader.u32()?), reader.u64()?);
    whole(&reader, parsed)
}

/// The name of a version of a subscription's filter in `meta`. Names sort like versions.
pub fn filter_name(SubscriptionKey { partition, subscription }: SubscriptionKey, version: u32) -> String {
    format!("{:08x}/{:08x}/{version:08x}", partition.0, subscription.0)
}

/// The prefix of the names of all filter versions of a subscription.
pub fn filters_of(SubscriptionKey { partition, subscription }: SubscriptionKey) -> String {
    format!("{:08x}/{:08x}/", partition.0, subscription.0)
}

/// The prefix of the names of all filter versions in a partition.
pub fn filters_of_partition(partition: PartitionId) -> String {
    format!("{:08x}/", partition.0)
}

/// Parses a name of [`filter_name`].
pub fn parse_filter_name(name: &str) -> Option<(SubscriptionKey, u32)> {
    let mut parts = name.split('/').map(|part| u32::from_str_radix(part, 16).ok());
    let mut number = || parts.next().flatten();
    let subscription_key =
        SubscriptionKey { partition: PartitionId(number()?), subscription: SubscriptionId(number()?) };
    let parsed = (subscription_key, number()?);
    parts.next().is_none().then_some(parsed)
}
