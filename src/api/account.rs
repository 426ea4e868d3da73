//! Tenants, Azure subscriptions, resource groups, locations and the registration of the resource
//! provider.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A tenant.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    /// Resource id of the tenant
    pub id: String,
    /// Id of the tenant, always the nil UUID
    pub tenant_id: String,
    /// Name that clients show to people
    pub display_name: String,
    /// Relation of the caller to the tenant
    pub tenant_category: String,
}

/// An Azure subscription with resources.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureSubscription {
    /// Resource id of the subscription
    pub id: String,
    /// Id of the subscription, as paths have it
    pub subscription_id: String,
    /// Name for people, the same as the id
    pub display_name: String,
    /// Id of the tenant, always the nil UUID
    pub tenant_id: String,
    /// State of the subscription, always `Enabled`
    pub state: String,
}

/// A resource group.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ResourceGroup {
    /// Resource id of the group
    pub id: String,
    /// Last part of the resource id
    pub name: String,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type")]
    pub kind: String,
    /// Location of the group, or of the first resource in it
    pub location: String,
    /// Names and values that operators chose; empty if there are none
    pub tags: BTreeMap<String, String>,
    /// Provisioning state; a group has no other property
    pub properties: ResourceGroupProperties,
}

/// The body of a PUT or PATCH of a resource group.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceGroupBody {
    /// Location of the group; default that of the group, or `local`
    pub location: Option<String>,
    /// Tags of the group; without them none, and in a PATCH those of the group
    pub tags: Option<BTreeMap<String, String>>,
}

/// A topic, a domain or a namespace in a list of all types.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct GenericResource {
    /// Resource id, as Azure Resource Manager writes it
    pub id: String,
    /// Last part of the resource id
    pub name: String,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type")]
    pub kind: String,
    /// Location that its creator chose, such as `local`; changes nothing
    pub location: String,
    /// Names and values that operators chose; empty if there are none
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGroupProperties {
    /// State of the group, always `Succeeded`
    pub provisioning_state: String,
}

/// A location of resources, or the default location.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Location {
    /// Resource id of the location
    pub id: String,
    /// Name of the location, in lower case and without spaces
    pub name: String,
    /// Kind of the location, always `Region`
    #[serde(rename = "type")]
    pub kind: String,
    /// Name for people, as the first resource spells it
    pub display_name: String,
    /// Name for people with its region, the same as `displayName`
    pub regional_display_name: String,
}

/// The registration of the resource provider in an Azure subscription.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// Resource id of the provider
    pub id: String,
    /// Name of the provider, always `Microsoft.EventGrid`
    pub namespace: String,
    /// Whether the subscription can use it, always `Registered`
    pub registration_state: String,
    /// Whether it must be registered, always `RegistrationFree`
    pub registration_policy: String,
    /// Types of resources that the server offers
    pub resource_types: Vec<ResourceType>,
}

/// A type of resources.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceType {
    /// Resource type without the resource provider
    pub resource_type: String,
    /// Names of the locations that have it
    pub locations: Vec<String>,
    /// Versions of the API that clients may choose from; every other version is accepted too
    pub api_versions: Vec<String>,
    /// Further capabilities, always `None`
    pub capabilities: String,
}
