//! What happens, told to those who listen just now: operators, with `gridhook tail`.
//!
//! Invariants: nobody waits for a listener, a slow one misses what it has no room for and is told how much; where nobody
//! listens, it costs one look at a number. What is told has happened: outcomes are told when they are durable.
//!
//! Absent on purpose: the past. The log and the ledger have that.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    event::{Obligor, PartitionId},
    journal::chunk::Chunk,
    policy::record::{Change, Line},
    subscription::record::SubscriptionRecord,
};

/// So many writes are kept for a slow listener. A chunk of the log is 64 KiB at the most, and the newest lie in the tails
/// of their topics anyway.
const HEARD_MAX: usize = 256;

/// So many may listen at once.
const LISTENERS_MAX: usize = 32;

/// What has happened.
#[derive(Clone, Debug)]
pub enum Heard {
    /// Events were published.
    Published(PartitionId, Vec<Chunk>),
    /// This became of a subscription's events.
    Ended(Obligor, Arc<SubscriptionRecord>, Vec<Line>),
    /// The server stops.
    Over,
}

impl Heard {
    /// How many events or lines it tells of.
    fn count(&self) -> u64 {
        match self {
            Self::Published(_, chunks) => chunks.iter().map(|chunk| u64::from(chunk.count)).sum(),
            Self::Ended(_, _, lines) => lines.len() as u64,
            Self::Over => 0,
        }
    }
}

/// One thing that has happened, and how many were told before it.
#[derive(Clone, Debug)]
struct Told {
    before: u64,
    heard: Arc<Heard>,
}

/// Where it is told.
#[derive(Debug)]
pub struct Tap {
    listening: Arc<AtomicUsize>,
    is_over: AtomicBool,
    /// How many events and lines were told; held while one more is, so that they are told in the order of their counts.
    told: Mutex<u64>,
    sender: broadcast::Sender<Told>,
}

impl Default for Tap {
    fn default() -> Self {
        let (sender, _) = broadcast::channel(HEARD_MAX);
        Self { listening: Arc::default(), is_over: AtomicBool::new(false), told: Mutex::default(), sender }
    }
}

impl Tap {
    /// Whether anybody listens.
    pub fn is_heard(&self) -> bool {
        self.listening.load(Ordering::Relaxed) > 0
    }

    /// Tells what has happened, where anybody listens.
    pub fn tell(&self, heard: impl FnOnce() -> Heard) {
        if !self.is_heard() {
            return;
        }
        let heard = Arc::new(heard());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *told;
        *told += heard.count();
        // They may all have gone.
        self.sender.send(Told { before, heard }).ok();
    }

    /// The lines of the ledger that a write has, where anybody listens.
    pub(super) fn lines(&self, changes: &[Change]) -> Vec<Line> {
        if !self.is_heard() {
            return Vec::new();
        }
        let line = |change: &Change| match change {
            Change::Note { lane, attempt, entry } => {
                Some(Line { lane: *lane, attempt: *attempt, entry: entry.clone() })
            }
            _ => None,
        };
        changes.iter().filter_map(line).collect()
    }

    /// Listens from now on. [`None`] where as many do as may, or the server stops.
    pub fn listen(&self) -> Option<Listener> {
        let room = |count: usize| (count < LISTENERS_MAX).then_some(count + 1);
        self.listening.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).ok()?;
        let place = Place(Arc::clone(&self.listening));
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = Listener { receiver: self.sender.subscribe(), next: *told, _place: place };
        drop(told);
        (!self.is_over.load(Ordering::Acquire)).then_some(listener)
    }

    /// The server stops: nobody listens any more.
    pub fn close(&self) {
        self.is_over.store(true, Ordering::Release);
        self.tell(|| Heard::Over);
    }
}

/// One who listens.
#[derive(Debug)]
pub struct Listener {
    receiver: broadcast::Receiver<Told>,
    /// The count of what it should hear next.
    next: u64,
    _place: Place,
}

#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Listener {
    /// What happens next, and how many events and lines were missed before it. [`None`] when it is over.
    pub async fn next(&mut self) -> Option<(u64, Arc<Heard>)> {
        loop {
            match self.receiver.recv().await {
                Ok(Told { before, heard }) => {
                    let missed = before.saturating_sub(self.next);
                    self.next = before + heard.count();
                    return (!matches!(*heard, Heard::Over)).then_some((missed, heard));
                }
                // How many there were is told by the next one that is heard.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
