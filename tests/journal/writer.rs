//! The writer: who shares a sync, who is answered when, who is refused, and what is found again.

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use gridhook::{
    clock::{Clock, Hand},
    event::{Lane, Obligor, PartitionId, Seq, SubscriptionId, Timestamp},
    journal::{
        Buried, DeadKey, Error, Journal, Limits, MetaChange, Opened, Options, Owner, Promise, Published, State, Writer,
        keys::{self, MetaKind},
        memory::{Fault, Memory},
        records::Record,
        rocks::{Rocks, RocksOptions},
        store::{Batch, Family, Store, StoreError, Visit},
    },
    policy::{
        outcome::{Outcome, Reason},
        record::{Change, Cursor, Dead, Entry, LaneCursor, Owed, What},
    },
};

use super::{keys_in, log_in};
use crate::policy::sealed;

pub(super) const PARTITION: PartitionId = PartitionId(1);
pub(super) const ONE: Obligor = Obligor { partition: PARTITION, subscription: SubscriptionId(1) };
pub(super) const TWO: Obligor = Obligor { partition: PARTITION, subscription: SubscriptionId(2) };
pub(super) const START: Timestamp = Timestamp(1_000_000_000);
pub(super) const DUE: Timestamp = Timestamp(2_000_000_000);

/// A journal, and everything around it.
pub(super) struct Desk {
    pub(super) journal: Journal,
    writer: Writer,
    pub(super) hand: Hand,
    clock: Clock,
    runtime: tokio::runtime::Runtime,
    /// The first sequence of each chunk that the listener was told of.
    heard: Arc<Mutex<Vec<u64>>>,
    fatal: Arc<AtomicU32>,
}

impl Desk {
    pub(super) fn at(store: Arc<dyn Store>, outcome_wait: Duration) -> Self {
        let (clock, hand) = Clock::manual(START);
        let options = Options { outcome_wait, group_bytes: 1 << 20, limits: Limits::default() };
        let (heard, fatal) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
        let listener = {
            let heard = Arc::clone(&heard);
            Box::new(move |_, chunks: Vec<gridhook::journal::chunk::Chunk>| {
                heard.lock().expect("no panic").extend(chunks.iter().map(|chunk| chunk.first.0));
            })
        };
        let on_fatal = {
            let fatal = Arc::clone(&fatal);
            Box::new(move |_: &_| {
                fatal.fetch_add(1, Ordering::SeqCst);
            })
        };
        let (journal, writer) = Journal::start(store, clock.clone(), options, listener, on_fatal).expect("sound");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        Self { journal, writer, hand, clock, runtime, heard, fatal }
    }

    /// With a partition and two subscriptions.
    fn founded(store: &Memory) -> Self {
        let desk = Self::at(Arc::new(store.clone()), Duration::ZERO);
        desk.found();
        desk
    }

    pub(super) fn found(&self) {
        let founded =
            vec![MetaChange::Found(PARTITION), MetaChange::Subscribe(ONE, None), MetaChange::Subscribe(TWO, None)];
        self.wait(self.journal.change(founded)).expect("founded");
    }

    pub(super) fn wait<T>(&self, promise: Promise<T>) -> Result<T, Error> {
        self.runtime.block_on(promise)
    }

    fn ask_publish(&self, events: usize) -> Promise<Published> {
        self.journal.publish(PARTITION, sealed(&vec![("yes", 10); events]), None)
    }

    pub(super) fn publish(&self, events: usize) -> Seq {
        self.wait(self.ask_publish(events)).expect("there is room").first
    }

    pub(super) fn open(&self, obligor: Obligor) -> Opened {
        self.wait(self.journal.open(obligor)).expect("it is there")
    }

    pub(super) fn append(&self, owner: Owner, changes: Vec<Change>, urgent: bool) -> mpsc::Receiver<Result<(), Error>> {
        let (done, answer) = mpsc::channel();
        self.journal.append(
            owner,
            changes,
            urgent,
            Box::new(move |result| done.send(result).expect("the test listens")),
        );
        answer
    }

    pub(super) fn write(&self, owner: Owner, changes: Vec<Change>) {
        self.append(owner, changes, true).recv().expect("an answer").expect("written");
    }

