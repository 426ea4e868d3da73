//! Which addresses may be called.
//!
//! Anyone who may create a subscription can make this server call an address of their choice
//! (SSRF). So addresses of the machine, of private networks and of cloud metadata services are
//! refused, unless the operator allows a network.
//!
//! Invariants:
//! - The checked address is the called address: a name is resolved once per connection, every
//!   address found is checked, and the connection goes to one of them. DNS rebinding gains nothing.
//! - One forbidden address among several refuses the name.
//! - An IPv6 address that contains an IPv4 address (`::ffff:127.0.0.1`) is checked as the IPv4
//!   address.
//! - Addresses are allowed by network, never by name.
//! - Addresses that this server listens on are refused whatever is allowed: a delivery to itself
//!   could reach its control plane from loopback, or loop.
//!
//! This module has no lookups and no connections, only tables and rules, and a check whether an
//! address belongs to this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

use super::test_endpoint::is_test_endpoint;

/// Why an address is not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// Plain HTTP is not allowed.
    #[error("http is not allowed, only https (setting delivery.allow_http)")]
    Http,
    #[error(
        "the address {0} is private or reserved; the setting delivery.allow_networks allows a \
         network"
    )]
    Address(IpAddr),
    /// The test endpoint is turned off.
    #[error("the server has no test endpoint (setting delivery.test_endpoint)")]
    TestEndpoint,
    /// The address is one of this server's own listeners.
    #[error("{0} is this server itself")]
    Itself(SocketAddr),
    /// A name resolves to a forbidden address, perhaps among others.
    #[error(
        "{name} resolves to {address}, which is private or reserved; the setting \
         delivery.allow_networks allows a network"
    )]
    Name { name: String, address: IpAddr },
}

/// Why an endpoint's address is ambiguous: parsers could read different hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousAddress {
    /// A backslash, which browsers read as a slash, and others as part of the host or the path.
    #[error("contains a backslash; expected / in a path and %5C elsewhere")]
    Backslash,
    /// The part before `@` looks like the host.
    #[error("contains a user name or a password; put a secret into the query")]
    Userinfo,
    /// Browsers read `http:host` and `http:///host` as `http://host`, others as a path without a
    /// host.
    #[error("has no host after \"://\"; example: https://example.com/hook")]
    NoAuthority,
}

/// Refuses an address that URL parsers read differently. Calls always use the reading of [`Url`].
/// This check protects others that read the address: an operator, a proxy, a list of allowed hosts.
///
/// # Errors
/// If it contains a backslash or user information, or has no host.
pub fn check_unambiguous(address: &str) -> Result<(), AmbiguousAddress> {
    if address.contains('\\') {
        return Err(AmbiguousAddress::Backslash);
    }
    let (_, rest) = address
        .split_once("://")
        .ok_or(AmbiguousAddress::NoAuthority)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(AmbiguousAddress::Userinfo);
    }
    if authority.is_empty() {
        Err(AmbiguousAddress::NoAuthority)
    } else {
        Ok(())
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0),
        prefix,
    ))
}

/// Loopback: allowed if the server itself listens on loopback only.
const LOOPBACK: [IpNet; 2] = [
    v4(127, 0, 0, 0, 8),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
];

/// Networks that are never called unless an allowed network contains the address.
const FORBIDDEN: [IpNet; 30] = [
    v4(0, 0, 0, 0, 8),          // this network
    v4(10, 0, 0, 0, 8),         // private
    v4(100, 64, 0, 0, 10),      // shared by a carrier's customers
    v4(127, 0, 0, 0, 8),        // loopback
    v4(168, 63, 129, 16, 32),   // the host of Azure's machines, at a public address
    v4(169, 254, 0, 0, 16),     // link-local, with the metadata of clouds
    v4(172, 16, 0, 0, 12),      // private
    v4(192, 0, 0, 0, 24),       // protocol assignments
    v4(192, 0, 2, 0, 24),       // documentation
    v4(192, 88, 99, 0, 24),     // 6to4 relays
    v4(192, 168, 0, 0, 16),     // private
    v4(198, 18, 0, 0, 15),      // benchmarks
    v4(198, 51, 100, 0, 24),    // documentation
    v4(203, 0, 113, 0, 24),     // documentation
    v4(224, 0, 0, 0, 4),        // multicast
    v4(240, 0, 0, 0, 4),        // reserved, and broadcast
    v6(0, 0, 0, 8),             // unspecified, loopback, IPv4-compatible
    v6(0x64, 0xff9b, 0, 96),    // IPv4 behind a translator
    v6(0x64, 0xff9b, 1, 48),    // the same, locally
    v6(0x100, 0, 0, 64),        // discard
    v6(0x2001, 0, 0, 23),       // protocol assignments, with Teredo
    v6(0x2001, 0xdb8, 0, 32),   // documentation
    v6(0x2002, 0, 0, 16),       // 6to4: IPv4 inside
    v6(0x3fff, 0, 0, 20),       // documentation
    v6(0x5f00, 0, 0, 16),       // segment routing
    v6(0xfc00, 0, 0, 7),        // private
    v6(0xfe80, 0, 0, 10),       // link-local
    v6(0xfec0, 0, 0, 10),       // site-local, of old
    v6(0xff00, 0, 0, 8),        // multicast
    v4(255, 255, 255, 255, 32), // broadcast
];

