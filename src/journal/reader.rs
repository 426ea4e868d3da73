//! Reads of the store, on two threads of their own ([`TaskThreads`]) and in bounded slices: a read
//! of the disk must not block the thread of an actor.

mod dead_letters;
mod event_records;
mod meta_records;
mod trace;

use std::{
    ops::{ControlFlow, Range},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

pub use self::{
    dead_letters::WaitingDeadLetter, event_records::EventRecords, meta_records::MetaRecords,
};
use crate::{
    Error, PendingResult,
    position::{self, LogPosition},
};
use gridhook_event::{
    Event, Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp, chunk::Chunk,
};
use gridhook_policy::{
    outcome::Failure,
    record::{Cursor, DueKey, FetchedPending, PendingDelivery, Traffic, job::Job},
};
use gridhook_store::{
    Family, Store, StoreError,
    damage::TolerantStore,
    figures::StoreFigures,
    keys::{self, MetaKind},
    log::{EventFinder, LogEnd, LogSlice, read_log},
    records::StoredRecord,
    task_threads::TaskThreads,
};

/// Two: one slow read does not block all others, and more threads would only wait for the same
/// disk.
const THREADS: usize = 2;

/// Due times that one task reads: some 20 ms. Tasks of others run in between.
const DUE_PART: usize = 65_536;

/// A handle to the reading threads.
#[derive(Clone)]
pub struct ReaderPool {
    threads: Arc<TaskThreads>,
    store: Arc<dyn Store>,
    panics: Arc<AtomicU64>,
}

impl ReaderPool {
    /// The store must record all damage that it skips.
    pub(super) fn new(store: Arc<TolerantStore>) -> Self {
        Self {
            threads: Arc::new(TaskThreads::new("journal-read", THREADS)),
            store,
            panics: Arc::default(),
        }
    }

    /// Reads the log of `partition` from `from` to before `end`, or the first part of it: about
    /// `bytes_max` bytes, and at least one chunk.
    pub fn read_log(
        &self,
        partition: PartitionId,
        from: Seq,
        end: Seq,
        bytes_max: usize,
    ) -> PendingResult<LogSlice> {
        self.run(move |store| Ok(read_log(store, partition, from, end, bytes_max)?))
    }

    /// Like [`ReaderPool::read_log`], if `admit` grants a permit for the bytes read. Otherwise the
    /// result is their number.
    pub fn log_within<R: Send + 'static>(
        &self,
        partition: PartitionId,
        range: Range<Seq>,
        bytes_max: usize,
        admit: impl FnOnce(usize) -> Option<R> + Send + 'static,
    ) -> PendingResult<Result<(LogSlice, R), usize>> {
        self.run(move |store| {
            let slice = read_log(store, partition, range.start, range.end, bytes_max)?;
            let bytes = slice.chunks.iter().map(Chunk::bytes_len).sum();
            Ok(admit(bytes).map(|permit| (slice, permit)).ok_or(bytes))
        })
    }

    /// Finds the first event of `partition` before `end` that was appended at `since` or later.
    pub fn find_position(
        &self,
        partition: PartitionId,
        end: Seq,
        since: Timestamp,
    ) -> PendingResult<LogPosition> {
        self.run(move |store| Ok(position::find_position_since(store, partition, end, since)?))
    }

    /// Finds the first event of `partition` from which on at most `bytes` bytes of the log follow
    /// before `end`, rounded to the beginning of a chunk.
    pub fn last_bytes(
        &self,
        partition: PartitionId,
        end: LogEnd,
        bytes: u64,
    ) -> PendingResult<LogPosition> {
        let bytes_before = end.running.bytes.saturating_sub(bytes);
        self.run(move |store| {
            Ok(position::find_position(
                store,
                partition,
                end.next,
                |chunk| chunk.before.bytes < bytes_before,
            )?)
        })
    }

    /// Reads up to `max` due times of a subscription from `from` on, in order, and whether these
    /// are all.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read_due_keys(
        &self,
        subscription_key: SubscriptionKey,
        from: DueKey,
        max: usize,
    ) -> Result<(Vec<DueKey>, bool), Error> {
        self.read_due_where(subscription_key, from, max, |_| true)
            .await
    }

    /// Like [`ReaderPool::read_due_keys`], for one kind of traffic.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read_due(
        &self,
        subscription_key: SubscriptionKey,
        traffic: Traffic,
        from: DueKey,
        max: usize,
    ) -> Result<(Vec<DueKey>, bool), Error> {
        self.read_due_where(subscription_key, from, max, move |lane| {
            Traffic::from_lane(lane) == traffic
        })
        .await
    }

    /// Reads in parts, because the keys of a job may be among millions of others. Other reads run
    /// between two parts. A window reads on from the last key that it has, and only when it has
    /// none left, so that a walk over the keys of a job looks once at each of the others
    /// ([`RetryWindow`](gridhook_policy::retry_window::RetryWindow)).
    async fn read_due_where(
        &self,
        subscription_key: SubscriptionKey,
        mut from: DueKey,
        max: usize,
        includes_lane: impl Fn(Lane) -> bool + Copy + Send + 'static,
    ) -> Result<(Vec<DueKey>, bool), Error> {
        let mut keys = Vec::new();
        loop {
            let rest = max - keys.len();
            let part = self
                .run(move |store| read_due(store, subscription_key, from, rest, includes_lane))
                .await?;
            keys.extend(part.keys);
            match part.next {
                None => return Ok((keys, true)),
                Some(_) if keys.len() >= max => return Ok((keys, false)),
                Some(next) => from = next,
            }
        }
    }

    /// Reads the ended jobs of a subscription that are still stored.
    pub fn ended_jobs(&self, subscription_key: SubscriptionKey) -> PendingResult<Vec<Job>> {
        self.run(move |store| Ok(ended_jobs(store, subscription_key)?))
    }

    /// Reads events and a subscription's pending deliveries of them, in the given order. The result
    /// ends after about `bytes_max` bytes.
    pub fn fetch_pending(
        &self,
        subscription_key: SubscriptionKey,
        keys: Vec<(Lane, Seq)>,
        bytes_max: usize,
    ) -> PendingResult<Vec<FetchedPending>> {
        self.run(move |store| fetch_events(store, subscription_key, &keys, bytes_max))
    }

    /// Like [`ReaderPool::fetch_pending`], if `admit` grants a permit for the bytes read. Otherwise
    /// the result is their number.
    pub fn fetch_within<R: Send + 'static>(
        &self,
        subscription_key: SubscriptionKey,
        keys: Vec<(Lane, Seq)>,
        bytes_max: usize,
        admit: impl FnOnce(usize) -> Option<R> + Send + 'static,
    ) -> PendingResult<Result<(Vec<FetchedPending>, R), usize>> {
        self.run(move |store| {
            let deliveries = fetch_events(store, subscription_key, &keys, bytes_max)?;
            let bytes = deliveries
                .iter()
                .filter_map(|delivery| delivery.event.as_ref())
                .map(Event::wire_len)
                .sum();
            Ok(admit(bytes).map(|permit| (deliveries, permit)).ok_or(bytes))
        })
    }

    /// Reads a subscription's pending deliveries of these events, without the events, in the given
    /// order; [`None`] if there is none.
    pub fn read_pending(
        &self,
        subscription_key: SubscriptionKey,
        keys: Vec<(Lane, Seq)>,
    ) -> PendingResult<Vec<(Lane, Seq, Option<PendingDelivery>)>> {
        self.run(move |store| {
            let mut records = Vec::with_capacity(keys.len());
            for (lane, seq) in keys {
                let pending = read_pending(store, subscription_key, lane, seq)?;
                records.push((lane, seq, pending));
            }
            Ok(records)
        })
    }

    /// Reads the sequence of the last carried event of a partition, if there is any.
    pub fn last_carried(&self, partition: PartitionId) -> PendingResult<Option<Seq>> {
        self.run(move |store| {
            let range = keys::carried_of(partition);
            let last = store.last(Family::Carried, &range.start, &range.end)?;
            Ok(last
                .and_then(|(key, _)| keys::parse_carried(&key))
                .map(|(_, seq)| seq))
        })
    }

    /// Reads one record of the control plane.
    pub fn read_meta(&self, kind: MetaKind, name: String) -> PendingResult<Option<Bytes>> {
        self.run(move |store| Ok(store.get(Family::Meta, &keys::meta_key(kind, name.as_bytes()))?))
    }

    /// All records of a kind. Blocks: only for the start.
    pub fn all_meta(&self, kind: MetaKind) -> MetaRecords {
        MetaRecords::new(self.current_store(), kind)
    }

    pub(super) fn current_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// The number of reads that panicked.
    pub(super) fn panic_count(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(super) fn store_figures(&self) -> Option<StoreFigures> {
        self.store.figures()
    }

    /// Reads all cursors. Blocks: only for the start.
    pub fn all_cursors(&self) -> Result<Vec<(SubscriptionKey, Cursor)>, Error> {
        scan_cursors(&*self.store)
    }

    /// The largest number of a partition that has a floor, and of a deleted subscription whose
    /// records remain. The floor stays when its partition is deleted; either would remove the
    /// records of a successor with the same number.
    pub fn largest_numbers(&self) -> Result<(PartitionId, SubscriptionId), Error> {
        let mut partition = PartitionId(0);
        let mut subscription = SubscriptionId(0);
        for range in [keys::meta_of(MetaKind::Floor), keys::reaps_range()] {
            self.store
                .scan(Family::Meta, &range.start, &range.end, &mut |key, _| {
                    if let Some(deleted) = keys::parse_reap(key) {
                        subscription = subscription.max(deleted.subscription);
                    }
                    if let Some(floor_partition) = keys::parse_floor(key) {
                        partition = partition.max(floor_partition);
                    }
                    ControlFlow::Continue(())
                })?;
        }
        Ok((partition, subscription))
    }

    fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn Store) -> Result<T, Error> + Send + 'static,
    ) -> PendingResult<T> {
        let (reply, pending_result) = PendingResult::new();
        let panics = Arc::clone(&self.panics);
        let store = Arc::clone(&self.store);
        self.threads.run(move || {
            // The panic hook has logged a panic.
            let result = catch_unwind(AssertUnwindSafe(|| job(&*store))).unwrap_or_else(|_| {
                panics.fetch_add(1, Ordering::Relaxed);
                Err(Error::Damaged("a read panicked".to_owned()))
            });
            // The caller may have been dropped.
            reply.send(result).ok();
        });
        pending_result
    }
}

