//! Backups of a store: made while a server runs, checked, and restored.
//!
//! ```text
//! BACKUP/backup.json  the manifest: every file with its length and checksum; written last, so a copy without it is incomplete
//! BACKUP/rocksdb/     the store at one moment
//! BACKUP/watermark    its last sequence number: a store that recovers less is refused, as in a data folder
//! BACKUP/admin-token  if it is in the data folder
//! ```
//!
//! A backup is a RocksDB checkpoint, made with hard links next to the store ([`RocksStore::freeze`]) and then *copied*:
//! a hard link would share its sectors, and their damage, with the store. RocksDB's own backup engine would save space
//! by sharing files between generations, but nothing else can read its folders, and a damaged shared file is damaged in
//! all generations. A backup here is a complete store that `gridhook fsck` can read. Tools with generations (restic,
//! snapshots of a file system) recognize unchanged files, because RocksDB never modifies a file.
//!
//! Invariants:
//! - A backup is a single point in time: it contains every write that was acknowledged before it began, and every write
//!   completely or not at all.
//! - A backup is checked from its own files before it is reported as made.
//! - Its load is bounded: one at a time, on a thread of its own that pauses as long as it works (`CopyPace`), and not
//!   if the copy would fill the disk.
//! - Nothing is overwritten, and an unfinished copy is removed.
//!
//! Not here: settings, which are the operator's files; dead-letter files, which stay at their destination; and
//! certificates.

mod copy;
mod damaged;
mod folders;
mod pace;
mod restore;

use std::{
    fmt, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};

pub(super) use self::damaged::copy_damaged;
pub use self::{
    copy::CopiedFile,
    restore::{RestoreReport, restore},
};
use self::{folders::TemporaryFolder, pace::CopyPace};
use crate::{
    clock::Clock,
    repair::fsck::{self, CheckReport, DeadLetterAccounts},
    store::{
        rocks::{FROZEN, OpenError, ReadOnlyStore, RocksOptions, RocksStore, STORE},
        watermark::Watermark,
    },
};

/// The manifest, written last.
const MANIFEST: &str = "backup.json";

/// The version of the manifest that this program writes and reads.
const FORM: u32 = 1;

/// The watermark file, in a data folder and in a backup.
const WATERMARK: &str = "watermark";

/// The file of the admin token, in a data folder and in a backup.
const TOKEN: &str = "admin-token";

/// The progress of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupProgress {
    /// Records are checked.
    Checking(fsck::CheckProgress),
    /// Files are copied.
    Copying {
        /// Bytes copied so far.
        bytes: u64,
        /// Bytes to copy.
        of: u64,
    },
}

impl fmt::Display for BackupProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checking(fsck::CheckProgress { at, records }) => write!(f, "{records} records checked, now {at}"),
            Self::Copying { bytes, of } => write!(f, "{} of {} MiB copied", bytes >> 20, of >> 20),
        }
    }
}

/// Receives the progress and decides whether to continue.
pub type BackupObserver<'a> = dyn FnMut(BackupProgress) -> ControlFlow<()> + 'a;

/// The manifest of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// Its version.
    pub form: u32,
    /// The version of gridhook that made it.
    pub gridhook: String,
    /// When it was begun.
    pub made: String,
    /// The last sequence number of RocksDB in it.
    pub sequence: u64,
    /// Whether the store was sound. A store with problems is backed up too.
    pub sound: bool,
    /// Its files.
    pub files: Vec<CopiedFile>,
}

impl Manifest {
    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Why a store was not checked, copied or restored. Unfinished copies were removed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Another check or backup is running.
    #[error("a check or a backup is already running; wait for its end")]
    Busy,
    /// The server is stopping.
    #[error("the store is closed")]
    Closed,
    /// The target folder cannot be used.
    #[error("{} {problem}", folder.display())]
    Target {
        /// Which.
        folder: PathBuf,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },
    /// The folder is not a backup, or it is damaged.
    #[error("{} {problem}", backup.display())]
    Backup {
        /// Which.
        backup: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file operation failed.
    #[error("{}: {source}{}", path.display(), hint(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot be read, or the operation was canceled.
    #[error(transparent)]
    Stop(#[from] fsck::CheckStop),
}

/// A remedy for an error with a cause outside of the server.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; under systemd the server may write only where its unit says: \
             use /var/lib/gridhook-backups, or add the folder to ReadWritePaths"
        }
        _ => "",
    }
}

fn of_io(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    |source| BackupError::Io { path, source }
}

/// Checks and backups of a running server's store.
#[derive(Debug)]
pub struct Backups {
    store: Weak<RocksStore>,
    data_dir: PathBuf,
    options: RocksOptions,
    accounts: DeadLetterAccounts,
    clock: Clock,
    busy: Arc<AtomicBool>,
}

/// A permit for a check or a backup. There is only one at a time.
#[derive(Debug)]
pub struct BackupPermit(Arc<AtomicBool>);

