//! A store that the journal wrote passes the check, and every kind of damage is reported.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use expect_test::expect;
use gridhook::{
    clock::{Clock, ManualClock},
    dead_letter::DeadLetterTotals,
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{
        BacklogLimits, DeadLetterKey, DeadLetterWrite, Error, Journal, JournalOptions, MetaChange,
        Shards, WriterThreads,
    },
    policy::{
        outcome::Reason,
        record::{
            Counters, Cursor, LaneCursor, LedgerEntry, LedgerEvent, LedgerLine, RecordChange,
            SeqRun, WriteUrgency,
        },
    },
    repair::fsck::{self, CheckReport},
    storage::record_decoders,
    store::{
        Batch, Family, Store,
        keys::{self, KeyKind, LineKey, MetaKind},
        records::{AppliedPosition, FloorRecord, LedgerLines, StoredRecord},
    },
};

use super::{put, writer};
use crate::{support::chunks::sealed, support::memory_store::MemoryStore};

mod repair;
mod salvage;

const PARTITION: PartitionId = PartitionId(1);
const ONE: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(1),
};
const TWO: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(2),
};
const START: Timestamp = Timestamp(1_000_000_000);
const DUE: Timestamp = Timestamp(2_000_000_000);
const FILE_DUE: Timestamp = Timestamp(3_000_000_000);

/// A journal on a store in memory, with a virtual clock.
struct ClockedJournal {
    journal: Journal,
    writer: WriterThreads,
    hand: ManualClock,
    runtime: tokio::runtime::Runtime,
}

impl ClockedJournal {
    fn at(store: &MemoryStore) -> Self {
        let (clock, hand) = Clock::new_manual(START);
        let options = JournalOptions {
            outcome_delay: Duration::ZERO,
            group_bytes: 1 << 20,
            shards: Shards::default(),
            limits: BacklogLimits::default(),
        };
        let started = Journal::start(
            Arc::new(store.clone()),
            clock,
            options,
            Box::new(|_, _| {}),
            Box::new(|_| {}),
        );
        let (journal, writer) = started.expect("sound");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        Self {
            journal,
            writer,
            hand,
            runtime,
        }
    }

    fn wait<T>(&self, promise: impl Future<Output = Result<T, Error>>) -> T {
        self.runtime.block_on(promise).expect("there is room")
    }

    fn publish(&self, events: usize) {
        self.wait(
            self.journal
                .append_events(PARTITION, sealed(&vec![("yes", 10); events]), None),
        );
    }

    fn write(&self, subscription_key: SubscriptionKey, changes: Vec<RecordChange>) {
        let owner = self.wait(self.journal.open(subscription_key)).owner;
        let (done, response) = std::sync::mpsc::channel();
        let done = Box::new(move |result| done.send(result).expect("the test listens"));
        self.journal
            .write_changes(owner, changes, WriteUrgency::Now, done);
        response.recv().expect("a response").expect("written");
    }

    /// Advances the clock by a second, so that the writer runs maintenance.
    fn housekeep(&self) {
        self.hand.advance(Duration::from_secs(2));
        for _ in 0..2 {
            self.wait(self.journal.write_meta_changes(Vec::new()));
        }
        crate::support::trims::wait_for_looks(&self.journal);
    }

    fn stop(self) {
        self.journal.close();
        self.writer.join_all();
    }
}

fn cursor(read: u64, counters: Counters) -> RecordChange {
    let lane = LaneCursor::new(Lane::LIVE, Seq(read), None);
    let next_due = (counters.pending > 0).then_some(DUE);
    RecordChange::Cursor(Box::new(Cursor {
        lanes: vec![lane],
        counters,
        next_due,
        ..Cursor::default()
    }))
}

fn defer(seq: u64) -> RecordChange {
    RecordChange::Defer {
        lane: Lane::LIVE,
        seq: Seq(seq),
        pending: writer::pending(DUE),
        was_due: None,
    }
}

fn dead_letter(seq: u64) -> RecordChange {
    RecordChange::DeadLetter {
        lane: Lane::LIVE,
        seq: Seq(seq),
        due: FILE_DUE,
        dead: writer::dead(),
    }
}

