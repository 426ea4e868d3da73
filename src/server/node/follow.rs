//! A standby follows the changelog: a thread applies its records to the local store, until the node
//! has the claim or stops.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{JoinHandle, Thread},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

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
    /// Starts the thread that applies the changelog.
    pub(super) fn spawn_follower(&self) -> Follower {
        let (sender, failed) = watch::channel(None);
        let progress = Arc::clone(&self.claim.progress);
        let log = Arc::new(StoppableLog::new(Arc::clone(&self.log) as _, progress));
        let local = Arc::clone(&self.store);
        let cluster_id = self.cluster_id.clone();
        let store: Arc<dyn Store> = local.open_store();
        let progress = Arc::clone(&self.claim.progress);
        let stop_log = Arc::clone(&log);
        let lost_looks = Arc::clone(&self.lost_looks);
        let interval = self.follow_interval;
        let span = tracing::Span::current();
        let follow = move || {
            let on_opened = || note_cluster(&local, &cluster_id);
            if let Some(error) =
                follow_until_stopped(&store, &log, &progress, &lost_looks, interval, &on_opened)
            {
                sender.send_replace(Some(error));
            }
        };
        let thread = std::thread::Builder::new()
            .name("changelog".to_owned())
            .spawn(move || span.in_scope(follow))
            .expect("a process that cannot start a thread cannot start");
        self.pace.begin(thread.thread());
        Follower {
            log: stop_log,
            failed,
            thread: Some(thread),
        }
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

fn note_cluster(local: &LocalStore, id: &str) {
    if let Err(error) = local.note_cluster(id) {
        tracing::warn!(%error, "the data folder does not name the cluster");
    }
}

/// Follows the changelog, also after an error that may end by itself. Returns the error that does
/// not; [`None`] if the follower was stopped.
fn follow_until_stopped(
    store: &Arc<dyn Store>,
    log: &Arc<StoppableLog>,
    progress: &ShardProgress,
    lost_looks: &AtomicU32,
    interval: Duration,
    on_opened: &dyn Fn(),
) -> Option<FollowError> {
    let mut last_problem = String::new();
    loop {
        let error = match apply_until_error(store, log, progress, lost_looks, interval, on_opened) {
            Ok(()) => return None,
            Err(_) if log.is_stopped.load(Ordering::Acquire) => return None,
            Err(error) => error,
        };
        let is_lost = is_lost(&error);
        let is_lost_for_good = is_lost && count_lost_look(lost_looks);
        if !matches!(error, FollowError::Log(_)) && (!is_lost || is_lost_for_good) {
            return Some(error);
        }
        if last_problem != error.to_string() {
            tracing::warn!(%error, "the changelog cannot be read");
        }
        last_problem = error.to_string();
        std::thread::sleep(PAUSE_MAX);
    }
}

/// Applies the changelog until it cannot be read, or is stopped.
fn apply_until_error(
    store: &Arc<dyn Store>,
    log: &Arc<StoppableLog>,
    progress: &ShardProgress,
    lost_looks: &AtomicU32,
    interval: Duration,
    on_opened: &dyn Fn(),
) -> Result<(), FollowError> {
    let mut copy = ShardCopy::open(
        Arc::clone(store),
        Arc::clone(log) as _,
        replication_options(),
    )?;
    on_opened();
    let mut last_sync = None;
    let mut last_position = None;
    let mut idle_rounds = 0;
    loop {
        let position = copy.catch_up()?;
        let applied = position.sequence;
        idle_rounds = match last_position.replace(applied) {
            Some(before) if before == applied => idle_rounds + 1,
            Some(_) | None => 0,
        };
        progress.note_applied(mark_at(position));
        if progress.failure().is_some() {
            tracing::info!("this node can serve the shard again");
            progress.note_failure(None);
        }
        progress.note_complete();
        lost_looks.store(0, Ordering::Release);
        let is_due =
            |(sequence, at): (u64, Instant)| sequence != applied && at.elapsed() >= SYNC_INTERVAL;
        if last_sync.is_none_or(is_due) {
            store.note_watermark()?;
            progress.flushed.store(applied, Ordering::Release);
            last_sync = Some((applied, Instant::now()));
        }
        // The end of the follower ends the pause.
        std::thread::park_timeout(follow_pause(interval, idle_rounds));
        if log.is_stopped.load(Ordering::Acquire) {
            return Err(FollowError::Log(ChangelogError::Refused(
                "the server stops".to_owned(),
            )));
        }
    }
}

/// The pause before the next read. An idle changelog is read less often. A node that takes the shard
/// reads it again anyway.
fn follow_pause(interval: Duration, idle_rounds: u32) -> Duration {
    let factor = 1 + (idle_rounds / IDLE_ROUNDS).min(IDLE_FACTOR - 1);
    (interval * factor).min(SYNC_INTERVAL)
}

/// The thread of a standby that applies the changelog, for those who wait for a record.
#[derive(Default)]
pub(crate) struct FollowPace(Mutex<Option<Thread>>);

impl FollowPace {
    /// Ends the pause between two reads, or the next one.
    pub(crate) fn hasten(&self) {
        let thread = self.0.lock();
        thread.iter().for_each(Thread::unpark);
    }

    fn begin(&self, thread: &Thread) {
        *self.0.lock() = Some(thread.clone());
    }
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

/// The thread of a standby that applies the changelog.
pub(super) struct Follower {
    /// The changelog, which is stopped with the follower, so that a read that takes long ends.
    log: Arc<StoppableLog>,
    failed: watch::Receiver<Option<FollowError>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Returns once the thread cannot follow the changelog, with the reason.
    pub(super) async fn wait_for_failure(&mut self) -> FollowError {
        match self
            .failed
            .wait_for(Option::is_some)
            .await
            .map(|error| error.clone())
        {
            Ok(Some(error)) => error,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Returns once nothing is applied any more.
    pub(super) async fn stop(mut self) {
        self.log.is_stopped.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        let outcome = tokio::task::spawn_blocking(move || thread.join().is_err()).await;
        if outcome.unwrap_or(true) {
            // The store may lack a part of what is before its position.
            tracing::error!("the thread that applies the changelog panicked");
            std::process::abort();
        }
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
