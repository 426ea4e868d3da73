//! The journal: the only writer of a running server's store.
//!
//! A [`Journal`] is a handle to one writer thread. The thread drains its queue, makes one batch of what it finds,
//! writes and **always syncs** it, and then answers every entry in order. An answered change survives `kill -9` and
//! power loss. An unanswered change may or may not have been written. The disk always holds a prefix of the queue's
//! order.
//!
//! Invariants:
//! - Opening a subscription is an entry in the same queue as its appends. It fences every earlier incarnation: an
//!   append through an older [`SubscriptionOwner`] is not written and returns [`Error::Fenced`].
//! - The queue is bounded: a subscription has at most one append in it, and publishers need a permit for their bytes,
//!   which travels with the request. So sending never blocks.
//! - The writer alone assigns sequences and append times. Neither decreases within a partition.
//! - Reads run on threads of their own, in bounded slices (`reader`). Nothing here blocks an actor's thread, except
//!   methods that say so.
//! - A partition's floor moves only after every event below it that is still needed is copied to `held`
//!   (`partition_state`).
//!
//! Not here: which changes a subscription makes. `policy` decides that.

pub mod figures;
mod partition_state;
mod position;
mod reader;
mod scrub;
mod status;
mod writer;

use std::{
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::oneshot;

use self::status::WriterStatus;
pub use self::{
    partition_state::{BacklogBound, BacklogFullPolicy, BacklogLimits},
    position::LogPosition,
    reader::{EventRecords, ReaderPool, WaitingDeadLetter},
    scrub::Scrub,
    status::{CrowdedPartition, JournalState},
};
pub use crate::store::log::{LogEnd, LogSlice};
use crate::{
    clock::Clock,
    event::{Incarnation, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    policy::record::{Cursor, LedgerLine, RecordChange},
    store::{
        Store, StoreError,
        chunk::{Chunk, SealedChunk},
        damage::{Damage, TolerantStore},
        keys::MetaKind,
    },
};

/// Why the journal did not do as it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was written; it will work again when there is room.
    #[error("the disk of the data folder is full")]
    Full,
    /// Nothing was written: a later life of the same subscription has been opened.
    #[error("a later life of this subscription owns its records")]
    Fenced,
    /// Nothing was written: there is no such partition or subscription, or not any more.
    #[error("there is no such partition or subscription")]
    Unknown,
    /// Nothing was written: too much of the partition's log waits for its slowest subscription, this one.
    #[error("the backlog is at its bound: subscription {} lags behind", .0.0)]
    Backlog(SubscriptionId),
    /// A record is damaged; nothing was changed.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The writer has ended. What was asked may or may not have happened.
    #[error("the journal is closed")]
    Closed,
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Full,
            StoreError::Damaged(what) => Self::Damaged(what),
            // The writer ends the process over this one; a reader can only say that it has no answer.
            StoreError::Failed(what) => Self::Damaged(what),
        }
    }
}

/// How the journal is run.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// How long a group of outcomes alone waits for company before it is synced.
    pub outcome_wait: Duration,
    /// A group is closed when it has so many bytes.
    pub group_bytes: usize,
    /// What the log may keep.
    pub limits: BacklogLimits,
}

/// Who hears of events as they become durable, in the order of the log.
pub type AppendListener = Box<dyn Fn(PartitionId, Vec<Chunk>) + Send>;

/// Who hears of a failure after which nothing more may be written: a server ends its process.
pub type FatalHandler = Box<dyn Fn(&StoreError) + Send>;

/// A published request, durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishReceipt {
    /// The place of its first event.
    pub first: Seq,
    /// When the journal took it.
    pub appended: Timestamp,
}

/// A subscription's records at the moment of its opening, and the right to change them.
#[derive(Debug)]
pub struct OpenedSubscription {
    /// The right; any earlier one is void.
    pub owner: SubscriptionOwner,
    /// How far it has come.
    pub cursor: Cursor,
    /// Where the log ends.
    pub end: Seq,
}

/// As long as it is there, the log from its place on is.
#[derive(Debug)]
pub struct LogHold {
    /// The first event that is kept.
    pub from: Seq,
    _held: writer::HeldRange,
}

/// The right to change a subscription's records, until a later life is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionOwner {
    /// Whose records.
    pub subscription_key: SubscriptionKey,
    /// Which life.
    pub incarnation: Incarnation,
}

