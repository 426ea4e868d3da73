//! The state of an endpoint: whether it may be called now, and with how much at once.
//!
//! | part | question |
//! | --- | --- |
//! | `health` | is it suspended? |
//! | `meter` | what were the recent outcomes? |
//! | `pace` | how many requests per second? |
//! | `limit` | how many requests at once? |
//! | `cap` | how many events per request? |
//! | `reach` | is an unreachable endpoint back? |
//! | `unavailable` | why may it not be called? |
//!
//! Each part is notified when a request is sent and when it ends, in O(1) time and memory.
//!
//! Invariants:
//! - Nothing is sent while the endpoint is suspended, nor before the time that it requested with
//!   `Retry-After` of this or of another subscription.
//! - While probing, exactly one request is in flight, and only its outcome ends probing. Other
//!   outcomes are of requests sent before.
//! - A request that gridhook aborted changes nothing. A rejection of events is neither a success
//!   nor a failure, but it ends a probe as a success, because the endpoint works.
//!
//! What it does not do: it sees no HTTP statuses, only [`Outcome`]s.

mod cap;
mod command;
mod health;
mod limit;
mod meter;
mod pace;
mod reach;
mod recovery;
mod unavailable;

use std::{sync::Arc, time::Duration};

pub use health::{client_error_until, suspension_duration};
pub use limit::limit_of_new;
pub use pace::EventAge;
pub use unavailable::Unavailable;

use self::{
    cap::BatchCap, health::HealthSignal, limit::AdaptiveLimit, meter::RequestWindow,
    pace::RequestPace, reach::ConnectionProbe,
};
use crate::{
    edition::Edition,
    outcome::{Failure, Outcome},
    record::{EndpointId, EndpointView, Health, HeldBy, PaceRecord, Rate},
    retry::{self, Jitter},
};
use gridhook_event::{RequestId, Timestamp};

/// Jobs have this fraction of the concurrency limit and of the pace.
const JOBS_PART: u32 = 4;

/// The endpoint of one subscription.
#[derive(Debug)]
pub struct Endpoint {
    id: EndpointId,
    edition: Arc<Edition>,
    suspend_after: u32,
    events_max: u32,
    rate_max: Option<Rate>,
    health: Health,
    held: Option<HeldBy>,
    is_closed: bool,
    probe: Option<RequestId>,
    meter: RequestWindow,
    /// The stored part: the rate of the last healthy window before the present one.
    pace: PaceRecord,
    /// Boxed: an endpoint that never fails has none.
    bucket: Option<Box<RequestPace>>,
    limit: AdaptiveLimit,
    cap: BatchCap,
    reach: ConnectionProbe,
    /// The end of the wait that the endpoint requested of this subscription, until it is passed on.
    requested_wait: Option<Timestamp>,
    /// The end of the wait that it requested of another subscription, as last reported.
    reported_wait: Option<Timestamp>,
}

/// A finished request, as far as it says something about the endpoint.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct RequestReport {
    pub request: RequestId,
    pub sent: Timestamp,
    /// How many events it carried.
    pub events: usize,
    /// Requests in flight, including it.
    pub in_flight: usize,
    pub outcome: Outcome,
    /// Whether the endpoint rejected the events: its health does not change then.
    pub refused: bool,
    /// The wait that the endpoint requested.
    pub retry_after: Option<Duration>,
    /// From the first byte sent to the last byte read.
    pub latency: Duration,
}

impl Endpoint {
    /// Whether it is called, suspended or probed.
    pub fn health(&self) -> Health {
        self.health
    }

    /// Whether it is held, and why.
    pub fn hold_reason(&self) -> Option<HeldBy> {
        self.held
    }

    /// [`None`] resumes it.
    pub fn set_hold(&mut self, held: Option<HeldBy>) {
        self.held = held;
    }

    /// How long every request has failed, if the last one did.
    pub fn failing_for(&self, now: Timestamp) -> Option<Duration> {
        self.pace.failing_since.map(|since| now.since(since))
    }

    /// Notes that the endpoint accepted a request, in time or late, or refused its events.
    pub fn record_success(&mut self) {
        self.pace.failing_since = None;
    }

    /// The stored part of its pace.
    pub fn pace(&self) -> PaceRecord {
        let has_pace = self.bucket.as_deref().is_some_and(RequestPace::has_course);
        let requested_by = self.pace.not_before.map(|_| self.id);
        PaceRecord {
            healthy: self.last_healthy_rate(),
            paced: has_pace,
            requested_by,
            ..self.pace
        }
    }

