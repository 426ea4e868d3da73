//! Backups of a store: made while a server runs, checked, and restored.
//!
//! ```text
//! BACKUP/backup.json  the manifest: every file with its length and checksum; written last, so a
//!                     copy without it is incomplete
//! BACKUP/rocksdb/     the store at one moment
//! BACKUP/watermark    its last sequence number: a store that recovers less is refused, as in a data folder
//! BACKUP/admin-token  if it is in the data folder
//! ```
//!
//! A backup is a RocksDB checkpoint, made with hard links next to the store
//! ([`RocksStore::freeze_to`]) and then *copied*: a hard link would share its sectors, and their
//! damage, with the store. A copy in a folder is a complete store that `gridhook fsck` can read. At
//! the destination of the settings, backups share their unchanged parts (`repository`). RocksDB's
//! own backup engine would do that in local folders only, and without encryption.
//!
//! Invariants:
//! - A backup is a single point in time: it contains every write that was acknowledged before it
//!   began, and every write completely or not at all.
//! - A backup is checked from its own files before it is reported as made.
//! - Its load is bounded: one at a time, on a thread of its own that pauses as long as it works
//!   (`CopyPace`), and not if the copy would fill the disk.
//! - Nothing is overwritten, and an unfinished copy is removed.
//!
//! Not here: settings, which are the operator's files; dead-letter files, which stay at their
//! destination; and certificates.

mod copy;
mod damaged;
mod figures;
mod folders;
mod manifest;
mod pace;
mod repository;
mod restore;
mod seal;
mod transfer;

use std::{
    fmt, fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

pub(super) use self::damaged::copy_damaged;
pub use self::{
    copy::CopiedFile,
    figures::{BackupCounts, BackupFigures},
    manifest::Manifest,
    repository::{
        BackupAt, BackupDestination, BackupList, OpenSink, Repository, StoredBackup,
        UnreadableBackup,
    },
    restore::{
        RestoreReport, rehearse_folder, rehearse_restore, restore_folder, restore_stored,
        with_readable_copy,
    },
    seal::{SealKey, SealKeyError},
    transfer::{SentStore, StoreReceiver, TransferError, receive_store},
};
use data_encoding::HEXLOWER;

use self::{folders::TemporaryFolder, pace::CopyPace};
use crate::fsck::{self, CheckReport, RecordDecoders};
use gridhook_clock::Clock;
use gridhook_event::Timestamp;
use gridhook_store::{
    rocks::{FROZEN, OpenError, ReadOnlyStore, RocksOptions, RocksStore, STORE},
    watermark::Watermark,
};

/// The file of the manifest. It is written last, so an unfinished backup has none.
const MANIFEST: &str = "backup.json";

/// The watermark file, in a data folder and in a backup.
const WATERMARK: &str = "watermark";

/// The file of the admin token, in a data folder and in a backup.
const TOKEN: &str = "admin-token";

/// The file of the server's id, in a data folder.
const SERVER_ID: &str = "server-id";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupProgress {
    Checking(fsck::CheckProgress),
    Copying {
        /// Bytes copied so far, of `of` in all.
        bytes: u64,
        of: u64,
    },
}

impl fmt::Display for BackupProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checking(fsck::CheckProgress { at, records }) => {
                write!(
                    f,
                    "{} checked, now {at}",
                    gridhook_escape::count_with_noun(*records, "record")
                )
            }
            Self::Copying { bytes, of } => write!(f, "{} of {} MiB copied", bytes >> 20, of >> 20),
        }
    }
}

/// Receives the progress and decides whether to continue.
pub type BackupObserver<'a> = dyn FnMut(BackupProgress) -> ControlFlow<()> + 'a;

/// Why a store was not checked, copied or restored. Unfinished copies were removed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("a check or a backup is already running; wait for its end")]
    Busy,
    #[error("the store is closed")]
    Closed,
    /// The target folder cannot be used.
    #[error("{} {problem}", folder.display())]
    Target {
        folder: PathBuf,
        /// What is wrong with the folder, and what is allowed.
        problem: String,
    },
    /// The settings name no destination.
    #[error("no folder was given, and backup.store.url names no destination")]
    NoDestination,
    /// The folder is not a backup, or it is damaged; or a destination cannot be used.
    #[error("{} {problem}", backup.display())]
    Backup {
        backup: PathBuf,
        /// What is wrong with the backup.
        problem: String,
    },
    #[error("{}: {source}{}", path.display(), remedy_hint(source))]
    Io {
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
fn remedy_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; under systemd the server may write only where its unit says: \
             use /var/lib/gridhook-backups, or add the folder to ReadWritePaths"
        }
        _ => "",
    }
}

