//! Leases: which nodes are alive, and until when an owner may act on its ownership.
//!
//! Every node renews its record at a fixed interval. A reader takes a node for dead once the record
//! has not changed for the expiry. It counts on its own monotonic clock, and only time in which it
//! could read: while the store of the records cannot be reached, no node can renew either. So the
//! clocks of two machines are never compared.
//!
//! Invariant: an owner stops before anybody else may take its shard. Its lease counts from when it
//! *sent* its last confirmed renewal, readers count from when they saw it, and the owner stops one
//! renewal earlier. A node that takes a shard by force from a living owner waits that long itself
//! before it acts, as that owner may not have noticed yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::balance::NodeId;

/// The interval of renewals where the expiry has at least four of them.
const RENEWAL: Duration = Duration::from_millis(500);

/// The limit of a call starts at no more than this, however long the expiry is: a node does nothing
/// else meanwhile.
const FIRST_CALL_LIMIT_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseIntervals {
    renewal: Duration,
    expiry: Duration,
}

impl LeaseIntervals {
    /// The expiry must be at least three renewals, so that one late renewal ends no lease.
    #[must_use]
    pub fn new(renewal: Duration, expiry: Duration) -> Self {
        Self { renewal, expiry }
    }

    /// The intervals of nodes that are dead after `expiry`: four renewals, or more.
    #[must_use]
    pub fn with_expiry(expiry: Duration) -> Self {
        Self::new((expiry / 4).min(RENEWAL), expiry)
    }

    /// The interval in which a node renews its record.
    pub fn renewal(self) -> Duration {
        self.renewal
    }

    /// The time without a change after which a node is dead.
    pub fn expiry(self) -> Duration {
        self.expiry
    }

    /// The least limit of one call to the store of the records ([`CallLimit`]). A busy machine may
    /// respond later than after a short renewal, and several calls fit into a lease.
    pub fn call_limit(self) -> Duration {
        self.renewal
            .max((self.expiry / 4).min(FIRST_CALL_LIMIT_MAX))
    }

    /// Whether an owner whose last confirmed renewal was sent at `confirmed` may still act at
    /// `now`, both on its monotonic clock. Checked before a node claims, requests or gives up a
    /// shard; deliveries check `Lease::may_act`. Neither a claim nor a record of the changelog is a
    /// renewal: readers of leases do not see them.
    pub fn may_act(self, confirmed: Duration, now: Duration) -> bool {
        now.saturating_sub(confirmed) < self.act_wait()
    }

    /// How long an owner may act after its last confirmed renewal, and so how long the new owner
    /// waits before it acts if it took the shard by force (`BalanceStep::Force`), counted from the
    /// response to its claim.
    pub fn act_wait(self) -> Duration {
        self.expiry - self.renewal
    }
}

/// The longest time for one call to the store of the records, as the last calls took. A call that
/// takes longer than any limit would end each lease, so it follows the round trip, up to the expiry.
#[derive(Debug)]
pub struct CallLimit {
    intervals: LeaseIntervals,
    /// The limit, in microseconds.
    limit: AtomicU64,
}

impl CallLimit {
    /// The limit before the first call.
    pub fn new(intervals: LeaseIntervals) -> Self {
        let limit = micros(intervals.call_limit()).into();
        Self { intervals, limit }
    }

    /// The limit of the next call.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.limit.load(Ordering::Relaxed))
    }

    /// Records how long a call took: twice that is enough for the next one.
    pub fn note_response(&self, took: Duration) {
        self.set(2 * took);
    }

    /// Records that a call had no response within the limit.
    pub fn note_timeout(&self) {
        self.set(2 * self.get());
    }

    fn set(&self, limit: Duration) {
        let least = self.intervals.call_limit();
        let limit = limit.clamp(least, self.intervals.expiry.max(least));
        self.limit.store(micros(limit), Ordering::Relaxed);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The record of a node as a reader has last seen it.
#[derive(Clone, Copy, Debug)]
struct SeenNode {
    revision: u64,
    /// How long the record did not change while it could be read.
    silent: Duration,
}

/// The nodes as one reader sees them.
#[derive(Clone, Debug)]
pub struct LiveNodes {
    intervals: LeaseIntervals,
    read: Option<Duration>,
    nodes: BTreeMap<NodeId, SeenNode>,
}

impl LiveNodes {
    /// A reader that has read nothing.
    pub fn new(intervals: LeaseIntervals) -> Self {
        Self {
            intervals,
            read: None,
            nodes: BTreeMap::new(),
        }
    }

    /// Records a successful read of all records at `now`, on the reader's monotonic clock: each
    /// node and the revision of its record. A record that is seen for the first time is of a node that
    /// is alive, until it proves silent.
    pub fn record_read(&mut self, now: Duration, records: impl IntoIterator<Item = (NodeId, u64)>) {
        // A longer gap is one of the reader's own: it was paused, or could not read.
        let readable = 2 * self.intervals.renewal;
        let elapsed = self.read.map_or(Duration::ZERO, |read| {
            now.saturating_sub(read).min(readable)
        });
        self.read = Some(now);
        let before = std::mem::take(&mut self.nodes);
        self.nodes = records
            .into_iter()
            .map(|(node, revision)| {
                let silent = match before.get(&node) {
                    Some(seen) if seen.revision == revision => seen.silent + elapsed,
                    Some(_) | None => Duration::ZERO,
                };
                (node, SeenNode { revision, silent })
            })
            .collect();
    }

    pub fn alive_nodes(&self) -> BTreeSet<NodeId> {
        let alive = self
            .nodes
            .iter()
            .filter(|(_, seen)| seen.silent < self.intervals.expiry);
        alive.map(|(node, _)| node.clone()).collect()
    }
}
