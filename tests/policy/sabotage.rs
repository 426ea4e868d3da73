//! Negative controls of the model: bugs are injected between policy, endpoint and disk, one at a
//! time, and the model must notice each. A model that notices nothing proves nothing.
//!
//! Bugs are injected where the model intercepts anyway: inputs, requested writes, writes of the
//! store, and the state handed to a new incarnation. The program contains no code for them.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use gridhook::{
    event::{
        Event, Lane, RequestId, Seq,
        chunk::{Chunk, RunningTotals},
    },
    policy::{
        Input, SubscriptionWrite,
        order::OrderSettings,
        outcome::Outcome,
        record::{FetchedPending, PendingDelivery, RecordChange},
    },
    simulate::SimulatedStore,
    store::{
        Batch, Family, Store, StoreError, WriteOp,
        keys::{self, MetaKind},
        records::{FloorRecord, StoredRecord},
    },
};

use super::{
    driver::{START, status},
    model::{order::run_ordered, run_scenario},
    sealed,
};
use crate::support::memory_store::{MemoryStore, WriteFault};

/// An injected bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    // --- on disk ---
    /// A write is acknowledged before it is synced.
    AcknowledgeBeforeSync,
    /// A full disk reports success.
    AcknowledgeWhenFull,
    /// Half of a batch is written.
    TearABatch,
    /// Published events are missing in the log.
    LoseAChunk,
    /// A pending record is not written.
    ForgetAPendingRecord,
    /// A due key is not written.
    LoseADueKey,
    /// A cursor is not written.
    LoseACursor,
    /// Pending deliveries below the floor are not carried over.
    CarryNothing,
    /// A log is deleted before the floor above it is durable, and the floor is then lost.
    DropTheLogBeforeItsFloor,
    /// A dead letter is not written.
    LoseADeadLetter,
    // --- between policy and journal ---
    /// The written cursor is ahead of the state machine.
    AdvanceTheCursorTooEarly,
    /// A delivery is counted twice.
    CountTwice,
    /// A read of pending deliveries returns some that have ended.
    ReadEndedDeliveries,
    /// A failed event does not become pending.
    OmitPendingDelivery,
    /// An attempt is not counted.
    ForgetAnAttempt,
    /// A dead letter is counted and not written.
    CountUnwrittenDeadLetter,
    /// A delivered event stays pending.
    KeepDeliveredPending,
    /// An outcome counts as durable and is never written.
    DeliverWithoutJournal,
    /// A request is forgotten before its outcome is durable.
    SuspendBeforeDurable,
    // --- between policy and endpoint ---
    /// A response is credited to the requests of this incarnation, whichever attempt it belongs to.
    CreditOtherAttempt,
    /// Any response is a success.
    TakeAnyResponseForSuccess,
    /// A slice of the log lacks one of its events.
    LoseAnEventOfASlice,
    /// The policy's clock is ahead.
    SendEarly,
    /// The timer never fires.
    LoseTheTimer,
    // --- between two incarnations ---
    /// A new incarnation does not receive the requests in flight.
    ForgetRequestsInFlight,
    /// A fenced incarnation writes next to the new one.
    TwoIncarnationsWrite,
    // --- order by key ---
    /// Events are sent in any order.
    KeepNoOrder,
    /// A new incarnation keeps no order.
    ForgetTheOrder,
    /// A new incarnation does not load the held-back events.
    LoseHeldBackEvents,
    /// A new incarnation does not learn the keys of pending deliveries.
    ForgetTheKeys,
    /// Events that are given up block nothing.
    BlockNothing,
    /// A new incarnation does not know that events block their key.
    ForgetTheBlocks,
}

/// Bugs of the order by key.
const ORDER_BUGS: [Bug; 6] = [
    Bug::KeepNoOrder,
    Bug::ForgetTheOrder,
    Bug::LoseHeldBackEvents,
    Bug::ForgetTheKeys,
    Bug::BlockNothing,
    Bug::ForgetTheBlocks,
];

const BUGS: [Bug; 26] = [
    Bug::AcknowledgeBeforeSync,
    Bug::AcknowledgeWhenFull,
    Bug::TearABatch,
    Bug::LoseAChunk,
    Bug::ForgetAPendingRecord,
    Bug::LoseADueKey,
    Bug::LoseACursor,
    Bug::CarryNothing,
    Bug::DropTheLogBeforeItsFloor,
    Bug::LoseADeadLetter,
    Bug::AdvanceTheCursorTooEarly,
    Bug::CountTwice,
    Bug::ReadEndedDeliveries,
    Bug::OmitPendingDelivery,
    Bug::ForgetAnAttempt,
    Bug::CountUnwrittenDeadLetter,
    Bug::KeepDeliveredPending,
    Bug::DeliverWithoutJournal,
    Bug::SuspendBeforeDurable,
    Bug::CreditOtherAttempt,
    Bug::TakeAnyResponseForSuccess,
    Bug::LoseAnEventOfASlice,
    Bug::SendEarly,
    Bug::LoseTheTimer,
    Bug::ForgetRequestsInFlight,
    Bug::TwoIncarnationsWrite,
];

