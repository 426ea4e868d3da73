//! Outcomes that share pages are read as if each had its records at once, also after a kill at any
//! write.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use gridhook::{
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    policy::{
        outcome::Outcome,
        record::{Counters, Cursor, LaneCursor, LedgerEntry, LedgerEvent, LedgerLine, SeqRun},
    },
    repair::fsck,
    storage::record_decoders,
    store::{
        Batch, Family, Store,
        keys::{self, MetaKind},
        ledger,
        records::{EncodedLines, FloorRecord, StoredRecord, ledger_lines},
        rocks::{ReadOnlyStore, RocksOptions, RocksStore},
    },
};

use super::{copy_folder, keys_in, put, scratch};
use crate::support::memory_store::MemoryStore;

/// More than the pages after which an outcome becomes records.
const MANY: u64 = 1200;

fn open(folder: &Path) -> RocksStore {
    RocksStore::open(folder, &RocksOptions::default()).expect("a store that is whole")
}

fn key(number: u32) -> SubscriptionKey {
    SubscriptionKey {
        partition: PartitionId(1 + number % 3),
        subscription: SubscriptionId(number),
    }
}

fn at(write: u64, number: u64) -> u64 {
    1_000_000 + write * 20_000 + number
}

/// A line that no other write has. Some are about two blocks.
fn line(write: u64, number: u64, rng: &mut Rng) -> LedgerLine {
    let count = if rng.u8(..) == 0 { 5000 } else { rng.u32(1..4) };
    let what = LedgerEvent::Attempted {
        outcome: Outcome::Delivered,
        status: Some(200),
        latency: Duration::from_micros(rng.u64(..2000)),
        next: None,
        excerpt: None,
    };
    let runs = vec![SeqRun {
        first: Seq(1 + write * 3 + number),
        count,
    }];
    let entry = LedgerEntry {
        at: Timestamp(at(write, number)),
        runs,
        what,
    };
    LedgerLine {
        lane: Lane::LIVE,
        attempt: 1,
        entry,
    }
}

/// The outcomes of some subscriptions, and sometimes changes of their records.
fn batch(write: u64, subscriptions: u32, rng: &mut Rng) -> Batch {
    let mut batch = Batch::default();
    batch.put(
        Family::Meta,
        keys::ended_job(key(1), Lane(9)),
        write.to_be_bytes().to_vec(),
    );
    for number in 0..subscriptions {
        // Some are busy, and some so rarely that the number of pages ends their waiting.
        if rng.u16(..400) >= if number < 8 { 300 } else { 1 } {
            continue;
        }
        let cursor = (rng.u8(..8) > 0).then(|| Bytes::from(format!("cursor {write} of {number}")));
        // Mostly few, sometimes so many that they have records of their own.
        let lines = if rng.u8(..40) == 0 { 70 } else { rng.u64(..4) };
        let lines: Vec<LedgerLine> = (0..lines).map(|number| line(write, number, rng)).collect();
        batch.put_outcomes(key(number), cursor, lines.into());
    }
    if rng.u8(..20) == 0 {
        let number = rng.u32(..subscriptions);
        match rng.u8(..3) {
            0 => batch.delete(Family::Cursor, keys::cursor(key(number))),
            1 => batch.put(Family::Cursor, keys::cursor(key(number)), b"set".to_vec()),
            _ => ledger::put_lines(&mut batch, key(number), &vec![line(write, 100, rng)].into()),
        }
    }
    batch
}

/// The cursors, and the lines by event and by time, whichever records they share.
#[derive(Debug, PartialEq)]
struct Seen {
    cursors: BTreeMap<Vec<u8>, Bytes>,
    lines: [BTreeSet<String>; 2],
}

