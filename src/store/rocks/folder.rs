//! The data folder: its lock, its free space, and the ballast that is freed when the disk is full.
//!
//! RocksDB recovers by itself from a full disk, but only if it finds at least one write buffer of
//! free space, and until then it writes nothing, so nothing can be deleted either. The ballast
//! reserves that space. If RocksDB was about to begin a write-ahead log, it never recovers.

use std::{
    collections::BTreeSet,
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use rustix::{
    fs::{FallocateFlags, Timespec, Timestamps, UTIME_NOW, fallocate, futimens, statvfs},
    io::{Errno, retry_on_intr},
};

use super::{
    OpenError,
    options::{BUFFER, RocksOptions},
};
use crate::Family;

/// Files in the folder are readable only by the server's own user.
const PRIVATE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// The name of a file that contains its own inode number and time of creation. A copied file has
/// others, so a copied folder is detected; its watermark would not show it. The inode number alone
/// does not suffice: a file system may give that of a removed file to its copy. A snapshot of the
/// whole disk keeps both and is not detected.
const PLACE: &str = "place";

/// Names of the families that are not compacted.
pub(super) const UNCOMPACTED_NAME: &str = "spared";

/// The name of the file of the ballast.
const BALLAST_NAME: &str = "ballast";

/// Four write buffers: RocksDB needs one free to begin with, and the flush that recovers it, a new
/// log and a new manifest need space too.
const BALLAST: u64 = 4 * BUFFER as u64;

/// The ballast takes at most half of the free space. Below that, the store itself needs the space
/// more.
const SHARE: u64 = 2;

/// More files than the next start and a flush make.
const FREE_INODES_MIN: u64 = 64;

/// A data folder that this process has locked.
#[derive(Debug)]
pub(super) struct DataFolder {
    path: PathBuf,
    lock: FolderLock,
    /// The ballast file. Stores in folders of the same parent (`is_beside_others`) share one.
    ballast: PathBuf,
    /// Whether it is known that no ballast can be made here.
    lacks_ballast: AtomicBool,
}

/// The lock of a data folder, held as long as the file is open.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    pub fn acquire(path: &Path) -> Result<Self, OpenError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE)
            .open(path.join("lock"));
        let mut file = file.map_err(|source| OpenError::Folder {
            folder: path.to_owned(),
            source,
        })?;
        lock_file(path, &mut file)?;
        match note_process(&mut file) {
            Ok(()) => {}
            // The process id is informative only. The lock is valid without it, and a full disk
            // must not prevent opening.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(source) => {
                return Err(OpenError::Folder {
                    folder: path.to_owned(),
                    source,
                });
            }
        }
        Ok(Self { file })
    }

    /// Takes the lock if the folder has a lock file. Creates none: the folder may be a backup or
    /// read-only.
    pub fn open_existing(path: &Path) -> Result<Option<Self>, OpenError> {
        match path.join("lock").try_exists() {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(source) => {
                return Err(OpenError::Folder {
                    folder: path.to_owned(),
                    source,
                });
            }
        }
        match Self::acquire(path) {
            Err(OpenError::Folder { .. }) => {}
            taken => return taken.map(Some),
        }
        // A file that may not be written can be locked, too.
        let mut file = File::open(path.join("lock")).map_err(|source| OpenError::Folder {
            folder: path.to_owned(),
            source,
        })?;
        lock_file(path, &mut file).map(|()| Some(Self { file }))
    }
}

/// The number of attempts to take a lock that is held, and the pause between two: a process that is
/// about to end still has it, and so has a child that a process has forked and that has not started
/// its program yet.
const LOCK_TRIES: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

fn lock_file(path: &Path, file: &mut File) -> Result<(), OpenError> {
    let mut result = file.try_lock();
    for _ in 1..LOCK_TRIES {
        if !matches!(result, Err(TryLockError::WouldBlock)) {
            break;
        }
        thread::sleep(LOCK_PAUSE);
        result = file.try_lock();
    }
    match result {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The holder's process id is informative only.
            if file.read_to_string(&mut holder).is_err() || holder.trim().is_empty() {
                "unknown".clone_into(&mut holder);
            }
            Err(OpenError::InUse {
                folder: path.to_owned(),
                process: holder.trim().to_owned(),
            })
        }
        Err(TryLockError::Error(source)) => Err(OpenError::Folder {
            folder: path.to_owned(),
            source,
        }),
    }
}

