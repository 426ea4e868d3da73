//! ARM's paths, as a table: which there are, what each speaks of, and how it can be asked.
//!
//! The only list of them: [`super::path`] reads requests by it, the answer to a method that is not allowed names what it
//! allows, and `/openapi.json` is made of it. The first path that fits is the one.

use std::sync::LazyLock;

use actix_web::http::Method;

use super::path::{NamespaceVerb, ReplayVerb, SubscriptionVerb, TopicVerb};
use crate::{admin::model::subscription::Form, topic::record::Kind};

/// What a path speaks of, without the names in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
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
    Topics(Kind),
    /// A topic or a domain.
    Topic(Kind, TopicVerb),
    /// All namespaces.
    Namespaces,
    /// A namespace.
    Namespace(NamespaceVerb),
    /// All topics of a namespace.
    NamespaceTopics,
    /// All topics of a domain.
    DomainTopics,
    /// A topic of a domain.
    DomainTopic,
    /// All event subscriptions of a source.
    Subscriptions(Source, Form),
    /// One of them.
    Subscription(Source, Form, SubscriptionVerb),
    /// All event subscriptions of a place.
    AllSubscriptions,
    /// All resources of a type that this server does not have.
    UnsupportedAll(&'static str),
    /// A resource of such a type.
    Unsupported(&'static str),
}

/// What an event subscription hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A topic, or a whole domain.
    Whole(Kind),
    /// A topic of a domain.
    DomainTopic,
}

/// A path.
#[derive(Debug)]
pub struct Route {
    /// With names in braces, as in `/subscriptions/{subscriptionId}/…`.
    pub template: String,
    /// What it speaks of.
    pub subject: Subject,
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

impl Subject {
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
                TopicVerb::Status | TopicVerb::Trace | TopicVerb::EventTypes | TopicVerb::PrivateEndpointConnections,
            )
            | Self::Namespaces
            | Self::NamespaceTopics
            | Self::DomainTopics
            | Self::Subscriptions(..)
            | Self::Subscription(
                _,
                _,
                SubscriptionVerb::Status
                | SubscriptionVerb::Metrics
                | SubscriptionVerb::Explain
                | SubscriptionVerb::Ledger
                | SubscriptionVerb::DeadLetters
                | SubscriptionVerb::DeadLetter
                | SubscriptionVerb::Replay(ReplayVerb::One),
            )
            | Self::AllSubscriptions
            | Self::UnsupportedAll(_)
            | Self::Unsupported(VERIFIED_PARTNERS) => READ,
            Self::Unsupported(_) => ALL,
            Self::Topic(_, TopicVerb::Itself)
            | Self::Namespace(NamespaceVerb::Itself)
            | Self::Subscription(_, _, SubscriptionVerb::Itself) => ALL,
            Self::DomainTopic => UNCHANGING,
            Self::Topic(_, TopicVerb::ListKeys | TopicVerb::RegenerateKey)
            | Self::Namespace(NamespaceVerb::ListKeys | NamespaceVerb::RegenerateKey)
            | Self::Subscription(
                _,
                _,
                SubscriptionVerb::GetFullUrl
                | SubscriptionVerb::GetDeliveryAttributes
                | SubscriptionVerb::TestFilter
                | SubscriptionVerb::RedriveDeadLetters
                | SubscriptionVerb::PurgeDeadLetters
                | SubscriptionVerb::Replay(ReplayVerb::Pause | ReplayVerb::Resume | ReplayVerb::Cancel)
                | SubscriptionVerb::Command(_),
            ) => ACT,
            Self::Subscription(_, _, SubscriptionVerb::Replay(ReplayVerb::All)) => READ_OR_ACT,
        }
    }
}

