//! The host that a request was sent to, and whether it is a name of this server.
//!
//! A client can send any `Host`. `X-Forwarded-Host`, `X-Forwarded-Proto` and `Forwarded` count only
//! from a trusted proxy. Each must be a host with an optional port; the server returns 400 for
//! anything else.
//!
//! Of several forwarded values the last counts: the nearest proxy wrote it, and a client may have
//! sent the others.

use std::{
    borrow::Cow,
    cell::RefCell,
    fmt,
    net::{IpAddr, SocketAddr},
};

use actix_web::{
    HttpMessage as _, HttpRequest,
    http::{
        Version,
        header::{FORWARDED, HOST},
    },
};
use ipnet::IpNet;
use url::{Host, Url};

use super::{forwarded, network};
use crate::Refusal;

const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The local side of a connection. The listener puts it into the connection's data.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress {
    /// The address that the client connected to.
    pub address: SocketAddr,
    /// Whether the connection uses TLS.
    pub secure: bool,
}

impl LocalAddress {
    /// The local side of a request's connection, or of its client's if another node forwarded it.
    pub fn from_request(request: &HttpRequest) -> Option<Self> {
        let address = request.extensions().get::<Self>().copied();
        address.or_else(|| request.conn_data::<Self>().copied())
    }
}

/// The scheme, host and port that a request was sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestAuthority {
    scheme: &'static str,
    host: Host,
    port: Option<u16>,
}

impl RequestAuthority {
    /// Reads the authority of the request; forwarded headers count if the peer is one of `proxies`.
    ///
    /// # Errors
    /// If a header that counts is not a host with an optional port, or `Host` is repeated.
    pub(super) fn from_request(request: &HttpRequest, proxies: &[IpNet]) -> Result<Self, Refusal> {
        let mut lines = request.headers().get_all(HOST);
        let line = lines.next();
        if lines.next().is_some() {
            return Err(Refusal::Host {
                problem: "There is more than one 'Host' header",
            });
        }
        let line = line.map(|line| {
            read(
                line.to_str().unwrap_or_default(),
                "The 'Host' header is not a host",
            )
        });
        let target = request.head().uri.authority();
        let target = target.map(|target| {
            read(
                target.as_str(),
                "The host in the request's target is not a host",
            )
        });
        let line = line.transpose()?;
        let target = target.transpose()?;
        let Forwarded { host, scheme } = Forwarded::from_request(request, proxies)?;
        let local = LocalAddress::from_request(request);
        // The target takes precedence over the header (RFC 9112, 3.2.2). HTTP/1.0 allows neither.
        let (host, port) = match host.or(target).or(line) {
            Some(called) => called,
            None => {
                let own = local.map_or_else(
                    || request.app_config().host().to_owned(),
                    |local| local.address.to_string(),
                );
                read(&own, "The server's own address is not a host")?
            }
        };
        Ok(Self {
            scheme: scheme.unwrap_or(if local.is_some_and(|local| local.secure) {
                "https"
            } else {
                "http"
            }),
            host,
            port,
        })
    }

