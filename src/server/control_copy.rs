//! This node's copy of the control plane, for the router and for the cores of this process.
//!
//! The node follows the changelog of the control plane like that of any shard, or owns it. This
//! module polls its store and reads the records when they have changed. A task that waits for a
//! change shortens the polling interval, so that it can be long otherwise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, join};
use tokio::{
    sync::{Mutex, Notify, watch},
    time::{Instant, timeout},
};

use super::{
    local_store::LocalStore,
    node::{ChangelogEnd, ClusterNode},
    router::OtherShards,
};
use gridhook_admin::{FollowDelay, ShardOwners};
use gridhook_cluster::shard_of;
use gridhook_engine::control::{
    definitions::Definitions,
    registry::{self, Registry, ShardTopics},
};
use gridhook_journal::replicated::ShardCopy;
use gridhook_store::rocks::RocksStore;

/// The polling interval while no task waits for a change.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The polling interval while a task waits for a change.
const FAST_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The longest time for which a task waits.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The longest time for which a request waits for what the copy does not have.
const SHARED_CATCH_UP_MAX: Duration = Duration::from_secs(1);

/// The pause before a core tries again to follow what it could not.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The copy. Clones share it.
#[derive(Clone)]
pub(super) struct ControlCopy {
    definitions: watch::Receiver<Arc<Definitions>>,
    haste: Arc<Haste>,
    end: ChangelogEnd,
    catch_ups: Arc<CatchUps>,
    /// The identifier of the cluster.
    cluster: Arc<str>,
}

/// The reads of the changelog's end that tasks share.
#[derive(Default)]
struct CatchUps {
    /// The number of those that have begun.
    begun: AtomicU64,
    /// The number of the last one that has finished, locked by the one that runs.
    finished: Mutex<u64>,
}

/// The requests for a fast poll.
#[derive(Default)]
struct Haste {
    /// The highest position that a task waits for.
    position: AtomicU64,
    request: Notify,
    /// Ends the pause of the follower of the control plane.
    follower: Arc<Notify>,
}

impl ControlCopy {
    /// Reads the copy of the node of the control plane, and begins to watch it, on this system.
    pub(super) async fn begin(node: &ClusterNode) -> Self {
        let (sender, definitions) = watch::channel(Arc::default());
        let haste = Arc::new(Haste {
            follower: Arc::clone(&node.haste),
            ..Haste::default()
        });
        let mut store_watch = WatchedStore {
            store: Arc::clone(node.local_store()),
            sender,
            last_error: String::new(),
        };
        store_watch.read_store().await;
        actix_rt::spawn(store_watch.watch(Arc::clone(&haste)));
        Self {
            definitions,
            haste,
            end: node.changelog_end(),
            catch_ups: Arc::default(),
            cluster: node.process.cluster_id.as_str().into(),
        }
    }

    pub(super) fn read(&self) -> watch::Ref<'_, Arc<Definitions>> {
        self.definitions.borrow()
    }

    /// Polls the store fast until it has a position.
    fn hasten(&self, position: u64) {
        self.haste.position.fetch_max(position, Ordering::AcqRel);
        self.haste.follower.notify_one();
        self.haste.request.notify_one();
    }

    /// Returns once the copy has this position.
    async fn wait_for_position(&self, position: u64) {
        self.hasten(position);
        let mut definitions = self.definitions.clone();
        let reached = definitions.wait_for(|definitions| definitions.position >= position);
        reached.await.map(drop).ok();
    }

    /// Returns once the copy has all that the changelog has now. Returns `false` if that takes
    /// longer than [`WAIT_MAX`].
    pub(super) async fn catch_up(&self) -> bool {
        let catching_up = async {
            if let Some(end) = self.end.read().await {
                self.wait_for_position(end).await;
            }
        };
        timeout(WAIT_MAX, catching_up).await.is_ok()
    }

    /// Returns once the copy has all that the changelog has now, or after
    /// [`SHARED_CATCH_UP_MAX`]. Calls at the same time share a read of the changelog's end, so that
    /// their number is no load of NATS.
    pub(super) async fn catch_up_together(&self) {
        let begun_before = self.catch_ups.begun.load(Ordering::Acquire);
        let catching_up = async {
            let mut finished = self.catch_ups.finished.lock().await;
            // One that has begun since has read what this call is about, unless its caller has gone.
            if *finished <= begun_before {
                let number = self.catch_ups.begun.fetch_add(1, Ordering::AcqRel) + 1;
                self.catch_up().await;
                *finished = number;
            }
        };
        timeout(SHARED_CATCH_UP_MAX, catching_up).await.ok();
    }
}

/// The store of the control plane, and the subscribers of its changes.
struct WatchedStore {
    store: Arc<LocalStore>,
    sender: watch::Sender<Arc<Definitions>>,
    /// The last error that was logged.
    last_error: String,
}

impl WatchedStore {
    async fn watch(mut self, haste: Arc<Haste>) {
        let mut hasty_until = Instant::now();
        loop {
            let position = haste.position.load(Ordering::Acquire);
            let has_waiter = position > self.sender.borrow().position;
            let interval = if has_waiter && Instant::now() < hasty_until {
                haste.follower.notify_one();
                FAST_POLL_INTERVAL
            } else {
                POLL_INTERVAL
            };
            if timeout(interval, haste.request.notified()).await.is_ok() {
                hasty_until = Instant::now() + WAIT_MAX;
            }
            self.read_store().await;
        }
    }

