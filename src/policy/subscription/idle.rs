//! Events that a pull client may receive again while no client waits: keys without events.
//!
//! Invariant: each key is due, on disk, and in no other place. Those that expire here are given up in time, even if no
//! client ever comes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    event::{Lane, Seq, Timestamp},
    policy::record::DueKey,
};

/// The keys.
#[derive(Debug, Default)]
pub(super) struct IdleLanes {
    /// With the end of their time to live.
    keys: BTreeMap<DueKey, Timestamp>,
    deaths: BTreeSet<(Timestamp, DueKey)>,
}

impl IdleLanes {
    pub(super) fn lay(&mut self, key: DueKey, dies: Timestamp) {
        if self.keys.insert(key, dies).is_none() {
            self.deaths.insert((dies, key));
        }
    }

    /// Takes expired keys, or the first `max` if a client waits.
    pub(super) fn take(&mut self, now: Timestamp, wanted: bool, max: usize) -> Vec<DueKey> {
        let dead = self.deaths.iter().take_while(|(dies, _)| *dies <= now).map(|(_, key)| *key);
        let taken: Vec<DueKey> =
            if wanted { self.keys.keys().take(max).copied().collect() } else { dead.take(max).collect() };
        for key in &taken {
            if let Some(dies) = self.keys.remove(key) {
                self.deaths.remove(&(dies, *key));
            }
        }
        taken
    }

    pub(super) fn drop_key(&mut self, obligation: (Lane, Seq)) {
        self.keys.retain(|key, _| (key.lane, key.seq) != obligation);
        self.deaths.retain(|(_, key)| (key.lane, key.seq) != obligation);
    }

    /// When the first of them was due.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        self.keys.first_key_value().map(|(key, _)| key.due)
    }

    /// When the first of them expires.
    pub(super) fn first_expiry(&self) -> Option<Timestamp> {
        self.deaths.first().map(|(dies, _)| *dies)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (Lane, Seq)> {
        self.keys.keys().map(|key| (key.lane, key.seq))
    }
}
