//! How many bytes of events all subscriptions together have read and not sent yet.
//!
//! A subscription that is behind asks for a [`ReadGrant`] before it reads the log, or fetches what is pending, and keeps no more
//! of what it read than its share. What it keeps counts until it is sent or forgotten ([`BudgetMember::keep`]).
//!
//! Invariants:
//! - The grants never take more than three quarters, however many subscriptions are behind. The rest is for those that keep
//!   up: what they read from memory waits for nobody, unless all of the budget is used.
//! - Subscriptions have a grant each in turn: one with many lanes waits like one with a single lane.
//! - Whoever waits is served: where nothing comes free for a second, those that have kept events for longer than that
//!   forget them. Forgetting costs another read, and no event.

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

/// A share is never smaller: a chunk of the log of usual size fits.
const SHARE_MIN: usize = 96 * 1024;

/// For so long a subscription waits before others are to forget what they keep.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is to be done where a subscription shall forget what it keeps.
pub type LetGo = Arc<dyn Fn() + Send + Sync>;

/// The budget.
#[derive(Debug)]
pub struct ReadBudget {
    most: usize,
    patience: Duration,
    used: AtomicUsize,
    members: AtomicU64,
    inner: Mutex<ReadBudgetState>,
}

#[derive(Debug, Default)]
struct ReadBudgetState {
    used: usize,
    /// By the numbers of their members.
    holders: HashMap<u64, BudgetHolder>,
    /// Those that wait, once each.
    turns: VecDeque<u64>,
    /// How often somebody's patience ended since others were told to forget.
    pressed: usize,
    /// How often others were told.
    round: u64,
}

/// A subscription that keeps something, or waits for a grant.
struct BudgetHolder {
    kept: usize,
    /// The round in which it began to keep what it keeps.
    since: u64,
    grants: usize,
    waiting: VecDeque<Waiter>,
    let_go: LetGo,
}

#[derive(Debug)]
struct Waiter {
    bytes: usize,
    reply: oneshot::Sender<ReadGrant>,
}

impl std::fmt::Debug for BudgetHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holder").field("kept", &self.kept).field("grants", &self.grants).finish_non_exhaustive()
    }
}

/// What an actor of a subscription has of the budget.
pub struct BudgetMember {
    budget: Arc<ReadBudget>,
    number: u64,
    kept: Cell<usize>,
    let_go: LetGo,
}

/// Room for what is being read. It is given back when it is dropped.
#[derive(Debug)]
pub struct ReadGrant {
    /// None in one that was never given.
    budget: Option<Arc<ReadBudget>>,
    of: u64,
    bytes: usize,
}

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantRequest {
    /// A share, and no more than this.
    Share(usize),
    /// So much: it is known that less does not do.
    Exactly(usize),
}

impl ReadBudget {
    /// So many bytes.
    pub fn new(most: usize) -> Arc<Self> {
        Self::with_patience(most, PATIENCE)
    }

    /// The same where a subscription waits for so long before others are to forget.
    pub fn with_patience(most: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            most,
            patience,
            used: AtomicUsize::new(0),
            members: AtomicU64::new(0),
            inner: Mutex::default(),
        })
    }

    /// How many are used.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// A new actor of a subscription. `let_go` is called, from any thread, where it shall forget what it keeps.
    pub fn member(self: &Arc<Self>, let_go: LetGo) -> BudgetMember {
        let number = self.members.fetch_add(1, Ordering::Relaxed);
        BudgetMember { budget: Arc::clone(self), number, kept: Cell::new(0), let_go }
    }

    /// What the grants may take together.
    fn grantable(&self) -> usize {
        self.most - self.most / 4
    }

    fn share(&self, inner: &ReadBudgetState) -> usize {
        self.grantable() / inner.holders.len().max(1)
    }

    fn lock(&self) -> MutexGuard<'_, ReadBudgetState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves those that wait, one grant each in turn, as far as there is room.
    fn serve(self: &Arc<Self>, inner: &mut ReadBudgetState) {
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
            // One that is larger than all there is has it alone.
            let bytes = waiter.bytes.min(self.grantable());
            if inner.used + bytes > self.grantable() && inner.used > 0 {
                break;
            }
            inner.turns.pop_front();
            let Some(Waiter { reply, .. }) = holder.waiting.pop_front() else { continue };
            if !holder.waiting.is_empty() {
                inner.turns.push_back(number);
            }
            let grant = ReadGrant { budget: Some(Arc::clone(self)), of: number, bytes };
            match reply.send(grant) {
                Ok(()) => {
                    holder.grants += 1;
                    inner.used += bytes;
                }
                // Nothing was taken for it, and nothing is to be given back.
                Err(mut grant) => grant.budget = None,
            }
        }
        self.used.store(inner.used, Ordering::Relaxed);
    }

    /// Somebody's patience is over: when that is so of all who wait, those forget what they keep that kept it last time too.
    fn press(&self) {
        let told: Vec<LetGo> = {
            let mut inner = self.lock();
            inner.pressed += 1;
            if inner.pressed < inner.turns.len() {
                return;
            }
            inner.pressed = 0;
            let round = inner.round;
            inner.round += 1;
            let long = inner.holders.values().filter(|holder| holder.kept > 0 && holder.since < round);
            long.map(|holder| Arc::clone(&holder.let_go)).collect()
        };
        told.iter().for_each(|let_go| let_go());
    }
}

