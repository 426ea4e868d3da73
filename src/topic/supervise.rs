//! Supervision that really restarts.
//!
//! actix does not: an actor whose handler panics is gone, under its `Supervisor` too, and every address of it with it. So an
//! actor's context is spawned as a task here, its end is watched, and a **fresh** actor is built, which reads its state from
//! where that is durable. At once the first time, and after a growing delay if it keeps dying before it has achieved
//! anything. It ends with its parent: when the [`Lifeline`] is cut, the task and the actor are dropped.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use actix::{Actor, Addr, AsyncContext, Context};
use tokio::sync::watch;

/// The delay after the second death in a row, doubled for each further one …
const DELAY: Duration = Duration::from_millis(10);

/// … up to this.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Held by a parent: its children end when it is dropped.
#[derive(Debug)]
pub struct Lifeline(watch::Sender<()>);

/// Held by a child.
#[derive(Clone, Debug)]
pub struct Held(watch::Receiver<()>);

impl Lifeline {
    /// A new one.
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Cuts it before it is dropped.
    pub fn cut(&self) {
        // Nobody holds it where no child was ever started.
        self.0.send(()).ok();
    }

    /// An end of it for a child.
    pub fn held(&self) -> Held {
        Held(self.0.subscribe())
    }
}

impl Default for Lifeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Held {
    /// Waits until it is cut, or dropped.
    pub async fn cut(&mut self) {
        // An error says that it was dropped.
        self.0.changed().await.ok();
    }
}

/// What is known of the lives of one actor. It outlives all of them.
#[derive(Debug, Default)]
pub struct Chart {
    lives: AtomicU64,
    in_row: AtomicU32,
    on_purpose: AtomicBool,
    last_cause: Mutex<Option<String>>,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By a panic of its own.
    Panicked,
    /// By a panic, or a stop, that somebody asked for.
    Killed,
    /// It stopped: it could not go on.
    Stopped,
}

impl Chart {
    /// The number of the life that runs.
    pub fn life(&self) -> u64 {
        self.lives.load(Ordering::Relaxed)
    }

    /// How many times it was built again.
    pub fn restarts(&self) -> u64 {
        self.life().saturating_sub(1)
    }

    /// Why the last life ended.
    pub fn last_cause(&self) -> Option<String> {
        self.last_cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next death is asked for, and counts neither for the delay nor against an event.
    pub fn kill_on_purpose(&self) {
        self.on_purpose.store(true, Ordering::Release);
    }

    /// Something was achieved: the next death is the first again.
    pub fn thrive(&self) {
        self.in_row.store(0, Ordering::Relaxed);
    }

    fn begin(&self) {
        self.lives.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self, panicked: bool) -> End {
        let end = match (self.on_purpose.swap(false, Ordering::AcqRel), panicked) {
            (true, true | false) => End::Killed,
            (false, true) => End::Panicked,
            (false, false) => End::Stopped,
        };
        let cause = match end {
            End::Panicked => "panicked",
            End::Killed => "killed on purpose",
            End::Stopped => "stopped",
        };
        *self.last_cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause.to_owned());
        end
    }

    fn delay(&self, end: End) -> Duration {
        match end {
            End::Killed => Duration::ZERO,
            End::Panicked | End::Stopped => match self.in_row.fetch_add(1, Ordering::Relaxed) {
                0 => Duration::ZERO,
                before => DELAY.saturating_mul(1 << (before - 1).min(16)).min(DELAY_MAX),
            },
        }
    }
}

/// Who is supervised: how a life is built, and who is told.
pub trait Supervised: 'static {
    /// The actor.
    type Actor: Actor<Context = Context<Self::Actor>>;

    /// What it is called in the log.
    fn name(&self) -> String;

    /// What is known of its lives.
    fn chart(&self) -> &Chart;

    /// Builds a fresh one. [`None`] where there is nothing left to do: supervision ends.
    fn build(&self) -> impl Future<Output = Option<Self::Actor>>;

    /// It runs.
    fn started(&self, _address: Addr<Self::Actor>) {}

    /// It runs no more.
    fn ended(&self, _how: End) {}
}

/// Keeps an actor alive until its lifeline is cut or there is nothing left to build. To be spawned on the arbiter that it
/// is to live on.
pub async fn supervise<S: Supervised>(supervised: S, mut held: Held) {
    loop {
        let built = tokio::select! {
            built = supervised.build() => built,
            () = held.cut() => return,
        };
        let Some(actor) = built else { return };
        supervised.chart().begin();
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
        let how = supervised.chart().end(ended.is_err_and(|error| error.is_panic()));
        supervised.ended(how);
        let delay = supervised.chart().delay(how);
        tracing::warn!(
            actor = supervised.name(),
            ?how,
            delay_ms = delay.as_millis(),
            "an actor ended and is built again"
        );
        tokio::time::sleep(delay).await;
    }
}
