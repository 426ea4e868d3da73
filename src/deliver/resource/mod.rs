//! Destinations other than webhooks: services that the operator configured (`delivery.resources`),
//! and topics of namespaces of this server.
//!
//! A subscription names a service by its `resourceId`, as in Azure; address and credentials are in
//! the settings. So a subscription has no secret, and cannot make the server call an address of its
//! choice.
//!
//! One file for each kind: its properties, its limits and its sender. CONTRIBUTING.md lists what a
//! new kind is made of.
//!
//! | file | kinds |
//! | --- | --- |
//! | [`amqp`] | `Amqp` |
//! | [`azure_function`] | `AzureFunction` |
//! | [`connection`] | the configured services, and how a `resourceId` names one |
//! | [`kafka`] | `Kafka`, `EventHub` |
//! | [`namespace_topic`] | `NamespaceTopic` |
//! | [`nats`] | `Nats` |
//! | [`service_bus`] | `ServiceBusQueue`, `ServiceBusTopic` |
//! | `shared` | what the senders of an arbiter share |
//! | [`sqs`] | `Sqs` |
//! | [`storage_queue`] | `StorageQueue` |
//!
//! What it does not do: it does not judge outcomes, and does not repeat a request that failed. Only
//! the Kafka producer repeats one that the broker did not take, within seconds. A service without
//! HTTP statuses reports the status that means the same, so that one table of the edition covers
//! all kinds.
//!
//! Two outcomes are the same for all kinds. Credentials that the service refuses are those of the
//! operator ([`Failure::CredentialRefused`]). A service that accepted only some events of a request
//! has a result for each ([`RequestResult::events`]).

pub mod amqp;
pub mod azure_function;
pub mod connection;
pub mod kafka;
pub mod namespace_topic;
pub mod nats;
pub mod service_bus;
mod shared;
pub mod sqs;
pub mod storage_queue;

use std::{cell::RefCell, collections::BTreeMap, ops::RangeInclusive, rc::Rc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use self::{
    amqp::Amqp,
    azure_function::AzureFunction,
    kafka::{EventHub, Kafka},
    namespace_topic::NamespaceTopic,
    nats::Nats,
    service_bus::{ServiceBusQueue, ServiceBusTopic},
    shared::Shared,
    sqs::Sqs,
    storage_queue::StorageQueue,
};
pub use self::{
    connection::{Connection, Connections, Credential},
    namespace_topic::{LocalTopics, PublishFailure},
};
use super::{
    Batch, ClientOptions, Destination, Sender,
    convert::convert_event,
    error::{NoIdentity, SenderError},
    failure::failure_result,
    identity::{TokenAudience, TokenSource},
    request::RequestError,
    signature,
};
use gridhook_event::{Event, Schema, Seq};
use gridhook_policy::{
    outcome::{EventResult, Failure, Outcome, RequestResult},
    property::{self, DeliveryProperty},
};

/// Endpoint types of Event Grid that are refused, and why.
pub const REFUSED: [(&str, &str); 3] = [
    (
        "HybridConnection",
        "Azure Relay is a service of Azure only; use WebHook",
    ),
    ("PartnerDestination", "there are no partners; use WebHook"),
    ("MonitorAlert", "there is no Azure Monitor; use WebHook"),
];

/// A kind of destination, and what it supports.
trait Kind {
    /// The schemes of the URLs of the kind's services. Empty if the kind needs no configured
    /// service.
    const SCHEMES: &'static [&'static str];
    /// Whether the kind sends `deliveryAttributeMappings`.
    const HAS_PROPERTIES: bool;
    /// Whether the subscription sets the limits of a batch. Otherwise they are the service's.
    const HAS_BATCHES: bool = false;
    /// Whether the events of a request must have the same delivery properties.
    const IS_GROUPED: bool = Self::HAS_BATCHES;
    /// Whether the service may accept only some events of a request.
    const TAKES_PARTS: bool = false;

    /// Checks the properties, except the length of `resourceId`.
    fn check_properties(&self) -> Result<(), InvalidProperty>;

    /// Checks the schema of delivered events.
    fn check_schema(&self, _delivery: Schema) -> Result<(), InvalidProperty> {
        Ok(())
    }

    fn service_limits(&self) -> BatchMaxima {
        BatchMaxima {
            events: BATCH_EVENTS_MAX,
            bytes: BATCH_BYTES_MAX,
        }
    }

    /// The name of the queue, topic or function, unless `resourceId` ends with it.
    fn entity_name(&self) -> Option<&str> {
        None
    }

    /// Makes a sender.
    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError>;
}

