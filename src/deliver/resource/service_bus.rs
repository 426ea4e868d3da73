//! `ServiceBusQueue` and `ServiceBusTopic`: a queue or a topic of a Service Bus namespace, by its
//! REST interface.
//!
//! A request has the messages of a batch, an event each. Delivery properties that are named like a
//! broker property (`SessionId`, `ScheduledEnqueueTimeUtc`) are broker properties, the others are
//! user properties. Events of a request have the same properties, because a batch must not have
//! several sessions. Requests are signed with a key of a shared access policy, or carry a shared
//! access signature or an access token.

use std::{rc::Rc, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{
    BatchMaxima, InvalidProperty, Kind, ResourceTarget, SenderContext, check_text, content_type,
    last_segment, with_refused_credential,
};
use crate::{
    Batch, Destination, HttpSender, HttpTarget, OutgoingRequest, Sender, clients,
    error::SenderError, request::RequestError, sender::RequestEncoder,
};
use gridhook_event::{Event, Seq, WallTime, parse_instant};
use gridhook_policy::outcome::{Failure, Outcome, RequestResult};

/// The standard tier takes 256 KiB, with the properties.
const BATCH_BYTES_MAX: u64 = 192 * 1024;

const BATCH_EVENTS_MAX: u32 = 100;

/// How long a shared access signature that we sign is valid.
const SIGNATURE_AGE: Duration = Duration::from_secs(15 * 60);

/// The broker properties that a delivery property can set.
const BROKER_PROPERTIES: [&str; 12] = [
    "ContentType",
    "CorrelationId",
    "Label",
    "MessageId",
    "PartitionKey",
    "ReplyTo",
    "ReplyToSessionId",
    "ScheduledEnqueueTimeUtc",
    "SessionId",
    "TimeToLive",
    "To",
    "ViaPartitionKey",
];

macro_rules! entity {
    ($(#[$doc:meta])* $kind:ident, $schema:ident, $part:literal, $example:literal, $about:tt) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        #[schema(as = $schema)]
        pub struct $kind {
            #[doc = $about]
            #[schema(example = $example)]
            pub resource_id: String,
        }

        impl Kind for $kind {
            const SCHEMES: &'static [&'static str] = &["http", "https"];
            const HAS_PROPERTIES: bool = true;
            const IS_GROUPED: bool = true;

            fn check_properties(&self) -> Result<(), InvalidProperty> {
                check_parts(&self.resource_id, $part)
            }

            fn service_limits(&self) -> BatchMaxima {
                BatchMaxima { events: BATCH_EVENTS_MAX, bytes: BATCH_BYTES_MAX }
            }

            fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
                new_entity_sender(at, last_segment(&self.resource_id))
            }
        }
    };
}

entity!(
    /// A queue of a Service Bus namespace
    ServiceBusQueue, ServiceBusQueueDestinationProperties, "queues", "bus/queues/orders",
    "Resource id of the queue: `…/queues/NAME` below the id or the name of a table of \
     `delivery.resources`"
);
entity!(
    /// A topic of a Service Bus namespace
    ServiceBusTopic, ServiceBusTopicDestinationProperties, "topics", "bus/topics/orders",
    "Resource id of the topic: `…/topics/NAME` below the id or the name of a table of \
     `delivery.resources`"
);

fn check_parts(resource_id: &str, part: &str) -> Result<(), InvalidProperty> {
    let key = "resourceId";
    match resource_id.rsplit('/').collect::<Vec<_>>().as_slice() {
        [name, above, ..] if above.eq_ignore_ascii_case(part) => {
            let is_allowed =
                |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '~');
            check_text(
                key,
                name,
                1..=260,
                is_allowed,
                "letters, digits, dots, underscores, tildes and hyphens",
            )
        }
        _ => {
            let shown_id = resource_id.escape_debug();
            let problem = format!("is \"{shown_id}\"; expected an id that ends with /{part}/NAME");
            Err(InvalidProperty { key, problem })
        }
    }
}

fn new_entity_sender(at: &SenderContext<'_>, entity: &str) -> Result<Rc<dyn Sender>, SenderError> {
    let service = at.require_service();
    // A tilde stands for the slash of a name, as in Azure's resource ids.
    let address = format!(
        "{}/{}",
        service.url.as_str().trim_end_matches('/'),
        entity.replace('~', "/")
    );
    let credential = |name| service.find_credential(name);
    let tokens = at.token_source()?;
    let authorization = match (
        credential("access_key_name"),
        credential("access_key"),
        credential("sas_token"),
        &tokens,
    ) {
        (Some(name), Some(key), None, None) => Authorization::Key {
            resource: utf8_percent_encode(&address.to_ascii_lowercase(), NON_ALPHANUMERIC)
                .to_string(),
            name: name.to_owned(),
            key: hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()),
        },
        (None, None, Some(token), None) => Authorization::Signature(token.to_owned()),
        (None, None, None, Some(_)) => Authorization::Token,
        _ => {
            return Err(SenderError::Credentials {
                service: service.name.clone(),
                needed: "access_key_name and access_key, or sas_token, or token_audience",
            });
        }
    };
    let destination = at.new_destination(&format!("{address}/messages"))?;
    let encoding = Box::new(Messages {
        service: service.name.clone(),
        target: at.target.clone(),
        authorization,
    });
    let target = Arc::new(HttpTarget {
        destination,
        encoding,
    });
    Ok(Rc::new(HttpSender {
        client: clients::operators_client(at.options),
        target,
        tokens,
    }))
}

