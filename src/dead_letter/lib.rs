//! Dead letters: events that were given up are written to files at their destination, and only then
//! removed from the journal.
//!
//! The core writes a dead letter to the journal, due after a delay, so that many share a file. From
//! there on it belongs to this module. Each of the [`DeadLetterStores`] has an actor of its own, so
//! that an unreachable store delays no other. [`staging`] orders the turns of subscriptions,
//! [`writer`](self) builds one file per turn, [`sink`] stores the file, a [`notifier`] publishes
//! its `BlobCreated` event, and [`totals`] counts.
//!
//! Invariants:
//! - A dead letter leaves the journal in the write that counts it as written or lost, after its
//!   file is stored. So `dead_lettered = waiting + written + lost` holds at all times, plus what an
//!   operator redrove or purged.
//! - A file's name is in the journal before the file is stored. The write that removes the dead
//!   letters removes the name, too. While the name is in the journal, the file may be written again
//!   with the same, more or fewer dead letters. Afterwards it is never written again. So a repeat
//!   loses nothing and counts nothing twice.
//! - A subscription has one turn at a time, in all stores, and a turn keeps its lock until its put
//!   has ended: two incarnations cannot write the same file. Unanswered requests of an earlier
//!   incarnation to the journal are waited for first, by an empty write behind them in the same
//!   queue.
//! - Nothing else waits for this module. An unreachable destination delays only its own
//!   subscriptions; after the outage window their dead letters are lost and counted. If the
//!   destination does not exist, they are lost at once, if the edition says so.
//!
//! If several subscriptions write into one folder, [`owner`] tells their files apart.
//!
//! For operators, [`browse`] lists waiting and written dead letters, each read as an [`event`];
//! [`purge`] removes them, with a [`marker`] beside a file for those in it; [`redrive`] sends them
//! again.
//!
//! The delay and the decision to give up are the core's. A limit to the number of waiting dead
//! letters is the journal's.

mod actor;
pub mod browse;
pub mod event;
pub mod file;
pub mod marker;
pub mod notifier;
pub mod owner;
pub mod purge;
pub mod redrive;
pub mod sink;
pub mod staging;
mod stores;
pub mod totals;
mod writer;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix::WeakAddr;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, Semaphore, watch};

pub use self::{
    actor::DeadLetterActor,
    notifier::{FileWritten, Notifier},
    owner::Owner,
    redrive::{Redrives, SubscriptionDirectory},
    sink::Sink,
    stores::DeadLetterStores,
    totals::{DamagedTotals, DeadLetterTotals},
};
use crate::{
    actor::Wake,
    staging::{Staging, StagingRules, TurnReport, WriteTurn},
};
use gridhook_chaos::Inject;
use gridhook_clock::Clock;
use gridhook_event::{Schema, SubscriptionKey, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::Journal;
use gridhook_policy::{edition::FileLayout, property::DeliveryProperty};
use gridhook_store::keys::MetaKind;

/// The destination of a subscription's dead letters, and their layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterTarget {
    pub store: String,
    /// The folder in the store, with `/` between its parts; may be empty.
    pub folder: String,
    /// The subscription's name in its original case.
    pub subscription_name: String,
    /// The delivery schema of the subscription.
    pub delivery_schema: Schema,
    /// The topic's resource id, for events whose stored form does not contain it.
    pub topic: String,
    /// The resource id of the topic or the domain topic that the subscription belongs to.
    pub source: String,
    pub layout: FileLayout,
    /// Delivery properties that are not secret.
    pub properties: Vec<DeliveryProperty>,
    /// The wait of a new dead letter for its file.
    pub delay: Duration,
    /// The delays after the first, second, third failed put. The last one repeats; there is at
    /// least one.
    pub retry: Vec<Duration>,
    /// How long the destination may be unreachable before dead letters are lost.
    pub outage_window: Duration,
    /// Whether dead letters are lost at once if the destination does not exist.
    pub drop_where_not_found: bool,
}

impl DeadLetterTarget {
    /// The owner of the files.
    pub fn owner(&self) -> Owner {
        Owner {
            source: self.source.clone(),
            name: self.subscription_name.clone(),
        }
    }

