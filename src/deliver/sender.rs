//! The sender of a destination: a batch of events in, one result out. Each kind of destination has
//! one implementation.
//!
//! [`HttpSender`] is that of webhooks and of all services that take events by HTTP; what differs is
//! how a batch becomes a request ([`RequestEncoder`]).

use std::{fmt, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, timeout_at};

use super::{
    LateRequest, WebhookClient,
    bodies::BodyPermit,
    error::UnreachableError,
    failure::failure_result,
    identity::{TokenFailure, TokenSource},
    request::{self, Destination, OutgoingRequest, RequestError, RequestHeader},
    response::BODY_BYTES_MAX,
    shown_head::shown_request_head,
    signature::Signer,
};
use gridhook_event::{Event, PartitionId, Seq, WallTime};
use gridhook_policy::outcome::{Failure, RequestResult};

/// Events that are sent at once, and what their request needs besides.
pub struct Batch {
    /// The events, at least one.
    pub events: Vec<Event>,
    /// Number of earlier attempts of the first event.
    pub attempts_before: u32,
    /// Headers for the job and the trace. A delivery property of the same name takes precedence.
    pub headers: Vec<RequestHeader>,
    /// The current time, for signatures, tokens and dates.
    pub wall: WallTime,
    /// Time limit for the response.
    pub wait: Duration,
    /// The bytes of the body in the budget of all, and the partition of the events.
    pub permit: Option<(BodyPermit, PartitionId)>,
}

/// The result of a batch, and the late response that may still arrive.
pub type Sent<'a> = (RequestResult, Option<LateRequest<'a>>);

/// Sends batches to one destination. Belongs to an arbiter.
pub trait Sender {
    /// Sends a batch. Ends within its time limit, with a result for all its events.
    fn send_batch(&self, batch: Batch) -> LocalBoxFuture<'_, Sent<'_>>;

    /// Whether the destination can be reached, and if not, why. Sends no event.
    fn check_reachable(&self, wall: WallTime) -> LocalBoxFuture<'_, Result<(), UnreachableError>>;
}

/// Turns a batch into a request.
pub trait RequestEncoder: Send + Sync {
    /// The request for `batch`.
    ///
    /// # Errors
    /// If an event cannot be read.
    fn encode_batch(
        &self,
        destination: &Destination,
        batch: &Batch,
    ) -> Result<OutgoingRequest, RequestError>;

    /// Signs a request that carries no event of a topic: a handshake or a deletion notice with this
    /// unique id.
    fn sign_notice(&self, _outgoing: &mut OutgoingRequest, _id: &str, _wall: WallTime) {}

    /// Corrects the result of a service whose statuses mean something else than those of a webhook,
    /// for a request with these events.
    fn correct_result(&self, result: RequestResult, _events: &[Seq]) -> RequestResult {
        result
    }

    /// Whether a status of success says that all events were accepted, so that a late one counts
    /// without its body. If not, [`RequestEncoder::correct_result`] has the events.
    fn status_decides(&self) -> bool {
        true
    }
}

/// A destination that is called by HTTP.
pub struct HttpTarget {
    pub destination: Destination,
    pub encoding: Box<dyn RequestEncoder>,
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpTarget")
            .field(&self.destination)
            .finish_non_exhaustive()
    }
}

/// A request as operators see it, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownRequest {
    /// The request line and the header fields; [`None`] unless the destination is a webhook.
    pub head: Option<String>,
    pub body: Bytes,
}

impl HttpTarget {
    /// The request that would send `batch`.
    ///
    /// # Errors
    /// If an event cannot be read.
    pub fn show_request(&self, batch: &Batch) -> Result<ShownRequest, RequestError> {
        let outgoing = self.encoding.encode_batch(&self.destination, batch)?;
        Ok(ShownRequest {
            head: Some(shown_request_head(&self.destination, &outgoing)),
            body: outgoing.body,
        })
    }
}

pub struct HttpSender {
    /// The client of the arbiter.
    pub client: Rc<WebhookClient>,
    pub target: Arc<HttpTarget>,
    /// The access tokens that the destination demands.
    pub tokens: Option<TokenSource>,
}

