//! Id filters: an existing id is always found, and few blocks are read unnecessarily.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::BufMut;
use gridhook::{
    clock::Clock,
    event::{
        EventRanges, Lane, PartitionId, Schema, Seq, SubscriptionId, SubscriptionKey, TextRange,
        Timestamp,
        chunk::{ChunkBuilder, EncodedEvent, SealedChunk},
    },
    journal::{BacklogLimits, Error, Journal, JournalOptions, MetaChange, Shards, WriterThreads},
    policy::record::{Cursor, LaneCursor, RecordChange, WriteUrgency},
    repair::fsck,
    storage::record_decoders,
    store::{Family, Store, id_filter::IdFilter, keys},
};
use proptest::prelude::*;

use super::keys_in;
use crate::support::{
    memory_store::{MemoryStore, WriteFault},
    read_log::RecordedStore,
};

const PARTITION: PartitionId = PartitionId(1);
const ONE: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(1),
};
const BLOCK: u64 = 4096;

struct FilteringJournal {
    journal: Journal,
    writer: WriterThreads,
    hand: gridhook::clock::ManualClock,
    runtime: tokio::runtime::Runtime,
}

impl FilteringJournal {
    fn at(store: &MemoryStore) -> Self {
        Self::at_store(Arc::new(store.clone()))
    }

