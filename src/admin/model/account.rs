//! Tenants, Azure subscriptions, resource groups, providers and locations, which Azure's clients
//! request first.
//!
//! Only a resource group that was created by itself is stored. An Azure subscription, any other
//! resource group or a location exists as long as a topic, a domain, a namespace or a stored
//! resource group is in it.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{
    CheckResult, check_tags, drop_read_only, parse_body,
    provider::resource_types,
    read,
    topic::{LOCATION, check_scope_part},
};
use gridhook_api::account::{
    AzureSubscription, Location, Provider, ResourceGroup, ResourceGroupBody,
    ResourceGroupProperties, ResourceType, Tenant,
};
use gridhook_record::{resource_group::ResourceGroupRecord, topic::ArmScope};

/// Listed API versions of Event Grid; every other version is accepted too.
const API_VERSIONS: [&str; 4] = ["2025-02-15", "2022-06-15", "2021-12-01", "2020-06-01"];

/// The id of the only tenant of this server.
pub fn tenant_id() -> String {
    Uuid::nil().to_string()
}

/// Scope and location of a resource.
#[derive(Clone, Debug)]
pub struct ResourcePlacement {
    /// Azure subscription and resource group.
    pub scope: ArmScope,
    pub location: String,
}

/// The specification of a resource group from a body.
pub struct ResourceGroupSpec {
    body: ResourceGroupBody,
    is_patch: bool,
}

impl ResourceGroupSpec {
    /// Reads the body of a PUT.
    pub fn from_put(body: &[u8]) -> CheckResult<Self> {
        Self::from_body(body, false)
    }

    /// Reads the body of a PATCH: what it omits stays.
    pub fn from_patch(body: &[u8]) -> CheckResult<Self> {
        Self::from_body(body, true)
    }

    fn from_body(body: &[u8], is_patch: bool) -> CheckResult<Self> {
        let mut value = parse_body(body)?;
        drop_read_only(
            &mut value,
            &["id", "name", "type", "properties", "managedBy"],
        );
        let body: ResourceGroupBody = read(value)?;
        check_tags(body.tags.as_ref().unwrap_or(&BTreeMap::new()))?;
        Ok(Self { body, is_patch })
    }

    /// The record of the group with these changes.
    pub fn into_record(
        self,
        scope: ArmScope,
        existing: Option<&ResourceGroup>,
    ) -> CheckResult<ResourceGroupRecord> {
        check_scope_part("the subscription in the path", &scope.subscription)?;
        check_scope_part("the resource group in the path", &scope.resource_group)?;
        let known_tags = existing
            .filter(|_| self.is_patch)
            .map(|group| group.tags.clone());
        let known_location = existing.map(|group| group.location.clone());
        let location = self
            .body
            .location
            .filter(|location| !location.is_empty())
            .or(known_location);
        // An existing group keeps the spelling of its name.
        let resource_group = existing.map_or(scope.resource_group, |group| group.name.clone());
        Ok(ResourceGroupRecord {
            scope: ArmScope {
                resource_group,
                ..scope
            },
            location: location.unwrap_or_else(|| LOCATION.to_owned()),
            tags: self.body.tags.or(known_tags).unwrap_or_default(),
        })
    }
}

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
        all.entry(id.to_lowercase())
            .or_insert_with(|| AzureSubscription {
                id: format!("/subscriptions/{id}"),
                subscription_id: id.clone(),
                display_name: id.clone(),
                tenant_id: tenant_id(),
                state: "Enabled".to_owned(),
            });
    }
    all
}

/// The view of a stored resource group.
pub fn resource_group_view(record: &ResourceGroupRecord) -> ResourceGroup {
    let ArmScope {
        subscription,
        resource_group,
    } = &record.scope;
    ResourceGroup {
        id: format!("/subscriptions/{subscription}/resourceGroups/{resource_group}"),
        name: resource_group.clone(),
        kind: "Microsoft.Resources/resourceGroups".to_owned(),
        location: record.location.clone(),
        tags: record.tags.clone(),
        properties: ResourceGroupProperties {
            provisioning_state: "Succeeded".to_owned(),
        },
    }
}

/// The resource groups of `resources` in `subscription`, by key.
pub fn used_resource_groups(
    resources: &[ResourcePlacement],
    subscription: &str,
) -> BTreeMap<String, ResourceGroup> {
    let mut all = BTreeMap::new();
    for ResourcePlacement { scope, location } in resources {
        let ArmScope {
            subscription: of,
            resource_group: name,
        } = scope;
        if of.to_lowercase() == subscription.to_lowercase() {
            all.entry(name.to_lowercase()).or_insert_with(|| {
                resource_group_view(&ResourceGroupRecord {
                    scope: scope.clone(),
                    location: location.clone(),
                    tags: BTreeMap::new(),
                })
            });
        }
    }
    all
}

/// The locations of `resources` in `subscription`, by name.
pub fn used_locations(resources: &[ResourcePlacement], subscription: &str) -> Vec<Location> {
    let mut all = BTreeMap::new();
    let own = resources
        .iter()
        .filter(|one| one.scope.subscription.to_lowercase() == subscription.to_lowercase());
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
    let locations: Vec<String> = locations
        .iter()
        .map(|location| location.display_name.clone())
        .collect();
    let types = resource_types().map(|resource_type| ResourceType {
        resource_type: resource_type.to_owned(),
        locations: locations.clone(),
        api_versions: API_VERSIONS.map(str::to_owned).to_vec(),
        capabilities: "None".to_owned(),
    });
    Provider {
        id: format!("/subscriptions/{subscription}/providers/Microsoft.EventGrid"),
        namespace: "Microsoft.EventGrid".to_owned(),
        registration_state: "Registered".to_owned(),
        registration_policy: "RegistrationFree".to_owned(),
        resource_types: types.collect(),
    }
}
