//! Reading, on two threads of its own, in bounded slices: what may touch the disk never runs on an arbiter.

mod event_records;
mod trace;

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use bytes::Bytes;

pub use self::event_records::EventRecords;
use crate::{
    event::{Event, Lane, PartitionId, Seq, SubscriptionKey, Timestamp},
    journal::{
        DeadKey, Error, PendingResult,
        position::{self, LogPosition},
    },
    policy::{
        outcome::Outcome,
        record::{Cursor, DeadLetterRecord, DueKey, FetchedPending, PendingDelivery, Traffic, job::Job},
    },
    store::{
        Family, Store, StoreError,
        chunk::Chunk,
        damage::TolerantStore,
        figures::StoreFigures,
        keys::{self, MetaKind},
        log::{EventFinder, LogEnd, LogSlice, read_log},
        records::StoredRecord,
    },
};

/// Two: one slow read does not hold up every other, and more would only wait for the same disk.
const THREADS: usize = 2;

type ReadTask = Box<dyn FnOnce(&dyn Store) + Send>;

/// A dead letter that waits to be written.
#[derive(Clone, Debug)]
pub struct WaitingDeadLetter {
    /// Where it waits.
    pub key: DeadKey,
    /// Why, when, after how many attempts.
    pub dead: DeadLetterRecord,
    /// The event; [`None`] where the store does not have it.
    pub event: Option<Event>,
}

/// A handle of the reading threads.
#[derive(Clone)]
pub struct ReaderPool {
    jobs: mpsc::Sender<ReadTask>,
    store: Arc<dyn Store>,
    panics: Arc<AtomicU64>,
}

