//! `gridhook fsck`: checks the invariants of a store.
//!
//! Offline, the store is opened read-only. With `--repair` it is opened for writing, and damage
//! that can be repaired without losing data is repaired. With `--online` the running server checks
//! its own store.

use std::{ops::ControlFlow, path::PathBuf};

use serde_json::json;

use super::{
    Serve,
    client::ServerArgs,
    format::count_with_noun,
    output::{CommandError, CommandOutcome, CommandResult, OutputArgs, read},
    progress::Progress,
    stream::follow_progress,
};
use gridhook_repair::fsck::{self, CheckProgress, CheckReport, CheckStop};
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
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The folder contains no store.
#[derive(Debug, thiserror::Error)]
#[error("no store in {}; name the data folder of a server with --data-dir", .0.display())]
struct NoStore(PathBuf);

impl CommandError for NoStore {}
impl CommandError for OpenError {}
impl CommandError for StoreError {}
impl CommandError for CheckStop {}

impl Fsck {
    /// Runs the check. Needs a running actix system.
    pub(super) async fn run(&self) -> CommandResult {
        if !self.online {
            let report = self.check_offline()?;
            let text = self.output.format_value(&report, ToString::to_string);
            return Ok(CommandOutcome::new(text, report.is_sound()));
        }
        let server = self.server.build_client()?;
        let view = follow_progress(&server, "/store/check", &json!({})).await?;
        let report: CheckReport = read(&view["report"])?;
        let text = self
            .output
            .format_value(&view["report"], |_| report.to_string());
        Ok(CommandOutcome::new(text, report.is_sound()))
    }

    fn check_offline(&self) -> CommandResult<CheckReport> {
        let config = Serve::load_config(self.config.clone(), self.data_dir.clone())?;
        let folder = config.server.data_dir;
        let options = store_options(&config.journal);
        // A folder with one of these names is opened, and the open reports what is wrong.
        if !["rocksdb", "watermark"]
            .iter()
            .any(|name| folder.join(name).exists())
        {
            return Err(NoStore(folder).into());
        }
        let progress = Progress::spinner();
        let mut watch = |CheckProgress { at, records }| {
            let records = count_with_noun(records, "record");
            progress.set_message(&format!("{records}, checking {at}"));
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
