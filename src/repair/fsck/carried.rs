//! Checks that each carried event can be read and is needed.

use bytes::Bytes;

use super::{CheckStop, Repair, StoreCheck};
use gridhook_event::chunk::Chunk;
use gridhook_store::{Family, WriteOp, keys};

impl StoreCheck<'_> {
    pub(super) fn check_carried(&mut self) -> Result<(), CheckStop> {
        self.visit_records(Family::Carried, |check, key, value| {
            let Some((id, seq)) = keys::parse_carried(key) else {
                check.report.add_problem(format!(
                    "the key of a carried event cannot be parsed: {key:02x?}"
                ));
                return Ok(());
            };
            check.report.add_count("carried", 1);
            let at = format!("partition {}: event {}", id.0, seq.0);
            let read = Chunk::decode(seq, Bytes::copy_from_slice(value))
                .and_then(|chunk| chunk.decode_events());
            if let Err(error) = read {
                check
                    .report
                    .add_problem(format!("{at} is carried and cannot be read: {error}"));
            }
            let mut is_needed = false;
            for (family, range) in [
                (Family::Pending, keys::pending_of_event(id, seq)),
                (Family::Pin, keys::pins_of_event(id, seq)),
            ] {
                is_needed |= check
                    .store
                    .last(family, &range.start, &range.end)?
                    .is_some();
            }
            if !is_needed {
                let what = format!("{at} is carried and not needed");
                check.add_repairable(
                    Repair::StrayCarried,
                    what,
                    WriteOp::Delete(Family::Carried, key.to_vec()),
                );
            }
            Ok(())
        })
    }
}