fn seen(store: &dyn Store) -> Seen {
    let mut cursors = BTreeMap::new();
    let range = keys::cursors_range();
    let visit = &mut |key: &[u8], value: &[u8]| {
        assert!(
            cursors
                .last_key_value()
                .is_none_or(|(last, _): (&Vec<u8>, _)| &last[..] < key),
            "out of order"
        );
        cursors.insert(key.to_vec(), Bytes::copy_from_slice(value));
        ControlFlow::Continue(())
    };
    store
        .scan(Family::Cursor, &range.start, &range.end, visit)
        .expect("readable");
    for (key, cursor) in &cursors {
        assert_eq!(
            store.get(Family::Cursor, key).expect("readable").as_ref(),
            Some(cursor)
        );
    }
    let last = store
        .last(Family::Cursor, &range.start, &range.end)
        .expect("readable");
    assert_eq!(
        last.as_ref().map(|(key, cursor)| (key, cursor)),
        cursors.last_key_value()
    );
    let mut lines = [BTreeSet::new(), BTreeSet::new()];
    let range = keys::ledgers_range();
    let mut previous = Vec::new();
    let visit = &mut |stored: &[u8], value: &[u8]| {
        assert!(previous[..] < *stored, "out of order");
        previous = stored.to_vec();
        let by_time = keys::parse_ledger_by_time(stored);
        let key = by_time
            .or_else(|| keys::parse_ledger(stored))
            .expect("a key of a line");
        for line in ledger_lines(key, value).expect("readable") {
            let is_new = lines[usize::from(by_time.is_some())]
                .insert(format!("{:?} {line:?}", key.subscription_key));
            assert!(is_new, "a line has two records: {line:?}");
        }
        ControlFlow::Continue(())
    };
    store
        .scan(Family::Ledger, &range.start, &range.end, visit)
        .expect("readable");
    Seen { cursors, lines }
}

/// The pages that a store has.
fn pages(store: &RocksStore) -> usize {
    let range = keys::outcome_pages();
    keys_in(store, Family::Cursor, &range.start, &range.end).len()
}

/// The number of puts and deletes so far.
fn sequence(store: &RocksStore) -> u64 {
    store
        .freeze_to(&scratch().path().join("frozen"))
        .expect("readable")
        .last_sequence()
}

fn killed(folder: &Path) -> tempfile::TempDir {
    let copy = scratch();
    copy_folder(folder, copy.path()).expect("copied");
    copy
}

#[test]
fn what_is_read_is_as_if_each_outcome_had_its_records_whenever_the_process_is_killed() {
    for seed in 0..6 {
        let mut rng = Rng::with_seed(seed);
        let model = MemoryStore::new();
        let mut folder = scratch();
        let mut store = open(folder.path());
        for write in 0..MANY {
            let batch = batch(write, 24, &mut rng);
            store.write(&batch).expect("written");
            model.write(&batch).expect("written");
            if rng.u16(..150) == 0 {
                // Closed, or killed and found as it is on the disk.
                let next = if rng.bool() {
                    store.close().map(|()| None).expect("closed")
                } else {
                    Some(killed(folder.path()))
                };
                drop(store);
                folder = next.unwrap_or(folder);
                store = open(folder.path());
            }
            if rng.u16(..100) == 0 {
                assert!(
                    seen(&store) == seen(&model),
                    "seed {seed}, after write {write}"
                );
                assert!(pages(&store) <= 1030, "{} pages", pages(&store));
            }
        }
        assert!(seen(&store) == seen(&model), "seed {seed}");
        store.note_watermark().expect("noted");
        let copy = killed(folder.path());
        drop(store);
        let frozen = ReadOnlyStore::open(copy.path(), &RocksOptions::default()).expect("whole");
        assert!(seen(&frozen) == seen(&model), "seed {seed}, read-only");
    }
}

/// The times of a subscription's lines.
fn times(store: &dyn Store, of: SubscriptionKey) -> BTreeSet<u64> {
    let range = keys::ledger_between(of, Timestamp(0), Timestamp::NEVER);
    let mut times = BTreeSet::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        let key = keys::parse_ledger_by_time(key).expect("a key of a line");
        times.extend(
            ledger_lines(key, value)
                .expect("readable")
                .iter()
                .map(|line| line.entry.at.0),
        );
        ControlFlow::Continue(())
    };
    store
        .scan(Family::Ledger, &range.start, &range.end, visit)
        .expect("readable");
    times
}

