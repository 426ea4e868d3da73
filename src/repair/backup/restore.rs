//! Restores a backup as the store of a data folder that has none.
//!
//! The watermark is written first. If the restore is killed, a server refuses the folder; without a
//! watermark it would create a new store in it.

use std::{fs, io, ops::ControlFlow, path::Path};

use super::{
    BackupError, BackupObserver, BackupProgress, FolderGuard, Manifest, STORE, TOKEN, WATERMARK,
    copy::{self, CopiedFile},
    folders::{self, TemporaryFolder},
    of_io,
    repository::{BackupAt, StoredSource},
};
use crate::fsck::{self, CheckReport, RecordDecoders};
use gridhook_store::{
    Family, Store as _,
    keys::{self, MetaKind},
    rocks::{FolderLock, ReadOnlyStore, RocksOptions},
    watermark::Watermark,
};

/// The result of a restore.
#[derive(Debug)]
pub struct RestoreReport {
    /// The manifest of the backup.
    pub manifest: Manifest,
    /// The report of the check of the store.
    pub report: CheckReport,
    /// The names of the tokens in it, in lower case. Some may have been revoked since.
    pub tokens: Vec<String>,
}

/// Names that the data folder must not contain.
const OURS: [&str; 4] = [STORE, "rocksdb.new", WATERMARK, TOKEN];

/// Where the files of a backup are.
pub(super) trait Source {
    /// The backup's folder or address.
    fn at(&self) -> &Path;

    /// The backup's manifest.
    fn manifest(&self) -> Result<Manifest, BackupError>;

    /// Reads a file, copies it if there is a target, and returns what was read. `piece` is called
    /// with the length of each piece.
    fn copy(
        &self,
        file: &CopiedFile,
        to: Option<&Path>,
        piece: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<CopiedFile, BackupError>;
}

/// A backup that is a folder.
impl Source for &Path {
    fn at(&self) -> &Path {
        self
    }

    fn manifest(&self) -> Result<Manifest, BackupError> {
        Manifest::read(self)
    }

