//! Shards: placement, order and recovery with several writers of one store, and changes that touch
//! several of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gridhook::{
    clock::{Clock, ManualClock},
    control::registry::{ChangeBasis, Registry},
    event::{PartitionId, Schema, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{
        BacklogLimits, Error, Journal, JournalOptions, JournalState, MetaChange, Shards,
        WriterThreads,
    },
    policy::record::WriteUrgency,
    record::subscription::SubscriptionRecord,
    store::{
        Family, Store,
        keys::{self, MetaKind},
        rocks::{RocksOptions, RocksStore},
    },
};
use proptest::prelude::*;

use super::{keys_in as keys_between, log_in, writer::cursor};
use crate::support::trims::wait_for_looks;
use crate::{
    support::chunks::sealed,
    support::{
        memory_store::{MemoryStore, WriteFault},
        publisher,
        server::wait_for,
    },
};

const SHARDS: u16 = 4;

/// The keys of all records of a family.
fn keys_in(store: &MemoryStore, family: Family) -> Vec<Vec<u8>> {
    let all = keys::full_range();
    keys_between(store, family, &all.start, &all.end)
}

struct ShardedJournal {
    journal: Journal,
    writers: WriterThreads,
    hand: ManualClock,
    runtime: tokio::runtime::Runtime,
}

fn key(partition: u32, subscription: u32) -> SubscriptionKey {
    SubscriptionKey {
        partition: PartitionId(partition),
        subscription: SubscriptionId(subscription),
    }
}

impl ShardedJournal {
    fn start(store: &MemoryStore, shards: u16) -> Self {
        Self::on(Arc::new(store.clone()), shards)
    }

    fn on(store: Arc<dyn Store>, shards: u16) -> Self {
        let (clock, hand) = Clock::new_manual(Timestamp(1_000_000_000));
        let limits = BacklogLimits::default();
        let shards = Shards::new(shards);
        let options = JournalOptions {
            outcome_delay: Duration::ZERO,
            group_bytes: 1 << 20,
            shards,
            limits,
        };
        let (journal, writers) =
            Journal::start(store, clock, options, Box::new(|_, _| {}), Box::new(|_| {}))
                .expect("sound");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        Self {
            journal,
            writers,
            hand,
            runtime,
        }
    }

    /// Partitions 1 to 8, each with a subscription of its number.
    fn found(&self) {
        for partition in 1..=8 {
            let changes = vec![
                MetaChange::CreatePartition(PartitionId(partition)),
                MetaChange::Subscribe(key(partition, partition), None),
                MetaChange::Put(
                    MetaKind::Subscription,
                    format!("topic-{partition}/all"),
                    "{}".into(),
                ),
            ];
            self.wait(self.journal.write_meta_changes(changes))
                .expect("founded");
        }
    }

    fn wait<T>(&self, promise: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.runtime.block_on(promise)
    }

    /// Recovers the registry and does this with it.
    fn recover<T>(&self, change: impl AsyncFnOnce(Arc<Registry>) -> T) -> T {
        actix_rt::System::new().block_on(async {
            let recovered =
                Registry::load_from_journal(self.journal.clone(), publisher::rules(), 1 << 20);
            let (registry, _starts) = recovered.expect("sound");
            change(Arc::new(registry)).await
        })
    }

    fn publish(&self, partition: u32, events: usize) -> Seq {
        let published = self.journal.append_events(
            PartitionId(partition),
            sealed(&vec![("yes", 10); events]),
            None,
        );
        self.wait(published).expect("there is room").first
    }

    fn ends(&self) -> BTreeMap<u32, Option<u64>> {
        (1..=8)
            .map(|id| {
                (
                    id,
                    self.journal.log_end(PartitionId(id)).map(|end| end.next.0),
                )
            })
            .collect()
    }

