//! What a subscription's record means for those who serve it: checked once, when it is set up or read back.

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
};

/// Why a subscription cannot be served as it was set up.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not there, or not in this schema.
    #[error(transparent)]
    Destination(#[from] request::RequestError),
    /// Not at this address.
    #[error(transparent)]
    Address(#[from] AddressRefused),
    /// Not under this certificate.
    #[error("destination.properties.clientCertificate is \"{given}\"; {allowed}")]
    Certificate {
        /// The name that was given.
        given: String,
        /// The names that there are.
        allowed: String,
    },
    /// Not with these signatures.
    #[error("destination.properties.{0}")]
    Signing(#[from] signature::SigningKeyError),
    /// Its dead letters would have no place.
    #[error("deadLetterDestination.properties.resourceId {0}")]
    Place(#[from] UnknownDestination),
}

/// How requests are made, for every subscription of the server.
#[derive(Clone, Debug)]
pub struct DeliveryContext {
    /// Which addresses may be called.
    pub addresses: AddressRules,
    /// How long an endpoint may take for all of its answer.
    pub response_wait: Duration,
    /// How long after it left a success is still heard, where that is longer.
    pub late_wait: Duration,
    /// The least pause between bare connections to an endpoint that could not be reached.
    pub reconnect_wait: Duration,
    /// Requests on their way at once, for each subscription.
    pub concurrency_max: u32,
    /// Events that clients hold of a subscription, at most.
    pub leases_max: u32,
    /// The names of the certificates that a subscription may let endpoints see.
    pub client_certificates: ClientCertificates,
    /// Where dead letters may go.
    pub places: NamedStores,
}

/// How a subscription is served.
#[derive(Debug)]
pub struct DeliveryPlan {
    /// As it was set up.
    pub record: Arc<SubscriptionRecord>,
    /// How it is delivered, for the core.
    pub settings: SubscriptionSettings,
    /// Where it is delivered to; [`None`] where clients pull.
    pub destination: Option<Destination>,
    /// How long an answer is waited for.
    pub response_wait: Duration,
    /// How long after the request left a success is still heard.
    pub late_wait: Duration,
    signer: Option<Signer>,
}

/// The header that says which job has the events delivered once more.
const REPLAY_HEADER: &str = "aeg-replay-job";

/// The same where they are dead letters.
const REDRIVE_HEADER: &str = "aeg-redrive-job";

/// So many events are received in one answer at most …
pub(crate) const RECEIVED_MAX: u32 = 100;

/// … and as many as have these bytes, or one that is larger.
const RECEIVED_BYTES: u64 = 4 * 1024 * 1024;

/// A request that nobody heard of again is given up so long after the last moment at which it could have been answered.
const FLIGHT_SLACK: Duration = Duration::from_secs(30);

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
        let destination = match record.is_pulled() {
            true => None,
            false => Some(
                Destination::new(&webhook.endpoint_url, record.name.as_str(), input, record.delivery_schema, batched)?
                    .with_properties(&webhook.delivery_properties),
            ),
        };
        // Who sends events one by one need not compare them.
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
        let pull = record.queue.map(|queue| PullSettings { lock: lock(queue), leases_max: delivery.leases_max });
        let settings = SubscriptionSettings {
            version: record.version,
            attempts_max: record.retry.max_delivery_attempts,
            since: record.starts_from.map_or(Timestamp::default(), |starts| starts.made),
            time_to_live: Duration::from_secs(60 * u64::from(record.retry.event_time_to_live_in_minutes)),
            batch,
            grouping,
            concurrency_max: delivery.concurrency_max,
            rate_max: webhook.allowed_rate.map(|rate| Rate::of(f64::from(rate.get()) / 60.0)),
            backlog_min: batch.backlog_min(),
            suspend_after: edition.probation.after_failures,
            reconnect_wait: delivery.reconnect_wait,
            request_wait: delivery.response_wait + FLIGHT_SLACK,
            dead_letter: record.dead_letter.is_some(),
            destination: EndpointKind::Webhook,
            dead_letter_in_probation: record.dead_letter_in_probation && record.dead_letter.is_some(),
            hold_when_gone: record.on_gone == OnGone::Disable,
            pull,
            edition,
        };
        let secrets = webhook.signing.as_ref().map(|signing| signing.secrets.iter().map(String::as_str));
        let signer = secrets.map(Signer::new).transpose()?;
        let DeliveryContext { response_wait, late_wait, .. } = *delivery;
        Ok(Self { record, settings, destination, response_wait, late_wait, signer })
    }

    /// The request that delivers `events` of a lane, and of the job that it is of, after `attempts_before` earlier attempts, at `now`.
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

    /// Whether it may be set up like this: what an operator's rules refuse. A plan that was allowed under other rules is kept
    /// all the same; its requests fail, and say why.
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

    /// Whether the certificate that it names is there.
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

    /// Which events are asked for.
    pub fn filter(&self) -> &Filter {
        &self.record.filter
    }
}
