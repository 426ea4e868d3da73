//! Parsers of settings: each reads one kind of value, and its error is only the text of what is
//! allowed. `layers` adds the origin and the value.

use std::{
    fmt::Display,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use bytesize::ByteSize;
use humantime_serde::re::humantime;
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Deserializer, de::Error};
use toml::Table;

use crate::{BacklogFull, LogFormat, Secret, TlsVersion, TrustRoots, delivery::AutoSwitch};

pub(super) const SECOND: u64 = 1_000;
pub(super) const HOUR: u64 = 3_600 * SECOND;
pub(super) const DAY: u64 = 24 * HOUR;
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;

/// The TOML types that a parser accepts.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawValue {
    Flag(bool),
    Number(i64),
    Text(String),
    List(Vec<String>),
}

/// Parses a value with `read`.
fn value<'de, D, T>(
    from: D,
    expectation: impl Display,
    read: impl FnOnce(RawValue) -> Option<T>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    let raw = RawValue::deserialize(from).ok();
    raw.and_then(read)
        .ok_or_else(|| D::Error::custom(expectation))
}

/// Parses a string with `read`.
fn text<'de, D, T>(
    from: D,
    expectation: impl Display,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    value(from, expectation, |raw| match raw {
        RawValue::Text(text) => read(&text),
        RawValue::Flag(_) | RawValue::Number(_) | RawValue::List(_) => None,
    })
}

/// Parses a duration; the bounds are milliseconds.
pub(super) fn wait<'de, D, const MIN: u64, const MAX: u64>(from: D) -> Result<Duration, D::Error>
where
    D: Deserializer<'de>,
{
    let allowed = Duration::from_millis(MIN)..=Duration::from_millis(MAX);
    let min = humantime::format_duration(*allowed.start());
    let max = humantime::format_duration(*allowed.end());
    let expectation =
        format!("a duration from {min} to {max} with its unit, such as \"10s\" or \"5m\"");
    text(from, expectation, |text| {
        let duration = humantime::parse_duration(text).ok()?;
        allowed.contains(&duration).then_some(duration)
    })
}

/// Parses a size in bytes.
pub(super) fn size<'de, D, T, const MIN: u64, const MAX: u64>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let [min, max] = [MIN, MAX].map(ByteSize);
    let expectation = format!(
        "a size from {min} to {max}: a number of bytes, or one with its unit, such as \"64 KiB\""
    );
    value(from, expectation, |raw| {
        let bytes = size_of_value(raw).filter(|bytes| (MIN..=MAX).contains(bytes))?;
        T::try_from(bytes).ok()
    })
}

/// The bytes of a number, or of a text such as `64 KiB`.
fn size_of_value(raw: RawValue) -> Option<u64> {
    match raw {
        RawValue::Number(bytes) => u64::try_from(bytes).ok(),
        RawValue::Text(text) => ByteSize::from_str(&text).ok().map(|size| size.as_u64()),
        RawValue::Flag(_) | RawValue::List(_) => None,
    }
}

/// A whole number. Values of the environment are text.
fn number_of_value<T: TryFrom<i64> + FromStr>(raw: RawValue) -> Option<T> {
    match raw {
        RawValue::Number(number) => T::try_from(number).ok(),
        RawValue::Text(text) => text.parse().ok(),
        RawValue::Flag(_) | RawValue::List(_) => None,
    }
}

fn is_text(raw: &RawValue, expected: &str) -> bool {
    matches!(raw, RawValue::Text(text) if text == expected)
}

pub(super) fn count<'de, D, T, const MIN: u64, const MAX: u64>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let expectation = format!("a whole number from {MIN} to {MAX}");
    value(from, expectation, |raw| {
        let RawValue::Number(number) = raw else {
            return None;
        };
        let number = u64::try_from(number).ok()?;
        T::try_from(number)
            .ok()
            .filter(|_| (MIN..=MAX).contains(&number))
    })
}

/// The rates of an Azure topic: events and bytes a second.
const AZURE_EVENTS: u64 = 5_000;
const AZURE_BYTES: u64 = 5_000_000;

