//! Where each partition's log begins and ends, and how its beginning moves.
//!
//! Below its partition's floor the log does not exist for any reader. Only the writer moves it: to the smallest of the low
//! marks that are durable, and not past what retention keeps; how far that is, a look finds out beside it. In this order: events below the new floor that somebody
//! still owes, or that wait as dead letters, are carried to `held`; the floor is synced, in the same batch; then the store
//! may have the space back. A crash between two steps leaves the log longer than it need be, never shorter.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
    time::Duration,
};

use bytes::Bytes;

use crate::{
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{Error, LogPosition, position, reader},
    policy::record::Cursor,
    store::{
        Batch, Family, Store, StoreError,
        chunk::{ChunkBuilder, LogTail},
        keys::{self, MetaKind},
        log::{EventFinder, LogEnd, chunk_of},
        records::{FloorRecord, StoredRecord},
    },
};

/// So many events at most are carried in one move, so that a move never holds up the appends for long …
const CARRY_MAX: usize = 1024;

/// … and about so many bytes of them.
const CARRY_BYTES: usize = 4 << 20;

/// In so many places behind the floor the end of what is old enough is searched first.
const SEARCHED_FIRST: u64 = 1024;

/// What the log may keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct BacklogLimits {
    /// How long the log is kept after everybody has passed it, for replay.
    pub retention: Duration,
    /// How much of a partition's log may wait for its slowest subscription; [`None`] for as much as the disk has room for.
    pub backlog: Option<BacklogBound>,
}

/// A bound of a partition's backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogBound {
    /// So many bytes of the log; one request more may be taken.
    pub bytes: u64,
    /// What happens there.
    pub when_full: BacklogFullPolicy,
}

/// What happens where a backlog is at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BacklogFullPolicy {
    /// The topic's publishers wait.
    Refuse,
    /// The oldest events that the slowest subscriptions have not read go unsent, a little before the bound.
    Expire,
}

/// What the writer knows of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartitionState {
    /// Below, the log does not exist.
    pub(super) floor: Seq,
    /// The place of the next event.
    pub(super) next: Seq,
    /// What stands before it.
    pub(super) running: LogTail,
    /// When the newest event was appended.
    pub(super) appended: Timestamp,
    /// What everybody has passed, as far as it was looked at.
    pub(super) passed: PassedEvents,
}

/// How much of a log was passed by everybody when it was looked at last: never more than by now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassedEvents {
    /// Up to here.
    pub(super) low: Seq,
    /// So many bytes stand before it.
    pub(super) bytes: u64,
}

/// The first event that each subscription of a partition may still ask for.
pub(super) type LowWatermarks = BTreeMap<SubscriptionId, LowWatermark>;

/// What a subscription may still ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LowWatermark {
    /// The first event.
    pub(super) all: Seq,
    /// The first but for its jobs': these hold the log, and are nobody's backlog.
    pub(super) own: Seq,
}

impl LowWatermark {
    /// What stands in a cursor.
    pub(super) fn of(cursor: &Cursor) -> Option<Self> {
        let all = cursor.low()?;
        Some(Self { all, own: cursor.own_low().unwrap_or(all) })
    }
}

/// What is known of the logs.
#[derive(Debug, Default)]
pub(super) struct PartitionLogs {
    /// The partitions.
    pub(super) partitions: HashMap<PartitionId, PartitionState>,
    /// Their low marks, as far as they are durable.
    pub(super) lows: HashMap<PartitionId, LowWatermarks>,
}

impl PartitionState {
    pub(super) fn found() -> Self {
        Self::from(FloorRecord { floor: Seq::FIRST, next: Seq::FIRST, ..FloorRecord::default() })
    }

    pub(super) fn end(&self) -> LogEnd {
        LogEnd { next: self.next, running: self.running }
    }

    /// How many bytes of its log somebody has not passed, or more.
    pub(super) fn backlog(&self) -> u64 {
        self.running.bytes.saturating_sub(self.passed.bytes)
    }

    pub(super) fn record(&self) -> FloorRecord {
        FloorRecord { floor: self.floor, next: self.next, running: self.running, appended: self.appended }
    }
}

impl From<FloorRecord> for PartitionState {
    fn from(FloorRecord { floor, next, running, appended }: FloorRecord) -> Self {
        Self { floor, next, running, appended, passed: PassedEvents::default() }
    }
}

/// The partitions as the store has them.
pub(super) fn recover(store: &dyn Store) -> Result<PartitionLogs, Error> {
    let mut partitions = HashMap::new();
    let mut bad = None;
    let range = keys::meta_of(MetaKind::Floor);
    store.scan(Family::Meta, &range.start, &range.end, &mut |key, value| match (
        keys::parse_floor(key),
        FloorRecord::decode(value),
    ) {
        (Some(id), Ok(record)) => {
            if record.floor != FloorRecord::ABANDONED {
                partitions.insert(id, PartitionState::from(record));
            }
            ControlFlow::Continue(())
        }
        (id, floor) => {
            bad = Some(StoreError::damaged(format!("the floor of {id:?}: {floor:?}")));
            ControlFlow::Break(())
        }
    })?;
    if let Some(bad) = bad {
        return Err(bad.into());
    }
    for (id, partition) in &mut partitions {
        let range = keys::log_of(*id);
        if let Some((key, value)) = store.last(Family::Log, &range.start, &range.end)? {
            let chunk = chunk_of(&key, value)?;
            // The log's last chunk may be older than the floor, where the whole log was passed.
            if chunk.end() > partition.next {
                partition.next = chunk.end();
                partition.running = chunk.after();
                partition.appended = partition.appended.max(chunk.appended);
            }
        }
    }
    let mut lows: HashMap<PartitionId, LowWatermarks> = HashMap::new();
    for (SubscriptionKey { partition, subscription }, cursor) in reader::scan_cursors(store)? {
        if let Some(low) = LowWatermark::of(&cursor) {
            lows.entry(partition).or_default().insert(subscription, low);
        }
    }
    Ok(PartitionLogs { partitions, lows })
}

