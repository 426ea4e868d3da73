//! A destination with many backups that share what they have in common: a folder or an object store
//! of a cloud.
//!
//! ```text
//! backups/TIME.json    the manifest of a backup, written last: without it there is no backup
//! pieces/AB/ABCD…      up to 8 MiB of a file, named by the hash of its contents, and written once for all backups
//! pieces/AB/ABCD….7    the same of the owner with epoch 7 of a cluster's store
//! server.json          the server that the destination belongs to; never encrypted
//! ```
//!
//! RocksDB never modifies a table and only appends to its log, so a later backup writes little.
//! Pieces that an interrupted backup left are used by the next one.
//!
//! Invariants:
//! - What is written is read back and compared before the manifest is written.
//! - A piece is removed only after every manifest was read and none names it. A manifest that
//!   cannot be read stops the removal.
//! - A destination belongs to one server, the first that writes to it: another one would remove
//!   pieces that a backup is about to name. Everybody may read.
//! - A former owner of a cluster's store, which was paused while it removed pieces, removes none
//!   that the next owner's backups name: the next one writes pieces with its own epoch, and uses of
//!   the others only those of the newest sound backup, which every owner keeps.
//! - A piece that is missing or has another length is written again by the next backup that names
//!   it. An object store checks the contents of its objects itself; in a folder each backup reads
//!   some pieces, so that in a number of backups all are read (`pieces`).

mod files;
mod pieces;
mod source;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use self::pieces::piece_path;
pub use self::source::BackupAt;
pub(super) use self::source::StoredSource;
use super::{
    BackupError, MANIFEST, Manifest, backup_io_error, folders, manifest::MANIFEST_MAX,
    seal::SealKey,
};
use gridhook_dead_letter::sink::{FileFence, Sink, SinkError};
use gridhook_event::Timestamp;
use gridhook_policy::backup::{BackupAge, BackupRetention};

/// The length of a piece: large enough for few requests, small enough to be held in memory several
/// times.
const PIECE: usize = 8 << 20;

const BACKUPS: &str = "backups";
const PIECES: &str = "pieces";
const SUFFIX: &str = ".json";
const OWNER: &str = "server.json";

/// Maximum length of the file [`OWNER`], in bytes.
const OWNER_MAX: u64 = 4096;

/// The server that a destination belongs to.
#[derive(Serialize, Deserialize)]
struct Owner {
    server: String,
    since: String,
}

/// A file of a destination, and whether it is sealed; or why it cannot be used.
type Found = Result<(Vec<u8>, bool), Unusable>;

/// Why a file of a destination cannot be used.
enum Unusable {
    Missing,
    /// The file cannot be decrypted.
    Sealed(String),
}

/// Opens the store of a destination. Each use opens its own, because connections belong to a
/// thread.
pub type OpenSink = Arc<dyn Fn() -> Result<Sink, SinkError> + Send + Sync>;

/// A destination, as the settings describe it.
#[derive(Clone)]
pub struct BackupDestination {
    pub address: String,
    pub folder: Option<PathBuf>,
    pub open: OpenSink,
    /// The key that encrypts what is written.
    pub key: Option<Arc<SealKey>>,
    pub retention: BackupRetention,
}

impl BackupDestination {
    /// Fences the destination for one ownership of a cluster's store.
    #[must_use]
    pub fn with_fence(self, fence: Option<FileFence>) -> Self {
        let open = Arc::clone(&self.open);
        let open: OpenSink = Arc::new(move || Ok(open()?.with_fence(fence.clone())));
        Self { open, ..self }
    }
}

impl fmt::Debug for BackupDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupDestination")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct StoredBackup {
    /// The name of the backup: the time at which it was begun.
    pub name: String,
    pub is_sealed: bool,
    pub manifest: Manifest,
}

/// The backups at a destination.
#[derive(Clone, Debug, Default)]
pub struct BackupList {
    /// The backups whose manifests can be read, the oldest first.
    pub readable: Vec<StoredBackup>,
    /// The backups whose manifests cannot be read.
    pub unreadable: Vec<UnreadableBackup>,
}

/// A backup whose manifest cannot be read.
#[derive(Clone, Debug)]
pub struct UnreadableBackup {
    pub name: String,
    pub problem: String,
}

/// An open destination. It blocks, so it must not be used on a thread of an asynchronous runtime.
pub struct Repository {
    destination: BackupDestination,
    sink: Sink,
    runtime: StepRuntime,
}

/// The runtime of a destination. Dropping it does not wait for a step that the disk never ends.
struct StepRuntime(Option<Runtime>);

impl StepRuntime {
    fn block_on<F: Future>(&self, step: F) -> F::Output {
        self.0
            .as_ref()
            .expect("the runtime is there until it is dropped")
            .block_on(step)
    }
}

impl Drop for StepRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.destination.fmt(f)
    }
}