fn note(seq: u64) -> RecordChange {
    let entry = LedgerEntry {
        at: START,
        runs: vec![SeqRun::single(Seq(seq))],
        what: LedgerEvent::GivenUp {
            reason: Reason::TimeToLiveExceeded,
            dead_lettered: true,
        },
    };
    RecordChange::Note {
        lane: Lane::LIVE,
        attempt: 1,
        entry,
    }
}

/// For events 1 to 8, the first subscription has pending deliveries of 3 and 5, dead letters of 4
/// and 6, of which 6 is written, and received 1 and 2. The second subscription received all. The
/// floor has passed them, so needed events are carried. Events 9 to 16 are in three chunks.
fn used() -> (MemoryStore, ClockedJournal) {
    let store = MemoryStore::new();
    let queue = ClockedJournal::at(&store);
    queue.wait(queue.journal.write_meta_changes(vec![
        MetaChange::CreatePartition(PARTITION),
        MetaChange::Subscribe(ONE, None),
        MetaChange::Subscribe(TWO, None),
    ]));
    queue.publish(6);
    queue.publish(6);
    let counters = Counters {
        passed: 8,
        filtered: 2,
        matched: 6,
        delivered: 2,
        pending: 2,
        dead_lettered: 2,
        ..Counters::default()
    };
    let done = vec![
        defer(3),
        defer(5),
        dead_letter(4),
        dead_letter(6),
        note(4),
        note(6),
        cursor(9, counters),
    ];
    queue.write(ONE, done);
    let counters = Counters {
        passed: 8,
        matched: 8,
        delivered: 8,
        ..Counters::default()
    };
    queue.write(TWO, vec![cursor(9, counters)]);
    queue.housekeep();
    queue.publish(2);
    queue.publish(2);
    let totals = DeadLetterTotals {
        written: 1,
        files: 1,
        bytes: 100,
        ..DeadLetterTotals::default()
    };
    let totals = Some((DeadLetterTotals::name(ONE), totals.encode().into()));
    let written = DeadLetterKey {
        due: FILE_DUE,
        seq: Seq(6),
        lane: Lane::LIVE,
    };
    queue.wait(queue.journal.write_dead_letters(
        ONE,
        DeadLetterWrite {
            totals,
            done: vec![written],
            notes: Vec::new(),
        },
    ));
    (store, queue)
}

fn look(store: &MemoryStore) -> CheckReport {
    fsck::check_store(store, record_decoders(), &mut |_| ControlFlow::Continue(()))
        .expect("memory can be read")
}

/// Whether the report contains a text, in its findings or leftovers.
fn tells(report: &CheckReport, reported: &str) -> bool {
    report
        .findings
        .iter()
        .chain(&report.leftovers)
        .any(|finding| finding.problem.contains(reported))
}

fn assert_sound(store: &MemoryStore, when: &str) {
    let report = look(store);
    assert!(report.findings.is_empty(), "{when}: {report}");
}

