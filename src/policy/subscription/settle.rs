//! What came of it: a flight has its outcome, and each of its events is delivered, owed again or given up.
//!
//! Invariants:
//! - A flight has one outcome: what comes after it, or after the deadline, changes nothing.
//! - An event that passed ends exactly once, and what it was owed as is taken away with its end: the counters' equations
//!   hold in every write.
//! - An attempt is counted where the endpoint may have seen the event, not where it only found a batch too large.
//! - Nobody waits for ever for an answer: a flight past its deadline counts as ended by ourselves.

use std::{collections::BTreeMap, sync::Arc};

use super::{Subscription, lane_mut};
use crate::{
    event::{FlightId, Lane, Seq, Timestamp},
    policy::{
        Flight, Item,
        batch::Last,
        edition::Steps,
        endpoint::Heard,
        outcome::{Answer, Outcome, Reason},
        record::{Change, Dead, DueKey, Entry, Held, Owed, What},
        retry::{self, Chance, Verdict},
        runs::Runs,
    },
};

/// CloudEvents' webhooks: who answers so wants no more events.
const GONE: u16 = 410;

impl Subscription {
    pub(super) fn on_finished(&mut self, id: FlightId, answer: &Answer, now: Timestamp, chance: Chance) {
        // An answer after the deadline: its flight is counted as lost, and its events are sent again.
        let Some(flight) = self.flights.remove(&id) else { return };
        let edition = Arc::clone(&self.settings.edition);
        let terms = edition.rules(self.settings.destination).terms(self.settings.dead_letter);
        let too_large = answer.outcome == Outcome::PayloadTooLarge && flight.events > 1;
        let Flight { sent, events, .. } = *flight;
        let lane = flight.items.first().map_or(Lane::LIVE, |item| item.lane);
        let heard = Heard {
            flight: id,
            sent,
            events,
            aloft: self.flights.len() + 1,
            outcome: answer.outcome,
            // An endpoint that takes the events in smaller batches has not failed.
            refused: too_large || retry::blames_events(&edition, terms, answer),
            retry_after: answer.retry_after,
            latency: answer.latency,
        };
        self.endpoint.answered(heard, now);
        // What we ended ourselves says nothing.
        if answer.outcome != Outcome::Aborted {
            self.endpoint.reached(!answer.unreached, now, chance);
            if answer.outcome != Outcome::Delivered && !heard.refused {
                self.away = self.end;
            }
        }
        if self.settings.hold_when_gone && answer.status == Some(GONE) && self.endpoint.held().is_none() {
            self.endpoint.hold(Some(Held::Gone));
            self.gathered.cursor_now();
        }
        self.gathered.land(id);
        self.count(lane, |counters| counters.requests += 1);
        if answer.outcome == Outcome::Delivered {
            self.note_attempt(&flight.items, answer, None, now);
            for item in &flight.items {
                self.deliver(*item);
            }
            return;
        }
        self.count(lane, |counters| counters.requests_failed += 1);
        self.tally.fail(answer.outcome);
        if too_large {
            self.endpoint.halve_batches(flight.events);
        }
        if self.takes_back(lane) {
            self.note_attempt(&flight.items, answer, None, now);
            return self.cancel(flight.items.clone(), now);
        }
        // All events of a request were tried equally often; their first attempts may have left at different times.
        let judged = |item: &Item| match too_large {
            // A batch that was merely too large is no attempt at any of its events.
            true => (*item, Verdict::Again(now)),
            false => {
                let number = item.attempts + 1;
                let failed = retry::Failed { number, first: first_sent(item, sent), sent, ended: now };
                let verdict = retry::judge(&edition, terms, self.settings.attempts_max, failed, answer, chance);
                (Item { attempts: number, ..*item }, verdict)
            }
        };
        let judged: Vec<(Item, Verdict)> = flight.items.iter().map(judged).collect();
        let mut nexts: BTreeMap<Option<Timestamp>, Vec<Item>> = BTreeMap::new();
        for (item, (_, verdict)) in flight.items.iter().zip(&judged) {
            let next = if let Verdict::Again(due) = verdict { Some(*due) } else { None };
            nexts.entry(next).or_default().push(*item);
        }
        for (next, items) in nexts {
            self.note_attempt(&items, answer, next, now);
        }
        let last = Last { outcome: answer.outcome, status: answer.status, tried: flight.sent };
        for (tried, verdict) in judged {
            match verdict {
                Verdict::Again(due) => self.owe(tried, due, (answer.outcome, answer.status), flight.sent),
                Verdict::Never(reason) => self.give_up(tried, reason, Some(last), now),
            }
        }
    }