    /// The time at which a turn begins for a dead letter that is due at `due`. A clock that was set
    /// back has dead letters that are due later than it would set them: they wait no longer than a
    /// new one.
    pub(crate) fn turn_at(&self, due: Timestamp, now: Timestamp) -> Timestamp {
        due.min(now.after(self.delay))
    }
}

/// A dead letter waits, or will. A hint: losing it costs latency, unless no other hint names the
/// target.
#[derive(Clone, Debug)]
pub struct WaitingDeadLetters {
    pub subscription_key: SubscriptionKey,
    pub target: DeadLetterTarget,
    /// The time at which the first dead letter is due.
    pub due: Timestamp,
}

#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Files at a time, and retries.
    pub rules: StagingRules,
    pub events_max: usize,
    /// Maximum bytes per file, unless a single event has more.
    pub bytes_max: usize,
}

impl Default for WriterOptions {
    /// 5,000 events or 16 MiB, which a reader can easily hold in memory.
    fn default() -> Self {
        Self {
            rules: StagingRules::default(),
            events_max: 5_000,
            bytes_max: 16 << 20,
        }
    }
}

/// The current target of a subscription's dead letters; [`None`] if it is unchanged.
pub type TargetLookup = Box<dyn Fn(SubscriptionKey) -> Option<DeadLetterTarget> + Send + Sync>;

#[derive(Clone)]
struct WriterContext {
    notifier: Option<Arc<Notifier>>,
    find_target: Option<Arc<TargetLookup>>,
    /// A permit to read a slice: one at a time, so that the journal's other reader stays free for
    /// deliveries.
    reading: Arc<Semaphore>,
    /// One lock per subscription with work in progress, for all stores.
    locks: SubscriptionLocks,
    /// All stores, by name. Empty if this is the only one.
    all: Arc<OnceLock<Weak<BTreeMap<String, DeadLetters>>>>,
}

type SubscriptionLocks = Arc<Mutex<HashMap<SubscriptionKey, Arc<tokio::sync::Mutex<()>>>>>;

/// A handle of the dead letters of one store. Cheap to clone, never blocks. It outlives
/// incarnations of the actor and holds all state that is not in the journal.
#[derive(Clone)]
pub struct DeadLetters(Arc<DeadLettersShared>);

struct DeadLettersShared {
    journal: Journal,
    clock: Clock,
    sink: Sink,
    options: WriterOptions,
    staging: Mutex<Staging>,
    context: WriterContext,
    running_turns: watch::Sender<usize>,
    actor: Mutex<Option<WeakAddr<DeadLetterActor>>>,
    /// Whether a wake is in the actor's mailbox: at most one is.
    is_woken: AtomicBool,
}

impl DeadLetters {
    /// The dead letters for `sink`, announced by `notifier`. Nothing is written until an actor from
    /// [`DeadLetters::build`] is started.
    pub fn new(
        journal: Journal,
        clock: Clock,
        sink: Sink,
        notifier: Option<Notifier>,
        options: WriterOptions,
    ) -> Self {
        let reading = Arc::new(Semaphore::new(1));
        let locks = SubscriptionLocks::default();
        let all = Arc::default();
        let context = WriterContext {
            notifier: notifier.map(Arc::new),
            find_target: None,
            reading,
            locks,
            all,
        };
        Self::with(journal, clock, sink, options, context)
    }

    fn with(
        journal: Journal,
        clock: Clock,
        sink: Sink,
        options: WriterOptions,
        context: WriterContext,
    ) -> Self {
        Self(Arc::new(DeadLettersShared {
            journal,
            clock,
            sink,
            options,
            staging: Mutex::new(Staging::new(options.rules)),
            context,
            running_turns: watch::Sender::new(0),
            actor: Mutex::new(None),
            is_woken: AtomicBool::new(false),
        }))
    }

    /// Builds a new incarnation of the actor. The previous one must have ended or be about to end.
    /// Wakes go to the new one.
    pub fn build(&self) -> DeadLetterActor {
        DeadLetterActor::new(self.clone())
    }

    /// Queues dead letters that wait. At the start, call it for every subscription with waiting
    /// dead letters ([`ReaderPool::all_dead`](gridhook_journal::ReaderPool::all_dead)), because no
    /// record contains the target.
    pub fn queue_waiting(&self, waiting: WaitingDeadLetters) {
        let due = waiting.target.turn_at(waiting.due, self.0.clock.now());
        self.0
            .staging
            .lock()
            .enqueue_waiting(WaitingDeadLetters { due, ..waiting });
        self.wake_actor();
    }

