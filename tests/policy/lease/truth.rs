//! The model: which client has which event until when, how often it was received, how it ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gridhook::{
    event::{Seq, Timestamp},
    policy::{
        SubscriptionSettings,
        outcome::{LastOutcome, Reason},
        record::{
            ASKED, BLOCKING, LedgerEntry, LedgerEvent, RecordChange,
            lease::{
                Lease, LeaseAction, LeaseResult, LeaseStep, RELEASED_FOR, RENEWED_FOR, StepKind,
            },
        },
    },
    simulate::SimulatedStore,
};

use super::{
    super::disk::{check_tally, has_passed, pending_of},
    world::{SUBJECTS, is_plain},
};

#[derive(Debug, Default)]
struct Truth {
    matches: bool,
    appended: Timestamp,
    /// The time from which its age counts.
    aged: Timestamp,
    attempts: u32,
    received: Option<Timestamp>,
    /// The attempt that has the lock, and until when.
    lock: Option<(u32, Timestamp)>,
    /// The clock was set back so far that no lock can have been meant to last so long: until it is
    /// out it may count as lost, or be good until then.
    moved: Option<Timestamp>,
    /// No client receives it before.
    free: Timestamp,
    /// How long its last release was to hold it back.
    delay: Duration,
    /// It blocks its order key.
    blocks: bool,
    /// An operator had it received once more, whatever its age.
    asked: bool,
    end: Option<&'static str>,
}

pub(super) struct Truths {
    settings: SubscriptionSettings,
    events: BTreeMap<Seq, Truth>,
    handed: BTreeSet<(Seq, u32)>,
    /// As late as a clock ever was.
    latest: Timestamp,
    /// How often an event went each step, as the lines say it.
    steps: BTreeMap<StepKind, u64>,
    rejected: u64,
}

impl Truths {
    pub(super) fn new(settings: &SubscriptionSettings) -> Self {
        Self {
            settings: settings.clone(),
            events: BTreeMap::new(),
            handed: BTreeSet::new(),
            latest: Timestamp::default(),
            steps: BTreeMap::new(),
            rejected: 0,
        }
    }

    pub(super) fn publish(&mut self, seq: Seq, matches: bool, now: Timestamp) {
        // In a log it is never earlier than before.
        let last = self
            .events
            .values()
            .next_back()
            .map_or(now, |last| last.appended);
        let is_corrected = last.since(now) > Duration::from_secs(60);
        let appended = if is_corrected { now } else { last.max(now) };
        // An event is at least as old as those behind it.
        self.events
            .values_mut()
            .filter(|_| is_corrected)
            .for_each(|truth| truth.aged = truth.aged.min(appended));
        let truth = Truth {
            matches,
            appended,
            aged: appended,
            ..Truth::default()
        };
        assert!(self.events.insert(seq, truth).is_none(), "given twice");
    }

    /// How often an event was handed out.
    pub(super) fn attempts(&self, seq: Seq) -> u32 {
        self.events[&seq].attempts
    }

    /// No wait is longer than an hour by the clock, or than a lock.
    pub(super) fn clock_set(&mut self, now: Timestamp) {
        let latest = now.after(RELEASED_FOR);
        for truth in self.events.values_mut() {
            // A wait that cannot be true begins anew, and is as long as it was.
            if truth.free > latest {
                truth.free = now.after(truth.delay).min(latest);
            }
            // The rest of a lock may be shortened to this.
            if let Some((_, until)) = &mut truth.lock {
                if *until > latest {
                    truth.moved = truth.moved.max(Some(*until));
                }
                *until = (*until).min(latest);
            }
        }
    }

