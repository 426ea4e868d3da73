//! What the writer lets everybody know without being asked: whether it can write, where logs end, whose backlog is too large.

use std::{
    collections::HashMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    event::{PartitionId, SubscriptionId},
    metrics::{DURATIONS, EVENTS, Histogram, HistogramCounts},
    store::log::LogEnd,
};

/// Whether the journal can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// It can.
    Writable,
    /// It will again, when there is room on the disk.
    Full,
    /// It has ended.
    Closed,
}

/// A partition whose backlog is at its bound, or close to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdedPartition {
    /// Who has read least.
    pub laggard: SubscriptionId,
    /// How many bytes it has not passed.
    pub bytes: u64,
    /// Whether publishes are refused.
    pub is_full: bool,
    /// To how many bytes the backlog is to be made smaller; [`None`] where publishers wait instead.
    pub keep: Option<u64>,
}

/// What the writer measures.
pub(super) struct WriterMeter {
    sync: Histogram,
    group: Histogram,
}

impl WriterMeter {
    /// So many entries were written and synced, in so long.
    pub(super) fn synced(&self, entries: usize, took: Duration) {
        self.group.observe(entries as u64);
        self.sync.took(took);
    }

    /// How long syncs took, and how many entries shared one.
    pub(super) fn counts(&self) -> (HistogramCounts, HistogramCounts) {
        (self.sync.counts(), self.group.counts())
    }
}

/// What the writer lets everybody know.
pub(super) struct WriterStatus {
    pub(super) meter: WriterMeter,
    state: AtomicU8,
    ends: RwLock<HashMap<PartitionId, LogEnd>>,
    /// Only those that are crowded: mostly none.
    crowds: RwLock<HashMap<PartitionId, CrowdedPartition>>,
    trimming: AtomicUsize,
}

impl WriterStatus {
    pub(super) fn new(ends: impl Iterator<Item = (PartitionId, LogEnd)>) -> Self {
        Self {
            meter: WriterMeter { sync: Histogram::new(&DURATIONS), group: Histogram::new(&EVENTS) },
            state: AtomicU8::new(JournalState::Writable as u8),
            ends: RwLock::new(ends.collect()),
            crowds: RwLock::default(),
            trimming: AtomicUsize::new(0),
        }
    }

    pub(super) fn state(&self) -> JournalState {
        match self.state.load(Ordering::Acquire) {
            state if state == JournalState::Writable as u8 => JournalState::Writable,
            state if state == JournalState::Full as u8 => JournalState::Full,
            _ => JournalState::Closed,
        }
    }

    /// Answers what it was.
    pub(super) fn set_state(&self, state: JournalState) -> u8 {
        self.state.swap(state as u8, Ordering::AcqRel)
    }

    pub(super) fn end(&self, partition: PartitionId) -> Option<LogEnd> {
        get(&self.ends, partition)
    }

    /// The partitions that there are.
    pub(super) fn partitions(&self) -> Vec<PartitionId> {
        self.ends.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    pub(super) fn set_end(&self, partition: PartitionId, end: Option<LogEnd>) {
        set(&self.ends, partition, end);
    }

    /// How many partitions' logs are being looked at, to be trimmed.
    pub(super) fn trimming(&self) -> usize {
        self.trimming.load(Ordering::Acquire)
    }

    pub(super) fn set_trimming(&self, partitions: usize) {
        self.trimming.store(partitions, Ordering::Release);
    }

    pub(super) fn crowd(&self, partition: PartitionId) -> Option<CrowdedPartition> {
        get(&self.crowds, partition)
    }

    pub(super) fn set_crowd(&self, partition: PartitionId, crowd: Option<CrowdedPartition>) {
        set(&self.crowds, partition, crowd);
    }
}

fn get<T: Copy>(of: &RwLock<HashMap<PartitionId, T>>, partition: PartitionId) -> Option<T> {
    of.read().unwrap_or_else(PoisonError::into_inner).get(&partition).copied()
}

fn set<T>(of: &RwLock<HashMap<PartitionId, T>>, partition: PartitionId, value: Option<T>) {
    let mut of = of.write().unwrap_or_else(PoisonError::into_inner);
    match value {
        Some(value) => of.insert(partition, value),
        None => of.remove(&partition),
    };
}
