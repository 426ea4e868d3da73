//! Where files are stored: a folder on this machine or an object store of a cloud.
//!
//! After [`Sink::put_file`] returns, the file is stored completely under its name, also after a
//! power loss: its dead letters are then deleted, and it is the only copy. A failed put has left
//! the whole file or nothing under the name.
//!
//! A file's name is its path below the store's address, with `/` between the parts. The other
//! methods accept names from [`Sink::list_below`].

mod cloud;
mod folder;
mod regular;

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion, path::Path};

pub use self::{
    cloud::CloudSettings,
    regular::{open_regular, read_regular},
};
use self::{cloud::CloudSink, folder::FolderSink};
use gridhook_clock::Lease;
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
        folder: PathBuf,
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
    TooLong { bytes: u64, bytes_max: u64 },
    /// The file cannot be read, or is not a regular file.
    #[error("{0}")]
    Unreadable(#[source] io::Error),
    /// The node may not own the store any more. Nothing was done.
    #[error(
        "another node of the cluster may own the store now, so that nothing is written or deleted"
    )]
    Fenced,
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

    /// Whether another writer has changed the file meanwhile.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Store(
                object_store::Error::Precondition { .. }
                    | object_store::Error::AlreadyExists { .. }
            )
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    pub name: String,
    pub bytes: u64,
    /// The time at which the file was written, according to its store.
    pub modified: Timestamp,
}

/// The location of a file, in terms of an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobLocation {
    /// The bucket or container; for a folder, the first part of the name.
    pub container: String,
    pub path: String,
    pub url: String,
}

/// Keeps a former owner of a cluster's store from files of the next one.
#[derive(Clone, Debug)]
pub struct FileFence {
    /// Files are written and deleted only while this lease allows it.
    pub lease: Lease,
    /// The epoch of the ownership, which is part of the names of files.
    pub epoch: u64,
}

/// A version of a file, as a store that replaces files conditionally knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion(Option<UpdateVersion>);

/// A store of files. Clones share it.
#[derive(Clone, Debug)]
pub struct Sink {
    kind: Arc<SinkKind>,
    fence: Option<FileFence>,
}

#[derive(Debug)]
enum SinkKind {
    Folder(FolderSink),
    Cloud(Box<CloudSink>),
    Other(Arc<dyn ObjectStore>),
}

impl Sink {
    /// A folder on this machine, created if it does not exist. Blocks; for the start.
    pub fn in_folder(root: &std::path::Path) -> Result<Self, SinkError> {
        Ok(Self::new(SinkKind::Folder(FolderSink::open(root)?)))
    }

    /// An object store of a cloud. Sends no request yet.
    pub fn in_cloud(settings: CloudSettings) -> Result<Self, SinkError> {
        let sink = CloudSink::open(settings)?;
        Ok(Self::new(SinkKind::Cloud(Box::new(sink))))
    }

    /// A store whose put returns once the object is durable, like those of the clouds.
    pub fn over_store(store: Arc<dyn ObjectStore>) -> Self {
        Self::new(SinkKind::Other(store))
    }

    fn new(kind: SinkKind) -> Self {
        Self {
            kind: Arc::new(kind),
            fence: None,
        }
    }

    /// Makes the store refuse to write and delete files once the lease does not allow it: the next
    /// owner of the store may have written or removed the same ones.
    ///
    /// A process may be paused behind that check. So names that one owner writes have its epoch,
    /// and the next one uses none of them.
    #[must_use]
    pub fn with_fence(self, fence: Option<FileFence>) -> Self {
        Self { fence, ..self }
    }

    /// The epoch of the ownership in a cluster; [`None`] without a cluster.
    pub fn epoch(&self) -> Option<u64> {
        self.fence.as_ref().map(|fence| fence.epoch)
    }

    fn check_lease(&self) -> Result<(), SinkError> {
        match &self.fence {
            Some(fence) if !fence.lease.may_act() => Err(SinkError::Fenced),
            Some(_) | None => Ok(()),
        }
    }

