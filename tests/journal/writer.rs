//! The writer: groups, order of responses, fencing, failures, trimming, and recovery.

mod replicated;

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use gridhook::{
    clock::{Clock, ManualClock},
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{
        BacklogLimits, DeadLetterKey, DeadLetterWrite, Error, Journal, JournalOptions,
        JournalState, MetaChange, OpenedSubscription, PendingResult, PublishReceipt, Shards,
        SubscriptionOwner, WriterThreads,
    },
    policy::{
        outcome::{Failure, Reason},
        record::{
            Cursor, DeadLetterRecord, LaneCursor, LedgerEvent, PendingDelivery, RecordChange,
            WriteUrgency,
        },
    },
    store::{
        Family, Store,
        keys::{self, MetaKind},
        records::ledger_lines,
        rocks::{RocksOptions, RocksStore},
    },
};
use parking_lot::Mutex;

use super::{keys_in, log_in};
use crate::support::trims::wait_for_looks;
use crate::{
    support::chunks::sealed,
    support::memory_store::{MemoryStore, WriteFault},
    support::read_log::RecordedStore,
};

pub(super) const PARTITION: PartitionId = PartitionId(1);
pub(super) const ONE: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(1),
};
pub(super) const TWO: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(2),
};
pub(super) const START: Timestamp = Timestamp(1_000_000_000);
pub(super) const DUE: Timestamp = Timestamp(2_000_000_000);

/// A journal with its store, clock and listener.
pub(super) struct ListenedJournal {
    pub(super) journal: Journal,
    writer: WriterThreads,
    pub(super) hand: ManualClock,
    clock: Clock,
    runtime: tokio::runtime::Runtime,
    /// The first sequence of each chunk that the listener received.
    received: Arc<Mutex<Vec<u64>>>,
    fatal: Arc<AtomicU32>,
}

impl ListenedJournal {
    pub(super) fn at(store: Arc<dyn Store>, outcome_delay: Duration) -> Self {
        let (clock, hand) = Clock::new_manual(START);
        let options = JournalOptions {
            outcome_delay,
            group_bytes: 1 << 20,
            shards: Shards::default(),
            limits: BacklogLimits::default(),
        };
        let received = Arc::new(Mutex::new(Vec::new()));
        let fatal = Arc::new(AtomicU32::new(0));
        let listener = {
            let received = Arc::clone(&received);
            Box::new(move |_, chunks: Vec<gridhook::event::chunk::Chunk>| {
                received
                    .lock()
                    .extend(chunks.iter().map(|chunk| chunk.first.0));
            })
        };
        let on_fatal = {
            let fatal = Arc::clone(&fatal);
            Box::new(move |_: &_| {
                fatal.fetch_add(1, Ordering::SeqCst);
            })
        };
        let (journal, writer) = Journal::start(
            replicated::layered(store),
            clock.clone(),
            options,
            listener,
            on_fatal,
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
            received,
            fatal,
        }
    }

    /// Creates a partition and two subscriptions.
    fn founded(store: &MemoryStore) -> Self {
        let queue = Self::at(Arc::new(store.clone()), Duration::ZERO);
        queue.found();
        queue
    }

    pub(super) fn found(&self) {
        let founded = vec![
            MetaChange::CreatePartition(PARTITION),
            MetaChange::Subscribe(ONE, None),
            MetaChange::Subscribe(TWO, None),
        ];
        self.wait(self.journal.write_meta_changes(founded))
            .expect("founded");
    }

    pub(super) fn wait<T>(
        &self,
        promise: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.runtime.block_on(promise)
    }

    fn ask_publish(&self, events: usize) -> PendingResult<PublishReceipt> {
        self.journal
            .append_events(PARTITION, sealed(&vec![("yes", 10); events]), None)
    }

    pub(super) fn publish(&self, events: usize) -> Seq {
        self.wait(self.ask_publish(events))
            .expect("there is room")
            .first
    }

    pub(super) fn open(&self, subscription_key: SubscriptionKey) -> OpenedSubscription {
        self.wait(self.journal.open(subscription_key))
            .expect("it is there")
    }

    pub(super) fn append(
        &self,
        owner: SubscriptionOwner,
        changes: Vec<RecordChange>,
        urgent: bool,
    ) -> mpsc::Receiver<Result<(), Error>> {
        self.append_with(
            owner,
            changes,
            if urgent {
                WriteUrgency::Now
            } else {
                WriteUrgency::Usual
            },
        )
    }

