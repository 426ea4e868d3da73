//! An event subscription as an operator set it up: what the control plane writes and the store keeps.

use std::{fmt, num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use crate::{
    deliver::address::{AmbiguousAddress, check_unambiguous},
    event::{Name, Schema, SubscriptionId, Timestamp},
    policy::{dead_letter_store, filter::Filter, property::DeliveryProperty},
};

/// An event subscription of a topic.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionRecord {
    /// Its number, never used again.
    pub number: SubscriptionId,
    /// Counts the changes made to it.
    pub version: u32,
    /// Its name, unique in its topic, in its domain or in its domain's topic, compared without case.
    pub name: Name,
    /// Where events are sent; to no address, where clients pull them.
    #[serde(default)]
    pub webhook: Webhook,
    /// How clients pull them. [`None`]: they are pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueSettings>,
    /// Which events.
    pub filter: Filter,
    /// In which schema.
    pub delivery_schema: Schema,
    /// How often and for how long delivery is tried.
    pub retry: RetryPolicy,
    /// Where events go that are given up. [`None`]: they are dropped, counted and in the ledger.
    pub dead_letter: Option<StorageBlobDestination>,
    /// In whose names Azure would deliver and put aside; kept and given back.
    #[serde(default, skip_serializing_if = "ManagedIdentities::is_none")]
    pub identities: ManagedIdentities,
    /// `deadLetterInProbation`, a property of ours: while the endpoint is left alone for an error of the client's, what falls
    /// due becomes a dead letter at once.
    #[serde(default)]
    pub dead_letter_in_probation: bool,
    /// `onGone`, a property of ours.
    #[serde(default)]
    pub on_gone: OnGone,
    /// `labels`, kept and given back.
    pub labels: Vec<String>,
    /// `startsFrom`, a property of ours: when it was made it was given what had been published from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_from: Option<StartsFrom>,
    /// When it is deleted by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// `systemData`. [`None`]: the last change was made before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemData>,
}

/// Who made a resource, who changed it last, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemData {
    /// [`None`]: it was made before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<ChangeStamp>,
    /// The last change, or the creation.
    pub modified: ChangeStamp,
}

/// Who did something, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeStamp {
    /// Whose name it was done in.
    pub by: String,
    /// What kind of identity that is.
    pub kind: IdentityType,
    /// When it was done, by the server's clock.
    pub at: Timestamp,
}

/// `createdByType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum IdentityType {
    /// A person, by an access token
    User,
    /// An application, by an access token, or the server itself
    Application,
    /// The holder of the admin token
    Key,
}

impl SubscriptionRecord {
    /// Whether clients pull its events.
    pub fn is_pulled(&self) -> bool {
        self.queue.is_some()
    }

    /// How it is looked up in its topic or domain: its name in lower case; for one of a domain's topic, that topic's name
    /// and a slash before it.
    pub fn key(&self) -> String {
        match &self.filter.domain_topic {
            Some(domain_topic) => format!("{}/{}", domain_topic.to_ascii_lowercase(), self.name.key()),
            None => self.name.key(),
        }
    }
}

/// The identities of a subscription of a namespace topic: they are told, and nothing is ever done in their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ManagedIdentities {
    /// Of `deliveryWithResourceIdentity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<ResourceIdentity>,
    /// Of `deadLetterDestinationWithResourceIdentity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<ResourceIdentity>,
}

impl ManagedIdentities {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// An identity, as a subscription names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EventSubscriptionIdentity)]
pub struct ResourceIdentity {
    /// Whose it is.
    #[serde(rename = "type")]
    pub kind: ResourceIdentityKind,
    /// Resource id of a user-assigned identity
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_assigned_identity: Option<String>,
}

/// `type` of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventSubscriptionIdentityType)]
pub enum ResourceIdentityKind {
    /// The system's.
    SystemAssigned,
    /// The user's.
    UserAssigned,
}

/// Where a subscription begins that was made to begin in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartsFrom {
    /// With what was appended then or later, or with what was stored of it.
    pub at: Timestamp,
    /// When it was made: what is older is as old as the subscription, as far as its time to live is concerned.
    #[serde(default)]
    pub made: Timestamp,
}

/// How clients pull: `deliveryMode` `QueueSettings`. How often and for how long an event is handed out says [`RetryPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSettings {
    /// For so long a client has an event that it received: 60 to 300 seconds.
    pub receive_lock_duration_in_seconds: u32,
}

impl QueueSettings {
    /// The shortest lock.
    pub const LOCK_SECONDS_MIN: u32 = 60;
    /// The longest lock.
    pub const LOCK_SECONDS_MAX: u32 = 300;
    /// The lock where nothing is said.
    pub const LOCK_SECONDS_DEFAULT: u32 = 60;
}

/// A webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Its address, with the query: a secret may be in it, so only `getFullUrl` gives it back.
    pub endpoint_url: String,
    /// How many events one request may have: 1 to 5,000.
    pub max_events_per_batch: u32,
    /// How many kilobytes one request should have: 1 to 1,024.
    pub preferred_batch_size_in_kilobytes: u32,
    /// How many requests a minute the endpoint allowed in the handshake, if it gave a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_rate: Option<NonZeroU32>,
    /// The name of the certificate that an endpoint is shown that asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<String>,
    /// How requests are signed. [`None`]: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing: Option<Signing>,
    /// `deliveryAttributeMappings`: secrets may be in them, so only `getDeliveryAttributes` gives these back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delivery_properties: Vec<DeliveryProperty>,
}

impl Webhook {
    /// Whether every reader reads the address alike. Whether it may be called is asked elsewhere.
    ///
    /// # Errors
    /// Where two readers could take it for two addresses; the text never repeats it.
    pub fn check_endpoint_url(address: &str) -> Result<(), AmbiguousAddress> {
        check_unambiguous(address)
    }

    /// Its address without what may be secret in it: query, fragment, user and password.
    pub fn base_url(&self) -> String {
        let Ok(url) = Url::parse(&self.endpoint_url) else { return String::new() };
        match url.port() {
            Some(port) => format!("{}://{}:{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path()),
            None => format!("{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path()),
        }
    }
}

/// The secrets that requests are signed with, all of them at once: `whsec_…` or `whsk_…`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Signing {
    /// The newest first, by custom.
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
    /// Attempts, the first one counted.
    pub max_delivery_attempts: u32,
    /// How long after its publication an event is still tried.
    pub event_time_to_live_in_minutes: u32,
}

/// What 410 means: nothing more than 404, or that the endpoint wants no more events, as CloudEvents' webhooks say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnGone {
    /// The event is tried again.
    #[default]
    Retry,
    /// The event is tried again, but not before somebody resumes the subscription, which is held.
    Disable,
}

/// `deadLetterDestination`, of the kind `StorageBlob`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageBlobDestination {
    /// The storage account's resource id, or the address of a place in a store; kept and given back.
    pub resource_id: String,
    /// The container; empty where the address says it all.
    pub container: String,
    /// `deliveryRetryPeriodInDays`: for so long a store that is out of reach is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_period_days: Option<u32>,
}

impl StorageBlobDestination {
    /// Whether a `resourceId` is an address instead of a storage account's.
    pub fn is_address(resource_id: &str) -> bool {
        dead_letter_store::is_address(resource_id)
    }

    /// For how long a store that is out of reach is tried again; [`None`]: as the edition says.
    pub fn retry_period(&self) -> Option<Duration> {
        self.retry_period_days.map(|days| Duration::from_secs(24 * 3600 * u64::from(days)))
    }
}
