//! Which addresses may be called.
//!
//! Whoever may create a subscription may make this server call an address of their choice. So the addresses of the
//! machine itself, of its network and of the cloud's metadata are refused, unless the operator lets a network through.
//!
//! Invariants:
//! - What is checked is what is called: a name is looked up once for a connection, every address found is checked, and
//!   the connection is made to one of these addresses. A name that changes its answer in between (rebinding) gains
//!   nothing.
//! - One forbidden address among several refuses the name: a mixed answer is a trick or a mistake.
//! - An IPv6 address that carries an IPv4 address (`::ffff:127.0.0.1`) is judged by the latter.
//! - Addresses are let through by network, never by name.
//!
//! - The addresses that this server itself listens on are refused whatever is allowed: behind a delivery to itself stand
//!   its own control plane, from loopback, and loops that never end.
//!
//! Absent on purpose: lookups and connections. This is a table and a rule, and one question to the system: whether an
//! address is of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// Why an address is not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// Events would travel in the clear.
    #[error("http is not allowed here, only https (the server's setting delivery.allow_http)")]
    Http,
    /// The address is of the machine, of its network, or of no use.
    #[error(
        "the address {0} is private or reserved; the server's setting delivery.allow_networks lets a network through"
    )]
    Address(IpAddr),
    /// The server would call itself.
    #[error("{0} is this server itself")]
    Itself(SocketAddr),
    /// A name led to a forbidden address, perhaps among others.
    #[error(
        "{name} leads to {address}, which is private or reserved; the server's setting delivery.allow_networks lets a \
         network through"
    )]
    Name {
        /// The name.
        name: String,
        /// The address it must not lead to.
        address: IpAddr,
    },
}

/// Why an endpoint's address could mean one host to us and another to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousAddress {
    /// Browsers take it for a slash, others for a part of the host or of the path.
    #[error("has a backslash in it; allowed is / in a path and %5C elsewhere")]
    Backslash,
    /// What stands before an `@` looks like the host.
    #[error("has a user name or a password in it; put a secret into the query")]
    Userinfo,
    /// Browsers take `http:host` and `http:///host` for `http://host`, others for a path without a host.
    #[error("has no host behind \"://\"; allowed is such as https://example.com/hook")]
    NoAuthority,
}

/// Refuses an address that not every reader of URLs reads alike. What is called is always what [`Url`] reads; this is for
/// those who look at the address by other means: an operator, a proxy, a list of allowed hosts.
///
/// # Errors
/// Where it has a backslash, user information, or no host where a host belongs.
pub fn check_unambiguous(address: &str) -> Result<(), AmbiguousAddress> {
    if address.contains('\\') {
        return Err(AmbiguousAddress::Backslash);
    }
    let (_, rest) = address.split_once("://").ok_or(AmbiguousAddress::NoAuthority)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(AmbiguousAddress::Userinfo);
    }
    if authority.is_empty() { Err(AmbiguousAddress::NoAuthority) } else { Ok(()) }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix))
}

/// Loopback: what a server that listens on loopback only lets through.
const LOOPBACK: [IpNet; 2] = [v4(127, 0, 0, 0, 8), IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128))];

/// What is never called unless an allowed network contains it.
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

/// Which endpoints a client may call: one client has one set of rules, because connections are kept by authority and
/// not by who asked for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Whether events may travel in the clear.
    pub allow_http: bool,
    /// Networks that are let through though they are private or reserved.
    pub allow_networks: Vec<IpNet>,
    /// Where this server listens itself: never called, whatever is let through.
    pub own: Vec<SocketAddr>,
}

impl AddressRules {
    /// The rules of a server that listens on loopback only: http and loopback addresses are allowed.
    pub fn loopback() -> Self {
        Self { allow_http: true, allow_networks: LOOPBACK.to_vec(), own: Vec::new() }
    }

    /// Whether one address may be called.
    ///
    /// # Errors
    /// Where it is private or reserved, and in no allowed network.
    pub fn check_address(&self, address: IpAddr) -> Result<(), AddressRefused> {
        let address = address.to_canonical();
        let within = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&address));
        if within(&FORBIDDEN) && !within(&self.allow_networks) { Err(AddressRefused::Address(address)) } else { Ok(()) }
    }

    /// Whether one address may be called at this port.
    ///
    /// # Errors
    /// Where the address may not be called at all, or this server listens there.
    pub fn check_socket(&self, address: SocketAddr) -> Result<(), AddressRefused> {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let listens = |own: &SocketAddr| {
            let listening = own.ip().to_canonical();
            own.port() == port
                && (listening == ip || ip.is_unspecified() || (listening.is_unspecified() && is_of_this_machine(ip)))
        };
        if self.own.iter().any(listens) { Err(AddressRefused::Itself(address)) } else { self.check_address(ip) }
    }

    /// Whether what the URL itself says is allowed: its scheme, and its host where that is an address. A name is judged
    /// by [`AddressRules::check_found`], when it was looked up.
    ///
    /// # Errors
    /// Where it is not.
    pub fn check_url(&self, url: &Url) -> Result<(), AddressRefused> {
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

    /// Whether all the addresses that `name` led to may be called.
    ///
    /// # Errors
    /// Where one of them may not.
    pub fn check_found(&self, name: &str, found: &[SocketAddr]) -> Result<(), AddressRefused> {
        for address in found {
            self.check_socket(*address).map_err(|refused| match refused {
                AddressRefused::Address(address) => AddressRefused::Name { name: name.to_owned(), address },
                refused @ (AddressRefused::Http | AddressRefused::Itself(_) | AddressRefused::Name { .. }) => refused,
            })?;
        }
        Ok(())
    }
}

/// Nobody can listen at an address that the machine has not.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}