    pub(super) fn lose_overdue_flights(&mut self, now: Timestamp, chance: Chance) {
        while let Some((&id, _)) = self.flights.first_key_value().filter(|(_, flight)| flight.deadline <= now) {
            self.on_finished(id, &Answer::bare(Outcome::Aborted), now, chance);
        }
    }

    pub(super) fn on_quarantine(&mut self, item: Item, now: Timestamp, chance: Chance) {
        let is_it = |other: &Item| other.key() == item.key();
        if let Some((&id, flight)) = self.flights.iter_mut().find(|(_, flight)| flight.items.iter().any(is_it)) {
            // Its answer may be what killed the actor. The events that are with it are tried again.
            Arc::make_mut(flight).items.retain(|other| !is_it(other));
            self.on_finished(id, &Answer::bare(Outcome::Aborted), now, chance);
        }
        if item.due.is_none()
            && let Some(lane) = lane_mut(&mut self.lanes, item.lane)
        {
            lane.adopt(item.seq);
        }
        self.queue(item.lane).drop_key(item.key());
        self.give_up(item, Reason::Quarantined, None, now);
    }

    /// The event is given up after `item.attempts` attempts; `last` is how the last one ended.
    pub(super) fn give_up(&mut self, item: Item, reason: Reason, last: Option<Last>, now: Timestamp) {
        if !self.abandon(item, reason, last, now) {
            return;
        }
        let Item { lane, seq, attempts, .. } = item;
        let what = What::GivenUp { reason, put_aside: self.puts_aside(reason) };
        self.gathered.note(lane, attempts, Entry { at: now, covers: vec![(seq, 1)], what });
        self.gathered.cursor_now();
    }

    /// The event is counted as given up, and put aside where there is a place for it; its line of the ledger is the caller's.
    /// False where it has ended already.
    pub(super) fn abandon(&mut self, item: Item, reason: Reason, last: Option<Last>, now: Timestamp) -> bool {
        if !self.leave(item) {
            return false;
        }
        let Item { lane, seq, attempts, .. } = item;
        self.tally.give_up(reason, self.puts_aside(reason));
        if !self.puts_aside(reason) {
            self.count(lane, |counters| counters.dropped += 1);
            return true;
        }
        self.count(lane, |counters| counters.dead_lettered += 1);
        // An event that ends during probation ends by it, whatever its attempts met before.
        let ended = last.filter(|_| reason != Reason::ProbationCausedByClientError);
        let dead = Dead {
            reason,
            attempts,
            outcome: ended.map_or(self.unattempted(), |last| last.outcome),
            status: ended.and_then(|last| last.status),
            published: item.appended,
            tried: last.map(|last| last.tried),
            given_up: now,
        };
        let due = now.after(self.settings.edition.dead_letter.delay);
        self.gathered.change(Change::PutAside { lane, seq, due, dead });
        true
    }

    /// Events that cannot be read are given up: whether the filter would have let them through is told by nobody, so they
    /// count as matched.
    pub(super) fn on_unreadable(&mut self, name: Lane, from: Seq, upto: Seq) {
        let Some(lane) = lane_mut(&mut self.lanes, name) else { return };
        let missing = lane.miss(from, upto);
        let events = missing.count();
        if events == 0 {
            return;
        }
        self.tally.drop_all(Reason::Missing, events);
        self.count(name, |counters| {
            counters.passed += events;
            counters.matched += events;
            counters.dropped += events;
        });
        let why = What::GivenUp { reason: Reason::Missing, put_aside: false };
        self.gathered.give_up_runs(name, why, missing);
    }