pub(super) fn scan_cursors(store: &dyn Store) -> Result<Vec<(SubscriptionKey, Cursor)>, Error> {
    let mut cursors = Vec::new();
    let mut damage = None;
    let range = keys::cursors_range();
    store.scan(
        Family::Cursor,
        &range.start,
        &range.end,
        &mut |key, value| match (keys::parse_cursor(key), Cursor::decode(value)) {
            (Some(subscription_key), Ok(cursor)) => {
                cursors.push((subscription_key, cursor));
                ControlFlow::Continue(())
            }
            (subscription_key, cursor) => {
                damage = Some(StoreError::damaged(format!(
                    "the cursor of {subscription_key:?} cannot be decoded: {cursor:?}"
                )));
                ControlFlow::Break(())
            }
        },
    )?;
    match damage {
        Some(damage) => Err(damage.into()),
        None => Ok(cursors),
    }
}

pub(super) fn ended_jobs(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
) -> Result<Vec<Job>, StoreError> {
    let mut jobs = Vec::new();
    let range = keys::ended_jobs_of(subscription_key);
    store.scan(Family::Meta, &range.start, &range.end, &mut |_, value| {
        jobs.push(Job::decode(value).map_err(StoreError::damaged));
        ControlFlow::Continue(())
    })?;
    jobs.into_iter().collect()
}

