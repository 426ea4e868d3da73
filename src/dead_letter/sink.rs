//! Where files go: a store of whole objects, of which a folder on this machine is the first.
//!
//! After [`Sink::put`] has answered, the file is there, whole, under its name, also after power loss: the dead letters in
//! it are deleted then, and it is the only copy. A put that failed has left the whole file or nothing under the name.
//!
//! A folder keeps that by `object_store`'s own means (a temporary file beside it, `name#1`, synced, then renamed, then
//! its folder synced), and by one of ours. `object_store` syncs a *new* folder's parents only in the put that made it,
//! before that put answers; another put into it may be answered earlier, and a put that fails between the making and
//! the syncing is never made up for. So every put here syncs all folders from the file's own up to the root; those that
//! are clean cost nothing. What a kill leaves of a temporary file is taken away when its file is written again.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem};
use url::Url;

/// 200 bytes: file systems take 255, and a temporary file's name is longer than its file's.
const SEGMENT_BYTES_MAX: usize = 200;

/// Why a file is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The root can't be made or synced.
    #[error("the dead-letter folder {folder} can't be used")]
    Root {
        /// Which folder.
        folder: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Nothing was written: the name is not one that a file can have.
    #[error("{0}")]
    Name(String),
    /// The store did not take the file. It may be there all the same.
    #[error("the dead-letter store failed: {0}")]
    Store(#[from] object_store::Error),
    /// The file is longer than any that is read.
    #[error("it has {bytes} bytes; at most {bytes_max} are read")]
    TooLong {
        /// How long it is.
        bytes: u64,
        /// The most that is read.
        bytes_max: u64,
    },
    /// The file is there, but would perhaps not be after a power loss.
    #[error("a folder of dead letters can't be synced: {0}")]
    Sync(#[source] io::Error),
}

impl Error {
    /// Whether there is no such destination: no bucket, no container.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Store(object_store::Error::NotFound { .. }))
    }
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its path.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
}

/// A place for files. Clones are the same place.
#[derive(Clone, Debug)]
pub struct Sink {
    store: Arc<dyn ObjectStore>,
    /// Where the store is a folder: what must be synced beyond what the store does itself.
    folder: Option<PathBuf>,
}

impl Sink {
    /// A folder on this machine; it is made if it is not there. Blocks: for the start.
    pub fn local(root: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Root { folder: root.to_owned(), source };
        let new = root.ancestors().take_while(|folder| !folder.exists()).count();
        fs::create_dir_all(root).map_err(failed)?;
        let root = root.canonicalize().map_err(failed)?;
        // The first one that was there before has a new entry too.
        for folder in root.ancestors().take(new + 1) {
            sync_folder(folder).map_err(failed)?;
        }
        let store = LocalFileSystem::new_with_prefix(&root)?.with_fsync(true);
        Ok(Self { store: Arc::new(store), folder: Some(root) })
    }

    /// A store whose put is answered when the object is safe, as those of the clouds are.
    pub fn over(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, folder: None }
    }

    /// Where a file can be had: in a folder, an address with the scheme `file`; in any other store, its name.
    pub fn url(&self, name: &str) -> String {
        let url = self.folder.as_ref().and_then(|folder| Url::from_file_path(folder.join(name)).ok());
        url.map_or_else(|| name.to_owned(), String::from)
    }

    /// Puts a file, in place of whatever has its name.
    ///
    /// It must not be called twice at a time for one name, and its future not be dropped before it has ended: a put
    /// that nobody waits for could be overtaken by the next, and undo it.
    pub async fn put(&self, name: &str, file: Bytes) -> Result<(), Error> {
        for segment in name.split('/') {
            check_segment(segment).map_err(Error::Name)?;
        }
        let path = object_store::path::Path::parse(name).map_err(|error| Error::Name(error.to_string()))?;
        let Some(folder) = &self.folder else {
            self.store.put(&path, PutPayload::from(file)).await?;
            return Ok(());
        };
        let target = folder.join(name);
        blocking(move || remove_left_over(&target)).await.map_err(Error::Sync)?;
        self.store.put(&path, PutPayload::from(file)).await?;
        let (root, target) = (folder.clone(), folder.join(name));
        let sync = move || {
            let folders = target.ancestors().skip(1).take_while(|folder| folder.starts_with(&root));
            folders.into_iter().try_for_each(sync_folder)
        };
        blocking(sync).await.map_err(Error::Sync)
    }
}

impl Sink {
    /// The files below a folder behind `after`, in the order of their names: the first `max` of them.
    pub async fn list(&self, below: &str, after: Option<&str>, max: usize) -> Result<Vec<Listed>, Error> {
        let folder = object_store::path::Path::parse(below).map_err(|error| Error::Name(error.to_string()))?;
        let mut all = self.store.list(Some(&folder));
        let mut first: BTreeMap<String, u64> = BTreeMap::new();
        while let Some(file) = all.next().await {
            let file = match file {
                Ok(file) => file,
                // It went meanwhile, or there never was such a folder.
                Err(object_store::Error::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let name = file.location.as_ref();
            if after.is_none_or(|after| name > after) {
                first.insert(name.to_owned(), file.size);
                if first.len() > max {
                    first.pop_last();
                }
            }
        }
        Ok(first.into_iter().map(|(name, bytes)| Listed { name, bytes }).collect())
    }

    /// A file, whole, of at most so many bytes.
    pub async fn get(&self, name: &str, bytes_max: u64) -> Result<Bytes, Error> {
        let path = object_store::path::Path::parse(name).map_err(|error| Error::Name(error.to_string()))?;
        let found = self.store.get(&path).await?;
        if found.meta.size > bytes_max {
            return Err(Error::TooLong { bytes: found.meta.size, bytes_max });
        }
        Ok(found.bytes().await?)
    }

    /// Takes a file away, if it is there.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let path = object_store::path::Path::parse(name).map_err(|error| Error::Name(error.to_string()))?;
        match self.store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(folder) = self.folder.as_ref().and_then(|root| Some(root.join(name).parent()?.to_owned())) else {
            return Ok(());
        };
        let sync = move || if folder.exists() { sync_folder(&folder) } else { Ok(()) };
        blocking(sync).await.map_err(Error::Sync)
    }
}

/// Whether `segment` (a container, a subscription's name) can be a part of a file's path; if not, why.
pub fn check_segment(segment: &str) -> Result<(), String> {
    if segment.is_empty() || segment.len() > SEGMENT_BYTES_MAX {
        return Err(format!("a part of a dead-letter path must have 1 to {SEGMENT_BYTES_MAX} bytes"));
    }
    if segment.chars().all(|c| c == '.') {
        return Err(format!("`{segment}` can't be a part of a dead-letter path"));
    }
    if let Some(bad) = segment.chars().find(|c| matches!(c, '/' | '\\' | ':') || c.is_control()) {
        return Err(format!("a part of a dead-letter path can't have the character {bad:?}"));
    }
    Ok(())
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Takes away what a put that was killed has left beside `target`: `object_store` counts its temporary files from 1.
fn remove_left_over(target: &Path) -> io::Result<()> {
    for number in 1u32.. {
        let mut left = target.as_os_str().to_owned();
        left.push(format!("#{number}"));
        match fs::remove_file(&left) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// On Unix a folder is synced like a file; elsewhere there is no such thing.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