    /// A second passes, and the writer uses it.
    pub(super) fn housekeep(&self) {
        self.hand.advance(Duration::from_secs(2));
        for _ in 0..2 {
            self.wait(self.journal.change(Vec::new())).expect("there is room");
        }
        wait_for_looks(&self.journal);
    }

    pub(super) fn fetch(&self, obligor: Obligor, seq: u64) -> bool {
        let found = self.journal.reads().fetch(obligor, vec![(Lane::LIVE, Seq(seq))], 1 << 20);
        let found = self.wait(found).expect("readable");
        found[0].event.as_ref().is_some_and(|event| event.seq == Seq(seq) && event.subject() == "yes")
    }

    pub(super) fn stop(self) {
        self.journal.close();
        self.writer.join();
    }
}

/// Logs are looked at beside the writer.
pub(crate) fn wait_for_looks(journal: &Journal) {
    for _ in 0..10_000 {
        if journal.trimming() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the looks at logs do not end");
}

pub(super) fn cursor(read: u64) -> Change {
    let lane = LaneCursor { lane: Lane::LIVE, read: Seq(read), end: None, open: Vec::new(), done: Vec::new() };
    Change::Cursor(Box::new(Cursor { lanes: vec![lane], ..Cursor::default() }))
}

fn owe(seq: u64, was_due: Option<Timestamp>) -> Change {
    let due = was_due.map_or(DUE, |was| was.after(Duration::from_secs(1)));
    let owed = Owed { attempts: 1, due, last: Outcome::Busy, status: None, tried: START, received: None };
    Change::Owe { lane: Lane::LIVE, seq: Seq(seq), owed, was_due }
}

pub(super) fn settle(seq: u64, was_due: Timestamp) -> Change {
    Change::Settle { lane: Lane::LIVE, seq: Seq(seq), was_due }
}

fn put_aside(seq: u64) -> Change {
    let dead = Dead {
        reason: Reason::TimeToLiveExceeded,
        attempts: 1,
        outcome: Outcome::Busy,
        status: None,
        published: START,
        tried: None,
        given_up: START,
    };
    Change::PutAside { lane: Lane::LIVE, seq: Seq(seq), due: DUE, dead }
}

pub(super) fn held(store: &impl Store) -> Vec<u64> {
    let range = keys::held_of(PARTITION);
    let keys = keys_in(store, Family::Held, &range.start, &range.end);
    keys.iter().filter_map(|key| keys::parse_held(key)).map(|(_, seq)| seq.0).collect()
}

pub(super) fn count(store: &impl Store, family: Family) -> usize {
    let range = keys::all(family);
    keys_in(store, family, &range.start, &range.end).len()
}

// --- groups and answers ---

#[test]
fn publishers_that_wait_together_share_a_sync_and_are_answered_after_it() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    let before = store.writes();
    let hold = store.hold();
    let mut first = desk.ask_publish(1);
    hold.until_a_write_waits();
    let others: Vec<_> = (0..100).map(|_| desk.ask_publish(2)).collect();
    assert!((&mut first).now_or_never().is_none(), "its sync is not done");
    assert!(desk.heard.lock().expect("no panic").is_empty());
    drop(hold);
    assert_eq!(desk.wait(first).expect("written").first, Seq(1));
    for (index, other) in others.into_iter().enumerate() {
        assert_eq!(desk.wait(other).expect("written").first, Seq(2 + 2 * index as u64));
    }
    assert_eq!(store.writes() - before, 2);
    desk.stop();
}

#[test]
fn answers_and_what_the_listener_hears_come_in_the_order_of_the_queue() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    let owners = [ONE, TWO].map(|obligor| desk.open(obligor).owner);
    let hold = store.hold();
    let (order, answered) = mpsc::channel();
    for index in 0..20 {
        let order = order.clone();
        let done =
            Box::new(move |result: Result<(), Error>| order.send((index, result.is_ok())).expect("the test listens"));
        desk.journal.append(owners[index % 2], vec![cursor(1)], true, done);
        drop(desk.ask_publish(1));
    }
    drop((hold, order));
    let answered: Vec<_> = answered.into_iter().collect();
    assert_eq!(answered, (0..20).map(|index| (index, true)).collect::<Vec<_>>());
    let heard = Arc::clone(&desk.heard);
    desk.stop();
    assert_eq!(*heard.lock().expect("no panic"), (1..=20).collect::<Vec<_>>(), "a hint, whoever hung up");
}

