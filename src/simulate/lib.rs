//! Simulates an edition with thousands of subscriptions in seconds of virtual time.
//!
//! The simulation has endpoints of several [models](EndpointModel), one topic that all
//! subscriptions receive, and the *real* state machine
//! ([`Subscription`](gridhook_policy::Subscription)). The delivery behaviour is therefore that of a
//! server, except for what is outside of the policy. [`run`] executes a [`SimulationPlan`] and
//! returns a [`SimulationReport`].
//!
//! Invariants:
//! - The same plan gives the same report, byte for byte: time is virtual, and each subscription has
//!   its own random source, derived from the seed.
//! - At the end the counters of every subscription add up, or the run panics: each published event
//!   is delivered, pending, given up or not read yet.
//! - Memory is eight bytes per event plus the pending deliveries, however many events are
//!   delivered.
//!
//! What it does not do: it has no delivery rules of its own (a copy would diverge), and simulates
//! neither processor time nor crashes, which the tests of the policy cover.

mod disk;
mod endpoint;
mod endpoint_model;
mod log;
mod queue;
mod recovery;
mod report;
mod subscriber;
mod table;

use std::{sync::Arc, time::Duration};

pub use disk::SimulatedStore;
use endpoint::SimulatedEndpoint;
pub use endpoint_model::{AvailabilityPeriod, EndpointModel, InvalidModel};
use fastrand::Rng;
use log::SimulatedLog;
use queue::{EventQueue, ScheduledEvent};
pub use report::{Distribution, ReportRow, SimulationReport};
use subscriber::{Subscriber, SubscriberContext};

use gridhook_event::{Schema, Timestamp};
use gridhook_policy::{
    SubscriptionSettings,
    batch::BatchLimits,
    edition::{Edition, EndpointKind},
    record::EndpointId,
};

const START: Timestamp = Timestamp(1_000_000_000_000);

/// 10 million events: 80 MB of log.
pub const EVENTS_MAX: f64 = 1e7;

/// Progress is reported each time this many steps are done: every few milliseconds.
const PROGRESS: u32 = 1 << 12;

#[derive(Clone, Debug)]
pub struct SimulationPlan {
    pub edition: Arc<Edition>,
    /// The endpoint models and their shares of the subscriptions: at least one, none of them 0.
    pub shares: Vec<(EndpointModel, u32)>,
    /// Number of subscriptions: at least [`SimulationPlan::subscriptions_min`].
    pub subscriptions: u32,
    pub span: Duration,
    /// Events per second at random times; at most [`EVENTS_MAX`] in total.
    pub rate: f64,
    /// The seed of the random sources.
    pub seed: u64,
    pub batch: u32,
    /// Maximum requests in flight per subscription.
    pub concurrency: u32,
    pub response_timeout: Duration,
    /// How long the journal collects outcomes before a write.
    pub outcome_delay: Duration,
    pub dead_letter: bool,
}

impl SimulationPlan {
    /// The minimum number of subscriptions that gives each model one.
    pub fn subscriptions_min(shares: &[(EndpointModel, u32)]) -> u32 {
        let total: u32 = shares.iter().map(|(_, share)| share).sum();
        let least = shares.iter().map(|(_, share)| *share).min().unwrap_or(1);
        total.div_ceil(least)
    }

    /// The model of the subscription with this number, by the shares.
    fn model_of(&self, number: u32) -> usize {
        let total: u64 = self.shares.iter().map(|(_, share)| u64::from(*share)).sum();
        let mut so_far = 0;
        let upper = self.shares.iter().map(|(_, share)| {
            so_far += u64::from(*share);
            so_far * u64::from(self.subscriptions) / total
        });
        upper
            .into_iter()
            .take_while(|upper| *upper <= u64::from(number))
            .count()
    }

    fn subscription_settings(&self) -> SubscriptionSettings {
        // All events are alike, so a request is limited by their number.
        let batch = BatchLimits {
            events_max: self.batch,
            bytes_preferred: u64::MAX,
            schema: Schema::EventGrid,
        };
        SubscriptionSettings {
            destination: EndpointKind::Webhook,
            endpoint: EndpointId::default(),
            attempts_max: self.edition.attempts.default,
            version: 1,
            since: Timestamp::default(),
            time_to_live: Duration::from_secs(
                60 * u64::from(self.edition.time_to_live_minutes.default),
            ),
            batch,
            grouping: Arc::new([]),
            order: None,
            concurrency_max: self.concurrency,
            rate_max: None,
            backlog_min: batch.backlog_min(),
            suspend_after: self.edition.probation.after_failures,
            // Editions are compared by their schedules, without early probes.
            reconnect_interval: Duration::ZERO,
            // Every request gets an outcome here.
            request_timeout: 2 * self.response_timeout,
            dead_letter: self.dead_letter,
            dead_letter_in_probation: false,
            hold_when_gone: false,
            hold_after_failing: None,
            transform: None,
            pull: None,
            edition: Arc::clone(&self.edition),
        }
    }
}

