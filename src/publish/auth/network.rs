//! The addresses that may publish: the topic's `publicNetworkAccess` and `inboundIpRules`.
//!
//! Without rules every address may publish; with rules, those that a rule includes. With the public network disabled, only
//! loopback and private addresses may publish and the rules do not apply, as with Azure's private endpoints.

use std::net::IpAddr;

use actix_web::HttpRequest;
use ipnet::IpNet;

use crate::{
    control::record::ingress::PublicNetworkAccess,
    publish::{Refusal, auth::KeyScope},
};

/// The client's address: the peer or, behind a trusted proxy, the last address in `X-Forwarded-For` that is not a trusted
/// proxy. Earlier addresses can be forged.
pub(super) fn client(request: &HttpRequest, trusted: &[IpNet]) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip().to_canonical();
    let is_trusted = |address: &IpAddr| is_in(trusted, *address);
    if !is_trusted(&peer) {
        return Some(peer);
    }
    let lines: Vec<_> = request.headers().get_all("x-forwarded-for").filter_map(|line| line.to_str().ok()).collect();
    let mut nearest = peer;
    for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        let Ok(address) = hop.trim().parse::<IpAddr>() else { return Some(nearest) };
        nearest = address.to_canonical();
        if !is_trusted(&nearest) {
            return Some(nearest);
        }
    }
    Some(nearest)
}

/// Whether one of the networks contains this canonical address.
pub(super) fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// Checks whether the scope accepts events from this address. A connection without an address passes only without rules.
pub(super) fn check(scope: &KeyScope<'_>, client: Option<IpAddr>) -> Result<(), Refusal> {
    match scope.ingress.public_network_access {
        PublicNetworkAccess::Disabled if client.is_some_and(is_private) => Ok(()),
        PublicNetworkAccess::Disabled => Err(Refusal::PublicNetwork { topic: scope.name.to_string(), client }),
        PublicNetworkAccess::Enabled => {
            let rules = &scope.ingress.inbound_ip_rules;
            let allowed = |address| rules.iter().any(|rule| rule.ip_mask.contains(address));
            if rules.is_empty() || client.is_some_and(allowed) {
                return Ok(());
            }
            Err(Refusal::AddressRules { topic: scope.name.to_string(), client })
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
    }
}