    pub(super) fn append_with(
        &self,
        owner: SubscriptionOwner,
        changes: Vec<RecordChange>,
        urgency: WriteUrgency,
    ) -> mpsc::Receiver<Result<(), Error>> {
        let (done, response) = mpsc::channel();
        self.journal.write_changes(
            owner,
            changes,
            urgency,
            Box::new(move |result| done.send(result).expect("the test listens")),
        );
        response
    }

    pub(super) fn write(&self, owner: SubscriptionOwner, changes: Vec<RecordChange>) {
        self.append(owner, changes, true)
            .recv()
            .expect("a response")
            .expect("written");
    }

    /// Advances the clock by a second, so that the writer runs maintenance.
    pub(super) fn housekeep(&self) {
        self.hand.advance(Duration::from_secs(2));
        for _ in 0..2 {
            self.wait(self.journal.write_meta_changes(Vec::new()))
                .expect("there is room");
        }
        wait_for_looks(&self.journal);
    }

    pub(super) fn fetch(&self, subscription_key: SubscriptionKey, seq: u64) -> bool {
        let found = self.journal.reader_pool().fetch_pending(
            subscription_key,
            vec![(Lane::LIVE, Seq(seq))],
            1 << 20,
        );
        let found = self.wait(found).expect("readable");
        found[0]
            .event
            .as_ref()
            .is_some_and(|event| event.seq == Seq(seq) && event.subject() == "yes")
    }

    pub(super) fn stop(self) {
        self.journal.close();
        self.writer.join_all();
    }
}

pub(super) fn cursor(read: u64) -> RecordChange {
    let lane = LaneCursor::new(Lane::LIVE, Seq(read), None);
    RecordChange::Cursor(Box::new(Cursor {
        lanes: vec![lane],
        ..Cursor::default()
    }))
}

/// A pending delivery after one attempt.
pub(super) fn pending(due: Timestamp) -> PendingDelivery {
    PendingDelivery {
        attempts: 1,
        due,
        last: Failure::Busy.into(),
        status: None,
        tried: START,
        received: None,
    }
}

/// A dead letter of an event that was given up after one attempt.
pub(super) fn dead() -> DeadLetterRecord {
    DeadLetterRecord {
        reason: Reason::TimeToLiveExceeded,
        attempts: 1,
        outcome: Failure::Busy.into(),
        status: None,
        published: START,
        tried: None,
        given_up: START,
    }
}

fn defer(seq: u64, was_due: Option<Timestamp>) -> RecordChange {
    let due = was_due.map_or(DUE, |was| was.after(Duration::from_secs(1)));
    RecordChange::Defer {
        lane: Lane::LIVE,
        seq: Seq(seq),
        pending: pending(due),
        was_due,
    }
}

pub(super) fn settle(seq: u64, was_due: Timestamp) -> RecordChange {
    RecordChange::Settle {
        lane: Lane::LIVE,
        seq: Seq(seq),
        was_due,
    }
}

fn dead_letter(seq: u64) -> RecordChange {
    RecordChange::DeadLetter {
        lane: Lane::LIVE,
        seq: Seq(seq),
        due: DUE,
        dead: dead(),
    }
}

pub(super) fn held(store: &impl Store) -> Vec<u64> {
    let range = keys::carried_of(PARTITION);
    let keys = keys_in(store, Family::Carried, &range.start, &range.end);
    keys.iter()
        .filter_map(|key| keys::parse_carried(key))
        .map(|(_, seq)| seq.0)
        .collect()
}

pub(super) fn count(store: &impl Store, family: Family) -> usize {
    let range = keys::family_range(family);
    keys_in(store, family, &range.start, &range.end).len()
}

// --- groups and responses ---

#[test]
fn publishers_that_wait_together_share_a_sync_and_are_answered_after_it() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    let before = store.writes();
    let hold = store.hold();
    let mut first = queue.ask_publish(1);
    hold.until_a_write_waits();
    let others: Vec<_> = (0..100).map(|_| queue.ask_publish(2)).collect();
    assert!(
        (&mut first).now_or_never().is_none(),
        "its sync is not done"
    );
    assert!(queue.received.lock().is_empty());
    drop(hold);
    assert_eq!(queue.wait(first).expect("written").first, Seq(1));
    for (index, other) in others.into_iter().enumerate() {
        assert_eq!(
            queue.wait(other).expect("written").first,
            Seq(2 + 2 * index as u64)
        );
    }
    assert_eq!(store.writes() - before, 2);
    queue.stop();
}

