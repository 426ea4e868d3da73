//! Receive requests of other nodes of a cluster, each for a part of a spread topic.
//!
//! A node waits at all parts, and calls the others off when one has events. It reads every
//! response to its end all the same: the events of a request may have been locked before it was
//! canceled.

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

/// How a node receives from a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeReceive {
    Look,
    /// Waits for events until it is canceled. The head of the response says that nothing is at
    /// hand (202), or the response has events (200).
    Wait {
        /// The number that the node gave the request.
        id: u64,
        longest: Duration,
    },
}

impl NodeReceive {
    /// As text in a header.
    pub fn to_header(self) -> String {
        match self {
            Self::Look => "look".to_owned(),
            Self::Wait { id, longest } => format!("{id} {}", longest.as_millis()),
        }
    }

    pub fn read(text: &str) -> Option<Self> {
        if text == "look" {
            return Some(Self::Look);
        }
        let (id, longest) = text.split_once(' ')?;
        Some(Self::Wait {
            id: id.parse().ok()?,
            longest: Duration::from_millis(longest.parse().ok()?),
        })
    }
}

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
    waiting: Option<(u64, Arc<Notify>)>,
}

impl NodePolls {
    fn lock(&self) -> MutexGuard<'_, Polls> {
        self.0.lock()
    }

    pub fn begin_poll(&self, receive: Option<NodeReceive>) -> OpenPoll<'_> {
        let waiting = match receive {
            Some(NodeReceive::Wait { id, .. }) => {
                let called_off = Arc::new(Notify::new());
                let mut polls = self.lock();
                if polls.early.contains(id) {
                    called_off.notify_one();
                }
                polls.waiting.insert(id, Arc::clone(&called_off));
                Some((id, called_off))
            }
            Some(NodeReceive::Look) | None => None,
        };
        OpenPoll {
            polls: self,
            waiting,
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
    pub async fn called_off(&self) {
        match &self.waiting {
            Some((_, called_off)) => called_off.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for OpenPoll<'_> {
    fn drop(&mut self) {
        if let Some((id, _)) = &self.waiting {
            self.polls.lock().waiting.remove(id);
        }
    }
}
