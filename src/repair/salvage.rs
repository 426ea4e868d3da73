//! Salvages a damaged store: makes a consistent store of what is left, on a copy, when an operator
//! accepts the loss.
//!
//! A server refuses a store that recovers less than was acknowledged, and one with a damaged
//! write-ahead log. Here the store is copied to a new data folder and opened with all damaged
//! records of the log skipped, and then made consistent. What is missing is listed and counted;
//! what remains is delivered.
//!
//! Any set of whole writes may be missing, and of a write those families that were not in a file
//! yet. So each record may be intact, an older version, or missing. The repairs:
//! - Unreadable records are deleted and listed.
//! - Logs have gaps where chunks are missing. The gaps are stored ([`keys::loss_key`]), so that a check
//!   accepts them. The next event gets a sequence above everything that any record mentions.
//! - A cursor may be an older version. Events that it has not read are delivered, perhaps again.
//!   Pending deliveries of those events are deleted, so that no event is pending twice. A cursor
//!   below the beginning of the log is moved up to it.
//! - If a cursor counts more pending deliveries than there are, their events are unknown. Its
//!   subscription reads the log again from the beginning, except events that have ended according
//!   to the ledger. The same holds for a subscription without a cursor.
//! - A pending delivery whose event cannot be read is given up, with a ledger line, as a server
//!   does it.
//! - Counters are set to match the records: missing pending deliveries count as dropped, missing
//!   dead letters as lost. Settled deliveries that are pending again are subtracted from the
//!   delivered ones, because they are delivered again.
//! - A job that has ended does not restart. Pending deliveries of unknown jobs are deleted.
//! - Records without a subscription or a topic are deleted.
//!
//! Invariants: the damaged folder is only read; the result is sound or is not kept.
//!
//! If a table has an unreadable block, all readable records are first copied to a new store
//! (`tables`), and that store is made consistent.

mod control;
mod cursors;
mod jobs;
mod logs;
mod loss;
mod pending;
mod records;
mod rewind;
mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{ControlFlow, Range},
    path::Path,
};

use self::logs::PartitionSummary;
pub use self::{
    control::{ControlNumbers, ControlRecords},
    loss::{LossReport, LostEvent},
};
use crate::{
    backup::{self, BackupError, BackupObserver, BackupProgress},
    fsck::{self, CheckReport, CheckStop, RecordDecoders},
};
use gridhook_escape::count_with_noun;
use gridhook_event::{Lane, PartitionId, Seq, SubscriptionKey, Timestamp};
use gridhook_policy::record::Cursor;
use gridhook_store::{
    Batch, Family, Store, StoreError, keys,
    rocks::{RocksOptions, RocksStore},
};

const BATCH: usize = 1024;

#[derive(Debug)]
pub struct SalvageResult {
    pub loss: LossReport,
    /// The report of the final check.
    pub report: CheckReport,
}

/// Makes a new store in `data_dir` from the damaged one in `from`, a data folder or a backup.
pub fn accept_loss(
    from: &Path,
    data_dir: &Path,
    options: &RocksOptions,
    decoders: RecordDecoders,
    control: ControlRecords,
    now: Timestamp,
    watch: &mut BackupObserver<'_>,
) -> Result<SalvageResult, BackupError> {
    let mut copy = backup::copy_damaged(from, data_dir, watch)?;
    let (store, recovered) = RocksStore::open_damaged(copy.scratch_folder(), options)?;
    let damaged_families = tables::count_damaged(&store)?;
    let store = if damaged_families.is_empty() {
        store
    } else {
        copy.check_room()?;
        let readable = RocksStore::open(&copy.new_store_folder(), options)?;
        tables::copy_readable(&store, &readable)?;
        readable.close().map_err(CheckStop::from)?;
        drop((store, readable));
        copy.replace_with_new_store()?;
        RocksStore::open_damaged(copy.scratch_folder(), options)?.0
    };
    let mut watch = |progress| watch(BackupProgress::Checking(progress));
    let result = salvage_store(&store, decoders, control, now, &mut watch);
    // RocksDB must be closed before its folder is moved.
    let close_result = store.close();
    let sequence = store.last_sequence();
    drop(store);
    let (mut loss, report) = result?;
    close_result.map_err(CheckStop::from)?;
    (loss.recovered, loss.acknowledged) = (recovered, copy.acknowledged_sequence());
    for (family, ranges) in damaged_families {
        let name = family.name();
        let ranges = count_with_noun(ranges, "damaged range");
        loss.add_record(format!(
            "missing: the records in {ranges} of the family {name}"
        ));
    }
    if !report.is_sound() {
        return Err(BackupError::Backup {
            backup: from.to_owned(),
            problem: format!("cannot be made consistent: {report}"),
        });
    }
    copy.keep_as_store(sequence)?;
    Ok(SalvageResult { loss, report })
}

