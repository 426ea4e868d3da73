//! The limit of a partition's backlog.

use std::{sync::Arc, time::Duration};

use gridhook::{
    clock::Clock,
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{
        BacklogBound, BacklogFullPolicy, BacklogLimits, Error, Journal, JournalOptions, MetaChange,
        Shards, WriterThreads,
    },
    policy::record::{Cursor, LaneCursor, RecordChange, WriteUrgency},
    store::{
        Store,
        rocks::{RocksOptions, RocksStore},
    },
};

use crate::{support::chunks::sealed, support::memory_store::MemoryStore};

const PARTITION: PartitionId = PartitionId(1);
const OTHER: PartitionId = PartitionId(2);
const QUICK: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(1),
};
const SLOW: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(2),
};

/// Slightly more than ten requests of a kilobyte each.
const BOUND: u64 = 10_500;

struct BoundedJournal {
    journal: Journal,
    writer: WriterThreads,
    runtime: tokio::runtime::Runtime,
}

impl BoundedJournal {
    fn start(store: &Arc<dyn Store>, when_full: BacklogFullPolicy) -> Self {
        let limits = BacklogLimits {
            backlog: Some(BacklogBound {
                bytes: BOUND,
                when_full,
            }),
            ..BacklogLimits::default()
        };
        let options = JournalOptions {
            outcome_delay: Duration::ZERO,
            group_bytes: 1 << 20,
            shards: Shards::default(),
            limits,
        };
        let (clock, _) = Clock::new_manual(Timestamp(1_000_000_000));
        let (journal, writer) = Journal::start(
            Arc::clone(store),
            clock,
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
            runtime,
        }
    }

    fn found(&self) {
        let founded = vec![
            MetaChange::CreatePartition(PARTITION),
            MetaChange::CreatePartition(OTHER),
            MetaChange::Subscribe(QUICK, None),
            MetaChange::Subscribe(SLOW, None),
        ];
        self.wait(self.journal.write_meta_changes(founded))
            .expect("founded");
    }

    fn wait<T>(&self, promise: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.runtime.block_on(promise)
    }

    fn publish(&self, partition: PartitionId) -> Result<(), Error> {
        self.wait(
            self.journal
                .append_events(partition, sealed(&[("yes", 1000)]), None),
        )
        .map(drop)
    }

