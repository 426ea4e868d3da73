//! ARM's API, for Azure's management clients.
//!
//! Statuses are those that all of these clients accept:
//!
//! | method | status |
//! | --- | --- |
//! | GET | 200 |
//! | HEAD of a resource group or a deployment | 204 |
//! | PUT | 201, even if the resource exists; 200 for a deployment that exists |
//! | PATCH | 201; 200 in a namespace and for a resource group |
//! | DELETE | 204, even if the resource does not exist |
//! | DELETE of a resource group | 200; 404 if it does not exist |
//! | DELETE of an event subscription | 204; 404 if its topic does not exist |
//! | POST | 200; 201 for a replay that begins, 202 for a redrive |
//!
//! Every `api-version` is accepted: each resource has one form.
//!
//! The name of a topic, domain or namespace is unique in the server, not in its resource group.
//! Under another scope the resource is not found, and cannot be created a second time.

mod account;
pub(crate) mod deployments;
mod domain_topics;
pub(crate) mod event_types;
mod list;
mod namespaces;
mod operation;
pub mod path;
mod polling;
mod portal;
mod precondition;
mod provider;
mod resource_groups;
pub mod routes;
mod subscriptions;
mod topics;
mod unsupported;

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse, HttpResponseBuilder,
    body::MessageBody,
    dev::ServiceRequest,
    http::{
        Method, StatusCode,
        header::{ETAG, WARNING},
    },
    web::{self, Bytes},
};
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use self::{
    deployments::DEPLOYMENT_BYTES_MAX,
    operation::ArmOperation,
    path::ArmPath,
    precondition::{Preconditions, entity_tag, with_tag},
};
pub(super) use self::{
    operation::{Call, ChangeLock, FoundSubscription},
    path::TopicPath,
};

use super::{
    AdminError, Control, audit,
    auth::Access,
    model::{parse_body, read},
    permissions::{Permissions, Target},
    query,
    shard::ConcernedShards,
};
use crate::AdminResult;
use gridhook_declared::missing_type_reason;
use gridhook_engine::control::registry::TopicHandle;
use gridhook_publish::strip_byte_order_mark;

/// Maximum size of a body; ARM's limit is 4 MiB.
pub(super) const BODY_BYTES_MAX: usize = 256 * 1024;

/// Time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The role that a request needs, and for what. An unknown path is 404, and an unknown method 405,
/// only for callers with a token.
pub(super) fn required_access(request: &ServiceRequest) -> (Access, Target) {
    let Some(path) = path::find_route(request.path()) else {
        return (Access::READ, Target::Caller);
    };
    let operation = path.route.operation(request.method());
    let access = operation.map_or(Access::READ, |operation| operation.access);
    if operation.is_some_and(|operation| operation.is_list) {
        return (access, Target::Listed);
    }
    let control = request.app_data::<web::Data<Control>>();
    (
        access,
        control.map_or(Target::Server, |control| target_of_path(control, &path)),
    )
}

/// The target of a path: a resource with its labels, or the whole server.
fn target_of_path(control: &Control, path: &ArmPath) -> Target {
    let Some(mut resource) = path.scoped_resource() else {
        return Target::Server;
    };
    if let Some(namespace) = path
        .optional_name("namespaceName")
        .and_then(|name| control.registry.find_namespace(name))
    {
        resource.add_tags(&namespace.tags);
    }
    let topic = path
        .topic()
        .ok()
        .and_then(|topic| control.registry.find_topic(&topic.topic_key()));
    if let Some(topic) = topic {
        resource.add_tags(&topic.record().tags);
        let subscription = path
            .subscription()
            .ok()
            .and_then(|name| control.registry.find_provisioned(&topic, &name));
        if let Some(subscription) = subscription {
            resource.labels.extend(subscription.record.labels.clone());
        }
    }
    Target::Resource(resource)
}

pub(super) async fn handle_request(
    request: HttpRequest,
    payload: web::Payload,
    control: web::Data<Control>,
) -> AdminResult {
    let path = path::find_route(request.path()).ok_or_else(|| unknown_path(request.path()))?;
    let Some(operation) = path.route.operation(request.method()) else {
        return Err(AdminError::Method {
            method: request.method().to_string(),
            allowed: path.route.methods(),
        });
    };
    let permissions = Permissions::from_request(&request)?;
    let body = read_body_up_to(payload, body_bytes_max(&path)).await?;
    let lock = ChangeLock::default();
    let call = Call {
        request: Some(&request),
        ..Call::new(&control, &permissions, &path, &body, &lock)
    };
    match operation.method {
        Method::PUT | Method::PATCH | Method::DELETE => change_resource(operation, call).await,
        Method::GET => {
            let response = add_tag(call, operation.handle_call(call).await?);
            Ok(Preconditions::from_request(&request).shorten_unchanged(response))
        }
        _ => {
            plan_audit(operation, call);
            if path.route.changes_keys() {
                change_and_follow(operation, call).await
            } else {
                operation.handle_call(call).await
            }
        }
    }
}