#[test]
fn a_group_of_outcomes_waits_for_company_and_an_urgent_one_does_not() {
    let store = Memory::new();
    let desk = Desk::at(Arc::new(store.clone()), Duration::from_secs(60));
    desk.found();
    let owners = [ONE, TWO].map(|obligor| desk.open(obligor).owner);
    let before = store.writes();
    let lazy = desk.append(owners[0], vec![cursor(1)], false);
    let urgent = desk.append(owners[1], vec![cursor(1)], true);
    for answer in [lazy, urgent] {
        answer.recv().expect("an answer").expect("written");
    }
    assert_eq!(store.writes() - before, 1);
    desk.stop();
}

#[test]
fn outcomes_that_need_not_wait_for_company_are_written_alone() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    let owner = desk.open(ONE).owner;
    desk.append(owner, vec![cursor(1)], false).recv().expect("an answer").expect("written");
    desk.stop();
}

// --- fencing ---

#[test]
fn an_append_of_an_older_life_is_fenced_and_not_written_also_in_the_group_of_the_opening() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    desk.publish(9);
    let old = desk.open(ONE).owner;
    let hold = store.hold();
    let before = desk.append(old, vec![cursor(2)], true);
    let open = desk.journal.open(ONE);
    let after = desk.append(old, vec![cursor(9)], true);
    drop(hold);
    before.recv().expect("an answer").expect("it was before the opening");
    let opened = desk.wait(open).expect("it is there");
    assert_eq!(opened.cursor.lanes[0].read, Seq(2));
    assert!(matches!(after.recv(), Ok(Err(Error::Fenced))));
    desk.write(opened.owner, vec![cursor(3)]);
    assert!(matches!(desk.append(old, vec![cursor(8)], true).recv(), Ok(Err(Error::Fenced))));
    assert_eq!(desk.open(ONE).cursor.lanes[0].read, Seq(3));
    desk.stop();
}

#[test]
fn what_is_not_there_is_unknown() {
    let desk = Desk::founded(&Memory::new());
    let nobody = Obligor { partition: PARTITION, subscription: SubscriptionId(9) };
    assert!(matches!(desk.wait(desk.journal.open(nobody)), Err(Error::Unknown)));
    let nowhere = desk.journal.publish(PartitionId(9), sealed(&[("yes", 1)]), None);
    assert!(matches!(desk.wait(nowhere), Err(Error::Unknown)));
    desk.stop();
}

// --- failures ---

#[test]
fn on_a_full_disk_publishes_are_refused_and_appends_wait_in_their_order() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    let old = desk.open(ONE).owner;
    assert_eq!((desk.publish(3), desk.journal.state()), (Seq(1), State::Writable));
    store.fail(store.writes()..store.writes() + 3, Fault::Full);
    assert!(matches!(desk.wait(desk.ask_publish(1)), Err(Error::Full)));
    assert_eq!(desk.journal.state(), State::Full);
    let hold = store.hold();
    let append = desk.append(old, vec![cursor(2)], true);
    hold.until_a_write_waits();
    let open = desk.journal.open(ONE);
    drop(hold);
    append.recv().expect("an answer").expect("nobody had fenced it when it was asked for");
    assert_eq!(desk.wait(open).expect("it is there").cursor.lanes[0].read, Seq(2));
    assert_eq!(desk.journal.state(), State::Writable);
    assert_eq!(desk.publish(1), Seq(4), "no place was given to what was refused");
    assert_eq!(desk.journal.end(PARTITION).map(|end| (end.next, end.running.count)), Some((Seq(5), 4)));
    desk.stop();
}

#[test]
fn an_end_that_a_full_disk_refused_leaves_the_subscription_as_it_was() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    let owner = desk.open(ONE).owner;
    store.fail(store.writes()..store.writes() + 1, Fault::Full);
    let ended = desk.journal.change(vec![
        MetaChange::Found(PartitionId(2)),
        MetaChange::Unsubscribe(ONE),
        MetaChange::Abandon(PARTITION),
    ]);
    assert!(matches!(desk.wait(ended), Err(Error::Full)));
    desk.write(owner, vec![cursor(1)]);
    assert_eq!(desk.publish(1), Seq(1));
    assert_eq!(desk.journal.end(PartitionId(2)), None);
    desk.stop();
}