impl ReaderPool {
    /// Of a store of which nothing is passed over that is not noted.
    pub(super) fn start(store: Arc<TolerantStore>) -> Self {
        let store: Arc<dyn Store> = store;
        let (jobs, queue) = mpsc::channel::<ReadTask>();
        let queue = Arc::new(Mutex::new(queue));
        for index in 0..THREADS {
            let (queue, store) = (Arc::clone(&queue), Arc::clone(&store));
            let work = move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    match job {
                        Ok(job) => job(&*store),
                        Err(mpsc::RecvError) => return,
                    }
                }
            };
            std::thread::Builder::new()
                .name(format!("journal-read-{index}"))
                .spawn(work)
                .expect("a process that cannot start a thread cannot start");
        }
        Self { jobs, store, panics: Arc::default() }
    }

    /// The log of `partition` from `from` up to `end`, or the first part of it: about `bytes_max` bytes, and at least one
    /// chunk.
    pub fn log(&self, partition: PartitionId, from: Seq, end: Seq, bytes_max: usize) -> PendingResult<LogSlice> {
        self.run(move |store| Ok(read_log(store, partition, from, end, bytes_max)?))
    }

    /// The same, where `admit` has room for the bytes that were read. Where it has none the answer is how many they are.
    pub fn log_within<R: Send + 'static>(
        &self,
        partition: PartitionId,
        (from, end): (Seq, Seq),
        bytes_max: usize,
        admit: impl FnOnce(usize) -> Option<R> + Send + 'static,
    ) -> PendingResult<Result<(LogSlice, R), usize>> {
        self.run(move |store| {
            let slice = read_log(store, partition, from, end, bytes_max)?;
            let bytes = slice.chunks.iter().map(Chunk::bytes_len).sum();
            Ok(admit(bytes).map(|room| (slice, room)).ok_or(bytes))
        })
    }

    /// The first event of `partition` before `end` that was appended at `before` or later.
    pub fn position(&self, partition: PartitionId, end: Seq, before: Timestamp) -> PendingResult<LogPosition> {
        self.run(move |store| Ok(position::position(store, partition, end, |chunk| chunk.appended < before)?))
    }

    /// The first event of `partition` before `end` with at most `bytes` bytes of the log from it on, or the first of its
    /// chunk: as many as `running` stood before `end`.
    pub fn last_bytes(&self, partition: PartitionId, end: LogEnd, bytes: u64) -> PendingResult<LogPosition> {
        let passed = end.running.bytes.saturating_sub(bytes);
        self.run(move |store| Ok(position::position(store, partition, end.next, |chunk| chunk.before.bytes < passed)?))
    }

    /// Up to `max` keys from `from` on in the order in which a subscription's owed events fall due, and whether there are
    /// no more.
    pub fn due(
        &self,
        subscription_key: SubscriptionKey,
        from: DueKey,
        max: usize,
    ) -> PendingResult<(Vec<DueKey>, bool)> {
        self.run(move |store| read_due(store, subscription_key, from, max, |_| true))
    }

    /// The same, of one part of them.
    pub fn due_of(
        &self,
        subscription_key: SubscriptionKey,
        of: Traffic,
        from: DueKey,
        max: usize,
    ) -> PendingResult<(Vec<DueKey>, bool)> {
        self.run(move |store| read_due(store, subscription_key, from, max, |lane| Traffic::of(lane) == of))
    }

    /// The jobs of a subscription that have ended and are kept yet.
    pub fn ended_jobs(&self, subscription_key: SubscriptionKey) -> PendingResult<Vec<Job>> {
        self.run(move |store| Ok(ended_jobs(store, subscription_key)?))
    }

    /// Events and what a subscription owes of them, in the order asked for; what exceeds about `bytes_max` bytes is left
    /// out.
    pub fn fetch(
        &self,
        subscription_key: SubscriptionKey,
        wanted: Vec<(Lane, Seq)>,
        bytes_max: usize,
    ) -> PendingResult<Vec<FetchedPending>> {
        self.run(move |store| fetch(store, subscription_key, &wanted, bytes_max))
    }

    /// The same, where `admit` has room for the bytes that were read. Where it has none the answer is how many they are.
    pub fn fetch_within<R: Send + 'static>(
        &self,
        subscription_key: SubscriptionKey,
        wanted: Vec<(Lane, Seq)>,
        bytes_max: usize,
        admit: impl FnOnce(usize) -> Option<R> + Send + 'static,
    ) -> PendingResult<Result<(Vec<FetchedPending>, R), usize>> {
        self.run(move |store| {
            let fetched = fetch(store, subscription_key, &wanted, bytes_max)?;
            let bytes = fetched.iter().filter_map(|fetched| fetched.event.as_ref()).map(Event::wire_len).sum();
            Ok(admit(bytes).map(|room| (fetched, room)).ok_or(bytes))
        })
    }

    /// What a subscription owes of these, without their events, in the order asked for; [`None`] for what it does not owe.
    pub fn pending(
        &self,
        subscription_key: SubscriptionKey,
        wanted: Vec<(Lane, Seq)>,
    ) -> PendingResult<Vec<(Lane, Seq, Option<PendingDelivery>)>> {
        self.run(move |store| {
            let owed = |(lane, seq)| Ok((lane, seq, read_pending(store, subscription_key, lane, seq)?));
            wanted.into_iter().map(owed).collect()
        })
    }

    /// A subscription's dead letters whose file is due by `by`, in order, or the first part of them.
    pub fn dead(
        &self,
        subscription_key: SubscriptionKey,
        by: Timestamp,
        max: usize,
        bytes_max: usize,
    ) -> PendingResult<Vec<WaitingDeadLetter>> {
        self.run(move |store| read_dead(store, subscription_key, None, by, max, bytes_max))
    }

    /// A subscription's dead letters behind `after`, in order, or the first part of them: only where there are no more is
    /// the answer empty.
    pub fn dead_after(
        &self,
        subscription_key: SubscriptionKey,
        after: Option<DeadKey>,
        max: usize,
        bytes_max: usize,
    ) -> PendingResult<Vec<WaitingDeadLetter>> {
        self.run(move |store| read_dead(store, subscription_key, after, Timestamp::NEVER, max, bytes_max))
    }

    /// The last place of a partition at which an event is held, if there is any.
    pub fn last_held(&self, partition: PartitionId) -> PendingResult<Option<Seq>> {
        self.run(move |store| {
            let range = keys::held_of(partition);
            let last = store.last(Family::Held, &range.start, &range.end)?;
            Ok(last.and_then(|(key, _)| keys::parse_held(&key)).map(|(_, seq)| seq))
        })
    }

    /// Who has dead letters waiting, and when the first of them is due. Blocks: for the start, before anything runs that
    /// must not wait.
    pub fn all_dead(&self) -> Result<Vec<(SubscriptionKey, Timestamp)>, Error> {
        scan_dead(&*self.store)
    }

    /// One record of the control plane.
    pub fn meta(&self, kind: MetaKind, name: String) -> PendingResult<Option<Bytes>> {
        self.run(move |store| Ok(store.get(Family::Meta, &keys::meta(kind, name.as_bytes()))?))
    }

    /// All records of a kind. Blocks: for the start, before anything runs that must not wait.
    pub fn all_meta(&self, kind: MetaKind) -> Result<Vec<(String, Bytes)>, Error> {
        let mut found = Vec::new();
        let range = keys::meta_of(kind);
        self.store.scan(Family::Meta, &range.start, &range.end, &mut |key, value| {
            if let Some((_, name)) = keys::parse_meta(key) {
                found.push((String::from_utf8_lossy(name).into_owned(), Bytes::copy_from_slice(value)));
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// How many reads panicked.
    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// What the store says of itself.
    pub(super) fn figures(&self) -> Option<StoreFigures> {
        self.store.figures()
    }

    /// All cursors. Blocks: for the start, before anything runs that must not wait.
    pub fn all_cursors(&self) -> Result<Vec<(SubscriptionKey, Cursor)>, Error> {
        scan_cursors(&*self.store)
    }

    fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn Store) -> Result<T, Error> + Send + 'static,
    ) -> PendingResult<T> {
        let (reply, promise) = PendingResult::new();
        let panics = Arc::clone(&self.panics);
        let job: ReadTask = Box::new(move |store| {
            // A panic is a defect that the hook has told of: it must not take the thread along, which others need.
            let answer = catch_unwind(AssertUnwindSafe(|| job(store))).unwrap_or_else(|_| {
                panics.fetch_add(1, Ordering::Relaxed);
                Err(Error::Damaged("a read panicked".to_owned()))
            });
            // Nobody waits any more where the asker was killed meanwhile.
            reply.send(answer).ok();
        });
        // Where the threads have ended, the reply goes with the job, and the asker is told.
        self.jobs.send(job).ok();
        promise
    }
}

pub(super) fn scan_cursors(store: &dyn Store) -> Result<Vec<(SubscriptionKey, Cursor)>, Error> {
    let mut found = Vec::new();
    let mut bad = None;
    let range = keys::cursors();
    store.scan(Family::Cursor, &range.start, &range.end, &mut |key, value| match (
        keys::parse_cursor(key),
        Cursor::decode(value),
    ) {
        (Some(subscription_key), Ok(cursor)) => {
            found.push((subscription_key, cursor));
            ControlFlow::Continue(())
        }
        (subscription_key, cursor) => {
            bad = Some(StoreError::damaged(format!("the cursor of {subscription_key:?}: {cursor:?}")));
            ControlFlow::Break(())
        }
    })?;
    match bad {
        Some(bad) => Err(bad.into()),
        None => Ok(found),
    }
}

pub(super) fn ended_jobs(store: &dyn Store, subscription_key: SubscriptionKey) -> Result<Vec<Job>, StoreError> {
    let mut jobs = Vec::new();
    let range = keys::ended_jobs_of(subscription_key);
    store.scan(Family::Meta, &range.start, &range.end, &mut |_, value| {
        jobs.push(Job::decode(value).map_err(StoreError::damaged));
        ControlFlow::Continue(())
    })?;
    jobs.into_iter().collect()
}

fn read_due(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    from: DueKey,
    max: usize,
    is_such: impl Fn(Lane) -> bool,
) -> Result<(Vec<DueKey>, bool), Error> {
    let (mut found, mut all) = (Vec::new(), true);
    let start = keys::due(subscription_key, from.due, from.lane, from.seq);
    let scanned = store.scan(Family::Due, &start, &keys::due_of(subscription_key).end, &mut |key, _| {
        if found.len() == max {
            all = false;
            return ControlFlow::Break(());
        }
        let key = keys::parse_due(key).map(|(_, due, lane, seq)| DueKey { due, lane, seq });
        found.extend(key.filter(|key| is_such(key.lane)));
        ControlFlow::Continue(())
    });
    match scanned {
        Ok(()) => Ok((found, all)),
        // The order can be made from what is owed.
        Err(StoreError::Damaged(_)) if store.damage().is_some() => {
            let mut found: Vec<DueKey> = Vec::new();
            each_owed(store, subscription_key, &mut |lane, seq, owed| {
                let key = DueKey { due: owed.due, lane, seq };
                if key >= from && is_such(lane) {
                    found.push(key);
                }
            })?;
            found.sort_unstable();
            let all = found.len() <= max;
            found.truncate(max);
            Ok((found, all))
        }
        Err(error) => Err(error.into()),
    }
}

/// All that a subscription owes, as far as it can be read: the whole partition is looked through.
fn each_owed(
    store: &dyn Store,
    of: SubscriptionKey,
    visit: &mut dyn FnMut(Lane, Seq, PendingDelivery),
) -> Result<(), StoreError> {
    let range = keys::pending_below(of.partition, Seq(u64::MAX));
    store.scan(Family::Pending, &range.start, &range.end, &mut |key, value| {
        if let (Some((_, seq, subscription, lane)), Ok(owed)) =
            (keys::parse_pending(key), PendingDelivery::decode(value))
            && subscription == of.subscription
        {
            visit(lane, seq, owed);
        }
        ControlFlow::Continue(())
    })
}

/// Records that cannot be read, of events that are owed all the same: they are due when the order of falling due says so,
/// and how often they were tried is forgotten. [`None`] where that order does not have them either.
fn remade(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    lane: Lane,
    seq: Seq,
) -> Result<Option<PendingDelivery>, StoreError> {
    let (range, mut found) = (keys::due_of(subscription_key), None);
    store.scan(Family::Due, &range.start, &range.end, &mut |key, _| {
        let due = keys::parse_due(key).filter(|(_, _, of, at)| (*of, *at) == (lane, seq));
        found = due.map(|(_, due, ..)| due);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let remake = |due| PendingDelivery {
        attempts: 1,
        due,
        last: Outcome::GenericError,
        status: None,
        tried: due,
        received: None,
    };
    Ok(found.map(remake))
}

fn read_pending(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    lane: Lane,
    seq: Seq,
) -> Result<Option<PendingDelivery>, StoreError> {
    let SubscriptionKey { partition, subscription } = subscription_key;
    let owed = store.get(Family::Pending, &keys::pending(partition, seq, subscription, lane));
    match owed
        .and_then(|owed| owed.map(|value| PendingDelivery::decode(&value)).transpose().map_err(StoreError::damaged))
    {
        Err(StoreError::Damaged(_)) if store.damage().is_some() => remade(store, subscription_key, lane, seq),
        owed => owed,
    }
}

fn fetch(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    wanted: &[(Lane, Seq)],
    bytes_max: usize,
) -> Result<Vec<FetchedPending>, Error> {
    let mut bytes = 0;
    let mut events = EventFinder::new(store, subscription_key.partition);
    let mut found = Vec::with_capacity(wanted.len());
    for (lane, seq) in wanted.iter().copied() {
        if bytes >= bytes_max && !found.is_empty() {
            break;
        }
        let owed = read_pending(store, subscription_key, lane, seq)?;
        let event = events.find_if_readable(seq)?;
        bytes += event.as_ref().map_or(0, Event::wire_len);
        found.push(FetchedPending { lane, seq, pending: owed, event });
    }
    Ok(found)
}

fn read_dead(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    after: Option<DeadKey>,
    by: Timestamp,
    max: usize,
    bytes_max: usize,
) -> Result<Vec<WaitingDeadLetter>, Error> {
    let mut records = Vec::new();
    let mut bad = None;
    let mut range = keys::dead_of(subscription_key);
    if let Some(DeadKey { due, seq, lane }) = after {
        range.start = keys::dead(subscription_key, due, seq, lane);
        // The least key behind it.
        range.start.push(0);
    }
    store.scan(Family::Dead, &range.start, &range.end, &mut |key, value| {
        let (Some((_, due, seq, lane)), Ok(dead)) = (keys::parse_dead(key), DeadLetterRecord::decode(value)) else {
            bad = Some(StoreError::damaged(format!("a dead letter of {subscription_key:?}")));
            return ControlFlow::Break(());
        };
        if due > by || records.len() == max {
            return ControlFlow::Break(());
        }
        records.push((DeadKey { due, seq, lane }, dead));
        ControlFlow::Continue(())
    })?;
    if let Some(bad) = bad {
        return Err(bad.into());
    }
    let mut bytes = 0;
    let mut events = EventFinder::new(store, subscription_key.partition);
    let mut waiting = Vec::with_capacity(records.len());
    for (key, dead) in records {
        if bytes >= bytes_max && !waiting.is_empty() {
            break;
        }
        let event = events.find_if_readable(key.seq)?;
        bytes += event.as_ref().map_or(0, Event::wire_len);
        waiting.push(WaitingDeadLetter { key, dead, event });
    }
    Ok(waiting)
}

/// One seek for each subscription that has any.
fn scan_dead(store: &dyn Store) -> Result<Vec<(SubscriptionKey, Timestamp)>, Error> {
    let mut found = Vec::new();
    let std::ops::Range { start: mut from, end } = keys::all(Family::Dead);
    loop {
        let mut first = None;
        store.scan(Family::Dead, &from, &end, &mut |key, _| {
            first = Some(keys::parse_dead(key).ok_or_else(|| StoreError::damaged("a key of a dead letter")));
            ControlFlow::Break(())
        })?;
        let Some(first) = first else { return Ok(found) };
        let (subscription_key, due, _, _) = first?;
        found.push((subscription_key, due));
        from = keys::dead_of(subscription_key).end;
    }
}
