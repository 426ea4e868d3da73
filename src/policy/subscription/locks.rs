//! The locks that this incarnation granted to pull clients. Those of earlier incarnations are on
//! disk only, and are read once.

use std::collections::BTreeMap;

use super::lookup::Lookup;
use gridhook_event::{Lane, Seq, Timestamp};

/// A lock granted by this incarnation.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLock {
    pub(super) attempt: u32,
    pub(super) until: Timestamp,
    /// When a client first received the event.
    pub(super) received: Timestamp,
    pub(super) tried: Timestamp,
}

/// Boxed: without a client there are none.
#[derive(Debug, Default)]
pub(super) struct Locks(Option<Box<KnownLocks>>);

#[derive(Debug, Default)]
struct KnownLocks {
    locks: BTreeMap<(Lane, Seq), HeldLock>,
    lookup: Lookup,
}

impl Locks {
    pub(super) fn find_lock(&self, key: (Lane, Seq)) -> Option<HeldLock> {
        self.0.as_ref()?.locks.get(&key).copied()
    }

    /// Notes a lock that is granted or renewed.
    pub(super) fn hold(&mut self, key: (Lane, Seq), lock: HeldLock) {
        self.0.get_or_insert_default().locks.insert(key, lock);
    }

    /// Notes a lock of an earlier incarnation, unless a newer one is known.
    pub(super) fn recover_lock(&mut self, key: (Lane, Seq), lock: HeldLock) {
        self.0
            .get_or_insert_default()
            .locks
            .entry(key)
            .or_insert(lock);
    }

    pub(super) fn end_lock(&mut self, key: (Lane, Seq)) {
        if let Some(known) = &mut self.0 {
            known.locks.remove(&key);
        }
    }

    /// The question about locks of an earlier incarnation.
    pub(super) fn lookup(&self) -> Option<&Lookup> {
        Some(&self.0.as_ref()?.lookup)
    }

    pub(super) fn lookup_mut(&mut self) -> Option<&mut Lookup> {
        Some(&mut self.0.as_mut()?.lookup)
    }

    /// Asks the disk about the locks of these events.
    pub(super) fn look_up(&mut self, keys: Vec<(Lane, Seq)>) {
        self.0.get_or_insert_default().lookup.set_keys(keys);
    }
}
