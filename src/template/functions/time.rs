//! Functions of dates and times, in UTC.

use jiff::{
    Span, Timestamp,
    civil::DateTime,
    tz::{Offset, TimeZone},
};
use serde_json::Value;

use super::{Arguments, Evaluated, Function, eager_function, scoped_function};
use crate::EvaluationError;

pub(super) const FUNCTIONS: &[Function] = &[
    eager_function("dateTimeAdd", 2..=3, add),
    eager_function("dateTimeFromEpoch", 1..=1, from_epoch),
    eager_function("dateTimeToEpoch", 1..=1, |args| {
        Ok(time_argument(args, 0)?.as_second().into())
    }),
    scoped_function("utcNow", 0..=1, |scope, args| {
        format_time(args, scope.shared.context.now, 0, "yyyyMMddTHHmmssZ")
    }),
];

fn time_argument(args: &Arguments<'_>, index: usize) -> Result<Timestamp, EvaluationError> {
    let text = args.text_argument(index)?;
    let instant = text.parse().ok().or_else(|| {
        let civil = parse_civil(text)?;
        Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp())
    });
    instant
        .ok_or_else(|| args.wrong_argument(index, "a date and time such as 2030-01-31T12:00:00Z"))
}

/// A time in UTC in a form that [`Timestamp`] does not read: without an offset, as `utcNow` returns
/// it (`20300131T120000Z`), or with a space and a `Z` (`2030-01-31 12:00:00Z`).
fn parse_civil(text: &str) -> Option<DateTime> {
    let basic_form = || DateTime::strptime("%Y%m%dT%H%M%SZ", text).ok();
    let with_space = || text.strip_suffix('Z')?.parse().ok();
    text.parse().ok().or_else(basic_form).or_else(with_space)
}

fn add(args: &Arguments<'_>) -> Evaluated {
    let span: Span = args
        .text_argument(1)?
        .parse()
        .map_err(|_| args.wrong_argument(1, "a duration such as P1DT2H"))?;
    let zoned = time_argument(args, 0)?
        .to_zoned(TimeZone::UTC)
        .checked_add(span);
    let sum = zoned
        .map_err(|_| args.invalid_call("the result is outside of the calendar"))?
        .timestamp();
    format_time(args, sum, 2, "yyyy-MM-ddTHH:mm:ssZ")
}

fn from_epoch(args: &Arguments<'_>) -> Evaluated {
    let at = Timestamp::from_second(args.integer_argument(0)?)
        .map_err(|_| args.invalid_call("the number is outside of the calendar"))?;
    Ok(render_pattern(at, "yyyy-MM-ddTHH:mm:ssZ")
        .map_err(|problem| args.invalid_call(problem))?
        .into())
}

fn format_time(args: &Arguments<'_>, at: Timestamp, index: usize, default: &str) -> Evaluated {
    let pattern = if args.len() > index && !args.value_argument(index)?.is_null() {
        args.text_argument(index)?
    } else {
        default
    };
    Ok(Value::String(
        render_pattern(at, pattern).map_err(|problem| args.invalid_call(problem))?,
    ))
}

/// Formats of .NET that are one letter, and their patterns.
const STANDARD: [(&str, &str); 8] = [
    ("d", "M/d/yyyy"),
    ("D", "dddd, MMMM d, yyyy"),
    ("o", "yyyy-MM-ddTHH:mm:ss.fffffffZ"),
    ("O", "yyyy-MM-ddTHH:mm:ss.fffffffZ"),
    ("s", "yyyy-MM-ddTHH:mm:ss"),
    ("u", "yyyy-MM-dd HH:mm:ssZ"),
    ("R", "ddd, dd MMM yyyy HH:mm:ss 'GMT'"),
    ("r", "ddd, dd MMM yyyy HH:mm:ss 'GMT'"),
];

/// The letters of patterns with their forms in strftime.
const LETTERS: [(&str, &str); 21] = [
    ("yyyy", "%Y"),
    ("yy", "%y"),
    ("MMMM", "%B"),
    ("MMM", "%b"),
    ("MM", "%m"),
    ("M", "%-m"),
    ("dddd", "%A"),
    ("ddd", "%a"),
    ("dd", "%d"),
    ("d", "%-d"),
    ("HH", "%H"),
    ("H", "%-H"),
    ("hh", "%I"),
    ("h", "%-I"),
    ("mm", "%M"),
    ("m", "%-M"),
    ("ss", "%S"),
    ("s", "%-S"),
    ("tt", "%p"),
    ("zzz", "+00:00"),
    ("K", "Z"),
];

/// Letters without a meaning in a pattern: they stay as they are.
const PLAIN_LETTERS: &str = "TZGU";

/// Maximum characters of a pattern.
const PATTERN_CHARS_MAX: usize = 200;

/// The time in a format of .NET.
fn render_pattern(at: Timestamp, pattern: &str) -> Result<String, String> {
    let standard = STANDARD.iter().find(|(letter, _)| *letter == pattern);
    let pattern = match standard {
        Some((_, pattern)) => pattern,
        // .NET reads a single letter as the name of a pattern.
        None if pattern.len() == 1 => {
            return Err(format!(
                "the format '{pattern}' is not supported; expected one of {}, or a pattern of \
                 several characters",
                STANDARD.map(|(letter, _)| letter).join(", ")
            ));
        }
        None => pattern,
    };
    if pattern.chars().count() > PATTERN_CHARS_MAX {
        return Err(format!(
            "the format has more than {PATTERN_CHARS_MAX} characters"
        ));
    }
    let at = Offset::UTC.to_datetime(at);
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let run = rest.len() - rest.trim_start_matches(c).len();
        let (letters, behind) = rest.split_at(run);
        rest = behind;
        match LETTERS.iter().find(|(known, _)| *known == letters) {
            Some((_, form)) if form.starts_with('%') => {
                text.push_str(&at.strftime(form).to_string())
            }
            Some((_, fixed)) => text.push_str(fixed),
            None if c == 'f' && run <= 7 => {
                text.push_str(&format!("{:09}", at.subsec_nanosecond())[..run])
            }
            None if c == '\'' && run == 1 => {
                let (literal, behind) = rest
                    .split_once('\'')
                    .ok_or("a quote of the format has no partner")?;
                text.push_str(literal);
                rest = behind;
            }
            None if c.is_ascii_alphabetic() && !PLAIN_LETTERS.contains(c) => {
                return Err(format!(
                    "'{letters}' is not supported in a format; expected one of {}",
                    letters_allowed()
                ));
            }
            None => text.push_str(letters),
        }
    }
    Ok(text)
}

fn letters_allowed() -> String {
    LETTERS.map(|(letters, _)| letters).join(", ")
}
