//! Requests of a subscription whose wait is over and that may be answered with success yet, and the successes that came.
//!
//! Invariants:
//! - They are in no place of the subscription's limit and in no flight: nobody waits for them, a stop least of all.
//! - So many at the most: at the bound the oldest is cut. It has been silent for longest, and what answers late mostly
//!   answers soon after the wait. Other subscriptions' are not touched: each has a bound of its own.
//! - A success that was heard is kept until it is durable, and told to every life until then.
//! - They end with the slot: a subscription that is deleted leaves no request behind.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::AbortHandle;

use crate::{event::RequestId, policy::OutgoingBatch};

/// 64 is more than an endpoint that hangs can gather before it is suspended, with requests of 30 s, sixteen at once, that
/// linger for two and a half minutes more.
const LINGERING_MAX: usize = 64;

/// What lingers of a subscription.
#[derive(Debug, Default)]
pub(super) struct LateRequests {
    waiting: BTreeMap<RequestId, LateRequestEntry>,
    heard: BTreeMap<RequestId, Arc<OutgoingBatch>>,
}

#[derive(Debug)]
struct LateRequestEntry {
    request: Arc<OutgoingBatch>,
    task: Option<AbortHandle>,
}

impl LateRequests {
    /// A request lingers from now on. Returns the task of the one that has to go for it.
    pub(super) fn begin(&mut self, request: Arc<OutgoingBatch>, task: Option<AbortHandle>) -> Option<AbortHandle> {
        self.waiting.insert(request.id, LateRequestEntry { request, task });
        if self.waiting.len() <= LINGERING_MAX {
            return None;
        }
        self.waiting.pop_first()?.1.task
    }

    /// A request lingers no more. [`None`] where it was cut before.
    pub(super) fn end(&mut self, id: RequestId) -> Option<Arc<OutgoingBatch>> {
        Some(self.waiting.remove(&id)?.request)
    }

    /// How many requests linger.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A success came for a request that had lingered.
    pub(super) fn late_success(&mut self, request: Arc<OutgoingBatch>) {
        self.heard.insert(request.id, request);
    }

    /// What came for this request is durable.
    pub(super) fn settled(&mut self, id: RequestId) {
        self.heard.remove(&id);
    }

    /// The successes that are not durable.
    pub(super) fn late_successes(&self) -> impl Iterator<Item = &Arc<OutgoingBatch>> {
        self.heard.values()
    }
}

impl Drop for LateRequests {
    fn drop(&mut self) {
        for task in self.waiting.values().filter_map(|waiting| waiting.task.as_ref()) {
            task.abort();
        }
    }
}
