//! Durations in ISO 8601.

use jiff::{Span, SpanRelativeTo};

use super::InvalidRequest;

/// The bounds of `duplicateDetectionHistoryTimeWindow` in seconds, as in Service Bus: 20 seconds to
/// 7 days.
const WINDOW: std::ops::RangeInclusive<i64> = 20..=7 * 24 * 60 * 60;

/// The minutes of the `eventTimeToLive` at `at`.
pub(super) fn minutes(at: &str, given: &str) -> Result<i64, InvalidRequest> {
    let examples = "P1D, PT12H or PT30M";
    match seconds(at, given, examples)? {
        seconds if seconds % 60 == 0 => Ok(seconds / 60),
        _ => Err(refused(at, given, "of whole minutes", examples)),
    }
}

/// The seconds of `duplicateDetectionHistoryTimeWindow`.
pub(super) fn duplicate_window(given: &str) -> Result<u32, InvalidRequest> {
    let (at, examples) = (
        "properties.duplicateDetectionHistoryTimeWindow",
        "PT10M, PT12H or P1D",
    );
    let window = seconds(at, given, examples)?;
    u32::try_from(window)
        .ok()
        .filter(|_| WINDOW.contains(&window))
        .ok_or_else(|| refused(at, given, "from PT20S to P7D", examples))
}

fn seconds(at: &str, given: &str, examples: &str) -> Result<i64, InvalidRequest> {
    let refused = |problem: &str| Err(refused(at, given, problem, examples));
    // jiff also accepts durations in words.
    let span = given
        .parse::<Span>()
        .ok()
        .filter(|_| given.starts_with(['P', 'p']));
    let Some(span) = span else {
        return refused("in ISO 8601");
    };
    if span.get_years() != 0 || span.get_months() != 0 {
        return refused("without years and months, whose length varies");
    }
    match span.to_duration(SpanRelativeTo::days_are_24_hours()) {
        Ok(length) if length.subsec_nanos() == 0 => Ok(length.as_secs()),
        Ok(_) => refused("of whole seconds"),
        Err(_) => refused("in ISO 8601"),
    }
}

fn refused(at: &str, given: &str, problem: &str, examples: &str) -> InvalidRequest {
    let given = given.escape_debug();
    InvalidRequest::new(
        at,
        format!("is \"{given}\"; allowed is a duration {problem}, such as {examples}"),
    )
}

/// Seconds in ISO 8601, such as `P1DT2H30M`.
pub(super) fn iso(seconds: u32) -> String {
    let (days, hours, minutes) = (
        seconds / (24 * 60 * 60),
        seconds / (60 * 60) % 24,
        seconds / 60 % 60,
    );
    let part = |count: u32, unit: char| {
        if count == 0 {
            String::new()
        } else {
            format!("{count}{unit}")
        }
    };
    let time = part(hours, 'H') + &part(minutes, 'M') + &part(seconds % 60, 'S');
    let time = if time.is_empty() {
        time
    } else {
        format!("T{time}")
    };
    format!("P{}{time}", part(days, 'D'))
}
