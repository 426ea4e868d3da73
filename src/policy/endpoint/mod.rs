//! May anything be sent to the endpoint now, and how much at once.
//!
//! Its rooms: `health` (is it left alone?), `meter` (what came back lately?), `pace` (how fast?), `limit` (how many
//! requests at once?), `cap` (how many events in one?), `reach` (is it back?). What each asks for is the same few words: a
//! request left, a request came back. Each is O(1) in time and memory.
//!
//! Invariants: while suspended nothing is sent, nor before the time that the endpoint asked for (`Retry-After`); while
//! probing exactly one request is in flight; only the probe's own answer ends probing: any other is a straggler from
//! before. What we ended ourselves teaches nothing. A refusal of events is neither a success nor a failure, but a probe
//! that is answered with one has found the endpoint alive.
//! Absent on purpose: HTTP. This module sees [`Outcome`], never a status.

mod cap;
mod health;
mod limit;
mod meter;
mod pace;
mod reach;

use std::{sync::Arc, time::Duration};

pub use health::{duration, misused_until};

use self::{
    cap::ConcurrencyCap, health::HealthSignal, limit::AdaptiveLimit, meter::RequestWindow, pace::TokenBucket,
    reach::ConnectionProbe,
};
use crate::{
    event::{RequestId, Timestamp},
    policy::{
        SubscriptionSettings,
        edition::Edition,
        outcome::Outcome,
        record::{Command, CommandRefused, Cursor, EndpointView, Health, HeldBy, PaceRecord, Rate},
        retry::{self, Jitter},
    },
};

/// Jobs have one place in so many at the most, and one request in so many where there is a pace.
const JOBS_PART: u32 = 4;

/// An endpoint as its subscription knows it.
#[derive(Debug)]
pub struct Endpoint {
    edition: Arc<Edition>,
    suspend_after: u32,
    events_max: u32,
    rate_max: Option<Rate>,
    health: Health,
    held: Option<HeldBy>,
    closed: bool,
    probe: Option<RequestId>,
    meter: RequestWindow,
    /// What is remembered: its rate is that of the last healthy window before the present one.
    pace: PaceRecord,
    bucket: Option<TokenBucket>,
    limit: AdaptiveLimit,
    cap: ConcurrencyCap,
    reach: ConnectionProbe,
}

/// A request that came back, as far as it speaks of the endpoint.
#[derive(Clone, Copy, Debug)]
pub struct RequestReport {
    /// Which.
    pub request: RequestId,
    /// When it left.
    pub sent: Timestamp,
    /// With how many events.
    pub events: usize,
    /// How many were on their way, with it.
    pub in_flight: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the endpoint refused the events: that says nothing of its health.
    pub refused: bool,
    /// How long the endpoint asked to be left alone.
    pub retry_after: Option<Duration>,
    /// After how long.
    pub latency: Duration,
}

impl Endpoint {
    /// An endpoint as it was written down. `flights` are on their way, each with the time when it left: the first that
    /// left after the suspension is the probe of an earlier life. Where none is left, the next one may go at once.
    ///
    /// One that had a pace has it again, from its start, and one that is owed something and failed not long ago has one: what
    /// fell due meanwhile does not come all at once.
    pub fn recover(
        settings: &SubscriptionSettings,
        cursor: &Cursor,
        requests: impl Iterator<Item = (RequestId, Timestamp)>,
        now: Timestamp,
    ) -> Self {
        let edition = Arc::clone(&settings.edition);
        let probe = |after: Timestamp| requests.filter(|(_, sent)| *sent >= after).map(|(id, _)| id).min();
        let (health, probe) = match cursor.health {
            health @ Health::Healthy { .. } => (health, None),
            health @ Health::Suspended { cause, since, until, consecutive_suspensions: strikes } => {
                match probe(until) {
                    Some(id) => (Health::Probing { cause, since, consecutive_suspensions: strikes }, Some(id)),
                    None => (health, None),
                }
            }
            health @ Health::Probing { cause, since, consecutive_suspensions: strikes } => {
                match probe(since.after(Duration::from_micros(1))) {
                    Some(id) => (health, Some(id)),
                    None => (Health::Suspended { cause, since, until: now, consecutive_suspensions: strikes }, None),
                }
            }
        };
        // On a clock that was set back since, it is left alone for no longer than it could have asked for.
        let longest = now.after(edition.retry.retry_after_max);
        let not_before = cursor.pace.not_before.map(|until| until.min(longest)).filter(|until| *until > now);
        let cause = match health {
            Health::Suspended { cause, .. } => Some(cause),
            Health::Healthy { .. } | Health::Probing { .. } => None,
        };
        let failed = cursor.pace.failed.map(|failed| failed.min(now));
        let failed = failed.filter(|failed| now.since(*failed) < edition.pace.forgotten_after);
        let mut endpoint = Self {
            health: health::recover(health, &edition.probation, now),
            meter: RequestWindow::new(edition.probation.window),
            edition,
            suspend_after: settings.suspend_after,
            events_max: settings.batch.events_max,
            rate_max: settings.rate_max,
            held: cursor.held,
            closed: false,
            probe,
            pace: PaceRecord { failed, not_before, ..cursor.pace },
            bucket: None,
            limit: AdaptiveLimit::new(settings.concurrency_max),
            cap: ConcurrencyCap::default(),
            reach: ConnectionProbe::recover(settings.reconnect_wait, cause, now),
        };
        let paced = failed.is_some() && (cursor.pace.paced || cursor.next_due.is_some());
        let healthy = endpoint.pace.healthy.filter(|_| paced);
        endpoint.bucket = TokenBucket::new(healthy, endpoint.rate_max, &endpoint.edition.pace, now);
        endpoint.leave_alone();
        endpoint
    }