    /// Injects a fault into the running actor. False if none runs.
    #[expect(
        clippy::disallowed_methods,
        reason = "sent once; an actor that has ended needs no fault"
    )]
    pub fn inject_fault(&self, inject: Inject) -> bool {
        let actor = self.0.actor.lock().clone();
        let Some(actor) = actor
            .and_then(|actor| actor.upgrade())
            .filter(actix::Addr::connected)
        else {
            return false;
        };
        actor.do_send(inject);
        true
    }

    /// `turn` with the current target: the subscription may have been changed. [`None`] if its dead
    /// letters go to another store, which was notified.
    fn with_current_target(&self, turn: WriteTurn) -> Option<WriteTurn> {
        let retarget = self
            .0
            .context
            .find_target
            .as_ref()
            .and_then(|find_target| find_target(turn.subscription_key));
        let Some(target) = retarget.filter(|target| *target != *turn.target) else {
            return Some(turn);
        };
        if target.store != turn.target.store
            && let Some(all) = self.0.context.all.get().and_then(Weak::upgrade)
            && let Some(other) = all.get(&target.store)
        {
            other.queue_waiting(WaitingDeadLetters {
                subscription_key: turn.subscription_key,
                target,
                due: self.0.clock.now(),
            });
            return None;
        }
        Some(WriteTurn {
            target: Arc::new(target),
            ..turn
        })
    }

    /// Removes a subscription whose dead letters go to another store from now on.
    fn forget_subscription(&self, subscription_key: SubscriptionKey) {
        self.0.staging.lock().forget_subscription(subscription_key);
    }

    pub fn sink(&self) -> &Sink {
        &self.0.sink
    }

    /// Starts no more files, and waits at most `wait` for running turns. True if all have ended.
    pub async fn finish_turns(&self, wait: Duration) -> bool {
        self.0.staging.lock().close();
        let mut running_turns = self.0.running_turns.subscribe();
        // This handle keeps the sender, so the wait cannot fail.
        let idle = running_turns.wait_for(|count| *count == 0);
        tokio::time::timeout(wait, idle).await.is_ok()
    }

    /// The totals of a subscription's dead letters.
    pub async fn read_totals(
        &self,
        subscription_key: SubscriptionKey,
    ) -> Result<DeadLetterTotals, journal::Error> {
        let record = self
            .0
            .journal
            .reader_pool()
            .read_meta(
                MetaKind::DeadLetters,
                DeadLetterTotals::name(subscription_key),
            )
            .await?;
        match record {
            Some(record) => DeadLetterTotals::decode(&record)
                .map_err(|damaged| journal::Error::Damaged(damaged.to_string())),
            None => Ok(DeadLetterTotals::default()),
        }
    }

    /// The lock for writing a subscription's totals and removing its dead letters.
    async fn lock_subscription(&self, subscription_key: SubscriptionKey) -> OwnedMutexGuard<()> {
        let queue = {
            let mut locks = self.0.context.locks.lock();
            // Removes locks that are not in use.
            locks.retain(|_, queue| Arc::strong_count(queue) > 1);
            Arc::clone(locks.entry(subscription_key).or_default())
        };
        queue.lock_owned().await
    }

    fn take_turns(&self) -> Vec<WriteTurn> {
        let now = self.0.clock.now();
        let mut staging = self.0.staging.lock();
        let turns = staging.take_turns(now);
        // Under the lock, so that closing sees the current number.
        self.0.running_turns.send_replace(staging.running_turns());
        turns
    }

    fn finish_turn(&self, subscription_key: SubscriptionKey, report: TurnReport) {
        let now = self.0.clock.now();
        {
            let mut staging = self.0.staging.lock();
            staging.finish_turn(subscription_key, report, now);
            self.0.running_turns.send_replace(staging.running_turns());
        }
        self.wake_actor();
    }

    fn wake_actor(&self) {
        let actor = self.0.actor.lock().clone();
        let Some(actor) = actor.and_then(|actor| actor.upgrade()) else {
            return;
        };
        if !self.0.is_woken.swap(true, Ordering::AcqRel) && actor.try_send(Wake).is_err() {
            self.0.is_woken.store(false, Ordering::Release);
        }
    }
}
