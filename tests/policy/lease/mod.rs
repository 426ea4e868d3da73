//! Pull delivery against a list of events: clients come and go, settle late, twice or never; the
//! actor restarts; the process crashes between any two writes; the clock is set back. No event is
//! lost, no two clients hold a lock of the same event, no attempt is forgotten, and each event ends
//! once. Each seed is a scenario; `SEED=<seed>` runs only that one.
//!
//! The negative controls inject bugs, and the model must notice each.

mod filled;
mod moved_clock;
mod truth;
mod world;

use std::{
    cell::Cell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use gridhook::{
    event::SubscriptionKey,
    policy::{Input, SubscriptionWrite, record::RecordChange},
};

use self::world::{LeaseRun, ORDERED};
use super::{
    disk::{load, pending_of},
    model::{is_chosen, run_each},
};
use crate::support::{memory_store::MemoryStore, needs::many};

/// An injected bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// A client receives its response before the result is durable.
    AnswerBeforeDurable,
    /// A leased or returned event is not pending.
    OmitPendingDelivery,
    /// An attempt is not counted.
    ForgetAnAttempt,
    /// An acknowledged event stays pending.
    KeepDeliveredPending,
    /// A rejected event is counted and not dead-lettered.
    CountUnwrittenDeadLetter,
    /// A lock is stored with a shorter time than promised.
    ShortenALock,
    /// The written cursor is ahead of the state machine.
    AdvanceTheCursorTooEarly,
    /// Any lock token is accepted, whichever attempt it belongs to.
    TakeAnyToken,
    /// The clock of the machine is ahead.
    ExpireEarly,
    /// The timer never fires.
    LoseTheTimer,
    /// A slice of the log lacks one of its events.
    LoseAnEventOfASlice,
    /// A new incarnation does not know that something is pending.
    ForgetWhatIsDue,
    /// A partial write is reported as durable.
    TearAWrite,
}

const BUGS: [Bug; 13] = [
    Bug::AnswerBeforeDurable,
    Bug::OmitPendingDelivery,
    Bug::ForgetAnAttempt,
    Bug::KeepDeliveredPending,
    Bug::CountUnwrittenDeadLetter,
    Bug::ShortenALock,
    Bug::AdvanceTheCursorTooEarly,
    Bug::TakeAnyToken,
    Bug::ExpireEarly,
    Bug::LoseTheTimer,
    Bug::LoseAnEventOfASlice,
    Bug::ForgetWhatIsDue,
    Bug::TearAWrite,
];

/// Injects bugs; by default none.
struct Saboteur {
    bug: Option<Bug>,
    injected: Cell<u32>,
}

