//! The state that a writer shares with all threads: whether it can write, the ends of the logs, and
//! partitions with too large a backlog.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;

use gridhook_event::{IdMap, PartitionId, SubscriptionId};
use gridhook_metrics::{DURATIONS, EVENTS, Histogram, HistogramCounts};
use gridhook_store::log::LogEnd;

/// Whether the journal can write. The order is from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalState {
    /// Writes are accepted.
    Writable,
    /// The disk is full. Writes succeed again once there is space.
    Full,
    /// A writer has ended. Calls that need it return [`Error::Closed`](crate::Error::Closed).
    Closed,
}

/// A partition whose backlog is at its limit, or close to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdedPartition {
    /// The subscription that has read least.
    pub laggard: SubscriptionId,
    /// The bytes of the log that it has not passed.
    pub bytes: u64,
    /// Whether publish requests are refused.
    pub is_full: bool,
    /// The bytes to which the backlog is reduced by expiring events; [`None`] if publishers wait
    /// instead.
    pub keep: Option<u64>,
}

pub(super) struct WriterMeter {
    sync: Histogram<{ DURATIONS.range_count() }>,
    group: Histogram<{ EVENTS.range_count() }>,
}

impl WriterMeter {
    pub(super) fn new() -> Self {
        Self {
            sync: Histogram::new(&DURATIONS),
            group: Histogram::new(&EVENTS),
        }
    }

    /// Records that `entries` entries were written and synced.
    pub(super) fn record_sync(&self, entries: usize, took: Duration) {
        self.group.observe(entries as u64);
        self.sync.observe_duration(took);
    }

    /// Durations of syncs, and numbers of entries that shared one.
    pub(super) fn histogram_counts(&self) -> (HistogramCounts, HistogramCounts) {
        (self.sync.counts(), self.group.counts())
    }
}

pub(super) struct WriterStatus {
    pub(super) meter: Arc<WriterMeter>,
    state: AtomicU8,
    ends: RwLock<IdMap<PartitionId, LogEnd>>,
    /// Only partitions at or near their limit: mostly none.
    crowded_partitions: RwLock<IdMap<PartitionId, CrowdedPartition>>,
    trimming: AtomicUsize,
    ids_version: AtomicU64,
}

impl WriterStatus {
    pub(super) fn new(
        ends: impl Iterator<Item = (PartitionId, LogEnd)>,
        meter: Arc<WriterMeter>,
    ) -> Self {
        Self {
            meter,
            state: AtomicU8::new(JournalState::Writable as u8),
            ends: RwLock::new(ends.collect()),
            crowded_partitions: RwLock::default(),
            trimming: AtomicUsize::new(0),
            ids_version: AtomicU64::new(0),
        }
    }

    pub(super) fn state(&self) -> JournalState {
        match self.state.load(Ordering::Acquire) {
            state if state == JournalState::Writable as u8 => JournalState::Writable,
            state if state == JournalState::Full as u8 => JournalState::Full,
            _ => JournalState::Closed,
        }
    }

    pub(super) fn set_state(&self, state: JournalState) -> u8 {
        self.state.swap(state as u8, Ordering::AcqRel)
    }

    pub(super) fn log_end(&self, partition: PartitionId) -> Option<LogEnd> {
        get(&self.ends, partition)
    }

    pub(super) fn list_partitions(&self) -> Vec<PartitionId> {
        self.ends.read().keys().copied().collect()
    }

    pub(super) fn set_end(&self, partition: PartitionId, end: Option<LogEnd>) {
        set_entry(&self.ends, partition, end);
    }

    /// The number of partitions whose logs are being examined for trimming.
    pub(super) fn trimming_count(&self) -> usize {
        self.trimming.load(Ordering::Acquire)
    }

    pub(super) fn set_trimming(&self, partitions: usize) {
        self.trimming.store(partitions, Ordering::Release);
    }

    /// How many writes had ids of topics with duplicate detection. A read that begins now sees all
    /// of them.
    pub(super) fn ids_version(&self) -> u64 {
        self.ids_version.load(Ordering::Acquire)
    }

    pub(super) fn set_ids_version(&self, version: u64) {
        self.ids_version.store(version, Ordering::Release);
    }

    pub(super) fn crowded_partition(&self, partition: PartitionId) -> Option<CrowdedPartition> {
        get(&self.crowded_partitions, partition)
    }

    pub(super) fn set_crowded_partition(
        &self,
        partition: PartitionId,
        crowded: Option<CrowdedPartition>,
    ) {
        set_entry(&self.crowded_partitions, partition, crowded);
    }
}

fn get<T: Copy>(of: &RwLock<IdMap<PartitionId, T>>, partition: PartitionId) -> Option<T> {
    of.read().get(&partition).copied()
}

fn set_entry<T>(of: &RwLock<IdMap<PartitionId, T>>, partition: PartitionId, value: Option<T>) {
    let mut of = of.write();
    match value {
        Some(value) => of.insert(partition, value),
        None => of.remove(&partition),
    };
}
