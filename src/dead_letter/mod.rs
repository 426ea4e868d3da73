//! Put aside: what was given up is written to files at its destination, and only then forgotten.
//!
//! The core puts a dead letter into the journal, due after a delay, so that many share a file. From there it is this
//! module's: of the [`DeadLetterStores`] each has an actor of its own, so that one out of reach delays no other; [`staging`] says whose turn it is, [`writer`](self) makes one file of what is due for one subscription,
//! [`sink`] puts the file where it belongs, a [`notifier`] tells of it, and [`totals`] is the account of all that.
//!
//! Invariants:
//! - A dead letter leaves the journal in the write that follows a file with it, and which counts it: written, or lost.
//!   So `dead_lettered = waiting + written + lost` holds at every instant, with those that an operator took out meanwhile.
//! - A file's name is in the journal before the file is at the destination. The write that takes the dead letters away
//!   takes the name away too: a name in the journal stands for a file of which nothing was taken away yet, so it may
//!   be written again, over whatever there is, with the same dead letters, with more of them or with fewer. A name that
//!   is gone is never written to again. So a repeat loses nothing and counts nothing twice.
//! - One piece of work at a time for each subscription, in whichever store, and it holds its place until its put has ended: two lives of
//!   the actor cannot write the same file. What an earlier life asked of the journal and was not answered is waited for
//!   first, with an empty write behind it in the same queue.
//! - Nothing here is needed by anybody to go on: a destination out of reach costs its own subscriptions latency, and
//!   after the outage window their dead letters, which are counted as lost. One that is not found at all loses them at
//!   once, where the edition says so.
//!
//! Where several subscriptions write into one folder, [`owner`] says whose a file is.
//!
//! For people: [`browse`] looks through what waits and what was written, each read as a [`event`]; [`purge`] gives it up
//! for good, and a [`marker`] beside a file says of which of its letters.
//!
//! A [`redrive`] sends them again.
//!
//! Absent on purpose: the delay and the give-up (the core's), and any limit to how many wait (the journal's).

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
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix::WeakAddr;
use tokio::sync::{OwnedMutexGuard, Semaphore, watch};

pub use self::{
    actor::DeadLetterActor,
    notifier::{FileWritten, Notifier},
    owner::Owner,
    redrive::{Redrives, SubscriptionDirectory},
    sink::Sink,
    stores::DeadLetterStores,
    totals::DeadLetterTotals,
};
use crate::{
    chaos::Inject,
    clock::Clock,
    dead_letter::{
        actor::Wake,
        staging::{Staging, StagingRules, TurnReport, WriteTurn},
    },
    event::{Schema, SubscriptionKey, Timestamp},
    journal::{self, Journal},
    policy::{edition::FileForm, property::DeliveryProperty},
    store::keys::MetaKind,
};

/// Where a subscription's dead letters go, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterTarget {
    /// The store's name.
    pub store: String,
    /// The folder in it: parts of a path with `/` between them; none where it is empty.
    pub folder: String,
    /// The subscription's name, as it was given.
    pub subscription_name: String,
    /// The schema that the subscription's events are delivered in.
    pub delivery_schema: Schema,
    /// The topic's resource id, for events whose wire form does not have it.
    pub topic: String,
    /// The resource id of what it is a subscription of: the topic, or one of a domain's.
    pub source: String,
    /// The form of the files.
    pub form: FileForm,
    /// The headers that events are delivered with, but for those that are secret.
    pub properties: Vec<DeliveryProperty>,
    /// The waits after a first, second, third failure to put a file; the last one repeats, and there is one at least.
    pub retry: Vec<Duration>,
    /// How long the destination may be out of reach before dead letters are lost.
    pub outage_window: Duration,
    /// Whether they are lost at once where the destination is not found.
    pub drop_where_not_found: bool,
}

impl DeadLetterTarget {
    /// Whose the dead letters are.
    pub fn owner(&self) -> Owner {
        Owner { source: self.source.clone(), name: self.subscription_name.clone() }
    }
}