impl HttpSender {
    /// Sends a request with an access token. If it is refused and was not fetched just now, the
    /// request is sent again with a new one, within the same time limit.
    async fn send_authorized(
        &self,
        tokens: &TokenSource,
        outgoing: OutgoingRequest,
        wait: Duration,
        wall: WallTime,
    ) -> Sent<'_> {
        let until = Instant::now() + wait;
        let mut refused_token = None;
        loop {
            let (token, is_new) =
                match timeout_at(until, tokens.get_token(refused_token.as_ref(), wall)).await {
                    Ok(Ok(token)) => token,
                    Ok(Err(problem)) => {
                        let kind = match problem {
                            TokenFailure::Refused(_) => Failure::CredentialRefused,
                            TokenFailure::Unavailable(_) => Failure::GenericError,
                        };
                        return (failure_result(kind, problem.to_string()), None);
                    }
                    Err(_) => {
                        return (
                            failure_result(Failure::TimedOut, "no access token in time".to_owned()),
                            None,
                        );
                    }
                };
            let mut outgoing = outgoing.clone();
            token.add_to_request(&mut outgoing);
            let left = until.saturating_duration_since(Instant::now());
            let mut outcome = self
                .client
                .begin_request(&self.target.destination, outgoing, wall)
                .wait_for_response(left)
                .await;
            outcome.0.repeated = refused_token.is_some();
            if outcome.0.status != Some(401) || is_new || refused_token.is_some() {
                return outcome;
            }
            refused_token = Some(token);
        }
    }
}

impl Sender for HttpSender {
    fn send_batch(&self, batch: Batch) -> LocalBoxFuture<'_, Sent<'_>> {
        let HttpTarget {
            destination,
            encoding,
        } = &*self.target;
        let outgoing = encoding.encode_batch(destination, &batch);
        let status_decides = encoding.status_decides();
        let first = batch.events.first().map(|event| event.seq);
        // The events are in the request's body now. A late response must not keep them in memory.
        let events = batch
            .events
            .iter()
            .filter(|_| !status_decides)
            .map(|event| event.seq)
            .collect::<Vec<_>>();
        let Batch {
            wall,
            wait,
            mut permit,
            ..
        } = batch;
        Box::pin(async move {
            let mut outgoing = match outgoing {
                Ok(outgoing) => outgoing,
                Err(error) => {
                    return (
                        failure_result(Failure::GenericError, error.to_string()),
                        None,
                    );
                }
            };
            if let Some(((permit, partition), first)) = permit.as_mut().zip(first) {
                outgoing.body = permit.share_body((*partition, first), outgoing.body);
            }
            let (result, late) = match &self.tokens {
                // Boxed, so that requests without a token have a smaller future.
                Some(tokens) => Box::pin(self.send_authorized(tokens, outgoing, wait, wall)).await,
                None => {
                    self.client
                        .begin_request(destination, outgoing, wall)
                        .wait_for_response(wait)
                        .await
                }
            };
            let mut result = encoding.correct_result(result, &events);
            result.body.truncate(BODY_BYTES_MAX);
            (result, late.filter(|_| status_decides))
        })
    }

    fn check_reachable(&self, _: WallTime) -> LocalBoxFuture<'_, Result<(), UnreachableError>> {
        Box::pin(async {
            let destination = &self.target.destination;
            if self.client.check_reachable(destination).await {
                Ok(())
            } else {
                Err(UnreachableError::Service(format!(
                    "no connection to {}",
                    destination.authority()
                )))
            }
        })
    }
}

/// The requests of a webhook.
#[derive(Default)]
pub struct WebhookEncoding {
    pub signer: Option<Signer>,
}

impl RequestEncoder for WebhookEncoding {
    fn encode_batch(
        &self,
        destination: &Destination,
        batch: &Batch,
    ) -> Result<OutgoingRequest, RequestError> {
        let mut outgoing = request::build(destination, &batch.events, batch.attempts_before)?;
        if let Some(signer) = &self.signer {
            signer.sign_request(&mut outgoing, &batch.events, batch.wall);
        }
        for header in &batch.headers {
            let mut properties = outgoing.properties.iter();
            if !properties.any(|(name, _)| name.eq_ignore_ascii_case(header.0)) {
                outgoing.headers.push(header.clone());
            }
        }
        Ok(outgoing)
    }

    fn sign_notice(&self, outgoing: &mut OutgoingRequest, id: &str, wall: WallTime) {
        if let Some(signer) = &self.signer {
            signer.sign_message(outgoing, format!("msg_{id}"), wall);
        }
    }
}
