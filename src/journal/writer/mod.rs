//! A writer's thread. It collects queued entries into groups, writes each group with one sync, and
//! replies to its entries in order.
//!
//! A group that contains anything but outcomes is written at once: a publish request, a lease, a
//! delivery that was given up or a change of the control plane. Outcomes wait a moment for more of
//! them: a subscription then writes one cursor for several, and those that nothing waits for wait
//! longer ([`outcomes`]). Only events may overtake outcomes that were queued earlier.
//!
//! When the disk is full, publishers are refused and all other entries stay at the head of the
//! queue until there is space. After any other error nothing may be written: a failed sync must not
//! be retried, because the kernel may have dropped the pages that it could not write.

mod backlog;
mod duplicates;
mod encode;
mod log_guards;
mod maintenance;
mod outcomes;
mod trim;

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

pub(super) use self::log_guards::GuardToken;
use self::{
    duplicates::{GroupIds, RecentIds},
    log_guards::LogGuards,
    outcomes::WaitingOutcomes,
    trim::{LOOKUP_WAIT, TrimSchedule},
};
use crate::{
    AppendListener, Error, FatalHandler, JournalOptions, JournalState, OpenedSubscription, Permit,
    PublishReceipt, SubscriptionOwner, WriterEntry, WriterStatus,
    partition_state::{LowWatermark, LowWatermarks, PartitionLogs, PartitionState},
    queue::{Awaited, EntryReceiver},
};
use gridhook_clock::Clock;
use gridhook_event::{
    IdMap, Incarnation, Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp,
    chunk::{Chunk, SealedChunk},
};
use gridhook_policy::record::{Cursor, WriteUrgency};
use gridhook_store::{
    Batch, Family, Store, StoreError,
    damage::Damage,
    id_filter::OpenBlocks,
    keys,
    records::{FloorRecord, StoredRecord},
};

/// The interval of storing the watermark and of removing the records of deleted subscriptions, and
/// the delay before a log is trimmed, unless there are many.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// The interval at which an idle writer reads the clock, which may have been set.
const IDLE_HOUSEKEEPING: Duration = Duration::from_secs(5);

/// The interval of retries when the disk is full.
const FULL_WAIT: Duration = Duration::from_millis(250);

/// How long RocksDB may take to write again after a full disk has space. It looks every 5 s.
const RECOVERY_WAIT: Duration = Duration::from_secs(30);

/// The maximum number of entries that share one sync.
const GROUP_MAX: usize = 4096;

/// Why a group is written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// It waits for more entries: it has outcomes only.
    None,
    /// It has events, which do not depend on outcomes.
    Publish,
    /// It has an entry that must not be written before outcomes that were queued earlier.
    Ordered,
}

/// What the writers of all shards share.
pub(super) struct WriterResources {
    store: Arc<dyn Store>,
    clock: Clock,
    options: JournalOptions,
    listener: Arc<AppendListener>,
    fatal: Arc<FatalHandler>,
    damage: Damage,
    /// The writers that run. The last one closes the store.
    running: Arc<AtomicUsize>,
}

impl WriterResources {
    pub(super) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        options: JournalOptions,
        listener: AppendListener,
        fatal: FatalHandler,
        damage: Damage,
    ) -> Self {
        let running = Arc::new(AtomicUsize::new(options.shards.writer_count()));
        Self {
            store,
            clock,
            options,
            listener: Arc::new(listener),
            fatal: Arc::new(fatal),
            damage,
            running,
        }
    }
}

/// Starts the writer with this number.
pub(super) fn spawn_writer(
    resources: &WriterResources,
    number: usize,
    PartitionLogs { partitions, lows }: PartitionLogs,
    entries: EntryReceiver,
    status: Arc<WriterStatus>,
) -> std::thread::JoinHandle<()> {
    let last_housekeeping = resources.clock.now();
    let mut trims = TrimSchedule::new(Arc::clone(&resources.store));
    for id in partitions.keys() {
        trims.schedule_lookup(*id, last_housekeeping);
    }
    let writer = GroupWriter {
        number,
        trims,
        store: Arc::clone(&resources.store),
        clock: resources.clock.clone(),
        options: resources.options,
        listener: Arc::clone(&resources.listener),
        running: Arc::clone(&resources.running),
        partitions,
        lows,
        backlog_parts: IdMap::default(),
        ids: OpenBlocks::default(),
        recent_ids: RecentIds::default(),
        guards: LogGuards::default(),
        entries,
        outcomes: WaitingOutcomes::new(resources.options.outcome_delay),
        last_write: last_housekeeping,
        status,
        damage: resources.damage.clone(),
        incarnations: IdMap::default(),
        last_incarnation: Incarnation(0),
        parked: Vec::new(),
        full_despite_space: None,
        last_housekeeping,
        is_settled: false,
    };
    let fatal = Arc::clone(&resources.fatal);
    let span = tracing::Span::current();
    std::thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || span.in_scope(|| run_writer(writer, &fatal)))
        .expect("a process that cannot start a thread cannot start")
}

