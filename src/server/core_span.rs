//! The span of a shard's core on each of its threads, so that every line of the log has the number
//! of the shard.
//!
//! A span is entered on one thread. `shards` enters it on the thread of the core; here it is
//! entered on the threads that this one starts for actors. Those of the journal and the store enter
//! the span of the thread that starts them, and `front::served_shards` enters it for requests.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tracing::Span;

/// How long an idle thread for blocking work waits for more. A core with nothing to do has none.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// The runtime of a thread in `span`, made on this thread, and the threads on which it runs what
/// blocks.
pub(super) fn spanned_runtime(span: Span) -> Runtime {
    stay_in(&span);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(IDLE_WAIT)
        .on_thread_start(move || stay_in(&span))
        .build();
    runtime.expect("a process that cannot make a runtime cannot start")
}

/// Enters a span until the thread ends. The span is that of a core, and is kept as long as its
/// process.
fn stay_in(span: &Span) {
    if span.id() != Span::current().id() {
        std::mem::forget(span.clone().entered());
    }
}