    /// Its health.
    pub fn health(&self) -> Health {
        self.health
    }

    /// Whether it is held, and by whom.
    pub fn held(&self) -> Option<HeldBy> {
        self.held
    }

    /// Holds it, or lets it go.
    pub fn hold(&mut self, held: Option<HeldBy>) {
        self.held = held;
    }

    /// What is to be remembered of its pace.
    pub fn pace(&self) -> PaceRecord {
        let paced = self.bucket.as_ref().is_some_and(TokenBucket::has_course);
        PaceRecord { healthy: self.healthy(), paced, ..self.pace }
    }

    /// How it is, for people.
    pub fn view(&self, now: Timestamp) -> EndpointView {
        let is_healthy = matches!(self.health, Health::Healthy { .. });
        EndpointView {
            rate: self.bucket.as_ref().filter(|_| is_healthy).map(|bucket| Rate::of(bucket.rate(now))),
            healthy_rate: self.healthy(),
            concurrency: self.limit.get(),
            events_max: self.batch_max(),
        }
    }

    /// Nothing leaves any more, whatever its health: the server stops.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether the server stops.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it is held, or closed.
    pub fn is_shut(&self) -> bool {
        self.held.is_some() || self.closed
    }

    /// How many more requests may leave now, with `in_flight` on their way.
    pub fn places(&self, in_flight: usize, now: Timestamp) -> u32 {
        match self.health {
            _ if self.is_shut() || self.rests(now) => 0,
            Health::Healthy { .. } => {
                let free = self.free(in_flight);
                self.bucket.as_ref().map_or(free, |bucket| bucket.places(now).min(free))
            }
            Health::Suspended { until, .. } => u32::from(until <= now),
            Health::Probing { .. } => 0,
        }
    }

    /// When its pace has a place for the next request; [`None`] where it has no pace, or other places are wanting.
    pub fn paces(&self, in_flight: usize, now: Timestamp) -> Option<Timestamp> {
        match self.health {
            Health::Healthy { .. } if self.free(in_flight) > 0 && !self.is_shut() && !self.rests(now) => {
                self.bucket.as_ref().map(|bucket| bucket.opens(now))
            }
            Health::Healthy { .. } | Health::Suspended { .. } | Health::Probing { .. } => None,
        }
    }

    /// From when on a job's request may leave beside all others, where `in_flight` of jobs are on their way and the last of these
    /// left at `left`: they have a part of the places and of the pace. [`None`] where their places are taken.
    pub fn spares(&self, in_flight: usize, left: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let places = (self.limit.get() / JOBS_PART).max(1);
        if in_flight >= places as usize {
            return None;
        }
        let wait = |bucket: &TokenBucket| Duration::from_secs_f64(f64::from(JOBS_PART) / bucket.rate(now));
        Some(self.bucket.as_ref().map_or(now, |bucket| left.after(wait(bucket)).max(now)))
    }

    /// Whether anything may be sent soon, so that reading ahead is of use.
    pub fn is_open(&self, now: Timestamp) -> bool {
        match self.health {
            _ if self.is_shut() || self.rests(now) => false,
            Health::Healthy { .. } => true,
            Health::Suspended { until, .. } => until <= now,
            Health::Probing { .. } => false,
        }
    }

    /// When it opens by itself, or did; [`None`] where it was not left alone or waits for something else than time.
    pub fn opens(&self) -> Option<Timestamp> {
        match self.health {
            _ if self.is_shut() => None,
            Health::Probing { .. } => None,
            Health::Healthy { .. } => self.pace.not_before,
            Health::Suspended { until, .. } => Some(until),
        }
    }

