//! Whether each event that is held can be read, and somebody asks for it.

use bytes::Bytes;

use super::{CheckStop, Repair, StoreCheck};
use crate::store::{Family, WriteOp, chunk::Chunk, keys};

impl StoreCheck<'_> {
    pub(super) fn held(&mut self) -> Result<(), CheckStop> {
        self.each(Family::Held, |check, key, value| {
            let Some((id, seq)) = keys::parse_held(key) else {
                check.report.wrong(format!("a key of a held event: {key:02x?}"));
                return Ok(());
            };
            check.report.count("held", 1);
            let at = format!("partition {}: the event {}", id.0, seq.0);
            let read = Chunk::decode(seq, Bytes::copy_from_slice(value)).and_then(|chunk| chunk.events());
            if let Err(error) = read {
                check.report.wrong(format!("{at} is held: {error}"));
            }
            let mut wanted = false;
            for (family, range) in
                [(Family::Pending, keys::pending_of_event(id, seq)), (Family::Pin, keys::pins_of_event(id, seq))]
            {
                wanted |= check.store.last(family, &range.start, &range.end)?.is_some();
            }
            if !wanted {
                let what = format!("{at} is held and nobody asks for it");
                check.mend(Repair::StrayHeld, what, WriteOp::Delete(Family::Held, key.to_vec()));
            }
            Ok(())
        })
    }
}
