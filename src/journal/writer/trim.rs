//! Trimming: decides which partitions' logs are examined and when, and moves their floors.
//!
//! A lookup reads the store on a thread of its own ([`LookupThread`]), which also completes the id
//! filters of blocks that were open when the process started. A partition is examined only if
//! something may be removed: its low watermark or its end has moved, or its first chunk has reached
//! the retention time. A topic without traffic costs nothing.
//!
//! Invariants: a partition has at most one lookup in progress; only the writer's thread moves a
//! floor, and not past the low watermarks and guards at that moment; events whose pending
//! deliveries or pins changed since the lookup began are checked again before the floor passes
//! them.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{GroupWriter, HOUSEKEEPING};
use crate::partition_state::{self, PartitionState, TrimLookup, TrimPlan};
use gridhook_event::{IdMap, PartitionId, Seq, Timestamp};
use gridhook_store::{
    Batch, Family, Store, StoreError,
    id_filter::{IdFilter, OpenBlock, end_of},
    keys,
    task_threads::TaskThreads,
};

/// The maximum number of lookups in progress: their results are in memory.
const LOOKUPS_MAX: usize = 64;

/// About how many partitions are looked at in a second: a lookup and the move of a floor cost as
/// much as several events.
const LOOKUPS_PER_SECOND: usize = 128;

/// The maximum of [`TrimSchedule::lookup_delay`], in multiples of [`HOUSEKEEPING`].
const LONGEST_DELAY: usize = 16;

/// How long the writer waits for entries while lookups are in progress.
pub(super) const LOOKUP_WAIT: Duration = Duration::from_millis(5);

/// The delay before a partition with an unreadable log is examined again.
const UNREADABLE_WAIT: Duration = Duration::from_secs(10);

/// A partition is trimmed at most once in this fraction of the retention time, so that a long
/// retention costs little.
const RETENTION_PART: u32 = 64;

/// The maximum time between two trims of a partition.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

enum LogLookup {
    Trim(TrimLookup),
    Filter(PartitionId, OpenBlock),
}

enum LogLookupResult {
    Trim(PartitionId, Result<TrimPlan, StoreError>),
    Filter(CompleteFilter),
}

/// The id filter of a block.
struct CompleteFilter {
    id: PartitionId,
    block: u64,
    ids: Result<IdFilter, StoreError>,
}

impl LogLookup {
    fn run(self, store: &dyn Store) -> LogLookupResult {
        match self {
            Self::Trim(lookup) => {
                let plan = catch_panic(|| partition_state::plan_trim(store, &lookup));
                LogLookupResult::Trim(lookup.id, plan)
            }
            Self::Filter(id, open) => {
                let block = open.block;
                LogLookupResult::Filter(CompleteFilter {
                    id,
                    block,
                    ids: catch_panic(|| open.complete_filter(store, id)),
                })
            }
        }
    }
}

/// A panic must only affect this partition. The panic hook has logged it.
fn catch_panic<T>(lookup: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(lookup)).unwrap_or_else(|_| {
        Err(StoreError::Damaged(
            "the lookup in a log panicked".to_owned(),
        ))
    })
}

/// A handle to the lookup thread.
struct LookupThread {
    store: Arc<dyn Store>,
    found: mpsc::Sender<LogLookupResult>,
    results: mpsc::Receiver<LogLookupResult>,
    /// [`None`] once it is dropped.
    thread: Option<TaskThreads>,
}

impl LookupThread {
    fn new(store: Arc<dyn Store>) -> Self {
        let (found, results) = mpsc::channel();
        Self {
            store,
            found,
            results,
            thread: Some(TaskThreads::new("journal-trim", 1)),
        }
    }

    fn begin(&self, lookup: LogLookup) {
        let store = Arc::clone(&self.store);
        let found = self.found.clone();
        let run = move || {
            // The writer may have ended.
            found.send(lookup.run(&*store)).ok();
        };
        if let Some(thread) = &self.thread {
            thread.run(run);
        }
    }
}

impl Drop for LookupThread {
    fn drop(&mut self) {
        // The thread must end before the store is closed.
        self.thread.take().into_iter().for_each(TaskThreads::join);
    }
}

/// The trim state of a partition.
enum TrimStage {
    /// It is examined at this time.
    Due(Timestamp),
    /// A lookup is in progress.
    InProgress {
        /// The first event whose pending deliveries or pins have changed since.
        touched: Option<Seq>,
        /// Whether more may be removable than the lookup knew.
        is_outdated: bool,
    },
}

struct TrimResult {
    id: PartitionId,
    plan: Result<TrimPlan, StoreError>,
    /// The first event whose pending deliveries or pins have changed since the lookup began.
    touched: Option<Seq>,
    /// Whether more may be removable than the lookup knew.
    is_outdated: bool,
}