fn backup_io_error(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    |source| BackupError::Io { path, source }
}

/// Checks and backups of a running server's store.
#[derive(Debug)]
pub struct Backups {
    store: Weak<RocksStore>,
    data_dir: PathBuf,
    /// The data folder of the process, which has those of all shards.
    process_dir: Option<PathBuf>,
    options: RocksOptions,
    decoders: RecordDecoders,
    clock: Clock,
    busy: Arc<AtomicBool>,
    destination: Option<BackupDestination>,
    /// The cluster that the destination belongs to; [`None`] if it belongs to this server alone.
    owner: Option<String>,
    /// The maximum of bytes a second that another node is sent.
    transfer_rate: u64,
    figures: BackupFigures,
    is_stopping: AtomicBool,
    /// Held while the id of the server is read or made: the first use may be two at once.
    server_id: Mutex<()>,
}

/// A permit for a check or a backup. There is only one at a time.
#[derive(Debug)]
pub struct BackupPermit(Arc<AtomicBool>);

impl Drop for BackupPermit {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
pub struct BackupMade {
    /// The manifest of the backup.
    pub manifest: Manifest,
    pub report: CheckReport,
    /// The folder of the backup, or the address of the destination and the name.
    pub at: String,
    /// The bytes that were written for the backup.
    pub written: u64,
}

impl Backups {
    /// Backs up and checks the store in `data_dir`, as long as the store is open.
    pub fn new(
        store: Weak<RocksStore>,
        data_dir: PathBuf,
        options: RocksOptions,
        decoders: RecordDecoders,
        clock: Clock,
    ) -> Self {
        Self {
            store,
            data_dir,
            process_dir: None,
            options,
            decoders,
            clock,
            busy: Arc::default(),
            destination: None,
            owner: None,
            transfer_rate: u64::MAX,
            figures: BackupFigures::default(),
            is_stopping: AtomicBool::default(),
            server_id: Mutex::default(),
        }
    }

    /// Sets the data folder of the process, in which the store is one of several. No backup is made
    /// in that folder.
    #[must_use]
    pub fn with_process_dir(self, process_dir: Option<PathBuf>) -> Self {
        Self {
            process_dir,
            ..self
        }
    }

    /// Adds the destination of the settings.
    #[must_use]
    pub fn with_destination(self, destination: Option<BackupDestination>) -> Self {
        Self {
            destination,
            ..self
        }
    }

    /// The destination belongs to `owner` instead of this server.
    #[must_use]
    pub fn owned_by(self, owner: Option<String>) -> Self {
        Self { owner, ..self }
    }

    /// The figures of the destination, if there is one.
    pub fn read_figures(&self) -> Option<BackupCounts> {
        self.destination
            .as_ref()
            .map(|_| self.figures.current_counts())
    }

    /// Ends a running check or backup at its next step. Returns whether none is running.
    pub fn stop(&self) -> bool {
        self.is_stopping.store(true, Ordering::Release);
        !self.busy.load(Ordering::Acquire)
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Returns the permit, if it is free.
    pub fn acquire_permit(&self) -> Result<BackupPermit, BackupError> {
        if self.busy.swap(true, Ordering::AcqRel) {
            Err(BackupError::Busy)
        } else {
            Ok(BackupPermit(Arc::clone(&self.busy)))
        }
    }

    /// The folder of a shard's backup in `folder`, which is made if it does not exist.
    pub fn folder_of_shard(&self, folder: &Path, shard: usize) -> Result<PathBuf, BackupError> {
        self.check_outside(folder)?;
        match folders::new_folder(folder) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(backup_io_error(folder)(source));
            }
            Ok(()) | Err(_) => {}
        }
        Ok(folder.join(format!("shard-{shard}")))
    }

    fn check_outside(&self, folder: &Path) -> Result<(), BackupError> {
        let mut data_dirs = [Some(&self.data_dir), self.process_dir.as_ref()]
            .into_iter()
            .flatten();
        data_dirs.try_for_each(|data_dir| folders::check_outside(folder, data_dir))
    }

    /// Checks whether a backup can be made in `folder`, or, without one, whether the settings name
    /// a destination.
    pub fn check_target(&self, folder: Option<&Path>) -> Result<(), BackupError> {
        match (folder, &self.destination) {
            (Some(folder), _) => {
                self.check_outside(folder)?;
                folders::check_empty(folder)
            }
            (None, Some(_)) => Ok(()),
            (None, None) => Err(BackupError::NoDestination),
        }
    }

