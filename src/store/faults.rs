//! Fault injection: a store whose writes fail or stall on request. It wraps the real store only if
//! chaos is enabled.
//!
//! An injected failure is reported like a full disk, and nothing is written: publishers are
//! refused, changes of subscriptions wait at the head of the queue, and everything recovers by
//! itself. While no fault is active, a write costs one more atomic read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use crate::{Batch, Store, StoreError, layer::StoreLayer};

/// The longest stall of a write, if no operator ends it.
pub const STALL_MAX: Duration = Duration::from_secs(60);

/// The faults to inject. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct StoreFaults(Arc<FaultsShared>);

#[derive(Debug, Default)]
struct FaultsShared {
    /// Whether any fault is active. Read without the lock of `state`.
    armed: AtomicBool,
    state: Mutex<FaultsState>,
    changed: Condvar,
    failed: AtomicU64,
    stalled: AtomicU64,
}

#[derive(Debug, Default)]
struct FaultsState {
    failing: u64,
    stalled: bool,
}

impl StoreFaults {
    /// Makes the next `writes` writes fail; 0 stops failing.
    pub fn fail_writes(&self, writes: u64) {
        self.change_state(|state| state.failing = writes);
    }

    /// Starts or stops stalling writes.
    pub fn set_stalled(&self, on: bool) {
        self.change_state(|state| state.stalled = on);
    }

    /// The number of writes that will still fail.
    pub fn remaining_failures(&self) -> u64 {
        self.0.state.lock().failing
    }

    pub fn failed_writes(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    pub fn stalled_writes(&self) -> u64 {
        self.0.stalled.load(Ordering::Relaxed)
    }

    fn change_state(&self, change: impl FnOnce(&mut FaultsState)) {
        let mut state = self.0.state.lock();
        change(&mut state);
        self.publish_state(&state);
        drop(state);
        self.0.changed.notify_all();
    }

    fn publish_state(&self, state: &FaultsState) {
        self.0
            .armed
            .store(state.stalled || state.failing > 0, Ordering::Release);
    }

    /// Applies the active faults to a write.
    fn apply_faults(&self) -> Result<(), StoreError> {
        let mut state = self.0.state.lock();
        if state.stalled {
            self.0.stalled.fetch_add(1, Ordering::Relaxed);
            self.0
                .changed
                .wait_while_for(&mut state, |state| state.stalled, STALL_MAX);
        }
        if state.failing == 0 {
            return Ok(());
        }
        state.failing -= 1;
        self.publish_state(&state);
        self.0.failed.fetch_add(1, Ordering::Relaxed);
        Err(StoreError::Full)
    }
}

/// A store whose writes suffer the faults of its [`StoreFaults`].
pub struct FaultyStore {
    store: Arc<dyn Store>,
    faults: StoreFaults,
}

impl FaultyStore {
    pub fn new(store: Arc<dyn Store>, faults: StoreFaults) -> Self {
        Self { store, faults }
    }
}

impl StoreLayer for FaultyStore {
    type Inner = dyn Store;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        if self.faults.0.armed.load(Ordering::Acquire) {
            self.faults.apply_faults()?;
        }
        self.inner().write(batch)
    }
}
