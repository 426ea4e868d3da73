//! Where files go: a store of whole objects, which is a folder on this machine or a store of a cloud.
//!
//! After [`Sink::put`] has answered, the file is there, whole, under its name, also after power loss: the dead letters in
//! it are deleted then, and it is the only copy. A put that failed has left the whole file or nothing under the name.
//!
//! A file's name is its path below the store's address, with `/` between the parts; what [`Sink::list`] tells can be given
//! to the others as it is.

mod cloud;
mod folder;

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, path::Path};

pub use self::cloud::CloudSettings;
use self::{cloud::CloudSink, folder::FolderSink};
use crate::{event::Timestamp, policy::dead_letter_store::check_part};

/// Why a store did not do as it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The root can't be made or synced.
    #[error("the dead-letter folder {folder} can't be used: {source}")]
    Root {
        /// Which folder.
        folder: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Nothing was done: the name is not one that a file can have.
    #[error("{0}")]
    Name(String),
    /// The store failed. Where it was to take a file, that may be there all the same.
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

impl SinkError {
    /// Whether there is no such file, or no such destination: no bucket, no container.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Store(object_store::Error::NotFound { .. }))
    }
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Its path.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// When it was written, as its store says.
    pub modified: Timestamp,
}

/// Where a file is, in the words of a store of blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobLocation {
    /// The bucket or container; of a folder, the first part of the name.
    pub container: String,
    /// The path in it.
    pub path: String,
    /// Where it can be had.
    pub url: String,
}

/// A place for files. Clones are the same place.
#[derive(Clone, Debug)]
pub struct Sink(Arc<SinkKind>);

#[derive(Debug)]
enum SinkKind {
    Folder(FolderSink),
    Cloud(Box<CloudSink>),
    Other(Arc<dyn ObjectStore>),
}

impl Sink {
    /// A folder on this machine; it is made if it is not there. Blocks: for the start.
    pub fn local(root: &std::path::Path) -> Result<Self, SinkError> {
        Ok(Self(Arc::new(SinkKind::Folder(FolderSink::open(root)?))))
    }

    /// A store of a cloud. It is not asked for anything yet.
    pub fn cloud(settings: CloudSettings) -> Result<Self, SinkError> {
        Ok(Self(Arc::new(SinkKind::Cloud(Box::new(CloudSink::open(settings)?)))))
    }

    /// A store whose put is answered when the object is safe, as those of the clouds are.
    pub fn over(store: Arc<dyn ObjectStore>) -> Self {
        Self(Arc::new(SinkKind::Other(store)))
    }

    /// Where a file is.
    pub fn blob(&self, name: &str) -> BlobLocation {
        let first = || name.split_once('/').map_or_else(Default::default, |(a, b)| (a.to_owned(), b.to_owned()));
        let ((container, path), url) = match &*self.0 {
            SinkKind::Folder(folder) => (first(), folder.url(name)),
            SinkKind::Cloud(cloud) => (cloud.split(name).unwrap_or_default(), cloud.url(name)),
            SinkKind::Other(_) => (first(), None),
        };
        BlobLocation { container, path, url: url.unwrap_or_else(|| name.to_owned()) }
    }

    /// Puts a file, in place of whatever has its name.
    ///
    /// It must not be called twice at a time for one name, and its future not be dropped before it has ended: a put
    /// that nobody waits for could be overtaken by the next, and undo it.
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

    /// The files below a folder behind `after`, at any depth, in the order of their names: the first `max` of them.
    pub async fn list(&self, below: &str, after: Option<&str>, max: usize) -> Result<Vec<ListedFile>, SinkError> {
        let (store, path) = self.find(below)?;
        let offset = after.map(|after| self.find(after)).transpose()?;
        // The clouds tell in order, and two of them from a place on; a folder as it likes.
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
                // It went meanwhile, or there never was such a folder.
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
            let modified = u64::try_from(file.last_modified.timestamp_micros()).map_or(Timestamp::NEVER, Timestamp);
            first.insert(name.clone(), ListedFile { name, bytes: file.size, modified });
            if first.len() > max {
                first.pop_last();
                if sorted {
                    break;
                }
            }
        }
        Ok(first.into_values().collect())
    }

    /// A file, whole, of at most so many bytes.
    pub async fn get(&self, name: &str, bytes_max: u64) -> Result<Bytes, SinkError> {
        let (store, path) = self.find(name)?;
        let found = store.get(&path).await?;
        if found.meta.size > bytes_max {
            return Err(SinkError::TooLong { bytes: found.meta.size, bytes_max });
        }
        Ok(found.bytes().await?)
    }

    /// Takes a file away; one that is not there is gone already.
    pub async fn delete(&self, name: &str) -> Result<(), SinkError> {
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
        Ok((store, Path::parse(name).map_err(|error| SinkError::Name(error.to_string()))?))
    }
}
