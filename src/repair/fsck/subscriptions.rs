//! Checks that each subscription's cursor matches its other records.

use std::{collections::HashSet, mem};

use super::{CheckStop, CheckedSubscription, Repair, StoreCheck, checked_sum, subscription_name};
use crate::format_count;
use gridhook_event::SubscriptionKey;
use gridhook_policy::record::{Counters, Cursor};
use gridhook_store::{
    Family, WriteOp,
    keys::{self, MetaKind},
    records::StoredRecord,
};

impl StoreCheck<'_> {
    /// Checks that each filter version can be decoded. Other unreadable records of the control
    /// plane already prevent a start.
    pub(super) fn check_filters(&mut self) -> Result<(), CheckStop> {
        self.each_in(
            Family::Meta,
            &keys::meta_of(MetaKind::Filter),
            |check, key, value| {
                if let Err(why) = (check.decoders.readable)(MetaKind::Filter, value) {
                    let name =
                        String::from_utf8_lossy(key.get(2..).unwrap_or_default()).into_owned();
                    check
                        .report
                        .add_problem(format!("the filter version {name} cannot be read: {why}"));
                }
                Ok(())
            },
        )
    }

    /// Checks each subscription's cursor against its records.
    pub(super) fn check_subscriptions(&mut self) -> Result<(), CheckStop> {
        for (subscription_key, found) in mem::take(&mut self.subscriptions) {
            let CheckedSubscription {
                is_deleted,
                has_cursor,
                pending: [own, jobs],
                dead,
                ..
            } = found;
            match (has_cursor, is_deleted) {
                (true, true) => self.report.add_problem(format!(
                    "{} was deleted and has a cursor",
                    subscription_name(subscription_key)
                )),
                (false, false) => {
                    self.report.add_problem(format!(
                        "{}: {} pending, {} and no cursor",
                        subscription_name(subscription_key),
                        own + jobs,
                        format_count(dead, "dead letter")
                    ));
                }
                (true, false) | (false, true) => {}
            }
            self.check_counts(subscription_key, &found)?;
        }
        Ok(())
    }

    /// Compares `pending` and `dead_lettered` with the records. If only one of them is wrong, so
    /// that the counters add up with the counted value, it can be repaired. If the counters add up
    /// as they are, records are missing.
    fn check_counts(
        &mut self,
        subscription_key: SubscriptionKey,
        found: &CheckedSubscription,
    ) -> Result<(), CheckStop> {
        let CheckedSubscription {
            counters,
            next_due,
            pending: [own, jobs],
            first_due,
            dead,
            pins,
            ..
        } = *found;
        let name = subscription_name(subscription_key);
        let Some([counters, replayed]) = counters else {
            self.report_pins(&name, dead, pins);
            return Ok(());
        };
        let Counters {
            matched,
            delivered,
            pending,
            dead_lettered,
            dropped,
            canceled,
            ..
        } = counters;
        let adds_up = |pending, dead_lettered| {
            checked_sum([delivered, pending, dead_lettered, dropped, canceled])
                .is_some_and(|sum| sum == matched)
        };
        let is_wrong = !adds_up(pending, dead_lettered);
        let totals_key = keys::meta_key(
            MetaKind::DeadLetters,
            (self.decoders.name)(subscription_key).as_bytes(),
        );
        let totals = self.store.get(Family::Meta, &totals_key)?;
        // Unreadable totals were already reported.
        let handled = totals.map_or(Some(0), |totals| (self.decoders.handled)(&totals));
        let counted_dead = handled.map(|handled| checked_sum([handled, dead]));
        let dead_letters = checked_sum([dead_lettered, replayed.dead_lettered]);
        let mut correction = counters;
        if replayed.pending != jobs {
            self.report.add_problem(format!(
                "{name}: {} pending of jobs, but {}",
                replayed.pending,
                format_count(jobs, "record")
            ));
        }
        if pending != own {
            let what = format!(
                "{name}: {pending} pending, but {}",
                format_count(own, "record")
            );
            if is_wrong && adds_up(own, dead_lettered) {
                correction.pending = own;
                self.report.add_repairable(Repair::Pending, what);
            } else {
                self.report.add_problem(what);
            }
        }
        if let (Some(handled), Some(counted_dead)) = (
            handled,
            counted_dead.filter(|counted| *counted != dead_letters),
        ) {
            let dead_letters = dead_letters.unwrap_or(u64::MAX);
            let what = format!(
                "{name}: {dead_letters} dead-lettered is not the sum of {dead} waiting and {handled} \
                 written or lost"
            );
            let own = counted_dead.and_then(|counted| counted.checked_sub(replayed.dead_lettered));
            match own.filter(|counted| is_wrong && adds_up(pending, *counted)) {
                Some(counted_dead) => {
                    correction.dead_lettered = counted_dead;
                    self.report.add_repairable(Repair::DeadLettered, what);
                }
                None => self.report.add_problem(what),
            }
        }
        if is_wrong && correction == counters {
            self.report.add_problem(format!(
                "{name}: {matched} matched is not the sum of its parts: {counters:?}"
            ));
        }
        if pins == dead || counted_dead != Some(dead_letters) {
            self.report_pins(&name, dead, pins);
        } else {
            self.stray_pins(subscription_key, dead, pins)?;
        }
        let mut due = next_due;
        if let Some(first) = first_due.filter(|first| next_due.is_none_or(|next| next > *first)) {
            let says = next_due.map_or("never".to_owned(), |next| next.to_string());
            due = Some(first);
            let what = format!(
                "{name}: the first pending delivery is due at {first}, but the cursor says {says}"
            );
            self.report.add_repairable(Repair::NextDue, what);
        }
        if (correction, due) != (counters, next_due)
            && let Some(Ok(cursor)) = self
                .store
                .get(Family::Cursor, &keys::cursor(subscription_key))?
                .map(|cursor| Cursor::decode(&cursor))
        {
            let cursor = Cursor {
                counters: correction,
                next_due: due,
                ..cursor
            };
            self.keep_operation(WriteOp::Put(
                Family::Cursor,
                keys::cursor(subscription_key),
                cursor.encode().into(),
            ));
        }
        Ok(())
    }

    fn report_pins(&mut self, name: &str, dead: u64, pins: u64) {
        if pins != dead {
            self.report.add_problem(unequal_pins(name, dead, pins));
        }
    }

    /// Finds the pins of an event subscription that no dead letter needs. The caller has checked
    /// that none is missing. Only this step has all dead letters of a subscription in memory at
    /// once.
    fn stray_pins(
        &mut self,
        subscription_key: SubscriptionKey,
        dead: u64,
        pins: u64,
    ) -> Result<(), CheckStop> {
        let mut dead_letters = HashSet::new();
        self.each_in(
            Family::Dead,
            &keys::dead_of(subscription_key),
            |_, key, _| {
                dead_letters.extend(keys::parse_dead(key).map(|(_, _, seq, lane)| (seq, lane)));
                Ok(())
            },
        )?;
        let what = unequal_pins(&subscription_name(subscription_key), dead, pins);
        self.visit_records(Family::Pin, |check, key, _| {
            let Some((partition, seq, subscription, lane)) = keys::parse_pin(key) else {
                return Ok(());
            };
            if (SubscriptionKey {
                partition,
                subscription,
            }) == subscription_key
                && !dead_letters.contains(&(seq, lane))
            {
                let what = format!(
                    "{what}: the pin of event {} in lane {} has no dead letter",
                    seq.0, lane.0
                );
                check.add_repairable(
                    Repair::StrayPin,
                    what,
                    WriteOp::Delete(Family::Pin, key.to_vec()),
                );
            }
            Ok(())
        })
    }
}

fn unequal_pins(name: &str, dead: u64, pins: u64) -> String {
    format!(
        "{name}: {} waiting, but {} pinned",
        format_count(dead, "dead letter"),
        format_count(pins, "event")
    )
}
