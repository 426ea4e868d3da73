//! A backup becomes the store of a data folder that has none.
//!
//! The watermark is written first: a folder that a restore was killed in is refused by a server, which would otherwise make
//! a new store where it finds none.

use std::{fs, io, path::Path};

use super::{
    BackupError, BackupObserver, BackupProgress, Manifest, STORE, TOKEN, WATERMARK,
    copy::{self, CopiedFile},
    folders::{self, TemporaryFolder},
    of_io,
};
use crate::{
    repair::fsck::{self, CheckReport, DeadLetterAccounts},
    store::{
        rocks::{FolderLock, ReadOnlyStore, RocksOptions},
        watermark::Watermark,
    },
};

/// What was brought back.
#[derive(Debug)]
pub struct RestoreReport {
    /// What the backup says of itself.
    pub manifest: Manifest,
    /// What was found in the store.
    pub report: CheckReport,
}

/// What a data folder must not have yet.
const OURS: [&str; 4] = [STORE, "rocksdb.new", WATERMARK, TOKEN];

/// Brings the backup `from` back as the store of `data_dir`.
pub fn restore(
    from: &Path,
    data_dir: &Path,
    options: &RocksOptions,
    accounts: DeadLetterAccounts,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    let manifest = Manifest::read(from)?;
    check_paths(from, &manifest)?;
    let (mut target, _lock) = take(data_dir)?;
    folders::check_room(data_dir, manifest.bytes())?;
    Watermark::create(&target.own(WATERMARK), manifest.sequence).map_err(of_io(data_dir))?;
    let draft = target.own("rocksdb.new");
    folders::new_folder(&draft).map_err(of_io(&draft))?;
    let (mut done, of) = (0, manifest.bytes());
    for file in &manifest.files {
        let to = match file.path.strip_prefix(STORE) {
            Some(name) => draft.join(name.trim_start_matches('/')),
            None if file.path == TOKEN => target.own(TOKEN),
            // The watermark was written already, and must say the same.
            None => {
                check_file(from, file, copy::measure(from, &file.path))?;
                continue;
            }
        };
        let piece = &mut |bytes| {
            done += bytes;
            watch(BackupProgress::Copying { bytes: done, of })
        };
        check_file(from, file, copy::one(&from.join(&file.path), &to, &file.path, piece))?;
    }
    folders::sync(&draft)?;
    let frozen = ReadOnlyStore::at(&draft, manifest.sequence, options, None)?;
    let report = fsck::check(&frozen, accounts, &mut |progress| watch(BackupProgress::Looking(progress)))?;
    drop(frozen);
    let store = target.own(STORE);
    fs::rename(&draft, &store).map_err(of_io(&store))?;
    target.keep()?;
    Ok(RestoreReport { manifest, report })
}

/// A backup names its own files, and the store's are among them.
fn check_paths(from: &Path, manifest: &Manifest) -> Result<(), BackupError> {
    let is_own = |path: &str| match path.strip_prefix("rocksdb/") {
        Some(name) => !name.is_empty() && !name.contains('/') && name != "..",
        None => path == WATERMARK || path == TOKEN,
    };
    let strange = manifest.files.iter().find(|file| !is_own(&file.path));
    let Some(strange) = strange else { return Ok(()) };
    let problem = format!("is damaged: it names a file {:?}, which no backup has", strange.path);
    Err(BackupError::Backup { backup: from.to_owned(), problem })
}

/// A file that is not what it was is told with what it was.
fn check_file(from: &Path, wanted: &CopiedFile, found: Result<CopiedFile, BackupError>) -> Result<(), BackupError> {
    let refuse = |what: String| {
        let problem = format!("is damaged: {} {what}; take another backup", wanted.path);
        Err(BackupError::Backup { backup: from.to_owned(), problem })
    };
    match found {
        Ok(found) if found == *wanted => Ok(()),
        Ok(found) if found.bytes != wanted.bytes => {
            refuse(format!("has {} bytes and had {}", found.bytes, wanted.bytes))
        }
        Ok(_) => refuse("has other bytes than it had".to_owned()),
        Err(BackupError::Io { path, source }) if source.kind() == io::ErrorKind::NotFound && path.starts_with(from) => {
            refuse("is missing".to_owned())
        }
        Err(error) => Err(error),
    }
}

/// Makes the data folder and holds it; nothing of a store may be in it.
pub(super) fn take(data_dir: &Path) -> Result<(TemporaryFolder, FolderLock), BackupError> {
    let had_lock = data_dir.join("lock").try_exists().map_err(of_io(data_dir))?;
    let mut target = TemporaryFolder::make(data_dir)?;
    for name in OURS {
        let path = data_dir.join(name);
        if path.try_exists().map_err(of_io(&path))? {
            let problem = format!("has a {name} already; choose a folder without a store: nothing is written over");
            return Err(BackupError::Target { folder: data_dir.to_owned(), problem });
        }
    }
    if !had_lock {
        target.own("lock");
    }
    Ok((target, FolderLock::take(data_dir)?))
}