    /// Reads the definitions if the store has changed.
    async fn read_store(&mut self) {
        let before = Arc::clone(&self.sender.borrow());
        let store = Arc::clone(&self.store);
        let reading = tokio::task::spawn_blocking(move || read_if_changed(&store, &before));
        match reading.await.expect("reading records does not panic") {
            Ok(None) => {}
            Ok(Some(definitions)) => {
                self.last_error.clear();
                self.sender.send_replace(Arc::new(definitions));
            }
            Err(error) if self.last_error == error.to_string() => {}
            Err(error) => {
                tracing::error!(%error, "the control plane cannot be read");
                self.last_error = error.to_string();
            }
        }
    }
}

fn read_if_changed(
    store: &LocalStore,
    before: &Definitions,
) -> Result<Option<Definitions>, registry::Error> {
    let Some(store) = store.find_store() else {
        return Ok(None);
    };
    let applied = ShardCopy::read_applied(&*store).map_err(gridhook_journal::Error::from)?;
    if applied.map_or(0, |applied| applied.sequence) == before.position {
        return Ok(None);
    }
    Definitions::read_store(&*store, before).map(Some)
}

/// How far the core of a shard has followed the control plane. Clones share it.
#[derive(Clone)]
pub(super) struct FollowedControl {
    copy: ControlCopy,
    state: watch::Receiver<FollowState>,
}

#[derive(Clone, Default)]
struct FollowState {
    position: u64,
    /// Why this node cannot follow the control plane.
    problem: Option<String>,
}

impl FollowedControl {
    /// Follows, on this system, once all that the control plane has now is here. Returns once that
    /// was followed.
    pub(super) async fn begin(
        copy: ControlCopy,
        registry: Arc<Registry>,
        own: usize,
        shards: usize,
    ) -> Self {
        if !copy.catch_up().await {
            tracing::warn!("this node begins without the newest changes of the control plane");
        }
        let shard = ShardTopics {
            cluster: Arc::clone(&copy.cluster),
            own,
            shards,
            shard_of,
        };
        let (sender, state) = watch::channel(FollowState::default());
        let mut definitions = copy.definitions.clone();
        let newest = Arc::clone(&definitions.borrow_and_update());
        follow_once(&registry, newest, &shard, &sender).await;
        actix_rt::spawn(async move {
            loop {
                let has_failed = sender.borrow().problem.is_some();
                let wait = if has_failed {
                    RETRY_PAUSE
                } else {
                    Duration::MAX
                };
                if let Ok(Err(_)) = timeout(wait, definitions.changed()).await {
                    return;
                }
                let newest = Arc::clone(&definitions.borrow_and_update());
                follow_once(&registry, newest, &shard, &sender).await;
            }
        });
        Self { copy, state }
    }

    /// Returns once the core has followed the control plane up to a position.
    ///
    /// # Errors
    /// Why it has not in time.
    pub(super) async fn wait_until_followed(&self, position: u64) -> Result<(), FollowDelay> {
        self.copy.hasten(position);
        let mut state = self.state.clone();
        let catch_up = state.wait_for(|state| state.position >= position);
        if let Ok(Ok(_)) = timeout(WAIT_MAX, catch_up).await {
            return Ok(());
        }
        let problem = self.state.borrow().problem.clone();
        let problem = problem.unwrap_or_else(|| "its owner has not read the change yet".to_owned());
        Err(FollowDelay(problem))
    }
}

async fn follow_once(
    registry: &Arc<Registry>,
    definitions: Arc<Definitions>,
    shard: &ShardTopics,
    state: &watch::Sender<FollowState>,
) {
    let position = definitions.position;
    match registry
        .follow_definitions(definitions, shard.clone())
        .await
    {
        Ok(true) => drop(state.send_replace(FollowState {
            position,
            problem: None,
        })),
        // This node lags behind the last owner.
        Ok(false) => {}
        Err(error) => {
            let problem = Some(error.to_string());
            state.send_modify(|state| {
                if state.problem != problem {
                    tracing::error!(%error, "the control plane cannot be followed");
                }
                state.problem = problem;
            });
        }
    }
}

/// The shards that follow the control plane of this process.
pub(super) struct FollowingShards {
    pub(super) others: OtherShards,
    /// The copy of this node. Its router reads it as those of other nodes read theirs.
    pub(super) copy: ControlCopy,
    pub(super) store: Arc<RocksStore>,
}

impl ShardOwners for FollowingShards {
    fn written_position(&self) -> u64 {
        let applied = ShardCopy::read_applied(&*self.store);
        applied.ok().flatten().map_or(0, |applied| applied.sequence)
    }

    fn wait_until_followed(
        &self,
        shard: usize,
        position: u64,
        needs_owner: bool,
    ) -> BoxFuture<'_, Result<(), FollowDelay>> {
        // The router of this node reads its own copy, which must have the change before the client
        // does. A copy that cannot be read only delays the response.
        Box::pin(async move {
            let own = timeout(WAIT_MAX, self.copy.wait_for_position(position));
            let followed = self.others.await_followed(shard, position, needs_owner);
            join(own, followed).await.1
        })
    }
}