/// A change to what the control plane keeps, and to the places it gives out.
#[derive(Clone, Debug)]
pub enum MetaChange {
    /// Puts a record.
    Put(MetaKind, String, Bytes),
    /// Takes one away.
    Delete(MetaKind, String),
    /// A new partition, with an empty log.
    Found(PartitionId),
    /// A new subscription, which starts at this place, or where the log begins if that is later; behind the newest event
    /// where none is given.
    Subscribe(SubscriptionKey, Option<Seq>),
    /// The end of a subscription: what it owes is canceled and its records go.
    Unsubscribe(SubscriptionKey),
    /// The end of a partition: its log goes.
    Abandon(PartitionId),
}

/// What the dead-letter actor of a subscription asks for in one write.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterWrite {
    /// Its own record, put in place of the last one.
    pub totals: Option<(String, Bytes)>,
    /// Dead letters that are dealt with: their records go, and the events with them if nobody else asks.
    pub done: Vec<DeadKey>,
    /// What became of them, for the ledger.
    pub notes: Vec<LedgerLine>,
}

/// Where a dead letter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadKey {
    /// When its file is due.
    pub due: Timestamp,
    /// Which event.
    pub seq: Seq,
    /// For which lane.
    pub lane: crate::event::Lane,
}

/// What a finished append calls on the writer's thread: it must be short, and must not block.
pub type WriteCallback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Calls back once, whatever happens: an entry that the writer did not come to is answered [`Error::Closed`].
struct CallOnce(Option<WriteCallback>);

impl CallOnce {
    fn call(mut self, answer: Result<(), Error>) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }
}

impl Drop for CallOnce {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Error::Closed));
        }
    }
}

/// What a request holds until its events are durable; it is given back by dropping it.
pub type Room = Box<dyn Send>;

/// One entry of the writer's queue.
enum WriterEntry {
    Publish {
        partition: PartitionId,
        chunks: Vec<SealedChunk>,
        reply: oneshot::Sender<Result<PublishReceipt, Error>>,
        _room: Option<Room>,
    },
    Open {
        subscription_key: SubscriptionKey,
        reply: oneshot::Sender<Result<OpenedSubscription, Error>>,
    },
    Append {
        owner: SubscriptionOwner,
        changes: Vec<RecordChange>,
        urgent: bool,
        done: CallOnce,
    },
    Meta {
        changes: Vec<MetaChange>,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    WriteDeadLetters {
        subscription_key: SubscriptionKey,
        dead_letter_writes: DeadLetterWrite,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Hold {
        partition: PartitionId,
        from: Seq,
        reply: oneshot::Sender<Result<LogHold, Error>>,
    },
    Close,
}

/// An answer on its way. Dropping it withdraws nothing.
#[derive(Debug)]
#[must_use]
pub struct PendingResult<T>(oneshot::Receiver<Result<T, Error>>);

impl<T> PendingResult<T> {
    fn new() -> (oneshot::Sender<Result<T, Error>>, Self) {
        let (reply, answer) = oneshot::channel();
        (reply, Self(answer))
    }
}

impl<T> Future for PendingResult<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A reply is dropped only where its thread has ended.
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or(Err(Error::Closed)))
    }
}

/// A handle of the journal: cheap to clone, never blocks.
#[derive(Clone)]
pub struct Journal(Arc<JournalShared>);

struct JournalShared {
    limits: BacklogLimits,
    queue: mpsc::Sender<WriterEntry>,
    reads: ReaderPool,
    status: Arc<WriterStatus>,
    damage: Damage,
}

/// The writer's thread: joined at the end, so that a clean stop has flushed everything.
pub struct WriterThread(std::thread::JoinHandle<()>);

impl WriterThread {
    /// Waits until the thread has written what was queued, and ended.
    pub fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the journal's writer panicked");
        }
    }
}

impl Journal {
    /// Recovers what `store` has and starts the writer on it. `listener` hears of every event that becomes durable, and
    /// `fatal` of a failure after which nothing more may be written.
    pub fn start(
        store: Arc<dyn Store>,
        clock: Clock,
        options: JournalOptions,
        listener: AppendListener,
        fatal: FatalHandler,
    ) -> Result<(Self, WriterThread), Error> {
        let logs = partition_state::recover(&*store)?;
        let (queue, entries) = mpsc::channel();
        let damage = Damage::default();
        let tolerant = Arc::new(TolerantStore::new(Arc::clone(&store), damage.clone()));
        let status = Arc::new(WriterStatus::new(logs.partitions.iter().map(|(id, partition)| (*id, partition.end()))));
        let reads = ReaderPool::start(tolerant);
        let shared = JournalShared { limits: options.limits, queue, reads, status, damage };
        let journal = Self(Arc::new(shared));
        let (status, damage) = (Arc::clone(&journal.0.status), journal.0.damage.clone());
        let thread = writer::spawn(store, clock, options, listener, fatal, logs, entries, (status, damage));
        Ok((journal, WriterThread(thread)))
    }

