//! A damaged store copied to a new data folder, to be worked on there.
//!
//! Until it is kept, the data folder has a watermark and no store: a server refuses it.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use super::{
    BackupError, BackupObserver, CopyPace, STORE, TOKEN, WATERMARK, copy,
    folders::{self, TemporaryFolder},
    of_io, restore,
};
use crate::{
    clock::Clock,
    store::{
        rocks::FolderLock,
        watermark::{self, Watermark, WatermarkValue},
    },
};

/// Where the copy is worked on, below the new data folder.
const SCRATCH: &str = "rocksdb.damaged";

/// Where what can be read of the copy is made a store anew.
const READABLE: &str = "rocksdb.readable";

/// The copy.
pub(in crate::repair) struct DamagedCopy {
    target: TemporaryFolder,
    data_dir: PathBuf,
    scratch: PathBuf,
    acknowledged: Option<u64>,
    // Nobody starts a server on either meanwhile.
    _locks: (Option<FolderLock>, FolderLock),
}

/// Copies the store in `from`, a data folder or a backup, which is only read.
pub(in crate::repair) fn copy_damaged(
    from: &Path,
    data_dir: &Path,
    watch: &mut BackupObserver<'_>,
) -> Result<DamagedCopy, BackupError> {
    let store = from.join(STORE);
    if !store.is_dir() {
        let problem = format!("has no {STORE}: it is neither a data folder nor a backup");
        return Err(BackupError::Backup { backup: from.to_owned(), problem });
    }
    let damaged = FolderLock::take_if_there(from)?;
    let (mut target, lock) = restore::take(data_dir)?;
    let mark = watermark::read(&from.join(WATERMARK)).map_err(of_io(&from.join(WATERMARK)))?;
    let acknowledged = match mark {
        WatermarkValue::Whole(sequence) => Some(sequence),
        WatermarkValue::Missing | WatermarkValue::Damaged => None,
    };
    Watermark::create(&target.own(WATERMARK), acknowledged.unwrap_or(0).max(1)).map_err(of_io(data_dir))?;
    let scratch = target.own(SCRATCH);
    folders::new_folder(&scratch).map_err(of_io(&scratch))?;
    copy::all(&store, &scratch.join(STORE), STORE, &mut CopyPace::new(&Clock::system()), watch)?;
    let token = from.join(TOKEN);
    if token.try_exists().map_err(of_io(&token))? {
        copy::one(&token, &target.own(TOKEN), TOKEN, &mut |_| ControlFlow::Continue(()))?;
    }
    Ok(DamagedCopy { target, data_dir: data_dir.to_owned(), scratch, acknowledged, _locks: (damaged, lock) })
}

impl DamagedCopy {
    /// Where it can be opened like a data folder.
    pub(in crate::repair) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Where a store is made anew of what can be read of the copy.
    pub(in crate::repair) fn readable(&mut self) -> PathBuf {
        self.target.own(READABLE)
    }

    /// The disk must have room for one more copy.
    pub(in crate::repair) fn check_room(&self) -> Result<(), BackupError> {
        let store = self.scratch.join(STORE);
        let bytes = copy::files_in(&store)?.iter().map(|(_, bytes)| bytes).sum();
        folders::check_room(&self.data_dir, bytes)
    }

    /// The store that was made anew takes the place of the copy. Both have to be closed.
    pub(in crate::repair) fn replace(&mut self) -> Result<(), BackupError> {
        let (store, readable) = (self.scratch.join(STORE), self.readable());
        folders::remove(&store)?;
        fs::rename(readable.join(STORE), &store).map_err(of_io(&store))?;
        folders::remove(&readable)
    }

    /// How much was acknowledged; [`None`] where that cannot be told.
    pub(in crate::repair) fn acknowledged(&self) -> Option<u64> {
        self.acknowledged
    }

    /// It is sound now, up to the change `sequence`, and becomes the store of the data folder: what was accepted is the new
    /// watermark.
    pub(in crate::repair) fn keep(mut self, sequence: u64) -> Result<(), BackupError> {
        let store = self.target.own(STORE);
        fs::rename(self.scratch.join(STORE), &store).map_err(of_io(&store))?;
        Watermark::create(&self.data_dir.join(WATERMARK), sequence).map_err(of_io(&self.data_dir))?;
        folders::remove(&self.scratch)?;
        self.target.keep()
    }
}
