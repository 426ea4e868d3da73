//! Copies the readable records of a store with damaged blocks to a new store.
//!
//! Where an iterator stops, chunks of the log are looked up one by one, so that only events in
//! damaged blocks are lost. In other families, all records of other tables between the first and
//! the last key of a damaged block are lost too: they may be older versions, or depend on missing
//! records.

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;

use crate::fsck::CheckStop;
use gridhook_event::{PartitionId, Seq};
use gridhook_store::{
    Batch, Family, Store, StoreError, damage::scan_past, keys, log::walk::LOOKUPS_MAX,
};

const BATCH_BYTES: usize = 4 << 20;

/// Counts the unreadable ranges of each family.
pub(super) fn count_damaged(store: &dyn Store) -> Result<BTreeMap<Family, u64>, CheckStop> {
    let mut ranges = BTreeMap::new();
    let range = keys::full_range();
    for family in Family::ALL {
        let mut count = 0;
        let visit = &mut |_: &[u8], _: &[u8]| ControlFlow::Continue(());
        scan_past(store, family, &range.start, &range.end, visit, &mut |_| {
            count += 1
        })?;
        if count > 0 {
            ranges.insert(family, count);
        }
    }
    Ok(ranges)
}

/// Copies all readable records of `from`.
pub(super) fn copy_readable(from: &dyn Store, to: &dyn Store) -> Result<(), CheckStop> {
    let range = keys::full_range();
    for family in Family::ALL {
        let mut copy = Copied {
            to,
            family,
            batch: Batch::default(),
            bytes: 0,
            failed: Ok(()),
        };
        let mut last: Option<Vec<u8>> = None;
        // For each unreadable range: the last key before it and the first key after it.
        let mut gaps: Vec<[Option<Vec<u8>>; 2]> = Vec::new();
        let is_missing = std::cell::Cell::new(false);
        scan_past(
            from,
            family,
            &range.start,
            &range.end,
            &mut |key, value| {
                if is_missing.take() {
                    gaps.push([last.take(), Some(key.to_vec())]);
                }
                let last = last.get_or_insert_with(Vec::new);
                last.clear();
                last.extend_from_slice(key);
                copy.put_record(key, value)
            },
            &mut |_| is_missing.set(true),
        )?;
        if is_missing.get() {
            gaps.push([last, None]);
        }
        if family == Family::Log {
            for [before, behind] in gaps {
                for (partition, first, end) in
                    sequences_between(before.as_deref(), behind.as_deref())
                {
                    copy.look_up(from, partition, first, end)?;
                }
            }
        }
        copy.flush()?;
    }
    Ok(())
}

/// The sequences that may be between two keys of the log.
fn sequences_between(before: Option<&[u8]>, behind: Option<&[u8]>) -> Vec<(PartitionId, Seq, Seq)> {
    let before = before.and_then(keys::parse_log);
    let behind = behind.and_then(keys::parse_log);
    let upto = |seq: Seq| seq.0.saturating_add(LOOKUPS_MAX);
    match (before, behind) {
        (Some((id, first)), Some((same, end))) if id == same => {
            vec![(id, first.plus(1), Seq(end.0.min(upto(first))))]
        }
        (before, behind) => {
            let before = before.map(|(id, first)| (id, first.plus(1), Seq(upto(first))));
            let behind = behind.map(|(id, end)| (id, Seq(end.0.saturating_sub(LOOKUPS_MAX)), end));
            before.into_iter().chain(behind).collect()
        }
    }
}

struct Copied<'a> {
    to: &'a dyn Store,
    family: Family,
    batch: Batch,
    bytes: usize,
    failed: Result<(), StoreError>,
}

impl Copied<'_> {
    fn put_record(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        // The new store has its own format record.
        if self.family == Family::Meta && key == keys::meta_key(keys::MetaKind::Format, b"") {
            return ControlFlow::Continue(());
        }
        self.bytes += key.len() + value.len();
        self.batch
            .put(self.family, key.to_vec(), Bytes::copy_from_slice(value));
        if self.bytes >= BATCH_BYTES {
            self.failed = self.write();
        }
        if self.failed.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    /// Copies the chunks that lookups find.
    fn look_up(
        &mut self,
        from: &dyn Store,
        id: PartitionId,
        first: Seq,
        end: Seq,
    ) -> Result<(), StoreError> {
        for seq in (first.0..end.0).map(Seq) {
            let key = keys::log(id, seq);
            match from.get(Family::Log, &key) {
                Ok(Some(value)) => drop(self.put_record(&key, &value)),
                Ok(None) | Err(StoreError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        self.to.write(&std::mem::take(&mut self.batch))
    }

    fn flush(mut self) -> Result<(), StoreError> {
        std::mem::replace(&mut self.failed, Ok(()))?;
        self.write()
    }
}
