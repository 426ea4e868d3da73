//! Check and backup of the store of the running server.
//!
//! Both take long. The response is a stream of JSON lines: `{"progress": "…"}` when the work
//! advances, at most one in 250 ms, and at the end one line with `report`, with `backup` too after
//! a backup, or with `error`. The work runs on its own thread, one operation at a time. It is
//! canceled when the client disconnects: the first line that cannot be sent ends it.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use actix_web::{
    HttpResponse,
    web::{self, Bytes},
};
use futures_util::stream;
use tokio::sync::mpsc::{self, error::TrySendError};
use tracing::{info, warn};

use super::{
    AdminError, Control,
    arm::read_json,
    model::{InvalidRequest, value_of},
};
use crate::AdminResult;
use gridhook_api::store::{BackupBody, BackupView, ProgressLine};
use gridhook_clock::Clock;
use gridhook_engine::control::audit::record_intent;
use gridhook_event::Timestamp;
use gridhook_repair::{
    backup::{self, BackupPermit, BackupProgress, Backups},
    fsck::CheckStop,
};

/// Content type of JSON lines.
const LINES: &str = "application/x-ndjson";

/// The shortest time between two progress lines, which also detect a disconnected client.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of lines that wait for a slow reader; further progress lines are dropped.
const LINES_MAX: usize = 4;

/// `POST /store/check`.
pub(super) async fn check_store(control: web::Data<Control>) -> AdminResult {
    let backups = find_backups(&control)?;
    let permit = backups.acquire_permit().map_err(backup_refusal)?;
    info!("store check started");
    stream_progress(control.clock.clone(), move |watch| {
        let report = backups.check_store(&permit, watch)?;
        log_end(permit, report.is_sound(), "store check ended");
        Ok(ProgressLine {
            report: Some(value_of(&report)),
            ..ProgressLine::default()
        })
    })
}

/// `POST /store/backup`.
pub(super) async fn back_up(payload: web::Payload, control: web::Data<Control>) -> AdminResult {
    let body: BackupBody = read_json(payload).await?;
    let backups = find_backups(&control)?;
    let folder = body.folder.map(PathBuf::from);
    let shard = control.shard_number();
    let permit = backups.acquire_permit().map_err(backup_refusal)?;
    let checker = Arc::clone(&backups);
    let check = web::block(move || {
        let folder = match (folder, shard) {
            (Some(folder), Some(shard)) => Some(checker.folder_of_shard(&folder, shard)?),
            (folder, _) => folder,
        };
        checker.check_target(folder.as_deref()).map(|()| folder)
    });
    let folder = check.await?.map_err(backup_refusal)?;
    record_intent().await;
    info!(?folder, "backup started");
    stream_progress(control.clock.clone(), move |watch| {
        let made = match &folder {
            Some(folder) => backups.make_in_folder(&permit, folder, watch)?,
            None => backups.make_at_destination(&permit, watch)?,
        };
        log_end(permit, made.report.is_sound(), "backup ended");
        let backup = BackupView {
            shard,
            folder: made.at,
            files: made.manifest.files.len(),
            bytes: made.manifest.total_bytes(),
            written: made.written,
            sequence: made.manifest.sequence,
            made: made.manifest.made,
        };
        Ok(ProgressLine {
            report: Some(value_of(&made.report)),
            backup: Some(backup),
            ..ProgressLine::default()
        })
    })
}

fn find_backups(control: &Control) -> AdminResult<Arc<Backups>> {
    let backups = control.backups.clone();
    backups.ok_or_else(|| AdminError::Unavailable(backup::BackupError::Closed.to_string()))
}

fn log_end(permit: BackupPermit, is_sound: bool, message: &'static str) {
    drop(permit);
    if is_sound {
        info!(is_sound, "{message}")
    } else {
        warn!(is_sound, "{message}")
    }
}

fn backup_refusal(error: backup::BackupError) -> AdminError {
    match error {
        backup::BackupError::Busy => AdminError::Conflict(error.to_string()),
        backup::BackupError::NoDestination => InvalidRequest::new(
            "folder",
            "is missing; expected a folder, or none if backup.store.url is set",
        )
        .into(),
        backup::BackupError::Target { .. } | backup::BackupError::Io { .. } => {
            InvalidRequest::new("folder", format!("cannot be used: {error}")).into()
        }
        backup::BackupError::Closed
        | backup::BackupError::Backup { .. }
        | backup::BackupError::Open(_)
        | backup::BackupError::Stop(_) => AdminError::Unavailable(error.to_string()),
    }
}

/// Sends lines about the progress of an operation to the client.
struct ProgressReporter {
    clock: Clock,
    lines: mpsc::Sender<ProgressLine>,
    last: Timestamp,
}

impl ProgressReporter {
    /// Sends at most one line each [`PROGRESS_INTERVAL`], and none while the client reads slowly.
    /// Breaks once the client has disconnected.
    fn report_progress(&mut self, progress: &BackupProgress) -> ControlFlow<()> {
        let now = self.clock.now();
        if now < self.last.after(PROGRESS_INTERVAL) {
            return ControlFlow::Continue(());
        }
        self.last = now;
        let line = ProgressLine {
            progress: Some(progress.to_string()),
            ..ProgressLine::default()
        };
        match self.lines.try_send(line) {
            Ok(()) | Err(TrySendError::Full(_)) => ControlFlow::Continue(()),
            Err(TrySendError::Closed(_)) => ControlFlow::Break(()),
        }
    }
}

fn failure_line(error: &backup::BackupError) -> ProgressLine {
    match error {
        backup::BackupError::Stop(CheckStop::Canceled) => {
            info!("store operation canceled: the client disconnected")
        }
        error => warn!(%error, "store operation failed"),
    }
    ProgressLine {
        error: Some(error.to_string()),
        ..ProgressLine::default()
    }
}

/// Runs `work` on its own thread and streams its lines.
///
/// # Errors
/// If the thread cannot be started.
fn stream_progress(
    clock: Clock,
    work: impl FnOnce(&mut backup::BackupObserver<'_>) -> Result<ProgressLine, backup::BackupError>
    + Send
    + 'static,
) -> AdminResult {
    let (lines, received) = mpsc::channel(LINES_MAX);
    let span = tracing::Span::current();
    std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || {
            let _in = span.entered();
            let mut reporter = ProgressReporter {
                clock,
                lines,
                last: Timestamp::default(),
            };
            let result = work(&mut |progress| reporter.report_progress(&progress));
            let last_line = result.unwrap_or_else(|error| failure_line(&error));
            // The client may have disconnected.
            reporter.lines.blocking_send(last_line).ok();
        })
        .map_err(|error| {
            warn!(%error, "cannot start a thread for the store operation");
            AdminError::Unavailable(format!("The operation cannot be started: {error}."))
        })?;
    let lines = stream::unfold(received, |mut received| async move {
        let line = received.recv().await?;
        let text = format!("{}\n", value_of(&line));
        Some((Ok::<_, actix_web::Error>(Bytes::from(text)), received))
    });
    Ok(HttpResponse::Ok()
        .content_type(LINES)
        .streaming(Box::pin(lines)))
}