enum Authorization {
    /// An access token, which the sender adds.
    Token,
    Signature(String),
    /// The key of a shared access policy.
    Key {
        resource: String,
        name: String,
        key: hmac::Key,
    },
}

impl Authorization {
    fn authorization_at(&self, wall: WallTime) -> Option<String> {
        Some(match self {
            Self::Token => return None,
            Self::Signature(signature) => signature.clone(),
            Self::Key {
                resource,
                name,
                key,
            } => {
                let until = wall.after(SIGNATURE_AGE).since_epoch().as_secs();
                let signature = BASE64_STANDARD
                    .encode(hmac::sign(key, format!("{resource}\n{until}").as_bytes()));
                let [signature, name] = [&*signature, &**name]
                    .map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string());
                format!("SharedAccessSignature sr={resource}&sig={signature}&se={until}&skn={name}")
            }
        })
    }
}

/// Turns events into a request that sends messages.
struct Messages {
    /// The name of the service's table in the settings.
    service: String,
    target: ResourceTarget,
    authorization: Authorization,
}

impl Messages {
    fn encode_message(&self, event: &Event, batch: &Batch) -> Result<Value, RequestError> {
        let wire = self.target.delivered_bytes(event)?;
        let mut broker = Map::from_iter([
            (
                "ContentType".to_owned(),
                content_type(self.target.schema).into(),
            ),
            (
                "MessageId".to_owned(),
                self.target.message_id(event, batch).into(),
            ),
        ]);
        let mut user = Map::new();
        for (name, value) in self.target.message_headers(event, batch) {
            match BROKER_PROPERTIES
                .iter()
                .find(|known| known.eq_ignore_ascii_case(&name))
            {
                Some(known) => broker.insert((*known).to_owned(), broker_value(known, value)),
                None => user.insert(name, value.into()),
            };
        }
        Ok(
            json!({"Body": String::from_utf8_lossy(&wire), "BrokerProperties": broker, "UserProperties": user}),
        )
    }
}

/// The value of a broker property: seconds are a number, and times are those of HTTP.
fn broker_value(name: &str, value: String) -> Value {
    match name {
        "TimeToLive" => value.parse::<f64>().map_or(value.into(), Value::from),
        "ScheduledEnqueueTimeUtc" => match parse_instant(&value) {
            Some(time) => httpdate::fmt_http_date(time.into()).into(),
            None => value.into(),
        },
        _ => value.into(),
    }
}

impl RequestEncoder for Messages {
    fn encode_batch(
        &self,
        _: &Destination,
        batch: &Batch,
    ) -> Result<OutgoingRequest, RequestError> {
        let messages: Result<Vec<Value>, _> = batch
            .events
            .iter()
            .map(|event| self.encode_message(event, batch))
            .collect();
        Ok(OutgoingRequest {
            headers: vec![(
                "content-type",
                "application/vnd.microsoft.servicebus.json".into(),
            )],
            // Like a delivery property: sent as a sensitive header and never shown.
            properties: self
                .authorization
                .authorization_at(batch.wall)
                .map(|text| ("authorization".to_owned(), text))
                .into_iter()
                .collect(),
            body: Value::Array(messages?).to_string().into(),
            ..OutgoingRequest::default()
        })
    }

    /// The service has few statuses; the reason is in the text of the body.
    fn correct_result(&self, result: RequestResult, _: &[Seq]) -> RequestResult {
        let text = String::from_utf8_lossy(&result.body).to_ascii_lowercase();
        let failure = match result.status {
            Some(400 | 403) if text.contains("too large") || text.contains("exceeds the limit") => {
                return RequestResult {
                    status: Some(413),
                    outcome: Outcome::from_status(413),
                    ..result
                };
            }
            Some(403) if text.contains("quota") => Failure::Full,
            Some(400..=499) if text.contains("entitydisabled") || text.contains("is disabled") => {
                Failure::Disabled
            }
            Some(400..=499) if text.contains("sessionid") => Failure::SessionQueueNotSupported,
            Some(401 | 403) => return with_refused_credential(result, &self.service),
            _ => return result,
        };
        RequestResult {
            status: None,
            outcome: failure.into(),
            ..result
        }
    }
}
