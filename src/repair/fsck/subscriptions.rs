//! Checks that each subscription's cursor matches its other records.

use std::{collections::HashSet, mem};

use super::{CheckStop, CheckedSubscription, Repair, StoreCheck, checked_sum, subscription_name};
use gridhook_escape::count_with_noun;
use gridhook_event::{SubscriptionKey, Timestamp};
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
        self.visit_range(
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
        for (subscription_key, subscription) in mem::take(&mut self.subscriptions) {
            let CheckedSubscription {
                is_deleted,
                has_cursor,
                pending: [own, jobs],
                dead,
                ..
            } = subscription;
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
                        count_with_noun(dead, "dead letter")
                    ));
                }
                (true, false) | (false, true) => {}
            }
            self.check_counts(subscription_key, &subscription)?;
        }
        Ok(())
    }

    /// Compares the counters and the next due time of a cursor with the records.
    fn check_counts(
        &mut self,
        subscription_key: SubscriptionKey,
        subscription: &CheckedSubscription,
    ) -> Result<(), CheckStop> {
        let CheckedSubscription {
            counters,
            next_due,
            dead,
            pins,
            ..
        } = *subscription;
        let name = subscription_name(subscription_key);
        let Some([counters, replayed]) = counters else {
            self.report_pins(&name, dead, pins);
            return Ok(());
        };
        let handled = self.count_handled(subscription_key)?;
        let counted_dead = handled.map(|handled| checked_sum([handled, dead]));
        let dead_letters = checked_sum([counters.dead_lettered, replayed.dead_lettered]);
        let correction = Counters {
            pending: self.correct_pending(&name, subscription, &counters, &replayed),
            dead_lettered: match handled {
                Some(handled) if counted_dead != Some(dead_letters) => {
                    self.correct_dead_lettered(&name, [handled, dead], &counters, &replayed)
                }
                _ => counters.dead_lettered,
            },
            ..counters
        };
        if !adds_up(&counters) && correction == counters {
            self.report.add_problem(format!(
                "{name}: {} matched is not the sum of its parts: {counters:?}",
                counters.matched
            ));
        }
        if pins == dead || counted_dead != Some(dead_letters) {
            self.report_pins(&name, dead, pins);
        } else {
            self.report_stray_pins(subscription_key, dead, pins)?;
        }
        let due_correction = self.check_next_due(&name, subscription);
        if (correction, due_correction) != (counters, next_due) {
            self.correct_cursor(subscription_key, correction, due_correction)?;
        }
        Ok(())
    }

    /// The number of dead letters that were written or lost; [`None`] if it cannot be read, which
    /// was already reported.
    fn count_handled(&self, subscription_key: SubscriptionKey) -> Result<Option<u64>, CheckStop> {
        let name = (self.decoders.name)(subscription_key);
        let totals_key = keys::meta_key(MetaKind::DeadLetters, name.as_bytes());
        let totals = self.store.get(Family::Meta, &totals_key)?;
        Ok(totals.map_or(Some(0), |totals| (self.decoders.handled)(&totals)))
    }

    /// Compares `pending` with the records, and returns what it should be. If only this counter is
    /// wrong, so that the counters add up with the counted value, it can be repaired. If the
    /// counters add up as they are, records are missing.
    fn correct_pending(
        &mut self,
        name: &str,
        subscription: &CheckedSubscription,
        counters: &Counters,
        replayed: &Counters,
    ) -> u64 {
        let [own, jobs] = subscription.pending;
        if replayed.pending != jobs {
            self.report.add_problem(format!(
                "{name}: {} pending of jobs, but {}",
                replayed.pending,
                count_with_noun(jobs, "record")
            ));
        }
        let pending = counters.pending;
        if pending == own {
            return pending;
        }
        let what = format!(
            "{name}: {pending} pending, but {}",
            count_with_noun(own, "record")
        );
        let correction = Counters {
            pending: own,
            ..*counters
        };
        if adds_up(counters) || !adds_up(&correction) {
            self.report.add_problem(what);
            return pending;
        }
        self.report.add_repairable(Repair::Pending, what);
        own
    }

    /// Reports that `dead_lettered` is not the sum of the dead letters that were handled and those
    /// that wait, and returns what it should be, as [`Self::correct_pending`] does.
    fn correct_dead_lettered(
        &mut self,
        name: &str,
        [handled, waiting]: [u64; 2],
        counters: &Counters,
        replayed: &Counters,
    ) -> u64 {
        let dead_letters = checked_sum([counters.dead_lettered, replayed.dead_lettered]);
        let dead_letters = dead_letters.unwrap_or(u64::MAX);
        let what = format!(
            "{name}: {dead_letters} dead-lettered is not the sum of {waiting} waiting and {handled} \
             written or lost"
        );
        let own = checked_sum([handled, waiting])
            .and_then(|counted| counted.checked_sub(replayed.dead_lettered));
        if let Some(dead_lettered) = own.filter(|_| !adds_up(counters)) {
            let correction = Counters {
                dead_lettered,
                ..*counters
            };
            if adds_up(&correction) {
                self.report.add_repairable(Repair::DeadLettered, what);
                return dead_lettered;
            }
        }
        self.report.add_problem(what);
        counters.dead_lettered
    }

    /// Compares the next due time of a cursor with the first pending delivery, and returns what it
    /// should be.
    fn check_next_due(
        &mut self,
        name: &str,
        subscription: &CheckedSubscription,
    ) -> Option<Timestamp> {
        let CheckedSubscription {
            next_due,
            first_due,
            ..
        } = *subscription;
        let is_late = |first: &Timestamp| next_due.is_none_or(|next| next > *first);
        let Some(first) = first_due.filter(is_late) else {
            return next_due;
        };
        let next = next_due.map_or("never".to_owned(), |next| next.to_string());
        let what = format!(
            "{name}: the first pending delivery is due at {first}, but the cursor says {next}"
        );
        self.report.add_repairable(Repair::NextDue, what);
        Some(first)
    }

    /// Adds the repair of a cursor.
    fn correct_cursor(
        &mut self,
        subscription_key: SubscriptionKey,
        counters: Counters,
        next_due: Option<Timestamp>,
    ) -> Result<(), CheckStop> {
        let key = keys::cursor(subscription_key);
        let cursor = self.store.get(Family::Cursor, &key)?;
        if let Some(Ok(cursor)) = cursor.map(|cursor| Cursor::decode(&cursor)) {
            let correction = Cursor {
                counters,
                next_due,
                ..cursor
            };
            let put = WriteOp::Put(Family::Cursor, key, correction.encode().into());
            self.keep_operation(put);
        }
        Ok(())
    }

    fn report_pins(&mut self, name: &str, dead: u64, pins: u64) {
        if pins != dead {
            self.report.add_problem(unequal_pins(name, dead, pins));
        }
    }

    /// Reports pins without a dead letter. No dead letter is missing, so they are not needed. Only
    /// this step has all dead letters of a subscription in memory at once.
    fn report_stray_pins(
        &mut self,
        subscription_key: SubscriptionKey,
        dead: u64,
        pins: u64,
    ) -> Result<(), CheckStop> {
        let mut dead_letters = HashSet::new();
        self.visit_range(
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

/// Whether `matched` is the sum of its parts.
fn adds_up(counters: &Counters) -> bool {
    checked_sum(parts_of_matched(counters)) == Some(counters.matched)
}

/// The counters of what became of matched events. Their sum is `matched`.
pub(crate) fn parts_of_matched(counters: &Counters) -> [u64; 5] {
    [
        counters.delivered,
        counters.pending,
        counters.dead_lettered,
        counters.dropped,
        counters.canceled,
    ]
}

fn unequal_pins(name: &str, dead: u64, pins: u64) -> String {
    format!(
        "{name}: {} waiting, but {} pinned",
        count_with_noun(dead, "dead letter"),
        count_with_noun(pins, "event")
    )
}
