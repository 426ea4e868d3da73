//! Trimming while subscriptions write: whatever is written between two reads of a lookup, no needed
//! event is lost, and everything else is removed in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use gridhook::{
    event::{Lane, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{DeadLetterKey, DeadLetterWrite, LogGuard, MetaChange, SubscriptionOwner},
    policy::record::{Cursor, LaneCursor, RecordChange, RedrivePage, RedrivenEvent},
    store::{Family, Store, StoreError, Visit, layer},
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof, proptest},
    test_runner::Config,
};

use super::{
    log_in,
    writer::{DUE, ListenedJournal, PARTITION, count, dead, held, pending},
};
use crate::support::memory_store::MemoryStore;
use crate::support::trims::wait_for_looks;

/// A gate: reads of a lookup continue only when the test allows them.
#[derive(Default)]
struct Gate {
    state: Mutex<Reads>,
    changed: Condvar,
}

#[derive(Default)]
struct Reads {
    /// The number of reads that the lookup may still make.
    allowed: Option<u32>,
    is_waiting: bool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Reads> {
        self.state.lock()
    }

    /// Called before each read. A lookup waits here when it may not continue.
    fn pass(&self) {
        if std::thread::current().name() != Some("journal-trim") {
            return;
        }
        let mut reads = self.lock();
        while reads.allowed == Some(0) {
            reads.is_waiting = true;
            self.changed.notify_all();
            self.changed.wait(&mut reads);
        }
        reads.is_waiting = false;
        reads.allowed = reads.allowed.map(|allowed| allowed - 1);
    }

    /// The next lookup stops before its read number `allowed`, counted from 0.
    fn close(&self, allowed: u32) {
        self.lock().allowed = Some(allowed);
    }

    fn open(&self) {
        self.lock().allowed = None;
        self.changed.notify_all();
    }

    /// Waits until a lookup waits, or none is in progress.
    fn until_a_look_waits(&self, queue: &ListenedJournal) {
        let mut reads = self.lock();
        while !reads.is_waiting && queue.journal.trimming_count() > 0 {
            self.changed.wait_for(&mut reads, Duration::from_millis(1));
        }
    }
}

/// A store whose lookups pass a gate before each read.
struct Gated(MemoryStore, Arc<Gate>);

impl layer::StoreLayer for Gated {
    type Inner = MemoryStore;

    fn inner(&self) -> &Self::Inner {
        &self.0
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.1.pass();
        self.0.get(family, key)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.1.pass();
        self.0.scan(family, from, upper, visit)
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        self.1.pass();
        self.0.last(family, lower, upper)
    }

    fn scan_uncached(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        Store::scan(self, family, from, upper, visit)
    }

    fn last_uncached(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        Store::last(self, family, lower, upper)
    }
}

/// An action of the test.
#[derive(Clone, Debug)]
enum Act {
    /// Publishes this many requests with one event.
    Publish(u8),
    /// A subscription reads on. Each event is delivered, becomes pending, or becomes a dead letter.
    Read(u8, Vec<u8>),
    /// A pending delivery is retried.
    Retry(u8, u8),
    /// A pending delivery is settled.
    Settle(u8, u8),
    /// A pending delivery becomes a dead letter.
    PutAside(u8, u8),
    /// A dead letter is written.
    Bury(u8, u8),
    /// A dead letter is redriven.
    Redrive(u8, u8),
    /// A subscription is created that starts this far before the end.
    Subscribe(u8),
    /// The log is held from this far before the end, until this is done again.
    Hold(u8),
    /// The waiting lookup finishes, and the next one waits before its read of this number.
    Look(u32),
}