    /// What is said of an event that ends without an attempt.
    fn unattempted(&self) -> Outcome {
        if self.is_pulled() { Outcome::Delivering } else { Outcome::Probation }
    }

    /// Whether what is given up waits for the dead-letter destination. Where the bytes are gone there is nothing to put aside.
    pub(super) fn puts_aside(&self, reason: Reason) -> bool {
        self.settings.dead_letter && reason != Reason::Missing
    }

    pub(super) fn deliver(&mut self, item: Item) {
        if self.leave(item) {
            self.count(item.lane, |counters| counters.delivered += 1);
        }
    }

    /// The event is owed, from now on or still, after `item.attempts` attempts, of which the last left at `tried`.
    pub(super) fn owe(&mut self, item: Item, due: Timestamp, (last, status): (Outcome, Option<u16>), tried: Timestamp) {
        let Item { lane, seq, attempts, due: was_due, .. } = item;
        if was_due.is_none() {
            if !self.first_outcome(item) {
                return;
            }
            self.count(lane, |counters| counters.pending += 1);
        }
        // What a job sends is as old as its first attempt there.
        let counts = lane.is_job() || self.settings.edition.retry.steps == Steps::Offsets && attempts > 0;
        let received = item.since.or_else(|| counts.then_some(tried));
        let owed = Owed { attempts, due, last, status, tried, received };
        self.gathered.change(Change::Owe { lane, seq, owed, was_due });
        self.overtake((lane, seq));
        if let Some(was_due) = was_due.filter(|was_due| *was_due != due) {
            self.queue(lane).due.leave(DueKey { due: was_due, lane, seq });
        }
        self.queue(lane).due.owe(DueKey { due, lane, seq });
    }

    /// The event is owed no more. False where that has been written already.
    pub(super) fn leave(&mut self, item: Item) -> bool {
        let Some(was_due) = item.due else { return self.first_outcome(item) };
        let Item { lane, seq, .. } = item;
        self.overtake((lane, seq));
        self.leases.end((lane, seq));
        self.count(lane, |counters| counters.pending = counters.pending.saturating_sub(1));
        self.gathered.change(Change::Settle { lane, seq, was_due });
        self.queue(lane).due.leave(DueKey { due: was_due, lane, seq });
        true
    }

    /// Something is decided about an obligation: what is asked of the disk about it is no longer so.
    fn overtake(&mut self, key: (Lane, Seq)) {
        self.late.question().overtake(key);
        self.leases.question().overtake(key);
    }

    /// A first attempt has its outcome: the lane passes the event.
    fn first_outcome(&mut self, item: Item) -> bool {
        let open = lane_mut(&mut self.lanes, item.lane).is_some_and(|lane| lane.finish(item.seq));
        if open {
            self.gathered.cursor();
            self.count(item.lane, |counters| {
                (counters.passed, counters.matched) = (counters.passed + 1, counters.matched + 1)
            });
        }
        open
    }

    fn note_attempt(&mut self, items: &[Item], answer: &Answer, next: Option<Timestamp>, now: Timestamp) {
        let Some(first) = items.first() else { return };
        let covers = covers(items.iter().map(|item| item.seq).collect());
        let Answer { outcome, status, latency, .. } = *answer;
        let mut excerpt = None;
        if outcome != Outcome::Delivered
            && let Some((hash, unknown)) = self.excerpts.keep(answer, now)
        {
            excerpt = Some(hash);
            if let Some((key, excerpt)) = unknown {
                self.gathered.change(Change::Keep { key, excerpt });
            }
        }
        let what = What::Attempted { outcome, status, latency, next, excerpt };
        self.gathered.note(first.lane, first.attempts + 1, Entry { at: now, covers, what });
    }
}

/// When the first attempt at an event left of which the present one left at `sent`.
fn first_sent(item: &Item, sent: Timestamp) -> Timestamp {
    item.since.filter(|_| item.attempts > 0).unwrap_or(sent)
}

/// First and count of each run of these events.
pub(super) fn covers(mut seqs: Vec<Seq>) -> Vec<(Seq, u32)> {
    seqs.sort_unstable();
    seqs.into_iter().collect::<Runs>().into_covers()
}
