//! A shard that follows the control plane of its cluster.

use std::sync::Arc;

use gridhook::{
    control::{
        definitions::Definitions,
        registry::{ChangeBasis, Registry, ShardTopics},
    },
    event::Schema,
    record::{subscription::SubscriptionRecord, topic::TopicRecord},
    store::{
        Batch, Family, Store as _,
        keys::{self, MetaKind},
        records::{AppliedPosition, StoredRecord as _},
    },
};

use serde_json::json;

use super::subscription::{take, webhook};
use crate::support::{
    memory_store::MemoryStore,
    publisher::{self, running_registry},
};

/// The number of shards.
const SHARDS: usize = 2;

/// The control plane and a shard, each with a store.
struct Followed {
    control_store: MemoryStore,
    control: Arc<Registry>,
    shard: Arc<Registry>,
}

/// An event subscription `to-shop`.
fn subscription() -> SubscriptionRecord {
    let body = webhook(json!({"endpointUrl": "http://127.0.0.1:9/hook"}));
    take(Schema::EventGrid, &body).expect("a sound body")
}

/// A name is in the shard that its last character says.
fn shard_of(name: &str, shards: usize) -> usize {
    let last = name.chars().last().and_then(|last| last.to_digit(10));
    last.expect("a digit") as usize % shards
}

fn topics_of(shard: usize, cluster: &str) -> ShardTopics {
    ShardTopics {
        cluster: cluster.into(),
        own: shard,
        shards: SHARDS,
        shard_of,
    }
}

impl Followed {
    fn new() -> Self {
        let control_store = MemoryStore::default();
        let (control, ..) = running_registry(&control_store);
        let (shard, ..) = running_registry(&MemoryStore::default());
        Self {
            control_store,
            control,
            shard,
        }
    }

    /// The definitions of the control plane at a position.
    fn definitions(&self, position: u64) -> Arc<Definitions> {
        let applied = AppliedPosition {
            sequence: position,
            ..AppliedPosition::default()
        };
        let mut batch = Batch::default();
        let key = keys::meta_key(MetaKind::Applied, b"");
        batch.put(Family::Meta, key, applied.encode());
        self.control_store.write(&batch).expect("a store");
        let read = Definitions::read_store(&self.control_store, &Definitions::default());
        Arc::new(read.expect("readable records"))
    }

    /// Shard 1 follows these. Returns whether they are as new as those before.
    async fn follow(&self, definitions: &Arc<Definitions>, cluster: &str) -> bool {
        let followed = self
            .shard
            .follow_definitions(Arc::clone(definitions), topics_of(1, cluster));
        followed.await.expect("it follows")
    }

    fn names(&self) -> Vec<String> {
        let topics = self.shard.list_topics();
        topics.iter().map(|topic| topic.record().key()).collect()
    }
}

#[test]
fn a_shard_has_its_topics_and_a_part_of_each_spread_one_as_the_control_plane_has_them() {
    actix_rt::System::new().block_on(async {
        let followed = Followed::new();
        for name in ["a0", "b1"] {
            let topic = publisher::topic(name, Schema::EventGrid);
            followed.control.put_topic(topic).await.expect("a topic");
        }
        let spread = TopicRecord {
            partition_count: SHARDS as u32,
            ..publisher::topic("c0", Schema::EventGrid)
        };
        followed.control.put_topic(spread).await.expect("a topic");
        let put = followed
            .control
            .put_subscription("b1", subscription(), ChangeBasis::Any);
        let record = put.await.expect("an event subscription");
        assert!(followed.follow(&followed.definitions(5), "x").await);
        assert_eq!(followed.names(), ["b1", "c0"]);
        let copy = |name: &str| followed.shard.find_topic(name).expect("a topic");
        let original = |name: &str| followed.control.find_topic(name).expect("a topic");
        assert_eq!(copy("c0").partition(), original("c0").partition());
        let known = copy("b1")
            .find_subscription("to-shop")
            .expect("it is there");
        assert_eq!(
            (known.number, known.version),
            (record.number, record.version)
        );
        followed.control.delete_topic("b1").await.expect("deleted");
        assert!(followed.follow(&followed.definitions(6), "x").await);
        assert_eq!(followed.names(), ["c0"]);
    });
}

