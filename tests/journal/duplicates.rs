//! Duplicate detection: no id is stored twice within the window and none is lost, whatever fails
//! and however often a publisher tries again.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};

use bytes::{BufMut, Bytes};
use gridhook::{
    clock::{Clock, ManualClock},
    event::{
        EventRanges, PartitionId, Schema, Seq, SubscriptionId, SubscriptionKey, TextRange,
        Timestamp,
        chunk::{Chunk, ChunkBuilder, EncodedEvent, SealedChunk},
    },
    journal::{
        BacklogLimits, Error, Journal, JournalOptions, MetaChange, PublishReceipt, Shards,
        WriterThreads,
    },
    store::{
        Family, Store, keys,
        records::{IdDigest, PublishedId, StoredRecord},
        rocks::{RocksOptions, RocksStore},
    },
};
use proptest::prelude::*;

use super::{keys_in, scratch};
use crate::support::memory_store::{MemoryStore, WriteFault};
use crate::support::read_log::RecordedStore;
use crate::support::trims::wait_for_looks;

const PARTITION: PartitionId = PartitionId(1);
const ONE: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(1),
};
const WINDOW: Duration = Duration::from_secs(20);
const START: Timestamp = Timestamp(1_000_000_000);
const MICRO: Duration = Duration::from_micros(1);

struct ClockedJournal {
    journal: Journal,
    writer: WriterThreads,
    hand: ManualClock,
    clock: Clock,
    runtime: tokio::runtime::Runtime,
}

impl ClockedJournal {
    fn at(store: Arc<dyn Store>, now: Timestamp) -> Self {
        let (clock, hand) = Clock::new_manual(now);
        let limits = BacklogLimits::default();
        let options = JournalOptions {
            outcome_delay: Duration::ZERO,
            group_bytes: 1 << 20,
            shards: Shards::default(),
            limits,
        };
        let (journal, writer) = Journal::start(
            store,
            clock.clone(),
            options,
            Box::new(|_, _| {}),
            Box::new(|_| {}),
        )
        .expect("sound");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        Self {
            journal,
            writer,
            hand,
            clock,
            runtime,
        }
    }

    /// With a subscription that never reads, so that the log is kept; or without, so that it is
    /// trimmed.
    fn founded(store: &MemoryStore, reader: bool) -> Self {
        let queue = Self::at(Arc::new(store.clone()), START);
        let subscribe = reader.then_some(MetaChange::Subscribe(ONE, None));
        let founded = [MetaChange::CreatePartition(PARTITION)]
            .into_iter()
            .chain(subscribe)
            .collect();
        queue
            .runtime
            .block_on(queue.journal.write_meta_changes(founded))
            .expect("founded");
        queue
    }

    fn try_publish(&self, ids: &[u8]) -> Result<PublishReceipt, Error> {
        let asked = self
            .journal
            .append_new_events(PARTITION, sealed(ids), Some(WINDOW), None)
            .expect("whole chunks");
        self.runtime.block_on(asked)
    }

    /// The number of duplicates.
    fn publish(&self, ids: &[u8]) -> u32 {
        self.try_publish(ids).expect("there is room").duplicates
    }

    fn housekeep(&self) {
        for _ in 0..2 {
            self.runtime
                .block_on(self.journal.write_meta_changes(Vec::new()))
                .expect("there is room");
        }
        wait_for_looks(&self.journal);
    }

    fn stop(self) {
        self.journal.close();
        self.writer.join_all();
    }
}

/// One event for each number, large enough that a request has several chunks.
fn sealed(ids: &[u8]) -> Vec<SealedChunk> {
    sealed_of(ids.iter().map(ToString::to_string), 30_000)
}

