//! The stored record of an event subscription.

use std::{fmt, num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use url::Url;
use utoipa::ToSchema;

pub use gridhook_deliver::{MinimumTlsVersion, identity::TokenAudience};
use gridhook_deliver::{
    address::{AmbiguousAddress, check_unambiguous},
    clients::ClientSpec,
    resource::Resource,
};
use gridhook_event::{Name, Schema, SubscriptionId, Timestamp};
use gridhook_policy::{
    dead_letter_store,
    filter::{Filter, key::FilterKey},
    property::DeliveryProperty,
    transform::Transform,
};

/// An event subscription of a topic.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionRecord {
    /// Its number, never used again.
    pub number: SubscriptionId,
    /// Counts the changes made to it.
    pub version: u32,
    /// Its name, unique in its topic, in its domain or in its domain's topic, compared without
    /// case.
    pub name: Name,
    /// The webhook. Another destination uses its batch limits and delivery properties; its address
    /// is then empty. Empty with pull delivery.
    #[serde(default)]
    pub webhook: Webhook,
    /// A destination other than a webhook. Boxed, as what follows: most subscriptions have none.
    pub resource: Option<Box<Resource>>,
    /// Settings of pull delivery. [`None`] with push delivery.
    pub queue: Option<QueueSettings>,
    /// Which events are delivered.
    pub filter: Filter,
    /// The schema of delivered events.
    pub delivery_schema: Schema,
    /// `transform`, an extension: what is sent instead of an event.
    pub transform: Option<Box<Transform>>,
    /// How often and for how long delivery is attempted.
    pub retry: RetryPolicy,
    /// `retryPolicy.schedule`, an extension. [`None`]: the schedule of the topic's edition.
    pub retry_schedule: Option<Box<RetryScheduleSpec>>,
    /// Destination of dead letters. [`None`]: events that are given up are dropped, counted and
    /// recorded in the ledger.
    #[serialize_always]
    pub dead_letter: Option<Box<StorageBlobDestination>>,
    /// Identities of delivery and dead-lettering.
    pub identities: Option<Box<ManagedIdentities>>,
    /// `deadLetterInProbation`, an extension: while the endpoint is suspended for a client error,
    /// due events are dead-lettered at once.
    #[serde(default)]
    pub dead_letter_in_probation: bool,
    /// `onGone`, an extension.
    #[serde(default)]
    pub on_gone: OnGone,
    /// `ordering`, an extension: events with the same value of this key are delivered one after the
    /// other.
    pub order_key: Option<Box<FilterKey>>,
    /// `onFailure` of `ordering` is `block`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub order_blocks: bool,
    /// `labels`, stored and returned.
    pub labels: Vec<String>,
    /// `startsFrom`, an extension: the subscription began with events that were published earlier.
    pub starts_from: Option<Box<StartsFrom>>,
    /// When it is deleted automatically.
    pub expires: Option<Timestamp>,
    /// `systemData`. [`None`] if the last change was made before this was recorded.
    pub system_data: Option<SystemData>,
}

/// Creation and last change of a resource.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemData {
    /// [`None`] if it was created before this was recorded.
    pub created: Option<ChangeStamp>,
    /// The last change, or the creation.
    pub modified: ChangeStamp,
}

/// Identity and time of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeStamp {
    /// The name of the identity that made the change.
    pub by: String,
    pub kind: IdentityType,
    /// The time of the server's clock.
    pub at: Timestamp,
}

/// `createdByType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum IdentityType {
    /// A person, by an access token
    User,
    /// An application, by an access token, or the server itself
    Application,
    /// The holder of the admin token or of a named token
    Key,
}

impl SubscriptionRecord {
    /// Whether clients pull its events.
    pub fn is_pulled(&self) -> bool {
        self.queue.is_some()
    }

