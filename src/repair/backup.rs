//! Copies of a store: made while a server runs, checked, and brought back.
//!
//! ```text
//! BACKUP/backup.json  what is in it: every file with its length and checksum; written last, so that a copy without it is none
//! BACKUP/rocksdb/     the store at one moment
//! BACKUP/watermark    how much is in it: a store in which less is found is refused, here as in a data folder
//! BACKUP/admin-token  if it is kept in the data folder
//! ```
//!
//! A backup is a RocksDB checkpoint, frozen beside the store by links ([`RocksStore::freeze`]) and then *copied*: a link would
//! share its sectors, and their damage, with the store. RocksDB's own backup engine would share files between
//! generations, which saves space, but its folders can be read by nothing else, and a damaged file is in all generations
//! that share it; a backup here is a store of its own, which `gridhook fsck` reads as it stands, and tools that know
//! generations (restic, a file system's snapshots) find the same files in it again, because RocksDB never changes one.
//!
//! Invariants:
//! - One point: whatever was acknowledged before it began is in it, and of every write all or nothing.
//! - It is looked at from its own files before it is called made.
//! - It is bounded: one at a time, on a thread of its own, which rests for as long as it works (`CopyPace`), and not where the
//!   copy would fill the disk.
//! - Nothing that was there is written over, and what was begun and not finished is taken away again.
//!
//! Absent on purpose: the settings, which are the operator's own files, dead-letter files, which are where they were
//! written, and certificates.

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

/// What is in a backup: written last.
const MANIFEST: &str = "backup.json";

/// The version of a backup's form that this program writes and reads.
const FORM: u32 = 1;

/// How much was acknowledged, in a data folder and in a backup.
const WATERMARK: &str = "watermark";

/// Where the admin token is kept, in a data folder and in a backup.
const TOKEN: &str = "admin-token";

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupProgress {
    /// Records are looked at.
    Looking(fsck::CheckProgress),
    /// Files are copied.
    Copying {
        /// So many bytes of them.
        bytes: u64,
        /// Of so many.
        of: u64,
    },
}

impl fmt::Display for BackupProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Looking(fsck::CheckProgress { at, records }) => write!(f, "{records} records looked at, at the {at}"),
            Self::Copying { bytes, of } => write!(f, "{} of {} MiB copied", bytes >> 20, of >> 20),
        }
    }
}

/// Is told of the progress, and says whether to go on.
pub type BackupObserver<'a> = dyn FnMut(BackupProgress) -> ControlFlow<()> + 'a;

/// What a backup says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The version of its form.
    pub form: u32,
    /// Which program made it.
    pub gridhook: String,
    /// When it was begun.
    pub made: String,
    /// Everything up to this change of RocksDB's is in it.
    pub sequence: u64,
    /// Whether it was sound when it was made. A store that is not is backed up all the same.
    pub sound: bool,
    /// Its files.
    pub files: Vec<CopiedFile>,
}

impl Manifest {
    /// How many bytes its files have.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Why a store was not looked at, copied or brought back. What was begun was taken away again.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// One at a time.
    #[error("a check or a backup of this server is on its way; wait for its end")]
    Busy,
    /// The server stops.
    #[error("the store is closed")]
    Closed,
    /// The folder that is to be written cannot be used.
    #[error("{} {problem}", folder.display())]
    Target {
        /// Which.
        folder: PathBuf,
        /// What is the matter with it, and what is allowed.
        problem: String,
    },
    /// What is to be restored is no backup, or not what it was.
    #[error("{} {problem}", backup.display())]
    Backup {
        /// Which.
        backup: PathBuf,
        /// What is the matter with it.
        problem: String,
    },
    /// The system refused.
    #[error("{}: {source}{}", path.display(), hint(source))]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A store cannot be read, or whoever asked is gone.
    #[error(transparent)]
    Stop(#[from] fsck::CheckStop),
}

/// What to do about an error whose cause is outside of the server.
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

/// What checks and backups of a running server's store are made with.
#[derive(Debug)]
pub struct Backups {
    store: Weak<RocksStore>,
    data_dir: PathBuf,
    options: RocksOptions,
    accounts: DeadLetterAccounts,
    clock: Clock,
    busy: Arc<AtomicBool>,
}

/// The right to look or to copy: one at a time.
#[derive(Debug)]
pub struct BackupPermit(Arc<AtomicBool>);

impl Drop for BackupPermit {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A backup that was made.
#[derive(Debug)]
pub struct BackupMade {
    /// What it says of itself.
    pub manifest: Manifest,
    /// What was found in it.
    pub report: CheckReport,
}

impl Backups {
    /// Of the store in `data_dir`, as long as it is open.
    pub fn new(
        store: Weak<RocksStore>,
        data_dir: PathBuf,
        options: RocksOptions,
        accounts: DeadLetterAccounts,
        clock: Clock,
    ) -> Self {
        Self { store, data_dir, options, accounts, clock, busy: Arc::default() }
    }

