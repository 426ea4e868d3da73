//! Rewinds subscriptions with unknown pending deliveries: they read the log again.
//!
//! A missing pending delivery leaves a trace only in the cursor's counter. Its event is still in
//! the log, unless it was carried below it. So the log is read again, except events that have
//! ended, are pending or wait as dead letters. Some events are delivered again; none that still
//! exists is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use super::{Salvage, pending::comes_again};
use crate::fsck::CheckStop;
use gridhook_event::{Lane, Seq, SubscriptionKey};
use gridhook_policy::{
    outcome::Outcome,
    record::{Cursor, LaneCursor, LedgerEvent, lease::LeaseStep},
};
use gridhook_store::{Family, keys, records::ledger_lines};

/// The maximum number of done events in a cursor. Events beyond it are delivered again.
const DONE_MAX: usize = 1 << 19;

impl Salvage<'_> {
    pub(super) fn rewind_all(&mut self) -> Result<(), CheckStop> {
        let mut pending: BTreeMap<SubscriptionKey, u64> = BTreeMap::new();
        self.visit_family(Family::Pending, |salvage, key, _| {
            let Some((partition, seq, subscription, lane)) = keys::parse_pending(key) else {
                return Ok(());
            };
            let of = SubscriptionKey {
                partition,
                subscription,
            };
            if salvage
                .cursors
                .get(&of)
                .is_some_and(|cursor| !lane.is_job() && !comes_again(cursor, lane, seq))
            {
                *pending.entry(of).or_default() += 1;
            }
            Ok(())
        })?;
        let mut cursors = std::mem::take(&mut self.cursors);
        for (of, cursor) in &mut cursors {
            let missing = cursor
                .counters
                .pending
                .saturating_sub(pending.get(of).copied().unwrap_or_default());
            if missing == 0 && !self.without_cursor.contains(of) {
                continue;
            }
            let floor = self.floor_of_partition(of.partition);
            if missing > 0 {
                let subscription = of.subscription.0;
                let partition = of.partition.0;
                self.loss.add_record(format!(
                    "missing: pending deliveries ({missing}) of subscription {subscription} of \
                     partition {partition}, whose events are unknown; it reads the log again from \
                     event {}, except events that have ended",
                    floor.0
                ));
            }
            let settled_seqs = self.known_events(*of, floor)?;
            rewind_cursor(cursor, floor, settled_seqs);
            // These events are counted again when they are read again.
            cursor.counters.pending -= missing;
        }
        self.cursors = cursors;
        Ok(())
    }

    /// Events from `floor` on that need not be delivered again.
    fn known_events(
        &mut self,
        of: SubscriptionKey,
        floor: Seq,
    ) -> Result<BTreeSet<Seq>, CheckStop> {
        let mut known_seqs = BTreeSet::new();
        self.visit_range(Family::Ledger, &keys::ledger_of(of), |_, key, value| {
            let Some(Ok(lines)) = keys::parse_ledger(key).map(|key| ledger_lines(key, value))
            else {
                return Ok(());
            };
            for line in lines
                .iter()
                .filter(|line| !line.lane.is_job() && has_ended(&line.entry.what))
            {
                let seqs = line.entry.runs.iter().flat_map(|run| run.iter_seqs());
                known_seqs.extend(seqs.filter(|seq| *seq >= floor).take(DONE_MAX));
            }
            Ok(())
        })?;
        let range = keys::pending(
            of.partition,
            floor,
            gridhook_event::SubscriptionId(0),
            Lane(0),
        )..keys::pending_below(of.partition, Seq(u64::MAX)).end;
        self.visit_range(Family::Pending, &range, |_, key, _| {
            let pending = keys::parse_pending(key)
                .filter(|(_, _, subscription, _)| *subscription == of.subscription);
            known_seqs.extend(
                pending
                    .filter(|(.., lane)| !lane.is_job())
                    .map(|(_, seq, ..)| seq),
            );
            Ok(())
        })?;
        self.visit_range(Family::Dead, &keys::dead_of(of), |_, key, _| {
            let dead =
                keys::parse_dead(key).filter(|(_, _, seq, lane)| *seq >= floor && !lane.is_job());
            known_seqs.extend(dead.map(|(_, _, seq, _)| seq));
            Ok(())
        })?;
        Ok(known_seqs.into_iter().take(DONE_MAX).collect())
    }
}

/// Makes one lane read all published events from `floor` on.
fn rewind_cursor(cursor: &mut Cursor, floor: Seq, done: BTreeSet<Seq>) {
    let live = LaneCursor {
        done: done.into_iter().collect(),
        ..LaneCursor::new(Lane::LIVE, floor, None)
    };
    cursor.lanes.retain(|lane| lane.lane.is_job());
    cursor.lanes.insert(0, live);
}

/// Whether the line ends the delivery of its events.
fn has_ended(what: &LedgerEvent) -> bool {
    match what {
        LedgerEvent::Attempted { outcome, .. } => *outcome == Outcome::Delivered,
        LedgerEvent::Late { settled } => *settled,
        LedgerEvent::Lease(step) => *step == LeaseStep::Acknowledged,
        LedgerEvent::GivenUp { .. }
        | LedgerEvent::Canceled
        | LedgerEvent::Filed { .. }
        | LedgerEvent::Lost { .. } => true,
        LedgerEvent::Filtered { .. } | LedgerEvent::Redriven { .. } => false,
    }
}
