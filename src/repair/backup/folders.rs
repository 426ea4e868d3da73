//! The folders that copies go to: none is written over, and none is left half made.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::statvfs;

use super::{BackupError, of_io};

/// Keys and tokens are in a store: nobody but the server's own user reads a copy of it.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// 64 MiB are left free on the disk of a copy: it may be the server's own.
const MARGIN: u64 = 64 << 20;

/// A folder in the making: what was made in it goes again, unless it is kept.
pub(super) struct TemporaryFolder {
    folder: PathBuf,
    was_there: bool,
    own: Vec<PathBuf>,
}

impl TemporaryFolder {
    /// Makes the folder, if it is not there.
    pub(super) fn make(folder: &Path) -> Result<Self, BackupError> {
        let was_there = match DirBuilder::new().mode(PRIVATE_FOLDER).create(folder) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            Err(source) => return Err(of_io(folder)(source)),
        };
        Ok(Self { folder: folder.to_owned(), was_there, own: Vec::new() })
    }

    /// The path of what is about to be made in it.
    pub(super) fn own(&mut self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        self.own.push(path.clone());
        path
    }

    /// All of it is there and stays.
    pub(super) fn keep(mut self) -> Result<(), BackupError> {
        self.own.clear();
        self.was_there = true;
        sync(&self.folder)?;
        match self.folder.parent() {
            // A relative path of one name lies in the folder that the process is in.
            Some(parent) if parent.as_os_str().is_empty() => sync(Path::new(".")),
            Some(parent) => sync(parent),
            None => Ok(()),
        }
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let gone = self.own.iter().try_for_each(|path| remove(path));
        let emptied = gone.and_then(|()| match self.was_there {
            true => Ok(()),
            false => fs::remove_dir(&self.folder).map_err(of_io(&self.folder)),
        });
        if let Err(error) = emptied {
            tracing::warn!(%error, "what was begun could not be taken away");
        }
    }
}

/// A backup goes to a place of its own, outside of the data folder.
pub(super) fn check_target(folder: &Path, data_dir: &Path) -> Result<(), BackupError> {
    let refuse = |problem: &str| Err(BackupError::Target { folder: folder.to_owned(), problem: problem.to_owned() });
    if !folder.is_absolute() {
        return refuse("is no absolute path; the folder is on the server's machine");
    }
    let Some(parent) = folder.parent() else { return refuse("is no folder of its own") };
    let parent = fs::canonicalize(parent).map_err(of_io(parent))?;
    let data_dir = fs::canonicalize(data_dir).map_err(of_io(data_dir))?;
    if parent.starts_with(&data_dir) {
        return refuse("lies in the data folder; choose one outside, best on another disk");
    }
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => refuse("is not empty; allowed is a folder that is, or one that is not there yet"),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(of_io(folder)(source)),
    }
}

/// Whether so many bytes may be written there, and more would still fit.
pub(super) fn check_room(folder: &Path, bytes: u64) -> Result<(), BackupError> {
    let volume = statvfs(folder).map_err(|error| of_io(folder)(error.into()))?;
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    if free >= bytes.saturating_add(MARGIN) {
        return Ok(());
    }
    let problem = format!("has room for {} MiB, and {} are to be written", free >> 20, (bytes + MARGIN) >> 20);
    Err(BackupError::Target { folder: folder.to_owned(), problem })
}

/// A new file that nobody else reads.
pub(super) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)
}

/// A new folder that nobody else reads.
pub(super) fn new_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE_FOLDER).create(path)
}

/// Written beside and then renamed: whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = new_file(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

/// Takes a file or a folder away, if it is there.
pub(super) fn remove(path: &Path) -> Result<(), BackupError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(of_io(path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(super) fn sync(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(of_io(folder))
}