/// Keys in the order of their due times.
struct DuePart {
    keys: Vec<DueKey>,
    /// The first key that was not read; [`None`] at the end.
    next: Option<DueKey>,
}

fn read_due(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    from: DueKey,
    max: usize,
    includes_lane: impl Fn(Lane) -> bool,
) -> Result<DuePart, Error> {
    let mut keys = Vec::new();
    let mut next = None;
    let mut scan_count = 0;
    let start = keys::due(subscription_key, from.due, from.lane, from.seq);
    let result = store.scan(
        Family::Due,
        &start,
        &keys::due_of(subscription_key).end,
        &mut |key, _| {
            let key = keys::parse_due(key).map(|(_, due, lane, seq)| DueKey { due, lane, seq });
            if keys.len() == max || scan_count == DUE_PART {
                next = key;
            }
            if next.is_some() {
                return ControlFlow::Break(());
            }
            scan_count += 1;
            keys.extend(key.filter(|key| includes_lane(key.lane)));
            ControlFlow::Continue(())
        },
    );
    match result {
        Ok(()) => Ok(DuePart { keys, next }),
        // The due times can be rebuilt from the pending deliveries.
        Err(StoreError::Damaged(_)) if store.damage().is_some() => {
            let mut keys: Vec<DueKey> = Vec::new();
            visit_pending(store, subscription_key, &mut |lane, seq, pending| {
                let key = DueKey {
                    due: pending.due,
                    lane,
                    seq,
                };
                if key >= from && includes_lane(lane) {
                    keys.push(key);
                }
            })?;
            keys.sort_unstable();
            let next = keys.get(max).copied();
            keys.truncate(max);
            Ok(DuePart { keys, next })
        }
        Err(error) => Err(error.into()),
    }
}

