//! The table of ARM's paths: template, resource type and methods.
//!
//! [`super::path`] parses requests with it, 405 responses list its methods, and `/openapi.json` is generated from it. The
//! first template that matches a path is used.

use std::sync::LazyLock;

use actix_web::http::Method;

use super::path::{NamespaceAction, ReplayAction, SubscriptionAction, TopicAction};
use crate::{
    admin::{auth::Access, model::subscription::PathForm},
    control::record::topic::TopicKind,
};

/// The kind of target of a path, without the names in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceType {
    /// All tenants.
    Tenants,
    /// All Azure subscriptions.
    AzureSubscriptions,
    /// An Azure subscription.
    AzureSubscription,
    /// All resource groups.
    ResourceGroups,
    /// A resource group.
    ResourceGroup,
    /// All resource providers.
    Providers,
    /// The resource provider.
    Provider,
    /// All locations.
    Locations,
    /// The operations of the provider.
    Operations,
    /// All topic types.
    TopicTypes,
    /// A topic type.
    TopicType,
    /// The event types of a topic type.
    EventTypesOf,
    /// All topics, or all domains.
    Topics(TopicKind),
    /// A topic or a domain.
    Topic(TopicKind, TopicAction),
    /// All namespaces.
    Namespaces,
    /// A namespace.
    Namespace(NamespaceAction),
    /// All topics of a namespace.
    NamespaceTopics,
    /// All topics of a domain.
    DomainTopics,
    /// A topic of a domain.
    DomainTopic,
    /// All event subscriptions of a parent.
    Subscriptions(SubscriptionParent, PathForm),
    /// An event subscription.
    Subscription(SubscriptionParent, PathForm, SubscriptionAction),
    /// All event subscriptions of an Azure subscription or resource group.
    AllSubscriptions,
    /// All resources of an unsupported type.
    UnsupportedAll(&'static str),
    /// A resource of an unsupported type.
    Unsupported(&'static str),
}

/// The parent of an event subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionParent {
    /// A topic or a domain.
    Whole(TopicKind),
    /// A topic of a domain.
    DomainTopic,
}

/// A route.
#[derive(Debug)]
pub struct Route {
    /// Path with parameters in braces, as in `/subscriptions/{subscriptionId}/…`.
    pub template: String,
    /// The kind of its target.
    pub subject: ResourceType,
}

/// All routes.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(routes);

/// Event Grid's resource types that this server does not support: lists are empty, nothing can be created.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("systemTopics", "systemTopicName"),
    ("partnerTopics", "partnerTopicName"),
    ("partnerNamespaces", "partnerNamespaceName"),
    ("partnerRegistrations", "partnerRegistrationName"),
    ("partnerConfigurations", "partnerConfigurationName"),
    ("partnerDestinations", "partnerDestinationName"),
];

/// An unsupported resource type of the provider, outside of resource groups.
const VERIFIED_PARTNERS: &str = "verifiedPartners";

const PROVIDER: &str = "/providers/Microsoft.EventGrid";

impl Route {
    /// The parameters of a path with these segments, if it matches; `words` are the segments in lower case.
    pub(super) fn names(&self, segments: &[String], words: &[String]) -> Option<Vec<(&str, String)>> {
        let parts: Vec<&str> = self.template.split('/').skip(1).collect();
        if parts.len() != segments.len() {
            return None;
        }
        let mut names = Vec::new();
        for (part, (segment, word)) in parts.into_iter().zip(segments.iter().zip(words)) {
            if let Some(name) = part.strip_prefix('{') {
                names.push((name.trim_end_matches('}'), segment.clone()));
            } else if !part.eq_ignore_ascii_case(word) {
                return None;
            }
        }
        Some(names)
    }
}

