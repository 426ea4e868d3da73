//! The delivery plan: a subscription's record, checked and converted once, when it is created or
//! read from the store.

use std::{hash::Hasher, rc::Rc, sync::Arc, time::Duration};

use siphasher::sip::SipHasher13;

use crate::endpoint_wait::{EndpointWait, EndpointWaits};
use gridhook_deliver::{
    AddressRules, Batch, ClientCertificates, ClientOptions, Destination, HttpSender, HttpTarget,
    OutgoingRequest, RequestHeader, Sender, ShownRequest, WebhookEncoding,
    address::AddressRefused,
    clients,
    error::{MissingTenant, NoIdentity, SenderError, UnknownService},
    identity::TokenSource,
    proxy::DIRECT,
    request,
    resource::{BatchMaxima, Connections, InvalidProperty, Resource, ResourceTarget},
    signature::{self, Signer},
    test_endpoint::{TestSender, is_test_endpoint},
};
use gridhook_event::{Event, Lane, Schema, Timestamp, WallTime};
use gridhook_policy::{
    PullSettings, SubscriptionSettings,
    batch::BatchLimits,
    dead_letter_store::{NamedStores, UnknownDestination},
    edition::{Edition, EndpointKind},
    filter::{Filter, key::FilterKey},
    order::OrderSettings,
    property,
    record::{EndpointId, Rate, job::JobKind},
    transform::{InvalidTransform, Program},
};
use gridhook_record::subscription::{OnGone, StorageBlobDestination, SubscriptionRecord};