/// Visits all readable pending deliveries of a subscription. Scans the whole partition.
fn visit_pending(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    visit: &mut dyn FnMut(Lane, Seq, PendingDelivery),
) -> Result<(), StoreError> {
    let range = keys::pending_below(subscription_key.partition, Seq(u64::MAX));
    store.scan(
        Family::Pending,
        &range.start,
        &range.end,
        &mut |key, value| {
            if let (Some((_, seq, subscription, lane)), Ok(pending)) =
                (keys::parse_pending(key), PendingDelivery::decode(value))
                && subscription == subscription_key.subscription
            {
                visit(lane, seq, pending);
            }
            ControlFlow::Continue(())
        },
    )
}

/// Rebuilds an unreadable pending delivery from its due time. The number of attempts is lost.
/// [`None`] if there is no due time either.
fn rebuild_pending(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    lane: Lane,
    seq: Seq,
) -> Result<Option<PendingDelivery>, StoreError> {
    let range = keys::due_of(subscription_key);
    let mut due_time = None;
    store.scan(Family::Due, &range.start, &range.end, &mut |key, _| {
        let due = keys::parse_due(key)
            .filter(|(_, _, due_lane, due_seq)| (*due_lane, *due_seq) == (lane, seq));
        due_time = due.map(|(_, due, ..)| due);
        if due_time.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    let Some(due) = due_time else {
        return Ok(None);
    };
    Ok(Some(PendingDelivery {
        attempts: 1,
        due,
        last: Failure::GenericError.into(),
        status: None,
        tried: due,
        received: None,
    }))
}

fn read_pending(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    lane: Lane,
    seq: Seq,
) -> Result<Option<PendingDelivery>, StoreError> {
    let SubscriptionKey {
        partition,
        subscription,
    } = subscription_key;
    let pending = store.get(
        Family::Pending,
        &keys::pending(partition, seq, subscription, lane),
    );
    match pending.and_then(|pending| {
        pending
            .map(|value| PendingDelivery::decode(&value))
            .transpose()
            .map_err(StoreError::damaged)
    }) {
        Err(StoreError::Damaged(_)) if store.damage().is_some() => {
            rebuild_pending(store, subscription_key, lane, seq)
        }
        pending => pending,
    }
}

fn fetch_events(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    keys: &[(Lane, Seq)],
    bytes_max: usize,
) -> Result<Vec<FetchedPending>, Error> {
    let mut bytes = 0;
    let mut events = EventFinder::new(store, subscription_key.partition);
    let mut fetched_events = Vec::with_capacity(keys.len());
    for (lane, seq) in keys.iter().copied() {
        if bytes >= bytes_max && !fetched_events.is_empty() {
            break;
        }
        let pending = read_pending(store, subscription_key, lane, seq)?;
        let event = events.find_if_readable(seq)?;
        bytes += event.as_ref().map_or(0, Event::wire_len);
        fetched_events.push(FetchedPending {
            lane,
            seq,
            pending,
            event,
        });
    }
    Ok(fetched_events)
}
