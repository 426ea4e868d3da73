//! The store of the running server looked at, and backed up. Operators only: what is written is where the server can write.
//!
//! Both take long, so that the answer comes as lines of JSON while it happens: `{"progress": "…"}` now and then, and in the
//! end one with `report`, with `backup` too where one was made, or with `error`. The work is done on a thread of its own,
//! one at a time, and is called off when whoever asked goes: the first line that cannot be handed over ends it.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use actix_web::{
    HttpResponse,
    web::{self, Bytes},
};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, error::TrySendError};
use tracing::{info, warn};
use utoipa::ToSchema;

use super::{
    AdminError, Control,
    arm::read_body,
    model::{InvalidRequest, parse, read, value_of},
};
use crate::{
    clock::Clock,
    event::Timestamp,
    repair::{
        backup::{self, BackupPermit, BackupProgress, Backups},
        fsck::CheckStop,
    },
};

/// Lines of JSON.
const LINES: &str = "application/x-ndjson";

/// So often is progress told. It is also what tells that nobody listens any more.
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// Lines that wait for a slow reader; more progress than this is left out.
const LINES_MAX: usize = 4;

/// The folder of a backup.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BackupRequest)]
pub(super) struct BackupBody {
    /// An absolute path on the server's machine, of a folder that is empty or not there yet.
    folder: String,
}

/// A line of the answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = StoreLine)]
pub(super) struct ProgressLine {
    /// Progress of the operation
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    /// Findings of the check
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Value>,
    /// Backup that was made
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<Value>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

const NOTHING: ProgressLine = ProgressLine { progress: None, report: None, backup: None, error: None };

/// `POST /store/check`.
pub(super) async fn check(control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let backups = backups(&control)?;
    let turn = backups.turn().map_err(refused)?;
    info!("the store is looked at");
    Ok(work(control.clock.clone(), move |watch| {
        let report = backups.look(&turn, watch)?;
        done(turn, report.is_sound(), "the store was looked at");
        Ok(ProgressLine { report: Some(value_of(&report)), ..NOTHING })
    }))
}

/// `POST /store/backup`.
pub(super) async fn back_up(payload: web::Payload, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let body: BackupBody = read(parse(&read_body(payload).await?)?)?;
    let backups = backups(&control)?;
    let folder = PathBuf::from(body.folder);
    let turn = backups.turn().map_err(refused)?;
    let (looked, asked) = (Arc::clone(&backups), folder.clone());
    let checked = web::block(move || looked.check_target(&asked)).await;
    checked.map_err(|_| AdminError::Broken("there is no thread to look at a folder"))?.map_err(refused)?;
    info!(folder = %folder.display(), "a backup is begun");
    Ok(work(control.clock.clone(), move |watch| {
        let made = backups.make(&turn, &folder, watch)?;
        done(turn, made.report.is_sound(), "a backup was made");
        let files = made.manifest.files.len();
        let backup = json!({
            "folder": folder,
            "made": made.manifest.made,
            "sequence": made.manifest.sequence,
            "files": files,
            "bytes": made.manifest.bytes(),
        });
        Ok(ProgressLine { report: Some(value_of(&made.report)), backup: Some(backup), ..NOTHING })
    }))
}

fn backups(control: &Control) -> Result<Arc<Backups>, AdminError> {
    let backups = control.backups.clone();
    backups.ok_or_else(|| AdminError::Unavailable(backup::BackupError::Closed.to_string()))
}

fn done(turn: BackupPermit, is_sound: bool, what: &'static str) {
    drop(turn);
    if is_sound { info!("{what}") } else { warn!("{what}, and it is not sound") }
}

fn refused(error: backup::BackupError) -> AdminError {
    match error {
        backup::BackupError::Busy => AdminError::Conflict(error.to_string()),
        backup::BackupError::Target { .. } | backup::BackupError::Io { .. } => {
            InvalidRequest::new("folder", error.to_string()).into()
        }
        backup::BackupError::Closed
        | backup::BackupError::Backup { .. }
        | backup::BackupError::Open(_)
        | backup::BackupError::Stop(_) => AdminError::Unavailable(error.to_string()),
    }
}

/// Answers with what `work` tells while it runs on a thread of its own.
fn work(
    clock: Clock,
    work: impl FnOnce(&mut backup::BackupObserver<'_>) -> Result<ProgressLine, backup::BackupError> + Send + 'static,
) -> HttpResponse {
    let (lines, told) = mpsc::channel(LINES_MAX);
    let run = move || {
        let mut last = Timestamp::default();
        let mut watch = |progress: BackupProgress| {
            let now = clock.now();
            if now < last.after(TOLD_EVERY) {
                return ControlFlow::Continue(());
            }
            last = now;
            match lines.try_send(ProgressLine { progress: Some(progress.to_string()), ..NOTHING }) {
                Ok(()) | Err(TrySendError::Full(_)) => ControlFlow::Continue(()),
                Err(TrySendError::Closed(_)) => ControlFlow::Break(()),
            }
        };
        let last = match work(&mut watch) {
            Ok(line) => line,
            Err(error) => {
                match &error {
                    backup::BackupError::Stop(CheckStop::Canceled) => info!("canceled: the client disconnected"),
                    error => warn!(%error, "the store was not looked at, or not backed up"),
                }
                ProgressLine { error: Some(error.to_string()), ..NOTHING }
            }
        };
        // Whoever asked may have gone.
        lines.blocking_send(last).ok();
    };
    if let Err(error) = std::thread::Builder::new().name("store".to_owned()).spawn(run) {
        warn!(%error, "there is no thread for it");
    }
    let lines = stream::unfold(told, |mut told| async move {
        let line = told.recv().await?;
        let text = format!("{}\n", value_of(&line));
        Some((Ok::<_, actix_web::Error>(Bytes::from(text)), told))
    });
    HttpResponse::Ok().content_type(LINES).streaming(Box::pin(lines))
}
