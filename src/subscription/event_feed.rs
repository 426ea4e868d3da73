//! A live feed of events and outcomes for operators (`gridhook tail`).
//!
//! Invariants:
//! - Publishing to the feed never waits. A slow subscriber loses items and learns how many.
//! - Items for slow subscribers have a bound in bytes, for all subscribers together.
//! - Without a subscriber, the feed costs one atomic read and keeps nothing.
//! - Outcomes are published once they are durable.
//!
//! The feed has no history. The log and the ledger have it.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use gridhook_event::{PartitionId, SubscriptionKey, chunk::Chunk};
use gridhook_policy::record::{LedgerLine, RecordChange, SeqRun};
use gridhook_record::subscription::SubscriptionRecord;

/// Bytes of items kept for slow subscribers. The newest item is kept whatever its size.
const BYTES_MAX: usize = 8 << 20;

/// The memory of an item beside its events or lines.
const ITEM_BYTES: usize = 256;

pub const SUBSCRIBERS_MAX: usize = 32;

/// An item of the feed.
#[derive(Clone, Debug)]
pub enum FeedEvent {
    Published(PartitionId, Chunk),
    /// Ledger lines of a subscription became durable.
    Ended(SubscriptionKey, Arc<SubscriptionRecord>, Vec<LedgerLine>),
}

impl FeedEvent {
    /// The number of events or lines.
    fn line_count(&self) -> u64 {
        match self {
            Self::Published(_, chunk) => chunk.count.into(),
            Self::Ended(_, _, lines) => lines.len() as u64,
        }
    }

    /// The bytes that the item keeps in memory.
    fn memory_bytes(&self) -> usize {
        let line = |line: &LedgerLine| {
            size_of::<LedgerLine>() + line.entry.runs.len() * size_of::<SeqRun>()
        };
        ITEM_BYTES
            + match self {
                Self::Published(_, chunk) => chunk.memory_bytes(),
                Self::Ended(_, _, lines) => lines.iter().map(line).sum(),
            }
    }
}

/// An item, and the number of events and lines before it.
#[derive(Clone, Debug)]
struct FeedItem {
    before: u64,
    event: Arc<FeedEvent>,
}

/// The items that a subscriber may still receive.
#[derive(Debug, Default)]
struct FeedItems {
    items: VecDeque<FeedItem>,
    /// The number of the first of them, counted from the start of the process.
    first: u64,
    bytes: usize,
    /// Number of events and lines published so far.
    published: u64,
    is_over: bool,
}

impl FeedItems {
    fn next_number(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    fn push(&mut self, event: FeedEvent) {
        let before = self.published;
        self.published += event.line_count();
        self.bytes += event.memory_bytes();
        self.items.push_back(FeedItem {
            before,
            event: Arc::new(event),
        });
        while self.bytes > BYTES_MAX && self.items.len() > 1 {
            self.remove_first();
        }
    }

    fn remove_first(&mut self) {
        if let Some(FeedItem { event, .. }) = self.items.pop_front() {
            self.bytes -= event.memory_bytes();
            self.first += 1;
        }
    }
}

#[derive(Debug, Default)]
pub struct EventFeed(Arc<FeedShared>);

#[derive(Debug, Default)]
struct FeedShared {
    subscribers: AtomicUsize,
    items: Mutex<FeedItems>,
    changed: Notify,
}

impl EventFeed {
    pub fn has_subscribers(&self) -> bool {
        self.0.subscribers.load(Ordering::Relaxed) > 0
    }

    /// Publishes an item if the feed has a subscriber.
    pub fn publish_item(&self, event: impl FnOnce() -> FeedEvent) {
        if !self.has_subscribers() {
            return;
        }
        let event = event();
        self.0.items.lock().push(event);
        self.0.changed.notify_waiters();
    }

    /// The ledger lines of a write, if the feed has a subscriber.
    pub fn ledger_lines(&self, changes: &[RecordChange]) -> Vec<LedgerLine> {
        if !self.has_subscribers() {
            return Vec::new();
        }
        changes.iter().filter_map(ledger_line).collect()
    }

    /// Subscribes. [`None`] if the maximum is reached or the server stops.
    pub fn subscribe(&self) -> Option<FeedSubscriber> {
        let room = |count: usize| (count < SUBSCRIBERS_MAX).then_some(count + 1);
        self.0
            .subscribers
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, room)
            .ok()?;
        let items = self.0.items.lock();
        let position = items.next_number();
        let next = items.published;
        let is_over = items.is_over;
        drop(items);
        // Made also if the feed is over: its drop undoes the count.
        let subscriber = FeedSubscriber {
            feed: Arc::clone(&self.0),
            position,
            next,
        };
        (!is_over).then_some(subscriber)
    }

    /// Closes the feed: the server stops.
    pub fn close(&self) {
        self.0.items.lock().is_over = true;
        self.0.changed.notify_waiters();
    }
}

fn ledger_line(change: &RecordChange) -> Option<LedgerLine> {
    match change {
        RecordChange::Note {
            lane,
            attempt,
            entry,
        } => Some(LedgerLine {
            lane: *lane,
            attempt: *attempt,
            entry: entry.clone(),
        }),
        _ => None,
    }
}

#[derive(Debug)]
pub struct FeedSubscriber {
    feed: Arc<FeedShared>,
    /// The number of the next item.
    position: u64,
    /// The count of the next expected event or line.
    next: u64,
}

impl Drop for FeedSubscriber {
    fn drop(&mut self) {
        let mut items = self.feed.items.lock();
        if self.feed.subscribers.fetch_sub(1, Ordering::AcqRel) == 1 {
            while !items.items.is_empty() {
                items.remove_first();
            }
        }
    }
}

impl FeedSubscriber {
    /// The next item, and how many events and lines were lost before it. [`None`] once the feed is
    /// closed.
    pub async fn next(&mut self) -> Option<(u64, Arc<FeedEvent>)> {
        let feed = Arc::clone(&self.feed);
        loop {
            let mut change_notice = pin!(feed.changed.notified());
            // From here on, no item is missed.
            change_notice.as_mut().enable();
            match self.take_next() {
                NextItem::Item(missed, event) => return Some((missed, event)),
                NextItem::Over => return None,
                NextItem::None => change_notice.await,
            }
        }
    }

    fn take_next(&mut self) -> NextItem {
        let items = self.feed.items.lock();
        let position = self.position.max(items.first);
        let Some(FeedItem { before, event }) =
            items.items.get((position - items.first) as usize).cloned()
        else {
            return if items.is_over {
                NextItem::Over
            } else {
                NextItem::None
            };
        };
        drop(items);
        self.position = position + 1;
        let lost_lines = before.saturating_sub(self.next);
        self.next = before + event.line_count();
        NextItem::Item(lost_lines, event)
    }
}

enum NextItem {
    Item(u64, Arc<FeedEvent>),
    /// There is no item yet, but one may follow.
    None,
    Over,
}
