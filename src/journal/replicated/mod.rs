//! A store whose batches are written to a changelog first: the owner's store of a shard.
//!
//! [`ReplicatedStore::write`] appends the batch to the log, waits for the acknowledgement and then
//! applies it to the local store. The writer's thread blocks meanwhile, as it blocks on a sync
//! without a changelog.
//!
//! Invariants:
//! - The local store is never ahead of the log: it is a prefix of the log, and its position is
//!   written with each batch. So a former owner can follow the log again without being rebuilt.
//! - A batch is applied only when all its parts are in the log.
//! - An append without a response is repeated with the same bytes and the same expectation until
//!   its fate is known. So a lost acknowledgement neither loses a batch nor writes it twice.
//! - After another owner's `FENCE` nothing is written any more.
//!
//! Not here: who may own the shard. `cluster` decides that; the fence holds even if it decides
//! wrongly.

mod copy;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

pub use self::copy::{FollowError, ShardCopy};
use self::copy::{Tries, write_locally};
use super::changelog::{
    Changelog, ChangelogBounds, ChangelogError,
    record::{self, Body, BrokenRecord, Record},
};
use gridhook_clock::Clock;
use gridhook_event::Timestamp;
use gridhook_store::{Batch, Store, StoreError, layer::StoreLayer, records::AppliedPosition};

/// The number of fences that are appended behind an expected record, before one is appended without
/// an expectation. A client may send a record much later than it was asked to: with an expectation
/// it then fences no owner that came meanwhile. A living owner may write faster than a new one can
/// follow.
const EXPECTING_FENCES: u32 = 8;

/// Options of a replicated store.
#[derive(Clone, Copy, Debug)]
pub struct ReplicationOptions {
    /// The maximum size of a record in bytes. A larger batch is a chain of records.
    pub record_bytes_max: usize,
    /// The pause after the first failed attempt. It doubles with each further one.
    pub pause: Duration,
    /// The pause does not grow beyond this.
    pub pause_max: Duration,
    /// How many attempts may find the log shorter than the local store, or find no response while a
    /// store is opened, before that is an error.
    pub tries: u32,
    /// The newest format of records that all nodes read.
    pub format: u8,
}

impl Default for ReplicationOptions {
    fn default() -> Self {
        Self {
            record_bytes_max: 2 << 20,
            pause: Duration::from_millis(20),
            pause_max: Duration::from_secs(1),
            tries: 12,
            format: record::FIRST_FORMAT,
        }
    }
}

/// Why an owner writes nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnershipEnd {
    /// Another node owns the shard.
    #[error("another node has taken the shard")]
    Fenced,
    /// The owner gave the shard up.
    #[error("the shard was given up")]
    Released,
    /// The server stops. The log may or may not have the last write.
    #[error("the server stops; a write that waited for the changelog may or may not be in it")]
    Stopped,
    /// The log does not exist any more.
    #[error("the changelog of the shard does not exist any more")]
    Missing,
    /// The log has lost records.
    #[error(
        "the changelog of the shard ends at record {last}, and record {acknowledged} was \
         acknowledged"
    )]
    Shorter {
        /// The last sequence of the log.
        last: u64,
        /// The last sequence that it acknowledged.
        acknowledged: u64,
    },
    /// The log acknowledged a record at another place than it was sent for.
    #[error("the changelog stored a record at {sequence} instead of {expected}")]
    Misplaced {
        /// Where the log stored it.
        sequence: u64,
        /// Where it was sent for.
        expected: u64,
    },
    /// The log does not take a record.
    #[error("the changelog refused a record: {0}")]
    Refused(String),
    /// The local store failed, and is behind its log.
    #[error("the local store of the shard failed: {0}")]
    Local(String),
}

/// Why a batch was not written.
enum NotWritten {
    /// The log is full, and has nothing of the batch.
    Full,
    /// Nothing can be written any more.
    Ended(OwnershipEnd),
}

