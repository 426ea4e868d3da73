//! The beginning and end of each partition's log, and how the beginning (the floor) moves.
//!
//! No reader sees the log below its partition's floor. Only the writer moves a floor: at most to
//! the smallest durable low watermark, and not past what retention keeps. A lookup on another
//! thread finds out how far ([`plan_trim`]). The steps of a move, in order: events below the new
//! floor that a pending delivery or a dead letter still needs are copied to `carried`; the new
//! floor is synced in the same batch; then the store may free the space. A crash between two steps
//! leaves the log longer than necessary, never too short.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    time::Duration,
};

use bytes::Bytes;

use crate::{Error, LogPosition, position, reader};
use gridhook_clock::Clock;
use gridhook_event::{
    IdMap, Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp,
    chunk::{ChunkBuilder, RunningTotals},
};
use gridhook_policy::record::Cursor;
use gridhook_store::{
    Batch, Family, Store, StoreError,
    keys::{self, MetaKind},
    log::{EventFinder, LogEnd, decode_chunk},
    records::{FloorRecord, StoredRecord},
};

/// The maximum number of events copied in one move, so that a move does not delay appends for long.
const CARRY_MAX: usize = 1024;

/// The approximate maximum bytes copied in one move.
const CARRY_BYTES: usize = 4 << 20;

/// The number of sequences after the floor that are searched first for the end of what retention
/// allows to remove.
const SEARCHED_FIRST: u64 = 1024;

/// By default nothing is kept for replay, and a backlog has no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct BacklogLimits {
    /// How long the log is kept for replay after all subscriptions have passed it.
    pub retention: Duration,
    /// How much of a partition's log may wait for its slowest subscription; [`None`] for as much as
    /// fits on the disk.
    pub backlog: Option<BacklogBound>,
}

/// A limit of a partition's backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogBound {
    /// Bytes of the log. One more request may exceed it.
    pub bytes: u64,
    /// What happens at the limit.
    pub when_full: BacklogFullPolicy,
}

/// What happens when a backlog is at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BacklogFullPolicy {
    /// Publish requests to the topic are refused.
    Refuse,
    /// The oldest events that the slowest subscriptions have not read expire, shortly before the
    /// limit is reached.
    Expire,
}

/// The writer's state of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartitionState {
    /// The first sequence of the log.
    pub(super) floor: Seq,
    /// The sequence of the next event.
    pub(super) next: Seq,
    /// The totals of the log before `next`.
    pub(super) running: RunningTotals,
    /// The time of the latest append.
    pub(super) appended: Timestamp,
    /// The first event after the clock was last corrected: events before it may have later times.
    pub(super) set_back: Option<Seq>,
    /// What all subscriptions have passed, at the last lookup.
    pub(super) passed: PassedEvents,
}

/// How much of a log all subscriptions had passed at the last lookup: never more than now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassedEvents {
    /// The sequence that they have passed.
    pub(super) low: Seq,
    /// The bytes of the log before it.
    pub(super) bytes: u64,
}

/// The low watermark of each subscription of a partition.
pub(super) type LowWatermarks = BTreeMap<SubscriptionId, LowWatermark>;

/// The part of the log that a subscription may still read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LowWatermark {
    /// The first sequence that it may still read.
    pub(super) all: Seq,
    /// The first sequence without its jobs: jobs keep the log but do not count as backlog.
    pub(super) own: Seq,
}

impl LowWatermark {
    /// Computes it from a cursor.
    pub(super) fn from_cursor(cursor: &Cursor) -> Option<Self> {
        let all = cursor.first_unread()?;
        Some(Self {
            all,
            own: cursor.own_low().unwrap_or(all),
        })
    }
}

/// The state of all logs.
#[derive(Debug, Default)]
pub(super) struct PartitionLogs {
    pub(super) partitions: IdMap<PartitionId, PartitionState>,
    pub(super) lows: IdMap<PartitionId, LowWatermarks>,
}

impl PartitionState {
    pub(super) fn empty() -> Self {
        Self::from(FloorRecord {
            floor: Seq::FIRST,
            next: Seq::FIRST,
            ..FloorRecord::default()
        })
    }

    pub(super) fn log_end(&self) -> LogEnd {
        LogEnd {
            next: self.next,
            running: self.running,
        }
    }

    /// The time of an append by `clock`, which reads `now`. Within a process it never decreases. A
    /// clock that continues that of an earlier process and is far behind the last append was
    /// corrected, and is right.
    pub(super) fn append_time(&self, clock: &Clock, now: Timestamp) -> Timestamp {
        if self.is_corrected(clock, now) {
            now
        } else {
            self.appended.max(now)
        }
    }

