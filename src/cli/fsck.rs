//! `gridhook fsck`: whether a store is what its rules say.
//!
//! A store without a server is opened read-only: looking changes nothing. With `--repair` it is opened as the server opens
//! it, and what can be mended without losing anything is mended. With `--online` the server looks at its own store.

use std::{ops::ControlFlow, path::PathBuf};

use serde_json::json;

use super::{
    Serve,
    backup::{self, Outcome},
    client::{OutputArgs, OutputFormat, ServerArgs},
    print,
    spinner::Spinner,
    stream::{self, follow},
};
use crate::{
    config::{self, Config},
    control::registry::check_record,
    dead_letter::{DeadLetterTotals, redrive},
    repair::fsck::{self, CheckProgress, CheckReport, DeadLetterAccounts},
    store::{
        Store, StoreError,
        keys::MetaKind,
        rocks::{OpenError, ReadOnlyStore, RocksOptions, RocksStore},
    },
};

/// The flags of `fsck`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: gridhook fsck --data-dir data\nA running server looks at its own store: gridhook fsck --online\nThe exit status is 1 where something is wrong."
)]
pub struct Fsck {
    /// The settings; without it the defaults hold
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is kept (server.data_dir), or a backup
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Mend what can be mended without losing anything; what would be mended is told without it
    #[arg(long)]
    repair: bool,
    /// Ask the running server to look at its own store
    #[arg(long, conflicts_with_all = ["config", "data_dir", "repair"])]
    online: bool,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why nothing could be looked at.
#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    /// The settings.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// There is none.
    #[error("there is no store in {}; name the data folder of a server", .0.display())]
    None(PathBuf),
    /// The server did not look.
    #[error(transparent)]
    Server(#[from] stream::StreamError),
    /// The store cannot be read.
    #[error(transparent)]
    Stop(#[from] fsck::CheckStop),
    /// What was mended is not all on the disk.
    #[error(transparent)]
    Close(#[from] StoreError),
}

impl Fsck {
    /// Looks. Has to be called where a system of actix runs.
    pub async fn run(&self) -> Result<Outcome, FsckError> {
        if !self.online {
            let report = self.look()?;
            let told = match self.printed.output {
                OutputFormat::Table => report.to_string(),
                OutputFormat::Json => print::json(&report),
            };
            return Ok(Outcome { told, is_sound: report.is_sound() });
        }
        let session = self.control.session().map_err(stream::StreamError::from)?;
        let told = follow(&session, "/store/check", &json!({})).await?;
        let report = &told["report"];
        let shown = match self.printed.output {
            OutputFormat::Table => backup::report(report),
            OutputFormat::Json => print::json(report),
        };
        Ok(Outcome { told: shown, is_sound: backup::is_sound(report) })
    }

    fn look(&self) -> Result<CheckReport, FsckError> {
        let config = Config::load(&Serve::of(self.config.clone(), self.data_dir.clone()).sources())?;
        let (folder, options) = (config.server.data_dir, store_options(&config.journal));
        // Whatever else there is, opening says what is wrong with it.
        if !["rocksdb", "watermark"].iter().any(|name| folder.join(name).exists()) {
            return Err(FsckError::None(folder));
        }
        let spinner = Spinner::new();
        let mut watch = |CheckProgress { at, records }| {
            spinner.set_message(format!("{records} records, at the {at}"));
            ControlFlow::Continue(())
        };
        if !self.repair {
            return Ok(fsck::check(&ReadOnlyStore::open(&folder, &options)?, accounts(), &mut watch)?);
        }
        let store = RocksStore::open(&folder, &options)?;
        let report = fsck::repair(&store, accounts(), &mut watch);
        store.close()?;
        Ok(report?)
    }
}

/// The dead-letter actor's accounts, as it writes them.
pub fn accounts() -> DeadLetterAccounts {
    let dealt_with = |bytes: &[u8]| DeadLetterTotals::decode(bytes).ok().and_then(|totals| totals.dealt_with());
    DeadLetterAccounts { name: DeadLetterTotals::name, dealt_with, readable }
}

/// Whether a record of this kind can be read; if not, why.
///
/// # Errors
/// Where it cannot be.
pub fn readable(kind: MetaKind, value: &[u8]) -> Result<(), String> {
    match kind {
        MetaKind::Format | MetaKind::Floor | MetaKind::Job | MetaKind::Secret | MetaKind::Loss => {
            fsck::check_record(kind, value)
        }
        MetaKind::DeadLetters => DeadLetterTotals::decode(value).map(drop).map_err(|error| error.to_string()),
        MetaKind::Redrive => redrive::check_record(value),
        MetaKind::Topic
        | MetaKind::Subscription
        | MetaKind::Numbers
        | MetaKind::Proposal
        | MetaKind::DomainTopic
        | MetaKind::Filter
        | MetaKind::Namespace => check_record(kind, value),
    }
}

/// How the store is opened, by the server and by whoever looks at it.
pub fn store_options(journal: &config::Journal) -> RocksOptions {
    RocksOptions {
        ledger_bytes: journal.ledger_bytes,
        excerpts_bytes: journal.excerpts_bytes,
        cache_bytes: journal.block_cache_bytes,
        buffers_bytes: journal.write_buffer_bytes,
        wal_bytes: journal.max_total_wal_bytes,
        ..RocksOptions::default()
    }
}
