//! Clients that pull: they wait for events, hold them for a time, and say what they did with them.
//!
//! A lease is an attempt, and its outcome is written before the client hears of it: the event is owed, after one attempt
//! more, and falls due when the lock expires. So an event whose client says nothing comes back as any other that is due; an
//! acknowledgement settles it, a release moves its due time, a rejection gives it up.
//!
//! Invariants:
//! - Nothing is handed out, and no word is answered, before that is durable.
//! - A lease is good as long as its attempt is the last one, the record says that a client holds it, and it is not due. Where
//!   a clock set back has put that off for longer than anything waits, it counts as lost until it is brought back.
//! - Who waits is served in the order of coming; what is there goes at once, and nobody waits to fill. Where it is less than
//!   he asks for and the log has more, the log is looked into first: once, whatever is found there.
//! - New events are handed out only as long as fewer than a bound are owed: so all keys are in the window.
//! - Time to live and attempts need no client: what is due is looked at when it is, and given up where that is its end.
//!   What is left lies as a key ([`Idle`](super::idle::Idle)) until somebody asks.
//! - Of leases of an earlier life only the disk knows: it is asked for them once.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{
    Subscription,
    lookup::{Lookup, LookupResult},
    settle::covers,
};
use crate::{
    event::{Event, Lane, Seq, Timestamp},
    policy::{
        Effect, PullSettings, SendItem,
        batch::{LastAttempt, ReadyEvent},
        lane::LaneReader,
        outcome::{Outcome, Reason},
        record::{
            DueKey, LedgerEntry, LedgerEvent, PendingDelivery,
            lease::{Lease, LeaseAction, LeaseClaim, LeaseResult, LeaseStep, RENEWED_FOR, ReceiveId},
        },
        retry_window::WindowEntry,
    },
};

/// So many events at most are looked for again at once.
const LOOK: usize = 128;

/// A lease that this life knows of.
#[derive(Clone, Copy, Debug)]
struct HeldLock {
    attempt: u32,
    until: Timestamp,
    /// When a client first received the event.
    received: Timestamp,
    tried: Timestamp,
}

/// Clients, and what they hold.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Who waits, and for how many events at most.
    waiting: BTreeMap<ReceiveId, u32>,
    /// What the first of them gets.
    served: Vec<(Lease, Event)>,
    served_bytes: u64,
    /// Whether the log was looked into since the last of them was served.
    looked: bool,
    known: BTreeMap<(Lane, Seq), HeldLock>,
    claims: VecDeque<LeaseClaim>,
    question: Lookup,
    /// What is said when the next write is durable, and when the one is that is on its way.
    gathered: Vec<Effect>,
    written: Vec<Effect>,
}

impl Leases {
    /// Whether anybody waits.
    pub(super) fn is_wanted(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many more events the first who waits would take.
    pub(super) fn wanted(&self) -> u32 {
        let most = self.waiting.first_key_value().map_or(0, |(_, most)| *most);
        most.saturating_sub(u32::try_from(self.served.len()).unwrap_or(u32::MAX))
    }

    /// The log was looked into.
    pub(super) fn looked(&mut self) {
        self.looked = true;
    }

    /// Nobody holds it any more.
    pub(super) fn end(&mut self, key: (Lane, Seq)) {
        self.known.remove(&key);
    }

    /// How many events those who wait would take, as far as one look goes.
    fn wanted_by_all(&self) -> usize {
        self.waiting.values().take(LOOK).map(|most| *most as usize).sum::<usize>().min(LOOK)
    }

    pub(super) fn lookup(&mut self) -> &mut Lookup {
        &mut self.question
    }

    /// All that was decided is on its way to the disk.
    pub(super) fn written(&mut self) {
        self.written.append(&mut self.gathered);
    }

    /// All that was on its way is on the disk: what can be said now.
    pub(super) fn durable(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.written)
    }
}

impl Subscription {
    pub(super) fn is_pulled(&self) -> bool {
        self.settings.pull.is_some()
    }

