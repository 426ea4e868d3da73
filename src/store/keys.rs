//! How keys look on disk.
//!
//! ```text
//! meta    kind | what 1 | name
//! log     kind | partition 4 | first sequence 8
//! cursor  kind | partition 4 | subscription 4
//! owed    kind | partition 4 | sequence 8 | subscription 4 | lane 2
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
//! Invariants: all numbers are big-endian, so that keys sort as their fields do; but for a name in `meta` every key of
//! a kind has the same length; no kind is 255, so that every range has an upper bound. The kind stands in front though
//! each family but the ledger holds only one: a key that is met without its family (in a file, in a dump, in a store without families)
//! says what it is.
//!
//! Ranges are half open, as [`store::Store::scan`](crate::store::Store::scan) takes them. Parsers are total: a key that
//! is too short, too long or of another kind is `None`.

use std::ops::Range;

use super::codec::RecordReader;
use crate::{
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    policy::record::{ExcerptKey, LEDGER_BLOCK},
    store::Family,
};

/// How the name of a job begins that clears away what a deleted subscription left.
const REAP: &str = "reap";

/// How the name of a job begins that has ended.
const ENDED: &str = "ended";

/// The first byte of every key. A byte is never used again for something else, even if its kind is given up: 9 were lines
/// of the ledger that were found neither by time nor by block.
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
    /// The kind of a family's keys; of the ledger's, the one by which events are found.
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

/// The second byte of a key of `meta`. A byte is never used again for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MetaKind {
    /// The version of the store's format.
    Format = 1,
    /// A topic, by its name.
    Topic = 2,
    /// An event subscription, by the names of its topic and its own.
    Subscription = 3,
    /// The counters that ids are taken from.
    Numbers = 4,
    /// What the writer knows of a partition, by its number.
    Floor = 5,
    /// The dead-letter actor's own totals and the file that it is writing.
    DeadLetters = 6,
    /// A replay, a redrive or another job: one that has ended, but for the job that clears away what a deleted subscription
    /// left. What has not ended is in its subscription's cursor.
    Job = 7,
    /// A subscription whose endpoint has yet to agree, by the names of its topic and its own.
    Proposal = 8,
    /// A topic of a domain, by the names of both.
    DomainTopic = 9,
    /// A version of a subscription's filter, by the numbers of its partition, of itself and of the version.
    Filter = 10,
    /// How far a redrive has come, by its subscription's numbers and its lane.
    Redrive = 11,
    /// A namespace, by its name.
    Namespace = 12,
    /// What nobody else may know, by what it is for.
    Secret = 13,
    /// Events that an operator accepted as lost, by partition and the first of them.
    Loss = 20,
}

impl MetaKind {
    /// All of them.
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

/// A key in the making. Each method appends one field.
struct KeyBuilder(Vec<u8>);

impl KeyBuilder {
    /// 40 bytes: longer than every key but those of `meta`, so that a key is allocated once.
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

    /// Every key that begins with this one.
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

/// Takes the kind off.
fn body(key: &[u8], kind: KeyKind) -> Option<RecordReader<'_>> {
    let mut reader = RecordReader::new(key);
    (reader.u8()? == kind as u8).then_some(reader)
}

fn read_subscription_key(reader: &mut RecordReader<'_>) -> Option<SubscriptionKey> {
    Some(SubscriptionKey { partition: PartitionId(reader.u32()?), subscription: SubscriptionId(reader.u32()?) })
}

/// `parsed`, if nothing follows it.
fn whole<T>(reader: &RecordReader<'_>, parsed: T) -> Option<T> {
    reader.is_empty().then_some(parsed)
}

/// Every key of a family.
pub fn all(family: Family) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::of(family)).prefix()
}

/// All keys that a family may have, of any kind.
pub fn everything() -> Range<Vec<u8>> {
    vec![0]..vec![u8::MAX]
}

/// A record of `meta`.
pub fn meta(kind: MetaKind, name: &[u8]) -> Vec<u8> {
    let mut key = KeyBuilder::new(KeyKind::Meta).word8(kind as u8).0;
    key.extend_from_slice(name);
    key
}

