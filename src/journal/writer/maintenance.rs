//! What is done now and then: the watermark is noted, floors move ([`trim`](super::trim)), and what deleted subscriptions
//! left is cleared away.
//!
//! None of it is urgent. Where the disk is full, it is tried again a second later.

use std::ops::ControlFlow;

use super::{
    CommitGroup, GroupWriter, HOUSEKEEPING,
    encode::{remove_dead_letter, settle},
};
use crate::{
    event::{Lane, SubscriptionKey, Timestamp},
    journal::{DeadKey, JournalState, reader::ended_jobs},
    policy::record::{LedgerEntry, LedgerEvent},
    store::{Family, StoreError, keys, ledger},
};

/// So many jobs that have ended are kept of each subscription, and those of the latest group.
const ENDED_MAX: usize = 50;

/// So many records of deleted subscriptions are cleared away in one go.
const REAP_MAX: usize = 1024;

impl GroupWriter {
    pub(super) fn housekeep(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        if !self.parked.is_empty() {
            return Ok(());
        }
        let is_due = now >= self.housekept.after(HOUSEKEEPING);
        let kept = self.trim(now).and_then(|()| if is_due { self.keep(now) } else { Ok(()) });
        match kept {
            // There is time: it is tried again in a second.
            Err(StoreError::Full) => {
                self.status.set_state(JournalState::Full);
                Ok(())
            }
            Ok(()) => {
                if is_due {
                    self.status.set_state(self.room());
                }
                Ok(())
            }
            Err(error @ (StoreError::Damaged(_) | StoreError::Failed(_))) => Err(error),
        }
    }

    fn keep(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.housekept = now;
        self.store.note_watermark()?;
        self.reap()
    }

    /// Of the jobs that have ended only the latest are kept.
    pub(super) fn forget_jobs(&self, group: &mut CommitGroup) -> Result<(), StoreError> {
        for subscription_key in &group.ended {
            let ended = match ended_jobs(&*self.store, *subscription_key) {
                // They stay, then.
                Err(StoreError::Damaged(what)) => {
                    self.note_damage(Family::Meta, &what);
                    continue;
                }
                ended => ended?,
            };
            let mut ended: Vec<(Timestamp, Lane)> = ended.into_iter().map(|job| (job.changed, job.lane)).collect();
            ended.sort_unstable();
            let excess = ended.len().saturating_sub(ENDED_MAX);
            for (_, lane) in ended.drain(..excess) {
                group.batch.delete(Family::Meta, keys::ended_job(*subscription_key, lane));
            }
        }
        Ok(())
    }

    /// Clears away a part of what deleted subscriptions left.
    fn reap(&mut self) -> Result<(), StoreError> {
        let mut subscription_keys = Vec::new();
        let range = keys::reaps();
        self.store.scan(Family::Meta, &range.start, &range.end, &mut |key, _| {
            subscription_keys.extend(keys::parse_reap(key));
            if subscription_keys.len() < 16 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        for subscription_key in subscription_keys {
            match self.reap_one(subscription_key) {
                Err(StoreError::Damaged(what)) => self.note_damage(Family::Due, &what),
                reaped => reaped?,
            }
        }
        Ok(())
    }

    fn reap_one(&mut self, subscription_key: SubscriptionKey) -> Result<(), StoreError> {
        let mut group = CommitGroup::default();
        let now = self.clock.now();
        let range = keys::due_of(subscription_key);
        self.store.scan(Family::Due, &range.start, &range.end, &mut |key, _| {
            if let Some((_, due, lane, seq)) = keys::parse_due(key) {
                settle(&mut group, subscription_key, lane, seq, due);
                let entry = LedgerEntry { at: now, covers: vec![(seq, 1)], what: LedgerEvent::Canceled };
                ledger::put(&mut group.batch, subscription_key, lane, 0, &entry);
            }
            if group.asked.len() < REAP_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let range = keys::dead_of(subscription_key);
        self.store.scan(Family::Dead, &range.start, &range.end, &mut |key, _| {
            if let Some((_, due, seq, lane)) = keys::parse_dead(key) {
                remove_dead_letter(&mut group, subscription_key, DeadKey { due, seq, lane });
            }
            if group.asked.len() < 2 * REAP_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if group.asked.is_empty() {
            let range = keys::ended_jobs_of(subscription_key);
            self.store.scan(Family::Meta, &range.start, &range.end, &mut |key, _| {
                group.batch.delete(Family::Meta, key.to_vec());
                ControlFlow::Continue(())
            })?;
            group.batch.delete(Family::Meta, keys::dead_letters(subscription_key));
            group.batch.delete(Family::Meta, keys::reap(subscription_key));
        }
        self.free_held(&mut group)?;
        self.store.write(&group.batch)
    }
}
