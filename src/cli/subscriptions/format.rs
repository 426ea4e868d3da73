//! Formats event subscriptions for people.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    client,
    format::{self, count_with_noun, group_thousands, optional_or_dash, text_or_dash},
    output::TextTable,
};
use gridhook_api::{
    filter_test::FilterTestReport,
    status::{CountersView, SubscriptionStatusView},
    subscription::{
        AnySubscriptionProperties, Destination, EventSubscription, SubscriptionProperties,
        namespace::InvalidNamespaceForm,
    },
    transform_test::{TransformReportLine, TransformTestReport},
};
use gridhook_clock::Clock;

/// An event subscription of any topic.
#[derive(Deserialize)]
#[serde(try_from = "EventSubscription<AnySubscriptionProperties>")]
pub(super) struct ShownSubscription {
    name: String,
    /// Resource id of the topic.
    topic: String,
    properties: SubscriptionProperties,
}

impl TryFrom<EventSubscription<AnySubscriptionProperties>> for ShownSubscription {
    type Error = InvalidNamespaceForm;

    fn try_from(
        subscription: EventSubscription<AnySubscriptionProperties>,
    ) -> Result<Self, Self::Error> {
        let mut properties = SubscriptionProperties::try_from(subscription.properties)?;
        let id = subscription.id.0.unwrap_or_default();
        // In a namespace, only the id names the topic.
        let topic_id = id.rsplit_once("/eventSubscriptions/");
        let topic = properties.topic.0.take();
        Ok(Self {
            name: subscription.name.unwrap_or_default(),
            topic: topic.unwrap_or_else(|| topic_id.unwrap_or_default().0.to_owned()),
            properties,
        })
    }
}

/// A table of event subscriptions.
pub(super) fn format_list(all: &[ShownSubscription]) -> String {
    let mut table = TextTable::new(["TOPIC", "NAME", "ENDPOINT", "TYPES", "SCHEMA", "STATE"]);
    for subscription in all {
        let properties = &subscription.properties;
        let filter = properties.filter.as_ref();
        let types = filter.and_then(|filter| filter.included_event_types.as_deref());
        table.add_row([
            client::short_name(&subscription.topic),
            text_or_dash(&subscription.name),
            format_endpoint(properties.any_destination()),
            types.map_or_else(|| "all".to_owned(), format::join_texts),
            optional_or_dash(properties.event_delivery_schema.as_deref(), text_or_dash),
            optional_or_dash(properties.provisioning_state.0.as_deref(), text_or_dash),
        ]);
    }
    table.to_string()
}

/// The parts of `subscriptions show`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubscriptionParts {
    event_subscription: ShownSubscription,
    status: Option<SubscriptionStatusView>,
}

/// The configuration and the status of an event subscription. `arguments` name it in a command.
pub(super) fn format_subscription(
    parts: &SubscriptionParts,
    arguments: &str,
    clock: &Clock,
) -> String {
    let facts = format_facts(&parts.event_subscription);
    match &parts.status {
        Some(status) => format!("{facts}\n{}", format_status(status, arguments, clock)),
        None => facts,
    }
}

