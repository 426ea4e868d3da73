//! Formats event subscriptions for people.

use std::time::Duration;

use serde_json::Value;

use crate::{
    cli::{client, format, output::TextTable},
    clock::Clock,
};

/// A table of event subscriptions.
pub(super) fn listed(all: &Value) -> String {
    let mut table = TextTable::new(["TOPIC", "NAME", "ENDPOINT", "TYPES", "SCHEMA", "STATE"]);
    for subscription in all.as_array().into_iter().flatten() {
        let Parts { properties, webhook, types, is_pulled, .. } = Parts::of(subscription);
        let topic = properties["topic"]
            .as_str()
            .or_else(|| Some(subscription["id"].as_str()?.rsplit_once("/eventSubscriptions/")?.0));
        table.line([
            client::short(topic.unwrap_or_default()),
            format::text(&subscription["name"]),
            if is_pulled { PULLED.to_owned() } else { format::text(&webhook["endpointBaseUrl"]) },
            if types.is_null() { "all".to_owned() } else { format::text(types) },
            format::text(&properties["eventDeliverySchema"]),
            format::text(&properties["provisioningState"]),
        ]);
    }
    table.to_string()
}

/// The configuration and the status of an event subscription.
pub(super) fn format_subscription(answer: &Value, clock: &Clock) -> String {
    let (facts, status) = (facts(&answer["eventSubscription"]), &answer["status"]);
    if status.is_null() { facts } else { format!("{facts}\n{}", state(status, clock)) }
}

/// The configuration of an event subscription.
pub(super) fn facts(subscription: &Value) -> String {
    let Parts { properties, webhook, types, advanced, attempts, time_to_live, dead_letter, lock, is_pulled } =
        Parts::of(subscription);
    let url = if webhook["endpointUrl"].is_null() { &webhook["endpointBaseUrl"] } else { &webhook["endpointUrl"] };
    let filter = &properties["filter"];
    let destination = [&dead_letter["resourceId"], &dead_letter["blobContainerName"]];
    let destination: Vec<_> = destination.into_iter().filter_map(Value::as_str).collect();
    let advanced = advanced.as_array().map_or(0, Vec::len);
    let batch = match (&webhook["maxEventsPerBatch"], &webhook["preferredBatchSizeInKilobytes"]) {
        (Value::Null, Value::Null) => String::new(),
        (events, kilobytes) => format!("{} events, {} KB", format::count(events), format::count(kilobytes)),
    };
    lines(&[
        ("state", format::text(&properties["provisioningState"])),
        ("endpoint", if is_pulled { PULLED.to_owned() } else { format::text(url) }),
        ("lock", lock.as_u64().map_or(String::new(), |seconds| format::span(Duration::from_secs(seconds)))),
        ("schema", format::text(&properties["eventDeliverySchema"])),
        ("types", format::text(types)),
        ("subject begins", format::text(&filter["subjectBeginsWith"])),
        ("subject ends", format::text(&filter["subjectEndsWith"])),
        ("advanced filters", if advanced > 0 { advanced.to_string() } else { String::new() }),
        (
            "retry",
            format!(
                "{} {} within {}",
                format::count(attempts),
                if is_pulled { "deliveries" } else { "attempts" },
                time_to_live.map_or_else(|| format::NONE.to_owned(), format::span)
            ),
        ),
        ("batch", batch),
        ("dead letters", if destination.is_empty() { "no destination".to_owned() } else { destination.join("/") }),
        ("labels", format::text(&properties["labels"])),
        ("expires", format::text(&properties["expirationTimeUtc"])),
        ("starts from", format::text(&properties["startsFrom"])),
    ])
}

/// Shown as the endpoint of a pull subscription.
const PULLED: &str = "none (pull delivery)";

/// The shown properties of an event subscription, from either JSON form.
struct Parts<'a> {
    properties: &'a Value,
    webhook: &'a Value,
    types: &'a Value,
    advanced: &'a Value,
    attempts: &'a Value,
    time_to_live: Option<Duration>,
    dead_letter: &'a Value,
    lock: &'a Value,
    is_pulled: bool,
}

