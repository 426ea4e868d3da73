//! Looks whether a store is what its rules say: record by record, changing nothing; and mends what can be mended without
//! losing anything.
//!
//! What is looked at: every record can be read; the log begins at its floor, is dense, and its running counts add up;
//! every cursor's equations hold, its lanes read where there is a log and no event twice, it knows when the first owed
//! event falls due, and as many events are owed, and as many dead letters accounted for, as it says; an owed event has
//! exactly one place in the order of falling due; a dead letter pins its event; what is owed or pinned can be read; nothing
//! is held that nobody asks for. One file for each family of these, and one line in `SECTIONS`.
//!
//! Invariants:
//! - The store is streamed. Memory holds a line for each partition and each subscription and nothing for each event; the
//!   price is a read or two for each event that is owed, waits or is held.
//! - Damage is told and passed over: one record that cannot be read does not hide what is wrong with the others.
//! - What a deleted subscription left needs no cursor, and its events may be gone, while the job that clears it away
//!   stands; after that it is wrong.
//! - What a full disk and a kill together may leave ([`rocks`](crate::store::rocks)) is no damage: the core takes it away when it
//!   comes to it. It is told apart from what is wrong.
//! - Whoever looks is asked every few hundred records whether to go on: that is where a look is paced, told of and called
//!   off.
//!
//! Absent on purpose: the records of the control plane, all of which the server reads at every start.

mod cursors;
mod dead;
mod held;
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

pub use self::{
    repair::repair,
    report::{CheckReport, Finding, Repair},
};
use crate::{
    event::{PartitionId, Seq, SubscriptionKey, Timestamp},
    policy::record::{Counters, job::Job},
    store::{
        Batch, Family, Store, StoreError, WriteOp,
        keys::{self, MetaKind},
        log::{EventFinder, LogEnd},
        records::{FloorRecord, StoredRecord},
    },
};

/// So many records are looked at between two questions whether to go on.
const SLICE: u64 = 256;

/// So many records at most are mended by one look: what is mended is gathered in memory.
const MENDS_MAX: usize = 8192;

/// How to read the accounts that the dead-letter actor keeps in the store: the journal keeps them as bytes.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetterAccounts {
    /// The name of a subscription's account.
    pub name: fn(SubscriptionKey) -> String,
    /// How many dead letters it says are dealt with, written or lost; [`None`] where it cannot be read.
    pub dealt_with: fn(&[u8]) -> Option<u64>,
    /// Whether a record of [`Family::Meta`] can be read; if not, why.
    pub readable: fn(MetaKind, &[u8]) -> Result<(), String>,
}

/// Whether a record of [`Family::Meta`] that the journal writes by itself can be read; if not, why. Those of other kinds are
/// not looked at.
///
/// # Errors
/// Where it cannot be.
pub fn check_record(kind: MetaKind, value: &[u8]) -> Result<(), String> {
    let of_length = |length: usize| {
        let is_whole = value.len() == length;
        is_whole.then_some(()).ok_or_else(|| format!("it has {} bytes, and not {length}", value.len()))
    };
    match kind {
        MetaKind::Format => of_length(4),
        MetaKind::Loss => of_length(8),
        MetaKind::Secret => of_length(32),
        MetaKind::Floor => FloorRecord::decode(value).map(drop).map_err(|error| error.to_string()),
        // The note that what a deleted subscription left is to be cleared away is one byte.
        MetaKind::Job if value == [1] => Ok(()),
        MetaKind::Job => Job::decode(value).map(drop).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

/// How far a look has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// At which family of records it is.
    pub at: &'static str,
    /// How many records it has seen.
    pub records: u64,
}

/// Is told of the progress, and says whether to go on. It may take its time: that bounds the load.
pub type CheckObserver<'a> = dyn FnMut(CheckProgress) -> ControlFlow<()> + 'a;

/// Why a look was not finished.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CheckStop {
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It was called off.
    #[error("it was called off")]
    CalledOff,
}

/// Looks at everything.
pub fn check(
    store: &dyn Store,
    accounts: DeadLetterAccounts,
    watch: &mut CheckObserver<'_>,
) -> Result<CheckReport, CheckStop> {
    look(store, accounts, watch).map(|(report, _)| report)
}