#[test]
fn answers_and_calls_of_the_listener_come_in_the_order_of_the_queue() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    let owners = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    let hold = store.hold();
    let (order, answered) = mpsc::channel();
    for index in 0..20 {
        let order = order.clone();
        let done = Box::new(move |result: Result<(), Error>| {
            order
                .send((index, result.is_ok()))
                .expect("the test listens")
        });
        queue
            .journal
            .write_changes(owners[index % 2], vec![cursor(1)], WriteUrgency::Now, done);
        drop(queue.ask_publish(1));
    }
    drop((hold, order));
    let answered: Vec<_> = answered.into_iter().collect();
    assert_eq!(
        answered,
        (0..20).map(|index| (index, true)).collect::<Vec<_>>()
    );
    let received = Arc::clone(&queue.received);
    queue.stop();
    assert_eq!(
        *received.lock(),
        (1..=20).collect::<Vec<_>>(),
        "a hint, although clients hung up"
    );
}

#[test]
fn a_group_of_outcomes_waits_for_company_and_an_urgent_one_does_not() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::at(Arc::new(store.clone()), Duration::from_secs(60));
    queue.found();
    let owners = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    let before = store.writes();
    let lazy = queue.append(owners[0], vec![cursor(1)], false);
    let urgent = queue.append(owners[1], vec![cursor(1)], true);
    for response in [lazy, urgent] {
        response.recv().expect("a response").expect("written");
    }
    assert_eq!(store.writes() - before, 1);
    queue.stop();
}

#[test]
fn outcomes_that_need_not_wait_for_company_are_written_alone() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    let owner = queue.open(ONE).owner;
    queue
        .append(owner, vec![cursor(1)], false)
        .recv()
        .expect("a response")
        .expect("written");
    queue.stop();
}

#[test]
fn outcomes_behind_a_publish_are_written_although_they_wake_no_actor() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::at(Arc::new(store.clone()), Duration::from_millis(10));
    queue.found();
    let owners = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    for round in 1..=5 {
        queue.publish(1);
        let answers = owners.map(|owner| queue.append(owner, vec![cursor(round)], false));
        for response in answers {
            response
                .recv_timeout(Duration::from_secs(60))
                .expect("a response")
                .expect("written");
        }
    }
    queue.stop();
}

#[test]
fn where_events_come_seldom_outcomes_share_their_sync() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::at(Arc::new(store.clone()), Duration::from_secs(60));
    queue.found();
    let owner = queue.open(ONE).owner;
    for read in 1..=3 {
        queue.publish(1);
        let outcome = queue.append(owner, vec![cursor(read)], false);
        let before = store.writes();
        queue.hand.advance(Duration::from_millis(2));
        queue.publish(1);
        outcome.recv().expect("a response").expect("written");
        assert_eq!(store.writes() - before, 1);
    }
    let outcomes: Vec<_> = (4..21)
        .map(|read| queue.append(owner, vec![cursor(read)], false))
        .collect();
    queue.hand.advance(Duration::from_millis(2));
    queue.publish(1);
    assert!(
        outcomes.iter().all(|outcome| outcome.try_recv().is_err()),
        "so many wait for others"
    );
    queue.stop();
    for outcome in outcomes {
        outcome
            .recv()
            .expect("a response")
            .expect("written at the end");
    }
}

#[test]
fn outcomes_that_nothing_waits_for_wait_several_times_as_long() {
    let store = MemoryStore::new();
    let delay = Duration::from_secs(60);
    let queue = ListenedJournal::at(Arc::new(store.clone()), delay);
    queue.found();
    let owners = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    // The writer has taken what was queued before a publish that has a response.
    let relaxed = |read| {
        let outcome = queue.append_with(owners[0], vec![cursor(read)], WriteUrgency::Relaxed);
        queue.publish(1);
        outcome
    };
    let first = relaxed(1);
    queue.hand.advance(delay * 3 / 2);
    queue.publish(1);
    assert!(
        first.try_recv().is_err(),
        "it does not share the sync of the next events"
    );
    queue.hand.advance(delay);
    let before = store.writes();
    queue.publish(1);
    first.recv().expect("a response").expect("written");
    assert_eq!(store.writes() - before, 1, "it shares that of later ones");

    let second = relaxed(2);
    let usual = queue.append(owners[1], vec![cursor(1)], false);
    queue.publish(1);
    queue.hand.advance(delay);
    queue.publish(1);
    for outcome in [second, usual] {
        outcome
            .recv()
            .expect("a response")
            .expect("what something waits for takes the others along");
    }
    let last = relaxed(3);
    queue.stop();
    last.recv()
        .expect("a response")
        .expect("written at the end");
}

