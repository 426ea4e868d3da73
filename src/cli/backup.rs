//! `gridhook backup` and `gridhook restore`: a running server's store copied to another folder, and brought back.
//!
//! The server makes the backup, where it runs; the folder is one of its machine. Restoring is done without a server.

use std::{
    ops::ControlFlow,
    path::{self, PathBuf},
};

use rustix::{fs::Mode, process::umask};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Serve,
    client::{OutputArgs, OutputFormat, ServerArgs},
    control_records::control_records,
    fsck::{accounts, store_options},
    print,
    spinner::Spinner,
    stream::{self, follow},
};
use crate::{
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
#[command(after_help = "Example: gridhook backup /srv/backups/monday\nThe exit status is 1 where something is wrong.")]
pub struct Backup {
    /// A folder of the server's machine that is empty or not there yet
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
    after_help = "Example: gridhook restore /srv/backups/monday --data-dir data\nThe exit status is 1 where something is \
                        wrong."
)]
pub struct Restore {
    /// What `gridhook backup` made
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The settings; without it the defaults hold
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is to be kept (server.data_dir): a folder without a store
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Take a damaged data folder, or a damaged backup, for what is left of it, and list what is missing
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum BackupCommandError {
    /// The settings.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The server did not.
    #[error(transparent)]
    Server(#[from] stream::StreamError),
    /// It was not restored.
    #[error(transparent)]
    Store(#[from] backup::BackupError),
}

/// What was done, as it is printed, and whether the store is sound.
#[derive(Debug)]
pub struct Outcome {
    /// What is printed.
    pub told: String,
    /// Whether nothing is wrong.
    pub is_sound: bool,
}

/// A backup as the server tells of it.
#[derive(Deserialize)]
struct BackupView {
    folder: String,
    files: u64,
    bytes: u64,
}

impl Backup {
    /// Has it made. Has to be called where a system of actix runs.
    pub async fn run(&self) -> Result<Outcome, BackupCommandError> {
        // What is no path of the server's machine is refused there; one below this folder is only written shorter.
        let folder = path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let session = self.control.session().map_err(stream::StreamError::from)?;
        let told = follow(&session, "/store/backup", &json!({"folder": folder})).await?;
        let is_sound = is_sound(&told["report"]);
        if let OutputFormat::Json = self.printed.output {
            return Ok(Outcome { told: print::json(&told), is_sound });
        }
        let made = BackupView::deserialize(&told["backup"])
            .map_err(|error| stream::StreamError::from(super::client::ClientError::Answer(error)))?;
        let BackupView { folder, files, bytes } = made;
        let lines = report(&told["report"]);
        Ok(Outcome { told: format!("{lines}\nbacked up to {folder}: {files} files, {bytes} bytes"), is_sound })
    }
}

impl Restore {
    /// Brings it back.
    pub fn run(&self) -> Result<Outcome, BackupCommandError> {
        // RocksDB makes its files with the process's umask: they are as private as a server's.
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
        let told = match self.printed.output {
            OutputFormat::Table => {
                format!("{report}\nrestored to {}: the store of {}", data_dir.display(), manifest.made)
            }
            OutputFormat::Json => print::json(&json!({"report": report, "backup": manifest})),
        };
        Ok(Outcome { told, is_sound: report.is_sound() })
    }
}

impl Restore {
    fn salvaged(&self, SalvageResult { loss, report }: &SalvageResult, data_dir: &path::Path) -> Outcome {
        let told = match self.printed.output {
            OutputFormat::Table => format!("{loss}{report}\nwhat is left of it is in {}", data_dir.display()),
            OutputFormat::Json => print::json(&json!({"loss": loss, "report": report})),
        };
        Outcome { told, is_sound: report.is_sound() }
    }
}

/// Whether a report that came as JSON says that nothing is wrong.
pub(super) fn is_sound(report: &Value) -> bool {
    report["findings"].as_array().is_some_and(Vec::is_empty)
}

/// A report that came as JSON, for people.
pub(super) fn report(report: &Value) -> String {
    CheckReport::deserialize(report).map_or_else(|_| print::json(report), |report| report.to_string())
}