/// The rules that say which endpoints a client may call. A client has one set of rules, because
/// connections are pooled by authority and not by subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    pub allow_http: bool,
    /// Networks that are allowed although they are private or reserved.
    pub allow_networks: Vec<IpNet>,
    /// Addresses on which this server listens. They are never called, whatever is allowed.
    pub own: Vec<SocketAddr>,
    pub test_endpoint: bool,
}

impl AddressRules {
    /// The rules of a server that listens on loopback only: http and loopback addresses are
    /// allowed.
    pub fn loopback() -> Self {
        Self {
            allow_http: true,
            allow_networks: LOOPBACK.to_vec(),
            own: Vec::new(),
            test_endpoint: true,
        }
    }

    /// The rules for addresses that the operator chose: all networks, and http.
    pub(super) fn allow_all() -> Self {
        let networks = [v4(0, 0, 0, 0, 0), v6(0, 0, 0, 0)];
        Self {
            allow_http: true,
            allow_networks: networks.to_vec(),
            own: Vec::new(),
            test_endpoint: false,
        }
    }

    /// Checks an address.
    ///
    /// # Errors
    /// If it is private or reserved, and in no allowed network.
    pub fn check_address(&self, address: IpAddr) -> Result<(), AddressRefused> {
        let address = address.to_canonical();
        let within = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&address));
        // Few networks are allowed, and many are forbidden.
        if !within(&self.allow_networks) && within(&FORBIDDEN) {
            Err(AddressRefused::Address(address))
        } else {
            Ok(())
        }
    }

    /// Checks an address and a port.
    ///
    /// # Errors
    /// If the address is refused, or this server listens there.
    pub fn check_socket(&self, address: SocketAddr) -> Result<(), AddressRefused> {
        let ip = address.ip().to_canonical();
        let port = address.port();
        let mut own_ips = self
            .own
            .iter()
            .filter(|own| own.port() == port)
            .map(|own| own.ip().to_canonical());
        if own_ips.any(|own| reaches_listener(ip, own)) {
            Err(AddressRefused::Itself(address))
        } else {
            self.check_address(ip)
        }
    }

    /// Checks the scheme of a URL, and its host if that is an address. A name is checked by
    /// [`AddressRules::check_found`] after its lookup.
    ///
    /// # Errors
    /// If it is refused.
    pub fn check_url(&self, url: &Url) -> Result<(), AddressRefused> {
        if is_test_endpoint(url) {
            let refused = AddressRefused::TestEndpoint;
            return if self.test_endpoint {
                Ok(())
            } else {
                Err(refused)
            };
        }
        if url.scheme() != "https" && !self.allow_http {
            return Err(AddressRefused::Http);
        }
        let port = url.port_or_known_default().unwrap_or_default();
        match url.host() {
            Some(Host::Ipv4(address)) => self.check_socket((address, port).into()),
            Some(Host::Ipv6(address)) => self.check_socket((address, port).into()),
            Some(Host::Domain(_)) | None => Ok(()),
        }
    }

    /// Checks all addresses that `name` resolved to.
    ///
    /// # Errors
    /// If one of them is refused.
    pub fn check_found(&self, name: &str, found: &[SocketAddr]) -> Result<(), AddressRefused> {
        for address in found {
            self.check_socket(*address)
                .map_err(|refused| match refused {
                    AddressRefused::Address(address) => AddressRefused::Name {
                        name: name.to_owned(),
                        address,
                    },
                    refused @ (AddressRefused::Http
                    | AddressRefused::TestEndpoint
                    | AddressRefused::Itself(_)
                    | AddressRefused::Name { .. }) => refused,
                })?;
        }
        Ok(())
    }
}

/// Whether a connection to `ip` reaches a listener that is bound to `listening`.
fn reaches_listener(ip: IpAddr, listening: IpAddr) -> bool {
    listening == ip || ip.is_unspecified() || (listening.is_unspecified() && is_of_this_machine(ip))
}

/// Binding fails for an address that the machine does not have.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}
