//! Maintenance between groups: stores the watermark, moves floors ([`trim`](super::trim)) and
//! removes the records of deleted subscriptions.
//!
//! None of it is urgent. When the disk is full, it is retried after a second.

use std::ops::ControlFlow;

use super::{
    CommitGroup, GroupWriter, HOUSEKEEPING,
    encode::{delete_pending, remove_dead_letter},
};
use crate::{DeadLetterKey, JournalState, reader::ended_jobs, shards::CONTROL};
use gridhook_event::{Lane, SubscriptionKey, Timestamp};
use gridhook_policy::record::{LedgerEntry, LedgerEvent, SeqRun};
use gridhook_store::{Family, StoreError, keys, records::EncodedLines};

/// The number of ended jobs that are kept of each subscription, besides those of the current group.
const ENDED_MAX: usize = 50;

/// The number of records of a deleted subscription that are removed in one write.
const REAP_MAX: usize = 1024;

impl GroupWriter {
    pub(super) fn run_maintenance(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if !self.parked.is_empty() {
            return Ok(());
        }
        let is_due = now >= self.last_housekeeping.after(HOUSEKEEPING);
        let result = self.trim_partitions(now).and_then(|()| {
            if is_due {
                self.run_periodic(now)
            } else {
                Ok(())
            }
        });
        if is_due {
            self.check_recovery(now)?;
        }
        match result {
            // Not urgent: retried after a second.
            Err(StoreError::Full) => {
                self.is_settled = false;
                self.status.set_state(JournalState::Full);
                Ok(())
            }
            Ok(()) => {
                if is_due {
                    let state = self.writable_state();
                    self.status.set_state(state);
                    self.is_settled &= state == JournalState::Writable;
                }
                Ok(())
            }
            Err(error @ (StoreError::Damaged(_) | StoreError::Failed(_))) => Err(error),
        }
    }

    fn run_periodic(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.last_housekeeping = now;
        // Once for the store, whatever the number of its writers.
        if self.number == CONTROL {
            self.store.note_watermark()?;
            if !self.clock.expiry_is_paused() {
                self.store.expire_ids(now);
            }
        }
        let was_removed = self.remove_deleted()?;
        // The control writer stores the watermark of what the others write, too, so it settles only
        // if there are no others.
        let may_settle = self.number != CONTROL || self.options.shards.writer_count() == 1;
        self.is_settled = may_settle && !was_removed;
        Ok(())
    }

    /// Deletes all but the latest ended jobs.
    pub(super) fn forget_jobs(&self, group: &mut CommitGroup) -> Result<(), StoreError> {
        for subscription_key in &group.ended {
            let stored_jobs = match ended_jobs(&*self.store, *subscription_key) {
                // Unreadable jobs are kept.
                Err(StoreError::Damaged(what)) => {
                    self.note_damage(Family::Meta, &what);
                    continue;
                }
                ended => ended?,
            };
            let mut end_times: Vec<(Timestamp, Lane)> = stored_jobs
                .into_iter()
                .map(|job| (job.changed, job.lane))
                .collect();
            end_times.sort_unstable();
            let excess = end_times.len().saturating_sub(ENDED_MAX);
            for (_, lane) in end_times.drain(..excess) {
                group
                    .batch
                    .delete(Family::Meta, keys::ended_job(*subscription_key, lane));
            }
        }
        Ok(())
    }

    /// Removes a part of the records of its deleted subscriptions. Returns whether there were any.
    fn remove_deleted(&mut self) -> Result<bool, StoreError> {
        let mut subscription_keys = Vec::new();
        let range = keys::reaps_range();
        let shards = self.options.shards;
        self.store
            .scan(Family::Meta, &range.start, &range.end, &mut |key, _| {
                let key_parts = keys::parse_reap(key);
                subscription_keys
                    .extend(key_parts.filter(|key| shards.writer_of(key.partition) == self.number));
                if subscription_keys.len() < 16 {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        let has_any = !subscription_keys.is_empty();
        for subscription_key in subscription_keys {
            match self.reap_one(subscription_key) {
                Err(StoreError::Damaged(what)) => self.note_damage(Family::Due, &what),
                reaped => reaped?,
            }
        }
        Ok(has_any)
    }

    fn reap_one(&mut self, subscription_key: SubscriptionKey) -> Result<(), StoreError> {
        let mut group = CommitGroup::default();
        let now = self.clock.now();
        let range = keys::due_of(subscription_key);
        let mut canceled_lines = EncodedLines::default();
        self.store
            .scan(Family::Due, &range.start, &range.end, &mut |key, _| {
                if let Some((_, due, lane, seq)) = keys::parse_due(key) {
                    delete_pending(&mut group, subscription_key, lane, seq, due);
                    let entry = LedgerEntry {
                        at: now,
                        runs: vec![SeqRun::single(seq)],
                        what: LedgerEvent::Canceled,
                    };
                    canceled_lines.push_entry(lane, 0, &entry);
                }
                if group.pin_changes.len() < REAP_MAX {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        group
            .batch
            .put_outcomes(subscription_key, None, canceled_lines);
        let range = keys::dead_of(subscription_key);
        self.store
            .scan(Family::Dead, &range.start, &range.end, &mut |key, _| {
                if let Some((_, due, seq, lane)) = keys::parse_dead(key) {
                    remove_dead_letter(
                        &mut group,
                        subscription_key,
                        DeadLetterKey { due, seq, lane },
                    );
                }
                if group.pin_changes.len() < 2 * REAP_MAX {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        if group.pin_changes.is_empty() {
            let range = keys::ended_jobs_of(subscription_key);
            self.store
                .scan(Family::Meta, &range.start, &range.end, &mut |key, _| {
                    group.batch.delete(Family::Meta, key.to_vec());
                    ControlFlow::Continue(())
                })?;
            group
                .batch
                .delete(Family::Meta, keys::dead_letters(subscription_key));
            group
                .batch
                .delete(Family::Meta, keys::reap_key(subscription_key));
        }
        self.free_carried(&mut group)?;
        self.write_batch(&group.batch)
    }
}
