//! Shards: placement, order and recovery with several writers of one store, and changes that touch several of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gridhook::{
    clock::{Clock, ManualClock},
    control::registry::Registry,
    event::{PartitionId, Schema, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{BacklogLimits, Error, Journal, JournalOptions, JournalState, MetaChange, Shards, WriterThreads},
    store::{
        Family, Store,
        keys::{self, MetaKind},
    },
};
use proptest::prelude::*;

use super::{
    keys_in as keys_between,
    writer::{cursor, wait_for_looks},
};
use crate::{
    policy::sealed,
    support::{
        memory_store::{MemoryStore, WriteFault},
        publisher,
    },
};

const SHARDS: u16 = 4;

/// The keys of all records of a family.
fn keys_in(store: &MemoryStore, family: Family) -> Vec<Vec<u8>> {
    let all = keys::everything();
    keys_between(store, family, &all.start, &all.end)
}

struct Fixture {
    journal: Journal,
    writers: WriterThreads,
    hand: ManualClock,
    runtime: tokio::runtime::Runtime,
}

fn key(partition: u32, subscription: u32) -> SubscriptionKey {
    SubscriptionKey { partition: PartitionId(partition), subscription: SubscriptionId(subscription) }
}

impl Fixture {
    fn start(store: &MemoryStore, shards: u16) -> Self {
        let (clock, hand) = Clock::manual(Timestamp(1_000_000_000));
        let (limits, shards) = (BacklogLimits::default(), Shards::new(shards));
        let options = JournalOptions { outcome_wait: Duration::ZERO, group_bytes: 1 << 20, shards, limits };
        let store: Arc<dyn Store> = Arc::new(store.clone());
        let (journal, writers) =
            Journal::start(store, clock, options, Box::new(|_, _| {}), Box::new(|_| {})).expect("sound");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        Self { journal, writers, hand, runtime }
    }

    /// Partitions 1 to 8, each with a subscription of its number.
    fn found(&self) {
        for partition in 1..=8 {
            let changes = vec![
                MetaChange::CreatePartition(PartitionId(partition)),
                MetaChange::Subscribe(key(partition, partition), None),
                MetaChange::Put(MetaKind::Subscription, format!("topic-{partition}/all"), "{}".into()),
            ];
            self.wait(self.journal.change(changes)).expect("founded");
        }
    }

    fn wait<T>(&self, promise: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.runtime.block_on(promise)
    }

    fn publish(&self, partition: u32, events: usize) -> Seq {
        let published = self.journal.publish(PartitionId(partition), sealed(&vec![("yes", 10); events]), None);
        self.wait(published).expect("there is room").first
    }

    fn ends(&self) -> BTreeMap<u32, Option<u64>> {
        (1..=8).map(|id| (id, self.journal.end(PartitionId(id)).map(|end| end.next.0))).collect()
    }

    /// Lets each writer finish what is queued, and run its maintenance.
    fn housekeep(&self) {
        self.hand.advance(Duration::from_secs(2));
        for _ in 0..2 {
            self.wait(self.journal.change(Vec::new())).expect("there is room");
            for partition in 1..=4 {
                // An answer says that the writer has processed everything before.
                assert!(self.wait(self.journal.open(key(partition, 99))).is_err());
            }
        }
        wait_for_looks(&self.journal);
    }

    fn stop(self) {
        self.journal.close();
        self.writers.join();
    }
}

proptest! {
    #[test]
    fn consecutive_partitions_are_in_different_shards(first in 0_u32..1_000_000, shards in 1_u16..=64) {
        let of = Shards::new(shards);
        let mut found: Vec<u16> = (0..shards).map(|at| of.of(PartitionId(first + u32::from(at)))).collect();
        found.sort_unstable();
        prop_assert_eq!(found, (0..shards).collect::<Vec<_>>());
    }
}

#[test]
fn a_store_is_the_same_for_any_number_of_shards() {
    let store = MemoryStore::new();
    let journal = Fixture::start(&store, SHARDS);
    journal.found();
    for partition in 1..=8 {
        for round in 0..3 {
            assert_eq!(journal.publish(partition, 2), Seq(Seq::FIRST.0 + 2 * round), "each log has its own sequences");
        }
        let owner = journal.wait(journal.journal.open(key(partition, partition))).expect("it is there").owner;
        let (done, answer) = std::sync::mpsc::channel();
        let read = Seq::FIRST.0 + u64::from(partition % 4);
        let answered = Box::new(move |result| done.send(result).expect("the test listens"));
        journal.journal.append(owner, vec![cursor(read)], true, answered);
        answer.recv().expect("an answer").expect("written");
    }
    let ends = journal.ends();
    assert!(ends.values().all(|end| *end == Some(Seq::FIRST.0 + 6)), "{ends:?}");
    let mut store = store.crash(0);
    drop(journal);
    for shards in [1, 3, SHARDS] {
        let journal = Fixture::start(&store, shards);
        assert_eq!(journal.ends(), ends, "{shards} shards");
        for partition in 1..=8 {
            let opened = journal.wait(journal.journal.open(key(partition, partition))).expect("it is there");
            assert_eq!(opened.cursor.low(), Some(Seq(Seq::FIRST.0 + u64::from(partition % 4))), "{shards} shards");
        }
        assert_eq!(journal.journal.state(), JournalState::Writable);
        store = store.crash(0);
    }
}

