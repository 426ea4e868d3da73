//! A local store that follows a changelog.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use bytes::Bytes;

use super::ReplicationOptions;
use crate::changelog::{
    Changelog, ChangelogBounds, ChangelogError, StreamMark,
    record::{self, BrokenRecord, ChainHead, Followed},
};
use gridhook_store::{
    Batch, Family, Store, StoreError, WriteOp,
    keys::{self, MetaKind},
    records::{AppliedPosition, FloorRecord, StoredRecord},
};

/// The number of records that are read at once when a store follows the log.
const READ_RECORDS: usize = 16;

/// Why a store does not follow its log. Nothing behind that point was applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowError {
    /// The store has data that is not in the log.
    #[error(
        "the local store has data that does not come from a changelog; use an empty data folder"
    )]
    Foreign,
    /// The log does not exist.
    #[error(
        "the changelog does not exist, but the local store has applied {applied} of its records"
    )]
    Missing {
        /// The last sequence that the local store has applied.
        applied: u64,
    },
    /// The log ends before the local store.
    #[error(
        "the changelog ends at record {last}, but the local store has applied records up to \
         {applied}"
    )]
    Shorter {
        /// The last sequence of the log.
        last: u64,
        /// The last sequence that the local store has applied.
        applied: u64,
    },
    /// The log ends before a record that it has acknowledged.
    #[error(
        "the changelog ends at record {last}, and record {position} of epoch {epoch} was \
         acknowledged: NATS has lost records, or was restored from an older backup",
        position = .mark.position, epoch = .mark.epoch
    )]
    RolledBack {
        /// The last sequence of the log.
        last: u64,
        /// The record that the log has acknowledged.
        mark: StreamMark,
    },
    /// The log was continued below a record that it has acknowledged.
    #[error(
        "record {position} of epoch {epoch} was acknowledged, and record {other} of epoch {began}, \
         which begins below it: NATS was restored from an older backup, and a node went on with it",
        position = .marks[0].position, epoch = .marks[0].epoch,
        other = .marks[1].position, began = .marks[1].epoch
    )]
    Forked {
        /// The acknowledged record, and a record of the epoch that begins below it.
        marks: [StreamMark; 2],
    },
    /// The log begins behind the local store.
    #[error(
        "the changelog begins at record {first}, but the local store has applied records up to \
         {applied}: it needs a copy"
    )]
    Trimmed {
        /// The first sequence of the log.
        first: u64,
        /// The last sequence that the local store has applied.
        applied: u64,
    },
    /// A record does not continue the log.
    #[error("record {sequence} of the changelog cannot be applied: {why}")]
    Broken {
        /// Its place in the log.
        sequence: u64,
        /// What is wrong with it.
        why: BrokenRecord,
    },
    /// The log could not be read or written.
    #[error(transparent)]
    Log(ChangelogError),
    /// The local store could not be read or written.
    #[error("the local store: {0}")]
    Store(#[from] StoreError),
}

/// A local store that follows a changelog: the copy of a standby, or of an owner that opens.
pub struct ShardCopy {
    store: Arc<dyn Store>,
    log: Arc<dyn Changelog>,
    options: ReplicationOptions,
    /// The end of what was read.
    head: ChainHead,
    /// The position of the last record that was applied. Parts of a batch that is not complete come
    /// after it.
    applied: AppliedPosition,
}

impl ShardCopy {
    /// A copy in `store`. Checks that the log has what the store has applied.
    ///
    /// # Errors
    /// If the log is missing or shorter than the store, begins behind it, or has another record at
    /// its position, or if the store has data of its own.
    pub fn open(
        store: Arc<dyn Store>,
        log: Arc<dyn Changelog>,
        options: ReplicationOptions,
    ) -> Result<Self, FollowError> {
        let position = match Self::read_applied(&*store)? {
            Some(applied) => applied,
            None if is_new(&*store)? => AppliedPosition::default(),
            None => return Err(FollowError::Foreign),
        };
        let copy = Self {
            store,
            log,
            options,
            head: ChainHead::at(position),
            applied: position,
        };
        let mut tries = Tries::new(options);
        loop {
            match copy.check_log() {
                // A server that has just become the leader may not have the newest records yet.
                Err(
                    FollowError::Shorter { .. }
                    | FollowError::RolledBack { .. }
                    | FollowError::Broken {
                        why: BrokenRecord::Gap,
                        ..
                    },
                ) if tries.pause_and_retry() => {}
                checked => return checked.map(|()| copy),
            }
        }
    }

    /// What a store has applied; [`None`] if it has no record of that.
    pub fn read_applied(store: &dyn Store) -> Result<Option<AppliedPosition>, StoreError> {
        AppliedPosition::read(store)
    }

    /// Checks that the log has what the store has applied.
    fn check_log(&self) -> Result<(), FollowError> {
        let sequence = self.applied.sequence;
        let ChangelogBounds { first, last, .. } = self.ask_until_answered(|log| log.bounds())?;
        if last < sequence {
            return Err(FollowError::Shorter {
                last,
                applied: sequence,
            });
        }
        self.check_marks(last)?;
        if first > sequence + 1 {
            return Err(FollowError::Trimmed {
                first,
                applied: sequence,
            });
        }
        if sequence == 0 || first > sequence {
            return Ok(());
        }
        let why = match self
            .ask_until_answered(|log| log.read(sequence, 1))?
            .first()
        {
            Some(bytes) if record::ends_at(bytes, self.applied) => return Ok(()),
            Some(_) => BrokenRecord::Chain,
            None => BrokenRecord::Gap,
        };
        Err(FollowError::Broken { sequence, why })
    }