impl DataFolder {
    /// Creates the folder, if there is none, and takes its lock.
    pub(super) fn create_and_lock(path: &Path, wanted: &RocksOptions) -> Result<Self, OpenError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_FOLDER)
            .create(path);
        made.map_err(|source| OpenError::Folder {
            folder: path.to_owned(),
            source,
        })?;
        let shared = path.parent().filter(|_| wanted.is_beside_others);
        let folder = Self {
            path: path.to_owned(),
            lock: FolderLock::acquire(path)?,
            ballast: shared.unwrap_or(path).join(BALLAST_NAME),
            lacks_ballast: AtomicBool::new(false),
        };
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The free bytes on the folder's disk.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let volume = statvfs(&self.path)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }

    /// The families that are not compacted. An unreadable file counts as none: the next failed
    /// compaction writes it again.
    pub(super) fn uncompacted_families(&self) -> BTreeSet<Family> {
        let names = std::fs::read_to_string(self.path.join(UNCOMPACTED_NAME)).unwrap_or_default();
        Family::ALL
            .into_iter()
            .filter(|family| names.lines().any(|name| name == family.name()))
            .collect()
    }

    /// Stores the families that are not compacted.
    pub(super) fn store_uncompacted(&self, families: &BTreeSet<Family>) -> io::Result<()> {
        let path = self.path.join(UNCOMPACTED_NAME);
        if families.is_empty() {
            return std::fs::remove_file(path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
        }
        let names: String = families
            .iter()
            .map(|family| format!("{}\n", family.name()))
            .collect();
        let mut file = new_file(&path)?;
        file.write_all(names.as_bytes())?;
        file.sync_all()
    }

    /// Whether the folder was copied, with all its files, since a server last opened it. The next
    /// call returns false.
    pub(super) fn detect_copy(&self) -> io::Result<bool> {
        let path = self.path.join(PLACE);
        let recorded_place = match std::fs::read_to_string(&path) {
            Ok(stored) => Some(stored),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(recorded_place) = &recorded_place
            && *recorded_place == file_place(&File::open(&path)?)?
        {
            return Ok(false);
        }
        let mut file = new_file(&path)?;
        file.write_all(file_place(&file)?.as_bytes())?;
        file.sync_all()?;
        // A file that was truncated by a full disk proves nothing.
        Ok(recorded_place.is_some_and(|place| place.ends_with('\n')))
    }

    fn has_ballast(&self) -> bool {
        std::fs::metadata(&self.ballast).is_ok_and(|file| file.len() >= BALLAST)
    }

    /// Checks that the file system still accepts changes.
    ///
    /// While ext4 shuts down because of an error, a sync may succeed although the written data
    /// cannot be found afterwards (Linux 6.18). Changing a file's times after the sync detects
    /// this. It is done twice: the first change may only make ext4 notice the error, and then the
    /// second one fails.
    ///
    /// It is done after each write, not once a second: a write that was acknowledged since the last
    /// check would be lost. Both calls together take about 4 µs and sync nothing; the sync before
    /// them takes a hundred times as long.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        for _ in 0..2 {
            // Any other error does not affect what was synced.
            if let Err(error @ (Errno::ROFS | Errno::IO | Errno::SHUTDOWN)) =
                futimens(&self.lock.file, &times)
            {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Creates the ballast, if there is space for it. Returns whether there is enough space,
    /// counting the ballast. Where none can be made, the free space alone counts.
    pub(super) fn ensure_ballast(&self) -> io::Result<bool> {
        if self.has_ballast() {
            return Ok(true);
        }
        if self.free_bytes()? < SHARE * BALLAST {
            return Ok(false);
        }
        if self.lacks_ballast.load(Ordering::Relaxed) {
            return Ok(true);
        }
        match self.make_ballast() {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Whether a store could write now. Free bytes alone do not say so: a file system can lack
    /// inodes, and btrfs has bytes that no file can get.
    pub(super) fn has_space_to_write(&self) -> io::Result<bool> {
        let volume = statvfs(&self.path)?;
        // A file system without a limit of inodes says zero.
        let has_inodes = volume.f_files == 0 || volume.f_favail >= FREE_INODES_MIN;
        Ok(has_inodes && self.ensure_ballast()?)
    }

    fn make_ballast(&self) -> io::Result<()> {
        let file = new_file(&self.ballast)?;
        let result = retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, BALLAST));
        let Err(error) = result else {
            return file.sync_all();
        };
        self.drop_ballast()?;
        if matches!(error, Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS) {
            return Err(error.into());
        }
        // The file system cannot allocate in advance, or the process may not write so large a file.
        self.lacks_ballast.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the ballast. Returns whether there was one.
    pub(super) fn drop_ballast(&self) -> io::Result<bool> {
        match std::fs::remove_file(&self.ballast) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The content of the file [`PLACE`]: its inode number and, where the file system keeps it, its
/// time of creation.
fn file_place(file: &File) -> io::Result<String> {
    let meta = file.metadata()?;
    let creation = meta
        .created()
        .ok()
        .and_then(|created| created.duration_since(UNIX_EPOCH).ok());
    Ok(match creation {
        Some(creation) => format!("{} {}\n", meta.ino(), creation.as_nanos()),
        None => format!("{}\n", meta.ino()),
    })
}

/// Creates or truncates a file that only the server's own user can read.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(path)
}

fn note_process(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", process::id())
}