/// Injects bugs. By default none.
#[derive(Debug, Default)]
pub(super) struct Saboteur {
    bug: Option<Bug>,
    /// How often a bug was injected.
    injected: AtomicU32,
    /// The problems that the store noticed.
    noticed: Mutex<Option<String>>,
    /// Every delivery that was ever pending.
    pending: Mutex<BTreeMap<(Lane, Seq), PendingDelivery>>,
}

impl Saboteur {
    /// Whether to inject this bug now; called at each occasion.
    pub(super) fn does(&self, bug: Bug) -> bool {
        let does = self.bug == Some(bug);
        if does {
            self.injected.fetch_add(1, Ordering::SeqCst);
        }
        does
    }

    /// Whether this is the bug, without an injection.
    pub(super) fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The order that a subscription begins with.
    pub(super) fn order(&self, order: Option<Arc<OrderSettings>>) -> Option<Arc<OrderSettings>> {
        self.unblocked(
            order.filter(|_| !self.does(Bug::KeepNoOrder)),
            Bug::BlockNothing,
        )
    }

    /// The order of a new incarnation.
    pub(super) fn next_order(
        &self,
        order: Option<&Arc<OrderSettings>>,
    ) -> Option<Arc<OrderSettings>> {
        self.unblocked(
            order.cloned().filter(|_| !self.does(Bug::ForgetTheOrder)),
            Bug::ForgetTheBlocks,
        )
    }

    fn unblocked(&self, order: Option<Arc<OrderSettings>>, bug: Bug) -> Option<Arc<OrderSettings>> {
        match order {
            Some(order) if order.blocks && self.does(bug) => Some(Arc::new(OrderSettings {
                blocks: false,
                ..(*order).clone()
            })),
            order => order,
        }
    }

    /// Pending deliveries that are fetched.
    pub(super) fn fetch(&self, fetched: &mut [FetchedPending]) {
        if self.is(Bug::ForgetTheKeys) {
            for fetched in fetched
                .iter_mut()
                .filter(|fetched| fetched.pending.is_some())
            {
                self.does(Bug::ForgetTheKeys);
                // The subject is the key.
                let chunk = sealed(&[(&format!("other-{}", fetched.seq.0), 0)]).remove(0);
                let chunk = Chunk::decode(
                    fetched.seq,
                    chunk.stamp_record(START, RunningTotals::default()),
                )
                .expect("a sound chunk");
                fetched.event = chunk
                    .decode_events()
                    .expect("sound events")
                    .into_iter()
                    .next();
            }
        }
    }

    /// Remembers the pending deliveries on disk.
    pub(super) fn remember(&self, disk: &SimulatedStore) {
        if self.is(Bug::ReadEndedDeliveries) {
            let pending = disk
                .pending
                .iter()
                .map(|(key, pending)| (*key, pending.clone()));
            self.pending.lock().extend(pending);
        }
    }

    /// The result of a read of pending deliveries.
    pub(super) fn look_up(&self, found: &mut [(Lane, Seq, Option<PendingDelivery>)]) {
        for (lane, seq, pending) in found.iter_mut().filter(|(_, _, pending)| pending.is_none()) {
            let known = self.pending.lock().get(&(*lane, *seq)).cloned();
            if let Some(known) = known.filter(|_| self.does(Bug::ReadEndedDeliveries)) {
                let due = known.due.after(Duration::from_secs(86_400));
                *pending = Some(PendingDelivery { due, ..known });
            }
        }
    }

    /// The disk of a store.
    pub(super) fn disk(&self, memory: MemoryStore) -> MemoryStore {
        if self.does(Bug::AcknowledgeBeforeSync) {
            // Except for the first write.
            memory.fail(1..u64::MAX, WriteFault::Lie);
        }
        memory
    }

    /// The store's write.
    pub(super) fn write(
        &self,
        batch: &Batch,
        is_full: bool,
        memory: &MemoryStore,
    ) -> Result<(), StoreError> {
        if is_full {
            return if self.does(Bug::AcknowledgeWhenFull) {
                Ok(())
            } else {
                Err(StoreError::Full)
            };
        }
        let Some(bug) = self.bug else {
            return memory.write(batch);
        };
        let mut batch = batch.without_outcomes().into_owned();
        let lost = match bug {
            Bug::LoseAChunk => Some(Family::Log),
            Bug::ForgetAPendingRecord => Some(Family::Pending),
            Bug::LoseADueKey => Some(Family::Due),
            Bug::LoseACursor => Some(Family::Cursor),
            Bug::CarryNothing => Some(Family::Carried),
            Bug::LoseADeadLetter => Some(Family::Dead),
            _ => None,
        };
        let is_lost =
            |op: &WriteOp| matches!(op, WriteOp::Put(family, ..) if Some(*family) == lost);
        // The first cursor of a subscription must exist.
        if memory.writes() > 1 && batch.0.iter().any(is_lost) && self.does(bug) {
            batch.0.retain(|op| !is_lost(op));
        }
        if batch.0.len() > 1 && memory.writes() > 1 && self.does(Bug::TearABatch) {
            batch.0.truncate(batch.0.len() / 2);
        }
        let floors: Vec<_> = batch.0.iter().filter_map(floor).collect();
        if memory.writes() > 1 && !floors.is_empty() && self.does(Bug::DropTheLogBeforeItsFloor) {
            for (partition, floor) in floors {
                memory.drop_log(partition, floor)?;
            }
            return Err(StoreError::Full);
        }
        // The in-memory store panics if a bug breaks its rules, which must not end the writer
        // thread.
        catch_unwind(AssertUnwindSafe(|| memory.write(&batch))).unwrap_or_else(|panic| {
            *self.noticed.lock() = Some(panic_message(&*panic));
            Err(StoreError::Failed(
                "a rule of the store is broken".to_owned(),
            ))
        })
    }

