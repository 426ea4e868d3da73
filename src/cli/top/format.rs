//! Formats the figures of `top` as lines of text.

use std::time::Duration;

use crate::{
    client::short,
    format::{counted, number, optional, span, text, until},
    output::TextTable,
};
use gridhook_api::{
    status::HealthView,
    top::{TopLine, TopReport},
};
use gridhook_clock::Clock;

/// The whole page; on a live screen with the keys that sort it.
pub(super) fn page(report: &TopReport, by: &str, keys: &str) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{}, {} suspended, {} held; {} delivered/s, {} failed/s",
            counted(report.subscriptions as u64, "event subscription"),
            number(report.suspended as u64),
            number(report.held as u64),
            rate(report.delivered_per_second),
            rate(report.failed_per_second),
        ),
        format!(
            "{} in flight, {} in the backlog, {} pending; sorted by {by}{}",
            number(report.in_flight as u64),
            number(report.backlog),
            number(report.pending),
            if keys.is_empty() {
                String::new()
            } else {
                format!("; keys: q quit, {keys} sort")
            }
        ),
    ];
    if !report.missing_shards.is_empty() {
        let shards: Vec<String> = report
            .missing_shards
            .iter()
            .map(ToString::to_string)
            .collect();
        lines.push(format!(
            "without the shards that have no owner: {}",
            shards.join(", ")
        ));
    }
    lines.push(String::new());
    let header = [
        "SUBSCRIPTION",
        "HEALTH",
        "DELIV/S",
        "REQ/S",
        "FAIL/S",
        "OK",
        "BACKLOG",
        "AGE",
        "PENDING",
        "IN FLIGHT",
        "DEAD LETTERS",
    ];
    let mut table = TextTable::new(header);
    for line in &report.top {
        table.line([
            format!("{}/{}", short(&line.topic), text(&line.subscription)),
            health(line),
            rate(line.delivered_per_second),
            rate(line.requests_per_second),
            rate(line.failed_per_second),
            optional(line.success_share, |share| format!("{:.0}%", 100.0 * share)),
            number(line.backlog),
            optional(line.oldest_unread_age_seconds, |age| {
                span(Duration::from_secs(age))
            }),
            number(line.pending),
            format!(
                "{}/{}",
                number(line.in_flight as u64),
                number(line.concurrency.into())
            ),
            number(line.dead_lettered + line.dropped),
        ]);
    }
    lines.extend(table.to_string().lines().map(str::to_owned));
    lines
}

/// The state of the endpoint, and the time until its next probe.
fn health(line: &TopLine) -> String {
    match (&line.held_by, &line.health) {
        (Some(by), _) => format!("held by {}", text(by)),
        (
            None,
            HealthView::Suspended {
                cause, next_probe, ..
            },
        ) => match until(next_probe, &Clock::system()) {
            Some(wait) => format!("{}, probe in {}", text(cause), span(wait)),
            None => format!("{}, probe due", text(cause)),
        },
        (None, HealthView::Probing { .. }) => "probing".to_owned(),
        (None, HealthView::Healthy { .. }) => {
            match (line.condition.state.as_str(), line.condition.success_share) {
                ("failing", Some(share)) => format!("failing, {:.0}% ok", 100.0 * share),
                (state, _) => text(state),
            }
        }
    }
}

fn rate(rate: Option<f64>) -> String {
    optional(rate, |rate| match rate {
        0.0 => "0".to_owned(),
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => number(rate.round() as u64),
    })
}
