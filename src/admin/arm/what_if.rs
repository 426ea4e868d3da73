//! `PUT …?whatIf=true`: returns the changes that a PUT would make, without making them. Azure has `whatIf` for templates;
//! here it is for one resource.

use actix_web::HttpRequest;
use url::form_urlencoded;

use super::{
    domain_topics, namespace_topics, namespaces,
    path::{NamespaceAction, ResourcePath, SubscriptionAction, TopicAction},
    subscriptions, topics,
};
use crate::{
    admin::{AdminError, Control, model::InvalidRequest},
    api::what_if::Difference,
};

/// Whether a request has `whatIf=true`.
pub(super) fn is_what_if(request: &HttpRequest) -> Result<bool, AdminError> {
    let mut pairs = form_urlencoded::parse(request.query_string().as_bytes());
    match pairs.find(|(key, _)| key.eq_ignore_ascii_case("whatIf")) {
        None => Ok(false),
        Some((_, value)) => match value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(InvalidRequest::new("whatIf", format!("is \"{value}\"; allowed are true and false")).into()),
        },
    }
}

/// The changes that a PUT of `target` would make.
pub(in crate::admin) fn difference(
    control: &Control,
    target: ResourcePath,
    body: &[u8],
) -> Result<Difference, AdminError> {
    match target {
        ResourcePath::Namespace(path, NamespaceAction::Itself) => namespaces::difference(control, path, body),
        ResourcePath::Topic(topic, TopicAction::Itself) if topic.namespace.is_some() => {
            namespace_topics::difference(control, &topic, body)
        }
        ResourcePath::Topic(topic, TopicAction::Itself) => topics::difference(control, topic, body),
        ResourcePath::DomainTopic(topic) => domain_topics::difference(control, &topic, body),
        ResourcePath::Subscription(topic, _, name, SubscriptionAction::Itself) => {
            subscriptions::difference(control, &topic, &name, body)
        }
        ResourcePath::Unsupported(resource_type) => Err(super::unsupported(resource_type).into()),
        ResourcePath::Topic(..)
        | ResourcePath::Subscription(..)
        | ResourcePath::Tenants
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
        | ResourcePath::Namespace(..)
        | ResourcePath::NamespaceTopics(_)
        | ResourcePath::DomainTopics(_)
        | ResourcePath::Subscriptions(..)
        | ResourcePath::AllSubscriptions { .. }
        | ResourcePath::UnsupportedAll
        | ResourcePath::Sourceless(_) => Err(super::UNANSWERED),
    }
}
