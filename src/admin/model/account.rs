//! Tenants, Azure subscriptions, resource groups, providers and locations, which Azure's clients request first.
//!
//! None of them is stored. An Azure subscription, a resource group or a location exists as long as a topic, a domain or a
//! namespace is in it.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{provider::resource_types, topic::LOCATION};
use gridhook_api::account::{
    AzureSubscription, Location, Provider, ResourceGroup, ResourceGroupProperties, ResourceType, Tenant,
};
use gridhook_record::topic::ArmScope;

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

/// The only tenant.
pub fn only_tenant() -> Tenant {
    let tenant_id = tenant_id();
    Tenant {
        id: format!("/tenants/{tenant_id}"),
        tenant_id,
        display_name: "gridhook".to_owned(),
        tenant_category: "Home".to_owned(),
    }
}

/// The Azure subscriptions of `resources`, by key.
pub fn azure_subscriptions(resources: &[ResourcePlacement]) -> BTreeMap<String, AzureSubscription> {
    let mut all = BTreeMap::new();
    for ResourcePlacement { scope, .. } in resources {
        let id = &scope.subscription;
        all.entry(id.to_lowercase()).or_insert_with(|| AzureSubscription {
            id: format!("/subscriptions/{id}"),
            subscription_id: id.clone(),
            display_name: id.clone(),
            tenant_id: tenant_id(),
            state: "Enabled".to_owned(),
        });
    }
    all
}

/// The resource groups of `resources` in `subscription`, by key.
pub fn used_resource_groups(resources: &[ResourcePlacement], subscription: &str) -> BTreeMap<String, ResourceGroup> {
    let mut all = BTreeMap::new();
    for ResourcePlacement { scope, location } in resources {
        let ArmScope { subscription: of, resource_group: name } = scope;
        if of.to_lowercase() == subscription.to_lowercase() {
            all.entry(name.to_lowercase()).or_insert_with(|| ResourceGroup {
                id: format!("/subscriptions/{of}/resourceGroups/{name}"),
                name: name.clone(),
                kind: "Microsoft.Resources/resourceGroups".to_owned(),
                location: location.clone(),
                tags: BTreeMap::new(),
                properties: ResourceGroupProperties { provisioning_state: "Succeeded".to_owned() },
            });
        }
    }
    all
}

/// The locations of `resources` in `subscription`, by name.
pub fn used_locations(resources: &[ResourcePlacement], subscription: &str) -> Vec<Location> {
    let mut all = BTreeMap::new();
    let own = resources.iter().filter(|one| one.scope.subscription.to_lowercase() == subscription.to_lowercase());
    for display in own.map(|placed| placed.location.as_str()).chain([LOCATION]) {
        let name = display.to_lowercase().replace(' ', "");
        all.entry(name.clone()).or_insert_with(|| Location {
            id: format!("/subscriptions/{subscription}/locations/{name}"),
            name,
            kind: "Region".to_owned(),
            display_name: display.to_owned(),
            regional_display_name: display.to_owned(),
        });
    }
    all.into_values().collect()
}

/// The registration in `subscription` with these locations.
pub fn event_grid_provider(subscription: &str, locations: &[Location]) -> Provider {
    let locations: Vec<String> = locations.iter().map(|location| location.display_name.clone()).collect();
    let of = |resource_type: &str| ResourceType {
        resource_type: resource_type.to_owned(),
        locations: locations.clone(),
        api_versions: API_VERSIONS.map(str::to_owned).to_vec(),
        capabilities: "None".to_owned(),
    };
    Provider {
        id: format!("/subscriptions/{subscription}/providers/Microsoft.EventGrid"),
        namespace: "Microsoft.EventGrid".to_owned(),
        registration_state: "Registered".to_owned(),
        registration_policy: "RegistrationFree".to_owned(),
        resource_types: resource_types().map(of).collect(),
    }
}