    fn copy(
        &self,
        file: &CopiedFile,
        to: Option<&Path>,
        piece: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<CopiedFile, BackupError> {
        match to {
            Some(to) => copy::one(&self.join(&file.path), to, &file.path, file.bytes, piece),
            None => copy::measure(self, &file.path, file.bytes),
        }
    }
}

/// Restores the backup in the folder `from` as the store of `data_dir`.
pub fn restore(
    from: &Path,
    data_dir: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    restore_source(&from, data_dir, options, decoders, watch)
}

/// Restores a backup of a destination as the store of `data_dir`.
pub fn restore_stored(
    stored: BackupAt<'_>,
    data_dir: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    restore_source(
        &StoredSource {
            at: stored,
            accepts_loss: false,
        },
        data_dir,
        options,
        decoders,
        watch,
    )
}

/// Copies what can be read of a damaged backup of a destination to a new folder next to `data_dir`,
/// calls `salvage` with it, and removes it again.
pub fn with_readable_copy<T>(
    stored: BackupAt<'_>,
    data_dir: &Path,
    watch: &mut BackupObserver<'_>,
    salvage: impl FnOnce(&Path, &mut BackupObserver<'_>) -> Result<T, BackupError>,
) -> Result<T, BackupError> {
    let source = StoredSource {
        at: stored,
        accepts_loss: true,
    };
    let backup = stored.backup;
    check_paths(source.at(), &backup.manifest)?;
    // Without a trailing slash, which would put the copy inside of the folder.
    let mut name = data_dir.components().as_path().as_os_str().to_owned();
    name.push(format!("-damaged-{}", std::process::id()));
    let folder = Path::new(&name);
    folders::new_folder(folder).map_err(of_io(folder))?;
    let guard = FolderGuard(folder.to_owned());
    folders::check_room(folder, backup.manifest.bytes())?;
    folders::new_folder(&folder.join(STORE)).map_err(of_io(folder))?;
    let (mut done, of) = (0, backup.manifest.bytes());
    for file in &backup.manifest.files {
        source.copy(file, Some(&folder.join(&file.path)), &mut |bytes| {
            done += bytes;
            watch(BackupProgress::Copying { bytes: done, of })
        })?;
    }
    salvage(&guard.0, watch)
}

/// Restores a backup of a destination in a new folder below `scratch`, and removes it again.
pub fn rehearse(
    stored: BackupAt<'_>,
    scratch: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    let folder = scratch.join(format!("gridhook-rehearsal-{}", std::process::id()));
    if folder.try_exists().map_err(of_io(&folder))? {
        let problem = "already exists; remove it, or choose another scratch folder".to_owned();
        return Err(BackupError::Target { folder, problem });
    }
    let guard = FolderGuard(folder);
    restore_stored(stored, &guard.0, options, decoders, watch)
}

fn restore_source(
    source: &dyn Source,
    data_dir: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    let (from, manifest) = (source.at(), source.manifest()?);
    check_paths(from, &manifest)?;
    let (mut target, _lock) = take(data_dir)?;
    folders::check_room(data_dir, manifest.bytes())?;
    Watermark::create(&target.own(WATERMARK), manifest.sequence).map_err(of_io(data_dir))?;
    let draft = target.own("rocksdb.new");
    folders::new_folder(&draft).map_err(of_io(&draft))?;
    let (mut done, of) = (0, manifest.bytes());
    for file in &manifest.files {
        let to = match file.path.strip_prefix(STORE) {
            Some(name) => Some(draft.join(name.trim_start_matches('/'))),
            None if file.path == TOKEN => Some(target.own(TOKEN)),
            // The watermark is already written. Only verify the file.
            None => None,
        };
        let piece = &mut |bytes| {
            done += bytes;
            watch(BackupProgress::Copying { bytes: done, of })
        };
        check_file(from, file, source.copy(file, to.as_deref(), piece))?;
    }
    folders::sync(&draft)?;
    let frozen = ReadOnlyStore::open_at(&draft, manifest.sequence, options, None)?;
    let report = fsck::check(&frozen, decoders, &mut |progress| {
        watch(BackupProgress::Checking(progress))
    })?;
    let tokens = token_names(&frozen)?;
    drop(frozen);
    let store = target.own(STORE);
    fs::rename(&draft, &store).map_err(of_io(&store))?;
    target.keep()?;
    Ok(RestoreReport {
        manifest,
        report,
        tokens,
    })
}

/// The names of the tokens in a store.
fn token_names(store: &ReadOnlyStore) -> Result<Vec<String>, BackupError> {
    let (range, mut names) = (keys::meta_of(MetaKind::Token), Vec::new());
    let scanned = store.scan(Family::Meta, &range.start, &range.end, &mut |key, _| {
        names.extend(
            keys::parse_meta(key).map(|(_, name)| String::from_utf8_lossy(name).into_owned()),
        );
        ControlFlow::Continue(())
    });
    scanned.map_err(fsck::CheckStop::from)?;
    Ok(names)
}

/// Checks that the manifest names only files that a backup can contain.
fn check_paths(from: &Path, manifest: &Manifest) -> Result<(), BackupError> {
    let is_own = |path: &str| match path.strip_prefix("rocksdb/") {
        Some(name) => !name.is_empty() && !name.contains('/') && name != "..",
        None => path == WATERMARK || path == TOKEN,
    };
    let unknown = manifest.files.iter().find(|file| !is_own(&file.path));
    let Some(unknown) = unknown else {
        return Ok(());
    };
    let problem = format!(
        "is damaged: its manifest names the file {:?}, which is not part of a backup",
        unknown.path
    );
    Err(BackupError::Backup {
        backup: from.to_owned(),
        problem,
    })
}

/// Compares a file with the manifest.
fn check_file(
    from: &Path,
    wanted: &CopiedFile,
    found: Result<CopiedFile, BackupError>,
) -> Result<(), BackupError> {
    let refuse = |what: String| {
        let problem = format!("is damaged: {} {what}; use another backup", wanted.path);
        Err(BackupError::Backup {
            backup: from.to_owned(),
            problem,
        })
    };
    match found {
        Ok(found) if found == *wanted => Ok(()),
        Ok(found) if found.bytes > wanted.bytes => refuse(format!(
            "has more than the {} bytes that its manifest names",
            wanted.bytes
        )),
        Ok(found) if found.bytes != wanted.bytes => refuse(format!(
            "has {} bytes instead of {}",
            found.bytes, wanted.bytes
        )),
        Ok(_) => refuse("has a wrong checksum".to_owned()),
        Err(BackupError::Io { path, source })
            if source.kind() == io::ErrorKind::NotFound && path.starts_with(from) =>
        {
            refuse("is missing".to_owned())
        }
        Err(error) => Err(error),
    }
}

/// Creates and locks the data folder. It must not contain a store.
pub(super) fn take(data_dir: &Path) -> Result<(TemporaryFolder, FolderLock), BackupError> {
    let had_lock = data_dir
        .join("lock")
        .try_exists()
        .map_err(of_io(data_dir))?;
    let mut target = TemporaryFolder::make(data_dir)?;
    for name in OURS {
        let path = data_dir.join(name);
        if path.try_exists().map_err(of_io(&path))? {
            let problem = format!(
                "already has a {name}; choose a folder without a store, because nothing is \
                 overwritten"
            );
            return Err(BackupError::Target {
                folder: data_dir.to_owned(),
                problem,
            });
        }
    }
    if !had_lock {
        target.own("lock");
    }
    Ok((target, FolderLock::acquire(data_dir)?))
}
