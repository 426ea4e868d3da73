//! Requests that another node forwards.
//!
//! A connection between nodes begins with a [`handshake`]: [`connector`] has the part of the node that
//! calls, [`acceptor`] that of the owner. Then the connection has requests of HTTP; or nothing, if the
//! node only watches whether the owner's process runs.
//!
//! Each request of a client has a header with the address of its client, which counts as the peer
//! of the request. Others are the node's own (`router::owner`). Three more headers are the node's,
//! too: the record of the client's named token, whether other shards have a part of what the
//! request is about, and how events are received from the parts of a spread topic.

mod acceptor;
mod connector;
mod handshake;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use actix_web::{HttpMessage as _, dev::ServiceRequest};
use hyper::header::HeaderValue;

pub(super) use self::acceptor::HandshakeSlots;
pub(crate) use self::{acceptor::HopAcceptor, connector::OwnerConnector, handshake::NodeSecret};
use super::served_shards::ServedShards;
use gridhook_admin::PartRecord;
use gridhook_engine::control::tokens::{ForwardedToken, Token};
use gridhook_publish::{OneOfShards, auth::host::LocalAddress};
use gridhook_pull::node::{NodeReceive, NodeRequest};

/// The header with the client of a forwarded request: its address, the address that it called, and
/// http or https.
pub(crate) const CLIENT_NAME: &str = "gridhook-forwarded-client";

/// The header with the record of the named token of a forwarded request, as JSON.
pub(crate) const TOKEN_NAME: &str = "gridhook-forwarded-token";

/// The header of a request that goes to several shards, or to one that the request names: one of
/// the values below.
pub(crate) const PART_NAME: &str = "gridhook-forwarded-part";

/// The shard records the request in its audit trail.
pub(crate) const RECORDED_PART: &str = "recorded";

/// The shard records the request if it has done what is asked for; otherwise others are asked.
pub(crate) const RECORDED_IF_DONE_PART: &str = "recorded-if-done";

/// The shard does not record the request, because another one does.
pub(crate) const UNRECORDED_PART: &str = "unrecorded";

/// The header of a receive request for parts of a spread topic: a [`NodeReceive`] as JSON.
pub(crate) const RECEIVE_NAME: &str = "gridhook-forwarded-receive";

/// Marks a request that a node makes itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfNode;

/// The text of [`HopTarget::Watch`].
const WATCH: &str = "watch";

/// The text of [`HopTarget::Pull`].
const PULL: &str = "pull";

/// The listener that a client has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListenerSide {
    /// The listener of publishers, or of both.
    Publishers,
    Operators,
}

impl ListenerSide {
    fn name(self) -> &'static str {
        match self {
            Self::Publishers => "publishers",
            Self::Operators => "operators",
        }
    }
}

/// How long a connection between nodes may be idle, with this limit for connections of clients. It
/// is longer, because the handshake costs more than a request.
pub(crate) fn idle_timeout(of_clients: Duration) -> Duration {
    8 * of_clients
}

/// What the requests of a connection have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HopTarget {
    /// There are none: the node only watches whether the process runs.
    Watch,
    /// They receive events from the shards that each names, or cancel such requests.
    Pull,
    Shard {
        /// The number of the shard that serves them.
        shard: usize,
        /// The listener that their clients have called.
        side: ListenerSide,
    },
}

impl HopTarget {
    /// The target that a node has named in its handshake.
    fn parse(text: &str) -> Option<Self> {
        match text {
            WATCH => return Some(Self::Watch),
            PULL => return Some(Self::Pull),
            _ => {}
        }
        let (name, shard) = text.split_once('/')?;
        let sides = [ListenerSide::Publishers, ListenerSide::Operators];
        Some(Self::Shard {
            shard: shard.parse().ok()?,
            side: sides.into_iter().find(|side| side.name() == name)?,
        })
    }

    fn to_text(self) -> String {
        match self {
            Self::Watch => WATCH.to_owned(),
            Self::Pull => PULL.to_owned(),
            Self::Shard { shard, side } => format!("{}/{shard}", side.name()),
        }
    }
}

/// The value of [`CLIENT_NAME`].
pub(crate) fn client_value(peer: SocketAddr, local: LocalAddress) -> String {
    format!(
        "{peer} {} {}",
        local.address,
        if local.secure { "https" } else { "http" }
    )
}

/// The value of [`RECEIVE_NAME`].
pub(crate) fn receive_value(receive: &NodeReceive) -> Option<HeaderValue> {
    let value = serde_json::to_string(receive).ok()?;
    HeaderValue::try_from(value).ok()
}

/// Takes over which of the shards of a receive request are served here.
pub(super) fn adopt_receive(request: &mut ServiceRequest, shards: &ServedShards) {
    let value = request.headers_mut().remove(RECEIVE_NAME).next();
    let receive = value.and_then(|value| serde_json::from_slice(value.as_bytes()).ok());
    if let Some(receive) = receive {
        let receive: NodeReceive = receive;
        let parts = shards.find_parts(&receive.shards);
        let node_request = NodeRequest { receive, parts };
        request.extensions_mut().insert(node_request);
    }
}

/// Makes the client of a forwarded request its peer, and takes over what the node knows of it.
pub(super) fn adopt_client(request: &mut ServiceRequest) {
    let token = request.headers_mut().remove(TOKEN_NAME).next();
    let record = token.and_then(|record| serde_json::from_slice(record.as_bytes()).ok());
    if let Some(record) = record {
        let token = ForwardedToken(Arc::new(Token::from_other_store(record)));
        request.extensions_mut().insert(token);
    }
    if let Some(part) = request.headers_mut().remove(PART_NAME).next() {
        request.extensions_mut().insert(OneOfShards);
        if part == UNRECORDED_PART {
            request.extensions_mut().insert(PartRecord::Elsewhere);
        } else if part == RECORDED_IF_DONE_PART {
            request.extensions_mut().insert(PartRecord::IfDone);
        }
    }
    let value = request.headers_mut().remove(CLIENT_NAME).next();
    if value.is_none() {
        request.extensions_mut().insert(OfNode);
    }
    let parts = value
        .as_ref()
        .and_then(|value| value.to_str().ok())
        .map(|value| value.splitn(3, ' '));
    let Some((Some(peer), Some(local), Some(scheme))) =
        parts.map(|mut parts| (parts.next(), parts.next(), parts.next()))
    else {
        return;
    };
    if let (Ok(peer), Ok(address)) = (peer.parse(), local.parse()) {
        request.head_mut().peer_addr = Some(peer);
        request.extensions_mut().insert(LocalAddress {
            address,
            secure: scheme == "https",
        });
    }
}