impl Repository {
    /// Opens a destination. A folder is created only to write backups, and only if its parent
    /// exists: a disk that is not mounted is reported, not replaced.
    pub fn open(destination: &BackupDestination, to_write: bool) -> Result<Self, BackupError> {
        if let Some(folder) = &destination.folder {
            let needed = if to_write {
                folder.parent().unwrap_or(folder)
            } else {
                folder
            };
            if !needed.is_dir() {
                return Err(problem_at_destination(
                    destination,
                    format!("cannot be used: there is no folder {}", needed.display()),
                ));
            }
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(backup_io_error(Path::new("a runtime")))?;
        let sink = {
            let _context = runtime.enter();
            (destination.open)().map_err(|error| {
                problem_at_destination(destination, format!("cannot be used: {error}"))
            })?
        };
        Ok(Self {
            destination: destination.clone(),
            sink,
            runtime: StepRuntime(Some(runtime)),
        })
    }

    /// Checks that the destination does not belong to another server than `server`. With `now` it
    /// belongs to this one afterwards.
    pub(super) fn check_owner(
        &self,
        server: &str,
        now: Option<Timestamp>,
    ) -> Result<(), BackupError> {
        let owner = match self.get(OWNER, OWNER_MAX)? {
            Ok((bytes, _)) => {
                let owner: Result<Owner, _> = serde_json::from_slice(&bytes);
                owner.map_err(|error| {
                    self.problem_error(format!("is damaged: {OWNER} cannot be read: {error}"))
                })?
            }
            Err(Unusable::Sealed(problem)) => return Err(self.problem_error(problem)),
            Err(Unusable::Missing) => {
                let owner = now.map(|now| Owner {
                    server: server.to_owned(),
                    since: now.to_string(),
                });
                let bytes = owner
                    .map(|owner| serde_json::to_vec(&owner))
                    .transpose()
                    .map_err(std::io::Error::other);
                return match bytes.map_err(backup_io_error(Path::new(OWNER)))? {
                    Some(bytes) => self.put_stored(OWNER, bytes),
                    None => Ok(()),
                };
            }
        };
        if owner.server == server {
            return Ok(());
        }
        Err(self.problem_error(format!(
            "belongs to the server {} since {}, and this is the server {server}; set another \
             address in backup.store.url, or delete {OWNER} there if that server makes no more \
             backups",
            owner.server, owner.since
        )))
    }

    pub fn address(&self) -> &str {
        &self.destination.address
    }

    /// All backups, the oldest first, and those whose manifests cannot be read.
    ///
    /// # Errors
    /// If the destination cannot be listed, or no manifest can be read.
    pub fn list_backups(&self) -> Result<BackupList, BackupError> {
        let files = self.list_files(BACKUPS)?;
        let names = files
            .iter()
            .filter_map(|file| file.name.strip_suffix(SUFFIX));
        let mut list = BackupList::default();
        let mut first_error = None;
        for file in names {
            let name = file.strip_prefix("backups/").unwrap_or(file);
            match self.read_backup(name) {
                Ok(backup) => list.readable.push(backup),
                Err(error) => {
                    list.unreadable.push(UnreadableBackup {
                        name: name.to_owned(),
                        problem: error.to_string(),
                    });
                    first_error = first_error.or(Some(error));
                }
            }
        }
        match first_error {
            Some(error) if list.readable.is_empty() => Err(error),
            Some(_) | None => Ok(list),
        }
    }

    /// The backups that were made as folders, in this folder or one of it: their names are paths
    /// for a restore.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn folder_backups(&self) -> Result<BackupList, BackupError> {
        let mut list = BackupList::default();
        let Some(root) = &self.destination.folder else {
            return Ok(list);
        };
        let mut folders = vec![root.clone()];
        for folder in folders::list_subfolders(root)? {
            // A backup of a cluster has a folder for each shard. A folder that is not ours, such as
            // lost+found, has none.
            folders.extend(folders::list_subfolders(&folder).unwrap_or_default());
            folders.push(folder);
        }
        for folder in folders
            .iter()
            .filter(|folder| folder.join(MANIFEST).is_file())
        {
            let name = folder.display().to_string();
            match Manifest::read(folder) {
                Ok(manifest) => list.readable.push(StoredBackup {
                    name,
                    is_sealed: false,
                    manifest,
                }),
                Err(error) => list.unreadable.push(UnreadableBackup {
                    name,
                    problem: error.to_string(),
                }),
            }
        }
        list.readable
            .sort_by(|a, b| a.manifest.made.cmp(&b.manifest.made));
        Ok(list)
    }

    /// The folder `name` that has a backup; without a name the newest sound one if there is no other
    /// sound backup. None if backups are encrypted, because those in folders are not. Without a
    /// name, each folder whose manifest cannot be read is passed to `warn`.
    pub fn find_folder(
        &self,
        name: Option<&str>,
        warn: &mut dyn FnMut(&UnreadableBackup),
    ) -> Result<Option<StoredBackup>, BackupError> {
        if self.destination.key.is_some() {
            return Ok(None);
        }
        let BackupList {
            readable: mut folders,
            unreadable,
        } = self.folder_backups()?;
        if let Some(name) = name {
            if let Some(named) = unreadable.iter().find(|folder| folder.name == name) {
                let problem = &named.problem;
                return Err(self.problem_error(format!(
                    "has the backup {name}, whose manifest cannot be read: {problem}"
                )));
            }
            folders.retain(|folder| folder.name == name);
            return Ok(folders.pop());
        }
        unreadable.iter().for_each(&mut *warn);
        folders.retain(|folder| folder.manifest.sound);
        if folders.is_empty() {
            return Ok(None);
        }
        let backups = self.list_backups()?;
        if backups.readable.iter().any(|backup| backup.manifest.sound) {
            return Ok(None);
        }
        backups.unreadable.iter().for_each(warn);
        Ok(folders.pop())
    }