/// Looks at one family of records.
type CheckSection = fn(&mut StoreCheck<'_>) -> Result<(), CheckStop>;

/// What is looked at, in order: later ones use what earlier ones have gathered.
const SECTIONS: [(&str, CheckSection); 13] = [
    ("floors", |check| check.floors()),
    ("log", |check| check.log()),
    ("owed", |check| check.check_pending()),
    ("dead letters", |check| check.dead()),
    ("pins", |check| check.pins()),
    ("held", |check| check.held()),
    ("cursors", |check| check.cursors()),
    ("due", |check| check.due()),
    ("accounts", |check| check.accounts()),
    ("subscriptions", |check| check.shares()),
    ("ledger", |check| check.ledger()),
    ("ids", |check| check.ids()),
    ("filters", |check| check.filters()),
];

/// Looks at everything, and answers too what would mend it.
fn look(
    store: &dyn Store,
    accounts: DeadLetterAccounts,
    watch: &mut CheckObserver<'_>,
) -> Result<(CheckReport, Batch), CheckStop> {
    let mut check = StoreCheck {
        store,
        accounts,
        watch,
        at: "",
        records: 0,
        report: CheckReport::default(),
        mends: Batch::default(),
        logs: BTreeMap::new(),
        losses: BTreeMap::new(),
        shares: BTreeMap::new(),
    };
    for (name, section) in SECTIONS {
        check.at = name;
        match section(&mut check) {
            Ok(()) => {}
            // What RocksDB itself cannot read: the rest of this family stays unseen.
            Err(CheckStop::Store(StoreError::Damaged(what))) => check.report.wrong(format!("{name}: {what}")),
            Err(stop @ (CheckStop::CalledOff | CheckStop::Store(StoreError::Full | StoreError::Failed(_)))) => {
                return Err(stop);
            }
        }
    }
    let StoreCheck { mut report, mut mends, .. } = check;
    keep_leftovers(&mut report, &mut mends);
    Ok((report, mends))
}

/// What is for nothing may be all that is left of something that is missing, or seem so while something else is missing:
/// nothing is taken away by a look that finds anything else to mend, or anything that cannot be mended.
fn keep_leftovers(report: &mut CheckReport, mends: &mut Batch) {
    let adds = mends.0.iter().any(|op| matches!(op, WriteOp::Put(..)));
    if adds || report.is_beyond_mending() {
        mends.0.retain(|op| matches!(op, WriteOp::Put(..)));
    }
    if report.is_beyond_mending() {
        report.keep_leftovers();
    }
}

/// A partition's log.
struct CheckedLog {
    record: FloorRecord,
    /// Where it ends, as far as it was looked at; [`None`] where there is nothing from the floor on.
    end: Option<LogEnd>,
}

/// What a subscription has in the store.
#[derive(Default)]
struct CheckedSubscription {
    /// Whether it was deleted, and what it left is being cleared away.
    reaped: bool,
    has_cursor: bool,
    /// What was published, and what jobs have sent; [`None`] too where the cursor cannot be read.
    columns: Option<[Counters; 2]>,
    /// When its cursor says that the first owed event falls due.
    next_due: Option<Timestamp>,
    /// Own, and jobs'.
    pending: [u64; 2],
    /// When the first owed event falls due.
    first_due: Option<Timestamp>,
    dead: u64,
    pins: u64,
}

struct StoreCheck<'a> {
    store: &'a dyn Store,
    accounts: DeadLetterAccounts,
    watch: &'a mut CheckObserver<'a>,
    at: &'static str,
    records: u64,
    report: CheckReport,
    mends: Batch,
    logs: BTreeMap<PartitionId, CheckedLog>,
    /// What an operator accepted as lost: the first place behind it, by the first of it.
    losses: BTreeMap<(PartitionId, Seq), Seq>,
    shares: BTreeMap<SubscriptionKey, CheckedSubscription>,
}

fn subscription_name(SubscriptionKey { partition, subscription }: SubscriptionKey) -> String {
    format!("subscription {} of partition {}", subscription.0, partition.0)
}

impl StoreCheck<'_> {
    /// Visits all records of a family.
    fn each(
        &mut self,
        family: Family,
        visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), CheckStop>,
    ) -> Result<(), CheckStop> {
        self.each_in(family, &keys::all(family), visit)
    }

    /// Visits all records of a range.
    fn each_in(
        &mut self,
        family: Family,
        range: &Range<Vec<u8>>,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), CheckStop>,
    ) -> Result<(), CheckStop> {
        let (store, mut stopped) = (self.store, Ok(()));
        store.scan(family, &range.start, &range.end, &mut |key, value| {
            stopped = self.passed().and_then(|()| visit(self, key, value));
            if stopped.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        stopped
    }

    fn passed(&mut self) -> Result<(), CheckStop> {
        self.records += 1;
        if !self.records.is_multiple_of(SLICE) {
            return Ok(());
        }
        match (self.watch)(CheckProgress { at: self.at, records: self.records }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CheckStop::CalledOff),
        }
    }

    fn share(&mut self, subscription_key: SubscriptionKey) -> Result<&mut CheckedSubscription, CheckStop> {
        if !self.shares.contains_key(&subscription_key) {
            let reaped = self.store.get(Family::Meta, &keys::reap(subscription_key))?.is_some();
            self.shares.insert(subscription_key, CheckedSubscription { reaped, ..CheckedSubscription::default() });
        }
        Ok(self.shares.entry(subscription_key).or_default())
    }

    /// Something is wrong, and `op` mends it.
    fn mend(&mut self, mend: Repair, what: String, op: WriteOp) {
        self.report.mendable_wrong(mend, what);
        self.keep(op);
    }

    /// Something is left over, and `op` takes it away.
    fn left_over(&mut self, mend: Repair, what: String, op: WriteOp) {
        self.report.left_over(mend, what);
        self.keep(op);
    }

    /// What there is no room for is found again by the next look.
    fn keep(&mut self, op: WriteOp) {
        if self.mends.0.len() < MENDS_MAX {
            self.mends.0.push(op);
        }
    }

    /// An event that somebody asks for can be read, unless whoever asked was deleted. Answers whether it can.
    fn is_there(&mut self, subscription_key: SubscriptionKey, seq: Seq, asked: &str) -> Result<bool, CheckStop> {
        let there = match EventFinder::new(self.store, subscription_key.partition).find(seq) {
            Ok(event) => event.is_some(),
            Err(StoreError::Damaged(_)) => false,
            Err(error @ (StoreError::Full | StoreError::Failed(_))) => return Err(error.into()),
        };
        if !there && !self.share(subscription_key)?.reaped {
            self.report.wrong(format!("{asked} and cannot be read"));
        }
        Ok(there)
    }
}

/// What is on disk is not ours to assert: a sum may be past all counting.
fn sum<const N: usize>(counts: [u64; N]) -> Option<u64> {
    sum_of(counts.into_iter())
}

fn sum_of(mut counts: impl Iterator<Item = u64>) -> Option<u64> {
    counts.try_fold(0, u64::checked_add)
}
