//! Whose turn it is: which subscriptions' dead letters are looked at, and when.
//!
//! Pure: time is an argument, and nothing is read or written here. What waits is in the journal; this is only the order
//! of looking for it, and all of it can be told again.
//!
//! Invariants: a subscription is in one piece of work at a time, and no more than [`StagingRules::at_once`] are; whoever had a
//! turn queues up behind those that are due already, so that one with a million dead letters keeps nobody waiting; after
//! a failure nothing but time brings the next turn, whatever is told meanwhile; no report leads to an immediate turn
//! unless dead letters were dealt with. A subscription that was deleted finds nothing at its turn, and is forgotten.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use crate::{
    dead_letter::{DeadLetterTarget, PendingNotice},
    event::{SubscriptionKey, Timestamp},
};

/// How many files are made at once, and how soon our own failures are tried again.
#[derive(Clone, Copy, Debug)]
pub struct StagingRules {
    /// Pieces of work at once.
    pub at_once: usize,
    /// The wait after a failure that is not the store's; each further one doubles it.
    pub retry_first: Duration,
    /// The longest such wait.
    pub retry_max: Duration,
}

impl Default for StagingRules {
    /// Four files at once keep a disk busy and leave arbiters and readers alone; from a second to five minutes, the
    /// specification's own delay.
    fn default() -> Self {
        Self { at_once: 4, retry_first: Duration::from_secs(1), retry_max: Duration::from_secs(300) }
    }
}

/// A turn: a file of what is due for one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTurn {
    /// Whose.
    pub subscription_key: SubscriptionKey,
    /// Where to.
    pub target: Arc<DeadLetterTarget>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnReport {
    /// All is well; the next dead letter is due then, if there is one.
    Done {
        /// When.
        next: Option<Timestamp>,
    },
    /// The destination did not take the file; nothing was changed.
    Unreachable,
    /// The destination did not take the file, and some of it was lost.
    Lost,
    /// The journal did not answer, or the work died: it says nothing of the destination.
    Broken,
}

/// The order of turns.
#[derive(Debug)]
pub struct Staging {
    rules: StagingRules,
    queues: HashMap<SubscriptionKey, SubscriptionQueue>,
    queue: BTreeSet<(Timestamp, SubscriptionKey)>,
    current_event: usize,
    closed: bool,
}

#[derive(Debug)]
struct SubscriptionQueue {
    target: Arc<DeadLetterTarget>,
    place: QueuePosition,
    /// Failures in a row.
    failures: u32,
    /// Whether it goes when its turn has ended: its dead letters go elsewhere.
    leaves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePosition {
    /// In the queue.
    Queued(Timestamp),
    /// In work; what was told meanwhile.
    Current { told: Option<Timestamp> },
}

impl Staging {
    /// Nobody waits.
    pub fn new(rules: StagingRules) -> Self {
        Self { rules, queues: HashMap::new(), queue: BTreeSet::new(), current_event: 0, closed: false }
    }

    /// Something waits, or will.
    pub fn notice(&mut self, notice: PendingNotice) {
        let PendingNotice { subscription_key, target, due } = notice;
        let Some(queue) = self.queues.get_mut(&subscription_key) else {
            let queue = SubscriptionQueue {
                target: Arc::new(target),
                place: QueuePosition::Queued(due),
                failures: 0,
                leaves: false,
            };
            self.queues.insert(subscription_key, queue);
            self.queue.insert((due, subscription_key));
            return;
        };
        queue.leaves = false;
        if *queue.target != target {
            queue.target = Arc::new(target);
        }
        match queue.place {
            QueuePosition::Queued(at) if due < at && queue.failures == 0 => {
                self.queue.remove(&(at, subscription_key));
                self.queue.insert((due, subscription_key));
                queue.place = QueuePosition::Queued(due);
            }
            QueuePosition::Queued(_) => {}
            QueuePosition::Current { told } => queue.place = QueuePosition::Current { told: earliest(told, Some(due)) },
        }
    }

    /// A subscription's dead letters are somebody else's from now on.
    pub fn forget(&mut self, subscription_key: SubscriptionKey) {
        let Some(queue) = self.queues.get_mut(&subscription_key) else { return };
        match queue.place {
            QueuePosition::Queued(at) => {
                self.queue.remove(&(at, subscription_key));
                self.queues.remove(&subscription_key);
            }
            QueuePosition::Current { .. } => queue.leaves = true,
        }
    }

    /// Whose turn it is, the longest due first. They are in hand from now on.
    pub fn take(&mut self, now: Timestamp) -> Vec<WriteTurn> {
        let mut jobs = Vec::new();
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            let Some((_, subscription_key)) = self.queue.pop_first() else { break };
            let queue = self.queues.get_mut(&subscription_key).expect("who is in the queue has a desk");
            debug_assert_eq!(queue.place, QueuePosition::Queued(due));
            queue.place = QueuePosition::Current { told: None };
            self.current_event += 1;
            jobs.push(WriteTurn { subscription_key, target: Arc::clone(&queue.target) });
        }
        jobs
    }

    /// A turn has ended. One that is not in hand is not listened to.
    pub fn finished(&mut self, subscription_key: SubscriptionKey, report: TurnReport, now: Timestamp) {
        let Some(queue) = self.queues.get_mut(&subscription_key) else { return };
        let told = match queue.place {
            QueuePosition::Queued(_) => return,
            QueuePosition::Current { told } => told,
        };
        self.current_event -= 1;
        let look = match report {
            TurnReport::Done { next } => {
                queue.failures = 0;
                earliest(next, told).map(|at| at.max(now))
            }
            TurnReport::Lost => Some(now),
            TurnReport::Unreachable => {
                let waits = &queue.target.retry;
                let step = usize::try_from(queue.failures).unwrap_or(usize::MAX).min(waits.len().saturating_sub(1));
                queue.failures = queue.failures.saturating_add(1);
                Some(now.after(waits.get(step).copied().unwrap_or(self.rules.retry_max)))
            }
            TurnReport::Broken => Some(now.after(self.rules.wait(&mut queue.failures))),
        };
        match look.filter(|_| !queue.leaves) {
            Some(at) => {
                queue.place = QueuePosition::Queued(at);
                self.queue.insert((at, subscription_key));
            }
            None => {
                self.queues.remove(&subscription_key);
            }
        }
    }

    /// No more turns.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// When [`Staging::take`] should be asked again. [`None`]: not before something is told or has ended.
    pub fn next_due(&self) -> Option<Timestamp> {
        let open = !self.closed && self.current_event < self.rules.at_once;
        self.queue.first().filter(|_| open).map(|(due, _)| *due)
    }

    /// How many turns have not ended.
    pub fn running_turns(&self) -> usize {
        self.current_event
    }
}

impl StagingRules {
    /// Counts a failure; the wait after it.
    fn wait(self, failures: &mut u32) -> Duration {
        let wait = self.retry_first.saturating_mul(1u32.checked_shl(*failures).unwrap_or(u32::MAX));
        *failures = failures.saturating_add(1);
        wait.min(self.retry_max)
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}