    /// These are durable.
    pub(super) fn written(&mut self, changes: &[RecordChange], now: Timestamp) {
        self.latest = self.latest.max(now);
        let ends = |change: &&RecordChange| matches!(change, RecordChange::Note { entry, .. } if matches!(entry.what, LedgerEvent::GivenUp { .. }));
        let (last, first): (Vec<&RecordChange>, Vec<&RecordChange>) =
            changes.iter().partition(ends);
        for change in changes {
            let RecordChange::Defer { seq, pending, .. } = change else {
                continue;
            };
            let truth = self.events.get_mut(seq).expect("published");
            if pending.due == ASKED {
                assert!(
                    std::mem::take(&mut truth.blocks),
                    "{seq:?} is asked for, and blocks nothing: {truth:?}"
                );
                (truth.asked, truth.free) = (true, Timestamp::default());
            }
            truth.blocks |= pending.due == BLOCKING;
        }
        // Of what stands in one write, an end is the last word.
        for change in first.into_iter().chain(last) {
            let RecordChange::Note {
                lane,
                attempt,
                entry,
            } = change
            else {
                continue;
            };
            assert!(is_plain(*lane), "{lane:?}");
            let LedgerEntry { at, runs, what } = entry;
            assert!(*at <= now, "decided at {at}, and it is {now}");
            for seq in runs.iter().flat_map(|run| run.iter_seqs()) {
                match what {
                    LedgerEvent::Lease(step) => *self.steps.entry(step.kind()).or_default() += 1,
                    LedgerEvent::GivenUp {
                        reason: Reason::Rejected,
                        ..
                    } => self.rejected += 1,
                    _ => {}
                }
                let truth = self.events.get_mut(&seq).expect("published");
                if !matches!(what, LedgerEvent::Filtered { .. }) {
                    truth.note(seq, *attempt, *at, what, (&self.settings, self.latest));
                }
            }
        }
    }

    /// Whether no client will receive this event: it has ended, or expired before anybody received
    /// it.
    pub(super) fn is_over(&self, seq: Seq) -> bool {
        let truth = &self.events[&seq];
        let is_old = truth.aged.after(self.settings.time_to_live) <= self.latest;
        truth.end.is_some() || truth.attempts == 0 && is_old
    }

    /// A client has these from now on.
    pub(super) fn handed(&mut self, lease: Lease, now: Timestamp) {
        let Lease { seq, attempt, .. } = lease;
        assert!(
            self.handed.insert((seq, attempt)),
            "{lease:?} is handed to two"
        );
        let truth = &self.events[&seq];
        assert_eq!(lease.appended, truth.appended);
        assert!(
            truth.attempts >= attempt,
            "{lease:?} is handed out before it is written: {truth:?}"
        );
        if let Some((holder, until)) = truth.lock {
            assert!(
                holder == attempt || until <= now,
                "{lease:?} is handed out, and {holder} has the lock: {truth:?}"
            );
        }
    }

    /// Reports the result of a claim that a client sent at `at`. `others` may have been faster.
    pub(super) fn report_results(
        &self,
        lease: Lease,
        action: LeaseAction,
        result: LeaseResult,
        at: Timestamp,
        now: Timestamp,
        others: bool,
    ) {
        let truth = &self.events[&lease.seq];
        let held = truth
            .lock
            .filter(|(attempt, until)| *attempt == lease.attempt && *until > now);
        match result {
            LeaseResult::Done => match action {
                LeaseAction::Acknowledge => {
                    assert_eq!(truth.end, Some("acknowledged"), "{lease:?} {truth:?}")
                }
                LeaseAction::Reject => {
                    let is_kept = self
                        .settings
                        .order
                        .as_ref()
                        .is_some_and(|order| order.blocks);
                    assert!(
                        is_kept || truth.end == Some("given up"),
                        "{lease:?} {truth:?}"
                    );
                }
                LeaseAction::Release(_) | LeaseAction::Renew | LeaseAction::Return => {
                    assert!(truth.attempts >= lease.attempt, "{lease:?} {truth:?}")
                }
            },
            LeaseResult::Lost => {
                assert!(
                    held.is_none() || others || truth.moved.is_some(),
                    "{lease:?} was good at {at}: {truth:?}"
                )
            }
            LeaseResult::TooOld => {
                let received = truth.received.expect("it was");
                assert!(
                    action == LeaseAction::Renew && received.after(RENEWED_FOR) <= now,
                    "{lease:?} {truth:?}"
                );
            }
        }
    }