#[test]
fn outcomes_wait_for_others_while_events_are_written_and_precede_everything_else() {
    let store = MemoryStore::new();
    let wait = Duration::from_secs(60);
    let queue = ListenedJournal::at(Arc::new(store.clone()), wait);
    queue.found();
    let owners = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    let outcome = |owner: usize, read| queue.append(owners[owner], vec![cursor(read)], false);
    let first = outcome(0, 1);
    for _ in 0..3 {
        queue.publish(1);
        assert!(first.try_recv().is_err(), "it waits for others");
    }
    // The writer must not look at the clock between the advance and the publish behind it.
    let before = store.writes();
    let hold = store.hold();
    let mut ahead = queue.ask_publish(1);
    hold.until_a_write_waits();
    let second = outcome(1, 1);
    queue.hand.advance(wait);
    let behind = queue.ask_publish(1);
    assert!((&mut ahead).now_or_never().is_none() && first.try_recv().is_err());
    drop(hold);
    queue.wait(ahead).expect("there is room");
    queue.wait(behind).expect("there is room");
    for response in [first, second] {
        response.recv().expect("a response").expect("written");
    }
    assert_eq!(
        store.writes() - before,
        2,
        "events and outcomes that waited long enough share a write"
    );
    let third = outcome(0, 2);
    queue.publish(1);
    queue
        .wait(queue.journal.write_meta_changes(Vec::new()))
        .expect("there is room");
    third
        .try_recv()
        .expect("a change is written behind it")
        .expect("written");
    let last = outcome(0, 3);
    queue.publish(1);
    queue.stop();
    last.recv()
        .expect("a response")
        .expect("written at the end");
}

// --- fencing ---

#[test]
fn an_append_of_an_older_incarnation_is_fenced_and_not_written_also_in_the_group_of_the_opening() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    queue.publish(9);
    let old = queue.open(ONE).owner;
    let hold = store.hold();
    let before = queue.append(old, vec![cursor(2)], true);
    let open = queue.journal.open(ONE);
    let after = queue.append(old, vec![cursor(9)], true);
    drop(hold);
    before
        .recv()
        .expect("a response")
        .expect("it was before the opening");
    let opened = queue.wait(open).expect("it is there");
    assert_eq!(opened.cursor.lanes[0].read, Seq(2));
    assert!(matches!(after.recv(), Ok(Err(Error::Fenced))));
    queue.write(opened.owner, vec![cursor(3)]);
    assert!(matches!(
        queue.append(old, vec![cursor(8)], true).recv(),
        Ok(Err(Error::Fenced))
    ));
    assert_eq!(queue.open(ONE).cursor.lanes[0].read, Seq(3));
    queue.stop();
}

#[test]
fn a_missing_subscription_is_unknown() {
    let queue = ListenedJournal::founded(&MemoryStore::new());
    let nobody = SubscriptionKey {
        partition: PARTITION,
        subscription: SubscriptionId(9),
    };
    assert!(matches!(
        queue.wait(queue.journal.open(nobody)),
        Err(Error::Unknown)
    ));
    let nowhere = queue
        .journal
        .append_events(PartitionId(9), sealed(&[("yes", 1)]), None);
    assert!(matches!(queue.wait(nowhere), Err(Error::Unknown)));
    queue.stop();
}

// --- failures ---

#[test]
fn on_a_full_disk_publishes_are_refused_and_appends_wait_in_their_order() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    let old = queue.open(ONE).owner;
    assert_eq!(
        (queue.publish(3), queue.journal.writer_state()),
        (Seq(1), JournalState::Writable)
    );
    store.fail(store.writes()..store.writes() + 3, WriteFault::Full);
    assert!(matches!(queue.wait(queue.ask_publish(1)), Err(Error::Full)));
    assert_eq!(queue.journal.writer_state(), JournalState::Full);
    let hold = store.hold();
    let append = queue.append(old, vec![cursor(2)], true);
    hold.until_a_write_waits();
    let open = queue.journal.open(ONE);
    drop(hold);
    append
        .recv()
        .expect("a response")
        .expect("nobody had fenced it when it was asked for");
    assert_eq!(
        queue.wait(open).expect("it is there").cursor.lanes[0].read,
        Seq(2)
    );
    assert_eq!(queue.journal.writer_state(), JournalState::Writable);
    assert_eq!(
        queue.publish(1),
        Seq(4),
        "no place was given to what was refused"
    );
    assert_eq!(
        queue
            .journal
            .log_end(PARTITION)
            .map(|end| (end.next, end.running.count)),
        Some((Seq(5), 4))
    );
    queue.stop();
}

#[test]
fn an_end_that_a_full_disk_refused_leaves_the_subscription_as_it_was() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    let owner = queue.open(ONE).owner;
    store.fail(store.writes()..store.writes() + 1, WriteFault::Full);
    let ended = queue.journal.write_meta_changes(vec![
        MetaChange::CreatePartition(PartitionId(2)),
        MetaChange::Unsubscribe(ONE),
        MetaChange::DeletePartition(PARTITION),
    ]);
    assert!(matches!(queue.wait(ended), Err(Error::Full)));
    queue.write(owner, vec![cursor(1)]);
    assert_eq!(queue.publish(1), Seq(1));
    assert_eq!(queue.journal.log_end(PartitionId(2)), None);
    queue.stop();
}

