//! Parses times in flags: a point in time, a day, or a distance from now.

use jiff::{civil::Date, tz::TimeZone};

use super::value::{ValueError, read_duration};
use gridhook_clock::Clock;
use gridhook_event::parse_instant;

/// A time in the past: `1h` is an hour ago.
pub(super) fn parse_past(text: &str) -> Result<String, ValueError> {
    read(text, "an age", |now, span| now.checked_sub(span))
}

/// A time in the future: `7d` is a week from now.
pub(super) fn parse_future(text: &str) -> Result<String, ValueError> {
    read(text, "a duration from now", |now, span| {
        now.checked_add(span)
    })
}

/// The time in the form that the server reads, in UTC.
fn read(
    text: &str,
    relative: &'static str,
    from: impl Fn(jiff::Timestamp, jiff::SignedDuration) -> Result<jiff::Timestamp, jiff::Error>,
) -> Result<String, ValueError> {
    let refusal = ValueError::Time { relative };
    if let Some(at) = parse_instant(text) {
        return Ok(at.to_string());
    }
    // jiff would read a time without a zone as its day.
    if let Ok(day) = text
        .parse::<Date>()
        .map_err(drop)
        .and_then(|day| if text.contains(':') { Err(()) } else { Ok(day) })
    {
        return day
            .to_zoned(TimeZone::UTC)
            .map(|at| at.timestamp().to_string())
            .map_err(|_| refusal);
    }
    let now = i64::try_from(Clock::system().now().0)
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    let span = read_duration(text).and_then(|span| jiff::SignedDuration::try_from(span).ok());
    let (Some(now), Some(span)) = (now, span) else {
        return Err(refusal);
    };
    from(now, span)
        .map(|at| at.to_string())
        .map_err(|_| refusal)
}