    /// Begins an append at `now`. Returns its time, and whether the record must be written with it:
    /// from there on times are lower.
    pub(super) fn begin_append(&mut self, clock: &Clock, now: Timestamp) -> (Timestamp, bool) {
        let is_corrected = self.is_corrected(clock, now);
        if is_corrected {
            self.set_back = Some(self.next);
        }
        self.appended = self.append_time(clock, now);
        (self.appended, is_corrected)
    }

    fn is_corrected(&self, clock: &Clock, now: Timestamp) -> bool {
        clock.is_continued() && self.appended.since(now) > Clock::SET_BACK_MIN
    }

    /// An upper bound of the bytes of its log that some subscription has not passed.
    pub(super) fn backlog_bytes(&self) -> u64 {
        self.running.bytes.saturating_sub(self.passed.bytes)
    }

    pub(super) fn floor_record(&self) -> FloorRecord {
        let Self {
            floor,
            next,
            running,
            appended,
            set_back,
            passed: _,
        } = *self;
        FloorRecord {
            floor,
            next,
            running,
            appended,
            set_back,
        }
    }
}

impl From<FloorRecord> for PartitionState {
    fn from(
        FloorRecord {
            floor,
            next,
            running,
            appended,
            set_back,
        }: FloorRecord,
    ) -> Self {
        Self {
            floor,
            next,
            running,
            appended,
            set_back,
            passed: PassedEvents::default(),
        }
    }
}

/// Reads the state of all logs from the store.
pub(super) fn recover_logs(store: &dyn Store) -> Result<PartitionLogs, Error> {
    let mut partitions = IdMap::default();
    let mut bad = None;
    let range = keys::meta_of(MetaKind::Floor);
    store.scan(
        Family::Meta,
        &range.start,
        &range.end,
        &mut |key, value| match (keys::parse_floor(key), FloorRecord::decode(value)) {
            (Some(id), Ok(record)) => {
                if record.floor != FloorRecord::ABANDONED {
                    partitions.insert(id, PartitionState::from(record));
                }
                ControlFlow::Continue(())
            }
            (id, floor) => {
                bad = Some(StoreError::damaged(format!(
                    "the floor of {id:?} cannot be decoded: {floor:?}"
                )));
                ControlFlow::Break(())
            }
        },
    )?;
    if let Some(bad) = bad {
        return Err(bad.into());
    }
    for (id, partition) in &mut partitions {
        let range = keys::log_of(*id);
        if let Some((key, value)) = store.last(Family::Log, &range.start, &range.end)? {
            let chunk = decode_chunk(&key, value)?;
            // The last chunk may be older than the floor, if the whole log was passed.
            if chunk.end_seq() > partition.next {
                partition.next = chunk.end_seq();
                partition.running = chunk.totals_after();
                partition.appended = partition.appended.max(chunk.appended);
            }
        }
    }
    let mut lows: IdMap<PartitionId, LowWatermarks> = IdMap::default();
    for (
        SubscriptionKey {
            partition,
            subscription,
        },
        cursor,
    ) in reader::scan_cursors(store)?
    {
        if let Some(low) = LowWatermark::from_cursor(&cursor) {
            lows.entry(partition).or_default().insert(subscription, low);
        }
    }
    Ok(PartitionLogs { partitions, lows })
}

/// The input of a lookup: how far may a partition's floor move?
#[derive(Clone, Copy, Debug)]
pub(super) struct TrimLookup {
    pub(super) id: PartitionId,
    pub(super) floor: Seq,
    /// The end of its log.
    pub(super) next: Seq,
    /// The first event after the clock was last corrected.
    pub(super) set_back: Option<Seq>,
    /// The lowest low watermark, or the end.
    pub(super) lowest_needed: Seq,
    /// Retention keeps events that were appended at this time or later; [`None`] without retention.
    pub(super) retained_since: Option<Timestamp>,
}

/// The result of a lookup: how far a floor may move.
#[derive(Debug)]
pub(super) struct TrimPlan {
    pub(super) target: Seq,
    /// The events below `target` that a pending delivery or a dead letter needs, encoded for
    /// `carried`.
    pub(super) carried: BTreeMap<Seq, Bytes>,
    /// The time of append of the event at `target`, if only its age keeps it.
    pub(super) oldest_append: Option<Timestamp>,
    /// Whether more of the log can be removed by the next move.
    pub(super) is_part: bool,
}

