//! The journal: the only writer of a running server's store.
//!
//! A [`Journal`] is a handle to a writer thread for each shard ([`Shards`]). A thread drains its
//! queue, makes one batch of what it finds, writes and **always syncs** it, and then replies to
//! every entry in order. A confirmed change survives `kill -9` and power loss. Any other change may
//! or may not have been written. The disk always holds a prefix of each queue's order, except that
//! events may be written before outcomes that were queued earlier.
//!
//! Invariants:
//! - Opening a subscription is an entry in the same queue as its appends. It fences every earlier
//!   incarnation: an append through an older [`SubscriptionOwner`] is not written and returns
//!   [`Error::Fenced`].
//! - The queue is bounded: a subscription has at most one append in it, and publishers need a
//!   permit for their bytes, which travels with the request. So sending never blocks.
//! - Each record has one shard, and only that shard's writer changes it.
//! - The writer alone assigns sequences and append times. Neither decreases within a partition.
//! - Reads run on threads of their own, in bounded slices (`reader`). Nothing here blocks an
//!   actor's thread, except methods that say so.
//! - A partition's floor moves only after every event below it that is still needed is copied to
//!   the family `carried` (`partition_state`).
//!
//! Not here: which changes a subscription makes. `policy` decides that.

#![warn(missing_docs)]

pub mod changelog;
pub mod figures;
mod id_lookups;
mod partition_state;
mod position;
mod queue;
mod reader;
pub mod replicated;
mod scrub;
mod shards;
mod status;
mod writer;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::oneshot;

use self::{
    id_lookups::{IdLookups, KnownIds},
    queue::{CallOnce, EntrySender},
    status::{WriterMeter, WriterStatus},
    writer::WriterResources,
};
pub use self::{
    partition_state::{BacklogBound, BacklogFullPolicy, BacklogLimits},
    position::LogPosition,
    reader::{EventRecords, MetaRecords, ReaderPool, WaitingDeadLetter},
    scrub::Scrub,
    shards::Shards,
    status::{CrowdedPartition, JournalState},
};
use gridhook_clock::Clock;
use gridhook_event::{
    Incarnation, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp,
    chunk::{Chunk, SealedChunk},
};
use gridhook_policy::record::{Cursor, LedgerLine, RecordChange, WriteUrgency};
pub use gridhook_store::log::{LogEnd, LogSlice};
use gridhook_store::{
    Store, StoreError,
    damage::{Damage, TolerantStore},
    keys::MetaKind,
    records::IdDigest,
};

/// Why a call of the journal failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full and nothing was written. Writes succeed again once there is space.
    #[error("the disk of the data folder is full")]
    Full,
    /// A later incarnation of the same subscription was opened. Nothing was written.
    #[error("a later incarnation of this subscription owns its records")]
    Fenced,
    /// The partition or subscription does not exist, or no longer. Nothing was written.
    #[error("the partition or subscription does not exist")]
    Unknown,
    /// The backlog of the partition's slowest subscription, this one, is at its limit. Nothing was
    /// written.
    #[error("the backlog is at its limit because subscription {} lags behind", .0.0)]
    Backlog(SubscriptionId),
    /// A record is damaged. Nothing was changed.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The writer has ended. The change may or may not have been written.
    #[error("the journal is closed")]
    Closed,
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Full,
            StoreError::Damaged(what) => Self::Damaged(what),
            // The writer ends the process because of this error; a reader can only report it.
            StoreError::Failed(what) => Self::Damaged(what),
        }
    }
}

/// Fixed while the journal runs.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// How long outcomes wait for more of them before they are written.
    pub outcome_delay: Duration,
    /// The size in bytes at which a group is complete.
    pub group_bytes: usize,
    /// The limits of each partition's log.
    pub limits: BacklogLimits,
    /// Decides which writer a partition has.
    pub shards: Shards,
}

/// Called with events after they are durable, in the order of each partition's log.
pub type AppendListener = Box<dyn Fn(PartitionId, Vec<Chunk>) + Send + Sync>;

/// Called with an error after which nothing may be written. A server ends its process.
pub type FatalHandler = Box<dyn Fn(&StoreError) + Send + Sync>;

/// A published request that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishReceipt {
    /// The sequence of its first event.
    pub first: Seq,
    /// The time of the append.
    pub appended: Timestamp,
    /// The number of its events that were not stored, because they are duplicates.
    pub duplicates: u32,
}

