//! Where each partition's log begins and ends, and how its beginning moves.
//!
//! Below its partition's floor the log does not exist for any reader. Only the writer moves it: to the smallest of the low
//! marks that are durable, and not past what retention keeps. In this order: events below the new floor that somebody
//! still owes, or that wait as dead letters, are carried to `held`; the floor is synced, in the same batch; then the store
//! may have the space back. A crash between two steps leaves the log longer than it need be, never shorter.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
    time::Duration,
};

use crate::{
    event::{Obligor, PartitionId, Seq, SubscriptionId, Timestamp},
    journal::{
        End, Error,
        chunk::{Draft, Running},
        keys::{self, MetaKind},
        reader::{self, Finder},
        records::{Floor, Record},
        store::{Batch, Family, Store, StoreError},
    },
    policy::record::Cursor,
};

/// So many events at most are carried in one move, so that a move never holds up the appends for long.
const CARRY_MAX: usize = 1024;

/// So many chunks at most are looked at for their age in one move.
const AGED_MAX: usize = 1024;

/// What the log may keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// How long the log is kept after everybody has passed it, for replay.
    pub retention: Duration,
    /// How much of a partition's log may wait for its slowest subscription; [`None`] for as much as the disk has room for.
    pub backlog: Option<Bound>,
}

/// A bound of a partition's backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// So many bytes of the log; one request more may be taken.
    pub bytes: u64,
    /// What happens there.
    pub when_full: WhenFull,
}

/// What happens where a backlog is at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The topic's publishers wait.
    Refuse,
    /// The oldest events that the slowest subscriptions have not read go unsent, a little before the bound.
    Expire,
}

/// What the writer knows of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partition {
    /// Below, the log does not exist.
    pub(super) floor: Seq,
    /// The place of the next event.
    pub(super) next: Seq,
    /// What stands before it.
    pub(super) running: Running,
    /// When the newest event was appended.
    pub(super) appended: Timestamp,
    /// What everybody has passed, as far as it was looked at.
    pub(super) passed: Passed,
}

/// How much of a log was passed by everybody when it was looked at last: never more than by now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    /// Up to here.
    pub(super) low: Seq,
    /// So many bytes stand before it.
    pub(super) bytes: u64,
}

/// The first event that each subscription of a partition may still ask for.
pub(super) type Lows = BTreeMap<SubscriptionId, Low>;

/// What a subscription may still ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Low {
    /// The first event.
    pub(super) all: Seq,
    /// The first but for its jobs': these hold the log, and are nobody's backlog.
    pub(super) own: Seq,
}

impl Low {
    /// What stands in a cursor.
    pub(super) fn of(cursor: &Cursor) -> Option<Self> {
        let all = cursor.low()?;
        Some(Self { all, own: cursor.own_low().unwrap_or(all) })
    }
}

/// What is known of the logs.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// The partitions.
    pub(super) partitions: HashMap<PartitionId, Partition>,
    /// Their low marks, as far as they are durable.
    pub(super) lows: HashMap<PartitionId, Lows>,
}

impl Partition {
    pub(super) fn found() -> Self {
        Self::from(Floor { floor: Seq::FIRST, next: Seq::FIRST, ..Floor::default() })
    }

    pub(super) fn end(&self) -> End {
        End { next: self.next, running: self.running }
    }

    /// How many bytes of its log somebody has not passed, or more.
    pub(super) fn backlog(&self) -> u64 {
        self.running.bytes.saturating_sub(self.passed.bytes)
    }

    pub(super) fn record(&self) -> Floor {
        Floor { floor: self.floor, next: self.next, running: self.running, appended: self.appended }
    }
}

impl From<Floor> for Partition {
    fn from(Floor { floor, next, running, appended }: Floor) -> Self {
        Self { floor, next, running, appended, passed: Passed::default() }
    }
}

/// A partition that was abandoned keeps its floor record for ever, so that what is left of its log is never read.
pub(super) const ABANDONED: Seq = Seq(u64::MAX);