#[test]
fn after_a_failed_sync_the_process_ends_and_nothing_is_acknowledged() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    let owner = queue.open(ONE).owner;
    store.fail(store.writes()..store.writes() + 1, WriteFault::Failed);
    let hold = store.hold();
    let failing = queue.append(owner, vec![cursor(1)], true);
    hold.until_a_write_waits();
    let publish = queue.ask_publish(1);
    let behind = queue.append(owner, vec![cursor(1)], true);
    drop(hold);
    assert!(matches!(failing.recv(), Ok(Err(Error::Closed))));
    assert!(matches!(behind.recv(), Ok(Err(Error::Closed))));
    assert!(matches!(queue.wait(publish), Err(Error::Closed)));
    let ListenedJournal {
        journal,
        writer,
        runtime,
        fatal,
        ..
    } = queue;
    writer.join_all();
    assert_eq!(
        (fatal.load(Ordering::SeqCst), journal.writer_state()),
        (1, JournalState::Closed)
    );
    assert!(matches!(
        runtime.block_on(journal.open(ONE)),
        Err(Error::Closed)
    ));
}

// --- the floor ---

#[test]
fn the_floor_follows_the_slowest_and_carries_what_is_pending_or_a_dead_letter() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    for _ in 0..6 {
        queue.publish(1);
    }
    let [one, two] = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    queue.write(
        one,
        vec![defer(1, None), defer(2, None), dead_letter(3), cursor(7)],
    );
    queue.housekeep();
    assert_eq!(
        (log_in(&store, 1), held(&store)),
        (vec![1, 2, 3, 4, 5, 6], vec![]),
        "the other one is behind"
    );
    queue.write(two, vec![defer(2, None), cursor(5)]);
    queue.housekeep();
    assert_eq!(
        (log_in(&store, 1), held(&store)),
        (vec![5, 6], vec![1, 2, 3])
    );
    assert_eq!(
        [1, 2, 3, 4, 5].map(|seq| queue.fetch(ONE, seq)),
        [true, true, true, false, true]
    );
    // Pending again and settled in one write: nothing needs it any more.
    let later = DUE.after(Duration::from_secs(1));
    queue.write(
        one,
        vec![
            defer(1, Some(DUE)),
            settle(1, later),
            settle(2, DUE),
            cursor(7),
        ],
    );
    assert_eq!(
        held(&store),
        [2, 3],
        "the second is pending for the other one"
    );
    queue.write(two, vec![settle(2, DUE), dead_letter(2), cursor(5)]);
    assert_eq!(held(&store), [2, 3], "put aside is asked for too");
    for (subscription_key, seq) in [(TWO, 2), (ONE, 3)] {
        let letters =
            queue
                .journal
                .reader_pool()
                .read_dead_letters(subscription_key, DUE, 9, 1 << 20);
        let letters = queue.wait(letters).expect("readable");
        assert!(letters.len() == 1 && letters[0].event.is_some());
        let done = vec![DeadLetterKey {
            due: DUE,
            seq: Seq(seq),
            lane: Lane::LIVE,
        }];
        queue
            .wait(queue.journal.write_dead_letters(
                subscription_key,
                DeadLetterWrite {
                    done,
                    ..DeadLetterWrite::default()
                },
            ))
            .expect("there is room");
    }
    assert_eq!(held(&store), Vec::<u64>::new());
    assert_eq!(
        [Family::Pending, Family::Due, Family::Pin, Family::Dead]
            .map(|family| count(&store, family)),
        [0; 4]
    );
    queue.stop();
}

#[test]
fn a_move_of_the_floor_carries_so_many_events_and_goes_on_at_once() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    let owners = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    for _ in 0..3000 {
        drop(queue.ask_publish(1));
    }
    let mut changes: Vec<RecordChange> = (1..=3000).map(|seq| defer(seq, None)).collect();
    changes.push(cursor(3001));
    queue.write(owners[0], changes);
    queue.write(owners[1], vec![cursor(3001)]);
    queue.housekeep();
    assert_eq!((held(&store).len(), log_in(&store, 1).len()), (3000, 0));
    assert!(
        [1, 1024, 1025, 3000]
            .iter()
            .all(|seq| queue.fetch(ONE, *seq))
    );
    queue.stop();
}

