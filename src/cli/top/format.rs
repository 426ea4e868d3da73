//! Formats the figures of `top` as lines of text.

use std::time::Duration;

use crate::{
    client::short_name,
    format::{
        count_with_noun, format_span, group_thousands, optional_or_dash, text_or_dash, time_until,
    },
    output::TextTable,
};
use gridhook_api::{
    status::HealthView,
    top::{TopLine, TopReport},
};
use gridhook_clock::Clock;

/// The whole page; on a live screen with the keys that sort it.
pub(super) fn format_page(report: &TopReport, by: &str, keys: Option<&str>) -> Vec<String> {
    let keys = keys.map(|keys| format!("; keys: q quit, {keys} sort"));
    let mut lines = vec![
        format!(
            "{}, {} suspended, {} held; {} delivered/s, {} failed/s",
            count_with_noun(report.subscriptions as u64, "event subscription"),
            group_thousands(report.suspended as u64),
            group_thousands(report.held as u64),
            format_rate(report.delivered_per_second),
            format_rate(report.failed_per_second),
        ),
        format!(
            "{} in flight, {} in the backlog, {} pending; sorted by {by}{}",
            group_thousands(report.in_flight as u64),
            group_thousands(report.backlog),
            group_thousands(report.pending),
            keys.unwrap_or_default()
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
        "GIVEN UP",
    ];
    let mut table = TextTable::new(header);
    for line in &report.top {
        table.add_row([
            format!(
                "{}/{}",
                short_name(&line.topic),
                text_or_dash(&line.subscription)
            ),
            format_health(line),
            format_rate(line.delivered_per_second),
            format_rate(line.requests_per_second),
            format_rate(line.failed_per_second),
            optional_or_dash(line.success_share, |share| format!("{:.0}%", 100.0 * share)),
            group_thousands(line.backlog),
            optional_or_dash(line.oldest_unread_age_seconds, |age| {
                format_span(Duration::from_secs(age))
            }),
            group_thousands(line.pending),
            format!(
                "{}/{}",
                group_thousands(line.in_flight as u64),
                group_thousands(line.concurrency.into())
            ),
            group_thousands(line.dead_lettered + line.dropped),
        ]);
    }
    lines.extend(table.to_string().lines().map(str::to_owned));
    lines
}

/// The state of the endpoint, and the time until its next probe.
fn format_health(line: &TopLine) -> String {
    match (&line.held_by, &line.health) {
        (Some(by), _) => format!("held by {}", text_or_dash(by)),
        (
            None,
            HealthView::Suspended {
                cause, next_probe, ..
            },
        ) => match time_until(next_probe, &Clock::system()) {
            Some(wait) => format!("{}, probe in {}", text_or_dash(cause), format_span(wait)),
            None => format!("{}, probe due", text_or_dash(cause)),
        },
        (None, HealthView::Probing { .. }) => "probing".to_owned(),
        (None, HealthView::Healthy { .. }) => {
            match (line.condition.state.as_str(), line.condition.success_share) {
                ("failing", Some(share)) => format!("failing, {:.0}% ok", 100.0 * share),
                (state, _) => text_or_dash(state),
            }
        }
    }
}

fn format_rate(rate: Option<f64>) -> String {
    optional_or_dash(rate, |rate| match rate {
        0.0 => "0".to_owned(),
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => group_thousands(rate.round() as u64),
    })
}
