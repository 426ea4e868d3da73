//! `gridhook fsck`: whether a store is what its rules say.
//!
//! A store is opened as the server opens it, which recovers what a killed process left; but none is made where there is
//! none, because a mistyped folder must not be found sound.

use std::path::PathBuf;

use crate::{
    cli::Serve,
    config::{self, Config},
    dead_letter::Totals,
    journal::{
        self,
        fsck::{self, Accounts, Report},
        rocks::{OpenError, Rocks, RocksOptions},
    },
};

/// The flags of `fsck`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: gridhook fsck --data-dir data\nThe exit status is 1 where something is wrong.")]
pub struct Fsck {
    /// The settings; without it the defaults hold
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is kept (server.data_dir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
}

/// Why nothing could be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// There is none.
    #[error("there is no store in {}; name the data folder of a server", .0.display())]
    None(PathBuf),
    /// The store cannot be read.
    #[error(transparent)]
    Journal(#[from] journal::Error),
}

impl Fsck {
    /// Looks.
    pub fn run(self) -> Result<Report, Error> {
        let config = Config::load(&Serve::of(self.config, self.data_dir).sources())?;
        let folder = config.server.data_dir;
        // Whatever else there is, opening says what is wrong with it.
        if !["rocksdb", "watermark"].iter().any(|name| folder.join(name).exists()) {
            return Err(Error::None(folder));
        }
        let store = Rocks::open(&folder, &store_options(&config.journal))?;
        Ok(fsck::check(&store, accounts())?)
    }
}

/// The dead-letter actor's accounts, as it writes them.
pub fn accounts() -> Accounts {
    let dealt_with = |bytes: &[u8]| Totals::decode(bytes).ok().and_then(|totals| totals.dealt_with());
    Accounts { name: Totals::name, dealt_with }
}

/// How the store is opened, by the server and by whoever looks at it.
pub fn store_options(journal: &config::Journal) -> RocksOptions {
    RocksOptions {
        ledger_bytes: journal.ledger_bytes,
        excerpts_bytes: journal.excerpts_bytes,
        cache_bytes: journal.block_cache_bytes,
        buffers_bytes: journal.write_buffer_bytes,
        wal_bytes: journal.max_total_wal_bytes,
    }
}
