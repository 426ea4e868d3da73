//! A live feed of events and outcomes for operators (`gridhook tail`).
//!
//! Invariants:
//! - Publishing to the feed never waits. A slow subscriber loses items and learns how many.
//! - Without a subscriber, the feed costs one atomic read.
//! - Outcomes are published once they are durable.
//!
//! The feed has no history. The log and the ledger have it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::broadcast::{self, error::RecvError};

use gridhook_event::{PartitionId, SubscriptionKey, chunk::Chunk};
use gridhook_policy::record::{LedgerLine, RecordChange};
use gridhook_record::subscription::SubscriptionRecord;

/// Items kept for a slow subscriber. A log chunk is at most 64 KiB, and the newest chunks are in the recent-events
/// caches anyway.
const ITEMS_MAX: usize = 256;

/// Maximum subscribers.
pub const SUBSCRIBERS_MAX: usize = 32;

/// An item of the feed.
#[derive(Clone, Debug)]
pub enum FeedEvent {
    /// Events were published.
    Published(PartitionId, Vec<Chunk>),
    /// Ledger lines of a subscription became durable.
    Ended(SubscriptionKey, Arc<SubscriptionRecord>, Vec<LedgerLine>),
    /// The server stops.
    Over,
}

impl FeedEvent {
    /// The number of events or lines.
    fn count(&self) -> u64 {
        match self {
            Self::Published(_, chunks) => chunks.iter().map(|chunk| u64::from(chunk.count)).sum(),
            Self::Ended(_, _, lines) => lines.len() as u64,
            Self::Over => 0,
        }
    }
}

/// An item, and the number of events and lines before it.
#[derive(Clone, Debug)]
struct FeedItem {
    before: u64,
    event: Arc<FeedEvent>,
}

/// The feed.
#[derive(Debug)]
pub struct EventFeed {
    subscribers: Arc<AtomicUsize>,
    is_over: AtomicBool,
    /// Events and lines published so far. Locked while an item is published, so that items are in the order of their
    /// counts.
    published: Mutex<u64>,
    sender: broadcast::Sender<FeedItem>,
}

impl Default for EventFeed {
    fn default() -> Self {
        let (sender, _) = broadcast::channel(ITEMS_MAX);
        Self { subscribers: Arc::default(), is_over: AtomicBool::new(false), published: Mutex::default(), sender }
    }
}

impl EventFeed {
    /// Whether the feed has a subscriber.
    pub fn has_subscribers(&self) -> bool {
        self.subscribers.load(Ordering::Relaxed) > 0
    }

    /// Publishes an item if the feed has a subscriber.
    pub fn publish(&self, event: impl FnOnce() -> FeedEvent) {
        if !self.has_subscribers() {
            return;
        }
        let event = Arc::new(event());
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *published;
        *published += event.count();
        // All subscribers may have gone.
        self.sender.send(FeedItem { before, event }).ok();
    }

    /// The ledger lines of a write, if the feed has a subscriber.
    pub fn lines(&self, changes: &[RecordChange]) -> Vec<LedgerLine> {
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

    /// Subscribes. [`None`] if the maximum is reached or the server stops.
    pub fn subscribe(&self) -> Option<FeedSubscriber> {
        let room = |count: usize| (count < SUBSCRIBERS_MAX).then_some(count + 1);
        self.subscribers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).ok()?;
        let count = SubscriberCount(Arc::clone(&self.subscribers));
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let subscriber = FeedSubscriber { receiver: self.sender.subscribe(), next: *published, _count: count };
        drop(published);
        (!self.is_over.load(Ordering::Acquire)).then_some(subscriber)
    }

    /// Closes the feed: the server stops.
    pub fn close(&self) {
        self.is_over.store(true, Ordering::Release);
        self.publish(|| FeedEvent::Over);
    }
}

/// A subscriber of the feed.
#[derive(Debug)]
pub struct FeedSubscriber {
    receiver: broadcast::Receiver<FeedItem>,
    /// The count of the next expected item.
    next: u64,
    _count: SubscriberCount,
}

#[derive(Debug)]
struct SubscriberCount(Arc<AtomicUsize>);

impl Drop for SubscriberCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl FeedSubscriber {
    /// The next item, and how many events and lines were lost before it. [`None`] once the feed is closed.
    pub async fn next(&mut self) -> Option<(u64, Arc<FeedEvent>)> {
        loop {
            match self.receiver.recv().await {
                Ok(FeedItem { before, event }) => {
                    let missed = before.saturating_sub(self.next);
                    self.next = before + event.count();
                    return (!matches!(*event, FeedEvent::Over)).then_some((missed, event));
                }
                // The next item that arrives says how many were lost.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
