//! Ledger lines are found by event and by time, whatever they cover.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use gridhook::{
    clock::Clock,
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{BacklogLimits, Journal, JournalOptions, MetaChange, Shards},
    policy::{
        outcome::{Failure, Outcome},
        record::{
            LedgerEntry, LedgerEvent, LedgerLine, RecordChange, SeqRun, SeqSet, WriteUrgency,
        },
    },
    store::{Batch, Family, Store, keys, ledger},
};
use proptest::{collection::vec, prelude::*};

use crate::support::memory_store::MemoryStore;

const ONE: SubscriptionKey = SubscriptionKey {
    partition: PartitionId(1),
    subscription: SubscriptionId(1),
};
const BLOCK: u64 = 4096;

/// Times of lines, in steps of 450 ms.
const TIMES: std::ops::Range<u64> = 0..50;
const STEP: u64 = 450_000;

fn what() -> impl Strategy<Value = LedgerEvent> {
    prop_oneof![
        (1u32..4).prop_map(|version| LedgerEvent::Filtered { version }),
        Just(LedgerEvent::Attempted {
            outcome: Outcome::Failed(Failure::Busy),
            status: Some(503),
            latency: Duration::from_millis(3),
            next: Some(Timestamp(7)),
            excerpt: Some(1),
        }),
        Just(LedgerEvent::Canceled),
    ]
}

/// Runs that are mostly within a block and sometimes cross two ends of blocks.
fn runs() -> impl Strategy<Value = Vec<SeqRun>> {
    vec((1..6 * BLOCK, prop_oneof![1u32..4, 1u32..10_000]), 1..5).prop_map(|mut runs| {
        runs.sort_unstable();
        let mut made = SeqSet::default();
        for (first, count) in runs {
            let first = made.end_seq().map_or(Seq(first), |end| end.max(Seq(first)));
            made.push(first, count.into());
        }
        made.into_runs()
    })
}

fn line() -> impl Strategy<Value = LedgerLine> {
    (
        TIMES,
        prop_oneof![Just(Lane::LIVE), Just(Lane(20))],
        0u32..4,
        runs(),
        what(),
    )
        .prop_map(|(at, lane, attempt, runs, what)| LedgerLine {
            lane,
            attempt,
            entry: LedgerEntry {
                at: Timestamp(at * STEP),
                runs,
                what,
            },
        })
}

fn speaks_of(line: &LedgerLine, seq: u64) -> bool {
    line.entry
        .runs
        .iter()
        .any(|run| run.iter_seqs().any(|of| of.0 == seq))
}

/// A line without its events: a line found by event has only those of its block.
fn bare(line: &LedgerLine) -> (Lane, u32, Timestamp, String) {
    (
        line.lane,
        line.attempt,
        line.entry.at,
        format!("{:?}", line.entry.what),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_line_is_found_by_each_of_its_events_and_by_its_time(lines in vec(line(), 1..30), seqs in vec(1..8 * BLOCK, 40)) {
        let store = MemoryStore::new();
        let options = JournalOptions { outcome_delay: Duration::ZERO, group_bytes: 1 << 20, shards: Shards::default(), limits: BacklogLimits::default() };
        let (clock, _) = Clock::new_manual(Timestamp(1_000));
        let shared: Arc<dyn Store> = Arc::new(store.clone());
        let (journal, writer) =
            Journal::start(shared, clock, options, Box::new(|_, _| {}), Box::new(|_| {})).expect("sound");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let founded = vec![MetaChange::CreatePartition(ONE.partition), MetaChange::Subscribe(ONE, None)];
        runtime.block_on(journal.write_meta_changes(founded)).expect("founded");
        let owner = runtime.block_on(journal.open(ONE)).expect("there").owner;
        let note = |line: &LedgerLine| RecordChange::Note { lane: line.lane, attempt: line.attempt, entry: line.entry.clone() };
        for write in lines.chunks(7) {
            let (done, response) = std::sync::mpsc::channel();
            let done = Box::new(move |result| done.send(result).expect("the test listens"));
            journal.write_changes(owner, write.iter().map(note).collect(), WriteUrgency::Now, done);
            response.recv().expect("answered").expect("written");
        }

        // Of two lines with equal keys, the later one counts.
        let mut known: Vec<LedgerLine> = Vec::new();
        for line in &lines {
            let key = |line: &LedgerLine| (line.lane, line.attempt, line.entry.at, std::mem::discriminant(&line.entry.what));
            let places = |line: &LedgerLine| {
                let blocks = line.entry.runs.iter().flat_map(|run| {
                    let mut starts = vec![run.first.0];
                    starts.extend((1..).map(|by| (run.first.0 / BLOCK + by) * BLOCK).take_while(|at| *at < run.end_seq().0));
                    starts
                });
                let mut blocks: Vec<u64> = blocks.collect();
                blocks.dedup_by_key(|at| *at / BLOCK);
                blocks
            };
            prop_assume!(known.iter().all(|other| {
                key(other) != key(line) || !places(other).iter().any(|place| places(line).contains(place))
            }));
            known.push(line.clone());
        }
        for seq in seqs.into_iter().chain(known.iter().flat_map(|line| line.entry.runs.iter().map(|run| run.first.0))) {
            let page = runtime.block_on(journal.reader_pool().lines_of(ONE, Seq(seq), None)).expect("readable");
            let mut found: Vec<_> = page.lines.iter().map(bare).collect();
            let mut expected: Vec<_> = known.iter().filter(|line| speaks_of(line, seq)).map(bare).collect();
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected, "event {}", seq);
            prop_assert_eq!(page.next, None);
        }
        let mut range = keys::ledger_between(ONE, Timestamp(10 * STEP), Timestamp(40 * STEP));
        let mut found = Vec::new();
        while let page = runtime.block_on(journal.reader_pool().lines_between(range.clone(), 3, |_| true)).expect("readable")
            && !page.lines.is_empty()
        {
            prop_assert!(page.lines.len() <= 3);
            found.extend(page.lines);
            let Some(next) = page.next else { break };
            range.start = next;
        }
        prop_assert!(found.is_sorted_by_key(|line| line.entry.at));
        let mut expected: Vec<LedgerLine> = known.iter().filter(|line| (10 * STEP..40 * STEP).contains(&line.entry.at.0)).cloned().collect();
        expected.sort_by_key(|line| (line.entry.at, line.entry.runs[0].first, line.lane, line.attempt));
        found.sort_by_key(|line| (line.entry.at, line.entry.runs[0].first, line.lane, line.attempt));
        let whole = |lines: &[LedgerLine]| { let mut all: Vec<String> = lines.iter().map(|line| format!("{line:?}")).collect(); all.sort(); all };
        prop_assert_eq!(whole(&found), whole(&expected), "by time each line is whole");
        let oldest = runtime.block_on(journal.reader_pool().oldest_line(ONE)).expect("readable");
        prop_assert_eq!(oldest, known.iter().map(|line| line.entry.at).min());
        journal.close();
        writer.join_all();
    }
}