    /// Checks the store as it is now. Blocks for a long time.
    pub fn check_store(
        &self,
        _: &BackupPermit,
        watch: &mut BackupObserver<'_>,
    ) -> Result<CheckReport, BackupError> {
        let (frozen, _guard) = self.freeze_store()?;
        self.check_frozen(&frozen, watch)
    }

    /// Makes a backup in `folder`. Blocks for a long time.
    pub fn make_in_folder(
        &self,
        _: &BackupPermit,
        folder: &Path,
        watch: &mut BackupObserver<'_>,
    ) -> Result<BackupMade, BackupError> {
        self.check_target(Some(folder))?;
        let made = self.clock.now();
        let (frozen, guard) = self.freeze_store()?;
        let sequence = frozen.last_sequence();
        drop(frozen);
        let mut target = TemporaryFolder::create_folder(folder)?;
        let mut pace = CopyPace::new(&self.clock);
        let store = target.register_name(STORE);
        let mut files = copy::copy_all(&guard.0, &store, STORE, &mut pace, watch)?;
        drop(guard);
        Watermark::create(&target.register_name(WATERMARK), sequence)
            .map_err(backup_io_error(folder))?;
        files.push(copy::measure_file(folder, WATERMARK, u64::MAX)?);
        if let Some(token) = self.admin_token_file()? {
            files.push(copy::copy_file(
                &token,
                &target.register_name(TOKEN),
                TOKEN,
                u64::MAX,
                &mut |_| ControlFlow::Continue(()),
            )?);
        }
        // Check the backup's own files.
        let report = self.check_frozen(&ReadOnlyStore::open(folder, &self.options)?, watch)?;
        let manifest = Manifest::new(made, sequence, report.is_sound(), files);
        folders::write_whole(&target.register_name(MANIFEST), &manifest.to_bytes()?)
            .map_err(backup_io_error(folder))?;
        target.keep_contents()?;
        let at = folder.display().to_string();
        let written = manifest.total_bytes();
        Ok(BackupMade {
            manifest,
            report,
            at,
            written,
        })
    }

    /// Makes a backup at the destination, and removes expired ones. Blocks for a long time, so it
    /// must not run on a thread of an asynchronous runtime.
    pub fn make_at_destination(
        &self,
        _: &BackupPermit,
        watch: &mut BackupObserver<'_>,
    ) -> Result<BackupMade, BackupError> {
        let destination = self
            .destination
            .as_ref()
            .ok_or(BackupError::NoDestination)?;
        let begun = self.clock.now();
        let made = self.store_backup(destination, begun, watch);
        match &made {
            Ok(BackupMade {
                manifest,
                written,
                report,
                ..
            }) => {
                self.figures.note_made(
                    self.clock.now().since(begun),
                    manifest.total_bytes(),
                    *written,
                );
                if report.is_sound() {
                    self.figures.note_success(begun)
                } else {
                    self.figures.note_failure()
                }
            }
            Err(BackupError::Stop(fsck::CheckStop::Canceled)) => {}
            Err(_) => self.figures.note_failure(),
        }
        made
    }

    /// The time at which the newest sound backup at the destination was begun. Blocks like
    /// [`Backups::make_at_destination`].
    pub fn newest_backup_time(&self) -> Result<Option<Timestamp>, BackupError> {
        let destination = self
            .destination
            .as_ref()
            .ok_or(BackupError::NoDestination)?;
        let found = (|| {
            let repository = Repository::open(destination, true)?;
            repository.check_owner(&self.server_id()?, None)?;
            repository.list_backups()
        })();
        let found = found.inspect_err(|_| self.figures.note_failure())?;
        let BackupList {
            readable,
            unreadable,
        } = found;
        for UnreadableBackup { name, problem } in &unreadable {
            tracing::warn!(backup = name, problem, "a backup cannot be read");
        }
        let newest = readable
            .iter()
            .rfind(|backup| backup.manifest.sound)
            .map(|backup| backup.manifest.begin_time());
        newest
            .into_iter()
            .for_each(|newest| self.figures.note_success(newest));
        Ok(newest)
    }

