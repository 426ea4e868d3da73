//! The bytes of keys: a kind, then its fields. [`KeyKind`] is the table.
//!
//! Invariants:
//! - All numbers are big-endian, so keys sort like their fields.
//! - Keys of a kind have the same length, except those of `meta`, which end with a name
//!   ([`MetaKind`]).
//! - No kind is 255, so every range has an upper bound.
//! - The kind comes first although each family except two has only one: a key without its family,
//!   in a file or a dump, identifies itself.
//!
//! Ranges are half open, as [`store::Store::scan`](crate::Store::scan) takes them. A parser returns
//! `None` for a key that is too short, too long or of another kind.

mod meta;

use std::{ops::Range, time::Duration};

pub use self::meta::{
    MetaKind, dead_letters, dead_letters_name, ended_job, ended_jobs_of, filter_name, filters_of,
    filters_of_partition, floor_key, loss_key, loss_value, meta_key, meta_of, parse_filter_name,
    parse_floor, parse_loss, parse_meta, parse_reap, parse_redrive_name, reap_key, reaps_range,
    redrive_key, redrive_name,
};
use crate::{Family, records::IdDigest};
use gridhook_event::{
    Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp, codec::RecordReader,
};
use gridhook_policy::record::{ExcerptKey, LEDGER_BLOCK};

/// A field of a key.
trait Field: Sized {
    fn append_to_key(&self, key: &mut Vec<u8>);

    fn take_from_key(reader: &mut RecordReader<'_>) -> Option<Self>;
}

// Implements `Field` for numbers and for types that wrap one. Each line has the method that reads
// the number, and for each type how to make it from the number and the number from it:
// `method [Type: make, number_of; …]`.
macro_rules! numbers {
    ($($read:ident [$($type:ty: $wrap:expr, $number:expr;)+])+) => {$($(
        impl Field for $type {
            fn append_to_key(&self, key: &mut Vec<u8>) {
                let number: fn(&Self) -> $read = $number;
                key.extend_from_slice(&number(self).to_be_bytes());
            }

            fn take_from_key(reader: &mut RecordReader<'_>) -> Option<Self> {
                reader.$read().map($wrap)
            }
        }
    )+)+};
}

numbers! {
    u8 [u8: |number| number, |number| *number;]
    u16 [u16: |number| number, |number| *number; Lane: Lane, |lane| lane.0;]
    u32 [
        u32: |number| number, |number| *number;
        PartitionId: PartitionId, |partition| partition.0;
        SubscriptionId: SubscriptionId, |subscription| subscription.0;
    ]
    u64 [u64: |number| number, |number| *number; Seq: Seq, |seq| seq.0; Timestamp: Timestamp, |at| at.0;]
}

impl<A: Field, B: Field> Field for (A, B) {
    fn append_to_key(&self, key: &mut Vec<u8>) {
        self.0.append_to_key(key);
        self.1.append_to_key(key);
    }

    fn take_from_key(reader: &mut RecordReader<'_>) -> Option<Self> {
        Some((A::take_from_key(reader)?, B::take_from_key(reader)?))
    }
}

impl Field for SubscriptionKey {
    fn append_to_key(&self, key: &mut Vec<u8>) {
        (self.partition, self.subscription).append_to_key(key);
    }

    fn take_from_key(reader: &mut RecordReader<'_>) -> Option<Self> {
        <(PartitionId, SubscriptionId)>::take_from_key(reader).map(|(partition, subscription)| {
            Self {
                partition,
                subscription,
            }
        })
    }
}

impl Field for IdDigest {
    fn append_to_key(&self, key: &mut Vec<u8>) {
        (self.0, self.1).append_to_key(key);
    }

    fn take_from_key(reader: &mut RecordReader<'_>) -> Option<Self> {
        <(u64, u64)>::take_from_key(reader).map(|(high, low)| Self(high, low))
    }
}

impl Field for ExcerptKey {
    fn append_to_key(&self, key: &mut Vec<u8>) {
        (self.minute, (self.status, self.hash)).append_to_key(key);
    }

