//! Supervision that really restarts.
//!
//! actix does not: an actor whose handler panics is gone, under its `Supervisor` too, and every address of it with it. So an
//! actor's context is spawned as a task here, its end is watched, and a **fresh** actor is built, which reads its state from
//! where that is durable. At once the first time, and after a growing delay if it keeps dying before it has achieved
//! anything. It ends with its parent: when the [`Lifeline`] is cut, the task and the actor are dropped. An actor that retires
//! is not built again here.

pub mod actor_factory;
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use actix::{Actor, Addr, AsyncContext, Context};
use tokio::sync::watch;

use crate::{chaos::IntendedStop, clock::Clock, event::Timestamp};

/// The delay after the second death in a row, doubled for each further one …
const DELAY: Duration = Duration::from_millis(10);

/// … up to this.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Held by a parent: its children end when it is cut or dropped.
#[derive(Debug)]
pub struct Lifeline(watch::Sender<bool>);

/// Held by a child.
#[derive(Clone, Debug)]
pub struct LifelineHeld(watch::Receiver<bool>);

impl Lifeline {
    /// A new one.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Cuts it before it is dropped, also for children that are started later.
    pub fn cut(&self) {
        self.0.send_replace(true);
    }

    /// An end of it for a child.
    pub fn held(&self) -> LifelineHeld {
        LifelineHeld(self.0.subscribe())
    }
}

impl Default for Lifeline {
    fn default() -> Self {
        Self::new()
    }
}

impl LifelineHeld {
    /// Waits until it is cut, or dropped.
    pub async fn cut(&mut self) {
        // An error says that it was dropped.
        self.0.wait_for(|is_cut| *is_cut).await.ok();
    }
}

/// What is known of the lives of one actor. It outlives all of them.
#[derive(Debug, Default)]
pub struct SupervisionHistory {
    incarnations: AtomicU64,
    in_row: AtomicU32,
    mark: IntendedStop,
    /// Whether a life has yet to work off what waited for it. Asked at every start, so not under the lock.
    recovering: AtomicBool,
    history: Mutex<IncarnationHistory>,
}

#[derive(Debug, Default)]
struct IncarnationHistory {
    ends: IncarnationEnds,
    last: Option<(IncarnationEnd, Timestamp)>,
    died: Option<Timestamp>,
    recoveries: RecoveryTimes,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncarnationEnd {
    /// By a panic of its own.
    Panicked,
    /// By a panic, or a stop, that somebody asked for.
    Killed,
    /// It stopped: it could not go on.
    Stopped,
    /// Its parent's life ended, and its own with it.
    Orphaned,
}

impl fmt::Display for IncarnationEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Panicked => "panicked",
            Self::Killed => "killed on purpose",
            Self::Stopped => "stopped",
            Self::Orphaned => "ended with its topic's actor",
        })
    }
}

/// How often lives ended, by how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncarnationEnds {
    /// [`IncarnationEnd::Panicked`].
    pub panicked: u64,
    /// [`IncarnationEnd::Killed`].
    pub killed: u64,
    /// [`IncarnationEnd::Stopped`].
    pub stopped: u64,
    /// [`IncarnationEnd::Orphaned`].
    pub orphaned: u64,
}

/// The times from a death to the first useful act of the next life: it has worked off what waited for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryTimes {
    /// How many there were.
    pub count: u64,
    /// The longest of all.
    pub longest: Duration,
    /// The newest of them, oldest first.
    pub newest: VecDeque<Duration>,
}

/// So many recoveries of an actor are kept: a minute of one that dies every 60 ms.
const RECOVERIES_KEPT: usize = 1_000;

impl RecoveryTimes {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.longest = self.longest.max(took);
        self.newest.push_back(took);
        if self.newest.len() > RECOVERIES_KEPT {
            self.newest.pop_front();
        }
    }
}

/// What there is to say of the lives of an actor.
#[derive(Clone, Debug)]
pub struct Supervision {
    /// The number of the life that runs.
    pub incarnation: u64,
    /// How many times it was built again.
    pub restarts: u64,
    /// How its lives ended.
    pub ends: IncarnationEnds,
    /// How the last one did, and when.
    pub last: Option<(IncarnationEnd, Timestamp)>,
    /// How long it took each time until the next one was at work.
    pub recoveries: RecoveryTimes,
}

impl SupervisionHistory {
    /// The number of the life that runs.
    pub fn incarnation(&self) -> u64 {
        self.incarnations.load(Ordering::Relaxed)
    }

    /// How many times it was built again.
    pub fn restarts(&self) -> u64 {
        self.incarnation().saturating_sub(1)
    }

    /// What there is to say.
    pub fn supervision(&self) -> Supervision {
        let IncarnationHistory { ends, last, recoveries, .. } = &*self.history();
        let (life, restarts) = (self.incarnation(), self.restarts());
        Supervision { incarnation: life, restarts, ends: *ends, last: *last, recoveries: recoveries.clone() }
    }

    /// How its lives ended.
    pub fn ends(&self) -> IncarnationEnds {
        self.history().ends
    }

