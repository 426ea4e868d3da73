//! Parsers of the values of flags. Each error says what is allowed.

use std::{
    net::SocketAddr,
    ops::{Bound, RangeBounds, RangeInclusive},
    time::Duration,
};

use bytesize::ByteSize;
use humantime_serde::re::humantime;

use super::client::DEFAULT_SERVER;
use gridhook_api::token::TokenRole;

/// An invalid value of a flag: the text says what the flag allows. clap writes the flag and its
/// value before it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ValueError {
    #[error("expected a whole number from {0} to {1}")]
    WholeNumber(u64, u64),
    #[error("expected a whole number of {0} or more")]
    WholeNumberMin(u64),
    #[error("expected a number from {0} to {1}")]
    Number(f64, f64),
    #[error("expected a number above 0, such as 50 or 0.5")]
    Rate,
    #[error("expected a duration such as 500ms, 30s, 90m or PT90M")]
    Duration,
    #[error("expected a duration above 0s, such as 500ms or 30s")]
    PositiveDuration,
    #[error("expected a duration from 500ms to 30s")]
    Interval,
    #[error("expected off or a duration in whole seconds, such as 10m or PT10M")]
    DuplicateWindow,
    #[error("expected whole seconds, such as 60s or 5m")]
    Seconds,
    #[error("expected whole minutes, such as 90m or 24h")]
    Minutes,
    #[error(
        "expected a time such as 2026-01-31T12:00:00Z, a day such as 2026-01-31, or {relative} \
         such as 90m or 7d"
    )]
    Time { relative: &'static str },
    #[error("expected a step such as 1h or -1h")]
    ClockStep,
    #[error("expected an IP address and a port, such as 127.0.0.1:9090 or [::1]:9090")]
    Address,
    #[error("expected a size of 1 B or more, such as 512 KiB or 1 MiB")]
    Size,
    #[error("expected NAME=VALUE")]
    Pair,
    #[error("expected a status from 200 to 599")]
    Status,
    #[error("expected one of {}", TokenRole::ALL.map(TokenRole::name).join(", "))]
    Role,
    #[error("expected a URL that begins with http:// or https://, such as {example}")]
    ServerUrl { example: String },
    #[error(
        "expected a URL that begins with http:// or https://, such as {DEFAULT_SERVER}, without \
         user, query or fragment"
    )]
    ServerUrlParts,
    #[error("expected a full URL, such as https://example.com/topics/orders/api/events")]
    PublishUrl,
    #[error(
        "expected NAME (a topic), domains/NAME, domains/NAME/topics/NAME, the same with \
         namespaces/, or a full resource id that begins with /subscriptions/"
    )]
    ResourceName,
}

/// A whole number within `range`.
pub(super) fn whole_number<T: TryFrom<u64>>(
    range: impl RangeBounds<u64>,
) -> impl Fn(&str) -> Result<T, ValueError> + Clone + Send + Sync + 'static {
    let start = range.start_bound().cloned();
    let end = range.end_bound().cloned();
    move |text| {
        let number = text
            .parse::<u64>()
            .ok()
            .filter(|number| (start, end).contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or(match (start, end) {
                (Bound::Included(start), Bound::Included(end)) => {
                    ValueError::WholeNumber(start, end)
                }
                (Bound::Included(start), _) => ValueError::WholeNumberMin(start),
                (_, _) => ValueError::WholeNumberMin(0),
            })
    }
}

/// A number within `range`, also a fraction.
pub(super) fn number_within(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, ValueError> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text
            .parse::<f64>()
            .ok()
            .filter(|number| range.contains(number));
        number.ok_or(ValueError::Number(*range.start(), *range.end()))
    }
}

/// Parses events per second: a number above zero.
pub(super) fn parse_rate(text: &str) -> Result<f64, ValueError> {
    let rate = text
        .parse::<f64>()
        .ok()
        .filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or(ValueError::Rate)
}

/// Parses a duration with a unit, or in ISO 8601.
pub(super) fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    read_duration(text).ok_or(ValueError::Duration)
}

pub(super) fn positive_duration(text: &str) -> Result<Duration, ValueError> {
    let duration = read_duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or(ValueError::PositiveDuration)
}

/// Parses whole seconds, for what the control plane counts in seconds.
pub(super) fn parse_seconds(text: &str) -> Result<u64, ValueError> {
    let duration = read_duration(text).filter(|duration| duration.subsec_nanos() == 0);
    duration
        .map(|duration| duration.as_secs())
        .ok_or(ValueError::Seconds)
}

/// Minutes, for what Event Grid counts in minutes.
pub(super) fn parse_minutes(text: &str) -> Result<u64, ValueError> {
    let seconds = parse_seconds(text)
        .ok()
        .filter(|seconds| seconds.is_multiple_of(60));
    seconds
        .map(|seconds| seconds / 60)
        .ok_or(ValueError::Minutes)
}

/// Reads a duration as `90m` or as `PT90M`.
pub(super) fn read_duration(text: &str) -> Option<Duration> {
    if !text.starts_with(['P', 'p']) {
        return humantime::parse_duration(text).ok();
    }
    let span = text.parse::<jiff::Span>().ok()?;
    Duration::try_from(
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours())
            .ok()?,
    )
    .ok()
}

/// An address to listen on.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, ValueError> {
    text.parse().map_err(|_| ValueError::Address)
}

/// A number of bytes above zero.
pub(super) fn positive_size(text: &str) -> Result<ByteSize, ValueError> {
    let parse_size = text
        .parse::<ByteSize>()
        .ok()
        .filter(|size| size.as_u64() > 0);
    parse_size.ok_or(ValueError::Size)
}
