//! The end of a run: why it ends, and in which order its parts end.

use std::{sync::Arc, time::Duration};

use actix_web::web;

use super::{Delivery, Listening, Recovered, RunOutcome, listening::RunServer};
use crate::{
    ServerError, backup_schedule,
    error::io_error,
    node::{self, EndGuard, Ownership, TenureEnd},
    shutdown::{self, StopSignals},
    startup::ServerParts,
    timekeeping::Timekeeper,
};
use gridhook_admin::{Control, health};
use gridhook_metrics::ListenerCounters;
use gridhook_publish::http::Publisher;

pub(super) struct Running {
    pub(super) recovered: Recovered,
    pub(super) delivery: Delivery,
    pub(super) control: web::Data<Control>,
    pub(super) listening: Listening,
}

impl Running {
    /// Ends what serves, delivers and writes, in this order.
    pub(super) async fn stop(self, end: RunEnd<'_>) -> Result<RunOutcome, ServerError> {
        let Self {
            recovered,
            delivery,
            control,
            listening,
        } = self;
        let Listening {
            health,
            counters,
            http,
        } = listening;
        let parts = &recovered.parts;
        let ownership = end.ownership();
        let _guard =
            ownership.map(|ownership| EndGuard::begin(Arc::clone(&ownership.tenure.store)));
        if !matches!(end, RunEnd::HandOver(_) | RunEnd::Fenced(_)) {
            health.enter_phase(health::StartPhase::Stopping);
        }
        if end.is_of_process() {
            delivery.notifier.notify_stopping();
            if let Some(ownership) = ownership {
                ownership.node.begin_leave();
            }
        }
        control.end_chaos();
        if let RunEnd::Fenced(ownership) = &end {
            ownership.tenure.fence_off();
        }
        // The next owner makes backups at the same destination.
        backup_schedule::stop(&recovered.backups).await;
        delivery.publisher.end_polls();
        end.finish_requests(parts, &delivery.publisher, &counters, &http)
            .await;
        let settle_timeout = match ownership {
            Some(_) => Duration::ZERO,
            None => parts.config.server.shutdown_timeout,
        };
        if !delivery.stores.finish_turns(settle_timeout).await {
            tracing::warn!(
                "a dead-letter file is unfinished at the stop; the next start writes it again"
            );
        }
        recovered.timekeeper.save_clock();
        control.save_history();
        parts.journal.close();
        // A write may wait for the changelog, and a second signal is heard meanwhile.
        let writer = recovered.writer;
        tokio::task::spawn_blocking(move || writer.join_all())
            .await
            .expect("joining threads does not panic");
        let outcome = match end {
            RunEnd::Stop | RunEnd::Leave(_) => RunOutcome::ProcessEnds,
            RunEnd::SetBack | RunEnd::HandOver(_) | RunEnd::Fenced(_) => RunOutcome::RunAgain,
        };
        let is_of_node = ownership.is_some();
        end.release_store(http).await?;
        drop(delivery.arbiters);
        if let Some(exporter) = delivery.exporter {
            exporter.close();
        }
        match outcome {
            RunOutcome::ProcessEnds => tracing::info!("stopped"),
            RunOutcome::RunAgain if is_of_node => tracing::info!("standby again"),
            RunOutcome::RunAgain => {}
        }
        Ok(outcome)
    }
}

/// Why a server stops serving.
pub(super) enum RunEnd<'a> {
    /// A signal stops a server without a cluster.
    Stop,
    /// A server without a cluster begins again, because its clock was set back.
    SetBack,
    /// A signal stops the owner of a cluster's store.
    Leave(Ownership<'a>),
    /// Another node requested the store, or the owner's clock was set back.
    HandOver(Ownership<'a>),
    /// The owner has lost the store.
    Fenced(Ownership<'a>),
}

impl<'a> RunEnd<'a> {
    /// Waits for the first reason to stop. The owner of a cluster's store has signals of its own, in
    /// place of `signals`.
    pub(super) async fn wait_for_end(
        ownership: Option<Ownership<'a>>,
        signals: &mut StopSignals,
        timekeeper: &Timekeeper,
    ) -> Result<Self, ServerError> {
        let set_back = async {
            timekeeper.confirmed_back().await;
            tracing::info!("the clock is set back: this server begins again by it");
        };
        let Some(ownership) = ownership else {
            return tokio::select! {
                biased;
                result = shutdown::begin_stop_on_signal(signals) => result.map(|()| Self::Stop),
                () = set_back => Ok(Self::SetBack),
            };
        };
        tokio::select! {
            // A process that stops gives up the claims of all shards at the same time.
            biased;
            result = shutdown::begin_stop_on_signal(ownership.signals) => {
                result.map(|()| Self::Leave(ownership))
            }
            end = ownership.tenure.wait_until_ended() => Ok(match end {
                TenureEnd::Requested => Self::HandOver(ownership),
                TenureEnd::Lost => Self::Fenced(ownership),
            }),
            () = set_back => Ok(Self::HandOver(ownership)),
        }
    }

    /// Stops taking requests of publishers, and waits for deliveries in flight as long as the end
    /// allows it.
    async fn finish_requests(
        &self,
        parts: &ServerParts,
        publisher: &Publisher,
        listeners: &[Arc<ListenerCounters>],
        http: &RunServer,
    ) {
        let shutdown_timeout = parts.config.server.shutdown_timeout;
        match self {
            Self::Stop | Self::SetBack => {
                // No other server serves publishers while this one begins again.
                if matches!(self, Self::Stop) {
                    shutdown::serve_until_disconnected(listeners).await;
                }
                publisher.close();
                parts.registry.close();
                shutdown::drain_requests(&parts.registry, shutdown_timeout).await;
                if let Some(listeners) = http.listeners() {
                    if matches!(self, Self::SetBack) {
                        listeners.pause().await;
                        listeners.finish_requests().await;
                    }
                    listeners.stop().await;
                }
            }
            Self::Leave(_) | Self::HandOver(_) => {
                parts.registry.close();
                // Publishers are served meanwhile: the next owner delivers what they send.
                let drain_timeout = shutdown_timeout.min(node::DRAIN_MAX);
                shutdown::drain_requests(&parts.registry, drain_timeout).await;
                publisher.close();
            }
            Self::Fenced(_) => {
                publisher.close();
                parts.registry.close();
            }
        }
    }

    /// Gives the store up to the next owner, if there is one, and ends the server.
    async fn release_store(self, http: RunServer) -> Result<(), ServerError> {
        match self {
            Self::Stop | Self::SetBack => return http.join().await.map_err(io_error("serving")),
            Self::Leave(ownership) => {
                ownership.release().await;
                ownership.node.wait_until_left().await;
            }
            Self::HandOver(ownership) => {
                ownership.release().await;
                http.pause().await;
            }
            Self::Fenced(ownership) => {
                ownership.give_up_store().await;
                http.pause().await;
            }
        }
        http.stop_soon().await;
        Ok(())
    }

    /// Whether the process ends, too.
    fn is_of_process(&self) -> bool {
        match self {
            Self::Stop | Self::Leave(_) => true,
            Self::SetBack | Self::HandOver(_) | Self::Fenced(_) => false,
        }
    }

    fn ownership(&self) -> Option<&Ownership<'a>> {
        match self {
            Self::Stop | Self::SetBack => None,
            Self::Leave(ownership) | Self::HandOver(ownership) | Self::Fenced(ownership) => {
                Some(ownership)
            }
        }
    }
}