    /// The location of a file.
    pub fn blob_location(&self, name: &str) -> BlobLocation {
        let first = || {
            name.split_once('/')
                .map_or_else(Default::default, |(a, b)| (a.to_owned(), b.to_owned()))
        };
        let ((container, path), url) = match &*self.kind {
            SinkKind::Folder(folder) => (first(), folder.url(name)),
            SinkKind::Cloud(cloud) => (
                cloud.split_bucket(name).unwrap_or_default(),
                cloud.url(name),
            ),
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
    pub async fn put_file(&self, name: &str, file: Bytes) -> Result<(), SinkError> {
        self.check_lease()?;
        let (store, path) = self.find_file(name)?;
        match &*self.kind {
            SinkKind::Folder(folder) => folder.put_file(name, &path, file).await,
            SinkKind::Cloud(_) | SinkKind::Other(_) => {
                store.put(&path, PutPayload::from(file)).await?;
                Ok(())
            }
        }
    }

    /// Replaces a file that still has this version, or stores it if it did not exist. A store
    /// without conditions replaces any.
    ///
    /// # Errors
    /// If it was changed meanwhile (`SinkError::is_conflict`), or the store fails.
    pub async fn replace_file(
        &self,
        name: &str,
        file: Bytes,
        FileVersion(version): FileVersion,
    ) -> Result<(), SinkError> {
        if matches!(&*self.kind, SinkKind::Folder(_)) {
            return self.put_file(name, file).await;
        }
        self.check_lease()?;
        let (store, path) = self.find_file(name)?;
        let mode = version.map_or(PutMode::Create, PutMode::Update);
        match store
            .put_opts(&path, PutPayload::from(file.clone()), mode.into())
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if is_unsupported(&error) => self.put_file(name, file).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a whole file of at most `bytes_max` bytes, and its version. The version of a file that
    /// does not exist is that of none.
    pub async fn get_version(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<(Option<Bytes>, FileVersion), SinkError> {
        let result = match &*self.kind {
            SinkKind::Folder(_) => {
                let bytes = self.get(name, bytes_max).await;
                bytes.map(|bytes| (bytes, FileVersion(None)))
            }
            SinkKind::Cloud(_) | SinkKind::Other(_) => {
                within_limit(self.read_object(name, bytes_max)).await
            }
        };
        match result {
            Ok((bytes, version)) => Ok((Some(bytes), version)),
            Err(error) if error.is_not_found() => Ok((None, FileVersion(None))),
            Err(error) => Err(error),
        }
    }

    /// The first `max` files below a folder after `after`, at any depth, in the order of their
    /// names.
    pub async fn list_below(
        &self,
        below: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<ListedFile>, SinkError> {
        within_limit(self.list_files(below, after, max)).await
    }

    async fn list_files(
        &self,
        below: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<ListedFile>, SinkError> {
        let (store, path) = self.find_file(below)?;
        let offset = after.map(|after| self.find_file(after)).transpose()?;
        // Clouds list in order, and S3 and Google from any position; a folder in any order.
        let (sorted, mut all) = match &*self.kind {
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
            let name = match &*self.kind {
                SinkKind::Cloud(cloud) => cloud.name_of(below, file.location.as_ref()),
                SinkKind::Folder(_) | SinkKind::Other(_) => file.location.as_ref().to_owned(),
            };
            if after.is_some_and(|after| name.as_str() <= after) {
                continue;
            }
            let modification = u64::try_from(file.last_modified.timestamp_micros())
                .map_or(Timestamp::NEVER, Timestamp);
            if first
                .insert(
                    name.clone(),
                    ListedFile {
                        name: name.clone(),
                        bytes: file.size,
                        modified: modification,
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
        within_limit(self.read(name, bytes_max)).await
    }

    async fn read(&self, name: &str, bytes_max: u64) -> Result<Bytes, SinkError> {
        if let SinkKind::Folder(folder) = &*self.kind {
            self.find_file(name)?;
            return folder.get(name, bytes_max).await;
        }
        Ok(self.read_object(name, bytes_max).await?.0)
    }

    async fn read_object(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<(Bytes, FileVersion), SinkError> {
        let (store, path) = self.find_file(name)?;
        let object = store.get(&path).await?;
        if object.meta.size > bytes_max {
            return Err(SinkError::TooLong {
                bytes: object.meta.size,
                bytes_max,
            });
        }
        let version = UpdateVersion {
            e_tag: object.meta.e_tag.clone(),
            version: object.meta.version.clone(),
        };
        Ok((object.bytes().await?, FileVersion(Some(version))))
    }

    /// Deletes a file. Succeeds if it does not exist.
    pub async fn delete_file(&self, name: &str) -> Result<(), SinkError> {
        within_limit(self.remove(name)).await
    }

    async fn remove(&self, name: &str) -> Result<(), SinkError> {
        self.check_lease()?;
        let (store, path) = self.find_file(name)?;
        match store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match &*self.kind {
            SinkKind::Folder(folder) => folder.sync_deletion(name).await,
            SinkKind::Cloud(_) | SinkKind::Other(_) => Ok(()),
        }
    }

    fn find_file(&self, name: &str) -> Result<(Arc<dyn ObjectStore>, Path), SinkError> {
        for part in name.split('/') {
            check_part(part).map_err(|refused| SinkError::Name(refused.to_string()))?;
        }
        let store = match &*self.kind {
            SinkKind::Folder(folder) => folder.object_store(),
            SinkKind::Cloud(cloud) => return cloud.find_client(name),
            SinkKind::Other(store) => Arc::clone(store),
        };
        Ok((
            store,
            Path::parse(name).map_err(|error| SinkError::Name(error.to_string()))?,
        ))
    }
}

/// Whether a store replaces no file conditionally. Compatible servers may respond with this status,
/// which is in the text only.
fn is_unsupported(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotImplemented { .. })
        || error.to_string().contains("501 Not Implemented")
}

/// The result of a step, if it ends in time.
async fn within_limit<T>(step: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
    tokio::time::timeout(STEP_TIMEOUT, step)
        .await
        .unwrap_or(Err(SinkError::TimedOut))
}
