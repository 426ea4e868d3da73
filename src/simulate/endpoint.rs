//! An endpoint: what it answers to a request, and after how long.
//!
//! Every request is answered in the end, because the part of the server that makes requests reports one that nobody
//! answered in time. Absent on purpose: what endpoints do to each other. Each belongs to one subscription.

use std::time::Duration;

use fastrand::Rng;

use crate::{
    event::{Seq, Timestamp},
    policy::{
        Item,
        outcome::{Answer, Outcome},
    },
    simulate::temper::{Spell, Temper},
};

/// An endpoint that is well answers within the network and a small database: 20 to 80 milliseconds.
const QUICK: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(80)];

/// A slow endpoint's answers lie so far around its latency, as a share of it.
const SLOW_SPREAD: f64 = 0.15;

/// Bad events come by so many: a publisher that makes one makes more of them.
const BAD_RUN: u64 = 32;

/// Whether an event is one of the share that is refused: the same ones for every endpoint, and for every attempt.
fn is_bad(seq: Seq, share: f64) -> bool {
    Rng::with_seed(seq.0 / BAD_RUN).f64() < share
}

/// An endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    temper: Temper,
    start: Timestamp,
    span: Duration,
    response_wait: Duration,
    phase: Duration,
    /// Requests that it could take now, where it is overloaded.
    room: f64,
    counted: Timestamp,
}

/// What it answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
    pub(super) latency: Duration,
}

impl Reply {
    /// As the core hears of it.
    pub(super) fn answer(self) -> Answer {
        let Self { outcome, status, retry_after, latency } = self;
        Answer { status, retry_after, latency, unreached: outcome == Outcome::SocketError, ..Answer::bare(outcome) }
    }
}

impl Endpoint {
    pub(super) fn new(
        temper: Temper,
        start: Timestamp,
        span: Duration,
        response_wait: Duration,
        chance: &mut Rng,
    ) -> Self {
        let phase = match temper {
            Temper::Flapping(half) => half.mul_f64(2.0 * chance.f64()),
            Temper::Healthy
            | Temper::Slow(_)
            | Temper::BlackHole
            | Temper::Outage(_)
            | Temper::Overloaded(_)
            | Temper::SmallBatches(_)
            | Temper::WrongAddress(_)
            | Temper::Faulty(_)
            | Temper::BadEvents(_) => Duration::ZERO,
        };
        Self { temper, start, span, response_wait, phase, room: 1.0, counted: start }
    }

    /// Whether it is up.
    pub(super) fn spell(&self, at: Timestamp) -> Spell {
        self.temper.spell(at, self.start, self.span, self.phase)
    }

    /// What it answers to a request with these events.
    pub(super) fn answer(&mut self, events: &[Item], now: Timestamp, chance: &mut Rng) -> Reply {
        let [least, most] = QUICK;
        let latency = (least + (most - least).mul_f64(chance.f64())).min(self.response_wait);
        let status =
            |status| Reply { outcome: Outcome::of_status(status), status: Some(status), retry_after: None, latency };
        let silent = Reply { outcome: Outcome::TimedOut, status: None, retry_after: None, latency: self.response_wait };
        let up = self.spell(now).up;
        match self.temper {
            Temper::Healthy => status(200),
            Temper::Slow(share) => {
                let spread = 1.0 + SLOW_SPREAD * (2.0 * chance.f64() - 1.0);
                let latency = self.response_wait.mul_f64(share * spread);
                if latency < self.response_wait { Reply { latency, ..status(200) } } else { silent }
            }
            Temper::BlackHole => silent,
            Temper::Flapping(_) => status(if up { 200 } else { 503 }),
            Temper::Outage(_) if up => status(200),
            Temper::Outage(_) => Reply { outcome: Outcome::SocketError, status: None, ..status(503) },
            Temper::Overloaded(capacity) => match self.wait_for_room(capacity, now) {
                None => status(200),
                wait => Reply { retry_after: wait, ..status(429) },
            },
            Temper::SmallBatches(most) => status(if events.len() > most as usize { 413 } else { 200 }),
            Temper::WrongAddress(_) => status(if up { 200 } else { 404 }),
            Temper::Faulty(share) => status(if chance.f64() < share { 500 } else { 200 }),
            Temper::BadEvents(share) => {
                let bad = events.iter().any(|item| is_bad(item.seq, share));
                status(if bad { 400 } else { 200 })
            }
        }
    }

    /// How long until there is room for another request, in whole seconds; [`None`] where there is, which is taken.
    fn wait_for_room(&mut self, capacity: f64, now: Timestamp) -> Option<Duration> {
        let more = now.since(self.counted).as_secs_f64() * capacity;
        // What was not used for a second is gone, but there is always room for one request after long enough.
        self.room = (self.room + more).min(capacity.max(1.0));
        self.counted = now;
        if self.room >= 1.0 {
            self.room -= 1.0;
            return None;
        }
        let wait = ((1.0 - self.room) / capacity).ceil();
        Duration::try_from_secs_f64(wait).ok().or(Some(Duration::MAX))
    }
}