fn run_writer(writer: GroupWriter, fatal: &FatalHandler) {
    let _guard = ThreadGuard(Arc::clone(&writer.status));
    if let Err(error) = writer.run() {
        tracing::error!(%error, "the journal failed");
        fatal(&error);
    }
}

/// Sets the state when the thread has ended. After a panic, memory and disk may differ, so the
/// process must not continue.
struct ThreadGuard(Arc<WriterStatus>);

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.0.set_state(JournalState::Closed);
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

struct GroupWriter {
    /// Its number among the writers.
    number: usize,
    store: Arc<dyn Store>,
    clock: Clock,
    options: JournalOptions,
    listener: Arc<AppendListener>,
    running: Arc<AtomicUsize>,
    partitions: IdMap<PartitionId, PartitionState>,
    lows: IdMap<PartitionId, LowWatermarks>,
    /// The partitions that have a part of the limit of the backlog, and the number of parts.
    backlog_parts: IdMap<PartitionId, u32>,
    ids: OpenBlocks,
    recent_ids: RecentIds,
    guards: LogGuards,
    trims: TrimSchedule,
    entries: EntryReceiver,
    outcomes: WaitingOutcomes,
    /// When the last write ended.
    last_write: Timestamp,
    status: Arc<WriterStatus>,
    damage: Damage,
    /// Incarnations of subscriptions that were opened and not deleted.
    incarnations: IdMap<SubscriptionKey, Incarnation>,
    last_incarnation: Incarnation,
    /// Entries that wait for space on the disk, the oldest first.
    parked: Vec<WriterEntry>,
    last_housekeeping: Timestamp,
    /// Since when writes fail for lack of space although the disk has some.
    full_despite_space: Option<Timestamp>,
    /// Whether nothing was written since the last housekeeping, and it left nothing to do.
    is_settled: bool,
}

/// A group: its batch, and what is done after it is written.
#[derive(Default)]
struct CommitGroup {
    batch: Batch,
    replies: Vec<PendingReply>,
    appended: Vec<(PartitionId, Chunk)>,
    lows: Vec<(SubscriptionKey, Option<LowWatermark>)>,
    /// The partitions before the group, restored if it is not written.
    before: IdMap<PartitionId, Option<PartitionState>>,
    /// The incarnations before the group, restored if it is not written.
    incarnations: IdMap<SubscriptionKey, Option<Incarnation>>,
    /// Changed pending deliveries and pins of events that may be carried: whether one exists after
    /// this group. A delivery has one entry for both, and its last change decides: a delivery that
    /// becomes a dead letter stops being pending first, and is pinned then.
    pin_changes: HashMap<PendingEntry, bool>,
    /// Subscriptions with jobs that have ended.
    ended: HashSet<SubscriptionKey>,
    /// Ids of events for topics with duplicate detection.
    ids: GroupIds,
}

type PendingEntry = (PartitionId, Seq, SubscriptionId, Lane);

/// An encoded entry and the reply to it.
enum PendingReply {
    /// The reply to a publish request. The permit is released after it is sent.
    Published(
        oneshot::Sender<Result<PublishReceipt, Error>>,
        Option<Permit>,
        Result<PublishReceipt, Error>,
    ),
    Done(WriterEntry),
    Refused(WriterEntry, Error),
    Opened(WriterEntry, SubscriptionOwner),
}

impl GroupWriter {
    fn run(mut self) -> Result<(), StoreError> {
        loop {
            let (group, now, is_last_group) = self.next_group();
            if !group.is_empty() {
                self.commit_group(group, now)?;
            }
            if is_last_group {
                // Parked entries still wait for space. They are repeated after the restart.
                self.finish_filters()?;
                let is_last_writer = self.running.fetch_sub(1, Ordering::AcqRel) == 1;
                return if is_last_writer {
                    self.store.close()
                } else {
                    Ok(())
                };
            }
            self.run_maintenance(now.max(self.last_write))?;
        }
    }