impl ReadBudgetState {
    fn holder(&mut self, member: &BudgetMember) -> &mut BudgetHolder {
        self.holders.entry(member.number).or_insert_with(|| BudgetHolder {
            kept: 0,
            since: 0,
            grants: 0,
            waiting: VecDeque::new(),
            let_go: Arc::clone(&member.let_go),
        })
    }

    /// One that keeps nothing and waits for nothing has no share.
    fn forget_idle(&mut self, number: u64) {
        let is_idle = |holder: &BudgetHolder| holder.kept == 0 && holder.grants == 0 && holder.waiting.is_empty();
        if self.holders.get(&number).is_some_and(is_idle) {
            self.holders.remove(&number);
        }
    }
}

impl BudgetMember {
    /// Waits for a grant. [`None`] where its actor has ended meanwhile.
    pub fn request(&self, ask: GrantRequest) -> impl Future<Output = Option<ReadGrant>> + use<> {
        let (reply, mut granted) = oneshot::channel();
        let budget = Arc::clone(&self.budget);
        {
            let mut inner = budget.lock();
            inner.holder(self);
            let share = budget.share(&inner).max(SHARE_MIN);
            let bytes = match ask {
                GrantRequest::Share(most) => most.min(share),
                GrantRequest::Exactly(bytes) => bytes,
            };
            let holder = inner.holder(self);
            holder.waiting.push_back(Waiter { bytes, reply });
            if holder.waiting.len() == 1 {
                inner.turns.push_back(self.number);
            }
            budget.serve(&mut inner);
        }
        async move {
            loop {
                match tokio::time::timeout(budget.patience, &mut granted).await {
                    Ok(grant) => return grant.ok(),
                    Err(_) => budget.press(),
                }
            }
        }
    }

    /// How many bytes it may keep of what it reads now, besides an event.
    pub fn share(&self) -> usize {
        self.budget.share(&self.budget.lock())
    }

    /// Whether it may read what is in memory without asking.
    pub fn has_room(&self) -> bool {
        self.budget.used() < self.budget.most
    }

    /// It keeps so many bytes by now.
    pub fn keep(&self, bytes: usize) {
        let before = self.kept.replace(bytes);
        if before == bytes {
            return;
        }
        let mut inner = self.budget.lock();
        let round = inner.round;
        let holder = inner.holder(self);
        if before == 0 {
            holder.since = round;
        }
        holder.kept = bytes;
        inner.used = inner.used + bytes - before;
        inner.forget_idle(self.number);
        self.budget.serve(&mut inner);
    }
}

impl Drop for BudgetMember {
    fn drop(&mut self) {
        self.keep(0);
        let mut inner = self.budget.lock();
        if let Some(holder) = inner.holders.get_mut(&self.number) {
            holder.waiting.clear();
        }
        inner.forget_idle(self.number);
        self.budget.serve(&mut inner);
    }
}

impl ReadGrant {
    /// For so many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same for what was really read. [`None`] where that is more, and there is no room for it.
    pub fn fit(mut self, bytes: usize) -> Option<Self> {
        let budget = Arc::clone(self.budget.as_ref()?);
        let mut inner = budget.lock();
        let others = inner.used - self.bytes;
        if bytes > self.bytes && others + bytes > budget.grantable() && others > 0 {
            // This is dropped without the lock.
            drop(inner);
            return None;
        }
        (inner.used, self.bytes) = (others + bytes, bytes);
        budget.serve(&mut inner);
        drop(inner);
        Some(self)
    }
}

impl Drop for ReadGrant {
    fn drop(&mut self) {
        let Some(budget) = self.budget.take() else { return };
        let mut inner = budget.lock();
        inner.used -= self.bytes;
        if let Some(holder) = inner.holders.get_mut(&self.of) {
            holder.grants -= 1;
        }
        inner.forget_idle(self.of);
        budget.serve(&mut inner);
    }
}
