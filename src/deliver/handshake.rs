//! What an endpoint is told and asked beside events: whether it may be called, and that a subscription is gone.
//!
//! Invariants:
//! - The endpoint is asked as it will be called: through the same client, at its exact address, by the same rules on
//!   addresses and certificates, with the same headers of the subscription's own as far as they are known without an
//!   event. What would fail later fails now.
//! - A connection is made for each question, so that the answer is of the endpoint as it is today.
//!
//! Absent on purpose: what an answer means ([`policy::validation`](crate::policy::validation)), and asking again.

use std::{rc::Rc, time::Duration};

use awc::{
    ClientResponse,
    error::SendRequestError,
    http::{Method, StatusCode},
};
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    failure::{failed, failure, silence},
    request::{Destination, ORIGIN, OutgoingRequest, header_value, properties},
    socket::{EXCHANGE, RequestAttempt, RequestPhase},
    webhook::{BODY_BYTES_MAX, WebhookClient, body, head, read_body},
};
use crate::{
    event::{Schema, Timestamp},
    policy::{
        outcome::{Outcome, RequestResult},
        validation::{Handshake, ValidationFailure, ValidationResponse},
    },
};

/// What the event of the handshake, or of a farewell, says.
#[derive(Clone, Debug)]
pub struct ValidationEventKind<'a> {
    /// The event's id.
    pub id: &'a str,
    /// The topic's resource id.
    pub topic: &'a str,
    /// When it is.
    pub now: Timestamp,
}

/// The request that asks an endpoint with Event Grid's schema for `code`; `url` is the manual way.
pub fn validation_request(
    destination: &Destination,
    occasion: &ValidationEventKind<'_>,
    code: &str,
    url: &str,
) -> OutgoingRequest {
    let data = json!({ "validationCode": code, "validationUrl": url });
    let event = event_grid(occasion, "Microsoft.EventGrid.SubscriptionValidationEvent", data);
    outgoing(destination, "SubscriptionValidation", "application/json; charset=utf-8", &json!([event]))
}

/// The request that asks a CloudEvents endpoint, `destination`, for its permission; `later` is where it may give it later,
/// and how many requests a minute it is asked for.
pub fn permission_request(destination: &Destination, later: Option<(&str, u32)>) -> OutgoingRequest {
    let mut headers = vec![("webhook-request-origin", ORIGIN.into())];
    if let Some((url, rate)) = later {
        headers.push(("webhook-request-callback", header_value(url).into()));
        headers.push(("webhook-request-rate", rate.to_string().into()));
    }
    OutgoingRequest { headers, properties: properties(destination, None), body: Bytes::new() }
}

/// The request that tells an endpoint that a subscription is gone, in the schema that it knows.
pub fn farewell(
    destination: &Destination,
    occasion: &ValidationEventKind<'_>,
    subscription_id: &str,
) -> OutgoingRequest {
    let (kind, data) =
        ("Microsoft.EventGrid.SubscriptionDeletedEvent", json!({ "eventSubscriptionId": subscription_id }));
    let (content_type, body) = match destination.schema() {
        Schema::EventGrid | Schema::Custom => {
            ("application/json; charset=utf-8", json!([event_grid(occasion, kind, data)]))
        }
        Schema::CloudEvents => {
            let ValidationEventKind { id, topic, now } = occasion;
            let event = json!({
                "id": id, "source": topic, "type": kind, "time": now.to_event_grid(), "data": data, "specversion": "1.0",
            });
            ("application/cloudevents+json; charset=utf-8", event)
        }
    };
    outgoing(destination, "SubscriptionDeletion", content_type, &body)
}

fn event_grid(occasion: &ValidationEventKind<'_>, event_type: &str, data: Value) -> Value {
    let ValidationEventKind { id, topic, now } = occasion;
    json!({
        "id": id,
        "topic": topic,
        "subject": "",
        "data": data,
        "eventType": event_type,
        "eventTime": now.to_event_grid(),
        "metadataVersion": "1",
        "dataVersion": "1",
    })
}