    /// `endpointType`; [`None`] with pull delivery.
    pub fn endpoint_type(&self) -> Option<&'static str> {
        match &self.resource {
            _ if self.is_pulled() => None,
            Some(resource) => Some(resource.name()),
            None => Some("WebHook"),
        }
    }

    /// `endpointType` of the destination; `Pull` if clients receive the events.
    pub fn destination_kind(&self) -> &'static str {
        match &self.resource {
            _ if self.is_pulled() => "Pull",
            None => "WebHook",
            Some(resource) => resource.name(),
        }
    }

    /// The destination without secrets: the address of a webhook, else `resourceId` and the name of
    /// the queue or topic.
    pub fn destination_name(&self) -> String {
        match &self.resource {
            None => self.webhook.base_url(),
            Some(resource) if resource.resource_id().ends_with(resource.entity()) => {
                resource.resource_id().to_owned()
            }
            Some(resource) => format!("{}/{}", resource.resource_id(), resource.entity()),
        }
    }

    /// Whether the subscription sets the limits of a batch, and not its kind of destination.
    pub fn has_batch_settings(&self) -> bool {
        self.resource
            .as_ref()
            .is_none_or(|resource| Resource::has_batches(resource.name()))
    }

    pub fn delivery_identity(&self) -> Option<&ResourceIdentity> {
        self.identities.as_deref()?.delivery.as_ref()
    }

    pub fn dead_letter_identity(&self) -> Option<&ResourceIdentity> {
        self.identities.as_deref()?.dead_letter.as_ref()
    }

    /// The key in its topic or domain: its name in lower case, after the domain topic's name and a
    /// slash if it has one.
    pub fn key(&self) -> String {
        match &self.filter.domain_topic {
            Some(domain_topic) => {
                format!("{}/{}", domain_topic.to_ascii_lowercase(), self.name.key())
            }
            None => self.name.key(),
        }
    }
}

/// Identities of a subscription. That of deliveries is the server's; that of dead letters is stored
/// and returned, because the settings have the credentials of dead-letter stores.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ManagedIdentities {
    /// The identity in `deliveryWithResourceIdentity`.
    pub delivery: Option<ResourceIdentity>,
    /// The identity in `deadLetterWithResourceIdentity`, or in a namespace topic's
    /// `deadLetterDestinationWithResourceIdentity`.
    pub dead_letter: Option<ResourceIdentity>,
}

impl ManagedIdentities {
    /// As a record has them.
    pub fn into_stored(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// An identity that a subscription refers to.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EventSubscriptionIdentity)]
pub struct ResourceIdentity {
    /// Type of the identity: `SystemAssigned` or `UserAssigned`
    #[serde(rename = "type")]
    pub kind: ResourceIdentityKind,
    /// Resource id of a user-assigned identity
    pub user_assigned_identity: Option<String>,
}

/// `type` of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventSubscriptionIdentityType)]
pub enum ResourceIdentityKind {
    /// One identity of the server itself.
    SystemAssigned,
    /// An identity that the user created in Azure; refused here.
    UserAssigned,
}

/// Where in the past a new subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartsFrom {
    /// It begins with the first event appended then or later, or with the oldest stored one.
    pub at: Timestamp,
    /// When the subscription was created. Older events count as being this old for the time to
    /// live.
    #[serde(default)]
    pub made: Timestamp,
}

/// Pull delivery: `queue` of `deliveryConfiguration`. Attempts and time to live are in
/// [`RetryPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSettings {
    /// How long a client holds a received event: 60 to 300 seconds.
    pub receive_lock_duration_in_seconds: u32,
}