fn sealed_of(ids: impl Iterator<Item = String>, bytes: usize) -> Vec<SealedChunk> {
    let mut draft = ChunkBuilder::new(Schema::EventGrid);
    for id in ids {
        draft.push(|out| {
            let start = out.len() as u32;
            out.put_slice(id.as_bytes());
            out.put_bytes(b'.', bytes);
            let ranges = EventRanges {
                id: TextRange {
                    start,
                    len: id.len() as u32,
                },
                ..EventRanges::default()
            };
            EncodedEvent {
                wire_end: out.len(),
                ranges,
            }
        });
    }
    draft.into_chunks()
}

/// The ids in the log, in order.
fn log(store: &impl Store) -> Vec<u8> {
    let range = keys::log_of(PARTITION);
    let mut ids = Vec::new();
    let mut next = Seq::FIRST;
    let visit = &mut |key: &[u8], value: &[u8]| {
        let (_, first) = keys::parse_log(key).expect("a key");
        assert_eq!(first, next, "the log has no gap");
        let chunk = Chunk::decode(first, Bytes::copy_from_slice(value)).expect("a chunk");
        next = chunk.end_seq();
        for event in chunk.decode_events().expect("events") {
            assert!(event.wire_len() > 30_000, "a copied event is whole");
            ids.push(event.id().parse().expect("a number"));
        }
        ControlFlow::Continue(())
    };
    store
        .scan(Family::Log, &range.start, &range.end, visit)
        .expect("readable");
    ids
}

fn known(store: &impl Store) -> usize {
    let range = keys::family_range(Family::PublishedIds);
    keys_in(store, Family::PublishedIds, &range.start, &range.end).len()
}