#[test]
fn definitions_that_are_older_than_those_before_delete_nothing() {
    actix_rt::System::new().block_on(async {
        let followed = Followed::new();
        let lagging = followed.definitions(5);
        let topic = publisher::topic("b1", Schema::EventGrid);
        followed.control.put_topic(topic).await.expect("a topic");
        assert!(followed.follow(&followed.definitions(9), "x").await);
        assert!(!followed.follow(&lagging, "x").await);
        assert_eq!(followed.names(), ["b1"]);
        // The positions of another cluster are others: its control plane was restored.
        let restored = Followed::new();
        let topic = publisher::topic("c1", Schema::EventGrid);
        restored.control.put_topic(topic).await.expect("a topic");
        assert!(followed.follow(&restored.definitions(3), "y").await);
        assert_eq!(followed.names(), ["c1"]);
    });
}

#[test]
fn a_restored_shard_deletes_nothing_because_the_control_plane_was_not_restored() {
    actix_rt::System::new().block_on(async {
        let followed = Followed::new();
        let empty = followed.definitions(5);
        let topic = publisher::topic("b1", Schema::EventGrid);
        followed.control.put_topic(topic).await.expect("a topic");
        assert!(followed.follow(&followed.definitions(9), "x").await);
        let refused = followed.shard.follow_definitions(empty, topics_of(1, "y"));
        let error = refused.await.expect_err("it is refused").to_string();
        assert!(error.contains("restore the control plane"), "{error}");
        assert_eq!(followed.names(), ["b1"]);
    });
}

#[test]
fn what_was_deleted_and_created_again_begins_again() {
    actix_rt::System::new().block_on(async {
        let followed = Followed::new();
        let put = || async {
            let topic = publisher::topic("b1", Schema::EventGrid);
            followed.control.put_topic(topic).await.expect("a topic");
            let put = followed
                .control
                .put_subscription("b1", subscription(), ChangeBasis::Any);
            put.await.expect("an event subscription").number
        };
        let first = put().await;
        assert!(followed.follow(&followed.definitions(5), "x").await);
        let partition = || {
            followed
                .shard
                .find_topic("b1")
                .expect("a topic")
                .partition()
        };
        let before = partition();
        followed.control.delete_topic("b1").await.expect("deleted");
        let second = put().await;
        assert_ne!(first, second);
        assert!(followed.follow(&followed.definitions(9), "x").await);
        assert_ne!(partition(), before);
        let topic = followed.shard.find_topic("b1").expect("a topic");
        let record = topic.find_subscription("to-shop").expect("it is there");
        assert_eq!(record.number, second);
    });
}

#[test]
fn a_control_plane_that_goes_on_with_a_restored_store_assigns_no_number_again() {
    actix_rt::System::new().block_on(async {
        let followed = Followed::new();
        let put = |name: &'static str| async {
            let topic = publisher::topic(name, Schema::EventGrid);
            let topic = followed.control.put_topic(topic).await.expect("a topic");
            topic.partition().0
        };
        followed.control.note_cluster("x").await.expect("stored");
        let first = put("a0").await;
        assert_eq!(put("b1").await, first + 1);
        followed.control.note_cluster("x").await.expect("stored");
        assert_eq!(put("c0").await, first + 2);
        // The store may lack what was assigned after its backup.
        followed.control.note_cluster("y").await.expect("stored");
        assert!(put("d1").await > first + 1_000);
    });
}

#[test]
fn a_shard_with_topics_of_its_own_deletes_none_for_an_empty_control_plane() {
    actix_rt::System::new().block_on(async {
        let followed = Followed::new();
        let topic = publisher::topic("b1", Schema::EventGrid);
        followed.shard.put_topic(topic).await.expect("a topic");
        let refused = followed
            .shard
            .follow_definitions(followed.definitions(5), topics_of(1, "x"));
        let error = refused.await.expect_err("it is refused").to_string();
        assert!(error.contains("nothing was changed"), "{error}");
        assert_eq!(followed.names(), ["b1"]);
    });
}
