//! How much of a partition's log may wait for its slowest subscription.

use std::{sync::Arc, time::Duration};

use gridhook::{
    clock::Clock,
    event::{Lane, Obligor, PartitionId, Seq, SubscriptionId, Timestamp},
    journal::{
        Bound, Error, Journal, Limits, MetaChange, Options, Promise, WhenFull, Writer,
        memory::Memory,
        rocks::{Rocks, RocksOptions},
        store::Store,
    },
    policy::record::{Change, Cursor, LaneCursor},
};

use crate::policy::sealed;

const PARTITION: PartitionId = PartitionId(1);
const OTHER: PartitionId = PartitionId(2);
const QUICK: Obligor = Obligor { partition: PARTITION, subscription: SubscriptionId(1) };
const SLOW: Obligor = Obligor { partition: PARTITION, subscription: SubscriptionId(2) };

/// Ten requests of a kilobyte each, and a little.
const BOUND: u64 = 10_500;

struct Desk {
    journal: Journal,
    writer: Writer,
    runtime: tokio::runtime::Runtime,
}

impl Desk {
    fn start(store: &Arc<dyn Store>, when_full: WhenFull) -> Self {
        let limits = Limits { backlog: Some(Bound { bytes: BOUND, when_full }), ..Limits::default() };
        let options = Options { outcome_wait: Duration::ZERO, group_bytes: 1 << 20, limits };
        let (clock, _) = Clock::manual(Timestamp(1_000_000_000));
        let (journal, writer) =
            Journal::start(Arc::clone(store), clock, options, Box::new(|_, _| {}), Box::new(|_| {})).expect("sound");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        Self { journal, writer, runtime }
    }

    fn found(&self) {
        let founded = vec![
            MetaChange::Found(PARTITION),
            MetaChange::Found(OTHER),
            MetaChange::Subscribe(QUICK, None),
            MetaChange::Subscribe(SLOW, None),
        ];
        self.wait(self.journal.change(founded)).expect("founded");
    }

    fn wait<T>(&self, promise: Promise<T>) -> Result<T, Error> {
        self.runtime.block_on(promise)
    }

    fn publish(&self, partition: PartitionId) -> Result<(), Error> {
        self.wait(self.journal.publish(partition, sealed(&[("yes", 1000)]), None)).map(drop)
    }

    /// Publishes until it is refused, at most a hundred times: how many were taken, and who lags.
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

    fn read(&self, obligor: Obligor, read: u64) {
        let owner = self.wait(self.journal.open(obligor)).expect("it is there").owner;
        let lane = LaneCursor { lane: Lane::LIVE, read: Seq(read), end: None, open: Vec::new(), done: Vec::new() };
        let cursor = Change::Cursor(Box::new(Cursor { lanes: vec![lane], ..Cursor::default() }));
        let (done, answer) = std::sync::mpsc::channel();
        let done = Box::new(move |result| done.send(result).expect("the test listens"));
        self.journal.append(owner, vec![cursor], true, done);
        answer.recv().expect("an answer").expect("written");
    }

    fn stop(self) {
        self.journal.close();
        self.writer.join();
    }
}

fn check(rule: impl Fn(&Arc<dyn Store>)) {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    rule(&memory);
    let folder = tempfile::tempdir().expect("a folder");
    let rocks: Arc<dyn Store> = Arc::new(Rocks::open(folder.path(), &RocksOptions::default()).expect("a new store"));
    rule(&rocks);
}

#[test]
fn at_the_bound_one_partition_is_refused_until_its_laggard_has_read_on() {
    check(|store| {
        let desk = Desk::start(store, WhenFull::Refuse);
        desk.found();
        assert_eq!(desk.fill(), (11, QUICK.subscription), "nobody has read anything: the first of them");
        desk.read(QUICK, 12);
        assert_eq!(desk.fill(), (0, SLOW.subscription));
        let crowd = desk.journal.crowd(PARTITION).expect("it is full");
        assert!(crowd.is_full && crowd.laggard == SLOW.subscription && crowd.bytes >= BOUND, "{crowd:?}");
        desk.publish(OTHER).expect("its neighbour takes events");
        assert_eq!(desk.journal.crowd(OTHER), None);
        desk.read(SLOW, 4);
        assert_eq!(desk.journal.crowd(PARTITION), None, "as soon as that is durable");
        assert_eq!(desk.fill(), (3, SLOW.subscription));
        desk.stop();
    });
}

#[test]
fn a_bound_holds_after_a_restart_and_a_log_that_everybody_passed_does_not_count() {
    check(|store| {
        let desk = Desk::start(store, WhenFull::Refuse);
        desk.found();
        for _ in 0..5 {
            let end = Seq(desk.journal.end(PARTITION).expect("founded").next.0);
            assert_eq!(desk.fill().0, 11);
            desk.read(QUICK, end.0 + 11);
            desk.read(SLOW, end.0 + 11);
        }
        desk.fill();
        desk.stop();
        let desk = Desk::start(store, WhenFull::Refuse);
        assert_eq!(desk.fill().0, 0, "still full");
        let end = desk.journal.end(PARTITION).expect("founded").next.0;
        desk.read(QUICK, end);
        desk.read(SLOW, end - 1);
        assert_eq!(desk.fill(), (10, SLOW.subscription));
        desk.stop();
    });
}

#[test]
fn without_subscriptions_there_is_no_backlog_and_one_that_is_deleted_holds_nobody_up() {
    check(|store| {
        let desk = Desk::start(store, WhenFull::Refuse);
        desk.found();
        for _ in 0..50 {
            desk.publish(OTHER).expect("nobody lags behind");
        }
        desk.fill();
        let gone = [QUICK, SLOW].map(MetaChange::Unsubscribe).to_vec();
        desk.wait(desk.journal.change(gone)).expect("done");
        assert_eq!(desk.journal.crowd(PARTITION), None);
        desk.publish(PARTITION).expect("nobody lags behind any more");
        desk.stop();
    });
}

#[test]
fn where_the_oldest_go_it_is_told_before_the_bound_and_up_to_where() {
    check(|store| {
        let desk = Desk::start(store, WhenFull::Expire);
        desk.found();
        desk.read(QUICK, 1);
        for _ in 0..9 {
            assert_eq!(desk.journal.crowd(PARTITION), None);
            desk.publish(PARTITION).expect("there is room");
        }
        desk.publish(PARTITION).expect("there is room, and it is told");
        let crowd = desk.journal.crowd(PARTITION).expect("it is told");
        let keep = crowd.keep.expect("the oldest go");
        assert!(!crowd.is_full && keep < crowd.bytes, "{crowd:?}");
        let end = desk.journal.end(PARTITION).expect("founded");
        let below = desk.wait(desk.journal.reads().last_bytes(PARTITION, end, keep)).expect("readable").at;
        assert!((3..=5).contains(&below.0), "{below:?} of {end:?}");
        desk.read(QUICK, below.0);
        desk.read(SLOW, below.0);
        assert_eq!(desk.journal.crowd(PARTITION), None);
        desk.stop();
    });
}
