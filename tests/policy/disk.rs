//! The records of a subscription on disk, with which the core is compared.

use std::ops::ControlFlow;

use gridhook::{
    event::{Lane, Seq, SubscriptionKey},
    journal::{Journal, LogPosition},
    policy::{
        Effect, Input,
        filter::Filter,
        record::{Cursor, DeadLetterRecord, DueKey, LaneCursor, PendingDelivery, job::Job},
    },
    simulate::SimulatedStore,
    store::{Family, Store, keys, records::StoredRecord},
};

/// Whether the event has ended or has a record: no lane is yet to read it, jobs aside.
pub(super) fn has_passed(store: &SimulatedStore, seq: Seq) -> bool {
    !store.cursor.own_lanes().any(|lane| is_to_read(lane, seq))
}

/// The same for a job.
pub(super) fn has_passed_in(store: &SimulatedStore, job: Lane, seq: Seq) -> bool {
    !store
        .cursor
        .lanes
        .iter()
        .any(|lane| lane.lane == job && is_to_read(lane, seq))
}

/// The pending delivery of the event, in any lane except those of jobs.
pub(super) fn pending_of(store: &SimulatedStore, seq: Seq) -> Option<&PendingDelivery> {
    store
        .pending
        .iter()
        .find(|((lane, of), _)| *of == seq && !lane.is_job())
        .map(|(_, pending)| pending)
}

fn is_to_read(lane: &LaneCursor, seq: Seq) -> bool {
    let reads =
        lane.read <= seq && lane.end.is_none_or(|end| seq < end) && !lane.done.contains(seq);
    reads || lane.open.contains(seq)
}

/// As a store has it.
pub(super) fn load(store: &dyn Store, subscription_key: SubscriptionKey) -> SimulatedStore {
    let cursor = store
        .get(Family::Cursor, &keys::cursor(subscription_key))
        .expect("readable")
        .expect("a cursor");
    let mut disk = SimulatedStore {
        cursor: Cursor::decode(&cursor).expect("whole"),
        ..SimulatedStore::default()
    };
    scan(store, Family::Pending, |key, value| {
        let (_, seq, _, lane) = keys::parse_pending(key).expect("the key of a pending delivery");
        disk.pending
            .insert((lane, seq), PendingDelivery::decode(value).expect("whole"));
    });
    scan(store, Family::Due, |key, _| {
        let (_, due, lane, seq) = keys::parse_due(key).expect("a key of due");
        assert!(disk.due.insert(DueKey { due, lane, seq }));
    });
    scan(store, Family::Dead, |key, value| {
        let (_, _, seq, lane) = keys::parse_dead(key).expect("a key of dead");
        disk.dead
            .insert((lane, seq), DeadLetterRecord::decode(value).expect("whole"));
    });
    disk
}

/// Checks that the counts by reason add up to the totals.
pub(super) fn check_tally(
    Cursor {
        counters,
        replayed,
        counts,
        ..
    }: &Cursor,
) {
    let failed: u64 = counts.failed.values().sum();
    assert_eq!(
        failed,
        counters.requests_failed + replayed.requests_failed,
        "{counts:?}"
    );
    let dead_lettered: u64 = counts.dead_lettered.values().sum();
    assert_eq!(
        dead_lettered,
        counters.dead_lettered + replayed.dead_lettered,
        "{counts:?}"
    );
    let dropped: u64 = counts.dropped.values().sum();
    assert_eq!(dropped, counters.dropped + replayed.dropped, "{counts:?}");
}

/// The jobs that have ended.
pub(super) fn ended_jobs(store: &dyn Store) -> Vec<Job> {
    let mut jobs = Vec::new();
    scan(store, Family::Meta, |key, value| {
        if key.windows(5).any(|part| part == b"ended") {
            jobs.push(Job::decode(value).expect("whole"));
        }
    });
    jobs
}

fn scan(store: &dyn Store, family: Family, mut visit: impl FnMut(&[u8], &[u8])) {
    let range = keys::family_range(family);
    let visit = &mut |key: &[u8], value: &[u8]| {
        visit(key, value);
        ControlFlow::Continue(())
    };
    store
        .scan(family, &range.start, &range.end, visit)
        .expect("readable");
}

/// How many records a family has.
pub(super) fn count(store: &dyn Store, family: Family) -> usize {
    let mut count = 0;
    scan(store, family, |_, _| count += 1);
    count
}

/// Does the reads that the core asks for.
pub(super) struct EffectReader<'a> {
    pub(super) journal: &'a Journal,
    pub(super) runtime: &'a tokio::runtime::Runtime,
    pub(super) subscription_key: SubscriptionKey,
    pub(super) filter: &'a Filter,
}

impl EffectReader<'_> {
    /// The input with the result of a read, of which a slice has about `few` bytes.
    pub(super) fn read(&self, effect: Effect, few: usize) -> Input {
        let reads = self.journal.reader_pool();
        let key = self.subscription_key;
        let log_end = || self.journal.log_end(key.partition).expect("founded").next;
        match effect {
            Effect::ReadLog { lane, from, end } => {
                let read = reads.read_log(key.partition, from, end.unwrap_or_else(log_end), few);
                let slice = self.runtime.block_on(read).expect("readable");
                let events = slice
                    .chunks
                    .iter()
                    .flat_map(|chunk| chunk.decode_events().expect("sound"));
                let events: Vec<_> = events
                    .filter(|event| from <= event.seq && event.seq < slice.upto)
                    .collect();
                let total = events.len() as u64;
                let events = events
                    .into_iter()
                    .filter(|event| self.filter.matches(event))
                    .collect();
                Input::Read {
                    lane,
                    from,
                    upto: slice.upto,
                    total,
                    events,
                }
            }
            Effect::FindPosition { before } => {
                let found =
                    self.runtime
                        .block_on(reads.find_position(key.partition, log_end(), before));
                let LogPosition { at, appended } = found.expect("readable");
                Input::Position {
                    before,
                    at,
                    appended,
                }
            }
            Effect::ReadDue { of, from } => {
                let found = self
                    .runtime
                    .block_on(reads.due_of(key, of, from, few.div_ceil(50)));
                let (keys, all) = found.expect("readable");
                Input::DueRead { of, keys, all }
            }
            Effect::Fetch(keys) => Input::Fetched(
                self.runtime
                    .block_on(reads.fetch_pending(key, keys, few))
                    .expect("readable"),
            ),
            Effect::ReadPending(keys) => Input::PendingRead(
                self.runtime
                    .block_on(reads.read_pending(key, keys))
                    .expect("readable"),
            ),
            Effect::Send { .. }
            | Effect::Connect
            | Effect::HandOver { .. }
            | Effect::ReportResults { .. } => {
                unreachable!("is no read")
            }
        }
    }
}
