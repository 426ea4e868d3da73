//! Handshake and deletion notice: requests to an endpoint other than events.
//!
//! Invariants:
//! - A handshake is sent like a delivery: by the same client, to the exact address, with the same
//!   address rules and certificates, and with those delivery properties that do not depend on an
//!   event. What would fail later fails now.
//! - Each handshake uses a new connection, so that the result is current.
//!
//! The meaning of a response ([`policy::validation`](gridhook_policy::validation)) and repeats are
//! not here.

use std::{rc::Rc, time::Duration};

use awc::{
    ClientResponse,
    error::SendRequestError,
    http::{Method, StatusCode, header::HeaderValue},
};
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    failure::{failed_result, failure_result, timeout_detail},
    request::{Destination, ORIGIN, OutgoingRequest, header_value, property_headers},
    response::{DRAINED_BYTES_MAX, read_body},
    socket::{ATTEMPT, RequestAttempt, RequestPhase},
    webhook::WebhookClient,
};
use gridhook_event::{Schema, WallTime};
use gridhook_policy::{
    outcome::{Failure, RequestResult},
    validation::{Handshake, ValidationFailure, ValidationResponse},
};

/// The event of a handshake or of a deletion notice.
#[derive(Clone, Debug)]
pub struct EventEnvelope<'a> {
    pub id: &'a str,
    pub topic: &'a str,
    pub wall: WallTime,
}

/// The handshake request for Event Grid schemas, with the validation code and the URL for manual
/// validation.
pub fn validation_request(
    destination: &Destination,
    envelope: &EventEnvelope<'_>,
    code: &str,
    url: &str,
) -> OutgoingRequest {
    let data = json!({ "validationCode": code, "validationUrl": url });
    let event = event_grid(
        envelope,
        "Microsoft.EventGrid.SubscriptionValidationEvent",
        data,
    );
    new_request(
        destination,
        "SubscriptionValidation",
        "application/json; charset=utf-8",
        &json!([event]),
    )
}

/// The handshake request for CloudEvents endpoints. `later` is the callback URL for a later
/// permission and the requested rate per minute.
pub fn permission_request(
    destination: &Destination,
    later: Option<(&str, u32)>,
) -> OutgoingRequest {
    let mut headers = vec![("webhook-request-origin", ORIGIN.into())];
    if let Some((url, rate)) = later {
        headers.push(("webhook-request-callback", header_value(url).into()));
        headers.push(("webhook-request-rate", rate.to_string().into()));
    }
    OutgoingRequest {
        headers,
        properties: property_headers(destination, None),
        body: Bytes::new(),
        ..OutgoingRequest::default()
    }
}

/// The deletion notice, in the delivery schema.
pub fn deletion_notice(
    destination: &Destination,
    envelope: &EventEnvelope<'_>,
    subscription_id: &str,
) -> OutgoingRequest {
    let kind = "Microsoft.EventGrid.SubscriptionDeletedEvent";
    let data = json!({ "eventSubscriptionId": subscription_id });
    let (content_type, body) = match destination.schema() {
        Schema::EventGrid | Schema::Custom => (
            "application/json; charset=utf-8",
            json!([event_grid(envelope, kind, data)]),
        ),
        Schema::CloudEvents => {
            let EventEnvelope { id, topic, wall } = envelope;
            let event = json!({
                "id": id, "source": topic, "type": kind, "time": wall.to_string(), "data": data, "specversion": "1.0",
            });
            ("application/cloudevents+json; charset=utf-8", event)
        }
    };
    new_request(destination, "SubscriptionDeletion", content_type, &body)
}

fn event_grid(envelope: &EventEnvelope<'_>, event_type: &str, data: Value) -> Value {
    let EventEnvelope { id, topic, wall } = envelope;
    json!({
        "id": id,
        "topic": topic,
        "subject": "",
        "data": data,
        "eventType": event_type,
        "eventTime": wall.to_string(),
        "metadataVersion": "1",
        "dataVersion": "1",
    })
}

fn new_request(
    destination: &Destination,
    event_type: &'static str,
    content_type: &'static str,
    body: &Value,
) -> OutgoingRequest {
    let headers = vec![
        ("content-type", content_type.into()),
        ("aeg-event-type", event_type.into()),
        (
            "aeg-subscription-name",
            destination.name_value().to_owned().into(),
        ),
    ];
    OutgoingRequest {
        headers,
        properties: property_headers(destination, None),
        body: Bytes::from(body.to_string()),
        ..OutgoingRequest::default()
    }
}

impl WebhookClient {
    /// Sends a handshake once and waits for the response.
    ///
    /// # Errors
    /// If there is no response: what happened instead.
    pub async fn send_handshake(
        &self,
        handshake: Handshake,
        destination: &Destination,
        outgoing: &OutgoingRequest,
        wait: Duration,
    ) -> Result<ValidationResponse, ValidationFailure> {
        if let Err(refused) = self.rules().check_url(destination.url()) {
            return Err(unanswered_failure(failure_result(
                Failure::SocketError,
                refused.to_string(),
            )));
        }
        let request_attempt = RequestAttempt::new(true);
        match timeout(
            wait,
            self.exchange_handshake(handshake, destination, outgoing, &request_attempt),
        )
        .await
        {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(unanswered_failure(failed_result(
                &error,
                request_attempt.current_phase(),
                destination,
            ))),
            Err(_) => {
                let detail =
                    timeout_detail(reached_phase(&request_attempt, outgoing), destination, wait);
                Err(unanswered_failure(failure_result(
                    Failure::TimedOut,
                    detail,
                )))
            }
        }
    }

    async fn exchange_handshake(
        &self,
        handshake: Handshake,
        destination: &Destination,
        outgoing: &OutgoingRequest,
        request_attempt: &Rc<RequestAttempt>,
    ) -> Result<ValidationResponse, SendRequestError> {
        let method = match handshake {
            Handshake::EventGrid => Method::POST,
            Handshake::CloudEvents => Method::OPTIONS,
        };
        ATTEMPT
            .scope(request_attempt.clone(), async move {
                let mut response = self
                    .send_request(method, destination, outgoing, request_attempt, None)
                    .await?;
                request_attempt.enter_phase(RequestPhase::Reading(response.status().as_u16()));
                let reply = read_response(handshake, &mut response).await;
                // The next handshake must use a new connection.
                request_attempt.discard_connection();
                Ok(reply)
            })
            .await
    }
}

async fn read_response(handshake: Handshake, response: &mut ClientResponse) -> ValidationResponse {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let header = |name| response.headers().get(name).map(text);
    let mut reply = ValidationResponse {
        status: response.status().as_u16(),
        allowed_origin: header("webhook-allowed-origin"),
        allowed_rate: header("webhook-allowed-rate"),
        body: Bytes::new(),
    };
    // Only this body is used. Others may never end.
    if handshake == Handshake::EventGrid && response.status() == StatusCode::OK {
        let mut body_bytes = BytesMut::new();
        read_body(response, &mut body_bytes, [DRAINED_BYTES_MAX; 2]).await;
        reply.body = body_bytes.freeze();
    }
    reply
}

fn unanswered_failure(
    RequestResult {
        outcome, detail, ..
    }: RequestResult,
) -> ValidationFailure {
    ValidationFailure::Unanswered { outcome, detail }
}

/// The phase of a handshake. awc writes a request without a body together with its head, without
/// reporting it.
fn reached_phase(request_attempt: &RequestAttempt, outgoing: &OutgoingRequest) -> RequestPhase {
    let phase = request_attempt.current_phase();
    let written = request_attempt.began.get().is_some();
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