/// Declares parsers with the signature of `deserialize_with`.
macro_rules! readers {
    ($($(#[$comment:meta])* $name:ident($from:ident) -> $type:ty $body:block)*) => {
        $($(#[$comment])*
        pub(super) fn $name<'de, D: Deserializer<'de>>($from: D) -> Result<$type, D::Error> $body)*
    };
}

readers! {
    /// Parses a rate in events a second, or `azure`.
    event_rate(from) -> u64 {
        let expectation = format!(
            "a whole number from 0 to 1000000000, or \"azure\" for {AZURE_EVENTS}; 0 is no limit"
        );
        value(from, expectation, |raw| {
            if is_text(&raw, "azure") {
                return Some(AZURE_EVENTS);
            }
            number_of_value(raw).filter(|rate| *rate <= 1_000_000_000)
        })
    }

    /// Parses a rate in bytes a second, or `azure`.
    byte_rate(from) -> u64 {
        let max = ByteSize(TIB);
        let azure = ByteSize(AZURE_BYTES).display().si();
        let expectation =
            format!("a size from 0 B to {max}, or \"azure\" for {azure}; 0 is no limit");
        value(from, expectation, |raw| {
            if is_text(&raw, "azure") {
                return Some(AZURE_BYTES);
            }
            size_of_value(raw).filter(|rate| *rate <= TIB)
        })
    }

    /// Parses a share from 0 to 1.
    share(from) -> f64 {
        /// A value of the environment is text.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawNumber {
            Share(f64),
            Text(String),
        }
        let share = match RawNumber::deserialize(from).ok() {
            Some(RawNumber::Share(share)) => Some(share),
            Some(RawNumber::Text(text)) => text.parse().ok(),
            None => None,
        };
        share
            .filter(|share| (0.0..=1.0).contains(share))
            .ok_or_else(|| D::Error::custom("a number from 0 to 1, such as 0.1"))
    }

    /// Parses a number of failures; [`None`] for the edition's own.
    failures(from) -> Option<u32> {
        let expectation = "a whole number of 1 or more, or \"edition\"";
        value(from, expectation, |raw| {
            if is_text(&raw, "edition") {
                return Some(None);
            }
            number_of_value(raw)
                .filter(|failures| *failures > 0)
                .map(Some)
        })
    }

    flag(from) -> bool {
        value(from, "true or false", |raw| match raw {
            RawValue::Flag(flag) => Some(flag),
            RawValue::Number(_) | RawValue::Text(_) | RawValue::List(_) => None,
        })
    }

    /// Parses a boolean, or its text from the environment.
    flag_or_text(from) -> bool {
        value(from, "true or false", flag_of_value)
    }

    /// Parses a list of strings; from the environment, one string with commas.
    texts(from) -> Vec<String> {
        filled_items(from, "a list of non-empty strings")
    }

    /// Parses a possibly empty list of strings; from the environment, one string with commas.
    list(from) -> Vec<String> {
        items(from, ',', "a list of strings")
    }

    /// Parses a boolean or `auto`.
    switch(from) -> AutoSwitch<bool> {
        value(from, "true, false or \"auto\"", |raw| {
            if is_text(&raw, "auto") {
                return Some(AutoSwitch::Auto);
            }
            flag_of_value(raw).map(AutoSwitch::Set)
        })
    }

    /// Parses a list of networks or `auto`; from the environment, one string with commas.
    networks(from) -> AutoSwitch<Vec<IpNet>> {
        let expectation = "\"auto\" or a list of networks such as [\"10.0.0.0/8\", \"fd00::/8\"]";
        let list = filled_items(from, expectation)?;
        if list == ["auto"] {
            return Ok(AutoSwitch::Auto);
        }
        parse_items(list, expectation, parse_network).map(AutoSwitch::Set)
    }

    /// Parses a possibly empty list of networks; from the environment, one string with commas.
    network_list(from) -> Vec<IpNet> {
        let expectation = "a list of networks such as [\"10.0.0.0/8\", \"fd00::/8\"]";
        let list = items(from, ',', expectation)?;
        parse_items(list, expectation, parse_network)
    }

    /// Parses one audience or a list of them; from the environment, one string with commas.
    audiences(from) -> Vec<String> {
        let expectation = "an audience such as \"https://eventgrid.azure.net\", or a list of them";
        let list = filled_items(from, expectation)?;
        if list.is_empty() {
            return Err(D::Error::custom(expectation));
        }
        Ok(list)
    }

    /// Parses a possibly empty list of rules for claims; from the environment, one string with
    /// semicolons.
    grants(from) -> Vec<String> {
        let expectation = "a list of rules such as [\"roles=Shop publish topics/orders\"]";
        items(from, ';', expectation)
    }

    /// Parses a possibly empty list of names with the scopes of their users; from the environment,
    /// one string with semicolons.
    use_rules(from) -> Vec<String> {
        let expectation = "a list of rules such as [\"NAME topics/orders,domains/shop\"]";
        items(from, ';', expectation)
    }

    /// Parses a possibly empty list of hosts; from the environment, one string with commas. The
    /// hosts are normalised as in a URL.
    host_names(from) -> Vec<String> {
        let expectation =
            "a list of hosts without ports such as [\"gridhook\", \"*.events.example.com\"]";
        let list = items(from, ',', expectation)?;
        parse_items(list, expectation, parse_host_pattern)
    }

    /// Parses an address to listen on.
    address(from) -> SocketAddr {
        text(
            from,
            "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\"",
            |text| text.parse().ok(),
        )
    }

    /// Parses an address to listen on; [`None`] if it is empty.
    optional_address(from) -> Option<SocketAddr> {
        text(
            from,
            "an IP address and a port, such as \"127.0.0.1:8081\", or an empty string",
            |text| match text {
                "" => Some(None),
                text => text.parse().ok().map(Some),
            },
        )
    }

    /// Parses the format of the log.
    format(from) -> LogFormat {
        text(from, "\"text\" or \"json\"", |text| match text {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            _ => None,
        })
    }

    /// Parses the policy of a full backlog.
    backlog_full(from) -> BacklogFull {
        text(from, "\"refuse\" or \"expire\"", |text| match text {
            "refuse" => Some(BacklogFull::Refuse),
            "expire" => Some(BacklogFull::Expire),
            _ => None,
        })
    }

    /// Parses a token; [`None`] if it is empty.
    token(from) -> Option<Secret> {
        text(
            from,
            "16 to 256 visible ASCII characters",
            |text| match text.len() {
                0 => Some(None),
                16..=256 if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                    Some(Some(Secret::new(text)))
                }
                _ => None,
            },
        )
    }

    /// Parses a URL without query and fragment; [`None`] if it is empty.
    web(from) -> Option<url::Url> {
        text(
            from,
            "a URL such as \"https://events.example.com\", without query and fragment",
            |text| {
                if text.is_empty() {
                    return Some(None);
                }
                url::Url::parse(text).ok().filter(is_plain_url).map(Some)
            },
        )
    }

    /// Parses a filter of `tracing`.
    filter(from) -> String {
        text(
            from,
            "a level (error, warn, info, debug, trace), or a comma-separated list of MODULE=LEVEL",
            |text| {
                let filter = tracing_subscriber::EnvFilter::try_new(text);
                // `tracing` would take an unknown word as a module's name, and silence everything
                // else.
                let has_levels_only = text.split(',').all(|part| {
                    part.contains('=')
                        || part.parse::<tracing::level_filters::LevelFilter>().is_ok()
                });
                (has_levels_only && filter.is_ok()).then(|| text.to_owned())
            },
        )
    }

    /// Parses a version of TLS.
    tls_version(from) -> TlsVersion {
        text(from, "\"1.2\" or \"1.3\"", |text| match text {
            "1.2" => Some(TlsVersion::Tls12),
            "1.3" => Some(TlsVersion::Tls13),
            _ => None,
        })
    }

    /// Parses a list of name servers; from the environment, one string with commas.
    name_servers(from) -> Vec<SocketAddr> {
        let expectation = "\"system\" or a list of addresses, with or without a port, such as \
            [\"10.0.0.2\", \"[fd00::2]:5353\"]";
        let list = filled_items(from, expectation)?;
        if list.is_empty() {
            return Err(D::Error::custom(expectation));
        }
        if list == ["system"] {
            return Ok(Vec::new());
        }
        parse_items(list, expectation, parse_name_server)
    }

    roots(from) -> Vec<TrustRoots> {
        let expectation = "a list of \"system\" and paths of PEM files, not empty";
        let list = filled_items(from, expectation)?;
        if list.is_empty() {
            return Err(D::Error::custom(expectation));
        }
        let roots = list.into_iter().map(|text| match text.as_str() {
            "system" => TrustRoots::System,
            _ => TrustRoots::File(text.into()),
        });
        Ok(roots.collect())
    }
}

fn flag_of_value(raw: RawValue) -> Option<bool> {
    match raw {
        RawValue::Flag(flag) => Some(flag),
        RawValue::Text(text) => text.parse().ok(),
        RawValue::Number(_) | RawValue::List(_) => None,
    }
}

/// Parses a possibly empty list; from the environment, one string with separators.
fn items<'de, D: Deserializer<'de>>(
    from: D,
    separator: char,
    expectation: &str,
) -> Result<Vec<String>, D::Error> {
    value(from, expectation, |raw| match raw {
        RawValue::Text(text) => {
            let mut list = parse_list(&text, separator)?;
            list.retain(|item| !item.is_empty());
            Some(list)
        }
        RawValue::List(list) => Some(list),
        RawValue::Flag(_) | RawValue::Number(_) => None,
    })
}

/// Parses a list without empty strings; from the environment, one string with commas.
fn filled_items<'de, D: Deserializer<'de>>(
    from: D,
    expectation: &str,
) -> Result<Vec<String>, D::Error> {
    value(from, expectation, |raw| {
        let list = match raw {
            RawValue::Text(text) => parse_list(&text, ',')?,
            RawValue::List(list) => list,
            RawValue::Flag(_) | RawValue::Number(_) => return None,
        };
        let has_empty = list.iter().any(String::is_empty);
        (!has_empty).then_some(list)
    })
}

/// Parses the text of a list, which may also be written as in the settings file. Other text in
/// brackets, such as `[::1]:53`, is not written so.
fn parse_list(text: &str, separator: char) -> Option<Vec<String>> {
    if text.starts_with('[')
        && let Ok(mut table) = toml::from_str::<Table>(&format!("list = {text}"))
        && table.len() == 1
    {
        return table.remove("list")?.try_into().ok();
    }
    let parts = text.split(separator);
    Some(parts.map(|part| part.trim().to_owned()).collect())
}

/// Parses each item of a list.
fn parse_items<T, E: Error>(
    list: Vec<String>,
    expectation: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, E> {
    let parsed: Option<_> = list.iter().map(|item| parse(item)).collect();
    parsed.ok_or_else(|| E::custom(expectation))
}

/// A network; one of IPv4-mapped IPv6 addresses as the IPv4 network that it is, because peers with
/// these addresses count as IPv4.
fn parse_network(text: &str) -> Option<IpNet> {
    let net: IpNet = text.parse().ok()?;
    match (net.addr().to_canonical(), net.prefix_len()) {
        (IpAddr::V4(address), prefix @ 96..) => {
            Some(Ipv4Net::new_assert(address, prefix - 96).into())
        }
        _ => Some(net),
    }
}

/// A host, or all hosts below a domain.
fn parse_host_pattern(text: &str) -> Option<String> {
    let Some(parent) = text.strip_prefix("*.") else {
        return parse_host(text).map(|host| host.to_string());
    };
    match parse_host(parent)? {
        url::Host::Domain(parent) => Some(format!("*.{parent}")),
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => None,
    }
}

fn parse_host(text: &str) -> Option<url::Host> {
    if text.contains(['*', '%']) {
        return None;
    }
    url::Host::parse(text).ok()
}

/// Parses a path or name that must not be empty.
pub(super) fn filled<'de, D: Deserializer<'de>, T: From<String>>(from: D) -> Result<T, D::Error> {
    text(from, "a non-empty string", |text| {
        (!text.is_empty()).then(|| T::from(text.to_owned()))
    })
}

/// Parses a path or name; [`None`] if it is empty.
pub(super) fn optional<'de, D: Deserializer<'de>, T: From<String>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    text(from, "a string", |text| {
        Some((!text.is_empty()).then(|| T::from(text.to_owned())))
    })
}

/// Whether the URL has a host, and neither credentials nor a query or a fragment.
fn is_plain_url(url: &url::Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
}

/// The port of a name server that is given without one.
const DNS_PORT: u16 = 53;

/// Reads an address with or without a port.
fn parse_name_server(text: &str) -> Option<SocketAddr> {
    let with_port = text.parse().ok();
    let bare = || Some(SocketAddr::new(text.parse().ok()?, DNS_PORT));
    with_port.or_else(bare)
}