#[test]
fn after_a_failed_sync_the_process_is_told_to_end_and_nothing_is_acknowledged() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    let owner = desk.open(ONE).owner;
    store.fail(store.writes()..store.writes() + 1, Fault::Failed);
    let hold = store.hold();
    let failing = desk.append(owner, vec![cursor(1)], true);
    hold.until_a_write_waits();
    let (publish, behind) = (desk.ask_publish(1), desk.append(owner, vec![cursor(1)], true));
    drop(hold);
    assert!(matches!(failing.recv(), Ok(Err(Error::Closed))));
    assert!(matches!(behind.recv(), Ok(Err(Error::Closed))));
    assert!(matches!(desk.wait(publish), Err(Error::Closed)));
    let Desk { journal, writer, runtime, fatal, .. } = desk;
    writer.join();
    assert_eq!((fatal.load(Ordering::SeqCst), journal.state()), (1, State::Closed));
    assert!(matches!(runtime.block_on(journal.open(ONE)), Err(Error::Closed)));
}

// --- the floor ---

#[test]
fn the_floor_follows_the_slowest_and_carries_what_is_still_owed_or_put_aside() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    for _ in 0..6 {
        desk.publish(1);
    }
    let [one, two] = [ONE, TWO].map(|obligor| desk.open(obligor).owner);
    desk.write(one, vec![owe(1, None), owe(2, None), put_aside(3), cursor(7)]);
    desk.housekeep();
    assert_eq!((log_in(&store, 1), held(&store)), (vec![1, 2, 3, 4, 5, 6], vec![]), "the other one is behind");
    desk.write(two, vec![owe(2, None), cursor(5)]);
    desk.housekeep();
    assert_eq!((log_in(&store, 1), held(&store)), (vec![5, 6], vec![1, 2, 3]));
    assert_eq!([1, 2, 3, 4, 5].map(|seq| desk.fetch(ONE, seq)), [true, true, true, false, true]);
    // Owed again and settled in one write: that was the last who asked for it.
    let later = DUE.after(Duration::from_secs(1));
    desk.write(one, vec![owe(1, Some(DUE)), settle(1, later), settle(2, DUE), cursor(7)]);
    assert_eq!(held(&store), [2, 3], "the other one owes the second");
    desk.write(two, vec![settle(2, DUE), put_aside(2), cursor(5)]);
    assert_eq!(held(&store), [2, 3], "put aside is asked for too");
    for (obligor, seq) in [(TWO, 2), (ONE, 3)] {
        let letters = desk.journal.reads().dead(obligor, DUE, 9, 1 << 20);
        let letters = desk.wait(letters).expect("readable");
        assert!(letters.len() == 1 && letters[0].event.is_some());
        let done = vec![DeadKey { due: DUE, seq: Seq(seq), lane: Lane::LIVE }];
        desk.wait(desk.journal.bury(obligor, Buried { done, ..Buried::default() })).expect("there is room");
    }
    assert_eq!(held(&store), Vec::<u64>::new());
    assert_eq!([Family::Owed, Family::Due, Family::Pin, Family::Dead].map(|family| count(&store, family)), [0; 4]);
    desk.stop();
}

#[test]
fn a_move_of_the_floor_carries_so_many_events_and_goes_on_at_once() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    let owners = [ONE, TWO].map(|obligor| desk.open(obligor).owner);
    for _ in 0..3000 {
        drop(desk.ask_publish(1));
    }
    let mut changes: Vec<Change> = (1..=3000).map(|seq| owe(seq, None)).collect();
    changes.push(cursor(3001));
    desk.write(owners[0], changes);
    desk.write(owners[1], vec![cursor(3001)]);
    desk.housekeep();
    assert_eq!((held(&store).len(), log_in(&store, 1).len()), (3000, 0));
    assert!([1, 1024, 1025, 3000].iter().all(|seq| desk.fetch(ONE, *seq)));
    desk.stop();
}

fn retained(store: Arc<dyn Store>) -> Desk {
    let (clock, hand) = Clock::manual(START);
    let limits = Limits { retention: Duration::from_secs(60), ..Limits::default() };
    let options = Options { outcome_wait: Duration::ZERO, group_bytes: 1 << 20, limits };
    let started = Journal::start(store, clock.clone(), options, Box::new(|_, _| {}), Box::new(|_: &_| {}));
    let (journal, writer) = started.expect("sound");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (heard, fatal) = (Arc::default(), Arc::default());
    Desk { journal, writer, hand, clock, runtime, heard, fatal }
}

