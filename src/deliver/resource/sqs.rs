//! `Sqs`: a queue of Amazon SQS or of a compatible service. A request sends up to ten messages, an
//! event each.
//!
//! Delivery properties are message attributes. A queue whose name ends with `.fifo` has the group
//! of the delivery property `MessageGroupId`, or else the name of the event subscription; its
//! deduplication ids are the same at every attempt.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use object_store::{
    aws::{AwsAuthorizer, AwsCredential},
    client::{HttpRequest, HttpRequestBody},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{
    BatchMaxima, InvalidProperty, Kind, ResourceTarget, SenderContext, check_text,
    credential_refused,
};
use crate::{
    Batch, Destination, HttpSender, HttpTarget, OutgoingRequest, RequestHeader, Sender, clients,
    error::SenderError, request::RequestError, sender::RequestEncoder,
};
use gridhook_event::{Event, Seq};
use gridhook_policy::outcome::{EventResult, Failure, Outcome, RequestResult};

/// Maximum number of messages of a request, as SQS allows.
const BATCH_EVENTS_MAX: u32 = 10;

/// A request and a message of compatible services, such as ElasticMQ, have at most 256 KiB with the
/// attributes. SQS itself takes 1 MiB.
const BATCH_BYTES_MAX: u64 = 224 * 1024;

/// 32 KiB of a response are read: ten messages have a line each, with an error of some hundred
/// bytes at most.
const RESPONSE_BYTES_MAX: usize = 32 * 1024;

/// Parts of codes and messages of errors that say that the credentials are refused, or permit too
/// little.
const CREDENTIAL_PROBLEMS: [&str; 9] = [
    "AccessDenied",
    "ExpiredToken",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
];

/// Maximum number of attributes of a message, as SQS allows.
const ATTRIBUTES_MAX: usize = 10;

/// The delivery property that is the group of a message.
const GROUP: &str = "MessageGroupId";

/// A queue of Amazon SQS or of a compatible service
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SqsDestinationProperties)]
pub struct Sqs {
    /// Name of a table of `delivery.resources`, or a resource id that it stands for
    #[schema(example = "aws")]
    pub resource_id: String,
    /// Name of the queue
    #[schema(example = "orders")]
    pub queue_name: String,
}

impl Sqs {
    fn is_fifo(&self) -> bool {
        self.queue_name.ends_with(".fifo")
    }
}

impl Kind for Sqs {
    const SCHEMES: &'static [&'static str] = &["http", "https"];
    const HAS_PROPERTIES: bool = true;
    const TAKES_PARTS: bool = true;

    fn entity_name(&self) -> Option<&str> {
        Some(&self.queue_name)
    }

    fn check_properties(&self) -> Result<(), InvalidProperty> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let expectation = "letters, digits, hyphens and underscores, and .fifo at the end";
        let name = self
            .queue_name
            .strip_suffix(".fifo")
            .unwrap_or(&self.queue_name);
        check_text("queueName", name, 1..=80, is_allowed, expectation)
    }

    fn service_limits(&self) -> BatchMaxima {
        BatchMaxima {
            events: BATCH_EVENTS_MAX,
            bytes: BATCH_BYTES_MAX,
        }
    }

    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
        let service = at.require_service();
        let text_credential = |name| service.find_credential(name).map(str::to_owned);
        let (Some(key_id), Some(secret_key)) = (
            text_credential("access_key_id"),
            text_credential("secret_access_key"),
        ) else {
            return Err(SenderError::Credentials {
                service: service.name.clone(),
                needed: "access_key_id and secret_access_key",
            });
        };
        let credential = AwsCredential {
            key_id,
            secret_key,
            token: text_credential("session_token"),
        };
        let is_text = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_text(&credential.key_id) || !credential.token.iter().all(is_text) {
            return Err(SenderError::CredentialCharacters(service.name.clone()));
        }
        let queue_url = format!(
            "{}/{}",
            service.url.as_str().trim_end_matches('/'),
            self.queue_name
        );
        // sqs.REGION.amazonaws.com
        let mut labels = service.url.host_str().unwrap_or_default().split('.');
        let region = labels
            .by_ref()
            .any(|label| label == "sqs")
            .then(|| labels.next())
            .flatten();
        let destination =
            at.new_destination(&format!("{}/", service.url.origin().ascii_serialization()))?;
        let encoding = Box::new(Messages {
            service: service.name.clone(),
            target: at.target.clone(),
            credential,
            region: region.unwrap_or("us-east-1").to_owned(),
            queue_url,
            is_fifo: self.is_fifo(),
        });
        let target = Arc::new(HttpTarget {
            destination,
            encoding,
        });
        Ok(Rc::new(HttpSender {
            client: clients::operators_client(at.options),
            target,
            tokens: None,
        }))
    }
}

/// Turns events into a request that sends messages.
struct Messages {
    /// The name of the service's table in the settings.
    service: String,
    target: ResourceTarget,
    credential: AwsCredential,
    region: String,
    queue_url: String,
    is_fifo: bool,
}

