//! Finds the beginning and end of each log, and its gaps.

use bytes::Bytes;

use super::Salvage;
use crate::fsck::CheckStop;
use gridhook_escape::count_with_noun;
use gridhook_event::{PartitionId, Seq, chunk::Chunk};
use gridhook_store::{
    Family,
    damage::LogGap,
    keys,
    records::{FloorRecord, StoredRecord},
};

/// The state of a partition.
#[derive(Default)]
pub(super) struct PartitionSummary {
    pub(super) record: Option<FloorRecord>,
}

impl Salvage<'_> {
    pub(super) fn salvage_logs(&mut self) -> Result<(), CheckStop> {
        // Deleted logs and logs without a topic are not read.
        let ids: Vec<PartitionId> = self
            .parts
            .keys()
            .copied()
            .filter(|id| self.has_partition(*id))
            .collect();
        for id in ids {
            self.salvage_log(id)?;
        }
        let mut unknown_partitions = Vec::new();
        let parts = &self.parts;
        let range = keys::family_range(Family::Log);
        self.store
            .scan(Family::Log, &range.start, &range.end, &mut |key, _| {
                unknown_partitions
                    .extend(keys::parse_log(key).filter(|(id, _)| !parts.contains_key(id)));
                std::ops::ControlFlow::Continue(())
            })?;
        if let (Some((first, _)), Some((last, _))) =
            (unknown_partitions.first(), unknown_partitions.last())
        {
            let what = format!(
                "removed: {} of partitions {} to {}, which belong to no topic",
                count_with_noun(unknown_partitions.len() as u64, "chunk"),
                first.0,
                last.0
            );
            self.loss.add_record(what);
        }
        for (id, first) in unknown_partitions {
            self.delete_record(Family::Log, keys::log(id, first))?;
        }
        Ok(())
    }

    fn salvage_log(&mut self, id: PartitionId) -> Result<(), CheckStop> {
        let was = self.parts.get(&id).and_then(|part| part.record);
        let floor_record = was.unwrap_or(FloorRecord {
            floor: Seq::FIRST,
            next: Seq::FIRST,
            ..FloorRecord::default()
        });
        if was.is_none() {
            self.loss
                .add_record(format!("new: the record of partition {}", id.0));
        }
        let lows = self
            .cursors
            .iter()
            .filter(|(of, _)| of.partition == id && self.wanted.contains(of));
        let low = lows
            .filter_map(|(_, cursor)| cursor.first_unread())
            .min()
            .unwrap_or(Seq(u64::MAX));
        let mut record = floor_record;
        let mut next = None;
        let mut gaps = Vec::new();
        self.visit_range(Family::Log, &keys::log_of(id), |_, key, value| {
            let Some((_, first)) = keys::parse_log(key) else {
                return Ok(());
            };
            let Ok(chunk) = Chunk::decode(first, Bytes::copy_from_slice(value)) else {
                return Ok(());
            };
            if chunk.end_seq() <= floor_record.floor {
                return Ok(());
            }
            match next {
                // Chunks that all subscriptions have passed may be missing: then the floor record
                // is an older version.
                None => record.floor = record.floor.max(first),
                Some(next) if first > next => gaps.push((next, first)),
                Some(_) => {}
            }
            next = Some(chunk.end_seq());
            record.appended = record.appended.max(chunk.appended);
            record.running = chunk.totals_after();
            Ok(())
        })?;
        let above = self
            .above
            .get(&id)
            .copied()
            .unwrap_or(Seq::FIRST)
            .max(floor_record.next);
        let ends = next.unwrap_or(record.floor);
        record.next = above.max(ends);
        if next.is_none() {
            record.floor = record.next;
        } else if record.next > ends {
            gaps.push((ends, record.next));
        }
        if record.next > ends {
            record.running.count = record.running.count.max(floor_record.running.count);
            record.running.bytes = record.running.bytes.max(floor_record.running.bytes);
        }
        let begins = floor_record.floor.max(low.min(record.floor));
        if was.is_some() && begins < record.floor {
            self.record_gap(id, begins, record.floor);
        }
        for (first, end) in gaps {
            let record = self.store.get(Family::Meta, &keys::loss_key(id, first))?;
            if record.is_some_and(|record| record[..] >= keys::loss_value(end)[..]) {
                // The gap was accepted before.
                continue;
            }
            self.record_gap(id, first, end);
            self.put_record(
                Family::Meta,
                keys::loss_key(id, first),
                keys::loss_value(end),
            )?;
        }
        self.parts.entry(id).or_default().record = Some(record);
        Ok(self.put_record(Family::Meta, keys::floor_key(id), record.encode())?)
    }

    fn record_gap(&mut self, PartitionId(partition): PartitionId, first: Seq, end: Seq) {
        self.loss.add_gap(LogGap {
            partition,
            first: first.0,
            count: end.0 - first.0,
        });
    }

    pub(super) fn floor_of_partition(&self, id: PartitionId) -> Seq {
        let record = self.parts.get(&id).and_then(|part| part.record);
        record.map_or(Seq::FIRST, |record| record.floor)
    }
}