    /// What operators see of it, computed for `now`.
    pub fn view(&self, now: Timestamp) -> EndpointView {
        let is_healthy = matches!(self.health, Health::Healthy { .. });
        EndpointView {
            rate: self
                .bucket
                .as_ref()
                .filter(|_| is_healthy)
                .map(|bucket| Rate::from_per_second(bucket.current_rate(now))),
            healthy_rate: self.last_healthy_rate(),
            concurrency: self.limit.get(),
            events_max: self.batch_max(),
            order: None,
        }
    }

    /// Sends nothing more, whatever its health: the server stops.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether [`Endpoint::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The present limit of requests at once.
    pub fn concurrency_limit(&self) -> u32 {
        self.limit.get()
    }

    /// How many more requests with events of this age may leave now, with `in_flight` in flight.
    pub fn free_requests(&self, in_flight: usize, age: EventAge, now: Timestamp) -> u32 {
        if self.unavailable(now).is_some() {
            return 0;
        }
        if !matches!(self.health, Health::Healthy { .. }) {
            // A probe.
            return 1;
        }
        let free_count = self.free_under_limit(in_flight);
        match &self.bucket {
            Some(bucket) => bucket.free_requests(age, now).min(free_count),
            None => free_count,
        }
    }

    /// When the pace allows the next request with events of this age; [`None`] without a pace, or
    /// if something else blocks.
    pub fn pace_opens(&self, in_flight: usize, age: EventAge, now: Timestamp) -> Option<Timestamp> {
        let bucket = self.active_pace()?;
        let is_blocked = self.free_under_limit(in_flight) == 0 || self.unavailable(now).is_some();
        (!is_blocked).then(|| bucket.next_token(age, now))
    }

    /// Whether old events wait for the pace.
    pub fn holds_back_old(&self, now: Timestamp) -> bool {
        self.active_pace()
            .is_some_and(|pace| pace.free_requests(EventAge::Old, now) == 0)
    }

    /// The pace, while it decides: probes have none.
    fn active_pace(&self) -> Option<&RequestPace> {
        let is_healthy = matches!(self.health, Health::Healthy { .. });
        self.bucket.as_deref().filter(|_| is_healthy)
    }

    /// When a job's request may leave, given `in_flight` requests of jobs and the last one sent at
    /// `last_sent`: jobs have a part of the limit and of the pace. [`None`] while their part of the
    /// limit is used.
    pub fn jobs_open(
        &self,
        in_flight: usize,
        last_sent: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let limit = (self.limit.get() / JOBS_PART).max(1);
        if in_flight >= limit as usize {
            return None;
        }
        let Some(bucket) = &self.bucket else {
            return Some(now);
        };
        let interval = Duration::from_secs_f64(f64::from(JOBS_PART) / bucket.current_rate(now));
        Some(last_sent.after(interval).max(now))
    }

    /// When it opens by itself, or did; [`None`] if it was not suspended or waits for something
    /// other than time.
    pub fn opens_at(&self) -> Option<Timestamp> {
        match self.health {
            _ if self.shut().is_some() => None,
            Health::Probing { .. } => None,
            Health::Healthy { .. } => self.pace.not_before,
            Health::Suspended { until, .. } => Some(until),
        }
    }

    /// Extends a suspension to the end of the wait that the endpoint requested.
    fn extend_suspension(&mut self) {
        if let (Health::Suspended { until, .. }, Some(not_before)) =
            (&mut self.health, self.pace.not_before)
        {
            *until = (*until).max(not_before);
        }
    }

    /// Makes the first probe due at once: the server has started, or the address is another one, and
    /// the present state is unknown.
    pub fn start(&mut self, now: Timestamp) {
        if let Health::Suspended { until, .. } = &mut self.health
            && *until > now
        {
            *until = now;
            self.reach.set_early();
        }
        self.extend_suspension();
    }

    /// Whether the next probe is due early.
    pub fn is_early(&self) -> bool {
        self.reach.is_early()
    }

    /// When to try a bare connection; [`None`] if it would be useless.
    pub fn next_connection_attempt(&self) -> Option<Timestamp> {
        match self.health {
            _ if self.shut().is_some() => None,
            Health::Suspended { .. } => self.reach.next(),
            Health::Healthy { .. } | Health::Probing { .. } => None,
        }
    }

