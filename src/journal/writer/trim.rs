//! Trimming: which partitions are looked at, when, and how what a look found becomes the new floor.
//!
//! A look reads the store, on a thread of its own ([`TrimThread`]). Only partitions of which something may go are looked at: one
//! whose low mark or end has moved, or whose first chunk has reached its age. A topic without traffic costs nothing.
//!
//! Invariants: at most one look at a partition is on its way; a floor is moved by the writer's thread alone, and not past
//! the low marks and holds as they are then; events whose obligations changed since the look began are looked at again
//! before the floor passes them.

use std::{
    collections::{BTreeSet, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use super::{GroupWriter, HOUSEKEEPING};
use crate::{
    event::{PartitionId, Seq, Timestamp},
    journal::partition_state::{self, TrimLookup, TrimPlan},
    store::{Batch, Family, Store, StoreError},
};

/// So many looks at most are on their way: what they found lies in memory.
const LOOKS_MAX: usize = 64;

/// How long the writer waits for entries while looks are on their way.
pub(super) const LOOK_WAIT: Duration = Duration::from_millis(5);

/// When a partition is looked at again whose log could not be read.
const UNREADABLE_WAIT: Duration = Duration::from_secs(10);

/// A partition is trimmed at most once in this part of the retention, so that a long one costs little …
const RETENTION_PART: u32 = 64;

/// … and at least once in so long.
const REST_MAX: Duration = Duration::from_secs(60);

type TrimLookupResult = (PartitionId, Result<TrimPlan, StoreError>);

/// The thread that looks, for as long as the writer runs.
struct TrimThread {
    wanted: Option<mpsc::Sender<TrimLookup>>,
    looked: mpsc::Receiver<TrimLookupResult>,
    thread: Option<JoinHandle<()>>,
}

impl TrimThread {
    fn start(store: Arc<dyn Store>) -> Self {
        let (wanted, wishes) = mpsc::channel::<TrimLookup>();
        let (found, looked) = mpsc::channel();
        let run = move || {
            for look in wishes {
                let id = look.id;
                // A panic is a defect that the hook has told of: this partition is not trimmed for now, all others are.
                let plan = catch_unwind(AssertUnwindSafe(|| partition_state::plan(&*store, &look)))
                    .unwrap_or_else(|_| Err(StoreError::Damaged("looking at a log panicked".to_owned())));
                if found.send((id, plan)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("journal-trim".to_owned())
            .spawn(run)
            .expect("a process that cannot start a thread cannot start");
        Self { wanted: Some(wanted), looked, thread: Some(thread) }
    }
}

impl Drop for TrimThread {
    fn drop(&mut self) {
        // The thread ends with this, and the store may be closed.
        self.wanted = None;
        self.thread.take().and_then(|thread| thread.join().ok());
    }
}

/// Where a partition stands.
enum TrimStage {
    /// It is looked at then.
    Due(Timestamp),
    /// It is being looked at.
    Looked {
        /// The first event whose obligations changed since.
        touched: Option<Seq>,
        /// Whether there may be more to trim than the look knew of.
        again: bool,
    },
}

/// A look that has ended.
struct TrimResult {
    id: PartitionId,
    plan: Result<TrimPlan, StoreError>,
    /// The first event whose obligations changed since the look began.
    touched: Option<Seq>,
    /// Whether there may be more to trim than the look knew of.
    again: bool,
}

/// Which partitions are looked at next.
pub(super) struct TrimSchedule {
    due: BTreeSet<(Timestamp, PartitionId)>,
    /// Only those of which something may go.
    stages: HashMap<PartitionId, TrimStage>,
    on_their_way: usize,
    looks: TrimThread,
}

impl TrimSchedule {
    pub(super) fn start(store: Arc<dyn Store>) -> Self {
        Self { due: BTreeSet::new(), stages: HashMap::new(), on_their_way: 0, looks: TrimThread::start(store) }
    }

    /// Whether looks are on their way.
    pub(super) fn is_looking(&self) -> bool {
        self.on_their_way > 0
    }

    /// Something of this log may go: it is looked at no later than at `at`.
    pub(super) fn arm(&mut self, id: PartitionId, at: Timestamp) {
        match self.stages.get_mut(&id) {
            Some(TrimStage::Due(_)) => {}
            Some(TrimStage::Looked { again, .. }) => *again = true,
            None => self.set_due(id, at),
        }
    }

    /// What asks for these events changes now.
    pub(super) fn touch(&mut self, events: impl Iterator<Item = (PartitionId, Seq)>) {
        if !self.is_looking() {
            return;
        }
        for (id, seq) in events {
            if let Some(TrimStage::Looked { touched, .. }) = self.stages.get_mut(&id) {
                *touched = Some(touched.map_or(seq, |first| first.min(seq)));
            }
        }
    }

    fn set_due(&mut self, id: PartitionId, at: Timestamp) {
        self.due.insert((at, id));
        self.stages.insert(id, TrimStage::Due(at));
    }

    fn put_off(&mut self, id: PartitionId, at: Timestamp) {
        if let Some(TrimStage::Due(before)) = self.stages.get(&id) {
            self.due.remove(&(*before, id));
        }
        self.set_due(id, at);
    }

    /// The next partition that is due, where one more look may begin.
    fn next(&mut self, now: Timestamp) -> Option<PartitionId> {
        let (at, id) = *self.due.first()?;
        if at > now || self.on_their_way >= LOOKS_MAX {
            return None;
        }
        self.due.pop_first();
        self.stages.remove(&id);
        Some(id)
    }

    fn begin(&mut self, look: TrimLookup) {
        let id = look.id;
        if self.looks.wanted.as_ref().is_some_and(|wanted| wanted.send(look).is_ok()) {
            self.on_their_way += 1;
            self.stages.insert(id, TrimStage::Looked { touched: None, again: false });
        }
    }

    /// The next look that has ended.
    fn found(&mut self) -> Option<TrimResult> {
        let (id, plan) = self.looks.looked.try_recv().ok()?;
        self.on_their_way -= 1;
        let (touched, again) = match self.stages.remove(&id) {
            Some(TrimStage::Looked { touched, again }) => (touched, again),
            // No look begins while one is on its way.
            Some(TrimStage::Due(_)) | None => (Some(Seq(0)), true),
        };
        Some(TrimResult { id, plan, touched, again })
    }
}

impl GroupWriter {
    /// Moves floors as far as was found out, and has those looked at that are due. Never blocks on a look.
    pub(super) fn trim(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let moved = self.move_floors(now);
        while let Some(id) = self.trims.next(now) {
            self.look(id, now);
        }
        self.status.set_trimming(self.trims.on_their_way);
        moved
    }

    fn look(&mut self, id: PartitionId, now: Timestamp) {
        let Some(partition) = self.partitions.get(&id) else { return };
        let low = self.low(id);
        if low > partition.floor {
            let retention = self.options.limits.retention;
            // While the clock may be wrong about ages, retention keeps everything.
            let since = if self.clock.holds_expiry() { Timestamp::default() } else { now.before(retention) };
            let kept = (!retention.is_zero()).then_some(since);
            self.trims.begin(TrimLookup { id, floor: partition.floor, next: partition.next, low, kept });
        } else if self.holds.low(id).is_some() {
            // Nobody says when a hold ends.
            self.trims.set_due(id, now.after(HOUSEKEEPING));
        }
    }

    /// The first event of a partition that somebody may still ask for, or its end.
    fn low(&self, id: PartitionId) -> Seq {
        let end = self.partitions.get(&id).map_or(Seq::FIRST, |partition| partition.next);
        let lows = self.lows.get(&id).into_iter().flatten().map(|(_, low)| low.all);
        lows.chain(self.holds.low(id)).min().unwrap_or(end).min(end)
    }

    fn move_floors(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        let mut moved = Vec::new();
        let retention = self.options.limits.retention;
        let rest = (retention / RETENTION_PART).clamp(HOUSEKEEPING, REST_MAX);
        while let Some(TrimResult { id, plan, touched, again }) = self.trims.found() {
            if !self.partitions.contains_key(&id) {
                continue;
            }
            let planned = plan.and_then(|plan| self.recheck(id, plan, touched));
            let plan = match planned {
                Ok(plan) => plan,
                Err(error) => {
                    self.trims.set_due(id, now.after(UNREADABLE_WAIT));
                    // It was a read: what is on disk is as it was, and so is the log.
                    match error {
                        StoreError::Damaged(what) => self.note_damage(Family::Log, &what),
                        StoreError::Full | StoreError::Failed(_) => {
                            tracing::warn!(partition = id.0, %error, "a log could not be read to be trimmed");
                        }
                    }
                    continue;
                }
            };
            let next = match plan.ages {
                _ if plan.is_part => Some(now),
                Some(appended) => Some(appended.after(retention).max(now.after(rest))),
                None => (again || self.holds.low(id).is_some()).then(|| now.after(HOUSEKEEPING)),
            };
            if let Some(next) = next {
                self.trims.set_due(id, next);
            }
            let Some(partition) = self.partitions.get(&id).filter(|partition| partition.floor < plan.target) else {
                continue;
            };
            partition_state::put(&mut batch, id, partition, &plan);
            moved.push((id, plan.target));
        }
        if moved.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.store.write(&batch) {
            for (id, _) in moved {
                self.trims.put_off(id, now.after(HOUSEKEEPING));
            }
            return Err(error);
        }
        for (id, target) in moved {
            if let Some(partition) = self.partitions.get_mut(&id) {
                partition.floor = target;
            }
            self.store.drop_log(id, target)?;
        }
        Ok(())
    }

    /// The plan as it must be now: somebody may have asked for a part of the log or for an event since.
    fn recheck(&self, id: PartitionId, plan: TrimPlan, touched: Option<Seq>) -> Result<TrimPlan, StoreError> {
        let low = self.low(id);
        let plan = if low < plan.target { TrimPlan { target: low, ages: None, ..plan } } else { plan };
        let floor = self.partitions.get(&id).map_or(Seq::FIRST, |partition| partition.floor);
        match touched {
            Some(touched) if touched < plan.target => partition_state::carry(&*self.store, id, floor, plan),
            Some(_) | None => Ok(plan),
        }
    }
}