    /// The disk has what was reported.
    pub(super) fn check(&self, disk: &SimulatedStore) {
        for (seq, truth) in &self.events {
            let pending = pending_of(disk, *seq);
            assert_eq!(
                pending.map_or(0, |pending| pending.attempts),
                if truth.end.is_some() {
                    0
                } else {
                    truth.attempts
                }
            );
            match (pending, truth.lock) {
                (Some(pending), Some((attempt, until))) => {
                    assert_eq!(
                        (pending.attempts, pending.last),
                        (attempt, LastOutcome::Delivering),
                        "{seq:?} {truth:?}"
                    );
                    assert!(pending.due >= until, "{seq:?} {truth:?} {pending:?}");
                }
                (Some(pending), None) => {
                    assert_ne!(pending.last, LastOutcome::Delivering, "{seq:?} {truth:?}")
                }
                (None, lock) => assert_eq!(lock, None, "{seq:?} is forgotten: {truth:?}"),
            }
            let ended = has_passed(disk, *seq) && truth.matches && pending.is_none();
            assert_eq!(ended, truth.end.is_some(), "{seq:?} {truth:?} {disk:?}");
        }
        // Events that an earlier event of their key held back are handed out beyond the limit, one
        // for each key.
        let keys = if self.settings.order.is_some() {
            SUBJECTS.len() as u32
        } else {
            0
        };
        let most = self.settings.pull.expect("pulled").leases_max + keys;
        let leased = disk
            .pending
            .values()
            .filter(|pending| pending.due < BLOCKING)
            .count();
        assert!(
            leased <= most as usize,
            "{leased} are leased, and {most} may be"
        );
    }

    pub(super) fn check_end(&self, disk: &SimulatedStore) {
        for (seq, truth) in &self.events {
            assert_eq!(
                truth.end.is_some(),
                truth.matches,
                "{seq:?} is lost: {truth:?}"
            );
        }
        let matching = self.events.values().filter(|truth| truth.matches).count() as u64;
        let done = self
            .events
            .values()
            .filter(|truth| truth.end == Some("acknowledged"))
            .count() as u64;
        let counters = disk.cursor.counters;
        assert_eq!(
            (counters.matched, counters.pending, counters.delivered),
            (matching, 0, done)
        );
        assert_eq!(counters.passed, self.events.len() as u64);
        check_tally(&disk.cursor);
        let counts = &disk.cursor.counts;
        assert_eq!(
            counts.leases, self.steps,
            "as many steps are counted as are lines of the ledger"
        );
        let of = |step| counts.leases.get(&step).copied().unwrap_or_default();
        assert_eq!(counters.requests_failed, of(StepKind::Expired));
        assert_eq!(counters.delivered, of(StepKind::Acknowledged));
        let given_up = [&counts.dead_lettered, &counts.dropped];
        let rejected: u64 = given_up
            .iter()
            .filter_map(|reasons| reasons.get(&Reason::Rejected))
            .sum();
        assert_eq!(rejected, self.rejected);
    }
}