#[test]
fn writers_at_the_same_time_store_the_records_of_each_other_and_no_reader_misses_any() {
    let folder = scratch();
    let model = MemoryStore::new();
    let store = Arc::new(open(folder.path()));
    let written: Arc<[AtomicU64; 3]> = Arc::default();
    let threads: Vec<_> = (0..3)
        .map(|partition| {
            let store = Arc::clone(&store);
            let model = model.clone();
            let written = Arc::clone(&written);
            std::thread::spawn(move || {
                let mut rng = Rng::with_seed(partition);
                for write in 0..MANY {
                    let mut batch = Batch::default();
                    for place in 0..4 {
                        if place > 0 && rng.bool() {
                            continue;
                        }
                        let lines = if place == 0 { 1 } else { rng.u64(..3) };
                        let lines: Vec<LedgerLine> = (0..lines)
                            .map(|number| line(write, number, &mut rng))
                            .collect();
                        batch.put_outcomes(
                            key(partition as u32 + 3 * place),
                            Some(format!("{write}").into()),
                            lines.into(),
                        );
                    }
                    if rng.u8(..60) == 0 {
                        batch.put(
                            Family::Cursor,
                            keys::cursor(key(partition as u32)),
                            b"set".to_vec(),
                        );
                    }
                    store.write(&batch).expect("written");
                    model.write(&batch).expect("written");
                    written[partition as usize].store(write + 1, Ordering::Release);
                }
            })
        })
        .collect();
    while threads.iter().any(|thread| !thread.is_finished()) {
        for partition in 0..3 {
            let writes = written[partition as usize].load(Ordering::Acquire);
            let times = times(&*store, key(partition));
            let missing = (0..writes).find(|write| !times.contains(&at(*write, 0)));
            assert_eq!(missing, None, "of {writes} writes");
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    assert!(seen(&*store) == seen(&model));
    let copy = killed(folder.path());
    assert!(seen(&open(copy.path())) == seen(&model), "after a kill");
}

/// The cursor of a subscription without failures.
fn cursor(delivered: u64) -> Cursor {
    let lane = LaneCursor::new(Lane::LIVE, Seq(delivered), None);
    let passed = delivered;
    let matched = delivered;
    let requests = delivered;
    let counters = Counters {
        passed,
        matched,
        delivered,
        requests,
        ..Counters::default()
    };
    Cursor {
        lanes: vec![lane],
        counters,
        began: Seq(1),
        ..Cursor::default()
    }
}

#[test]
fn an_outcome_costs_a_part_of_a_put_and_pages_do_not_accumulate() {
    let folder = scratch();
    let store = open(folder.path());
    for write in 0..MANY {
        let mut batch = Batch::default();
        let mut rng = Rng::with_seed(write);
        for number in 0..100 {
            let cursor = cursor(1_000_000 + write).encode();
            batch.put_outcomes(
                key(number),
                Some(cursor.into()),
                vec![line(write, 0, &mut rng)].into(),
            );
        }
        store.write(&batch).expect("written");
    }
    // Three records for each outcome would be 300 puts a write.
    let changes = sequence(&store);
    assert!(
        changes < MANY * 12,
        "{changes} puts and deletes in {MANY} writes"
    );
    let range = keys::outcome_pages();
    let mut bytes = 0;
    let mut pages = 0;
    let visit = &mut |_: &[u8], value: &[u8]| {
        (bytes, pages) = (bytes + value.len(), pages + 1);
        ControlFlow::Continue(())
    };
    store
        .scan(Family::Cursor, &range.start, &range.end, visit)
        .expect("readable");
    assert!(pages <= 70, "{pages} pages");
    // A cursor has 50 bytes, a line 25, and their three keys 73.
    let each = bytes / (pages * 100);
    assert!(
        each <= 55,
        "{each} bytes for an outcome, {changes} puts and deletes in {MANY} writes"
    );
    println!(
        "{each} bytes for an outcome, {} puts and deletes in {MANY} writes of 100",
        changes
    );
}

#[test]
fn a_store_with_pages_is_refused_by_a_program_of_format_1_and_one_of_format_1_is_read() {
    let folder = scratch();
    let store = open(folder.path());
    let format = || keys::meta_key(MetaKind::Format, b"");
    let stored = |store: &dyn Store| {
        store
            .get(Family::Meta, &format())
            .expect("readable")
            .expect("a format")
    };
    assert_eq!(stored(&store)[..], 2u32.to_be_bytes());
    put(&store, Family::Meta, format(), 1u32.to_be_bytes().to_vec());
    put(
        &store,
        Family::Cursor,
        keys::cursor(key(1)),
        b"old".to_vec(),
    );
    store.close().expect("closed");
    drop(store);
    let frozen =
        ReadOnlyStore::open(folder.path(), &RocksOptions::default()).expect("a store of format 1");
    assert_eq!(
        frozen
            .get(Family::Cursor, &keys::cursor(key(1)))
            .expect("readable")
            .as_deref(),
        Some(&b"old"[..])
    );
    drop(frozen);
    let store = open(folder.path());
    assert_eq!(stored(&store)[..], 2u32.to_be_bytes(), "migrated");
    assert_eq!(
        store
            .get(Family::Cursor, &keys::cursor(key(1)))
            .expect("readable")
            .as_deref(),
        Some(&b"old"[..])
    );
}

#[test]
fn a_damaged_page_prevents_a_start() {
    let folder = scratch();
    let store = open(folder.path());
    let mut batch = Batch::default();
    batch.put_outcomes(
        key(1),
        Some(Bytes::from_static(b"cursor")),
        EncodedLines::default(),
    );
    store.write(&batch).expect("written");
    let page = keys_in(
        &store,
        Family::Cursor,
        &keys::outcome_pages().start,
        &keys::outcome_pages().end,
    )
    .remove(0);
    put(&store, Family::Cursor, page, vec![1]);
    store.close().expect("closed");
    drop(store);
    let error = RocksStore::open(folder.path(), &RocksOptions::default())
        .expect_err("damaged")
        .to_string();
    assert!(
        error.contains("a page of outcomes is damaged: Some(1)"),
        "{error}"
    );
}

#[test]
fn a_check_sees_what_pages_have_and_a_repair_lasts() {
    let folder = scratch();
    let store = open(folder.path());
    let mut batch = Batch::default();
    let mut rng = Rng::with_seed(1);
    let sound = cursor(1);
    let cursor = Cursor {
        counters: Counters {
            pending: 1,
            ..sound.counters
        },
        ..sound.clone()
    };
    let floor = FloorRecord {
        floor: Seq(1),
        next: Seq(1),
        ..FloorRecord::default()
    };
    batch.put(
        Family::Meta,
        keys::floor_key(key(1).partition),
        floor.encode(),
    );
    batch.put_outcomes(
        key(1),
        Some(cursor.encode().into()),
        vec![line(0, 0, &mut rng)].into(),
    );
    store.write(&batch).expect("written");
    let repaired = fsck::repair_store(
        &store,
        record_decoders(),
        &mut |_| ControlFlow::Continue(()),
    )
    .expect("readable");
    assert!(repaired.is_sound(), "{repaired}");
    let copy = killed(folder.path());
    let reopened = open(copy.path());
    for store in [&store, &reopened] {
        let report =
            fsck::check_store(store, record_decoders(), &mut |_| ControlFlow::Continue(()))
                .expect("readable");
        assert!(report.findings.is_empty(), "{report}");
        assert_eq!(report.counts.get("ledger lines"), Some(&1), "{report}");
        let stored = store
            .get(Family::Cursor, &keys::cursor(key(1)))
            .expect("readable")
            .expect("a cursor");
        assert_eq!(Cursor::decode(&stored).expect("whole"), sound);
    }
}