fn act() -> impl Strategy<Value = Act> {
    let who = any::<u8>;
    let which = any::<u8>;
    prop_oneof![
        2 => (1u8..4).prop_map(Act::Publish),
        3 => (who(), vec(0u8..3, 1..5)).prop_map(|(who, fates)| Act::Read(who, fates)),
        2 => (who(), which()).prop_map(|(who, which)| Act::Retry(who, which)),
        2 => (who(), which()).prop_map(|(who, which)| Act::Settle(who, which)),
        2 => (who(), which()).prop_map(|(who, which)| Act::PutAside(who, which)),
        2 => (who(), which()).prop_map(|(who, which)| Act::Bury(who, which)),
        2 => (who(), which()).prop_map(|(who, which)| Act::Redrive(who, which)),
        1 => (0u8..6).prop_map(Act::Subscribe),
        1 => (0u8..6).prop_map(Act::Hold),
        3 => prop_oneof![0u32..6, Just(0), Just(1), Just(2)].prop_map(Act::Look),
    ]
}

/// The expected state of a subscription.
struct Known {
    owner: SubscriptionOwner,
    read: u64,
    pending: BTreeMap<u64, Timestamp>,
    dead: BTreeSet<u64>,
}

/// The journal and its expected state.
struct ModeledJournal {
    queue: ListenedJournal,
    store: MemoryStore,
    gate: Arc<Gate>,
    next: u64,
    known: Vec<Known>,
    guard: Option<LogGuard>,
}

fn pick<T: Copy>(all: &[T], which: u8) -> Option<T> {
    all.get(usize::from(which) % all.len().max(1)).copied()
}

impl ModeledJournal {
    fn new() -> Self {
        let store = MemoryStore::new();
        let gate = Arc::<Gate>::default();
        let queue = ListenedJournal::at(
            Arc::new(Gated(store.clone(), Arc::clone(&gate))),
            Duration::ZERO,
        );
        queue
            .wait(
                queue
                    .journal
                    .write_meta_changes(vec![MetaChange::CreatePartition(PARTITION)]),
            )
            .expect("founded");
        let mut scene = Self {
            queue,
            store,
            gate,
            next: 1,
            known: Vec::new(),
            guard: None,
        };
        scene.subscribe(0);
        scene.subscribe(0);
        scene
    }

    fn subscribe(&mut self, back: u8) {
        let number = u32::try_from(self.known.len()).expect("a few") + 1;
        let subscription_key = SubscriptionKey {
            partition: PARTITION,
            subscription: SubscriptionId(number),
        };
        let start = Seq(self.next.saturating_sub(back.into()).max(1));
        let made = self
            .queue
            .journal
            .write_meta_changes(vec![MetaChange::Subscribe(subscription_key, Some(start))]);
        self.queue.wait(made).expect("made");
        let opened = self.queue.open(subscription_key);
        let read = opened.cursor.lanes[0].read.0;
        self.known.push(Known {
            owner: opened.owner,
            read,
            pending: BTreeMap::new(),
            dead: BTreeSet::new(),
        });
    }