/// Something waits, or will. A hint: losing it costs latency, unless it is the only one that ever names the target.
#[derive(Clone, Debug)]
pub struct PendingNotice {
    /// Whose dead letters.
    pub subscription_key: SubscriptionKey,
    /// Where they go.
    pub target: DeadLetterTarget,
    /// When the first of them is due.
    pub due: Timestamp,
}

/// How much and how often.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// How many files are made at once, and how soon failures are tried again.
    pub rules: StagingRules,
    /// The most events in a file.
    pub events_max: usize,
    /// The most bytes in a file, unless one event alone has more.
    pub bytes_max: usize,
}

impl Default for WriterOptions {
    /// 5,000 events or 16 MiB: what a reader holds in memory without a thought.
    fn default() -> Self {
        Self { rules: StagingRules::default(), events_max: 5_000, bytes_max: 16 << 20 }
    }
}

/// Says where a subscription's dead letters go now; [`None`]: nothing new is known.
pub type TargetLookup = Box<dyn Fn(SubscriptionKey) -> Option<DeadLetterTarget> + Send + Sync>;

/// What all stores have in common.
#[derive(Clone)]
struct WriterContext {
    notifier: Option<Arc<Notifier>>,
    aim: Option<Arc<TargetLookup>>,
    /// One slice is read at a time: the journal's other reader stays free for those who deliver.
    reading: Arc<Semaphore>,
    /// Who is at work on a subscription's dead letters has its desk, in whichever store.
    queues: StagingQueues,
    /// All stores, by name: none where this is the only one.
    all: Arc<OnceLock<Weak<BTreeMap<String, DeadLetters>>>>,
}

type StagingQueues = Arc<Mutex<HashMap<SubscriptionKey, Arc<tokio::sync::Mutex<()>>>>>;

/// A handle of the dead letters of one store: cheap to clone, never blocks. It outlives the actor's lives, and
/// holds all that they know beside the journal.
#[derive(Clone)]
pub struct DeadLetters(Arc<DeadLettersShared>);

struct DeadLettersShared {
    journal: Journal,
    clock: Clock,
    sink: Sink,
    options: WriterOptions,
    staging: Mutex<Staging>,
    means: WriterContext,
    /// How many pieces of work are in hand.
    current_event: watch::Sender<usize>,
    /// The actor that lives now.
    actor: Mutex<Option<WeakAddr<DeadLetterActor>>>,
    /// Whether it was told to look, and has not yet: no more than one hint is in its mailbox.
    told: AtomicBool,
}

impl DeadLetters {
    /// The dead letters that go to `sink`, of which `notifier` tells. Nothing is written until an actor from
    /// [`DeadLetters::build`] is started.
    pub fn new(journal: Journal, clock: Clock, sink: Sink, notifier: Option<Notifier>, options: WriterOptions) -> Self {
        let reading = Arc::new(Semaphore::new(1));
        let (desks, all) = (StagingQueues::default(), Arc::default());
        let means = WriterContext { notifier: notifier.map(Arc::new), aim: None, reading, queues: desks, all };
        Self::with(journal, clock, sink, options, means)
    }

    fn with(journal: Journal, clock: Clock, sink: Sink, options: WriterOptions, means: WriterContext) -> Self {
        Self(Arc::new(DeadLettersShared {
            journal,
            clock,
            sink,
            options,
            staging: Mutex::new(Staging::new(options.rules)),
            means,
            current_event: watch::Sender::new(0),
            actor: Mutex::new(None),
            told: AtomicBool::new(false),
        }))
    }

    /// A new life of the actor. The one before must have ended, or be about to: the later one is told what happens.
    pub fn build(&self) -> DeadLetterActor {
        DeadLetterActor::new(self.clone())
    }

    /// Tells that something waits. At the start every subscription with waiting dead letters must be told
    /// ([`Reads::all_dead`](crate::journal::ReaderPool::all_dead) says which), because its target is in no record.
    pub fn waiting(&self, notice: PendingNotice) {
        self.staging().notice(notice);
        self.wake();
    }