#[test]
fn what_retention_keeps_stays_after_everybody_has_passed_it() {
    let store = Memory::new();
    let desk = retained(Arc::new(store.clone()));
    desk.wait(desk.journal.change(vec![MetaChange::Found(PARTITION)])).expect("founded");
    desk.publish(2);
    desk.hand.advance(Duration::from_secs(30));
    desk.publish(2);
    desk.housekeep();
    assert_eq!(log_in(&store, 1), [1, 3]);
    desk.hand.advance(Duration::from_secs(31));
    desk.housekeep();
    assert_eq!(log_in(&store, 1), [3]);
    desk.hand.advance(Duration::from_secs(61));
    desk.housekeep();
    assert!(log_in(&store, 1).is_empty());
    desk.stop();
}

#[test]
fn while_the_clock_may_be_wrong_no_log_is_too_old() {
    let store = Memory::new();
    let desk = retained(Arc::new(store.clone()));
    desk.wait(desk.journal.change(vec![MetaChange::Found(PARTITION)])).expect("founded");
    desk.publish(2);
    desk.hand.hold_expiry(true);
    desk.hand.advance(Duration::from_secs(400 * 24 * 3600));
    desk.publish(2);
    for _ in 0..3 {
        desk.hand.advance(Duration::from_secs(61));
        desk.housekeep();
    }
    assert_eq!(log_in(&store, 1), [1, 3]);
    desk.hand.hold_expiry(false);
    desk.hand.advance(Duration::from_secs(61));
    desk.housekeep();
    assert!(log_in(&store, 1).is_empty());
    desk.stop();
}

#[test]
fn retention_trims_at_once_whatever_was_published() {
    let store = Memory::new();
    let desk = retained(Arc::new(store.clone()));
    desk.wait(desk.journal.change(vec![MetaChange::Found(PARTITION)])).expect("founded");
    // As many chunks as a second may bring, and more than are read in one go.
    for _ in 0..20_000 {
        drop(desk.ask_publish(1));
    }
    desk.publish(1);
    desk.hand.advance(Duration::from_secs(30));
    let kept = desk.publish(3);
    desk.housekeep();
    desk.hand.advance(Duration::from_secs(29));
    desk.housekeep();
    assert_eq!(log_in(&store, 1), [kept.0]);
    desk.stop();
}

/// A read: of which records, and the name of the thread.
type Read = (Family, Option<String>);

/// Counts who reads which records.
struct Counted {
    store: Memory,
    reads: Arc<Mutex<Vec<Read>>>,
    panics_at: Option<Family>,
}

impl Counted {
    fn note(&self, family: Family) {
        assert_ne!(self.panics_at, Some(family), "a defect");
        let thread = std::thread::current().name().map(str::to_owned);
        self.reads.lock().expect("no panic").push((family, thread));
    }
}

impl Store for Counted {
    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        self.store.write(batch)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.note(family);
        self.store.get(family, key)
    }

    fn scan(&self, family: Family, from: &[u8], upper: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.note(family);
        self.store.scan(family, from, upper, visit)
    }

    fn last(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        self.note(family);
        self.store.last(family, lower, upper)
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        self.store.drop_log(partition, floor)
    }

    fn is_short_of_space(&self) -> bool {
        self.store.is_short_of_space()
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        self.store.note_watermark()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.store.close()
    }
}

