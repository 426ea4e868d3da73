//! Parsers of the values of flags. Each error says what is allowed.

use std::{
    net::SocketAddr,
    ops::{Bound, RangeBounds, RangeInclusive},
    time::Duration,
};

use bytesize::ByteSize;
use humantime_serde::re::humantime;

/// A whole number within `range`.
pub(super) fn whole_number<T: TryFrom<u64>>(
    range: impl RangeBounds<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    let start = range.start_bound().cloned();
    let end = range.end_bound().cloned();
    move |text| {
        let number = text
            .parse::<u64>()
            .ok()
            .filter(|number| (start, end).contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| match (start, end) {
                (Bound::Included(start), Bound::Included(end)) => {
                    format!("allowed is a whole number from {start} to {end}")
                }
                (Bound::Included(start), _) => {
                    format!("allowed is a whole number of {start} or more")
                }
                (_, _) => "allowed is a whole number of 0 or more".to_owned(),
            })
    }
}

/// A number within `range`, also a fraction.
pub(super) fn number_within(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text
            .parse::<f64>()
            .ok()
            .filter(|number| range.contains(number));
        number.ok_or_else(|| {
            format!(
                "allowed is a number from {} to {}",
                range.start(),
                range.end()
            )
        })
    }
}

/// Events per second.
pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse::<f64>()
        .ok()
        .filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "allowed is a number above 0, such as 50 or 0.5".to_owned())
}

/// A duration with a unit, or in ISO 8601.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    read_duration(text)
        .ok_or_else(|| "allowed is a duration such as 500ms, 30s, 90m or PT90M".to_owned())
}

/// A duration above zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = read_duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "allowed is a duration above 0s, such as 500ms or 30s".to_owned())
}

/// Seconds, for what the control plane counts in seconds.
pub(super) fn parse_seconds(text: &str) -> Result<u64, String> {
    let duration = read_duration(text).filter(|duration| duration.subsec_nanos() == 0);
    duration
        .map(|duration| duration.as_secs())
        .ok_or_else(|| "allowed are whole seconds, such as 60s or 5m".to_owned())
}

/// Minutes, for what Event Grid counts in minutes.
pub(super) fn parse_minutes(text: &str) -> Result<u64, String> {
    let seconds = parse_seconds(text)
        .ok()
        .filter(|seconds| seconds.is_multiple_of(60));
    seconds
        .map(|seconds| seconds / 60)
        .ok_or_else(|| "allowed are whole minutes, such as 90m or 24h".to_owned())
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
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "allowed is an IP address and a port, such as 127.0.0.1:9090 or [::1]:9090".to_owned()
    })
}

/// A number of bytes above zero.
pub(super) fn positive_size(text: &str) -> Result<ByteSize, String> {
    let parse_size = text
        .parse::<ByteSize>()
        .ok()
        .filter(|size| size.as_u64() > 0);
    parse_size
        .ok_or_else(|| "allowed is a size of 1 B or more, such as 512 KiB or 1 MiB".to_owned())
}
