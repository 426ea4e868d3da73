//! Operations on resource groups, and on the resources in them.
//!
//! A group exists as long as a resource is in it, or since it was created by itself until it is
//! deleted.

use crate::model::refuse_value;
use crate::{AdminResult, respond_json, respond_nothing};
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, http::Method};
use serde_json::{Value, json};
use tracing::info;

use super::{
    Call, Input, Permissions, TopicPath,
    account::{list_placements, stored_tags},
    list::PageRequest,
    namespaces,
    path::{AzureScope, NamespacePath},
    topics::{self, is_in, is_in_scope},
};
use crate::{
    AdminError, Control,
    model::{
        account::{ResourceGroupSpec, resource_group_view, used_resource_groups},
        difference::difference_between,
        value_of,
    },
};
use gridhook_api::{account::ResourceGroup, what_if::Difference};
use gridhook_record::{
    resource_group::ResourceGroupRecord,
    topic::{ArmScope, TopicKind},
};

/// The group, if it exists.
pub(super) fn find_group(control: &Control, scope: &ArmScope) -> Option<ResourceGroup> {
    let group = used_resource_groups(&list_placements(control), &scope.subscription)
        .remove(&scope.resource_group.to_lowercase())?;
    Some(with_tags(control, group, &scope.subscription))
}

fn with_tags(control: &Control, group: ResourceGroup, subscription: &str) -> ResourceGroup {
    let tags = stored_tags(control, subscription, &group.name);
    ResourceGroup { tags, ..group }
}

pub(super) fn list(control: &Control, request: &HttpRequest, id: &str) -> AdminResult {
    let page = PageRequest::from_request(request, control)?;
    let all = used_resource_groups(&list_placements(control), id).into_iter();
    let all = all
        .map(|(key, group)| (key, with_tags(control, group, id)))
        .collect();
    Ok(page.into_response(all, |one: &ResourceGroup| &one.name, value_of))
}

/// GET, and HEAD, which clients send to find out whether a group exists: they expect 204.
pub(super) fn get(control: &Control, request: &HttpRequest, scope: &ArmScope) -> AdminResult {
    let group = find_group(control, scope)
        .ok_or_else(|| AdminError::NoResourceGroup(scope.resource_group.clone()))?;
    if request.method() == Method::HEAD {
        return respond_nothing();
    }
    respond_json(&group)
}

/// The existing group, and the record after a PUT.
fn planned_change(input: Input<'_>) -> AdminResult<(Option<ResourceGroup>, ResourceGroupRecord)> {
    let scope = input.path.arm_scope()?;
    let existing = find_group(input.control, &scope);
    let record = ResourceGroupSpec::from_put(input.body)?.into_record(scope, existing.as_ref())?;
    Ok((existing, record))
}

pub(super) fn difference(input: Input<'_>) -> AdminResult<Difference> {
    let (existing, record) = planned_change(input)?;
    let settable = |group: &ResourceGroup| json!({"location": group.location, "tags": group.tags});
    let after = json!({"location": record.location, "tags": record.tags});
    Ok(difference_between(
        existing.as_ref().map(settable).as_ref(),
        &after,
    ))
}

pub(super) async fn put(input: Input<'_>) -> AdminResult {
    let (_, record) = planned_change(input)?;
    // 201 also if it exists, as for other resources: the responses of shards are compared.
    Ok(HttpResponse::Created().json(store_record(input, record).await?))
}

pub(super) async fn patch(call: Call<'_>) -> AdminResult {
    let scope = call.path.arm_scope()?;
    let existing = find_group(call.control, &scope)
        .ok_or_else(|| AdminError::NoResourceGroup(scope.resource_group.clone()))?;
    let record = ResourceGroupSpec::from_patch(call.body)?.into_record(scope, Some(&existing))?;
    respond_json(&store_record(call.input, record).await?)
}

async fn store_record(input: Input<'_>, record: ResourceGroupRecord) -> AdminResult<ResourceGroup> {
    let group = resource_group_view(&record);
    input.plan_audit(&group);
    let saved = input
        .control
        .registry
        .resource_groups()
        .put_group(record)
        .await?;
    info!(group = saved.key(), "resource group saved");
    Ok(group)
}

/// Deletes a group with everything in it.
pub(super) async fn delete(control: &Control, scope: &ArmScope) -> AdminResult {
    if find_group(control, scope).is_none() {
        return Err(AdminError::NoResourceGroup(scope.resource_group.clone()));
    }
    for topic in control.registry.list_topics() {
        let record = topic.record();
        if record.namespace.is_some() || !is_in_scope(&record.scope, scope) {
            continue;
        }
        let path = TopicPath {
            scope: record.scope.clone(),
            kind: record.kind(),
            name: record.name.clone(),
            namespace: None,
            domain_topic: None,
        };
        let _lock = control.lock_topic(&path.topic_key()).await;
        topics::delete(control, &path).await?;
    }
    for namespace in control.registry.list_namespaces() {
        if is_in_scope(&namespace.scope, scope) {
            let path = NamespacePath {
                scope: namespace.scope.clone(),
                name: namespace.name.clone(),
            };
            let _lock = control.lock_topic(&namespaces::lock_key(&path.name)).await;
            namespaces::delete(control, &path).await?;
        }
    }
    control.registry.deployments().delete_group(scope).await?;
    control
        .registry
        .resource_groups()
        .delete_group(scope)
        .await?;
    info!(group = scope.resource_group, "resource group deleted");
    Ok(HttpResponse::Ok().finish())
}