/// What an append does while the log is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnFull {
    /// It fails, if no earlier attempt can have arrived.
    Refuse,
    /// It fails. No later record depends on this one, so it does not matter whether it was stored.
    GiveUp,
    Wait,
}

impl OnFull {
    fn gives_up(self, may_be_in_log: bool) -> bool {
        match self {
            Self::Refuse => !may_be_in_log,
            Self::GiveUp => true,
            Self::Wait => false,
        }
    }
}

/// The store of a shard's owner.
pub struct ReplicatedStore {
    store: Arc<dyn Store>,
    log: Arc<dyn Changelog>,
    clock: Clock,
    options: ReplicationOptions,
    /// The position of the last record in the log. A write holds the lock until it is stored or refused.
    position: Mutex<AppliedPosition>,
    epoch: u64,
    ended: OnceLock<OwnershipEnd>,
    stopping: (Mutex<bool>, Condvar),
    /// When the append began that waits for the log; 0 without one.
    waiting: AtomicU64,
    /// Whether the last attempt of that append found the log full.
    is_full: AtomicBool,
    applied: AtomicU64,
    flushed: AtomicU64,
}

impl ReplicatedStore {
    /// Takes the shard: applies what the log has to `store`, appends a `FENCE` and applies the rest
    /// through it. Earlier owners cannot write any more.
    ///
    /// # Errors
    /// If the log is missing, shorter than `store`, or broken. Then no fence was appended, unless
    /// the log broke since.
    pub fn take_shard(
        store: Arc<dyn Store>,
        log: Arc<dyn Changelog>,
        node: &str,
        clock: Clock,
        options: ReplicationOptions,
    ) -> Result<Self, FollowError> {
        let mut copy = ShardCopy::open(Arc::clone(&store), Arc::clone(&log), options)?;
        copy.catch_up()?;
        let epoch = append_fence(&mut copy, node, options.format)?;
        // The log may have been replaced since the last look.
        copy.check_marks(epoch)?;
        copy.apply_through(epoch)?;
        // A fence ends every chain of parts, so everything before it is applied.
        let position = copy.applied_position();
        if position.epoch != epoch {
            let why = BrokenRecord::Epoch {
                found: position.epoch,
                epoch,
            };
            return Err(FollowError::Broken {
                sequence: epoch,
                why,
            });
        }
        Ok(Self {
            store,
            log,
            clock,
            options,
            position: Mutex::new(position),
            epoch,
            ended: OnceLock::new(),
            stopping: Default::default(),
            waiting: 0.into(),
            is_full: false.into(),
            applied: position.sequence.into(),
            flushed: 0.into(),
        })
    }

    /// The sequence of this owner's fence.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Why nothing is written any more, if that is so.
    pub fn ownership_end(&self) -> Option<&OwnershipEnd> {
        self.ended.get()
    }

