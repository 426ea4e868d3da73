//! Checks that each held event can be read and is needed.

use bytes::Bytes;

use super::{CheckStop, Repair, StoreCheck};
use crate::store::{Family, WriteOp, chunk::Chunk, keys};

impl StoreCheck<'_> {
    pub(super) fn held(&mut self) -> Result<(), CheckStop> {
        self.each(Family::Held, |check, key, value| {
            let Some((id, seq)) = keys::parse_held(key) else {
                check.report.wrong(format!("the key of a held event cannot be parsed: {key:02x?}"));
                return Ok(());
            };
            check.report.count("held", 1);
            let at = format!("partition {}: event {}", id.0, seq.0);
            let read = Chunk::decode(seq, Bytes::copy_from_slice(value)).and_then(|chunk| chunk.events());
            if let Err(error) = read {
                check.report.wrong(format!("{at} is held and cannot be read: {error}"));
            }
            let mut is_needed = false;
            for (family, range) in
                [(Family::Pending, keys::pending_of_event(id, seq)), (Family::Pin, keys::pins_of_event(id, seq))]
            {
                is_needed |= check.store.last(family, &range.start, &range.end)?.is_some();
            }
            if !is_needed {
                let what = format!("{at} is held and not needed");
                check.repairable(Repair::StrayHeld, what, WriteOp::Delete(Family::Held, key.to_vec()));
            }
            Ok(())
        })
    }
}
