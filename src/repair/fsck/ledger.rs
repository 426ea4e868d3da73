//! Checks that each ledger line and each response excerpt can be decoded and matches its key.

use super::{CheckStop, StoreCheck};
use crate::{
    policy::record::{Excerpt, LedgerEntry},
    store::{Family, keys, ledger, records::StoredRecord},
};

impl StoreCheck<'_> {
    pub(super) fn ledger(&mut self) -> Result<(), CheckStop> {
        self.each_in(Family::Ledger, &keys::ledgers(), |check, key, value| {
            let (by_event, by_time) = (keys::parse_ledger(key), keys::parse_ledger_by_time(key));
            check.report.count("ledger lines", by_time.is_some().into());
            match (by_event.or(by_time), LedgerEntry::decode(value)) {
                (Some(key), Ok(entry)) if ledger::is_at(&entry, key, by_event.is_some()) => {}
                (key, entry) => {
                    check.report.wrong(format!("a ledger line is damaged or has another's key: {key:?} {entry:?}"))
                }
            }
            Ok(())
        })?;
        self.each(Family::Excerpt, |check, key, value| {
            check.report.count("excerpts", 1);
            match (keys::parse_excerpt(key), Excerpt::decode(value)) {
                (Some(_), Ok(_)) => {}
                (key, excerpt) => check.report.wrong(format!("a response excerpt is damaged: {key:?} {excerpt:?}")),
            }
            Ok(())
        })
    }
}
