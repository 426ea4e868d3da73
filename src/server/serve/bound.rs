//! The first phase of a start: the addresses are bound, and an interim server responds there.

use actix_web::web;

use super::RunOutcome;
use crate::{
    Launch, ProcessState, ServerError, ServerInputs,
    client_listeners::ClientListeners,
    listener::HttpListener,
    node::{Ownership, TenureEnd},
    running_server::RunningServer,
    shutdown::{self, StopSignals},
};
use gridhook_admin::health;

/// The addresses are bound, and an interim server responds there.
pub(crate) struct Bound {
    pub(crate) address: ClientListeners,
    pub(crate) health: web::Data<health::ServerHealth>,
    /// The process of the core of a shard has them itself.
    pub(super) sockets: Option<ClientSockets>,
}

/// The listeners for clients, and the server that responds there until this one serves.
pub(super) struct ClientSockets {
    pub(super) listener: HttpListener,
    pub(super) responder: RunningServer,
}

/// Why a start ends before the server serves.
pub(crate) enum StartEnd {
    /// A signal stops the process.
    Signal,
    /// The ownership of a node has ended.
    Tenure(TenureEnd),
    /// The start has failed, perhaps because another node has taken the store.
    Failed(ServerError),
}

impl From<ServerError> for StartEnd {
    fn from(error: ServerError) -> Self {
        Self::Failed(error)
    }
}

impl Bound {
    pub(super) fn open(launch: &Launch, state: &mut ProcessState) -> Result<Self, ServerError> {
        let Launch {
            inputs,
            budget,
            core,
            ..
        } = launch;
        let ServerInputs { config, .. } = inputs;
        let health = web::Data::new(health::ServerHealth::starting());
        if let Some(core) = core {
            core.health.begin_run(health.clone());
            return Ok(Self {
                address: core.address.clone(),
                health,
                sockets: None,
            });
        }
        let listener = HttpListener::open(config, &mut state.sockets)?;
        let address = listener.client_listeners();
        let responder = match &state.node {
            Some(node) => {
                let standby = node.become_standby(inputs, &address, &health)?;
                listener.serve_standby(config, budget, standby)?
            }
            None => listener.serve_interim(config, budget, health.clone())?,
        };
        Ok(Self {
            address,
            health,
            sockets: Some(ClientSockets {
                listener,
                responder,
            }),
        })
    }

    /// Ends the process of a standby, whose clients are served meanwhile.
    pub(super) async fn stop(self, state: &mut ProcessState) -> Result<RunOutcome, ServerError> {
        let signals = state.signals.as_ref();
        signals.map(StopSignals::end_at_next).transpose()?;
        self.health.enter_phase(health::StartPhase::Stopping);
        if let Some(ClientSockets {
            responder,
            listener,
        }) = self.sockets
        {
            shutdown::serve_until_disconnected(&self.address.counters).await;
            // New clients are refused while requests in flight finish.
            state.sockets.clear();
            drop(listener);
            responder.stop().await;
        }
        Ok(RunOutcome::ProcessEnds)
    }

    /// Ends a start whose journal has ended. A node that has lost the store meanwhile is a standby
    /// again.
    pub(super) async fn abandon_start(
        self,
        ownership: Option<Ownership<'_>>,
        end: StartEnd,
    ) -> Result<RunOutcome, ServerError> {
        let Some(ownership) = ownership else {
            return match end {
                StartEnd::Failed(error) => Err(error),
                StartEnd::Signal | StartEnd::Tenure(_) => Ok(RunOutcome::ProcessEnds),
            };
        };
        match end {
            StartEnd::Signal => {
                ownership.signals.end_at_next()?;
                ownership.leave_cluster().await;
                if let Some(ClientSockets { responder, .. }) = self.sockets {
                    responder.stop().await;
                }
                return Ok(RunOutcome::ProcessEnds);
            }
            StartEnd::Tenure(TenureEnd::Requested) => {
                tracing::info!("asked to give the store up while it started; standby again");
                ownership.release().await;
            }
            StartEnd::Tenure(TenureEnd::Lost) => {
                tracing::warn!("another node took the store while this one started; standby again");
                ownership.give_up_store().await;
            }
            StartEnd::Failed(error) if ownership.tenure.is_lost() => {
                tracing::warn!(%error, "another node took the store while this one started; \
                    standby again");
                ownership.give_up_store().await;
            }
            StartEnd::Failed(error) => {
                ownership.fail().await;
                return Err(error);
            }
        }
        if let Some(ClientSockets { responder, .. }) = self.sockets {
            responder.pause().await;
            responder.stop_soon().await;
        }
        Ok(RunOutcome::RunAgain)
    }
}
