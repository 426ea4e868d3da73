//! `GET /server`: version, start, listeners, process, disk, and the settings that differ from the
//! defaults.

use actix_web::{HttpRequest, web};

use super::{ChaosMode, ClusterContext, Control, metrics::process::ProcessFigures};
use crate::{AdminResult, respond_json};
use gridhook_api::server::{Listener, ServerFacts, ServerProcess};
use gridhook_deliver::test_endpoint::TEST_ENDPOINT;

/// `GET /server`.
pub(super) async fn get_server(
    request: HttpRequest,
    control: web::Data<Control>,
    chaos: web::Data<ChaosMode>,
) -> AdminResult {
    let exposition = &control.exposition;
    let journal = exposition.journal().cloned();
    let (process, disk_free_bytes) = web::block(move || {
        let free_bytes = journal.and_then(|journal| journal.read_figures().store?.free_bytes);
        (ProcessFigures::read(), free_bytes)
    })
    .await?;
    let ProcessFigures {
        cpu_seconds,
        resident_bytes,
        threads,
        open_files,
        most_files,
        ..
    } = process;
    respond_json(&ServerFacts {
        now: control.clock.now().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: exposition.started().to_string(),
        chaos: **chaos == ChaosMode::Enabled,
        test_endpoint: control
            .registry
            .has_test_endpoint()
            .then(|| TEST_ENDPOINT.to_owned()),
        cluster: request.app_data::<web::Data<ClusterContext>>().is_some(),
        listeners: exposition
            .listeners()
            .iter()
            .map(|listener| listener_view(listener))
            .collect(),
        process: ServerProcess {
            cpu_seconds,
            resident_bytes,
            threads,
            open_files,
            most_files,
        },
        disk_free_bytes,
        settings: control.settings.read().clone(),
    })
}

pub(crate) fn listener_view(listener: &gridhook_metrics::ListenerCounters) -> Listener {
    Listener {
        name: listener.name.to_owned(),
        open: listener.open.get(),
        admitted: listener.admitted.get(),
        refused: listener.refused.get() + listener.refused_by_address.get(),
    }
}