    /// Collects the next group. Returns it, the time, and whether it is the last.
    fn next_group(&mut self) -> (Vec<WriterEntry>, Timestamp, bool) {
        let wait = self.entry_wait();
        let mut group = std::mem::take(&mut self.parked);
        let entries_max = group.len() + GROUP_MAX;
        let mut timed_out = self.wait_for_urgent_entries(wait);
        let mut next = self.entries.next();
        if next.is_none() && self.outcomes.is_empty() {
            timed_out = false;
            self.outcomes.expect_nothing();
            self.entries.wait_for_entries(Awaited::Any, wait);
            next = self.entries.next();
        }
        let mut now = self.clock.now();
        if next.is_none() && self.outcomes.is_empty() {
            return (group, now, self.entries.is_closed());
        }
        let mut bytes = 0;
        let mut urgency = Urgency::None;
        let mut is_last = false;
        while group.len() + self.outcomes.len() < entries_max && bytes < self.options.group_bytes {
            match next.take().or_else(|| self.entries.next()) {
                Some(WriterEntry::Close) => {
                    is_last = true;
                    break;
                }
                Some(entry) if entry.urgency() == WriteUrgency::Now => {
                    match &entry {
                        WriterEntry::Publish { chunks, .. } => {
                            bytes += chunks.iter().map(SealedChunk::bytes_len).sum::<usize>();
                            urgency = urgency.max(Urgency::Publish);
                        }
                        _ => {
                            // Only events may overtake outcomes that were queued earlier.
                            urgency = Urgency::Ordered;
                            self.outcomes.take_into(&mut group);
                        }
                    }
                    group.push(entry);
                }
                Some(outcome) => self.outcomes.push(outcome, now),
                None if self.entries.is_closed() => {
                    is_last = true;
                    break;
                }
                None if urgency != Urgency::None || timed_out => break,
                None => {
                    timed_out = self.wait_for_urgent_entries(wait);
                    now = self.clock.now();
                }
            }
        }
        // The time of the append, which must not be before any entry of the group was queued.
        now = self.clock.now();
        let has_outcomes = match urgency {
            Urgency::None => false,
            Urgency::Publish => self.outcomes.may_share_sync(self.last_write, now),
            Urgency::Ordered => true,
        };
        if is_last || has_outcomes || self.outcomes.are_due(now) {
            self.outcomes.take_into(&mut group);
        }
        (group, now, is_last)
    }

    /// How long to wait for entries.
    fn entry_wait(&self) -> Duration {
        if !self.parked.is_empty() {
            return FULL_WAIT;
        }
        if self.trims.is_looking() {
            return LOOKUP_WAIT;
        }
        if !self.is_settled {
            return HOUSEKEEPING;
        }
        let first_due = self.trims.first_due();
        first_due.map_or(IDLE_HOUSEKEEPING, |due| {
            due.since(self.clock.now())
                .clamp(HOUSEKEEPING, IDLE_HOUSEKEEPING)
        })
    }

    /// While outcomes wait or are expected, waits for entries that are more urgent, for at most
    /// `wait_max`. Returns whether the time ended without one.
    fn wait_for_urgent_entries(&mut self, wait_max: Duration) -> bool {
        let Some((awaited, until)) = self.outcomes.next_awaited() else {
            return false;
        };
        let wait = until.since(self.clock.now());
        let timed_out = !self.entries.wait_for_entries(awaited, wait.min(wait_max));
        if timed_out && wait <= wait_max {
            self.outcomes.advance_to(until);
        }
        timed_out
    }

