//! Repairs what can be repaired without loss: checks, writes the repairs, and checks again.
//!
//! Each pass sees the repairs of the previous one, and finds problems that were hidden before. The
//! pass that finds nothing to repair is the last. A key that is in the log twice after its deletion
//! (see [`rocks`](gridhook_store::rocks)) needs one pass for each. More than [`ROUNDS`] passes mean
//! that written repairs do not take effect.

use super::{CheckObserver, CheckProgress, CheckReport, CheckStop, RecordDecoders, check_all};
use gridhook_escape::count_with_noun;
use gridhook_store::{Store, StoreError};

/// Far more passes than any damage needs: one pass can repair [`REPAIRS_MAX`](super::REPAIRS_MAX)
/// records.
const ROUNDS: usize = 10_000;

/// Checks the whole store and repairs what can be repaired without loss. Returns the report of the
/// last pass.
pub fn repair_store(
    store: &dyn Store,
    decoders: RecordDecoders,
    observer: &mut CheckObserver<'_>,
) -> Result<CheckReport, CheckStop> {
    let mut repair_count = 0;
    for _ in 0..ROUNDS {
        let (mut report, repairs) = check_all(store, decoders, &mut |progress: CheckProgress| {
            observer(progress)
        })?;
        if repairs.0.is_empty() {
            report.repaired = Some(repair_count);
            return Ok(report);
        }
        store.write(&repairs)?;
        repair_count += repairs.0.len() as u64;
    }
    let repairs = count_with_noun(repair_count, "repair");
    Err(StoreError::Failed(format!("problems remain after {repairs}")).into())
}
