//! ARM's API, for Azure's management clients.
//!
//! Statuses are those that all of these clients accept: PUT and PATCH 201, even if the resource exists, DELETE 204, even if
//! it does not, POST and GET 200. Every `api-version` is accepted: each resource has one form. For a PATCH of namespace
//! resources some clients do not accept 201, so there it is 200.
//!
//! The name of a topic, domain or namespace is unique in the server, not in its resource group. Under another scope the
//! resource is not found, and cannot be created a second time.

mod account;
pub(super) mod domain_topics;
mod list;
pub(super) mod namespace_topics;
pub(super) mod namespaces;
pub mod path;
mod provider;
pub mod routes;
pub(super) mod subscriptions;
pub(super) mod topics;
mod what_if;

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    dev::ServiceRequest,
    http::Method,
    web::{self, Bytes},
};
use serde::Serialize;

pub(super) use self::what_if::difference;
use self::{
    path::{NamespaceAction, NamespacePath, ResourcePath, SubscriptionAction, TopicAction, TopicPath},
    routes::ResourceType,
};
use super::{
    AdminError, Control,
    auth::{Access, AdminCaller},
    dead_letters, explain, ledger, metrics,
    model::{InvalidRequest, subscription::PathForm},
    operate, replay, test_filter, trace,
};
use crate::{
    control::registry::{self, TopicHandle},
    journal,
};

/// Maximum size of a body; ARM's limit is 4 MiB.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Time limit for receiving a body.
const BODY_WAIT: Duration = Duration::from_secs(10);

/// A bug: every method in the table of routes has a handler below.
const UNANSWERED: AdminError = AdminError::Broken("this method is in the table of routes and has no handler");

/// A list without pages.
#[derive(Serialize)]
pub(super) struct UnpagedList<T> {
    pub(super) value: Vec<T>,
}

/// The role that a request needs. An unknown path is 404 only for callers with a token.
pub(super) fn access(request: &ServiceRequest) -> Access {
    let subject = path::find(request.path()).and_then(|(subject, _)| subject);
    subject.map_or(Access::READ, |subject| subject.access(request.method()))
}

/// Handles an authorized request.
pub(super) async fn answer(
    request: HttpRequest,
    payload: web::Payload,
    control: web::Data<Control>,
) -> Result<HttpResponse, AdminError> {
    let Some((subject, target)) = path::find(request.path()) else {
        return Err(AdminError::NoSuchPath(request.path().to_owned()));
    };
    let method = request.method();
    if let Some(allowed) = subject.map(ResourceType::methods).filter(|allowed| !allowed.contains(method)) {
        return Err(AdminError::Method { method: method.to_string(), allowed: allowed.to_vec() });
    }
    let body = read_body(payload).await?;
    if *method == Method::PUT && what_if::is_what_if(&request)? {
        return Ok(HttpResponse::Ok().json(difference(&control, target, &body)?));
    }
    match target {
        ResourcePath::Topic(topic, verb) => answer_topic(&control, &request, topic, verb, &body).await,
        ResourcePath::Namespace(path, verb) => answer_namespace(&control, &request, path, verb, &body).await,
        ResourcePath::DomainTopic(topic) => match method.as_str() {
            "GET" => domain_topics::get(&control, &topic),
            "PUT" => domain_topics::put(&control, &AdminCaller::of(&request)?, &topic, &body).await,
            "DELETE" => domain_topics::delete(&control, &topic).await,
            _ => Err(UNANSWERED),
        },
        ResourcePath::Subscription(topic, form, name, verb) => {
            answer_subscription(&control, &request, &topic, form, &name, verb, &body).await
        }
        ResourcePath::Unsupported(resource_type) => answer_unsupported(&request, resource_type),
        ResourcePath::Sourceless(source) => Err(AdminError::NotFound(format!(
            "'{source}' is not a source of events: event subscriptions belong to a topic, a domain or a topic of a \
             domain."
        ))),
        ResourcePath::Tenants
        | ResourcePath::AzureSubscriptions
        | ResourcePath::AzureSubscription(_)
        | ResourcePath::ResourceGroups(_)
        | ResourcePath::ResourceGroup(_)
        | ResourcePath::Providers(_)
        | ResourcePath::Provider(_)
        | ResourcePath::Locations(_)
        | ResourcePath::Operations
        | ResourcePath::TopicTypes
        | ResourcePath::TopicType(_)
        | ResourcePath::EventTypesOf(_)
        | ResourcePath::Topics(..)
        | ResourcePath::Namespaces(_)
        | ResourcePath::NamespaceTopics(_)
        | ResourcePath::DomainTopics(_)
        | ResourcePath::Subscriptions(..)
        | ResourcePath::UnsupportedAll
        | ResourcePath::AllSubscriptions { .. } => answer_list(&control, &request, target),
    }
}

