//! Whose turn it is: which subscriptions' dead letters are looked at, and when.
//!
//! Pure: time is an argument, and nothing is read or written here. What waits is in the journal; this is only the order
//! of looking for it, and all of it can be told again.
//!
//! Invariants: a subscription is in one piece of work at a time, and no more than [`Rules::at_once`] are; whoever had a
//! turn queues up behind those that are due already, so that one with a million dead letters keeps nobody waiting; after
//! a failure nothing but time brings the next turn, whatever is told meanwhile; no report leads to an immediate turn
//! unless dead letters were dealt with. A subscription that was deleted finds nothing at its turn, and is forgotten.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use crate::{
    dead_letter::{Notice, Target},
    event::{Obligor, Timestamp},
};

/// How many files are made at once, and how soon our own failures are tried again.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Pieces of work at once.
    pub at_once: usize,
    /// The wait after a failure that is not the store's; each further one doubles it.
    pub retry_first: Duration,
    /// The longest such wait.
    pub retry_max: Duration,
}

impl Default for Rules {
    /// Four files at once keep a disk busy and leave arbiters and readers alone; from a second to five minutes, the
    /// specification's own delay.
    fn default() -> Self {
        Self { at_once: 4, retry_first: Duration::from_secs(1), retry_max: Duration::from_secs(300) }
    }
}

/// A turn: a file of what is due for one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Whose.
    pub obligor: Obligor,
    /// Where to.
    pub target: Arc<Target>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
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
    rules: Rules,
    desks: HashMap<Obligor, Desk>,
    queue: BTreeSet<(Timestamp, Obligor)>,
    in_hand: usize,
    closed: bool,
}

#[derive(Debug)]
struct Desk {
    target: Arc<Target>,
    place: Place,
    /// Failures in a row.
    failures: u32,
    /// Whether it goes when its turn has ended: its dead letters go elsewhere.
    leaves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the queue.
    Queued(Timestamp),
    /// In work; what was told meanwhile.
    InHand { told: Option<Timestamp> },
}

impl Staging {
    /// Nobody waits.
    pub fn new(rules: Rules) -> Self {
        Self { rules, desks: HashMap::new(), queue: BTreeSet::new(), in_hand: 0, closed: false }
    }

    /// Something waits, or will.
    pub fn notice(&mut self, notice: Notice) {
        let Notice { obligor, target, due } = notice;
        let Some(desk) = self.desks.get_mut(&obligor) else {
            let desk = Desk { target: Arc::new(target), place: Place::Queued(due), failures: 0, leaves: false };
            self.desks.insert(obligor, desk);
            self.queue.insert((due, obligor));
            return;
        };
        desk.leaves = false;
        if *desk.target != target {
            desk.target = Arc::new(target);
        }
        match desk.place {
            Place::Queued(at) if due < at && desk.failures == 0 => {
                self.queue.remove(&(at, obligor));
                self.queue.insert((due, obligor));
                desk.place = Place::Queued(due);
            }
            Place::Queued(_) => {}
            Place::InHand { told } => desk.place = Place::InHand { told: earliest(told, Some(due)) },
        }
    }

    /// A subscription's dead letters are somebody else's from now on.
    pub fn forget(&mut self, obligor: Obligor) {
        let Some(desk) = self.desks.get_mut(&obligor) else { return };
        match desk.place {
            Place::Queued(at) => {
                self.queue.remove(&(at, obligor));
                self.desks.remove(&obligor);
            }
            Place::InHand { .. } => desk.leaves = true,
        }
    }

    /// Whose turn it is, the longest due first. They are in hand from now on.
    pub fn take(&mut self, now: Timestamp) -> Vec<Job> {
        let mut jobs = Vec::new();
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            let Some((_, obligor)) = self.queue.pop_first() else { break };
            let desk = self.desks.get_mut(&obligor).expect("who is in the queue has a desk");
            debug_assert_eq!(desk.place, Place::Queued(due));
            desk.place = Place::InHand { told: None };
            self.in_hand += 1;
            jobs.push(Job { obligor, target: Arc::clone(&desk.target) });
        }
        jobs
    }

    /// A turn has ended. One that is not in hand is not listened to.
    pub fn finished(&mut self, obligor: Obligor, report: Report, now: Timestamp) {
        let Some(desk) = self.desks.get_mut(&obligor) else { return };
        let told = match desk.place {
            Place::Queued(_) => return,
            Place::InHand { told } => told,
        };
        self.in_hand -= 1;
        let look = match report {
            Report::Done { next } => {
                desk.failures = 0;
                earliest(next, told).map(|at| at.max(now))
            }
            Report::Lost => Some(now),
            Report::Unreachable => {
                let waits = &desk.target.retry;
                let step = usize::try_from(desk.failures).unwrap_or(usize::MAX).min(waits.len().saturating_sub(1));
                desk.failures = desk.failures.saturating_add(1);
                Some(now.after(waits.get(step).copied().unwrap_or(self.rules.retry_max)))
            }
            Report::Broken => Some(now.after(self.rules.wait(&mut desk.failures))),
        };
        match look.filter(|_| !desk.leaves) {
            Some(at) => {
                desk.place = Place::Queued(at);
                self.queue.insert((at, obligor));
            }
            None => {
                self.desks.remove(&obligor);
            }
        }
    }

    /// No more turns.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// When [`Staging::take`] should be asked again. [`None`]: not before something is told or has ended.
    pub fn next_due(&self) -> Option<Timestamp> {
        let open = !self.closed && self.in_hand < self.rules.at_once;
        self.queue.first().filter(|_| open).map(|(due, _)| *due)
    }

    /// How many turns have not ended.
    pub fn in_hand(&self) -> usize {
        self.in_hand
    }
}

impl Rules {
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