    fn at_store(store: Arc<dyn Store>) -> Self {
        let (clock, hand) = Clock::new_manual(Timestamp(1_000_000_000));
        let options = JournalOptions {
            outcome_delay: Duration::ZERO,
            group_bytes: 1 << 20,
            shards: Shards::default(),
            limits: BacklogLimits::default(),
        };
        let (journal, writer) =
            Journal::start(store, clock, options, Box::new(|_, _| {}), Box::new(|_| {}))
                .expect("sound");
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

    fn founded(store: &MemoryStore) -> Self {
        let queue = Self::at(store);
        let founded = vec![
            MetaChange::CreatePartition(PARTITION),
            MetaChange::Subscribe(ONE, None),
        ];
        queue
            .runtime
            .block_on(queue.journal.write_meta_changes(founded))
            .expect("founded");
        queue
    }

    fn publish(&self, ids: &[String]) -> Result<(), Error> {
        self.runtime
            .block_on(self.journal.append_events(PARTITION, sealed(ids), None))
            .map(|_| ())
    }

    /// Waits until the filters of blocks that ended are written.
    fn complete_filters(&self) {
        for _ in 0..2 {
            self.runtime
                .block_on(self.journal.write_meta_changes(Vec::new()))
                .expect("there is room");
        }
        crate::support::trims::wait_for_looks(&self.journal);
    }

    /// Searches for an id, in as many calls as needed.
    fn find(&self, id: &str, from: u64) -> Vec<u64> {
        let end = self.journal.log_end(PARTITION).expect("it is there").next;
        let mut from = Seq(from);
        let mut seqs = Vec::new();
        while from < end {
            let look = self
                .journal
                .reader_pool()
                .find_id(PARTITION, id.to_owned(), from, end);
            let found = self.runtime.block_on(look).expect("readable");
            assert!(found.upto > from, "it gets on");
            seqs.extend(found.seqs.into_iter().map(|seq| seq.0));
            from = found.upto;
        }
        seqs
    }

    fn stop(self) {
        self.journal.close();
        self.writer.join_all();
    }
}

/// Events with these ids, which need no escapes in JSON.
fn sealed(ids: &[String]) -> Vec<SealedChunk> {
    let mut draft = ChunkBuilder::new(Schema::EventGrid);
    for id in ids {
        draft.push(|out| {
            let start = out.len() as u32;
            out.put_slice(id.as_bytes());
            out.put_bytes(b'.', 20);
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

fn ids_of(store: &MemoryStore) -> Vec<u64> {
    let range = keys::family_range(Family::Ids);
    let keys = keys_in(store, Family::Ids, &range.start, &range.end);
    keys.iter()
        .map(|key| keys::parse_ids(key).expect("a key").1)
        .collect()
}

proptest! {
    #[test]
    fn an_id_that_was_added_is_never_missed(ids in prop::collection::hash_set(".{0,40}", 1..400)) {
        let mut filter = IdFilter::default();
        ids.iter().for_each(|id| filter.insert(id));
        let filter = IdFilter::decode(&filter.encode()).expect("as it was written");
        for id in &ids {
            prop_assert!(filter.may_have(id), "{id:?} is missed");
        }
    }

    #[test]
    fn bytes_that_are_no_filter_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(IdFilter::decode(&bytes).is_none());
    }
}

#[test]
fn a_full_block_takes_few_others_for_its_own_and_each_block_takes_others() {
    let taken: Vec<Vec<u32>> = (0..4)
        .map(|_| {
            let mut filter = IdFilter::default();
            (0..BLOCK).for_each(|number| filter.insert(&format!("mine-{number}")));
            (0..100_000)
                .filter(|number| filter.may_have(&format!("other-{number}")))
                .collect()
        })
        .collect();
    for taken in &taken {
        // One in 1,700 is expected: 57, plus or minus 8.
        assert!(
            (20..120).contains(&taken.len()),
            "{} of 100,000 are taken for others",
            taken.len()
        );
    }
    // Ids that collide in one block do not collide in another one.
    let again = taken[0]
        .iter()
        .filter(|number| taken[1].contains(number))
        .count();
    assert!(again < 5, "{again} of {} collide twice", taken[0].len());
}

#[test]
fn the_thread_that_syncs_does_not_read_the_log_for_a_block_that_was_open_at_the_start() {
    let store = MemoryStore::new();
    let queue = FilteringJournal::founded(&store);
    let ids: Vec<String> = (0..2 * BLOCK).map(|id| format!("id-{id}")).collect();
    let (before, after) = ids.split_at(BLOCK as usize - 100);
    queue.publish(before).expect("there is room");
    queue.stop();
    let recorded = RecordedStore::new(&store);
    let queue = FilteringJournal::at_store(Arc::new(recorded.clone()));
    queue.publish(after).expect("there is room");
    queue.complete_filters();
    assert_eq!(ids_of(&store), [0, 1]);
    let threads: BTreeSet<String> = recorded.take_threads(&[Family::Log]).into_iter().collect();
    assert!(
        !threads.contains("journal") && threads.contains("journal-trim"),
        "{threads:?}"
    );
    assert_eq!(queue.find(&ids[7], 1), [8]);
    // A writer that stops completes what it has begun.
    queue.stop();
    let report = fsck::check_store(&store, record_decoders(), &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
    .expect("readable");
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn every_event_is_found_by_its_id_after_restarts_crashes_and_a_full_disk() {
    let mut store = MemoryStore::new();
    let mut queue = FilteringJournal::founded(&store);
    let mut published: Vec<String> = Vec::new();
    let mut next = 0;
    for round in 0u64..60 {
        // Chunks that cross the ends of blocks, with one event or many.
        let count = [1, 700, 37, 299][round as usize % 4];
        let ids: Vec<String> = (0..count)
            .map(|_| {
                next += 1;
                format!("id-\\\"{next}")
            })
            .collect();
        if round % 7 == 3 {
            let writes = store.writes();
            store.fail(writes..writes + 1, WriteFault::Full);
            assert!(
                matches!(queue.publish(&ids), Err(Error::Full)),
                "and so these are not there"
            );
        } else {
            queue.publish(&ids).expect("there is room");
            published.extend(ids);
        }
        queue.complete_filters();
        match round % 10 {
            4 => {
                queue.stop();
                queue = FilteringJournal::at(&store);
            }
            8 => {
                let crashed = store.crash(0);
                queue.stop();
                store = crashed;
                queue = FilteringJournal::at(&store);
            }
            _ => {}
        }
    }
    assert!(published.len() as u64 > 3 * BLOCK);
    let closed = (published.len() as u64 + 1) / BLOCK;
    assert_eq!(
        ids_of(&store),
        (0..closed).collect::<Vec<_>>(),
        "every closed block has its filter"
    );
    for (index, id) in published.iter().enumerate().step_by(97) {
        let plain = id.replace('\\', "");
        assert_eq!(queue.find(&plain, 1), [index as u64 + 1], "{plain}");
    }
    assert!(queue.find("id-nobody", 1).is_empty());
    let report = fsck::check_store(&store, record_decoders(), &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
    .expect("readable");
    assert!(report.findings.is_empty(), "{report}");
    queue
        .publish(&[published[5].clone(), published[5].clone()])
        .expect("there is room");
    let end = published.len() as u64;
    assert_eq!(
        queue.find(&published[5].replace('\\', ""), 1),
        [6, end + 1, end + 2],
        "an id may come again"
    );

    // A filter is removed when the floor has passed its block.
    let opened = queue
        .runtime
        .block_on(queue.journal.open(ONE))
        .expect("it is there");
    let lane = LaneCursor::new(Lane::LIVE, Seq(2 * BLOCK), None);
    let cursor = RecordChange::Cursor(Box::new(Cursor {
        lanes: vec![lane],
        ..Cursor::default()
    }));
    let (done, response) = std::sync::mpsc::channel();
    let done = Box::new(move |result| done.send(result).expect("the test listens"));
    queue
        .journal
        .write_changes(opened.owner, vec![cursor], WriteUrgency::Now, done);
    response.recv().expect("answered").expect("written");
    queue.hand.advance(Duration::from_secs(2));
    queue.publish(&["last".to_owned()]).expect("there is room");
    queue
        .publish(&["very last".to_owned()])
        .expect("there is room");
    crate::support::trims::wait_for_looks(&queue.journal);
    assert_eq!(ids_of(&store), (2..closed).collect::<Vec<_>>());
    queue.stop();
    super::put(
        &store,
        Family::Ids,
        keys::ids(PARTITION, 2),
        IdFilter::default().encode(),
    );
    let reported = fsck::check_store(&store, record_decoders(), &mut |_| {
        std::ops::ControlFlow::Continue(())
    })
    .expect("readable")
    .to_string();
    assert!(
        reported.contains("the id of event 8192 is missing in the filter of its block"),
        "{reported}"
    );
}
