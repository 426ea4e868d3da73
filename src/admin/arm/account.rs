//! Tenants, Azure subscriptions, resource groups, providers and locations, which `az` requests at sign-in and in lists. They
//! are derived from the scopes and locations of topics, domains and namespaces.

use actix_web::{HttpRequest, HttpResponse};

use super::list::PageRequest;
use crate::model::account::azure_subscriptions;
use crate::model::account::event_grid_provider;
use crate::model::account::only_tenant;
use crate::model::account::used_locations;
use crate::model::account::used_resource_groups;
use crate::{
    AdminError, Control,
    model::{account::ResourcePlacement, value_of},
};
use gridhook_api::{
    account::{AzureSubscription, Provider, ResourceGroup},
    resource::Page,
};
use gridhook_record::topic::ArmScope;

/// Scopes and locations of all topics, domains and namespaces, ordered by key.
fn placed(control: &Control) -> Vec<ResourcePlacement> {
    let topics = control.registry.topics();
    let topics = topics.iter().map(|topic| topic.record());
    let topics = topics.map(|of| ResourcePlacement { scope: of.scope.clone(), location: of.location.clone() });
    let namespaces = control.registry.namespaces();
    let namespaces =
        namespaces.iter().map(|of| ResourcePlacement { scope: of.scope.clone(), location: of.location.clone() });
    topics.chain(namespaces).collect()
}

pub(super) fn tenants() -> HttpResponse {
    HttpResponse::Ok().json(Page::whole(vec![only_tenant()]))
}

pub(super) fn subscriptions(control: &Control, request: &HttpRequest) -> Result<HttpResponse, AdminError> {
    let page = PageRequest::of(request, control)?;
    let all = azure_subscriptions(&placed(control)).into_iter().collect();
    Ok(page.answer(all, |one: &AzureSubscription| &one.subscription_id, value_of))
}

pub(super) fn subscription(control: &Control, id: &str) -> Result<HttpResponse, AdminError> {
    let found = azure_subscriptions(&placed(control)).remove(&id.to_lowercase());
    Ok(HttpResponse::Ok().json(found.ok_or_else(|| AdminError::NoSubscription(id.to_owned()))?))
}

pub(super) fn resource_groups(control: &Control, request: &HttpRequest, id: &str) -> Result<HttpResponse, AdminError> {
    let page = PageRequest::of(request, control)?;
    let all = used_resource_groups(&placed(control), id).into_iter().collect();
    Ok(page.answer(all, |one: &ResourceGroup| &one.name, value_of))
}

pub(super) fn resource_group(control: &Control, scope: &ArmScope) -> Result<HttpResponse, AdminError> {
    let ArmScope { subscription, resource_group: name } = scope;
    let found = used_resource_groups(&placed(control), subscription).remove(&name.to_lowercase());
    Ok(HttpResponse::Ok().json(found.ok_or_else(|| AdminError::NoResourceGroup(name.clone()))?))
}

pub(super) fn providers(control: &Control, id: &str) -> HttpResponse {
    HttpResponse::Ok().json(Page::whole(vec![the_provider(control, id)]))
}

pub(super) fn provider(control: &Control, id: &str) -> HttpResponse {
    HttpResponse::Ok().json(the_provider(control, id))
}

fn the_provider(control: &Control, id: &str) -> Provider {
    event_grid_provider(id, &used_locations(&placed(control), id))
}

pub(super) fn locations(control: &Control, id: &str) -> HttpResponse {
    HttpResponse::Ok().json(Page::whole(used_locations(&placed(control), id)))
}
