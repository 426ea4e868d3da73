//! Which host a request was sent to, and whether the server has that name.
//!
//! A client writes `Host` as it likes. `X-Forwarded-Host`, `X-Forwarded-Proto` and `Forwarded` count only where a trusted
//! proxy sent them. Each is read as a host with or without a port; anything else in it is answered with 400.
//!
//! Of several forwarded values the last counts: the nearest proxy wrote it, and a client may have sent the others.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use actix_web::{
    HttpRequest,
    http::{
        Version,
        header::{FORWARDED, HOST},
    },
};
use ipnet::IpNet;
use url::{Host, Url};

use super::network;
use crate::publish::Refusal;

const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The address of this end of a connection. The listener puts it into the connection's data.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress(pub SocketAddr);

/// The scheme, the host and the port that a request was sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestAuthority {
    scheme: &'static str,
    host: Host,
    port: Option<u16>,
}

impl RequestAuthority {
    /// Reads it from the request; forwarded headers count where the peer is one of `proxies`.
    ///
    /// # Errors
    /// Where a header that counts is not a host with or without a port, or `Host` is there twice.
    pub(super) fn of(request: &HttpRequest, proxies: &[IpNet]) -> Result<Self, Refusal> {
        let mut lines = request.headers().get_all(HOST);
        let line = lines.next();
        if lines.next().is_some() {
            return Err(Refusal::Host { problem: "There is more than one 'Host' header" });
        }
        let line = line.map(|line| read(line.to_str().unwrap_or_default(), "The 'Host' header is not a host"));
        let target = request.head().uri.authority();
        let target = target.map(|target| read(target.as_str(), "The host in the request's target is not a host"));
        let (line, target) = (line.transpose()?, target.transpose()?);
        let Forwarded { host, scheme } = Forwarded::of(request, proxies)?;
        let config = request.app_config();
        // The target goes before the header (RFC 9112, 3.2.2). HTTP/1.0 may come without either.
        let (host, port) = match host.or(target).or(line) {
            Some(called) => called,
            None => read(config.host(), "The server has no address")?,
        };
        Ok(Self { scheme: scheme.unwrap_or(if config.secure() { "https" } else { "http" }), host, port })
    }

    /// The first of the host's labels, where there are others behind it: a name alone is a machine's, not a topic's.
    pub(in crate::publish) fn label(&self) -> Option<&str> {
        match &self.host {
            Host::Domain(name) => name.split_once('.').map(|(label, _)| label),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    /// The same as a URL without a path.
    pub(super) fn url(&self) -> Option<Url> {
        Url::parse(&self.at("")).ok()
    }

    /// A path there, as text.
    pub(in crate::publish) fn at(&self, path: &str) -> String {
        format!("{}://{self}{path}", self.scheme)
    }
}

impl fmt::Display for RequestAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => write!(f, "{}", self.host),
        }
    }
}

/// A request of HTTP/1.1 has a `Host` (RFC 9112, 3.2).
pub(super) fn require(request: &HttpRequest) -> Result<(), Refusal> {
    if request.version() == Version::HTTP_11 && !request.headers().contains_key(HOST) {
        return Err(Refusal::Host { problem: "The 'Host' header is missing" });
    }
    Ok(())
}

/// What a trusted proxy says of the request that it passes on.
#[derive(Default)]
struct Forwarded {
    host: Option<(Host, Option<u16>)>,
    scheme: Option<&'static str>,
}

