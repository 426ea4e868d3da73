//! The data folder: who holds it, how much room it has, and the ballast that is thrown out when it has none.
//!
//! RocksDB heals by itself after a full disk, but only if it finds at least one write buffer of free space, and it
//! writes nothing (so nothing can be deleted either) until it does. The ballast is that space, kept for this moment.

use std::{
    collections::BTreeSet,
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
};

use rustix::{
    fs::{FallocateFlags, Timespec, Timestamps, UTIME_NOW, fallocate, futimens, statvfs},
    io::Errno,
};

use super::{OpenError, options::BUFFER};
use crate::store::Family;

/// Nobody but the server's own user reads what is in the folder.
const PRIVATE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// Says which file it is itself, by its inode. A copy of it is another file: so a folder that was copied is known, as an older
/// one that was brought back would not be by its watermark. A snapshot of the whole disk has the same inodes: of that
/// nothing in the folder can tell.
const PLACE: &str = "place";

/// Which families are not compacted.
const SPARED: &str = "spared";

/// Four write buffers: RocksDB wants one free to begin with, and the flush that heals it, a new log and a new manifest
/// take their own.
const BALLAST: u64 = 4 * BUFFER as u64;

/// The ballast may take half of what is free: below that, the room is worth more to the store itself.
const SHARE: u64 = 2;

/// A data folder that this process holds.
#[derive(Debug)]
pub(super) struct DataFolder {
    path: PathBuf,
    lock: FolderLock,
}

/// The lock of a data folder, held as long as the file is open.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
}

impl FolderLock {
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE)
            .open(path.join("lock"));
        let mut file = file.map_err(|source| OpenError::Folder { folder: path.to_owned(), source })?;
        lock(path, &mut file)?;
        match note_process(&mut file) {
            Ok(()) => {}
            // The number is for people; the lock is held without it, and a full disk must not keep us from opening.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(source) => return Err(OpenError::Folder { folder: path.to_owned(), source }),
        }
        Ok(Self { file })
    }

    /// The lock of a folder that may be no data folder, or one that cannot be written: it gets no file that it does not have.
    pub(crate) fn take_if_there(path: &Path) -> Result<Option<Self>, OpenError> {
        match path.join("lock").try_exists() {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(source) => return Err(OpenError::Folder { folder: path.to_owned(), source }),
        }
        match Self::take(path) {
            Err(OpenError::Folder { .. }) => {}
            taken => return taken.map(Some),
        }
        let mut file =
            File::open(path.join("lock")).map_err(|source| OpenError::Folder { folder: path.to_owned(), source })?;
        lock(path, &mut file).map(|()| Some(Self { file }))
    }
}

fn lock(path: &Path, file: &mut File) -> Result<(), OpenError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Who holds it is told if it can be read; that somebody does is certain without it.
            if file.read_to_string(&mut holder).is_err() || holder.trim().is_empty() {
                "unknown".clone_into(&mut holder);
            }
            Err(OpenError::InUse { folder: path.to_owned(), process: holder.trim().to_owned() })
        }
        Err(TryLockError::Error(source)) => Err(OpenError::Folder { folder: path.to_owned(), source }),
    }
}

impl DataFolder {
    /// Makes the folder, if there is none, and takes its lock.
    pub(super) fn hold(path: &Path) -> Result<Self, OpenError> {
        let made = DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path);
        made.map_err(|source| OpenError::Folder { folder: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), lock: FolderLock::take(path)? })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes may still be written.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let volume = statvfs(&self.path)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }

    /// The families that are not compacted. A file that cannot be read says nothing: it is only there to spare an end.
    pub(super) fn spared(&self) -> BTreeSet<Family> {
        let names = std::fs::read_to_string(self.path.join(SPARED)).unwrap_or_default();
        Family::ALL.into_iter().filter(|family| names.lines().any(|name| name == family.name())).collect()
    }

    /// Writes them down.
    pub(super) fn note_spared(&self, families: &BTreeSet<Family>) -> io::Result<()> {
        let path = self.path.join(SPARED);
        if families.is_empty() {
            return std::fs::remove_file(path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
        }
        let names: String = families.iter().map(|family| format!("{}\n", family.name())).collect();
        let mut file = new_file(&path)?;
        file.write_all(names.as_bytes())?;
        file.sync_all()
    }

    /// Whether the folder was copied from another place since a server had it last, with all that is in it. Says it once.
    pub(super) fn is_copied(&self) -> io::Result<bool> {
        let path = self.path.join(PLACE);
        let number = |file: &File| file.metadata().map(|meta| format!("{}\n", meta.ino()));
        let said = match std::fs::read_to_string(&path) {
            Ok(said) => Some(said),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(said) = &said
            && *said == number(&File::open(&path)?)?
        {
            return Ok(false);
        }
        let mut file = new_file(&path)?;
        file.write_all(number(&file)?.as_bytes())?;
        file.sync_all()?;
        // A file that a full disk cut says nothing.
        Ok(said.is_some_and(|said| said.ends_with('\n')))
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    fn has_ballast(&self) -> bool {
        std::fs::metadata(self.ballast()).is_ok_and(|file| file.len() >= BALLAST)
    }

    /// Whether the file system still takes changes.
    ///
    /// While ext4 stops because of an error a sync may succeed although what it wrote cannot be found afterwards (Linux 6.18).
    /// A change of a file's times after the sync shows it: the first one may only make ext4 notice, the second one fails.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        for _ in 0..2 {
            // Any other error says nothing about what was synced.
            if let Err(error @ (Errno::ROFS | Errno::IO | Errno::SHUTDOWN)) = futimens(&self.lock.file, &times) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Takes the ballast in, if there is room for it. Answers whether there is room, be it in the ballast. A file system
    /// that cannot set space aside has no ballast: that is no reason not to run.
    pub(super) fn take_ballast(&self) -> io::Result<bool> {
        if self.has_ballast() {
            return Ok(true);
        }
        if self.free_bytes()? < SHARE * BALLAST {
            return Ok(false);
        }
        match self.make_ballast() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn make_ballast(&self) -> io::Result<()> {
        let file = new_file(&self.ballast())?;
        if fallocate(&file, FallocateFlags::empty(), 0, BALLAST).is_err() {
            return self.drop_ballast().map(drop);
        }
        file.sync_all()
    }

    /// Throws the ballast out. Answers whether there was any.
    pub(super) fn drop_ballast(&self) -> io::Result<bool> {
        match std::fs::remove_file(self.ballast()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A file in place of one that may be there; nobody else reads it.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)
}

fn note_process(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", process::id())
}