    /// Appends a request's events to the log of `partition`. The answer comes when they are durable; `room` is given
    /// back then.
    pub fn publish(
        &self,
        partition: PartitionId,
        chunks: Vec<SealedChunk>,
        room: Option<Room>,
    ) -> PendingResult<PublishReceipt> {
        self.enqueue(|reply| WriterEntry::Publish { partition, chunks, reply, _room: room })
    }

    /// Opens a subscription's records for a new life of its actor.
    pub fn open(&self, subscription_key: SubscriptionKey) -> PendingResult<OpenedSubscription> {
        self.enqueue(|reply| WriterEntry::Open { subscription_key, reply })
    }

    /// Writes what a subscription changed; `done` is called when it is durable. A group with an `urgent` entry does not
    /// wait for company.
    pub fn append(&self, owner: SubscriptionOwner, changes: Vec<RecordChange>, urgent: bool, done: WriteCallback) {
        self.send(WriterEntry::Append { owner, changes, urgent, done: CallOnce(Some(done)) });
    }

    /// Writes what the control plane changed.
    pub fn change(&self, changes: Vec<MetaChange>) -> PendingResult<()> {
        self.enqueue(|reply| WriterEntry::Meta { changes, reply })
    }

    /// Writes what became of dead letters.
    pub fn write_dead_letters(&self, subscription_key: SubscriptionKey, buried: DeadLetterWrite) -> PendingResult<()> {
        self.enqueue(|reply| WriterEntry::WriteDeadLetters { subscription_key, dead_letter_writes: buried, reply })
    }

    /// Keeps the log of `partition` from `from` on, or from where it begins if that is later, until the hold is dropped: for
    /// whoever is about to read there, and has nothing durable yet that says so.
    pub fn hold(&self, partition: PartitionId, from: Seq) -> PendingResult<LogHold> {
        self.enqueue(|reply| WriterEntry::Hold { partition, from, reply })
    }

    /// Reads, on threads of their own.
    pub fn reads(&self) -> &ReaderPool {
        &self.0.reads
    }

    /// Where the log of `partition` ends.
    pub fn end(&self, partition: PartitionId) -> Option<LogEnd> {
        self.0.status.end(partition)
    }

    /// Whether the backlog of `partition` is at its bound, or close to it where it is made smaller.
    pub fn crowd(&self, partition: PartitionId) -> Option<CrowdedPartition> {
        self.0.status.crowd(partition)
    }

    /// What the logs may keep.
    pub fn limits(&self) -> BacklogLimits {
        self.0.limits
    }

    /// How many partitions' logs are being looked at, to be trimmed.
    pub fn trimming(&self) -> usize {
        self.0.status.trimming()
    }

    /// Whether the journal can write.
    pub fn state(&self) -> JournalState {
        self.0.status.state()
    }

    /// What of the store cannot be read, as far as it is known.
    pub fn damage(&self) -> &Damage {
        &self.0.damage
    }

    /// Reads all tables again and again, so many bytes in a second, until the handle is dropped.
    pub fn scrub(&self, bytes_per_second: u64) -> Scrub {
        Scrub::start(self.0.reads.store(), Arc::clone(&self.0.status), bytes_per_second)
    }

    /// What there is to measure. It may wait for a moment: not to be asked on an arbiter.
    pub fn figures(&self) -> figures::JournalFigures {
        let (sync, group) = self.0.status.meter.counts();
        let (damage, scrubbed) = (self.0.damage.seen(), self.0.damage.scrubbed());
        let read_panics = self.0.reads.panics();
        figures::JournalFigures { sync, group, read_panics, store: self.0.reads.figures(), damage, scrubbed }
    }

    /// Lets the writer end when it has written what is queued by now.
    pub fn close(&self) {
        self.send(WriterEntry::Close);
    }

    fn enqueue<T>(&self, entry: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> WriterEntry) -> PendingResult<T> {
        let (reply, promise) = PendingResult::new();
        self.send(entry(reply));
        promise
    }

    fn send(&self, entry: WriterEntry) {
        // A writer that has ended drops the entry, and its reply with it: the asker is told.
        self.0.queue.send(entry).ok();
    }
}