    fn write(&self, who: usize, mut changes: Vec<RecordChange>) {
        let known = &self.known[who];
        let read = Seq(known.read);
        let lane = LaneCursor::new(Lane::LIVE, read, None);
        changes.push(RecordChange::Cursor(Box::new(Cursor {
            lanes: vec![lane],
            ..Cursor::default()
        })));
        self.queue.write(known.owner, changes);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Publish(count) => {
                for _ in 0..count {
                    self.queue.publish(1);
                    self.next += 1;
                }
            }
            Act::Read(who, fates) => {
                let who = usize::from(who) % self.known.len();
                let next = self.next;
                let known = &mut self.known[who];
                let mut changes = Vec::new();
                for (seq, fate) in (known.read..next).zip(fates) {
                    known.read = seq + 1;
                    match fate {
                        0 => {}
                        1 => changes.push(pend(known, seq, None)),
                        _ => changes.push(bear(known, seq)),
                    }
                }
                self.write(who, changes);
            }
            Act::Retry(who, which) => self.change_pending(who, which, |known, seq, due| {
                vec![pend(known, seq, Some(due))]
            }),
            Act::Settle(who, which) => {
                self.change_pending(who, which, |known, seq, due| vec![settle(known, seq, due)])
            }
            Act::PutAside(who, which) => {
                self.change_pending(who, which, |known, seq, due| {
                    vec![settle(known, seq, due), bear(known, seq)]
                });
            }
            Act::Bury(who, which) => {
                let who = usize::from(who) % self.known.len();
                let all: Vec<u64> = self.known[who].dead.iter().copied().collect();
                let Some(seq) = pick(&all, which) else { return };
                self.remove_dead_letter(who, seq);
            }
            Act::Redrive(who, which) => {
                let who = usize::from(who) % self.known.len();
                let known = &mut self.known[who];
                let Some(seq) = pick(&known.dead.iter().copied().collect::<Vec<_>>(), which) else {
                    return;
                };
                known.dead.remove(&seq);
                let waited = Some((DUE, Seq(seq), Lane::LIVE));
                let letters = vec![RedrivenEvent {
                    seq: Seq(seq),
                    waited,
                    event: None,
                }];
                let lane = Lane(7);
                let progress = Bytes::new();
                let page = RedrivePage {
                    lane,
                    dead_letters: letters,
                    progress,
                    totals: None,
                    drained: false,
                };
                let changes = vec![
                    RecordChange::Redrive(Box::new(page)),
                    pend(known, seq, None),
                ];
                self.write(who, changes);
            }
            Act::Subscribe(back) => self.subscribe(back),
            Act::Hold(back) => {
                let from = Seq(self.next.saturating_sub(back.into()).max(1));
                self.guard = match self.guard.take() {
                    Some(_) => None,
                    None => Some(
                        self.queue
                            .wait(self.queue.journal.guard_log(PARTITION, from))
                            .expect("it is there"),
                    ),
                };
            }
            Act::Look(reads) => self.look(reads),
        }
        self.check();
    }

    fn change_pending(
        &mut self,
        who: u8,
        which: u8,
        change: impl FnOnce(&mut Known, u64, Timestamp) -> Vec<RecordChange>,
    ) {
        let who = usize::from(who) % self.known.len();
        let known = &mut self.known[who];
        let all: Vec<(u64, Timestamp)> = known
            .pending
            .iter()
            .map(|(seq, due)| (*seq, *due))
            .collect();
        let Some((seq, due)) = pick(&all, which) else {
            return;
        };
        let changes = change(known, seq, due);
        self.write(who, changes);
    }

    fn remove_dead_letter(&mut self, who: usize, seq: u64) {
        let known = &mut self.known[who];
        known.dead.remove(&seq);
        let done = vec![DeadLetterKey {
            due: DUE,
            seq: Seq(seq),
            lane: Lane::LIVE,
        }];
        let removed = self.queue.journal.write_dead_letters(
            known.owner.subscription_key,
            DeadLetterWrite {
                done,
                ..DeadLetterWrite::default()
            },
        );
        self.queue.wait(removed).expect("there is room");
    }

    /// Lets the waiting lookup finish, and the next one begin.
    fn look(&self, reads: u32) {
        self.gate.open();
        wait_for_looks(&self.queue.journal);
        self.gate.close(reads);
        self.queue.hand.advance(Duration::from_secs(2));
        // The response to the second entry follows the effects of the first.
        for _ in 0..2 {
            self.queue
                .wait(self.queue.journal.write_meta_changes(Vec::new()))
                .expect("there is room");
        }
        self.gate.until_a_look_waits(&self.queue);
    }

    /// Every needed event can be read.
    fn check(&self) {
        for known in &self.known {
            let wanted = known
                .pending
                .keys()
                .chain(&known.dead)
                .copied()
                .chain(known.read..self.next);
            for seq in wanted {
                assert!(
                    self.queue.fetch(known.owner.subscription_key, seq),
                    "{:?} has lost event {seq}",
                    known.owner.subscription_key
                );
            }
        }
        if let Some(guard) = &self.guard {
            let any = self.known[0].owner.subscription_key;
            assert!(
                (guard.from.0..self.next).all(|seq| self.queue.fetch(any, seq)),
                "the log is held from {:?}",
                guard.from
            );
        }
    }

    /// After everything is settled, nothing is left.
    fn end(mut self) {
        self.guard = None;
        for who in 0..self.known.len() {
            let known = &mut self.known[who];
            known.read = self.next;
            let pending: Vec<(u64, Timestamp)> = known
                .pending
                .iter()
                .map(|(seq, due)| (*seq, *due))
                .collect();
            let changes = pending
                .into_iter()
                .map(|(seq, due)| settle(known, seq, due))
                .collect();
            self.write(who, changes);
            for seq in self.known[who].dead.clone() {
                self.remove_dead_letter(who, seq);
            }
        }
        self.gate.open();
        for _ in 0..3 {
            self.queue.housekeep();
        }
        assert_eq!(
            (log_in(&self.store, PARTITION.0), held(&self.store)),
            (Vec::new(), Vec::new())
        );
        assert_eq!(
            [Family::Pending, Family::Due, Family::Pin, Family::Dead]
                .map(|of| count(&self.store, of)),
            [0; 4]
        );
        self.queue.stop();
    }
}

