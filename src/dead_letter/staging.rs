//! Orders the turns: which subscription's dead letters are written when.
//!
//! Pure: time is an argument, and nothing is read or written. The dead letters are in the journal.
//! This is only the order of turns, and can be rebuilt.
//!
//! Invariants:
//! - A subscription has one turn at a time, and at most [`StagingRules::at_once`] turns run.
//! - After its turn, a subscription queues behind those that are already due, so that one with a
//!   million dead letters does not delay others.
//! - After a failure, only time brings the next turn, whatever is noted.
//! - A turn follows at once only if dead letters were handled.
//! - A deleted subscription finds nothing at its turn and is removed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use crate::{DeadLetterTarget, WaitingDeadLetters};
use gridhook_event::{SubscriptionKey, Timestamp};

/// Files at a time, and retries after internal failures.
#[derive(Clone, Copy, Debug)]
pub struct StagingRules {
    /// Maximum number of turns that run at the same time.
    pub at_once: usize,
    /// The delay after a failure that is not the store's. It doubles with each further failure.
    pub retry_first: Duration,
    /// The maximum of this delay.
    pub retry_max: Duration,
}

impl Default for StagingRules {
    /// Four files at once keep a disk busy and leave threads and readers free. Five minutes is
    /// Azure's delay between the last attempt and the dead letter
    /// (<https://learn.microsoft.com/azure/event-grid/delivery-and-retry>).
    fn default() -> Self {
        Self {
            at_once: 4,
            retry_first: Duration::from_secs(1),
            retry_max: Duration::from_secs(300),
        }
    }
}

/// A turn: writes one file of a subscription's due dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTurn {
    pub subscription_key: SubscriptionKey,
    pub target: Arc<DeadLetterTarget>,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnReport {
    /// Success, with the due time of the next dead letter.
    Done {
        /// The due time; [`None`] if no dead letter waits.
        next: Option<Timestamp>,
    },
    /// The destination rejected the file. Nothing was changed.
    Unreachable,
    /// The destination rejected the file, and some dead letters were lost.
    Lost,
    /// The journal or the task failed. Says nothing about the destination.
    Broken,
}

#[derive(Debug)]
pub struct Staging {
    rules: StagingRules,
    subscriptions: HashMap<SubscriptionKey, SubscriptionQueue>,
    /// The subscriptions that wait for their turn, by its due time.
    queue: BTreeSet<(Timestamp, SubscriptionKey)>,
    running_turns: usize,
    closed: bool,
}

#[derive(Debug)]
struct SubscriptionQueue {
    target: Arc<DeadLetterTarget>,
    position: QueuePosition,
    /// Number of failures in a row.
    failures: u32,
    /// Whether the subscription leaves the queues after its turn, because its dead letters go to
    /// another store.
    leaves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePosition {
    /// The subscription waits for its turn, which is due at this time.
    Queued(Timestamp),
    /// The turn runs. `notified` is the earliest due time that was notified meanwhile.
    Running { notified: Option<Timestamp> },
}

impl Staging {
    pub fn new(rules: StagingRules) -> Self {
        Self {
            rules,
            subscriptions: HashMap::new(),
            queue: BTreeSet::new(),
            running_turns: 0,
            closed: false,
        }
    }

    pub fn enqueue_waiting(&mut self, waiting: WaitingDeadLetters) {
        let WaitingDeadLetters {
            subscription_key,
            target,
            due,
        } = waiting;
        let Some(queue) = self.subscriptions.get_mut(&subscription_key) else {
            let queue = SubscriptionQueue {
                target: Arc::new(target),
                position: QueuePosition::Queued(due),
                failures: 0,
                leaves: false,
            };
            self.subscriptions.insert(subscription_key, queue);
            self.queue.insert((due, subscription_key));
            return;
        };
        queue.leaves = false;
        if *queue.target != target {
            queue.target = Arc::new(target);
        }
        match queue.position {
            QueuePosition::Queued(at) if due < at && queue.failures == 0 => {
                self.queue.remove(&(at, subscription_key));
                self.queue.insert((due, subscription_key));
                queue.position = QueuePosition::Queued(due);
            }
            QueuePosition::Queued(_) => {}
            QueuePosition::Running { notified } => {
                queue.position = QueuePosition::Running {
                    notified: earliest(notified, Some(due)),
                }
            }
        }
    }

