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
    control::record::subscription::SubscriptionRecord,
    event::{PartitionId, SubscriptionKey},
    policy::record::{LedgerLine, RecordChange},
    store::chunk::Chunk,
};

/// So many writes are kept for a slow listener. A chunk of the log is 64 KiB at the most, and the newest lie in the tails
/// of their topics anyway.
const HEARD_MAX: usize = 256;

/// So many may listen at once.
const LISTENERS_MAX: usize = 32;

/// What has happened.
#[derive(Clone, Debug)]
pub enum FeedEvent {
    /// Events were published.
    Published(PartitionId, Vec<Chunk>),
    /// This became of a subscription's events.
    Ended(SubscriptionKey, Arc<SubscriptionRecord>, Vec<LedgerLine>),
    /// The server stops.
    Over,
}

impl FeedEvent {
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
struct FeedItem {
    before: u64,
    heard: Arc<FeedEvent>,
}

/// Where it is told.
#[derive(Debug)]
pub struct EventFeed {
    listening: Arc<AtomicUsize>,
    is_over: AtomicBool,
    /// How many events and lines were told; held while one more is, so that they are told in the order of their counts.
    told: Mutex<u64>,
    sender: broadcast::Sender<FeedItem>,
}

impl Default for EventFeed {
    fn default() -> Self {
        let (sender, _) = broadcast::channel(HEARD_MAX);
        Self { listening: Arc::default(), is_over: AtomicBool::new(false), told: Mutex::default(), sender }
    }
}

impl EventFeed {
    /// Whether anybody listens.
    pub fn has_subscribers(&self) -> bool {
        self.listening.load(Ordering::Relaxed) > 0
    }

    /// Tells what has happened, where anybody listens.
    pub fn publish(&self, heard: impl FnOnce() -> FeedEvent) {
        if !self.has_subscribers() {
            return;
        }
        let heard = Arc::new(heard());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *told;
        *told += heard.count();
        // They may all have gone.
        self.sender.send(FeedItem { before, heard }).ok();
    }

    /// The lines of the ledger that a write has, where anybody listens.
    pub(crate) fn lines(&self, changes: &[RecordChange]) -> Vec<LedgerLine> {
        if !self.has_subscribers() {
            return Vec::new();
        }
        let line = |change: &RecordChange| match change {
            RecordChange::Note { lane, attempt, entry } => {
                Some(LedgerLine { lane: *lane, attempt: *attempt, entry: entry.clone() })
            }
            _ => None,
        };
        changes.iter().filter_map(line).collect()
    }

    /// Listens from now on. [`None`] where as many do as may, or the server stops.
    pub fn listen(&self) -> Option<FeedSubscriber> {
        let room = |count: usize| (count < LISTENERS_MAX).then_some(count + 1);
        self.listening.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).ok()?;
        let place = FeedPosition(Arc::clone(&self.listening));
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = FeedSubscriber { receiver: self.sender.subscribe(), next: *told, _place: place };
        drop(told);
        (!self.is_over.load(Ordering::Acquire)).then_some(listener)
    }

    /// The server stops: nobody listens any more.
    pub fn close(&self) {
        self.is_over.store(true, Ordering::Release);
        self.publish(|| FeedEvent::Over);
    }
}

/// One who listens.
#[derive(Debug)]
pub struct FeedSubscriber {
    receiver: broadcast::Receiver<FeedItem>,
    /// The count of what it should hear next.
    next: u64,
    _place: FeedPosition,
}

#[derive(Debug)]
struct FeedPosition(Arc<AtomicUsize>);

impl Drop for FeedPosition {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl FeedSubscriber {
    /// What happens next, and how many events and lines were missed before it. [`None`] when it is over.
    pub async fn next(&mut self) -> Option<(u64, Arc<FeedEvent>)> {
        loop {
            match self.receiver.recv().await {
                Ok(FeedItem { before, heard }) => {
                    let missed = before.saturating_sub(self.next);
                    self.next = before + heard.count();
                    return (!matches!(*heard, FeedEvent::Over)).then_some((missed, heard));
                }
                // How many there were is told by the next one that is heard.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
