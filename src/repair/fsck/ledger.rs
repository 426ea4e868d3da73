//! Checks that each ledger line and each response excerpt can be decoded and matches its key.

use super::{CheckStop, StoreCheck};
use gridhook_policy::record::Excerpt;
use gridhook_store::{
    Family, keys, ledger,
    records::{StoredRecord, ledger_lines},
};

impl StoreCheck<'_> {
    pub(super) fn check_ledger(&mut self) -> Result<(), CheckStop> {
        self.visit_range(
            Family::Ledger,
            &keys::ledgers_range(),
            |check, key, value| {
                let by_event = keys::parse_ledger(key);
                let by_time = keys::parse_ledger_by_time(key);
                let key = by_event.or(by_time);
                match (key, key.map(|key| ledger_lines(key, value))) {
                    (Some(key), Some(Ok(lines)))
                        if ledger::matches_key(&lines, key, by_event.is_some()) =>
                    {
                        check.report.add_count(
                            "ledger lines",
                            if by_time.is_some() {
                                lines.len() as u64
                            } else {
                                0
                            },
                        );
                    }
                    (key, lines) => check.report.add_problem(format!(
                        "a ledger line is damaged or has another's key: {key:?} {lines:?}"
                    )),
                }
                Ok(())
            },
        )?;
        self.visit_records(Family::Excerpt, |check, key, value| {
            check.report.add_count("excerpts", 1);
            match (keys::parse_excerpt(key), Excerpt::decode(value)) {
                (Some(_), Ok(_)) => {}
                (key, excerpt) => check.report.add_problem(format!(
                    "a response excerpt is damaged: {key:?} {excerpt:?}"
                )),
            }
            Ok(())
        })
    }
}