/// Handles a resource of an unsupported type: none exists, and none can be created.
fn answer_unsupported(request: &HttpRequest, resource_type: &str) -> Result<HttpResponse, AdminError> {
    match request.method().as_str() {
        "DELETE" => Ok(HttpResponse::NoContent().finish()),
        "PUT" | "PATCH" => Err(unsupported(resource_type).into()),
        _ => {
            let name = path::last_name(request.path()).unwrap_or_default();
            Err(AdminError::NotFound(format!(
                "The Resource 'Microsoft.EventGrid/{resource_type}/{name}' was not found."
            )))
        }
    }
}

/// Handles read-only paths.
fn answer_list(control: &Control, request: &HttpRequest, target: ResourcePath) -> Result<HttpResponse, AdminError> {
    match target {
        ResourcePath::Tenants => Ok(account::tenants()),
        ResourcePath::AzureSubscriptions => account::subscriptions(control, request),
        ResourcePath::AzureSubscription(id) => account::subscription(control, &id),
        ResourcePath::ResourceGroups(id) => account::resource_groups(control, request, &id),
        ResourcePath::ResourceGroup(scope) => account::resource_group(control, &scope),
        ResourcePath::Providers(id) => Ok(account::providers(control, &id)),
        ResourcePath::Provider(id) => Ok(account::provider(control, &id)),
        ResourcePath::Locations(id) => Ok(account::locations(control, &id)),
        ResourcePath::Operations => Ok(provider::operations()),
        ResourcePath::TopicTypes => Ok(provider::topic_types()),
        ResourcePath::TopicType(name) => provider::topic_type(&name),
        ResourcePath::EventTypesOf(name) => provider::event_types(&name),
        ResourcePath::UnsupportedAll => Ok(HttpResponse::Ok().json(UnpagedList::<()> { value: Vec::new() })),
        ResourcePath::Topics(kind, place) => topics::list(control, request, kind, &place),
        ResourcePath::Namespaces(place) => namespaces::list(control, request, &place),
        ResourcePath::NamespaceTopics(path) => namespace_topics::list(control, request, &path),
        ResourcePath::DomainTopics(domain) => domain_topics::list(control, request, &domain),
        ResourcePath::Subscriptions(topic, form) => subscriptions::list(control, request, &topic, form),
        ResourcePath::AllSubscriptions { place, location, topic_type } => {
            subscriptions::list_all(control, request, &place, location.as_deref(), topic_type.as_deref())
        }
        ResourcePath::Topic(..)
        | ResourcePath::Namespace(..)
        | ResourcePath::DomainTopic(_)
        | ResourcePath::Subscription(..)
        | ResourcePath::Unsupported(_)
        | ResourcePath::Sourceless(_) => Err(AdminError::NoSuchPath(request.path().to_owned())),
    }
}

async fn answer_namespace(
    control: &Control,
    request: &HttpRequest,
    path: NamespacePath,
    verb: NamespaceAction,
    body: &[u8],
) -> Result<HttpResponse, AdminError> {
    match verb {
        NamespaceAction::Itself => match request.method().as_str() {
            "GET" => namespaces::get(control, &path),
            "PUT" => namespaces::put(control, &AdminCaller::of(request)?, path, body).await,
            "PATCH" => namespaces::patch(control, &AdminCaller::of(request)?, &path, body).await,
            "DELETE" => namespaces::delete(control, &path).await,
            _ => Err(UNANSWERED),
        },
        NamespaceAction::ListKeys => namespaces::list_keys(control, &path),
        NamespaceAction::RegenerateKey => {
            namespaces::regenerate_key(control, &AdminCaller::of(request)?, &path, body).await
        }
    }
}

async fn answer_topic(
    control: &Control,
    request: &HttpRequest,
    topic: TopicPath,
    verb: TopicAction,
    body: &[u8],
) -> Result<HttpResponse, AdminError> {
    match verb {
        TopicAction::Itself if topic.namespace.is_some() => match request.method().as_str() {
            "GET" => namespace_topics::get(control, &topic),
            "PUT" => namespace_topics::put(control, &AdminCaller::of(request)?, topic, body).await,
            "PATCH" => namespace_topics::patch(control, &AdminCaller::of(request)?, &topic, body).await,
            "DELETE" => topics::delete(control, &topic).await,
            _ => Err(UNANSWERED),
        },
        TopicAction::Itself => match request.method().as_str() {
            "GET" => topics::get(control, &topic),
            "PUT" => topics::put(control, &AdminCaller::of(request)?, topic, body).await,
            "PATCH" => topics::patch(control, &AdminCaller::of(request)?, &topic, body).await,
            "DELETE" => topics::delete(control, &topic).await,
            _ => Err(UNANSWERED),
        },
        TopicAction::ListKeys => topics::list_keys(control, &topic),
        TopicAction::RegenerateKey => topics::regenerate_key(control, &AdminCaller::of(request)?, &topic, body).await,
        TopicAction::Status => operate::topic_status(control, &topic),
        TopicAction::Trace => trace::trace(control, &topic, request.query_string()).await,
        TopicAction::EventTypes => topics::event_types(control, &topic),
        TopicAction::PrivateEndpointConnections => topics::private_endpoint_connections(control, &topic),
    }
}

