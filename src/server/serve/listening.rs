//! The last phase of a start: the server listens on the bound sockets in place of the interim one.

use std::sync::Arc;

use actix_web::{dev::Extensions, web};

use super::{
    bound::{Bound, ClientSockets},
    delivery::Delivery,
    recovered::Recovered,
};
use crate::{
    ServerError, backup_schedule, front::served_shards::ServedShard, listener::ListenerContext,
    node::Ownership, running_server::RunningServer,
};
use gridhook_admin::{Control, health};
use gridhook_metrics::ListenerCounters;
use gridhook_pull::LockTokenSealer;

/// The server on the bound sockets.
pub(super) struct Listening {
    pub(super) health: web::Data<health::ServerHealth>,
    pub(super) counters: Vec<Arc<ListenerCounters>>,
    pub(super) http: RunServer,
}

/// What serves the requests of a run.
pub(super) struct RunServer {
    /// The server of the listeners. The core of one of several shards has none of its own.
    listeners: Option<RunningServer>,
    /// Set for an owner: the shard as the nodes of the cluster reach it.
    shard: Option<ServedShard>,
}

impl RunServer {
    /// Accepts no more connections: they wait for the next server.
    pub(super) async fn pause(&self) {
        self.shard.iter().for_each(ServedShard::pause);
        if let Some(listeners) = &self.listeners {
            listeners.pause().await;
        }
    }

    /// Closes the connections whose requests do not finish soon.
    pub(super) async fn stop_soon(self) {
        let shard_end = async {
            if let Some(shard) = self.shard {
                shard.stop_soon().await;
            }
        };
        let listeners_end = async {
            if let Some(listeners) = &self.listeners {
                listeners.stop_soon().await;
            }
        };
        tokio::join!(shard_end, listeners_end);
    }

    /// The server of the listeners; [`None`] for the core of one of several shards.
    pub(super) fn listeners(&self) -> Option<&RunningServer> {
        self.listeners.as_ref()
    }

    /// The outcome of the server of the listeners.
    ///
    /// # Errors
    /// If it could not start, or its task has panicked.
    pub(super) async fn join(self) -> std::io::Result<()> {
        match self.listeners {
            Some(listeners) => listeners.join().await,
            None => Ok(()),
        }
    }
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
            followed: delivery.followed.clone().map(web::Data::new),
            tokens,
            health: health.clone(),
            token: web::Data::new(recovered.token.clone()),
            cluster: ownership.map(|ownership| ownership.node.process.cluster_context.clone()),
            stall: ownership.map(|ownership| ownership.tenure.watch_writes()),
        };
        let shard = ownership.map(|ownership| {
            let context = context.clone();
            let add_data = Arc::new(move |data: &mut Extensions| context.add_to(data));
            ownership.node.serve_shard(add_data)
        });
        let config = &recovered.parts.config;
        let budget = &recovered.budget;
        let listeners = match sockets {
            Some(ClientSockets {
                mut listener,
                responder,
            }) => {
                match ownership {
                    None => responder.end().await,
                    // A standby forwards what it still accepts.
                    Some(ownership) => {
                        responder.hand_over().await;
                        listener.nodes = Some(ownership.node.listener_of_nodes()?);
                    }
                }
                Some(listener.serve_sockets(config, budget, context)?)
            }
            None => None,
        };
        let http = RunServer { listeners, shard };
        health.enter_phase(health::StartPhase::Serving);
        if let Some(Ownership { node, .. }) = ownership {
            tracing::info!(
                shard = node.shard(),
                topics = recovered.parts.registry.list_topics().len(),
                "this node serves the shard"
            );
        }
        backup_schedule::start_backups(&recovered.parts, &recovered.backups);
        delivery.notifier.notify_ready(&address.own_url);
        Ok(Self {
            health,
            counters: address.counters,
            http,
        })
    }
}