/// What a sender is made from.
struct SenderContext<'a> {
    target: &'a ResourceTarget,
    options: &'a ClientOptions,
    connection: Option<&'a Connection>,
}

impl SenderContext<'_> {
    /// The configured service of a kind that needs one.
    fn require_service(&self) -> &Connection {
        self.connection
            .expect("a kind with schemes has a connection")
    }

    /// The access tokens of the server's identity for the service, if it is configured to take
    /// them.
    fn token_source(&self) -> Result<Option<TokenSource>, NoIdentity> {
        let service = self.require_service();
        let audience = service
            .find_credential("token_audience")
            .map(|application| TokenAudience {
                tenant: service.find_credential("token_tenant").map(str::to_owned),
                application: application.to_owned(),
            });
        audience
            .map(|audience| TokenSource::new(self.options, &audience))
            .transpose()
    }

    /// The destination at `url`, with the schemas and delivery properties of the subscription.
    fn new_destination(&self, url: &str) -> Result<Destination, SenderError> {
        let ResourceTarget {
            subscription_name,
            input,
            schema,
            batched,
            properties,
            ..
        } = self.target;
        let destination = Destination::new(url, subscription_name, *input, *schema, *batched);
        Ok(destination?.with_properties(properties))
    }
}

/// A property that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct InvalidProperty {
    /// The key of the property, such as `queueName`.
    pub key: &'static str,
    /// What is wrong with the property, and what is allowed.
    pub problem: String,
}

/// The largest batch that a service takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMaxima {
    pub events: u32,
    /// Bytes of all events. A larger event is sent alone.
    pub bytes: u64,
}

/// Maximum number of messages of a request to a broker that has no limit of its own.
const BATCH_EVENTS_MAX: u32 = 500;

/// Maximum bytes of these messages. Brokers take 1 MiB by default, Kafka for the whole request.
const BATCH_BYTES_MAX: u64 = 900 * 1024;

macro_rules! kinds {
    ($($kind:ident),+ $(,)?) => {
        /// A destination of a subscription, with its properties as ARM has them.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(tag = "endpointType", content = "properties")]
        pub enum Resource {
            $(
                /// Properties of the destination
                $kind($kind),
            )+
        }

        impl Resource {
            /// The endpoint types of webhooks and of all kinds.
            pub const ENDPOINT_TYPES: &'static [&'static str] = &["WebHook", $(stringify!($kind)),+];

            /// The value of `endpointType`.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => stringify!($kind),)+
                }
            }

            /// The value of `resourceId`.
            pub fn resource_id(&self) -> &str {
                match self {
                    $(Self::$kind(kind) => &kind.resource_id,)+
                }
            }

            /// The name of the queue, topic or function.
            pub fn entity(&self) -> &str {
                let entity = match self {
                    $(Self::$kind(kind) => kind.entity_name(),)+
                };
                entity.unwrap_or_else(|| last_segment(self.resource_id()))
            }

            /// Whether this kind of destination sends `deliveryAttributeMappings`.
            pub fn has_properties(kind: &str) -> bool {
                match kind {
                    $(stringify!($kind) => $kind::HAS_PROPERTIES,)+
                    _ => false,
                }
            }

            /// Whether a subscription of this kind sets the limits of a batch.
            pub fn has_batches(kind: &str) -> bool {
                match kind {
                    $(stringify!($kind) => $kind::HAS_BATCHES,)+
                    _ => false,
                }
            }

            /// Whether the events of a request must have the same delivery properties.
            pub fn is_grouped(&self) -> bool {
                match self {
                    $(Self::$kind(_) => $kind::IS_GROUPED,)+
                }
            }

            /// Whether the service may accept only some events of a request.
            pub fn takes_parts(&self) -> bool {
                match self {
                    $(Self::$kind(_) => $kind::TAKES_PARTS,)+
                }
            }

            /// The limits of the service.
            pub fn limits(&self) -> BatchMaxima {
                match self {
                    $(Self::$kind(kind) => kind.service_limits(),)+
                }
            }

            /// Checks the properties.
            ///
            /// # Errors
            /// The first that is not allowed.
            pub fn check(&self, delivery: Schema) -> Result<(), InvalidProperty> {
                let key = "resourceId";
                if self.resource_id().is_empty() || self.resource_id().len() > RESOURCE_ID_BYTES_MAX {
                    let problem = format!("has {} bytes; expected 1 to \
                        {RESOURCE_ID_BYTES_MAX}", self.resource_id().len());
                    return Err(InvalidProperty { key, problem });
                }
                match self {
                    $(Self::$kind(kind) => {
                        kind.check_properties()?;
                        kind.check_schema(delivery)
                    })+
                }
            }

            fn schemes(&self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind(_) => $kind::SCHEMES,)+
                }
            }

            fn connect(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
                match self {
                    $(Self::$kind(kind) => kind.new_sender(at),)+
                }
            }
        }
    };
}