impl ResourceType {
    /// Allowed methods.
    pub fn methods(self) -> &'static [Method] {
        const READ: &[Method] = &[Method::GET];
        const ACT: &[Method] = &[Method::POST];
        const READ_OR_ACT: &[Method] = &[Method::GET, Method::POST];
        const ALL: &[Method] = &[Method::GET, Method::PUT, Method::PATCH, Method::DELETE];
        const UNCHANGING: &[Method] = &[Method::GET, Method::PUT, Method::DELETE];
        match self {
            Self::Tenants
            | Self::AzureSubscriptions
            | Self::AzureSubscription
            | Self::ResourceGroups
            | Self::ResourceGroup
            | Self::Providers
            | Self::Provider
            | Self::Locations
            | Self::Operations
            | Self::TopicTypes
            | Self::TopicType
            | Self::EventTypesOf
            | Self::Topics(_)
            | Self::Topic(
                _,
                TopicAction::Status
                | TopicAction::Trace
                | TopicAction::EventTypes
                | TopicAction::PrivateEndpointConnections,
            )
            | Self::Namespaces
            | Self::NamespaceTopics
            | Self::DomainTopics
            | Self::Subscriptions(..)
            | Self::Subscription(
                _,
                _,
                SubscriptionAction::Status
                | SubscriptionAction::Metrics
                | SubscriptionAction::Explain
                | SubscriptionAction::Ledger
                | SubscriptionAction::DeadLetters
                | SubscriptionAction::DeadLetter
                | SubscriptionAction::Replay(ReplayAction::One),
            )
            | Self::AllSubscriptions
            | Self::UnsupportedAll(_)
            | Self::Unsupported(VERIFIED_PARTNERS) => READ,
            Self::Unsupported(_) => ALL,
            Self::Topic(_, TopicAction::Itself)
            | Self::Namespace(NamespaceAction::Itself)
            | Self::Subscription(_, _, SubscriptionAction::Itself) => ALL,
            Self::DomainTopic => UNCHANGING,
            Self::Topic(_, TopicAction::ListKeys | TopicAction::RegenerateKey)
            | Self::Namespace(NamespaceAction::ListKeys | NamespaceAction::RegenerateKey)
            | Self::Subscription(
                _,
                _,
                SubscriptionAction::GetFullUrl
                | SubscriptionAction::GetDeliveryAttributes
                | SubscriptionAction::TestFilter
                | SubscriptionAction::RedriveDeadLetters
                | SubscriptionAction::PurgeDeadLetters
                | SubscriptionAction::Replay(ReplayAction::Pause | ReplayAction::Resume | ReplayAction::Cancel)
                | SubscriptionAction::Command(_),
            ) => ACT,
            Self::Subscription(_, _, SubscriptionAction::Replay(ReplayAction::All)) => READ_OR_ACT,
        }
    }

    /// The role that a method needs.
    pub fn access(self, method: &Method) -> Access {
        match self {
            _ if *method == Method::GET => Access::READ,
            Self::Subscription(_, _, SubscriptionAction::TestFilter) => Access::READ,
            Self::Subscription(
                _,
                _,
                SubscriptionAction::RedriveDeadLetters | SubscriptionAction::Replay(_) | SubscriptionAction::Command(_),
            ) => Access::OPERATE,
            _ => {
                if self.methods().contains(method) {
                    Access::ADMIN
                } else {
                    Access::READ
                }
            }
        }
    }
}

