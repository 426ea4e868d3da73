//! The report of a simulation: a row for each endpoint model.
//!
//! All numbers are those of the records at the end, so each row adds up:
//! `events = delivered + pending + dead-lettered + dropped + backlog`.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use utoipa::ToSchema;

use crate::{SimulationPlan, log::SimulatedLog, recovery::EndpointReturn, subscriber::Subscriber};
use gridhook_policy::record::Counters;

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Simulation)]
pub struct SimulationReport {
    /// Number of subscriptions.
    pub subscriptions: u32,
    /// Events published; each subscription receives all of them.
    pub events: u64,
    /// The simulated time in seconds.
    pub simulated_seconds: f64,
    /// The seed of the random sources.
    pub seed: u64,
    /// A row for each endpoint model, in the order of the plan.
    pub models: Vec<ReportRow>,
}

/// The results of all subscriptions of one endpoint model.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SimulatedModel)]
pub struct ReportRow {
    /// The endpoint model.
    pub model: String,
    /// Number of its subscriptions.
    pub subscriptions: u64,
    /// Events for them: an event for two subscriptions counts twice.
    pub events: u64,
    /// Of these, delivered events.
    pub delivered: u64,
    /// Of these, events that failed and will be tried again.
    pub pending: u64,
    /// Of these, dead-lettered events.
    pub dead_lettered: u64,
    /// Of these, events given up without a dead-letter destination.
    pub dropped: u64,
    /// Of these, events without an outcome: not read yet, or in flight for the first time.
    pub backlog: u64,
    /// Events given up, by reason.
    pub given_up: BTreeMap<String, u64>,
    /// Number of requests
    pub requests: u64,
    /// Attempts made: one for each event of a request.
    pub attempts: u64,
    /// Attempts without an outcome at the end.
    pub attempts_open: u64,
    /// Number of failed attempts.
    pub attempts_failed: u64,
    /// Attempts made while the endpoint was down.
    pub attempts_while_down: u64,
    /// Attempts per delivered event.
    pub attempts_per_delivered: Option<f64>,
    /// The longest time from publication to delivery.
    pub longest_wait_seconds: f64,
    /// Number of recoveries of endpoints.
    pub returns: u64,
    /// Seconds from a recovery until all events published before it were delivered or given up.
    pub backlog_gone_seconds: Distribution,
    /// Seconds from a recovery until the deliveries in a minute reached the healthy rate.
    pub rate_back_seconds: Distribution,
    /// The highest rate of attempts in a minute before the backlog was gone, as a multiple of the
    /// healthy rate.
    pub peak: Distribution,
}

/// The distribution of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = SimulatedDistribution)]
pub struct Distribution {
    /// Number of values. Fewer than recoveries if the next outage or the end of the simulation cut
    /// some short.
    pub count: u64,
    /// Median of the values
    pub p50: Option<f64>,
    /// 99th percentile of the values
    pub p99: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
}

impl Distribution {
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let rank = (share * values.len() as f64).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied()
        };
        Self {
            count: values.len() as u64,
            p50: rank(0.5),
            p99: rank(0.99),
            max: values.last().copied(),
        }
    }
}

impl SimulationReport {
    pub(super) fn new(
        plan: &SimulationPlan,
        log: &SimulatedLog,
        subscribers: &[Subscriber],
        models: &[usize],
    ) -> Self {
        let row = |model_index| {
            let those = subscribers
                .iter()
                .zip(models)
                .filter(|(_, model)| **model == model_index);
            let those: Vec<&Subscriber> = those.map(|(subscriber, _)| subscriber).collect();
            ReportRow::new(plan, model_index, &those, log)
        };
        Self {
            subscriptions: plan.subscriptions,
            events: log.event_count(),
            simulated_seconds: plan.span.as_secs_f64(),
            seed: plan.seed,
            models: (0..plan.shares.len()).map(row).collect(),
        }
    }
}

impl ReportRow {
    fn new(
        plan: &SimulationPlan,
        model_index: usize,
        those: &[&Subscriber],
        log: &SimulatedLog,
    ) -> Self {
        let (model, _) = plan.shares[model_index];
        let sum = |of: &dyn Fn(&Subscriber) -> u64| {
            those.iter().map(|subscriber| of(subscriber)).sum::<u64>()
        };
        let count =
            |of: fn(&Counters) -> u64| sum(&|subscriber| of(&subscriber.disk.cursor.counters));
        let mut given_up = BTreeMap::new();
        for (reason, events) in those
            .iter()
            .flat_map(|subscriber| &subscriber.counts.given_up)
        {
            *given_up.entry(reason.to_string()).or_default() += events;
        }
        let returns: Vec<&EndpointReturn> = those
            .iter()
            .flat_map(|subscriber| subscriber.watch.returns())
            .collect();
        let delivered = count(|counters| counters.delivered);
        let attempts = sum(&|those| those.counts.attempts);
        Self {
            model: model.to_string(),
            subscriptions: those.len() as u64,
            events: log.event_count() * those.len() as u64,
            delivered,
            pending: count(|counters| counters.pending),
            dead_lettered: count(|counters| counters.dead_lettered),
            dropped: count(|counters| counters.dropped),
            backlog: sum(&|those| those.backlog(log.end_seq())),
            given_up,
            requests: sum(&|those| those.counts.requests),
            attempts,
            attempts_open: attempts - sum(&|those| those.counts.answered),
            attempts_failed: sum(&|those| those.counts.failed),
            attempts_while_down: sum(&|those| those.counts.while_down),
            attempts_per_delivered: (delivered > 0).then(|| attempts as f64 / delivered as f64),
            longest_wait_seconds: those
                .iter()
                .map(|those| those.counts.longest_wait.as_secs_f64())
                .fold(0.0, f64::max),
            returns: returns.len() as u64,
            backlog_gone_seconds: distribute_seconds(&returns, |back| back.backlog_gone),
            rate_back_seconds: distribute_seconds(&returns, |back| back.rate_back),
            peak: Distribution::from_values(returns.iter().filter_map(|back| back.peak_ratio())),
        }
    }
}

/// The distribution of a time after the return of an endpoint.
fn distribute_seconds(
    returns: &[&EndpointReturn],
    time_after: fn(&EndpointReturn) -> Option<Duration>,
) -> Distribution {
    let times = returns.iter().filter_map(|back| time_after(back));
    Distribution::from_values(times.map(|time| time.as_secs_f64()))
}
