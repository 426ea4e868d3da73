//! The end of a run: why it ends, and what ends in which order.

use std::{sync::Arc, time::Duration};

use actix_web::web;

use super::{Delivery, Listening, Recovered, Served};
use crate::{
    ServerError, backup_schedule,
    error::io_error,
    node::{self, EndGuard, Ownership, TenureEnd},
    shutdown::{self, StopSignals},
    timekeeping::Timekeeper,
};
use gridhook_admin::{Control, health};

pub(super) struct Running {
    pub(super) recovered: Recovered,
    pub(super) delivery: Delivery,
    pub(super) control: web::Data<Control>,
    pub(super) listening: Listening,
}

impl Running {
    /// Ends what serves, delivers and writes, in this order.
    pub(super) async fn stop(self, end: RunEnd<'_>) -> Result<Served, ServerError> {
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
        let Recovered {
            core,
            writer,
            timekeeper,
            backups,
            ..
        } = recovered;
        let Delivery {
            publisher,
            stores,
            arbiters,
            exporter,
            notifier,
            _lifeline,
            ..
        } = delivery;
        let ownership = end.ownership();
        let _guard =
            ownership.map(|ownership| EndGuard::begin(Arc::clone(&ownership.tenure.store)));
        if !matches!(end, RunEnd::HandOver(_) | RunEnd::Fenced(_)) {
            health.enter_phase(health::StartPhase::Stopping);
        }
        if end.is_of_process() {
            notifier.notify_stopping();
            ownership
                .into_iter()
                .for_each(|ownership| ownership.node.begin_leave());
        }
        control.end_chaos();
        let shutdown_timeout = core.config.server.shutdown_timeout;
        if let RunEnd::Fenced(ownership) = &end {
            ownership.tenure.fence_off();
        }
        // The next owner makes backups at the same destination.
        backup_schedule::stop(&backups).await;
        publisher.end_polls();
        match end {
            RunEnd::Stop | RunEnd::SetBack => {
                // Nobody else serves publishers while this server begins again.
                if matches!(end, RunEnd::Stop) {
                    shutdown::serve_until_disconnected(&counters).await;
                }
                publisher.close();
                core.registry.close();
                shutdown::drain_requests(&core.registry, shutdown_timeout).await;
                if matches!(end, RunEnd::SetBack) {
                    http.pause().await;
                    http.finish_requests().await;
                }
                http.stop().await;
            }
            RunEnd::Leave(_) | RunEnd::HandOver(_) => {
                core.registry.close();
                // Publishers are served meanwhile: the next owner delivers what they send.
                shutdown::drain_requests(&core.registry, shutdown_timeout.min(node::DRAIN_MAX))
                    .await;
                publisher.close();
            }
            RunEnd::Fenced(_) => {
                publisher.close();
                core.registry.close();
            }
        }
        let settle = if ownership.is_some() {
            Duration::ZERO
        } else {
            shutdown_timeout
        };
        if !stores.finish_turns(settle).await {
            tracing::warn!(
                "a dead-letter file is unfinished at the stop; the next start writes it again"
            );
        }
        timekeeper.save_clock();
        control.save_history();
        core.journal.close();
        // A write may wait for the changelog, and a second signal is heard meanwhile.
        tokio::task::spawn_blocking(move || writer.join_all())
            .await
            .expect("joining threads does not panic");
        let is_of_process = end.is_of_process();
        let is_of_node = end.ownership().is_some();
        match end {
            RunEnd::Stop | RunEnd::SetBack => http.join().await.map_err(io_error("serving"))?,
            RunEnd::Leave(ownership) => {
                ownership.release().await;
                ownership.node.left().await;
                http.stop_soon().await;
            }
            RunEnd::HandOver(ownership) => {
                ownership.release().await;
                http.pause().await;
                http.stop_soon().await;
            }
            RunEnd::Fenced(ownership) => {
                ownership.give_up_store().await;
                http.pause().await;
                http.stop_soon().await;
            }
        }
        drop(arbiters);
        if let Some(exporter) = exporter {
            exporter.close();
        }
        if is_of_process {
            tracing::info!("stopped");
            Ok(Served::All)
        } else {
            if is_of_node {
                tracing::info!("standby again");
            }
            Ok(Served::Run)
        }
    }
}

/// Why a server stops to serve.
pub(super) enum RunEnd<'a> {
    /// A signal stops a server without a cluster.
    Stop,
    /// A server without a cluster begins again, because its clock is set back.
    SetBack,
    /// A signal stops the owner of a cluster's store.
    Leave(Ownership<'a>),
    /// The owner is asked to give the store up, or its clock is set back.
    HandOver(Ownership<'a>),
    /// The owner has lost the store.
    Fenced(Ownership<'a>),
}

impl<'a> RunEnd<'a> {
    /// Returns once the server has a reason. An owner of a cluster's store has signals of its own.
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
                signaled = shutdown::wait_for_signal(signals) => signaled.map(|()| Self::Stop),
                () = set_back => Ok(Self::SetBack),
            };
        };
        let end = tokio::select! {
            // A process that stops gives up the claims of all shards at the same time.
            biased;
            signaled = shutdown::wait_for_signal(ownership.signals) => signaled.map(|()| None)?,
            end = ownership.tenure.wait_until_ended() => Some(end),
            () = set_back => Some(TenureEnd::Asked),
        };
        Ok(match end {
            None => Self::Leave(ownership),
            Some(TenureEnd::Asked) => Self::HandOver(ownership),
            Some(TenureEnd::Lost) => Self::Fenced(ownership),
        })
    }

    /// Whether the process ends after this stop.
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