    fn take_from_key(reader: &mut RecordReader<'_>) -> Option<Self> {
        <(u32, (u16, u64))>::take_from_key(reader).map(|(minute, (status, hash))| Self {
            minute,
            status,
            hash,
        })
    }
}

/// The type of a key's fields: one type, or a tuple of several.
macro_rules! types {
    ($one:ty) => { $one };
    ($($type:ty),+) => { ($($type),+) };
}

/// Declares the kinds of keys. Each line has the first byte, the family, and the fields in their
/// order.
macro_rules! keys {
    ($($(#[$doc:meta])* $kind:ident = $byte:literal in $family:ident: $vis:vis $write:ident, $read:ident
        ($($field:ident: $type:ty),+);)+) => {
        /// The first byte of every key. A byte is never reused, even if its kind is removed: 9 was
        /// a form of ledger lines that neither time nor block could find.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum KeyKind {
            /// A record of the control plane or of a job.
            Meta = 1,
            $($(#[$doc])* $kind = $byte,)+
        }

        impl KeyKind {
            /// The kind of a family's keys; of two kinds, the first in this table.
            #[expect(unreachable_patterns, reason = "of two kinds in a family, the first counts")]
            pub fn from_family(family: Family) -> Self {
                match family {
                    Family::Meta => Self::Meta,
                    $(Family::$family => Self::$kind,)+
                }
            }
        }

        $(
            $(#[$doc])*
            $vis fn $write($($field: $type),+) -> Vec<u8> {
                let mut key = new_key(KeyKind::$kind);
                $($field.append_to_key(&mut key);)+
                key
            }

            #[doc = concat!("Parses a key of [`", stringify!($write), "`].")]
            $vis fn $read(key: &[u8]) -> Option<types!($($type),+)> {
                let mut reader = RecordReader::new(key);
                (reader.u8()? == KeyKind::$kind as u8).then_some(())?;
                let fields = ($(<$type>::take_from_key(&mut reader)?),+);
                reader.is_empty().then_some(fields)
            }
        )+
    };
}

keys! {
    /// The key of a chunk of the log: the sequence of its first event.
    Log = 2 in Log: pub log, parse_log(partition: PartitionId, first: Seq);
    Cursor = 3 in Cursor: pub cursor, parse_cursor(subscription_key: SubscriptionKey);
    /// The key of a pending delivery.
    Pending = 4 in Pending: pub pending, parse_pending
        (partition: PartitionId, seq: Seq, subscription: SubscriptionId, lane: Lane);
    /// The key of the due time of a pending delivery.
    Due = 5 in Due: pub due, parse_due
        (subscription_key: SubscriptionKey, due: Timestamp, lane: Lane, seq: Seq);
    /// The key of an event that is kept below the beginning of the log.
    Carried = 6 in Carried: pub carried, parse_carried(partition: PartitionId, seq: Seq);
    /// The key of a pin: the event must stay readable for a dead letter of the subscription.
    Pin = 7 in Pin: pub pin, parse_pin
        (partition: PartitionId, seq: Seq, subscription: SubscriptionId, lane: Lane);
    /// The key of a dead letter that waits to be written to its destination.
    Dead = 8 in Dead: pub dead, parse_dead
        (subscription_key: SubscriptionKey, due: Timestamp, seq: Seq, lane: Lane);
    /// The key of a ledger line, ordered by event.
    Ledger = 10 in Ledger: line_by_event, parse_line_by_event
        (subscription_key: SubscriptionKey, first: Seq, lane: Lane, at: Timestamp, attempt: u32, what: u8);
    /// The key of a ledger line, ordered by time.
    LedgerByTime = 11 in Ledger: line_by_time, parse_line_by_time
        (subscription_key: SubscriptionKey, at: Timestamp, first: Seq, lane: Lane, attempt: u32, what: u8);
    /// The key of a response excerpt.
    Excerpt = 12 in Excerpt: pub excerpt, parse_excerpt(subscription_key: SubscriptionKey, excerpt: ExcerptKey);
    /// The key of the id filter of a block of the log.
    Ids = 13 in Ids: pub ids, parse_ids(partition: PartitionId, block: u64);
    /// The key of a page of outcomes. Pages are numbered in the order of their writes.
    OutcomePage = 15 in Cursor: pub outcome_page, parse_outcome_page(number: u64);
    /// The key of an id that was published to a topic with duplicate detection.
    PublishedId = 14 in PublishedIds: pub published_id, parse_published_id(partition: PartitionId, digest: IdDigest);
}

/// A key without fields. 40 bytes are more than every key has, except those of `meta`, so that a
/// key is allocated once.
fn new_key(kind: KeyKind) -> Vec<u8> {
    let mut key = Vec::with_capacity(40);
    key.push(kind as u8);
    key
}

/// The beginning of the keys with these first fields.
fn start(kind: KeyKind, fields: impl Field) -> Vec<u8> {
    let mut key = new_key(kind);
    fields.append_to_key(&mut key);
    key
}

/// The range of the keys with these first fields.
fn prefix_range(kind: KeyKind, fields: impl Field) -> Range<Vec<u8>> {
    range_of(start(kind, fields))
}

/// The range of all keys that begin with `start`.
fn range_of(start: Vec<u8>) -> Range<Vec<u8>> {
    let mut end = start.clone();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    // The kind is the first byte and never 255: something is left.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    start..end
}

/// The range of a family's keys.
pub fn family_range(family: Family) -> Range<Vec<u8>> {
    range_of(new_key(KeyKind::from_family(family)))
}

/// The range of all keys of any kind.
pub fn full_range() -> Range<Vec<u8>> {
    vec![0]..vec![u8::MAX]
}

/// The range of a partition's log.
pub fn log_of(partition: PartitionId) -> Range<Vec<u8>> {
    prefix_range(KeyKind::Log, partition)
}

/// The range of the chunks that begin below `seq`. The last of them may reach over it.
pub fn log_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    range_below(KeyKind::Log, partition, seq)
}

pub fn cursors_range() -> Range<Vec<u8>> {
    family_range(Family::Cursor)
}

/// The subscription of a cursor or a ledger line, by the beginning of its key.
pub fn subscription_of(key: &[u8]) -> Option<SubscriptionKey> {
    let mut reader = RecordReader::new(key);
    let kinds = [KeyKind::Cursor, KeyKind::Ledger, KeyKind::LedgerByTime];
    let kind = reader.u8()?;
    kinds
        .iter()
        .any(|known| *known as u8 == kind)
        .then_some(())?;
    SubscriptionKey::take_from_key(&mut reader)
}

pub fn outcome_pages() -> Range<Vec<u8>> {
    range_of(new_key(KeyKind::OutcomePage))
}

fn range_below(kind: KeyKind, partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    start(kind, partition)..start(kind, (partition, seq))
}

/// The range of the pending deliveries of an event.
pub fn pending_of_event(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    prefix_range(KeyKind::Pending, (partition, seq))
}

/// The range of the pending deliveries of events below `seq`.
pub fn pending_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    range_below(KeyKind::Pending, partition, seq)
}

/// The range of a subscription's due times, the earliest first.
pub fn due_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    prefix_range(KeyKind::Due, subscription_key)
}

/// The range of the carried events of a partition.
pub fn carried_of(partition: PartitionId) -> Range<Vec<u8>> {
    prefix_range(KeyKind::Carried, partition)
}

pub fn pins_of_event(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    prefix_range(KeyKind::Pin, (partition, seq))
}

/// The range of the pins of events below `seq`.
pub fn pins_below(partition: PartitionId, seq: Seq) -> Range<Vec<u8>> {
    range_below(KeyKind::Pin, partition, seq)
}

/// The range of a subscription's waiting dead letters, the earliest due first.
pub fn dead_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    prefix_range(KeyKind::Dead, subscription_key)
}