/// What [`meta`] was made of.
pub fn parse_meta(key: &[u8]) -> Option<(MetaKind, &[u8])> {
    let (kind, name) = key.strip_prefix(&[KeyKind::Meta as u8])?.split_first()?;
    let kind = MetaKind::ALL.into_iter().find(|known| *known as u8 == *kind)?;
    Some((kind, name))
}

/// The records of `meta` of one kind.
pub fn meta_of(kind: MetaKind) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Meta).word8(kind as u8).prefix()
}

/// What the writer knows of a partition: a record of `meta`.
pub fn floor(partition: PartitionId) -> Vec<u8> {
    meta(MetaKind::Floor, &partition.0.to_be_bytes())
}

/// What [`floor`] was made of.
pub fn parse_floor(key: &[u8]) -> Option<PartitionId> {
    let (kind, name) = parse_meta(key)?;
    let name = name.try_into().ok()?;
    (kind == MetaKind::Floor).then_some(PartitionId(u32::from_be_bytes(name)))
}

/// Events that are in no log any more, and that an operator accepted as lost: a record of `meta`.
pub fn loss(partition: PartitionId, first: Seq) -> Vec<u8> {
    let mut name = partition.0.to_be_bytes().to_vec();
    name.extend_from_slice(&first.0.to_be_bytes());
    meta(MetaKind::Loss, &name)
}

/// The record under [`loss`]: the first place behind them.
pub fn loss_value(end: Seq) -> Vec<u8> {
    end.0.to_be_bytes().to_vec()
}

/// What [`loss`] and [`loss_value`] were made of.
pub fn parse_loss(key: &[u8], value: &[u8]) -> Option<(PartitionId, Seq, Seq)> {
    let (kind, name) = parse_meta(key)?;
    let (mut name, mut value) = (RecordReader::new(name), RecordReader::new(value));
    let parsed = (PartitionId(name.u32()?), Seq(name.u64()?), Seq(value.u64()?));
    (kind == MetaKind::Loss && value.is_empty()).then_some(())?;
    whole(&name, parsed)
}

/// A chunk of the log, by the place of its first event.
pub fn log(partition: PartitionId, first: Seq) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Log).word32(partition.0).word64(first.0).0
}

/// What [`log`] was made of.
pub fn parse_log(key: &[u8]) -> Option<(PartitionId, Seq)> {
    let mut reader = body(key, KeyKind::Log)?;
    let parsed = (PartitionId(reader.u32()?), Seq(reader.u64()?));
    whole(&reader, parsed)
}

/// The job of clearing away what a deleted subscription left.
pub fn reap(subscription_key: SubscriptionKey) -> Vec<u8> {
    meta(
        MetaKind::Job,
        format!("{REAP}/{}/{}", subscription_key.partition.0, subscription_key.subscription.0).as_bytes(),
    )
}

/// What [`reap`] was made of.
pub fn parse_reap(key: &[u8]) -> Option<SubscriptionKey> {
    let (_, name) = parse_meta(key)?;
    let mut parts = std::str::from_utf8(name).ok()?.split('/');
    if parts.next() != Some(REAP) {
        return None;
    }
    let mut number = || parts.next()?.parse().ok();
    Some(SubscriptionKey { partition: PartitionId(number()?), subscription: SubscriptionId(number()?) })
}

/// The jobs that clear away what deleted subscriptions left.
pub fn reaps() -> Range<Vec<u8>> {
    KeyBuilder(meta(MetaKind::Job, format!("{REAP}/").as_bytes())).prefix()
}

/// The name of the account of a subscription's dead letters.
pub fn dead_letters_name(subscription_key: SubscriptionKey) -> String {
    format!("{}/{}", subscription_key.partition.0, subscription_key.subscription.0)
}

/// The account of a subscription's dead letters.
pub fn dead_letters(subscription_key: SubscriptionKey) -> Vec<u8> {
    meta(MetaKind::DeadLetters, dead_letters_name(subscription_key).as_bytes())
}

/// The name of the record of a redrive that goes on.
pub fn redrive_name(subscription_key: SubscriptionKey, lane: Lane) -> String {
    format!("{}/{}/{}", subscription_key.partition.0, subscription_key.subscription.0, lane.0)
}

