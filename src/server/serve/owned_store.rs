//! The second phase of a start: the process owns a store. A node of a cluster waits here as a
//! standby, perhaps for days.

use std::sync::Arc;

use actix_rt::task::JoinHandle;

use super::bound::{Bound, ClientSockets};
use crate::{
    Launch, ProcessState, ServerError, listener, local_store,
    node::{self, Ownership, Standing},
    service_notifier,
    shutdown::StopSignals,
    startup,
};
use gridhook_admin::health;
use gridhook_clock::Clock;
use gridhook_journal::FatalHandler;
use gridhook_store::{Store, rocks::RocksStore};

/// The store that this process owns.
pub(super) struct OwnedStore<'a> {
    pub(super) local: Arc<RocksStore>,
    pub(super) target: JournalTarget,
    pub(super) ownership: Option<Ownership<'a>>,
}

pub(crate) struct JournalTarget {
    /// The store that the journal writes to: the local one, or on a node the replicated one, which
    /// appends to the changelog first.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) on_failure: FatalHandler,
}

impl<'a> OwnedStore<'a> {
    /// Opens the store, and waits for the ownership of that of a cluster; [`None`] if a signal ends
    /// the wait.
    pub(super) async fn take_store(
        launch: &Launch,
        state: &'a mut ProcessState,
        bound: &mut Bound,
    ) -> Result<Option<Self>, ServerError> {
        let Launch { inputs, budget, .. } = launch;
        let config = &inputs.config;
        let store = match &state.store {
            Some(store) => Arc::clone(store),
            None => Arc::clone(
                state
                    .store
                    .insert(local_store::open_store(config, budget, &bound.health).await?),
            ),
        };
        let Some(cluster) = &config.cluster else {
            let local = store.open_store();
            node::check_unreplicated(&*local)?;
            let target = JournalTarget {
                store: Arc::clone(&local) as _,
                on_failure: Box::new(startup::exit_on_store_error),
            };
            return Ok(Some(Self {
                local,
                target,
                ownership: None,
            }));
        };
        bound
            .health
            .set_step(health::StartStep::new("following the changelog"));
        let node = match state.node.take() {
            Some(node) => node,
            None => {
                let node = node::join_alone(cluster, config, Arc::clone(&store)).await?;
                if let Some(ClientSockets {
                    listener,
                    responder,
                }) = &mut bound.sockets
                {
                    responder.end().await;
                    let standby =
                        node.become_standby(&launch.inputs, &bound.address, &bound.health)?;
                    *responder = listener.serve_standby(config, budget, standby)?;
                }
                node
            }
        };
        let node = state.node.insert(node);
        bound.health.attach_stream(node.stream_name());
        let signals = match state.signals.take() {
            Some(signals) => signals,
            None => StopSignals::install()?,
        };
        let signals = state.signals.insert(signals);
        let watchdog = launch.core.is_none().then(|| {
            listener::announce_url(&bound.address.own_url);
            service_notifier::notify_standby(&bound.address.own_url, launch.threads.clone())
        });
        let standing = node.stand_by(&Clock::system(), signals).await?;
        watchdog.iter().for_each(JoinHandle::abort);
        Ok(match standing {
            Standing::Stopped => None,
            Standing::Owner(tenure) => {
                let target = JournalTarget {
                    store: Arc::clone(&tenure.store) as _,
                    on_failure: tenure.on_failure(),
                };
                Some(Self {
                    local: store.open_store(),
                    target,
                    ownership: Some(Ownership {
                        tenure,
                        node,
                        signals,
                    }),
                })
            }
        })
    }
}
