//! Target folders of copies: nothing is overwritten, and an unfinished copy is removed.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::statvfs;

use super::{BackupError, backup_io_error};

/// A store contains keys and tokens: only the server's own user may read a copy.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// 64 MiB stay free on the disk of a copy, because it may be the server's own.
const MARGIN: u64 = 64 << 20;

pub(super) fn list_subfolders(folder: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(backup_io_error(folder))?;
    Ok(entries
        .iter()
        .map(fs::DirEntry::path)
        .filter(|path| path.is_dir())
        .collect())
}

/// A folder whose new contents are removed again unless they are kept.
pub(super) struct TemporaryFolder {
    folder: PathBuf,
    was_there: bool,
    /// The number of folders above it that were made for it. They stay.
    made_parents: usize,
    own: Vec<PathBuf>,
}

impl TemporaryFolder {
    /// Creates the folder and those above it, if they do not exist.
    pub(super) fn create_folder(folder: &Path) -> Result<Self, BackupError> {
        let parents = folder.ancestors().skip(1);
        let made_parents = parents.take_while(|parent| is_missing(parent)).count();
        if let Some(parent) = folder.parent().filter(|_| made_parents > 0) {
            let made = DirBuilder::new()
                .recursive(true)
                .mode(PRIVATE_FOLDER)
                .create(parent);
            made.map_err(backup_io_error(parent))?;
        }
        let was_there = match DirBuilder::new().mode(PRIVATE_FOLDER).create(folder) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            Err(source) => return Err(backup_io_error(folder)(source)),
        };
        Ok(Self {
            folder: folder.to_owned(),
            was_there,
            made_parents,
            own: Vec::new(),
        })
    }

    /// Registers a name that is about to be created in it, and returns its path.
    pub(super) fn register_name(&mut self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        self.own.push(path.clone());
        path
    }

    /// Keeps and syncs the contents.
    pub(super) fn keep_contents(mut self) -> Result<(), BackupError> {
        self.own.clear();
        self.was_there = true;
        // The folder, those that were made above it, and the one that has them.
        for folder in self.folder.ancestors().take(self.made_parents + 2) {
            // The last ancestor of a relative path is the current folder.
            let is_current = folder.as_os_str().is_empty();
            sync_folder(if is_current { Path::new(".") } else { folder })?;
        }
        Ok(())
    }
}

/// Whether a folder is missing. The last ancestor of a relative path is the current folder.
fn is_missing(folder: &Path) -> bool {
    !folder.as_os_str().is_empty() && !folder.exists()
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let removal = self.own.iter().try_for_each(|path| remove(path));
        let removal = removal.and_then(|()| {
            if self.was_there {
                Ok(())
            } else {
                fs::remove_dir(&self.folder).map_err(backup_io_error(&self.folder))
            }
        });
        if let Err(error) = removal {
            tracing::warn!(%error, "could not remove an unfinished copy");
        }
    }
}

/// Checks that a backup's folder has no contents, if it exists.
pub(super) fn check_empty(folder: &Path) -> Result<(), BackupError> {
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => unusable_folder(folder, "is not empty; choose an empty or a new folder"),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(backup_io_error(folder)(source)),
    }
}

/// Checks that a backup's folder is outside of the data folder.
pub(super) fn check_outside(folder: &Path, data_dir: &Path) -> Result<(), BackupError> {
    if !folder.is_absolute() {
        return unusable_folder(
            folder,
            "is not an absolute path; the folder is on the server's machine",
        );
    }
    let Some(parent) = folder.parent() else {
        return unusable_folder(folder, "has no parent folder");
    };
    let parent = fs::canonicalize(parent).map_err(backup_io_error(parent))?;
    let data_dir = fs::canonicalize(data_dir).map_err(backup_io_error(data_dir))?;
    if parent.starts_with(&data_dir) {
        return unusable_folder(
            folder,
            "is in the data folder; choose one outside, preferably on another disk",
        );
    }
    Ok(())
}

fn unusable_folder(folder: &Path, problem: &str) -> Result<(), BackupError> {
    Err(BackupError::Target {
        folder: folder.to_owned(),
        problem: problem.to_owned(),
    })
}

/// Checks that there is space for `bytes` and the margin.
pub(super) fn check_room(folder: &Path, bytes: u64) -> Result<(), BackupError> {
    let volume = statvfs(folder).map_err(|error| backup_io_error(folder)(error.into()))?;
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    if free >= bytes.saturating_add(MARGIN) {
        return Ok(());
    }
    let problem = format!(
        "has {} MiB of free space, and {} MiB are needed",
        free >> 20,
        (bytes + MARGIN) >> 20
    );
    Err(BackupError::Target {
        folder: folder.to_owned(),
        problem,
    })
}

/// Creates a file that only the server's own user can read.
pub(super) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE_FILE)
        .open(path)
}

/// Creates a folder that only the server's own user can read.
pub(super) fn new_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE_FOLDER).create(path)
}

/// Writes a file under another name and renames it, so that it appears whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = new_file(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

/// Removes a file or a folder, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), BackupError> {
    let removal = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removal {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(backup_io_error(path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(super) fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(backup_io_error(folder))
}
