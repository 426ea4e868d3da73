//! Event subscriptions as people read them.

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
        let properties = &subscription["properties"];
        let types = &properties["filter"]["includedEventTypes"];
        table.line([
            control::short(properties["topic"].as_str().unwrap_or_default()),
            words::text(&subscription["name"]),
            words::text(&properties["destination"]["properties"]["endpointBaseUrl"]),
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
    let properties = &subscription["properties"];
    let (webhook, filter) = (&properties["destination"]["properties"], &properties["filter"]);
    let url = if webhook["endpointUrl"].is_null() { &webhook["endpointBaseUrl"] } else { &webhook["endpointUrl"] };
    let retry = &properties["retryPolicy"];
    let minutes = retry["eventTimeToLiveInMinutes"].as_u64().unwrap_or_default();
    let letters = &properties["deadLetterDestination"]["properties"];
    let place = [&letters["resourceId"], &letters["blobContainerName"]];
    let place: Vec<_> = place.into_iter().filter_map(Value::as_str).collect();
    let advanced = filter["advancedFilters"].as_array().map_or(0, Vec::len);
    lines(&[
        ("state", words::text(&properties["provisioningState"])),
        ("endpoint", words::text(url)),
        ("schema", words::text(&properties["eventDeliverySchema"])),
        ("types", words::text(&filter["includedEventTypes"])),
        ("subject begins", words::text(&filter["subjectBeginsWith"])),
        ("subject ends", words::text(&filter["subjectEndsWith"])),
        ("advanced filters", if advanced > 0 { advanced.to_string() } else { String::new() }),
        (
            "retry",
            format!(
                "{} attempts within {}",
                words::count(&retry["maxDeliveryAttempts"]),
                words::span(std::time::Duration::from_secs(60 * minutes))
            ),
        ),
        (
            "batch",
            format!(
                "{} events, {} KB",
                words::count(&webhook["maxEventsPerBatch"]),
                words::count(&webhook["preferredBatchSizeInKilobytes"])
            ),
        ),
        ("dead letters", if place.is_empty() { "none are kept".to_owned() } else { place.join("/") }),
        ("labels", words::text(&properties["labels"])),
        ("expires", words::text(&properties["expirationTimeUtc"])),
        ("starts from", words::text(&properties["startsFrom"])),
    ])
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
