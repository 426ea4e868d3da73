//! Models of endpoint behaviour: a name and, for most, one parameter.
//!
//! Invariant: whether an endpoint is up is a function of time, so the moments of outage and
//! recovery are known exactly, and do not depend on requests.

use std::{fmt, ops::Range, str::FromStr, time::Duration};

use humantime_serde::re::humantime::{format_duration, parse_duration};

use gridhook_event::Timestamp;

/// A model of endpoint behaviour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EndpointModel {
    /// Accepts every request at once.
    Healthy,
    /// Accepts every request after this share of the response timeout, approximately. Above 1,
    /// requests time out.
    Slow(f64),
    /// Accepts connections and never responds.
    BlackHole,
    /// Alternates between up and 503 responses, each for this time.
    Flapping(Duration),
    /// Refuses connections for this time, starting at a quarter of the simulated time.
    Outage(Duration),
    /// Responds 429 above this number of requests per second, with `Retry-After`.
    Overloaded(f64),
    /// Responds 413 to requests with more events than this.
    SmallBatches(u32),
    /// Responds 404 for this time from the start, until the address is corrected.
    WrongAddress(Duration),
    /// Responds 500 to this share of the requests.
    Faulty(f64),
    /// Responds 400 to requests with any of this share of the events, which come in runs.
    BadEvents(f64),
}

/// Why a text is no endpoint model: what is given, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModel {
    #[error(
        "there is no endpoint model {0:?}; expected one of {names}",
        names = KINDS.map(|(kind, _)| kind).join(", ")
    )]
    Name(String),
    #[error("{name} has {number:?} behind it; expected {allowed}")]
    Parameter {
        name: String,
        number: String,
        allowed: &'static str,
    },
    #[error("{0:?} has no valid share; expected a number from 1 to {SHARE_MAX}")]
    Share(String),
}

/// A period during which an endpoint is up, or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailabilityPeriod {
    /// Whether the endpoint is up. Its model may still reject requests.
    pub up: bool,
    pub from: Timestamp,
    /// The end of the period, exclusive.
    pub until: Timestamp,
}

impl AvailabilityPeriod {
    /// The period that contains `at`, of an endpoint that is down once after its start.
    fn around_outage(at: Timestamp, start: Timestamp, outage: Range<Timestamp>) -> Self {
        let (up, from, until) = if at < outage.start {
            (true, start, outage.start)
        } else if at < outage.end {
            (false, outage.start, outage.end)
        } else {
            (true, outage.end, Timestamp::NEVER)
        };
        Self { up, from, until }
    }
}

/// Default capacity of an overloaded endpoint as a share of the published rate: its backlog grows
/// slowly.
const CAPACITY_SHARE: f64 = 0.8;

/// Shares are weights; finer weights than 1 in 10,000 have no use.
const SHARE_MAX: u32 = 10_000;

/// The names of models, with a description of the parameter and an example.
const KINDS: [(&str, &str); 10] = [
    ("healthy", ""),
    (
        "slow",
        "the latency as a share of the response timeout, from 0 to 10, as slow:0.9",
    ),
    ("black-hole", ""),
    (
        "flapping",
        "how long it is up, and then down, as flapping:15m",
    ),
    ("outage", "how long it is down, as outage:5h"),
    (
        "overloaded",
        "requests a second that it can take, more than 0, as overloaded:0.5",
    ),
    (
        "small-batches",
        "the most events that it takes in a request, 1 or more, as small-batches:10",
    ),
    (
        "wrong-address",
        "how long it returns 404, as wrong-address:2h",
    ),
    (
        "faulty",
        "the share of requests that fail, from 0 to 1, as faulty:0.1",
    ),
    (
        "bad-events",
        "the share of events that it refuses, from 0 to 1, as bad-events:0.1",
    ),
];