#[test]
fn logs_without_anything_to_trim_are_not_looked_at_and_others_never_by_the_thread_that_syncs() {
    const IDLE: u32 = 300;
    let reads = Arc::<Mutex<Vec<(Family, Option<String>)>>>::default();
    let store = Memory::new();
    let desk = retained(Arc::new(Counted { store: store.clone(), reads: Arc::clone(&reads), panics_at: None }));
    let found: Vec<MetaChange> = (1..=IDLE).map(|id| MetaChange::Found(PartitionId(id))).collect();
    desk.wait(desk.journal.change(found)).expect("founded");
    for id in 1..=IDLE {
        let published = desk.journal.publish(PartitionId(id), sealed(&[("yes", 10)]), None);
        desk.wait(published).expect("there is room");
    }
    desk.housekeep();
    let logs = |reads: Vec<(Family, Option<String>)>| {
        let are_of_logs =
            |(family, _): &(Family, Option<String>)| matches!(family, Family::Log | Family::Owed | Family::Pin);
        reads.into_iter().filter(are_of_logs).map(|(_, thread)| thread).collect::<Vec<_>>()
    };
    let taken = || logs(std::mem::take(&mut *reads.lock().expect("no panic")));
    taken();
    for _ in 0..5 {
        desk.housekeep();
    }
    assert_eq!(taken(), Vec::<Option<String>>::new(), "nothing is old enough");
    desk.hand.advance(Duration::from_secs(60));
    desk.housekeep();
    let trimmed = taken();
    assert!(trimmed.len() >= IDLE as usize && !trimmed.contains(&Some("journal".to_owned())), "{trimmed:?}");
    assert!((1..=IDLE).all(|id| log_in(&store, id).is_empty()));
    for _ in 0..5 {
        desk.housekeep();
    }
    assert_eq!(taken(), Vec::<Option<String>>::new(), "nothing is left");
    desk.stop();
}

#[test]
fn a_partition_that_was_abandoned_is_gone_and_stays_gone() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    desk.publish(3);
    let owner = desk.open(ONE).owner;
    desk.write(owner, vec![owe(1, None), put_aside(2), cursor(4)]);
    desk.housekeep();
    let all = vec![MetaChange::Unsubscribe(ONE), MetaChange::Unsubscribe(TWO), MetaChange::Abandon(PARTITION)];
    desk.wait(desk.journal.change(all)).expect("there is room");
    assert!(matches!(desk.wait(desk.ask_publish(1)), Err(Error::Unknown)));
    for _ in 0..3 {
        desk.housekeep();
    }
    for family in [Family::Log, Family::Cursor, Family::Owed, Family::Due, Family::Held, Family::Pin, Family::Dead] {
        assert_eq!(count(&store, family), 0, "{family:?}");
    }
    desk.stop();
    let again = Desk::at(Arc::new(store.crash(0)), Duration::ZERO);
    assert_eq!(again.journal.end(PARTITION), None);
    assert!(matches!(again.wait(again.ask_publish(1)), Err(Error::Unknown)));
    again.stop();
}

// --- the end of a subscription ---

#[test]
fn a_subscription_that_ends_is_fenced_and_what_it_owed_is_canceled_bit_by_bit() {
    let _rows = crate::spec::shows(&["S000-147"]);
    let store = Memory::new();
    let desk = Desk::founded(&store);
    desk.publish(2000);
    let [one, two] = [ONE, TWO].map(|obligor| desk.open(obligor).owner);
    let mut changes: Vec<Change> = (1..=1990).map(|seq| owe(seq, None)).collect();
    changes.extend([put_aside(1991), cursor(2001)]);
    desk.write(one, changes);
    desk.write(two, vec![owe(7, None), cursor(2001)]);
    desk.housekeep();
    assert_eq!(held(&store).len(), 1991);
    desk.wait(desk.journal.change(vec![MetaChange::Unsubscribe(ONE)])).expect("there is room");
    assert!(matches!(desk.append(one, vec![cursor(1)], true).recv(), Ok(Err(Error::Fenced))));
    assert!(matches!(desk.wait(desk.journal.open(ONE)), Err(Error::Unknown)));
    desk.housekeep();
    assert!(count(&store, Family::Owed) > 1, "not all at once");
    // The rest after a crash in between.
    desk.stop();
    let store = store.crash(0);
    let desk = Desk::at(Arc::new(store.clone()), Duration::ZERO);
    for _ in 0..6 {
        desk.housekeep();
    }
    assert_eq!(
        [Family::Owed, Family::Due, Family::Pin, Family::Dead].map(|family| count(&store, family)),
        [1, 1, 0, 0]
    );
    assert_eq!((held(&store), log_in(&store, 1)), (vec![7], vec![]), "the other one owes it");
    let jobs = keys::meta_of(MetaKind::Job);
    assert!(keys_in(&store, Family::Meta, &jobs.start, &jobs.end).is_empty());
    let (mut canceled, range) = (0, keys::ledger_of(ONE));
    let visit = &mut |_: &[u8], value: &[u8]| {
        canceled += u32::from(Entry::decode(value).expect("whole").what == What::Canceled);
        ControlFlow::Continue(())
    };
    store.scan(Family::Ledger, &range.start, &range.end, visit).expect("readable");
    assert_eq!(canceled, 1990);
    desk.stop();
}

