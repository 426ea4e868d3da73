//! What an edition does to thousands of subscriptions, found out in seconds of virtual time.
//!
//! A world of endpoints of many [tempers](EndpointModel), one topic that all subscriptions ask for, and the *real* core
//! ([`Subscription`](crate::policy::Subscription)): what is seen here is what a server does, but for what lies outside of
//! the core. [`run`] tells the story from a [`SimulationPlan`] and a seed; [`SimulationReport`] is what came of it.
//!
//! Invariants:
//! - The same plan gives the same report, to the byte: time is virtual, chance comes from the seed, and each subscription
//!   has its own.
//! - At the end the books of every subscription balance, or the run panics: what was published is delivered, owed, given
//!   up or not read yet.
//! - Memory is eight bytes for an event and what a subscription owes, however many events are delivered.
//!
//! Absent on purpose: rules of the policy (a copy would drift from what is run), processor time, and crashes, which the
//! tests of the core are for.

mod disk;
mod endpoint;
mod endpoint_model;
mod log;
mod plot;
mod queue;
mod recovery;
mod report;
mod series;
mod subscriber;
mod table;

use std::{sync::Arc, time::Duration};

pub use disk::SimulatedStore;
use endpoint::SimulatedEndpoint;
pub use endpoint_model::{AvailabilityPeriod, EndpointModel};
use fastrand::Rng;
use log::SimulatedLog;
pub use plot::{Error as DrawError, draw};
use queue::{EventQueue, ScheduledEvent};
pub use report::{Distribution, ReportRow, SimulationReport};
use series::AttemptSeries;
use subscriber::{Subscriber, SubscriberContext};
pub use table::number;

use crate::{
    event::{Schema, Timestamp},
    policy::{
        SubscriptionSettings,
        batch::BatchLimits,
        edition::{Edition, EndpointKind},
    },
};

/// Far from the epoch.
const START: Timestamp = Timestamp(1_000_000_000_000);

/// 10 million events: 80 MB of log.
pub const EVENTS_MAX: f64 = 1e7;

/// The world says how far it is after so many happenings: some milliseconds.
const PROGRESS: u64 = 1 << 14;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct SimulationPlan {
    /// The policy.
    pub edition: Arc<Edition>,
    /// Which endpoints there are, and which share of the subscriptions each of them has: at least one, none of them 0.
    pub shares: Vec<(EndpointModel, u32)>,
    /// How many subscriptions: at least [`SimulationPlan::subscriptions_min`].
    pub subscriptions: u32,
    /// How long.
    pub span: Duration,
    /// Events a second, by chance evenly spread; no more than [`EVENTS_MAX`] in all.
    pub rate: f64,
    /// Where chance begins.
    pub seed: u64,
    /// The most events in a request.
    pub batch: u32,
    /// The most requests of a subscription on their way at once.
    pub concurrency: u32,
    /// How long an endpoint may take to answer.
    pub response_wait: Duration,
    /// How long the journal lets outcomes wait for company.
    pub outcome_wait: Duration,
    /// Whether there is a place for dead letters.
    pub dead_letter: bool,
}

impl SimulationPlan {
    /// So few subscriptions give each temper one.
    pub fn subscriptions_min(shares: &[(EndpointModel, u32)]) -> u32 {
        let total: u32 = shares.iter().map(|(_, share)| share).sum();
        let least = shares.iter().map(|(_, share)| *share).min().unwrap_or(1);
        total.div_ceil(least)
    }

    /// Which temper the subscription of that number has, by its place in the shares.
    fn model_of(&self, number: u32) -> usize {
        let total: u64 = self.shares.iter().map(|(_, share)| u64::from(*share)).sum();
        let mut so_far = 0;
        let upper = self.shares.iter().map(|(_, share)| {
            so_far += u64::from(*share);
            so_far * u64::from(self.subscriptions) / total
        });
        upper.into_iter().take_while(|upper| *upper <= u64::from(number)).count()
    }

    fn settings(&self) -> SubscriptionSettings {
        // Events are alike: their number says it all.
        let batch = BatchLimits { events_max: self.batch, bytes_preferred: u64::MAX, schema: Schema::EventGrid };
        SubscriptionSettings {
            destination: EndpointKind::Webhook,
            attempts_max: self.edition.attempts.default,
            version: 1,
            since: Timestamp::default(),
            time_to_live: Duration::from_secs(60 * u64::from(self.edition.time_to_live_minutes.default)),
            batch,
            grouping: Arc::new([]),
            concurrency_max: self.concurrency,
            rate_max: None,
            backlog_min: batch.backlog_min(),
            suspend_after: self.edition.probation.after_failures,
            // Editions are compared by what their schedules do.
            reconnect_wait: Duration::ZERO,
            // Every request is answered here.
            request_wait: 2 * self.response_wait,
            dead_letter: self.dead_letter,
            dead_letter_in_probation: false,
            hold_when_gone: false,
            pull: None,
            edition: Arc::clone(&self.edition),
        }
    }
}

/// Tells the story; `progress` is told the share of the simulated time that has passed.
pub fn run(plan: &SimulationPlan, mut progress: impl FnMut(f64)) -> SimulationReport {
    let mut jitter = Rng::with_seed(plan.seed);
    let mut subscribers = populate(plan, &mut jitter);
    let tempers: Vec<usize> = (0..plan.subscriptions).map(|number| plan.model_of(number)).collect();
    let mut series = vec![AttemptSeries::new(START, plan.span); plan.shares.len()];
    let (mut log, mut queue) = (SimulatedLog::default(), EventQueue::default());
    let end = START.after(plan.span);
    queue.plan(START.after(pause(plan.rate, &mut jitter)), ScheduledEvent::Published);

    let mut happened = 0_u64;
    while let Some((now, what)) = queue.next().filter(|(at, _)| *at < end) {
        happened += 1;
        if happened.is_multiple_of(PROGRESS) {
            progress(now.since(START).div_duration_f64(plan.span));
        }
        match what {
            ScheduledEvent::Published => {
                log.append(now);
                queue.plan(now.after(pause(plan.rate, &mut jitter)), ScheduledEvent::Published);
                for (subscriber, temper) in subscribers.iter_mut().zip(&tempers) {
                    let (log, queue, series) = (&log, &mut queue, &mut series[*temper]);
                    subscriber
                        .published(now, &mut SubscriberContext { log, queue, series, outcome_wait: plan.outcome_wait });
                }
            }
            ScheduledEvent::Of(number, happening) => {
                let (log, queue, series) = (&log, &mut queue, &mut series[tempers[number]]);
                let world = &mut SubscriberContext { log, queue, series, outcome_wait: plan.outcome_wait };
                subscribers[number].happened(happening, now, world);
            }
        }
    }
    for subscriber in &mut subscribers {
        subscriber.end(end, &log);
    }
    SimulationReport::new(plan, &log, &subscribers, &tempers, series)
}

fn populate(plan: &SimulationPlan, jitter: &mut Rng) -> Vec<Subscriber> {
    let settings = plan.settings();
    let one = |number| {
        let (temper, _) = plan.shares[plan.model_of(number)];
        let mut own = jitter.fork();
        let endpoint = SimulatedEndpoint::new(temper, START, plan.span, plan.response_wait, &mut own);
        Subscriber::new(number as usize, settings.clone(), endpoint, own, START)
    };
    (0..plan.subscriptions).map(one).collect()
}

/// From one event to the next.
fn pause(rate: f64, jitter: &mut Rng) -> Duration {
    Duration::try_from_secs_f64(-(1.0 - jitter.f64()).ln() / rate).unwrap_or(Duration::MAX)
}
