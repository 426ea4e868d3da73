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
    deliver::{Client, Outgoing},
    event::{Event, FlightId, Lane, Timestamp},
    policy::{
        Flight,
        outcome::{Answer, Outcome},
        record::job::JobKind,
    },
    subscription::{
        clients::Missing,
        disturb::{self, Disturbance, Mischief},
        plan::Plan,
        slot::Slot,
        traced::Attempt,
    },
    telemetry::trace::Tracer,
};

/// Lets a request leave that the slot knows of.
pub(super) fn start(
    slot: &Arc<Slot>,
    plan: Arc<Plan>,
    client: Result<Rc<Client>, Missing>,
    flight: &Flight,
    events: Vec<Event>,
    (disturbance, tracer): (Arc<Disturbance>, &Tracer),
    now: Timestamp,
) {
    let landing = Landing { slot: Arc::clone(slot), id: flight.id };
    let (lane, attempts) = flight.items.first().map_or((Lane::LIVE, 0), |item| (item.lane, item.attempts));
    let traced = Attempt::begin(tracer, &plan, &events, attempts, now);
    if let Some(attempt) = traced.as_ref().filter(|attempt| attempt.is_recorded()) {
        slot.traces(flight.id, attempt.place.clone());
    }
    let (obligor, count) = (slot.obligor, events.len());
    // Taken here and not in the task, so that the next decision on this thread knows of it.
    let place = client.as_ref().ok().map(|client| client.sockets().take());
    let task = actix_rt::spawn(async move {
        let _place = place;
        assert!(!landing.slot.is_doomed(), "a delivery task is killed by chaos");
        let kind = landing.slot.job_kind(lane);
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
        let Some(destination) = &plan.destination else { return landing.report(Answer::bare(Outcome::Aborted)) };
        let (answer, lingering) = client.call(destination, outgoing, now).answer(plan.response_wait).await;
        if let Some(attempt) = traced {
            attempt.end(&plan, &answer);
        }
        match disturbance.befalls(obligor, &answer, count) {
            None => {}
            Some(Mischief::Drop) => return landing.report(disturb::dropped(&answer)),
            Some(Mischief::Corrupt) => return landing.report(disturb::corrupted(&answer)),
            Some(Mischief::Delay(by)) => return landing.delay(answer, by, &plan).await,
        }
        match lingering.filter(|_| plan.late_wait > plan.response_wait) {
            None => landing.report(answer),
            Some(lingering) => {
                let word = landing.linger(answer);
                word.say(lingering.is_taken(plan.late_wait).await);
            }
        }
    });
    slot.carries(flight.id, task.abort_handle());
}

/// The request and who makes it, or how it ends without having left.
fn ready(
    plan: &Plan,
    client: Result<Rc<Client>, Missing>,
    events: &[Event],
    job: (Lane, Option<JobKind>),
    attempts: u32,
    now: Timestamp,
) -> Result<(Rc<Client>, Outgoing), Answer> {
    let refused = |outcome, why: String| Answer { detail: why, ..Answer::bare(outcome) };
    let outgoing = plan.request(events, job, attempts, now);
    let outgoing = outgoing.map_err(|error| refused(Outcome::GenericError, error.to_string()))?;
    let client = client.map_err(|missing| refused(Outcome::SocketError, missing.to_string()))?;
    Ok((client, outgoing))
}

/// Reports a request whose task ends without an answer.
struct Landing {
    slot: Arc<Slot>,
    id: FlightId,
}

impl Landing {
    fn report(self, answer: Answer) {
        self.slot.finished(self.id, answer);
    }

    /// Reports so much later, as if the endpoint had taken so long.
    async fn delay(self, answer: Answer, by: Duration, plan: &Plan) {
        let latency = answer.latency.saturating_add(by);
        let rest = plan.response_wait.saturating_sub(answer.latency);
        tokio::time::sleep(by.min(rest)).await;
        if by <= rest {
            return self.report(Answer { latency, ..answer });
        }
        let taken = answer.outcome == Outcome::Delivered && latency <= plan.late_wait;
        let word = self.linger(disturb::delayed(plan.response_wait));
        if taken {
            tokio::time::sleep(by - rest).await;
        }
        word.say(taken);
    }

    /// Reports, and stays for a late word.
    fn linger(self, answer: Answer) -> LateWord {
        self.slot.lingers(self.id);
        self.slot.finished(self.id, answer);
        LateWord { slot: Arc::downgrade(&self.slot), id: self.id, taken: false }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        // Where there was an answer, this word is the second and does not count.
        self.slot.finished(self.id, Answer::bare(Outcome::Aborted));
    }
}

/// Tells how a request ended that lingered, however it did.
struct LateWord {
    slot: Weak<Slot>,
    id: FlightId,
    taken: bool,
}

impl LateWord {
    fn say(mut self, taken: bool) {
        self.taken = taken;
    }
}

impl Drop for LateWord {
    fn drop(&mut self) {
        // A subscription that is gone is told nothing.
        if let Some(slot) = self.slot.upgrade() {
            slot.lingered(self.id, self.taken);
        }
    }
}