    /// For how long a write has waited for the log; zero if none does.
    pub fn waiting_time(&self) -> Duration {
        match self.waiting.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => self.clock.now().since(Timestamp(since)),
        }
    }

    /// Whether the write that waits does so because the log is full.
    pub fn waits_for_space(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// The sequence of the last record that the local store has applied.
    pub fn applied_sequence(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// The sequence of the last record that the local store has synced: the log may be trimmed up
    /// to it as far as this copy is concerned. Moves once a second.
    pub fn flushed_sequence(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Gives the shard up, so that another node may take it at once. Nothing can be written
    /// afterwards.
    pub fn release_shard(&self) -> Result<(), OwnershipEnd> {
        let mut position = self.lock_position();
        if let Some(end) = self.ended.get() {
            return Err(end.clone());
        }
        let release = self.new_record(*position, Body::Release);
        let result = self
            .append_record(&release, &mut position, OnFull::GiveUp)
            .and_then(|()| self.apply_batch(Batch::default(), *position));
        let end = match result {
            Err(NotWritten::Ended(end)) => end,
            // A release that was not written is one that expires.
            Ok(()) | Err(NotWritten::Full) => OwnershipEnd::Released,
        };
        match self.ended.get_or_init(|| end) {
            OwnershipEnd::Released => Ok(()),
            end => Err(end.clone()),
        }
    }

    /// Ends a write or a release that waits for the log, which may or may not have it, and refuses
    /// later ones.
    pub fn stop(&self) {
        *self.stopping.0.lock() = true;
        self.stopping.1.notify_all();
        // A write that holds the lock finds that itself.
        if let Some(_position) = self.position.try_lock() {
            self.ended.get_or_init(|| OwnershipEnd::Stopped);
        }
    }

    /// The state changes only after a record was acknowledged, so it is consistent even if a thread
    /// panicked with the lock.
    fn lock_position(&self) -> MutexGuard<'_, AppliedPosition> {
        self.position.lock()
    }

    fn new_record(&self, position: AppliedPosition, body: Body) -> Record {
        Record {
            epoch: position.epoch,
            number: position.number + 1,
            previous: position.chain,
            body,
        }
    }

    fn replicate_batch(
        &self,
        position: &mut AppliedPosition,
        batch: &Batch,
    ) -> Result<(), NotWritten> {
        let operations = record::encode_batch(batch);
        let part_bytes = self
            .options
            .record_bytes_max
            .saturating_sub(record::OVERHEAD)
            .max(1);
        let parts = u16::try_from(operations.len().div_ceil(part_bytes)).map_err(|_| {
            NotWritten::Ended(OwnershipEnd::Refused(format!(
                "a batch of {} bytes has too many parts",
                operations.len()
            )))
        })?;
        for part in 1..=parts {
            let from = usize::from(part - 1) * part_bytes;
            let operations = operations.slice(from..operations.len().min(from + part_bytes));
            let record = self.new_record(
                *position,
                Body::Group {
                    part,
                    parts,
                    operations,
                },
            );
            // What was begun is completed: another batch could not follow a chain that is not
            // complete.
            self.append_record(
                &record,
                position,
                if part == 1 {
                    OnFull::Refuse
                } else {
                    OnFull::Wait
                },
            )?;
        }
        self.apply_batch(batch.clone(), *position)
    }

    fn apply_batch(&self, mut batch: Batch, position: AppliedPosition) -> Result<(), NotWritten> {
        let written = write_locally(&*self.store, &mut batch, position);
        written.map_err(|error| NotWritten::Ended(OwnershipEnd::Local(error.to_string())))?;
        self.applied.store(position.sequence, Ordering::Release);
        Ok(())
    }

    /// Appends `record` behind `position`, and moves it. Returns only when the fate of the record
    /// is known, except with [`OnFull::GiveUp`].
    fn append_record(
        &self,
        record: &Record,
        position: &mut AppliedPosition,
        on_full: OnFull,
    ) -> Result<(), NotWritten> {
        let began = self.clock.now();
        self.waiting.store(began.0, Ordering::Release);
        let result = self.append_until_known(record, position, on_full);
        self.waiting.store(0, Ordering::Release);
        result
    }

    fn append_until_known(
        &self,
        record: &Record,
        position: &mut AppliedPosition,
        on_full: OnFull,
    ) -> Result<(), NotWritten> {
        if self.is_stopping_within(Duration::ZERO) {
            return Err(NotWritten::Ended(OwnershipEnd::Stopped));
        }
        let bytes = record.encode();
        let last_sequence = position.sequence;
        let mut tries = Tries::new(self.options);
        let mut may_be_in_log = false;
        loop {
            let result = self.log.append(&bytes, Some(last_sequence));
            self.is_full.store(
                matches!(result, Err(ChangelogError::Full)),
                Ordering::Release,
            );
            match result {
                Ok(sequence) if sequence == last_sequence + 1 => break,
                Ok(sequence) => {
                    return Err(NotWritten::Ended(OwnershipEnd::Misplaced {
                        sequence,
                        expected: last_sequence + 1,
                    }));
                }
                Err(ChangelogError::WrongLast) => match self.log.read(last_sequence + 1, 1) {
                    // An earlier attempt arrived. Another owner may have come since then.
                    Ok(found) if found.first() == Some(&bytes) => break,
                    Ok(found) if !found.is_empty() => {
                        return Err(NotWritten::Ended(OwnershipEnd::Fenced));
                    }
                    Ok(_) | Err(_) => {}
                },
                Err(ChangelogError::Full) if on_full.gives_up(may_be_in_log) => {
                    return Err(NotWritten::Full);
                }
                Err(ChangelogError::Refused(why)) => {
                    return Err(NotWritten::Ended(OwnershipEnd::Refused(why)));
                }
                Err(
                    ChangelogError::Full | ChangelogError::Missing | ChangelogError::Unavailable(_),
                ) => {}
            }
            may_be_in_log = true;
            match self.log.bounds() {
                Err(ChangelogError::Missing) => {
                    return Err(NotWritten::Ended(OwnershipEnd::Missing));
                }
                // A server that has just become the leader may not have the newest records yet.
                Ok(ChangelogBounds { last, .. }) if last < last_sequence => {
                    if tries.left == 0 {
                        let end = OwnershipEnd::Shorter {
                            last,
                            acknowledged: last_sequence,
                        };
                        return Err(NotWritten::Ended(end));
                    }
                    tries.left -= 1;
                }
                Ok(_) | Err(_) => {}
            }
            if self.is_stopping_within(tries.next_pause()) {
                return Err(NotWritten::Ended(OwnershipEnd::Stopped));
            }
        }
        *position = record::position_after(*position, &bytes, record);
        Ok(())
    }

    fn is_stopping_within(&self, pause: Duration) -> bool {
        let (stopping, changed) = &self.stopping;
        let mut stopping = stopping.lock();
        changed.wait_while_for(&mut stopping, |stopping| !*stopping, pause);
        *stopping
    }
}

/// Appends a `FENCE` behind all that the log has, and returns its sequence, the epoch.
fn append_fence(copy: &mut ShardCopy, node: &str, format: u8) -> Result<u64, FollowError> {
    let incarnation = fastrand::u64(..);
    let mut expecting = EXPECTING_FENCES;
    // A lost response makes a second fence of the same node, and the later one counts.
    loop {
        let last = (expecting > 0).then_some(copy.last_read());
        let last_sequence = last.map(|last| last.sequence);
        let previous = last
            .filter(|_| format >= record::FENCE_FORMAT)
            .map(|last| last.chain);
        let fence = Record::fence(node, incarnation, previous).encode();
        let sequence = copy.ask_until_answered(|log| match log.append(&fence, last_sequence) {
            Err(ChangelogError::WrongLast) => Ok(None),
            result => result.map(Some),
        })?;
        if let Some(sequence) = sequence {
            return Ok(sequence);
        }
        copy.catch_up()?;
        expecting -= 1;
    }
}

impl StoreLayer for ReplicatedStore {
    type Inner = dyn Store;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut position = self.lock_position();
        if let Some(end) = self.ended.get() {
            return Err(StoreError::Failed(end.to_string()));
        }
        if batch.0.is_empty() {
            return Ok(());
        }
        match self.replicate_batch(&mut position, batch) {
            Ok(()) => Ok(()),
            Err(NotWritten::Full) => Err(StoreError::Full),
            Err(NotWritten::Ended(end)) => Err(StoreError::Failed(
                self.ended.get_or_init(|| end).to_string(),
            )),
        }
    }

    fn write_unsynced(&self, batch: &Batch) -> Result<(), StoreError> {
        StoreLayer::write(self, batch)
    }

    /// The store below outlives the ownership: it follows the log of the next owner.
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        let sequence = self.applied_sequence();
        self.inner().note_watermark()?;
        self.flushed.store(sequence, Ordering::Release);
        Ok(())
    }
}
