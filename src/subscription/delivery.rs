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
use gridhook_deliver::{
    Batch, RequestHeader, Sender, bodies::BodyPermit, error::SenderError, sockets::SocketPermit,
};
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
    pub(super) permit: SocketPermit,
    pub(super) body: BodyPermit,
    /// The lease of the store's owner, in a cluster.
    pub(super) lease: Option<Lease>,
}

/// Sends a request that is already noted in the shared state, in a task of its own.
pub(super) fn start_attempt(
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
    let (lane, attempts_before) = request
        .items
        .first()
        .map_or((Lane::LIVE, 0), |item| (item.lane, item.attempts));
    let span = AttemptSpan::begin_span(tracer, &plan, &events, attempts_before, now);
    if let Some(span) = span.as_ref().filter(|span| span.is_recorded()) {
        shared.set_span(request.id, span.context.clone());
    }
    let attempt = Attempt {
        guard,
        plan,
        sender,
        lane,
        attempts_before,
        span,
        wall,
        faults,
        permit,
        body,
        lease,
    };
    let task = actix_rt::spawn(attempt.run(events));
    shared.set_task(request.id, task.abort_handle());
}

/// One request, from its first byte to its result.
struct Attempt {
    guard: AttemptGuard,
    plan: Arc<DeliveryPlan>,
    sender: Result<Rc<dyn Sender>, SenderError>,
    lane: Lane,
    attempts_before: u32,
    span: Option<AttemptSpan>,
    wall: WallTime,
    faults: Arc<FaultInjection>,
    permit: SocketPermit,
    body: BodyPermit,
    lease: Option<Lease>,
}

impl Attempt {
    async fn run(self, events: Vec<Event>) {
        let Self {
            guard,
            plan,
            sender,
            lane,
            attempts_before,
            span,
            wall,
            faults,
            permit,
            body,
            lease,
        } = self;
        let _permit = permit;
        assert!(
            !guard.shared.is_doomed(),
            "a delivery task is killed by chaos"
        );
        let subscription_key = guard.shared.subscription_key;
        let count = events.len();
        let batch = Batch {
            events,
            attempts_before,
            headers: request_headers(&guard.shared, lane, span.as_ref()),
            wall,
            wait: plan.response_timeout(),
            permit: Some((body, subscription_key.partition)),
        };
        if let Some(lease) = lease {
            Box::pin(lease.wait_until_allowed()).await;
        }
        let (result, late_request) = match &sender {
            Ok(sender) => sender.send_batch(batch).await,
            Err(error) => {
                let mut result = RequestResult::from_outcome(Failure::SocketError);
                result.detail = error.to_string();
                (result, None)
            }
        };
        if let Some(span) = span {
            span.end_span(&plan, &result);
        }
        match faults.fault_for(subscription_key, &result, count) {
            None => {}
            Some(ResponseFault::Drop) => {
                return guard.report_result(response_faults::dropped_result(&result));
            }
            Some(ResponseFault::Corrupt) => {
                return guard.report_result(response_faults::corrupted_result(&result));
            }
            Some(ResponseFault::Delay(delay)) => {
                return Box::pin(guard.report_after(result, delay, &plan)).await;
            }
        }
        match late_request.filter(|_| plan.late_timeout > plan.response_timeout()) {
            None => guard.report_result(result),
            Some(late_request) => {
                let late_report = guard.await_late(result);
                let success = Box::pin(late_request.wait_for_success(plan.late_timeout));
                late_report.report_late(success.await);
            }
        }
    }
}

/// The headers of a request beside those of its destination.
fn request_headers(
    shared: &SharedState,
    lane: Lane,
    span: Option<&AttemptSpan>,
) -> Vec<RequestHeader> {
    let job_kind = if lane.is_job() {
        shared.job_kind(lane)
    } else {
        None
    };
    let trace_headers = span.into_iter().flat_map(AttemptSpan::trace_headers);
    DeliveryPlan::job_header(lane, job_kind)
        .into_iter()
        .chain(trace_headers)
        .collect()
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

    /// Reports after a delay, as if the endpoint had taken that long.
    async fn report_after(self, result: RequestResult, delay: Duration, plan: &DeliveryPlan) {
        let latency = result.latency.saturating_add(delay);
        let rest = plan.response_timeout().saturating_sub(result.latency);
        tokio::time::sleep(delay.min(rest)).await;
        if delay <= rest {
            return self.report_result(RequestResult { latency, ..result });
        }
        let is_accepted_late = result.is_delivered() && latency <= plan.late_timeout;
        let late_report = self.await_late(response_faults::delayed_result(plan.response_timeout()));
        if is_accepted_late {
            tokio::time::sleep(delay - rest).await;
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
            has_succeeded: false,
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
    has_succeeded: bool,
}

impl LateReport {
    fn report_late(mut self, has_succeeded: bool) {
        self.has_succeeded = has_succeeded;
    }
}

impl Drop for LateReport {
    fn drop(&mut self) {
        // The subscription may have been deleted.
        if let Some(shared) = self.shared.upgrade() {
            shared.end_late(self.id, self.has_succeeded);
        }
    }
}
