//! ARM's paths, as a table: which there are, what each speaks of, and how it can be asked.
//!
//! The only list of them: [`super::path`] reads requests by it, the answer to a method that is not allowed names what it
//! allows, and `/openapi.json` is made of it. The first path that fits is the one.

use std::sync::LazyLock;

use actix_web::http::Method;

use super::path::{NamespaceAction, ReplayAction, SubscriptionAction, TopicAction};
use crate::{admin::model::subscription::PathForm, control::record::topic::TopicKind};

/// What a path speaks of, without the names in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceType {
    /// The directories of users.
    Tenants,
    /// The subscriptions of Azure's that resources name.
    AzureSubscriptions,
    /// One of them.
    AzureSubscription,
    /// The resource groups that resources name.
    ResourceGroups,
    /// One of them.
    ResourceGroup,
    /// The providers of resources: this one.
    Providers,
    /// The same, by its name.
    Provider,
    /// The locations that resources name.
    Locations,
    /// What the provider can do.
    Operations,
    /// All types of topics.
    TopicTypes,
    /// One of them.
    TopicType,
    /// The event types of one of them.
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
    /// All event subscriptions of a source.
    Subscriptions(SubscriptionParent, PathForm),
    /// One of them.
    Subscription(SubscriptionParent, PathForm, SubscriptionAction),
    /// All event subscriptions of a place.
    AllSubscriptions,
    /// All resources of a type that this server does not have.
    UnsupportedAll(&'static str),
    /// A resource of such a type.
    Unsupported(&'static str),
}

/// What an event subscription hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionParent {
    /// A topic, or a whole domain.
    Whole(TopicKind),
    /// A topic of a domain.
    DomainTopic,
}

/// A path.
#[derive(Debug)]
pub struct Route {
    /// With names in braces, as in `/subscriptions/{subscriptionId}/…`.
    pub template: String,
    /// What it speaks of.
    pub subject: ResourceType,
}

/// All paths.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(routes);

/// Event Grid's resource types that this server does not have: lists are empty, nothing can be created.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("systemTopics", "systemTopicName"),
    ("partnerTopics", "partnerTopicName"),
    ("partnerNamespaces", "partnerNamespaceName"),
    ("partnerRegistrations", "partnerRegistrationName"),
    ("partnerConfigurations", "partnerConfigurationName"),
    ("partnerDestinations", "partnerDestinationName"),
];

/// The same, of the provider and not of a resource group.
const VERIFIED_PARTNERS: &str = "verifiedPartners";

const PROVIDER: &str = "/providers/Microsoft.EventGrid";

impl Route {
    /// The names that a request with these segments gives, if it is for this path; words are in lower case.
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
    /// How it can be asked.
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
