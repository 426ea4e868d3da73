//! The delivery plan: a subscription's record, checked and converted once, when it is created or read from the store.

use std::{sync::Arc, time::Duration};

use crate::{
    control::record::subscription::{OnGone, QueueSettings, StorageBlobDestination, SubscriptionRecord},
    deliver::{
        self, AddressRules, ClientCertificates, Destination, OutgoingRequest,
        address::AddressRefused,
        request,
        signature::{self, Signer},
    },
    event::{Event, Lane, Schema, Timestamp},
    policy::{
        PullSettings, SubscriptionSettings,
        batch::BatchLimits,
        dead_letter_store::{NamedStores, UnknownDestination},
        edition::{Edition, EndpointKind},
        filter::Filter,
        property,
        record::{Rate, job::JobKind},
    },
    subscription::endpoint_wait::{EndpointWait, EndpointWaits},
};

/// Why a subscription cannot be delivered as its record says.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The URL or the schema is invalid.
    #[error(transparent)]
    Destination(#[from] request::RequestError),
    /// The address is not allowed.
    #[error(transparent)]
    Address(#[from] AddressRefused),
    /// Not under this certificate.
    #[error("destination.properties.clientCertificate is \"{given}\", which does not exist; {allowed}")]
    Certificate {
        /// The name in the record.
        given: String,
        /// The names that exist.
        allowed: String,
    },
    /// The signing keys are invalid.
    #[error("destination.properties.{0}")]
    Signing(#[from] signature::SigningKeyError),
    /// The destination of its dead letters does not exist.
    #[error("deadLetterDestination.properties.resourceId {0}")]
    Place(#[from] UnknownDestination),
}

/// Delivery settings that are the same for every subscription of the server.
#[derive(Clone, Debug)]
pub struct DeliveryContext {
    /// Addresses that may be called.
    pub addresses: AddressRules,
    /// Time limit for the whole response of a subscription without its own.
    pub response_wait: Duration,
    /// Time limit, from the start of a request, in which a late success still counts. Only used if longer than
    /// `response_wait`.
    pub late_wait: Duration,
    /// Minimum pause between connection attempts to an endpoint that could not be reached.
    pub reconnect_wait: Duration,
    /// Maximum requests in flight per subscription.
    pub concurrency_max: u32,
    /// Maximum events of a subscription that clients hold.
    pub leases_max: u32,
    /// The client certificates that a subscription may name.
    pub client_certificates: ClientCertificates,
    /// Destinations for dead letters.
    pub places: NamedStores,
    /// The waits that endpoints requested.
    pub waits: Arc<EndpointWaits>,
}

/// How a subscription is delivered.
#[derive(Debug)]
pub struct DeliveryPlan {
    /// The stored record.
    pub record: Arc<SubscriptionRecord>,
    /// Settings for the core.
    pub settings: SubscriptionSettings,
    /// The endpoint; [`None`] with pull delivery.
    pub destination: Option<Destination>,
    /// The wait that the endpoint requested of any subscription; [`None`] with pull delivery.
    pub endpoint_wait: Option<Arc<EndpointWait>>,
    /// Time limit for the response.
    pub response_wait: Duration,
    /// Time limit, from the start of the request, in which a late success still counts.
    pub late_wait: Duration,
    signer: Option<Signer>,
}

/// Header of a request that a replay job sends. Its value is the job.
const REPLAY_HEADER: &str = "aeg-replay-job";

/// The same for a redrive job.
const REDRIVE_HEADER: &str = "aeg-redrive-job";

/// Maximum events in the answer to one receive request.
const RECEIVED_MAX: u32 = 100;

/// Maximum bytes of events in such an answer, or one event that is larger.
const RECEIVED_BYTES: u64 = 4 * 1024 * 1024;

/// Added to the response time limit. A request that has not reported by then is given up.
const REQUEST_SLACK: Duration = Duration::from_secs(30);

impl DeliveryPlan {
    /// The plan for `record`, in a topic with this input schema and edition.
    pub fn new(
        record: Arc<SubscriptionRecord>,
        input: Schema,
        edition: Arc<Edition>,
        delivery: &DeliveryContext,
    ) -> Result<Self, PlanError> {
        let webhook = &record.webhook;
        let batched = webhook.max_events_per_batch > 1;
        let destination = if record.is_pulled() {
            None
        } else {
            Some(
                Destination::new(&webhook.endpoint_url, record.name.as_str(), input, record.delivery_schema, batched)?
                    .with_properties(&webhook.delivery_properties),
            )
        };
        let endpoint_wait = destination.as_ref().map(|destination| delivery.waits.of(destination.url()));
        // With one event per request, delivery properties need not be equal.
        let grouping = property::keys(&webhook.delivery_properties).filter(|_| batched).cloned().collect();
        let batch = match record.queue {
            None => BatchLimits {
                events_max: webhook.max_events_per_batch,
                bytes_preferred: 1024 * u64::from(webhook.preferred_batch_size_in_kilobytes),
                schema: record.delivery_schema,
            },
            Some(_) => BatchLimits {
                events_max: RECEIVED_MAX,
                bytes_preferred: RECEIVED_BYTES,
                schema: record.delivery_schema,
            },
        };
        let lock = |queue: QueueSettings| Duration::from_secs(u64::from(queue.receive_lock_duration_in_seconds));
        let granted = webhook.allowed_rate.map(|rate| Rate::of(f64::from(rate.get()) / 60.0));
        let limited = webhook.max_requests_per_second.map(|rate| Rate::of(rate.get().into()));
        let response_wait = webhook.response_timeout_in_seconds;
        let response_wait =
            response_wait.map_or(delivery.response_wait, |seconds| Duration::from_secs(seconds.get().into()));
        let pull = record.queue.map(|queue| PullSettings { lock: lock(queue), leases_max: delivery.leases_max });
        let settings = SubscriptionSettings {
            version: record.version,
            attempts_max: record.retry.max_delivery_attempts,
            since: record.starts_from.map_or(Timestamp::default(), |starts| starts.made),
            time_to_live: Duration::from_secs(60 * u64::from(record.retry.event_time_to_live_in_minutes)),
            batch,
            grouping,
            concurrency_max: delivery.concurrency_max,
            rate_max: granted.into_iter().chain(limited).min(),
            backlog_min: batch.backlog_min(),
            suspend_after: edition.probation.after_failures,
            reconnect_wait: delivery.reconnect_wait,
            request_wait: response_wait + REQUEST_SLACK,
            dead_letter: record.dead_letter.is_some(),
            destination: EndpointKind::Webhook,
            dead_letter_in_probation: record.dead_letter_in_probation && record.dead_letter.is_some(),
            hold_when_gone: record.on_gone == OnGone::Disable,
            pull,
            edition,
        };
        let secrets = webhook.signing.as_ref().map(|signing| signing.secrets.iter().map(String::as_str));
        let signer = secrets.map(Signer::new).transpose()?;
        Ok(Self { record, settings, destination, endpoint_wait, response_wait, late_wait: delivery.late_wait, signer })
    }

    /// The request that delivers `events` of a lane, and of that lane's job, after `attempts_before` earlier attempts.
    pub fn request(
        &self,
        events: &[Event],
        (lane, kind): (Lane, Option<JobKind>),
        attempts_before: u32,
        now: Timestamp,
    ) -> Result<OutgoingRequest, request::RequestError> {
        let destination = self.destination.as_ref().ok_or(request::RequestError::Pulled)?;
        let mut outgoing = deliver::build(destination, events, attempts_before)?;
        if lane.is_job() {
            let header = match kind {
                Some(JobKind::Redrive { .. }) => REDRIVE_HEADER,
                Some(JobKind::Replay { .. }) | None => REPLAY_HEADER,
            };
            outgoing.headers.push((header, lane.0.to_string().into()));
        }
        if let Some(signer) = &self.signer {
            signer.sign(&mut outgoing, events, now);
        }
        Ok(outgoing)
    }

    /// Checks the plan against the operator's rules. A plan that was allowed under earlier rules is kept. Its requests
    /// fail with this error.
    pub fn check(&self, delivery: &DeliveryContext) -> Result<(), PlanError> {
        self.check_certificate(delivery)?;
        if let Some(StorageBlobDestination { resource_id, container, .. }) = &self.record.dead_letter {
            delivery.places.find(resource_id, container)?;
        }
        match &self.destination {
            Some(destination) => Ok(delivery.addresses.check_url(destination.url())?),
            None => Ok(()),
        }
    }

    /// Checks that the certificate in the record exists.
    pub fn check_certificate(&self, delivery: &DeliveryContext) -> Result<(), PlanError> {
        let names = delivery.client_certificates.names();
        match &self.record.webhook.client_certificate {
            Some(given) if !names.contains(given) => {
                let known = names.join(", ");
                let allowed = match known.as_str() {
                    "" => "there is none in the folder delivery.client_certificates_dir".to_owned(),
                    known => format!("allowed is one of {known}"),
                };
                Err(PlanError::Certificate { given: given.clone(), allowed })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The end of the wait that the endpoint requested of any subscription. It may have passed.
    pub fn requested_wait(&self) -> Option<Timestamp> {
        self.endpoint_wait.as_ref()?.until()
    }

    /// The filter of the subscription.
    pub fn filter(&self) -> &Filter {
        &self.record.filter
    }
}
