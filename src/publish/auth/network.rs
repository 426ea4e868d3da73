//! Where a publisher may come from: the topic's `publicNetworkAccess` and `inboundIpRules`.
//!
//! Without rules everybody may come; with rules, whoever one of them names. Where the public network is disabled, only
//! loopback and private addresses come in, whatever the rules say: in Azure that is what private endpoints are for, and
//! rules are not looked at.

use std::net::IpAddr;

use actix_web::HttpRequest;
use ipnet::IpNet;

use crate::{
    control::record::ingress::PublicNetworkAccess,
    publish::{Refusal, auth::KeyScope},
};

/// Where the request came from: the peer; or, behind a proxy that the operator trusts, the last address in
/// `X-Forwarded-For` that no trusted proxy has. What stands before that anybody could have written.
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

/// Whether one of the networks has this address, which is in its canonical form.
pub(super) fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// Whether the topic takes events from there. A connection without an address comes in only where nobody asks for one.
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
