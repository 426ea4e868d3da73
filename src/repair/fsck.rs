//! Checks that a store satisfies its rules, record by record, without changing it; and repairs what
//! can be repaired without loss.
//!
//! The rules:
//! - Every record can be decoded.
//! - The log begins at its floor and is dense, and its running totals add up.
//! - Each cursor's counters add up. Its lanes read existing parts of the log, and no two read the
//!   same event. It has the due time of its first pending delivery. Its counts of pending
//!   deliveries and dead letters match the records.
//! - A pending delivery has exactly one due record. A dead letter pins its event. A pending or
//!   pinned event can be read. A carried event is needed.
//!
//! The checks are grouped in files by what they read, and each check has a line in `SECTIONS`.
//!
//! Invariants:
//! - The store is streamed. Memory grows with partitions and subscriptions, not with events; the
//!   cost is one or two reads for each event that is pending, carried or a dead letter.
//! - Damage is reported and skipped: one unreadable record does not hide problems of others.
//! - The records of a deleted subscription need no cursor and no events as long as the job that
//!   removes them exists.
//! - Records that a full disk and a kill together may leave behind
//!   ([`rocks`](gridhook_store::rocks)) are no damage, because a running server removes them. They
//!   are reported as leftovers.
//! - The caller's observer is called every few hundred records. It limits the speed, reports
//!   progress and can cancel the check.
//!
//! Not here: the records of the control plane. The server reads all of them at every start.

mod carried;
mod cursors;
mod dead;
mod ids;
mod ledger;
mod log;
mod pending;
mod repair;
mod report;
mod subscriptions;

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
};

pub(crate) use self::subscriptions::parts_of_matched;
pub use self::{
    repair::repair_store,
    report::{CheckReport, Finding, Repair},
};
use gridhook_dead_letter::DamagedTotals;
use gridhook_event::{PartitionId, Seq, SubscriptionKey, Timestamp};
use gridhook_policy::record::{Counters, job::Job};
use gridhook_store::{
    Batch, Family, Store, StoreError, WriteOp,
    keys::{self, MetaKind},
    log::{EventFinder, LogEnd},
    records::{AppliedPosition, DamagedRecord, FloorRecord, StoredRecord},
};

/// Records checked between two calls of the observer.
const SLICE: u64 = 256;

/// The maximum number of records that one pass repairs: repairs are collected in memory.
const REPAIRS_MAX: usize = 8192;

/// How to read records of other modules, which the store keeps as bytes.
#[derive(Clone, Copy, Debug)]
pub struct RecordDecoders {
    /// The name of a subscription's dead-letter totals.
    pub name: fn(SubscriptionKey) -> String,
    /// The number of dead letters that the totals count as written or lost; [`None`] if they cannot
    /// be decoded.
    pub handled: fn(&[u8]) -> Option<u64>,
    /// Checks that a record of [`Family::Meta`] can be decoded.
    pub readable: fn(MetaKind, &[u8]) -> Result<(), RecordError>,
}

