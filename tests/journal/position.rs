//! Binary search in the log, compared with a linear search.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::BufMut;
use gridhook::{
    clock::Clock,
    event::{
        EventRanges, PartitionId, Schema, Seq, Timestamp,
        chunk::{ChunkBuilder, EncodedEvent, RunningTotals},
    },
    journal::{BacklogLimits, Journal, JournalOptions, LogEnd, LogPosition, Shards},
    store::{
        Batch, Family, Store, keys,
        records::{FloorRecord, StoredRecord},
        rocks::{RocksOptions, RocksStore},
    },
};
use proptest::prelude::*;

use crate::support::{memory_store::MemoryStore, server::wait_for};

const PARTITION: PartitionId = PartitionId(2);

/// How far a wrong clock is ahead.
const AHEAD: u64 = 1_000;

/// A generated chunk: its distance from the previous one, in sequences and in time.
#[derive(Clone, Debug)]
struct Drawn {
    gap: u64,
    later: u64,
    count: u32,
}

/// A written chunk.
#[derive(Clone, Copy, Debug)]
struct Lies {
    first: u64,
    count: u32,
    appended: u64,
    bytes_before: u64,
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    // Mostly without gaps, and often at the same time.
    let chunk = (
        prop_oneof![4 => Just(0), 1 => 1..5u64],
        prop_oneof![Just(0), 0..50u64],
        1..6u32,
    )
        .prop_map(|(gap, later, count)| Drawn { gap, later, count });
    proptest::collection::vec(chunk, 0..40)
}

/// Writes the chunks; those of `wrong` by a clock that was ahead, and was corrected behind them.
fn lay(
    store: &dyn Store,
    chunks: &[Drawn],
    floor: u64,
    wrong: &Range<usize>,
) -> (Vec<Lies>, LogEnd) {
    let mut batch = Batch::default();
    let mut next = 1;
    let mut at = 1000;
    let mut running = RunningTotals::default();
    let mut lie = Vec::new();
    let mut set_back = None;
    for (index, Drawn { gap, later, count }) in chunks.iter().enumerate() {
        if index > 0 && index == wrong.end {
            set_back = Some(Seq(next));
        }
        (next, at) = (next + gap, at + later);
        let appended = if wrong.contains(&index) {
            at + AHEAD
        } else {
            at
        };
        let mut draft = ChunkBuilder::new(Schema::EventGrid);
        for _ in 0..*count {
            draft.push(|out| {
                out.put_slice(b"{}");
                EncodedEvent {
                    wire_end: out.len(),
                    ranges: EventRanges::default(),
                }
            });
        }
        let sealed = draft.into_chunks().pop().expect("it has events");
        let bytes = sealed.bytes_len() as u64;
        batch.put(
            Family::Log,
            keys::log(PARTITION, Seq(next)),
            sealed.stamp_record(Timestamp(appended), running),
        );
        lie.push(Lies {
            first: next,
            count: *count,
            appended,
            bytes_before: running.bytes,
        });
        running = RunningTotals {
            count: running.count + u64::from(*count),
            bytes: running.bytes + bytes,
        };
        next += u64::from(*count);
    }
    let record = FloorRecord {
        floor: Seq(floor.min(next)),
        next: Seq(next),
        running,
        appended: Timestamp(at),
        set_back,
    };
    batch.put(Family::Meta, keys::floor_key(PARTITION), record.encode());
    // Logs of neighbouring partitions, which must be ignored.
    for other in [1, 3] {
        let mut draft = ChunkBuilder::new(Schema::EventGrid);
        draft.push(|out| EncodedEvent {
            wire_end: out.len(),
            ranges: EventRanges::default(),
        });
        let sealed = draft.into_chunks().pop().expect("it has an event");
        batch.put(
            Family::Log,
            keys::log(PartitionId(other), Seq(1)),
            sealed.stamp_record(Timestamp(1), RunningTotals::default()),
        );
    }
    store.write(&batch).expect("written");
    (
        lie,
        LogEnd {
            next: Seq(next),
            running,
        },
    )
}

