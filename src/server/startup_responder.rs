//! What is answered while the server starts: a large log takes its time, and whoever watches must not take that for a failure.
//!
//! The addresses are bound before the store is opened. Until it is read, a server of its own answers there: `/healthz` and
//! `/readyz` say how far the start is, and everybody else is told 503 with `Retry-After`. Then the real one takes over the
//! same sockets; who connects between the two waits in the system's queue.

use std::{fs, path::Path};

use actix_server::ServerHandle;
use actix_web::web;

use super::{ServerError, descriptors::DescriptorBudget, listener::HttpListener};
use crate::{
    admin::health::{ServerHealth, StepProgress},
    config::Config,
};

/// The server that answers meanwhile.
pub(super) struct StartupResponder(ServerHandle);

impl StartupResponder {
    /// Answers at the addresses of `listener` from now on.
    pub(super) fn begin(
        door: &HttpListener,
        config: &Config,
        budget: &DescriptorBudget,
        vitals: web::Data<ServerHealth>,
    ) -> Result<Self, ServerError> {
        let server = door.answer_meanwhile(config, budget, vitals)?;
        let handle = server.handle();
        actix_rt::spawn(server);
        Ok(Self(handle))
    }

    /// Leaves the addresses to the real server.
    pub(super) async fn end(self) {
        self.0.stop(true).await;
    }
}

/// How much of the write-ahead log in `store` has been read, while it is opened. RocksDB does not say so itself; the place in
/// the file that it reads does.
pub(super) fn replayed(store: &Path) -> Option<StepProgress> {
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
    let mut logs: Vec<(String, u64)> = Vec::new();
    for entry in fs::read_dir(store).ok()?.flatten().filter(|entry| is_log(&entry.path())) {
        logs.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata().ok()?.len()));
    }
    let store = store.canonicalize().ok()?;
    let mut reading: Option<(String, u64)> = None;
    for descriptor in fs::read_dir("/proc/self/fd").ok()?.flatten() {
        let Ok(path) = fs::read_link(descriptor.path()) else { continue };
        if !is_log(&path) || path.parent() != Some(&store) {
            continue;
        }
        let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(descriptor.file_name())).ok()?;
        let at = info.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok())?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        reading = reading.max(Some((name, at)));
    }
    let of = logs.iter().map(|(_, bytes)| bytes).sum();
    let (reading, at) = reading?;
    // They are numbered, with zeros before the number, and read in that order.
    let before: u64 = logs.iter().filter(|(name, _)| *name < reading).map(|(_, bytes)| bytes).sum();
    Some(StepProgress { done: (before + at).min(of), of })
}