fn routes() -> Vec<Route> {
    let whole = format!("/subscriptions/{{subscriptionId}}{PROVIDER}");
    let group = format!("/subscriptions/{{subscriptionId}}/resourceGroups/{{resourceGroupName}}{PROVIDER}");
    let types = format!("{PROVIDER}/topicTypes");
    let account = "/subscriptions/{subscriptionId}";
    let mut routes = vec![
        Route { template: "/tenants".to_owned(), subject: Subject::Tenants },
        Route { template: "/subscriptions".to_owned(), subject: Subject::AzureSubscriptions },
        Route { template: account.to_owned(), subject: Subject::AzureSubscription },
        Route { template: format!("{account}/resourceGroups"), subject: Subject::ResourceGroups },
        Route { template: format!("{account}/resourceGroups/{{resourceGroupName}}"), subject: Subject::ResourceGroup },
        Route { template: format!("{account}/providers"), subject: Subject::Providers },
        Route { template: whole.clone(), subject: Subject::Provider },
        Route { template: format!("{account}/locations"), subject: Subject::Locations },
        Route { template: format!("{PROVIDER}/operations"), subject: Subject::Operations },
        Route { template: types.clone(), subject: Subject::TopicTypes },
        Route { template: format!("{types}/{{topicTypeName}}"), subject: Subject::TopicType },
        Route { template: format!("{types}/{{topicTypeName}}/eventTypes"), subject: Subject::EventTypesOf },
    ];
    for place in [&whole, &group] {
        for kind in [Kind::Topic, Kind::Domain] {
            let template = format!("{place}/{}", kind.word());
            routes.push(Route { template, subject: Subject::Topics(kind) });
        }
        routes.push(Route { template: format!("{place}/namespaces"), subject: Subject::Namespaces });
        let (location, topic_type) = ("/locations/{location}", "/topicTypes/{topicTypeName}");
        for of in ["", location, topic_type, &format!("{location}{topic_type}")] {
            let template = format!("{place}{of}/eventSubscriptions");
            routes.push(Route { template, subject: Subject::AllSubscriptions });
        }
    }
    add_unsupported(&mut routes, &whole, &group);
    for (kind, name) in [(Kind::Topic, "topicName"), (Kind::Domain, "domainName")] {
        let topic = format!("{group}/{}/{{{name}}}", kind.word());
        for (verb, word) in TopicVerb::ALL {
            routes.push(Route { template: format!("{topic}{word}"), subject: Subject::Topic(kind, verb) });
        }
        add_subscriptions(&mut routes, &topic, Source::Whole(kind));
    }
    let topics = format!("{group}/domains/{{domainName}}/topics");
    let topic = format!("{topics}/{{domainTopicName}}");
    routes.push(Route { template: topics, subject: Subject::DomainTopics });
    routes.push(Route { template: topic.clone(), subject: Subject::DomainTopic });
    add_subscriptions(&mut routes, &topic, Source::DomainTopic);
    add_namespaces(&mut routes, &group);
    routes
}

fn add_unsupported(routes: &mut Vec<Route>, whole: &str, group: &str) {
    for (word, name) in UNSUPPORTED {
        for place in [whole, group] {
            routes.push(Route { template: format!("{place}/{word}"), subject: Subject::UnsupportedAll(word) });
        }
        routes.push(Route { template: format!("{group}/{word}/{{{name}}}"), subject: Subject::Unsupported(word) });
    }
    let all = format!("{PROVIDER}/{VERIFIED_PARTNERS}");
    let one = format!("{all}/{{verifiedPartnerName}}");
    routes.push(Route { template: all, subject: Subject::UnsupportedAll(VERIFIED_PARTNERS) });
    routes.push(Route { template: one, subject: Subject::Unsupported(VERIFIED_PARTNERS) });
}

fn add_namespaces(routes: &mut Vec<Route>, group: &str) {
    let namespace = format!("{group}/namespaces/{{namespaceName}}");
    for (verb, word) in NamespaceVerb::ALL {
        routes.push(Route { template: format!("{namespace}{word}"), subject: Subject::Namespace(verb) });
    }
    let (topics, kind) = (format!("{namespace}/topics"), Kind::NamespaceTopic);
    let topic = format!("{topics}/{{topicName}}");
    routes.push(Route { template: topics, subject: Subject::NamespaceTopics });
    for (verb, word) in TopicVerb::OF_NAMESPACE {
        routes.push(Route { template: format!("{topic}{word}"), subject: Subject::Topic(kind, verb) });
    }
    add_subscriptions_by(routes, &topic, Source::Whole(kind), Form::Nested, "");
}

fn add_subscriptions(routes: &mut Vec<Route>, below: &str, source: Source) {
    for (form, between) in [(Form::Nested, ""), (Form::Scoped, PROVIDER)] {
        add_subscriptions_by(routes, below, source, form, between);
    }
}

fn add_subscriptions_by(routes: &mut Vec<Route>, below: &str, source: Source, form: Form, between: &str) {
    let all = format!("{below}{between}/eventSubscriptions");
    for (verb, word) in SubscriptionVerb::ALL {
        let template = format!("{all}/{{eventSubscriptionName}}{word}");
        routes.push(Route { template, subject: Subject::Subscription(source, form, verb) });
    }
    routes.push(Route { template: all, subject: Subject::Subscriptions(source, form) });
}
