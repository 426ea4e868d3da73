//! Operations on resource groups, and on the resources in them.
//!
//! A group exists as long as a resource is in it, or since it was created by itself until it is
//! deleted.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, http::Method};
use serde_json::json;
use tracing::info;

use super::{
    Call, Permissions,
    account::{list_placements, stored_tags},
    list::PageRequest,
    namespaces,
    path::NamespacePath,
    topics::{self, is_in, is_in_scope},
};
use crate::{
    AdminError, AdminResult, Control,
    model::{
        account::{ResourceGroupSpec, resource_group_view, used_resource_groups},
        difference::difference_between,
        refuse_value, value_of,
    },
    respond_json, respond_nothing,
};
use gridhook_api::{
    account::{GenericResource, ResourceGroup},
    what_if::Difference,
};
use gridhook_record::{resource_group::ResourceGroupRecord, topic::ArmScope};

/// The group, if it exists.
pub(super) fn find_group(control: &Control, scope: &ArmScope) -> Option<ResourceGroup> {
    let group = used_resource_groups(&list_placements(control), &scope.subscription)
        .remove(&scope.resource_group.to_lowercase())?;
    Some(with_tags(control, group, &scope.subscription))
}

pub(super) fn require_group(control: &Control, scope: &ArmScope) -> AdminResult<ResourceGroup> {
    find_group(control, scope)
        .ok_or_else(|| AdminError::NoResourceGroup(scope.resource_group.clone()))
}

fn with_tags(control: &Control, group: ResourceGroup, subscription: &str) -> ResourceGroup {
    let tags = stored_tags(control, subscription, &group.name);
    ResourceGroup { tags, ..group }
}

pub(super) async fn list(call: Call<'_>) -> AdminResult {
    let id = call.path.name("subscriptionId")?;
    let page = PageRequest::from_call(call)?;
    let all = used_resource_groups(&list_placements(call.control), id).into_iter();
    let all = all
        .map(|(key, group)| (key, with_tags(call.control, group, id)))
        .collect();
    Ok(page.into_response(all, |one: &ResourceGroup| &one.name, value_of))
}

/// GET, and HEAD, which clients send to find out whether a group exists: they expect 204.
pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let group = require_group(call.control, &call.path.arm_scope()?)?;
    if call.request()?.method() == Method::HEAD {
        return respond_nothing();
    }
    respond_json(&group)
}

/// The existing group, and the record after a PUT.
fn planned_change(call: Call<'_>) -> AdminResult<(Option<ResourceGroup>, ResourceGroupRecord)> {
    let scope = call.path.arm_scope()?;
    let existing = find_group(call.control, &scope);
    let record = ResourceGroupSpec::from_put(call.body)?.into_record(scope, existing.as_ref())?;
    Ok((existing, record))
}

pub(super) async fn difference(call: Call<'_>) -> AdminResult<Difference> {
    let (existing, record) = planned_change(call)?;
    let settable = |group: &ResourceGroup| json!({"location": group.location, "tags": group.tags});
    let after = json!({"location": record.location, "tags": record.tags});
    Ok(difference_between(
        existing.as_ref().map(settable).as_ref(),
        &after,
    ))
}

pub(super) async fn put(call: Call<'_>) -> AdminResult {
    let (_, record) = planned_change(call)?;
    // 201 also if it exists, as for other resources: the responses of shards are compared.
    Ok(HttpResponse::Created().json(store_record(call, record).await?))
}

pub(super) async fn patch(call: Call<'_>) -> AdminResult {
    let scope = call.path.arm_scope()?;
    let existing = require_group(call.control, &scope)?;
    let record = ResourceGroupSpec::from_patch(call.body)?.into_record(scope, Some(&existing))?;
    respond_json(&store_record(call, record).await?)
}

async fn store_record(call: Call<'_>, record: ResourceGroupRecord) -> AdminResult<ResourceGroup> {
    let group = resource_group_view(&record);
    call.plan_audit(&group);
    let saved = call
        .control
        .registry
        .resource_groups()
        .put_group(record)
        .await?;
    info!(group = saved.key(), "resource group saved");
    Ok(group)
}

/// Deletes a group with everything in it.
pub(super) async fn delete(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let registry = &control.registry;
    let scope = call.path.arm_scope()?;
    require_group(control, &scope)?;
    for topic in registry.list_topics() {
        let record = topic.record();
        if record.namespace.is_none() && is_in_scope(&record.scope, &scope) {
            let key = record.key();
            let _lock = control.lock_topic(&key).await;
            topics::delete_topic(control, &key, &scope).await?;
        }
    }
    for namespace in registry.list_namespaces() {
        if is_in_scope(&namespace.scope, &scope) {
            let path = NamespacePath {
                scope: namespace.scope.clone(),
                name: namespace.name.clone(),
            };
            let _lock = control.lock_topic(&namespaces::lock_key(&path.name)).await;
            namespaces::delete_namespace(control, &path).await?;
        }
    }
    registry.deployments().delete_group(&scope).await?;
    registry.resource_groups().delete_group(&scope).await?;
    info!(group = scope.resource_group, "resource group deleted");
    Ok(HttpResponse::Ok().finish())
}

/// A topic, a domain or a namespace, with its resource group.
pub(super) struct TrackedResource {
    pub(super) scope: ArmScope,
    pub(super) resource: GenericResource,
}