/// Handles a PUT, PATCH or DELETE.
async fn change_resource(operation: &ArmOperation, call: Call<'_>) -> AdminResult {
    let request = call.request()?;
    let Call { control, path, .. } = call;
    // The preconditions and the change are one step.
    if let Some(key) = lock_key(path) {
        call.lock.hold_lock(control.lock_topic(&key).await);
    }
    if operation.method == Method::PATCH && call.permissions.is_by_portal() {
        portal::check_change(call)?;
    }
    let conditions = Preconditions::from_request(request);
    let get = path.route.operation(&Method::GET);
    let before = current_body(get, call).await;
    let call = Call {
        is_conditional: !conditions.is_empty(),
        before: before.as_deref(),
        ..call
    };
    conditions.check_change(&operation.method, call.before)?;
    if operation.method != Method::DELETE && is_what_if(request)? {
        return respond_what_if(operation, call).await;
    }
    plan_audit(operation, call);
    let response = match change_and_follow(operation, call).await {
        Err(error @ AdminError::Stale(_)) => {
            conditions.check_change(&operation.method, current_body(get, call).await.as_deref())?;
            return Err(error);
        }
        result => result?,
    };
    if get.is_some() && control.audit.is_some() {
        let after = current_body(get, call).await;
        audit::set_changes(|| audit::recorded_changes(call.before, after.as_deref()));
    }
    Ok(polling::skip_polling_delay(add_tag(call, response)))
}

/// Makes a change, and waits until the shards that it concerns have followed it.
async fn change_and_follow(operation: &ArmOperation, call: Call<'_>) -> AdminResult {
    let Call { control, path, .. } = call;
    let before = concerned_shards(control, path);
    let response = operation.handle_call(call).await?;
    let concerned = before.joined(concerned_shards(control, path));
    control.wait_until_followed(concerned).await?;
    Ok(response)
}

/// Adds the tag to a response whose body is that of the resource's GET.
fn add_tag(call: Call<'_>, response: HttpResponse) -> HttpResponse {
    if call.path.route.is_resource() {
        with_tag(response)
    } else {
        response
    }
}

/// The response with the changes that a PUT or PATCH would make.
async fn respond_what_if(operation: &ArmOperation, call: Call<'_>) -> AdminResult {
    let mut response = HttpResponse::Ok();
    if let Some(before) = call.before {
        response.insert_header((ETAG, entity_tag(before)));
    }
    let difference = operation.compute_difference(call).await?;
    add_warnings(&mut response, difference.warnings.clone());
    Ok(response.json(difference))
}

/// Sets what the audit trail has of an operation, as far as that is known before it: handlers of
/// PUT and PATCH add the change.
fn plan_audit(operation: &ArmOperation, call: Call<'_>) {
    let is_group = call.path.is_resource_group();
    if is_group && [Method::PATCH, Method::DELETE].contains(&operation.method) {
        audit::expect_status(StatusCode::OK);
    }
    match operation.method {
        Method::DELETE => audit::set_changes(|| audit::recorded_changes(call.before, None)),
        Method::PATCH if call.path.namespace().is_ok() => audit::expect_status(StatusCode::OK),
        Method::POST if audit::has_recorded_body(call.path) => {
            audit::set_changes(|| audit::recorded_changes(None, Some(call.body)));
        }
        _ => {}
    }
}

/// The key of the lock of changes of the resource that a path names.
fn lock_key(path: &ArmPath) -> Option<String> {
    let namespace = || Some(namespaces::lock_key(&path.namespace().ok()?.name));
    path.topic()
        .ok()
        .map(|topic| topic.topic_key())
        .or_else(namespace)
}

/// The body of the resource's GET; [`None`] if it does not exist.
pub(crate) async fn current_body(get: Option<&ArmOperation>, call: Call<'_>) -> Option<Bytes> {
    let response = get?
        .handle_call(call)
        .await
        .ok()
        .filter(|response| response.status() == StatusCode::OK)?;
    response.into_body().try_into_bytes().ok()
}

fn unknown_path(path: &str) -> AdminError {
    if let Some(source) = path::other_source(path) {
        return AdminError::NotFound(format!(
            "'{source}' is not a source of events: event subscriptions belong to a topic, a domain, \
             a topic of a domain or a topic of a namespace."
        ));
    }
    match missing_type_reason(path) {
        Some(reason) => AdminError::NotFound(format!("'{path}' is not supported: {reason}.")),
        None => AdminError::NoSuchPath(path.to_owned()),
    }
}