/// Writes lines for consecutive events, each `apart` after the one before. Returns the versions of
/// the records by event and by time.
fn records_of(lines: u64, apart: Duration) -> [Vec<u8>; 2] {
    let store = MemoryStore::new();
    let mut batch = Batch::default();
    let line = |number: u64| LedgerLine {
        lane: Lane::LIVE,
        attempt: 1,
        entry: LedgerEntry {
            at: Timestamp(1_000).after(apart * number as u32),
            runs: vec![SeqRun::single(Seq(number))],
            what: LedgerEvent::Canceled,
        },
    };
    ledger::put_lines(
        &mut batch,
        ONE,
        &(0..lines).rev().map(line).collect::<Vec<_>>().into(),
    );
    store.write(&batch).expect("written");
    let mut versions = [Vec::new(), Vec::new()];
    let range = keys::ledgers_range();
    let visit = &mut |key: &[u8], value: &[u8]| {
        versions[usize::from(keys::parse_ledger_by_time(key).is_some())].push(value[0]);
        ControlFlow::Continue(())
    };
    store
        .scan(Family::Ledger, &range.start, &range.end, visit)
        .expect("readable");
    versions
}

#[test]
fn the_lines_of_a_write_share_records_within_their_limits() {
    let near = Duration::from_micros(10);
    assert_eq!(
        records_of(1, near),
        [[3], [3]],
        "a line alone, as earlier versions wrote it"
    );
    assert_eq!(records_of(100, near), [[4], [4]]);
    assert_eq!(
        records_of(300, near),
        [[4, 4], [4, 4]],
        "256 lines in a record"
    );
    assert_eq!(
        records_of(3, Duration::from_secs(3)),
        [vec![4], vec![4, 3]],
        "5 s in a record by time"
    );
    let [by_event, by_time] = records_of(BLOCK + 1, near);
    assert_eq!(
        (by_event.len(), by_time.len()),
        (17, 17),
        "a block in a record by event"
    );
}

#[test]
fn a_read_of_many_subscriptions_ends_at_its_limit_although_a_record_exceeds_it() {
    let (clock, _) = Clock::new_manual(Timestamp(1_000));
    let options = JournalOptions {
        outcome_delay: Duration::ZERO,
        group_bytes: 1 << 20,
        shards: Shards::default(),
        limits: BacklogLimits::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    // The limit is 16,384 lines. The last record of the second subscription exceeds it by 100
    // lines.
    for (counts, found) in [([100, 16_128, 1], Some(16_229)), ([100, 16_384, 1], None)] {
        let store = MemoryStore::new();
        let keys = [1, 2, 3].map(|number| SubscriptionKey {
            subscription: SubscriptionId(number),
            ..ONE
        });
        for (key, count) in keys.into_iter().zip(counts) {
            let line = |number: u64| {
                let entry = LedgerEntry {
                    at: Timestamp(1_000 + number),
                    runs: vec![SeqRun::single(Seq(number))],
                    what: LedgerEvent::Canceled,
                };
                LedgerLine {
                    lane: Lane::LIVE,
                    attempt: 1,
                    entry,
                }
            };
            let mut batch = Batch::default();
            ledger::put_lines(
                &mut batch,
                key,
                &(0..count).map(line).collect::<Vec<_>>().into(),
            );
            store.write(&batch).expect("written");
        }
        let (journal, writer) = Journal::start(
            Arc::new(store),
            clock.clone(),
            options,
            Box::new(|_, _| {}),
            Box::new(|_| {}),
        )
        .expect("sound");
        let range = Timestamp::default()..Timestamp::NEVER;
        let read = runtime
            .block_on(
                journal
                    .reader_pool()
                    .lines_of_all(keys.to_vec(), range, |_| true),
            )
            .expect("readable");
        assert_eq!(read.map(|lines| lines.len()), found, "{counts:?}");
        journal.close();
        writer.join_all();
    }
}
