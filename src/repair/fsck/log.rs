//! Whether each log begins at its floor, is dense, and adds up.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{CheckStop, CheckedLog, StoreCheck};
use crate::{
    event::{PartitionId, Seq},
    store::{
        Family,
        chunk::Chunk,
        keys::{self, MetaKind},
        log::LogEnd,
        records::{FloorRecord, StoredRecord},
    },
};

impl StoreCheck<'_> {
    pub(super) fn floors(&mut self) -> Result<(), CheckStop> {
        self.each_in(Family::Meta, &keys::meta_of(MetaKind::Floor), |check, key, value| {
            match (keys::parse_floor(key), FloorRecord::decode(value)) {
                (Some(id), Ok(record)) => {
                    check.report.count("partitions", u64::from(record.floor != FloorRecord::ABANDONED));
                    check.logs.insert(id, CheckedLog { record, end: None });
                }
                (id, record) => check.report.wrong(format!("the floor of {id:?}: {record:?}")),
            }
            Ok(())
        })?;
        self.each_in(Family::Meta, &keys::meta_of(MetaKind::Loss), |check, key, value| {
            match keys::parse_loss(key, value) {
                Some((id, first, end)) => drop(check.losses.insert((id, first), end)),
                None => check.report.wrong(format!("a note of a loss: {key:02x?}")),
            }
            Ok(())
        })
    }

    pub(super) fn log(&mut self) -> Result<(), CheckStop> {
        let looked = self.each(Family::Log, |check, key, value| {
            check.chunk(key, value);
            Ok(())
        });
        for (PartitionId(id), CheckedLog { record, end }) in &self.logs {
            let next = end.map_or(record.floor, |end| end.next);
            let accepted = is_accepted(&self.losses, PartitionId(*id), next, record.next);
            if record.floor != FloorRecord::ABANDONED && next < record.next && !accepted {
                let was = record.next.0;
                self.report.wrong(format!("partition {id}: its log ends at {} and was at {was} before", next.0));
            }
            if let Some(end) = end.filter(|end| end.next == record.next && end.running != record.running) {
                let (found, was) = (end.running, record.running);
                self.report.wrong(format!("partition {id}: its log ends with {found:?} and not with {was:?}"));
            }
        }
        looked
    }

    fn chunk(&mut self, key: &[u8], value: &[u8]) {
        let Some((id, first)) = keys::parse_log(key) else {
            return self.report.wrong(format!("a key of the log: {key:02x?}"));
        };
        let at = format!("partition {}: the chunk at {}", id.0, first.0);
        let Some(log) = self.logs.get_mut(&id) else {
            return self.report.wrong(format!("{at} is of no partition"));
        };
        if log.record.floor == FloorRecord::ABANDONED {
            return;
        }
        let chunk = match Chunk::decode(first, Bytes::copy_from_slice(value)) {
            Ok(chunk) => chunk,
            Err(error) => return self.report.wrong(format!("{at}: {error}")),
        };
        // What the floor has passed may be there still, in part.
        if chunk.end() <= log.record.floor {
            return;
        }
        let begins = log.end.map_or(log.record.floor, |end| end.next);
        let gap_is_known = is_accepted(&self.losses, id, begins, first);
        if first > begins && !gap_is_known {
            self.report.wrong(format!("{at} comes behind a gap: {} is next", begins.0));
        }
        if let Some(end) = log.end {
            if first < end.next {
                self.report.wrong(format!("{at} begins in the one before, which ends at {}", end.next.0));
            } else if chunk.before != end.running && !(first > end.next && gap_is_known) {
                let (found, written) = (end.running, chunk.before);
                self.report.wrong(format!(
                    "{at} follows {} events of {} bytes, but its record says {} events of {} bytes",
                    found.count, found.bytes, written.count, written.bytes
                ));
            }
        }
        if let Err(error) = chunk.events() {
            self.report.wrong(format!("{at}: {error}"));
        }
        log.end = Some(LogEnd { next: chunk.end(), running: chunk.after() });
        self.report.count("chunks", 1);
        self.report.count("events", chunk.count.into());
    }
}

/// Whether all places from `first` up to `end` were accepted as lost.
fn is_accepted(losses: &BTreeMap<(PartitionId, Seq), Seq>, id: PartitionId, first: Seq, end: Seq) -> bool {
    let note = losses.range(..=(id, first)).next_back();
    note.is_some_and(|((of, _), lost)| *of == id && *lost >= end)
}