/// What [`redrive_name`] was made of.
pub fn parse_redrive_name(name: &str) -> Option<(SubscriptionKey, Lane)> {
    let (partition, rest) = name.split_once('/')?;
    let (subscription, lane) = rest.split_once('/')?;
    let partition = PartitionId(partition.parse().ok()?);
    let subscription_key = SubscriptionKey { partition, subscription: SubscriptionId(subscription.parse().ok()?) };
    Some((subscription_key, Lane(lane.parse().ok()?)))
}

/// The record of a redrive that goes on.
pub fn redrive(subscription_key: SubscriptionKey, lane: Lane) -> Vec<u8> {
    meta(MetaKind::Redrive, redrive_name(subscription_key, lane).as_bytes())
}

/// A job of a subscription that has ended.
pub fn ended_job(subscription_key: SubscriptionKey, lane: Lane) -> Vec<u8> {
    // So many digits that they sort as the lanes do.
    let mut key = ended_jobs_of(subscription_key).start;
    key.extend_from_slice(format!("{:05}", lane.0).as_bytes());
    key
}

/// The jobs of a subscription that have ended.
pub fn ended_jobs_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    let name = format!("{ENDED}/{}/{}/", subscription_key.partition.0, subscription_key.subscription.0);
    KeyBuilder(meta(MetaKind::Job, name.as_bytes())).prefix()
}

/// A partition's log.
pub fn log_of(partition: PartitionId) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Log).word32(partition.0).prefix()
}

/// The chunks of a partition's log that begin at `seq` or later.
pub fn log_from(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    log(partition, seq)..log_of(partition).end
}

/// The chunks of a partition's log that begin below `seq`. The last of them may reach over it.
pub fn log_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    log_of(partition).start..log(partition, seq)
}

/// How far a subscription has come.
pub fn cursor(subscription_key: SubscriptionKey) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Cursor).subscription_key(subscription_key).0
}

/// What [`cursor`] was made of.
pub fn parse_cursor(key: &[u8]) -> Option<SubscriptionKey> {
    let mut reader = body(key, KeyKind::Cursor)?;
    let parsed = read_subscription_key(&mut reader)?;
    whole(&reader, parsed)
}

/// All cursors.
pub fn cursors() -> Range<Vec<u8>> {
    all(Family::Cursor)
}

/// The cursors in one partition.
pub fn cursors_of(partition: PartitionId) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Cursor).word32(partition.0).prefix()
}

/// An obligation, by its event: the key of `pending` and of `pin`.
fn obligation(kind: KeyKind, partition: PartitionId, seq: Seq, subscription: SubscriptionId, lane: Lane) -> Vec<u8> {
    KeyBuilder::new(kind).word32(partition.0).word64(seq.0).word32(subscription.0).lane(lane).0
}

fn parse_subscription_key(key: &[u8], kind: KeyKind) -> Option<(PartitionId, Seq, SubscriptionId, Lane)> {
    let mut reader = body(key, kind)?;
    let (partition, seq) = (PartitionId(reader.u32()?), Seq(reader.u64()?));
    let parsed = (partition, seq, SubscriptionId(reader.u32()?), Lane(reader.u16()?));
    whole(&reader, parsed)
}

fn below(kind: KeyKind, partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    KeyBuilder::new(kind).word32(partition.0).0..KeyBuilder::new(kind).word32(partition.0).word64(seq.0).0
}

/// An event that a subscription owes.
pub fn pending(partition: PartitionId, seq: Seq, subscription: SubscriptionId, lane: Lane) -> Vec<u8> {
    obligation(KeyKind::Pending, partition, seq, subscription, lane)
}

/// What [`pending`] was made of.
pub fn parse_pending(key: &[u8]) -> Option<(PartitionId, Seq, SubscriptionId, Lane)> {
    parse_subscription_key(key, KeyKind::Pending)
}

/// Whoever owes one event.
pub fn pending_of_event(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Pending).word32(partition.0).word64(seq.0).prefix()
}

/// Whatever is owed below `seq`.
pub fn pending_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    below(KeyKind::Pending, partition, seq)
}

/// A place in the order in which a subscription's owed events fall due.
pub fn due(subscription_key: SubscriptionKey, due: Timestamp, lane: Lane, seq: Seq) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Due).subscription_key(subscription_key).word64(due.0).lane(lane).word64(seq.0).0
}

