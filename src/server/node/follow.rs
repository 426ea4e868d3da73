//! A standby follows the changelog: each of its reads applies the new records to the local store,
//! until the node has the claim or stops.
//!
//! The reads of all shards of a process run on the blocking threads of the client of NATS. So a
//! shard without new records has no thread of its own, and one whose changelog does not respond
//! keeps no other one waiting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::{ClusterNode, PAUSE_MAX, SYNC_INTERVAL};
use crate::local_store::LocalStore;
use gridhook_cluster::ShardProgress;
use gridhook_journal::{
    changelog::{
        Changelog, ChangelogBounds, ChangelogError, KnownMarks, StreamMark, record::BrokenRecord,
    },
    replicated::{FollowError, ReplicationOptions, ShardCopy},
};
use gridhook_store::{Store, records::AppliedPosition};

/// The number of looks in a row that find a changelog to be lost, after which it is. Servers that
/// start may not know all their streams yet.
const LOST_LOOKS: u32 = 12;

/// After each [`IDLE_ROUNDS`] reads without a record a follower pauses longer by its interval: up to
/// [`IDLE_FACTOR`] intervals, and at most [`SYNC_INTERVAL`].
const IDLE_ROUNDS: u32 = 10;
const IDLE_FACTOR: u32 = 10;

impl ClusterNode {
    /// Follows the changelog, also after an error that may end by itself. Returns the error that
    /// does not; [`None`] once `log` is stopped. To end it, stop `log` and wait: a read that was
    /// begun applies its records.
    pub(super) async fn follow_changelog(&self, log: &Arc<StoppableLog>) -> Option<FollowError> {
        let mut follower = Follower {
            local: Arc::clone(&self.store),
            store: self.store.open_store(),
            log: Arc::clone(log),
            progress: Arc::clone(&self.claim.progress),
            cluster_id: self.process.cluster_id.clone(),
            lost_looks: Arc::clone(&self.lost_looks),
            copy: None,
            last_sync: None,
            idle_rounds: 0,
        };
        let mut last_problem = String::new();
        loop {
            let span = tracing::Span::current();
            let read = self
                .process
                .blocking
                .spawn_blocking(move || span.in_scope(|| (follower.apply_new_records(), follower)));
            let Ok((result, returned)) = read.await else {
                // The store may lack a part of what is before its position.
                tracing::error!("the thread that applies the changelog panicked");
                std::process::abort();
            };
            follower = returned;
            if log.is_stopped.load(Ordering::Acquire) {
                return None;
            }
            let Err(error) = result else {
                let pause = follow_pause(self.follow_interval, follower.idle_rounds);
                timeout(pause, self.haste.notified()).await.ok();
                continue;
            };
            let is_lost = is_lost(&error);
            let is_lost_for_good = is_lost && count_lost_look(&self.lost_looks);
            if !matches!(error, FollowError::Log(_)) && (!is_lost || is_lost_for_good) {
                return Some(error);
            }
            let problem = error.to_string();
            if problem != last_problem {
                tracing::warn!(%error, "the changelog cannot be read");
            }
            last_problem = problem;
            sleep(PAUSE_MAX).await;
        }
    }
}

/// What a standby has between two reads of the changelog.
struct Follower {
    local: Arc<LocalStore>,
    store: Arc<dyn Store>,
    log: Arc<StoppableLog>,
    progress: Arc<ShardProgress>,
    cluster_id: String,
    lost_looks: Arc<AtomicU32>,
    /// The copy, which is opened again after an error.
    copy: Option<ShardCopy>,
    /// The sequence that was synced last, and when.
    last_sync: Option<(u64, Instant)>,
    /// The number of reads in a row that found no record.
    idle_rounds: u32,
}