    /// The right to look or to copy, if nobody has it.
    pub fn turn(&self) -> Result<BackupPermit, BackupError> {
        match self.busy.swap(true, Ordering::AcqRel) {
            false => Ok(BackupPermit(Arc::clone(&self.busy))),
            true => Err(BackupError::Busy),
        }
    }

    /// Whether a backup may be made in `folder`: told before anything is done.
    pub fn check_target(&self, folder: &Path) -> Result<(), BackupError> {
        folders::check_target(folder, &self.data_dir)
    }

    /// Looks at the store as it is now. Blocks, for long.
    pub fn look(&self, _: &BackupPermit, watch: &mut BackupObserver<'_>) -> Result<CheckReport, BackupError> {
        let (frozen, _gone) = self.freeze()?;
        self.report(&frozen, watch)
    }

    /// Makes a backup in `folder`. Blocks, for long.
    pub fn make(
        &self,
        _: &BackupPermit,
        folder: &Path,
        watch: &mut BackupObserver<'_>,
    ) -> Result<BackupMade, BackupError> {
        self.check_target(folder)?;
        let made = self.clock.now();
        let (frozen, gone) = self.freeze()?;
        let sequence = frozen.sequence();
        drop(frozen);
        let mut target = TemporaryFolder::make(folder)?;
        let mut pace = CopyPace::new(&self.clock);
        let store = target.own(STORE);
        let mut files = copy::all(&gone.0, &store, STORE, &mut pace, watch)?;
        drop(gone);
        Watermark::create(&target.own(WATERMARK), sequence).map_err(of_io(folder))?;
        files.push(copy::measure(folder, WATERMARK)?);
        let token = self.data_dir.join(TOKEN);
        if token.try_exists().map_err(of_io(&token))? {
            files.push(copy::one(&token, &target.own(TOKEN), TOKEN, &mut |_| ControlFlow::Continue(()))?);
        }
        // From its own files, as a server would find them.
        let report = self.report(&ReadOnlyStore::open(folder, &self.options)?, watch)?;
        let (gridhook, made) = (env!("CARGO_PKG_VERSION").to_owned(), made.to_string());
        let manifest = Manifest { form: FORM, gridhook, made, sequence, sound: report.is_sound(), files };
        manifest.write(&target.own(MANIFEST)).map_err(of_io(folder))?;
        target.keep()?;
        Ok(BackupMade { manifest, report })
    }

    /// The store as it is now, and what takes it away again.
    fn freeze(&self) -> Result<(ReadOnlyStore, FolderGuard), BackupError> {
        let path = self.data_dir.join(FROZEN);
        folders::remove(&path)?;
        let store = self.store.upgrade().ok_or(BackupError::Closed)?;
        let gone = FolderGuard(path);
        Ok((store.freeze(&gone.0)?, gone))
    }

    fn report(&self, frozen: &ReadOnlyStore, watch: &mut BackupObserver<'_>) -> Result<CheckReport, BackupError> {
        let mut pace = CopyPace::new(&self.clock);
        let mut watch = |progress| {
            pace.rest();
            watch(BackupProgress::Looking(progress))
        };
        Ok(fsck::check(frozen, self.accounts, &mut watch)?)
    }
}

/// A folder that goes with it.
struct FolderGuard(PathBuf);

impl Drop for FolderGuard {
    fn drop(&mut self) {
        if let Err(error) = folders::remove(&self.0) {
            tracing::warn!(%error, "a frozen store could not be taken away");
        }
    }
}

impl Manifest {
    /// What the backup in `folder` says of itself.
    pub fn read(folder: &Path) -> Result<Self, BackupError> {
        let refuse = |problem| BackupError::Backup { backup: folder.to_owned(), problem };
        let bytes = match std::fs::read(folder.join(MANIFEST)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refuse(format!("has no {MANIFEST}: it is no backup, or one that was not finished")));
            }
            Err(source) => return Err(of_io(&folder.join(MANIFEST))(source)),
        };
        let manifest: Self = serde_json::from_slice(&bytes)
            .map_err(|error| refuse(format!("is damaged: {MANIFEST} cannot be read: {error}")))?;
        if manifest.form > FORM {
            let form = manifest.form;
            return Err(refuse(format!("has form {form} and this program knows forms up to {FORM}")));
        }
        Ok(manifest)
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        folders::write_whole(path, &bytes)
    }
}