fn retained(store: Arc<dyn Store>) -> ListenedJournal {
    let (clock, hand) = Clock::new_manual(START);
    let limits = BacklogLimits {
        retention: Duration::from_secs(60),
        ..BacklogLimits::default()
    };
    let options = JournalOptions {
        outcome_delay: Duration::ZERO,
        group_bytes: 1 << 20,
        shards: Shards::default(),
        limits,
    };
    let started = Journal::start(
        store,
        clock.clone(),
        options,
        Box::new(|_, _| {}),
        Box::new(|_: &_| {}),
    );
    let (journal, writer) = started.expect("sound");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let received = Arc::default();
    let fatal = Arc::default();
    ListenedJournal {
        journal,
        writer,
        hand,
        clock,
        runtime,
        received,
        fatal,
    }
}

#[test]
fn retained_events_stay_after_all_subscriptions_have_passed_them() {
    let store = MemoryStore::new();
    let queue = retained(Arc::new(store.clone()));
    queue
        .wait(
            queue
                .journal
                .write_meta_changes(vec![MetaChange::CreatePartition(PARTITION)]),
        )
        .expect("founded");
    queue.publish(2);
    queue.hand.advance(Duration::from_secs(30));
    queue.publish(2);
    queue.housekeep();
    assert_eq!(log_in(&store, 1), [1, 3]);
    queue.hand.advance(Duration::from_secs(31));
    queue.housekeep();
    assert_eq!(log_in(&store, 1), [3]);
    queue.hand.advance(Duration::from_secs(61));
    queue.housekeep();
    assert!(log_in(&store, 1).is_empty());
    queue.stop();
}

#[test]
fn while_the_clock_may_be_wrong_no_log_is_too_old() {
    let store = MemoryStore::new();
    let queue = retained(Arc::new(store.clone()));
    queue
        .wait(
            queue
                .journal
                .write_meta_changes(vec![MetaChange::CreatePartition(PARTITION)]),
        )
        .expect("founded");
    queue.publish(2);
    queue.hand.set_expiry_paused(true);
    queue.hand.advance(Duration::from_secs(400 * 24 * 3600));
    queue.publish(2);
    for _ in 0..3 {
        queue.hand.advance(Duration::from_secs(61));
        queue.housekeep();
    }
    assert_eq!(log_in(&store, 1), [1, 3]);
    queue.hand.set_expiry_paused(false);
    queue.hand.advance(Duration::from_secs(61));
    queue.housekeep();
    assert!(log_in(&store, 1).is_empty());
    queue.stop();
}

#[test]
fn retention_trims_at_once_whatever_was_published() {
    let store = MemoryStore::new();
    let queue = retained(Arc::new(store.clone()));
    queue
        .wait(
            queue
                .journal
                .write_meta_changes(vec![MetaChange::CreatePartition(PARTITION)]),
        )
        .expect("founded");
    // As many chunks as may arrive in a second, and more than one read returns.
    for _ in 0..20_000 {
        drop(queue.ask_publish(1));
    }
    queue.publish(1);
    queue.hand.advance(Duration::from_secs(30));
    let kept = queue.publish(3);
    queue.housekeep();
    queue.hand.advance(Duration::from_secs(29));
    queue.housekeep();
    assert_eq!(log_in(&store, 1), [kept.0]);
    queue.stop();
}

#[test]
fn logs_without_anything_to_trim_are_not_looked_at_and_others_never_by_the_thread_that_syncs() {
    const IDLE: u32 = 300;
    let store = MemoryStore::new();
    let recorded = RecordedStore::new(&store);
    let queue = retained(Arc::new(recorded.clone()));
    let found: Vec<MetaChange> = (1..=IDLE)
        .map(|id| MetaChange::CreatePartition(PartitionId(id)))
        .collect();
    queue
        .wait(queue.journal.write_meta_changes(found))
        .expect("founded");
    for id in 1..=IDLE {
        let published = queue
            .journal
            .append_events(PartitionId(id), sealed(&[("yes", 10)]), None);
        queue.wait(published).expect("there is room");
    }
    queue.housekeep();
    let taken = || recorded.take_threads(&[Family::Log, Family::Pending, Family::Pin]);
    taken();
    for _ in 0..5 {
        queue.housekeep();
    }
    assert_eq!(taken(), Vec::<String>::new(), "nothing is old enough");
    queue.hand.advance(Duration::from_secs(60));
    queue.housekeep();
    let trimmed = taken();
    assert!(
        trimmed.len() >= IDLE as usize && !trimmed.contains(&"journal".to_owned()),
        "{trimmed:?}"
    );
    assert!((1..=IDLE).all(|id| log_in(&store, id).is_empty()));
    for _ in 0..5 {
        queue.housekeep();
    }
    assert_eq!(taken(), Vec::<String>::new(), "nothing is left");
    queue.stop();
}