pub(super) struct TrimSchedule {
    due: BTreeSet<(Timestamp, PartitionId)>,
    /// Only partitions from which something may be removed.
    stages: IdMap<PartitionId, TrimStage>,
    in_progress: usize,
    /// The number of id filters that are being completed.
    completing: usize,
    /// Id filters that are complete and not written.
    filters: Vec<CompleteFilter>,
    lookup_thread: LookupThread,
}

impl TrimSchedule {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            due: BTreeSet::new(),
            stages: IdMap::default(),
            in_progress: 0,
            completing: 0,
            filters: Vec::new(),
            lookup_thread: LookupThread::new(store),
        }
    }

    /// Whether lookups are in progress.
    pub(super) fn is_looking(&self) -> bool {
        self.in_progress + self.completing > 0
    }

    /// When the next lookup is due.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn complete_filter(&mut self, id: PartitionId, open: OpenBlock) {
        self.lookup_thread.begin(LogLookup::Filter(id, open));
        self.completing += 1;
    }

    /// The time from a change until a partition is looked at: the more partitions wait, the longer.
    pub(super) fn lookup_delay(&self) -> Duration {
        let delays = (self.stages.len() / LOOKUPS_PER_SECOND).clamp(1, LONGEST_DELAY);
        HOUSEKEEPING.saturating_mul(delays as u32)
    }

    /// Schedules a lookup at `at`, because something may be removed. If one is scheduled, it stays:
    /// then retention or damage decides when.
    pub(super) fn schedule_lookup(&mut self, id: PartitionId, at: Timestamp) {
        match self.stages.get_mut(&id) {
            Some(TrimStage::Due(_)) => {}
            Some(TrimStage::InProgress { is_outdated, .. }) => *is_outdated = true,
            None => self.set_due(id, at),
        }
    }

    /// Records that pending deliveries or pins of these events change now.
    pub(super) fn note_changes(&mut self, events: impl Iterator<Item = (PartitionId, Seq)>) {
        if !self.is_looking() {
            return;
        }
        for (id, seq) in events {
            if let Some(TrimStage::InProgress { touched, .. }) = self.stages.get_mut(&id) {
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

    /// The next partition that is due, if one more lookup may begin.
    fn next(&mut self, now: Timestamp) -> Option<PartitionId> {
        let (at, id) = *self.due.first()?;
        if at > now || self.in_progress >= LOOKUPS_MAX {
            return None;
        }
        self.due.pop_first();
        self.stages.remove(&id);
        Some(id)
    }

    fn begin_lookup(&mut self, lookup: TrimLookup) {
        let id = lookup.id;
        self.lookup_thread.begin(LogLookup::Trim(lookup));
        self.in_progress += 1;
        self.stages.insert(
            id,
            TrimStage::InProgress {
                touched: None,
                is_outdated: false,
            },
        );
    }

    /// The next finished lookup for trimming.
    fn next_result(&mut self) -> Option<TrimResult> {
        let (id, plan) = loop {
            match self.lookup_thread.results.try_recv().ok()? {
                LogLookupResult::Trim(id, plan) => break (id, plan),
                LogLookupResult::Filter(filter) => self.take_filter(filter),
            }
        };
        self.in_progress -= 1;
        let (touched, is_outdated) = match self.stages.remove(&id) {
            Some(TrimStage::InProgress {
                touched,
                is_outdated,
            }) => (touched, is_outdated),
            // Only one lookup of a partition is in progress at a time.
            Some(TrimStage::Due(_)) | None => (Some(Seq(0)), true),
        };
        Some(TrimResult {
            id,
            plan,
            touched,
            is_outdated,
        })
    }

    fn take_filter(&mut self, filter: CompleteFilter) {
        self.completing -= 1;
        self.filters.push(filter);
    }

    /// Waits for the id filters that are being completed.
    fn wait_for_filters(&mut self) {
        while self.completing > 0 {
            match self.lookup_thread.results.recv() {
                Ok(LogLookupResult::Filter(filter)) => self.take_filter(filter),
                // The writer ends, so no floor is moved any more.
                Ok(LogLookupResult::Trim(..)) => {}
                Err(mpsc::RecvError) => return,
            }
        }
    }
}

impl GroupWriter {
    /// Moves floors according to finished lookups and begins lookups that are due. Never blocks on
    /// a lookup.
    pub(super) fn trim_partitions(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let result = self.move_floors(now).and_then(|()| self.write_filters());
        while let Some(id) = self.trims.next(now) {
            self.begin_trim_lookup(id, now);
        }
        let filters = self.trims.completing + self.trims.filters.len();
        self.status.set_trimming(self.trims.in_progress + filters);
        result
    }

    /// Writes the id filters that are being completed, before the writer ends.
    pub(super) fn finish_filters(&mut self) -> Result<(), StoreError> {
        self.trims.wait_for_filters();
        match self.write_filters() {
            // A search reads the log of a block without a filter.
            Err(StoreError::Full) => Ok(()),
            written => written,
        }
    }

    fn write_filters(&mut self) -> Result<(), StoreError> {
        if self.trims.filters.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        for CompleteFilter { id, block, ids } in &self.trims.filters {
            match ids {
                Ok(ids)
                    if self
                        .partitions
                        .get(id)
                        .is_some_and(|partition| partition.floor < end_of(*block)) =>
                {
                    batch.put(Family::Ids, keys::ids(*id, *block), ids.encode());
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(partition = id.0, block, %error, "could not complete the id \
                        filter of a block");
                }
            }
        }
        if !batch.0.is_empty() {
            self.write_batch(&batch)?;
        }
        self.trims.filters.clear();
        Ok(())
    }

    fn begin_trim_lookup(&mut self, id: PartitionId, now: Timestamp) {
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let lowest_needed = self.lowest_needed(id);
        if lowest_needed > partition.floor {
            let retention = self.options.limits.retention;
            // While the clock may be wrong, retention keeps everything.
            let since = if self.clock.expiry_is_paused() {
                Timestamp::default()
            } else {
                now.before(retention)
            };
            let retained_since = (!retention.is_zero()).then_some(since);
            let PartitionState {
                floor,
                next,
                set_back,
                ..
            } = *partition;
            self.trims.begin_lookup(TrimLookup {
                id,
                floor,
                next,
                set_back,
                lowest_needed,
                retained_since,
            });
        } else if self.guards.lowest_guarded(id).is_some() {
            // The end of a guard is not signaled.
            self.trims.set_due(id, now.after(HOUSEKEEPING));
        }
    }

    /// The lowest low watermark or guard of a partition, or its end.
    fn lowest_needed(&self, id: PartitionId) -> Seq {
        let end = self
            .partitions
            .get(&id)
            .map_or(Seq::FIRST, |partition| partition.next);
        let lows = self
            .lows
            .get(&id)
            .into_iter()
            .flatten()
            .map(|(_, low)| low.all);
        lows.chain(self.guards.lowest_guarded(id))
            .min()
            .unwrap_or(end)
            .min(end)
    }

    fn move_floors(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        let mut moved_floors = Vec::new();
        let retention = self.options.limits.retention;
        let interval = (retention / RETENTION_PART).clamp(HOUSEKEEPING, INTERVAL_MAX);
        while let Some(TrimResult {
            id,
            plan,
            touched,
            is_outdated,
        }) = self.trims.next_result()
        {
            if !self.partitions.contains_key(&id) {
                continue;
            }
            let plan_result = plan.and_then(|plan| self.recheck_plan(id, plan, touched));
            let plan = match plan_result {
                Ok(plan) => plan,
                Err(error) => {
                    self.trims.set_due(id, now.after(UNREADABLE_WAIT));
                    // A read failed, so nothing on disk has changed.
                    match error {
                        StoreError::Damaged(what) => self.note_damage(Family::Log, &what),
                        StoreError::Full | StoreError::Failed(_) => {
                            tracing::warn!(partition = id.0, %error, "could not read a log to trim \
                                it");
                        }
                    }
                    continue;
                }
            };
            let next = match plan.oldest_append {
                _ if plan.is_part => Some(now),
                Some(appended) => Some(appended.after(retention).max(now.after(interval))),
                None => (is_outdated || self.guards.lowest_guarded(id).is_some())
                    .then(|| now.after(HOUSEKEEPING)),
            };
            if let Some(next) = next {
                self.trims.set_due(id, next);
            }
            let Some(partition) = self
                .partitions
                .get(&id)
                .filter(|partition| partition.floor < plan.target)
            else {
                continue;
            };
            partition_state::put_floor_move(&mut batch, id, partition, &plan);
            moved_floors.push((id, plan.target));
        }
        if moved_floors.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.write_batch(&batch) {
            for (id, _) in moved_floors {
                self.trims.put_off(id, now.after(HOUSEKEEPING));
            }
            return Err(error);
        }
        // All floors first: an error of `drop_log` must not leave some behind those on disk.
        for (id, target) in &moved_floors {
            if let Some(partition) = self.partitions.get_mut(id) {
                partition.floor = *target;
            }
        }
        moved_floors
            .into_iter()
            .try_for_each(|(id, target)| self.store.drop_log(id, target))
    }

    /// Adapts a plan to changes since the lookup began: of low watermarks, guards, pending
    /// deliveries and pins.
    fn recheck_plan(
        &self,
        id: PartitionId,
        plan: TrimPlan,
        touched: Option<Seq>,
    ) -> Result<TrimPlan, StoreError> {
        let lowest_needed = self.lowest_needed(id);
        let plan = if lowest_needed < plan.target {
            TrimPlan {
                target: lowest_needed,
                oldest_append: None,
                ..plan
            }
        } else {
            plan
        };
        let floor = self
            .partitions
            .get(&id)
            .map_or(Seq::FIRST, |partition| partition.floor);
        match touched {
            Some(touched) if touched < plan.target => {
                partition_state::plan_carried_events(&*self.store, id, floor, plan)
            }
            Some(_) | None => Ok(plan),
        }
    }
}