#[test]
fn the_account_of_dead_letters_goes_with_its_subscription_and_stays_gone() {
    let store = Memory::new();
    let desk = Desk::founded(&store);
    let owner = desk.open(ONE).owner;
    let account = |of: Obligor| Buried {
        totals: Some((keys::dead_letters_name(of), Bytes::from_static(b"account"))),
        ..Buried::default()
    };
    let kept = || {
        let range = keys::meta_of(MetaKind::DeadLetters);
        keys_in(&store, Family::Meta, &range.start, &range.end)
    };
    for of in [ONE, TWO] {
        desk.wait(desk.journal.bury(of, account(of))).expect("there is room");
    }
    assert_eq!(kept(), [keys::dead_letters(ONE), keys::dead_letters(TWO)]);
    desk.wait(desk.journal.change(vec![MetaChange::Unsubscribe(ONE)])).expect("there is room");
    desk.housekeep();
    assert_eq!(kept(), [keys::dead_letters(TWO)]);
    // A file was being written meanwhile.
    desk.wait(desk.journal.bury(ONE, account(ONE))).expect("there is room");
    assert_eq!(kept(), [keys::dead_letters(TWO)]);
    // Nothing is kept of its lives either, and the last of them is fenced all the same.
    assert!(matches!(desk.wait(desk.journal.open(ONE)), Err(Error::Unknown)));
    assert!(matches!(desk.append(owner, vec![cursor(1)], true).recv(), Ok(Err(Error::Fenced))));
    desk.stop();
}

// --- readers ---

#[test]
fn a_read_that_panics_is_answered_and_takes_no_thread_along() {
    let reads = Arc::<Mutex<Vec<(Family, Option<String>)>>>::default();
    let store = Memory::new();
    let desk =
        Desk::at(Arc::new(Counted { store, reads: Arc::clone(&reads), panics_at: Some(Family::Held) }), Duration::ZERO);
    desk.found();
    desk.publish(1);
    for _ in 0..8 {
        assert!(matches!(desk.wait(desk.journal.reads().last_held(PARTITION)), Err(Error::Damaged(_))));
    }
    assert!(desk.fetch(ONE, 1));
    assert_eq!(desk.journal.figures().read_panics, 8);
    desk.stop();
}

// --- found again ---

/// Ends and counts are found again, whether the log is there or wholly passed.
fn check_recovery(desk: &Desk, again: impl FnOnce() -> Desk) {
    desk.found();
    desk.publish(3);
    desk.publish(2);
    let [one, two] = [ONE, TWO].map(|obligor| desk.open(obligor).owner);
    desk.write(one, vec![owe(2, None), cursor(6)]);
    desk.write(two, vec![cursor(6)]);
    desk.housekeep();
    let end = desk.journal.end(PARTITION).expect("founded");
    assert_eq!((end.next, end.running.count), (Seq(6), 5));
    let again = again();
    assert_eq!(again.journal.end(PARTITION), Some(end));
    assert!(again.fetch(ONE, 2));
    assert_eq!(again.publish(1), Seq(6));
    let opened = again.open(ONE);
    assert_eq!((opened.cursor.lanes[0].read, opened.end), (Seq(6), Seq(7)));
    assert!(again.clock.now() >= START);
    again.stop();
}

#[test]
fn a_journal_is_found_again_after_a_crash() {
    let store = Memory::new();
    let desk = Desk::at(Arc::new(store.clone()), Duration::ZERO);
    check_recovery(&desk, || Desk::at(Arc::new(store.crash(0)), Duration::ZERO));
}

#[test]
fn a_journal_is_found_again_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = tempfile::tempdir().expect("a folder");
    let open = |path| Arc::new(Rocks::open(path, &RocksOptions::default()).expect("a sound store"));
    let desk = Desk::at(open(folder.path()), Duration::ZERO);
    check_recovery(&desk, || {
        super::copy_folder(folder.path(), copy.path()).expect("a copy");
        Desk::at(open(copy.path()), Duration::ZERO)
    });
    desk.stop();
}