#[test]
fn the_more_logs_there_are_to_trim_the_less_often_each_is_looked_at() {
    const TOPICS: u32 = 1_000;
    let store = MemoryStore::new();
    let queue = ListenedJournal::at(Arc::new(store.clone()), Duration::ZERO);
    let found: Vec<MetaChange> = (1..=TOPICS)
        .map(|id| MetaChange::CreatePartition(PartitionId(id)))
        .collect();
    queue
        .wait(queue.journal.write_meta_changes(found))
        .expect("founded");
    // Nothing was to trim.
    queue.housekeep();
    for id in 1..=TOPICS {
        let published = queue
            .journal
            .append_events(PartitionId(id), sealed(&[("yes", 10)]), None);
        queue.wait(published).expect("there is room");
    }
    let left = || {
        (1..=TOPICS)
            .filter(|id| !log_in(&store, *id).is_empty())
            .count()
    };
    queue.housekeep();
    let after_two_seconds = left();
    assert!(
        (500..TOPICS as usize).contains(&after_two_seconds),
        "{after_two_seconds} of {TOPICS} are left"
    );
    for _ in 0..4 {
        queue.housekeep();
    }
    assert_eq!(left(), 0, "after ten seconds");
    queue.stop();
}

#[test]
fn a_partition_that_was_abandoned_is_gone_and_stays_gone() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    queue.publish(3);
    let owner = queue.open(ONE).owner;
    queue.write(owner, vec![defer(1, None), dead_letter(2), cursor(4)]);
    queue.housekeep();
    let all = vec![
        MetaChange::Unsubscribe(ONE),
        MetaChange::Unsubscribe(TWO),
        MetaChange::DeletePartition(PARTITION),
    ];
    queue
        .wait(queue.journal.write_meta_changes(all))
        .expect("there is room");
    assert!(matches!(
        queue.wait(queue.ask_publish(1)),
        Err(Error::Unknown)
    ));
    for _ in 0..3 {
        queue.housekeep();
    }
    for family in [
        Family::Log,
        Family::Cursor,
        Family::Pending,
        Family::Due,
        Family::Carried,
        Family::Pin,
        Family::Dead,
    ] {
        assert_eq!(count(&store, family), 0, "{family:?}");
    }
    queue.stop();
    let again = ListenedJournal::at(Arc::new(store.crash(0)), Duration::ZERO);
    assert_eq!(again.journal.log_end(PARTITION), None);
    assert!(matches!(
        again.wait(again.ask_publish(1)),
        Err(Error::Unknown)
    ));
    again.stop();
}

// --- the end of a subscription ---

#[test]
fn a_subscription_that_ends_is_fenced_and_its_pending_events_are_canceled_bit_by_bit() {
    let _rows = crate::spec::shows(&[
        "S000-147: The lastDeliveryOutcome value Canceled means that the delivery operation was \
         cancelled.",
    ]);
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    queue.publish(2000);
    let [one, two] = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    let mut changes: Vec<RecordChange> = (1..=1990).map(|seq| defer(seq, None)).collect();
    changes.extend([dead_letter(1991), cursor(2001)]);
    queue.write(one, changes);
    queue.write(two, vec![defer(7, None), cursor(2001)]);
    queue.housekeep();
    assert_eq!(held(&store).len(), 1991);
    queue
        .wait(
            queue
                .journal
                .write_meta_changes(vec![MetaChange::Unsubscribe(ONE)]),
        )
        .expect("there is room");
    assert!(matches!(
        queue.append(one, vec![cursor(1)], true).recv(),
        Ok(Err(Error::Fenced))
    ));
    assert!(matches!(
        queue.wait(queue.journal.open(ONE)),
        Err(Error::Unknown)
    ));
    queue.housekeep();
    assert!(count(&store, Family::Pending) > 1, "not all at once");
    // The rest is removed after a crash in between.
    queue.stop();
    let store = store.crash(0);
    let queue = ListenedJournal::at(Arc::new(store.clone()), Duration::ZERO);
    for _ in 0..6 {
        queue.housekeep();
    }
    assert_eq!(
        [Family::Pending, Family::Due, Family::Pin, Family::Dead]
            .map(|family| count(&store, family)),
        [1, 1, 0, 0]
    );
    assert_eq!(
        (held(&store), log_in(&store, 1)),
        (vec![7], vec![]),
        "it is pending for the other one"
    );
    let jobs = keys::meta_of(MetaKind::Job);
    assert!(keys_in(&store, Family::Meta, &jobs.start, &jobs.end).is_empty());
    let mut canceled = 0;
    let range = keys::ledger_of(ONE);
    let visit = &mut |key: &[u8], value: &[u8]| {
        let lines = ledger_lines(keys::parse_ledger(key).expect("a key"), value).expect("whole");
        canceled += lines
            .iter()
            .filter(|line| line.entry.what == LedgerEvent::Canceled)
            .count();
        ControlFlow::Continue(())
    };
    store
        .scan(Family::Ledger, &range.start, &range.end, visit)
        .expect("readable");
    assert_eq!(canceled, 1990);
    queue.stop();
}