    /// Lets each writer finish its queue, and run its maintenance.
    fn housekeep(&self) {
        self.hand.advance(Duration::from_secs(2));
        for _ in 0..2 {
            self.wait(self.journal.write_meta_changes(Vec::new()))
                .expect("there is room");
            for partition in 1..=4 {
                // A response says that the writer has processed everything before.
                assert!(self.wait(self.journal.open(key(partition, 99))).is_err());
            }
        }
        wait_for_looks(&self.journal);
    }

    fn stop(self) {
        self.journal.close();
        self.writers.join_all();
    }
}

/// Its partition; none if it is refused.
async fn make_topic(registry: &Arc<Registry>, name: &str) -> Option<PartitionId> {
    let made = registry
        .put_topic(publisher::topic(name, Schema::EventGrid))
        .await;
    made.ok().map(|topic| topic.partition())
}

proptest! {
    #[test]
    fn consecutive_partitions_are_in_different_shards(first in 0_u32..1_000_000, shards in 1_u16..=64) {
        let of = Shards::new(shards);
        let mut found: Vec<u16> = (0..shards).map(|at| of.shard_of(PartitionId(first + u32::from(at)))).collect();
        found.sort_unstable();
        prop_assert_eq!(found, (0..shards).collect::<Vec<_>>());
    }
}

#[test]
fn a_store_is_the_same_for_any_number_of_shards() {
    let store = MemoryStore::new();
    let journal = ShardedJournal::start(&store, SHARDS);
    journal.found();
    for partition in 1..=8 {
        for round in 0..3 {
            assert_eq!(
                journal.publish(partition, 2),
                Seq(Seq::FIRST.0 + 2 * round),
                "each log has its own sequences"
            );
        }
        let owner = journal
            .wait(journal.journal.open(key(partition, partition)))
            .expect("it is there")
            .owner;
        let (done, response) = std::sync::mpsc::channel();
        let read = Seq::FIRST.0 + u64::from(partition % 4);
        let answered = Box::new(move |result| done.send(result).expect("the test listens"));
        journal
            .journal
            .write_changes(owner, vec![cursor(read)], WriteUrgency::Now, answered);
        response.recv().expect("a response").expect("written");
    }
    let ends = journal.ends();
    assert!(
        ends.values().all(|end| *end == Some(Seq::FIRST.0 + 6)),
        "{ends:?}"
    );
    let mut store = store.crash(0);
    drop(journal);
    for shards in [1, 3, SHARDS] {
        let journal = ShardedJournal::start(&store, shards);
        assert_eq!(journal.ends(), ends, "{shards} shards");
        for partition in 1..=8 {
            let opened = journal
                .wait(journal.journal.open(key(partition, partition)))
                .expect("it is there");
            assert_eq!(
                opened.cursor.first_unread(),
                Some(Seq(Seq::FIRST.0 + u64::from(partition % 4))),
                "{shards} shards"
            );
        }
        assert_eq!(journal.journal.writer_state(), JournalState::Writable);
        store = store.crash(0);
    }
}

#[test]
fn a_clean_stop_writes_the_queues_of_all_shards() {
    let store = MemoryStore::new();
    let journal = ShardedJournal::start(&store, SHARDS);
    journal.found();
    let published: Vec<_> = (1..=8)
        .map(|id| {
            journal
                .journal
                .append_events(PartitionId(id), sealed(&[("yes", 10)]), None)
        })
        .collect();
    let ShardedJournal {
        journal,
        writers,
        runtime,
        ..
    } = journal;
    journal.close();
    writers.join_all();
    for published in published {
        runtime
            .block_on(published)
            .expect("it was queued before the end");
    }
    assert_eq!(journal.writer_state(), JournalState::Closed);
}

