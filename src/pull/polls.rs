//! The receive requests that wait for other nodes of a cluster, by number.
//!
//! A node has a request at each owner of parts, and cancels the others when one has events. It
//! reads every response to its end all the same: the events of a request may have been locked before
//! it was canceled.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

/// How long a request may arrive after it was canceled. Then its node has ended its connection.
const LATE_MAX: Duration = Duration::from_secs(5);

/// The most requests in a set of those that were canceled before they arrived. Of more, the
/// connections end.
const EARLY_MAX: usize = 10_000;

/// The requests of nodes.
#[derive(Debug, Default)]
pub struct NodePolls(Mutex<Polls>);

#[derive(Debug, Default)]
struct Polls {
    /// Those that wait, by number.
    waiting: HashMap<u64, Arc<Notify>>,
    early: EarlyNumbers,
}

/// The numbers of requests that were canceled and did not wait: they may still arrive.
#[derive(Debug, Default)]
struct EarlyNumbers {
    recent: HashSet<u64>,
    older: HashSet<u64>,
    /// Since when there are recent ones.
    since: Option<Instant>,
}

impl EarlyNumbers {
    fn add(&mut self, id: u64, now: Instant) {
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) > LATE_MAX || self.recent.len() >= EARLY_MAX {
            self.older = std::mem::take(&mut self.recent);
            self.since = Some(now);
        }
        self.recent.insert(id);
    }

    fn contains(&self, id: u64) -> bool {
        self.recent.contains(&id) || self.older.contains(&id)
    }
}

/// A request that waits, until this is dropped.
pub struct OpenPoll<'a> {
    polls: &'a NodePolls,
    id: u64,
    cancellation: Arc<Notify>,
}

impl NodePolls {
    fn lock(&self) -> MutexGuard<'_, Polls> {
        self.0.lock()
    }

    /// Has a request wait that a node gave this number.
    pub fn begin_poll(&self, id: u64) -> OpenPoll<'_> {
        let cancellation = Arc::new(Notify::new());
        let mut polls = self.lock();
        if polls.early.contains(id) {
            cancellation.notify_one();
        }
        polls.waiting.insert(id, Arc::clone(&cancellation));
        OpenPoll {
            polls: self,
            id,
            cancellation,
        }
    }

    /// Cancels requests: the response of each is sent at once, also of one that arrives later.
    pub fn cancel_polls(&self, ids: &[u64]) {
        let mut polls = self.lock();
        let now = Instant::now();
        for id in ids {
            match polls.waiting.get(id) {
                Some(poll) => poll.notify_one(),
                None => polls.early.add(*id, now),
            }
        }
    }
}

impl OpenPoll<'_> {
    /// Returns once the request is canceled.
    pub async fn wait_until_canceled(&self) {
        self.cancellation.notified().await;
    }
}

impl Drop for OpenPoll<'_> {
    fn drop(&mut self) {
        self.polls.lock().waiting.remove(&self.id);
    }
}