    /// Lets the actor that lives now suffer. False where none does.
    #[expect(clippy::disallowed_methods, reason = "sent once, and an actor that is gone needs none")]
    pub fn inject(&self, suffer: Inject) -> bool {
        let actor = self.0.actor.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(actor) = actor.and_then(|actor| actor.upgrade()).filter(actix::Addr::connected) else { return false };
        actor.do_send(suffer);
        true
    }

    /// What `job` is now: its subscription may have been changed since it was told of. [`None`] where its dead letters go
    /// to another store, which has been told.
    fn aimed(&self, job: WriteTurn) -> Option<WriteTurn> {
        let aimed = self.0.means.aim.as_ref().and_then(|aim| aim(job.subscription_key));
        let Some(target) = aimed.filter(|target| *target != *job.target) else { return Some(job) };
        if target.store != job.target.store
            && let Some(all) = self.0.means.all.get().and_then(Weak::upgrade)
            && let Some(other) = all.get(&target.store)
        {
            other.waiting(PendingNotice { subscription_key: job.subscription_key, target, due: self.0.clock.now() });
            return None;
        }
        Some(WriteTurn { target: Arc::new(target), ..job })
    }

    /// The subscription's dead letters go to another store from now on.
    fn forget(&self, subscription_key: SubscriptionKey) {
        self.staging().forget(subscription_key);
    }

    /// Where its files are.
    pub fn sink(&self) -> &Sink {
        &self.0.sink
    }

    /// Begins no more files, and waits until those in hand are finished, at most for `wait`. True where they are.
    pub async fn settle(&self, wait: Duration) -> bool {
        self.staging().close();
        let mut in_hand = self.0.current_event.subscribe();
        // The sender lives as long as this handle, so the wait can't fail for its absence.
        let idle = in_hand.wait_for(|count| *count == 0);
        tokio::time::timeout(wait, idle).await.is_ok()
    }

    /// The account of a subscription's dead letters.
    pub async fn totals(&self, subscription_key: SubscriptionKey) -> Result<DeadLetterTotals, journal::Error> {
        let record =
            self.0.journal.reads().meta(MetaKind::DeadLetters, DeadLetterTotals::name(subscription_key)).await?;
        match record {
            Some(record) => {
                DeadLetterTotals::decode(&record).map_err(|damaged| journal::Error::Damaged(damaged.to_string()))
            }
            None => Ok(DeadLetterTotals::default()),
        }
    }

    /// The right to write a subscription's account and to take its dead letters away: one at a time.
    async fn lock(&self, subscription_key: SubscriptionKey) -> OwnedMutexGuard<()> {
        let queue = {
            let mut desks = self.0.means.queues.lock().unwrap_or_else(PoisonError::into_inner);
            // Those at which nobody is, nor waits to be.
            desks.retain(|_, queue| Arc::strong_count(queue) > 1);
            Arc::clone(desks.entry(subscription_key).or_default())
        };
        queue.lock_owned().await
    }

    fn staging(&self) -> MutexGuard<'_, Staging> {
        // Its methods leave it whole wherever they could panic.
        self.0.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<WriteTurn> {
        let now = self.0.clock.now();
        let mut staging = self.staging();
        let jobs = staging.take(now);
        // Under the lock, so that whoever closes the staging reads it as it is.
        self.0.current_event.send_replace(staging.running_turns());
        jobs
    }

    fn finished(&self, subscription_key: SubscriptionKey, report: TurnReport) {
        let now = self.0.clock.now();
        {
            let mut staging = self.staging();
            staging.finished(subscription_key, report, now);
            self.0.current_event.send_replace(staging.running_turns());
        }
        self.wake();
    }

    fn wake(&self) {
        let actor = self.0.actor.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(actor) = actor.and_then(|actor| actor.upgrade()) else { return };
        if !self.0.told.swap(true, Ordering::AcqRel) && actor.try_send(Wake).is_err() {
            self.0.told.store(false, Ordering::Release);
        }
    }
}