#[test]
fn a_deleted_subscription_is_removed_by_the_writer_of_its_shard() {
    let store = MemoryStore::new();
    let journal = ShardedJournal::start(&store, SHARDS);
    journal.found();
    for partition in 1..=4 {
        let changes = vec![
            MetaChange::Delete(MetaKind::Subscription, format!("topic-{partition}/all")),
            MetaChange::Unsubscribe(key(partition, partition)),
        ];
        journal
            .wait(journal.journal.write_meta_changes(changes))
            .expect("deleted");
    }
    for _ in 0..3 {
        journal.housekeep();
    }
    let left = keys_in(&store, Family::Cursor);
    assert_eq!(
        left,
        (5..=8)
            .map(|id| keys::cursor(key(id, id)))
            .collect::<Vec<_>>()
    );
    let reaps = keys::reaps_range();
    assert!(
        !keys_in(&store, Family::Meta)
            .iter()
            .any(|key| (&reaps.start..&reaps.end).contains(&key))
    );
    journal.stop();
}

#[test]
fn a_change_that_one_writer_refuses_leaves_nothing_in_other_shards() {
    let store = MemoryStore::new();
    let journal = ShardedJournal::start(&store, SHARDS);
    journal.found();
    let before = keys_in(&store, Family::Cursor);
    // The subscription is written, the record that names it is not.
    let writes = store.writes();
    store.fail(writes + 1..writes + 2, WriteFault::Full);
    let record = MetaChange::Put(
        MetaKind::Subscription,
        "topic-2/more".to_owned(),
        "{}".into(),
    );
    let refused = journal.wait(
        journal
            .journal
            .write_meta_changes(vec![MetaChange::Subscribe(key(2, 9), None), record]),
    );
    assert!(matches!(refused, Err(Error::Full)), "{refused:?}");
    for _ in 0..3 {
        journal.housekeep();
    }
    assert_eq!(keys_in(&store, Family::Cursor), before);
    assert!(
        !keys_in(&store, Family::Meta)
            .contains(&keys::meta_key(MetaKind::Subscription, b"topic-2/more"))
    );
    journal.stop();
}

#[test]
fn a_deletion_is_answered_when_its_part_of_each_shard_is_written() {
    let store = MemoryStore::new();
    let journal = ShardedJournal::start(&store, SHARDS);
    journal.found();
    // The record is deleted, and the cursor waits for space.
    let writes = store.writes();
    store.fail(writes + 1..writes + 2, WriteFault::Full);
    let changes = vec![
        MetaChange::Delete(MetaKind::Subscription, "topic-2/all".to_owned()),
        MetaChange::Unsubscribe(key(2, 2)),
    ];
    journal
        .wait(journal.journal.write_meta_changes(changes))
        .expect("deleted");
    assert!(!keys_in(&store, Family::Cursor).contains(&keys::cursor(key(2, 2))));
    journal.stop();
}

#[test]
fn a_start_deletes_what_an_interrupted_change_has_created() {
    for shards in [SHARDS, 1] {
        let store = MemoryStore::new();
        let journal = ShardedJournal::start(&store, SHARDS);
        assert_eq!(
            journal.recover(async |registry| make_topic(&registry, "orders").await),
            Some(PartitionId(1))
        );
        // The first step of the next change, which ends with a record of the control plane.
        let created = vec![
            MetaChange::CreatePartition(PartitionId(2)),
            MetaChange::Subscribe(key(1, 7), None),
        ];
        journal
            .wait(journal.journal.write_meta_changes(created))
            .expect("created");
        let store = store.crash(0);
        drop(journal);
        let journal = ShardedJournal::start(&store, shards);
        let made = journal.recover(async |registry| make_topic(&registry, "others").await);
        assert_eq!(made, Some(PartitionId(3)), "a number is assigned once");
        journal.housekeep();
        assert_eq!(
            journal.journal.log_end(PartitionId(2)),
            None,
            "{shards} shards"
        );
        assert_eq!(
            keys_in(&store, Family::Cursor),
            Vec::<Vec<u8>>::new(),
            "{shards} shards"
        );
        journal.stop();
    }
}

