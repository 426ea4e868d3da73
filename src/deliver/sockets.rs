//! The budget of file descriptors for deliveries, shared by all threads.
//!
//! A connection in use belongs to a request in flight, and a request takes a permit before it is
//! sent. An idle connection takes a permit of another kind, or borrows that of a request while
//! enough of these are free; otherwise it is closed instead of kept. So deliveries never use the
//! descriptors that the store and the publishers need. When requests become short of permits, the
//! clients close the connections that borrowed some (`Sockets::permits_reclaimed`).
//!
//! A request never waits once it has left the subscription, because its attempt would be counted
//! and its time would run. Instead the subscription checks [`Sockets::free_permits`] before it
//! sends, and is woken when a permit is free. Two threads may see the same free permit, so
//! [`Sockets::take_permit`] always succeeds; the budget has a margin for that.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicIsize, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Notify, futures::Notified};

/// The share of the permits for requests that idle connections do not borrow.
const RESERVE: isize = 8;

/// Called once, when a permit is free.
type Wake = Box<dyn FnOnce() + Send>;

/// The budget. Clones share it.
#[derive(Clone)]
pub struct Sockets(Arc<SocketsShared>);

struct SocketsShared {
    /// Free permits for requests. Negative if threads took the same permit.
    free: AtomicIsize,
    /// Free permits for idle connections.
    idle: AtomicIsize,
    /// Permits for requests that idle connections have borrowed.
    borrowed: AtomicIsize,
    /// Permits for requests that idle connections do not borrow.
    reserve: isize,
    /// Notified when permits that were borrowed are needed.
    reclaim: Notify,
    waiting: Mutex<VecDeque<Wake>>,
    /// The length of `waiting`, readable without the lock.
    waiters: AtomicUsize,
}

/// The permit of a request in flight, until it is dropped.
pub struct SocketPermit(Arc<SocketsShared>);

/// The permit of an idle connection, until it is dropped.
pub(super) struct KeptConnection {
    shared: Arc<SocketsShared>,
    /// Whether the permit is one of requests in flight.
    is_borrowed: bool,
}

impl KeptConnection {
    /// Whether the permit is one of requests in flight.
    pub(super) fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }
}

impl Default for Sockets {
    /// Permits without a practical limit.
    fn default() -> Self {
        Self::new(usize::MAX, usize::MAX)
    }
}

impl Sockets {
    /// A budget for this many requests in flight and idle connections.
    pub fn new(requests: usize, idle: usize) -> Self {
        let permits = |count| isize::try_from(count).unwrap_or(isize::MAX / 2);
        let requests = permits(requests);
        Self(Arc::new(SocketsShared {
            free: AtomicIsize::new(requests),
            idle: AtomicIsize::new(permits(idle)),
            borrowed: AtomicIsize::new(0),
            reserve: (requests / RESERVE).max(1),
            reclaim: Notify::new(),
            waiting: Mutex::default(),
            waiters: AtomicUsize::new(0),
        }))
    }

    /// Number of further requests that may be sent now.
    pub fn free_permits(&self) -> usize {
        usize::try_from(self.0.free.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Number of further requests that may be sent once idle connections have given back what they
    /// borrowed.
    pub fn available_permits(&self) -> usize {
        let permits = &self.0;
        let available =
            permits.free.load(Ordering::Acquire) + permits.borrowed.load(Ordering::Acquire);
        usize::try_from(available).unwrap_or(0)
    }

    /// Number of subscriptions that wait for a permit.
    pub fn waiting_count(&self) -> usize {
        self.0.waiters.load(Ordering::Acquire)
    }

    /// Takes the permit of a request.
    pub fn take_permit(&self) -> SocketPermit {
        self.0.free.fetch_sub(1, Ordering::AcqRel);
        if self.is_short() {
            self.0.reclaim.notify_waiters();
        }
        SocketPermit(Arc::clone(&self.0))
    }

    /// Calls `wake` once a permit is free, in the order of the calls.
    pub fn wake_when_free(&self, wake: impl FnOnce() + Send + 'static) {
        let mut waiting = self.0.waiting.lock();
        waiting.push_back(Box::new(wake));
        self.0.waiters.store(waiting.len(), Ordering::Release);
        drop(waiting);
        // A permit may have become free since the caller checked.
        self.pass_on();
    }

    /// Wakes the next waiting subscription if a permit is free. Call it also after a wake if no
    /// permit is needed.
    pub fn pass_on(&self) {
        self.0.pass_on();
    }

    /// Takes a permit for an idle connection; [`None`] if the connection must be closed.
    pub(super) fn keep_connection(&self) -> Option<KeptConnection> {
        let shared_permits = &self.0;
        let is_borrowed = if take_permit(&shared_permits.idle, 0) {
            false
        } else if self.waiting_count() == 0
            && take_permit(&shared_permits.free, shared_permits.reserve)
        {
            shared_permits.borrowed.fetch_add(1, Ordering::AcqRel);
            true
        } else {
            return None;
        };
        Some(KeptConnection {
            shared: Arc::clone(shared_permits),
            is_borrowed,
        })
    }

    /// Whether requests are short of permits that idle connections have borrowed.
    pub(super) fn is_short(&self) -> bool {
        let permits = &self.0;
        permits.free.load(Ordering::Acquire) <= permits.reserve / 2
            && permits.borrowed.load(Ordering::Acquire) > 0
    }

    /// Whether enough permits for requests are free, so that idle connections need not give back
    /// more.
    pub(super) fn is_ample(&self) -> bool {
        self.0.free.load(Ordering::Acquire) > self.0.reserve * 2
    }

    /// Ends when requests become short of permits that idle connections have borrowed.
    pub(super) fn permits_reclaimed(&self) -> Notified<'_> {
        self.0.reclaim.notified()
    }
}

impl SocketsShared {
    fn pass_on(&self) {
        if self.waiters.load(Ordering::Acquire) == 0 || self.free.load(Ordering::Acquire) <= 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let next = waiting.pop_front();
        self.waiters.store(waiting.len(), Ordering::Release);
        drop(waiting);
        if let Some(wake) = next {
            wake();
        }
    }
}

impl Drop for SocketPermit {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::AcqRel);
        self.0.pass_on();
    }
}

/// Takes a permit if more than `reserve` of them are free.
fn take_permit(permits: &AtomicIsize, reserve: isize) -> bool {
    let take_one = |free| (free > reserve).then_some(free - 1);
    let result = permits.fetch_update(Ordering::AcqRel, Ordering::Acquire, take_one);
    result.is_ok()
}

impl Drop for KeptConnection {
    fn drop(&mut self) {
        let Self {
            shared,
            is_borrowed,
        } = self;
        if *is_borrowed {
            shared.free.fetch_add(1, Ordering::AcqRel);
            shared.borrowed.fetch_sub(1, Ordering::AcqRel);
            shared.pass_on();
        } else {
            shared.idle.fetch_add(1, Ordering::AcqRel);
        }
    }
}
