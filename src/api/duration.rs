//! Durations in ISO 8601, as Azure writes them in properties.

use jiff::{Span, SpanRelativeTo};
use thiserror::Error;

/// A text that is not an allowed duration, and why.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct InvalidDuration(pub String);

impl InvalidDuration {
    /// The error of `given`; `problem` says which durations are allowed.
    pub fn new(given: &str, problem: &str, examples: &str) -> Self {
        let given = given.escape_debug();
        Self(format!(
            "is \"{given}\"; expected a duration {problem}, such as {examples}"
        ))
    }
}

/// Parses a duration of whole minutes.
///
/// # Errors
/// The text is not one.
pub fn parse_minutes(given: &str) -> Result<i64, InvalidDuration> {
    let examples = "P1D, PT12H or PT30M";
    match parse_seconds(given, examples)? {
        seconds if seconds % 60 == 0 => Ok(seconds / 60),
        _ => Err(InvalidDuration::new(given, "of whole minutes", examples)),
    }
}

/// Parses a duration of whole seconds.
///
/// # Errors
/// The text is not one. The error has `examples`.
pub fn parse_seconds(given: &str, examples: &str) -> Result<i64, InvalidDuration> {
    let refused = |problem: &str| Err(InvalidDuration::new(given, problem, examples));
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

/// Formats seconds in ISO 8601, such as `P1DT2H30M`.
pub fn format_duration(seconds: u32) -> String {
    let days = seconds / (24 * 60 * 60);
    let hours = seconds / (60 * 60) % 24;
    let minutes = seconds / 60 % 60;
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
