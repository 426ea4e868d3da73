//! Tenants, Azure subscriptions, resource groups, providers and locations, which Azure's clients request first.
//!
//! None of them is stored. An Azure subscription, a resource group or a location exists as long as a topic, a domain or a
//! namespace is in it.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{provider::resource_types, topic::LOCATION};
use crate::control::record::topic::ArmScope;

/// Listed API versions of Event Grid; every other version is accepted too.
const API_VERSIONS: [&str; 4] = ["2025-02-15", "2022-06-15", "2021-12-01", "2020-06-01"];

/// The only tenant.
pub fn tenant_id() -> String {
    Uuid::nil().to_string()
}

/// Scope and location of a resource.
#[derive(Clone, Debug)]
pub struct ResourcePlacement {
    /// Azure subscription and resource group.
    pub scope: ArmScope,
    /// `location`.
    pub location: String,
}

/// A tenant.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    /// Resource id of the tenant
    id: String,
    /// Id of the tenant, always the nil UUID
    tenant_id: String,
    /// Name for people
    display_name: &'static str,
    /// Relation of the caller to the tenant
    tenant_category: &'static str,
}

impl Tenant {
    /// The only tenant.
    pub fn only() -> Self {
        let tenant_id = tenant_id();
        Self { id: format!("/tenants/{tenant_id}"), tenant_id, display_name: "gridhook", tenant_category: "Home" }
    }
}

/// An Azure subscription with resources.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureSubscription {
    /// Resource id of the subscription
    id: String,
    /// Id of the subscription, as paths have it
    subscription_id: String,
    /// Name for people, the same as the id
    display_name: String,
    /// Id of the tenant, always the nil UUID
    tenant_id: String,
    /// State of the subscription, always `Enabled`
    state: &'static str,
}

impl AzureSubscription {
    /// The Azure subscriptions of `resources`, by key.
    pub fn all(resources: &[ResourcePlacement]) -> BTreeMap<String, Self> {
        let mut all = BTreeMap::new();
        for ResourcePlacement { scope, .. } in resources {
            let id = &scope.subscription;
            all.entry(id.to_lowercase()).or_insert_with(|| Self {
                id: format!("/subscriptions/{id}"),
                subscription_id: id.clone(),
                display_name: id.clone(),
                tenant_id: tenant_id(),
                state: "Enabled",
            });
        }
        all
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.subscription_id
    }
}

/// A resource group with resources.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ResourceGroup {
    /// Resource id of the group
    id: String,
    /// Name of the group
    name: String,
    /// Type of the resource
    #[serde(rename = "type")]
    kind: &'static str,
    /// Location of the first resource in the group
    location: String,
    /// Tags of the group, always empty
    tags: BTreeMap<String, String>,
    /// Properties of the group
    properties: ResourceGroupProperties,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceGroupProperties {
    /// State of the group, always `Succeeded`
    provisioning_state: &'static str,
}

impl ResourceGroup {
    /// The resource groups of `resources` in `subscription`, by key.
    pub fn all(resources: &[ResourcePlacement], subscription: &str) -> BTreeMap<String, Self> {
        let mut all = BTreeMap::new();
        for ResourcePlacement { scope, location } in resources {
            let ArmScope { subscription: of, resource_group: name } = scope;
            if of.to_lowercase() == subscription.to_lowercase() {
                all.entry(name.to_lowercase()).or_insert_with(|| Self {
                    id: format!("/subscriptions/{of}/resourceGroups/{name}"),
                    name: name.clone(),
                    kind: "Microsoft.Resources/resourceGroups",
                    location: location.clone(),
                    tags: BTreeMap::new(),
                    properties: ResourceGroupProperties { provisioning_state: "Succeeded" },
                });
            }
        }
        all
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A location of resources, or the default location.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Location {
    /// Resource id of the location
    id: String,
    /// Name of the location, in lower case and without spaces
    name: String,
    /// Kind of the location, always `Region`
    #[serde(rename = "type")]
    kind: &'static str,
    /// Name for people, as the first resource spells it
    display_name: String,
    /// Name for people with its region, the same as `displayName`
    regional_display_name: String,
}

impl Location {
    /// The locations of `resources` in `subscription`, by name.
    pub fn all(resources: &[ResourcePlacement], subscription: &str) -> Vec<Self> {
        let mut all = BTreeMap::new();
        let own = resources.iter().filter(|one| one.scope.subscription.to_lowercase() == subscription.to_lowercase());
        for display in own.map(|placed| placed.location.as_str()).chain([LOCATION]) {
            let name = display.to_lowercase().replace(' ', "");
            all.entry(name.clone()).or_insert_with(|| Self {
                id: format!("/subscriptions/{subscription}/locations/{name}"),
                name,
                kind: "Region",
                display_name: display.to_owned(),
                regional_display_name: display.to_owned(),
            });
        }
        all.into_values().collect()
    }
}

/// The registration of the resource provider in an Azure subscription.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// Resource id of the provider
    id: String,
    /// Name of the provider, always `Microsoft.EventGrid`
    namespace: &'static str,
    /// Whether the subscription can use it, always `Registered`
    registration_state: &'static str,
    /// Whether it must be registered, always `RegistrationFree`
    registration_policy: &'static str,
    /// Types of its resources
    resource_types: Vec<ResourceType>,
}

/// A type of resources.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceType {
    /// Name of the type
    resource_type: &'static str,
    /// Names of the locations that have it
    locations: Vec<String>,
    /// Versions of the API that clients may choose from; every other version is accepted too
    api_versions: [&'static str; 4],
    /// Further capabilities, always `None`
    capabilities: &'static str,
}

impl Provider {
    /// The registration in `subscription` with these locations.
    pub fn of(subscription: &str, locations: &[Location]) -> Self {
        let locations: Vec<String> = locations.iter().map(|location| location.display_name.clone()).collect();
        let of = |resource_type| ResourceType {
            resource_type,
            locations: locations.clone(),
            api_versions: API_VERSIONS,
            capabilities: "None",
        };
        Self {
            id: format!("/subscriptions/{subscription}/providers/Microsoft.EventGrid"),
            namespace: "Microsoft.EventGrid",
            registration_state: "Registered",
            registration_policy: "RegistrationFree",
            resource_types: resource_types().map(of).collect(),
        }
    }
}