    /// The backup `name`; without a name the newest sound one. Each backup whose manifest cannot be
    /// read is passed to `warn`.
    pub fn find_sound(
        &self,
        name: Option<&str>,
        warn: &mut dyn FnMut(&UnreadableBackup),
    ) -> Result<StoredBackup, BackupError> {
        let sound_backup = match name {
            Some(name) => self.read_backup(name)?,
            None => {
                let BackupList {
                    readable,
                    unreadable,
                } = self.list_backups()?;
                unreadable.iter().for_each(warn);
                let newest = readable.into_iter().rfind(|backup| backup.manifest.sound);
                newest.ok_or_else(|| self.problem_error("has no sound backup"))?
            }
        };
        // Write access to the destination would otherwise be enough to replace a backup by an
        // unencrypted one.
        if !sound_backup.is_sealed && self.destination.key.is_some() {
            let problem = format!(
                "has the unencrypted backup {}; use it without backup.key_file",
                sound_backup.name
            );
            return Err(self.problem_error(problem));
        }
        Ok(sound_backup)
    }

    fn read_backup(&self, name: &str) -> Result<StoredBackup, BackupError> {
        let file = format!("{BACKUPS}/{name}{SUFFIX}");
        let (bytes, is_sealed) =
            self.get(&file, MANIFEST_MAX)?
                .map_err(|unusable| match unusable {
                    Unusable::Missing => self.problem_error(format!("has no backup {name}")),
                    Unusable::Sealed(problem) => self.problem_error(problem),
                })?;
        let manifest = Manifest::parse(Path::new(self.address()), &file, &bytes)?;
        Ok(StoredBackup {
            name: name.to_owned(),
            is_sealed,
            manifest,
        })
    }

    /// Writes the manifest of a backup whose pieces are stored, and returns its name.
    pub(super) fn store_manifest(&self, manifest: &Manifest) -> Result<String, BackupError> {
        let there: BTreeSet<String> = self
            .list_files(PIECES)?
            .into_iter()
            .map(|piece| piece.name)
            .collect();
        let pieces = manifest
            .files
            .iter()
            .flat_map(|file| &file.pieces)
            .map(|piece| piece_path(piece));
        if let Some(missing) = pieces.into_iter().find(|piece| !there.contains(piece)) {
            return Err(self.problem_error(format!(
                "lost {missing} meanwhile; a destination is for one server only"
            )));
        }
        let name: String = manifest
            .made
            .chars()
            .filter(|c| !matches!(c, '-' | ':'))
            .collect();
        self.put_verified(&format!("{BACKUPS}/{name}{SUFFIX}"), &manifest.to_bytes()?)?;
        Ok(name)
    }

    /// Removes the backups that retention does not keep, and the pieces that no backup names.
    /// Returns the number of removed backups.
    pub(super) fn remove_expired(&self, now: Timestamp) -> Result<usize, BackupError> {
        let BackupList {
            readable: all,
            unreadable,
        } = self.list_backups()?;
        if let Some(UnreadableBackup { name, problem }) = unreadable.first() {
            return Err(self.problem_error(format!(
                "has the backup {name}, whose manifest cannot be read; repair or delete it, so \
                 that expired backups are removed again: {problem}"
            )));
        }
        let ages = all.iter().map(|backup| BackupAge {
            made: backup.manifest.begin_time(),
            sound: backup.manifest.sound,
        });
        let ages: Vec<BackupAge> = ages.collect();
        let keeps = self.destination.retention.mark_kept(&ages, now);
        let (kept, expired): (Vec<_>, Vec<_>) = all.iter().zip(keeps).partition(|(_, kept)| *kept);
        for (backup, _) in &expired {
            self.delete_file(&format!("{BACKUPS}/{}{SUFFIX}", backup.name))?;
        }
        let files = kept.iter().flat_map(|(backup, _)| &backup.manifest.files);
        let pieces_in_use: BTreeSet<String> = files
            .flat_map(|file| &file.pieces)
            .map(|piece| piece_path(piece))
            .collect();
        for piece in self
            .list_files(PIECES)?
            .iter()
            .filter(|piece| !pieces_in_use.contains(&piece.name))
        {
            self.delete_file(&piece.name)?;
        }
        Ok(expired.len())
    }

    fn problem_error(&self, problem: impl Into<String>) -> BackupError {
        problem_at_destination(&self.destination, problem.into())
    }
}

fn problem_at_destination(destination: &BackupDestination, problem: String) -> BackupError {
    BackupError::Backup {
        backup: PathBuf::from(&destination.address),
        problem,
    }
}