/// The partitions as the store has them.
pub(super) fn recover(store: &dyn Store) -> Result<Logs, Error> {
    let mut partitions = HashMap::new();
    let mut bad = None;
    let range = keys::meta_of(MetaKind::Floor);
    store.scan(Family::Meta, &range.start, &range.end, &mut |key, value| match (
        keys::parse_floor(key),
        Floor::decode(value),
    ) {
        (Some(id), Ok(record)) => {
            if record.floor != ABANDONED {
                partitions.insert(id, Partition::from(record));
            }
            ControlFlow::Continue(())
        }
        (id, floor) => {
            bad = Some(reader::damaged(format!("the floor of {id:?}: {floor:?}")));
            ControlFlow::Break(())
        }
    })?;
    if let Some(bad) = bad {
        return Err(bad.into());
    }
    for (id, partition) in &mut partitions {
        let range = keys::log_of(*id);
        if let Some((key, value)) = store.last(Family::Log, &range.start, &range.end)? {
            let chunk = reader::chunk_of(&key, value)?;
            // The log's last chunk may be older than the floor, where the whole log was passed.
            if chunk.end() > partition.next {
                partition.next = chunk.end();
                partition.running = chunk.after();
                partition.appended = partition.appended.max(chunk.appended);
            }
        }
    }
    let mut lows: HashMap<PartitionId, Lows> = HashMap::new();
    for (Obligor { partition, subscription }, cursor) in reader::scan_cursors(store)? {
        if let Some(low) = Low::of(&cursor) {
            lows.entry(partition).or_default().insert(subscription, low);
        }
    }
    Ok(Logs { partitions, lows })
}

/// Plans the move of a partition's floor into `batch`: what is carried, and the floor itself. `held` is the first event that
/// somebody may still ask for. [`None`] where it stays.
pub(super) fn plan(
    store: &dyn Store,
    id: PartitionId,
    partition: &Partition,
    held: Option<Seq>,
    limits: Limits,
    now: Timestamp,
    batch: &mut Batch,
) -> Result<Option<Seq>, StoreError> {
    let low = held.unwrap_or(partition.next).min(partition.next);
    if low <= partition.floor {
        return Ok(None);
    }
    let mut target = low.min(aged(store, id, partition, limits, now)?);
    let mut carried = BTreeSet::new();
    for (family, range) in [
        (
            Family::Owed,
            keys::owed(id, partition.floor, SubscriptionId(0), crate::event::Lane(0))..keys::owed_below(id, target).end,
        ),
        (
            Family::Pin,
            keys::pin(id, partition.floor, SubscriptionId(0), crate::event::Lane(0))..keys::pins_below(id, target).end,
        ),
    ] {
        let mut found = BTreeSet::new();
        store.scan(family, &range.start, &range.end, &mut |key, _| {
            let parsed = keys::parse_owed(key).or_else(|| keys::parse_pin(key));
            if let Some((_, seq, _, _)) = parsed {
                if found.len() == CARRY_MAX && !found.contains(&seq) {
                    target = target.min(seq);
                    return ControlFlow::Break(());
                }
                found.insert(seq);
            }
            ControlFlow::Continue(())
        })?;
        carried.extend(found);
    }
    if target <= partition.floor {
        return Ok(None);
    }
    let mut events = Finder::new(store, id);
    for seq in carried.into_iter().take_while(|seq| *seq < target) {
        match events.find(seq) {
            Ok(Some(event)) => batch.put(Family::Held, keys::held(id, seq), Draft::hold(&event)),
            // It cannot be read where it is either: whoever asks for it is told.
            Ok(None) | Err(StoreError::Damaged(_)) => {}
            Err(error @ (StoreError::Full | StoreError::Failed(_))) => return Err(error),
        }
    }
    let record = Floor { floor: target, ..partition.record() };
    batch.put(Family::Meta, keys::floor(id), record.encode());
    Ok(Some(target))
}

/// The first event that retention keeps, as far as one look goes.
fn aged(
    store: &dyn Store,
    id: PartitionId,
    partition: &Partition,
    limits: Limits,
    now: Timestamp,
) -> Result<Seq, StoreError> {
    if limits.retention.is_zero() {
        return Ok(partition.next);
    }
    let kept = now.before(limits.retention);
    let mut first = partition.floor;
    let (mut looked, mut any) = (0, false);
    let mut bad = None;
    let range = keys::log_from(id, partition.floor);
    store.scan(Family::Log, &range.start, &range.end, &mut |key, value| {
        any = true;
        match reader::chunk_of(key, bytes::Bytes::copy_from_slice(value)) {
            Ok(chunk) if chunk.appended < kept && looked < AGED_MAX => {
                first = chunk.end();
                looked += 1;
                ControlFlow::Continue(())
            }
            Ok(_) => ControlFlow::Break(()),
            Err(error) => {
                bad = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    // The floor may stand in the last chunk, which has the age of the newest event.
    if !any && partition.appended < kept {
        first = partition.next;
    }
    match bad {
        Some(bad) => Err(bad),
        None => Ok(first),
    }
}
