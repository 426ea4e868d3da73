//! The store of a node whose cluster has lost its changelog, so that a new cluster goes on with it.
//!
//! A node refuses its store if the changelog that it has followed is not there, because its records
//! would be lost. A store that names no cluster is like a restored one: the changelog of a new
//! cluster begins behind what it has applied.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use gridhook_store::{
    StoreError,
    records::AppliedPosition,
    rocks::{OpenError, ReadOnlyStore, RocksOptions},
};

/// The file with the identifier of the cluster whose changelog a store follows.
pub const CLUSTER_ID: &str = "cluster-id";

/// A store that no node has open. It is locked as long as this is held.
#[derive(Debug)]
pub struct SeedStore {
    folder: PathBuf,
    /// The last sequence of the changelog that the store has applied; [`None`] if it has followed
    /// none.
    pub applied: Option<u64>,
    /// The identifier of the store's cluster.
    pub cluster: Option<String>,
    _store: ReadOnlyStore,
}

/// Why such a store was not read.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] StoreError),
    /// A file of the folder cannot be read or removed.
    #[error("{}: {source}", .folder.display())]
    Io { folder: PathBuf, source: io::Error },
}

impl SeedStore {
    /// Reads the store in a data folder.
    ///
    /// # Errors
    /// If it cannot be read, or a node has it open.
    pub fn open(folder: &Path, options: &RocksOptions) -> Result<Self, SeedError> {
        let store = ReadOnlyStore::open(folder, options)?;
        let position = AppliedPosition::read(&store)?;
        let cluster = match fs::read_to_string(folder.join(CLUSTER_ID)) {
            Ok(id) => Some(id.trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => {
                return Err(SeedError::Io {
                    folder: folder.to_owned(),
                    source,
                });
            }
        };
        Ok(Self {
            folder: folder.to_owned(),
            applied: position.map(|at| at.sequence),
            cluster,
            _store: store,
        })
    }

    /// Makes the store follow no cluster.
    ///
    /// # Errors
    /// If the file that names it is not removed.
    pub fn detach_from_cluster(&self) -> Result<(), SeedError> {
        let removal = match fs::remove_file(self.folder.join(CLUSTER_ID)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| File::open(&self.folder)?.sync_all()),
        };
        removal.map_err(|source| SeedError::Io {
            folder: self.folder.clone(),
            source,
        })
    }
}
