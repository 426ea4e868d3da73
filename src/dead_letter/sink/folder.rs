//! A folder on this machine.
//!
//! Durability of a put comes from `object_store` (a temporary file `name#1` beside the target,
//! synced, renamed, then its folder synced) and from one addition. `object_store` syncs the parents
//! of a *new* folder only in the put that created it. Another put into that folder may return
//! earlier, and if the first put fails in between, nothing syncs the parents later. So every put
//! here syncs all folders from the file's own up to the root; clean ones cost nothing. A temporary
//! file that a crash left is deleted when its file is written again.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem};
use url::Url;

use super::{SinkError, open_regular};

#[derive(Debug)]
pub(super) struct FolderSink {
    store: Arc<dyn ObjectStore>,
    root: PathBuf,
}

impl FolderSink {
    /// Creates the folder if it does not exist. Blocks; for the start.
    pub(super) fn open(root: &Path) -> Result<Self, SinkError> {
        let failure = |source| root_error(root, source);
        let new = root
            .ancestors()
            .take_while(|folder| !folder.exists())
            .count();
        fs::create_dir_all(root).map_err(failure)?;
        let root = root.canonicalize().map_err(failure)?;
        // The first existing ancestor has a new entry, too.
        for folder in root.ancestors().take(new + 1) {
            sync_folder(folder).map_err(failure)?;
        }
        let store = LocalFileSystem::new_with_prefix(&root)?.with_fsync(true);
        Ok(Self {
            store: Arc::new(store),
            root,
        })
    }

    pub(super) fn object_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    pub(super) async fn put_file(
        &self,
        name: &str,
        path: &object_store::path::Path,
        file: Bytes,
    ) -> Result<(), SinkError> {
        let target = self.root.join(name);
        run_blocking(move || remove_left_over(&target))
            .await
            .map_err(SinkError::Sync)?;
        self.store.put(path, PutPayload::from(file)).await?;
        let root = self.root.clone();
        let target = self.root.join(name);
        run_blocking(move || sync_folders_above(&target, &root))
            .await
            .map_err(SinkError::Sync)
    }

    pub(super) async fn get(&self, name: &str, bytes_max: u64) -> Result<Bytes, SinkError> {
        let path = self.root.join(name);
        let read = tokio::task::spawn_blocking(move || read_file(&path, bytes_max)).await;
        let result =
            read.unwrap_or_else(|error| Err(SinkError::Unreadable(io::Error::other(error))));
        result.map_err(|error| match error {
            SinkError::Unreadable(source) if is_missing(&source) => object_store::Error::NotFound {
                path: name.to_owned(),
                source: source.into(),
            }
            .into(),
            error => error,
        })
    }

    /// Makes the deletion of a file durable.
    pub(super) async fn sync_deletion(&self, name: &str) -> Result<(), SinkError> {
        let Some(folder) = self.root.join(name).parent().map(Path::to_owned) else {
            return Ok(());
        };
        let sync = move || sync_if_there(&folder);
        run_blocking(sync).await.map_err(SinkError::Sync)
    }

    pub(super) fn url(&self, name: &str) -> Option<String> {
        Url::from_file_path(self.root.join(name))
            .ok()
            .map(String::from)
    }
}

fn root_error(root: &Path, source: io::Error) -> SinkError {
    SinkError::Root {
        folder: root.to_owned(),
        source,
    }
}

fn read_file(path: &Path, bytes_max: u64) -> Result<Bytes, SinkError> {
    let mut file = open_regular(path).map_err(SinkError::Unreadable)?;
    let bytes = file.metadata().map_err(SinkError::Unreadable)?.len();
    if bytes > bytes_max {
        return Err(SinkError::TooLong { bytes, bytes_max });
    }
    let mut content = Vec::new();
    // The file may grow meanwhile.
    file.by_ref()
        .take(bytes)
        .read_to_end(&mut content)
        .map_err(SinkError::Unreadable)?;
    Ok(content.into())
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

async fn run_blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Deletes the temporary files that an interrupted put left beside `target`. `object_store` numbers
/// them from 1.
fn remove_left_over(target: &Path) -> io::Result<()> {
    for number in 1u32.. {
        let mut left = target.as_os_str().to_owned();
        left.push(format!("#{number}"));
        match fs::remove_file(&left) {
            Ok(()) => {}
            Err(error) if is_missing(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Syncs a folder like a file, as Unix allows. Other systems have no such operation.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()
    } else {
        Ok(())
    }
}

/// Syncs the folders of `target` up to `root`.
fn sync_folders_above(target: &Path, root: &Path) -> io::Result<()> {
    let folders = target.ancestors().skip(1);
    let mut folders = folders.take_while(|folder| folder.starts_with(root));
    folders.try_for_each(sync_folder)
}

/// Syncs a folder, unless it was removed with its last file.
fn sync_if_there(folder: &Path) -> io::Result<()> {
    if folder.exists() {
        sync_folder(folder)
    } else {
        Ok(())
    }
}
