//! Events that a pull client may receive again while no client waits: keys without events.
//!
//! Invariant: each key is due, on disk, and in no other place. Those that expire here are given up
//! in time, even if no client ever comes.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::DueKey;
use gridhook_event::{Lane, Seq, Timestamp};

#[derive(Debug, Default)]
pub(super) struct IdleKeys {
    /// With the end of their time to live.
    keys: BTreeMap<DueKey, Timestamp>,
    expiries: BTreeSet<(Timestamp, DueKey)>,
}

impl IdleKeys {
    pub(super) fn insert(&mut self, key: DueKey, expires: Timestamp) {
        if self.keys.insert(key, expires).is_none() {
            self.expiries.insert((expires, key));
        }
    }

    /// Takes expired keys, or the first `max` if a client waits.
    pub(super) fn take_due(&mut self, now: Timestamp, wanted: bool, max: usize) -> Vec<DueKey> {
        let expired_keys = self
            .expiries
            .iter()
            .take_while(|(expires, _)| *expires <= now)
            .map(|(_, key)| *key);
        let keys: Vec<DueKey> = if wanted {
            self.keys.keys().take(max).copied().collect()
        } else {
            expired_keys.take(max).collect()
        };
        for key in &keys {
            if let Some(expires) = self.keys.remove(key) {
                self.expiries.remove(&(expires, *key));
            }
        }
        keys
    }

    pub(super) fn drop_key(&mut self, dropped: (Lane, Seq)) {
        self.keys.retain(|key, _| (key.lane, key.seq) != dropped);
        self.expiries
            .retain(|(_, key)| (key.lane, key.seq) != dropped);
    }

    /// When the first of them was due.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        self.keys.first_key_value().map(|(key, _)| key.due)
    }

    /// When the first of them expires. Those that an operator asked for never do.
    pub(super) fn first_expiry(&self) -> Option<Timestamp> {
        self.expiries
            .first()
            .map(|(expires, _)| *expires)
            .filter(|expires| *expires != Timestamp::NEVER)
    }

    pub(super) fn iter_keys(&self) -> impl Iterator<Item = (Lane, Seq)> {
        self.keys.keys().map(|key| (key.lane, key.seq))
    }
}