async fn answer_subscription(
    control: &Control,
    request: &HttpRequest,
    topic: &TopicPath,
    form: PathForm,
    name: &str,
    verb: SubscriptionAction,
    body: &[u8],
) -> Result<HttpResponse, AdminError> {
    let method = request.method();
    match verb {
        SubscriptionAction::Itself => match method.as_str() {
            "GET" => subscriptions::get(control, topic, form, name),
            "PUT" => subscriptions::put(control, &AdminCaller::of(request)?, topic, form, name, body).await,
            "PATCH" => subscriptions::patch(control, &AdminCaller::of(request)?, topic, form, name, body).await,
            "DELETE" => subscriptions::delete(control, topic, name).await,
            _ => Err(UNANSWERED),
        },
        SubscriptionAction::GetFullUrl => subscriptions::full_url(control, topic, name),
        SubscriptionAction::GetDeliveryAttributes => subscriptions::delivery_attributes(control, topic, name),
        SubscriptionAction::TestFilter => test_filter::test_filter(control, topic, name, body).await,
        SubscriptionAction::Status => operate::status(control, topic, name).await,
        SubscriptionAction::Metrics => metrics::subscription(control, request, topic, name).await,
        SubscriptionAction::Ledger => ledger::ledger(control, topic, name, request.query_string()).await,
        SubscriptionAction::Explain => explain::explain(control, topic, name, request.query_string()).await,
        SubscriptionAction::DeadLetters => dead_letters::list(control, request, topic, name).await,
        SubscriptionAction::RedriveDeadLetters => dead_letters::redrive(control, topic, name, body).await,
        SubscriptionAction::PurgeDeadLetters => dead_letters::purge(control, topic, name, body).await,
        SubscriptionAction::DeadLetter => {
            dead_letters::get(control, topic, name, &path::last_name(request.path()).unwrap_or_default()).await
        }
        SubscriptionAction::Replay(verb) => replay::answer(control, request, topic, name, verb, body).await,
        SubscriptionAction::Command(command) => operate::command(control, topic, name, command).await,
    }
}

/// The error for an unsupported resource type.
fn unsupported(resource_type: &str) -> InvalidRequest {
    let allowed = "allowed are topics, domains, namespaces and their event subscriptions";
    InvalidRequest::new(
        "type",
        format!("is \"Microsoft.EventGrid/{resource_type}\", which is not supported; {allowed}"),
    )
}

pub(super) async fn read_body(payload: web::Payload) -> Result<Bytes, AdminError> {
    match tokio::time::timeout(BODY_WAIT, payload.to_bytes_limited(BODY_BYTES_MAX)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(error))) => Err(AdminError::Body(error.to_string())),
        Ok(Err(_)) => Err(AdminError::TooLarge(BODY_BYTES_MAX)),
        Err(_) => Err(AdminError::Slow(BODY_WAIT)),
    }
}

/// The topic or the domain of a path, if the scope matches.
pub(super) fn topic(control: &Control, path: &TopicPath) -> Result<Arc<TopicHandle>, AdminError> {
    let found =
        control.registry.topic(&path.key()).filter(|topic| topics::is_in_scope(&topic.record().scope, &path.scope));
    found.ok_or_else(|| not_found(&TopicPath { domain_topic: None, ..path.clone() }))
}

/// The error for a missing resource.
fn not_found(path: &TopicPath) -> AdminError {
    no_resource(path, &path.resource())
}

/// The error for a missing event subscription.
pub(super) fn no_subscription(path: &TopicPath, name: &str) -> AdminError {
    let name = name.rsplit('/').next().unwrap_or(name);
    no_resource(path, &format!("{}/eventSubscriptions/{name}", path.resource()))
}

fn no_resource(path: &TopicPath, resource: &str) -> AdminError {
    AdminError::NotFound(format!(
        "The Resource '{resource}' under resource group '{}' was not found.",
        path.scope.resource_group
    ))
}

impl From<registry::Error> for AdminError {
    fn from(error: registry::Error) -> Self {
        match error {
            registry::Error::Unknown(what) => Self::NotFound(what),
            registry::Error::Refused(why) => Self::Refused(why),
            registry::Error::Validation(refusal) => Self::Validation(refusal),
            registry::Error::Stale(why) => Self::Conflict(why),
            registry::Error::CommandRefused(why) => Self::Conflict(format!("Nothing was done: {why}.")),
            registry::Error::Full(why) => Self::Conflict(why),
            registry::Error::Journal(error) => match error {
                journal::Error::Full => Self::Unavailable(
                    "The disk of the data folder is full; nothing was changed. Try again when there is space."
                        .to_owned(),
                ),
                journal::Error::Closed => {
                    Self::Unavailable("The journal is closed; nothing was changed. Try again later.".to_owned())
                }
                error @ (journal::Error::Fenced
                | journal::Error::Unknown
                | journal::Error::Backlog(_)
                | journal::Error::Damaged(_)) => Self::Journal(error.to_string()),
            },
            error @ registry::Error::Unreadable { .. } => Self::Journal(error.to_string()),
        }
    }
}
