//! The request of an attempt, made again from the log.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// The request that delivers events of the log as the event subscription is now.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeliveryRequest)]
pub struct DeliveryRequestView {
    /// Request line and header fields, without secrets; missing unless the destination is a webhook
    pub head: Option<String>,
    /// Body of the request; unless the destination is a webhook, a list of its messages
    pub body: String,
    /// Number of events in the body
    pub events: usize,
    /// Whether the log has more events of the range than the body
    pub truncated: bool,
    /// Time of the last change of the event subscription: earlier attempts may have had another
    /// request
    pub settings_since: Option<String>,
}