/// What [`due`] was made of.
pub fn parse_due(key: &[u8]) -> Option<(SubscriptionKey, Timestamp, Lane, Seq)> {
    let mut reader = body(key, KeyKind::Due)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let parsed = (subscription_key, Timestamp(reader.u64()?), Lane(reader.u16()?), Seq(reader.u64()?));
    whole(&reader, parsed)
}

/// Whatever falls due for a subscription, the earliest first.
pub fn due_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Due).subscription_key(subscription_key).prefix()
}

/// An event below the floor that somebody still asks for.
pub fn held(partition: PartitionId, seq: Seq) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Held).word32(partition.0).word64(seq.0).0
}

/// What [`held`] was made of.
pub fn parse_held(key: &[u8]) -> Option<(PartitionId, Seq)> {
    let mut reader = body(key, KeyKind::Held)?;
    let parsed = (PartitionId(reader.u32()?), Seq(reader.u64()?));
    whole(&reader, parsed)
}

/// The held events of a partition.
pub fn held_of(partition: PartitionId) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Held).word32(partition.0).prefix()
}

/// The held events of a partition below `seq`.
pub fn held_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    below(KeyKind::Held, partition, seq)
}

/// An event that must stay readable for a subscription that does not owe it any more.
pub fn pin(partition: PartitionId, seq: Seq, subscription: SubscriptionId, lane: Lane) -> Vec<u8> {
    obligation(KeyKind::Pin, partition, seq, subscription, lane)
}

/// What [`pin`] was made of.
pub fn parse_pin(key: &[u8]) -> Option<(PartitionId, Seq, SubscriptionId, Lane)> {
    parse_subscription_key(key, KeyKind::Pin)
}

/// Whoever pins one event.
pub fn pins_of_event(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Pin).word32(partition.0).word64(seq.0).prefix()
}

/// Whatever is pinned below `seq`.
pub fn pins_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    below(KeyKind::Pin, partition, seq)
}

/// An event that waits to be written to a dead-letter destination.
pub fn dead(subscription_key: SubscriptionKey, due: Timestamp, seq: Seq, lane: Lane) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Dead).subscription_key(subscription_key).word64(due.0).word64(seq.0).lane(lane).0
}

/// What [`dead`] was made of.
pub fn parse_dead(key: &[u8]) -> Option<(SubscriptionKey, Timestamp, Seq, Lane)> {
    let mut reader = body(key, KeyKind::Dead)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let parsed = (subscription_key, Timestamp(reader.u64()?), Seq(reader.u64()?), Lane(reader.u16()?));
    whole(&reader, parsed)
}

/// Whatever waits for a subscription's dead-letter destination, the earliest due first.
pub fn dead_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Dead).subscription_key(subscription_key).prefix()
}

/// Where a line of the ledger stands, by event or by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineKey {
    /// Whose.
    pub subscription_key: SubscriptionKey,
    /// Of which lane.
    pub lane: Lane,
    /// The first event that it speaks of.
    pub first: Seq,
    /// When it was written.
    pub at: Timestamp,
    /// The attempt's number; 0 where there was none.
    pub attempt: u32,
    /// [`records::event_byte`](super::records::event_byte) of its entry.
    pub what: u8,
}

/// A line of the ledger by its first event: a part of one where that speaks of several blocks.
pub fn ledger(LineKey { subscription_key, lane, first, at, attempt, what }: LineKey) -> Vec<u8> {
    let key =
        KeyBuilder::new(KeyKind::Ledger).subscription_key(subscription_key).word64(first.0).lane(lane).word64(at.0);
    key.word32(attempt).word8(what).0
}

/// What [`ledger`] was made of.
pub fn parse_ledger(key: &[u8]) -> Option<LineKey> {
    let mut reader = body(key, KeyKind::Ledger)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let (first, lane, at) = (Seq(reader.u64()?), Lane(reader.u16()?), Timestamp(reader.u64()?));
    let parsed = LineKey { subscription_key, lane, first, at, attempt: reader.u32()?, what: reader.u8()? };
    whole(&reader, parsed)
}

/// A line of the ledger by its time.
pub fn ledger_by_time(LineKey { subscription_key, lane, first, at, attempt, what }: LineKey) -> Vec<u8> {
    let key = KeyBuilder::new(KeyKind::LedgerByTime)
        .subscription_key(subscription_key)
        .word64(at.0)
        .word64(first.0)
        .lane(lane);
    key.word32(attempt).word8(what).0
}