fn naive(
    chunks: &[Lies],
    floor: Seq,
    end: LogEnd,
    is_passed: impl Fn(&Lies) -> bool,
) -> LogPosition {
    for chunk in chunks {
        let at = Seq(chunk.first).max(floor);
        if chunk.first + u64::from(chunk.count) > floor.0 && !is_passed(chunk) {
            return LogPosition {
                at,
                appended: Some(Timestamp(chunk.appended)),
            };
        }
    }
    LogPosition {
        at: end.next,
        appended: None,
    }
}

fn check(store: Arc<dyn Store>, chunks: &[Drawn], floor: u64, wrong: &Range<usize>) {
    let (lie, end) = lay(&*store, chunks, floor, wrong);
    let floor = Seq(floor).min(end.next);
    let options = JournalOptions {
        outcome_delay: Duration::ZERO,
        group_bytes: 1 << 20,
        shards: Shards::default(),
        // Without a subscription the writer would remove the whole log after a second.
        limits: BacklogLimits {
            retention: Duration::from_secs(3600),
            ..BacklogLimits::default()
        },
    };
    let (clock, _) = Clock::new_manual(Timestamp(1));
    let (journal, writer) =
        Journal::start(store, clock, options, Box::new(|_, _| {}), Box::new(|_| {}))
            .expect("a sound store");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let last = lie.last().map_or(1000, |chunk| chunk.appended);
    for before in (999..=last + 1)
        .step_by(3)
        .chain(lie.iter().map(|chunk| chunk.appended))
    {
        let found = runtime.block_on(journal.reader_pool().find_position(
            PARTITION,
            end.next,
            Timestamp(before),
        ));
        // An event is as old as the youngest one behind it.
        let age = |chunk: &Lies| {
            lie.iter()
                .filter(|later| later.first >= chunk.first)
                .map(|later| later.appended)
                .min()
        };
        let expected = naive(&lie, floor, end, |chunk| {
            age(chunk).is_some_and(|appended| appended < before)
        });
        assert_eq!(
            found.expect("readable"),
            expected,
            "appended at {before} or later, of {lie:?} from {floor:?}"
        );
    }
    for bytes in (0..end.running.bytes + 2).step_by(17) {
        let passed = end.running.bytes.saturating_sub(bytes);
        let found = runtime.block_on(journal.reader_pool().last_bytes(PARTITION, end, bytes));
        let expected = naive(&lie, floor, end, |chunk| chunk.bytes_before < passed);
        assert_eq!(
            found.expect("readable"),
            expected,
            "the last {bytes} bytes of {lie:?} from {floor:?}"
        );
    }
    journal.close();
    writer.join_all();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_place_by_time_or_bytes_is_what_a_look_at_every_chunk_finds(chunks in drawn(), floor in 1..120u64) {
        check(Arc::new(MemoryStore::new()), &chunks, floor, &(0..0));
    }

    #[test]
    fn a_place_by_time_is_found_where_a_clock_that_was_ahead_was_corrected(
        chunks in drawn(), floor in 1..120u64, wrong in (0..40usize, 1..40usize),
    ) {
        let wrong = wrong.0..(wrong.0 + wrong.1).min(chunks.len());
        check(Arc::new(MemoryStore::new()), &chunks, floor, &wrong);
    }
}

#[test]
fn a_place_by_time_in_a_long_log_takes_few_reads_on_rocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let rocks =
        Arc::new(RocksStore::open(folder.path(), &RocksOptions::default()).expect("a new store"));
    let chunks: Vec<Drawn> = (0..300)
        .map(|at| Drawn {
            gap: u64::from(at % 7 == 0) * 1_000_000,
            later: at % 3,
            count: 1 + at as u32 % 5,
        })
        .collect();
    check(rocks.clone(), &chunks, 5_000_000, &(0..0));
    // Otherwise a reading thread may close RocksDB while the process ends.
    wait_for("the threads that read", Duration::from_secs(60), || {
        Arc::strong_count(&rocks) == 1
    });
    rocks.close().expect("closed");
}