/// What the writer needs to detect the duplicates of a request.
struct DuplicateCheck {
    /// How long an id is known.
    window: Duration,
    /// The id of each event, in order.
    ids: Vec<IdDigest>,
    /// The result of the lookup; [`None`] if the writer looks the ids up itself.
    known: Option<KnownIds>,
}

/// A subscription's state when it was opened, and the right to change its records.
#[derive(Debug)]
pub struct OpenedSubscription {
    /// The right to change its records. Earlier rights are fenced.
    pub owner: SubscriptionOwner,
    /// As the earlier incarnations left it on disk.
    pub cursor: Cursor,
    /// The end of the log.
    pub end: Seq,
}

/// Keeps the log from a position on, as long as it exists.
#[derive(Debug)]
pub struct LogGuard {
    /// The first sequence that is kept.
    pub from: Seq,
    _token: writer::GuardToken,
}

/// The right to change a subscription's records, until a later incarnation is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct SubscriptionOwner {
    pub subscription_key: SubscriptionKey,
    pub incarnation: Incarnation,
}

/// A change of the control plane's records, or of partitions and subscriptions.
#[derive(Clone, Debug)]
pub enum MetaChange {
    /// Writes the record of this kind and name, in place of an earlier one.
    Put(MetaKind, String, Bytes),
    /// Deletes the record of this kind and name.
    Delete(MetaKind, String),
    /// Creates a partition with an empty log.
    CreatePartition(PartitionId),
    /// Creates a subscription that starts at this sequence, or at the beginning of the log if that
    /// is later. [`None`] starts it after the newest event.
    Subscribe(SubscriptionKey, Option<Seq>),
    /// Deletes a subscription: its pending deliveries are canceled and its records are deleted.
    Unsubscribe(SubscriptionKey),
    /// Deletes a partition and its log.
    DeletePartition(PartitionId),
}

/// One write of a subscription's dead-letter actor.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterWrite {
    /// The name and value of its totals.
    pub totals: Option<(String, Bytes)>,
    /// Dead letters that are done. Their records are deleted, and their events too if nothing else
    /// needs them.
    pub done: Vec<DeadLetterKey>,
    /// Entries of the ledger. They are written in the same batch.
    pub notes: Vec<LedgerLine>,
}

/// The key of a waiting dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetterKey {
    /// The due time of its file.
    pub due: Timestamp,
    /// The sequence of its event.
    pub seq: Seq,
    /// The lane of the delivery that was given up.
    pub lane: gridhook_event::Lane,
}

/// Called on the writer's thread when an append is done. It must be short and must not block.
pub type WriteCallback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The permit that a request holds until its events are durable. It is released by dropping it.
pub type Permit = Box<dyn Send>;

/// An entry of the writer's queue.
enum WriterEntry {
    Publish {
        partition: PartitionId,
        chunks: Vec<SealedChunk>,
        check: Option<DuplicateCheck>,
        reply: oneshot::Sender<Result<PublishReceipt, Error>>,
        _permit: Option<Permit>,
    },
    Open {
        subscription_key: SubscriptionKey,
        reply: oneshot::Sender<Result<OpenedSubscription, Error>>,
    },
    Append {
        owner: SubscriptionOwner,
        changes: Vec<RecordChange>,
        urgency: WriteUrgency,
        done: CallOnce,
    },
    Meta {
        changes: Vec<MetaChange>,
        /// Whether it completes a change of another shard, so that it waits for space instead of
        /// being refused.
        completes: bool,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    WriteDeadLetters {
        subscription_key: SubscriptionKey,
        dead_letter_writes: DeadLetterWrite,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Keep {
        partition: PartitionId,
        from: Seq,
        reply: oneshot::Sender<Result<LogGuard, Error>>,
    },
    DivideBacklog {
        partition: PartitionId,
        parts: u32,
    },
    Close,
}

impl WriterEntry {
    /// How soon a group with this entry is written.
    fn urgency(&self) -> WriteUrgency {
        match self {
            Self::Append { urgency, .. } => *urgency,
            Self::Publish { .. }
            | Self::Open { .. }
            | Self::Meta { .. }
            | Self::WriteDeadLetters { .. }
            | Self::Keep { .. }
            | Self::DivideBacklog { .. }
            | Self::Close => WriteUrgency::Now,
        }
    }
}

/// The future result of a call. Dropping it does not cancel the call.
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
        // The sender is dropped only if its thread has ended.
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or(Err(Error::Closed)))
    }
}

/// A handle to the journal. It is cheap to clone.
#[derive(Clone)]
pub struct Journal(Arc<JournalShared>);