fn pend(known: &mut Known, seq: u64, was_due: Option<Timestamp>) -> RecordChange {
    let due = was_due.map_or(DUE, |was| was.after(Duration::from_secs(1)));
    known.pending.insert(seq, due);
    RecordChange::Defer {
        lane: Lane::LIVE,
        seq: Seq(seq),
        pending: pending(due),
        was_due,
    }
}

fn settle(known: &mut Known, seq: u64, was_due: Timestamp) -> RecordChange {
    known.pending.remove(&seq);
    RecordChange::Settle {
        lane: Lane::LIVE,
        seq: Seq(seq),
        was_due,
    }
}

fn bear(known: &mut Known, seq: u64) -> RecordChange {
    known.dead.insert(seq);
    RecordChange::DeadLetter {
        lane: Lane::LIVE,
        seq: Seq(seq),
        due: DUE,
        dead: dead(),
    }
}

fn play(acts: impl IntoIterator<Item = Act>) {
    let mut scene = ModeledJournal::new();
    acts.into_iter().for_each(|act| scene.act(act));
    scene.end();
}

/// Both subscriptions have read three events, which are all dead letters of the first one if
/// `is_dead`. A lookup waits before its read `reads` while the action runs.
fn while_a_look_waits(reads: u32, is_dead: bool, act: Act) {
    let read = |who, fate| Act::Read(who, vec![fate; 4]);
    let fate = if is_dead { 2 } else { 0 };
    play([
        Act::Publish(3),
        read(0, fate),
        read(1, 0),
        Act::Look(reads),
        act,
        Act::Look(0),
    ]);
}

#[test]
fn a_dead_letter_that_is_sent_again_between_two_reads_of_a_look_is_kept() {
    (0..8).for_each(|reads| while_a_look_waits(reads, true, Act::Redrive(0, 0)));
}

#[test]
fn an_event_that_is_settled_between_two_reads_of_a_look_is_not_held_for_ever() {
    (0..8).for_each(|reads| while_a_look_waits(reads, true, Act::Bury(0, 0)));
}

#[test]
fn a_log_that_is_asked_for_while_a_look_waits_is_kept() {
    (0..8).for_each(|reads| while_a_look_waits(reads, false, Act::Subscribe(2)));
    (0..8).for_each(|reads| while_a_look_waits(reads, false, Act::Hold(2)));
}

proptest! {
    #![proptest_config(Config { cases: 64, failure_persistence: None, ..Config::default() })]

    #[test]
    fn whatever_is_written_while_looks_wait_nothing_is_lost_that_is_asked_for_and_nothing_else_is_left(
        acts in vec(act(), 1..40),
    ) {
        play(acts);
    }
}
