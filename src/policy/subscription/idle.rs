//! What clients may receive again and nobody waits for: keys without events.
//!
//! Invariant: each is due and on the disk, and stands nowhere else. What dies here is looked at in time, whether or not a
//! client ever comes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    event::{Lane, Seq, Timestamp},
    policy::record::DueKey,
};

/// They.
#[derive(Debug, Default)]
pub(super) struct IdleLanes {
    /// With the ends of their times to live.
    keys: BTreeMap<DueKey, Timestamp>,
    deaths: BTreeSet<(Timestamp, DueKey)>,
}

impl IdleLanes {
    pub(super) fn lay(&mut self, key: DueKey, dies: Timestamp) {
        if self.keys.insert(key, dies).is_none() {
            self.deaths.insert((dies, key));
        }
    }

    /// Takes those whose time to live is over, or the first `max` where somebody waits.
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

    /// When the first of them fell due.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        self.keys.first_key_value().map(|(key, _)| key.due)
    }

    /// When the first of them dies.
    pub(super) fn first_death(&self) -> Option<Timestamp> {
        self.deaths.first().map(|(dies, _)| *dies)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (Lane, Seq)> {
        self.keys.keys().map(|key| (key.lane, key.seq))
    }
}