    /// Notes that a connection is being tried.
    pub fn begin_connection_attempt(&mut self) {
        self.reach.begin_attempt();
    }

    /// Notes the result of a connection attempt. After a success the probe is due at once.
    pub fn record_connection_attempt(
        &mut self,
        is_reachable: bool,
        now: Timestamp,
        jitter: Jitter,
    ) {
        let Health::Suspended { since, until, .. } = &mut self.health else {
            return;
        };
        if is_reachable {
            *until = (*until).min(now);
            self.reach.set_early();
            self.extend_suspension();
        } else {
            self.reach.record_unreachable(*since, now, jitter);
        }
    }

    /// Whether it is suspended after a client error, which waiting alone does not correct.
    pub fn is_suspended_by_client_error(&self, now: Timestamp) -> bool {
        self.shut().is_none() && client_error_until(self.health).is_some_and(|until| now < until)
    }

    /// Notes that a request was sent, as full as possible or not. If the endpoint was suspended, it
    /// is the probe.
    pub fn record_sent(
        &mut self,
        request: RequestId,
        age: EventAge,
        is_full: bool,
        now: Timestamp,
    ) {
        self.pace.not_before = None;
        match self.health {
            Health::Probing { .. } => {}
            Health::Healthy { .. } => {
                self.limit.record_sent(is_full);
                if let Some(bucket) = &mut self.bucket {
                    bucket.take_token(age, now);
                }
            }
            Health::Suspended {
                cause,
                since,
                consecutive_suspensions,
                until: _,
            } => {
                self.health = Health::Probing {
                    cause,
                    since,
                    consecutive_suspensions,
                };
                self.probe = Some(request);
            }
        }
    }

    /// Notes the outcome of a request.
    pub fn on_response(&mut self, report: RequestReport, now: Timestamp) {
        let signal = if report.refused {
            HealthSignal::Refused
        } else {
            report.outcome.into()
        };
        if let HealthSignal::Failed(_) = signal {
            self.pace.failed = Some(now);
        }
        match signal {
            // An endpoint that refuses events works.
            HealthSignal::Accepted | HealthSignal::Refused => self.record_success(),
            HealthSignal::Failed(_) => _ = self.pace.failing_since.get_or_insert(now),
            HealthSignal::Nothing => {}
        }
        let requested_wait = retry::capped_retry_after(&self.edition, report.retry_after)
            .filter(|_| signal != HealthSignal::Accepted);
        let not_before = requested_wait
            .map(|wait| now.after(wait))
            .filter(|until| *until > now);
        self.pace.not_before = self.pace.not_before.max(not_before);
        self.requested_wait = self.requested_wait.max(not_before);
        match (self.health, signal) {
            (Health::Healthy { .. }, HealthSignal::Accepted) => self.record_accepted(report, now),
            (Health::Healthy { failures }, HealthSignal::Failed(failure)) => {
                self.record_failures(failures + 1, failure, report.sent, now)
            }
            (
                Health::Probing {
                    cause,
                    since,
                    consecutive_suspensions,
                },
                signal,
            ) if self.probe == Some(report.request) => {
                self.end_probe(signal, cause, since, consecutive_suspensions, now)
            }
            // It concerns the events, was aborted by gridhook, or was sent before the suspension.
            (Health::Healthy { .. } | Health::Suspended { .. } | Health::Probing { .. }, _) => {}
        }
        self.extend_suspension();
    }

    /// Notes the outcome of the probe.
    fn end_probe(
        &mut self,
        signal: HealthSignal,
        cause: Failure,
        since: Timestamp,
        consecutive_suspensions: u32,
        now: Timestamp,
    ) {
        self.probe = None;
        match signal {
            HealthSignal::Accepted | HealthSignal::Refused => self.become_healthy(now),
            // The same suspension continues for longer. A probe that was due early does not
            // lengthen it.
            HealthSignal::Failed(failure) => {
                let is_lengthened = !self.reach.take_early();
                self.health = health::new_suspension(
                    failure,
                    consecutive_suspensions.saturating_add(u32::from(is_lengthened)),
                    since,
                    &self.edition.probation,
                    now,
                );
            }
            // The probe is no longer awaited.
            HealthSignal::Nothing => {
                self.health = Health::Suspended {
                    cause,
                    since,
                    until: now,
                    consecutive_suspensions,
                }
            }
        }
    }