struct JournalShared {
    limits: BacklogLimits,
    shards: Shards,
    /// By the number of the writer.
    writers: Vec<Arc<WriterHandle>>,
    id_lookups: Vec<IdLookups>,
    meter: Arc<WriterMeter>,
    reads: ReaderPool,
    damage: Damage,
}

struct WriterHandle {
    queue: EntrySender,
    status: Arc<WriterStatus>,
}

/// The writers' threads. They are joined at a clean stop, so that everything is written.
pub struct WriterThreads(Vec<std::thread::JoinHandle<()>>);

impl WriterThreads {
    /// Waits until the threads have written their queues and have ended.
    pub fn join_all(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                tracing::error!("a writer of the journal panicked");
            }
        }
    }
}

impl Journal {
    /// Recovers the state from `store` and starts a writer for each shard. `listener` is called
    /// with all events that become durable, and `fatal` with an error after which nothing may be
    /// written.
    pub fn start(
        store: Arc<dyn Store>,
        clock: Clock,
        options: JournalOptions,
        listener: AppendListener,
        fatal: FatalHandler,
    ) -> Result<(Self, WriterThreads), Error> {
        let logs = partition_state::recover_logs(&*store)?;
        let damage = Damage::default();
        let meter = Arc::new(WriterMeter::new());
        let reads = ReaderPool::new(Arc::new(TolerantStore::new(
            Arc::clone(&store),
            damage.clone(),
        )));
        let resources =
            WriterResources::new(store, clock, options, listener, fatal, damage.clone());
        let mut writers = Vec::new();
        let mut threads = Vec::new();
        for (number, logs) in options.shards.split_by_writer(logs).into_iter().enumerate() {
            let (queue, entries) = queue::new_queue();
            let ends = logs
                .partitions
                .iter()
                .map(|(id, partition)| (*id, partition.log_end()));
            let status = Arc::new(WriterStatus::new(ends, Arc::clone(&meter)));
            threads.push(writer::spawn_writer(
                &resources,
                number,
                logs,
                entries,
                Arc::clone(&status),
            ));
            writers.push(Arc::new(WriterHandle { queue, status }));
        }
        let id_lookups = writers.iter().map(|_| IdLookups::default()).collect();
        let JournalOptions { limits, shards, .. } = options;
        let shared = JournalShared {
            limits,
            shards,
            writers,
            id_lookups,
            meter,
            reads,
            damage,
        };
        Ok((Self(Arc::new(shared)), WriterThreads(threads)))
    }

    /// Appends a request's events to the log of `partition`. The result arrives when they are
    /// durable; `permit` is released then.
    pub fn append_events(
        &self,
        partition: PartitionId,
        chunks: Vec<SealedChunk>,
        permit: Option<Permit>,
    ) -> PendingResult<PublishReceipt> {
        self.enqueue_entry(partition, |reply| WriterEntry::Publish {
            partition,
            chunks,
            check: None,
            reply,
            _permit: permit,
        })
    }

    /// Like [`Journal::append_events`]; with a `window`, without the events whose ids were accepted
    /// less than `window` ago. The result arrives when the others, and the events that these
    /// repeat, are durable.
    ///
    /// # Errors
    /// If a chunk cannot be decoded.
    pub fn append_new_events(
        &self,
        partition: PartitionId,
        chunks: Vec<SealedChunk>,
        window: Option<Duration>,
        permit: Option<Permit>,
    ) -> Result<PendingResult<PublishReceipt>, Error> {
        let Some(window) = window else {
            return Ok(self.append_events(partition, chunks, permit));
        };
        let mut ids = Vec::new();
        for chunk in &chunks {
            let events = chunk
                .decode_events()
                .map_err(|error| Error::Damaged(error.to_string()))?;
            ids.extend(events.iter().map(IdDigest::from_event));
        }
        let check = Some(DuplicateCheck {
            window,
            ids,
            known: None,
        });
        let (reply, result) = PendingResult::new();
        let entry = WriterEntry::Publish {
            partition,
            chunks,
            check,
            reply,
            _permit: permit,
        };
        let writer = self.0.shards.writer_of(partition);
        self.0.id_lookups[writer].look_up_and_send(
            || self.0.reads.current_store(),
            &self.0.writers[writer],
            entry,
        );
        Ok(result)
    }

    /// Opens a subscription's records for a new incarnation of its actor.
    pub fn open(&self, subscription_key: SubscriptionKey) -> PendingResult<OpenedSubscription> {
        self.enqueue_entry(subscription_key.partition, |reply| WriterEntry::Open {
            subscription_key,
            reply,
        })
    }

