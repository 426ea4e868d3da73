//! The task that makes one request. It reports exactly once, and may then wait for a late response.
//!
//! If it panics or is aborted, it reports `Aborted`. While it waits for a late response, it holds
//! the shared state weakly and no event.

use std::{
    rc::Rc,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{plan::DeliveryPlan, shared_state::SharedState, spans::AttemptSpan};
use gridhook_chaos::response_faults::{self, FaultInjection, ResponseFault};
use gridhook_clock::Lease;
use gridhook_deliver::{Batch, Sender, bodies::BodyPermit, error::SenderError, sockets::Taken};
use gridhook_event::{Event, Lane, RequestId, Timestamp, WallTime};
use gridhook_policy::{
    OutgoingBatch,
    outcome::{Failure, Outcome, RequestResult},
};
use gridhook_telemetry::trace::Tracer;

/// Resources of the server that an attempt uses.
pub(super) struct AttemptResources<'a> {
    pub(super) wall: WallTime,
    pub(super) faults: Arc<FaultInjection>,
    pub(super) tracer: &'a Tracer,
    /// Counts the socket of the request.
    pub(super) permit: Taken,
    pub(super) body: BodyPermit,
    /// The lease of the store's owner, in a cluster.
    pub(super) lease: Option<Lease>,
}

/// Sends a request that is already noted in the shared state.
pub(super) fn start(
    shared: &Arc<SharedState>,
    plan: Arc<DeliveryPlan>,
    sender: Result<Rc<dyn Sender>, SenderError>,
    request: &OutgoingBatch,
    events: Vec<Event>,
    resources: AttemptResources<'_>,
    now: Timestamp,
) {
    let AttemptResources {
        wall,
        faults,
        tracer,
        permit,
        body,
        lease,
    } = resources;
    let guard = AttemptGuard {
        shared: Arc::clone(shared),
        id: request.id,
    };
    let (lane, attempts) = request
        .items
        .first()
        .map_or((Lane::LIVE, 0), |item| (item.lane, item.attempts));
    let attempt_span = AttemptSpan::begin_span(tracer, &plan, &events, attempts, now);
    if let Some(attempt) = attempt_span
        .as_ref()
        .filter(|attempt| attempt.is_recorded())
    {
        shared.set_span(request.id, attempt.context.clone());
    }
    let subscription_key = shared.subscription_key;
    let count = events.len();
    let task = actix_rt::spawn(async move {
        let _permit = permit;
        assert!(
            !guard.shared.is_doomed(),
            "a delivery task is killed by chaos"
        );
        let kind = lane.is_job().then(|| guard.shared.job_kind(lane)).flatten();
        let trace = attempt_span.iter().flat_map(AttemptSpan::trace_headers);
        let headers = DeliveryPlan::job_header(lane, kind)
            .into_iter()
            .chain(trace)
            .collect();
        let wait = plan.response_timeout();
        let permit = Some((body, subscription_key.partition));
        let batch = Batch {
            events,
            attempts_before: attempts,
            headers,
            wall,
            wait,
            permit,
        };
        if let Some(lease) = lease {
            Box::pin(lease.wait_until_allowed()).await;
        }
        let (result, late) = match &sender {
            Ok(sender) => sender.send_batch(batch).await,
            Err(missing) => {
                let result = RequestResult::from_outcome(Outcome::Failed(Failure::SocketError));
                (
                    RequestResult {
                        detail: missing.to_string(),
                        ..result
                    },
                    None,
                )
            }
        };
        if let Some(attempt) = attempt_span {
            attempt.end_span(&plan, &result);
        }
        match faults.fault_for(subscription_key, &result, count) {
            None => {}
            Some(ResponseFault::Drop) => {
                return guard.report_result(response_faults::dropped_result(&result));
            }
            Some(ResponseFault::Corrupt) => {
                return guard.report_result(response_faults::corrupted_result(&result));
            }
            Some(ResponseFault::Delay(by)) => {
                return Box::pin(guard.report_after(result, by, &plan)).await;
            }
        }
        match late.filter(|_| plan.late_timeout > plan.response_timeout()) {
            None => guard.report_result(result),
            Some(late) => {
                let late_report = guard.await_late(result);
                late_report.report_late(Box::pin(late.is_taken(plan.late_timeout)).await);
            }
        }
    });
    shared.set_task(request.id, task.abort_handle());
}

/// Reports `Aborted` if the task of a request ends without a result.
struct AttemptGuard {
    shared: Arc<SharedState>,
    id: RequestId,
}

impl AttemptGuard {
    fn report_result(self, result: RequestResult) {
        self.shared.record_result(self.id, result);
    }

    /// Reports after the delay `by`, as if the endpoint had taken that long.
    async fn report_after(self, result: RequestResult, by: Duration, plan: &DeliveryPlan) {
        let latency = result.latency.saturating_add(by);
        let rest = plan.response_timeout().saturating_sub(result.latency);
        tokio::time::sleep(by.min(rest)).await;
        if by <= rest {
            return self.report_result(RequestResult { latency, ..result });
        }
        let is_accepted_late = result.is_delivered() && latency <= plan.late_timeout;
        let late_report = self.await_late(response_faults::delayed_result(plan.response_timeout()));
        if is_accepted_late {
            tokio::time::sleep(by - rest).await;
        }
        late_report.report_late(is_accepted_late);
    }

    /// Reports, and waits for a late response.
    fn await_late(self, result: RequestResult) -> LateReport {
        self.shared.mark_late(self.id);
        self.shared.record_result(self.id, result);
        LateReport {
            shared: Arc::downgrade(&self.shared),
            id: self.id,
            taken: false,
        }
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        // After a report, this second one has no effect.
        self.shared
            .record_result(self.id, RequestResult::from_outcome(Outcome::Aborted));
    }
}

/// Reports how the wait for a late response ended, also when the task is aborted.
struct LateReport {
    shared: Weak<SharedState>,
    id: RequestId,
    taken: bool,
}

impl LateReport {
    fn report_late(mut self, taken: bool) {
        self.taken = taken;
    }
}

impl Drop for LateReport {
    fn drop(&mut self) {
        // The subscription may have been deleted.
        if let Some(shared) = self.shared.upgrade() {
            shared.end_late(self.id, self.taken);
        }
    }
}
