//! Until when a node may act: a term on the monotonic clock of the process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// How often a task that waits for a lease looks at it.
const LOOK: Duration = Duration::from_millis(20);

/// Until when the owner of a shard may act on a claim. Clones share it.
#[derive(Clone, Debug)]
pub struct Lease(Arc<LeaseTerm>);

#[derive(Debug)]
struct LeaseTerm {
    began: Instant,
    /// The end, in nanoseconds from `began`; [`Lease::OVER`] once it has been ended.
    until: AtomicU64,
}

impl Lease {
    /// No end is as early, because a term begins with 1.
    const OVER: u64 = 0;

    /// A lease that allows nothing before its first renewal.
    pub fn new_unrenewed() -> Self {
        Self(Arc::new(LeaseTerm {
            began: Instant::now(),
            until: 1.into(),
        }))
    }

    /// Moves the end to `until`, which the rules of the cluster's leases give. A lease that was
    /// ended stays so.
    pub fn renew_until(&self, until: Instant) {
        let until = to_nanoseconds(until.saturating_duration_since(self.0.began)).max(1);
        let new_end = |old| (old != Self::OVER).then_some(until);
        self.0
            .until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, new_end)
            .ok();
    }

    /// Whether both are the lease of one claim.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends it for good: the claim is lost or given up.
    pub fn end_for_good(&self) {
        self.0.until.store(Self::OVER, Ordering::Release);
    }

    /// Whether it was ended. One that may only not act now, because no renewal was confirmed, can
    /// be renewed.
    pub fn is_over(&self) -> bool {
        self.0.until.load(Ordering::Acquire) == Self::OVER
    }

    /// Whether the owner may act now. Checked before each delivery attempt.
    pub fn may_act(&self) -> bool {
        to_nanoseconds(self.0.began.elapsed()) < self.0.until.load(Ordering::Acquire)
    }

    /// Returns once the owner may act: never, if the lease is over.
    pub async fn wait_until_allowed(&self) {
        while !self.may_act() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn to_nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
