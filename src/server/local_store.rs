//! The store of the data folder, which is open as long as the process runs, except while one that
//! another node has sent takes its place.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    mem,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use crate::{ServerError, descriptors::DescriptorBudget, file_modes, io_error, recovery};
use gridhook_admin::health;
use gridhook_config::Config;
use gridhook_repair::seed::CLUSTER_ID;
use gridhook_storage::store_options;
use gridhook_store::rocks::{OpenError, RocksOptions, RocksStore, STORE, received};

/// The interval between two checks whether the store is released.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// The number of checks whether the store is released.
const CLOSE_POLLS: u32 = 5000;

/// The store of a data folder.
pub(super) struct LocalStore {
    data_dir: PathBuf,
    options: RocksOptions,
    state: Mutex<StoreState>,
    /// Held while the folder for a store that arrives is used.
    arriving: Mutex<()>,
}

enum StoreState {
    Open(Arc<RocksStore>),
    /// The store was closed, because the process ends.
    Closed,
    /// Why the store cannot be opened. It stays closed until the next start.
    Failed(String),
}

impl LocalStore {
    pub(super) fn open(data_dir: &Path, options: RocksOptions) -> Result<Self, OpenError> {
        let store = RocksStore::open(data_dir, &options)?;
        Ok(Self {
            data_dir: data_dir.to_owned(),
            options,
            state: Mutex::new(StoreState::Open(Arc::new(store))),
            arriving: Mutex::default(),
        })
    }