    /// Writes a subscription's changes. `done` is called when they are durable.
    pub fn write_changes(
        &self,
        owner: SubscriptionOwner,
        changes: Vec<RecordChange>,
        urgency: WriteUrgency,
        done: WriteCallback,
    ) {
        let entry = WriterEntry::Append {
            owner,
            changes,
            urgency,
            done: CallOnce(Some(done)),
        };
        self.writer_for(owner.subscription_key.partition)
            .queue
            .send_entry(entry);
    }

    /// Writes the results of a dead-letter actor.
    pub fn write_dead_letters(
        &self,
        subscription_key: SubscriptionKey,
        write: DeadLetterWrite,
    ) -> PendingResult<()> {
        self.enqueue_entry(subscription_key.partition, |reply| {
            WriterEntry::WriteDeadLetters {
                subscription_key,
                dead_letter_writes: write,
                reply,
            }
        })
    }

    /// Keeps the log of `partition` from `from` on, or from its beginning if that is later, until
    /// the guard is dropped: for a reader that has not stored a position yet.
    pub fn guard_log(&self, partition: PartitionId, from: Seq) -> PendingResult<LogGuard> {
        self.enqueue_entry(partition, |reply| WriterEntry::Keep {
            partition,
            from,
            reply,
        })
    }

    /// Reads in bounded slices, on threads of their own.
    pub fn reader_pool(&self) -> &ReaderPool {
        &self.0.reads
    }

    /// [`None`] if the partition does not exist.
    pub fn log_end(&self, partition: PartitionId) -> Option<LogEnd> {
        self.writer_for(partition).status.log_end(partition)
    }

    /// The backlog of `partition`, if it is at its limit, or close to it and old events expire.
    pub fn crowded_partition(&self, partition: PartitionId) -> Option<CrowdedPartition> {
        self.writer_for(partition)
            .status
            .crowded_partition(partition)
    }

    /// The limits of the logs.
    pub fn backlog_limits(&self) -> BacklogLimits {
        self.0.limits
    }

    /// The number of partitions whose logs are being examined for trimming.
    pub fn trimming_count(&self) -> usize {
        self.0
            .writers
            .iter()
            .map(|writer| writer.status.trimming_count())
            .sum()
    }

    /// The state of the writers: that of the one in the worst state.
    pub fn writer_state(&self) -> JournalState {
        self.0
            .writers
            .iter()
            .map(|writer| writer.status.state())
            .max()
            .unwrap_or(JournalState::Closed)
    }

    /// Those of the options with which the journal was started.
    pub fn shards(&self) -> Shards {
        self.0.shards
    }

    /// The partitions of all shards, in no particular order.
    pub fn list_partitions(&self) -> Vec<PartitionId> {
        self.0
            .writers
            .iter()
            .flat_map(|writer| writer.status.list_partitions())
            .collect()
    }

    /// The known damage of the store.
    pub fn known_damage(&self) -> &Damage {
        &self.0.damage
    }

    /// Starts the scrub, at this many bytes a second. It ends when the handle is dropped.
    pub fn start_scrub(&self, bytes_per_second: u64) -> Scrub {
        let writers = self
            .0
            .writers
            .iter()
            .map(|writer| Arc::clone(&writer.status))
            .collect();
        Scrub::start(self.0.reads.current_store(), writers, bytes_per_second)
    }

    /// Returns measurements. May block for a moment: do not call it on an actor's thread.
    pub fn read_figures(&self) -> figures::JournalFigures {
        let (sync, group) = self.0.meter.histogram_counts();
        let damage = self.0.damage.read_summary();
        let scrubbed = self.0.damage.scrub_progress();
        let read_panics = self.0.reads.panic_count();
        figures::JournalFigures {
            sync,
            group,
            read_panics,
            store: self.0.reads.store_figures(),
            damage,
            scrubbed,
        }
    }

    /// Makes the writers end after they have written all entries that are queued now.
    pub fn close(&self) {
        for (writer, id_lookups) in self.0.writers.iter().zip(&self.0.id_lookups) {
            id_lookups.close(writer);
        }
    }

    fn writer_for(&self, partition: PartitionId) -> &WriterHandle {
        &self.0.writers[self.0.shards.writer_of(partition)]
    }

    /// If the writer has ended, the entry is dropped together with its reply channel, and the
    /// caller gets [`Error::Closed`].
    fn enqueue_entry<T>(
        &self,
        partition: PartitionId,
        entry: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> WriterEntry,
    ) -> PendingResult<T> {
        let (reply, result) = PendingResult::new();
        self.writer_for(partition).queue.send_entry(entry(reply));
        result
    }
}