    /// Publishes until a request is refused, at most a hundred times. Returns the number of
    /// accepted requests and the slowest subscription.
    fn fill(&self) -> (usize, SubscriptionId) {
        for taken in 0..100 {
            match self.publish(PARTITION) {
                Ok(()) => {}
                Err(Error::Backlog(laggard)) => return (taken, laggard),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("a hundred requests were taken");
    }

    fn read(&self, subscription_key: SubscriptionKey, read: u64) {
        let owner = self
            .wait(self.journal.open(subscription_key))
            .expect("it is there")
            .owner;
        let lane = LaneCursor::new(Lane::LIVE, Seq(read), None);
        let cursor = RecordChange::Cursor(Box::new(Cursor {
            lanes: vec![lane],
            ..Cursor::default()
        }));
        let (done, response) = std::sync::mpsc::channel();
        let done = Box::new(move |result| done.send(result).expect("the test listens"));
        self.journal
            .write_changes(owner, vec![cursor], WriteUrgency::Now, done);
        response.recv().expect("a response").expect("written");
    }

    fn stop(self) {
        self.journal.close();
        self.writer.join_all();
    }
}

fn check(rule: impl Fn(&Arc<dyn Store>)) {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    rule(&memory);
    let folder = tempfile::tempdir().expect("a folder");
    let rocks: Arc<dyn Store> =
        Arc::new(RocksStore::open(folder.path(), &RocksOptions::default()).expect("a new store"));
    rule(&rocks);
}

#[test]
fn a_part_of_a_spread_topic_has_its_part_of_the_bound() {
    check(|store| {
        let queue = BoundedJournal::start(store, BacklogFullPolicy::Refuse);
        // Before the partition is there, as at the creation of a topic.
        queue.journal.divide_backlog(PARTITION, 4);
        queue.found();
        assert_eq!(queue.fill(), (3, QUICK.subscription), "a quarter");
        queue
            .publish(OTHER)
            .expect("another partition has the whole bound");
        queue.stop();
    });
}

#[test]
fn at_the_bound_one_partition_is_refused_until_its_laggard_has_read_on() {
    check(|store| {
        let queue = BoundedJournal::start(store, BacklogFullPolicy::Refuse);
        queue.found();
        assert_eq!(
            queue.fill(),
            (11, QUICK.subscription),
            "nobody has read anything: the first of them"
        );
        queue.read(QUICK, 12);
        assert_eq!(queue.fill(), (0, SLOW.subscription));
        let crowded = queue
            .journal
            .crowded_partition(PARTITION)
            .expect("it is full");
        assert!(
            crowded.is_full && crowded.laggard == SLOW.subscription && crowded.bytes >= BOUND,
            "{crowded:?}"
        );
        queue.publish(OTHER).expect("its neighbour takes events");
        assert_eq!(queue.journal.crowded_partition(OTHER), None);
        queue.read(SLOW, 4);
        assert_eq!(
            queue.journal.crowded_partition(PARTITION),
            None,
            "as soon as that is durable"
        );
        assert_eq!(queue.fill(), (3, SLOW.subscription));
        queue.stop();
    });
}

#[test]
fn a_bound_holds_after_a_restart_and_a_log_that_all_subscriptions_passed_does_not_count() {
    check(|store| {
        let queue = BoundedJournal::start(store, BacklogFullPolicy::Refuse);
        queue.found();
        for _ in 0..5 {
            let end = Seq(queue.journal.log_end(PARTITION).expect("founded").next.0);
            assert_eq!(queue.fill().0, 11);
            queue.read(QUICK, end.0 + 11);
            queue.read(SLOW, end.0 + 11);
        }
        queue.fill();
        queue.stop();
        let queue = BoundedJournal::start(store, BacklogFullPolicy::Refuse);
        assert_eq!(queue.fill().0, 0, "still full");
        let end = queue.journal.log_end(PARTITION).expect("founded").next.0;
        queue.read(QUICK, end);
        queue.read(SLOW, end - 1);
        assert_eq!(queue.fill(), (10, SLOW.subscription));
        queue.stop();
    });
}

#[test]
fn without_subscriptions_there_is_no_backlog_and_a_deleted_one_holds_up_no_publisher() {
    check(|store| {
        let queue = BoundedJournal::start(store, BacklogFullPolicy::Refuse);
        queue.found();
        for _ in 0..50 {
            queue.publish(OTHER).expect("nobody lags behind");
        }
        queue.fill();
        let gone = [QUICK, SLOW].map(MetaChange::Unsubscribe).to_vec();
        queue
            .wait(queue.journal.write_meta_changes(gone))
            .expect("done");
        assert_eq!(queue.journal.crowded_partition(PARTITION), None);
        queue
            .publish(PARTITION)
            .expect("nobody lags behind any more");
        queue.stop();
    });
}

#[test]
fn with_the_oldest_given_up_the_overflow_is_reported_before_the_bound_and_with_its_end() {
    check(|store| {
        let queue = BoundedJournal::start(store, BacklogFullPolicy::Expire);
        queue.found();
        queue.read(QUICK, 1);
        for _ in 0..9 {
            assert_eq!(queue.journal.crowded_partition(PARTITION), None);
            queue.publish(PARTITION).expect("there is room");
        }
        queue
            .publish(PARTITION)
            .expect("there is room, and the state changes");
        let crowded = queue
            .journal
            .crowded_partition(PARTITION)
            .expect("the state");
        let keep = crowded.keep.expect("the oldest go");
        assert!(!crowded.is_full && keep < crowded.bytes, "{crowded:?}");
        let end = queue.journal.log_end(PARTITION).expect("founded");
        let below = queue
            .wait(queue.journal.reader_pool().last_bytes(PARTITION, end, keep))
            .expect("readable")
            .at;
        assert!((3..=5).contains(&below.0), "{below:?} of {end:?}");
        queue.read(QUICK, below.0);
        queue.read(SLOW, below.0);
        assert_eq!(queue.journal.crowded_partition(PARTITION), None);
        queue.stop();
    });
}
