//! Supervision that restarts actors after a panic.
//!
//! actix's own `Supervisor` does not: an actor whose handler panics is gone, with all its
//! addresses. So here an actor's context runs as a task, the task's end is observed, and a **new**
//! actor is built that recovers from durable state. The first restart is immediate. If the actor
//! keeps ending without progress, the delay grows. An actor ends with its parent: when the
//! [`Lifeline`] is cut, the task and the actor are dropped. An actor that retires is not restarted.

pub mod actor_factory;

use std::{
    collections::VecDeque,
    fmt,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use actix::{Actor, Addr, AsyncContext, Context};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use gridhook_chaos::IntendedStop;
use gridhook_clock::Clock;
use gridhook_event::Timestamp;

/// The delay after the second failure in a row, doubled for each further one up to
/// [`DELAY_MAX`].
const DELAY: Duration = Duration::from_millis(10);

const DELAY_MAX: Duration = Duration::from_secs(10);

/// The end of a [`LifelineWatch`] that the parent holds: its children end when it is cut or
/// dropped.
#[derive(Debug, Default)]
pub struct Lifeline(CancellationToken);

/// The child's end of a [`Lifeline`].
#[derive(Clone, Debug)]
pub struct LifelineWatch(CancellationToken);

impl Lifeline {
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the children, including those that are started later.
    pub fn end_children(&self) {
        self.0.cancel();
    }

    pub fn new_watch(&self) -> LifelineWatch {
        LifelineWatch(self.0.clone())
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.end_children();
    }
}

impl LifelineWatch {
    /// Waits until the lifeline is cut or dropped.
    pub async fn wait_for_end(&self) {
        self.0.cancelled().await;
    }
}

/// The restarts of one actor. Outlives its incarnations.
#[derive(Debug, Default)]
pub struct SupervisionHistory {
    incarnations: AtomicU64,
    failures_in_row: AtomicU32,
    intended_stop: IntendedStop,
    /// Whether the current incarnation has not yet processed what waited for it. Read often, so it
    /// is not under the lock.
    recovering: AtomicBool,
    /// [`None`] before an incarnation has ended unexpectedly, as of most actors.
    history: Mutex<Option<Box<IncarnationHistory>>>,
}

#[derive(Clone, Debug, Default)]
struct IncarnationHistory {
    ends: IncarnationEnds,
    last: Option<(IncarnationEnd, Timestamp)>,
    ended_at: Option<Timestamp>,
    recoveries: RecoveryTimes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncarnationEnd {
    Panicked,
    /// Chaos ended the incarnation by an intended panic or stop.
    Killed,
    /// The actor stopped because of an error.
    Stopped,
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

/// Numbers of ended incarnations, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncarnationEnds {
    pub panicked: u64,
    pub killed: u64,
    pub stopped: u64,
    pub orphaned: u64,
}

/// Times from the end of an incarnation until the next one has processed what waited for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryTimes {
    pub count: u64,
    pub longest: Duration,
    /// The newest recoveries, oldest first.
    pub newest: VecDeque<Duration>,
}

/// Recoveries kept per actor: one minute if it ends every 60 ms.
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

/// The supervision state of an actor.
#[derive(Clone, Debug)]
pub struct Supervision {
    /// Number of the current incarnation.
    pub incarnation: u64,
    pub restarts: u64,
    pub ends: IncarnationEnds,
    /// How and when the last incarnation ended.
    pub last: Option<(IncarnationEnd, Timestamp)>,
    pub recoveries: RecoveryTimes,
}

impl SupervisionHistory {
    pub fn incarnation_number(&self) -> u64 {
        self.incarnations.load(Ordering::Relaxed)
    }

    pub fn restart_count(&self) -> u64 {
        self.incarnation_number().saturating_sub(1)
    }

    /// A snapshot of the state.
    pub fn read_state(&self) -> Supervision {
        let IncarnationHistory {
            ends,
            last,
            recoveries,
            ..
        } = self.history.lock().as_deref().cloned().unwrap_or_default();
        Supervision {
            incarnation: self.incarnation_number(),
            restarts: self.restart_count(),
            ends,
            last,
            recoveries,
        }
    }

    pub fn incarnation_ends(&self) -> IncarnationEnds {
        self.history
            .lock()
            .as_deref()
            .map(|history| history.ends)
            .unwrap_or_default()
    }

    /// The mark by which the actor reports an intended end. That end counts neither for the delay
    /// nor against an event.
    pub fn intended_stop(&self) -> IntendedStop {
        self.intended_stop.clone()
    }

    /// Notes progress: the next restart is immediate again.
    pub fn note_progress(&self) {
        self.failures_in_row.store(0, Ordering::Relaxed);
    }

    /// Notes that the current incarnation has processed what waited for it.
    pub fn note_recovered(&self, clock: &Clock) {
        // Read first: called at every wake of a topic, usually with nothing to note.
        if self.recovering.load(Ordering::Relaxed) && self.recovering.swap(false, Ordering::AcqRel)
        {
            let mut history = self.history.lock();
            let history = history.get_or_insert_default();
            if let Some(ended_at) = history.ended_at.take() {
                history.recoveries.add(clock.now().since(ended_at));
            }
        }
    }

    /// The time at which the last incarnation ended, until the current one has recovered.
    pub fn down_since(&self) -> Option<Timestamp> {
        if self.recovering.load(Ordering::Acquire) {
            self.history.lock().as_deref()?.ended_at
        } else {
            None
        }
    }

    /// Notes that the actor ended at `at` with its parent.
    pub fn note_orphaned(&self, at: Timestamp) {
        if self.incarnation_number() > 0 {
            self.note_end(IncarnationEnd::Orphaned, at);
        }
    }

    fn begin_incarnation(&self) {
        self.incarnations.fetch_add(1, Ordering::Relaxed);
    }

    fn end_incarnation(&self, panicked: bool, now: Timestamp) -> IncarnationEnd {
        let end = match (self.intended_stop.take_mark(), panicked) {
            (true, true | false) => IncarnationEnd::Killed,
            (false, true) => IncarnationEnd::Panicked,
            (false, false) => IncarnationEnd::Stopped,
        };
        self.note_end(end, now);
        end
    }

    fn note_end(&self, end: IncarnationEnd, at: Timestamp) {
        let mut history = self.history.lock();
        let history = history.get_or_insert_default();
        match end {
            IncarnationEnd::Panicked => history.ends.panicked += 1,
            IncarnationEnd::Killed => history.ends.killed += 1,
            IncarnationEnd::Stopped => history.ends.stopped += 1,
            IncarnationEnd::Orphaned => history.ends.orphaned += 1,
        }
        history.last = Some((end, at));
        // An incarnation that ends before it has recovered extends the same outage.
        history.ended_at.get_or_insert(at);
        self.recovering.store(true, Ordering::Release);
    }

    /// Counts the failure, if the end is one, and returns the delay before the next incarnation.
    fn next_restart_delay(&self, end: IncarnationEnd) -> Duration {
        match end {
            IncarnationEnd::Killed | IncarnationEnd::Orphaned => Duration::ZERO,
            IncarnationEnd::Panicked | IncarnationEnd::Stopped => {
                match self.failures_in_row.fetch_add(1, Ordering::Relaxed) {
                    0 => Duration::ZERO,
                    before => DELAY
                        .saturating_mul(1 << (before - 1).min(16))
                        .min(DELAY_MAX),
                }
            }
        }
    }
}

/// An actor that is supervised.
pub trait Supervised: 'static {
    type Actor: Actor<Context = Context<Self::Actor>>;

    /// The name of the actor in the log.
    fn name(&self) -> String;

    fn supervision_history(&self) -> &SupervisionHistory;

    fn clock(&self) -> &Clock;

    /// Builds a new incarnation. [`None`] ends supervision: there is nothing left to do.
    fn build(&self) -> impl Future<Output = Option<Self::Actor>>;

    fn started(&self, _address: Addr<Self::Actor>) {}

    /// Called when an incarnation has ended.
    fn on_end(&self, _how: IncarnationEnd) {}

    /// Called when the lifeline was cut and the incarnation has ended.
    fn on_stopped(&self) {}

    /// Whether the actor stopped because it has nothing to do. New work builds another one.
    fn is_retired(&self) -> bool {
        false
    }
}

