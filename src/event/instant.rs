//! Points in time as clients write them.
//!
//! jiff's points in time end at 9999-12-30T22:00Z, so that every offset of it has a date. Clients
//! write later ones: .NET's `DateTimeOffset.MaxValue` stands for "never". They are read as the last
//! point that jiff has.

use jiff::{
    Timestamp,
    civil::{DateTime, Time},
    fmt::temporal::{DateTimeParser, PiecesOffset},
    tz::Offset,
};

/// The last year that a date can have.
const LAST_YEAR: i16 = 9999;

/// Offsets of a day and more, which jiff reads, are in no standard.
const DAY_SECONDS: i32 = 24 * 60 * 60;

/// Parses a date and time with an offset.
pub fn parse_instant(text: &str) -> Option<Timestamp> {
    let (civil, offset) = parse_parts(text)?;
    instant_at(civil?, offset?)
}

/// As [`parse_instant`]; a text without an offset is in UTC.
pub fn parse_instant_or_utc(text: &str) -> Option<Timestamp> {
    let (civil, offset) = parse_parts(text)?;
    instant_at(civil?, offset.unwrap_or(Offset::UTC))
}

/// The point in time of a date and time at an offset.
pub fn instant_at(civil: DateTime, offset: Offset) -> Option<Timestamp> {
    if offset.seconds().abs() >= DAY_SECONDS {
        return None;
    }
    offset
        .to_timestamp(civil)
        .ok()
        .or_else(|| (civil.year() == LAST_YEAR).then_some(Timestamp::MAX))
}

/// A date and time without an offset.
pub(super) fn parse_civil(text: &str) -> Option<DateTime> {
    match parse_parts(text)? {
        (civil, None) => civil,
        (_, Some(_)) => None,
    }
}

/// The date and time, and the offset. Names of time zones in brackets are refused.
fn parse_parts(text: &str) -> Option<(Option<DateTime>, Option<Offset>)> {
    let pieces = DateTimeParser::new()
        .parse_pieces(text)
        .ok()
        .filter(|_| !text.contains('['))?;
    let offset = pieces.offset().map(|offset| match offset {
        PiecesOffset::Numeric(numeric) => numeric.offset(),
        _ => Offset::UTC,
    });
    let civil = match (pieces.time(), offset) {
        (None, Some(_)) => None,
        (time, _) => Some(DateTime::from_parts(
            pieces.date(),
            time.unwrap_or(Time::midnight()),
        )),
    };
    Some((civil, offset))
}
