//! The copy of a damaged store in a new data folder, on which it is salvaged.
//!
//! Until the copy is kept, the data folder has a watermark and no store, so a server refuses it.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use super::{
    BackupError, BackupObserver, CopyPace, STORE, TOKEN, WATERMARK, backup_io_error, copy,
    folders::{self, TemporaryFolder},
    restore,
};
use gridhook_clock::Clock;
use gridhook_store::{
    rocks::FolderLock,
    watermark::{self, Watermark, WatermarkValue},
};

/// The admin token has 256 characters at most.
const TOKEN_BYTES_MAX: u64 = 4096;

/// The folder of the copy, below the new data folder.
const SCRATCH: &str = "rocksdb.damaged";

/// The folder of the new store with all readable records.
const READABLE: &str = "rocksdb.readable";

pub(crate) struct DamagedCopy {
    target: TemporaryFolder,
    data_dir: PathBuf,
    scratch: PathBuf,
    acknowledged: Option<u64>,
    // No server can be started on either folder meanwhile.
    _locks: (Option<FolderLock>, FolderLock),
}

/// Copies the store in `from`, a data folder or a backup. `from` is only read.
pub(crate) fn copy_damaged(
    from: &Path,
    data_dir: &Path,
    watch: &mut BackupObserver<'_>,
) -> Result<DamagedCopy, BackupError> {
    let store = from.join(STORE);
    if !store.is_dir() {
        let problem = format!("has no {STORE}: it is neither a data folder nor a backup");
        return Err(BackupError::Backup {
            backup: from.to_owned(),
            problem,
        });
    }
    let source_lock = FolderLock::open_existing(from)?;
    let (mut target, lock) = restore::create_and_lock(data_dir)?;
    let watermark_value =
        watermark::read(&from.join(WATERMARK)).map_err(backup_io_error(&from.join(WATERMARK)))?;
    let acknowledged = match watermark_value {
        WatermarkValue::Whole(sequence) => Some(sequence),
        WatermarkValue::Missing | WatermarkValue::Damaged => None,
    };
    Watermark::create(
        &target.register_name(WATERMARK),
        acknowledged.unwrap_or(0).max(1),
    )
    .map_err(backup_io_error(data_dir))?;
    let scratch = target.register_name(SCRATCH);
    folders::new_folder(&scratch).map_err(backup_io_error(&scratch))?;
    copy::copy_all(
        &store,
        &scratch.join(STORE),
        STORE,
        &mut CopyPace::new(&Clock::system()),
        watch,
    )?;
    let token = from.join(TOKEN);
    if token.try_exists().map_err(backup_io_error(&token))? {
        copy::copy_file(
            &token,
            &target.register_name(TOKEN),
            TOKEN,
            TOKEN_BYTES_MAX,
            &mut |_| ControlFlow::Continue(()),
        )?;
    }
    Ok(DamagedCopy {
        target,
        data_dir: data_dir.to_owned(),
        scratch,
        acknowledged,
        _locks: (source_lock, lock),
    })
}

impl DamagedCopy {
    /// The folder that can be opened like a data folder.
    pub(crate) fn scratch_folder(&self) -> &Path {
        &self.scratch
    }

    /// The folder for the new store with all readable records.
    pub(crate) fn new_store_folder(&mut self) -> PathBuf {
        self.target.register_name(READABLE)
    }

    /// Checks that the disk has space for another copy.
    pub(crate) fn check_room(&self) -> Result<(), BackupError> {
        let store = self.scratch.join(STORE);
        let bytes = copy::files_in(&store)?.iter().map(|(_, bytes)| bytes).sum();
        folders::check_room(&self.data_dir, bytes)
    }

    /// Replaces the copy by the new store. Both must be closed.
    pub(crate) fn replace_with_new_store(&mut self) -> Result<(), BackupError> {
        let store = self.scratch.join(STORE);
        let readable = self.new_store_folder();
        folders::remove(&store)?;
        fs::rename(readable.join(STORE), &store).map_err(backup_io_error(&store))?;
        folders::remove(&readable)
    }

    /// The last acknowledged sequence number; [`None`] if it is unknown.
    pub(crate) fn acknowledged_sequence(&self) -> Option<u64> {
        self.acknowledged
    }

    /// Makes the copy, which is sound now, the store of the data folder. `sequence` becomes the new
    /// watermark.
    pub(crate) fn keep_as_store(mut self, sequence: u64) -> Result<(), BackupError> {
        let store = self.target.register_name(STORE);
        fs::rename(self.scratch.join(STORE), &store).map_err(backup_io_error(&store))?;
        Watermark::create(&self.data_dir.join(WATERMARK), sequence)
            .map_err(backup_io_error(&self.data_dir))?;
        folders::remove(&self.scratch)?;
        self.target.keep_contents()
    }
}
