//! The same under the names that Azure Monitor has for it, with its dimensions.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::figures::{SubscriptionFigures, error_type};
use crate::{
    control::record::{subscription::SubscriptionRecord, topic::TopicRecord},
    policy::record::lease::StepKind,
};

/// A metric of Azure Monitor's.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AzureMetric)]
pub(super) struct AzureMetric {
    name: &'static str,
    unit: &'static str,
    aggregation: &'static str,
    timeseries: Vec<AzureSeries>,
}

/// One of its series.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AzureMetricSeries)]
pub(super) struct AzureSeries {
    dimensions: BTreeMap<&'static str, String>,
    value: f64,
}

impl AzureMetric {
    fn count(name: &'static str, timeseries: Vec<AzureSeries>) -> Self {
        Self { name, unit: "Count", aggregation: "Total", timeseries }
    }
}

/// The metrics of an event subscription. Those of a namespace have names of their own. There is none for what clients
/// reject, nor for locks that they renew or let expire.
pub(super) fn metrics(
    topic: &TopicRecord,
    subscription: &SubscriptionRecord,
    figures: &SubscriptionFigures,
) -> Vec<AzureMetric> {
    // Of a topic they carry the subscription's name, of a domain also that of the domain's topic.
    let name = subscription.name.to_string();
    let own: Vec<(&'static str, String)> = match (topic.is_domain(), topic.namespace.is_some()) {
        (true, _) => vec![
            ("Topic", subscription.filter.domain_topic.clone().unwrap_or_default()),
            ("DomainEventSubscriptionName", name),
        ],
        (false, true) => vec![("Topic", topic.name.to_string()), ("EventSubscriptionName", name)],
        (false, false) => vec![("EventSubscriptionName", name)],
    };
    let series = |more: &[(&'static str, &str)], value: f64| {
        let more = more.iter().map(|(name, text)| (*name, (*text).to_owned()));
        AzureSeries { dimensions: own.iter().cloned().chain(more).collect(), value }
    };
    let total = |name, count: u64| AzureMetric::count(name, vec![series(&[], count as f64)]);
    let by = |name, dimension, counts: Vec<(String, u64)>| {
        AzureMetric::count(name, counts.iter().map(|(why, count)| series(&[(dimension, why)], *count as f64)).collect())
    };
    let sums = &figures.sums;
    let failed = sums.attempts().into_iter().skip(1);
    let failed =
        failed.map(|(error, count)| series(&[("Error", &error), ("ErrorType", error_type(&error))], count as f64));
    let response = &sums.measured.response;
    let average = if response.count() == 0 { 0.0 } else { 1e3 * response.sum() / response.count() as f64 };
    let duration = |name| AzureMetric {
        name,
        unit: "MilliSeconds",
        aggregation: "Average",
        timeseries: vec![series(&[], average)],
    };
    if topic.namespace.is_none() {
        return vec![
            total("MatchedEventCount", sums.counters.matched),
            total("DeliverySuccessCount", sums.counters.delivered),
            AzureMetric::count("DeliveryAttemptFailCount", failed.collect()),
            duration("DestinationProcessingDurationInMs"),
            by("DeadLetteredCount", "DeadLetterReason", sums.dead_lettered()),
            by("DroppedEventCount", "DropReason", sums.dropped()),
        ];
    }
    let all = |counts: Vec<(String, u64)>| counts.iter().map(|(_, count)| count).sum();
    let mut metrics = vec![
        total("MatchedEvents", sums.counters.matched),
        total("DeadLetteredEvents", all(sums.dead_lettered())),
        total("DroppedEvents", all(sums.dropped())),
        total("SuccessfulDeadLetteredEvents", sums.written),
        total("FailedDeadLetteredEvents", sums.lost),
    ];
    if subscription.is_pulled() {
        metrics.push(total("SuccessfulReceivedEvents", sums.stepped(StepKind::Received)));
        // As Azure spells it.
        metrics.push(total("SuccessfulAcknowlegedEvents", sums.stepped(StepKind::Acknowledged)));
        metrics.push(total("SuccessfulReleasedEvents", sums.stepped(StepKind::Released)));
    } else {
        // Received by the endpoint, in this word of Azure's for what is pushed.
        metrics.push(total("SuccessfulReceivedEvents", sums.counters.delivered));
        metrics.push(duration("DestinationProcessingDurationMs"));
    }
    metrics
}