/// Starts an incarnation, which first runs when this task waits. In a function of its own, because
/// a task keeps room for every value that it has borrowed, such as the context.
fn start<A: Actor<Context = Context<A>>>(actor: A) -> (Addr<A>, JoinHandle<()>) {
    let mut context = Context::new();
    // The mailbox carries only faults that are injected. A limit could only lose one.
    context.set_mailbox_capacity(0);
    (
        context.address(),
        actix_rt::spawn(context.into_future(actor)),
    )
}

/// Runs and restarts an actor until its lifeline is cut or there is nothing left to build. Spawn it
/// on the arbiter on which the actor runs.
pub async fn supervise_actor<S: Supervised>(supervised: S, lifeline: LifelineWatch) {
    loop {
        // Boxed, so that the state of building does not take memory for as long as the actor runs.
        let built = tokio::select! {
            // The parent may have started a successor. An incarnation that begins after it would
            // take its wakes.
            biased;
            () = lifeline.wait_for_end() => return,
            built = Box::pin(supervised.build()) => built,
        };
        let Some(actor) = built else { return };
        supervised.supervision_history().begin_incarnation();
        // An actor without an address stops, and the actor may not have handed one out.
        let (address, mut task) = start(actor);
        supervised.started(address.clone());
        let result = tokio::select! {
            biased;
            () = lifeline.wait_for_end() => {
                task.abort();
                // Dropped before the parent may start a successor.
                task.await.ok();
                supervised.on_stopped();
                return;
            }
            ended = &mut task => ended,
        };
        drop(address);
        if result.is_ok() && supervised.is_retired() {
            return;
        }
        let has_panicked = result.is_err_and(|error| error.is_panic());
        let how = supervised
            .supervision_history()
            .end_incarnation(has_panicked, supervised.clock().now());
        supervised.on_end(how);
        let delay = supervised.supervision_history().next_restart_delay(how);
        tracing::warn!(
            actor = supervised.name(),
            ?how,
            delay_ms = delay.as_millis(),
            "actor ended; restarting it"
        );
        tokio::time::sleep(delay).await;
    }
}
