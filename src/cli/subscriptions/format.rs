//! Formats event subscriptions for people.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::{
        filter_test::FilterTestReport,
        resource::{
            BlobProperties, DeliveryConfiguration, Destination, EventSubscription, EventSubscriptionProperties,
            RetryPolicy, SubscriptionFilter,
        },
        status::{CountersView, SubscriptionStatusView},
        transform_test::{TransformTestLine, TransformTestReport},
    },
    cli::{
        client,
        format::{self, number, optional, text},
        output::TextTable,
    },
    clock::Clock,
};

/// A table of event subscriptions.
pub(super) fn listed(all: &[EventSubscription]) -> String {
    let mut table = TextTable::new(["TOPIC", "NAME", "ENDPOINT", "TYPES", "SCHEMA", "STATE"]);
    for EventSubscription { id, name, properties } in all {
        let Delivery { destination, is_pulled, .. } = Delivery::of(properties);
        let topic = properties.topic.as_deref().or_else(|| Some(id.rsplit_once("/eventSubscriptions/")?.0));
        let types = filter(properties).and_then(|filter| filter.included_event_types.as_deref());
        table.line([
            client::short(topic.unwrap_or_default()),
            text(name),
            if is_pulled { PULLED.to_owned() } else { endpoint(&destination) },
            types.map_or_else(|| "all".to_owned(), format::list),
            text(&properties.event_delivery_schema),
            text(&properties.provisioning_state),
        ]);
    }
    table.to_string()
}

/// The parts of `subscriptions show`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubscriptionParts {
    event_subscription: EventSubscription,
    status: Option<SubscriptionStatusView>,
}

/// The configuration and the status of an event subscription.
pub(super) fn format_subscription(parts: &SubscriptionParts, clock: &Clock) -> String {
    let facts = facts(&parts.event_subscription);
    match &parts.status {
        Some(status) => format!("{facts}\n{}", state(status, clock)),
        None => facts,
    }
}

/// The configuration of an event subscription.
pub(super) fn facts(EventSubscription { properties, .. }: &EventSubscription) -> String {
    let Delivery { destination: endpoint, attempts, time_to_live, dead_letter, lock, is_pulled } =
        Delivery::of(properties);
    let SubscriptionFilter { included_event_types, subject_begins_with, subject_ends_with, advanced_filters } =
        filter(properties).cloned().unwrap_or_default();
    let of = |value: &Option<String>| optional(value.as_deref(), text);
    let destination = dead_letter.map(|BlobProperties { resource_id, blob_container_name }| {
        [resource_id, blob_container_name].into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/")
    });
    let webhook = &endpoint.properties;
    let batch = match (webhook.max_events_per_batch, webhook.preferred_batch_size_in_kilobytes) {
        (None, None) => String::new(),
        (events, kilobytes) => format!("{} events, {} KB", optional(events, number), optional(kilobytes, number)),
    };
    let advanced = advanced_filters.map_or(0, |filters| filters.len());
    format::facts(
        16,
        &[
            ("state", text(&properties.provisioning_state)),
            ("endpoint", if is_pulled { PULLED.to_owned() } else { self::endpoint(&endpoint) }),
            ("lock", optional(lock, |seconds| format::span(Duration::from_secs(seconds)))),
            ("schema", text(&properties.event_delivery_schema)),
            ("types", optional(included_event_types.as_deref(), format::list)),
            ("subject begins", of(&subject_begins_with)),
            ("subject ends", of(&subject_ends_with)),
            ("advanced filters", if advanced > 0 { advanced.to_string() } else { String::new() }),
            (
                "retry",
                format!(
                    "{} {} within {}",
                    optional(attempts, number),
                    if is_pulled { "deliveries" } else { "attempts" },
                    optional(time_to_live, format::span)
                ),
            ),
            (
                "transform",
                properties.transform.as_ref().map_or_else(String::new, |parts| {
                    text(&parts.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
                }),
            ),
            ("batch", batch),
            ("requests/s", optional(webhook.max_requests_per_second, number)),
            (
                "response wait",
                optional(webhook.response_timeout_in_seconds, |seconds| format::span(Duration::from_secs(seconds))),
            ),
            ("order", optional(properties.ordering.as_ref(), |ordering| ordering.key.clone())),
            ("dead letters", destination.unwrap_or_else(|| "no destination".to_owned())),
            ("labels", optional(properties.labels.as_deref(), format::list)),
            ("expires", of(&properties.expiration_time_utc)),
            ("starts from", of(&properties.starts_from)),
        ],
    )
}

/// The address of a webhook, else the kind of destination, the service and the names in it.
fn endpoint(Destination { endpoint_type, properties }: &Destination) -> String {
    if let Some(url) = properties.endpoint_url.as_deref().or(properties.endpoint_base_url.as_deref()) {
        return text(url);
    }
    let names = properties.others.values().filter_map(Value::as_str);
    let all = [Some(endpoint_type.as_str()), properties.resource_id.as_deref()].into_iter().flatten().chain(names);
    text(&all.collect::<Vec<_>>().join(" "))
}

/// Shown as the endpoint of a pull subscription.
const PULLED: &str = "none (pull delivery)";

/// The filter, from either JSON form.
fn filter(properties: &EventSubscriptionProperties) -> Option<&SubscriptionFilter> {
    properties.filter.as_ref().or(properties.filters_configuration.as_ref())
}

/// How events are delivered, from either JSON form.
struct Delivery<'a> {
    destination: Destination,
    attempts: Option<u64>,
    time_to_live: Option<Duration>,
    dead_letter: Option<&'a BlobProperties>,
    lock: Option<u64>,
    is_pulled: bool,
}

