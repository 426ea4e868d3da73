//! Formats the figures of `top` as lines of text.

use std::time::Duration;

use serde_json::Value;

use crate::{
    cli::{client::short, format, output::TextTable},
    clock::Clock,
};

/// The whole page; on a live screen with the keys.
pub(super) fn page(report: &Value, by: &str, has_keys: bool) -> Vec<String> {
    let count = |key: &str| format::count(&report[key]);
    let mut lines = vec![
        format!(
            "{} event subscriptions, {} suspended, {} held; {} delivered/s, {} failed/s",
            count("subscriptions"),
            count("suspended"),
            count("held"),
            rate(&report["deliveredPerSecond"]),
            rate(&report["failedPerSecond"]),
        ),
        format!(
            "{} in flight, {} in the backlog, {} pending; sorted by {by}{}",
            count("inFlight"),
            count("backlog"),
            count("pending"),
            if has_keys { "; keys: q quit, a h b p f i sort" } else { "" }
        ),
        String::new(),
    ];
    let header =
        ["SUBSCRIPTION", "HEALTH", "DELIV/S", "REQ/S", "FAIL/S", "OK", "BACKLOG", "AGE", "PENDING", "IN FLIGHT"];
    let mut table = TextTable::new(header);
    for line in report["top"].as_array().into_iter().flatten() {
        let topic = short(line["topic"].as_str().unwrap_or_default());
        let age = line["oldestUnreadAgeSeconds"].as_u64();
        let success = line["successShare"].as_f64();
        table.line([
            format!("{topic}/{}", format::text(&line["subscription"])),
            health(line),
            rate(&line["deliveredPerSecond"]),
            rate(&line["requestsPerSecond"]),
            rate(&line["failedPerSecond"]),
            success.map_or_else(|| format::NONE.to_owned(), |share| format!("{:.0}%", 100.0 * share)),
            format::count(&line["backlog"]),
            age.map_or_else(|| format::NONE.to_owned(), |age| format::span(Duration::from_secs(age))),
            format::count(&line["pending"]),
            format!("{}/{}", format::count(&line["inFlight"]), format::count(&line["concurrency"])),
        ]);
    }
    lines.extend(table.to_string().lines().map(str::to_owned));
    lines
}

/// The state of the endpoint, and the time until its next probe.
fn health(line: &Value) -> String {
    let health = &line["health"];
    if !line["heldBy"].is_null() {
        return format!("held by {}", format::text(&line["heldBy"]));
    }
    match health["state"].as_str() {
        Some("suspended") => match format::until(&health["nextProbe"], &Clock::system()) {
            Some(wait) => format!("{}, probe in {}", format::text(&health["cause"]), format::span(wait)),
            None => format!("{}, probe due", format::text(&health["cause"])),
        },
        Some(state) => state.to_owned(),
        None => format::NONE.to_owned(),
    }
}

fn rate(value: &Value) -> String {
    match value.as_f64() {
        None => format::NONE.to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => format::number(rate.round() as u64),
    }
}
