//! Whether the filter of each block of ids misses no event that is in the log.

use super::{CheckStop, StoreCheck};
use crate::store::{
    Family, StoreError,
    id_filter::{self, IdFilter},
    keys,
    records::FloorRecord,
};

impl StoreCheck<'_> {
    pub(super) fn ids(&mut self) -> Result<(), CheckStop> {
        self.each(Family::Ids, |check, key, value| {
            check.report.count("blocks of ids", 1);
            let (Some((id, block)), Some(found)) = (keys::parse_ids(key), IdFilter::decode(value)) else {
                check.report.wrong(format!("the ids of a block: {key:02x?}"));
                return Ok(());
            };
            let floor = check.logs.get(&id).map_or(FloorRecord::ABANDONED, |log| log.record.floor);
            match id_filter::missed(check.store, id, block, &found, floor) {
                Ok(Some(seq)) => {
                    check.report.wrong(format!("partition {}: the id of event {} is not in its block", id.0, seq.0));
                    Ok(())
                }
                // Damage of the log was told.
                Ok(None) | Err(StoreError::Damaged(_)) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }
}