    /// Checks that a log which ends at `last` has what copies have found that it acknowledged.
    pub(super) fn check_marks(&self, last: u64) -> Result<(), FollowError> {
        let marks = self.log.known_marks();
        if let Some(marks) = marks.conflict {
            return Err(FollowError::Forked { marks });
        }
        let mark = marks.highest;
        if last < mark.position {
            return Err(FollowError::RolledBack { last, mark });
        }
        Ok(())
    }

    /// The position up to which records were applied. The records behind it are needed after a
    /// restart.
    pub fn applied_position(&self) -> AppliedPosition {
        self.applied
    }

    /// The position of the last record that was read.
    pub(super) fn last_read(&self) -> AppliedPosition {
        self.head.position
    }

    /// Applies what the log has now. Returns the position.
    pub fn catch_up(&mut self) -> Result<AppliedPosition, FollowError> {
        let last = self.ask_until_answered(|log| log.bounds())?.last;
        let position = self.applied.sequence;
        if last < position {
            return Err(FollowError::Shorter {
                last,
                applied: position,
            });
        }
        self.check_marks(last)?;
        self.apply_through(last)?;
        Ok(self.applied_position())
    }

    pub(super) fn apply_through(&mut self, last: u64) -> Result<(), FollowError> {
        let mut tries = Tries::new(self.options);
        while self.head.position.sequence < last {
            let next = self.head.position.sequence + 1;
            let most = usize::try_from(last - next + 1)
                .unwrap_or(READ_RECORDS)
                .min(READ_RECORDS);
            let records = self.ask_until_answered(|log| log.read(next, most))?;
            // A server that has just become the leader may not have the newest records yet.
            if records.is_empty() && !tries.pause_and_retry() {
                return Err(FollowError::Broken {
                    sequence: next,
                    why: BrokenRecord::Gap,
                });
            }
            for record in records {
                self.apply_record(&record)?;
                tries = Tries::new(self.options);
            }
        }
        Ok(())
    }

    fn apply_record(&mut self, bytes: &Bytes) -> Result<(), FollowError> {
        let sequence = self.head.position.sequence + 1;
        let mut batch = match self
            .head
            .follow(bytes)
            .map_err(|why| FollowError::Broken { sequence, why })?
        {
            Followed::Batch(batch) => batch,
            Followed::Position => Batch::default(),
            Followed::Part => return Ok(()),
        };
        write_locally(&*self.store, &mut batch, self.head.position)?;
        self.applied = self.head.position;
        // The floors are durable in the log: if the local store loses its tail, it applies them
        // again.
        for operation in &batch.0 {
            if let WriteOp::Put(Family::Meta, key, value) = operation
                && let Some(partition) = keys::parse_floor(key)
            {
                let record = FloorRecord::decode(value).map_err(StoreError::damaged)?;
                self.store.drop_log(partition, record.floor)?;
            }
        }
        Ok(())
    }

    /// Calls the log until it responds.
    pub(super) fn ask_until_answered<T>(
        &self,
        question: impl Fn(&dyn Changelog) -> Result<T, ChangelogError>,
    ) -> Result<T, FollowError> {
        let mut tries = Tries::new(self.options);
        loop {
            match question(&*self.log) {
                Err(ChangelogError::Unavailable(_)) if tries.pause_and_retry() => {}
                Err(ChangelogError::Missing) => {
                    return Err(FollowError::Missing {
                        applied: self.applied.sequence,
                    });
                }
                answer => return answer.map_err(FollowError::Log),
            }
        }
    }
}

/// Whether a store has nothing but its format.
fn is_new(store: &dyn Store) -> Result<bool, StoreError> {
    let format = keys::meta_key(MetaKind::Format, b"");
    let mut is_new = true;
    for family in Family::ALL {
        store.scan(family, &[], &[0xff; 64], &mut |key, _| {
            is_new &= family == Family::Meta && *key == format;
            if is_new {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
    }
    Ok(is_new)
}

/// A bounded number of attempts with pauses between them.
pub(super) struct Tries {
    pub(super) left: u32,
    pause: Duration,
    pause_max: Duration,
}

impl Tries {
    pub(super) fn new(options: ReplicationOptions) -> Self {
        Self {
            left: options.tries,
            pause: options.pause,
            pause_max: options.pause_max,
        }
    }

    /// Pauses before another attempt, if there may be one.
    fn pause_and_retry(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        std::thread::sleep(self.next_pause());
        true
    }

    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.pause_max);
        pause
    }
}

/// Applies a batch together with the position behind it. The log has both, so the sync can wait.
pub(super) fn write_locally(
    store: &dyn Store,
    batch: &mut Batch,
    position: AppliedPosition,
) -> Result<(), StoreError> {
    batch.put(
        Family::Meta,
        keys::meta_key(MetaKind::Applied, b""),
        position.encode(),
    );
    store.write_unsynced(batch)
}