/// The ids of the topics, domains and namespaces of a group.
pub(super) fn resource_ids(control: &Control, scope: &ArmScope) -> Vec<String> {
    let topics = control.registry.list_topics();
    let records = topics.iter().map(|topic| topic.record());
    let topics = records
        .filter(|record| record.namespace.is_none() && is_in_scope(&record.scope, scope))
        .map(|record| record.resource_id());
    let namespaces = control.registry.list_namespaces();
    let namespaces = namespaces
        .iter()
        .filter(|record| is_in_scope(&record.scope, scope))
        .map(|record| record.resource_id());
    topics.chain(namespaces).collect()
}

/// A resource as lists of all types have it.
struct ListedResource {
    id: String,
    name: String,
    kind: &'static str,
    location: String,
    tags: std::collections::BTreeMap<String, String>,
    scope: ArmScope,
}

/// `GET …/resources`: topics, domains and namespaces.
pub(super) fn list_resources(call: Call<'_>, scope: &AzureScope) -> AdminResult {
    let control = call.control;
    let (page, filter) = PageRequest::from_unfiltered_request(call.request, control)?;
    let filter = ResourceFilter::parse(&filter)?;
    let permissions = Permissions::from_request(call.request)?;
    let mut all = Vec::new();
    for topic in control.registry.list_topics() {
        let record = topic.record();
        if record.namespace.is_none() && permissions.sees_topic(control, &record, None) {
            let kind = if record.kind() == TopicKind::Domain {
                "domains"
            } else {
                "topics"
            };
            all.push(ListedResource {
                id: record.resource_id(),
                name: record.name.to_string(),
                kind,
                location: record.location.clone(),
                tags: record.tags.clone(),
                scope: record.scope.clone(),
            });
        }
    }
    let namespaces = control.registry.list_namespaces();
    for record in namespaces
        .iter()
        .filter(|record| permissions.sees_namespace(record))
        .map(Arc::as_ref)
    {
        all.push(ListedResource {
            id: record.resource_id(),
            name: record.name.to_string(),
            kind: "namespaces",
            location: record.location.clone(),
            tags: record.tags.clone(),
            scope: record.scope.clone(),
        });
    }
    all.retain(|one| is_in(&one.scope, scope) && filter.has_resource(one));
    let by_key = all
        .into_iter()
        .map(|one| (one.id.to_lowercase(), one))
        .collect();
    let view = |one: &ListedResource| {
        json!({
            "id": one.id, "name": one.name, "type": format!("Microsoft.EventGrid/{}", one.kind),
            "location": one.location, "tags": one.tags,
        })
    };
    Ok(page.into_response(by_key, |one| &one.name, view))
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
                        "has \"{}\"; allowed are resourceType, resourceGroup, name, location, \
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

    fn has_resource(&self, one: &ListedResource) -> bool {
        self.0.iter().all(|(key, value)| match key.as_str() {
            "resourcetype" => {
                format!("Microsoft.EventGrid/{}", one.kind).eq_ignore_ascii_case(value)
            }
            "resourcegroup" => one.scope.resource_group.eq_ignore_ascii_case(value),
            "location" => one.location.eq_ignore_ascii_case(value),
            "tagname" => one.tags.contains_key(value),
            "tagvalue" => one.tags.values().any(|known| known == value),
            _ => one.name.eq_ignore_ascii_case(value),
        })
    }
}

/// `GET …/tagNames`: the names of all tags and their values, with how often each is used.
pub(super) fn tag_names(control: &Control, subscription: &str) -> Value {
    let mut names: std::collections::BTreeMap<String, std::collections::BTreeMap<String, usize>> =
        Default::default();
    let topics = control.registry.list_topics();
    let topics = topics
        .iter()
        .map(|topic| topic.record())
        .filter(|record| record.namespace.is_none());
    let mut all: Vec<(ArmScope, std::collections::BTreeMap<String, String>)> = topics
        .map(|record| (record.scope.clone(), record.tags.clone()))
        .collect();
    all.extend(
        control
            .registry
            .list_namespaces()
            .iter()
            .map(|record| (record.scope.clone(), record.tags.clone())),
    );
    all.extend(
        control
            .registry
            .resource_groups()
            .list_groups()
            .iter()
            .map(|record| (record.scope.clone(), record.tags.clone())),
    );
    for (_, tags) in all
        .into_iter()
        .filter(|(scope, _)| scope.subscription.eq_ignore_ascii_case(subscription))
    {
        for (name, value) in tags {
            *names.entry(name).or_default().entry(value).or_default() += 1;
        }
    }
    let count = |value: usize| json!({"type": "Total", "value": value});
    let view = |(name, values): (String, std::collections::BTreeMap<String, usize>)| {
        let id = format!("/subscriptions/{subscription}/tagNames/{name}");
        let total = values.values().sum();
        let values = values.into_iter().map(
            |(value, uses)| json!({"id": format!("{id}/tagValues/{value}"), "tagValue": value, "count": count(uses)}),
        );
        json!({"id": id, "tagName": name, "count": count(total), "values": values.collect::<Vec<_>>()})
    };
    json!({"value": names.into_iter().map(view).collect::<Vec<_>>()})
}
