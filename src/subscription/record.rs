//! An event subscription as an operator set it up: what the control plane writes and the store keeps.

use serde::{Deserialize, Serialize};

use crate::{
    event::{Name, Schema, SubscriptionId},
    policy::filter::Filter,
};

/// An event subscription of a topic.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionRecord {
    /// Its number, never used again.
    pub number: SubscriptionId,
    /// Counts the changes made to it.
    pub version: u32,
    /// Its name, unique in its topic, compared without case.
    pub name: Name,
    /// Where events are sent.
    pub webhook: Webhook,
    /// Which events.
    pub filter: Filter,
    /// In which schema.
    pub delivery_schema: Schema,
    /// How often and for how long delivery is tried.
    pub retry: RetryPolicy,
    /// Where events go that are given up. [`None`]: they are dropped, counted and in the ledger.
    pub dead_letter: Option<DeadLetterDestination>,
    /// `labels`, kept and given back.
    pub labels: Vec<String>,
}

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Its address, with the query: a secret may be in it, so only `getFullUrl` gives it back.
    pub endpoint_url: String,
    /// How many events one request may have: 1 to 5,000.
    pub max_events_per_batch: u32,
    /// How many kilobytes one request should have: 1 to 1,024.
    pub preferred_batch_size_in_kilobytes: u32,
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

/// `deadLetterDestination`, of the kind `StorageBlob`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterDestination {
    /// The storage account's resource id; kept and given back.
    pub resource_id: String,
    /// The container: a folder below the store's root.
    pub container: String,
}
