//! Reading, on two threads of its own, in bounded slices: what may touch the disk never runs on an arbiter.

mod event_records;
mod trace;
pub(crate) mod walk;

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
        DeadKey, Error, LogEnd, PendingResult,
        figures::StoreFigures,
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
        keys::{self, MetaKind},
        records::StoredRecord,
    },
};

/// Two: one slow read does not hold up every other, and more would only wait for the same disk.
const THREADS: usize = 2;

type ReadTask = Box<dyn FnOnce(&dyn Store) + Send>;

/// A slice of a partition's log.
#[derive(Clone, Debug)]
pub struct LogSlice {
    /// The chunks, in order. The first may begin before the slice.
    pub chunks: Vec<Chunk>,
    /// Everything below was looked at.
    pub upto: Seq,
    /// Whether all of it is lost to damage of the store: then there are no chunks, and it is noted
    /// ([`Damage`](crate::store::damage::Damage)).
    pub is_missing: bool,
}

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
    pub(crate) fn start(store: Arc<TolerantStore>) -> Self {
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

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// How many reads panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// What the store says of itself.
    pub(crate) fn figures(&self) -> Option<StoreFigures> {
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

pub(crate) fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(what.to_string())
}

pub(crate) fn scan_cursors(store: &dyn Store) -> Result<Vec<(SubscriptionKey, Cursor)>, Error> {
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
            bad = Some(damaged(format!("the cursor of {subscription_key:?}: {cursor:?}")));
            ControlFlow::Break(())
        }
    })?;
    match bad {
        Some(bad) => Err(bad.into()),
        None => Ok(found),
    }
}

/// A slice of the log. Where the store notes what is damaged, the slice ends before what cannot be read, or is that.
pub(crate) fn read_log(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
    bytes_max: usize,
) -> Result<LogSlice, StoreError> {
    let Some(damage) = store.damage() else {
        let (slice, read) = scan_log(store, partition, from, end, bytes_max);
        return read.map(|()| slice);
    };
    if let Some(upto) = damage.gap_end(partition, from) {
        return Ok(LogSlice { chunks: Vec::new(), upto: upto.min(end), is_missing: true });
    }
    let (slice, read) = scan_log(store, partition, from, end, bytes_max);
    match read {
        Ok(()) => Ok(slice),
        Err(StoreError::Damaged(_)) => match slice.chunks.last().map(Chunk::end) {
            Some(upto) => Ok(LogSlice { upto: upto.min(end).max(from), ..slice }),
            None => walk::walk(store, partition, from, end, bytes_max),
        },
        Err(error @ (StoreError::Full | StoreError::Failed(_))) => Err(error),
    }
}

/// What an iterator reads of the log, and whether it read all of it.
fn scan_log(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
    bytes_max: usize,
) -> (LogSlice, Result<(), StoreError>) {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut cut = false;
    let read = scan_chunks(store, partition, from, end, bytes_max, &mut chunks, &mut cut);
    let upto = if cut { chunks.last().map_or(end, Chunk::end) } else { end };
    (LogSlice { chunks, upto, is_missing: false }, read)
}

