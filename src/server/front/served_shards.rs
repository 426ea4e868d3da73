//! The shards that a process serves to the nodes of its cluster.
//!
//! The shards of a process share a listener for nodes and its threads. What a core would have on
//! threads of its own ends with its run all the same: the connections for the shard, the requests on
//! them, the tasks that these have started, and the shard's part in a receive request of several.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actix_web::{dev::Extensions, web};
use tokio::{
    sync::watch,
    task::{JoinHandle, LocalSet},
    time::{sleep, timeout},
};
use tracing::{Instrument as _, Span};

use super::connection::BusyCount;
use crate::{
    node::WriteStall,
    running_server::{ACCEPT_WAIT, FINISH_MAX, FINISH_POLL},
};
use gridhook_publish::http::Publisher;
use gridhook_pull::{LockTokenSealer, node::ServedPart};

/// The longest wait for the tasks of a run to end. One computes for so long only without a pause.
const TASKS_END_MAX: Duration = Duration::from_secs(1);

/// Adds the app data of a shard.
pub(crate) type AddShardData = Arc<dyn Fn(&mut Extensions) + Send + Sync>;

/// The shards of a process that are served now, by number. Clones share them.
#[derive(Clone)]
pub(crate) struct ServedShards(Arc<[watch::Sender<Option<ShardRun>>]>);

/// A run of the server of a shard, for the threads that serve its requests.
#[derive(Clone)]
pub(super) struct ShardRun {
    /// The number of the run in this process.
    number: u64,
    add_data: AddShardData,
    busy: BusyCount,
    has_ended: watch::Receiver<bool>,
    /// The span of the core, so that every line of the log has the number of the shard.
    span: Span,
}

impl ServedShards {
    /// This number of shards, none of which is served yet.
    #[cfg(feature = "nats")]
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| watch::Sender::new(None)).collect())
    }

    /// The number of shards, served or not.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Serves a shard from now on, in the current span.
    pub(crate) fn serve(&self, shard: usize, add_data: AddShardData) -> ServedShard {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let (end, has_ended) = watch::channel(false);
        let busy = BusyCount::default();
        let run = ShardRun {
            number: RUNS.fetch_add(1, Ordering::Relaxed),
            add_data,
            busy: busy.clone(),
            has_ended,
            span: Span::current(),
        };
        self.0[shard].send_replace(Some(run));
        ServedShard {
            shards: self.clone(),
            shard,
            busy,
            end,
        }
    }

    /// Those of these shards that are served now, in this order, for a receive request.
    pub(super) fn find_parts(&self, shards: &[usize]) -> Vec<ServedPart> {
        let find_part = |shard: &usize| {
            let run = self.0.get(*shard)?.borrow().clone()?;
            run.receive_part(*shard)
        };
        shards.iter().filter_map(find_part).collect()
    }

    /// Waits until a shard is served. Returns [`None`] for a number that no shard has.
    pub(super) async fn wait_until_served(&self, shard: usize) -> Option<ShardRun> {
        let mut run = self.0.get(shard)?.subscribe();
        let served = run.wait_for(Option::is_some).await;
        served.ok().and_then(|run| run.clone())
    }
}

/// A shard that is served until this is dropped.
pub(crate) struct ServedShard {
    shards: ServedShards,
    shard: usize,
    busy: BusyCount,
    end: watch::Sender<bool>,
}

impl ServedShard {
    /// Accepts no more connections: they wait for the next owner.
    pub(crate) fn pause(&self) {
        self.shards.0[self.shard].send_replace(None);
    }

    /// Closes the connections whose requests do not finish soon, and ends the tasks of the run.
    pub(crate) async fn stop_soon(self) {
        self.pause();
        // A connection that has found the run before counts as busy within this time.
        sleep(ACCEPT_WAIT).await;
        let finished = async {
            while self.busy.get() > 0 {
                sleep(FINISH_POLL).await;
            }
        };
        timeout(FINISH_MAX, finished).await.ok();
        self.end.send_replace(true);
        // Each thread has a receiver as long as it has tasks of the run.
        timeout(TASKS_END_MAX, self.end.closed()).await.ok();
    }
}

impl Drop for ServedShard {
    fn drop(&mut self) {
        self.pause();
    }
}

impl ShardRun {
    /// The app data of the requests of a connection.
    pub(super) fn app_data(&self) -> Rc<Extensions> {
        let mut data = Extensions::new();
        (self.add_data)(&mut data);
        Rc::new(data)
    }

    /// The shard for a receive request of another node; [`None`] while its writes wait.
    fn receive_part(&self, shard: usize) -> Option<ServedPart> {
        let data = self.app_data();
        let stall = data.get::<WriteStall>();
        if stall.is_some_and(|stall| stall.reason().is_some()) {
            return None;
        }
        let busy = self.busy.hold();
        let mut has_ended = self.has_ended.clone();
        let end = async move {
            has_ended.wait_for(|has_ended| *has_ended).await.ok();
            drop(busy);
        };
        Some(ServedPart {
            shard,
            publisher: data.get::<web::Data<Publisher>>()?.clone(),
            tokens: data.get::<web::Data<LockTokenSealer>>()?.clone(),
            end: Box::pin(end),
        })
    }

    /// The number of connections with a request.
    pub(super) fn busy(&self) -> BusyCount {
        self.busy.clone()
    }
}

/// The tasks of a thread, by the number of their run.
#[derive(Default)]
pub(super) struct RunTasks(RefCell<BTreeMap<u64, Weak<LocalSet>>>);

impl RunTasks {
    /// Spawns a task that ends with the run, and so do the tasks that it spawns.
    pub(super) fn spawn<F>(&self, run: &ShardRun, task: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        let running_tasks = self.0.borrow().get(&run.number).and_then(Weak::upgrade);
        let tasks = running_tasks.unwrap_or_else(|| self.begin_run(run));
        tasks.spawn_local(task)
    }

    fn begin_run(&self, run: &ShardRun) -> Rc<LocalSet> {
        let tasks = Rc::new(LocalSet::new());
        let mut by_run = self.0.borrow_mut();
        by_run.retain(|_, tasks| tasks.strong_count() > 0);
        by_run.insert(run.number, Rc::downgrade(&tasks));
        let running = Rc::clone(&tasks);
        let mut has_ended = run.has_ended.clone();
        let run_tasks = async move {
            // A run that was dropped has ended, too.
            let end = async { has_ended.wait_for(|has_ended| *has_ended).await.is_ok() };
            running.run_until(end).await;
        };
        actix_rt::spawn(run_tasks.instrument(run.span.clone()));
        tasks
    }
}
