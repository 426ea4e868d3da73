//! A damaged store, taken for what is left of it: on a copy, when an operator accepts the loss.
//!
//! A server refuses a store that recovers less than was acknowledged, and one whose write-ahead log is damaged. Here the
//! store is copied to a new data folder, opened with every damaged record of that log skipped, and made sound again:
//! what is missing is listed and counted, what remains is delivered.
//!
//! What may be missing after that is any set of whole writes, and of a write those families that were not in a file yet;
//! so each record is there, or an older one, or none. From that follows how each is mended:
//! - Records that cannot be read go. They are told one by one.
//! - A log has gaps where its chunks are missing. They are noted in the store ([`keys::loss`]), so that a look knows them,
//!   and the next event gets a place above everything that any record mentions.
//! - A cursor may be an older one. What it has not read is delivered, again perhaps; what its subscription owed of that
//!   already goes, so that no event is owed twice. Below the log's beginning it is moved up to it.
//! - Where a cursor says that more is owed than is, nothing says which events those are: its subscription reads the log
//!   again from its beginning, but for what the ledger says has ended. The same where there is no cursor.
//! - What is owed and cannot be read is given up, with a line in the ledger, as the server does it.
//! - Counters are made to say what is there: what was owed and is gone counts as dropped, what was put aside and is gone
//!   as lost. What is owed and was settled counts as delivered once less, because it will be delivered again.
//! - A job that has ended does not begin again; what was owed for one that is not known goes.
//! - What has no subscription, or no topic, goes.
//!
//! Invariants: the damaged folder is only read; what comes out is sound, or is not kept.
//!
//! Where a table has a block that cannot be read, all that can be read is copied to a store of its own first (`tables`),
//! and that is made sound.

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
    event::{Lane, PartitionId, Seq, SubscriptionKey, Timestamp},
    policy::record::Cursor,
    repair::{
        backup::{self, BackupError, BackupObserver, BackupProgress},
        fsck::{self, CheckReport, CheckStop, DeadLetterAccounts},
    },
    store::{
        Batch, Family, Store, StoreError, keys,
        rocks::{RocksOptions, RocksStore},
    },
};

/// So many changes are written together.
const BATCH: usize = 1024;

/// What is left of a store.
#[derive(Debug)]
pub struct SalvageResult {
    /// What is missing.
    pub loss: LossReport,
    /// What was found in it at last.
    pub report: CheckReport,
}

/// Makes a new store in `data_dir` of what is left of the damaged one in `from`, a data folder or a backup.
pub fn accept_loss(
    from: &Path,
    data_dir: &Path,
    options: &RocksOptions,
    accounts: DeadLetterAccounts,
    control: ControlRecords,
    now: Timestamp,
    watch: &mut BackupObserver<'_>,
) -> Result<SalvageResult, BackupError> {
    let mut copy = backup::copy_damaged(from, data_dir, watch)?;
    let (store, recovered) = RocksStore::open_damaged(copy.scratch(), options)?;
    let places = tables::damaged(&store)?;
    let store = if places.is_empty() {
        store
    } else {
        copy.check_room()?;
        let readable = RocksStore::open(&copy.readable(), options)?;
        tables::copy(&store, &readable)?;
        readable.close().map_err(CheckStop::from)?;
        drop((store, readable));
        copy.replace()?;
        RocksStore::open_damaged(copy.scratch(), options)?.0
    };
    let mut watch = |progress| watch(BackupProgress::Looking(progress));
    let salvaged = salvage(&store, accounts, control, now, &mut watch);
    // RocksDB is closed before its folder is moved.
    let closed = store.close();
    let sequence = store.sequence();
    drop(store);
    let (mut loss, report) = salvaged?;
    closed.map_err(CheckStop::from)?;
    (loss.recovered, loss.acknowledged) = (recovered, copy.acknowledged());
    for (family, places) in places {
        let name = family.name();
        loss.record(format!("missing: what {places} damaged parts of tables of the family {name} had"));
    }
    if !report.is_sound() {
        return Err(BackupError::Backup {
            backup: from.to_owned(),
            problem: format!("cannot be made sound: {report}"),
        });
    }
    copy.keep(sequence)?;
    Ok(SalvageResult { loss, report })
}

