//! The resource provider: its operations, topic types and event types.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An operation of the provider.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderOperation {
    /// Name of the operation, such as `Microsoft.EventGrid/topics/write`
    pub name: String,
    pub is_data_action: bool,
    pub display: OperationDisplay,
    pub origin: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ProviderOperationDisplay)]
pub struct OperationDisplay {
    pub provider: String,
    pub resource: String,
    pub operation: String,
    pub description: String,
}

/// A topic type.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TopicType {
    pub id: String,
    /// Name of the topic type, such as `Microsoft.EventGrid.Topics`
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: TopicTypeProperties,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicTypeProperties {
    pub provider: String,
    pub resource_type: String,
    pub display_name: String,
    pub description: String,
    pub resource_region_type: String,
    pub provisioning_state: String,
    pub source_resource_format: String,
    pub supported_scopes_for_source: Vec<String>,
}

/// An event type that a topic declares.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct EventType {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: EventTypeProperties,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventTypeProperties {
    /// Name of the event type for people
    pub display_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_url: Option<String>,
    pub is_in_default_set: bool,
}
