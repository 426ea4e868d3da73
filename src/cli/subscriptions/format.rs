//! Formats event subscriptions for people.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    client,
    format::{self, counted, number, optional, text},
    output::TextTable,
};
use gridhook_api::{
    filter_test::FilterTestReport,
    status::{CountersView, SubscriptionStatusView},
    subscription::{
        AnySubscriptionProperties, BlobBody, DeliveryWithIdentityView, DestinationView,
        OrderingBody, ResourceView, SubscriptionView, SubscriptionViewProperties, WebhookView,
        namespace::{
            DeliveryConfigurationView, DeliveryTermsView, NamespaceSubscriptionViewProperties,
            PushView, QueueView,
        },
    },
    transform_test::{TransformTestLine, TransformTestReport},
};
use gridhook_clock::Clock;

/// A table of event subscriptions.
pub(super) fn listed(all: &[SubscriptionView]) -> String {
    let mut table = TextTable::new(["TOPIC", "NAME", "ENDPOINT", "TYPES", "SCHEMA", "STATE"]);
    for subscription in all {
        let Configuration {
            topic,
            destination,
            types,
            schema,
            state,
            ..
        } = Configuration::of(subscription);
        table.line([
            client::short(topic),
            text(&subscription.name),
            endpoint(destination),
            types.map_or_else(|| "all".to_owned(), format::list),
            text(schema),
            text(state),
        ]);
    }
    table.to_string()
}

/// The parts of `subscriptions show`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubscriptionParts {
    event_subscription: SubscriptionView,
    status: Option<SubscriptionStatusView>,
}

/// The configuration and the status of an event subscription. `arguments` name it in a command.
pub(super) fn format_subscription(
    parts: &SubscriptionParts,
    arguments: &str,
    clock: &Clock,
) -> String {
    let facts = facts(&parts.event_subscription);
    match &parts.status {
        Some(status) => format!("{facts}\n{}", state(status, arguments, clock)),
        None => facts,
    }
}

/// The configuration of an event subscription.
pub(super) fn facts(subscription: &SubscriptionView) -> String {
    let all = Configuration::of(subscription);
    let of = |value: Option<&str>| optional(value, text);
    let is_pulled = all.destination.is_none();
    let dead_letters = all.dead_letter.map(
        |BlobBody {
             resource_id,
             blob_container_name,
         }| {
            [Some(resource_id), blob_container_name.as_ref()]
                .into_iter()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
                .join("/")
        },
    );
    let (webhook, batch) = match all.destination {
        Some(DestinationView::WebHook(webhook)) => {
            let settings = &webhook.settings;
            (
                Some(settings),
                [
                    settings.max_events_per_batch,
                    settings.preferred_batch_size_in_kilobytes,
                ],
            )
        }
        Some(DestinationView::Resource(ResourceView { properties, .. })) => (
            None,
            [
                properties.max_events_per_batch,
                properties.preferred_batch_size_in_kilobytes,
            ],
        ),
        None => (None, [None, None]),
    };
    let whole = |value: i64| number(u64::try_from(value).unwrap_or_default());
    let event_count = |value: i64| counted(u64::try_from(value).unwrap_or_default(), "event");
    let batch = match batch {
        [None, None] => String::new(),
        [events, kilobytes] => format!(
            "{}, {} KB",
            optional(events, event_count),
            optional(kilobytes, whole)
        ),
    };
    let limit = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    let lock = all
        .lock_seconds
        .map(|seconds| Duration::from_secs(seconds.into()));
    let response_timeout = limit(webhook.and_then(|webhook| webhook.response_timeout_in_seconds));
    format::facts(
        16,
        &[
            ("state", text(all.state)),
            ("endpoint", endpoint(all.destination)),
            ("lock", optional(lock, format::span)),
            ("schema", text(all.schema)),
            ("types", optional(all.types, format::list)),
            ("subject begins", of(all.subject_begins_with)),
            ("subject ends", of(all.subject_ends_with)),
            (
                "advanced filters",
                all.advanced_filters
                    .map_or_else(String::new, |filters| filters.len().to_string()),
            ),
            (
                "retry",
                format!(
                    "{} within {}",
                    optional(all.attempts, |attempts| match (is_pulled, attempts) {
                        (true, 1) => "1 delivery".to_owned(),
                        (true, deliveries) => format!("{} deliveries", number(deliveries)),
                        (false, attempts) => counted(attempts, "attempt"),
                    }),
                    optional(all.time_to_live, format::span)
                ),
            ),
            (
                "transform",
                all.transform
                    .map_or_else(String::new, |parts| text(&parts.join(", "))),
            ),
            ("batch", batch),
            (
                "requests/s",
                optional(
                    limit(webhook.and_then(|webhook| webhook.max_requests_per_second)),
                    number,
                ),
            ),
            (
                "response timeout",
                optional(response_timeout.map(Duration::from_secs), format::span),
            ),
            (
                "order",
                optional(all.ordering, |ordering| ordering.key.clone()),
            ),
            (
                "dead letters",
                dead_letters.unwrap_or_else(|| "no destination".to_owned()),
            ),
            ("labels", optional(all.labels, format::list)),
            ("expires", of(all.expires)),
            ("starts from", of(all.starts_from)),
        ],
    )
}