/// Makes `store` sound.
pub fn salvage(
    store: &dyn Store,
    accounts: DeadLetterAccounts,
    control: ControlRecords,
    now: Timestamp,
    watch: &mut fsck::CheckObserver<'_>,
) -> Result<(LossReport, CheckReport), CheckStop> {
    let mut salvage = Salvage {
        store,
        accounts,
        control,
        now,
        batch: Batch::default(),
        loss: LossReport::default(),
        parts: BTreeMap::new(),
        above: BTreeMap::new(),
        wanted: BTreeSet::new(),
        cursors: BTreeMap::new(),
        anew: BTreeSet::new(),
        pending: BTreeMap::new(),
        dead: BTreeMap::new(),
        dead_told: BTreeMap::new(),
        subscriptions: 0,
    };
    for step in STEPS {
        step(&mut salvage)?;
        salvage.flush()?;
    }
    let report = fsck::repair(store, accounts, watch)?;
    Ok((salvage.loss, report))
}

type SalvageStep = fn(&mut Salvage<'_>) -> Result<(), CheckStop>;

/// In order: later ones use what earlier ones have gathered, and find what these have mended.
const STEPS: [SalvageStep; 11] = [
    |salvage| salvage.unreadable(),
    |salvage| salvage.control_records(),
    |salvage| salvage.mentioned(),
    |salvage| salvage.known_cursors(),
    |salvage| salvage.jobs(),
    |salvage| salvage.logs(),
    |salvage| salvage.lanes(),
    |salvage| salvage.rewind(),
    |salvage| salvage.obligations(),
    |salvage| salvage.counters(),
    |salvage| salvage.ids(),
];

struct Salvage<'a> {
    store: &'a dyn Store,
    accounts: DeadLetterAccounts,
    control: ControlRecords,
    now: Timestamp,
    batch: Batch,
    loss: LossReport,
    parts: BTreeMap<PartitionId, PartitionSummary>,
    /// The first place above everything that is mentioned.
    above: BTreeMap<PartitionId, Seq>,
    /// The subscriptions that the control plane knows.
    wanted: BTreeSet<SubscriptionKey>,
    cursors: BTreeMap<SubscriptionKey, Cursor>,
    /// Those of them that had none.
    anew: BTreeSet<SubscriptionKey>,
    /// How many events are owed in each lane.
    pending: BTreeMap<(SubscriptionKey, Lane), u64>,
    /// How many dead letters wait.
    dead: BTreeMap<SubscriptionKey, u64>,
    /// How many of them were told as missing.
    dead_told: BTreeMap<SubscriptionKey, u64>,
    /// The largest number of a subscription that is mentioned.
    subscriptions: u32,
}

impl Salvage<'_> {
    /// Visits all records of a range. What is written meanwhile is not seen.
    fn each(
        &mut self,
        family: Family,
        range: &Range<Vec<u8>>,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (store, mut failed) = (self.store, Ok(()));
        store.scan(family, &range.start, &range.end, &mut |key, value| {
            failed = visit(self, key, value);
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        failed
    }

    fn all(
        &mut self,
        family: Family,
        visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.each(family, &keys::all(family), visit)
    }

    fn delete(&mut self, family: Family, key: Vec<u8>) -> Result<(), StoreError> {
        // The one family whose records are taken away so.
        if family == Family::Due {
            self.batch.single_delete(family, key);
        } else {
            self.batch.delete(family, key);
        }
        self.flush_if_full()
    }

    fn put(&mut self, family: Family, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        self.batch.put(family, key, value);
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<(), StoreError> {
        if self.batch.0.len() < BATCH { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.0.is_empty() { Ok(()) } else { self.store.write(&batch) }
    }
}
