//! Checks that the id filter of each block contains the ids of all its events in the log, and that
//! each published id can be decoded.

use super::{CheckStop, StoreCheck};
use gridhook_store::{
    Family, StoreError,
    id_filter::{self, IdFilter},
    keys,
    records::{FloorRecord, PublishedId, StoredRecord},
};

impl StoreCheck<'_> {
    pub(super) fn check_ids(&mut self) -> Result<(), CheckStop> {
        self.visit_records(Family::Ids, |check, key, value| {
            check.report.add_count("id filters", 1);
            let (Some((id, block)), Some(found)) = (keys::parse_ids(key), IdFilter::decode(value))
            else {
                check
                    .report
                    .add_problem(format!("an id filter is damaged: {key:02x?}"));
                return Ok(());
            };
            let floor = check
                .logs
                .get(&id)
                .map_or(FloorRecord::ABANDONED, |log| log.record.floor);
            match id_filter::find_missed(check.store, id, block, &found, floor) {
                Ok(Some(seq)) => {
                    check.report.add_problem(format!(
                        "partition {}: the id of event {} is missing in the filter of its block",
                        id.0, seq.0
                    ));
                    Ok(())
                }
                // Damage of the log was already reported.
                Ok(None) | Err(StoreError::Damaged(_)) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })?;
        self.visit_records(Family::PublishedIds, |check, key, value| {
            check.report.add_count("published ids", 1);
            if keys::parse_published_id(key).is_none() || PublishedId::decode(value).is_err() {
                check
                    .report
                    .add_problem(format!("a published id is damaged: {key:02x?}"));
            }
            Ok(())
        })
    }
}