/// The address of a webhook, else the kind of destination, the service and the names in it.
fn endpoint(destination: Option<&DestinationView>) -> String {
    match destination {
        None => "none (pull delivery)".to_owned(),
        Some(DestinationView::WebHook(webhook)) => {
            let WebhookView {
                endpoint_base_url,
                settings,
                ..
            } = &**webhook;
            text(settings.endpoint_url.as_ref().unwrap_or(endpoint_base_url))
        }
        Some(DestinationView::Resource(ResourceView {
            endpoint_type,
            properties,
        })) => {
            let names = properties.others.values().filter_map(Value::as_str);
            let all = [endpoint_type.as_str(), properties.resource_id.as_str()]
                .into_iter()
                .chain(names);
            text(&all.collect::<Vec<_>>().join(" "))
        }
    }
}

/// What an event subscription is configured to do, from either JSON form.
struct Configuration<'a> {
    topic: &'a str,
    state: &'a str,
    schema: &'a str,
    /// [`None`] with pull delivery.
    destination: Option<&'a DestinationView>,
    lock_seconds: Option<u32>,
    types: Option<&'a [String]>,
    subject_begins_with: Option<&'a str>,
    subject_ends_with: Option<&'a str>,
    advanced_filters: Option<&'a [Value]>,
    attempts: Option<u64>,
    time_to_live: Option<Duration>,
    dead_letter: Option<&'a BlobBody>,
    transform: Option<Vec<String>>,
    ordering: Option<&'a OrderingBody>,
    labels: Option<&'a [String]>,
    expires: Option<&'a str>,
    starts_from: Option<&'a str>,
}

impl<'a> Configuration<'a> {
    fn of(subscription: &'a SubscriptionView) -> Self {
        match &subscription.properties {
            AnySubscriptionProperties::Topic(properties) => Self::of_topic(properties),
            AnySubscriptionProperties::Namespace(properties) => {
                Self::of_namespace_topic(&subscription.id, properties)
            }
        }
    }

    fn of_topic(properties: &'a SubscriptionViewProperties) -> Self {
        let destination = in_either_form(
            &properties.destination,
            &properties.delivery_with_resource_identity,
        );
        let letters = properties
            .dead_letter_with_resource_identity
            .as_ref()
            .map(|with| &with.dead_letter_destination);
        let (filter, retry) = (&properties.filter, &properties.retry_policy);
        let minutes = retry
            .event_time_to_live_in_minutes
            .and_then(|minutes| u64::try_from(minutes).ok());
        Self {
            topic: &properties.topic,
            state: &properties.provisioning_state,
            schema: &properties.event_delivery_schema,
            destination,
            lock_seconds: None,
            types: filter.included_event_types.as_deref(),
            subject_begins_with: filter.subject_begins_with.as_deref(),
            subject_ends_with: filter.subject_ends_with.as_deref(),
            advanced_filters: filter.advanced_filters.as_deref(),
            attempts: retry
                .max_delivery_attempts
                .and_then(|attempts| u64::try_from(attempts).ok()),
            time_to_live: minutes.map(|minutes| Duration::from_secs(60 * minutes)),
            dead_letter: letters
                .or(properties.dead_letter_destination.as_ref())
                .map(|letters| &letters.properties),
            transform: properties.transform.as_ref().map(keys),
            ordering: properties.ordering.as_ref(),
            labels: Some(&properties.labels),
            expires: properties.expiration_time_utc.as_deref(),
            starts_from: properties.starts_from.as_deref(),
        }
    }

    fn of_namespace_topic(
        id: &'a str,
        properties: &'a NamespaceSubscriptionViewProperties,
    ) -> Self {
        let (destination, lock_seconds, terms) = match &properties.delivery_configuration {
            DeliveryConfigurationView::Push { push } => {
                let PushView {
                    terms,
                    destination,
                    delivery_with_resource_identity,
                } = &**push;
                (
                    in_either_form(destination, delivery_with_resource_identity),
                    None,
                    terms,
                )
            }
            DeliveryConfigurationView::Queue { queue } => {
                let QueueView {
                    receive_lock_duration_in_seconds: seconds,
                    terms,
                } = queue;
                (None, Some(*seconds), terms)
            }
        };
        let DeliveryTermsView {
            max_delivery_count,
            event_time_to_live,
            ..
        } = terms;
        let span = event_time_to_live.parse::<jiff::Span>().ok();
        let span = span.and_then(|span| {
            span.to_duration(jiff::SpanRelativeTo::days_are_24_hours())
                .ok()
        });
        let dead_letter = terms
            .dead_letter_destination_with_resource_identity
            .as_ref();
        let filter = &properties.filters_configuration;
        Self {
            topic: id
                .rsplit_once("/eventSubscriptions/")
                .map_or("", |(topic, _)| topic),
            state: &properties.provisioning_state,
            schema: &properties.event_delivery_schema,
            destination,
            lock_seconds,
            types: filter.included_event_types.as_deref(),
            subject_begins_with: None,
            subject_ends_with: None,
            advanced_filters: filter.filters.as_deref(),
            attempts: Some((*max_delivery_count).into()),
            time_to_live: span.and_then(|span| Duration::try_from(span).ok()),
            dead_letter: dead_letter.map(|with| &with.dead_letter_destination.properties),
            transform: properties.transform.as_ref().map(keys),
            ordering: properties.ordering.as_ref(),
            labels: None,
            expires: properties.expiration_time_utc.as_deref(),
            starts_from: properties.starts_from.as_deref(),
        }
    }
}

