//! A folder on this machine.
//!
//! That a file is there, whole, after a put has answered is kept by `object_store`'s own means (a temporary file beside it,
//! `name#1`, synced, then renamed, then its folder synced), and by one of ours. `object_store` syncs a *new* folder's
//! parents only in the put that made it, before that put answers; another put into it may be answered earlier, and a put
//! that fails between the making and the syncing is never made up for. So every put here syncs all folders from the file's
//! own up to the root; those that are clean cost nothing. What a kill leaves of a temporary file is taken away when its
//! file is written again.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem};
use url::Url;

use super::SinkError;

#[derive(Debug)]
pub(super) struct FolderSink {
    store: Arc<dyn ObjectStore>,
    root: PathBuf,
}

impl FolderSink {
    /// It is made if it is not there. Blocks: for the start.
    pub(super) fn open(root: &Path) -> Result<Self, SinkError> {
        let failed = |source| SinkError::Root { folder: root.to_owned(), source };
        let new = root.ancestors().take_while(|folder| !folder.exists()).count();
        fs::create_dir_all(root).map_err(failed)?;
        let root = root.canonicalize().map_err(failed)?;
        // The first one that was there before has a new entry too.
        for folder in root.ancestors().take(new + 1) {
            sync_folder(folder).map_err(failed)?;
        }
        let store = LocalFileSystem::new_with_prefix(&root)?.with_fsync(true);
        Ok(Self { store: Arc::new(store), root })
    }

    pub(super) fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    pub(super) async fn put(&self, name: &str, path: &object_store::path::Path, file: Bytes) -> Result<(), SinkError> {
        let target = self.root.join(name);
        blocking(move || remove_left_over(&target)).await.map_err(SinkError::Sync)?;
        self.store.put(path, PutPayload::from(file)).await?;
        let (root, target) = (self.root.clone(), self.root.join(name));
        let sync = move || {
            let folders = target.ancestors().skip(1).take_while(|folder| folder.starts_with(&root));
            folders.into_iter().try_for_each(sync_folder)
        };
        blocking(sync).await.map_err(SinkError::Sync)
    }

    /// A file was taken away; after this also for good.
    pub(super) async fn deleted(&self, name: &str) -> Result<(), SinkError> {
        let Some(folder) = self.root.join(name).parent().map(Path::to_owned) else { return Ok(()) };
        let sync = move || if folder.exists() { sync_folder(&folder) } else { Ok(()) };
        blocking(sync).await.map_err(SinkError::Sync)
    }

    pub(super) fn url(&self, name: &str) -> Option<String> {
        Url::from_file_path(self.root.join(name)).ok().map(String::from)
    }
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
