//! How an endpoint behaves: a word, and one number where there is something to tune.
//!
//! Invariant: whether an endpoint is up is a function of time, so that when it went down and came back is known exactly,
//! and not only when somebody asked it.

use std::{fmt, str::FromStr, time::Duration};

use humantime_serde::re::humantime::{format_duration, parse_duration};

use crate::event::Timestamp;

/// How an endpoint behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EndpointModel {
    /// Takes every request, at once.
    Healthy,
    /// Takes every request, after about this share of the response wait: what takes longer than the wait times out.
    Slow(f64),
    /// Takes connections, and never answers.
    BlackHole,
    /// Is up for so long, and then answers 503 for as long, again and again.
    Flapping(Duration),
    /// Refuses connections for so long, from a quarter of the simulated time on.
    Outage(Duration),
    /// Answers 429 to every request above so many a second, and says in `Retry-After` when there is room.
    Overloaded(f64),
    /// Answers 413 to every request with more events.
    SmallBatches(u32),
    /// Answers 404 for so long from the beginning; then somebody mends the address.
    WrongAddress(Duration),
    /// Answers 500 to this share of the requests.
    Faulty(f64),
    /// Answers 400 to every request that has one of this share of the events: they come in runs.
    BadEvents(f64),
}

/// A stretch of time in which an endpoint is up, or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailabilityPeriod {
    /// Whether it takes what it is sent, as far as its temper lets it.
    pub up: bool,
    /// The first moment.
    pub from: Timestamp,
    /// The first moment that is not part of it.
    pub until: Timestamp,
}

/// Where an endpoint that is overloaded is told no capacity, it has this share of what is published: a backlog that
/// grows slowly.
const CAPACITY_SHARE: f64 = 0.8;

/// The words, each with what its number is and an example.
const KINDS: [(&str, &str); 10] = [
    ("healthy", ""),
    ("slow", "the latency as a share of the response wait, from 0 to 10, as slow:0.9"),
    ("black-hole", ""),
    ("flapping", "how long it is up, and then down, as flapping:15m"),
    ("outage", "how long it is down, as outage:5h"),
    ("overloaded", "requests a second that it can take, more than 0, as overloaded:0.5"),
    ("small-batches", "the most events that it takes in a request, 1 or more, as small-batches:10"),
    ("wrong-address", "how long it answers 404, as wrong-address:2h"),
    ("faulty", "the share of requests that fail, from 0 to 1, as faulty:0.1"),
    ("bad-events", "the share of events that it refuses, from 0 to 1, as bad-events:0.1"),
];

impl EndpointModel {
    /// One of each, with the shares of a landscape that an operator may meet; `rate` events are published in a second.
    pub fn mix(rate: f64) -> [(Self, u32); 10] {
        const HOUR: Duration = Duration::from_secs(3600);
        [
            (Self::Healthy, 35),
            (Self::Slow(0.9), 5),
            (Self::BlackHole, 5),
            (Self::Flapping(HOUR / 4), 10),
            (Self::Outage(5 * HOUR), 15),
            (Self::Overloaded(CAPACITY_SHARE * rate), 5),
            (Self::SmallBatches(10), 5),
            (Self::WrongAddress(2 * HOUR), 5),
            (Self::Faulty(0.1), 10),
            (Self::BadEvents(0.1), 5),
        ]
    }