/// The keys of an object.
fn keys(object: &impl Serialize) -> Vec<String> {
    let json = serde_json::to_value(object).unwrap_or_default();
    json.as_object()
        .into_iter()
        .flat_map(|object| object.keys().cloned())
        .collect()
}

/// The destination, with or without an identity.
fn in_either_form<'a>(
    plain: &'a Option<DestinationView>,
    identified: &'a Option<DeliveryWithIdentityView>,
) -> Option<&'a DestinationView> {
    identified
        .as_ref()
        .map(|with| &with.destination)
        .or(plain.as_ref())
}

/// The status of an event subscription. `arguments` name it in a command.
pub(super) fn state(status: &SubscriptionStatusView, arguments: &str, clock: &Clock) -> String {
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
        .map(|at| format!(", oldest event {}", format::when(at, clock)));
    let jobs = status
        .jobs
        .iter()
        .map(|job| format!("{} ({})", text(&job.kind), text(&job.state)));
    let rate = endpoint.rate.map_or(String::new(), |rate| {
        format!(", paced to {rate:.1} requests/s")
    });
    format::facts(
        16,
        &[
            ("held by", optional(status.held_by.as_deref(), text)),
            ("health", format::health(&status.health, clock)),
            ("order", blocked_keys(status, arguments)),
            (
                "in flight",
                format!(
                    "{} of {}{rate}",
                    number(status.in_flight as u64),
                    number(endpoint.concurrency.into())
                ),
            ),
            (
                "backlog",
                format!("{}{}", number(status.backlog), oldest.unwrap_or_default()),
            ),
            ("pending", number(*pending)),
            (
                "next attempt",
                optional(status.next_due.as_deref(), |due| format::when(due, clock)),
            ),
            (
                "matched",
                format!("{} of {}", number(*matched), number(*passed)),
            ),
            ("delivered", number(*delivered)),
            ("dead-lettered", number(*dead_lettered)),
            ("dropped", number(*dropped)),
            (
                "requests",
                format!("{}, {} failed", number(*requests), number(*requests_failed)),
            ),
            ("jobs", jobs.collect::<Vec<_>>().join(", ")),
        ],
    )
}

/// The order keys that wait for an operator.
fn blocked_keys(status: &SubscriptionStatusView, arguments: &str) -> String {
    let blocked = status.order.as_ref().map_or(0, |order| order.blocked_keys);
    if blocked == 0 {
        return String::new();
    }
    format!(
        "{} blocked; gridhook subscriptions unblock {arguments} KEY, or --all",
        counted(blocked as u64, "key")
    )
}

/// The results of a transformation test.
pub(super) fn transformed(report: &TransformTestReport) -> String {
    let mut table = TextTable::new(["ID", "SENT", "BODY OR ERROR"]);
    for TransformTestLine {
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
        let sent = match error {
            Some(_) => "no".to_owned(),
            None => target
                .chain(headers)
                .fold("yes".to_owned(), |sent, part| format!("{sent}, {part}")),
        };
        let shown = error
            .as_deref()
            .or(body.as_deref())
            .unwrap_or("(the event)");
        table.line([text(id), text(&sent), text(shown)]);
    }
    let (sent, tested) = (report.tested - report.failed, report.tested);
    format!(
        "{} of {} can be sent\n\n{table}",
        number(sent as u64),
        counted(tested as u64, "event")
    )
}

/// The result of a filter test.
pub(super) fn tested(report: &FilterTestReport) -> String {
    let mut table = TextTable::new(["ID", "MATCHES", "FILTERED BY", "REASON", "VALUE"]);
    for line in &report.results {
        let cell = |value: &Option<String>| optional(value.as_deref(), text);
        let matches = if line.matches { "yes" } else { "no" };
        table.line([
            text(&line.id),
            matches.to_owned(),
            cell(&line.stopped_by),
            cell(&line.reason),
            cell(&line.value),
        ]);
    }
    let (matches, tested) = (
        number(report.matched as u64),
        counted(report.tested as u64, "event"),
    );
    format!("{matches} of {tested} match\n\n{table}")
}
