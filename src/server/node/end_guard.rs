//! The end of an ownership in time. A write that waits for the changelog would keep its thread, and
//! the process could not follow the next owner.

use std::{sync::Arc, time::Duration};

use gridhook_journal::replicated::ReplicatedStore;

/// The longest time for the end of an ownership, from when the server stops to serve: requests in
/// flight finish within it. A process that cannot end its threads in time ends itself.
const END_MAX: Duration = Duration::from_secs(30);

/// The time, within [`END_MAX`], after which a write that waits for the changelog ends without a
/// response.
const WRITES_WAIT: Duration = Duration::from_secs(10);

/// Ends the writes of an ended tenure that wait for the changelog, and later the process, if its
/// threads cannot be joined in time.
pub(crate) struct EndGuard {
    _done: std::sync::mpsc::Sender<()>,
}

impl EndGuard {
    pub(crate) fn begin(store: Arc<ReplicatedStore>) -> Self {
        let (done, is_done) = std::sync::mpsc::channel();
        let span = tracing::Span::current();
        std::thread::Builder::new()
            .name("end".to_owned())
            .spawn(move || span.in_scope(|| watch_end(&store, &is_done)))
            .expect("a thread");
        Self { _done: done }
    }
}

/// Returns once the tenure has ended. Aborts the process if that takes too long.
fn watch_end(store: &ReplicatedStore, is_done: &std::sync::mpsc::Receiver<()>) {
    let ends_within =
        |wait| is_done.recv_timeout(wait) != Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    if ends_within(WRITES_WAIT) {
        return;
    }
    store.stop();
    if !ends_within(END_MAX - WRITES_WAIT) {
        tracing::error!(after = ?END_MAX, "a thread of the former owner does not end");
        std::process::abort();
    }
}
