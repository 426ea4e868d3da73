//! May anything be sent to the endpoint now, and how much at once.
//!
//! Healthy → Suspended → Probing → Healthy. So many failed requests in a row suspend the endpoint for the table's
//! duration; then one probe goes out; its success makes the endpoint healthy, its failure suspends it again, for twice
//! as long, up to the edition's longest.
//!
//! Invariants: while suspended nothing is sent; while probing exactly one request is in flight; only the probe's own
//! answer ends probing: any other is a straggler from before.
//! Absent on purpose: HTTP. This module sees [`Outcome`], never a status.

use std::time::Duration;

use crate::{
    event::{FlightId, Timestamp},
    policy::{edition::Probation, outcome::Outcome, record::Health},
};

/// An endpoint as its subscription knows it.
#[derive(Debug)]
pub struct Endpoint {
    health: Health,
    held: bool,
    closed: bool,
    probe: Option<FlightId>,
    concurrency_max: u32,
    batch_cap: Option<u32>,
}

impl Endpoint {
    /// An endpoint as it was written down. `flights` are on their way, each with the time when it left: the first that
    /// left after the suspension is the probe of an earlier life. Where none is left, the next one may go at once.
    pub fn recover(
        health: Health,
        held: bool,
        concurrency_max: u32,
        flights: impl Iterator<Item = (FlightId, Timestamp)>,
        now: Timestamp,
    ) -> Self {
        let probe = |after: Timestamp| flights.filter(|(_, sent)| *sent >= after).map(|(id, _)| id).min();
        let (health, probe) = match health {
            Health::Healthy { .. } => (health, None),
            Health::Suspended { cause, since, until, strikes } => match probe(until) {
                Some(id) => (Health::Probing { cause, since, strikes }, Some(id)),
                None => (health, None),
            },
            Health::Probing { cause, since, strikes } => match probe(since.after(Duration::from_micros(1))) {
                Some(id) => (health, Some(id)),
                None => (Health::Suspended { cause, since, until: now, strikes }, None),
            },
        };
        Self { health, held, closed: false, probe, concurrency_max, batch_cap: None }
    }

    /// Its health.
    pub fn health(&self) -> Health {
        self.health
    }

    /// Whether an operator holds it.
    pub fn held(&self) -> bool {
        self.held
    }

    /// Holds it, or lets it go.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Nothing leaves any more, whatever its health: the server stops.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether it is held, or closed.
    pub fn is_shut(&self) -> bool {
        self.held || self.closed
    }

    /// How many more requests may leave now, with `in_flight` on their way.
    pub fn places(&self, in_flight: usize, now: Timestamp) -> u32 {
        let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
        match self.health {
            _ if self.is_shut() => 0,
            Health::Healthy { .. } => self.concurrency_max.saturating_sub(in_flight),
            Health::Suspended { until, .. } => u32::from(until <= now),
            Health::Probing { .. } => 0,
        }
    }

    /// Whether anything may be sent soon, so that reading ahead is of use.
    pub fn is_open(&self, now: Timestamp) -> bool {
        match self.health {
            _ if self.is_shut() => false,
            Health::Healthy { .. } => true,
            Health::Suspended { until, .. } => until <= now,
            Health::Probing { .. } => false,
        }
    }

    /// When it opens by itself; [`None`] where it is open or waits for something else than time.
    pub fn opens(&self) -> Option<Timestamp> {
        match self.health {
            _ if self.is_shut() => None,
            Health::Healthy { .. } | Health::Probing { .. } => None,
            Health::Suspended { until, .. } => Some(until),
        }
    }

    /// A request leaves: where the endpoint was suspended, it is the probe.
    pub fn sent(&mut self, flight: FlightId) {
        match self.health {
            Health::Healthy { .. } | Health::Probing { .. } => {}
            Health::Suspended { cause, since, strikes, until: _ } => {
                self.health = Health::Probing { cause, since, strikes };
                self.probe = Some(flight);
            }
        }
    }

    /// A request came back.
    pub fn answered(
        &mut self,
        flight: FlightId,
        outcome: Outcome,
        table: &Probation,
        suspend_after: u32,
        now: Timestamp,
    ) {
        let failed = match outcome {
            // We ended it ourselves: that says nothing of the endpoint, but a probe must not be waited for any more.
            Outcome::Aborted => None,
            Outcome::Delivered => Some(false),
            Outcome::NotFound
            | Outcome::Disabled
            | Outcome::Full
            | Outcome::Unauthorized
            | Outcome::BadRequest
            | Outcome::TimedOut
            | Outcome::Busy
            | Outcome::PayloadTooLarge
            | Outcome::Probation
            | Outcome::Canceled
            | Outcome::SocketError
            | Outcome::ResolutionError
            | Outcome::SessionQueueNotSupported
            | Outcome::Forbidden
            | Outcome::InvalidAzureFunctionDestination
            | Outcome::GenericError => Some(true),
        };
        self.health = match (self.health, failed) {
            (Health::Healthy { .. }, Some(false)) => Health::Healthy { failures: 0 },
            (Health::Healthy { failures }, Some(true)) if failures + 1 < suspend_after => {
                Health::Healthy { failures: failures + 1 }
            }
            (Health::Healthy { .. }, Some(true)) => Health::Suspended {
                cause: outcome,
                since: now,
                until: now.after(duration(table, outcome, 1)),
                strikes: 1,
            },
            (Health::Probing { cause, since, strikes }, failed) if self.probe == Some(flight) => match failed {
                Some(false) => Health::Healthy { failures: 0 },
                Some(true) => {
                    let strikes = strikes.saturating_add(1);
                    let until = now.after(duration(table, outcome, strikes));
                    Health::Suspended { cause: outcome, since, until, strikes }
                }
                None => Health::Suspended { cause, since, until: now, strikes },
            },
            (same @ (Health::Healthy { .. } | Health::Suspended { .. } | Health::Probing { .. }), _) => same,
        };
        if self.probe == Some(flight) {
            self.probe = None;
        }
    }

    /// The most events that a request may have, of the `wanted`: fewer after the endpoint called a batch too large.
    pub fn batch_max(&self, wanted: u32) -> u32 {
        self.batch_cap.map_or(wanted, |cap| cap.min(wanted))
    }

    /// A batch of so many events was too large for the endpoint: the next ones have half as many.
    pub fn halve_batches(&mut self, events: usize) {
        let half = u32::try_from(events / 2).unwrap_or(u32::MAX).max(1);
        self.batch_cap = Some(self.batch_max(half));
    }
}

/// How long an endpoint is left alone: the table's duration, doubled for each strike after the first.
pub fn duration(table: &Probation, cause: Outcome, strikes: u32) -> Duration {
    let once = table.durations.get(&cause).copied().unwrap_or(table.otherwise);
    // Past 2^20 every duration of the table is years; a larger exponent would only overflow.
    once.saturating_mul(1 << strikes.saturating_sub(1).min(20)).min(table.longest)
}
