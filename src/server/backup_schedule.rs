//! Makes backups at the destination of the settings when they are due.
//!
//! The newest backup at the destination says when the next one is due, so no state is kept here. A
//! failure is logged, counted and tried again; it does not affect readiness.

use std::{io, ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use crate::{
    ServerError, descriptors::DescriptorBudget, local_store::rocks_options, startup::ServerParts,
};
use gridhook_clock::Clock;
use gridhook_config::Config;
use gridhook_dead_letter::sink::FileFence;
use gridhook_event::Timestamp;
use gridhook_policy::backup::BackupSchedule;
use gridhook_repair::backup::{BackupError, Backups};
use gridhook_storage::{destination::backup_destination, record_decoders};
use gridhook_store::rocks::RocksStore;

/// The interval between two looks at the clock, which may be set.
const CLOCK_INTERVAL: Duration = Duration::from_secs(10);

/// The interval between two looks at a running backup during a stop.
const STOP_POLL: Duration = Duration::from_millis(10);

/// The number of looks at a running backup during a stop.
const STOP_POLLS: u32 = 200;

/// Runs until the system ends.
pub(super) async fn run(backups: Arc<Backups>, schedule: BackupSchedule, clock: Clock) {
    let start = clock.now();
    let mut due = match run_blocking(&backups, |backups| backups.newest_backup_time()).await {
        // A clock that was set back makes no backup wait for the time of a later one.
        Ok(newest) => schedule.next_due(newest.map(|newest| newest.min(start)), start),
        Err(error) => retry_after_failure(&error, &schedule, &clock),
    };
    loop {
        let wait = due.since(clock.now());
        if !wait.is_zero() {
            actix_rt::time::sleep(wait.min(CLOCK_INTERVAL)).await;
            continue;
        }
        let begin = clock.now();
        let backup = run_blocking(&backups, |backups| {
            let permit = backups.acquire_permit()?;
            backups.make_at_destination(&permit, &mut |_| ControlFlow::Continue(()))
        });
        due = match backup.await {
            Ok(backup) if backup.report.is_sound() => schedule.next_due(Some(begin), start),
            Ok(backup) => {
                tracing::error!(
                    backup = backup.at,
                    "the store is damaged, and so is its backup: run gridhook fsck --online"
                );
                schedule.next_due(Some(begin), start)
            }
            Err(error) => retry_after_failure(&error, &schedule, &clock),
        };
    }
}

fn retry_after_failure(error: &BackupError, schedule: &BackupSchedule, clock: &Clock) -> Timestamp {
    let retry = schedule.retry_time(clock.now());
    tracing::error!(%error, %retry, "backup failed");
    retry
}

/// Runs `work` on a thread of its own: a thread of tokio's blocking pool would keep the process from
/// ending.
async fn run_blocking<T: Send + 'static>(
    backups: &Arc<Backups>,
    work: impl FnOnce(&Backups) -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    let (result_sender, result) = oneshot::channel();
    let backups = Arc::clone(backups);
    let span = tracing::Span::current();
    // If the server has ended, nobody receives the result.
    let run = move || drop(result_sender.send(span.in_scope(|| work(&backups))));
    std::thread::Builder::new()
        .name("backup".to_owned())
        .spawn(run)
        .map_err(thread_error)?;
    result
        .await
        .unwrap_or_else(|_| Err(thread_error(io::Error::other("it ended early"))))
}

fn thread_error(source: io::Error) -> BackupError {
    let path = "the thread of a backup".into();
    BackupError::Io { path, source }
}

/// Asks a running backup to stop, and waits for that for [`STOP_POLLS`] times [`STOP_POLL`]. What
/// the backup wrote is used by the next one.
pub(super) async fn stop(backups: &Backups) {
    for _ in 0..STOP_POLLS {
        if backups.stop() {
            return;
        }
        actix_rt::time::sleep(STOP_POLL).await;
    }
    tracing::warn!("a backup still runs: it did not stop in time");
}

/// The node that makes backups of a cluster's store.
pub(super) struct BackupOwner {
    /// The identifier of the cluster.
    pub(super) cluster_id: String,
    pub(super) fence: FileFence,
}

/// Prepares backups. On a node they belong to its cluster. They hold the store weakly, so that a
/// backup does not delay the end of the process.
pub(super) fn build_backups(
    config: &Config,
    budget: &DescriptorBudget,
    store: &Arc<RocksStore>,
    clock: &Clock,
    owner: Option<BackupOwner>,
    process_dir: Option<PathBuf>,
) -> Result<Arc<Backups>, ServerError> {
    let (cluster_id, fence) = owner
        .map(|BackupOwner { cluster_id, fence }| (cluster_id, fence))
        .unzip();
    let data_dir = config.server.data_dir.clone();
    let destination = backup_destination(&config.backup, None)?;
    let destination = destination.map(|destination| destination.with_fence(fence));
    let backups = Backups::new(
        Arc::downgrade(store),
        data_dir,
        rocks_options(config, budget),
        record_decoders(),
        clock.clone(),
    );
    // Whichever node is the owner makes the backups of a cluster.
    let backups = backups
        .with_process_dir(process_dir)
        .with_destination(destination)
        .owned_by(cluster_id);
    let rate = config
        .cluster
        .as_ref()
        .map_or(u64::MAX, |cluster| cluster.copy_rate);
    Ok(Arc::new(backups.with_transfer_rate(rate)))
}

/// Starts scheduled backups, where the settings have a schedule.
pub(super) fn start_backups(parts: &ServerParts, backups: &Arc<Backups>) {
    if let Some(schedule) = parts.config.backup.schedule {
        actix_rt::spawn(run(Arc::clone(backups), schedule, parts.clock.clone()));
    }
}
