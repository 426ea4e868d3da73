//! Makes cursors consistent: one for each subscription, none outside its log, and counters that
//! match the records.

use super::Salvage;
use crate::fsck::{CheckStop, parts_of_matched, subscription_name};
use gridhook_event::{Lane, SubscriptionKey};
use gridhook_policy::record::{Counters, Cursor, LaneCursor};
use gridhook_store::{
    Family,
    keys::{self, MetaKind},
    records::StoredRecord,
};

impl Salvage<'_> {
    /// Removes cursors without a subscription, and adds cursors for subscriptions without one: they
    /// read from the beginning.
    pub(super) fn known_cursors(&mut self) -> Result<(), CheckStop> {
        let all_keys = self.cursors.keys().copied();
        let gone: Vec<SubscriptionKey> = all_keys
            .filter(|key| !self.wanted.contains(key) || !self.has_partition(key.partition))
            .collect();
        for key in gone {
            self.cursors.remove(&key);
            self.delete_record(Family::Cursor, keys::cursor(key))?;
            let name = subscription_name(key);
            self.loss
                .add_record(format!("removed: the cursor of the unknown {name}"));
            self.put_record(Family::Meta, keys::reap_key(key), vec![1])?;
        }
        for key in self.wanted.clone() {
            // A reused name gets a new number, so an existing subscription is not being removed.
            if self
                .store
                .get(Family::Meta, &keys::reap_key(key))?
                .is_some()
            {
                self.delete_record(Family::Meta, keys::reap_key(key))?;
            }
            if !self.cursors.contains_key(&key) {
                let name = subscription_name(key);
                self.loss.add_record(format!(
                    "new cursor: {name} reads the log again from its beginning, except events \
                     that have ended"
                ));
                let live = LaneCursor::new(Lane::LIVE, gridhook_event::Seq::FIRST, None);
                self.cursors.insert(
                    key,
                    Cursor {
                        lanes: vec![live],
                        ..Cursor::default()
                    },
                );
                self.without_cursor.insert(key);
            }
        }
        Ok(())
    }

    /// Moves lanes up to the beginning of the log. Open events below it are given up.
    pub(super) fn raise_lanes(&mut self) -> Result<(), CheckStop> {
        let mut cursors = std::mem::take(&mut self.cursors);
        for (key, cursor) in &mut cursors {
            let floor = self.floor_of_partition(key.partition);
            for lane in &mut cursor.lanes {
                lane.read = lane.read.max(floor);
                lane.end = lane.end.map(|end| end.max(lane.read));
                lane.done = lane.done.split_off(lane.read);
                let open = lane.open.split_off(floor);
                let below = std::mem::replace(&mut lane.open, open);
                for seq in below.iter() {
                    self.loss.add_event(super::LostEvent {
                        subscription: key.subscription.0,
                        partition: key.partition.0,
                        sequence: seq.0,
                        was_dead_letter: false,
                    });
                }
                cursor.counters.dropped =
                    cursor.counters.dropped.saturating_add(below.event_count());
            }
        }
        self.cursors = cursors;
        Ok(())
    }

    /// Sets the counters to match the records: those of published events, of all jobs, and of each
    /// job.
    pub(super) fn set_counters(&mut self) -> Result<(), CheckStop> {
        for (key, mut cursor) in std::mem::take(&mut self.cursors) {
            let pending = |lane: Lane| self.pending.get(&(key, lane)).copied().unwrap_or_default();
            for job in &mut cursor.jobs {
                set_pending(&mut job.counters, pending(job.lane));
                add_up(&mut job.counters);
            }
            set_pending(
                &mut cursor.replayed,
                cursor.jobs.iter().map(|job| pending(job.lane)).sum(),
            );
            let lanes = self.pending.range((key, Lane(0))..(key, Lane::FIRST_JOB));
            set_pending(
                &mut cursor.counters,
                lanes.map(|(_, pending)| *pending).sum(),
            );
            self.settle_dead_letters(key, &mut cursor)?;
            add_up(&mut cursor.replayed);
            add_up(&mut cursor.counters);
            self.put_record(Family::Cursor, keys::cursor(key), cursor.encode())?;
        }
        self.reserve_numbers()
    }

    /// Counts dead letters as lost if they are neither waiting nor written.
    fn settle_dead_letters(
        &mut self,
        key: SubscriptionKey,
        cursor: &mut Cursor,
    ) -> Result<(), CheckStop> {
        let dead = self.dead.get(&key).copied().unwrap_or_default();
        let name = (self.decoders.name)(key);
        let totals_key = keys::meta_key(MetaKind::DeadLetters, name.as_bytes());
        let totals = self.store.get(Family::Meta, &totals_key)?;
        let done = totals
            .as_deref()
            .map_or(Some(0), self.decoders.handled)
            .unwrap_or(0);
        let total = cursor
            .counters
            .dead_lettered
            .saturating_add(cursor.replayed.dead_lettered);
        let missing = total.saturating_sub(dead).saturating_sub(done);
        let unlisted =
            missing.saturating_sub(self.dead_listed.get(&key).copied().unwrap_or_default());
        if unlisted > 0 {
            let dead_letters = gridhook_escape::count_with_noun(unlisted, "dead letter");
            let name = subscription_name(key);
            self.loss
                .add_record(format!("missing: {dead_letters} of {name}"));
        }
        let done = done.saturating_add(missing);
        let more = done.saturating_add(dead).saturating_sub(total);
        let counters = &mut cursor.counters;
        counters.dead_lettered = counters.dead_lettered.saturating_add(more);
        counters.delivered = counters.delivered.saturating_sub(more);
        if totals.is_some() || done > 0 {
            self.put_record(
                Family::Meta,
                totals_key,
                (self.control.dead_letter_totals)(totals.as_deref(), done),
            )?;
        }
        Ok(())
    }
}

/// Sets the pending count. Missing pending deliveries count as dropped; additional ones are
/// subtracted from the delivered ones.
fn set_pending(counters: &mut Counters, pending: u64) {
    let lost = counters.pending.saturating_sub(pending);
    let again = pending.saturating_sub(counters.pending);
    counters.pending = pending;
    counters.dropped = counters.dropped.saturating_add(lost);
    counters.delivered = counters.delivered.saturating_sub(again);
}

fn add_up(counters: &mut Counters) {
    let parts = parts_of_matched(counters);
    counters.matched = parts.into_iter().fold(0, u64::saturating_add);
    counters.passed = counters.filtered.saturating_add(counters.matched);
}
