//! The delivery histories of an event.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

use super::{explain::StateView, ledger::LineView};

/// Maximum number of delivery histories or lines in a response.
pub const TOP_MAX: usize = 1_000;

/// The delivery histories of an event.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Trace)]
pub struct TraceView {
    /// Name of the topic or the domain
    pub topic: String,
    /// Current time of the server
    pub now: String,
    /// First sequence number of the log; older events are found by id only while a delivery is
    /// pending
    pub log_from_sequence: u64,
    /// Sequence number before which the log ends
    pub log_before_sequence: u64,
    /// Events that were found, each with its history
    pub events: Vec<EventView>,
    /// Value of `continue` for the next request; missing at the end
    pub r#continue: Option<String>,
}

/// An event and its delivery histories.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TracedEvent)]
pub struct EventView {
    /// Shard of an event of a spread topic.
    pub shard: Option<usize>,
    /// Sequence number of the event in the log
    pub sequence: u64,
    /// Id of the event; missing, with its other fields, if the store no longer has the event
    pub id: Option<String>,
    /// `eventType` of the event, or `type` in CloudEvents
    pub event_type: Option<String>,
    /// Subject of the event in the context of its source
    pub subject: Option<String>,
    /// Time at which the event was published
    pub published: Option<String>,
    /// How often the event was published again within the window of duplicate detection, as far as
    /// kept.
    pub duplicates: Option<u64>,
    /// When the event was last published again within the window of duplicate detection
    pub last_duplicate: Option<String>,
    /// Histories of the event, one for each event subscription
    pub subscriptions: Vec<DeliveryHistory>,
}

/// The history of an event in one event subscription.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryHistory {
    /// Name of the event subscription, or its number if the name is unknown
    pub subscription: String,
    /// Name of the topic of the domain
    pub domain_topic: Option<String>,
    /// Whether the event subscription is deleted
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// `delivered`, `filtered`, `deadLettered`, `deadLetterWaiting`, `deadLetterLost`, `dropped`,
    /// `canceled`, `pending`, `unread`, `beforeSubscription`, `notPublished` or `unknown`.
    pub result: String,
    /// The result as a sentence
    pub text: String,
    /// Lines in order of time
    pub lines: Vec<LineView>,
    /// Whether the event has more lines than are listed
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// What is delivered instead of the event.
    pub transformed: Option<Transformed>,
    /// Present state of a pending event.
    pub now: Option<StateView>,
    /// Earliest time of the next attempt
    pub next_attempt: Option<String>,
}

/// What the present transformation makes of an event.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transformed {
    /// Length of the body, in bytes
    pub bytes: u64,
    /// SHA-256 of the body, in hexadecimal digits
    pub sha256: String,
    /// First 256 characters of the body
    pub excerpt: String,
    /// Text that is appended to the path of the endpoint
    pub path_suffix: Option<String>,
}
