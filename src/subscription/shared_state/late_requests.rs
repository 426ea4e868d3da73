//! Requests of a subscription that timed out and may still succeed, and the late
//! successes that arrived.
//!
//! Invariants:
//! - They do not count towards the concurrency limit or the requests in flight. Nothing waits for
//!   them, not even a shutdown.
//! - Their number is bounded per subscription. At the bound the oldest is aborted: a late response
//!   usually arrives soon after the timeout.
//! - A late success is kept until it is durable. Every incarnation until then receives it as an
//!   input.
//! - They end with the shared state: a deleted subscription leaves no request behind.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::AbortHandle;

use gridhook_event::RequestId;
use gridhook_policy::OutgoingBatch;

/// 64 is more than an endpoint that hangs can accumulate before it is suspended: sixteen requests
/// at once, each 30 s, and two and a half minutes more for a late response.
const LATE_REQUESTS_MAX: usize = 64;

/// The late requests of a subscription.
#[derive(Debug, Default)]
pub(super) struct LateRequests {
    waiting: BTreeMap<RequestId, LateRequestEntry>,
    successes: BTreeMap<RequestId, Arc<OutgoingBatch>>,
}

#[derive(Debug)]
struct LateRequestEntry {
    request: Arc<OutgoingBatch>,
    task: Option<AbortHandle>,
}

impl LateRequests {
    /// Adds a request. Returns the task of the request that must be aborted for it.
    pub(super) fn add_request(
        &mut self,
        request: Arc<OutgoingBatch>,
        task: Option<AbortHandle>,
    ) -> Option<AbortHandle> {
        self.waiting
            .insert(request.id, LateRequestEntry { request, task });
        if self.waiting.len() <= LATE_REQUESTS_MAX {
            return None;
        }
        self.waiting.pop_first()?.1.task
    }

    /// Removes a request. [`None`] if it was aborted before.
    pub(super) fn remove_request(&mut self, id: RequestId) -> Option<Arc<OutgoingBatch>> {
        Some(self.waiting.remove(&id)?.request)
    }

    /// Number of requests that wait for a late response.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn late_success(&mut self, request: Arc<OutgoingBatch>) {
        self.successes.insert(request.id, request);
    }

    /// The late success of this request is durable.
    pub(super) fn forget_request(&mut self, id: RequestId) {
        self.successes.remove(&id);
    }

    /// The late successes that are not durable yet.
    pub(super) fn late_successes(&self) -> impl Iterator<Item = &Arc<OutgoingBatch>> {
        self.successes.values()
    }
}

impl Drop for LateRequests {
    fn drop(&mut self) {
        for task in self
            .waiting
            .values()
            .filter_map(|waiting| waiting.task.as_ref())
        {
            task.abort();
        }
    }
}