impl Truth {
    /// A line of the ledger is a step of the event.
    fn note(
        &mut self,
        seq: Seq,
        attempt: u32,
        at: Timestamp,
        what: &LedgerEvent,
        (settings, latest): (&SubscriptionSettings, Timestamp),
    ) {
        assert!(self.matches, "{seq:?} does not match");
        assert_eq!(self.end, None, "{seq:?} has ended, and now {what:?}");
        let holds = self.lock.is_some_and(|(holder, until)| {
            holder == attempt && at < self.moved.map_or(until, |moved| moved.max(until))
        });
        match what {
            LedgerEvent::Lease(LeaseStep::Received { until }) => {
                assert_eq!(attempt, self.attempts + 1, "{seq:?} {self:?}");
                let asked = std::mem::take(&mut self.asked);
                assert!(
                    attempt <= settings.attempts_max || asked,
                    "{seq:?} {self:?}"
                );
                assert!(self.free <= at, "{seq:?} is early at {at:?}: {self:?}");
                assert_eq!(self.lock, None, "{seq:?} is received twice: {self:?}");
                assert!(
                    asked || self.appended.after(settings.time_to_live) > at,
                    "{seq:?} is too old: {self:?}"
                );
                assert!(!self.blocks, "{seq:?} blocks its key: {self:?}");
                let lock = settings.pull.expect("pulled").lock;
                assert_eq!(*until, at.after(lock));
                self.attempts = attempt;
                self.moved = None;
                // The time within which a lock may be renewed begins anew.
                self.received = self.received.filter(|_| !asked).or(Some(at));
                self.lock = Some((attempt, *until));
            }
            LedgerEvent::Lease(LeaseStep::Renewed { until }) => {
                assert!(
                    holds,
                    "{seq:?} is renewed by who does not hold it: {self:?}"
                );
                let received = self.received.expect("it was");
                let most = at
                    .after(Duration::from_secs(60))
                    .min(received.after(RENEWED_FOR));
                let (_, before) = self.lock.expect("it is held");
                // An event that has moved may not have moved back.
                let good = *until == most.max(before) || (self.moved.is_some() && *until > before);
                assert!(good, "{seq:?} is renewed until {until}: {self:?}");
                self.lock = Some((attempt, *until));
            }
            LedgerEvent::Lease(LeaseStep::Acknowledged) => {
                assert!(
                    holds,
                    "{seq:?} is acknowledged by who does not hold it: {self:?}"
                );
                self.end("acknowledged");
            }
            LedgerEvent::Lease(LeaseStep::Released { until }) => {
                assert!(
                    holds,
                    "{seq:?} is released by who does not hold it: {self:?}"
                );
                (self.lock, self.free) = (None, *until);
                self.delay = until.since(at);
            }
            LedgerEvent::Lease(LeaseStep::Expired) => {
                let (holder, until) = self.lock.expect("a lock that expires");
                assert!(
                    holder == attempt && until <= at,
                    "{seq:?} expires early at {at}: {self:?}"
                );
                self.lock = None;
            }
            LedgerEvent::GivenUp {
                reason,
                dead_lettered,
            } => {
                let may_block = settings.order.as_ref().is_some_and(|order| order.blocks);
                let blocked = std::mem::take(&mut self.blocks);
                assert!(
                    !may_block || blocked || self.attempts == 0,
                    "{seq:?} does not block its key: {self:?}"
                );
                match reason {
                    _ if blocked => {}
                    Reason::Rejected => assert!(
                        holds,
                        "{seq:?} is rejected by who does not hold it: {self:?}"
                    ),
                    Reason::MaxDeliveryAttemptsExceeded => {
                        assert_eq!(self.attempts, settings.attempts_max);
                        assert_eq!(self.lock, None, "{seq:?} {self:?}");
                    }
                    Reason::TimeToLiveExceeded => {
                        // An event that expired stays expired when the clock is set back.
                        assert!(
                            self.aged.after(settings.time_to_live) <= latest,
                            "{seq:?} is young: {self:?}"
                        );
                        assert_eq!(self.lock, None, "{seq:?} is held: {self:?}");
                    }
                    other => panic!("{seq:?} is given up: {other}"),
                }
                assert_eq!(*dead_lettered, settings.dead_letter);
                self.end("given up");
            }
            other => panic!("{seq:?}: {other:?}"),
        }
    }

    fn end(&mut self, how: &'static str) {
        (self.lock, self.end) = (None, Some(how));
    }
}