/// The configuration of an event subscription.
pub(super) fn format_facts(subscription: &ShownSubscription) -> String {
    let properties = &subscription.properties;
    let filter = properties.filter.as_ref();
    let retry = properties.retry_policy.as_ref();
    let destination = properties.any_destination();
    let shown = |value: &Option<String>| optional_or_dash(value.as_deref(), text_or_dash);
    let setting = |key: &str| destination?.properties.get(key)?.as_u64();
    let dead_letters = properties.any_dead_letter_destination().map(|destination| {
        let container = destination.properties.blob_container_name.as_ref();
        let resource_id = &destination.properties.resource_id;
        container.map_or_else(
            || resource_id.clone(),
            |name| format!("{resource_id}/{name}"),
        )
    });
    let seconds = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    let span =
        |value: Option<u64>| optional_or_dash(value.map(Duration::from_secs), format::format_span);
    let lock = properties
        .queue
        .and_then(|queue| queue.receive_lock_duration_in_seconds);
    let time_to_live = retry.and_then(|retry| retry.event_time_to_live_in_minutes);
    let attempts = seconds(retry.and_then(|retry| retry.max_delivery_attempts));
    let attempts = optional_or_dash(attempts, |attempts| match (destination, attempts) {
        (None, 1) => "1 delivery".to_owned(),
        (None, deliveries) => format!("{} deliveries", group_thousands(deliveries)),
        (Some(_), attempts) => count_with_noun(attempts, "attempt"),
    });
    let batch_events = setting("maxEventsPerBatch");
    let batch_kilobytes = setting("preferredBatchSizeInKilobytes");
    let batch = if batch_events.is_none() && batch_kilobytes.is_none() {
        String::new()
    } else {
        let events = optional_or_dash(batch_events, |events| count_with_noun(events, "event"));
        format!(
            "{events}, {} KB",
            optional_or_dash(batch_kilobytes, group_thousands)
        )
    };
    format::format_facts(
        16,
        &[
            ("state", shown(&properties.provisioning_state.0)),
            ("endpoint", format_endpoint(destination)),
            ("lock", span(seconds(lock))),
            ("schema", shown(&properties.event_delivery_schema)),
            (
                "types",
                optional_or_dash(
                    filter.and_then(|filter| filter.included_event_types.as_deref()),
                    format::join_texts,
                ),
            ),
            (
                "subject begins",
                filter.map_or_else(String::new, |filter| shown(&filter.subject_begins_with)),
            ),
            (
                "subject ends",
                filter.map_or_else(String::new, |filter| shown(&filter.subject_ends_with)),
            ),
            (
                "advanced filters",
                optional_or_dash(
                    filter.and_then(|filter| filter.advanced_filters.as_ref()),
                    |filters| filters.len().to_string(),
                ),
            ),
            (
                "retry",
                format!(
                    "{attempts} within {}",
                    span(seconds(
                        time_to_live.map(|minutes| minutes.saturating_mul(60))
                    ))
                ),
            ),
            (
                "transform",
                optional_or_dash(properties.transform.as_ref(), |transform| {
                    text_or_dash(&object_keys(transform).join(", "))
                }),
            ),
            ("batch", batch),
            (
                "requests/s",
                optional_or_dash(setting("maxRequestsPerSecond"), group_thousands),
            ),
            (
                "response timeout",
                span(setting("responseTimeoutInSeconds")),
            ),
            (
                "order",
                optional_or_dash(properties.ordering.as_ref(), |ordering| {
                    ordering.key.clone()
                }),
            ),
            (
                "dead letters",
                dead_letters.unwrap_or_else(|| "no destination".to_owned()),
            ),
            (
                "labels",
                optional_or_dash(properties.labels.as_deref(), format::join_texts),
            ),
            ("expires", shown(&properties.expiration_time_utc)),
            ("starts from", shown(&properties.starts_from)),
        ],
    )
}

/// The address of a webhook, else the kind of destination, the service and the names in it.
fn format_endpoint(destination: Option<&Destination>) -> String {
    let Some(destination) = destination else {
        return "none (pull delivery)".to_owned();
    };
    let property = |key: &str| destination.properties.get(key).and_then(Value::as_str);
    if destination.endpoint_type == "WebHook" {
        let url = property("endpointUrl").or_else(|| property("endpointBaseUrl"));
        return optional_or_dash(url, text_or_dash);
    }
    let is_other = |(key, _): &(&String, &Value)| *key != "resourceId";
    let others = destination.properties.iter().filter(is_other);
    let names = others.filter_map(|(_, value)| value.as_str());
    let kind = [destination.endpoint_type.as_str()];
    let parts = kind.into_iter().chain(property("resourceId")).chain(names);
    text_or_dash(&parts.collect::<Vec<_>>().join(" "))
}

fn object_keys(object: &impl Serialize) -> Vec<String> {
    let json = serde_json::to_value(object).unwrap_or_default();
    json.as_object()
        .into_iter()
        .flat_map(|object| object.keys().cloned())
        .collect()
}