impl Messages {
    fn encode_message(
        &self,
        index: usize,
        event: &Event,
        batch: &Batch,
    ) -> Result<Value, RequestError> {
        let wire = self.target.delivered_bytes(event)?;
        let mut message = Map::from_iter([
            ("Id".to_owned(), index.to_string().into()),
            (
                "MessageBody".to_owned(),
                String::from_utf8_lossy(&wire).into(),
            ),
        ]);
        let (groups, others): (Vec<_>, Vec<_>) = self
            .target
            .message_headers(event, batch)
            .into_iter()
            .partition(|(name, _)| name.eq_ignore_ascii_case(GROUP));
        if self.is_fifo {
            let group = groups
                .into_iter()
                .next()
                .map_or(self.target.subscription_name.clone(), |(_, group)| group);
            message.insert(GROUP.to_owned(), group.into());
            message.insert(
                "MessageDeduplicationId".to_owned(),
                self.target.message_id(event, batch).into(),
            );
        }
        let is_allowed = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        };
        let attributes = others
            .into_iter()
            .filter(|(name, _)| is_allowed(name))
            .take(ATTRIBUTES_MAX);
        let attributes: Map<String, Value> = attributes
            .map(|(name, value)| (name, json!({"DataType": "String", "StringValue": value})))
            .collect();
        if !attributes.is_empty() {
            message.insert("MessageAttributes".to_owned(), attributes.into());
        }
        Ok(message.into())
    }
}

impl RequestEncoder for Messages {
    fn encode_batch(
        &self,
        destination: &Destination,
        batch: &Batch,
    ) -> Result<OutgoingRequest, RequestError> {
        let entries: Result<Vec<Value>, _> = batch
            .events
            .iter()
            .enumerate()
            .map(|(index, event)| self.encode_message(index, event, batch))
            .collect();
        let body = json!({"QueueUrl": self.queue_url, "Entries": entries?}).to_string();
        let mut headers: Vec<RequestHeader> = vec![
            ("content-type", "application/x-amz-json-1.0".into()),
            ("x-amz-target", "AmazonSQS.SendMessageBatch".into()),
        ];
        let mut signed_request = HttpRequest::new(HttpRequestBody::from(body.clone()));
        *signed_request.method_mut() = "POST".parse().expect("a method");
        *signed_request.uri_mut() = destination
            .url()
            .as_str()
            .parse()
            .map_err(|_| RequestError::Host)?;
        for (name, value) in &headers {
            signed_request
                .headers_mut()
                .insert(*name, value.parse().expect("a constant is a header"));
        }
        let authorizer = AwsAuthorizer::new(&self.credential, "sqs", &self.region);
        authorizer
            .try_authorize(&mut signed_request, None)
            .expect("ring makes the signature");
        let mut properties = Vec::new();
        for name in [
            "authorization",
            "x-amz-content-sha256",
            "x-amz-date",
            "x-amz-security-token",
        ] {
            let Some(value) = signed_request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
            else {
                continue;
            };
            // Like delivery properties: sent as sensitive headers and never shown.
            properties.push((name.to_owned(), value.to_owned()));
        }
        headers.push(("accept", "application/json".into()));
        Ok(OutgoingRequest {
            headers,
            properties,
            body: body.into(),
            response_bytes: RESPONSE_BYTES_MAX,
            ..OutgoingRequest::default()
        })
    }

    /// A success can have failed messages, and most failures have the status 400.
    fn correct_result(&self, result: RequestResult, events: &[Seq]) -> RequestResult {
        if result.status.is_none() {
            return result;
        }
        let body: Value = serde_json::from_slice(&result.body).unwrap_or_default();
        if result.outcome == Outcome::Delivered {
            let list = |name: &str| body[name].as_array().map(Vec::as_slice).unwrap_or_default();
            let successful = list("Successful");
            let failures = list("Failed");
            let events = events.iter().enumerate();
            let events = events.map(|(index, seq)| {
                self.event_result(*seq, &index.to_string(), successful, failures)
            });
            return result.with_events(events.collect());
        }
        // AWS writes it small, others do not.
        let message = body
            .get("message")
            .or(body.get("Message"))
            .unwrap_or(&Value::Null);
        let code = text_or_empty(&body["__type"]);
        let message = text_or_empty(message);
        let RequestResult {
            outcome,
            status,
            detail,
            ..
        } = self.result_for_error(result.status, code, message);
        // The detail says the same and more, and is shown only in place of a body.
        RequestResult {
            outcome,
            status,
            detail,
            body: Bytes::new(),
            ..result
        }
    }

    fn status_decides(&self) -> bool {
        false
    }
}

impl Messages {
    /// The result of the message `id`, of a request that returned 200.
    fn event_result(
        &self,
        seq: Seq,
        id: &str,
        successful: &[Value],
        failed: &[Value],
    ) -> EventResult {
        if let Some(entry) = failed.iter().find(|entry| entry["Id"] == id) {
            let status = if entry["SenderFault"] == true {
                400
            } else {
                500
            };
            let result = self.result_for_error(
                Some(status),
                text_or_empty(&entry["Code"]),
                text_or_empty(&entry["Message"]),
            );
            return EventResult::new(seq, &result);
        }
        if successful.iter().any(|entry| entry["Id"] == id) {
            return EventResult::delivered(seq);
        }
        let detail = "the response does not name the message".to_owned();
        EventResult {
            seq,
            outcome: Failure::GenericError.into(),
            status: Some(200),
            detail,
        }
    }

    /// The result for an error of the service.
    fn result_for_error(&self, status: Option<u16>, code: &str, message: &str) -> RequestResult {
        let has = |word: &&str| code.contains(word) || message.contains(word);
        let says = |words: &[&str]| words.iter().any(has);
        if says(&CREDENTIAL_PROBLEMS) {
            return credential_refused(&self.service, &format!("{code}: {message}"));
        }
        let status = match status {
            _ if says(&["BatchRequestTooLong", "must be shorter than"]) => Some(413),
            _ if says(&["QueueDoesNotExist", "NonExistentQueue"]) => Some(404),
            _ if says(&["Throttl", "OverLimit", "ServiceUnavailable"]) => Some(503),
            status => status,
        };
        let outcome = status.map_or(Failure::GenericError.into(), Outcome::from_status);
        RequestResult {
            status,
            detail: format!("{code}: {message}"),
            ..RequestResult::from_outcome(outcome)
        }
    }
}

fn text_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
