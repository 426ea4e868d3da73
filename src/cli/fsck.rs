//! `gridhook fsck`: checks the invariants of a store.
//!
//! Offline, the store is opened read-only. With `--repair` it is opened for writing, and damage
//! that can be repaired without losing data is repaired. With `--online` the running server checks
//! its own store.

use std::{ops::ControlFlow, path::PathBuf};

use serde_json::json;

use super::{
    Serve,
    backup::Outcome,
    client::{ClientError, ServerArgs},
    output::{CommandError, OutputArgs, read},
    spinner::Spinner,
    stream::follow_progress,
};
use gridhook_config as config;
use gridhook_config::Config;
use gridhook_repair::fsck::{self, CheckProgress, CheckReport};
use gridhook_storage::{record_decoders, store_options};
use gridhook_store::{
    Store, StoreError,
    rocks::{OpenError, ReadOnlyStore, RocksStore},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gridhook fsck --data-dir data\n  gridhook fsck --online\nThe exit \
        status is 1 if damage is found."
)]
pub struct Fsck {
    /// Settings file [default: none, the default settings apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder (server.data_dir), or a backup
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Repair damage that can be repaired without losing data; without this flag it is only
    /// reported
    #[arg(long)]
    repair: bool,
    /// Let the running server check its own store
    #[arg(long, conflicts_with_all = ["config", "data_dir", "repair"])]
    online: bool,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why the store could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The folder contains no store.
    #[error("no store in {}; name the data folder of a server with --data-dir", .0.display())]
    NoStore(PathBuf),
    /// The server did not check its store.
    #[error(transparent)]
    Server(#[from] ClientError),
    #[error(transparent)]
    Stop(#[from] fsck::CheckStop),
    /// The repairs are not all on disk.
    #[error(transparent)]
    Close(#[from] StoreError),
}

impl CommandError for FsckError {
    fn is_usage(&self) -> bool {
        match self {
            Self::Config(error) => error.is_usage(),
            Self::Server(error) => error.is_usage(),
            Self::Store(_) | Self::NoStore(_) | Self::Stop(_) | Self::Close(_) => false,
        }
    }
}

impl Fsck {
    /// Runs the check. Needs a running actix system.
    pub async fn run(&self) -> Result<Outcome, FsckError> {
        if !self.online {
            let report = self.check_offline()?;
            let text = self.printed.format_value(&report, ToString::to_string);
            return Ok(Outcome {
                text,
                is_sound: report.is_sound(),
            });
        }
        let session = self.control.open_session()?;
        let view = follow_progress(&session, "/store/check", &json!({})).await?;
        let report: CheckReport = read(&view["report"])?;
        let text = self
            .printed
            .format_value(&view["report"], |_| report.to_string());
        Ok(Outcome {
            text,
            is_sound: report.is_sound(),
        })
    }

    fn check_offline(&self) -> Result<CheckReport, FsckError> {
        let config = Config::load(
            &Serve::with_flags(self.config.clone(), self.data_dir.clone()).setting_sources(),
        )?;
        let folder = config.server.data_dir;
        let options = store_options(&config.journal);
        // A folder with one of these names is opened, and the open reports what is wrong.
        if !["rocksdb", "watermark"]
            .iter()
            .any(|name| folder.join(name).exists())
        {
            return Err(FsckError::NoStore(folder));
        }
        let spinner = Spinner::new();
        let mut watch = |CheckProgress { at, records }| {
            spinner.set_message(format!("{records} records, checking {at}"));
            ControlFlow::Continue(())
        };
        if !self.repair {
            return Ok(fsck::check_store(
                &ReadOnlyStore::open(&folder, &options)?,
                record_decoders(),
                &mut watch,
            )?);
        }
        let store = RocksStore::open(&folder, &options)?;
        let report = fsck::repair_store(&store, record_decoders(), &mut watch);
        store.close()?;
        Ok(report?)
    }
}
