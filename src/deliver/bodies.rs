//! The budget of request bodies in flight, shared by all threads.
//!
//! A subscription checks [`BodyShare::free_bytes`] before it sends, and is woken when bytes are
//! free: a request never waits once it has left the subscription. A subscription may hold as much
//! as it leaves free: half of all if it is alone, and the next one half of the rest. So endpoints
//! that are silent leave room to others. The last request of a decision may exceed the budget.
//!
//! Long bodies that are identical are one body: those of an event that many subscriptions have in
//! flight.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;

use gridhook_event::{PartitionId, Seq};

/// A shorter body is not compared with others: a look-up costs more than its copy.
const SHARED_BYTES: usize = 16 * 1024;

/// Called once, when bytes are free.
type Wake = Box<dyn FnOnce() + Send>;

/// The first event of a body, and its length. Bodies of different subscriptions may still differ.
type BodyKey = (PartitionId, Seq, usize);

/// The budget. Clones share it.
#[derive(Clone)]
pub struct BodyBudget(Arc<BudgetShared>);

struct BudgetShared {
    bytes_max: usize,
    /// Bytes of all bodies in flight, shared ones once.
    total: AtomicUsize,
    bodies: Mutex<HashMap<BodyKey, Vec<SharedBody>>>,
    waiting: Mutex<VecDeque<Waiter>>,
    /// The length of `waiting`, readable without the lock.
    waiters: AtomicUsize,
}

struct SharedBody {
    body: Bytes,
    requests: usize,
}

struct Waiter {
    share: BodyShare,
    wake: Wake,
}

/// The part of a subscription. Clones share it.
#[derive(Clone)]
pub struct BodyShare {
    budget: BodyBudget,
    own: Arc<AtomicUsize>,
}

/// The bytes of a request in flight, until it is dropped.
pub struct BodyPermit {
    share: BodyShare,
    bytes: usize,
    /// The body, if other requests may share it.
    body: Option<(BodyKey, Bytes)>,
}

impl Default for BodyBudget {
    /// A budget without a practical limit.
    fn default() -> Self {
        Self::new(usize::MAX / 2)
    }
}

impl BodyBudget {
    /// A budget of this many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(BudgetShared {
            bytes_max,
            total: AtomicUsize::new(0),
            bodies: Mutex::default(),
            waiting: Mutex::default(),
            waiters: AtomicUsize::new(0),
        }))
    }

    /// The bytes in flight, and their limit.
    pub fn used_and_max_bytes(&self) -> (usize, usize) {
        (self.0.total.load(Ordering::Acquire), self.0.bytes_max)
    }

    /// The part of a subscription that has nothing in flight yet.
    pub fn new_share(&self) -> BodyShare {
        BodyShare {
            budget: self.clone(),
            own: Arc::default(),
        }
    }

    /// Wakes the first waiting subscription that may send. Call it also after a wake if nothing is
    /// sent.
    pub fn pass_on(&self) {
        if self.0.waiters.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut waiting = self.0.waiting.lock();
        let first = waiting
            .iter()
            .position(|waiter| waiter.share.free_bytes() > 0);
        let waiter = first.and_then(|first| waiting.remove(first));
        self.0.waiters.store(waiting.len(), Ordering::Release);
        drop(waiting);
        if let Some(waiter) = waiter {
            (waiter.wake)();
        }
    }
}

impl BodyShare {
    /// Number of bytes that the subscription may send now.
    pub fn free_bytes(&self) -> usize {
        let (total, bytes_max) = self.budget.used_and_max_bytes();
        bytes_max
            .saturating_sub(total)
            .saturating_sub(self.own.load(Ordering::Acquire))
    }

    /// Takes the bytes of a request. Another thread may have taken them since the subscription
    /// checked, so this always succeeds.
    pub fn take_bytes(&self, bytes: usize) -> BodyPermit {
        self.budget.0.total.fetch_add(bytes, Ordering::AcqRel);
        self.own.fetch_add(bytes, Ordering::AcqRel);
        BodyPermit {
            share: self.clone(),
            bytes,
            body: None,
        }
    }

    /// Calls `wake` once bytes are free for the subscription.
    pub fn wake_when_free(&self, wake: impl FnOnce() + Send + 'static) {
        let budget = &self.budget.0;
        let mut waiting = budget.waiting.lock();
        waiting.push_back(Waiter {
            share: self.clone(),
            wake: Box::new(wake),
        });
        budget.waiters.store(waiting.len(), Ordering::Release);
        drop(waiting);
        // Bytes may have become free since the caller checked.
        self.budget.pass_on();
    }

    /// Wakes the first waiting subscription that may send.
    pub fn pass_on(&self) {
        self.budget.pass_on();
    }
}

impl BodyPermit {
    /// Returns the copy of the body that other requests send, if there is one: so one copy is in
    /// memory however many requests send it. `first` is the first event of the body.
    pub fn share_body(&mut self, (partition, first): (PartitionId, Seq), body: Bytes) -> Bytes {
        if body.len() < SHARED_BYTES || self.body.is_some() {
            return body;
        }
        let key = (partition, first, body.len());
        let budget = &self.share.budget.0;
        let mut bodies = budget.bodies.lock();
        let same_key = bodies.entry(key).or_default();
        let body = match same_key.iter_mut().find(|shared| shared.body == body) {
            Some(known) => {
                known.requests += 1;
                known.body.clone()
            }
            None => {
                same_key.push(SharedBody {
                    body: body.clone(),
                    requests: 1,
                });
                budget.total.fetch_add(body.len(), Ordering::AcqRel);
                body
            }
        };
        drop(bodies);
        // The bytes are now counted with the body.
        budget.total.fetch_sub(self.bytes, Ordering::AcqRel);
        self.body = Some((key, body.clone()));
        self.share.pass_on();
        body
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        let budget = &self.share.budget.0;
        match self.body.take() {
            None => drop(budget.total.fetch_sub(self.bytes, Ordering::AcqRel)),
            Some((key, body)) => {
                let mut bodies = budget.bodies.lock();
                if let Some(same_key) = bodies.get_mut(&key) {
                    for known in same_key
                        .iter_mut()
                        .filter(|known| known.body.as_ptr() == body.as_ptr())
                    {
                        known.requests -= 1;
                    }
                    let before = same_key.len();
                    same_key.retain(|known| known.requests > 0);
                    budget
                        .total
                        .fetch_sub(body.len() * (before - same_key.len()), Ordering::AcqRel);
                    if same_key.is_empty() {
                        bodies.remove(&key);
                    }
                }
            }
        }
        self.share.own.fetch_sub(self.bytes, Ordering::AcqRel);
        self.share.pass_on();
    }
}