    /// Whether it is left alone because it asked for that.
    fn rests(&self, now: Timestamp) -> bool {
        self.pace.not_before.is_some_and(|until| now < until)
    }

    /// Probation lasts at least as long as the endpoint asked to be left alone.
    fn leave_alone(&mut self) {
        if let (Health::Suspended { until, .. }, Some(not_before)) = (&mut self.health, self.pace.not_before) {
            *until = (*until).max(not_before);
        }
    }

    /// The first probe is due at once: the server has started, and nobody knows how the endpoint is by now.
    pub fn start(&mut self, now: Timestamp) {
        if let Health::Suspended { until, .. } = &mut self.health
            && *until > now
        {
            *until = now;
            self.reach.hasten();
        }
        self.leave_alone();
    }

    /// Whether the next probe is due before its time.
    pub fn is_hastened(&self) -> bool {
        self.reach.is_hastened()
    }

    /// When a bare connection to it is to be tried; [`None`] where that is of no use.
    pub fn connects(&self) -> Option<Timestamp> {
        match self.health {
            _ if self.is_shut() => None,
            Health::Suspended { .. } => self.reach.next(),
            Health::Healthy { .. } | Health::Probing { .. } => None,
        }
    }

    /// A bare connection is tried.
    pub fn connecting(&mut self) {
        self.reach.tried();
    }

    /// A bare connection was made, or was not: where it was, the probe is due at once.
    pub fn connected(&mut self, reached: bool, now: Timestamp, jitter: Jitter) {
        let Health::Suspended { since, until, .. } = &mut self.health else { return };
        if reached {
            *until = (*until).min(now);
            self.reach.hasten();
            self.leave_alone();
        } else {
            self.reach.failed(*since, now, jitter);
        }
    }

    /// Whether it is left alone for an error of the client's: waiting alone will not help.
    pub fn is_misused(&self, now: Timestamp) -> bool {
        !self.is_shut() && misused_until(self.health).is_some_and(|until| now < until)
    }

    /// A request leaves, as full as it can be or not: where the endpoint was suspended, it is the probe.
    pub fn sent(&mut self, request: RequestId, full: bool, now: Timestamp) {
        self.pace.not_before = None;
        match self.health {
            Health::Probing { .. } => {}
            Health::Healthy { .. } => {
                self.limit.sent(full);
                if let Some(bucket) = &mut self.bucket {
                    bucket.take(now);
                }
            }
            Health::Suspended { cause, since, consecutive_suspensions: strikes, until: _ } => {
                self.health = Health::Probing { cause, since, consecutive_suspensions: strikes };
                self.probe = Some(request);
            }
        }
    }

    /// A request came back.
    pub fn on_response(&mut self, heard: RequestReport, now: Timestamp) {
        let word = if heard.refused { HealthSignal::Refused } else { HealthSignal::of(heard.outcome) };
        if word == HealthSignal::Failed {
            self.pace.failed = Some(now);
        }
        let asked = retry::asked(&self.edition, heard.retry_after).filter(|_| word != HealthSignal::Took);
        let not_before = asked.map(|wait| now.after(wait)).filter(|until| *until > now);
        self.pace.not_before = self.pace.not_before.max(not_before);
        match (self.health, word) {
            (Health::Healthy { .. }, HealthSignal::Took) => self.took(heard, now),
            (Health::Healthy { failures }, HealthSignal::Failed) => self.failed(failures + 1, heard, now),
            (Health::Probing { cause, since, consecutive_suspensions: strikes }, word)
                if self.probe == Some(heard.request) =>
            {
                let table = &self.edition.probation;
                self.probe = None;
                match word {
                    HealthSignal::Took | HealthSignal::Refused => self.recovered(now),
                    // It goes on, for longer; it does not begin anew. A probe before its time is no strike.
                    HealthSignal::Failed => {
                        let strikes = strikes.saturating_add(u32::from(!self.reach.take_hastened()));
                        self.health = health::suspended(heard.outcome, strikes, since, table, now);
                    }
                    // It must not be waited for any more.
                    HealthSignal::Nothing => {
                        self.health = Health::Suspended { cause, since, until: now, consecutive_suspensions: strikes }
                    }
                }
            }
            // It is about the events, we ended it ourselves, or it is a straggler from before.
            (Health::Healthy { .. } | Health::Suspended { .. } | Health::Probing { .. }, _) => {}
        }
        self.leave_alone();
    }

