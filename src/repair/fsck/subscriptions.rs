//! Whether what the store has of each subscription is what its cursor says.

use std::{collections::HashSet, mem};

use super::{CheckStop, CheckedSubscription, Repair, StoreCheck, subscription_name, sum};
use crate::{
    event::SubscriptionKey,
    policy::record::{Counters, Cursor},
    store::{
        Family, WriteOp,
        keys::{self, MetaKind},
        records::StoredRecord,
    },
};

impl StoreCheck<'_> {
    /// Each version of a filter can be read. A record of the control plane that cannot be refuses the start by itself.
    pub(super) fn filters(&mut self) -> Result<(), CheckStop> {
        self.each_in(Family::Meta, &keys::meta_of(MetaKind::Filter), |check, key, value| {
            if let Err(why) = (check.accounts.readable)(MetaKind::Filter, value) {
                let name = String::from_utf8_lossy(key.get(2..).unwrap_or_default()).into_owned();
                check.report.wrong(format!("the version {name} of a filter cannot be read: {why}"));
            }
            Ok(())
        })
    }

    /// What each subscription says it has is what it has.
    pub(super) fn shares(&mut self) -> Result<(), CheckStop> {
        for (subscription_key, share) in mem::take(&mut self.shares) {
            let CheckedSubscription { reaped, has_cursor, pending: [own, jobs], dead, .. } = share;
            match (has_cursor, reaped) {
                (true, true) => {
                    self.report.wrong(format!("{} was deleted and has a cursor", subscription_name(subscription_key)))
                }
                (false, false) => {
                    self.report.wrong(format!(
                        "{}: {} owed, {dead} dead letters and no cursor",
                        subscription_name(subscription_key),
                        own + jobs
                    ));
                }
                (true, false) | (false, true) => {}
            }
            self.counts(subscription_key, &share)?;
        }
        Ok(())
    }

    /// `pending` and `dead_lettered` say what other records say too. Where one of them alone is wrong, so that the equation
    /// holds with what these say, it can be mended; where the equation holds without, it is the records that are missing.
    fn counts(&mut self, subscription_key: SubscriptionKey, share: &CheckedSubscription) -> Result<(), CheckStop> {
        let CheckedSubscription { columns, next_due, pending: [owed, jobs], first_due, dead, pins, .. } = *share;
        let who = subscription_name(subscription_key);
        let Some([counters, replayed]) = columns else {
            self.report_pins(&who, dead, pins);
            return Ok(());
        };
        let Counters { matched, delivered, pending, dead_lettered, dropped, canceled, .. } = counters;
        let adds_up = |pending, dead_lettered| {
            sum([delivered, pending, dead_lettered, dropped, canceled]).is_some_and(|sum| sum == matched)
        };
        let is_wrong = !adds_up(pending, dead_lettered);
        let name = (self.accounts.name)(subscription_key);
        let account = self.store.get(Family::Meta, &keys::meta(MetaKind::DeadLetters, name.as_bytes()))?;
        // An account that cannot be read was told of.
        let dealt_with = account.map_or(Some(0), |account| (self.accounts.dealt_with)(&account));
        let given_up = dealt_with.map(|dealt_with| sum([dealt_with, dead]));
        let put_aside = sum([dead_lettered, replayed.dead_lettered]);
        let mut mended = counters;
        if replayed.pending != jobs {
            self.report.wrong(format!("{who}: {} pending of jobs and {jobs} owed records", replayed.pending));
        }
        if pending != owed {
            let what = format!("{who}: {pending} pending and {owed} owed records");
            if is_wrong && adds_up(owed, dead_lettered) {
                mended.pending = owed;
                self.report.mendable_wrong(Repair::Pending, what);
            } else {
                self.report.wrong(what);
            }
        }
        if let (Some(dealt_with), Some(given_up)) = (dealt_with, given_up.filter(|given_up| *given_up != put_aside)) {
            let put_aside = put_aside.unwrap_or(u64::MAX);
            let what = format!("{who}: {put_aside} dead-lettered, {dead} waiting and {dealt_with} written or lost");
            let own = given_up.and_then(|given_up| given_up.checked_sub(replayed.dead_lettered));
            match own.filter(|given_up| is_wrong && adds_up(pending, *given_up)) {
                Some(given_up) => {
                    mended.dead_lettered = given_up;
                    self.report.mendable_wrong(Repair::DeadLettered, what);
                }
                None => self.report.wrong(what),
            }
        }
        if is_wrong && mended == counters {
            self.report.wrong(format!("{who}: {matched} matched and not as many accounted for: {counters:?}"));
        }
        if pins == dead || given_up != Some(put_aside) {
            self.report_pins(&who, dead, pins);
        } else {
            self.stray_pins(subscription_key, dead, pins)?;
        }
        let mut due = next_due;
        if let Some(first) = first_due.filter(|first| next_due.is_none_or(|next| next > *first)) {
            let says = next_due.map_or("never".to_owned(), |next| next.to_string());
            due = Some(first);
            let what = format!("{who}: the first owed event falls due at {first}, and its cursor says {says}");
            self.report.mendable_wrong(Repair::NextDue, what);
        }
        if (mended, due) != (counters, next_due)
            && let Some(Ok(cursor)) =
                self.store.get(Family::Cursor, &keys::cursor(subscription_key))?.map(|cursor| Cursor::decode(&cursor))
        {
            let cursor = Cursor { counters: mended, next_due: due, ..cursor };
            self.keep(WriteOp::Put(Family::Cursor, keys::cursor(subscription_key), cursor.encode().into()));
        }
        Ok(())
    }

    fn report_pins(&mut self, who: &str, dead: u64, pins: u64) {
        if pins != dead {
            self.report.wrong(format!("{who}: {dead} dead letters wait and {pins} events are pinned"));
        }
    }

    /// No dead letter is missing, so that pins without one are for nothing. Only here are all dead letters of a subscription
    /// in memory at once.
    fn stray_pins(&mut self, subscription_key: SubscriptionKey, dead: u64, pins: u64) -> Result<(), CheckStop> {
        let mut letters = HashSet::new();
        self.each_in(Family::Dead, &keys::dead_of(subscription_key), |_, key, _| {
            letters.extend(keys::parse_dead(key).map(|(_, _, seq, lane)| (seq, lane)));
            Ok(())
        })?;
        let what =
            format!("{}: {dead} dead letters wait and {pins} events are pinned", subscription_name(subscription_key));
        self.each(Family::Pin, |check, key, _| {
            let Some((partition, seq, subscription, lane)) = keys::parse_pin(key) else { return Ok(()) };
            if (SubscriptionKey { partition, subscription }) == subscription_key && !letters.contains(&(seq, lane)) {
                let what = format!("{what}: event {} in lane {} for none of them", seq.0, lane.0);
                check.mend(Repair::StrayPin, what, WriteOp::Delete(Family::Pin, key.to_vec()));
            }
            Ok(())
        })
    }
}
