//! The metrics of an event subscription with the names and dimensions of Azure Monitor.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::figures::{SubscriptionFigures, error_type};
use crate::merge::{
    FieldRule::{First, ItemsBy, Sum},
    merged_fields,
};
use gridhook_policy::record::lease::StepKind;
use gridhook_record::{subscription::SubscriptionRecord, topic::TopicRecord};

/// A metric of Azure Monitor.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct AzureMetric {
    /// Name of the metric, as Azure Monitor has it
    name: &'static str,
    unit: &'static str,
    aggregation: &'static str,
    timeseries: Vec<AzureSeries>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AzureMetricSeries)]
pub(super) struct AzureSeries {
    dimensions: BTreeMap<&'static str, String>,
    /// Value of the series, in the unit of the metric
    value: f64,
}

merged_fields! { AZURE_SERIES: AzureSeries = AzureSeries { dimensions: First, value: Sum } }

merged_fields! { AZURE_METRIC: AzureMetric = AzureMetric {
    name: First, unit: First, aggregation: First, timeseries: ItemsBy("dimensions", &AZURE_SERIES),
} }

impl AzureMetric {
    fn count(name: &'static str, timeseries: Vec<AzureSeries>) -> Self {
        Self {
            name,
            unit: "Count",
            aggregation: "Total",
            timeseries,
        }
    }
}

/// The metrics of an event subscription. Those of a namespace have other names. Azure has no metric
/// for rejected events, renewed locks or expired locks.
pub(super) fn metrics(
    topic: &TopicRecord,
    subscription: &SubscriptionRecord,
    figures: &SubscriptionFigures,
) -> Vec<AzureMetric> {
    // The dimensions of a topic have the event subscription, those of a domain the domain topic
    // too.
    let name = subscription.name.to_string();
    let own: Vec<(&'static str, String)> = match (topic.is_domain(), topic.namespace.is_some()) {
        (true, _) => vec![
            (
                "Topic",
                subscription.filter.domain_topic.clone().unwrap_or_default(),
            ),
            ("DomainEventSubscriptionName", name),
        ],
        (false, true) => vec![
            ("Topic", topic.name.to_string()),
            ("EventSubscriptionName", name),
        ],
        (false, false) => vec![("EventSubscriptionName", name)],
    };
    let series = |more: &[(&'static str, &str)], value: f64| {
        let more = more.iter().map(|(name, text)| (*name, (*text).to_owned()));
        AzureSeries {
            dimensions: own.iter().cloned().chain(more).collect(),
            value,
        }
    };
    let total = |name, count: u64| AzureMetric::count(name, vec![series(&[], count as f64)]);
    let by = |name, dimension, counts: Vec<(String, u64)>| {
        AzureMetric::count(
            name,
            counts
                .iter()
                .map(|(why, count)| series(&[(dimension, why)], *count as f64))
                .collect(),
        )
    };
    let sums = &figures.sums;
    let failed = sums.requests_by_outcome().into_iter().skip(1);
    let failed = failed.map(|(error, count)| {
        series(
            &[("Error", &error), ("ErrorType", error_type(&error))],
            count as f64,
        )
    });
    let response = &sums.measured.response;
    let average = if response.count() == 0 {
        0.0
    } else {
        1e3 * response.sum() / response.count() as f64
    };
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
            by(
                "DeadLetteredCount",
                "DeadLetterReason",
                sums.dead_lettered(),
            ),
            by("DroppedEventCount", "DropReason", sums.dropped_by_reason()),
        ];
    }
    let all = |counts: Vec<(String, u64)>| counts.iter().map(|(_, count)| count).sum();
    let mut metrics = vec![
        total("MatchedEvents", sums.counters.matched),
        total("DeadLetteredEvents", all(sums.dead_lettered())),
        total("DroppedEvents", all(sums.dropped_by_reason())),
        total("SuccessfulDeadLetteredEvents", sums.written),
        total("FailedDeadLetteredEvents", sums.lost),
    ];
    if subscription.is_pulled() {
        metrics.push(total(
            "SuccessfulReceivedEvents",
            sums.events_with_step(StepKind::Received),
        ));
        // Azure's spelling.
        metrics.push(total(
            "SuccessfulAcknowlegedEvents",
            sums.events_with_step(StepKind::Acknowledged),
        ));
        metrics.push(total(
            "SuccessfulReleasedEvents",
            sums.events_with_step(StepKind::Released),
        ));
    } else {
        // For push delivery Azure counts delivered events as received.
        metrics.push(total("SuccessfulReceivedEvents", sums.counters.delivered));
        metrics.push(duration("DestinationProcessingDurationMs"));
    }
    metrics
}
