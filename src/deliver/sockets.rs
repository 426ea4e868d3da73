//! The descriptors that deliveries may use, of all threads together.
//!
//! A connection in use belongs to a request in flight, and a request takes its place here before it leaves. An idle
//! connection takes a place of another kind: where none is free, it is closed instead of kept. So the sockets of this module
//! never take the descriptors that the store and the publishers need.
//!
//! A request never waits once it has left the subscription: its attempt would be counted and its wait would run. Instead the
//! subscription asks for [`Sockets::free`] before it sends, and is woken when a place is free again. Two threads may
//! see the same free place, so [`Sockets::take`] always succeeds; the budget has a margin for that.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicIsize, AtomicUsize, Ordering},
    },
};

/// Called once, when a place is free.
type Wake = Box<dyn FnOnce() + Send>;

/// The budget. Clones share it.
#[derive(Clone)]
pub struct Sockets(Arc<SocketsShared>);

struct SocketsShared {
    /// Places for requests; below 0 where threads took the same one.
    free: AtomicIsize,
    /// Places for idle connections.
    idle: AtomicIsize,
    waiting: Mutex<VecDeque<Wake>>,
    /// The length of `waiting`, for those who need no lock then.
    waiters: AtomicUsize,
}

/// The place of a request in flight, until it is dropped.
pub struct Taken(Arc<SocketsShared>);

/// The place of an idle connection, until it is dropped.
pub(super) struct KeptConnection(Arc<SocketsShared>);

impl Default for Sockets {
    /// Without a bound that anybody reaches.
    fn default() -> Self {
        Self::new(usize::MAX, usize::MAX)
    }
}

impl Sockets {
    /// A budget of so many requests in flight, and so many idle connections.
    pub fn new(requests: usize, idle: usize) -> Self {
        let places = |count| AtomicIsize::new(isize::try_from(count).unwrap_or(isize::MAX / 2));
        let (waiting, waiters) = (Mutex::default(), AtomicUsize::new(0));
        Self(Arc::new(SocketsShared { free: places(requests), idle: places(idle), waiting, waiters }))
    }

    /// How many more requests may leave now.
    pub fn free(&self) -> usize {
        usize::try_from(self.0.free.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// How many wait for a place.
    pub fn waiting(&self) -> usize {
        self.0.waiters.load(Ordering::Acquire)
    }

    /// Takes the place of a request that leaves now.
    pub fn take(&self) -> Taken {
        self.0.free.fetch_sub(1, Ordering::AcqRel);
        Taken(Arc::clone(&self.0))
    }

    /// Calls `wake` once a place is free, in the order of asking.
    pub fn wait(&self, wake: impl FnOnce() + Send + 'static) {
        let mut waiting = self.0.lock();
        waiting.push_back(Box::new(wake));
        self.0.waiters.store(waiting.len(), Ordering::Release);
        drop(waiting);
        // A place may have become free between the question and this.
        self.pass_on();
    }

    /// Wakes the next who waits, if a place is free: whoever was woken and needs none calls it, too.
    pub fn pass_on(&self) {
        self.0.pass_on();
    }

    /// A place for a connection that is idle from now on; [`None`] where it must be closed.
    pub(super) fn keep(&self) -> Option<KeptConnection> {
        if self.0.idle.fetch_sub(1, Ordering::AcqRel) > 0 {
            return Some(KeptConnection(Arc::clone(&self.0)));
        }
        self.0.idle.fetch_add(1, Ordering::AcqRel);
        None
    }
}

impl SocketsShared {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Wake>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self) {
        if self.waiters.load(Ordering::Acquire) == 0 || self.free.load(Ordering::Acquire) <= 0 {
            return;
        }
        let mut waiting = self.lock();
        let next = waiting.pop_front();
        self.waiters.store(waiting.len(), Ordering::Release);
        drop(waiting);
        if let Some(wake) = next {
            wake();
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::AcqRel);
        self.0.pass_on();
    }
}

impl Drop for KeptConnection {
    fn drop(&mut self) {
        self.0.idle.fetch_add(1, Ordering::AcqRel);
    }
}