#[derive(Clone, Debug)]
enum Step {
    /// Requests that wait together for the writer.
    Publish(Vec<Vec<u8>>),
    /// A request whose write fails: the machine crashes, before or after the batch is on the disk.
    /// Its publisher gets no response and sends it again.
    Crash(Vec<u8>, bool),
    /// A request whose write finds a full disk. Its publisher sends it again.
    Full(Vec<u8>),
    /// The process ends and starts again.
    Restart,
    /// Time passes, and records whose window has ended may be removed.
    Wait(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let ids = || prop::collection::vec(0u8..6, 1..6);
    let waits = [
        MICRO,
        Duration::from_secs(7),
        WINDOW - MICRO,
        WINDOW,
        WINDOW + MICRO,
    ];
    prop_oneof![
        4 => prop::collection::vec(ids(), 1..4).prop_map(Step::Publish),
        2 => (ids(), any::<bool>()).prop_map(|(ids, kept)| Step::Crash(ids, kept)),
        1 => ids().prop_map(Step::Full),
        1 => Just(Step::Restart),
        3 => prop::sample::select(waits.to_vec()).prop_map(Step::Wait),
    ]
}

/// The expected events: every id once in each window.
#[derive(Default)]
struct Model {
    accepted: HashMap<u8, Timestamp>,
    log: Vec<u8>,
}

impl Model {
    /// Takes a request, and returns the number of its duplicates.
    fn publish(&mut self, ids: &[u8], now: Timestamp) -> u32 {
        let mut duplicates = 0;
        for id in ids {
            if self
                .accepted
                .get(id)
                .is_some_and(|accepted| now.since(*accepted) < WINDOW)
            {
                duplicates += 1;
            } else {
                self.accepted.insert(*id, now);
                self.log.push(*id);
            }
        }
        duplicates
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_id_is_stored_once_in_each_window_whatever_fails(steps in prop::collection::vec(step(), 1..24)) {
        let mut store = MemoryStore::new();
        let mut queue = ClockedJournal::founded(&store, true);
        let mut model = Model::default();
        for step in &steps {
            let now = queue.clock.now();
            match step {
                Step::Publish(requests) => {
                    let hold = store.hold();
                    let asked: Vec<_> = requests
                        .iter()
                        .map(|ids| queue.journal.append_new_events(PARTITION, sealed(ids), Some(WINDOW), None).expect("whole"))
                        .collect();
                    drop(hold);
                    for (ids, asked) in requests.iter().zip(asked) {
                        let duplicates = queue.runtime.block_on(asked).expect("there is room").duplicates;
                        prop_assert_eq!(duplicates, model.publish(ids, now), "{:?}", ids);
                    }
                }
                Step::Crash(ids, kept) => {
                    store.fail(store.writes()..u64::MAX, WriteFault::Failed);
                    prop_assert!(queue.try_publish(ids).is_err(), "nobody answers");
                    queue.stop();
                    store = store.crash(usize::from(*kept));
                    if *kept {
                        model.publish(ids, now);
                    }
                    queue = ClockedJournal::at(Arc::new(store.clone()), now);
                    prop_assert_eq!(queue.publish(ids), model.publish(ids, now), "the same request \
                        again");
                }
                Step::Full(ids) => {
                    store.fail(store.writes()..store.writes() + 1, WriteFault::Full);
                    prop_assert!(matches!(queue.try_publish(ids), Err(Error::Full)));
                    prop_assert_eq!(queue.publish(ids), model.publish(ids, now), "what was refused \
                        is not known");
                }
                Step::Restart => {
                    queue.stop();
                    queue = ClockedJournal::at(Arc::new(store.clone()), now);
                }
                Step::Wait(wait) => {
                    queue.hand.advance(*wait);
                    queue.housekeep();
                }
            }
            prop_assert_eq!(&log(&store), &model.log, "after {:?}", step);
        }
        queue.stop();
    }
}

#[test]
fn two_copies_in_a_request_and_in_one_group_are_stored_once() {
    let store = MemoryStore::new();
    let queue = ClockedJournal::founded(&store, true);
    assert_eq!(queue.publish(&[1, 2, 1, 1]), 2);
    let before = store.writes();
    let hold = store.hold();
    let first = queue
        .journal
        .append_new_events(PARTITION, sealed(&[3]), Some(WINDOW), None)
        .expect("whole");
    hold.until_a_write_waits();
    let asked = [[4, 5], [5, 3], [5, 4]];
    let asked = asked.map(|ids| {
        queue
            .journal
            .append_new_events(PARTITION, sealed(&ids), Some(WINDOW), None)
            .expect("whole")
    });
    drop(hold);
    assert_eq!(
        queue.runtime.block_on(first).expect("written").duplicates,
        0
    );
    let duplicates = asked.map(|asked| queue.runtime.block_on(asked).expect("written").duplicates);
    assert_eq!(duplicates, [0, 2, 2]);
    // They are looked up before they form groups.
    assert!((2..=4).contains(&(store.writes() - before)));
    assert_eq!(log(&store), [1, 2, 3, 4, 5]);
    queue.stop();
}

#[test]
fn the_thread_that_syncs_does_not_look_ids_up() {
    let store = MemoryStore::new();
    ClockedJournal::founded(&store, true).stop();
    let recorded = RecordedStore::new(&store);
    let queue = ClockedJournal::at(Arc::new(recorded.clone()), START);
    for id in 0..100 {
        assert_eq!(queue.publish(&[id, id + 1]), u32::from(id > 0));
    }
    let threads: BTreeSet<String> = recorded
        .take_threads(&[Family::PublishedIds])
        .into_iter()
        .collect();
    assert_eq!(threads, BTreeSet::from(["journal-ids".to_owned()]));
    queue.stop();
}

#[test]
fn ids_that_were_written_since_a_lookup_are_known_however_many_they_are() {
    let store = MemoryStore::new();
    let queue = ClockedJournal::founded(&store, true);
    let window = Some(WINDOW);
    let many = 1_000..41_000;
    let ids = |of: std::ops::Range<u32>| sealed_of(of.map(|id| id.to_string()), 0);
    let hold = store.hold();
    let first = queue
        .journal
        .append_new_events(PARTITION, sealed(&[1]), window, None)
        .expect("whole");
    hold.until_a_write_waits();
    // All of them are looked up before any is written. Each request is a group of its own, because
    // it is large.
    let asked = [many.clone(), many.clone(), 40_999..41_001].map(ids);
    let asked = asked.map(|chunks| {
        queue
            .journal
            .append_new_events(PARTITION, chunks, window, None)
            .expect("whole")
    });
    drop(hold);
    assert_eq!(
        queue.runtime.block_on(first).expect("written").duplicates,
        0
    );
    let duplicates = asked.map(|asked| queue.runtime.block_on(asked).expect("written").duplicates);
    assert_eq!(duplicates, [0, many.len() as u32, 1]);
    queue.stop();
}

#[test]
fn the_window_ends_on_the_microsecond_and_a_duplicate_does_not_extend_it() {
    let store = MemoryStore::new();
    let queue = ClockedJournal::founded(&store, true);
    assert_eq!(queue.publish(&[1]), 0);
    queue.hand.advance(WINDOW - MICRO);
    assert_eq!(queue.publish(&[1]), 1, "the last moment of the window");
    queue.hand.advance(MICRO);
    assert_eq!(queue.publish(&[1]), 0, "the first moment after it");
    assert_eq!(queue.publish(&[1]), 1, "a new window");
    queue.stop();
}

#[test]
fn a_changed_window_counts_from_the_acceptance_and_a_longer_one_for_later_events() {
    let store = MemoryStore::new();
    let queue = ClockedJournal::founded(&store, true);
    let publish = |id, window| {
        let asked = queue
            .journal
            .append_new_events(PARTITION, sealed(&[id]), Some(window), None)
            .expect("whole");
        queue
            .runtime
            .block_on(asked)
            .expect("there is room")
            .duplicates
    };
    assert_eq!([publish(1, WINDOW), publish(2, WINDOW)], [0, 0]);
    queue.hand.advance(WINDOW / 2);
    assert_eq!(publish(1, WINDOW / 2), 0, "it is shorter now");
    assert_eq!(publish(2, WINDOW * 2), 1);
    queue.hand.advance(WINDOW / 2);
    assert_eq!(publish(2, WINDOW * 2), 0, "its record may be gone");
    queue.stop();
}

#[test]
fn ids_are_known_after_their_log_is_trimmed_and_forgotten_after_the_window() {
    let store = MemoryStore::new();
    let queue = ClockedJournal::founded(&store, false);
    let ids: Vec<u8> = (0..200).collect();
    assert_eq!(queue.publish(&ids), 0);
    queue.hand.advance(Duration::from_secs(2));
    queue.housekeep();
    queue.hand.advance(Duration::from_secs(2));
    queue.housekeep();
    let range = keys::log_of(PARTITION);
    assert!(
        keys_in(&store, Family::Log, &range.start, &range.end).is_empty(),
        "nobody reads the log"
    );
    assert_eq!(queue.publish(&ids), 200);
    assert_eq!(
        known(&store),
        200,
        "a record for each id, however often it came"
    );
    let record = store.get(
        Family::PublishedIds,
        &keys_in(&store, Family::PublishedIds, &[0], &[255])[0],
    );
    let record = record.expect("readable").expect("it is there");
    let decoded = PublishedId::decode(&record).expect("whole");
    assert_eq!((decoded.duplicates, decoded.accepted), (1, START));
    assert!(
        keys::published_id(PARTITION, IdDigest(0, 0)).len() + record.len() <= 60,
        "as the manual says"
    );

    // While the clock may be wrong, nothing ends by age.
    queue.hand.set_expiry_paused(true);
    queue.hand.advance(WINDOW);
    queue.housekeep();
    assert_eq!((queue.publish(&[7]), known(&store)), (1, 200));
    queue.hand.set_expiry_paused(false);
    queue.hand.advance(Duration::from_secs(2));
    queue.housekeep();
    assert_eq!(known(&store), 0);
    queue.stop();
}

#[test]
fn a_topic_without_detection_writes_no_ids() {
    let store = MemoryStore::new();
    let queue = ClockedJournal::founded(&store, true);
    for _ in 0..2 {
        let asked = queue
            .journal
            .append_events(PARTITION, sealed(&[1, 1]), None);
        assert_eq!(
            queue
                .runtime
                .block_on(asked)
                .expect("there is room")
                .duplicates,
            0
        );
    }
    assert_eq!((log(&store), known(&store)), (vec![1, 1, 1, 1], 0));
    queue.stop();
}

#[test]
fn a_record_that_cannot_be_read_costs_no_event_and_is_reported() {
    let store = MemoryStore::new();
    let queue = ClockedJournal::founded(&store, true);
    queue.publish(&[1]);
    let key = keys_in(&store, Family::PublishedIds, &[0], &[255]).remove(0);
    super::put(&store, Family::PublishedIds, key, vec![9, 9]);
    assert_eq!(
        (queue.publish(&[1]), queue.publish(&[1])),
        (0, 1),
        "stored again, and known from then on"
    );
    assert!(
        queue
            .journal
            .known_damage()
            .read_summary()
            .families
            .contains(&Family::PublishedIds),
        "it is reported"
    );
    queue.stop();
}

/// The windows of a store on a disk do not grow with the time: compactions drop the ids whose
/// window has ended.
#[test]
fn compactions_drop_the_ids_whose_window_has_ended_and_no_other() {
    let folder = scratch();
    let store =
        Arc::new(RocksStore::open(folder.path(), &RocksOptions::default()).expect("a new store"));
    let queue = ClockedJournal::at(store.clone(), START);
    queue
        .runtime
        .block_on(
            queue
                .journal
                .write_meta_changes(vec![MetaChange::CreatePartition(PARTITION)]),
        )
        .expect("founded");
    let publish = |ids: std::ops::Range<u32>| {
        let chunks = sealed_of(ids.map(|id| id.to_string()), 1);
        let asked = queue
            .journal
            .append_new_events(PARTITION, chunks, Some(WINDOW), None)
            .expect("whole");
        queue
            .runtime
            .block_on(asked)
            .expect("there is room")
            .duplicates
    };
    assert_eq!(publish(0..1_000), 0);
    queue.hand.advance(WINDOW / 2);
    assert_eq!(publish(500..1_500), 500);
    queue.hand.advance(WINDOW / 2);
    queue.housekeep();
    store
        .compact_family(Family::PublishedIds)
        .expect("compacted");
    assert_eq!(
        known(&*store),
        500,
        "the ids of the second half of the time are known"
    );
    assert_eq!(publish(0..1_500), 500);
    queue.stop();
}

#[test]
fn times_and_windows_follow_a_clock_that_was_a_year_ahead_and_is_corrected() {
    let store = MemoryStore::new();
    ClockedJournal::founded(&store, true).stop();
    let year = Duration::from_secs(365 * 24 * 3_600);
    let ahead = ClockedJournal::at(Arc::new(store.clone()), START.after(year));
    assert_eq!(ahead.publish(&[1]), 0);
    ahead.stop();
    // Killed at once, and at another start.
    for start in 0..2 {
        let corrected =
            ClockedJournal::at(Arc::new(store.clone()), START.after(WINDOW * 10 * start));
        for _ in 0..3 {
            let now = corrected.clock.now();
            let receipt = corrected.try_publish(&[1, 2]).expect("there is room");
            assert_eq!(
                (receipt.duplicates, receipt.appended),
                (0, now),
                "each window begins anew"
            );
            assert_eq!(corrected.publish(&[1, 2]), 2);
            corrected.hand.advance(WINDOW);
        }
        corrected.stop();
    }
    assert_eq!(log(&store), [1, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]);
}