/// Adds warnings to a response, as Kubernetes does. They are no part of the resource and its ETag.
fn add_warnings(response: &mut HttpResponseBuilder, warnings: impl IntoIterator<Item = String>) {
    for warning in warnings {
        response.append_header((WARNING, format!("299 gridhook \"{warning}\"")));
    }
}

/// Whether a PUT or PATCH has `whatIf=true`: the response then has the changes that it would make,
/// without making them. Azure has `whatIf` for templates; here it is for one resource.
pub(super) fn is_what_if(request: &HttpRequest) -> AdminResult<bool> {
    let mut pairs = form_urlencoded::parse(request.query_string().as_bytes());
    let flag = pairs.find(|(key, _)| key.eq_ignore_ascii_case("whatIf"));
    flag.map_or(Ok(false), |(_, value)| {
        Ok(query::parse_flag("whatIf", &value)?)
    })
}

/// Maximum size of the body of a request for a path.
fn body_bytes_max(path: &ArmPath) -> usize {
    if path.optional_name("deploymentName").is_some() {
        DEPLOYMENT_BYTES_MAX
    } else {
        BODY_BYTES_MAX
    }
}

/// Maximum size of the body of a request to the control plane.
pub(super) fn body_limit(request: &HttpRequest) -> usize {
    path::find_route(request.path()).map_or(BODY_BYTES_MAX, |path| body_bytes_max(&path))
}

/// Reads the JSON body of a request; an empty one is an object without keys.
pub(super) async fn read_json<T: DeserializeOwned>(payload: web::Payload) -> AdminResult<T> {
    let body = read_body_up_to(payload, BODY_BYTES_MAX).await?;
    Ok(read(parse_body(&body)?)?)
}

async fn read_body_up_to(payload: web::Payload, bytes_max: usize) -> AdminResult<Bytes> {
    match tokio::time::timeout(BODY_TIMEOUT, payload.to_bytes_limited(bytes_max)).await {
        Ok(Ok(Ok(body))) => Ok(strip_byte_order_mark(body)),
        Ok(Ok(Err(error))) => Err(AdminError::Body(error.to_string())),
        Ok(Err(_)) => Err(AdminError::TooLarge(bytes_max)),
        Err(_) => Err(AdminError::Slow(BODY_TIMEOUT)),
    }
}

/// The topic or the domain of a path, if the scope matches.
pub(super) fn find_topic(control: &Control, path: &TopicPath) -> AdminResult<Arc<TopicHandle>> {
    control
        .registry
        .find_topic(&path.topic_key())
        .filter(|topic| topics::is_in_scope(&topic.record().scope, &path.scope))
        .ok_or_else(|| no_topic(path))
}

/// Refuses a topic, domain or domain topic of which the caller may see nothing, as if it did not
/// exist.
pub(super) fn check_seen(
    control: &Control,
    permissions: &Permissions,
    topic: &TopicHandle,
    path: &TopicPath,
) -> AdminResult<()> {
    if !permissions.sees_any(control, topic, None) {
        return Err(no_topic(path));
    }
    let domain_topic = path.domain_topic.as_ref();
    if domain_topic.is_some_and(|name| !permissions.sees_any(control, topic, Some(name.as_str()))) {
        return Err(not_found(path));
    }
    Ok(())
}

/// The error for a missing topic or domain.
fn no_topic(path: &TopicPath) -> AdminError {
    not_found(&TopicPath {
        domain_topic: None,
        ..path.clone()
    })
}

/// The error for a missing resource.
fn not_found(path: &TopicPath) -> AdminError {
    no_resource(path, &path.resource_name())
}

/// The error for a missing event subscription.
fn no_subscription(path: &TopicPath, name: &str) -> AdminError {
    let name = name.rsplit('/').next().unwrap_or(name);
    no_resource(
        path,
        &format!("{}/eventSubscriptions/{name}", path.resource_name()),
    )
}

fn no_resource(path: &TopicPath, resource: &str) -> AdminError {
    AdminError::NotFound(format!(
        "The Resource '{resource}' under resource group '{}' was not found.",
        path.scope.resource_group
    ))
}

/// The shards that a change of a resource concerns, as it is now.
fn concerned_shards(control: &Control, path: &ArmPath) -> ConcernedShards {
    match (path.topic(), path.namespace()) {
        (Ok(topic), _) => control.shards_of_topic(&topic),
        // Of a resource group, everything in it.
        (Err(_), Ok(_) | Err(_)) => control.all_shards(),
    }
}