    fn commit_group(
        &mut self,
        entries: Vec<WriterEntry>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let count = entries.len();
        // Most entries have one operation.
        let batch = Batch(Vec::with_capacity(count));
        let replies = Vec::with_capacity(count);
        let mut group = CommitGroup {
            batch,
            replies,
            ..CommitGroup::default()
        };
        for entry in entries {
            self.encode_entry(&mut group, entry, now);
        }
        for ((id, digest), known) in &group.ids {
            group.batch.put(
                Family::PublishedIds,
                keys::published_id(*id, *digest),
                known.encode(),
            );
        }
        self.free_carried(&mut group)?;
        self.forget_jobs(&mut group)?;
        let result = if group.batch.0.is_empty() {
            Ok(())
        } else {
            self.write_group(&group, count)
        };
        match result {
            Ok(()) => {
                self.status.set_state(self.writable_state());
                self.finish_group(group)
            }
            Err(StoreError::Full) => {
                if self.status.set_state(JournalState::Full) != JournalState::Full as u8 {
                    tracing::warn!("the disk is full; publishers are refused");
                }
                self.fail_group(group);
                self.check_recovery(now)
            }
            Err(error @ (StoreError::Damaged(_) | StoreError::Failed(_))) => Err(error),
        }
    }

    /// RocksDB never recovers if the disk was full when it began a write-ahead log. Only the next
    /// opening helps then, so the writer fails once the disk has space.
    fn check_recovery(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if !self.store.is_full_despite_space() {
            self.full_despite_space = None;
            return Ok(());
        }
        let since = *self.full_despite_space.get_or_insert(now);
        if now.since(since) < RECOVERY_WAIT {
            return Ok(());
        }
        let what = "the disk was full, and RocksDB does not write although it has space again; it \
            does after the next start";
        Err(StoreError::Failed(what.to_owned()))
    }

    fn write_group(&mut self, group: &CommitGroup, entries: usize) -> Result<(), StoreError> {
        let began = self.clock.now();
        self.write_batch(&group.batch)?;
        self.last_write = self.clock.now();
        self.status
            .meter
            .record_sync(entries, self.last_write.since(began));
        Ok(())
    }

    /// Writes a batch. The first one of a writer that was settled begins the interval until the
    /// next housekeeping.
    fn write_batch(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if std::mem::take(&mut self.is_settled) {
            self.last_housekeeping = self.clock.now();
        }
        self.store.write(batch)
    }

    /// Publishers are refused before the disk is completely full: the remaining space is left for
    /// writes that free some.
    fn writable_state(&self) -> JournalState {
        if self.store.is_short_of_space() {
            JournalState::Full
        } else {
            JournalState::Writable
        }
    }

    fn finish_group(&mut self, mut group: CommitGroup) -> Result<(), StoreError> {
        for (id, open) in self.ids.take_completed() {
            self.trims.complete_filter(id, open);
        }
        if !group.ids.is_empty() {
            let version = self.recent_ids.add(std::mem::take(&mut group.ids));
            self.status.set_ids_version(version);
        }
        self.update_partitions(&group)?;
        for pending_reply in group.replies {
            match pending_reply {
                // The events are published even if the publisher has disconnected.
                PendingReply::Published(reply, _permit, result) => drop(reply.send(result)),
                PendingReply::Done(entry) => reply_to_entry(entry, Ok(())),
                PendingReply::Refused(entry, error) => reply_to_entry(entry, Err(error)),
                PendingReply::Opened(entry, owner) => self.reply_opened(entry, owner),
            }
        }
        if !group.appended.is_empty() {
            self.outcomes.expect_outcomes(self.last_write);
        }
        let mut appends = group.appended.into_iter().peekable();
        while let Some((id, chunk)) = appends.next() {
            let mut chunks = vec![chunk];
            while let Some((_, chunk)) = appends.next_if(|(next, _)| *next == id) {
                chunks.push(chunk);
            }
            (self.listener)(id, chunks);
        }
        for id in group.before.keys() {
            if !self.partitions.contains_key(id) {
                self.drop_log(*id)?;
            }
        }
        Ok(())
    }

    /// Notes the new ends and low watermarks of the partitions that a group changed.
    fn update_partitions(&mut self, group: &CommitGroup) -> Result<(), StoreError> {
        let mut moved_partitions = Vec::new();
        for (subscription_key, low) in &group.lows {
            let SubscriptionKey {
                partition,
                subscription,
            } = *subscription_key;
            // The outcomes of a topic often come together.
            if moved_partitions.last() != Some(&partition) {
                moved_partitions.push(partition);
            }
            let lows = self.lows.entry(partition).or_default();
            match low {
                Some(low) => lows.insert(subscription, *low),
                None => lows.remove(&subscription),
            };
        }
        let lookup_due = self.last_write.after(self.trims.lookup_delay());
        for id in moved_partitions.iter().chain(group.before.keys()) {
            self.trims.schedule_lookup(*id, lookup_due);
        }
        for id in group.before.keys() {
            self.status
                .set_end(*id, self.partitions.get(id).map(PartitionState::log_end));
            if !self.partitions.contains_key(id) {
                self.ids.forget_partition(*id);
                self.lows.remove(id);
                moved_partitions.push(*id);
            }
        }
        self.update_crowded(moved_partitions.into_iter())
    }