#[test]
fn a_clean_stop_writes_the_queues_of_all_shards() {
    let store = MemoryStore::new();
    let journal = Fixture::start(&store, SHARDS);
    journal.found();
    let published: Vec<_> =
        (1..=8).map(|id| journal.journal.publish(PartitionId(id), sealed(&[("yes", 10)]), None)).collect();
    let Fixture { journal, writers, runtime, .. } = journal;
    journal.close();
    writers.join();
    for published in published {
        runtime.block_on(published).expect("it was queued before the end");
    }
    assert_eq!(journal.state(), JournalState::Closed);
}

#[test]
fn a_deleted_subscription_is_removed_by_the_writer_of_its_shard() {
    let store = MemoryStore::new();
    let journal = Fixture::start(&store, SHARDS);
    journal.found();
    for partition in 1..=4 {
        let changes = vec![
            MetaChange::Delete(MetaKind::Subscription, format!("topic-{partition}/all")),
            MetaChange::Unsubscribe(key(partition, partition)),
        ];
        journal.wait(journal.journal.change(changes)).expect("deleted");
    }
    for _ in 0..3 {
        journal.housekeep();
    }
    let left = keys_in(&store, Family::Cursor);
    assert_eq!(left, (5..=8).map(|id| keys::cursor(key(id, id))).collect::<Vec<_>>());
    let reaps = keys::reaps();
    assert!(!keys_in(&store, Family::Meta).iter().any(|key| (&reaps.start..&reaps.end).contains(&key)));
    journal.stop();
}

#[test]
fn a_change_that_one_writer_refuses_leaves_nothing_in_other_shards() {
    let store = MemoryStore::new();
    let journal = Fixture::start(&store, SHARDS);
    journal.found();
    let before = keys_in(&store, Family::Cursor);
    // The subscription is written, the record that names it is not.
    let writes = store.writes();
    store.fail(writes + 1..writes + 2, WriteFault::Full);
    let record = MetaChange::Put(MetaKind::Subscription, "topic-2/more".to_owned(), "{}".into());
    let refused = journal.wait(journal.journal.change(vec![MetaChange::Subscribe(key(2, 9), None), record]));
    assert!(matches!(refused, Err(Error::Full)), "{refused:?}");
    for _ in 0..3 {
        journal.housekeep();
    }
    assert_eq!(keys_in(&store, Family::Cursor), before);
    assert!(!keys_in(&store, Family::Meta).contains(&keys::meta(MetaKind::Subscription, b"topic-2/more")));
    journal.stop();
}

#[test]
fn what_completes_a_change_waits_for_space() {
    let store = MemoryStore::new();
    let journal = Fixture::start(&store, SHARDS);
    journal.found();
    let writes = store.writes();
    store.fail(writes + 1..writes + 2, WriteFault::Full);
    let changes =
        vec![MetaChange::Delete(MetaKind::Subscription, "topic-2/all".to_owned()), MetaChange::Unsubscribe(key(2, 2))];
    journal.wait(journal.journal.change(changes)).expect("the record is deleted");
    let deadline = Clock::system().now().after(Duration::from_secs(30));
    while keys_in(&store, Family::Cursor).contains(&keys::cursor(key(2, 2))) {
        assert!(Clock::system().now() < deadline, "the cursor stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    journal.stop();
}

#[test]
fn a_start_deletes_what_an_interrupted_change_has_created() {
    let store = MemoryStore::new();
    let journal = Fixture::start(&store, SHARDS);
    let system = actix_rt::System::new();
    system.block_on(async {
        let (registry, _starts) =
            Registry::recover(journal.journal.clone(), publisher::rules(), 1 << 20).expect("empty");
        let made = Arc::new(registry).put_topic(publisher::topic("orders", Schema::EventGrid)).await;
        assert_eq!(made.expect("a topic").partition(), PartitionId(1));
    });
    // The first step of the next change, which ends with a record of the control plane.
    let created = vec![MetaChange::CreatePartition(PartitionId(2)), MetaChange::Subscribe(key(1, 7), None)];
    journal.wait(journal.journal.change(created)).expect("created");
    let store = store.crash(0);
    drop(journal);
    let journal = Fixture::start(&store, SHARDS);
    system.block_on(async {
        let (registry, _starts) =
            Registry::recover(journal.journal.clone(), publisher::rules(), 1 << 20).expect("sound");
        let made = Arc::new(registry).put_topic(publisher::topic("others", Schema::EventGrid)).await;
        assert_eq!(made.expect("a topic").partition(), PartitionId(3), "a number is assigned once");
    });
    journal.housekeep();
    assert_eq!(journal.journal.end(PartitionId(2)), None);
    assert_eq!(keys_in(&store, Family::Cursor), Vec::<Vec<u8>>::new());
    journal.stop();
}
