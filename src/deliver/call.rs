//! How long a request may take, and what is heard of it after that.
//!
//! A [`RequestInFlight`] ends within the wait with an answer. Where that is a timeout and the endpoint has the whole request, it may
//! take the events yet: the request lives on as [`LateRequest`], whose one word is whether a success came.
//!
//! Invariants:
//! - What was not sent whole when the wait is over is cut: nobody can take it, and going on would be an attempt that its
//!   caller does not know of.
//! - What lingers keeps a connection and no events: its own copy went with the last byte sent, and the copy for another
//!   try is given up with the wait. So it is never sent again.
//! - A late answer is its head alone; its body is not read, and its connection is closed. An answer whose head came within
//!   the wait is no late one, whatever its body does.
//! - Those of all subscriptions of an arbiter that linger are bounded ([`Options::lingering_max`]).
//!
//! [`Options::lingering_max`]: super::webhook::ClientOptions::lingering_max

use std::{cell::Cell, pin::Pin, rc::Rc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    failure::{failure, silence},
    request::{Destination, OutgoingRequest},
    socket::{RequestAttempt, RequestPhase},
    webhook::{LateSlot, RepeatRequest, WebhookClient},
};
use crate::{
    event::Timestamp,
    policy::outcome::{Outcome, RequestResult},
};

type Attempts<'a> = Pin<Box<dyn Future<Output = RequestResult> + 'a>>;

/// A request on its way.
pub struct RequestInFlight<'a> {
    client: &'a WebhookClient,
    destination: &'a Destination,
    attempts: Attempts<'a>,
    again: RepeatRequest,
    exchanges: [Rc<RequestAttempt>; 2],
}

/// A request whose wait is over.
pub struct LateRequest<'a> {
    start: Instant,
    /// The endpoint has it all and has said nothing.
    attempts: Attempts<'a>,
    _place: LateSlot,
}

impl<'a> RequestInFlight<'a> {
    pub(super) fn new(
        client: &'a WebhookClient,
        destination: &'a Destination,
        outgoing: OutgoingRequest,
        now: Timestamp,
    ) -> Self {
        let outgoing = Rc::new(outgoing);
        let again: RepeatRequest = Rc::new(Cell::new(Some(Rc::clone(&outgoing))));
        let exchanges = [RequestAttempt::new(false), RequestAttempt::new(true)];
        let attempts = Box::pin(client.attempts(destination, outgoing, Rc::clone(&again), exchanges.clone(), now));
        Self { client, destination, attempts, again, exchanges }
    }

    /// The answer, within `wait` from now; and the request itself, where it may be answered yet.
    pub async fn answer(mut self, wait: Duration) -> (RequestResult, Option<LateRequest<'a>>) {
        let start = Instant::now();
        if let Err(refused) = self.client.rules().check_url(self.destination.url()) {
            return (failure(Outcome::SocketError, refused.to_string()), None);
        }
        let [first, second] = &self.exchanges;
        for exchange in [first, second] {
            exchange.until.set(Some(start + wait));
        }
        let mut answered = timeout_at(start + wait, &mut self.attempts).await;
        let has_head = |exchange: &Rc<RequestAttempt>| matches!(exchange.phase(), RequestPhase::Reading(_));
        if answered.is_err() && (has_head(first) || has_head(second)) {
            // The status has decided, and the body's own timer is over, too.
            answered = Ok((&mut self.attempts).await);
        }
        let began = second.began.get().or(first.began.get()).unwrap_or(start);
        let current = if second.phase() == RequestPhase::Beginning { first } else { second };
        let phases = current.phases(self.destination.url().scheme() == "https");
        match answered {
            Ok(answer) => (RequestResult { latency: began.elapsed(), phases, ..answer }, None),
            Err(_) => {
                let phase = current.phase();
                let answer = failure(Outcome::TimedOut, silence(phase, self.destination, wait));
                let unreached = matches!(phase, RequestPhase::Resolving | RequestPhase::Connecting(_));
                let answer = RequestResult { latency: began.elapsed(), phases, unreached, ..answer };
                current.late.set(true);
                (answer, self.linger(phase, start))
            }
        }
    }

    fn linger(self, phase: RequestPhase, start: Instant) -> Option<LateRequest<'a>> {
        self.again.take();
        match phase {
            RequestPhase::Waiting => {
                Some(LateRequest { start, _place: self.client.linger()?, attempts: self.attempts })
            }
            RequestPhase::Beginning
            | RequestPhase::Resolving
            | RequestPhase::Connecting(_)
            | RequestPhase::Connected(_)
            | RequestPhase::Sending
            | RequestPhase::Reading(_) => None,
        }
    }
}

impl LateRequest<'_> {
    /// Whether a success comes within `wait` from when the request left. Whatever else comes is as good as nothing.
    pub async fn is_taken(self, wait: Duration) -> bool {
        let answered = timeout_at(self.start + wait, self.attempts).await;
        answered.is_ok_and(|answer| answer.outcome == Outcome::Delivered)
    }
}
