//! Formats values of the control plane's JSON for people.

use std::time::Duration;

use humantime_serde::re::humantime::format_duration;
use indicatif::HumanCount;
use serde_json::Value;

use crate::{clock::Clock, escape};

/// Stands for a missing value.
pub(super) const NONE: &str = "-";

/// A string, a list of strings, or any other value as JSON.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => NONE.to_owned(),
        Value::String(text) => escape::text(text).into_owned(),
        Value::Null => NONE.to_owned(),
        Value::Array(list) if list.is_empty() => NONE.to_owned(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        other => super::print::json_line(other),
    }
}

/// A number with commas between the thousands.
pub(super) fn number(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A count, with commas between the thousands.
pub(super) fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| NONE.to_owned(), number)
}

/// A duration, in its two largest units.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let coarse = match seconds {
        0 => return format!("{}ms", time.as_millis()),
        1..3_600 => seconds,
        3_600..86_400 => seconds - seconds % 60,
        _ => seconds - seconds % 3_600,
    };
    format_duration(Duration::from_secs(coarse)).to_string()
}

/// A point in time in whole seconds, and its distance from now.
pub(super) fn when(value: &Value, clock: &Clock) -> String {
    let Some(text) = value.as_str() else { return NONE.to_owned() };
    let Ok(at) = text.parse::<jiff::Timestamp>() else { return escape::text(text).into_owned() };
    let micros = at.as_microsecond() - i64::try_from(clock.now().0).unwrap_or(i64::MAX);
    let away = span(Duration::from_micros(micros.unsigned_abs()));
    let short = at.strftime("%Y-%m-%d %H:%M:%SZ");
    if micros > 0 { format!("{short} (in {away})") } else { format!("{short} ({away} ago)") }
}

/// The duration until a point in time; [`None`] if it has passed.
pub(super) fn until(value: &Value, clock: &Clock) -> Option<Duration> {
    let at = value.as_str()?.parse::<jiff::Timestamp>().ok()?;
    let micros = at.as_microsecond() - i64::try_from(clock.now().0).unwrap_or(i64::MAX);
    u64::try_from(micros).ok().map(Duration::from_micros)
}

/// The health of an endpoint: its state, and the cause if it is not healthy.
pub(super) fn health(health: &Value, clock: &Clock) -> String {
    match health["state"].as_str() {
        Some("suspended") => {
            format!("suspended for {}; next probe {}", text(&health["cause"]), when(&health["nextProbe"], clock))
        }
        Some("probing") => format!("probing, suspended for {}", text(&health["cause"])),
        Some("healthy") => match health["failures"].as_u64() {
            Some(failures) if failures > 0 => format!("healthy, the last {failures} requests failed"),
            Some(_) | None => "healthy".to_owned(),
        },
        Some(_) | None => NONE.to_owned(),
    }
}