/// The topics, domains and namespaces; with permissions, those that the caller sees.
pub(super) fn list_tracked(
    control: &Control,
    permissions: Option<&Permissions>,
) -> Vec<TrackedResource> {
    let mut all = Vec::new();
    for topic in control.registry.list_topics() {
        let record = topic.record();
        let sees_topic = |of: &Permissions| of.sees_topic(control, &record, None);
        if record.namespace.is_none() && permissions.is_none_or(sees_topic) {
            let kind = record.kind().path_segment();
            all.push(TrackedResource {
                scope: record.scope.clone(),
                resource: GenericResource {
                    id: record.resource_id(),
                    name: record.name.to_string(),
                    kind: format!("Microsoft.EventGrid/{kind}"),
                    location: record.location.clone(),
                    tags: record.tags.clone(),
                },
            });
        }
    }
    for record in control.registry.list_namespaces() {
        if permissions.is_none_or(|of| of.sees_namespace(&record)) {
            all.push(TrackedResource {
                scope: record.scope.clone(),
                resource: GenericResource {
                    id: record.resource_id(),
                    name: record.name.to_string(),
                    kind: "Microsoft.EventGrid/namespaces".to_owned(),
                    location: record.location.clone(),
                    tags: record.tags.clone(),
                },
            });
        }
    }
    all
}

/// The ids of the topics, domains and namespaces of a group.
pub(super) fn resource_ids(control: &Control, scope: &ArmScope) -> Vec<String> {
    let all = list_tracked(control, None).into_iter();
    all.filter(|one| is_in_scope(&one.scope, scope))
        .map(|one| one.resource.id)
        .collect()
}

/// `GET …/resources`: topics, domains and namespaces.
pub(super) async fn list_resources(call: Call<'_>) -> AdminResult {
    let scope = call.path.azure_scope()?;
    let (page, filter) = PageRequest::from_unfiltered_call(call)?;
    let filter = ResourceFilter::parse(&filter)?;
    let mut all = list_tracked(call.control, Some(call.permissions));
    all.retain(|one| is_in(&one.scope, &scope) && filter.has_resource(one));
    let by_key = all
        .into_iter()
        .map(|one| (one.resource.id.to_lowercase(), one.resource))
        .collect();
    Ok(page.into_response(by_key, |one: &GenericResource| &one.name, value_of))
}

/// `$filter` of a list of resources: comparisons for equality, joined by `and`.
struct ResourceFilter(Vec<(String, String)>);

const FILTER_KEYS: [&str; 6] = [
    "resourcetype",
    "resourcegroup",
    "name",
    "location",
    "tagname",
    "tagvalue",
];

impl ResourceFilter {
    fn parse(text: &str) -> AdminResult<Self> {
        let mut comparisons = Vec::new();
        for part in text
            .split(" and ")
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (key, value) = part.split_once(" eq ").unwrap_or((part, ""));
            let value = value
                .trim()
                .strip_prefix('\'')
                .and_then(|value| value.strip_suffix('\''));
            match value.filter(|_| FILTER_KEYS.contains(&key.trim().to_lowercase().as_str())) {
                Some(value) => {
                    comparisons.push((key.trim().to_lowercase(), value.replace("''", "'")))
                }
                None => {
                    let problem = format!(
                        "has \"{}\"; expected resourceType, resourceGroup, name, location, \
                         tagName and tagValue, each with eq and a string in single quotes, joined \
                         by and",
                        part.escape_debug()
                    );
                    return refuse_value("$filter", problem);
                }
            }
        }
        Ok(Self(comparisons))
    }

    fn has_resource(&self, TrackedResource { scope, resource }: &TrackedResource) -> bool {
        self.0.iter().all(|(key, value)| match key.as_str() {
            "resourcetype" => resource.kind.eq_ignore_ascii_case(value),
            "resourcegroup" => scope.resource_group.eq_ignore_ascii_case(value),
            "location" => resource.location.eq_ignore_ascii_case(value),
            "tagname" => resource.tags.contains_key(value),
            "tagvalue" => resource.tags.values().any(|known| known == value),
            _ => resource.name.eq_ignore_ascii_case(value),
        })
    }
}

/// `GET …/tagNames`: the names of all tags and their values, with how often each is used.
pub(super) async fn tag_names(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let subscription = call.path.name("subscriptionId")?;
    let mut names: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let resources = list_tracked(control, None).into_iter();
    let groups = control.registry.resource_groups().list_groups();
    let groups = groups
        .iter()
        .map(|record| (record.scope.clone(), record.tags.clone()));
    let all = resources
        .map(|one| (one.scope, one.resource.tags))
        .chain(groups);
    for (_, tags) in all.filter(|(scope, _)| scope.subscription.eq_ignore_ascii_case(subscription))
    {
        for (name, value) in tags {
            *names.entry(name).or_default().entry(value).or_default() += 1;
        }
    }
    let count = |value: usize| json!({"type": "Total", "value": value});
    let view = |(name, values): (String, BTreeMap<String, usize>)| {
        let id = format!("/subscriptions/{subscription}/tagNames/{name}");
        let total = values.values().sum();
        let values = values.into_iter().map(
            |(value, uses)| json!({"id": format!("{id}/tagValues/{value}"), "tagValue": value, "count": count(uses)}),
        );
        json!({"id": id, "tagName": name, "count": count(total), "values": values.collect::<Vec<_>>()})
    };
    respond_json(&json!({"value": names.into_iter().map(view).collect::<Vec<_>>()}))
}