impl QueueSettings {
    /// The shortest lock.
    pub const LOCK_SECONDS_MIN: u32 = 60;
    /// The longest lock.
    pub const LOCK_SECONDS_MAX: u32 = 300;
    pub const LOCK_SECONDS_DEFAULT: u32 = 60;
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Its URL with the query, which may contain a secret: only `getFullUrl` returns it.
    pub endpoint_url: String,
    /// Maximum events per request: 1 to 5,000.
    pub max_events_per_batch: u32,
    /// Preferred size of a request in kilobytes: 1 to 1,024.
    pub preferred_batch_size_in_kilobytes: u32,
    /// Requests per minute that the endpoint allowed in the handshake, if it gave a number.
    pub allowed_rate: Option<NonZeroU32>,
    /// `maxRequestsPerSecond`, an extension. The smaller of it and `allowed_rate` holds.
    pub max_requests_per_second: Option<NonZeroU32>,
    /// `responseTimeoutInSeconds`, an extension: 1 to 230. [`None`]: the server's setting.
    pub response_timeout_in_seconds: Option<NonZeroU32>,
    /// `minimumTlsVersionAllowed`. A later one in the server's settings applies instead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub minimum_tls_version: MinimumTlsVersion,
    /// For whom access tokens of the server are; [`None`]: requests have none.
    pub token_audience: Option<Box<TokenAudience>>,
    /// Name of the client certificate to present.
    pub client_certificate: Option<String>,
    /// Name of the egress proxy, or `none`; [`None`]: the server's.
    pub proxy: Option<String>,
    /// How requests are signed. [`None`]: not signed.
    pub signing: Option<Box<Signing>>,
    /// `deliveryAttributeMappings`. They may contain secrets: only `getDeliveryAttributes` returns
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delivery_properties: Vec<DeliveryProperty>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Webhook {
    /// Checks that every URL parser reads the address alike. Another check decides whether it may
    /// be called.
    ///
    /// # Errors
    /// If two parsers could read two addresses. The error text never repeats the address.
    pub fn check_endpoint_url(address: &str) -> Result<(), AmbiguousAddress> {
        check_unambiguous(address)
    }

    /// What the subscription sets for its connections.
    pub fn client_spec(&self) -> ClientSpec {
        ClientSpec {
            certificate: self.client_certificate.clone(),
            minimum_tls_version: self.minimum_tls_version,
            proxy: self.proxy.clone(),
        }
    }

    /// The URL without parts that may be secret: query, fragment, user and password.
    pub fn base_url(&self) -> String {
        let Ok(url) = Url::parse(&self.endpoint_url) else {
            return String::new();
        };
        match url.port() {
            Some(port) => format!(
                "{}://{}:{port}{}",
                url.scheme(),
                url.host_str().unwrap_or_default(),
                url.path()
            ),
            None => format!(
                "{}://{}{}",
                url.scheme(),
                url.host_str().unwrap_or_default(),
                url.path()
            ),
        }
    }
}

/// The secrets that requests are signed with, all of them at once: `whsec_…` or `whsk_…`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Signing {
    /// Secrets that sign requests, newest first, in the form `whsec_…` or `whsk_…`
    pub secrets: Vec<String>,
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signing({} hidden)", self.secrets.len())
    }
}

/// `retryPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Maximum attempts, including the first.
    pub max_delivery_attempts: u32,
    /// How long after publication an event is attempted.
    pub event_time_to_live_in_minutes: u32,
}

/// When an event is tried again, in place of the schedule of the topic's edition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "it is no schedule; expected the name of an edition, or a list of waits such as \
        [\"30s\", \"5m\"]"
)]
#[schema(as = SubscriptionRetrySchedule)]
pub enum RetryScheduleSpec {
    /// Name of the edition whose schedule applies
    Edition(String),
    /// Waits after the first, second, third failure, each from `1s` to `7d`; the last one repeats
    Waits(Vec<String>),
}

/// The meaning of 410: the same as 404, or that the endpoint wants no more events, as in
/// CloudEvents webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnGone {
    /// The event is retried.
    #[default]
    Retry,
    /// The subscription is held, and the event is retried once an operator resumes it.
    Disable,
}

/// `deadLetterDestination`, of the kind `StorageBlob`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageBlobDestination {
    /// Resource id of the storage account, or URL of a location in an object store; stored and
    /// returned.
    pub resource_id: String,
    /// The container. Empty if the URL includes it.
    pub container: String,
    /// `deliveryRetryPeriodInDays`: how long writes to an unreachable store are retried.
    pub retry_period_days: Option<u32>,
}

impl StorageBlobDestination {
    /// Whether a `resourceId` is a URL and not the id of a storage account.
    pub fn is_address(resource_id: &str) -> bool {
        dead_letter_store::is_address(resource_id)
    }

    /// How long writes to an unreachable store are retried. [`None`]: the edition's default.
    pub fn retry_period(&self) -> Option<Duration> {
        self.retry_period_days
            .map(|days| Duration::from_secs(24 * 3600 * u64::from(days)))
    }
}