impl Drop for BackupPermit {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A finished backup.
#[derive(Debug)]
pub struct BackupMade {
    /// What it says of itself.
    pub manifest: Manifest,
    /// The report of its check.
    pub report: CheckReport,
}

impl Backups {
    /// Creates it for the store in `data_dir`. It can be used as long as the store is open.
    pub fn new(
        store: Weak<RocksStore>,
        data_dir: PathBuf,
        options: RocksOptions,
        accounts: DeadLetterAccounts,
        clock: Clock,
    ) -> Self {
        Self { store, data_dir, options, accounts, clock, busy: Arc::default() }
    }

    /// Returns the permit, if it is free.
    pub fn turn(&self) -> Result<BackupPermit, BackupError> {
        match self.busy.swap(true, Ordering::AcqRel) {
            false => Ok(BackupPermit(Arc::clone(&self.busy))),
            true => Err(BackupError::Busy),
        }
    }

    /// Checks whether a backup can be made in `folder`.
    pub fn check_target(&self, folder: &Path) -> Result<(), BackupError> {
        folders::check_target(folder, &self.data_dir)
    }

    /// Checks the store as it is now. Blocks for a long time.
    pub fn look(&self, _: &BackupPermit, watch: &mut BackupObserver<'_>) -> Result<CheckReport, BackupError> {
        let (frozen, _guard) = self.freeze()?;
        self.report(&frozen, watch)
    }

    /// Makes a backup in `folder`. Blocks for a long time.
    pub fn make(
        &self,
        _: &BackupPermit,
        folder: &Path,
        watch: &mut BackupObserver<'_>,
    ) -> Result<BackupMade, BackupError> {
        self.check_target(folder)?;
        let made = self.clock.now();
        let (frozen, guard) = self.freeze()?;
        let sequence = frozen.sequence();
        drop(frozen);
        let mut target = TemporaryFolder::make(folder)?;
        let mut pace = CopyPace::new(&self.clock);
        let store = target.own(STORE);
        let mut files = copy::all(&guard.0, &store, STORE, &mut pace, watch)?;
        drop(guard);
        Watermark::create(&target.own(WATERMARK), sequence).map_err(of_io(folder))?;
        files.push(copy::measure(folder, WATERMARK)?);
        let token = self.data_dir.join(TOKEN);
        if token.try_exists().map_err(of_io(&token))? {
            files.push(copy::one(&token, &target.own(TOKEN), TOKEN, &mut |_| ControlFlow::Continue(()))?);
        }
        // Check the backup's own files.
        let report = self.report(&ReadOnlyStore::open(folder, &self.options)?, watch)?;
        let (gridhook, made) = (env!("CARGO_PKG_VERSION").to_owned(), made.to_string());
        let manifest = Manifest { form: FORM, gridhook, made, sequence, sound: report.is_sound(), files };
        manifest.write(&target.own(MANIFEST)).map_err(of_io(folder))?;
        target.keep()?;
        Ok(BackupMade { manifest, report })
    }

    /// Makes a checkpoint of the store, and a guard that removes it.
    fn freeze(&self) -> Result<(ReadOnlyStore, FolderGuard), BackupError> {
        let path = self.data_dir.join(FROZEN);
        folders::remove(&path)?;
        let store = self.store.upgrade().ok_or(BackupError::Closed)?;
        let guard = FolderGuard(path);
        Ok((store.freeze(&guard.0)?, guard))
    }

    fn report(&self, frozen: &ReadOnlyStore, watch: &mut BackupObserver<'_>) -> Result<CheckReport, BackupError> {
        let mut pace = CopyPace::new(&self.clock);
        let mut watch = |progress| {
            pace.pause();
            watch(BackupProgress::Checking(progress))
        };
        Ok(fsck::check(frozen, self.accounts, &mut watch)?)
    }
}

/// Removes a folder when it is dropped.
struct FolderGuard(PathBuf);

impl Drop for FolderGuard {
    fn drop(&mut self) {
        if let Err(error) = folders::remove(&self.0) {
            tracing::warn!(%error, "could not remove a checkpoint of the store");
        }
    }
}

impl Manifest {
    /// Reads the manifest of the backup in `folder`.
    pub fn read(folder: &Path) -> Result<Self, BackupError> {
        let refuse = |problem| BackupError::Backup { backup: folder.to_owned(), problem };
        let bytes = match std::fs::read(folder.join(MANIFEST)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refuse(format!("has no {MANIFEST}: it is not a backup, or an unfinished one")));
            }
            Err(source) => return Err(of_io(&folder.join(MANIFEST))(source)),
        };
        let manifest: Self = serde_json::from_slice(&bytes)
            .map_err(|error| refuse(format!("is damaged: {MANIFEST} cannot be read: {error}")))?;
        if manifest.form > FORM {
            let form = manifest.form;
            return Err(refuse(format!("has version {form}, and this program knows versions up to {FORM}")));
        }
        Ok(manifest)
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        folders::write_whole(path, &bytes)
    }
}
