//! ARM's paths, answered: the control plane as Azure's management clients call it.
//!
//! Statuses are those that every one of these clients accepts: PUT and PATCH 201, also for what exists, DELETE 204, also
//! for what does not, POST and GET 200. Any `api-version` is taken, or none: there is one form of each resource.
//!
//! A topic's name is unique in the server, not in its resource group; under another scope than its own it is not found
//! there and cannot be made there a second time.

pub mod path;
mod subscriptions;
mod topics;

use std::sync::Arc;

use actix_web::{
    HttpRequest, HttpResponse,
    http::Method,
    web::{self, Bytes},
};
use serde::Serialize;

use self::path::{SubscriptionVerb, Target, TopicPath, TopicVerb};
use super::{Control, Error, explain, model::Invalid, operate, test_filter};
use crate::{
    journal,
    topic::registry::{self, Topic},
};

/// No resource of ours is near it; ARM's own bound is 4 MiB.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// A page with everything: there is no next one.
#[derive(Serialize)]
struct List<T> {
    value: Vec<T>,
}

/// Answers a request whose token is good.
pub(super) async fn answer(
    request: HttpRequest,
    payload: web::Payload,
    control: web::Data<Control>,
) -> Result<HttpResponse, Error> {
    let Some(target) = path::parse(request.path()) else {
        return Err(Error::NoSuchPath(request.path().to_owned()));
    };
    let body = read_body(payload).await?;
    let method = request.method();
    match target {
        Target::Topics { subscription, resource_group } => {
            only(method, &Method::GET, "GET")?;
            whole_list(&request)?;
            Ok(topics::list(&control, &subscription, resource_group.as_deref()))
        }
        Target::Topic(topic, TopicVerb::Itself) => match method.as_str() {
            "GET" => topics::get(&control, &topic),
            "PUT" => topics::put(&control, topic, &body).await,
            "PATCH" => topics::patch(&control, &topic, &body).await,
            "DELETE" => topics::delete(&control, &topic).await,
            _ => Err(not_allowed(method, "GET, PUT, PATCH, DELETE")),
        },
        Target::Topic(topic, TopicVerb::ListKeys) => {
            only(method, &Method::POST, "POST")?;
            topics::list_keys(&control, &topic)
        }
        Target::Topic(topic, TopicVerb::RegenerateKey) => {
            only(method, &Method::POST, "POST")?;
            topics::regenerate_key(&control, &topic, &body).await
        }
        Target::Topic(topic, TopicVerb::Status) => {
            only(method, &Method::GET, "GET")?;
            operate::topic_status(&control, &topic)
        }
        Target::Subscriptions(topic, form) => {
            only(method, &Method::GET, "GET")?;
            whole_list(&request)?;
            subscriptions::list(&control, &topic, form)
        }
        Target::Subscription(topic, form, name, SubscriptionVerb::Itself) => match method.as_str() {
            "GET" => subscriptions::get(&control, &topic, form, &name),
            "PUT" => subscriptions::put(&control, &topic, form, &name, &body).await,
            "PATCH" => subscriptions::patch(&control, &topic, form, &name, &body).await,
            "DELETE" => subscriptions::delete(&control, &topic, &name).await,
            _ => Err(not_allowed(method, "GET, PUT, PATCH, DELETE")),
        },
        Target::Subscription(topic, _, name, SubscriptionVerb::GetFullUrl) => {
            only(method, &Method::POST, "POST")?;
            subscriptions::full_url(&control, &topic, &name)
        }
        Target::Subscription(topic, _, name, SubscriptionVerb::GetDeliveryAttributes) => {
            only(method, &Method::POST, "POST")?;
            subscriptions::delivery_attributes(&control, &topic, &name)
        }
        Target::Subscription(topic, _, name, SubscriptionVerb::TestFilter) => {
            only(method, &Method::POST, "POST")?;
            test_filter::test_filter(&control, &topic, &name, &body).await
        }
        Target::Subscription(topic, _, name, SubscriptionVerb::Status) => {
            only(method, &Method::GET, "GET")?;
            operate::status(&control, &topic, &name).await
        }
        Target::Subscription(topic, _, name, SubscriptionVerb::Explain) => {
            only(method, &Method::GET, "GET")?;
            explain::explain(&control, &topic, &name, request.query_string()).await
        }
        Target::Subscription(topic, _, name, SubscriptionVerb::Command(command)) => {
            only(method, &Method::POST, "POST")?;
            operate::command(&control, &topic, &name, command).await
        }
    }
}

fn only(method: &Method, wanted: &Method, allowed: &'static str) -> Result<(), Error> {
    if method == wanted { Ok(()) } else { Err(not_allowed(method, allowed)) }
}

fn not_allowed(method: &Method, allowed: &'static str) -> Error {
    Error::Method { method: method.to_string(), allowed }
}

/// Lists are given whole. `$top` is the size of a page and may be asked for; a `$filter` that is not followed would
/// give a wrong list.
fn whole_list(request: &HttpRequest) -> Result<(), Error> {
    let filtered = url::form_urlencoded::parse(request.query_string().as_bytes())
        .any(|(key, value)| key.eq_ignore_ascii_case("$filter") && !value.is_empty());
    if filtered {
        return Err(Invalid::new("$filter", "is not supported yet; leave it out").into());
    }
    Ok(())
}

pub(super) async fn read_body(payload: web::Payload) -> Result<Bytes, Error> {
    match payload.to_bytes_limited(BODY_BYTES_MAX).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) => Err(Error::Body(error.to_string())),
        Err(_) => Err(Error::TooLarge(BODY_BYTES_MAX)),
    }
}

/// The topic that a path names, if it lives where the path says.
pub(super) fn topic(control: &Control, path: &TopicPath) -> Result<Arc<Topic>, Error> {
    let TopicPath { scope, name } = path;
    control.registry.topic(name).filter(|topic| topics::lives_in(&topic.record(), scope)).ok_or_else(|| {
        Error::NotFound(format!(
            "The Resource 'Microsoft.EventGrid/topics/{name}' under resource group '{}' was not found.",
            scope.resource_group
        ))
    })
}

/// That a topic has no subscription of that name.
pub(super) fn no_subscription(path: &TopicPath, name: &str) -> Error {
    Error::NotFound(format!(
        "The Resource 'Microsoft.EventGrid/topics/{}/eventSubscriptions/{name}' under resource group '{}' was not found.",
        path.name, path.scope.resource_group
    ))
}

impl From<registry::Error> for Error {
    fn from(error: registry::Error) -> Self {
        match error {
            registry::Error::Unknown(what) => Self::NotFound(what),
            registry::Error::Refused(why) => Self::Refused(why),
            registry::Error::Validation(refusal) => Self::Validation(refusal),
            registry::Error::Stale(why) => Self::Conflict(why),
            registry::Error::Senseless(why) => Self::Conflict(format!("Nothing was done: {why}.")),
            registry::Error::Journal(error) => match error {
                journal::Error::Full => Self::Unavailable(
                    "The disk of the data folder is full; nothing was changed. Try again when there is room."
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
