//! Tenants, Azure subscriptions, resource groups, providers and locations, which `az` requests at
//! sign-in and in lists. They are derived from the scopes and locations of topics, domains,
//! namespaces and stored resource groups.

use std::collections::BTreeMap;

use super::{Call, list::PageRequest, resource_groups::list_tracked};
use crate::{
    AdminError, AdminResult, Control,
    model::{
        account::{
            ResourcePlacement, azure_subscriptions, event_grid_provider, only_tenant,
            used_locations,
        },
        value_of,
    },
    respond_json,
};
use gridhook_api::{
    account::{AzureSubscription, Location, Provider},
    resource::Page,
};
use gridhook_record::topic::ArmScope;

/// The tags of a resource group that was created by itself.
pub(super) fn stored_tags(
    control: &Control,
    subscription: &str,
    group: &str,
) -> BTreeMap<String, String> {
    let scope = ArmScope {
        subscription: subscription.to_owned(),
        resource_group: group.to_owned(),
    };
    control
        .registry
        .resource_groups()
        .get(&scope)
        .map(|record| record.tags.clone())
        .unwrap_or_default()
}

/// Scopes and locations of all resource groups that were created by themselves, topics, domains and
/// namespaces, ordered by key.
pub(super) fn list_placements(control: &Control) -> Vec<ResourcePlacement> {
    let groups = control.registry.resource_groups().list_groups();
    let groups = groups.iter().map(|of| ResourcePlacement {
        scope: of.scope.clone(),
        location: of.location.clone(),
    });
    let resources = list_tracked(control, None).into_iter();
    let resources = resources.map(|one| ResourcePlacement {
        scope: one.scope,
        location: one.resource.location,
    });
    groups.chain(resources).collect()
}

pub(super) async fn list_tenants(_: Call<'_>) -> AdminResult {
    respond_json(&Page::whole(vec![only_tenant()]))
}

pub(super) async fn list_subscriptions(call: Call<'_>) -> AdminResult {
    let page = PageRequest::from_call(call)?;
    let all = azure_subscriptions(&list_placements(call.control));
    Ok(page.into_response(
        all.into_iter().collect(),
        |one: &AzureSubscription| &one.subscription_id,
        value_of,
    ))
}

pub(super) async fn get_subscription(call: Call<'_>) -> AdminResult {
    let id = call.path.name("subscriptionId")?;
    let subscription =
        azure_subscriptions(&list_placements(call.control)).remove(&id.to_lowercase());
    respond_json(&subscription.ok_or_else(|| AdminError::NoSubscription(id.to_owned()))?)
}

pub(super) async fn list_providers(call: Call<'_>) -> AdminResult {
    respond_json(&Page::whole(vec![the_provider(call)?]))
}

pub(super) async fn get_provider(call: Call<'_>) -> AdminResult {
    respond_json(&the_provider(call)?)
}

fn the_provider(call: Call<'_>) -> AdminResult<Provider> {
    let id = call.path.name("subscriptionId")?;
    Ok(event_grid_provider(id, &locations(call)?))
}

pub(super) async fn list_locations(call: Call<'_>) -> AdminResult {
    respond_json(&Page::whole(locations(call)?))
}

fn locations(call: Call<'_>) -> AdminResult<Vec<Location>> {
    let id = call.path.name("subscriptionId")?;
    Ok(used_locations(&list_placements(call.control), id))
}
