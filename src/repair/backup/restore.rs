//! Restores a backup as the store of a data folder that has none.
//!
//! The watermark is written first. If the restore is killed, a server refuses the folder; without a
//! watermark it would create a new store in it.

use std::{fs, io, ops::ControlFlow, path::Path};

use super::{
    BackupError, BackupObserver, BackupProgress, FolderGuard, Manifest, STORE, TOKEN, WATERMARK,
    backup_io_error,
    copy::{self, CopiedFile},
    folders::{self, TemporaryFolder},
    manifest::problem_of_backup,
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

/// The place from which the files of a backup are read.
pub(super) trait Source {
    /// The backup's folder or address.
    fn location(&self) -> &Path;

    fn read_manifest(&self) -> Result<Manifest, BackupError>;

    /// Reads a file, copies it if there is a target, and returns what was read. `piece` is called
    /// with the length of each piece.
    fn copy_file(
        &self,
        file: &CopiedFile,
        to: Option<&Path>,
        piece: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<CopiedFile, BackupError>;
}

/// A backup that is a folder.
impl Source for &Path {
    fn location(&self) -> &Path {
        self
    }

    fn read_manifest(&self) -> Result<Manifest, BackupError> {
        Manifest::read(self)
    }

    fn copy_file(
        &self,
        file: &CopiedFile,
        to: Option<&Path>,
        piece: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<CopiedFile, BackupError> {
        match to {
            Some(to) => copy::copy_file(&self.join(&file.path), to, &file.path, file.bytes, piece),
            None => copy::measure_file(self, &file.path, file.bytes),
        }
    }
}

/// Restores the backup in the folder `from` as the store of `data_dir`.
pub fn restore_folder(
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
    check_paths(source.location(), &backup.manifest)?;
    // Without a trailing slash, which would put the copy inside of the folder.
    let mut name = data_dir.components().as_path().as_os_str().to_owned();
    name.push(format!("-damaged-{}", std::process::id()));
    let folder = Path::new(&name);
    folders::new_folder(folder).map_err(backup_io_error(folder))?;
    let guard = FolderGuard(folder.to_owned());
    folders::check_room(folder, backup.manifest.total_bytes())?;
    folders::new_folder(&folder.join(STORE)).map_err(backup_io_error(folder))?;
    let mut done = 0;
    let of = backup.manifest.total_bytes();
    for file in &backup.manifest.files {
        source.copy_file(file, Some(&folder.join(&file.path)), &mut |bytes| {
            done += bytes;
            watch(BackupProgress::Copying { bytes: done, of })
        })?;
    }
    salvage(&guard.0, watch)
}

/// Restores a backup of a destination in a new folder below `scratch`, and removes it again.
pub fn rehearse_restore(
    stored: BackupAt<'_>,
    scratch: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    let source = StoredSource {
        at: stored,
        accepts_loss: false,
    };
    rehearse_source(&source, scratch, options, decoders, watch)
}

/// Restores the backup in the folder `from` as [`rehearse_restore`] does.
pub fn rehearse_folder(
    from: &Path,
    scratch: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    rehearse_source(&from, scratch, options, decoders, watch)
}

fn rehearse_source(
    source: &dyn Source,
    scratch: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    let folder = scratch.join(format!("gridhook-rehearsal-{}", std::process::id()));
    if folder.try_exists().map_err(backup_io_error(&folder))? {
        let problem = "already exists; remove it, or choose another scratch folder".to_owned();
        return Err(BackupError::Target { folder, problem });
    }
    let guard = FolderGuard(folder);
    restore_source(source, &guard.0, options, decoders, watch)
}

fn restore_source(
    source: &dyn Source,
    data_dir: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    watch: &mut BackupObserver<'_>,
) -> Result<RestoreReport, BackupError> {
    let from = source.location();
    let manifest = source.read_manifest()?;
    check_paths(from, &manifest)?;
    let (mut target, _lock) = create_and_lock(data_dir)?;
    folders::check_room(data_dir, manifest.total_bytes())?;
    Watermark::create(&target.register_name(WATERMARK), manifest.sequence)
        .map_err(backup_io_error(data_dir))?;
    let draft = target.register_name("rocksdb.new");
    folders::new_folder(&draft).map_err(backup_io_error(&draft))?;
    let mut done = 0;
    let of = manifest.total_bytes();
    for file in &manifest.files {
        let to = match file.path.strip_prefix(STORE) {
            Some(name) => Some(draft.join(name.trim_start_matches('/'))),
            None if file.path == TOKEN => Some(target.register_name(TOKEN)),
            // The watermark is already written. Only verify the file.
            None => None,
        };
        let piece = &mut |bytes| {
            done += bytes;
            watch(BackupProgress::Copying { bytes: done, of })
        };
        check_file(from, file, source.copy_file(file, to.as_deref(), piece))?;
    }
    folders::sync_folder(&draft)?;
    let frozen = ReadOnlyStore::open_at(&draft, manifest.sequence, options, None)?;
    let report = fsck::check_store(&frozen, decoders, &mut |progress| {
        watch(BackupProgress::Checking(progress))
    })?;
    let tokens = token_names(&frozen)?;
    drop(frozen);
    let store = target.register_name(STORE);
    fs::rename(&draft, &store).map_err(backup_io_error(&store))?;
    target.keep_contents()?;
    Ok(RestoreReport {
        manifest,
        report,
        tokens,
    })
}

fn token_names(store: &ReadOnlyStore) -> Result<Vec<String>, BackupError> {
    let range = keys::meta_of(MetaKind::Token);
    let mut names = Vec::new();
    let result = store.scan(Family::Meta, &range.start, &range.end, &mut |key, _| {
        names.extend(
            keys::parse_meta(key).map(|(_, name)| String::from_utf8_lossy(name).into_owned()),
        );
        ControlFlow::Continue(())
    });
    result.map_err(fsck::CheckStop::from)?;
    Ok(names)
}

/// Checks that the manifest names only files that a backup can contain.
fn check_paths(from: &Path, manifest: &Manifest) -> Result<(), BackupError> {
    let mut files = manifest.files.iter();
    let foreign_file = files.find(|file| !is_file_of_backup(&file.path));
    let Some(foreign_file) = foreign_file else {
        return Ok(());
    };
    let problem = format!(
        "is damaged: its manifest names the file {:?}, which is not part of a backup",
        foreign_file.path
    );
    Err(problem_of_backup(from, problem))
}

fn is_file_of_backup(path: &str) -> bool {
    match path.strip_prefix("rocksdb/") {
        Some(name) => !name.is_empty() && !name.contains('/') && name != "..",
        None => path == WATERMARK || path == TOKEN,
    }
}

/// Compares a file with the manifest.
fn check_file(
    from: &Path,
    wanted: &CopiedFile,
    found: Result<CopiedFile, BackupError>,
) -> Result<(), BackupError> {
    let refuse = |what: String| {
        let problem = format!("is damaged: {} {what}; use another backup", wanted.path);
        Err(problem_of_backup(from, problem))
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
pub(super) fn create_and_lock(
    data_dir: &Path,
) -> Result<(TemporaryFolder, FolderLock), BackupError> {
    let had_lock = data_dir
        .join("lock")
        .try_exists()
        .map_err(backup_io_error(data_dir))?;
    let mut target = TemporaryFolder::create_folder(data_dir)?;
    for name in OURS {
        let path = data_dir.join(name);
        if path.try_exists().map_err(backup_io_error(&path))? {
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
        target.register_name("lock");
    }
    Ok((target, FolderLock::acquire(data_dir)?))
}