kinds!(
    Amqp,
    AzureFunction,
    EventHub,
    Kafka,
    NamespaceTopic,
    Nats,
    ServiceBusQueue,
    ServiceBusTopic,
    Sqs,
    StorageQueue
);

/// The last segment of a `resourceId`.
fn last_segment(resource_id: &str) -> &str {
    resource_id.rsplit('/').next().unwrap_or_default()
}

/// 1 KiB: Azure's ids have less than half.
const RESOURCE_ID_BYTES_MAX: usize = 1024;

/// A destination and what a subscription says of its events.
#[derive(Clone, Debug)]
pub struct ResourceTarget {
    pub resource: Resource,
    pub subscription_name: String,
    /// The schema of stored events.
    pub input: Schema,
    /// The schema of delivered events.
    pub schema: Schema,
    pub batched: bool,
    pub properties: Vec<DeliveryProperty>,
}

thread_local! {
    /// The senders of this arbiter. Subscriptions with the same destination share one.
    static SENDERS: Shared<dyn Sender> = const { Shared::new() };
}

impl ResourceTarget {
    /// The sender of this arbiter, which is made if there is none.
    ///
    /// # Errors
    /// If no configured service has this `resourceId`, or its settings make no sender.
    pub fn shared_sender(&self, options: &ClientOptions) -> Result<Rc<dyn Sender>, SenderError> {
        let connection = options.connections.find_for(&self.resource)?;
        // `Debug` hides the values of properties.
        let properties =
            serde_json::to_string(&self.properties).expect("strings are always written");
        let context = SenderContext {
            target: self,
            options,
            connection,
        };
        let connect = || self.resource.connect(&context);
        SENDERS.with(|senders| senders.get(format!("{self:?} {properties}"), connect))
    }

    /// The headers of an event's message: those of the batch, and the delivery properties.
    fn message_headers(&self, event: &Event, batch: &Batch) -> BTreeMap<String, String> {
        let of_batch = batch
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.to_string()));
        of_batch
            .chain(property::request_headers(&self.properties, Some(event)))
            .collect()
    }

    /// The id of an event's message: the same at every attempt, and another for each subscription
    /// and each job.
    fn message_id(&self, event: &Event, batch: &Batch) -> String {
        let jobs = batch
            .headers
            .iter()
            .filter(|(name, _)| name.starts_with("aeg-"));
        let salt: Vec<&str> = [self.resource.entity(), &self.subscription_name]
            .into_iter()
            .chain(jobs.flat_map(|(name, value)| [*name, &**value]))
            .collect();
        signature::message_id(std::slice::from_ref(event), &salt)
    }

    fn delivered_bytes(&self, event: &Event) -> Result<Bytes, RequestError> {
        convert_event(event, self.schema)
    }
}

/// The media type of one event.
fn content_type(schema: Schema) -> &'static str {
    match schema {
        Schema::EventGrid | Schema::Custom => "application/json; charset=utf-8",
        Schema::CloudEvents => "application/cloudevents+json; charset=utf-8",
    }
}

/// The result of a service without HTTP: `status` is the one that means the same.
fn result_of(status: u16, detail: impl Into<String>) -> RequestResult {
    let detail = super::failure::shorten_detail(detail.into());
    RequestResult {
        status: Some(status),
        detail,
        ..RequestResult::from_outcome(Outcome::from_status(status))
    }
}