impl<'a> Parts<'a> {
    fn of(subscription: &'a Value) -> Self {
        let properties = &subscription["properties"];
        let delivery = &properties["deliveryConfiguration"];
        if delivery.is_null() {
            let (filter, retry) = (&properties["filter"], &properties["retryPolicy"]);
            let minutes = retry["eventTimeToLiveInMinutes"].as_u64();
            return Self {
                properties,
                webhook: &properties["destination"]["properties"],
                types: &filter["includedEventTypes"],
                advanced: &filter["advancedFilters"],
                attempts: &retry["maxDeliveryAttempts"],
                time_to_live: minutes.map(|minutes| Duration::from_secs(60 * minutes)),
                dead_letter: &properties["deadLetterDestination"]["properties"],
                lock: &Value::Null,
                is_pulled: false,
            };
        }
        let is_pulled = delivery["deliveryMode"] == "Queue";
        let part = if is_pulled { &delivery["queue"] } else { &delivery["push"] };
        let identified = &part["deliveryWithResourceIdentity"]["destination"];
        let destination = if identified.is_null() { &part["destination"] } else { identified };
        let filters = &properties["filtersConfiguration"];
        let span = part["eventTimeToLive"].as_str().and_then(|text| text.parse::<jiff::Span>().ok());
        let span = span.and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok());
        Self {
            properties,
            webhook: &destination["properties"],
            types: &filters["includedEventTypes"],
            advanced: &filters["filters"],
            attempts: &part["maxDeliveryCount"],
            time_to_live: span.and_then(|span| Duration::try_from(span).ok()),
            dead_letter: &part["deadLetterDestinationWithResourceIdentity"]["deadLetterDestination"]["properties"],
            lock: &part["receiveLockDurationInSeconds"],
            is_pulled,
        }
    }
}

/// The status of an event subscription.
pub(super) fn state(status: &Value, clock: &Clock) -> String {
    let (counters, endpoint) = (&status["counters"], &status["endpoint"]);
    let of = |key: &str| format::count(&counters[key]);
    let backlog = match status["oldestUnread"].is_null() {
        true => format::count(&status["backlog"]),
        false => {
            format!(
                "{}, oldest event {}",
                format::count(&status["backlog"]),
                format::when(&status["oldestUnread"], clock)
            )
        }
    };
    let jobs = status["jobs"].as_array().into_iter().flatten();
    let jobs: Vec<_> =
        jobs.map(|job| format!("{} ({})", format::text(&job["kind"]), format::text(&job["state"]))).collect();
    let rate = endpoint["rate"].as_f64().map_or(String::new(), |rate| format!(", paced to {rate:.1} requests/s"));
    lines(&[
        ("held by", format::text(&status["heldBy"])),
        ("health", format::health(&status["health"], clock)),
        (
            "in flight",
            format!("{} of {}{rate}", format::count(&status["inFlight"]), format::count(&endpoint["concurrency"])),
        ),
        ("backlog", backlog),
        ("pending", of("pending")),
        ("next attempt", format::when(&status["nextDue"], clock)),
        ("matched", format!("{} of {}", of("matched"), of("passed"))),
        ("delivered", of("delivered")),
        ("dead-lettered", of("deadLettered")),
        ("dropped", of("dropped")),
        ("requests", format!("{}, {} failed", of("requests"), of("requestsFailed"))),
        ("jobs", jobs.join(", ")),
    ])
}

/// The result of a filter test.
pub(super) fn tested(report: &Value) -> String {
    let mut table = TextTable::new(["ID", "MATCHES", "FILTERED BY", "REASON", "VALUE"]);
    for line in report["results"].as_array().into_iter().flatten() {
        let cell = |key: &str| format::text(&line[key]);
        let matches = if line["matches"] == true { "yes" } else { "no" };
        table.line([cell("id"), matches.to_owned(), cell("stoppedBy"), cell("reason"), cell("value")]);
    }
    format!("{} of {} events match\n\n{table}", format::count(&report["matched"]), format::count(&report["tested"]))
}

/// Lines of name and value, without empty values.
fn lines(all: &[(&str, String)]) -> String {
    let shown = all.iter().filter(|(_, value)| !value.is_empty() && value != format::NONE);
    shown.map(|(name, value)| format!("{name:16}  {value}")).collect::<Vec<_>>().join("\n")
}