    /// Notes that the last request was sent twice: the next one waits for a further token.
    pub fn record_repeated(&mut self, now: Timestamp) {
        if let Some(bucket) = &mut self.bucket {
            bucket.take_token_in_debt(EventAge::Old, now);
        }
    }

    /// Notes the wait that the endpoint requested of another subscription, capped by the own
    /// edition. Returns whether it is longer than the own one.
    pub fn delay_until(&mut self, until: Option<Timestamp>, now: Timestamp) -> bool {
        if self.reported_wait == until {
            return false;
        }
        self.reported_wait = until;
        let longest = now.after(self.edition.retry.retry_after_max);
        let until = until
            .map(|until| until.min(longest))
            .filter(|until| *until > now);
        if until <= self.pace.not_before {
            return false;
        }
        self.pace.not_before = until;
        self.extend_suspension();
        true
    }

    /// The end of the wait that the endpoint requested since the last call.
    pub fn take_requested_wait(&mut self) -> Option<Timestamp> {
        self.requested_wait.take()
    }

    /// Notes that a request reached the endpoint, or that no connection was made because of the
    /// network. Called after [`Endpoint::on_response`].
    pub fn record_reach(&mut self, is_reached: bool, now: Timestamp, jitter: Jitter) {
        match self.health {
            Health::Suspended { since, .. } if !is_reached => {
                self.reach.record_unreachable(since, now, jitter)
            }
            Health::Suspended { .. } => self.reach.stop_attempts(),
            Health::Healthy { .. } | Health::Probing { .. } => {}
        }
    }

    /// Maximum events per request; fewer after a batch was too large.
    pub fn batch_max(&self) -> u32 {
        self.cap.cap_events(self.events_max)
    }

    /// Halves the maximum events per request after a batch of this size was too large.
    pub fn halve_batches(&mut self, events: usize) {
        self.cap.record_too_large(events);
    }

    fn free_under_limit(&self, in_flight: usize) -> u32 {
        self.limit
            .get()
            .saturating_sub(u32::try_from(in_flight).unwrap_or(u32::MAX))
    }

    fn record_accepted(&mut self, report: RequestReport, now: Timestamp) {
        self.health = Health::Healthy { failures: 0 };
        self.meter.count_success(now);
        self.limit.record_success(
            report.events,
            report.latency,
            report.sent,
            report.in_flight,
            now,
        );
        self.cap.record_accepted(report.events, self.events_max);
        let Some(bucket) = &mut self.bucket else {
            return;
        };
        bucket.record_success(&self.edition.pace, now);
        let is_quiet = self
            .pace
            .failed
            .is_none_or(|failed| now.since(failed) >= self.edition.pace.forgotten_after);
        if is_quiet && !bucket.end_course() {
            self.bucket = None;
        }
    }

    fn record_failures(
        &mut self,
        failures: u32,
        failure: Failure,
        sent: Timestamp,
        now: Timestamp,
    ) {
        let counts = self.meter.count_failure(now);
        self.limit.record_failure(sent, now);
        if let Some(bucket) = &mut self.bucket {
            bucket.record_failure(failure, sent, &self.edition.pace, now);
        }
        let table = &self.edition.probation;
        self.health =
            health::after_failure(failures, self.suspend_after, counts, failure, table, now);
    }

    /// Returns to healthy: failures are forgotten, the rate is kept.
    fn become_healthy(&mut self, now: Timestamp) {
        self.pace.healthy = self.last_healthy_rate();
        self.meter = RequestWindow::new(self.edition.probation.window);
        self.bucket = RequestPace::new(self.pace.healthy, self.rate_max, &self.edition.pace, now)
            .map(Box::new);
        self.limit.reset_after_probation(self.bucket.is_some(), now);
        self.reach.stop_attempts();
        self.health = Health::Healthy { failures: 0 };
    }

    /// The rate of the last healthy window. A window cut short counts only if it was faster.
    fn last_healthy_rate(&self) -> Option<Rate> {
        let Some((rate, is_whole)) = self.meter.success_rate() else {
            return self.pace.healthy;
        };
        let rate_of_window = Rate::from_per_second(rate);
        Some(
            self.pace
                .healthy
                .filter(|earlier_rate| !is_whole && *earlier_rate > rate_of_window)
                .unwrap_or(rate_of_window),
        )
    }
}
