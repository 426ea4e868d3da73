//! The task that makes one request: it always reports, once, and may linger after that.
//!
//! A panic in it, or its end by force, reports `Aborted`. While it lingers it holds its slot weakly, and no event: what it
//! has to say then is one word, and nobody waits for it.

use std::{
    rc::Rc,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    chaos::response_faults::{self, FaultInjection, ResponseFault},
    deliver::{OutgoingRequest, WebhookClient},
    event::{Event, Lane, RequestId, Timestamp},
    policy::{
        OutgoingBatch,
        outcome::{Outcome, RequestResult},
        record::job::JobKind,
    },
    subscription::{clients::MissingCertificate, plan::DeliveryPlan, shared_state::SharedState, spans::AttemptSpan},
    telemetry::trace::Tracer,
};

/// Lets a request leave that the slot knows of.
pub(super) fn start(
    shared: &Arc<SharedState>,
    plan: Arc<DeliveryPlan>,
    client: Result<Rc<WebhookClient>, MissingCertificate>,
    request: &OutgoingBatch,
    events: Vec<Event>,
    (disturbance, tracer): (Arc<FaultInjection>, &Tracer),
    now: Timestamp,
) {
    let landing = AttemptGuard { shared: Arc::clone(shared), id: request.id };
    let (lane, attempts) = request.items.first().map_or((Lane::LIVE, 0), |item| (item.lane, item.attempts));
    let traced = AttemptSpan::begin(tracer, &plan, &events, attempts, now);
    if let Some(attempt) = traced.as_ref().filter(|attempt| attempt.is_recorded()) {
        shared.traces(request.id, attempt.place.clone());
    }
    let (subscription_key, count) = (shared.subscription_key, events.len());
    // Taken here and not in the task, so that the next decision on this thread knows of it.
    let place = client.as_ref().ok().map(|client| client.sockets().take());
    let task = actix_rt::spawn(async move {
        let _place = place;
        assert!(!landing.shared.is_doomed(), "a delivery task is killed by chaos");
        let kind = landing.shared.job_kind(lane);
        let ready = ready(&plan, client, &events, (lane, kind), attempts, now);
        drop(events);
        let (client, mut outgoing) = match ready {
            Ok(ready) => ready,
            Err(answer) => {
                if let Some(attempt) = traced {
                    attempt.end(&plan, &answer);
                }
                return landing.report(answer);
            }
        };
        if let Some(attempt) = &traced {
            outgoing.headers.extend(attempt.headers(&outgoing.properties));
        }
        // What is pulled is not sent.
        let Some(destination) = &plan.destination else { return landing.report(RequestResult::bare(Outcome::Aborted)) };
        let (answer, lingering) = client.call(destination, outgoing, now).answer(plan.response_wait).await;
        if let Some(attempt) = traced {
            attempt.end(&plan, &answer);
        }
        match disturbance.befalls(subscription_key, &answer, count) {
            None => {}
            Some(ResponseFault::Drop) => return landing.report(response_faults::dropped(&answer)),
            Some(ResponseFault::Corrupt) => return landing.report(response_faults::corrupted(&answer)),
            Some(ResponseFault::Delay(by)) => return landing.delay(answer, by, &plan).await,
        }
        match lingering.filter(|_| plan.late_wait > plan.response_wait) {
            None => landing.report(answer),
            Some(lingering) => {
                let word = landing.linger(answer);
                word.report(lingering.is_taken(plan.late_wait).await);
            }
        }
    });
    shared.carries(request.id, task.abort_handle());
}

/// The request and who makes it, or how it ends without having left.
fn ready(
    plan: &DeliveryPlan,
    client: Result<Rc<WebhookClient>, MissingCertificate>,
    events: &[Event],
    job: (Lane, Option<JobKind>),
    attempts: u32,
    now: Timestamp,
) -> Result<(Rc<WebhookClient>, OutgoingRequest), RequestResult> {
    let refused = |outcome, why: String| RequestResult { detail: why, ..RequestResult::bare(outcome) };
    let outgoing = plan.request(events, job, attempts, now);
    let outgoing = outgoing.map_err(|error| refused(Outcome::GenericError, error.to_string()))?;
    let client = client.map_err(|missing| refused(Outcome::SocketError, missing.to_string()))?;
    Ok((client, outgoing))
}

/// Reports a request whose task ends without an answer.
struct AttemptGuard {
    shared: Arc<SharedState>,
    id: RequestId,
}

impl AttemptGuard {
    fn report(self, answer: RequestResult) {
        self.shared.finished(self.id, answer);
    }

    /// Reports so much later, as if the endpoint had taken so long.
    async fn delay(self, answer: RequestResult, by: Duration, plan: &DeliveryPlan) {
        let latency = answer.latency.saturating_add(by);
        let rest = plan.response_wait.saturating_sub(answer.latency);
        tokio::time::sleep(by.min(rest)).await;
        if by <= rest {
            return self.report(RequestResult { latency, ..answer });
        }
        let taken = answer.outcome == Outcome::Delivered && latency <= plan.late_wait;
        let word = self.linger(response_faults::delayed(plan.response_wait));
        if taken {
            tokio::time::sleep(by - rest).await;
        }
        word.report(taken);
    }

    /// Reports, and stays for a late word.
    fn linger(self, answer: RequestResult) -> LateReport {
        self.shared.mark_late(self.id);
        self.shared.finished(self.id, answer);
        LateReport { shared: Arc::downgrade(&self.shared), id: self.id, taken: false }
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        // Where there was an answer, this word is the second and does not count.
        self.shared.finished(self.id, RequestResult::bare(Outcome::Aborted));
    }
}

/// Tells how a request ended that lingered, however it did.
struct LateReport {
    shared: Weak<SharedState>,
    id: RequestId,
    taken: bool,
}

impl LateReport {
    fn report(mut self, taken: bool) {
        self.taken = taken;
    }
}

impl Drop for LateReport {
    fn drop(&mut self) {
        // A subscription that is gone is told nothing.
        if let Some(shared) = self.shared.upgrade() {
            shared.lingered(self.id, self.taken);
        }
    }
}