fn outgoing(
    destination: &Destination,
    event_type: &'static str,
    content_type: &'static str,
    body: &Value,
) -> OutgoingRequest {
    let headers = vec![
        ("content-type", content_type.into()),
        ("aeg-event-type", event_type.into()),
        ("aeg-subscription-name", header_value(destination.subscription_name()).into()),
    ];
    OutgoingRequest { headers, properties: properties(destination, None), body: Bytes::from(body.to_string()) }
}

impl WebhookClient {
    /// Asks an endpoint, once, and hears its answer within the wait.
    ///
    /// # Errors
    /// Where there was no answer: what happened instead.
    pub async fn send_handshake(
        &self,
        handshake: Handshake,
        destination: &Destination,
        outgoing: &OutgoingRequest,
        wait: Duration,
    ) -> Result<ValidationResponse, ValidationFailure> {
        if let Err(refused) = self.rules().check_url(destination.url()) {
            return Err(unanswered(failure(Outcome::SocketError, refused.to_string())));
        }
        let exchange = RequestAttempt::new(true);
        match timeout(wait, self.question(handshake, destination, outgoing, &exchange)).await {
            Ok(Ok(heard)) => Ok(heard),
            Ok(Err(error)) => Err(unanswered(failed(&error, exchange.phase(), destination))),
            Err(_) => {
                let detail = silence(reached(&exchange, outgoing), destination, wait);
                Err(unanswered(failure(Outcome::TimedOut, detail)))
            }
        }
    }

    async fn question(
        &self,
        handshake: Handshake,
        destination: &Destination,
        outgoing: &OutgoingRequest,
        exchange: &Rc<RequestAttempt>,
    ) -> Result<ValidationResponse, SendRequestError> {
        let method = match handshake {
            Handshake::EventGrid => Method::POST,
            Handshake::CloudEvents => Method::OPTIONS,
        };
        let awc = self.awc(destination);
        EXCHANGE
            .scope(exchange.clone(), async move {
                let request = head(&awc, method, destination, outgoing);
                let mut response = request.send_body(body(outgoing.body.clone(), exchange.clone())).await?;
                exchange.enter(RequestPhase::Reading(response.status().as_u16()));
                let heard = read_response(handshake, &mut response).await;
                // The next question shall find the endpoint as it is then.
                exchange.poison();
                Ok(heard)
            })
            .await
    }
}

async fn read_response(handshake: Handshake, response: &mut ClientResponse) -> ValidationResponse {
    let header =
        |name| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let mut heard = ValidationResponse {
        status: response.status().as_u16(),
        allowed_origin: header("webhook-allowed-origin"),
        allowed_rate: header("webhook-allowed-rate"),
        body: Bytes::new(),
    };
    // Only this body is a word; every other might never end.
    if handshake == Handshake::EventGrid && response.status() == StatusCode::OK {
        let mut kept = BytesMut::new();
        read_body(response, &mut kept, BODY_BYTES_MAX).await;
        heard.body = kept.freeze();
    }
    heard
}

fn unanswered(RequestResult { outcome, detail, .. }: RequestResult) -> ValidationFailure {
    ValidationFailure::Unanswered { outcome, detail }
}

/// How far a question has come. One without a body is written at once with its head, which nobody tells.
fn reached(exchange: &RequestAttempt, outgoing: &OutgoingRequest) -> RequestPhase {
    let phase = exchange.phase();
    let written = exchange.began.get().is_some();
    match phase {
        RequestPhase::Connected(_) if written && outgoing.body.is_empty() => RequestPhase::Waiting,
        RequestPhase::Beginning
        | RequestPhase::Resolving
        | RequestPhase::Connecting(_)
        | RequestPhase::Connected(_)
        | RequestPhase::Sending
        | RequestPhase::Waiting
        | RequestPhase::Reading(_) => phase,
    }
}
