//! `eventTimeToLive`: a duration in ISO 8601, of whole minutes.

use jiff::{Span, SpanRelativeTo};

use crate::admin::model::InvalidRequest;

/// The minutes of the `eventTimeToLive` at `at`.
pub(super) fn minutes(at: &str, given: &str) -> Result<i64, InvalidRequest> {
    let refused = |problem: &str| {
        let given = given.escape_debug();
        Err(InvalidRequest::new(
            at,
            format!("is \"{given}\"; allowed is a duration {problem}, such as P1D, PT12H or PT30M"),
        ))
    };
    // jiff also accepts durations in words.
    let span = given.parse::<Span>().ok().filter(|_| given.starts_with(['P', 'p']));
    let Some(span) = span else { return refused("in ISO 8601") };
    if span.get_years() != 0 || span.get_months() != 0 {
        return refused("without years and months, whose length varies");
    }
    match span.to_duration(SpanRelativeTo::days_are_24_hours()) {
        Ok(length) if length.as_secs() % 60 == 0 && length.subsec_nanos() == 0 => Ok(length.as_secs() / 60),
        Ok(_) => refused("of whole minutes"),
        Err(_) => refused("in ISO 8601"),
    }
}

/// Minutes in ISO 8601, such as `P1DT2H30M`.
pub(super) fn iso(minutes: u32) -> String {
    let (days, hours, minutes) = (minutes / (24 * 60), minutes / 60 % 24, minutes % 60);
    let part = |count: u32, unit: char| if count == 0 { String::new() } else { format!("{count}{unit}") };
    let time = part(hours, 'H') + &part(minutes, 'M');
    let time = if time.is_empty() { time } else { format!("T{time}") };
    format!("P{}{time}", part(days, 'D'))
}
