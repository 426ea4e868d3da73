//! Formats event subscriptions for people.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    client,
    format::{
        self, count_with_noun, group_thousands, optional_or_dash, optional_text, text_or_dash,
    },
    output::TextTable,
};
use gridhook_api::{
    filter_test::FilterTestReport,
    status::{CountersView, SubscriptionStatusView},
    subscription::{
        AnySubscriptionProperties, Destination, EventFilter, EventSubscription,
        SubscriptionProperties, namespace::InvalidNamespaceForm,
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
            optional_text(&properties.event_delivery_schema),
            optional_text(&properties.provisioning_state.0),
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
    let destination = properties.any_destination();
    let [types, subject_begins, subject_ends, advanced_filters] =
        format_filter(properties.filter.as_ref());
    let transform = optional_or_dash(properties.transform.as_ref(), |transform| {
        text_or_dash(&object_keys(transform).join(", "))
    });
    let order = optional_or_dash(properties.ordering.as_ref(), |ordering| {
        ordering.key.clone()
    });
    let requests_per_second = number_property(destination, "maxRequestsPerSecond");
    let response_timeout = number_property(destination, "responseTimeoutInSeconds");
    format::format_facts(
        16,
        &[
            ("state", optional_text(&properties.provisioning_state.0)),
            ("endpoint", format_endpoint(destination)),
            ("lock", format_lock(properties)),
            ("schema", optional_text(&properties.event_delivery_schema)),
            ("types", types),
            ("subject begins", subject_begins),
            ("subject ends", subject_ends),
            ("advanced filters", advanced_filters),
            ("retry", format_retry(properties)),
            ("transform", transform),
            ("batch", format_batch(destination)),
            (
                "requests/s",
                optional_or_dash(requests_per_second, group_thousands),
            ),
            ("response timeout", format_seconds(response_timeout)),
            ("order", order),
            ("dead letters", format_dead_letters(properties)),
            (
                "labels",
                optional_or_dash(properties.labels.as_deref(), format::join_texts),
            ),
            ("expires", optional_text(&properties.expiration_time_utc)),
            ("starts from", optional_text(&properties.starts_from)),
        ],
    )
}

fn format_seconds(seconds: Option<u64>) -> String {
    optional_or_dash(seconds.map(Duration::from_secs), format::format_span)
}

/// A property of a destination that is a whole number.
fn number_property(destination: Option<&Destination>, key: &str) -> Option<u64> {
    destination?.properties.get(key)?.as_u64()
}

/// The event types, the beginning and the end of the subject, and the number of advanced filters.
fn format_filter(filter: Option<&EventFilter>) -> [String; 4] {
    let types = filter.and_then(|filter| filter.included_event_types.as_deref());
    let advanced_filters = filter.and_then(|filter| filter.advanced_filters.as_ref());
    [
        optional_or_dash(types, format::join_texts),
        filter.map_or_else(String::new, |filter| {
            optional_text(&filter.subject_begins_with)
        }),
        filter.map_or_else(String::new, |filter| {
            optional_text(&filter.subject_ends_with)
        }),
        optional_or_dash(advanced_filters, |filters| filters.len().to_string()),
    ]
}

/// The time for which a client locks an event that it receives.
fn format_lock(properties: &SubscriptionProperties) -> String {
    let queue = properties.queue.as_ref();
    let seconds = queue.and_then(|queue| queue.receive_lock_duration_in_seconds);
    format_seconds(seconds.and_then(|seconds| u64::try_from(seconds).ok()))
}

fn format_retry(properties: &SubscriptionProperties) -> String {
    let retry = properties.retry_policy.as_ref();
    let is_pulled = properties.any_destination().is_none();
    let attempts = retry
        .and_then(|retry| retry.max_delivery_attempts)
        .and_then(|attempts| u64::try_from(attempts).ok());
    let attempts = optional_or_dash(attempts, |attempts| match attempts {
        1 if is_pulled => "1 delivery".to_owned(),
        _ if is_pulled => format!("{} deliveries", group_thousands(attempts)),
        _ => count_with_noun(attempts, "attempt"),
    });
    let time_to_live = retry
        .and_then(|retry| retry.event_time_to_live_in_minutes)
        .and_then(|minutes| u64::try_from(minutes.saturating_mul(60)).ok());
    format!("{attempts} within {}", format_seconds(time_to_live))
}

/// The limits of a batch; empty if none is set.
fn format_batch(destination: Option<&Destination>) -> String {
    let events = number_property(destination, "maxEventsPerBatch");
    let kilobytes = number_property(destination, "preferredBatchSizeInKilobytes");
    if events.is_none() && kilobytes.is_none() {
        return String::new();
    }
    let events = optional_or_dash(events, |events| count_with_noun(events, "event"));
    let kilobytes = optional_or_dash(kilobytes, group_thousands);
    format!("{events}, {kilobytes} KB")
}

/// The destination of dead letters.
fn format_dead_letters(properties: &SubscriptionProperties) -> String {
    let Some(destination) = properties.any_dead_letter_destination() else {
        return "no destination".to_owned();
    };
    let resource_id = &destination.properties.resource_id;
    match &destination.properties.blob_container_name {
        Some(container) => format!("{resource_id}/{container}"),
        None => resource_id.clone(),
    }
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
    let mut parts = vec![destination.endpoint_type.as_str()];
    parts.extend(property("resourceId"));
    for (key, value) in &destination.properties {
        if key != "resourceId" {
            parts.extend(value.as_str());
        }
    }
    text_or_dash(&parts.join(" "))
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
            ("held by", optional_text(&status.held_by)),
            ("health", format::format_health(&status.health, clock)),
            ("order", format_blocked_keys(status, arguments)),
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
            ("jobs", format::join(jobs, ", ")),
        ],
    )
}

/// The order keys that wait for an operator.
fn format_blocked_keys(status: &SubscriptionStatusView, arguments: &str) -> String {
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
        let body_or_error = error
            .as_deref()
            .or(body.as_deref())
            .unwrap_or("(the event)");
        table.add_row([
            text_or_dash(id),
            text_or_dash(&delivery),
            text_or_dash(body_or_error),
        ]);
    }
    let sendable = group_thousands((report.tested - report.failed) as u64);
    let events = count_with_noun(report.tested as u64, "event");
    format!("{sendable} of {events} can be sent\n\n{table}")
}

/// The result of a filter test.
pub(super) fn format_filter_test(report: &FilterTestReport) -> String {
    let mut table = TextTable::new(["ID", "MATCHES", "FILTERED BY", "REASON", "VALUE"]);
    for line in &report.results {
        let matches = if line.matches { "yes" } else { "no" };
        table.add_row([
            text_or_dash(&line.id),
            matches.to_owned(),
            optional_text(&line.stopped_by),
            optional_text(&line.reason),
            optional_text(&line.value),
        ]);
    }
    let matches = group_thousands(report.matched as u64);
    let events = count_with_noun(report.tested as u64, "event");
    format!("{matches} of {events} match\n\n{table}")
}
