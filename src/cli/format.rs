//! Formats values of responses for people.

use std::{borrow::Borrow, fmt::Display, time::Duration};

use gridhook_api::status::HealthView;
use gridhook_clock::Clock;
use gridhook_escape as escape;
pub(super) use gridhook_escape::group_thousands;

/// Stands for a missing value.
pub(super) const NONE: &str = "-";

/// A text, escaped; `-` if it is empty.
pub(super) fn text_or_dash(text: &str) -> String {
    if text.is_empty() {
        NONE.to_owned()
    } else {
        escape::escape_text(text).into_owned()
    }
}

/// A text that may be missing, escaped.
pub(super) fn optional_text(text: &Option<String>) -> String {
    optional_or_dash(text.as_deref(), text_or_dash)
}

/// A number that may be missing.
pub(super) fn optional_number(number: Option<impl Display>) -> String {
    optional_or_dash(number, |number| number.to_string())
}

/// A value that may be missing.
pub(super) fn optional_or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), shown)
}

/// The items with a separator between them.
pub(super) fn join<T: Borrow<str>>(items: impl Iterator<Item = T>, separator: &str) -> String {
    items.collect::<Vec<_>>().join(separator)
}

pub(super) fn join_texts(texts: &[String]) -> String {
    if texts.is_empty() {
        NONE.to_owned()
    } else {
        join(texts.iter().map(|item| text_or_dash(item)), ", ")
    }
}

/// Lines of name and value, without empty values.
pub(super) fn format_facts(width: usize, all: &[(&str, String)]) -> String {
    let shown = all
        .iter()
        .filter(|(_, value)| !value.is_empty() && value != NONE);
    let lines = shown.map(|(name, value)| format!("{name:width$}  {value}"));
    join(lines, "\n")
}

/// A number with its noun, whose plural ends with s.
pub(super) fn count_with_noun(count: u64, noun: &str) -> String {
    escape::count_with_noun(group_thousands(count), noun)
}

/// A duration, in its two largest units.
pub(super) fn format_span(time: Duration) -> String {
    let seconds = time.as_secs();
    let two = |large: u64, small: u64, units: [char; 2]| {
        let whole = seconds / large;
        let rest = seconds % large / small;
        if rest == 0 {
            format!("{whole}{}", units[0])
        } else {
            format!("{whole}{} {rest}{}", units[0], units[1])
        }
    };
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => two(60, 1, ['m', 's']),
        3_600..86_400 => two(3_600, 60, ['h', 'm']),
        _ => two(86_400, 3_600, ['d', 'h']),
    }
}

/// A point in time in whole seconds, and its distance from now.
pub(super) fn format_instant(text: &str, clock: &Clock) -> String {
    let Ok(at) = text.parse::<jiff::Timestamp>() else {
        return escape::escape_text(text).into_owned();
    };
    let micros = at.as_microsecond() - i64::try_from(clock.now().0).unwrap_or(i64::MAX);
    let away = format_span(Duration::from_micros(micros.unsigned_abs()));
    let short = at.strftime("%Y-%m-%d %H:%M:%SZ");
    if micros > 0 {
        format!("{short} (in {away})")
    } else {
        format!("{short} ({away} ago)")
    }
}

/// The duration until a point in time; [`None`] if it has passed.
pub(super) fn time_until(text: &str, clock: &Clock) -> Option<Duration> {
    let at = text.parse::<jiff::Timestamp>().ok()?;
    let micros = at.as_microsecond() - i64::try_from(clock.now().0).unwrap_or(i64::MAX);
    u64::try_from(micros).ok().map(Duration::from_micros)
}

/// The health of an endpoint: its state, and the cause if it is not healthy.
pub(super) fn format_health(health: &HealthView, clock: &Clock) -> String {
    match health {
        HealthView::Suspended {
            cause, next_probe, ..
        } => {
            format!(
                "suspended for {}; next probe {}",
                text_or_dash(cause),
                format_instant(next_probe, clock)
            )
        }
        HealthView::Probing { cause, .. } => {
            format!("probing, suspended for {}", text_or_dash(cause))
        }
        HealthView::Healthy { failures: 0 } => "healthy".to_owned(),
        HealthView::Healthy { failures: 1 } => "healthy, the last request failed".to_owned(),
        HealthView::Healthy { failures } => format!(
            "healthy, the last {} requests failed",
            group_thousands((*failures).into())
        ),
    }
}