impl<'a> Delivery<'a> {
    fn of(properties: &'a EventSubscriptionProperties) -> Self {
        let (part, is_pulled) = match &properties.delivery_configuration {
            Some(DeliveryConfiguration::Push { push }) => (push, false),
            Some(DeliveryConfiguration::Queue { queue }) => (queue, true),
            None => {
                let retry = properties.retry_policy.as_ref();
                let minutes =
                    retry.and_then(|RetryPolicy { event_time_to_live_in_minutes, .. }| *event_time_to_live_in_minutes);
                let identified = properties.delivery_with_resource_identity.as_ref();
                let destination = identified.and_then(|with| with.destination.as_ref());
                let letters = properties.dead_letter_with_resource_identity.as_ref();
                let letters = letters.and_then(|with| with.dead_letter_destination.as_ref());
                let letters = letters.or(properties.dead_letter_destination.as_ref());
                return Self {
                    destination: destination.or(properties.destination.as_ref()).cloned().unwrap_or_default(),
                    attempts: retry.and_then(|retry| retry.max_delivery_attempts),
                    time_to_live: minutes.map(|minutes| Duration::from_secs(60 * minutes)),
                    dead_letter: letters.map(|letters| &letters.properties),
                    lock: None,
                    is_pulled: false,
                };
            }
        };
        let identified = part.delivery_with_resource_identity.as_ref().and_then(|with| with.destination.as_ref());
        let destination = identified.or(part.destination.as_ref());
        let dead_letter = part.dead_letter_destination_with_resource_identity.as_ref();
        let span = part.event_time_to_live.as_ref().and_then(|text| text.parse::<jiff::Span>().ok());
        let span = span.and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok());
        Self {
            destination: destination.cloned().unwrap_or_default(),
            attempts: part.max_delivery_count,
            time_to_live: span.and_then(|span| Duration::try_from(span).ok()),
            dead_letter: dead_letter.and_then(|with| Some(&with.dead_letter_destination.as_ref()?.properties)),
            lock: part.receive_lock_duration_in_seconds,
            is_pulled,
        }
    }
}

/// The status of an event subscription.
pub(super) fn state(status: &SubscriptionStatusView, clock: &Clock) -> String {
    let SubscriptionStatusView { counters, endpoint, .. } = status;
    let CountersView { pending, matched, passed, delivered, dead_lettered, dropped, requests, requests_failed, .. } =
        counters;
    let oldest = status.oldest_unread.as_ref().map(|at| format!(", oldest event {}", format::when(at, clock)));
    let jobs = status.jobs.iter().map(|job| format!("{} ({})", text(&job.kind), text(&job.state)));
    let rate = endpoint.rate.map_or(String::new(), |rate| format!(", paced to {rate:.1} requests/s"));
    format::facts(
        16,
        &[
            ("held by", optional(status.held_by.as_deref(), text)),
            ("health", format::health(&status.health, clock)),
            (
                "in flight",
                format!("{} of {}{rate}", number(status.in_flight as u64), number(endpoint.concurrency.into())),
            ),
            ("backlog", format!("{}{}", number(status.backlog), oldest.unwrap_or_default())),
            ("pending", number(*pending)),
            ("next attempt", optional(status.next_due.as_deref(), |due| format::when(due, clock))),
            ("matched", format!("{} of {}", number(*matched), number(*passed))),
            ("delivered", number(*delivered)),
            ("dead-lettered", number(*dead_lettered)),
            ("dropped", number(*dropped)),
            ("requests", format!("{}, {} failed", number(*requests), number(*requests_failed))),
            ("jobs", jobs.collect::<Vec<_>>().join(", ")),
        ],
    )
}

/// The results of a transformation test.
pub(super) fn transformed(report: &TransformTestReport) -> String {
    let mut table = TextTable::new(["ID", "SENT", "BODY OR ERROR"]);
    for TransformTestLine { id, body, method, path_suffix, headers, error } in &report.results {
        let target = [method.as_deref(), path_suffix.as_deref()].into_iter().flatten().map(str::to_owned);
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value}"));
        let sent = match error {
            Some(_) => "no".to_owned(),
            None => target.chain(headers).fold("yes".to_owned(), |sent, part| format!("{sent}, {part}")),
        };
        let shown = error.as_deref().or(body.as_deref()).unwrap_or("(the event)");
        table.line([text(id), text(&sent), text(shown)]);
    }
    let (sent, tested) = (report.tested - report.failed, report.tested);
    format!("{} of {} events can be sent\n\n{table}", number(sent as u64), number(tested as u64))
}

/// The result of a filter test.
pub(super) fn tested(report: &FilterTestReport) -> String {
    let mut table = TextTable::new(["ID", "MATCHES", "FILTERED BY", "REASON", "VALUE"]);
    for line in &report.results {
        let cell = |value: &Option<String>| optional(value.as_deref(), text);
        let matches = if line.matches { "yes" } else { "no" };
        table.line([text(&line.id), matches.to_owned(), cell(&line.stopped_by), cell(&line.reason), cell(&line.value)]);
    }
    format!("{} of {} events match\n\n{table}", number(report.matched as u64), number(report.tested as u64))
}