    /// A request has reached the endpoint, or no connection was made for a cause of the network: asked after
    /// [`Endpoint::on_response`].
    pub fn reached(&mut self, reached: bool, now: Timestamp, jitter: Jitter) {
        match self.health {
            Health::Suspended { since, .. } if !reached => self.reach.failed(since, now, jitter),
            Health::Suspended { .. } => self.reach.end(),
            Health::Healthy { .. } | Health::Probing { .. } => {}
        }
    }

    /// The most events that a request may have: fewer after the endpoint called a batch too large.
    pub fn batch_max(&self) -> u32 {
        self.cap.most(self.events_max)
    }

    /// A batch of so many events was too large for the endpoint: the next ones have half as many.
    pub fn halve_batches(&mut self, events: usize) {
        self.cap.refused(events);
    }

    /// Why a command has no sense as it is.
    pub fn refuses(&self, command: Command) -> Option<CommandRefused> {
        match (command, self.health) {
            (Command::Hold | Command::Resume | Command::Job(_), _) => None,
            (Command::Probe, _) if self.held.is_some() => Some(CommandRefused::Held),
            (Command::Probe | Command::Release, Health::Healthy { .. }) if self.pace.not_before.is_some() => None,
            (Command::Probe | Command::Release, Health::Healthy { .. }) => Some(CommandRefused::Healthy),
            (Command::Probe, Health::Probing { .. }) => Some(CommandRefused::Probing),
            (Command::Probe, Health::Suspended { .. }) => None,
            (Command::Release, Health::Suspended { .. } | Health::Probing { .. }) => None,
        }
    }

    /// An operator's command; one that has no sense changes nothing.
    pub fn on_command(&mut self, command: Command, now: Timestamp) {
        if self.refuses(command).is_some() {
            return;
        }
        match (command, self.health) {
            (Command::Hold, _) => self.held = Some(HeldBy::ByOperator),
            (Command::Resume, _) => self.held = None,
            (Command::Job(_), _) => {}
            (Command::Probe, Health::Suspended { cause, since, until, consecutive_suspensions: strikes }) => {
                self.pace.not_before = None;
                self.health =
                    Health::Suspended { cause, since, until: until.min(now), consecutive_suspensions: strikes };
            }
            (Command::Probe | Command::Release, Health::Healthy { .. }) => self.pace.not_before = None,
            (Command::Probe, Health::Probing { .. }) => {}
            (Command::Release, Health::Suspended { .. } | Health::Probing { .. }) => {
                self.pace.not_before = None;
                self.probe = None;
                self.recovered(now);
            }
        }
    }

    fn free(&self, in_flight: usize) -> u32 {
        self.limit.get().saturating_sub(u32::try_from(in_flight).unwrap_or(u32::MAX))
    }

    fn took(&mut self, heard: RequestReport, now: Timestamp) {
        self.health = Health::Healthy { failures: 0 };
        self.meter.took(now);
        self.limit.took(heard.events, heard.latency, heard.sent, heard.in_flight, now);
        self.cap.took(heard.events, self.events_max);
        let Some(bucket) = &mut self.bucket else { return };
        bucket.took(&self.edition.pace, now);
        let quiet = self.pace.failed.is_none_or(|failed| now.since(failed) >= self.edition.pace.forgotten_after);
        if quiet && !bucket.forget() {
            self.bucket = None;
        }
    }

    fn failed(&mut self, failures: u32, heard: RequestReport, now: Timestamp) {
        let RequestReport { outcome, sent, .. } = heard;
        let lately = self.meter.failed(now);
        self.limit.failed(sent, now);
        if let Some(bucket) = &mut self.bucket {
            bucket.failed(outcome, sent, &self.edition.pace, now);
        }
        let table = &self.edition.probation;
        self.health = health::failed(failures, self.suspend_after, lately, outcome, table, now);
    }

    /// It is healthy again: its failures are forgotten, its rate is remembered.
    fn recovered(&mut self, now: Timestamp) {
        self.pace.healthy = self.healthy();
        self.meter = RequestWindow::new(self.edition.probation.window);
        self.bucket = TokenBucket::new(self.pace.healthy, self.rate_max, &self.edition.pace, now);
        self.limit.reset(self.bucket.is_some(), now);
        self.reach.end();
        self.health = Health::Healthy { failures: 0 };
    }

    /// The rate of the last healthy window. One that was cut short counts only where it was faster.
    fn healthy(&self) -> Option<Rate> {
        let Some((rate, whole)) = self.meter.rate() else { return self.pace.healthy };
        let measured = Rate::of(rate);
        Some(self.pace.healthy.filter(|before| !whole && *before > measured).unwrap_or(measured))
    }
}