#[test]
fn the_account_of_dead_letters_goes_with_its_subscription_and_stays_gone() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::founded(&store);
    let owner = queue.open(ONE).owner;
    let totals = |of: SubscriptionKey| DeadLetterWrite {
        totals: Some((keys::dead_letters_name(of), Bytes::from_static(b"totals"))),
        ..DeadLetterWrite::default()
    };
    let kept = || {
        let range = keys::meta_of(MetaKind::DeadLetters);
        keys_in(&store, Family::Meta, &range.start, &range.end)
    };
    for of in [ONE, TWO] {
        queue
            .wait(queue.journal.write_dead_letters(of, totals(of)))
            .expect("there is room");
    }
    assert_eq!(kept(), [keys::dead_letters(ONE), keys::dead_letters(TWO)]);
    queue
        .wait(
            queue
                .journal
                .write_meta_changes(vec![MetaChange::Unsubscribe(ONE)]),
        )
        .expect("there is room");
    queue.housekeep();
    assert_eq!(kept(), [keys::dead_letters(TWO)]);
    // A dead-letter file is written at the same time.
    queue
        .wait(queue.journal.write_dead_letters(ONE, totals(ONE)))
        .expect("there is room");
    assert_eq!(kept(), [keys::dead_letters(TWO)]);
    // Its incarnations are forgotten too, and the last one is still fenced.
    assert!(matches!(
        queue.wait(queue.journal.open(ONE)),
        Err(Error::Unknown)
    ));
    assert!(matches!(
        queue.append(owner, vec![cursor(1)], true).recv(),
        Ok(Err(Error::Fenced))
    ));
    queue.stop();
}

// --- readers ---

#[test]
fn a_read_that_panics_is_answered_and_takes_no_thread_along() {
    let queue = ListenedJournal::at(
        Arc::new(RecordedStore::panicking_at(Family::Carried)),
        Duration::ZERO,
    );
    queue.found();
    queue.publish(1);
    for _ in 0..8 {
        assert!(matches!(
            queue.wait(queue.journal.reader_pool().last_carried(PARTITION)),
            Err(Error::Damaged(_))
        ));
    }
    assert!(queue.fetch(ONE, 1));
    assert_eq!(queue.journal.read_figures().read_panics, 8);
    queue.stop();
}

// --- recovery ---

/// The end and the totals of the log are recovered, even if the whole log was passed.
fn check_recovery(queue: &ListenedJournal, again: impl FnOnce() -> ListenedJournal) {
    queue.found();
    queue.publish(3);
    queue.publish(2);
    let [one, two] = [ONE, TWO].map(|subscription_key| queue.open(subscription_key).owner);
    queue.write(one, vec![defer(2, None), cursor(6)]);
    queue.write(two, vec![cursor(6)]);
    queue.housekeep();
    let end = queue.journal.log_end(PARTITION).expect("founded");
    assert_eq!((end.next, end.running.count), (Seq(6), 5));
    let again = again();
    assert_eq!(again.journal.log_end(PARTITION), Some(end));
    assert!(again.fetch(ONE, 2));
    assert_eq!(again.publish(1), Seq(6));
    let opened = again.open(ONE);
    assert_eq!((opened.cursor.lanes[0].read, opened.end), (Seq(6), Seq(7)));
    assert!(again.clock.now() >= START);
    again.stop();
}

#[test]
fn a_journal_is_found_again_after_a_crash() {
    let store = MemoryStore::new();
    let queue = ListenedJournal::at(Arc::new(store.clone()), Duration::ZERO);
    check_recovery(&queue, || {
        ListenedJournal::at(Arc::new(store.crash(0)), Duration::ZERO)
    });
}

#[test]
fn a_journal_is_found_again_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = tempfile::tempdir().expect("a folder");
    let open =
        |path| Arc::new(RocksStore::open(path, &RocksOptions::default()).expect("a sound store"));
    let queue = ListenedJournal::at(open(folder.path()), Duration::ZERO);
    check_recovery(&queue, || {
        super::copy_folder(folder.path(), copy.path()).expect("a copy");
        ListenedJournal::at(open(copy.path()), Duration::ZERO)
    });
    queue.stop();
}
