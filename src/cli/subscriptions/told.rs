//! Event subscriptions as people read them.

use std::time::Duration;

use serde_json::Value;

use crate::{
    cli::{
        control::{self, Table},
        words,
    },
    clock::Clock,
};

/// All of them, one in a line.
pub(super) fn listed(all: &Value) -> String {
    let mut table = Table::new(["TOPIC", "NAME", "ENDPOINT", "TYPES", "SCHEMA", "STATE"]);
    for subscription in all.as_array().into_iter().flatten() {
        let Parts { properties, webhook, types, is_pulled, .. } = Parts::of(subscription);
        let topic = properties["topic"]
            .as_str()
            .or_else(|| Some(subscription["id"].as_str()?.rsplit_once("/eventSubscriptions/")?.0));
        table.line([
            control::short(topic.unwrap_or_default()),
            words::text(&subscription["name"]),
            if is_pulled { PULLED.to_owned() } else { words::text(&webhook["endpointBaseUrl"]) },
            if types.is_null() { "all".to_owned() } else { words::text(types) },
            words::text(&properties["eventDeliverySchema"]),
            words::text(&properties["provisioningState"]),
        ]);
    }
    table.to_string()
}

/// How one was set up, and how it is.
pub(super) fn shown(answer: &Value, clock: &Clock) -> String {
    let (facts, status) = (facts(&answer["eventSubscription"]), &answer["status"]);
    if status.is_null() { facts } else { format!("{facts}\n{}", state(status, clock)) }
}

/// How it was set up.
pub(super) fn facts(subscription: &Value) -> String {
    let Parts { properties, webhook, types, advanced, attempts, time_to_live, letters, lock, is_pulled } =
        Parts::of(subscription);
    let url = if webhook["endpointUrl"].is_null() { &webhook["endpointBaseUrl"] } else { &webhook["endpointUrl"] };
    let filter = &properties["filter"];
    let place = [&letters["resourceId"], &letters["blobContainerName"]];
    let place: Vec<_> = place.into_iter().filter_map(Value::as_str).collect();
    let advanced = advanced.as_array().map_or(0, Vec::len);
    let batch = match (&webhook["maxEventsPerBatch"], &webhook["preferredBatchSizeInKilobytes"]) {
        (Value::Null, Value::Null) => String::new(),
        (events, kilobytes) => format!("{} events, {} KB", words::count(events), words::count(kilobytes)),
    };
    lines(&[
        ("state", words::text(&properties["provisioningState"])),
        ("endpoint", if is_pulled { PULLED.to_owned() } else { words::text(url) }),
        ("lock", lock.as_u64().map_or(String::new(), |seconds| words::span(Duration::from_secs(seconds)))),
        ("schema", words::text(&properties["eventDeliverySchema"])),
        ("types", words::text(types)),
        ("subject begins", words::text(&filter["subjectBeginsWith"])),
        ("subject ends", words::text(&filter["subjectEndsWith"])),
        ("advanced filters", if advanced > 0 { advanced.to_string() } else { String::new() }),
        (
            "retry",
            format!(
                "{} {} within {}",
                words::count(attempts),
                if is_pulled { "deliveries" } else { "attempts" },
                time_to_live.map_or_else(|| words::NONE.to_owned(), words::span)
            ),
        ),
        ("batch", batch),
        ("dead letters", if place.is_empty() { "none are kept".to_owned() } else { place.join("/") }),
        ("labels", words::text(&properties["labels"])),
        ("expires", words::text(&properties["expirationTimeUtc"])),
        ("starts from", words::text(&properties["startsFrom"])),
    ])
}

/// What stands for an endpoint where there is none.
const PULLED: &str = "none: clients receive";

/// What is told of every event subscription, wherever its form has it.
struct Parts<'a> {
    properties: &'a Value,
    webhook: &'a Value,
    types: &'a Value,
    advanced: &'a Value,
    attempts: &'a Value,
    time_to_live: Option<Duration>,
    letters: &'a Value,
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
                letters: &properties["deadLetterDestination"]["properties"],
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
            letters: &part["deadLetterDestinationWithResourceIdentity"]["deadLetterDestination"]["properties"],
            lock: &part["receiveLockDurationInSeconds"],
            is_pulled,
        }
    }
}

/// How it is.
pub(super) fn state(status: &Value, clock: &Clock) -> String {
    let (counters, endpoint) = (&status["counters"], &status["endpoint"]);
    let of = |key: &str| words::count(&counters[key]);
    let backlog = match status["oldestUnread"].is_null() {
        true => words::count(&status["backlog"]),
        false => {
            format!("{}, the oldest {}", words::count(&status["backlog"]), words::when(&status["oldestUnread"], clock))
        }
    };
    let jobs = status["jobs"].as_array().into_iter().flatten();
    let jobs: Vec<_> =
        jobs.map(|job| format!("{} ({})", words::text(&job["kind"]), words::text(&job["state"]))).collect();
    let rate = endpoint["rate"].as_f64().map_or(String::new(), |rate| format!(", {rate:.1} requests/s at the most"));
    lines(&[
        ("held by", words::text(&status["heldBy"])),
        ("health", words::health(&status["health"], clock)),
        (
            "in flight",
            format!("{} of {}{rate}", words::count(&status["inFlight"]), words::count(&endpoint["concurrency"])),
        ),
        ("backlog", backlog),
        ("owed", of("pending")),
        ("next attempt", words::when(&status["nextDue"], clock)),
        ("matched", format!("{} of {}", of("matched"), of("passed"))),
        ("delivered", of("delivered")),
        ("dead-lettered", of("deadLettered")),
        ("dropped", of("dropped")),
        ("requests", format!("{}, {} of them failed", of("requests"), of("requestsFailed"))),
        ("jobs", jobs.join(", ")),
    ])
}

/// Which events a filter lets through.
pub(super) fn tested(report: &Value) -> String {
    let mut table = Table::new(["ID", "MATCHES", "STOPPED BY", "WHY", "SEEN"]);
    for line in report["results"].as_array().into_iter().flatten() {
        let cell = |key: &str| words::text(&line[key]);
        let matches = if line["matches"] == true { "yes" } else { "no" };
        table.line([cell("id"), matches.to_owned(), cell("stoppedBy"), cell("why"), cell("seen")]);
    }
    format!("{} of {} events match\n\n{table}", words::count(&report["matched"]), words::count(&report["tested"]))
}

/// A fact a line; what says nothing is left out.
fn lines(all: &[(&str, String)]) -> String {
    let told = all.iter().filter(|(_, value)| !value.is_empty() && value != words::NONE);
    told.map(|(name, value)| format!("{name:16}  {value}")).collect::<Vec<_>>().join("\n")
}
