//! Negative controls of the crash tests: a store that omits one part of the actor's writes. The
//! crash tests must detect each.

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use gridhook::{
    dead_letter::DeadLetterTotals,
    store::{
        Batch, Family, Store, StoreError, Visit, WriteOp,
        keys::{self, MetaKind},
        layer,
    },
};

use super::{
    crashes::{Kill, WRITES, survive},
    world::run,
};
use crate::support::memory_store::MemoryStore;

/// The omitted step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// The name of a file, before it is stored: its repeat has another name.
    ForgetTheName,
    /// That a file was finished: its dead letters keep waiting.
    ForgetToRemove,
    /// That a file was counted.
    ForgetToCount,
    /// A dead letter beside those in the file is removed with them.
    RemoveOneMore,
}

const BUGS: [Bug; 4] = [
    Bug::ForgetTheName,
    Bug::ForgetToRemove,
    Bug::ForgetToCount,
    Bug::RemoveOneMore,
];

/// A store that omits.
struct Forgetful {
    memory: MemoryStore,
    bug: Bug,
    injected: Arc<AtomicU32>,
}

impl Forgetful {
    /// The batch that is written; [`None`] if there is nothing to omit.
    fn changed(&self, batch: &Batch) -> Option<Batch> {
        let removes = batch.0.iter().any(is_removal);
        let names = batch
            .0
            .iter()
            .filter_map(totals)
            .any(|totals| totals.in_progress.is_some());
        let counts = !names && batch.0.iter().filter_map(totals).count() > 0;
        let mut batch = batch.clone();
        match self.bug {
            Bug::ForgetTheName if names && !removes => batch.0.retain(|op| totals(op).is_none()),
            Bug::ForgetToRemove if removes => batch.0.retain(|op| !is_removal(op)),
            Bug::ForgetToCount if counts && removes => batch.0.retain(|op| totals(op).is_none()),
            Bug::RemoveOneMore if removes => batch.0.push(self.one_more(&batch)?),
            _ => return None,
        }
        Some(batch)
    }

    /// The removal of the first dead letter that this batch keeps.
    fn one_more(&self, batch: &Batch) -> Option<WriteOp> {
        let mut found = None;
        let visit: &mut Visit<'_> = &mut |key, _| {
            let removed = batch
                .0
                .iter()
                .any(|op| matches!(op, WriteOp::Delete(_, of) | WriteOp::SingleDelete(_, of) if of == key));
            if removed {
                return ControlFlow::Continue(());
            }
            found = Some(WriteOp::Delete(Family::Dead, key.to_vec()));
            ControlFlow::Break(())
        };
        self.memory
            .scan(Family::Dead, &[], &[u8::MAX; 40], visit)
            .expect("a store in memory");
        found
    }
}

fn is_removal(op: &WriteOp) -> bool {
    matches!(
        op,
        WriteOp::Delete(Family::Dead, _) | WriteOp::SingleDelete(Family::Dead, _)
    )
}

/// The totals that an operation writes.
fn totals(op: &WriteOp) -> Option<DeadLetterTotals> {
    let WriteOp::Put(Family::Meta, key, value) = op else {
        return None;
    };
    keys::meta_of(MetaKind::DeadLetters)
        .contains(key)
        .then(|| DeadLetterTotals::decode(value).expect("whole"))
}

impl layer::StoreLayer for Forgetful {
    type Inner = MemoryStore;

    fn inner(&self) -> &Self::Inner {
        &self.memory
    }

    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        let Some(changed) = self.changed(batch) else {
            return self.memory.write(batch);
        };
        self.injected.fetch_add(1, Ordering::SeqCst);
        self.memory.write(&changed)
    }
}

/// The write at which a kill reveals the bug, and the failure count.
fn hunt(bug: Bug) -> Result<(u64, u32), u32> {
    let injected = Arc::new(AtomicU32::new(0));
    for write in 0..WRITES {
        let through = |memory| Forgetful {
            memory,
            bug,
            injected: Arc::clone(&injected),
        };
        let kill = Kill {
            write,
            kept: 0,
            more_meanwhile: 0,
        };
        if catch_unwind(AssertUnwindSafe(|| run(survive(kill, through)))).is_err() {
            return Ok((write, injected.load(Ordering::SeqCst)));
        }
    }
    Err(injected.load(Ordering::SeqCst))
}

#[test]
fn the_kills_detect_every_seeded_bug() {
    let mut caught = 0;
    for bug in BUGS {
        match hunt(bug) {
            Ok((write, injected)) => {
                println!("{bug:?}: caught by the kill at write {write}, injection {injected}");
                caught += usize::from(injected > 0);
            }
            Err(injected) => println!("{bug:?}: NOT caught, {injected} injections"),
        }
    }
    println!("caught {caught} of {}", BUGS.len());
    assert_eq!(caught, BUGS.len());
}