impl EndpointModel {
    /// Every model, with shares that an operator may meet in practice. `rate` is the number of
    /// events per second.
    pub fn practical_mix(rate: f64) -> [(Self, u32); 10] {
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

    /// Parses a model such as `outage` or `outage:5h`. A missing parameter is that of
    /// [`EndpointModel::practical_mix`].
    ///
    /// # Errors
    /// The given value, and what is allowed.
    pub fn parse(text: &str, rate: f64) -> Result<Self, InvalidModel> {
        let (name, number) = text
            .split_once(':')
            .map_or((text, None), |(name, number)| (name, Some(number)));
        let index = KINDS
            .iter()
            .position(|(kind, _)| *kind == name)
            .ok_or_else(|| InvalidModel::Name(name.to_owned()))?;
        let (default, _) = Self::practical_mix(rate)[index];
        let Some(number) = number else {
            return Ok(default);
        };
        default
            .with_parameter(number)
            .ok_or_else(|| InvalidModel::Parameter {
                name: name.to_owned(),
                number: number.to_owned(),
                allowed: match KINDS[index].1 {
                    "" => "the word alone",
                    allowed => allowed,
                },
            })
    }

    /// Parses a model with its share, such as `outage:5h=2`; the default share is 1.
    ///
    /// # Errors
    /// The given value, and what is allowed.
    pub fn parse_share(text: &str, rate: f64) -> Result<(Self, u32), InvalidModel> {
        let (model, share) = text.rsplit_once('=').unwrap_or((text, "1"));
        let share = share
            .parse()
            .ok()
            .filter(|share| (1..=SHARE_MAX).contains(share));
        let share = share.ok_or_else(|| InvalidModel::Share(text.to_owned()));
        Ok((Self::parse(model, rate)?, share?))
    }

    /// Sets the parameter of the model; [`None`] if it has none, or if `number` is not allowed.
    fn with_parameter(self, number: &str) -> Option<Self> {
        match self {
            Self::Healthy | Self::BlackHole => None,
            Self::Slow(_) => parse_share(number, 10.0).map(Self::Slow),
            Self::Flapping(_) => parse_wait(number).map(Self::Flapping),
            Self::Outage(_) => parse_wait(number).map(Self::Outage),
            Self::Overloaded(_) => parse_share(number, f64::MAX)
                .filter(|capacity| *capacity > 0.0)
                .map(Self::Overloaded),
            Self::SmallBatches(_) => number
                .parse()
                .ok()
                .filter(|events| *events > 0)
                .map(Self::SmallBatches),
            Self::WrongAddress(_) => parse_wait(number).map(Self::WrongAddress),
            Self::Faulty(_) => parse_share(number, 1.0).map(Self::Faulty),
            Self::BadEvents(_) => parse_share(number, 1.0).map(Self::BadEvents),
        }
    }

    /// The period around `at`, up or down. The simulation starts at `start` and lasts for `span`; a
    /// flapping endpoint started its cycle `phase` earlier.
    pub fn availability_at(
        self,
        at: Timestamp,
        start: Timestamp,
        span: Duration,
        phase: Duration,
    ) -> AvailabilityPeriod {
        let period_between = |down, back| AvailabilityPeriod::around_outage(at, start, down..back);
        match self {
            Self::Healthy
            | Self::Slow(_)
            | Self::Overloaded(_)
            | Self::SmallBatches(_)
            | Self::Faulty(_)
            | Self::BadEvents(_) => period_between(Timestamp::NEVER, Timestamp::NEVER),
            Self::BlackHole => period_between(start, Timestamp::NEVER),
            Self::Outage(lasts) => {
                period_between(start.after(span / 4), start.after(span / 4).after(lasts))
            }
            Self::WrongAddress(lasts) => period_between(start, start.after(lasts)),
            Self::Flapping(half) => {
                let half = half.as_micros() as u64;
                let origin = start.before(phase);
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
            Self::Overloaded(capacity) => {
                write!(f, "overloaded:{}", (capacity * 1e6).round() / 1e6)
            }
            Self::SmallBatches(events) => write!(f, "small-batches:{events}"),
            Self::WrongAddress(lasts) => write!(f, "wrong-address:{}", format_duration(*lasts)),
            Self::Faulty(share) => write!(f, "faulty:{share}"),
            Self::BadEvents(share) => write!(f, "bad-events:{share}"),
        }
    }
}

fn parse_share(number: &str, most: f64) -> Option<f64> {
    f64::from_str(number)
        .ok()
        .filter(|share| (0.0..=most).contains(share))
}

/// Parses a duration from one second to one year.
fn parse_wait(number: &str) -> Option<Duration> {
    let year = Duration::from_secs(365 * 24 * 3600);
    parse_duration(number)
        .ok()
        .filter(|wait| (Duration::from_secs(1)..=year).contains(wait))
}