/// What [`ledger_by_time`] was made of.
pub fn parse_ledger_by_time(key: &[u8]) -> Option<LineKey> {
    let mut reader = body(key, KeyKind::LedgerByTime)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let (at, first, lane) = (Timestamp(reader.u64()?), Seq(reader.u64()?), Lane(reader.u16()?));
    let parsed = LineKey { subscription_key, lane, first, at, attempt: reader.u32()?, what: reader.u8()? };
    whole(&reader, parsed)
}

/// The ledger of a subscription, by event.
pub fn ledger_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Ledger).subscription_key(subscription_key).prefix()
}

/// The lines of a subscription that begin in the block of `seq` and not behind it: all that may speak of it.
pub fn ledger_upto(subscription_key: SubscriptionKey, seq: Seq) -> Range<Vec<u8>> {
    let block = seq.0 - seq.0 % LEDGER_BLOCK;
    let at = |first: u64| KeyBuilder::new(KeyKind::Ledger).subscription_key(subscription_key).word64(first).0;
    at(block)..at(seq.0 + 1)
}

/// The lines of a subscription from `from` (with it) to `to` (without it).
pub fn ledger_between(subscription_key: SubscriptionKey, from: Timestamp, to: Timestamp) -> Range<Vec<u8>> {
    let at = |at: Timestamp| KeyBuilder::new(KeyKind::LedgerByTime).subscription_key(subscription_key).word64(at.0).0;
    at(from)..at(to)
}

/// All lines, by event and by time.
pub fn ledgers() -> Range<Vec<u8>> {
    KeyBuilder::new(KeyKind::Ledger).0..KeyBuilder::new(KeyKind::LedgerByTime).prefix().end
}

/// What an endpoint said.
pub fn excerpt(subscription_key: SubscriptionKey, ExcerptKey { minute, status, hash }: ExcerptKey) -> Vec<u8> {
    let mut key = KeyBuilder::new(KeyKind::Excerpt).subscription_key(subscription_key).word32(minute).0;
    key.extend_from_slice(&status.to_be_bytes());
    key.extend_from_slice(&hash.to_be_bytes());
    key
}

/// What [`excerpt`] was made of.
pub fn parse_excerpt(key: &[u8]) -> Option<(SubscriptionKey, ExcerptKey)> {
    let mut reader = body(key, KeyKind::Excerpt)?;
    let subscription_key = read_subscription_key(&mut reader)?;
    let parsed = (subscription_key, ExcerptKey { minute: reader.u32()?, status: reader.u16()?, hash: reader.u64()? });
    whole(&reader, parsed)
}

/// The ids of a block of the log.
pub fn ids(partition: PartitionId, block: u64) -> Vec<u8> {
    KeyBuilder::new(KeyKind::Ids).word32(partition.0).word64(block).0
}

/// What [`ids`] was made of.
pub fn parse_ids(key: &[u8]) -> Option<(PartitionId, u64)> {
    let mut reader = body(key, KeyKind::Ids)?;
    let parsed = (PartitionId(reader.u32()?), reader.u64()?);
    whole(&reader, parsed)
}

/// The name of a version of a subscription's filter in `meta`: names sort as versions do.
pub fn filter_name(SubscriptionKey { partition, subscription }: SubscriptionKey, version: u32) -> String {
    format!("{:08x}/{:08x}/{version:08x}", partition.0, subscription.0)
}

/// How the names of all versions of a subscription's filter begin.
pub fn filters_of(SubscriptionKey { partition, subscription }: SubscriptionKey) -> String {
    format!("{:08x}/{:08x}/", partition.0, subscription.0)
}

/// How the names of all versions of filters of a partition begin.
pub fn filters_of_partition(partition: PartitionId) -> String {
    format!("{:08x}/", partition.0)
}

/// What [`filter_name`] was made of.
pub fn parse_filter_name(name: &str) -> Option<(SubscriptionKey, u32)> {
    let mut parts = name.split('/').map(|part| u32::from_str_radix(part, 16).ok());
    let mut number = || parts.next().flatten();
    let subscription_key =
        SubscriptionKey { partition: PartitionId(number()?), subscription: SubscriptionId(number()?) };
    let parsed = (subscription_key, number()?);
    parts.next().is_none().then_some(parsed)
}
