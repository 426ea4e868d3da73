//! Checks that each log begins at its floor, is dense, and has running totals that add up.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{CheckStop, CheckedLog, StoreCheck};
use gridhook_escape::count_with_noun;
use gridhook_event::{
    PartitionId, Seq,
    chunk::{Chunk, RunningTotals},
};
use gridhook_store::{
    Family,
    keys::{self, MetaKind},
    log::LogEnd,
    records::{FloorRecord, StoredRecord},
};

impl StoreCheck<'_> {
    pub(super) fn check_floors(&mut self) -> Result<(), CheckStop> {
        self.visit_range(
            Family::Meta,
            &keys::meta_of(MetaKind::Floor),
            |check, key, value| {
                match (keys::parse_floor(key), FloorRecord::decode(value)) {
                    (Some(id), Ok(record)) => {
                        check.report.add_count(
                            "partitions",
                            u64::from(record.floor != FloorRecord::ABANDONED),
                        );
                        check.logs.insert(id, CheckedLog { record, end: None });
                    }
                    (Some(id), Err(error)) => check
                        .report
                        .add_problem(format!("the floor of partition {}: {error}", id.0)),
                    (None, _) => check
                        .report
                        .add_problem(format!("the key of a floor cannot be parsed: {key:02x?}")),
                }
                Ok(())
            },
        )?;
        self.visit_range(
            Family::Meta,
            &keys::meta_of(MetaKind::Loss),
            |check, key, value| {
                match keys::parse_loss(key, value) {
                    Some((id, first, end)) => drop(check.losses.insert((id, first), end)),
                    None => check.report.add_problem(format!(
                        "the record of an accepted loss is damaged: {key:02x?}"
                    )),
                }
                Ok(())
            },
        )
    }

    pub(super) fn check_log(&mut self) -> Result<(), CheckStop> {
        let result = self.visit_records(Family::Log, |check, key, value| {
            check.check_chunk(key, value);
            Ok(())
        });
        for (PartitionId(id), CheckedLog { record, end }) in &self.logs {
            let next = end.map_or(record.floor, |end| end.next);
            let is_accepted_loss = is_accepted(&self.losses, PartitionId(*id), next, record.next);
            if record.floor != FloorRecord::ABANDONED && next < record.next && !is_accepted_loss {
                let was = record.next.0;
                self.report.add_problem(format!(
                    "partition {id}: the log ends at {}, but ended at {was} before",
                    next.0
                ));
            }
            if let Some(end) =
                end.filter(|end| end.next == record.next && end.running != record.running)
            {
                let found = describe_totals(end.running);
                let was = describe_totals(record.running);
                self.report.add_problem(format!(
                    "partition {id}: the log ends after {found} instead of {was}"
                ));
            }
        }
        result
    }

    fn check_chunk(&mut self, key: &[u8], value: &[u8]) {
        let Some((id, first)) = keys::parse_log(key) else {
            return self
                .report
                .add_problem(format!("the key of a chunk cannot be parsed: {key:02x?}"));
        };
        let at = format!("partition {}: the chunk at {}", id.0, first.0);
        let Some(log) = self.logs.get_mut(&id) else {
            return self
                .report
                .add_problem(format!("{at} belongs to no partition"));
        };
        if log.record.floor == FloorRecord::ABANDONED {
            return;
        }
        let chunk = match Chunk::decode(first, Bytes::copy_from_slice(value)) {
            Ok(chunk) => chunk,
            Err(error) => return self.report.add_problem(format!("{at}: {error}")),
        };
        // Some chunks below the floor may still exist.
        if chunk.end_seq() <= log.record.floor {
            return;
        }
        let begins = log.end.map_or(log.record.floor, |end| end.next);
        let gap_is_known = is_accepted(&self.losses, id, begins, first);
        if first > begins && !gap_is_known {
            self.report
                .add_problem(format!("{at} follows a gap that begins at {}", begins.0));
        }
        if let Some(end) = log.end {
            if first < end.next {
                self.report.add_problem(format!(
                    "{at} overlaps the chunk before it, which ends at {}",
                    end.next.0
                ));
            } else if chunk.before != end.running && !(first > end.next && gap_is_known) {
                let found = describe_totals(end.running);
                let says = describe_totals(chunk.before);
                self.report
                    .add_problem(format!("{at} follows {found}, but its header says {says}"));
            }
        }
        if let Err(error) = chunk.decode_events() {
            self.report.add_problem(format!("{at}: {error}"));
        }
        log.end = Some(LogEnd {
            next: chunk.end_seq(),
            running: chunk.totals_after(),
        });
        self.report.add_count("chunks", 1);
        self.report.add_count("events", chunk.count.into());
    }
}

/// Whether all sequences from `first` to before `end` were accepted as lost.
fn is_accepted(
    losses: &BTreeMap<(PartitionId, Seq), Seq>,
    id: PartitionId,
    first: Seq,
    end: Seq,
) -> bool {
    let note = losses.range(..=(id, first)).next_back();
    note.is_some_and(|((of, _), lost)| *of == id && *lost >= end)
}

fn describe_totals(RunningTotals { count, bytes }: RunningTotals) -> String {
    format!(
        "{} in {}",
        count_with_noun(count, "event"),
        count_with_noun(bytes, "byte")
    )
}
