//! Cursors: one for each subscription, none that reads where there is no log, and counters that say what is there.

use super::Salvage;
use crate::{
    event::{Lane, SubscriptionKey},
    policy::record::{Counters, Cursor, LaneCursor},
    repair::fsck::CheckStop,
    store::{
        Family,
        keys::{self, MetaKind},
        records::StoredRecord,
    },
};

impl Salvage<'_> {
    /// Who has no subscription any more is cleared away; who has one and no cursor reads from the beginning.
    pub(super) fn known_cursors(&mut self) -> Result<(), CheckStop> {
        let known = self.cursors.keys().copied();
        let gone: Vec<SubscriptionKey> =
            known.filter(|of| !self.wanted.contains(of) || !self.has(of.partition)).collect();
        for of in gone {
            self.cursors.remove(&of);
            self.delete(Family::Cursor, keys::cursor(of))?;
            let (subscription, partition) = (of.subscription.0, of.partition.0);
            self.loss.record(format!(
                "removed: the cursor of subscription {subscription} of partition {partition}, which is not known"
            ));
            self.put(Family::Meta, keys::reap(of), vec![1])?;
        }
        for of in self.wanted.clone() {
            // A name that is used again has another number: who is wanted is not being cleared away.
            if self.store.get(Family::Meta, &keys::reap(of))?.is_some() {
                self.delete(Family::Meta, keys::reap(of))?;
            }
            if !self.cursors.contains_key(&of) {
                let (subscription, partition) = (of.subscription.0, of.partition.0);
                self.loss.record(format!(
                    "made anew: the cursor of subscription {subscription} of partition {partition}, which reads all there is but what has ended"
                ));
                let live = LaneCursor {
                    lane: Lane::LIVE,
                    read: crate::event::Seq::FIRST,
                    end: None,
                    open: Vec::new(),
                    done: Vec::new(),
                };
                self.cursors.insert(of, Cursor { lanes: vec![live], ..Cursor::default() });
                self.anew.insert(of);
            }
        }
        Ok(())
    }

    /// No lane reads below the log's beginning; an event that was open there is given up.
    pub(super) fn lanes(&mut self) -> Result<(), CheckStop> {
        let mut cursors = std::mem::take(&mut self.cursors);
        for (of, cursor) in &mut cursors {
            let floor = self.floor(of.partition);
            for lane in &mut cursor.lanes {
                lane.read = lane.read.max(floor);
                lane.end = lane.end.map(|end| end.max(lane.read));
                lane.done.retain(|seq| *seq >= lane.read);
                let below = lane.open.partition_point(|seq| *seq < floor);
                for seq in lane.open.drain(..below) {
                    self.loss.obligation(super::LostEvent {
                        subscription: of.subscription.0,
                        partition: of.partition.0,
                        sequence: seq.0,
                        was_dead_letter: false,
                    });
                }
                cursor.counters.dropped = cursor.counters.dropped.saturating_add(below as u64);
            }
        }
        self.cursors = cursors;
        Ok(())
    }

    /// The counters say what is there: those of what was published, those of all jobs, and those of each.
    pub(super) fn counters(&mut self) -> Result<(), CheckStop> {
        for (of, mut cursor) in std::mem::take(&mut self.cursors) {
            let owed = |lane: Lane| self.pending.get(&(of, lane)).copied().unwrap_or_default();
            for job in &mut cursor.jobs {
                set_pending(&mut job.counters, owed(job.lane));
                add_up(&mut job.counters);
            }
            set_pending(&mut cursor.replayed, cursor.jobs.iter().map(|job| owed(job.lane)).sum());
            let lanes = self.pending.range((of, Lane(0))..(of, Lane::FIRST_JOB));
            set_pending(&mut cursor.counters, lanes.map(|(_, owed)| *owed).sum());
            self.settle_dead_letters(of, &mut cursor)?;
            add_up(&mut cursor.replayed);
            add_up(&mut cursor.counters);
            self.put(Family::Cursor, keys::cursor(of), cursor.encode())?;
        }
        self.numbers()
    }

    /// What was put aside and neither waits nor is dealt with is lost.
    fn settle_dead_letters(&mut self, of: SubscriptionKey, cursor: &mut Cursor) -> Result<(), CheckStop> {
        let dead = self.dead.get(&of).copied().unwrap_or_default();
        let name = (self.accounts.name)(of);
        let key = keys::meta(MetaKind::DeadLetters, name.as_bytes());
        let account = self.store.get(Family::Meta, &key)?;
        let dealt_with = account.as_deref().map_or(Some(0), self.accounts.dealt_with).unwrap_or(0);
        let counted = cursor.counters.dead_lettered.saturating_add(cursor.replayed.dead_lettered);
        let missing = counted.saturating_sub(dead).saturating_sub(dealt_with);
        let untold = missing.saturating_sub(self.dead_told.get(&of).copied().unwrap_or_default());
        if untold > 0 {
            let (subscription, partition) = (of.subscription.0, of.partition.0);
            let what =
                format!("missing: {untold} dead letters of subscription {subscription} of partition {partition}");
            self.loss.record(what);
        }
        let dealt_with = dealt_with.saturating_add(missing);
        let more = dealt_with.saturating_add(dead).saturating_sub(counted);
        let counters = &mut cursor.counters;
        counters.dead_lettered = counters.dead_lettered.saturating_add(more);
        counters.delivered = counters.delivered.saturating_sub(more);
        if account.is_some() || dealt_with > 0 {
            self.put(Family::Meta, key, (self.control.account)(account.as_deref(), dealt_with))?;
        }
        Ok(())
    }
}

/// So much is owed: what was owed and is gone counts as dropped, what is owed again as delivered once less.
fn set_pending(counters: &mut Counters, owed: u64) {
    let (lost, again) = (counters.pending.saturating_sub(owed), owed.saturating_sub(counters.pending));
    counters.pending = owed;
    counters.dropped = counters.dropped.saturating_add(lost);
    counters.delivered = counters.delivered.saturating_sub(again);
}

/// Both equations hold.
fn add_up(counters: &mut Counters) {
    let parts = [counters.delivered, counters.pending, counters.dead_lettered, counters.dropped, counters.canceled];
    counters.matched = parts.iter().fold(0, |sum, part| sum.saturating_add(*part));
    counters.passed = counters.filtered.saturating_add(counters.matched);
}
