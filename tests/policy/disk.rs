//! What a store has on disk for a subscription, as the records that the core is checked against.

use std::ops::ControlFlow;

use gridhook::{
    event::{Lane, Seq, SubscriptionKey},
    policy::record::{Cursor, DeadLetterRecord, DueKey, LaneCursor, PendingDelivery, job::Job},
    simulate::SimulatedStore,
    store::{Family, Store, keys, records::StoredRecord},
};

/// Whether the event has ended or has a record: no lane is yet to read it, jobs aside.
pub(super) fn has_passed(store: &SimulatedStore, seq: Seq) -> bool {
    !store.cursor.own_lanes().any(|lane| is_to_read(lane, seq))
}

/// The same for a job.
pub(super) fn has_passed_in(store: &SimulatedStore, job: Lane, seq: Seq) -> bool {
    !store.cursor.lanes.iter().any(|lane| lane.lane == job && is_to_read(lane, seq))
}

/// The pending delivery of the event, in any lane except those of jobs.
pub(super) fn pending_of(store: &SimulatedStore, seq: Seq) -> Option<&PendingDelivery> {
    store.pending.iter().find(|((lane, of), _)| *of == seq && !lane.is_job()).map(|(_, pending)| pending)
}

fn is_to_read(lane: &LaneCursor, seq: Seq) -> bool {
    let reads = lane.read <= seq && lane.end.is_none_or(|end| seq < end) && !lane.done.contains(&seq);
    reads || lane.open.contains(&seq)
}

/// As a store has it.
pub(super) fn load(store: &dyn Store, subscription_key: SubscriptionKey) -> SimulatedStore {
    let cursor = store.get(Family::Cursor, &keys::cursor(subscription_key)).expect("readable").expect("a cursor");
    let mut disk = SimulatedStore { cursor: Cursor::decode(&cursor).expect("whole"), ..SimulatedStore::default() };
    scan(store, Family::Pending, |key, value| {
        let (_, seq, _, lane) = keys::parse_pending(key).expect("the key of a pending delivery");
        disk.pending.insert((lane, seq), PendingDelivery::decode(value).expect("whole"));
    });
    scan(store, Family::Due, |key, _| {
        let (_, due, lane, seq) = keys::parse_due(key).expect("a key of due");
        assert!(disk.due.insert(DueKey { due, lane, seq }));
    });
    scan(store, Family::Dead, |key, value| {
        let (_, _, seq, lane) = keys::parse_dead(key).expect("a key of dead");
        disk.dead.insert((lane, seq), DeadLetterRecord::decode(value).expect("whole"));
    });
    disk
}

/// What is counted by why is what is counted.
pub(super) fn check_tally(Cursor { counters, replayed, counts, .. }: &Cursor) {
    let failed: u64 = counts.failed.values().sum();
    assert_eq!(failed, counters.requests_failed + replayed.requests_failed, "{counts:?}");
    let dead_lettered: u64 = counts.dead_lettered.values().sum();
    assert_eq!(dead_lettered, counters.dead_lettered + replayed.dead_lettered, "{counts:?}");
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
    let range = keys::all(family);
    let visit = &mut |key: &[u8], value: &[u8]| {
        visit(key, value);
        ControlFlow::Continue(())
    };
    store.scan(family, &range.start, &range.end, visit).expect("readable");
}

/// How many records a family has.
pub(super) fn count(store: &dyn Store, family: Family) -> usize {
    let mut count = 0;
    scan(store, family, |_, _| count += 1);
    count
}
