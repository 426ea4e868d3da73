//! Where files are stored: a folder on this machine or an object store of a cloud.
//!
//! After [`Sink::put`] returns, the file is stored completely under its name, also after a power
//! loss: its dead letters are then deleted, and it is the only copy. A failed put has left the
//! whole file or nothing under the name.
//!
//! A file's name is its path below the store's address, with `/` between the parts. The other
//! methods accept names from [`Sink::list`].

mod cloud;
mod folder;
mod regular;

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, path::Path};

pub use self::{
    cloud::CloudSettings,
    regular::{open_regular, read_regular},
};
use self::{cloud::CloudSink, folder::FolderSink};
use gridhook_event::Timestamp;
use gridhook_policy::dead_letter_store::check_part;

/// Time limit for a list, and for reading or deleting a file: a store that never ends one must not
/// hold up everything behind it.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The root folder cannot be created or synced.
    #[error("cannot use the folder {folder}: {source}")]
    Root {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The name is not valid for a file. Nothing was done.
    #[error("{0}")]
    Name(String),
    /// The store failed. After a failed put, the file may still be stored.
    #[error("the store of files failed: {0}")]
    Store(#[from] object_store::Error),
    /// The file is too long to be read.
    #[error("it has {bytes} bytes; at most {bytes_max} are read")]
    TooLong {
        /// Its size.
        bytes: u64,
        /// The maximum.
        bytes_max: u64,
    },
    /// The file cannot be read, or is not a regular file.
    #[error("{0}")]
    Unreadable(#[source] io::Error),
    /// The store did not end a step in time.
    #[error("the store of files did not respond within {} s", STEP_TIMEOUT.as_secs())]
    TimedOut,
    /// A list has a name twice: it may never end.
    #[error("the store of files lists {0:?} twice")]
    ListedTwice(String),
    /// The file is stored, but may be lost in a power loss.
    #[error("cannot sync a folder of files: {0}")]
    Sync(#[source] io::Error),
}

impl SinkError {
    /// Whether the file, or its bucket or container, does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Store(object_store::Error::NotFound { .. }))
    }
}

/// A stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Its path.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, according to its store.
    pub modified: Timestamp,
}

/// The location of a file, in terms of an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobLocation {
    /// The bucket or container; for a folder, the first part of the name.
    pub container: String,
    /// The path in it.
    pub path: String,
    /// Its URL.
    pub url: String,
}

/// A store of files. Clones share it.
#[derive(Clone, Debug)]
pub struct Sink(Arc<SinkKind>);

#[derive(Debug)]
enum SinkKind {
    Folder(FolderSink),
    Cloud(Box<CloudSink>),
    Other(Arc<dyn ObjectStore>),
}

impl Sink {
    /// A folder on this machine, created if it does not exist. Blocks; for the start.
    pub fn local(root: &std::path::Path) -> Result<Self, SinkError> {
        Ok(Self(Arc::new(SinkKind::Folder(FolderSink::open(root)?))))
    }

    /// An object store of a cloud. Sends no request yet.
    pub fn cloud(settings: CloudSettings) -> Result<Self, SinkError> {
        Ok(Self(Arc::new(SinkKind::Cloud(Box::new(CloudSink::open(
            settings,
        )?)))))
    }

    /// A store whose put returns once the object is durable, like those of the clouds.
    pub fn over(store: Arc<dyn ObjectStore>) -> Self {
        Self(Arc::new(SinkKind::Other(store)))
    }

    /// The location of a file.
    pub fn blob(&self, name: &str) -> BlobLocation {
        let first = || {
            name.split_once('/')
                .map_or_else(Default::default, |(a, b)| (a.to_owned(), b.to_owned()))
        };
        let ((container, path), url) = match &*self.0 {
            SinkKind::Folder(folder) => (first(), folder.url(name)),
            SinkKind::Cloud(cloud) => (cloud.split(name).unwrap_or_default(), cloud.url(name)),
            SinkKind::Other(_) => (first(), None),
        };
        BlobLocation {
            container,
            path,
            url: url.unwrap_or_else(|| name.to_owned()),
        }
    }

