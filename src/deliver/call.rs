//! The time limits of a request, and late responses.
//!
//! A [`RequestInFlight`] ends within its time limit with a result. If that is a timeout and the
//! endpoint has the whole request, the endpoint may still accept the events. The request then
//! continues as a [`LateRequest`], whose only result is whether a success arrived.
//!
//! Invariants:
//! - A request that was not sent completely at the timeout is aborted: the endpoint cannot accept
//!   it, and continuing would be an attempt that the caller does not count.
//! - A late request keeps a connection and no events: the body is dropped with its last byte, and
//!   the copy for a repeat is dropped at the timeout. So it is never sent again.
//! - Of a late response only the head is read; then its connection is closed. A response whose
//!   status line arrived in time is not late, whatever the rest of it does.
//! - The late requests of an arbiter are bounded ([`ClientOptions::late_requests_max`]).
//!
//! [`ClientOptions::late_requests_max`]: super::webhook::ClientOptions::late_requests_max

use std::{pin::Pin, rc::Rc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    failure::{failure_result, timeout_detail},
    request::{Destination, OutgoingRequest},
    shown_head::shown_request_head,
    socket::{RequestAttempt, RequestPhase},
    webhook::{LatePermit, WebhookClient},
};
use gridhook_event::WallTime;
use gridhook_policy::outcome::{Failure, Outcome, RequestResult};

type Attempts<'a> = Pin<Box<dyn Future<Output = RequestResult> + 'a>>;

pub struct RequestInFlight<'a> {
    client: &'a WebhookClient,
    destination: &'a Destination,
    attempts: Attempts<'a>,
    first: Rc<RequestAttempt>,
}

/// A request that timed out.
pub struct LateRequest<'a> {
    start: Instant,
    /// The endpoint has the whole request and has not responded.
    attempts: Attempts<'a>,
    _permit: LatePermit,
}

impl<'a> RequestInFlight<'a> {
    pub(super) fn new(
        client: &'a WebhookClient,
        destination: &'a Destination,
        outgoing: OutgoingRequest,
        wall: WallTime,
    ) -> Self {
        let outgoing = Rc::new(outgoing);
        let first = RequestAttempt::new(false);
        first.again.set(Some(Rc::clone(&outgoing)));
        let attempts =
            Box::pin(client.send_with_repeat(destination, outgoing, Rc::clone(&first), wall));
        Self {
            client,
            destination,
            attempts,
            first,
        }
    }

    /// The result, within `wait` from now, and the late request if a response may still come.
    pub async fn wait_for_response(
        mut self,
        wait: Duration,
    ) -> (RequestResult, Option<LateRequest<'a>>) {
        let start = Instant::now();
        if let Err(error) = self.client.rules().check_url(self.destination.url()) {
            return (
                failure_result(Failure::SocketError, error.to_string()),
                None,
            );
        }
        let first = &self.first;
        first.until.set(Some(start + wait));
        let mut result = timeout_at(start + wait, &mut self.attempts).await;
        if result.is_err() && first.latest_attempt().has_status() {
            // The time limit of the rest has passed too.
            result = Ok((&mut self.attempts).await);
        }
        let current = first.latest_attempt();
        let began = current.began.get().or(first.began.get()).unwrap_or(start);
        let phases = current.phase_durations(self.destination.url().scheme() == "https");
        match result {
            Ok(result) => {
                let latency = current.response_end().saturating_duration_since(began);
                let mut result = RequestResult {
                    latency,
                    phases,
                    ..result
                };
                self.note_request(&mut result);
                (result, None)
            }
            Err(_) => {
                let phase = current.current_phase();
                let result = failure_result(
                    Failure::TimedOut,
                    timeout_detail(phase, self.destination, wait),
                );
                let is_unreached =
                    matches!(phase, RequestPhase::Resolving | RequestPhase::Connecting(_));
                let mut result = RequestResult {
                    latency: began.elapsed(),
                    phases,
                    unreached: is_unreached,
                    ..result
                };
                self.note_request(&mut result);
                current.late.set(true);
                (result, self.late_permit(phase, start))
            }
        }
    }

    /// Notes the head of a request that failed. Its copy for a repeat is no longer needed.
    fn note_request(&self, result: &mut RequestResult) {
        if result.outcome == Outcome::Delivered {
            return;
        }
        if let Some(outgoing) = self.first.again.take() {
            let heads = result.heads.get_or_insert_default();
            heads.request = shown_request_head(self.destination, &outgoing);
        }
    }

    fn late_permit(self, phase: RequestPhase, start: Instant) -> Option<LateRequest<'a>> {
        self.first.again.take();
        match phase {
            RequestPhase::Waiting => Some(LateRequest {
                start,
                _permit: self.client.late_permit()?,
                attempts: self.attempts,
            }),
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
    /// Whether a success arrives within `wait` from the start of the request. Any other response
    /// counts as none.
    pub async fn wait_for_success(self, wait: Duration) -> bool {
        let result = timeout_at(self.start + wait, self.attempts).await;
        result.is_ok_and(|response| response.outcome == Outcome::Delivered)
    }
}