    /// A store that cannot be opened, on a node whose other stores can. Nothing reads it.
    pub(super) fn unopened(data_dir: &Path, options: RocksOptions, failure: String) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            options,
            state: Mutex::new(StoreState::Failed(failure)),
            arriving: Mutex::default(),
        }
    }

    /// Why the store cannot be opened.
    pub(super) fn failure(&self) -> Option<String> {
        match &*self.lock() {
            StoreState::Failed(failure) => Some(failure.clone()),
            StoreState::Open(_) | StoreState::Closed => None,
        }
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(super) fn options(&self) -> &RocksOptions {
        &self.options
    }

    /// The store as it is open now. A store with a [`Self::failure`] has none.
    pub(super) fn open_store(&self) -> Arc<RocksStore> {
        match &*self.lock() {
            StoreState::Open(store) => Arc::clone(store),
            StoreState::Closed => panic!("the store is closed only at the end"),
            StoreState::Failed(failure) => panic!("the store is not open: {failure}"),
        }
    }

    /// The store; [`None`] if it is not open.
    pub(super) fn find_store(&self) -> Option<Arc<RocksStore>> {
        match &*self.lock() {
            StoreState::Open(store) => Some(Arc::clone(store)),
            StoreState::Closed | StoreState::Failed(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock()
    }

    /// Locks the folder in which a store arrives: a transfer that was given up may still write
    /// there.
    pub(super) fn lock_arrival(&self) -> MutexGuard<'_, ()> {
        self.arriving.lock()
    }

    fn folder_error(&self, source: io::Error) -> OpenError {
        let folder = self.data_dir.clone();
        OpenError::Folder { folder, source }
    }

    /// Puts the store that has arrived in the place of this one, and opens it. Nothing may use the
    /// store meanwhile.
    ///
    /// # Errors
    /// If the store is still in use, or the new one does not open. It is in place then, or will be
    /// at the next start; until then the store has a [`Self::failure`].
    pub(super) fn replace_store(&self) -> Result<(), OpenError> {
        let mut state = self.lock();
        let StoreState::Open(old) = mem::replace(&mut *state, StoreState::Closed) else {
            panic!("only a store that is open is replaced");
        };
        if let Err(old) = close_last(old) {
            *state = StoreState::Open(old);
            return Err(self.folder_error(io::Error::other(
                "its store is still in use, and cannot be replaced",
            )));
        }
        let opening = self.open_arrived();
        *state = match &opening {
            Ok(store) => StoreState::Open(Arc::clone(store)),
            Err(error) => StoreState::Failed(error.to_string()),
        };
        opening.map(drop)
    }

    fn open_arrived(&self) -> Result<Arc<RocksStore>, OpenError> {
        received::accept_arrived(&self.data_dir).map_err(|error| self.folder_error(error))?;
        RocksStore::open(&self.data_dir, &self.options).map(Arc::new)
    }

    /// Closes the store on this thread once no other thread holds it. RocksDB must not be used or
    /// closed on another thread while the process destroys its globals.
    pub(super) fn close(&self) {
        let state = mem::replace(&mut *self.lock(), StoreState::Closed);
        if let StoreState::Open(store) = state
            && let Err(store) = close_last(store)
        {
            tracing::warn!("the store is still in use at the end");
            // Closing it here could race with its user. The writer has ended, so nothing is lost.
            mem::forget(store);
        }
    }

    /// Whether the store was found to follow the changelog of the cluster with this identifier.
    pub(super) fn is_of_cluster(&self, id: &str) -> bool {
        fs::read_to_string(self.data_dir.join(CLUSTER_ID)).is_ok_and(|found| found.trim() == id)
    }

    /// Whether the store was found to follow the changelog of a cluster. A restored one was not.
    #[cfg(feature = "nats")]
    pub(super) fn is_of_any_cluster(&self) -> bool {
        self.data_dir.join(CLUSTER_ID).exists()
    }

    /// Records that the store follows the changelog of the cluster with this identifier.
    pub(super) fn note_cluster(&self, id: &str) -> io::Result<()> {
        if self.is_of_cluster(id) {
            return Ok(());
        }
        let draft = self.data_dir.join("cluster-id.new");
        let mut file = File::create(&draft)?;
        file.write_all(format!("{id}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, self.data_dir.join(CLUSTER_ID))?;
        File::open(&self.data_dir)?.sync_all()
    }
}

/// Closes a store once it is the last one that holds it.
fn close_last(mut store: Arc<RocksStore>) -> Result<(), Arc<RocksStore>> {
    for _ in 0..CLOSE_POLLS {
        store = match Arc::try_unwrap(store) {
            Ok(store) => {
                drop(store);
                return Ok(());
            }
            Err(store) => store,
        };
        std::thread::sleep(CLOSE_POLL);
    }
    Err(store)
}

/// Opens the store on a blocking thread, because the interim server runs on this one.
pub(super) async fn open_store(
    config: &Config,
    budget: &DescriptorBudget,
    health: &health::ServerHealth,
) -> Result<Arc<LocalStore>, ServerError> {
    let folder = config.server.data_dir.clone();
    let options = rocks_options(config, budget);
    let store = folder.join(STORE);
    health.set_step(health::StartStep::with_progress(
        "opening the store",
        move || recovery::recovery_progress(&store),
    ));
    let opening = tokio::task::spawn_blocking(move || LocalStore::open(&folder, options));
    let result = opening
        .await
        .map_err(|error| io_error("opening the store")(io::Error::other(error)))?;
    let store = Arc::new(result?);
    file_modes::narrow_modes(&config.server.data_dir).map_err(io_error("the data folder"))?;
    Ok(store)
}

/// A store that cannot be opened, of a shard beside others.
pub(super) fn build_unopened_store(
    config: &Config,
    budget: &DescriptorBudget,
    error: &ServerError,
) -> LocalStore {
    let options = rocks_options(config, budget);
    LocalStore::unopened(&config.server.data_dir, options, error.to_string())
}

/// The options of the store, with as many open tables as the descriptors allow.
pub(super) fn rocks_options(config: &Config, budget: &DescriptorBudget) -> RocksOptions {
    RocksOptions {
        open_tables: budget.open_tables_max(),
        is_beside_others: config
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.shards > 1),
        ..store_options(&config.journal)
    }
}
