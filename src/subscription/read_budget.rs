//! Limits how many bytes of events all subscriptions together have read and not sent.
//!
//! A subscription that lags requests a [`ReadGrant`] before it reads the log or fetches pending
//! events, and keeps no more than its share of what it read. What it keeps counts until it is sent
//! or dropped ([`BudgetMember::set_kept_bytes`]).
//!
//! Invariants:
//! - Grants take at most three quarters of the budget, however many subscriptions lag. The rest is
//!   for subscriptions that keep up: reads from memory never wait, unless the whole budget is used.
//! - Grants are given in turn: a subscription with many lanes waits like one with a single lane.
//! - Every request is served. If nothing becomes free for a second, subscriptions that have kept
//!   events for longer than that drop them. A dropped event is read again.

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use gridhook_event::IdMap;

/// Minimum share. A log chunk of usual size fits.
const SHARE_MIN: usize = 96 * 1024;

/// How long a subscription waits before others must drop what they keep.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes a subscription drop the events that it keeps.
pub type ReleaseCallback = Arc<dyn Fn() + Send + Sync>;

#[derive(Debug)]
pub struct ReadBudget {
    max_bytes: usize,
    patience: Duration,
    used: AtomicUsize,
    members: AtomicU64,
    inner: Mutex<ReadBudgetState>,
}

#[derive(Debug, Default)]
struct ReadBudgetState {
    used: usize,
    holders: IdMap<u64, BudgetHolder>,
    /// The members that wait, once each.
    turns: VecDeque<u64>,
    /// Number of waits that timed out since holders last had to drop what they keep.
    timeouts: usize,
    /// Number of times that holders had to drop what they keep.
    round: u64,
}

/// A subscription that keeps events or waits for a grant.
struct BudgetHolder {
    kept: usize,
    /// The round in which the subscription began to keep events.
    since: u64,
    grants: usize,
    waiting: VecDeque<Waiter>,
    release: ReleaseCallback,
}

#[derive(Debug)]
struct Waiter {
    bytes: usize,
    reply: oneshot::Sender<ReadGrant>,
}

impl std::fmt::Debug for BudgetHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holder")
            .field("kept", &self.kept)
            .field("grants", &self.grants)
            .finish_non_exhaustive()
    }
}

/// The share of one actor in the budget.
pub struct BudgetMember {
    budget: Arc<ReadBudget>,
    number: u64,
    kept: Cell<usize>,
    release: ReleaseCallback,
}

/// Permission to read a number of bytes. Dropping it returns them.
#[derive(Debug)]
pub struct ReadGrant {
    /// [`None`] in a grant that was never received.
    budget: Option<Arc<ReadBudget>>,
    member: u64,
    bytes: usize,
}

/// The number of requested bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantRequest {
    /// The member's share, at most this many bytes.
    Share(usize),
    /// Exactly this many bytes: the read needs them.
    Exactly(usize),
}

impl ReadBudget {
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Self::with_patience(max_bytes, PATIENCE)
    }

    /// Makes a budget with another time limit before others must drop what they keep.
    pub fn with_patience(max_bytes: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            max_bytes,
            patience,
            used: AtomicUsize::new(0),
            members: AtomicU64::new(0),
            inner: Mutex::default(),
        })
    }

    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Adds an actor. `release` is called, on any thread, when it must drop the events that it
    /// keeps.
    pub fn add_member(self: &Arc<Self>, release: ReleaseCallback) -> BudgetMember {
        let number = self.members.fetch_add(1, Ordering::Relaxed);
        BudgetMember {
            budget: Arc::clone(self),
            number,
            kept: Cell::new(0),
            release,
        }
    }

    /// The maximum of all grants together.
    fn grantable_bytes(&self) -> usize {
        self.max_bytes - self.max_bytes / 4
    }

    fn member_share(&self, inner: &ReadBudgetState) -> usize {
        self.grantable_bytes() / inner.holders.len().max(1)
    }

    /// Gives grants to the members that wait, one each in turn, while there is room.
    fn grant_waiting(self: &Arc<Self>, inner: &mut ReadBudgetState) {
        while let Some(number) = inner.turns.front().copied() {
            let Some(holder) = inner.holders.get_mut(&number) else {
                inner.turns.pop_front();
                continue;
            };
            holder.waiting.retain(|waiter| !waiter.reply.is_closed());
            let Some(waiter) = holder.waiting.front() else {
                inner.turns.pop_front();
                inner.forget_idle(number);
                continue;
            };
            // A request above the maximum is granted alone.
            let bytes = waiter.bytes.min(self.grantable_bytes());
            if inner.used + bytes > self.grantable_bytes() && inner.used > 0 {
                break;
            }
            inner.turns.pop_front();
            let Some(Waiter { reply, .. }) = holder.waiting.pop_front() else {
                continue;
            };
            if !holder.waiting.is_empty() {
                inner.turns.push_back(number);
            }
            let grant = ReadGrant {
                budget: Some(Arc::clone(self)),
                member: number,
                bytes,
            };
            match reply.send(grant) {
                Ok(()) => {
                    holder.grants += 1;
                    inner.used += bytes;
                }
                // Nothing was taken for it, so nothing is returned.
                Err(mut grant) => grant.budget = None,
            }
        }
        self.used.store(inner.used, Ordering::Relaxed);
    }

    /// Called when a wait times out. Once all waiting members have timed out, members that also
    /// kept events in the previous round drop them.
    fn on_timeout(&self) {
        let callbacks: Vec<ReleaseCallback> = {
            let mut inner = self.inner.lock();
            inner.timeouts += 1;
            if inner.timeouts < inner.turns.len() {
                return;
            }
            inner.timeouts = 0;
            let round = inner.round;
            inner.round += 1;
            let long = inner
                .holders
                .values()
                .filter(|holder| holder.kept > 0 && holder.since < round);
            long.map(|holder| Arc::clone(&holder.release)).collect()
        };
        callbacks.iter().for_each(|release| release());
    }
}