/// Why a subscription cannot be delivered as its record says.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The URL or the schema is invalid.
    #[error(transparent)]
    Destination(#[from] request::RequestError),
    /// The address is not allowed.
    #[error("destination.properties.endpointUrl is refused: {0}")]
    Address(#[from] AddressRefused),
    /// No client certificate has this name.
    #[error(
        "destination.properties.clientCertificate is \"{given}\", which does not exist; {allowed}"
    )]
    Certificate {
        /// The name in the record.
        given: String,
        allowed: String,
    },
    /// The server has no identity for the access token of the endpoint.
    #[error(
        "destination.properties.azureActiveDirectoryApplicationIdOrUri demands an access token; {0}"
    )]
    Identity(#[from] NoIdentity),
    /// The access token for the endpoint needs a tenant.
    #[error(
        "destination.properties.azureActiveDirectoryApplicationIdOrUri demands an access token; {0}"
    )]
    Tenant(#[from] MissingTenant),
    /// The signing keys are invalid.
    #[error("destination.properties.{0}")]
    Signing(#[from] signature::SigningKeyError),
    /// A property of a destination other than a webhook is invalid.
    #[error("destination.properties.{0}")]
    Property(#[from] InvalidProperty),
    #[error("transform.{0}")]
    Transform(#[from] InvalidTransform),
    /// The proxy does not exist.
    #[error("destination.properties.proxy is \"{given}\", which does not exist; {allowed}")]
    Proxy { given: String, allowed: String },
    #[error("destination.properties.resourceId {0}")]
    Resource(#[from] UnknownService),
    /// The destination of the dead letters does not exist.
    #[error("deadLetterDestination.properties.resourceId {0}")]
    DeadLetterDestination(#[from] UnknownDestination),
}

impl PlanError {
    /// The property of the event subscription that is wrong.
    pub fn target(&self) -> &'static str {
        match self {
            Self::Destination(request::RequestError::Schema { .. }) => "eventDeliverySchema",
            Self::Destination(_) | Self::Address(_) => "destination.properties.endpointUrl",
            Self::Certificate { .. } => "destination.properties.clientCertificate",
            Self::Identity(_) | Self::Tenant(_) => {
                "destination.properties.azureActiveDirectoryApplicationIdOrUri"
            }
            Self::Signing(_) => "destination.properties.signing.secrets",
            Self::Property(_) => "destination.properties",
            Self::Transform(_) => "transform",
            Self::Proxy { .. } => "destination.properties.proxy",
            Self::Resource(_) => "destination.properties.resourceId",
            Self::DeadLetterDestination(_) => "deadLetterDestination.properties.resourceId",
        }
    }
}

/// Delivery settings that are the same for every subscription of the server.
#[derive(Clone, Debug)]
pub struct DeliveryContext {
    /// Addresses that may be called.
    pub addresses: AddressRules,
    /// Time limit for the whole response of a subscription without its own.
    pub response_timeout: Duration,
    /// Time limit, from the start of a request, in which a late success still counts. Only used if
    /// longer than `response_timeout`.
    pub late_timeout: Duration,
    /// Minimum pause between connection attempts to an endpoint that could not be reached.
    pub reconnect_interval: Duration,
    /// How long all requests of a subscription fail before it is held; [`None`] if it is never
    /// held.
    pub hold_after_failing: Option<Duration>,
    /// Maximum requests in flight per subscription.
    pub concurrency_max: u32,
    /// Maximum events of a subscription that clients hold.
    pub leases_max: u32,
    /// Maximum events of an ordered subscription in flight, waiting for a retry or held back.
    pub ordered_events_max: u32,
    /// The client certificates that a subscription may name.
    pub client_certificates: ClientCertificates,
    pub named_stores: NamedStores,
    /// The waits that endpoints requested.
    pub waits: Arc<EndpointWaits>,
    /// The services that the operator configured as destinations.
    pub connections: Connections,
}

/// The destination of the events of a subscription.
#[derive(Debug)]
enum Target {
    Pulled,
    Webhook(Arc<HttpTarget>),
    Resource(ResourceTarget),
}

impl Target {
    fn new(record: &SubscriptionRecord, input: Schema) -> Result<Self, PlanError> {
        if record.is_pulled() {
            return Ok(Self::Pulled);
        }
        let webhook = &record.webhook;
        let schema = record.delivery_schema;
        let subscription_name = record.name.as_str();
        if let Some(resource) = &record.resource {
            resource.check(schema)?;
            return Ok(Self::Resource(ResourceTarget {
                resource: Resource::clone(resource),
                subscription_name: subscription_name.to_owned(),
                input,
                schema,
                batched: has_batches(record),
                properties: webhook.delivery_properties.clone(),
            }));
        }
        let destination = Destination::new(
            &webhook.endpoint_url,
            subscription_name,
            input,
            schema,
            has_batches(record),
        )?
        .with_properties(&webhook.delivery_properties);
        let secrets = webhook
            .signing
            .as_ref()
            .map(|signing| signing.secrets.iter().map(String::as_str));
        let signer = secrets.map(Signer::new).transpose()?;
        Ok(Self::Webhook(Arc::new(HttpTarget {
            destination,
            encoding: Box::new(WebhookEncoding { signer }),
        })))
    }

    /// The hash is stored, so it is the same in all versions.
    fn endpoint_id(&self) -> EndpointId {
        let mut hasher = SipHasher13::new();
        match self {
            Self::Pulled => {}
            Self::Webhook(target) => hasher.write(target.destination.url().as_str().as_bytes()),
            Self::Resource(ResourceTarget { resource, .. }) => {
                for part in [resource.name(), resource.resource_id(), resource.entity()] {
                    hasher.write(part.as_bytes());
                    hasher.write_u8(0xff);
                }
            }
        }
        EndpointId(hasher.finish())
    }
}

/// A subscription with everything that its delivery needs.
#[derive(Debug)]
pub struct DeliveryPlan {
    pub record: Arc<SubscriptionRecord>,
    pub settings: Arc<SubscriptionSettings>,
    /// The wait that the endpoint requested of any subscription; [`None`] unless it is a webhook.
    pub retry_after: Option<Arc<EndpointWait>>,
    /// Time limit, from the start of the request, in which a late success still counts.
    pub late_timeout: Duration,
    target: Target,
}

/// Header of a request that a replay job sends. Its value is the job.
const REPLAY_HEADER: &str = "aeg-replay-job";

const REDRIVE_HEADER: &str = "aeg-redrive-job";

/// Maximum events in the response to one receive request.
const RECEIVED_MAX: u32 = 100;

/// Maximum bytes of events in such a response, or one event that is larger.
pub const RECEIVED_BYTES: u64 = 4 * 1024 * 1024;

/// Added to the response time limit. A request that has not reported by then is given up.
const REQUEST_SLACK: Duration = Duration::from_secs(30);

/// Whether a request may have several events.
fn has_batches(record: &SubscriptionRecord) -> bool {
    record.webhook.max_events_per_batch > 1
}

fn batch_limits(record: &SubscriptionRecord) -> BatchLimits {
    let webhook = &record.webhook;
    let schema = record.delivery_schema;
    if record.queue.is_some() {
        return BatchLimits {
            events_max: RECEIVED_MAX,
            bytes_preferred: RECEIVED_BYTES,
            schema,
        };
    }
    let resource = record.resource.as_deref();
    match resource.filter(|_| !record.has_batch_settings()) {
        Some(resource) => {
            let BatchMaxima { events, bytes } = resource.limits();
            BatchLimits {
                events_max: events,
                bytes_preferred: bytes,
                schema,
            }
        }
        None => BatchLimits {
            events_max: webhook.max_events_per_batch,
            bytes_preferred: 1024 * u64::from(webhook.preferred_batch_size_in_kilobytes),
            schema,
        },
    }
}

/// The keys of the delivery properties that all events of a request have in common. With one event
/// in each request there are none.
fn grouping_keys(record: &SubscriptionRecord) -> Arc<[FilterKey]> {
    let is_grouped = match &record.resource {
        Some(resource) => resource.is_grouped(),
        None => has_batches(record),
    };
    property::dynamic_keys(&record.webhook.delivery_properties)
        .filter(|_| is_grouped)
        .cloned()
        .collect()
}

fn order_settings(
    record: &SubscriptionRecord,
    delivery: &DeliveryContext,
) -> Option<Arc<OrderSettings>> {
    let key = record.order_key.as_deref()?.clone();
    let one_of_a_key = record
        .resource
        .as_ref()
        .is_some_and(|resource| resource.takes_parts());
    Some(Arc::new(OrderSettings {
        key,
        tracked_max: delivery.ordered_events_max as usize,
        blocks: record.order_blocks,
        one_of_a_key,
    }))
}

/// The lower one of the rate that the endpoint granted in the handshake and the configured one.
fn rate_max(record: &SubscriptionRecord) -> Option<Rate> {
    let webhook = &record.webhook;
    let granted_rate = webhook
        .allowed_rate
        .map(|rate| Rate::from_per_second(f64::from(rate.get()) / 60.0));
    let configured_rate = webhook
        .max_requests_per_second
        .map(|rate| Rate::from_per_second(rate.get().into()));
    granted_rate.into_iter().chain(configured_rate).min()
}

impl DeliveryPlan {
    /// The plan for `record`, in a topic with this input schema and edition.
    pub fn new(
        record: Arc<SubscriptionRecord>,
        input: Schema,
        edition: Arc<Edition>,
        delivery: &DeliveryContext,
    ) -> Result<Self, PlanError> {
        let webhook = &record.webhook;
        let target = Target::new(&record, input)?;
        let retry_after = match &target {
            Target::Webhook(target) => Some(delivery.waits.wait_for_url(target.destination.url())),
            Target::Pulled | Target::Resource(_) => None,
        };
        let transform = record
            .transform
            .as_deref()
            .map(|source| Program::new(source, has_batches(&record), record.delivery_schema))
            .transpose()?;
        let batch = batch_limits(&record);
        let response_timeout = webhook
            .response_timeout_in_seconds
            .map_or(delivery.response_timeout, |seconds| {
                Duration::from_secs(seconds.get().into())
            });
        let settings = SubscriptionSettings {
            version: record.version,
            endpoint: target.endpoint_id(),
            attempts_max: record.retry.max_delivery_attempts,
            since: record
                .starts_from
                .as_ref()
                .map_or(Timestamp::default(), |starts| starts.made),
            time_to_live: Duration::from_secs(
                60 * u64::from(record.retry.event_time_to_live_in_minutes),
            ),
            batch,
            grouping: grouping_keys(&record),
            order: order_settings(&record, delivery),
            concurrency_max: delivery.concurrency_max,
            rate_max: rate_max(&record),
            backlog_min: batch.backlog_min(),
            suspend_after: edition.probation.after_failures,
            reconnect_interval: delivery.reconnect_interval,
            request_timeout: response_timeout + REQUEST_SLACK,
            dead_letter: record.dead_letter.is_some(),
            destination: if record.resource.is_some() {
                EndpointKind::Resource
            } else {
                EndpointKind::Webhook
            },
            dead_letter_in_probation: record.dead_letter_in_probation
                && record.dead_letter.is_some(),
            hold_when_gone: record.on_gone == OnGone::Disable,
            hold_after_failing: delivery.hold_after_failing,
            transform: transform.map(Arc::new),
            pull: record.queue.map(|queue| PullSettings {
                lock: Duration::from_secs(queue.receive_lock_duration_in_seconds.into()),
                leases_max: delivery.leases_max,
            }),
            edition,
        };
        Ok(Self {
            record,
            settings: Arc::new(settings),
            retry_after,
            late_timeout: delivery.late_timeout,
            target,
        })
    }

    /// The request that delivers these events, without secrets. A destination other than a webhook
    /// gets messages, which are the elements of its body.
    ///
    /// # Errors
    /// If an event cannot be read.
    pub fn show_request(
        &self,
        events: Vec<Event>,
        attempts_before: u32,
        wall: WallTime,
    ) -> Result<ShownRequest, request::RequestError> {
        let schema = self.settings.batch.schema;
        let events = match &self.settings.transform {
            Some(program) => events
                .into_iter()
                .map(|event| program.transform(event, schema))
                .collect(),
            None => events,
        };
        let batch = Batch {
            events,
            attempts_before,
            headers: Vec::new(),
            wall,
            wait: Duration::ZERO,
            permit: None,
        };
        match &self.target {
            Target::Webhook(target) => target.show_request(&batch),
            Target::Pulled | Target::Resource(_) => Ok(ShownRequest {
                head: None,
                body: request::encode_array(&batch.events, schema)?,
            }),
        }
    }

    /// The plan for one of several parts of a spread topic. Together they keep to the limits of the
    /// event subscription; each may have at least one request in flight.
    #[must_use]
    pub fn divide_limits(mut self, parts: u32) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        let parts = parts.max(1);
        settings.concurrency_max = (settings.concurrency_max / parts).max(1);
        settings.pull = settings.pull.map(|pull| PullSettings {
            leases_max: (pull.leases_max / parts).max(1),
            ..pull
        });
        settings.rate_max = settings
            .rate_max
            .map(|rate| Rate::from_per_second(rate.per_second() / f64::from(parts)));
        settings.order = settings.order.take().map(|order| {
            let tracked_max = (order.tracked_max / parts as usize).max(1);
            if parts == 1 {
                order
            } else {
                Arc::new(OrderSettings {
                    tracked_max,
                    ..OrderSettings::clone(&order)
                })
            }
        });
        self
    }

    /// Time limit for the response.
    pub fn response_timeout(&self) -> Duration {
        self.settings.request_timeout.saturating_sub(REQUEST_SLACK)
    }

    pub fn webhook(&self) -> Option<&Destination> {
        match &self.target {
            Target::Webhook(target) => Some(&target.destination),
            Target::Pulled | Target::Resource(_) => None,
        }
    }

    /// Whether the endpoint responds to handshakes and takes deletion notices.
    pub fn has_handshake(&self) -> bool {
        self.webhook()
            .is_some_and(|destination| !is_test_endpoint(destination.url()))
    }

    /// Signs a handshake or a deletion notice with this unique id as deliveries are signed.
    pub fn sign_notice(&self, outgoing: &mut OutgoingRequest, id: &str, wall: WallTime) {
        if let Target::Webhook(target) = &self.target {
            target.encoding.sign_notice(outgoing, id, wall);
        }
    }

    /// The sender of this arbiter.
    ///
    /// # Errors
    /// If there is nothing to send with: what is missing.
    pub fn new_sender(&self, options: &ClientOptions) -> Result<Rc<dyn Sender>, SenderError> {
        match &self.target {
            Target::Pulled => Err(SenderError::Pulled),
            Target::Webhook(target)
                if options.rules.test_endpoint && is_test_endpoint(target.destination.url()) =>
            {
                Ok(Rc::new(TestSender))
            }
            Target::Webhook(target) => {
                let client = clients::shared_client(options, self.record.webhook.client_spec())?;
                Ok(Rc::new(HttpSender {
                    client,
                    target: Arc::clone(target),
                    tokens: self.token_source(options)?,
                }))
            }
            Target::Resource(target) => target.shared_sender(options),
        }
    }

    /// The access tokens that the webhook demands, if it does.
    ///
    /// # Errors
    /// If the server has no identity.
    pub fn token_source(&self, options: &ClientOptions) -> Result<Option<TokenSource>, NoIdentity> {
        let audience = self.record.webhook.token_audience.as_deref();
        audience
            .map(|audience| TokenSource::new(options, audience))
            .transpose()
    }

    /// The header of a request that a job sends, with the job's lane.
    pub fn job_header(lane: Lane, kind: Option<JobKind>) -> Option<RequestHeader> {
        let header = match kind {
            Some(JobKind::Redrive { .. }) => REDRIVE_HEADER,
            Some(JobKind::Replay { .. }) | None => REPLAY_HEADER,
        };
        lane.is_job().then(|| (header, lane.0.to_string().into()))
    }

    /// Checks the plan against the operator's rules. A plan that was allowed under earlier rules is
    /// kept. Its requests fail with this error.
    pub fn check_rules(&self, delivery: &DeliveryContext) -> Result<(), PlanError> {
        self.check_connection(delivery)?;
        if let Some(StorageBlobDestination {
            resource_id,
            container,
            ..
        }) = self.record.dead_letter.as_deref()
        {
            delivery
                .named_stores
                .find_destination(resource_id, container)?;
        }
        match &self.target {
            Target::Pulled => Ok(()),
            Target::Webhook(target) => {
                self.check_tokens(delivery)?;
                Ok(delivery.addresses.check_url(target.destination.url())?)
            }
            Target::Resource(target) => {
                delivery.connections.find_for(&target.resource)?;
                Ok(())
            }
        }
    }

    /// Checks that the server can get the access tokens that the endpoint demands.
    fn check_tokens(&self, delivery: &DeliveryContext) -> Result<(), PlanError> {
        let Some(audience) = &self.record.webhook.token_audience else {
            return Ok(());
        };
        let identity = delivery.connections.identity().ok_or(NoIdentity)?;
        identity.url_for(audience)?;
        Ok(())
    }

    /// Checks that the certificate and the proxy in the record exist.
    pub fn check_connection(&self, delivery: &DeliveryContext) -> Result<(), PlanError> {
        let webhook = &self.record.webhook;
        let certificates = delivery.client_certificates.names();
        if let Some(given) = webhook
            .client_certificate
            .as_ref()
            .filter(|given| !certificates.contains(given))
        {
            let names = certificates.join(", ");
            let expectation = match names.as_str() {
                "" => "there is none in the folder delivery.client_certificates_dir".to_owned(),
                names => format!("expected one of {names}"),
            };
            return Err(PlanError::Certificate {
                given: given.clone(),
                allowed: expectation,
            });
        }
        let proxies = delivery.connections.proxy_names();
        let is_known = |given: &str| given == DIRECT || proxies.contains(&given);
        let Some(given) = webhook.proxy.as_ref().filter(|given| !is_known(given)) else {
            return Ok(());
        };
        let expectation = match proxies.join(", ").as_str() {
            "" => format!(
                "delivery.resources has no proxy; expected {DIRECT}, for a direct connection"
            ),
            known => format!("expected {known}, or {DIRECT} for a direct connection"),
        };
        Err(PlanError::Proxy {
            given: given.clone(),
            allowed: expectation,
        })
    }

    /// The end of the wait that the endpoint requested of any subscription. It may have passed.
    pub fn requested_wait(&self) -> Option<Timestamp> {
        self.retry_after.as_ref()?.end_time()
    }

    /// The filter of the subscription.
    pub fn filter(&self) -> &Filter {
        &self.record.filter
    }
}