fn routes() -> Vec<Route> {
    let whole = format!("/subscriptions/{{subscriptionId}}{PROVIDER}");
    let group = format!("/subscriptions/{{subscriptionId}}/resourceGroups/{{resourceGroupName}}{PROVIDER}");
    let types = format!("{PROVIDER}/topicTypes");
    let account = "/subscriptions/{subscriptionId}";
    let mut routes = vec![
        Route { template: "/tenants".to_owned(), subject: ResourceType::Tenants },
        Route { template: "/subscriptions".to_owned(), subject: ResourceType::AzureSubscriptions },
        Route { template: account.to_owned(), subject: ResourceType::AzureSubscription },
        Route { template: format!("{account}/resourceGroups"), subject: ResourceType::ResourceGroups },
        Route {
            template: format!("{account}/resourceGroups/{{resourceGroupName}}"),
            subject: ResourceType::ResourceGroup,
        },
        Route { template: format!("{account}/providers"), subject: ResourceType::Providers },
        Route { template: whole.clone(), subject: ResourceType::Provider },
        Route { template: format!("{account}/locations"), subject: ResourceType::Locations },
        Route { template: format!("{PROVIDER}/operations"), subject: ResourceType::Operations },
        Route { template: types.clone(), subject: ResourceType::TopicTypes },
        Route { template: format!("{types}/{{topicTypeName}}"), subject: ResourceType::TopicType },
        Route { template: format!("{types}/{{topicTypeName}}/eventTypes"), subject: ResourceType::EventTypesOf },
    ];
    for place in [&whole, &group] {
        for kind in [TopicKind::Topic, TopicKind::Domain] {
            let template = format!("{place}/{}", kind.path_segment());
            routes.push(Route { template, subject: ResourceType::Topics(kind) });
        }
        routes.push(Route { template: format!("{place}/namespaces"), subject: ResourceType::Namespaces });
        let (location, topic_type) = ("/locations/{location}", "/topicTypes/{topicTypeName}");
        for of in ["", location, topic_type, &format!("{location}{topic_type}")] {
            let template = format!("{place}{of}/eventSubscriptions");
            routes.push(Route { template, subject: ResourceType::AllSubscriptions });
        }
    }
    add_unsupported(&mut routes, &whole, &group);
    for (kind, name) in [(TopicKind::Topic, "topicName"), (TopicKind::Domain, "domainName")] {
        let topic = format!("{group}/{}/{{{name}}}", kind.path_segment());
        for (verb, word) in TopicAction::ALL {
            routes.push(Route { template: format!("{topic}{word}"), subject: ResourceType::Topic(kind, verb) });
        }
        add_subscriptions(&mut routes, &topic, SubscriptionParent::Whole(kind));
    }
    let topics = format!("{group}/domains/{{domainName}}/topics");
    let topic = format!("{topics}/{{domainTopicName}}");
    routes.push(Route { template: topics, subject: ResourceType::DomainTopics });
    routes.push(Route { template: topic.clone(), subject: ResourceType::DomainTopic });
    add_subscriptions(&mut routes, &topic, SubscriptionParent::DomainTopic);
    add_namespaces(&mut routes, &group);
    routes
}

fn add_unsupported(routes: &mut Vec<Route>, whole: &str, group: &str) {
    for (word, name) in UNSUPPORTED {
        for place in [whole, group] {
            routes.push(Route { template: format!("{place}/{word}"), subject: ResourceType::UnsupportedAll(word) });
        }
        routes.push(Route { template: format!("{group}/{word}/{{{name}}}"), subject: ResourceType::Unsupported(word) });
    }
    let all = format!("{PROVIDER}/{VERIFIED_PARTNERS}");
    let one = format!("{all}/{{verifiedPartnerName}}");
    routes.push(Route { template: all, subject: ResourceType::UnsupportedAll(VERIFIED_PARTNERS) });
    routes.push(Route { template: one, subject: ResourceType::Unsupported(VERIFIED_PARTNERS) });
}

fn add_namespaces(routes: &mut Vec<Route>, group: &str) {
    let namespace = format!("{group}/namespaces/{{namespaceName}}");
    for (verb, word) in NamespaceAction::ALL {
        routes.push(Route { template: format!("{namespace}{word}"), subject: ResourceType::Namespace(verb) });
    }
    let (topics, kind) = (format!("{namespace}/topics"), TopicKind::NamespaceTopic);
    let topic = format!("{topics}/{{topicName}}");
    routes.push(Route { template: topics, subject: ResourceType::NamespaceTopics });
    for (verb, word) in TopicAction::OF_NAMESPACE {
        routes.push(Route { template: format!("{topic}{word}"), subject: ResourceType::Topic(kind, verb) });
    }
    add_subscriptions_by(routes, &topic, SubscriptionParent::Whole(kind), PathForm::Nested, "");
}

fn add_subscriptions(routes: &mut Vec<Route>, below: &str, source: SubscriptionParent) {
    for (form, between) in [(PathForm::Nested, ""), (PathForm::Scoped, PROVIDER)] {
        add_subscriptions_by(routes, below, source, form, between);
    }
}

fn add_subscriptions_by(
    routes: &mut Vec<Route>,
    below: &str,
    source: SubscriptionParent,
    form: PathForm,
    between: &str,
) {
    let all = format!("{below}{between}/eventSubscriptions");
    for (verb, word) in SubscriptionAction::ALL {
        let template = format!("{all}/{{eventSubscriptionName}}{word}");
        routes.push(Route { template, subject: ResourceType::Subscription(source, form, verb) });
    }
    routes.push(Route { template: all, subject: ResourceType::Subscriptions(source, form) });
}
