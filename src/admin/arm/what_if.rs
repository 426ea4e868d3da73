//! `PUT …?whatIf=true`: what a PUT would change, told and not done. Azure has the words for whole templates; here they are
//! one resource's.

use actix_web::HttpRequest;
use url::form_urlencoded;

use super::{
    domain_topics, namespace_topics, namespaces,
    path::{NamespaceVerb, SubscriptionVerb, Target, TopicVerb},
    subscriptions, topics,
};
use crate::admin::{
    Control, Error,
    model::{Invalid, difference::Difference},
};

/// Whether a request asks only that.
pub(super) fn is_asked(request: &HttpRequest) -> Result<bool, Error> {
    let mut pairs = form_urlencoded::parse(request.query_string().as_bytes());
    match pairs.find(|(key, _)| key.eq_ignore_ascii_case("whatIf")) {
        None => Ok(false),
        Some((_, value)) => match value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Invalid::new("whatIf", format!("is \"{value}\"; allowed are true and false")).into()),
        },
    }
}

/// What a PUT of `target` would change.
pub(in crate::admin) fn difference(control: &Control, target: Target, body: &[u8]) -> Result<Difference, Error> {
    match target {
        Target::Namespace(path, NamespaceVerb::Itself) => namespaces::difference(control, path, body),
        Target::Topic(topic, TopicVerb::Itself) if topic.namespace.is_some() => {
            namespace_topics::difference(control, &topic, body)
        }
        Target::Topic(topic, TopicVerb::Itself) => topics::difference(control, topic, body),
        Target::DomainTopic(topic) => domain_topics::difference(control, &topic, body),
        Target::Subscription(topic, _, name, SubscriptionVerb::Itself) => {
            subscriptions::difference(control, &topic, &name, body)
        }
        Target::Unsupported(resource_type) => Err(super::unsupported(resource_type).into()),
        Target::Topic(..)
        | Target::Subscription(..)
        | Target::Tenants
        | Target::AzureSubscriptions
        | Target::AzureSubscription(_)
        | Target::ResourceGroups(_)
        | Target::ResourceGroup(_)
        | Target::Providers(_)
        | Target::Provider(_)
        | Target::Locations(_)
        | Target::Operations
        | Target::TopicTypes
        | Target::TopicType(_)
        | Target::EventTypesOf(_)
        | Target::Topics(..)
        | Target::Namespaces(_)
        | Target::Namespace(..)
        | Target::NamespaceTopics(_)
        | Target::DomainTopics(_)
        | Target::Subscriptions(..)
        | Target::AllSubscriptions { .. }
        | Target::UnsupportedAll
        | Target::Sourceless(_) => Err(super::UNANSWERED),
    }
}