    /// Removes a subscription whose dead letters go to another store.
    pub fn forget_subscription(&mut self, subscription_key: SubscriptionKey) {
        let Some(queue) = self.subscriptions.get_mut(&subscription_key) else {
            return;
        };
        match queue.position {
            QueuePosition::Queued(at) => {
                self.queue.remove(&(at, subscription_key));
                self.subscriptions.remove(&subscription_key);
            }
            QueuePosition::Running { .. } => queue.leaves = true,
        }
    }

    /// Takes the turns that are due, longest due first. They run from now on.
    pub fn take_turns(&mut self, now: Timestamp) -> Vec<WriteTurn> {
        let mut turns = Vec::new();
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            let Some((_, subscription_key)) = self.queue.pop_first() else {
                break;
            };
            let queue = self
                .subscriptions
                .get_mut(&subscription_key)
                .expect("every queued subscription has an entry");
            debug_assert_eq!(queue.position, QueuePosition::Queued(due));
            queue.position = QueuePosition::Running { notified: None };
            self.running_turns += 1;
            turns.push(WriteTurn {
                subscription_key,
                target: Arc::clone(&queue.target),
            });
        }
        turns
    }

    /// Ends a turn. Ignored if no turn of the subscription runs.
    pub fn finish_turn(
        &mut self,
        subscription_key: SubscriptionKey,
        report: TurnReport,
        now: Timestamp,
    ) {
        let Some(queue) = self.subscriptions.get_mut(&subscription_key) else {
            return;
        };
        let notice_time = match queue.position {
            QueuePosition::Queued(_) => return,
            QueuePosition::Running { notified } => notified,
        };
        self.running_turns -= 1;
        let next = match report {
            TurnReport::Done { next } => {
                queue.failures = 0;
                earliest(next, notice_time).map(|at| at.max(now))
            }
            TurnReport::Lost => Some(now),
            TurnReport::Unreachable => {
                let waits = &queue.target.retry;
                let step = usize::try_from(queue.failures)
                    .unwrap_or(usize::MAX)
                    .min(waits.len().saturating_sub(1));
                queue.failures = queue.failures.saturating_add(1);
                Some(now.after(waits.get(step).copied().unwrap_or(self.rules.retry_max)))
            }
            TurnReport::Broken => Some(now.after(self.rules.retry_delay(&mut queue.failures))),
        };
        match next.filter(|_| !queue.leaves) {
            Some(at) => {
                queue.position = QueuePosition::Queued(at);
                self.queue.insert((at, subscription_key));
            }
            None => {
                self.subscriptions.remove(&subscription_key);
            }
        }
    }

    /// Starts no more turns from now on.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// The time at which to call [`Staging::take_turns`] again. [`None`]: after the next call of
    /// [`Staging::enqueue_waiting`] or the end of a turn.
    pub fn next_due(&self) -> Option<Timestamp> {
        let open = !self.closed && self.running_turns < self.rules.at_once;
        self.queue.first().filter(|_| open).map(|(due, _)| *due)
    }

    pub fn running_turns(&self) -> usize {
        self.running_turns
    }
}

impl StagingRules {
    /// Counts a failure and returns the delay after it.
    fn retry_delay(self, failures: &mut u32) -> Duration {
        let wait = self
            .retry_first
            .saturating_mul(1u32.checked_shl(*failures).unwrap_or(u32::MAX));
        *failures = failures.saturating_add(1);
        wait.min(self.retry_max)
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}