#[test]
fn a_store_is_sound_at_every_step_of_its_use() {
    assert_sound(&MemoryStore::new(), "empty");
    let (store, queue) = used();
    expect![[r#"
        3 carried, 3 chunks, 2 cursors, 1 dead letter, 10 events, 2 ledger lines, 1 partition, 2 pending deliveries
        the store is sound"#]]
    .assert_eq(&look(&store).to_string());
    queue.wait(
        queue
            .journal
            .write_meta_changes(vec![MetaChange::Unsubscribe(ONE)]),
    );
    assert_sound(
        &store,
        "a subscription is deleted and what it left is still there",
    );
    assert_eq!(look(&store).counts["pending deliveries"], 2);
    queue.housekeep();
    queue.housekeep();
    assert_sound(&store, "it is cleared away");
    assert!(!look(&store).counts.contains_key("carried"));
    queue.stop();

    let (store, queue) = used();
    let gone = vec![
        MetaChange::DeletePartition(PARTITION),
        MetaChange::Unsubscribe(ONE),
        MetaChange::Unsubscribe(TWO),
    ];
    queue.wait(queue.journal.write_meta_changes(gone));
    assert_sound(&store, "the topic is deleted");
    queue.housekeep();
    queue.housekeep();
    assert_sound(&store, "and cleared away");
    queue.stop();
}

// --- damages ---

fn delete(store: &MemoryStore, family: Family, key: Vec<u8>) {
    let mut batch = Batch::default();
    match family {
        Family::Due => batch.single_delete(family, key),
        Family::Meta
        | Family::Log
        | Family::Cursor
        | Family::Pending
        | Family::Carried
        | Family::Pin
        | Family::Dead
        | Family::Ledger
        | Family::Excerpt
        | Family::Ids
        | Family::PublishedIds => batch.delete(family, key),
    }
    store.write(&batch).expect("memory takes it");
}

fn value(store: &MemoryStore, family: Family, key: &[u8]) -> Vec<u8> {
    store
        .get(family, key)
        .expect("readable")
        .expect("it is there")
        .to_vec()
}

fn edit<R: StoredRecord>(
    store: &MemoryStore,
    family: Family,
    key: Vec<u8>,
    edit: impl FnOnce(&mut R),
) {
    let mut record = R::decode(&value(store, family, &key)).expect("whole");
    edit(&mut record);
    put(store, family, key, record.encode());
}

fn count(store: &MemoryStore, wrong: impl FnOnce(&mut Counters)) {
    edit(
        store,
        Family::Cursor,
        keys::cursor(ONE),
        |cursor: &mut Cursor| wrong(&mut cursor.counters),
    );
}

fn read(store: &MemoryStore, read: u64) {
    edit(
        store,
        Family::Cursor,
        keys::cursor(TWO),
        |cursor: &mut Cursor| cursor.lanes[0].read = Seq(read),
    );
}

fn lane(store: &MemoryStore, lane: Lane, read: u64, end: u64) {
    let lane = LaneCursor::new(lane, Seq(read), Some(Seq(end)));
    edit(
        store,
        Family::Cursor,
        keys::cursor(TWO),
        |cursor: &mut Cursor| {
            cursor.lanes[0].read = Seq(13);
            cursor.lanes.push(lane);
        },
    );
}

fn no_live_lane(store: &MemoryStore) {
    edit(
        store,
        Family::Cursor,
        keys::cursor(TWO),
        |cursor: &mut Cursor| cursor.lanes.clear(),
    );
}

fn log(first: u64) -> Vec<u8> {
    keys::log(PARTITION, Seq(first))
}

fn pending(seq: u64) -> Vec<u8> {
    keys::pending(PARTITION, Seq(seq), ONE.subscription, Lane::LIVE)
}

fn due(at: Timestamp, seq: u64) -> Vec<u8> {
    keys::due(ONE, at, Lane::LIVE, Seq(seq))
}

fn carried(seq: u64) -> Vec<u8> {
    keys::carried(PARTITION, Seq(seq))
}

fn pin(seq: u64) -> Vec<u8> {
    keys::pin(PARTITION, Seq(seq), ONE.subscription, Lane::LIVE)
}

fn dead(seq: u64) -> Vec<u8> {
    keys::dead(ONE, FILE_DUE, Seq(seq), Lane::LIVE)
}

fn totals_key() -> Vec<u8> {
    keys::meta_key(
        MetaKind::DeadLetters,
        DeadLetterTotals::name(ONE).as_bytes(),
    )
}

fn ledger_line(store: &MemoryStore) -> Vec<u8> {
    let range = keys::ledger_of(ONE);
    super::keys_in(store, Family::Ledger, &range.start, &range.end).remove(0)
}

#[test]
fn lanes_side_by_side_are_sound() {
    let (store, queue) = used();
    queue.stop();
    edit(
        &store,
        Family::Cursor,
        keys::cursor(TWO),
        |cursor: &mut Cursor| {
            let part = |lane, read, end| LaneCursor::new(lane, Seq(read), end);
            cursor.lanes = vec![
                part(Lane::LIVE, 13, None),
                part(Lane::BACKLOG, 11, Some(Seq(13))),
                part(Lane::EXPIRY, 9, Some(Seq(11))),
                // Has read everything and waits for outcomes.
                part(Lane::OVERFLOW, 10, Some(Seq(10))),
            ];
        },
    );
    assert_sound(&store, "with three lanes");
}

type Damage = (&'static str, fn(&MemoryStore), &'static str);

/// A name, the damage, and the expected text of the report.
const COUNTS: &[Damage] = &[
    (
        "passed, by one",
        |store| count(store, |c| c.passed += 1),
        "9 passed is not the sum of 2 filtered and 6 matched",
    ),
    (
        "delivered, by one",
        |store| count(store, |c| c.delivered += 1),
        "6 matched is not the sum of its parts",
    ),
    (
        "a count past all counting",
        |store| count(store, |c| c.filtered = u64::MAX),
        "8 passed",
    ),
    (
        "pending",
        |store| {
            count(store, |c| {
                c.delivered -= 1;
                c.pending += 1;
            });
        },
        "3 pending, but 2 records",
    ),
    (
        "dead-lettered",
        |store| {
            count(store, |c| {
                c.delivered -= 1;
                c.dead_lettered += 1;
            });
        },
        "3 dead-lettered is not the sum of 1 waiting and 1 written or lost",
    ),
    (
        "no totals",
        |store| delete(store, Family::Meta, totals_key()),
        "2 dead-lettered is not the sum of 1 waiting and 0 written or lost",
    ),
    (
        "no cursor",
        |store| delete(store, Family::Cursor, keys::cursor(ONE)),
        "2 pending, 1 dead letter and no cursor",
    ),
    (
        "deleted, with a cursor",
        |store| {
            put(
                store,
                Family::Meta,
                keys::meta_key(MetaKind::Job, b"reap/1/1"),
                vec![1],
            )
        },
        "was deleted and has a cursor",
    ),
    (
        "a cursor below the floor",
        |store| read(store, 8),
        "still needs event 8, but the log begins at 9",
    ),
    (
        "a cursor behind the log",
        |store| read(store, 18),
        "reads up to 18 in lane 0, but the log ends at 17",
    ),
    (
        "a lane behind the log",
        |store| lane(store, Lane::BACKLOG, 9, 18),
        "reads up to 18 in lane 1, but the log ends at 17",
    ),
    (
        "a lane that ends before it begins",
        |store| lane(store, Lane::EXPIRY, 12, 10),
        "in lane 2, which ends at 10",
    ),
    (
        "a lane on the live one",
        |store| lane(store, Lane::BACKLOG, 9, 16),
        "reads event 13 both in lane 1 and in lane 0",
    ),
    (
        "no live lane",
        no_live_lane,
        "has 0 live lanes and 0 lanes without an end",
    ),
    (
        "no time of the first that falls due",
        |store| {
            edit(
                store,
                Family::Cursor,
                keys::cursor(ONE),
                |cursor: &mut Cursor| cursor.next_due = None,
            )
        },
        "the first pending delivery is due at 1970-01-01T00:33:20.0000000Z, but the cursor says \
         never",
    ),
    (
        "too late a time of it",
        |store| {
            edit(
                store,
                Family::Cursor,
                keys::cursor(ONE),
                |cursor: &mut Cursor| cursor.next_due = Some(FILE_DUE),
            )
        },
        "but the cursor says 1970-01-01T00:50:00.0000000Z",
    ),
    (
        "pending, alone",
        |store| count(store, |c| c.pending += 1),
        "3 pending, but 2 records",
    ),
    (
        "dead-lettered, alone",
        |store| count(store, |c| c.dead_lettered -= 1),
        "1 dead-lettered is not the sum of 1 waiting and 1 written",
    ),
    (
        "no partition",
        |store| delete(store, Family::Meta, keys::floor_key(PARTITION)),
        "has a cursor, but its partition has no log",
    ),
];

const OBLIGATIONS: &[Damage] = &[
    (
        "pending, not due",
        |store| delete(store, Family::Due, due(DUE, 3)),
        "and has no due record for that time",
    ),
    (
        "due, not pending",
        |store| put(store, Family::Due, due(DUE, 4), Vec::new()),
        "and is not pending",
    ),
    (
        "due twice",
        |store| put(store, Family::Due, due(START, 3), Vec::new()),
        "event 3 in lane 0 has a due record for 1970-01-01T00:16:40.0000000Z and is pending for \
         1970-01-01T00:33:20.0000000Z",
    ),
    (
        "no pending record",
        |store| delete(store, Family::Pending, pending(3)),
        "2 pending, but 1 record",
    ),
    (
        "pending, event gone",
        |store| delete(store, Family::Carried, carried(3)),
        "event 3 in lane 0 is pending and cannot be read",
    ),
    (
        "dead, event gone",
        |store| delete(store, Family::Carried, carried(4)),
        "is a dead letter and cannot be read",
    ),
    (
        "carried for nobody",
        |store| {
            put(
                store,
                Family::Carried,
                carried(1),
                value(store, Family::Carried, &carried(3)),
            )
        },
        "event 1 is carried and not needed",
    ),
    (
        "no dead letter",
        |store| delete(store, Family::Dead, dead(4)),
        "0 dead letters waiting, but 1 event pinned",
    ),
    (
        "no pin",
        |store| delete(store, Family::Pin, pin(4)),
        "event 4 in lane 0 is a dead letter and is not pinned",
    ),
    (
        "a pin for nothing",
        |store| put(store, Family::Pin, pin(5), Vec::new()),
        "1 dead letter waiting, but 2 events",
    ),
];

const LOGS: &[Damage] = &[
    (
        "no first chunk",
        |store| delete(store, Family::Log, log(7)),
        "the chunk at 13 follows a gap that begins at 9",
    ),
    (
        "a gap",
        |store| delete(store, Family::Log, log(13)),
        "the chunk at 15 follows a gap that begins at 13",
    ),
    (
        "no last chunks",
        |store| {
            delete(store, Family::Log, log(13));
            delete(store, Family::Log, log(15));
            edit(
                store,
                Family::Meta,
                keys::floor_key(PARTITION),
                |floor: &mut FloorRecord| floor.next = Seq(15),
            );
        },
        "the log ends at 13, but ended at 15 before",
    ),
    (
        "no log at all",
        |store| {
            [7, 13, 15]
                .iter()
                .for_each(|first| delete(store, Family::Log, log(*first)))
        },
        "the log ends at 9, but ended at 13 before",
    ),
    (
        "a chunk within a chunk",
        |store| {
            put(
                store,
                Family::Log,
                log(14),
                value(store, Family::Log, &log(13)),
            )
        },
        "the chunk at 14 overlaps the chunk before it, which ends at 15",
    ),
    (
        "a running count",
        |store| {
            let mut chunk = value(store, Family::Log, &log(13));
            // After the version, the schema and the time.
            chunk[2 + 8 + 7] += 1;
            put(store, Family::Log, log(13), chunk);
        },
        "the chunk at 13 follows 12 events in",
    ),
    (
        "the running count of the floor",
        |store| {
            edit(
                store,
                Family::Meta,
                keys::floor_key(PARTITION),
                |floor: &mut FloorRecord| {
                    floor.next = Seq(17);
                    floor.running.count += 1;
                },
            );
        },
        "the log ends after 16 events in",
    ),
    (
        "a log without a partition",
        |store| {
            put(
                store,
                Family::Log,
                keys::log(PartitionId(9), Seq(1)),
                value(store, Family::Log, &log(13)),
            )
        },
        "partition 9: the chunk at 1 belongs to no partition",
    ),
];

fn cut(store: &MemoryStore, family: Family, key: Vec<u8>) {
    let mut bytes = value(store, family, &key);
    bytes.pop();
    put(store, family, key, bytes);
}

const RECORDS: &[Damage] = &[
    (
        "a floor",
        |store| cut(store, Family::Meta, keys::floor_key(PARTITION)),
        "the floor of partition 1: ",
    ),
    (
        "a chunk",
        |store| cut(store, Family::Log, log(13)),
        "the chunk at 13: ",
    ),
    (
        "a chunk's head",
        |store| put(store, Family::Log, log(13), vec![1, 1]),
        "the chunk at 13: ",
    ),
    (
        "the last chunk",
        |store| put(store, Family::Log, log(15), vec![1, 1]),
        "the chunk at 15: ",
    ),
    (
        "a cursor",
        |store| cut(store, Family::Cursor, keys::cursor(ONE)),
        "a record of kind cursor is damaged",
    ),
    (
        "a page of outcomes",
        |store| put(store, Family::Cursor, keys::outcome_page(1), vec![1]),
        "a page of outcomes is damaged: ",
    ),
    (
        "a pending record",
        |store| cut(store, Family::Pending, pending(3)),
        "a record of kind pending is damaged",
    ),
    (
        "a carried event",
        |store| cut(store, Family::Carried, carried(3)),
        "event 3 is carried and cannot be read: ",
    ),
    (
        "a dead letter",
        |store| cut(store, Family::Dead, dead(4)),
        "a record of kind dead is damaged",
    ),
    (
        "dead-letter totals",
        |store| cut(store, Family::Meta, totals_key()),
        "dead-letter totals are damaged",
    ),
    (
        "a line of the ledger",
        |store| cut(store, Family::Ledger, ledger_line(store)),
        "a ledger line is damaged or has another's key: ",
    ),
    (
        "a line of the ledger in another's place",
        |store| {
            let line = value(store, Family::Ledger, &ledger_line(store));
            let key = LineKey {
                subscription_key: ONE,
                lane: Lane::LIVE,
                first: Seq(7),
                at: START,
                attempt: 1,
                what: 3,
            };
            put(store, Family::Ledger, keys::ledger_key(key), line);
        },
        "a ledger line is damaged or has another's key: ",
    ),
    (
        "lines of the ledger that share a record, in the wrong order",
        |store| {
            let entry = |seq| LedgerEntry {
                at: START,
                runs: vec![SeqRun::single(Seq(seq))],
                what: LedgerEvent::Late { settled: true },
            };
            let lines = [8, 7].map(|seq| LedgerLine {
                lane: Lane::LIVE,
                attempt: 1,
                entry: entry(seq),
            });
            let key = LineKey {
                subscription_key: ONE,
                lane: Lane::LIVE,
                first: Seq(8),
                at: START,
                attempt: 1,
                what: 4,
            };
            put(
                store,
                Family::Ledger,
                keys::ledger_key(key),
                LedgerLines(lines.to_vec().into()).encode(),
            );
        },
        "a ledger line is damaged or has another's key: ",
    ),
];

/// Runs a table. Returns how many damages were reported.
fn caught(table: &[Damage], missed: &mut Vec<String>) -> usize {
    let before = missed.len();
    for (name, damage, reported) in table {
        let (store, queue) = used();
        queue.stop();
        damage(&store);
        let report = look(&store);
        if !tells(&report, reported) {
            missed.push(format!("{name}: {reported:?} is not in: {report}"));
        }
    }
    table.len() - (missed.len() - before)
}

#[test]
fn every_damage_is_reported() {
    let mut missed = Vec::new();
    let tables = [
        ("counts", COUNTS),
        ("obligations", OBLIGATIONS),
        ("logs", LOGS),
        ("records", RECORDS),
    ];
    for (name, table) in tables {
        println!(
            "{name}: caught {} of {}",
            caught(table, &mut missed),
            table.len()
        );
    }
    let of_keys = [
        (
            Family::Log,
            KeyKind::Log,
            "the key of a chunk cannot be parsed",
        ),
        (
            Family::Cursor,
            KeyKind::Cursor,
            "the key of a cursor cannot be parsed",
        ),
        (
            Family::Pending,
            KeyKind::Pending,
            "the key of a pending delivery cannot be parsed",
        ),
        (
            Family::Due,
            KeyKind::Due,
            "the key of a due record cannot be parsed",
        ),
        (
            Family::Carried,
            KeyKind::Carried,
            "the key of a carried event cannot be parsed",
        ),
        (
            Family::Pin,
            KeyKind::Pin,
            "the key of a pin cannot be parsed",
        ),
        (
            Family::Dead,
            KeyKind::Dead,
            "the key of a dead letter cannot be parsed",
        ),
        (Family::Ledger, KeyKind::Ledger, "a ledger line is damaged"),
        (
            Family::Meta,
            KeyKind::Meta,
            "the key of a floor cannot be parsed",
        ),
    ];
    let mut keys_caught = 0;
    for (family, kind, reported) in of_keys {
        let (store, queue) = used();
        queue.stop();
        put(
            &store,
            family,
            vec![kind as u8, MetaKind::Floor as u8, 7],
            vec![1],
        );
        let report = look(&store);
        if tells(&report, reported) {
            keys_caught += 1
        } else {
            missed.push(format!("{reported:?} is not in: {report}"))
        }
    }
    println!("keys: caught {keys_caught} of {}", of_keys.len());
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn a_store_with_a_thousand_damages_is_reported_in_a_hundred_lines() {
    let (store, queue) = used();
    queue.stop();
    let event = value(&store, Family::Carried, &carried(3));
    for seq in 0..1_000 {
        put(&store, Family::Carried, carried(100 + seq), event.clone());
    }
    let report = look(&store);
    assert_eq!((report.findings.len(), report.omitted), (100, 900));
    let reported = report.to_string();
    assert!(
        reported.ends_with("the store is not sound: 100 problems, and 900 more"),
        "{reported}"
    );
}
