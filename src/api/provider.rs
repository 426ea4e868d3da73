//! The resource provider: its operations, topic types and event types.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// An operation of the provider.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderOperation {
    /// Name of the operation, such as `Microsoft.EventGrid/topics/write`
    pub name: String,
    /// Whether the operation is on data, not on resources
    pub is_data_action: bool,
    /// Names of the operation for people
    pub display: ProviderOperationDisplay,
    /// Always `user,system`: people and services
    pub origin: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ProviderOperationDisplay {
    /// Name of the resource provider
    pub provider: String,
    /// Name of the resource type
    pub resource: String,
    /// Name of the operation, such as `Write Topic`
    pub operation: String,
    /// What it is for, in a sentence
    pub description: String,
}

/// A topic type.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TopicType {
    /// Resource id, as Azure Resource Manager writes it
    pub id: String,
    /// Name of the topic type, such as `Microsoft.EventGrid.Topics`
    pub name: String,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type")]
    pub kind: String,
    /// Settings and state; the other fields identify the resource
    pub properties: TopicTypeProperties,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicTypeProperties {
    /// Name of the resource provider
    pub provider: String,
    /// Resource type, with the resource provider before it
    pub resource_type: String,
    /// Name that clients show to people
    pub display_name: String,
    /// What it is for, in a sentence
    pub description: String,
    /// Region type of the resource
    pub resource_region_type: String,
    /// Provisioning state of the resource
    pub provisioning_state: String,
    /// Format of the resource ids of sources
    pub source_resource_format: String,
    /// Scopes at which a source can be
    pub supported_scopes_for_source: Vec<String>,
}

/// An event type that a topic declares.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct EventType {
    /// Resource id, as Azure Resource Manager writes it
    pub id: String,
    /// Last part of the resource id
    pub name: String,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type")]
    pub kind: String,
    /// Settings and state; the other fields identify the resource
    pub properties: EventTypeProperties,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventTypeProperties {
    /// Name of the event type for people
    pub display_name: String,
    /// What it is for, in a sentence
    pub description: Option<String>,
    /// Address of the schema of the payload
    pub schema_url: Option<String>,
    /// Whether the type is included where no type is named
    pub is_in_default_set: bool,
}
