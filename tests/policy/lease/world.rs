//! Clients, a core, its journal and its disk: any events in any order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, mpsc},
    time::Duration,
};

use gridhook::{
    clock::{Clock, ManualClock},
    event::{Lane, PartitionId, RequestId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{
        BacklogLimits, Error, Journal, JournalOptions, MetaChange, Shards, SubscriptionOwner,
        WriterThreads,
    },
    policy::{
        CoreStep, Effect, Input, PullSettings, Subscription, SubscriptionSettings,
        SubscriptionWrite, batch,
        filter::{Filter, key::FilterKey},
        order::OrderSettings,
        record::{
            Command, WriteUrgency,
            lease::{Lease, LeaseAction, LeaseClaim, LeaseResult, ReceiveId},
        },
        retry::Jitter,
    },
    store::{Store, StoreError},
};

use super::{
    super::{
        disk::{EffectReader, load},
        driver::START,
        plain, sealed,
    },
    Bug, Saboteur,
    truth::Truths,
};
use crate::support::{events::SmallRng, memory_store::MemoryStore};

const PARTITION: PartitionId = PartitionId(7);
const SUBSCRIPTION_KEY: SubscriptionKey = SubscriptionKey {
    partition: PARTITION,
    subscription: SubscriptionId(3),
};
pub(super) const LOCK: Duration = Duration::from_secs(60);

/// A claim of a client, and when it was sent.
struct SentClaim {
    claim: LeaseClaim,
    at: Timestamp,
    /// Attempts at each of its events by then.
    attempts: Vec<u32>,
}

pub(super) struct LeaseRun {
    dice: SmallRng,
    settings: SubscriptionSettings,
    filter: Filter,
    memory: MemoryStore,
    journal: Journal,
    writer: WriterThreads,
    clock: Clock,
    hand: ManualClock,
    runtime: tokio::runtime::Runtime,
    core: Subscription,
    owner: SubscriptionOwner,
    /// In transit to the core.
    coming: Vec<Input>,
    reads: Vec<Effect>,
    /// Handed to the journal, and not there.
    write: Option<SubscriptionWrite>,
    ids: u64,
    waiting: BTreeSet<ReceiveId>,
    claims: BTreeMap<u64, SentClaim>,
    /// The tokens that clients have, valid or not.
    held: Vec<Lease>,
    truths: Truths,
    /// The key of each matching event, where there is an order.
    keys: BTreeMap<Seq, usize>,
    saboteur: Saboteur,
    /// How often each step was taken, and refused.
    pub(super) steps: BTreeMap<&'static str, u32>,
}

fn start(memory: &MemoryStore, clock: &Clock) -> (Journal, WriterThreads) {
    let limits = BacklogLimits {
        retention: Duration::ZERO,
        ..BacklogLimits::default()
    };
    let options = JournalOptions {
        outcome_delay: Duration::ZERO,
        group_bytes: 1 << 20,
        shards: Shards::default(),
        limits,
    };
    let fatal = Box::new(|error: &StoreError| println!("fatal: {error}"));
    Journal::start(
        Arc::new(memory.clone()) as Arc<dyn Store>,
        clock.clone(),
        options,
        Box::new(|_, _| {}),
        fatal,
    )
    .expect("a sound store")
}

/// From this seed on, the subscription keeps the order of subjects.
pub(super) const ORDERED: u64 = 1_000_000;

/// The subjects of matching events.
pub(super) const SUBJECTS: [&str; 3] = ["yes", "yes-2", "yes-3"];

impl LeaseRun {
    pub(super) fn begin(seed: u64, bug: Option<Bug>) -> Self {
        let mut dice = SmallRng(seed);
        let settings = SubscriptionSettings {
            attempts_max: [1, 2, 4, 10][dice.below(4)],
            time_to_live: Duration::from_secs([300, 7200, 86_400][dice.below(3)]),
            batch: batch::BatchLimits {
                events_max: 100,
                bytes_preferred: [100, 1 << 16][dice.below(2)],
                ..plain().batch
            },
            dead_letter: dice.below(2) == 0,
            pull: Some(PullSettings {
                lock: LOCK,
                leases_max: [1, 4, 100][dice.below(3)],
            }),
            order: (seed >= ORDERED).then(|| {
                let key = FilterKey::from("subject".to_owned());
                let tracked_max = [3, 8, 1000][seed as usize % 3];
                Arc::new(OrderSettings {
                    key,
                    tracked_max,
                    blocks: seed % 2 == 1,
                    one_of_a_key: false,
                })
            }),
            ..plain()
        };
        let memory = MemoryStore::new();
        let (clock, hand) = Clock::new_manual(START);
        let (journal, writer) = start(&memory, &clock);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let founded = journal.write_meta_changes(vec![
            MetaChange::CreatePartition(PARTITION),
            MetaChange::Subscribe(SUBSCRIPTION_KEY, None),
        ]);
        runtime.block_on(founded).expect("founded");
        let opened = runtime
            .block_on(journal.open(SUBSCRIPTION_KEY))
            .expect("it is there");
        let core = Subscription::from_records(
            settings.clone(),
            &opened.cursor,
            opened.end,
            Vec::new(),
            RequestId(1),
            clock.now(),
        );
        Self {
            dice,
            truths: Truths::new(&settings),
            settings,
            filter: Filter {
                subject_begins_with: "yes".to_owned(),
                ..Filter::default()
            },
            memory,
            journal,
            writer,
            clock,
            hand,
            runtime,
            core,
            owner: opened.owner,
            coming: Vec::new(),
            reads: Vec::new(),
            write: None,
            ids: 0,
            waiting: BTreeSet::new(),
            claims: BTreeMap::new(),
            held: Vec::new(),
            keys: BTreeMap::new(),
            saboteur: Saboteur::new(bug),
            steps: BTreeMap::new(),
        }
    }

    /// How often the saboteur did wrong.
    pub(super) fn injected(&self) -> u32 {
        self.saboteur.injected()
    }

    fn wait<T>(&self, promise: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.runtime.block_on(promise)
    }

    fn end(&self) -> Seq {
        self.journal.log_end(PARTITION).expect("founded").next
    }

    pub(super) fn step(&mut self) {
        match self.dice.below(100) {
            0..6 => self.publish(),
            6..16 => self.receive(),
            16..18 => self.withdraw(),
            18..40 => self.say(),
            40..86 => (0..=self.dice.below(8)).for_each(|_| self.go_on()),
            86..90 => self.wake(),
            96 if self.blocked() > 0 => {
                let retry = self.dice.below(2) == 0;
                self.unblock(retry);
            }
            90..97 => {
                let seconds = [0.000_001, 1.0, 1.0, 10.0, 10.0, 31.0, 61.0, 600.0, 4000.0]
                    [self.dice.below(9)];
                self.hand.advance(Duration::from_secs_f64(seconds));
            }
            97 => {
                let held = self.dice.below(6) == 0;
                self.absorb(Input::Command(if held {
                    Command::Hold
                } else {
                    Command::Resume
                }));
            }
            98 => self.kill(),
            _ => self.crash(),
        }
    }

    fn publish(&mut self) {
        let matching: Vec<bool> = (0..=self.dice.below(8))
            .map(|_| self.dice.below(4) > 0)
            .collect();
        let keys = if self.settings.order.is_some() {
            SUBJECTS.len()
        } else {
            1
        };
        let subjects: Vec<usize> = matching
            .iter()
            .map(|_| if keys > 1 { self.dice.below(keys) } else { 0 })
            .collect();
        let subject = |yes: bool, subject: usize| if yes { SUBJECTS[subject] } else { "no" };
        let events: Vec<(&str, usize)> = matching
            .iter()
            .zip(&subjects)
            .map(|(yes, of)| (subject(*yes, *of), self.dice.below(80)))
            .collect();
        let published = self
            .wait(self.journal.append_events(PARTITION, sealed(&events), None))
            .expect("there is room");
        for (index, matches) in matching.into_iter().enumerate() {
            let seq = published.first.plus(index as u64);
            self.truths.publish(seq, matches, self.clock.now());
            if matches && keys > 1 {
                self.keys.insert(seq, subjects[index]);
            }
        }
        // A hint that is lost costs latency.
        if self.dice.below(5) > 0 {
            self.coming.push(Input::Appended { end: self.end() });
        }
    }

    // --- clients ---

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn receive(&mut self) {
        let who = ReceiveId(self.id());
        self.waiting.insert(who);
        let most = [1, 1, 3, 100][self.dice.below(4)];
        self.coming.push(Input::Receive(who, most));
    }

    fn withdraw(&mut self) {
        if let Some(who) = self.waiting.pop_first() {
            self.coming.push(Input::Withdraw(who));
        }
    }

    /// A client says something of what it holds, or held.
    fn say(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let leases = (0..=self.dice.below(3))
            .map(|_| self.held[self.dice.below(self.held.len())])
            .collect();
        let action = match self.dice.below(10) {
            0..4 => LeaseAction::Acknowledge,
            4..6 => LeaseAction::Release(Duration::from_secs(
                [0, 10, 60, 600, 3600][self.dice.below(5)],
            )),
            6 => LeaseAction::Reject,
            _ => LeaseAction::Renew,
        };
        self.claim(action, leases);
    }

    fn claim(&mut self, action: LeaseAction, leases: Vec<Lease>) {
        let claim = LeaseClaim {
            id: self.id(),
            action,
            leases,
        };
        let attempts = claim
            .leases
            .iter()
            .map(|lease| self.truths.attempts(lease.seq))
            .collect();
        self.claims.insert(
            claim.id,
            SentClaim {
                claim: claim.clone(),
                at: self.clock.now(),
                attempts,
            },
        );
        self.coming.push(Input::Claim(claim));
    }

    fn hand_over(&mut self, to: ReceiveId, leases: Vec<Lease>) {
        for lease in &leases {
            let key = self.keys.get(&lease.seq);
            let before = self
                .keys
                .range(..lease.seq)
                .filter(|(_, of)| key == Some(*of));
            for (before, _) in before {
                assert!(
                    self.truths.is_over(*before),
                    "{lease:?} is handed out before {before:?} of its key has ended"
                );
            }
            self.truths.handed(*lease, self.clock.now());
            *self
                .steps
                .entry(if lease.attempt > 1 {
                    "received again"
                } else {
                    "received"
                })
                .or_default() += 1;
        }
        let is_there = self.waiting.remove(&to);
        if !is_there {
            // As the slot does it for who is gone.
            self.claim(LeaseAction::Release(Duration::ZERO), leases);
        } else if self.dice.below(8) > 0 {
            self.held.extend(leases);
        }
    }

    fn report_results(&mut self, to: u64, results: &[LeaseResult]) {
        let SentClaim {
            claim,
            at,
            attempts,
        } = self
            .claims
            .remove(&to)
            .expect("it was sent, and not answered before");
        assert_eq!(results.len(), claim.leases.len());
        let step = match claim.action {
            LeaseAction::Acknowledge => "acknowledge",
            LeaseAction::Release(_) => "release",
            LeaseAction::Return => "take back",
            LeaseAction::Reject => "reject",
            LeaseAction::Renew => "renew",
        };
        for ((lease, result), attempts) in claim.leases.iter().zip(results).zip(attempts) {
            let is_newest = lease.attempt == attempts;
            assert!(
                is_newest || *result != LeaseResult::Done,
                "{lease:?} is taken, and {attempts} were made by then"
            );
            *self.steps.entry(step).or_default() += u32::from(*result == LeaseResult::Done);
            *self.steps.entry("refused").or_default() += u32::from(*result != LeaseResult::Done);
            let others = self
                .claims
                .values()
                .any(|other| other.claim.leases.contains(lease));
            let twice = claim.leases.iter().filter(|other| *other == lease).count() > 1;
            self.truths.report_results(
                *lease,
                claim.action,
                *result,
                at,
                self.clock.now(),
                others || twice,
            );
        }
    }

    // --- the machine ---

    /// Something goes a step further.
    fn go_on(&mut self) {
        if self.write.is_some() && self.dice.below(3) == 0 {
            return self.settle_write();
        }
        if !self.reads.is_empty() && self.dice.below(2) == 0 {
            let effect = self.reads.swap_remove(self.dice.below(self.reads.len()));
            let input = self.read(effect);
            return self.absorb(input);
        }
        if !self.coming.is_empty() {
            let input = self.coming.swap_remove(self.dice.below(self.coming.len()));
            self.absorb(input);
        }
    }

    fn read(&mut self, effect: Effect) -> Input {
        let few = 1 + self.dice.below(400);
        let journal = &self.journal;
        let runtime = &self.runtime;
        let filter = &self.filter;
        let mut input = EffectReader {
            journal,
            runtime,
            subscription_key: SUBSCRIPTION_KEY,
            filter,
        }
        .read(effect, few);
        if let Input::Read { events, .. } = &mut input
            && !events.is_empty()
            && self.saboteur.does(Bug::LoseAnEventOfASlice)
        {
            events.pop();
        }
        input
    }

    /// Keys that are blocked.
    fn blocked(&self) -> usize {
        self.core
            .view_endpoint(self.clock.now())
            .order
            .map_or(0, |order| order.blocked)
    }

    fn unblock(&mut self, retry: bool) {
        *self
            .steps
            .entry(if retry {
                "unblock by another attempt"
            } else {
                "unblock"
            })
            .or_default() += 1;
        self.absorb(Input::Command(Command::Unblock { key: None, retry }));
    }

    fn wake(&mut self) {
        let Some(next) = self.core.next_due(self.clock.now()) else {
            return;
        };
        if self.saboteur.does(Bug::LoseTheTimer) {
            return;
        }
        if self.dice.below(2) == 0 {
            self.hand.set(next.max(self.clock.now()));
        }
        self.absorb(Input::Tick);
    }

    fn absorb(&mut self, mut input: Input) {
        self.saboteur
            .hear(&mut input, &self.memory, SUBSCRIPTION_KEY);
        let ahead = if self.saboteur.does(Bug::ExpireEarly) {
            Duration::from_secs(45)
        } else {
            Duration::ZERO
        };
        let CoreStep { write, effects } =
            self.core
                .process_input(input, self.clock.now().after(ahead), Jitter(0.0));
        if let Some(mut write) = write {
            assert!(self.write.is_none(), "two writes at once");
            self.saboteur.ask(&mut write);
            self.write = Some(write);
            if self.saboteur.does(Bug::AnswerBeforeDurable) {
                self.coming.push(Input::Durable);
            }
        }
        for effect in effects {
            match effect {
                Effect::Send { .. } | Effect::Connect => panic!("what is pulled is sent"),
                Effect::HandOver { client, events } => {
                    self.hand_over(client, events.into_iter().map(|(lease, _)| lease).collect());
                }
                Effect::ReportResults { claim, results } => self.report_results(claim, &results),
                Effect::ReadLog { .. }
                | Effect::FindPosition { .. }
                | Effect::ReadDue { .. }
                | Effect::Fetch(_)
                | Effect::ReadPending(_) => self.reads.push(effect),
            }
        }
    }

    /// The journal writes what it was handed.
    fn settle_write(&mut self) {
        let Some(write) = self.write.take() else {
            return;
        };
        let (done, response) = mpsc::channel();
        let done = Box::new(move |result| done.send(result).unwrap_or_default());
        self.journal
            .write_changes(self.owner, write.changes.clone(), WriteUrgency::Now, done);
        self.wait(self.journal.write_meta_changes(Vec::new()))
            .expect("there is room");
        response
            .try_recv()
            .expect("it was tried")
            .expect("nothing fences the present incarnation");
        self.truths.written(&write.changes, self.clock.now());
        self.check_disk();
        if !self.saboteur.is(Bug::AnswerBeforeDurable) {
            self.coming.push(Input::Durable);
        }
    }

    fn check_disk(&self) {
        let disk = load(&self.memory, SUBSCRIPTION_KEY);
        disk.check_counters();
        self.truths.check(&disk);
    }

    // --- disasters ---

    /// The actor dies. What it had handed to the journal may be written yet.
    fn kill(&mut self) {
        self.coming.clear();
        self.reads.clear();
        if self.dice.below(2) == 0 {
            self.settle_write();
        }
        self.write = None;
        self.coming.clear();
        self.open();
    }

    /// The process dies, and with it all that is not on disk. Only a new one may find that the
    /// clock was set back.
    fn crash(&mut self) {
        self.coming.clear();
        self.reads.clear();
        self.write = None;
        let back = Duration::from_secs([0, 0, 1, 50, 3000][self.dice.below(5)]);
        let now = self.clock.now().before(back).max(START);
        (self.clock, self.hand) = Clock::new_manual(now);
        self.truths.clock_set(now);
        self.memory = self.memory.crash(0);
        (self.journal, self.writer) = start(&self.memory, &self.clock);
        // Their connections are gone.
        self.waiting.clear();
        self.open();
    }

    fn open(&mut self) {
        let mut opened = self
            .wait(self.journal.open(SUBSCRIPTION_KEY))
            .expect("it is there");
        if self.saboteur.does(Bug::ForgetWhatIsDue) {
            opened.cursor.next_due = None;
        }
        self.owner = opened.owner;
        // Claims of the last incarnation have no response.
        self.claims.clear();
        let now = self.clock.now();
        self.core = Subscription::from_records(
            self.settings.clone(),
            &opened.cursor,
            opened.end,
            Vec::new(),
            RequestId(1),
            now,
        );
        self.coming
            .extend(self.waiting.iter().map(|who| Input::Receive(*who, 2)));
        self.check_disk();
    }

    // --- the end ---

    /// All is well from now on: clients come and acknowledge, and everything must come to its end.
    pub(super) fn heal(&mut self) {
        self.held.clear();
        self.coming.push(Input::Command(Command::Resume));
        self.coming.push(Input::Appended { end: self.end() });
        for _ in 0..100_000 {
            if self.write.is_some() {
                self.settle_write();
            } else if !self.reads.is_empty() {
                let effect = self.reads.swap_remove(0);
                let input = self.read(effect);
                self.absorb(input);
            } else if !self.coming.is_empty() {
                let input = self.coming.swap_remove(0);
                self.absorb(input);
            } else if !self.held.is_empty() {
                let held = std::mem::take(&mut self.held);
                self.claim(LeaseAction::Acknowledge, held);
            } else if self.blocked() > 0 {
                self.unblock(false);
            } else if self.waiting.is_empty() {
                self.receive();
            } else if self.core.next_due(self.clock.now()).is_some()
                && !self.saboteur.is(Bug::LoseTheTimer)
            {
                let next = self
                    .core
                    .next_due(self.clock.now())
                    .expect("looked at above");
                self.hand.set(next.max(self.clock.now()));
                self.absorb(Input::Tick);
            } else {
                return self.check_end();
            }
        }
        panic!("it does not come to an end: {:?}", self.core);
    }

    fn check_end(&mut self) {
        let disk = load(&self.memory, SUBSCRIPTION_KEY);
        self.truths.check_end(&disk);
        let waiting = self.wait(self.journal.reader_pool().read_dead_letters(
            SUBSCRIPTION_KEY,
            Timestamp::NEVER,
            usize::MAX,
            usize::MAX,
        ));
        let waiting = waiting.expect("readable");
        assert_eq!(waiting.len() as u64, disk.cursor.counters.dead_lettered);
        assert!(waiting.iter().all(|letter| letter.event.is_some()));
    }

    pub(super) fn close(self) {
        self.journal.close();
        self.writer.join_all();
    }
}

/// The lane whose events only expire here.
pub(super) fn is_plain(lane: Lane) -> bool {
    lane == Lane::LIVE || lane == Lane::EXPIRY
}