impl Forwarded {
    fn of(request: &HttpRequest, proxies: &[IpNet]) -> Result<Self, Refusal> {
        let is_trusted = |peer: SocketAddr| network::is_in(proxies, peer.ip().to_canonical());
        if !request.peer_addr().is_some_and(is_trusted) {
            return Ok(Self::default());
        }
        let last = |name: &str| {
            let line = request.headers().get_all(name).last();
            line.map(|line| String::from_utf8_lossy(line.as_bytes()))
        };
        let line = last(FORWARDED.as_str());
        let standard = line.as_deref().and_then(|line| parts(line, ',').pop()).unwrap_or_default();
        let of_standard = |wanted: &str| {
            let pairs = parts(standard, ';').into_iter().filter_map(|pair| pair.split_once('='));
            pairs
                .filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted))
                .map(|(_, value)| unquoted(value))
                .next_back()
        };
        let of_others =
            |name: &str| last(name).and_then(|line| line.rsplit(',').next().map(|text| text.trim().to_owned()));
        let host = match (of_standard("host"), of_others(FORWARDED_HOST)) {
            (Some(host), _) => Some(read(&host, "The host in the 'Forwarded' header is not a host")?),
            (None, Some(host)) => Some(read(&host, "The 'X-Forwarded-Host' header is not a host")?),
            (None, None) => None,
        };
        let scheme = of_standard("proto").or_else(|| of_others(FORWARDED_PROTO));
        let scheme = scheme.map(|scheme| match scheme.to_ascii_lowercase().as_str() {
            "http" => Ok("http"),
            "https" => Ok("https"),
            _ => Err(Refusal::ForwardedScheme),
        });
        Ok(Self { host, scheme: scheme.transpose()? })
    }
}

/// The parts of `text` between separators that are in no quotes.
fn parts(text: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let separates = |c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = quoted,
            '"' => quoted = !quoted,
            _ => return c == separator && !quoted,
        }
        false
    };
    text.split(separates).collect()
}

/// A token, or a quoted string without its quotes and escapes.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
        Some(inside) => {
            let mut escaped = false;
            let is_kept = |c: &char| {
                escaped = *c == '\\' && !escaped;
                !escaped
            };
            inside.chars().filter(is_kept).collect()
        }
        None => value.to_owned(),
    }
}

fn read(text: &str, problem: &'static str) -> Result<(Host, Option<u16>), Refusal> {
    authority(text).ok_or(Refusal::Host { problem })
}

/// A host with or without a port. [`None`]: there is something else in it.
fn authority(text: &str) -> Option<(Host, Option<u16>)> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        Some(_) | None => (text, ""),
    };
    let port = match port {
        "" => None,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
        _ => return None,
    };
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let in_brackets = || name.strip_prefix('[').is_some_and(|name| name.ends_with(']'));
    if !is_plain(name) && !in_brackets() {
        return None;
    }
    Some((Host::parse(name.strip_suffix('.').unwrap_or(name)).ok()?, port))
}

/// The names of the server that the operator has set up.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// The server's own address, as publishers see it.
    pub public_url: Option<Url>,
    /// Further hosts; `*.` in front stands for one label.
    pub others: Vec<String>,
}

impl ServerNames {
    /// Whether the server has that name: loopback, the connection's own address, the host of the public address or one
    /// label before it, or one of the others.
    pub(super) fn have(&self, called: &RequestAuthority, request: &HttpRequest) -> bool {
        let name = called.host.to_string();
        let public = self.public_url.as_ref().and_then(Url::host_str);
        if public.is_some_and(|public| public == name) || self.others.contains(&name) {
            return true;
        }
        match &called.host {
            Host::Domain(_) => {
                let (_, parent) = name.split_once('.').unwrap_or_default();
                let is_below = |pattern: &String| pattern.strip_prefix("*.") == Some(parent);
                name == "localhost"
                    || parent == "localhost"
                    || public.is_some_and(|public| public == parent)
                    || self.others.iter().any(is_below)
            }
            Host::Ipv4(address) => is_own((*address).into(), request),
            Host::Ipv6(address) => is_own((*address).into(), request),
        }
    }
}

/// Whether the connection came in at that address, or nobody but this machine can reach it.
fn is_own(address: IpAddr, request: &HttpRequest) -> bool {
    let address = address.to_canonical();
    let local = request.conn_data::<LocalAddress>().map_or(request.app_config().local_addr(), |local| local.0);
    address.is_loopback() || address == local.ip().to_canonical()
}