    fn store_backup(
        &self,
        destination: &BackupDestination,
        begun: Timestamp,
        watch: &mut BackupObserver<'_>,
    ) -> Result<BackupMade, BackupError> {
        let repository = Repository::open(destination, true)?;
        repository.check_owner(&self.server_id()?, Some(begun))?;
        let mut pace = CopyPace::new(&self.clock);
        let mut usable_pieces = repository.usable_pieces(begun, &mut || {
            pace.pause_after_work();
            self.report_progress(watch, BackupProgress::Copying { bytes: 0, of: 0 })
        })?;
        let (frozen, guard) = self.freeze_store()?;
        let sequence = frozen.last_sequence();
        // The check reads the same files whose hashes name what is written.
        let report = self.check_frozen(&frozen, watch)?;
        drop(frozen);
        let mut files_by_name = Vec::new();
        for (path, bytes) in copy::files_in(&guard.0)? {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            files_by_name.push((path.clone(), format!("{STORE}/{name}"), bytes));
        }
        let watermark = guard.0.join(WATERMARK);
        Watermark::create(&watermark, sequence).map_err(backup_io_error(&watermark))?;
        files_by_name.push((watermark, WATERMARK.to_owned(), 0));
        files_by_name.extend(
            self.admin_token_file()?
                .map(|token| (token, TOKEN.to_owned(), 0)),
        );
        let mut done = 0;
        let mut written = 0;
        let of = files_by_name.iter().map(|(.., bytes)| bytes).sum();
        let mut files = Vec::new();
        for (path, name, _) in &files_by_name {
            let mut piece = |read, wrote| {
                (done, written) = (done + read, written + wrote);
                pace.pause_after_work();
                self.report_progress(watch, BackupProgress::Copying { bytes: done, of })
            };
            files.push(repository.store_file(path, name, &mut usable_pieces, &mut piece)?);
        }
        drop(guard);
        let manifest = Manifest::new(begun, sequence, report.is_sound(), files);
        let at = format!(
            "{}/backups/{}",
            destination.address,
            repository.store_manifest(&manifest)?
        );
        match repository.remove_expired(self.clock.now()) {
            Ok(removed) => tracing::info!(backup = at, written, removed, "backup stored"),
            Err(error) => {
                // The backup itself was stored, so its success counts, too.
                self.figures.note_failure();
                tracing::warn!(%error, "could not remove expired backups");
            }
        }
        Ok(BackupMade {
            manifest,
            report,
            at,
            written,
        })
    }

    /// The id of this server at destinations. It is no part of a backup: a restored store is
    /// another server.
    fn server_id(&self) -> Result<String, BackupError> {
        if let Some(owner) = &self.owner {
            return Ok(owner.clone());
        }
        let _guard = self.server_id.lock();
        let path = self.data_dir.join(SERVER_ID);
        match fs::read_to_string(&path) {
            Ok(id) => return Ok(id.trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(backup_io_error(&path)(error)),
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|error| backup_io_error(&path)(io::Error::other(error.to_string())))?;
        let id = HEXLOWER.encode(&random);
        folders::remove(&path.with_extension("new"))?;
        folders::write_whole(&path, format!("{id}\n").as_bytes())
            .map_err(backup_io_error(&path))?;
        folders::sync_folder(&self.data_dir)?;
        Ok(id)
    }

    fn admin_token_file(&self) -> Result<Option<PathBuf>, BackupError> {
        let token = self.data_dir.join(TOKEN);
        Ok(token
            .try_exists()
            .map_err(backup_io_error(&token))?
            .then_some(token))
    }

    /// Reports the progress, unless the server is stopping.
    fn report_progress(
        &self,
        watch: &mut BackupObserver<'_>,
        progress: BackupProgress,
    ) -> ControlFlow<()> {
        if self.is_stopping() {
            return ControlFlow::Break(());
        }
        watch(progress)
    }

    /// Makes a checkpoint of the store, and a guard that removes it.
    fn freeze_store(&self) -> Result<(ReadOnlyStore, FolderGuard), BackupError> {
        let path = self.data_dir.join(FROZEN);
        folders::remove(&path)?;
        let store = self.store.upgrade().ok_or(BackupError::Closed)?;
        let guard = FolderGuard(path);
        Ok((store.freeze_to(&guard.0)?, guard))
    }

    fn check_frozen(
        &self,
        frozen: &ReadOnlyStore,
        watch: &mut BackupObserver<'_>,
    ) -> Result<CheckReport, BackupError> {
        let mut pace = CopyPace::new(&self.clock);
        let mut watch = |progress| {
            pace.pause_after_work();
            self.report_progress(watch, BackupProgress::Checking(progress))
        };
        Ok(fsck::check_store(frozen, self.decoders, &mut watch)?)
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