impl Saboteur {
    fn new(bug: Option<Bug>) -> Self {
        Self {
            bug,
            injected: Cell::new(0),
        }
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn does(&self, bug: Bug) -> bool {
        let does = self.is(bug);
        self.injected.set(self.injected.get() + u32::from(does));
        does
    }

    fn injected(&self) -> u32 {
        self.injected.get()
    }

    /// The state machine's inputs.
    fn hear(&self, input: &mut Input, memory: &MemoryStore, subscription_key: SubscriptionKey) {
        let Input::Claim(claim) = input else { return };
        if self.is(Bug::TakeAnyToken) {
            let disk = load(memory, subscription_key);
            for lease in &mut claim.leases {
                if let Some(pending) =
                    pending_of(&disk, lease.seq).filter(|pending| pending.attempts != lease.attempt)
                {
                    self.does(Bug::TakeAnyToken);
                    lease.attempt = pending.attempts;
                }
            }
        }
    }

    /// Writes that the state machine requests.
    fn ask(&self, write: &mut SubscriptionWrite) {
        let forgotten = |change: &RecordChange| match change {
            RecordChange::Defer { .. } => self.is(Bug::OmitPendingDelivery),
            RecordChange::Settle { .. } => self.is(Bug::KeepDeliveredPending),
            RecordChange::DeadLetter { .. } => self.is(Bug::CountUnwrittenDeadLetter),
            _ => false,
        };
        let before = write.changes.len();
        write.changes.retain(|change| !forgotten(change));
        self.injected
            .set(self.injected.get() + (before - write.changes.len()) as u32);
        if self.is(Bug::TearAWrite) && write.changes.len() > 1 {
            self.does(Bug::TearAWrite);
            write.changes.truncate(write.changes.len() / 2);
        }
        for change in &mut write.changes {
            match change {
                RecordChange::Cursor(cursor) if self.does(Bug::AdvanceTheCursorTooEarly) => {
                    cursor.lanes[0].read = cursor.lanes[0].read.plus(1);
                }
                RecordChange::Defer { pending, .. } if self.does(Bug::ForgetAnAttempt) => {
                    pending.attempts = pending.attempts.saturating_sub(1);
                }
                RecordChange::Defer { pending, .. } if self.does(Bug::ShortenALock) => {
                    pending.due = pending.due.before(std::time::Duration::from_secs(30));
                }
                _ => {}
            }
        }
    }
}

fn run_scenario(
    seed: u64,
    bug: Option<Bug>,
    steps: &mut BTreeMap<&'static str, u32>,
    injected: &mut u32,
) {
    let mut world = LeaseRun::begin(seed, bug);
    let reported = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..600 {
            world.step();
        }
        world.heal();
    }));
    *injected += world.injected();
    for (step, count) in &world.steps {
        *steps.entry(step).or_default() += count;
    }
    world.close();
    if let Err(panic) = reported {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn each_event_is_with_one_client_and_ends_once_whatever_happens() {
    let _rows = crate::spec::shows(&[
        "S001-006: In pull delivery, an event that the consumer application could not process \
         before its lock expired is listed as a case in which dead-lettering happens.",
        "S001-007: In pull delivery, an event that the consumer application could not process \
         before the retention period expired is dead-lettered.",
    ]);
    let mut steps = BTreeMap::new();
    let mut injected = 0;
    let usual = many(200, 3000);
    run_each(0..usual, |seed| {
        run_scenario(seed, None, &mut steps, &mut injected)
    });
    println!("steps that were taken, and refused: {steps:?}");
    if is_chosen() {
        return;
    }
    for step in ["acknowledge", "release", "reject", "renew", "refused"] {
        assert!(
            steps.get(step).is_some_and(|count| *count > 100),
            "too few clients used {step}: {steps:?}"
        );
    }
}

#[test]
fn events_of_a_key_are_with_one_client_at_a_time_and_in_order_whatever_happens() {
    let mut steps = BTreeMap::new();
    let mut injected = 0;
    // In 1,001,711 one write renews a lock, blocks the key and unblocks it by another attempt.
    run_each((ORDERED..ORDERED + 150).chain([1_001_711]), |seed| {
        run_scenario(seed.max(ORDERED), None, &mut steps, &mut injected);
    });
    println!("steps that were taken, and refused: {steps:?}");
    if is_chosen() {
        return;
    }
    for step in [
        "acknowledge",
        "release",
        "reject",
        "renew",
        "received again",
        "unblock",
        "unblock by another attempt",
    ] {
        assert!(
            steps.get(step).is_some_and(|count| *count > 20),
            "too few clients used {step}: {steps:?}"
        );
    }
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

#[test]
fn the_model_detects_every_seeded_bug_of_leases() {
    let mut missed = Vec::new();
    for bug in BUGS {
        let mut steps = BTreeMap::new();
        let mut injected = 0;
        let caught = (0..SCENARIOS).find_map(|seed| {
            let reported = catch_unwind(AssertUnwindSafe(|| {
                run_scenario(seed, Some(bug), &mut steps, &mut injected)
            }));
            reported.err().map(|panic| (seed, panic_message(&*panic)))
        });
        match caught {
            Some((seed, message)) => {
                println!("{bug:?}: caught in scenario {seed}, injection {injected}: {message}")
            }
            None => {
                println!(
                    "{bug:?}: NOT caught in {SCENARIOS} scenarios, {injected} injections, {steps:?}"
                );
                missed.push(bug);
            }
        }
    }
    println!("caught {} of {}", BUGS.len() - missed.len(), BUGS.len());
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
