//! The last phase of a start: the server listens on the bound sockets in place of the interim one.

use std::sync::Arc;

use actix_web::web;

use super::{
    bound::{Bound, ClientSockets},
    delivery::Delivery,
    recovered::Recovered,
};
use crate::{
    ServerError, listener::ListenerContext, node::Ownership, running_server::RunningServer, startup,
};
use gridhook_admin::{Control, health};
use gridhook_metrics::ListenerCounters;
use gridhook_pull::LockTokenSealer;

/// The server on the bound sockets.
pub(super) struct Listening {
    pub(super) health: web::Data<health::ServerHealth>,
    pub(super) counters: Vec<Arc<ListenerCounters>>,
    pub(super) http: RunningServer,
}

impl Listening {
    /// Takes the sockets over from the server that responded meanwhile.
    pub(super) async fn begin(
        recovered: &Recovered,
        delivery: &Delivery,
        control: &web::Data<Control>,
        bound: Bound,
        tokens: web::Data<LockTokenSealer>,
        ownership: Option<&Ownership<'_>>,
    ) -> Result<Self, ServerError> {
        let Bound {
            address,
            health,
            sockets,
        } = bound;
        let context = ListenerContext {
            control: control.clone(),
            publisher: delivery.publisher.clone(),
            followed: delivery.followed.clone(),
            tokens,
            health: health.clone(),
            token: recovered.token.clone(),
            cluster: ownership.map(|ownership| ownership.node.cluster_context.clone()),
            stall: ownership.map(|ownership| ownership.tenure.watch_writes()),
        };
        let nodes = ownership
            .map(|ownership| ownership.node.listener_of_nodes())
            .transpose()?;
        let config = &recovered.parts.config;
        let budget = &recovered.budget;
        let http = match sockets {
            Some(ClientSockets {
                mut listener,
                responder,
            }) => {
                match &nodes {
                    None => responder.end().await,
                    // A standby forwards what it still accepts.
                    Some(_) => responder.hand_over().await,
                }
                listener.nodes = nodes;
                listener.serve_sockets(config, budget, context)?
            }
            None => {
                let nodes = nodes.expect("the core of a shard serves as its owner");
                nodes.serve_sockets(config, budget, context)?
            }
        };
        health.enter_phase(health::StartPhase::Serving);
        if let Some(Ownership { node, .. }) = ownership {
            tracing::info!(
                shard = node.shard(),
                topics = recovered.parts.registry.list_topics().len(),
                "this node serves the shard"
            );
        }
        startup::start_backups(&recovered.parts, &recovered.backups);
        delivery.notifier.notify_ready(&address.own_url);
        Ok(Self {
            health,
            counters: address.counters,
            http,
        })
    }
}