/// Computes a plan. Only reads the store.
pub(super) fn plan_trim(store: &dyn Store, lookup: &TrimLookup) -> Result<TrimPlan, StoreError> {
    let TrimLookup {
        id,
        floor,
        next,
        set_back,
        lowest_needed,
        retained_since,
    } = *lookup;
    let retention_start = match retained_since {
        None => LogPosition {
            at: next,
            appended: None,
        },
        Some(retained_since) if set_back.is_some_and(|set_back| floor < set_back) => {
            position::first_event_since(store, id, floor..next, set_back, retained_since)?
        }
        Some(retained_since) => find_retained(store, id, floor, next, retained_since)?,
    };
    let (target, oldest_append) = if retention_start.at < lowest_needed {
        (retention_start.at, retention_start.appended)
    } else {
        (lowest_needed, None)
    };
    plan_carried_events(
        store,
        id,
        floor,
        TrimPlan {
            target,
            carried: BTreeMap::new(),
            oldest_append,
            is_part: false,
        },
    )
}

/// The first event that retention keeps. It is usually close to the floor, so a short range is
/// searched first.
fn find_retained(
    store: &dyn Store,
    id: PartitionId,
    floor: Seq,
    next: Seq,
    retained_since: Timestamp,
) -> Result<LogPosition, StoreError> {
    let mut from = floor;
    let mut length = SEARCHED_FIRST;
    loop {
        let end = Seq(from.0.saturating_add(length)).min(next);
        let first_retained = position::find_position_from(store, id, from, end, |chunk| {
            chunk.appended < retained_since
        })?;
        if first_retained.appended.is_some() || end == next {
            return Ok(first_retained);
        }
        (from, length) = (end, length.saturating_mul(4));
    }
}

/// Completes a plan with the events that must be copied; those that it already has are not read
/// again. Lowers the target if there are too many for one move.
pub(super) fn plan_carried_events(
    store: &dyn Store,
    id: PartitionId,
    floor: Seq,
    plan: TrimPlan,
) -> Result<TrimPlan, StoreError> {
    let TrimPlan {
        mut target,
        carried: mut known,
        oldest_append,
        is_part,
    } = plan;
    let aim = target;
    let mut needed = BTreeSet::new();
    let first = (SubscriptionId(0), Lane(0));
    for (family, range) in [
        (
            Family::Pending,
            keys::pending(id, floor, first.0, first.1)..keys::pending_below(id, target).end,
        ),
        (
            Family::Pin,
            keys::pin(id, floor, first.0, first.1)..keys::pins_below(id, target).end,
        ),
    ] {
        let mut seqs = BTreeSet::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            let key_parts = keys::parse_pending(key).or_else(|| keys::parse_pin(key));
            if let Some((_, seq, _, _)) = key_parts {
                if seqs.len() == CARRY_MAX && !seqs.contains(&seq) {
                    target = target.min(seq);
                    return ControlFlow::Break(());
                }
                seqs.insert(seq);
            }
            ControlFlow::Continue(())
        };
        // A floor passes each record once, so that it would only displace others from the block
        // cache.
        match store.scan_uncached(family, &range.start, &range.end, &mut visit) {
            // Passes over what is damaged.
            Err(StoreError::Damaged(_)) => {
                store.scan(family, &range.start, &range.end, &mut visit)?
            }
            scanned => scanned?,
        }
        needed.extend(seqs);
    }
    let mut events = EventFinder::without_cache(store, id);
    let mut copies = BTreeMap::new();
    let mut bytes = 0;
    for seq in needed.into_iter().take_while(|seq| *seq < target) {
        if bytes >= CARRY_BYTES {
            target = seq;
            break;
        }
        let carried_record = match known.remove(&seq) {
            Some(encoded) => Some(encoded),
            None => match events.find_event(seq) {
                Ok(event) => event.map(|event| ChunkBuilder::encode_single(&event)),
                // An event that cannot be read is not copied. Readers get an error for it in either
                // place.
                Err(StoreError::Damaged(_)) => None,
                Err(error @ (StoreError::Full | StoreError::Failed(_))) => return Err(error),
            },
        };
        if let Some(carried_record) = carried_record {
            bytes += carried_record.len();
            copies.insert(seq, carried_record);
        }
    }
    let is_part = is_part || target < aim;
    Ok(TrimPlan {
        target,
        carried: copies,
        oldest_append: oldest_append.filter(|_| !is_part),
        is_part,
    })
}

/// Adds the move of a floor to `batch`.
pub(super) fn put_floor_move(
    batch: &mut Batch,
    id: PartitionId,
    partition: &PartitionState,
    plan: &TrimPlan,
) {
    for (seq, encoded) in plan.carried.range(..plan.target) {
        batch.put(Family::Carried, keys::carried(id, *seq), encoded.clone());
    }
    let record = FloorRecord {
        floor: plan.target,
        ..partition.floor_record()
    };
    batch.put(Family::Meta, keys::floor_key(id), record.encode());
}