    /// Where a death that was asked for is noted: it counts neither for the delay nor against an event.
    pub fn intended_stop(&self) -> IntendedStop {
        self.mark.clone()
    }

    /// Something was achieved: the next death is the first again.
    pub fn thrive(&self) {
        self.in_row.store(0, Ordering::Relaxed);
    }

    /// The life that runs has worked off what waited for it.
    pub fn acted(&self, clock: &Clock) {
        // Read first: it is asked at every wake of a topic, and mostly there is nothing to note.
        if self.recovering.load(Ordering::Relaxed) && self.recovering.swap(false, Ordering::AcqRel) {
            let mut history = self.history();
            if let Some(died) = history.died.take() {
                history.recoveries.add(clock.now().since(died));
            }
        }
    }

    /// When the last life died, where the one that runs has not come so far as to replace it.
    pub fn died(&self) -> Option<Timestamp> {
        if self.recovering.load(Ordering::Acquire) { self.history().died } else { None }
    }

    /// Its parent died at `at`, and its own life with it.
    pub fn orphaned(&self, at: Timestamp) {
        if self.incarnation() > 0 {
            self.note(IncarnationEnd::Orphaned, at);
        }
    }

    fn begin(&self) {
        self.incarnations.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self, panicked: bool, now: Timestamp) -> IncarnationEnd {
        let end = match (self.mark.take(), panicked) {
            (true, true | false) => IncarnationEnd::Killed,
            (false, true) => IncarnationEnd::Panicked,
            (false, false) => IncarnationEnd::Stopped,
        };
        self.note(end, now);
        end
    }

    fn note(&self, end: IncarnationEnd, at: Timestamp) {
        let mut history = self.history();
        match end {
            IncarnationEnd::Panicked => history.ends.panicked += 1,
            IncarnationEnd::Killed => history.ends.killed += 1,
            IncarnationEnd::Stopped => history.ends.stopped += 1,
            IncarnationEnd::Orphaned => history.ends.orphaned += 1,
        }
        history.last = Some((end, at));
        // One that dies before it has recovered has been away since the first death.
        history.died.get_or_insert(at);
        self.recovering.store(true, Ordering::Release);
    }

    fn delay(&self, end: IncarnationEnd) -> Duration {
        match end {
            IncarnationEnd::Killed | IncarnationEnd::Orphaned => Duration::ZERO,
            IncarnationEnd::Panicked | IncarnationEnd::Stopped => match self.in_row.fetch_add(1, Ordering::Relaxed) {
                0 => Duration::ZERO,
                before => DELAY.saturating_mul(1 << (before - 1).min(16)).min(DELAY_MAX),
            },
        }
    }

    fn history(&self) -> MutexGuard<'_, IncarnationHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who is supervised: how a life is built, and who is told.
pub trait Supervised: 'static {
    /// The actor.
    type Actor: Actor<Context = Context<Self::Actor>>;

    /// What it is called in the log.
    fn name(&self) -> String;

    /// What is known of its lives.
    fn history(&self) -> &SupervisionHistory;

    /// What time it is.
    fn clock(&self) -> &Clock;

    /// Builds a fresh one. [`None`] where there is nothing left to do: supervision ends.
    fn build(&self) -> impl Future<Output = Option<Self::Actor>>;

    /// It runs.
    fn started(&self, _address: Addr<Self::Actor>) {}

    /// It runs no more.
    fn on_end(&self, _how: IncarnationEnd) {}

    /// Whether the actor that ended has nothing left to do, and whoever has something for it builds another.
    fn is_retired(&self) -> bool {
        false
    }
}

/// Keeps an actor alive until its lifeline is cut or there is nothing left to build. To be spawned on the arbiter that it
/// is to live on.
pub async fn supervise<S: Supervised>(supervised: S, mut held: LifelineHeld) {
    loop {
        // Apart: what building needs for a moment would lie here for as long as the actor lives.
        let built = tokio::select! {
            built = Box::pin(supervised.build()) => built,
            () = held.cut() => return,
        };
        let Some(actor) = built else { return };
        supervised.history().begin();
        let mut context = Context::new();
        // Nothing but wakes comes by mail, and at most one of each kind: a bound would only lose one.
        context.set_mailbox_capacity(0);
        // An actor without addresses stops, and this one may have given none away.
        let address = context.address();
        supervised.started(address.clone());
        let mut task = actix_rt::spawn(context.into_future(actor));
        let ended = tokio::select! {
            ended = &mut task => ended,
            () = held.cut() => {
                task.abort();
                // It is dropped before whoever cut the line may go on in its place.
                task.await.ok();
                return;
            }
        };
        drop(address);
        if ended.is_ok() && supervised.is_retired() {
            return;
        }
        let panicked = ended.is_err_and(|error| error.is_panic());
        let how = supervised.history().end(panicked, supervised.clock().now());
        supervised.on_end(how);
        let delay = supervised.history().delay(how);
        tracing::warn!(
            actor = supervised.name(),
            ?how,
            delay_ms = delay.as_millis(),
            "an actor ended and is built again"
        );
        tokio::time::sleep(delay).await;
    }
}