#[test]
fn a_topic_after_an_interrupted_creation_keeps_its_events() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |test: &dyn Fn(&ShardedJournal, &RocksStore)| {
        let store = Arc::new(
            RocksStore::open(folder.path(), &RocksOptions::default()).expect("a sound store"),
        );
        let journal = ShardedJournal::on(Arc::clone(&store) as Arc<dyn Store>, SHARDS);
        test(&journal, &store);
        journal.stop();
        wait_for("the store to be let go", Duration::from_secs(60), || {
            Arc::strong_count(&store) == 1
        });
    };
    // The first step of a topic's creation, and the end of the process.
    run(&|journal, _| {
        let created = vec![MetaChange::CreatePartition(PartitionId(1))];
        journal
            .wait(journal.journal.write_meta_changes(created))
            .expect("created");
    });
    run(&|journal, _| journal.recover(async |_| ()));
    run(&|journal, store| {
        let made = journal.recover(async |registry| make_topic(&registry, "orders").await);
        let PartitionId(partition) = made.expect("a topic");
        for request in 0..3 {
            assert_eq!(
                journal.publish(partition, 10),
                Seq(Seq::FIRST.0 + 10 * request)
            );
        }
        let published = log_in(store, partition);
        assert_eq!(published.len(), 3);
        store.compact_log().expect("compacted");
        assert_eq!(log_in(store, partition), published);
    });
}

#[test]
fn a_number_of_a_refused_topic_is_not_assigned_again() {
    let store = MemoryStore::new();
    let journal = ShardedJournal::start(&store, SHARDS);
    // The partition is written, the record that names it is not.
    let writes = store.writes();
    store.fail(writes + 1..writes + 2, WriteFault::Full);
    assert_eq!(
        journal.recover(async |registry| make_topic(&registry, "orders").await),
        None
    );
    journal.housekeep();
    assert_eq!(journal.journal.log_end(PartitionId(1)), None);
    let store = store.crash(0);
    drop(journal);
    let journal = ShardedJournal::start(&store, SHARDS);
    assert_eq!(
        journal.recover(async |registry| make_topic(&registry, "orders").await),
        Some(PartitionId(2))
    );
    journal.stop();
}

#[test]
fn a_number_of_a_subscription_that_is_being_removed_is_not_assigned_again() {
    let store = MemoryStore::new();
    let journal = ShardedJournal::start(&store, SHARDS);
    journal
        .recover(async |registry| make_topic(&registry, "orders").await)
        .expect("a topic");
    // The first step of a subscription's creation.
    journal
        .wait(
            journal
                .journal
                .write_meta_changes(vec![MetaChange::Subscribe(key(1, 1), None)]),
        )
        .expect("created");
    let store = store.crash(0);
    drop(journal);
    let journal = ShardedJournal::start(&store, SHARDS);
    journal.recover(async |_| ());
    assert!(
        journal.wait(journal.journal.open(key(1, 1))).is_err(),
        "it was deleted before this answer"
    );
    let store = store.crash(0);
    drop(journal);
    assert!(keys_in(&store, Family::Meta).contains(&keys::reap_key(key(1, 1))));
    let journal = ShardedJournal::start(&store, SHARDS);
    let record = serde_json::json!({
        "number": 0, "version": 0, "name": "audit", "filter": {}, "delivery_schema": "EventGridSchema", "dead_letter": null,
        "webhook": {
            "endpoint_url": "http://127.0.0.1:9/", "max_events_per_batch": 1, "preferred_batch_size_in_kilobytes": 64,
        },
        "retry": {"max_delivery_attempts": 1, "event_time_to_live_in_minutes": 60}, "labels": [],
    });
    let record: SubscriptionRecord = serde_json::from_value(record).expect("a record");
    let made = journal.recover(async |registry| {
        registry
            .put_subscription("orders", record, ChangeBasis::Any)
            .await
            .expect("a subscription")
            .number
    });
    assert_eq!(made, SubscriptionId(2));
    journal.stop();
}