    /// Stores a file and replaces any file with its name.
    ///
    /// Do not call it twice at a time for one name, and do not drop its future before it has ended:
    /// the abandoned put could complete later and overwrite the next one.
    pub async fn put(&self, name: &str, file: Bytes) -> Result<(), SinkError> {
        let (store, path) = self.find(name)?;
        match &*self.0 {
            SinkKind::Folder(folder) => folder.put(name, &path, file).await,
            SinkKind::Cloud(_) | SinkKind::Other(_) => {
                store.put(&path, PutPayload::from(file)).await?;
                Ok(())
            }
        }
    }

    /// The first `max` files below a folder after `after`, at any depth, in the order of their
    /// names.
    pub async fn list(
        &self,
        below: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<ListedFile>, SinkError> {
        within(self.list_files(below, after, max)).await
    }

    async fn list_files(
        &self,
        below: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<ListedFile>, SinkError> {
        let (store, path) = self.find(below)?;
        let offset = after.map(|after| self.find(after)).transpose()?;
        // Clouds list in order, and S3 and Google from any position; a folder in any order.
        let (sorted, mut all) = match &*self.0 {
            SinkKind::Cloud(cloud) => match offset.filter(|_| cloud.begins_anywhere()) {
                Some((_, offset)) => (true, store.list_with_offset(Some(&path), &offset)),
                None => (true, store.list(Some(&path))),
            },
            SinkKind::Folder(_) | SinkKind::Other(_) => (false, store.list(Some(&path))),
        };
        let mut first: BTreeMap<String, ListedFile> = BTreeMap::new();
        while let Some(file) = all.next().await {
            let file = match file {
                Ok(file) => file,
                // The file was deleted meanwhile, or the folder does not exist.
                Err(object_store::Error::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let name = match &*self.0 {
                SinkKind::Cloud(cloud) => cloud.name_of(below, file.location.as_ref()),
                SinkKind::Folder(_) | SinkKind::Other(_) => file.location.as_ref().to_owned(),
            };
            if after.is_some_and(|after| name.as_str() <= after) {
                continue;
            }
            let modified = u64::try_from(file.last_modified.timestamp_micros())
                .map_or(Timestamp::NEVER, Timestamp);
            if first
                .insert(
                    name.clone(),
                    ListedFile {
                        name: name.clone(),
                        bytes: file.size,
                        modified,
                    },
                )
                .is_some()
            {
                return Err(SinkError::ListedTwice(name));
            }
            if first.len() > max {
                first.pop_last();
                if sorted {
                    break;
                }
            }
        }
        Ok(first.into_values().collect())
    }

    /// Reads a whole file of at most `bytes_max` bytes.
    pub async fn get(&self, name: &str, bytes_max: u64) -> Result<Bytes, SinkError> {
        within(self.read(name, bytes_max)).await
    }

    async fn read(&self, name: &str, bytes_max: u64) -> Result<Bytes, SinkError> {
        let (store, path) = self.find(name)?;
        if let SinkKind::Folder(folder) = &*self.0 {
            return folder.get(name, bytes_max).await;
        }
        let found = store.get(&path).await?;
        if found.meta.size > bytes_max {
            return Err(SinkError::TooLong {
                bytes: found.meta.size,
                bytes_max,
            });
        }
        Ok(found.bytes().await?)
    }

    /// Deletes a file. Succeeds if it does not exist.
    pub async fn delete(&self, name: &str) -> Result<(), SinkError> {
        within(self.remove(name)).await
    }

    async fn remove(&self, name: &str) -> Result<(), SinkError> {
        let (store, path) = self.find(name)?;
        match store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match &*self.0 {
            SinkKind::Folder(folder) => folder.deleted(name).await,
            SinkKind::Cloud(_) | SinkKind::Other(_) => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Result<(Arc<dyn ObjectStore>, Path), SinkError> {
        for part in name.split('/') {
            check_part(part).map_err(SinkError::Name)?;
        }
        let store = match &*self.0 {
            SinkKind::Folder(folder) => folder.store(),
            SinkKind::Cloud(cloud) => return cloud.find(name),
            SinkKind::Other(store) => Arc::clone(store),
        };
        Ok((
            store,
            Path::parse(name).map_err(|error| SinkError::Name(error.to_string()))?,
        ))
    }
}

/// The result of a step, if it ends in time.
async fn within<T>(step: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
    tokio::time::timeout(STEP_TIMEOUT, step)
        .await
        .unwrap_or(Err(SinkError::TimedOut))
}