    /// The policy's inputs.
    pub(super) fn hear(&self, input: &mut Input, unanswered: Option<RequestId>) {
        let Input::Finished { request, result } = input else {
            return;
        };
        if let Some(other) = unanswered.filter(|other| other != request)
            && self.does(Bug::CreditOtherAttempt)
        {
            *request = other;
        }
        if result.outcome != Outcome::Delivered && self.does(Bug::TakeAnyResponseForSuccess) {
            *result = status(200);
        }
    }

    /// Events read from the log.
    pub(super) fn read(&self, events: &mut Vec<Event>) {
        if !events.is_empty() && self.does(Bug::LoseAnEventOfASlice) {
            events.pop();
        }
    }

    /// Writes that the policy requests.
    pub(super) fn ask(&self, write: &mut SubscriptionWrite) {
        let forgotten = |change: &RecordChange| match change {
            RecordChange::Defer { .. } => self.bug == Some(Bug::OmitPendingDelivery),
            RecordChange::DeadLetter { .. } => self.bug == Some(Bug::CountUnwrittenDeadLetter),
            RecordChange::Settle { .. } => self.bug == Some(Bug::KeepDeliveredPending),
            _ => false,
        };
        if let Some(bug) = self.bug.filter(|_| write.changes.iter().any(forgotten)) {
            self.does(bug);
            write.changes.retain(|change| !forgotten(change));
        }
        for change in &mut write.changes {
            match change {
                RecordChange::Cursor(cursor) => {
                    if self.does(Bug::AdvanceTheCursorTooEarly) {
                        cursor.lanes[0].read = cursor.lanes[0].read.plus(1);
                    }
                    let counters = &mut cursor.counters;
                    if counters.delivered > 0 && self.does(Bug::CountTwice) {
                        // Both equations hold.
                        counters.passed += 1;
                        counters.matched += 1;
                        counters.delivered += 1;
                    }
                }
                RecordChange::Defer { pending, .. }
                    if pending.attempts > 0 && self.does(Bug::ForgetAnAttempt) =>
                {
                    pending.attempts -= 1
                }
                _ => {}
            }
        }
    }
}

/// The floor that an operation moves.
fn floor(op: &WriteOp) -> Option<(gridhook::event::PartitionId, Seq)> {
    let WriteOp::Put(Family::Meta, key, value) = op else {
        return None;
    };
    keys::meta_of(MetaKind::Floor).contains(key).then_some(())?;
    Some((
        keys::parse_floor(key)?,
        FloorRecord::decode(value).ok()?.floor,
    ))
}

/// A panic's message in one line.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("something")
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(110)
        .collect()
}

/// Scenarios per bug. A bug that none of them notices fails the test.
const SCENARIOS: u64 = 60;

/// The scenario that notices the bug, the number of injections until then, and the failure.
fn hunt(bug: Bug) -> Result<(u64, u32, String), u32> {
    let mut injected = 0;
    for seed in 0..SCENARIOS {
        let saboteur = Arc::new(Saboteur {
            bug: Some(bug),
            ..Saboteur::default()
        });
        let reported = catch_unwind(AssertUnwindSafe(|| {
            if ORDER_BUGS.contains(&bug) {
                run_ordered(seed, 400, &saboteur);
            } else {
                run_scenario(seed, 400, &saboteur);
            }
        }));
        injected += saboteur.injected.load(Ordering::SeqCst);
        if let Err(panic) = reported {
            let noticed = saboteur.noticed.lock().take();
            return Ok((
                seed,
                injected,
                noticed.unwrap_or_else(|| panic_message(&*panic)),
            ));
        }
    }
    Err(injected)
}

#[test]
fn the_model_detects_every_seeded_bug() {
    let mut missed = Vec::new();
    for bug in BUGS.into_iter().chain(ORDER_BUGS) {
        match hunt(bug) {
            Ok((seed, injected, message)) => {
                println!("{bug:?}: caught in scenario {seed}, injection {injected}: {message}")
            }
            Err(injected) => {
                println!("{bug:?}: NOT caught in {SCENARIOS} scenarios, {injected} injections");
                missed.push((bug, injected));
            }
        }
    }
    println!(
        "caught {} of {}",
        BUGS.len() + ORDER_BUGS.len() - missed.len(),
        BUGS.len() + ORDER_BUGS.len()
    );
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