/// Makes `store` consistent. Returns what was lost, and the check of the result.
pub fn salvage_store(
    store: &dyn Store,
    decoders: RecordDecoders,
    control: ControlRecords,
    now: Timestamp,
    watch: &mut fsck::CheckObserver<'_>,
) -> Result<(LossReport, CheckReport), CheckStop> {
    let mut salvage = Salvage {
        store,
        decoders,
        control,
        now,
        batch: Batch::default(),
        loss: LossReport::default(),
        parts: BTreeMap::new(),
        above: BTreeMap::new(),
        wanted: BTreeSet::new(),
        cursors: BTreeMap::new(),
        without_cursor: BTreeSet::new(),
        pending: BTreeMap::new(),
        dead: BTreeMap::new(),
        dead_listed: BTreeMap::new(),
        subscriptions: 0,
    };
    for step in STEPS {
        step(&mut salvage)?;
        salvage.flush()?;
    }
    let report = fsck::repair_store(store, decoders, watch)?;
    Ok((salvage.loss, report))
}

type SalvageStep = fn(&mut Salvage<'_>) -> Result<(), CheckStop>;

/// All steps, in order: later ones use what earlier ones have collected and repaired.
const STEPS: [SalvageStep; 12] = [
    |salvage| salvage.changelog_position(),
    |salvage| salvage.delete_unreadable(),
    |salvage| salvage.control_records(),
    |salvage| salvage.collect_mentioned(),
    |salvage| salvage.known_cursors(),
    |salvage| salvage.salvage_jobs(),
    |salvage| salvage.salvage_logs(),
    |salvage| salvage.raise_lanes(),
    |salvage| salvage.rewind_all(),
    |salvage| salvage.pending_and_dead(),
    |salvage| salvage.set_counters(),
    |salvage| salvage.delete_incomplete_ids(),
];

struct Salvage<'a> {
    store: &'a dyn Store,
    decoders: RecordDecoders,
    control: ControlRecords,
    now: Timestamp,
    batch: Batch,
    loss: LossReport,
    parts: BTreeMap<PartitionId, PartitionSummary>,
    /// The first sequence above all sequences that any record mentions.
    above: BTreeMap<PartitionId, Seq>,
    /// Subscriptions that the control plane knows.
    wanted: BTreeSet<SubscriptionKey>,
    cursors: BTreeMap<SubscriptionKey, Cursor>,
    without_cursor: BTreeSet<SubscriptionKey>,
    /// Pending deliveries in each lane.
    pending: BTreeMap<(SubscriptionKey, Lane), u64>,
    dead: BTreeMap<SubscriptionKey, u64>,
    /// Dead letters that were listed as missing.
    dead_listed: BTreeMap<SubscriptionKey, u64>,
    /// The largest subscription number that any record mentions.
    subscriptions: u32,
}

impl Salvage<'_> {
    /// Visits all records of a range. Records written meanwhile are not visited.
    fn visit_range(
        &mut self,
        family: Family,
        range: &Range<Vec<u8>>,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let store = self.store;
        let mut result = Ok(());
        store.scan(family, &range.start, &range.end, &mut |key, value| {
            result = visit(self, key, value);
            if result.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        result
    }

    fn visit_family(
        &mut self,
        family: Family,
        visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.visit_range(family, &keys::family_range(family), visit)
    }

    fn delete_record(&mut self, family: Family, key: Vec<u8>) -> Result<(), StoreError> {
        // Records of this family are written once, and deleted with a single delete.
        if family == Family::Due {
            self.batch.single_delete(family, key);
        } else {
            self.batch.delete(family, key);
        }
        self.flush_if_full()
    }

    fn put_record(
        &mut self,
        family: Family,
        key: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.batch.put(family, key, value);
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<(), StoreError> {
        if self.batch.0.len() < BATCH {
            Ok(())
        } else {
            self.flush()
        }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.0.is_empty() {
            Ok(())
        } else {
            self.store.write(&batch)
        }
    }
}