impl ReadBudgetState {
    fn holder_mut(&mut self, member: &BudgetMember) -> &mut BudgetHolder {
        self.holders
            .entry(member.number)
            .or_insert_with(|| BudgetHolder {
                kept: 0,
                since: 0,
                grants: 0,
                waiting: VecDeque::new(),
                release: Arc::clone(&member.release),
            })
    }

    /// Removes a member that keeps nothing and waits for nothing, so that it has no share.
    fn forget_idle(&mut self, number: u64) {
        let is_idle = |holder: &BudgetHolder| {
            holder.kept == 0 && holder.grants == 0 && holder.waiting.is_empty()
        };
        if self.holders.get(&number).is_some_and(is_idle) {
            self.holders.remove(&number);
        }
    }
}

impl BudgetMember {
    /// Waits for a grant. [`None`] if the actor ended in the meantime.
    pub fn wait_for_grant(
        &self,
        request: GrantRequest,
    ) -> impl Future<Output = Option<ReadGrant>> + use<> {
        let (reply, mut granted) = oneshot::channel();
        let budget = Arc::clone(&self.budget);
        {
            let mut inner = budget.inner.lock();
            inner.holder_mut(self);
            let share = budget.member_share(&inner).max(SHARE_MIN);
            let bytes = match request {
                GrantRequest::Share(most) => most.min(share),
                GrantRequest::Exactly(bytes) => bytes,
            };
            let holder = inner.holder_mut(self);
            holder.waiting.push_back(Waiter { bytes, reply });
            if holder.waiting.len() == 1 {
                inner.turns.push_back(self.number);
            }
            budget.grant_waiting(&mut inner);
        }
        async move {
            loop {
                match tokio::time::timeout(budget.patience, &mut granted).await {
                    Ok(grant) => return grant.ok(),
                    Err(_) => budget.on_timeout(),
                }
            }
        }
    }

    /// Number of bytes that the actor may keep of what it reads now, besides one event.
    pub fn share_bytes(&self) -> usize {
        self.budget.member_share(&self.budget.inner.lock())
    }

    /// Whether the actor may read from memory without a grant.
    pub fn has_room(&self) -> bool {
        self.budget.used_bytes() < self.budget.max_bytes
    }

    /// Sets how many bytes the actor keeps.
    pub fn set_kept_bytes(&self, bytes: usize) {
        let before = self.kept.replace(bytes);
        if before == bytes {
            return;
        }
        let mut inner = self.budget.inner.lock();
        let round = inner.round;
        let holder = inner.holder_mut(self);
        if before == 0 {
            holder.since = round;
        }
        holder.kept = bytes;
        inner.used = inner.used + bytes - before;
        inner.forget_idle(self.number);
        self.budget.grant_waiting(&mut inner);
    }
}

impl Drop for BudgetMember {
    fn drop(&mut self) {
        self.set_kept_bytes(0);
        let mut inner = self.budget.inner.lock();
        if let Some(holder) = inner.holders.get_mut(&self.number) {
            holder.waiting.clear();
        }
        inner.forget_idle(self.number);
        self.budget.grant_waiting(&mut inner);
    }
}

impl ReadGrant {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the grant to the bytes that were read. [`None`] if they are more and do not fit.
    pub fn shrink_to(mut self, bytes: usize) -> Option<Self> {
        let budget = Arc::clone(self.budget.as_ref()?);
        let mut inner = budget.inner.lock();
        let others = inner.used - self.bytes;
        if bytes > self.bytes && others + bytes > budget.grantable_bytes() && others > 0 {
            // `self` is dropped without the lock.
            drop(inner);
            return None;
        }
        (inner.used, self.bytes) = (others + bytes, bytes);
        budget.grant_waiting(&mut inner);
        drop(inner);
        Some(self)
    }
}

impl Drop for ReadGrant {
    fn drop(&mut self) {
        let Some(budget) = self.budget.take() else {
            return;
        };
        let mut inner = budget.inner.lock();
        inner.used -= self.bytes;
        if let Some(holder) = inner.holders.get_mut(&self.member) {
            holder.grants -= 1;
        }
        inner.forget_idle(self.member);
        budget.grant_waiting(&mut inner);
    }
}
