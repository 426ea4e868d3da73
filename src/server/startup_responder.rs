//! Responds to requests while the server starts, because recovering a large log takes time and
//! monitoring must not take that for a failure.
//!
//! The addresses are bound before the store is opened. Until the store is recovered, an interim
//! server listens there: `/healthz` and `/readyz` report the progress, every other request receives
//! 503 with `Retry-After`. Then the real server takes over the sockets. Connections in between wait
//! in the system's queue.

use std::{fs, path::Path};

use actix_server::{Server, ServerHandle};
use actix_web::web;

use super::{
    ServerError,
    descriptors::DescriptorBudget,
    listener::{HttpListener, Standby},
};
use gridhook_admin::health::{ServerHealth, StepProgress};
use gridhook_config::Config;

pub(super) struct StartupResponder(ServerHandle);

impl StartupResponder {
    /// Starts to serve on the sockets of `listener`.
    pub(super) fn begin(
        listener: &HttpListener,
        config: &Config,
        budget: &DescriptorBudget,
        health: web::Data<ServerHealth>,
    ) -> Result<Self, ServerError> {
        Ok(Self::run(listener.serve_interim(config, budget, health)?))
    }

    /// Starts to forward requests on the sockets of `listener`.
    pub(super) fn stand_by(
        listener: &HttpListener,
        config: &Config,
        budget: &DescriptorBudget,
        standby: Standby,
    ) -> Result<Self, ServerError> {
        Ok(Self::run(listener.serve_standby(config, budget, standby)?))
    }

    pub(super) fn run(server: Server) -> Self {
        let handle = server.handle();
        actix_rt::spawn(server);
        Self(handle)
    }

    /// Accepts no more connections: they wait for the real server.
    pub(super) async fn pause(&self) {
        self.0.pause().await;
    }

    /// Stops the interim server, and leaves the sockets to the real one.
    pub(super) async fn end(&self) {
        self.0.stop(true).await;
    }
}

/// How much of the write-ahead log in `store` has been read. RocksDB does not report it, so it is
/// taken from the positions of this process's open files.
pub(super) fn recovery_progress(store: &Path) -> Option<StepProgress> {
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
    let mut logs: Vec<(String, u64)> = Vec::new();
    for entry in fs::read_dir(store)
        .ok()?
        .flatten()
        .filter(|entry| is_log(&entry.path()))
    {
        logs.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.metadata().ok()?.len(),
        ));
    }
    let store = store.canonicalize().ok()?;
    let mut reading: Option<(String, u64)> = None;
    for descriptor in fs::read_dir("/proc/self/fd").ok()?.flatten() {
        let Ok(path) = fs::read_link(descriptor.path()) else {
            continue;
        };
        if !is_log(&path) || path.parent() != Some(&store) {
            continue;
        }
        let info =
            fs::read_to_string(Path::new("/proc/self/fdinfo").join(descriptor.file_name())).ok()?;
        let at = info
            .lines()
            .find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok())?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        reading = reading.max(Some((name, at)));
    }
    let of = logs.iter().map(|(_, bytes)| bytes).sum();
    let (reading, at) = reading?;
    // The names are numbers with leading zeros, and the logs are read in that order.
    let before: u64 = logs
        .iter()
        .filter(|(name, _)| *name < reading)
        .map(|(_, bytes)| bytes)
        .sum();
    Some(StepProgress {
        done: (before + at).min(of),
        of,
    })
}