impl Follower {
    /// Applies what the changelog has now. Blocks.
    fn apply_new_records(&mut self) -> Result<(), FollowError> {
        let mut copy = match self.copy.take() {
            Some(copy) => copy,
            None => self.open_copy()?,
        };
        let before = copy.applied_position();
        let position = copy.catch_up()?;
        self.copy = Some(copy);
        let applied = position.sequence;
        self.idle_rounds = if applied == before.sequence {
            self.idle_rounds + 1
        } else {
            0
        };
        let progress = &self.progress;
        progress.note_applied(mark_at(position));
        if progress.failure().is_some() {
            tracing::info!("this node can serve the shard again");
            progress.note_failure(None);
        }
        progress.note_complete();
        self.lost_looks.store(0, Ordering::Release);
        let is_due =
            |(sequence, at): (u64, Instant)| sequence != applied && at.elapsed() >= SYNC_INTERVAL;
        if self.last_sync.is_none_or(is_due) {
            self.store.note_watermark()?;
            progress.flushed.store(applied, Ordering::Release);
            self.last_sync = Some((applied, Instant::now()));
        }
        Ok(())
    }

    fn open_copy(&mut self) -> Result<ShardCopy, FollowError> {
        self.last_sync = None;
        self.idle_rounds = 0;
        let copy = ShardCopy::open(
            Arc::clone(&self.store),
            Arc::clone(&self.log) as _,
            replication_options(),
        )?;
        if let Err(error) = self.local.note_cluster(&self.cluster_id) {
            tracing::warn!(%error, "the data folder does not name the cluster");
        }
        Ok(copy)
    }
}

/// Whether the records that are missing may be found: a server that has just started, or become the
/// leader, may lack some.
pub(super) fn is_lost(error: &FollowError) -> bool {
    let is_gap = matches!(
        error,
        FollowError::Broken {
            why: BrokenRecord::Gap,
            ..
        }
    );
    is_gap
        || matches!(
            error,
            FollowError::Missing { .. }
                | FollowError::Shorter { .. }
                | FollowError::RolledBack { .. }
        )
}

/// Counts a look that found the changelog to be lost. Returns whether it is lost for good.
pub(super) fn count_lost_look(lost_looks: &AtomicU32) -> bool {
    lost_looks.fetch_add(1, Ordering::AcqRel) + 1 >= LOST_LOOKS
}

/// The pause before the next read. An idle changelog is read less often. A node that takes the shard
/// reads it again anyway.
fn follow_pause(interval: Duration, idle_rounds: u32) -> Duration {
    let factor = 1 + (idle_rounds / IDLE_ROUNDS).min(IDLE_FACTOR - 1);
    (interval * factor).min(SYNC_INTERVAL)
}

/// The mark of the last record that a store has applied. Its epoch is computed from the sequence and
/// the number within the epoch, because the position after a release has epoch 0.
pub(super) fn mark_at(position: AppliedPosition) -> StreamMark {
    let AppliedPosition {
        sequence, number, ..
    } = position;
    StreamMark {
        position: sequence,
        epoch: sequence.saturating_sub(number),
    }
}

pub(super) fn replication_options() -> ReplicationOptions {
    ReplicationOptions {
        pause_max: PAUSE_MAX,
        ..ReplicationOptions::default()
    }
}

/// A changelog whose calls fail once the process or the follower stops, so that nothing waits for
/// it any longer.
pub(super) struct StoppableLog {
    log: Arc<dyn Changelog>,
    progress: Arc<ShardProgress>,
    pub(super) is_stopped: AtomicBool,
}

impl StoppableLog {
    pub(super) fn new(log: Arc<dyn Changelog>, progress: Arc<ShardProgress>) -> Self {
        Self {
            log,
            progress,
            is_stopped: AtomicBool::new(false),
        }
    }

    fn running_log(&self) -> Result<&dyn Changelog, ChangelogError> {
        let is_running = !self.is_stopped.load(Ordering::Acquire);
        is_running
            .then_some(&*self.log)
            .ok_or_else(|| ChangelogError::Refused("the server stops".to_owned()))
    }
}

impl Changelog for StoppableLog {
    fn append(&self, record: &Bytes, expected: Option<u64>) -> Result<u64, ChangelogError> {
        self.running_log()?.append(record, expected)
    }

    fn bounds(&self) -> Result<ChangelogBounds, ChangelogError> {
        self.running_log()?.bounds()
    }

    fn read(&self, from: u64, most: usize) -> Result<Vec<Bytes>, ChangelogError> {
        self.running_log()?.read(from, most)
    }

    fn trim(&self, through: u64, keep_bytes: u64) -> Result<(), ChangelogError> {
        self.running_log()?.trim(through, keep_bytes)
    }

    fn known_marks(&self) -> KnownMarks {
        self.progress.known_marks()
    }
}
