//! Makes cursors consistent: one for each subscription, none outside its log, and counters that
//! match the records.

use super::Salvage;
use crate::fsck::{CheckStop, parts_of_matched};
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
            .filter(|of| !self.wanted.contains(of) || !self.has_partition(of.partition))
            .collect();
        for of in gone {
            self.cursors.remove(&of);
            self.delete_record(Family::Cursor, keys::cursor(of))?;
            let subscription = of.subscription.0;
            let partition = of.partition.0;
            self.loss.add_record(format!(
                "removed: the cursor of the unknown subscription {subscription} of partition \
                 {partition}"
            ));
            self.put_record(Family::Meta, keys::reap_key(of), vec![1])?;
        }
        for of in self.wanted.clone() {
            // A reused name gets a new number, so an existing subscription is not being removed.
            if self.store.get(Family::Meta, &keys::reap_key(of))?.is_some() {
                self.delete_record(Family::Meta, keys::reap_key(of))?;
            }
            if !self.cursors.contains_key(&of) {
                let subscription = of.subscription.0;
                let partition = of.partition.0;
                self.loss.add_record(format!(
                    "new cursor: subscription {subscription} of partition {partition} reads the \
                     log again from its beginning, except events that have ended"
                ));
                let live = LaneCursor::new(Lane::LIVE, gridhook_event::Seq::FIRST, None);
                self.cursors.insert(
                    of,
                    Cursor {
                        lanes: vec![live],
                        ..Cursor::default()
                    },
                );
                self.without_cursor.insert(of);
            }
        }
        Ok(())
    }

    /// Moves lanes up to the beginning of the log. Open events below it are given up.
    pub(super) fn raise_lanes(&mut self) -> Result<(), CheckStop> {
        let mut cursors = std::mem::take(&mut self.cursors);
        for (of, cursor) in &mut cursors {
            let floor = self.floor_of_partition(of.partition);
            for lane in &mut cursor.lanes {
                lane.read = lane.read.max(floor);
                lane.end = lane.end.map(|end| end.max(lane.read));
                lane.done = lane.done.split_off(lane.read);
                let open = lane.open.split_off(floor);
                let below = std::mem::replace(&mut lane.open, open);
                for seq in below.iter() {
                    self.loss.add_event(super::LostEvent {
                        subscription: of.subscription.0,
                        partition: of.partition.0,
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
        for (of, mut cursor) in std::mem::take(&mut self.cursors) {
            let pending = |lane: Lane| self.pending.get(&(of, lane)).copied().unwrap_or_default();
            for job in &mut cursor.jobs {
                set_pending(&mut job.counters, pending(job.lane));
                add_up(&mut job.counters);
            }
            set_pending(
                &mut cursor.replayed,
                cursor.jobs.iter().map(|job| pending(job.lane)).sum(),
            );
            let lanes = self.pending.range((of, Lane(0))..(of, Lane::FIRST_JOB));
            set_pending(
                &mut cursor.counters,
                lanes.map(|(_, pending)| *pending).sum(),
            );
            self.settle_dead_letters(of, &mut cursor)?;
            add_up(&mut cursor.replayed);
            add_up(&mut cursor.counters);
            self.put_record(Family::Cursor, keys::cursor(of), cursor.encode())?;
        }
        self.reserve_numbers()
    }

    /// Counts dead letters as lost if they are neither waiting nor written.
    fn settle_dead_letters(
        &mut self,
        of: SubscriptionKey,
        cursor: &mut Cursor,
    ) -> Result<(), CheckStop> {
        let dead = self.dead.get(&of).copied().unwrap_or_default();
        let name = (self.decoders.name)(of);
        let key = keys::meta_key(MetaKind::DeadLetters, name.as_bytes());
        let totals = self.store.get(Family::Meta, &key)?;
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
            missing.saturating_sub(self.dead_listed.get(&of).copied().unwrap_or_default());
        if unlisted > 0 {
            let subscription = of.subscription.0;
            let partition = of.partition.0;
            let dead_letters = crate::format_count(unlisted, "dead letter");
            let what = format!(
                "missing: {dead_letters} of subscription {subscription} of partition {partition}"
            );
            self.loss.add_record(what);
        }
        let done = done.saturating_add(missing);
        let more = done.saturating_add(dead).saturating_sub(total);
        let counters = &mut cursor.counters;
        counters.dead_lettered = counters.dead_lettered.saturating_add(more);
        counters.delivered = counters.delivered.saturating_sub(more);
        if totals.is_some() || done > 0 {
            self.put_record(
                Family::Meta,
                key,
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