/// Runs the simulation; `progress` receives the share of the simulated time that has passed.
pub fn run(plan: &SimulationPlan, mut progress: impl FnMut(f64)) -> SimulationReport {
    let mut simulation = Simulation::new(plan.clone());
    while let Some(share) = simulation.run_next_part() {
        progress(share);
    }
    simulation.finish()
}

/// A simulation that runs part by part.
pub struct Simulation {
    plan: SimulationPlan,
    jitter: Rng,
    subscribers: Vec<Subscriber>,
    /// The model of each subscriber.
    models: Vec<usize>,
    log: SimulatedLog,
    queue: EventQueue,
    end: Timestamp,
}

impl Simulation {
    /// A simulation at its start.
    pub fn new(plan: SimulationPlan) -> Self {
        let mut jitter = Rng::with_seed(plan.seed);
        let subscribers = new_subscribers(&plan, &mut jitter);
        let models = (0..plan.subscriptions)
            .map(|number| plan.model_of(number))
            .collect();
        let mut queue = EventQueue::default();
        let end = START.after(plan.span);
        queue.schedule(
            START.after(next_interval(plan.rate, &mut jitter)),
            ScheduledEvent::Published,
        );
        Self {
            plan,
            jitter,
            subscribers,
            models,
            log: SimulatedLog::default(),
            queue,
            end,
        }
    }

    /// Runs the next part, a few milliseconds. Returns the share of the simulated time that has
    /// passed; [`None`] at the end.
    pub fn run_next_part(&mut self) -> Option<f64> {
        let mut now = START;
        for _ in 0..PROGRESS {
            let (at, event) = self.queue.next().filter(|(at, _)| *at < self.end)?;
            now = at;
            self.process_event(now, event);
        }
        Some(now.since(START).div_duration_f64(self.plan.span))
    }

    fn process_event(&mut self, now: Timestamp, event: ScheduledEvent) {
        let outcome_delay = self.plan.outcome_delay;
        match event {
            ScheduledEvent::Published => {
                self.log.append_event(now);
                let next = now.after(next_interval(self.plan.rate, &mut self.jitter));
                self.queue.schedule(next, ScheduledEvent::Published);
                for subscriber in &mut self.subscribers {
                    let log = &self.log;
                    let queue = &mut self.queue;
                    subscriber.record_published(
                        now,
                        &mut SubscriberContext {
                            log,
                            queue,
                            outcome_delay,
                        },
                    );
                }
            }
            ScheduledEvent::Of(number, event) => {
                let log = &self.log;
                let queue = &mut self.queue;
                let context = &mut SubscriberContext {
                    log,
                    queue,
                    outcome_delay,
                };
                self.subscribers[number].process_event(event, now, context);
            }
        }
    }

    /// The report, at the end.
    pub fn finish(mut self) -> SimulationReport {
        for subscriber in &mut self.subscribers {
            subscriber.check_counters(self.end, &self.log);
        }
        SimulationReport::new(&self.plan, &self.log, &self.subscribers, &self.models)
    }
}

fn new_subscribers(plan: &SimulationPlan, jitter: &mut Rng) -> Vec<Subscriber> {
    let settings = plan.subscription_settings();
    let subscriber = |number| {
        let (model, _) = plan.shares[plan.model_of(number)];
        let mut own = jitter.fork();
        let endpoint =
            SimulatedEndpoint::new(model, START, plan.span, plan.response_timeout, &mut own);
        Subscriber::new(number as usize, settings.clone(), endpoint, own, START)
    };
    (0..plan.subscriptions).map(subscriber).collect()
}

/// The time from one event to the next.
fn next_interval(rate: f64, jitter: &mut Rng) -> Duration {
    Duration::try_from_secs_f64(-(1.0 - jitter.f64()).ln() / rate).unwrap_or(Duration::MAX)
}