/// A question: what of a partition's log may go?
#[derive(Clone, Copy, Debug)]
pub(super) struct TrimLookup {
    /// The partition.
    pub(super) id: PartitionId,
    /// Where its log begins.
    pub(super) floor: Seq,
    /// Where it ends.
    pub(super) next: Seq,
    /// The first event that somebody may still ask for, or the end.
    pub(super) low: Seq,
    /// Retention keeps what was appended then or later; [`None`] where there is none.
    pub(super) kept: Option<Timestamp>,
}

/// How far a floor may be moved.
#[derive(Debug)]
pub(super) struct TrimPlan {
    /// Up to here.
    pub(super) target: Seq,
    /// The events below that somebody still owes, or that wait as dead letters, as they are held.
    pub(super) carried: BTreeMap<Seq, Bytes>,
    /// When the event at `target` was appended, where only its age keeps it.
    pub(super) ages: Option<Timestamp>,
    /// Whether more may go, and is left for the next move.
    pub(super) is_part: bool,
}

/// Answers a look. Only reads.
pub(super) fn plan(store: &dyn Store, look: &TrimLookup) -> Result<TrimPlan, StoreError> {
    let TrimLookup { id, floor, next, low, kept } = *look;
    let aged = match kept {
        None => LogPosition { at: next, appended: None },
        Some(kept) => aged(store, id, floor, next, kept)?,
    };
    let (target, ages) = if aged.at < low { (aged.at, aged.appended) } else { (low, None) };
    carry(store, id, floor, TrimPlan { target, carried: BTreeMap::new(), ages, is_part: false })
}

/// The first event that retention keeps. Mostly it is close to the floor, so a short part is searched first.
fn aged(store: &dyn Store, id: PartitionId, floor: Seq, next: Seq, kept: Timestamp) -> Result<LogPosition, StoreError> {
    let (mut from, mut length) = (floor, SEARCHED_FIRST);
    loop {
        let end = Seq(from.0.saturating_add(length)).min(next);
        let found = position::between(store, id, from, end, |chunk| chunk.appended < kept)?;
        if found.appended.is_some() || end == next {
            return Ok(found);
        }
        (from, length) = (end, length.saturating_mul(4));
    }
}

/// Completes a plan with what must be carried; what it has of that is not read again. The target is lower where that is too
/// much for one move.
pub(super) fn carry(store: &dyn Store, id: PartitionId, floor: Seq, plan: TrimPlan) -> Result<TrimPlan, StoreError> {
    let TrimPlan { mut target, carried: mut known, ages, is_part } = plan;
    let aimed = target;
    let mut asked = BTreeSet::new();
    let first = (SubscriptionId(0), Lane(0));
    for (family, range) in [
        (Family::Pending, keys::pending(id, floor, first.0, first.1)..keys::pending_below(id, target).end),
        (Family::Pin, keys::pin(id, floor, first.0, first.1)..keys::pins_below(id, target).end),
    ] {
        let mut found = BTreeSet::new();
        store.scan(family, &range.start, &range.end, &mut |key, _| {
            let parsed = keys::parse_pending(key).or_else(|| keys::parse_pin(key));
            if let Some((_, seq, _, _)) = parsed {
                if found.len() == CARRY_MAX && !found.contains(&seq) {
                    target = target.min(seq);
                    return ControlFlow::Break(());
                }
                found.insert(seq);
            }
            ControlFlow::Continue(())
        })?;
        asked.extend(found);
    }
    let mut events = EventFinder::new(store, id);
    let (mut carried, mut bytes) = (BTreeMap::new(), 0);
    for seq in asked.into_iter().take_while(|seq| *seq < target) {
        if bytes >= CARRY_BYTES {
            target = seq;
            break;
        }
        let held = match known.remove(&seq) {
            Some(held) => Some(held),
            None => match events.find(seq) {
                Ok(event) => event.map(|event| ChunkBuilder::hold(&event)),
                // It cannot be read where it is either: whoever asks for it is told.
                Err(StoreError::Damaged(_)) => None,
                Err(error @ (StoreError::Full | StoreError::Failed(_))) => return Err(error),
            },
        };
        if let Some(held) = held {
            bytes += held.len();
            carried.insert(seq, held);
        }
    }
    let is_part = is_part || target < aimed;
    Ok(TrimPlan { target, carried, ages: ages.filter(|_| !is_part), is_part })
}

/// Puts the move of a floor into `batch`.
pub(super) fn put(batch: &mut Batch, id: PartitionId, partition: &PartitionState, plan: &TrimPlan) {
    for (seq, held) in plan.carried.range(..plan.target) {
        batch.put(Family::Held, keys::held(id, *seq), held.clone());
    }
    let record = FloorRecord { floor: plan.target, ..partition.record() };
    batch.put(Family::Meta, keys::floor(id), record.encode());
}
