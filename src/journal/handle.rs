//! The handle to the journal, which routes each call to the writer of its partition.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use crate::{
    AppendListener, BacklogLimits, CrowdedPartition, DeadLetterWrite, Error, FatalHandler,
    JournalOptions, JournalState, LogGuard, OpenedSubscription, PendingResult, Permit,
    PublishReceipt, ReaderPool, Scrub, Shards, SubscriptionOwner, WriteCallback,
    entry::{DuplicateCheck, WriterEntry},
    figures,
    id_lookups::IdLookups,
    partition_state,
    queue::{self, CallOnce, EntrySender},
    status::{WriterMeter, WriterStatus},
    writer::{self, WriterResources},
};
use gridhook_clock::Clock;
use gridhook_event::{PartitionId, Seq, SubscriptionKey, chunk::SealedChunk};
use gridhook_policy::record::{RecordChange, WriteUrgency};
use gridhook_store::{
    Store,
    damage::{Damage, TolerantStore},
    log::LogEnd,
    records::IdDigest,
};

/// A handle to the journal. It is cheap to clone.
#[derive(Clone)]
pub struct Journal(pub(super) Arc<JournalShared>);

pub(super) struct JournalShared {
    pub(super) limits: BacklogLimits,
    pub(super) shards: Shards,
    /// By the number of the writer.
    pub(super) writers: Vec<Arc<WriterHandle>>,
    id_lookups: Vec<IdLookups>,
    meter: Arc<WriterMeter>,
    reads: ReaderPool,
    damage: Damage,
}

pub(super) struct WriterHandle {
    pub(super) queue: EntrySender,
    pub(super) status: Arc<WriterStatus>,
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

    pub(super) fn writer_for(&self, partition: PartitionId) -> &WriterHandle {
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
