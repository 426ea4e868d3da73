//! Mends what can be mended without losing anything: look, write what was found to mend, and look again.
//!
//! Each look sees what the one before has mended, so that what was hidden behind it is found too. A look that finds nothing
//! to mend is the last. A key that stands twice behind its removal (see [`rocks`](crate::store::rocks)) takes a look for
//! each; more looks than [`ROUNDS`] mean that something is written and not there, and that is not for a program to mend.

use super::{CheckObserver, CheckProgress, CheckReport, CheckStop, DeadLetterAccounts, look};
use crate::store::{Store, StoreError};

/// Far more than any damage takes: a look can mend [`MENDS_MAX`](super::MENDS_MAX) records.
const ROUNDS: usize = 10_000;

/// Looks at everything and mends it, as far as that loses nothing. The report is that of the last look.
pub fn repair(
    store: &dyn Store,
    accounts: DeadLetterAccounts,
    watch: &mut CheckObserver<'_>,
) -> Result<CheckReport, CheckStop> {
    let mut mended = 0;
    for _ in 0..ROUNDS {
        let (mut report, mends) = look(store, accounts, &mut |progress: CheckProgress| watch(progress))?;
        if mends.0.is_empty() {
            report.repaired = Some(mended);
            return Ok(report);
        }
        store.write(&mends)?;
        mended += mends.0.len() as u64;
    }
    Err(StoreError::Failed(format!("after {mended} records mended there is still more to mend")).into())
}