/// Why a record of [`Family::Meta`] cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("it has {bytes} bytes instead of {expected}")]
    Length { bytes: usize, expected: usize },
    #[error(transparent)]
    Damaged(#[from] DamagedRecord),
    #[error(transparent)]
    Totals(#[from] DamagedTotals),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Checks that a record of [`Family::Meta`] that the journal itself writes can be decoded. Records
/// of other kinds are not checked.
///
/// # Errors
/// The record cannot be decoded.
pub fn check_record(kind: MetaKind, value: &[u8]) -> Result<(), RecordError> {
    let expected = match kind {
        MetaKind::Format => 4,
        MetaKind::Loss => 8,
        MetaKind::Secret => 32,
        MetaKind::Floor => return Ok(FloorRecord::decode(value).map(drop)?),
        MetaKind::Applied => return Ok(AppliedPosition::decode(value).map(drop)?),
        // The job that removes the records of a deleted subscription is one byte.
        MetaKind::Job if value != [1] => return Ok(Job::decode(value).map(drop)?),
        _ => return Ok(()),
    };
    match value.len() {
        bytes if bytes == expected => Ok(()),
        bytes => Err(RecordError::Length { bytes, expected }),
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// The section, as the report calls it.
    pub at: &'static str,
    /// Number of records checked so far.
    pub records: u64,
}

/// Receives the progress and decides whether to continue. It may block to limit the load.
pub type CheckObserver<'a> = dyn FnMut(CheckProgress) -> ControlFlow<()> + 'a;

/// Why a check did not finish.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CheckStop {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the check was canceled")]
    Canceled,
}

/// Checks the whole store, and only reads.
///
/// # Errors
/// If the store cannot be read, or the observer cancels the check.
pub fn check_store(
    store: &dyn Store,
    decoders: RecordDecoders,
    observer: &mut CheckObserver<'_>,
) -> Result<CheckReport, CheckStop> {
    check_all(store, decoders, observer).map(|(report, _)| report)
}

type CheckSection = fn(&mut StoreCheck<'_>) -> Result<(), CheckStop>;

/// All sections, in order: later ones use what earlier ones have collected.
const SECTIONS: [(&str, CheckSection); 13] = [
    ("floors", |check| check.check_floors()),
    ("log", |check| check.check_log()),
    ("pending deliveries", |check| check.check_pending()),
    ("dead letters", |check| check.check_dead_letters()),
    ("pins", |check| check.check_pins()),
    ("carried", |check| check.check_carried()),
    ("cursors", |check| check.check_cursors()),
    ("due", |check| check.check_due()),
    ("dead-letter totals", |check| {
        check.check_dead_letter_totals()
    }),
    ("subscriptions", |check| check.check_subscriptions()),
    ("ledger", |check| check.check_ledger()),
    ("ids", |check| check.check_ids()),
    ("filters", |check| check.check_filters()),
];

/// Checks the whole store. Returns the report and the writes that repair it.
fn check_all(
    store: &dyn Store,
    decoders: RecordDecoders,
    observer: &mut CheckObserver<'_>,
) -> Result<(CheckReport, Batch), CheckStop> {
    let mut check = StoreCheck {
        store,
        decoders,
        observer,
        at: "",
        records: 0,
        report: CheckReport::default(),
        repairs: Batch::default(),
        logs: BTreeMap::new(),
        losses: BTreeMap::new(),
        subscriptions: BTreeMap::new(),
    };
    for (name, section) in SECTIONS {
        check.at = name;
        match section(&mut check) {
            Ok(()) => {}
            // RocksDB cannot read a block. The rest of the family is not checked.
            Err(CheckStop::Store(StoreError::Damaged(what))) => {
                check.report.add_problem(format!("{name}: {what}"))
            }
            Err(
                stop @ (CheckStop::Canceled
                | CheckStop::Store(StoreError::Full | StoreError::Failed(_))),
            ) => {
                return Err(stop);
            }
        }
    }
    let StoreCheck {
        mut report,
        mut repairs,
        ..
    } = check;
    keep_leftovers(&mut report, &mut repairs);
    Ok((report, repairs))
}

/// Keeps unneeded records unless they are the only problem: they may be the remains of something
/// that is missing, or may only seem unneeded because something else is missing.
fn keep_leftovers(report: &mut CheckReport, repairs: &mut Batch) {
    let adds = repairs.0.iter().any(|op| matches!(op, WriteOp::Put(..)));
    if adds || report.is_beyond_repair() {
        repairs.0.retain(|op| matches!(op, WriteOp::Put(..)));
    }
    if report.is_beyond_repair() {
        report.keep_leftovers();
    }
}

/// The state of a partition's log.
struct CheckedLog {
    record: FloorRecord,
    /// The end of the log, as far as it was checked; [`None`] if there are no chunks from the floor
    /// on.
    end: Option<LogEnd>,
}

/// The records of a subscription.
#[derive(Default)]
struct CheckedSubscription {
    /// Whether the subscription was deleted and its records are being removed.
    is_deleted: bool,
    has_cursor: bool,
    /// The counters of published events and of jobs; [`None`] without a cursor, or if it cannot be
    /// decoded.
    counters: Option<[Counters; 2]>,
    /// The due time of the first pending delivery, according to the cursor.
    next_due: Option<Timestamp>,
    /// The numbers of pending deliveries: the subscription's own, and those of its jobs.
    pending: [u64; 2],
    /// The due time of the first pending delivery.
    first_due: Option<Timestamp>,
    dead: u64,
    pins: u64,
}

struct StoreCheck<'a> {
    store: &'a dyn Store,
    decoders: RecordDecoders,
    observer: &'a mut CheckObserver<'a>,
    at: &'static str,
    records: u64,
    report: CheckReport,
    repairs: Batch,
    logs: BTreeMap<PartitionId, CheckedLog>,
    /// Ranges that an operator accepted as lost: their ends, by their beginnings.
    losses: BTreeMap<(PartitionId, Seq), Seq>,
    subscriptions: BTreeMap<SubscriptionKey, CheckedSubscription>,
}

pub(crate) fn subscription_name(
    SubscriptionKey {
        partition,
        subscription,
    }: SubscriptionKey,
) -> String {
    format!(
        "subscription {} of partition {}",
        subscription.0, partition.0
    )
}

impl StoreCheck<'_> {
    /// Visits all records of a family.
    fn visit_records(
        &mut self,
        family: Family,
        visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), CheckStop>,
    ) -> Result<(), CheckStop> {
        self.visit_range(family, &keys::family_range(family), visit)
    }

    /// Visits all records of a range.
    fn visit_range(
        &mut self,
        family: Family,
        range: &Range<Vec<u8>>,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), CheckStop>,
    ) -> Result<(), CheckStop> {
        let store = self.store;
        let mut result = Ok(());
        store.scan(family, &range.start, &range.end, &mut |key, value| {
            result = self.count_passed().and_then(|()| visit(self, key, value));
            if result.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        result
    }

    fn count_passed(&mut self) -> Result<(), CheckStop> {
        self.records += 1;
        if !self.records.is_multiple_of(SLICE) {
            return Ok(());
        }
        match (self.observer)(CheckProgress {
            at: self.at,
            records: self.records,
        }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CheckStop::Canceled),
        }
    }

    fn subscription_mut(
        &mut self,
        subscription_key: SubscriptionKey,
    ) -> Result<&mut CheckedSubscription, CheckStop> {
        if !self.subscriptions.contains_key(&subscription_key) {
            let is_deleted = self
                .store
                .get(Family::Meta, &keys::reap_key(subscription_key))?
                .is_some();
            self.subscriptions.insert(
                subscription_key,
                CheckedSubscription {
                    is_deleted,
                    ..CheckedSubscription::default()
                },
            );
        }
        Ok(self.subscriptions.entry(subscription_key).or_default())
    }

    /// Reports a problem that `op` repairs.
    fn add_repairable(&mut self, repair: Repair, what: String, op: WriteOp) {
        self.report.add_repairable(repair, what);
        self.keep_operation(op);
    }

    /// Reports a leftover that `op` removes.
    fn add_leftover(&mut self, repair: Repair, what: String, op: WriteOp) {
        self.report.add_leftover(repair, what);
        self.keep_operation(op);
    }

    /// Keeps a repair. Beyond the limit it is left out: the next pass finds the problem again.
    fn keep_operation(&mut self, op: WriteOp) {
        if self.repairs.0.len() < REPAIRS_MAX {
            self.repairs.0.push(op);
        }
    }

    /// Reports an event that is needed and cannot be read, unless its subscription was deleted.
    /// Returns whether it can be read.
    fn check_readable(
        &mut self,
        subscription_key: SubscriptionKey,
        seq: Seq,
        needed: &str,
    ) -> Result<bool, CheckStop> {
        let there = match EventFinder::new(self.store, subscription_key.partition).find_event(seq) {
            Ok(event) => event.is_some(),
            Err(StoreError::Damaged(_)) => false,
            Err(error @ (StoreError::Full | StoreError::Failed(_))) => return Err(error.into()),
        };
        if !there && !self.subscription_mut(subscription_key)?.is_deleted {
            self.report
                .add_problem(format!("{needed} and cannot be read"));
        }
        Ok(there)
    }
}

/// Adds counters from disk, which may overflow.
fn checked_sum<const N: usize>(counts: [u64; N]) -> Option<u64> {
    sum_of(counts.into_iter())
}

fn sum_of(mut counts: impl Iterator<Item = u64>) -> Option<u64> {
    counts.try_fold(0, u64::checked_add)
}