    /// Whether somebody waits for events, or they are sent without being asked for.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_pulled() || self.leases.is_wanted()
    }

    /// How many events more may be received for the first time.
    pub(super) fn room(&self) -> u32 {
        let Some(PullSettings { leases_max, .. }) = self.settings.pull else { return u32::MAX };
        u32::try_from(u64::from(leases_max).saturating_sub(self.counters.pending)).unwrap_or(u32::MAX)
    }

    pub(super) fn on_receive(&mut self, who: ReceiveId, events_max: u32) {
        if self.is_pulled() {
            self.leases.waiting.insert(who, events_max.max(1));
        } else {
            self.leases.gathered.push(Effect::HandOver { to: who, events: Vec::new() });
            self.gathered.cursor_now();
        }
    }

    pub(super) fn on_withdraw(&mut self, who: ReceiveId) {
        self.leases.waiting.remove(&who);
    }

    // --- handing out ---

    /// The first who waits receives these.
    pub(super) fn lease(&mut self, batch: Vec<ReadyEvent>, now: Timestamp) {
        let Some(PullSettings { lock, .. }) = self.settings.pull else { return };
        let until = now.after(lock);
        let Some((lane, attempts)) = batch.first().map(|ready| (ready.item.lane, ready.item.attempts)) else { return };
        let covers = covers(batch.iter().map(|ready| ready.item.seq).collect());
        for ReadyEvent { item, event, .. } in batch {
            let SendItem { lane, seq, appended, .. } = item;
            let attempt = item.attempts + 1;
            let received = item.since.filter(|_| item.attempts > 0).unwrap_or(now);
            let leased = SendItem { attempts: attempt, since: Some(received), ..item };
            self.defer(leased, until, (Outcome::Delivering, None), now);
            self.leases.known.insert((lane, seq), HeldLock { attempt, until, received, tried: now });
            self.leases.served_bytes += event.wire_len() as u64;
            self.leases.served.push((Lease { lane, seq, attempt, appended }, event));
        }
        self.note_lease((lane, attempts + 1), covers, LeaseStep::Received { until }, now);
        self.gathered.cursor_now();
        if self.leases.wanted() == 0 || self.leases.served_bytes >= self.settings.batch.bytes_preferred {
            self.hand_over(lane);
        }
    }

    /// Whether the log is to be looked into before the first who waits is served: it has more, and he would get less than he
    /// asks for.
    pub(super) fn looks_first(&self) -> bool {
        if self.leases.looked || !self.leases.served.is_empty() || !self.own.retries.is_empty() {
            return false;
        }
        let most = self.batch_max().min(self.room()) as usize;
        let is_short = |lane: &&LaneReader| lane.lane() == Lane::LIVE && (1..most).contains(&lane.ready());
        self.lanes.iter().find(is_short).is_some_and(|lane| lane.is_unread(self.end))
    }

    /// There is nothing more at present. Where nobody waits, nothing is kept ready.
    pub(super) fn rest_leases(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_pulled() {
            return;
        }
        if let Some((lease, _)) = self.leases.served.first() {
            self.hand_over(lease.lane);
        }
        if self.endpoint.is_closed() {
            let waiting = std::mem::take(&mut self.leases.waiting);
            effects.extend(waiting.into_keys().map(|to| Effect::HandOver { to, events: Vec::new() }));
        }
        if !self.leases.is_wanted() {
            self.forget_ready_jobs();
            for ReadyEvent { item, .. } in std::mem::take(&mut self.own.retries) {
                self.park(item);
            }
        }
    }

    fn hand_over(&mut self, lane: Lane) {
        let Some((to, _)) = self.leases.waiting.pop_first() else { return };
        let events = std::mem::take(&mut self.leases.served);
        self.leases.served_bytes = 0;
        self.leases.looked = false;
        self.count(lane, |counters| counters.requests += 1);
        self.leases.gathered.push(Effect::HandOver { to, events });
    }

    /// Who waits may have what was laid aside; what died there is looked at.
    pub(super) fn wake_idle(&mut self, now: Timestamp) {
        let (wanted, max) = (self.is_pulled() && self.leases.is_wanted(), self.leases.wanted_by_all().max(1));
        // Nobody dies while expiry is held.
        let dead_by = if self.expiry_held { Timestamp::default() } else { now };
        for key in self.own.idle.take(dead_by, wanted, max) {
            self.own.due.put_back(key);
        }
    }

    /// Nobody waits for it: its key is kept.
    fn park(&mut self, SendItem { lane, seq, appended, due, .. }: SendItem) {
        let dies = self.settings.expires(appended);
        if let Some(due) = due {
            self.own.idle.lay(DueKey { due, lane, seq }, dies);
        }
    }

    /// An event that is due was fetched: its lock has expired, or the delay of its release is over.
    pub(super) fn take_up(&mut self, ready: ReadyEvent, now: Timestamp) {
        let ReadyEvent { item, .. } = ready;
        let key = item.key();
        let expired = ready.last.is_some_and(|last| last.outcome == Outcome::Delivering);
        // What is in a file is how the event's attempts ended, which for a client that pulls is always the same.
        let last = ready.last.map(|last| LastAttempt { outcome: Outcome::Delivering, ..last });
        // A clock that is wrong may end a lock early. Mostly that costs another attempt, which at-least-once delivery allows, so
        // locks are not held. At the last attempt it would cost the event: its client keeps the lock until ages count again.
        if let (true, true, Some(LastAttempt { tried, .. }), Some(PullSettings { lock, .. })) =
            (expired && self.expiry_held, item.attempts >= self.settings.attempts_max, last, self.settings.pull)
        {
            let until = now.after(lock);
            let received = item.since.unwrap_or(tried);
            self.defer(item, until, (Outcome::Delivering, None), tried);
            self.leases.known.insert(key, HeldLock { attempt: item.attempts, until, received, tried });
            return;
        }
        if expired {
            self.leases.known.remove(&key);
            self.note_lease((item.lane, item.attempts), vec![(item.seq, 1)], LeaseStep::Expired, now);
            self.count(item.lane, |counters| counters.requests_failed += 1);
            self.counts.fail(Outcome::TimedOut);
        }
        if item.attempts >= self.settings.attempts_max {
            return self.give_up(item, Reason::MaxDeliveryAttemptsExceeded, last, now);
        }
        let ready = ReadyEvent { last, ..ready };
        if self.is_expired(&ready, now) {
            return self.give_up(item, Reason::TimeToLiveExceeded, last, now);
        }
        match (expired, item.due, last) {
            (true, Some(due), Some(last)) => self.defer(item, due, (Outcome::TimedOut, None), last.tried),
            _ if self.is_wanted() || item.lane.is_job() => self.queue(item.lane).retries.push_back(ready),
            _ => self.park(item),
        }
    }

    /// A step of these is a line of the ledger, and counted.
    fn note_lease(&mut self, (lane, attempt): (Lane, u32), covers: Vec<(Seq, u32)>, step: LeaseStep, now: Timestamp) {
        self.counts.lease(step.kind(), covers.iter().map(|(_, count)| u64::from(*count)).sum());
        self.gathered.note(lane, attempt, LedgerEntry { at: now, covers, what: LedgerEvent::Lease(step) });
    }

    // --- what clients say ---

    pub(super) fn on_claim(&mut self, claim: LeaseClaim) {
        self.leases.claims.push_back(claim);
    }

    /// The disk says what it has of leases of an earlier life.
    pub(super) fn on_leases_read(&mut self, found: &[(Lane, Seq, Option<PendingDelivery>)], now: Timestamp) {
        if self.leases.question.answer(found) != Some(LookupResult::Good) {
            return;
        }
        for (lane, seq, owed) in found {
            let key = (*lane, *seq);
            let Some(owed) = owed.as_ref().filter(|owed| owed.last == Outcome::Delivering && now < owed.due) else {
                continue;
            };
            if self.own.due.is_out_of_range(owed.due, now) {
                continue;
            }
            // What was decided about it in this life is not on the disk yet.
            let known = self.queue(*lane).due.find(key);
            if known == WindowEntry::Pending(owed.due) || known == WindowEntry::Nothing {
                let (attempt, until, tried) = (owed.attempts, owed.due, owed.tried);
                let received = owed.received.unwrap_or(tried);
                self.leases.known.entry(key).or_insert(HeldLock { attempt, until, received, tried });
            }
        }
        if let Some(claim) = self.leases.claims.pop_front() {
            self.decide(&claim, now);
        }
    }

    /// Decides what was said, up to the first of which the disk must be asked.
    pub(super) fn settle_claims(&mut self, now: Timestamp) {
        while !self.leases.question.is_open() && !self.gathered.is_ahead() {
            let Some(claim) = self.leases.claims.front() else { return };
            let keys: BTreeSet<(Lane, Seq)> = claim.leases.iter().map(Lease::key).collect();
            let unknown: Vec<(Lane, Seq)> =
                keys.into_iter().filter(|key| self.may_be_of_earlier_incarnation(*key)).collect();
            if !unknown.is_empty() {
                return self.leases.question.put(unknown);
            }
            if let Some(claim) = self.leases.claims.pop_front() {
                self.decide(&claim, now);
            }
        }
    }

    /// Whether only the disk knows if somebody holds it.
    fn may_be_of_earlier_incarnation(&mut self, key: (Lane, Seq)) -> bool {
        if self.leases.known.contains_key(&key) {
            return false;
        }
        let queue = self.queue(key.0);
        !queue.engaged().any(|engaged| engaged == key) && queue.due.find(key) != WindowEntry::Left
    }

    fn decide(&mut self, claim: &LeaseClaim, now: Timestamp) {
        // A client may renew the same twice in one word.
        let mut done: BTreeMap<(Lane, u32, Timestamp), BTreeSet<Seq>> = BTreeMap::new();
        let mut verdicts = Vec::with_capacity(claim.leases.len());
        for lease in &claim.leases {
            let verdict = match self.settle_lease(*lease, claim.verb, now) {
                Ok(until) => {
                    done.entry((lease.lane, lease.attempt, until)).or_default().insert(lease.seq);
                    LeaseResult::Done
                }
                Err(verdict) => verdict,
            };
            verdicts.push(verdict);
        }
        for ((lane, attempt, until), seqs) in done {
            let step = match claim.verb {
                LeaseAction::Acknowledge => LeaseStep::Acknowledged,
                LeaseAction::Release(_) | LeaseAction::TakeBack => LeaseStep::Released { until },
                LeaseAction::Renew => LeaseStep::Renewed { until },
                // Its line is that of the giving up.
                LeaseAction::Reject => continue,
            };
            self.note_lease((lane, attempt), covers(seqs.into_iter().collect()), step, now);
        }
        // Also where nothing was done: whoever hears so hears it behind what had been said before.
        self.leases.gathered.push(Effect::ReportResults { to: claim.id, verdicts });
        self.gathered.cursor_now();
    }

    /// Until when the event is put off, where it is; now, where it has ended.
    fn settle_lease(&mut self, lease: Lease, verb: LeaseAction, now: Timestamp) -> Result<Timestamp, LeaseResult> {
        let key = lease.key();
        let good = |lock: &&HeldLock| lock.attempt == lease.attempt && now < lock.until;
        let HeldLock { attempt, until, received, tried } =
            *self.leases.known.get(&key).filter(good).ok_or(LeaseResult::Lost)?;
        let Lease { lane, seq, appended, .. } = lease;
        let item = SendItem { lane, seq, appended, attempts: attempt, due: Some(until), since: Some(received) };
        let last = Some(LastAttempt { outcome: Outcome::Delivering, status: None, tried });
        let renewed = received.after(RENEWED_FOR);
        match verb {
            LeaseAction::Renew if renewed <= now => return Err(LeaseResult::TooOld),
            LeaseAction::Renew => {
                let lock = self.settings.pull.map_or_else(Default::default, |pull| pull.lock);
                let longer = now.after(lock).min(renewed).max(until);
                if longer > until {
                    self.defer(item, longer, (Outcome::Delivering, None), tried);
                    self.leases.known.insert(key, HeldLock { attempt, until: longer, received, tried });
                }
                return Ok(longer);
            }
            LeaseAction::Acknowledge | LeaseAction::Release(_) | LeaseAction::Reject | LeaseAction::TakeBack => {}
        }
        self.leases.known.remove(&key);
        match verb {
            LeaseAction::Acknowledge | LeaseAction::Renew => self.deliver(item),
            LeaseAction::Reject => self.give_up(item, Reason::Rejected, last, now),
            LeaseAction::Release(_) if attempt >= self.settings.attempts_max => {
                self.give_up(item, Reason::MaxDeliveryAttemptsExceeded, last, now);
            }
            LeaseAction::Release(delay) => {
                let due = beside(until, now.after(delay));
                self.defer(item, due, (Outcome::Aborted, None), tried);
                return Ok(due);
            }
            LeaseAction::TakeBack => {
                let attempts = attempt.saturating_sub(1);
                let item = SendItem { attempts, since: item.since.filter(|_| attempts > 0), ..item };
                let due = beside(until, now);
                self.defer(item, due, (Outcome::Aborted, None), tried);
                return Ok(due);
            }
        }
        Ok(now)
    }
}

/// `retry_window`, but not when the lock would have expired: such a key were taken for the lock's, which is on the disk yet.
fn beside(until: Timestamp, due: Timestamp) -> Timestamp {
    if due == until { due.after(Duration::from_micros(1)) } else { due }
}
