//! A simulated endpoint: its reply to a request, and the latency.
//!
//! Every request gets a reply, because the real sender reports a timeout too.
//!
//! What it does not do: endpoints do not influence each other. Each belongs to one subscription.

use std::time::Duration;

use fastrand::Rng;

use crate::endpoint_model::{AvailabilityPeriod, EndpointModel};
use gridhook_event::{Seq, Timestamp};
use gridhook_policy::{
    SendItem,
    outcome::{Failure, Outcome, RequestResult},
};

/// Latency of a healthy endpoint with a network and a small database: 20 to 80 milliseconds.
const QUICK: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(80)];

/// Maximum deviation of a slow endpoint's latency, as a share of it.
const SLOW_SPREAD: f64 = 0.15;

/// Bad events come in runs of this length, because a faulty publisher produces several in a row.
const BAD_RUN: u64 = 32;

/// Whether an event is in the rejected share, which is the same for every endpoint and attempt.
fn is_bad(seq: Seq, share: f64) -> bool {
    Rng::with_seed(seq.0 / BAD_RUN).f64() < share
}

#[derive(Debug)]
pub(super) struct SimulatedEndpoint {
    model: EndpointModel,
    start: Timestamp,
    span: Duration,
    response_timeout: Duration,
    phase: Duration,
    /// Requests that an overloaded endpoint could accept now.
    room: f64,
    counted: Timestamp,
}

/// The reply to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedReply {
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
    pub(super) latency: Duration,
}

impl SimulatedReply {
    fn with_status(status: u16, latency: Duration) -> Self {
        Self {
            outcome: Outcome::from_status(status),
            status: Some(status),
            retry_after: None,
            latency,
        }
    }

    /// The reply as a result for the state machine.
    pub(super) fn to_result(self) -> RequestResult {
        let Self {
            outcome,
            status,
            retry_after,
            latency,
        } = self;
        RequestResult {
            status,
            retry_after,
            latency,
            unreached: outcome == Outcome::Failed(Failure::SocketError),
            ..RequestResult::from_outcome(outcome)
        }
    }
}

impl SimulatedEndpoint {
    pub(super) fn new(
        model: EndpointModel,
        start: Timestamp,
        span: Duration,
        response_timeout: Duration,
        jitter: &mut Rng,
    ) -> Self {
        let phase = match model {
            EndpointModel::Flapping(half) => half.mul_f64(2.0 * jitter.f64()),
            EndpointModel::Healthy
            | EndpointModel::Slow(_)
            | EndpointModel::BlackHole
            | EndpointModel::Outage(_)
            | EndpointModel::Overloaded(_)
            | EndpointModel::SmallBatches(_)
            | EndpointModel::WrongAddress(_)
            | EndpointModel::Faulty(_)
            | EndpointModel::BadEvents(_) => Duration::ZERO,
        };
        Self {
            model,
            start,
            span,
            response_timeout,
            phase,
            room: 1.0,
            counted: start,
        }
    }

    pub(super) fn availability_at(&self, at: Timestamp) -> AvailabilityPeriod {
        self.model
            .availability_at(at, self.start, self.span, self.phase)
    }

    /// Replies to a request with these events.
    pub(super) fn reply_to(
        &mut self,
        events: &[SendItem],
        now: Timestamp,
        jitter: &mut Rng,
    ) -> SimulatedReply {
        let [least, most] = QUICK;
        let latency = (least + (most - least).mul_f64(jitter.f64())).min(self.response_timeout);
        let status = |status| SimulatedReply::with_status(status, latency);
        let no_reply = SimulatedReply {
            outcome: Outcome::Failed(Failure::TimedOut),
            status: None,
            retry_after: None,
            latency: self.response_timeout,
        };
        let up = self.availability_at(now).up;
        match self.model {
            EndpointModel::Healthy => status(200),
            EndpointModel::Slow(share) => {
                let spread = 1.0 + SLOW_SPREAD * (2.0 * jitter.f64() - 1.0);
                let latency = self.response_timeout.mul_f64(share * spread);
                if latency < self.response_timeout {
                    SimulatedReply {
                        latency,
                        ..status(200)
                    }
                } else {
                    no_reply
                }
            }
            EndpointModel::BlackHole => no_reply,
            EndpointModel::Flapping(_) => status(if up { 200 } else { 503 }),
            EndpointModel::Outage(_) if up => status(200),
            EndpointModel::Outage(_) => SimulatedReply {
                outcome: Outcome::Failed(Failure::SocketError),
                status: None,
                ..status(503)
            },
            EndpointModel::Overloaded(capacity) => match self.wait_for_room(capacity, now) {
                None => status(200),
                wait => SimulatedReply {
                    retry_after: wait,
                    ..status(429)
                },
            },
            EndpointModel::SmallBatches(most) => status(if events.len() > most as usize {
                413
            } else {
                200
            }),
            EndpointModel::WrongAddress(_) => status(if up { 200 } else { 404 }),
            EndpointModel::Faulty(share) => status(if jitter.f64() < share { 500 } else { 200 }),
            EndpointModel::BadEvents(share) => {
                let bad = events.iter().any(|item| is_bad(item.seq, share));
                status(if bad { 400 } else { 200 })
            }
        }
    }

    /// Seconds until an overloaded endpoint accepts another request, rounded up; [`None`] if it
    /// accepts this one.
    fn wait_for_room(&mut self, capacity: f64, now: Timestamp) -> Option<Duration> {
        let more = now.since(self.counted).as_secs_f64() * capacity;
        // Unused capacity expires after a second, but at least one request is accepted after a long
        // enough wait.
        self.room = (self.room + more).min(capacity.max(1.0));
        self.counted = now;
        if self.room >= 1.0 {
            self.room -= 1.0;
            return None;
        }
        let wait = ((1.0 - self.room) / capacity).ceil();
        Duration::try_from_secs_f64(wait)
            .ok()
            .or(Some(Duration::MAX))
    }
}