    /// Frees the log of a deleted partition. Its floor is stored, so the space is freed at the next
    /// start at the latest.
    fn drop_log(&self, id: PartitionId) -> Result<(), StoreError> {
        match self.store.drop_log(id, FloorRecord::ABANDONED) {
            Ok(()) | Err(StoreError::Full) => Ok(()),
            Err(error @ (StoreError::Damaged(_) | StoreError::Failed(_))) => Err(error),
        }
    }

    fn reply_opened(&mut self, entry: WriterEntry, owner: SubscriptionOwner) {
        let WriterEntry::Open {
            subscription_key,
            reply,
        } = entry
        else {
            return;
        };
        let cursor = self
            .store
            .get(Family::Cursor, &keys::cursor(subscription_key));
        let reply_value = match (cursor, self.partitions.get(&subscription_key.partition)) {
            (Ok(Some(value)), Some(partition)) => match Cursor::decode(&value) {
                Ok(cursor) => Ok(OpenedSubscription {
                    owner,
                    cursor,
                    end: partition.next,
                }),
                Err(error) => Err(Error::Damaged(format!(
                    "the cursor of {subscription_key:?} cannot be decoded: {error}"
                ))),
            },
            (Ok(_), _) => Err(Error::Unknown),
            (Err(error), _) => Err(error.into()),
        };
        if let Err(Error::Damaged(what)) = &reply_value {
            self.note_damage(Family::Cursor, what);
        }
        if matches!(reply_value, Err(Error::Unknown)) {
            self.incarnations.remove(&subscription_key);
        }
        // The caller may have been dropped. Its incarnation then stays unused.
        reply.send(reply_value).ok();
    }

    /// Records an unreadable record. This does not end the writer: if the disk cannot be written
    /// either, the next write fails.
    fn note_damage(&self, family: Family, what: &str) {
        if self.damage.record_damaged_block(family, what) {
            self.store.set_compaction_paused(family, true);
        }
    }

    /// Handles a group that was not written because the disk is full: publishers and the control
    /// plane are refused. All other entries wait, also changes of the control plane that complete
    /// another one.
    fn fail_group(&mut self, group: CommitGroup) {
        for id in group.before.keys() {
            self.ids.forget_partition(*id);
        }
        restore_values(&mut self.partitions, group.before);
        restore_values(&mut self.incarnations, group.incarnations);
        for pending_reply in group.replies {
            match pending_reply {
                PendingReply::Published(reply, _permit, result) => {
                    drop(reply.send(result.and(Err(Error::Full))))
                }
                PendingReply::Done(
                    entry @ WriterEntry::Meta {
                        completes: false, ..
                    },
                ) => reply_to_entry(entry, Err(Error::Full)),
                PendingReply::Done(entry) | PendingReply::Opened(entry, _) => {
                    self.parked.push(entry)
                }
                PendingReply::Refused(entry, error) => reply_to_entry(entry, Err(error)),
            }
        }
    }
}

fn restore_values<K: Eq + Hash, V>(now: &mut IdMap<K, V>, before: IdMap<K, Option<V>>) {
    for (key, before) in before {
        match before {
            Some(before) => now.insert(key, before),
            None => now.remove(&key),
        };
    }
}

fn reply_to_entry(entry: WriterEntry, result: Result<(), Error>) {
    match entry {
        WriterEntry::Append { done, .. } => done.call_with(result),
        WriterEntry::Meta { reply, .. } | WriterEntry::WriteDeadLetters { reply, .. } => {
            // The change is made even if the caller was dropped.
            reply.send(result).ok();
        }
        WriterEntry::Open { reply, .. } => {
            reply.send(Err(result.err().unwrap_or(Error::Unknown))).ok();
        }
        WriterEntry::Keep { reply, .. } => {
            reply.send(Err(result.err().unwrap_or(Error::Unknown))).ok();
        }
        // A publish request has its own receipt.
        WriterEntry::Publish { .. } | WriterEntry::DivideBacklog { .. } | WriterEntry::Close => {}
    }
}
