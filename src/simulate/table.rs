//! The report as text: three tables below each other, so that they fit on a screen.

use std::fmt::{self, Display};

use gridhook_escape::{count_with_noun, group_thousands};

use crate::{ReportRow, SimulationReport};

type ReportColumns<'a> = &'a [(&'a str, fn(&ReportRow) -> String)];

const EVENTS: ReportColumns<'_> = &[
    ("subscriptions", |row| group_thousands(row.subscriptions)),
    ("events", |row| group_thousands(row.events)),
    ("delivered", |row| group_thousands(row.delivered)),
    ("pending", |row| group_thousands(row.pending)),
    ("backlog", |row| group_thousands(row.backlog)),
    ("dead-lettered", |row| group_thousands(row.dead_lettered)),
    ("dropped", |row| group_thousands(row.dropped)),
];

const ATTEMPTS: ReportColumns<'_> = &[
    ("requests", |row| group_thousands(row.requests)),
    ("attempts", |row| group_thousands(row.attempts)),
    ("failed", |row| group_thousands(row.attempts_failed)),
    ("while down", |row| group_thousands(row.attempts_while_down)),
    ("per delivered", |row| {
        row.attempts_per_delivered
            .map_or_else(no_value, |share| format!("{share:.2}"))
    }),
    ("longest wait", |row| {
        format_seconds(row.longest_wait_seconds)
    }),
];

const RETURNS: ReportColumns<'_> = &[
    ("returns", |row| group_thousands(row.returns)),
    ("backlog gone", |row| {
        group_thousands(row.backlog_gone_seconds.count)
    }),
    ("p50", |row| {
        row.backlog_gone_seconds
            .p50
            .map_or_else(no_value, format_seconds)
    }),
    ("p99", |row| {
        row.backlog_gone_seconds
            .p99
            .map_or_else(no_value, format_seconds)
    }),
    ("rate back", |row| {
        group_thousands(row.rate_back_seconds.count)
    }),
    ("p50", |row| {
        row.rate_back_seconds
            .p50
            .map_or_else(no_value, format_seconds)
    }),
    ("p99", |row| {
        row.rate_back_seconds
            .p99
            .map_or_else(no_value, format_seconds)
    }),
    ("peak p50", |row| format_ratio(row.peak.p50)),
    ("max", |row| format_ratio(row.peak.max)),
];

impl Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            subscriptions,
            events,
            simulated_seconds,
            seed,
            models,
        } = self;
        let events = count_with_noun(group_thousands(*events), "event");
        let subscriptions = group_thousands(u64::from(*subscriptions));
        let subscriptions = count_with_noun(subscriptions, "subscription");
        let span = format_seconds(*simulated_seconds);
        writeln!(
            f,
            "{span}, {events} for each of {subscriptions}, seed {seed}\n"
        )?;
        write_table(f, "events", EVENTS, models)?;
        let given_up = models
            .iter()
            .flat_map(|row| row.given_up.iter().map(move |reason| (&row.model, reason)));
        for (model, (reason, events)) in given_up {
            writeln!(f, "{model} gave up {}: {reason}", group_thousands(*events))?;
        }
        writeln!(f)?;
        write_table(f, "attempts", ATTEMPTS, models)?;
        let back: Vec<&ReportRow> = models.iter().filter(|row| row.returns > 0).collect();
        if !back.is_empty() {
            writeln!(f)?;
            write_table(f, "after a return", RETURNS, back)?;
        }
        Ok(())
    }
}

/// Aligns text left and numbers right, with two spaces between columns.
fn write_table<'a>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    columns: ReportColumns<'_>,
    rows: impl IntoIterator<Item = &'a ReportRow>,
) -> fmt::Result {
    let head: Vec<String> = [title]
        .into_iter()
        .chain(columns.iter().map(|(name, _)| *name))
        .map(str::to_owned)
        .collect();
    let cells = |row: &ReportRow| {
        [row.model.clone()]
            .into_iter()
            .chain(columns.iter().map(|(_, cell)| cell(row)))
            .collect()
    };
    let lines: Vec<Vec<String>> = [head]
        .into_iter()
        .chain(rows.into_iter().map(cells))
        .collect();
    let widths: Vec<usize> = (0..=columns.len())
        .map(|column| column_width(&lines, column))
        .collect();
    for line in &lines {
        write!(f, "{:<1$}", line[0], widths[0])?;
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            write!(f, "  {cell:>width$}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn column_width(lines: &[Vec<String>], column: usize) -> usize {
    lines
        .iter()
        .map(|line| line[column].chars().count())
        .max()
        .unwrap_or_default()
}

fn no_value() -> String {
    "-".to_owned()
}

fn format_ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(no_value, |ratio| format!("{ratio:.1}x"))
}

/// Formats a time in a unit, and what is left of it in a smaller one.
fn format_units(seconds: f64, (large, unit): (f64, &str), (small, rest): (f64, &str)) -> String {
    let small_units = (seconds / small).round();
    let whole = (small_units * small / large).floor();
    let rest_units = small_units - whole * large / small;
    if rest_units > 0.0 {
        format!("{whole}{unit} {rest_units}{rest}")
    } else {
        format!("{whole}{unit}")
    }
}

/// Formats a time with at most two units.
pub(super) fn format_seconds(seconds: f64) -> String {
    let pair = |large, small| format_units(seconds, large, small);
    match seconds {
        0.0 => "0s".to_owned(),
        ..0.9995 => format!("{:.0}ms", seconds * 1000.0),
        ..59.5 => format!("{seconds:.0}s"),
        ..3_599.5 => pair((60.0, "m"), (1.0, "s")),
        ..86_370.0 => pair((3600.0, "h"), (60.0, "m")),
        _ => pair((86_400.0, "d"), (3600.0, "h")),
    }
}