    /// The first label of a host with several labels. A single label is a machine's name, not a
    /// topic's.
    pub fn first_label(&self) -> Option<&str> {
        match &self.host {
            Host::Domain(name) => name.split_once('.').map(|(label, _)| label),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    /// The authority as a URL without a path.
    pub(super) fn to_url(&self) -> Option<Url> {
        Url::parse(&self.url_of_path("")).ok()
    }

    /// The URL of a path at this authority.
    pub fn url_of_path(&self, path: &str) -> String {
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

/// Checks that a request of HTTP/1.1 has a `Host` (RFC 9112, 3.2).
pub(super) fn require_host(request: &HttpRequest) -> Result<(), Refusal> {
    if request.version() == Version::HTTP_11 && !request.headers().contains_key(HOST) {
        return Err(Refusal::Host {
            problem: "The 'Host' header is missing",
        });
    }
    Ok(())
}

/// The forwarding headers of a trusted proxy.
#[derive(Default)]
struct Forwarded {
    host: Option<HostAndPort>,
    scheme: Option<&'static str>,
}

impl Forwarded {
    fn from_request(request: &HttpRequest, proxies: &[IpNet]) -> Result<Self, Refusal> {
        let is_trusted = |peer: SocketAddr| network::is_in(proxies, peer.ip().to_canonical());
        if !request.peer_addr().is_some_and(is_trusted) {
            return Ok(Self::default());
        }
        const MALFORMED: &str = "The 'Forwarded' header is malformed";
        let line = last_line(request, FORWARDED.as_str());
        let elements = line
            .as_deref()
            .map(|line| forwarded::parse_elements(line).ok_or(MALFORMED))
            .transpose();
        let elements = elements.map_err(|problem| Refusal::Host { problem })?;
        let standard = elements
            .and_then(|mut elements| elements.pop())
            .unwrap_or_default();
        let last_pair = |name: &str| standard.iter().rfind(|pair| pair.0 == name);
        let last_value = |name: &str| last_pair(name).map(|(_, value)| value.clone());
        let host = match (last_value("host"), last_element(request, FORWARDED_HOST)) {
            (Some(host), _) => Some(read(
                &host,
                "The host in the 'Forwarded' header is not a host",
            )?),
            (None, Some(host)) => Some(read(&host, "The 'X-Forwarded-Host' header is not a host")?),
            (None, None) => None,
        };
        let scheme = last_value("proto").or_else(|| last_element(request, FORWARDED_PROTO));
        let scheme = scheme.map(|scheme| match scheme.to_ascii_lowercase().as_str() {
            "http" => Ok("http"),
            "https" => Ok("https"),
            _ => Err(Refusal::ForwardedScheme),
        });
        Ok(Self {
            host,
            scheme: scheme.transpose()?,
        })
    }
}

fn last_line<'r>(request: &'r HttpRequest, header: &str) -> Option<Cow<'r, str>> {
    let line = request.headers().get_all(header).last()?;
    Some(String::from_utf8_lossy(line.as_bytes()))
}

/// The last element of a header's list: what the nearest proxy appended.
fn last_element(request: &HttpRequest, header: &str) -> Option<String> {
    let line = last_line(request, header)?;
    let element = line.rsplit(',').next()?;
    Some(element.trim().to_owned())
}

type HostAndPort = (Host, Option<u16>);

thread_local! {
    /// The text that was last read, and its host and port: most requests of a thread have the same
    /// host.
    static LAST_READ: RefCell<(String, Option<HostAndPort>)> = const { RefCell::new((String::new(), None)) };
}

fn read(text: &str, problem: &'static str) -> Result<HostAndPort, Refusal> {
    let cached_host = LAST_READ.with_borrow(|(last, host)| (last == text).then(|| host.clone()));
    let host = cached_host.unwrap_or_else(|| {
        let host = parse_authority(text);
        LAST_READ.set((text.to_owned(), host.clone()));
        host
    });
    host.ok_or(Refusal::Host { problem })
}

/// Parses a host with an optional port; [`None`] for anything else.
fn parse_authority(text: &str) -> Option<HostAndPort> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        Some(_) | None => (text, ""),
    };
    let port = match port {
        "" => None,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
        _ => return None,
    };
    let is_plain = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let in_brackets = || {
        name.strip_prefix('[')
            .is_some_and(|name| name.ends_with(']'))
    };
    if !is_plain(name) && !in_brackets() {
        return None;
    }
    Some((
        Host::parse(name.strip_suffix('.').unwrap_or(name)).ok()?,
        port,
    ))
}

/// The first label of the host that a request was sent to, which may be the name of a topic, domain
/// or namespace.
pub fn label_of(request: &HttpRequest, proxies: &[IpNet]) -> Option<String> {
    RequestAuthority::from_request(request, proxies)
        .ok()?
        .first_label()
        .map(str::to_owned)
}

/// The configured names of the server.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    pub public_url: Option<Url>,
    /// Hosts besides that of `public_url`; a leading `*.` matches one label.
    pub others: Vec<String>,
}

impl ServerNames {
    /// Whether the host is a name of the server: loopback, the connection's local address, the
    /// public host or one label below it, or a further host.
    pub(super) fn contains_host(&self, called: &RequestAuthority, request: &HttpRequest) -> bool {
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

/// How a listener finds the URL by which a client reached it, for links in responses.
#[derive(Clone, Debug, Default)]
pub struct ReachedUrls {
    /// The proxies whose `Host`, `Forwarded` and `X-Forwarded-*` headers count.
    pub proxies: Vec<IpNet>,
    /// The names of the server, which every client may use.
    pub names: ServerNames,
}

impl ReachedUrls {
    /// The URL without a path. What a client sends counts only if it is a name of the server, or if
    /// a trusted proxy sends it. Otherwise it is the address of the connection; [`None`] without a
    /// connection.
    pub fn reached_url(&self, request: &HttpRequest) -> Option<String> {
        let authority = RequestAuthority::from_request(request, &self.proxies).ok();
        let is_by_proxy = request
            .peer_addr()
            .is_some_and(|peer| network::is_in(&self.proxies, peer.ip().to_canonical()));
        if let Some(authority) =
            authority.filter(|of| is_by_proxy || self.names.contains_host(of, request))
        {
            return Some(authority.url_of_path(""));
        }
        let LocalAddress { address, secure } = LocalAddress::from_request(request)?;
        Some(format!(
            "{}://{address}",
            if secure { "https" } else { "http" }
        ))
    }
}

/// Whether the address is the connection's local address, loopback, or the address that stands for
/// all of a machine: the endpoints of a server that listens there have it.
fn is_own(address: IpAddr, request: &HttpRequest) -> bool {
    let address = address.to_canonical();
    let local = LocalAddress::from_request(request).map(|local| local.address.ip().to_canonical());
    address.is_loopback() || address.is_unspecified() || local == Some(address)
}
