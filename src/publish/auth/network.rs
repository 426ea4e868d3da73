//! The addresses that may publish: the topic's `publicNetworkAccess` and `inboundIpRules`.
//!
//! Without rules every address may publish; with rules, those that a rule includes. With the public
//! network disabled, only loopback and private addresses may publish and the rules do not apply, as
//! with Azure's private endpoints. A client whose address is not known is none of these.

use std::net::IpAddr;

use actix_web::{HttpRequest, http::header::FORWARDED};
use ipnet::IpNet;

use super::forwarded;
use crate::{Refusal, auth::KeyScope};
use gridhook_record::ingress::PublicNetworkAccess;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The origin of a request, as far as the peer and trusted proxies say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The client, or the proxy behind which it cannot be seen.
    pub(super) nearest: IpAddr,
    /// Whether `nearest` is the client, not a proxy.
    pub(super) is_client: bool,
}

impl Origin {
    /// The origin of a request: the peer or, behind a trusted proxy, the last address in
    /// `X-Forwarded-For` or `Forwarded` that is not a trusted proxy. Earlier addresses can be
    /// forged. The client is unknown if a trusted proxy names none, or something else than an
    /// address, and if the two headers name different clients: a client can send the one that its
    /// proxy does not write.
    pub(super) fn from_request(request: &HttpRequest, trusted: &[IpNet]) -> Option<Self> {
        let peer = request.peer_addr()?.ip().to_canonical();
        if !is_in(trusted, peer) {
            return Some(Self {
                nearest: peer,
                is_client: true,
            });
        }
        let by_others = Self::follow_hops(
            peer,
            trusted,
            header_hops(request, FORWARDED_FOR, listed_addresses),
        );
        let by_standard = Self::follow_hops(
            peer,
            trusted,
            header_hops(request, FORWARDED.as_str(), element_addresses),
        );
        match (by_others, by_standard) {
            (Some(origin), None) | (None, Some(origin)) => Some(origin),
            (Some(one), Some(other)) if one == other => Some(one),
            (Some(_), Some(_)) | (None, None) => Some(Self {
                nearest: peer,
                is_client: false,
            }),
        }
    }

    /// Follows the hops before `peer`, the nearest first; [`None`] without any. A hop that is no
    /// address hides those before it.
    fn follow_hops(peer: IpAddr, trusted: &[IpNet], hops: Vec<Option<IpAddr>>) -> Option<Self> {
        let mut origin = None;
        for hop in hops {
            let nearest = origin.map_or(peer, |origin: Self| origin.nearest);
            let Some(address) = hop else {
                return Some(Self {
                    nearest,
                    is_client: false,
                });
            };
            origin = Some(Self {
                nearest: address,
                is_client: true,
            });
            if !is_in(trusted, address) {
                break;
            }
        }
        origin
    }

    /// The address of the client, if it is known.
    pub(super) fn client_address(self) -> Option<IpAddr> {
        self.is_client.then_some(self.nearest)
    }
}

/// The hops in all lines of a header, the nearest first; [`None`] for one that cannot be read.
fn header_hops(
    request: &HttpRequest,
    name: &str,
    read: fn(&str) -> Vec<Option<IpAddr>>,
) -> Vec<Option<IpAddr>> {
    let lines = request
        .headers()
        .get_all(name)
        .map(|line| line.to_str().map_or_else(|_| vec![None], read));
    let mut hops = lines.collect::<Vec<_>>().concat();
    hops.reverse();
    hops
}

/// The addresses in a line of `X-Forwarded-For`.
fn listed_addresses(line: &str) -> Vec<Option<IpAddr>> {
    line.split(',')
        .map(|hop| forwarded::parse_address(hop.trim()))
        .collect()
}

/// The addresses of `for` in a line of `Forwarded`.
fn element_addresses(line: &str) -> Vec<Option<IpAddr>> {
    let Some(elements) = forwarded::parse_elements(line) else {
        return vec![None];
    };
    let address = |element: &Vec<_>| forwarded::parse_address(forwarded::find_one(element, "for")?);
    elements.iter().map(address).collect()
}

/// Whether one of the networks contains this canonical address.
pub(super) fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// Checks whether the scope accepts events from this address. A client without a known address
/// passes only without rules.
pub(super) fn check_source_address(
    scope: &KeyScope<'_>,
    client: Option<IpAddr>,
) -> Result<(), Refusal> {
    match scope.ingress.public_network_access {
        PublicNetworkAccess::Disabled if client.is_some_and(is_private) => Ok(()),
        PublicNetworkAccess::Disabled => Err(Refusal::PublicNetwork {
            topic: scope.name.to_string(),
            client,
        }),
        PublicNetworkAccess::Enabled => {
            let rules = &scope.ingress.inbound_ip_rules;
            let is_in_rules = |address| rules.iter().any(|rule| rule.ip_mask.contains(address));
            if rules.is_empty() || client.is_some_and(is_in_rules) {
                return Ok(());
            }
            Err(Refusal::AddressRules {
                topic: scope.name.to_string(),
                client,
            })
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_loopback() || address.is_private() || address.is_link_local()
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}
