//! Whether what the store has of each subscription is what its cursor says.

use std::{collections::HashSet, mem};

use super::{Check, Mend, Share, Stop, sum, who};
use crate::{
    event::Obligor,
    journal::{
        keys::{self, MetaKind},
        records::Record,
        store::{Family, Op},
    },
    policy::record::{Counters, Cursor},
};

impl Check<'_> {
    /// Each version of a filter can be read. A record of the control plane that cannot be refuses the start by itself.
    pub(super) fn filters(&mut self) -> Result<(), Stop> {
        self.each_in(Family::Meta, &keys::meta_of(MetaKind::Filter), |check, key, value| {
            if let Err(why) = (check.accounts.readable)(MetaKind::Filter, value) {
                let name = String::from_utf8_lossy(key.get(2..).unwrap_or_default()).into_owned();
                check.report.wrong(format!("the version {name} of a filter cannot be read: {why}"));
            }
            Ok(())
        })
    }

    /// What each subscription says it has is what it has.
    pub(super) fn shares(&mut self) -> Result<(), Stop> {
        for (obligor, share) in mem::take(&mut self.shares) {
            let Share { reaped, has_cursor, owed: [own, jobs], dead, .. } = share;
            match (has_cursor, reaped) {
                (true, true) => self.report.wrong(format!("{} was deleted and has a cursor", who(obligor))),
                (false, false) => {
                    self.report.wrong(format!(
                        "{}: {} owed, {dead} dead letters and no cursor",
                        who(obligor),
                        own + jobs
                    ));
                }
                (true, false) | (false, true) => {}
            }
            self.counts(obligor, &share)?;
        }
        Ok(())
    }

    /// `pending` and `dead_lettered` say what other records say too. Where one of them alone is wrong, so that the equation
    /// holds with what these say, it can be mended; where the equation holds without, it is the records that are missing.
    fn counts(&mut self, obligor: Obligor, share: &Share) -> Result<(), Stop> {
        let Share { columns, next_due, owed: [owed, jobs], first_due, dead, pins, .. } = *share;
        let who = who(obligor);
        let Some([counters, replayed]) = columns else {
            self.tell_pins(&who, dead, pins);
            return Ok(());
        };
        let Counters { matched, delivered, pending, dead_lettered, dropped, canceled, .. } = counters;
        let adds_up = |pending, dead_lettered| {
            sum([delivered, pending, dead_lettered, dropped, canceled]).is_some_and(|sum| sum == matched)
        };
        let is_wrong = !adds_up(pending, dead_lettered);
        let name = (self.accounts.name)(obligor);
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
                self.report.mendable_wrong(Mend::Pending, what);
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
                    self.report.mendable_wrong(Mend::DeadLettered, what);
                }
                None => self.report.wrong(what),
            }
        }
        if is_wrong && mended == counters {
            self.report.wrong(format!("{who}: {matched} matched and not as many accounted for: {counters:?}"));
        }
        if pins == dead || given_up != Some(put_aside) {
            self.tell_pins(&who, dead, pins);
        } else {
            self.stray_pins(obligor, dead, pins)?;
        }
        let mut due = next_due;
        if let Some(first) = first_due.filter(|first| next_due.is_none_or(|next| next > *first)) {
            let says = next_due.map_or("never".to_owned(), |next| next.to_string());
            due = Some(first);
            let what = format!("{who}: the first owed event falls due at {first}, and its cursor says {says}");
            self.report.mendable_wrong(Mend::NextDue, what);
        }
        if (mended, due) != (counters, next_due)
            && let Some(Ok(cursor)) =
                self.store.get(Family::Cursor, &keys::cursor(obligor))?.map(|cursor| Cursor::decode(&cursor))
        {
            let cursor = Cursor { counters: mended, next_due: due, ..cursor };
            self.keep(Op::Put(Family::Cursor, keys::cursor(obligor), cursor.encode().into()));
        }
        Ok(())
    }

    fn tell_pins(&mut self, who: &str, dead: u64, pins: u64) {
        if pins != dead {
            self.report.wrong(format!("{who}: {dead} dead letters wait and {pins} events are pinned"));
        }
    }

    /// No dead letter is missing, so that pins without one are for nothing. Only here are all dead letters of a subscription
    /// in memory at once.
    fn stray_pins(&mut self, obligor: Obligor, dead: u64, pins: u64) -> Result<(), Stop> {
        let mut letters = HashSet::new();
        self.each_in(Family::Dead, &keys::dead_of(obligor), |_, key, _| {
            letters.extend(keys::parse_dead(key).map(|(_, _, seq, lane)| (seq, lane)));
            Ok(())
        })?;
        let what = format!("{}: {dead} dead letters wait and {pins} events are pinned", who(obligor));
        self.each(Family::Pin, |check, key, _| {
            let Some((partition, seq, subscription, lane)) = keys::parse_pin(key) else { return Ok(()) };
            if (Obligor { partition, subscription }) == obligor && !letters.contains(&(seq, lane)) {
                let what = format!("{what}: event {} in lane {} for none of them", seq.0, lane.0);
                check.mend(Mend::StrayPin, what, Op::Delete(Family::Pin, key.to_vec()));
            }
            Ok(())
        })
    }
}