/// The result of a service that could not be reached.
fn unreached_result(kind: Failure, detail: String) -> RequestResult {
    RequestResult {
        unreached: true,
        ..failure_result(kind, detail)
    }
}

/// The result of a service that refuses the operator's credentials, with the name of their table.
fn credential_refused(service: &str, detail: &str) -> RequestResult {
    let detail = format!("the credentials of delivery.resources.{service} are refused: {detail}");
    RequestResult {
        outcome: Failure::CredentialRefused.into(),
        ..result_of(401, detail)
    }
}

/// As [`credential_refused`], for the response of a service with HTTP statuses.
fn with_refused_credential(result: RequestResult, service: &str) -> RequestResult {
    let prefix = result.status.map_or(String::new(), |status| {
        format!("the response is {status}. ")
    });
    let text = format!("{prefix}{}", String::from_utf8_lossy(&result.body));
    let RequestResult {
        outcome,
        status,
        detail,
        ..
    } = credential_refused(service, text.trim());
    // The detail has what the service says, and is shown only in place of a body.
    RequestResult {
        outcome,
        status,
        detail,
        body: Bytes::new(),
        ..result
    }
}

/// The results of single events, as they become known.
struct EventResults(RefCell<Vec<(Seq, Option<EventResult>)>>);

impl EventResults {
    /// The results of `batch` while none is known.
    fn new(batch: &Batch) -> Self {
        Self(RefCell::new(
            batch.events.iter().map(|event| (event.seq, None)).collect(),
        ))
    }

    /// Notes that the event at `index` was accepted.
    fn mark_accepted(&self, index: usize) {
        if let Some((seq, result)) = self.0.borrow_mut().get_mut(index) {
            *result = Some(EventResult::delivered(*seq));
        }
    }

    /// Notes the failure of the event at `index`.
    fn mark_failed(&self, index: usize, failed: &RequestResult) {
        if let Some((seq, result)) = self.0.borrow_mut().get_mut(index) {
            *result = Some(EventResult::new(*seq, failed));
        }
    }

    /// The result of the request, where `rest` is that of all events whose own is not known.
    fn into_result(self, rest: RequestResult) -> RequestResult {
        let results = self.0.into_inner().into_iter();
        let events = results
            .map(|(seq, result)| result.unwrap_or_else(|| EventResult::new(seq, &rest)))
            .collect();
        rest.with_events(events)
    }
}

/// The result of `messages` that `send` sends within `wait`. `send` marks in `results` the events
/// whose results differ from that of the request. An event that cannot be read fails all, and is
/// found when the batch is halved.
async fn send_within<M>(
    wait: Duration,
    service: &str,
    results: EventResults,
    messages: Result<M, RequestError>,
    send: impl AsyncFnOnce(M, &EventResults) -> Result<(), RequestResult>,
) -> RequestResult {
    let began = Instant::now();
    let rest = match messages {
        Err(error) => failure_result(Failure::GenericError, error.to_string()),
        Ok(messages) => match timeout(wait, send(messages, &results)).await {
            Ok(Ok(())) => result_of(200, ""),
            Ok(Err(result)) => result,
            Err(_) => failure_result(
                Failure::TimedOut,
                format!("no response from {service} within {wait:?}"),
            ),
        },
    };
    RequestResult {
        latency: began.elapsed(),
        ..results.into_result(rest)
    }
}

/// Checks the length and the characters of a name; `allowed` describes `is_allowed`.
fn check_text(
    key: &'static str,
    text: &str,
    lengths: RangeInclusive<usize>,
    is_allowed: impl Fn(char) -> bool,
    allowed: &str,
) -> Result<(), InvalidProperty> {
    if lengths.contains(&text.chars().count()) && text.chars().all(is_allowed) {
        return Ok(());
    }
    Err(not_allowed(key, text, &lengths, allowed))
}

fn not_allowed(
    key: &'static str,
    text: &str,
    lengths: &RangeInclusive<usize>,
    allowed: &str,
) -> InvalidProperty {
    let min = lengths.start();
    let max = lengths.end();
    let problem = format!(
        "is \"{}\"; expected {min} to {max} {allowed}",
        text.escape_debug()
    );
    InvalidProperty { key, problem }
}