/// The fields of a ledger line's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineKey {
    pub subscription_key: SubscriptionKey,
    pub lane: Lane,
    /// The first event that the line covers.
    pub first: Seq,
    pub at: Timestamp,
    /// The number of the attempt; 0 if the line is not about an attempt.
    pub attempt: u32,
    /// [`records::event_byte`](super::records::event_byte) of the line's entry.
    pub what: u8,
}

/// The key of a ledger line by event. A line that covers several blocks is split, with one key for
/// each block.
pub fn ledger_key(
    LineKey {
        subscription_key,
        lane,
        first,
        at,
        attempt,
        what,
    }: LineKey,
) -> Vec<u8> {
    line_by_event(subscription_key, first, lane, at, attempt, what)
}

pub fn parse_ledger(key: &[u8]) -> Option<LineKey> {
    let (subscription_key, first, lane, at, attempt, what) = parse_line_by_event(key)?;
    Some(LineKey {
        subscription_key,
        lane,
        first,
        at,
        attempt,
        what,
    })
}

/// The key of a ledger line by time.
pub fn ledger_by_time(
    LineKey {
        subscription_key,
        lane,
        first,
        at,
        attempt,
        what,
    }: LineKey,
) -> Vec<u8> {
    line_by_time(subscription_key, at, first, lane, attempt, what)
}

pub fn parse_ledger_by_time(key: &[u8]) -> Option<LineKey> {
    let (subscription_key, at, first, lane, attempt, what) = parse_line_by_time(key)?;
    Some(LineKey {
        subscription_key,
        lane,
        first,
        at,
        attempt,
        what,
    })
}

/// The range of a subscription's ledger, by event.
pub fn ledger_of(subscription_key: SubscriptionKey) -> Range<Vec<u8>> {
    prefix_range(KeyKind::Ledger, subscription_key)
}

/// The range of the lines that may cover `seq`: they begin in its block, at or before it.
pub fn ledger_upto(subscription_key: SubscriptionKey, seq: Seq) -> Range<Vec<u8>> {
    let block = seq.0 - seq.0 % LEDGER_BLOCK;
    start(KeyKind::Ledger, (subscription_key, block))
        ..start(KeyKind::Ledger, (subscription_key, seq.0 + 1))
}

/// The range of a subscription's lines from `from` (included) to `to` (excluded).
pub fn ledger_between(
    subscription_key: SubscriptionKey,
    from: Timestamp,
    to: Timestamp,
) -> Range<Vec<u8>> {
    start(KeyKind::LedgerByTime, (subscription_key, from))
        ..start(KeyKind::LedgerByTime, (subscription_key, to))
}

/// A position in the ledger by time, moved back by `span`. A position that has no time stays.
pub fn ledger_before(position: &[u8], span: Duration) -> Vec<u8> {
    let mut reader = RecordReader::new(position);
    let parts = reader.u8().and_then(|_| {
        Some((
            SubscriptionKey::take_from_key(&mut reader)?,
            Timestamp::take_from_key(&mut reader)?,
        ))
    });
    parts.map_or_else(
        || position.to_vec(),
        |(of, at)| start(KeyKind::LedgerByTime, (of, at.before(span))),
    )
}

/// The range of all ledger lines, by event and by time.
pub fn ledgers_range() -> Range<Vec<u8>> {
    new_key(KeyKind::Ledger)..range_of(new_key(KeyKind::LedgerByTime)).end
}
