//! `gridhook backup` and `gridhook restore`.
//!
//! The server writes the backup, to a folder of its own machine. A restore runs without a server.

use std::{
    ops::ControlFlow,
    path::{self, PathBuf},
};

use rustix::{fs::Mode, process::umask};
use serde_json::json;

use super::{
    Serve,
    client::ServerArgs,
    control_records::control_records,
    fsck::{accounts, store_options},
    output::{CommandOutcome, OutputArgs, read},
    spinner::Spinner,
    stream::{self, follow},
};
use crate::{
    api::store::{BackupView, ProgressLine},
    clock::Clock,
    config::{self, Config},
    repair::{
        backup,
        fsck::CheckReport,
        salvage::{self, SalvageResult},
    },
};

/// The flags of `backup`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: gridhook backup /srv/backups/monday\nThe exit status is 1 if the check of the backup finds damage."
)]
pub struct Backup {
    /// Empty or new folder on the server's machine
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// The flags of `restore`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: gridhook restore /srv/backups/monday --data-dir data\nThe exit status is 1 if the check of \
                        the store finds damage."
)]
pub struct Restore {
    /// Folder written by gridhook backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Settings file [default: none, the default settings apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder to restore into (server.data_dir); it must not contain a store
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Salvage what is readable from a damaged backup or data folder, and list what is lost
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupCommandError {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The server did not make the backup.
    #[error(transparent)]
    Server(#[from] stream::StreamError),
    /// The restore failed.
    #[error(transparent)]
    Store(#[from] backup::BackupError),
}

/// The printed result, and whether the store has no damage.
#[derive(Debug)]
pub struct Outcome {
    /// The text to print.
    pub text: String,
    /// Whether the check found no damage.
    pub is_sound: bool,
}

impl From<Outcome> for CommandOutcome {
    fn from(Outcome { text, is_sound }: Outcome) -> Self {
        Self::new(text, is_sound)
    }
}

impl Backup {
    /// Requests a backup. Needs a running actix system.
    pub async fn run(&self) -> Result<Outcome, BackupCommandError> {
        // A relative path is resolved here, because the server has another working directory.
        let folder = path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let session = self.control.session().map_err(stream::StreamError::from)?;
        let view = follow(&session, "/store/backup", &json!({"folder": folder})).await?;
        let report: CheckReport = read(&view["report"]).map_err(stream::StreamError::from)?;
        let text = |line: &ProgressLine| {
            let made = line.backup.as_ref().map(|BackupView { folder, files, bytes, .. }| {
                format!("\nbacked up to {folder}: {files} files, {bytes} bytes")
            });
            format!("{report}{}", made.unwrap_or_default())
        };
        let text = self.printed.response(&view, text).map_err(stream::StreamError::from)?;
        Ok(Outcome { text, is_sound: report.is_sound() })
    }
}

impl Restore {
    /// Restores the backup.
    pub fn run(&self) -> Result<Outcome, BackupCommandError> {
        // RocksDB creates files with the process's umask; only the owner may read them.
        umask(Mode::from_raw_mode(0o077));
        let config = Config::load(&Serve::of(self.config.clone(), self.data_dir.clone()).sources())?;
        let (data_dir, options) = (config.server.data_dir, store_options(&config.journal));
        let spinner = Spinner::new();
        let mut watch = |progress: backup::BackupProgress| {
            spinner.set_message(progress.to_string());
            ControlFlow::Continue(())
        };
        if self.accept_loss {
            let now = Clock::system().now();
            let (from, accounts, control) = (&self.backup, accounts(), control_records());
            let salvaged = salvage::accept_loss(from, &data_dir, &options, accounts, control, now, &mut watch)?;
            drop(spinner);
            return Ok(self.salvaged(&salvaged, &data_dir));
        }
        let restored = backup::restore(&self.backup, &data_dir, &options, accounts(), &mut watch)?;
        drop(spinner);
        let backup::RestoreReport { manifest, report } = restored;
        let text = self.printed.format(&json!({"report": report, "backup": manifest}), |_| {
            format!("{report}\nrestored to {}: backup of {}", data_dir.display(), manifest.made)
        });
        Ok(Outcome { text, is_sound: report.is_sound() })
    }
}

impl Restore {
    fn salvaged(&self, SalvageResult { loss, report }: &SalvageResult, data_dir: &path::Path) -> Outcome {
        let text = self.printed.format(&json!({"loss": loss, "report": report}), |_| {
            format!("{loss}{report}\nsalvaged to {}", data_dir.display())
        });
        Outcome { text, is_sound: report.is_sound() }
    }
}
