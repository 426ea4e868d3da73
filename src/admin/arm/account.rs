//! Tenants, Azure subscriptions, resource groups, providers and locations, which `az` requests at
//! sign-in and in lists. They are derived from the scopes and locations of topics, domains,
//! namespaces and stored resource groups.

use crate::{AdminResult, respond_json};
use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse};

use super::{list::PageRequest, resource_groups::list_tracked};
use crate::{
    AdminError, Control,
    model::{
        account::{
            ResourcePlacement, azure_subscriptions, event_grid_provider, only_tenant,
            used_locations,
        },
        value_of,
    },
};
use gridhook_api::{
    account::{AzureSubscription, Provider},
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

pub(super) fn list_tenants() -> HttpResponse {
    HttpResponse::Ok().json(Page::whole(vec![only_tenant()]))
}

pub(super) fn list_subscriptions(control: &Control, request: &HttpRequest) -> AdminResult {
    let page = PageRequest::from_request(request, control)?;
    let all = azure_subscriptions(&list_placements(control))
        .into_iter()
        .collect();
    Ok(page.into_response(
        all,
        |one: &AzureSubscription| &one.subscription_id,
        value_of,
    ))
}

pub(super) fn get_subscription(control: &Control, id: &str) -> AdminResult {
    let subscription = azure_subscriptions(&list_placements(control)).remove(&id.to_lowercase());
    respond_json(&subscription.ok_or_else(|| AdminError::NoSubscription(id.to_owned()))?)
}

pub(super) fn list_providers(control: &Control, id: &str) -> HttpResponse {
    HttpResponse::Ok().json(Page::whole(vec![the_provider(control, id)]))
}

pub(super) fn get_provider(control: &Control, id: &str) -> HttpResponse {
    HttpResponse::Ok().json(the_provider(control, id))
}

fn the_provider(control: &Control, id: &str) -> Provider {
    event_grid_provider(id, &used_locations(&list_placements(control), id))
}

pub(super) fn list_locations(control: &Control, id: &str) -> HttpResponse {
    HttpResponse::Ok().json(Page::whole(used_locations(&list_placements(control), id)))
}