/// The status of an event subscription. `arguments` name it in a command.
pub(super) fn format_status(
    status: &SubscriptionStatusView,
    arguments: &str,
    clock: &Clock,
) -> String {
    let SubscriptionStatusView {
        counters, endpoint, ..
    } = status;
    let CountersView {
        pending,
        matched,
        passed,
        delivered,
        dead_lettered,
        dropped,
        requests,
        requests_failed,
        ..
    } = counters;
    let oldest = status
        .oldest_unread
        .as_ref()
        .map(|at| format!(", oldest event {}", format::format_instant(at, clock)));
    let jobs = status
        .jobs
        .iter()
        .map(|job| format!("{} ({})", text_or_dash(&job.kind), text_or_dash(&job.state)));
    let rate = endpoint.rate.map_or(String::new(), |rate| {
        format!(", paced to {rate:.1} requests/s")
    });
    format::format_facts(
        16,
        &[
            (
                "held by",
                optional_or_dash(status.held_by.as_deref(), text_or_dash),
            ),
            ("health", format::format_health(&status.health, clock)),
            ("order", blocked_keys(status, arguments)),
            (
                "in flight",
                format!(
                    "{} of {}{rate}",
                    group_thousands(status.in_flight as u64),
                    group_thousands(endpoint.concurrency.into())
                ),
            ),
            (
                "backlog",
                format!(
                    "{}{}",
                    group_thousands(status.backlog),
                    oldest.unwrap_or_default()
                ),
            ),
            ("pending", group_thousands(*pending)),
            (
                "next attempt",
                optional_or_dash(status.next_due.as_deref(), |due| {
                    format::format_instant(due, clock)
                }),
            ),
            (
                "matched",
                format!(
                    "{} of {}",
                    group_thousands(*matched),
                    group_thousands(*passed)
                ),
            ),
            ("delivered", group_thousands(*delivered)),
            ("dead-lettered", group_thousands(*dead_lettered)),
            ("dropped", group_thousands(*dropped)),
            (
                "requests",
                format!(
                    "{}, {} failed",
                    group_thousands(*requests),
                    group_thousands(*requests_failed)
                ),
            ),
            ("jobs", jobs.collect::<Vec<_>>().join(", ")),
        ],
    )
}

/// The order keys that wait for an operator.
fn blocked_keys(status: &SubscriptionStatusView, arguments: &str) -> String {
    let blocked_keys = status.order.as_ref().map_or(0, |order| order.blocked_keys);
    if blocked_keys == 0 {
        return String::new();
    }
    format!(
        "{} blocked; gridhook subscriptions unblock {arguments} KEY, or --all",
        count_with_noun(blocked_keys as u64, "key")
    )
}

/// The results of a transformation test.
pub(super) fn format_transform_test(report: &TransformTestReport) -> String {
    let mut table = TextTable::new(["ID", "SENT", "BODY OR ERROR"]);
    for TransformReportLine {
        id,
        body,
        method,
        path_suffix,
        headers,
        error,
    } in &report.results
    {
        let target = [method.as_deref(), path_suffix.as_deref()]
            .into_iter()
            .flatten()
            .map(str::to_owned);
        let headers = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        let delivery = match error {
            Some(_) => "no".to_owned(),
            None => target
                .chain(headers)
                .fold("yes".to_owned(), |sent, part| format!("{sent}, {part}")),
        };
        let shown = error
            .as_deref()
            .or(body.as_deref())
            .unwrap_or("(the event)");
        table.add_row([
            text_or_dash(id),
            text_or_dash(&delivery),
            text_or_dash(shown),
        ]);
    }
    let sent = report.tested - report.failed;
    let tested = report.tested;
    format!(
        "{} of {} can be sent\n\n{table}",
        group_thousands(sent as u64),
        count_with_noun(tested as u64, "event")
    )
}

/// The result of a filter test.
pub(super) fn format_filter_test(report: &FilterTestReport) -> String {
    let mut table = TextTable::new(["ID", "MATCHES", "FILTERED BY", "REASON", "VALUE"]);
    for line in &report.results {
        let cell = |value: &Option<String>| optional_or_dash(value.as_deref(), text_or_dash);
        let matches = if line.matches { "yes" } else { "no" };
        table.add_row([
            text_or_dash(&line.id),
            matches.to_owned(),
            cell(&line.stopped_by),
            cell(&line.reason),
            cell(&line.value),
        ]);
    }
    let matches = group_thousands(report.matched as u64);
    let tested = count_with_noun(report.tested as u64, "event");
    format!("{matches} of {tested} match\n\n{table}")
}