    /// Reads a temper, as `outage` or `outage:5h`; where it has no number, the one of [`EndpointModel::mix`].
    ///
    /// # Errors
    /// What was read, and what is allowed.
    pub fn parse(text: &str, rate: f64) -> Result<Self, String> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let place = KINDS.iter().position(|(kind, _)| *kind == name).ok_or_else(|| {
            let names = KINDS.map(|(kind, _)| kind).join(", ");
            format!("there is no endpoint model {name:?}; allowed are {names}")
        })?;
        let (default, _) = Self::mix(rate)[place];
        let Some(number) = number else { return Ok(default) };
        default.with(number).ok_or_else(|| match KINDS[place].1 {
            "" => format!("{name} has {number:?} behind it; allowed is the word alone"),
            allowed => format!("{name} has {number:?} behind it; allowed is {allowed}"),
        })
    }

    /// The same word with another number.
    fn with(self, number: &str) -> Option<Self> {
        match self {
            Self::Healthy | Self::BlackHole => None,
            Self::Slow(_) => share(number, 10.0).map(Self::Slow),
            Self::Flapping(_) => wait(number).map(Self::Flapping),
            Self::Outage(_) => wait(number).map(Self::Outage),
            Self::Overloaded(_) => share(number, f64::MAX).filter(|capacity| *capacity > 0.0).map(Self::Overloaded),
            Self::SmallBatches(_) => number.parse().ok().filter(|events| *events > 0).map(Self::SmallBatches),
            Self::WrongAddress(_) => wait(number).map(Self::WrongAddress),
            Self::Faulty(_) => share(number, 1.0).map(Self::Faulty),
            Self::BadEvents(_) => share(number, 1.0).map(Self::BadEvents),
        }
    }

    /// When all endpoints of this temper are down, in a simulation from `start` on: those that flap do so each for itself.
    pub(super) fn downs(self, start: Timestamp, span: Duration) -> Vec<AvailabilityPeriod> {
        if let Self::Flapping(_) = self {
            return Vec::new();
        }
        let (mut at, mut downs) = (start, Vec::new());
        while at < start.after(span) {
            let spell = self.availability(at, start, span, Duration::ZERO);
            downs.extend([spell].into_iter().filter(|spell| !spell.up));
            at = spell.until;
        }
        downs
    }

    /// Whether it is up at `at`, since when and until when. The simulation begins at `start` and lasts for `span`; an
    /// endpoint that flaps began to `phase` before that.
    pub fn availability(self, at: Timestamp, start: Timestamp, span: Duration, phase: Duration) -> AvailabilityPeriod {
        let between = |down: Timestamp, back: Timestamp| match at {
            _ if at < down => AvailabilityPeriod { up: true, from: start, until: down },
            _ if at < back => AvailabilityPeriod { up: false, from: down, until: back },
            _ => AvailabilityPeriod { up: true, from: back, until: Timestamp::NEVER },
        };
        match self {
            Self::Healthy
            | Self::Slow(_)
            | Self::Overloaded(_)
            | Self::SmallBatches(_)
            | Self::Faulty(_)
            | Self::BadEvents(_) => between(Timestamp::NEVER, Timestamp::NEVER),
            Self::BlackHole => between(start, Timestamp::NEVER),
            Self::Outage(lasts) => between(start.after(span / 4), start.after(span / 4).after(lasts)),
            Self::WrongAddress(lasts) => between(start, start.after(lasts)),
            Self::Flapping(half) => {
                let (half, origin) = (half.as_micros() as u64, start.before(phase));
                let turn = (at.0 - origin.0) / half;
                let from = Timestamp(origin.0 + turn * half);
                AvailabilityPeriod {
                    up: turn.is_multiple_of(2),
                    from: from.max(start),
                    until: Timestamp(from.0 + half),
                }
            }
        }
    }
}

impl fmt::Display for EndpointModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            Self::Slow(share) => write!(f, "slow:{share}"),
            Self::BlackHole => f.write_str("black-hole"),
            Self::Flapping(half) => write!(f, "flapping:{}", format_duration(*half)),
            Self::Outage(lasts) => write!(f, "outage:{}", format_duration(*lasts)),
            Self::Overloaded(capacity) => write!(f, "overloaded:{}", (capacity * 1e6).round() / 1e6),
            Self::SmallBatches(events) => write!(f, "small-batches:{events}"),
            Self::WrongAddress(lasts) => write!(f, "wrong-address:{}", format_duration(*lasts)),
            Self::Faulty(share) => write!(f, "faulty:{share}"),
            Self::BadEvents(share) => write!(f, "bad-events:{share}"),
        }
    }
}

fn share(number: &str, most: f64) -> Option<f64> {
    f64::from_str(number).ok().filter(|share| (0.0..=most).contains(share))
}

/// A second to a year: shorter spells than a second are no spells, and longer ones than a year are the black hole.
fn wait(number: &str) -> Option<Duration> {
    let year = Duration::from_secs(365 * 24 * 3600);
    parse_duration(number).ok().filter(|wait| (Duration::from_secs(1)..=year).contains(wait))
}