fn scan_chunks(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
    bytes_max: usize,
    chunks: &mut Vec<Chunk>,
    cut: &mut bool,
) -> Result<(), StoreError> {
    let (mut bytes, mut bad) = (0, None);
    let before = keys::log_of(partition).start;
    if let Some((key, value)) = store.last(Family::Log, &before, &keys::log(partition, from))? {
        let chunk = chunk_of(&key, value)?;
        if chunk.end() > from {
            bytes += chunk.bytes_len();
            chunks.push(chunk);
        }
    }
    store.scan(Family::Log, &keys::log(partition, from), &keys::log(partition, end), &mut |key, value| {
        if bytes >= bytes_max && !chunks.is_empty() {
            *cut = true;
            return ControlFlow::Break(());
        }
        match chunk_of(key, Bytes::copy_from_slice(value)) {
            Ok(chunk) => {
                bytes += chunk.bytes_len();
                chunks.push(chunk);
                ControlFlow::Continue(())
            }
            Err(error) => {
                bad = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    bad.map_or(Ok(()), Err)
}

pub(crate) fn chunk_of(key: &[u8], value: Bytes) -> Result<Chunk, StoreError> {
    let (_, first) = keys::parse_log(key).ok_or_else(|| damaged("a key of the log"))?;
    Chunk::decode(first, value).map_err(damaged)
}

pub(crate) fn ended_jobs(store: &dyn Store, subscription_key: SubscriptionKey) -> Result<Vec<Job>, StoreError> {
    let mut jobs = Vec::new();
    let range = keys::ended_jobs_of(subscription_key);
    store.scan(Family::Meta, &range.start, &range.end, &mut |_, value| {
        jobs.push(Job::decode(value).map_err(damaged));
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

/// Finds events by their place: in the log, or else among what is held. Events that were put aside together often lie in
/// one chunk, so the last one that was read is kept.
pub(crate) struct EventFinder<'a> {
    store: &'a dyn Store,
    partition: PartitionId,
    last: Vec<Event>,
}

impl<'a> EventFinder<'a> {
    pub(crate) fn new(store: &'a dyn Store, partition: PartitionId) -> Self {
        Self { store, partition, last: Vec::new() }
    }

    /// The event at `seq`, in bytes of its own: one small event must not keep a chunk in memory.
    pub(crate) fn find(&mut self, seq: Seq) -> Result<Option<Event>, StoreError> {
        let known = |events: &[Event]| Some((events.first()?.seq, events.last()?.seq));
        if known(&self.last).is_none_or(|(first, last)| seq < first || last < seq) {
            self.last = self.read(seq)?;
        }
        let place = self.last.binary_search_by_key(&seq, |event| event.seq);
        Ok(place.ok().map(|place| self.last[place].detached()))
    }

    fn read(&self, seq: Seq) -> Result<Vec<Event>, StoreError> {
        let range = keys::log_of(self.partition).start..keys::log(self.partition, seq.plus(1));
        let found = self.store.last(Family::Log, &range.start, &range.end);
        let found = match found.and_then(|found| found.map(|(key, value)| chunk_of(&key, value)).transpose()) {
            // An iterator stops at damage that is not its business.
            Err(StoreError::Damaged(what)) => {
                let is_lost = self.store.damage().is_some_and(|damage| damage.gap_end(self.partition, seq).is_some());
                let chunk = if is_lost { None } else { walk::around(self.store, self.partition, seq)? };
                if chunk.is_none() && !self.is_held(seq) {
                    return Err(StoreError::Damaged(what));
                }
                chunk
            }
            found => found?,
        };
        let chunk = match found {
            Some(chunk) if chunk.end() > seq => Some(chunk),
            Some(_) | None => match self.store.get(Family::Held, &keys::held(self.partition, seq))? {
                Some(held) => Some(Chunk::decode(seq, held).map_err(damaged)?),
                None => None,
            },
        };
        chunk.map_or(Ok(Vec::new()), |chunk| chunk.events().map_err(damaged))
    }

    fn is_held(&self, seq: Seq) -> bool {
        matches!(self.store.get(Family::Held, &keys::held(self.partition, seq)), Ok(Some(_)))
    }

    /// The same as [`EventFinder::find`]; what cannot be read is noted, where the store does that, and not there.
    fn find_if_readable(&mut self, seq: Seq) -> Result<Option<Event>, StoreError> {
        match (self.find(seq), self.store.damage()) {
            (Err(StoreError::Damaged(_)), Some(damage)) => {
                if !seq.is_apart() {
                    damage.lose(self.partition, seq, seq.plus(1));
                }
                Ok(None)
            }
            (found, _) => found,
        }
    }
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
    match owed.and_then(|owed| owed.map(|value| PendingDelivery::decode(&value)).transpose().map_err(damaged)) {
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
            bad = Some(damaged(format!("a dead letter of {subscription_key:?}")));
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
            first = Some(keys::parse_dead(key).ok_or_else(|| damaged("a key of a dead letter")));
            ControlFlow::Break(())
        })?;
        let Some(first) = first else { return Ok(found) };
        let (subscription_key, due, _, _) = first?;
        found.push((subscription_key, due));
        from = keys::dead_of(subscription_key).end;
    }
}
