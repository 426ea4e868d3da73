//! The steps of a stop, in the order in which `serve` calls them.

use std::{sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use super::{ServerError, io_error};
use gridhook_engine::control::registry::Registry;
use gridhook_metrics::ListenerCounters;

/// The exit status after a second signal.
const EX_AT_ONCE: i32 = 130;

/// The interval between two checks for connections or requests in flight.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// The longest time that publishers are served after a signal.
const HAND_OVER: Duration = Duration::from_secs(1);

pub(super) enum StopSignals {
    /// SIGTERM and SIGINT. A signal that arrives while no task waits is kept.
    Process(Signal, Signal),
    /// The end of the process, for the core of one of its shards.
    Core(watch::Receiver<bool>),
}

impl StopSignals {
    pub(super) fn install() -> Result<Self, ServerError> {
        let handle = |kind| signal(kind).map_err(io_error("cannot handle signals"));
        Ok(Self::Process(
            handle(SignalKind::terminate())?,
            handle(SignalKind::interrupt())?,
        ))
    }

    pub(super) async fn wait_for_signal(&mut self) {
        match self {
            Self::Process(terminate, interrupt) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            // A process that has ended stops its cores, too.
            Self::Core(stopped) => drop(stopped.wait_for(|is_stopped| *is_stopped).await),
        }
    }

    /// Makes the next signal end the process at once.
    pub(super) fn end_at_next(&self) -> Result<(), ServerError> {
        if matches!(self, Self::Core(_)) {
            return Ok(());
        }
        let mut second = Self::install()?;
        actix_rt::spawn(async move {
            second.wait_for_signal().await;
            tracing::warn!("stopping at once");
            std::process::exit(EX_AT_ONCE);
        });
        Ok(())
    }
}

/// Waits for SIGTERM or SIGINT. From then on a second signal ends the process at once.
pub(super) async fn begin_stop_on_signal(signals: &mut StopSignals) -> Result<(), ServerError> {
    signals.wait_for_signal().await;
    if matches!(signals, StopSignals::Process(..)) {
        tracing::info!("stopping: publishers are served for a moment, requests in flight finish");
    }
    signals.end_at_next()
}

/// Serves publishers for up to [`HAND_OVER`] after `/readyz` has changed, so that a load balancer
/// can redirect them. Returns as soon as no connection is open; a request after that receives 503
/// with `Retry-After`.
pub(super) async fn serve_until_disconnected(listeners: &[Arc<ListenerCounters>]) {
    let disconnection = async {
        while listeners.iter().any(|listener| listener.open.get() > 0) {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    };
    tokio::time::timeout(HAND_OVER, disconnection).await.ok();
}

/// Waits up to `wait` for the requests in flight.
pub(super) async fn drain_requests(registry: &Registry, wait: Duration) {
    let drain = async {
        while registry.in_flight() > 0 {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    };
    if tokio::time::timeout(wait, drain).await.is_err() {
        tracing::warn!(
            in_flight = registry.in_flight(),
            "requests are in flight at the stop; the next start repeats them"
        );
    }
}
