//! ARM's paths: fixed words compared without case, names kept as they are given.
//!
//! actix-web's routes cannot say this (they compare with case), so a path is looked up here, in a table of our own
//! ([`super::routes`]), by one pure function. Doubled slashes are nothing: Azure's clients put a scope that begins with one behind
//! another.

use percent_encoding::percent_decode_str;

use super::routes::{ROUTES, ResourceType};
use crate::{
    admin::model::subscription::PathForm,
    control::record::topic::{self, ArmScope, TopicKind},
    event::Name,
    policy::record::Command,
};

/// A subscription of Azure's, or one resource group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureScope {
    /// The subscription.
    pub subscription: String,
    /// The resource group, if one is named.
    pub resource_group: Option<String>,
}

/// A topic, a domain or a topic of a domain, as a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPath {
    /// Where it is said to live.
    pub scope: ArmScope,
    /// Whether it is a topic or a domain.
    pub kind: TopicKind,
    /// Its name.
    pub name: Name,
    /// Of a topic of a namespace: which one.
    pub namespace: Option<Name>,
    /// Which topic of the domain is meant, if one is.
    pub domain_topic: Option<Name>,
}

impl TopicPath {
    /// How the topic or the domain is looked up.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => topic::key_in_namespace(namespace.as_str(), self.name.as_str()),
            None => topic::key(self.kind, self.name.as_str()),
        }
    }

    /// As ARM calls it: `Microsoft.EventGrid/topics/orders`.
    pub fn resource(&self) -> String {
        let above = self.namespace.as_ref().map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        let own = format!("Microsoft.EventGrid/{above}{}/{}", self.kind.path_segment(), self.name);
        self.domain_topic.as_ref().map_or(own.clone(), |topic| format!("{own}/topics/{topic}"))
    }
}

/// A namespace, as a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePath {
    /// Where it is said to live.
    pub scope: ArmScope,
    /// Its name.
    pub name: Name,
}

/// What is done with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceAction {
    /// The namespace itself is put, read, changed, deleted.
    Itself,
    /// `listKeys`.
    ListKeys,
    /// `regenerateKey`.
    RegenerateKey,
}

impl NamespaceAction {
    /// All of them, and what stands for them behind the name of a namespace.
    pub(super) const ALL: [(Self, &str); 3] =
        [(Self::Itself, ""), (Self::ListKeys, "/listKeys"), (Self::RegenerateKey, "/regenerateKey")];
}

/// What is done with a topic or a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicAction {
    /// The topic itself is put, read, changed, deleted.
    Itself,
    /// `listKeys`.
    ListKeys,
    /// `regenerateKey`.
    RegenerateKey,
    /// `status`, a word of ours.
    Status,
    /// `trace`, a word of ours.
    Trace,
    /// `eventTypes`, of what it says it publishes.
    EventTypes,
    /// `privateEndpointConnections`.
    PrivateEndpointConnections,
}

impl TopicAction {
    /// All of them, and what stands for them behind the name of a topic.
    pub(super) const ALL: [(Self, &str); 7] = [
        (Self::Itself, ""),
        (Self::ListKeys, "/listKeys"),
        (Self::RegenerateKey, "/regenerateKey"),
        (Self::Status, "/status"),
        (Self::Trace, "/trace"),
        (Self::EventTypes, "/providers/Microsoft.EventGrid/eventTypes"),
        (Self::PrivateEndpointConnections, "/privateEndpointConnections"),
    ];

    /// Those that a topic of a namespace has.
    pub(super) const OF_NAMESPACE: [(Self, &str); 5] = [
        (Self::Itself, ""),
        (Self::ListKeys, "/listKeys"),
        (Self::RegenerateKey, "/regenerateKey"),
        (Self::Status, "/status"),
        (Self::Trace, "/trace"),
    ];
}

/// What is done with a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionAction {
    /// The subscription itself is put, read, changed, deleted.
    Itself,
    /// `getFullUrl`.
    GetFullUrl,
    /// `getDeliveryAttributes`.
    GetDeliveryAttributes,
    /// `testFilter`, a word of ours.
    TestFilter,
    /// `status`, a word of ours.
    Status,
    /// `metrics`, a word of ours.
    Metrics,
    /// `explain`, a word of ours.
    Explain,
    /// `deadLetters`, a word of ours.
    DeadLetters,
    /// `deadLetters/redrive`.
    RedriveDeadLetters,
    /// `deadLetters/purge`.
    PurgeDeadLetters,
    /// One of the dead letters, by its key: the last name of the path.
    DeadLetter,
    /// `ledger`, a word of ours.
    Ledger,
    /// `replays`, a word of ours, and what is below it.
    Replay(ReplayAction),
    /// `hold`, `resume`, `probe` and `release`, words of ours.
    Command(Command),
}

/// What is done with replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayAction {
    /// All are told, or one begins.
    All,
    /// One is told.
    One,
    /// `pause`.
    Pause,
    /// `resume`.
    Resume,
    /// `cancel`.
    Cancel,
}

impl SubscriptionAction {
    /// All of them, and what stands for them behind the name of a subscription.
    pub(super) const ALL: [(Self, &str); 21] = [
        (Self::Itself, ""),
        (Self::GetFullUrl, "/getFullUrl"),
        (Self::GetDeliveryAttributes, "/getDeliveryAttributes"),
        (Self::TestFilter, "/testFilter"),
        (Self::Status, "/status"),
        (Self::Metrics, "/metrics"),
        (Self::Explain, "/explain"),
        (Self::DeadLetters, "/deadLetters"),
        (Self::RedriveDeadLetters, "/deadLetters/redrive"),
        (Self::PurgeDeadLetters, "/deadLetters/purge"),
        (Self::DeadLetter, "/deadLetters/{deadLetterKey}"),
        (Self::Ledger, "/ledger"),
        (Self::Replay(ReplayAction::All), "/replays"),
        (Self::Replay(ReplayAction::One), "/replays/{replayId}"),
        (Self::Replay(ReplayAction::Pause), "/replays/{replayId}/pause"),
        (Self::Replay(ReplayAction::Resume), "/replays/{replayId}/resume"),
        (Self::Replay(ReplayAction::Cancel), "/replays/{replayId}/cancel"),
        (Self::Command(Command::Hold), "/hold"),
        (Self::Command(Command::Resume), "/resume"),
        (Self::Command(Command::Probe), "/probe"),
        (Self::Command(Command::Release), "/release"),
    ];
}

/// What a path speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcePath {
    /// The directories of users.
    Tenants,
    /// All subscriptions of Azure's that resources name.
    AzureSubscriptions,
    /// One of them.
    AzureSubscription(String),
    /// All resource groups of one of them.
    ResourceGroups(String),
    /// One of them.
    ResourceGroup(ArmScope),
    /// The providers of a subscription of Azure's.
    Providers(String),
    /// The provider.
    Provider(String),
    /// The locations of a subscription of Azure's.
    Locations(String),
    /// What the provider can do.
    Operations,
    /// All types of topics.
    TopicTypes,
    /// One of them.
    TopicType(String),
    /// The event types of one of them.
    EventTypesOf(String),
    /// All topics, or all domains.
    Topics(TopicKind, AzureScope),
    /// A topic or a domain.
    Topic(TopicPath, TopicAction),
    /// All namespaces.
    Namespaces(AzureScope),
    /// A namespace.
    Namespace(NamespacePath, NamespaceAction),
    /// All topics of a namespace.
    NamespaceTopics(NamespacePath),
    /// All topics of a domain.
    DomainTopics(TopicPath),
    /// A topic of a domain.
    DomainTopic(TopicPath),
    /// All event subscriptions of a topic, of a domain itself, or of a topic of a domain.
    Subscriptions(TopicPath, PathForm),
    /// An event subscription, by the key of its record: its name, and before it, with a slash, that of the domain's topic.
    Subscription(TopicPath, PathForm, String, SubscriptionAction),
    /// All event subscriptions of a place.
    AllSubscriptions {
        /// Where.
        place: AzureScope,
        /// Of topics and domains in this location only.
        location: Option<String>,
        /// Of this type of topics only.
        topic_type: Option<String>,
    },
    /// All resources of a type that this server does not have.
    UnsupportedAll,
    /// A resource of such a type, by its type.
    Unsupported(&'static str),
    /// An event subscription of something that has no events here.
    Sourceless(String),
}

/// Reads a path; [`None`] where it is none of ARM's that we know. What it speaks of, and which one that is.
pub fn find(path: &str) -> Option<(Option<ResourceType>, ResourcePath)> {
    let segments: Vec<String> = segments(path).collect::<Option<_>>()?;
    if segments.iter().any(|segment| segment.contains('/')) {
        return None;
    }
    let words: Vec<String> = segments.iter().map(|segment| segment.to_ascii_lowercase()).collect();
    let found = ROUTES.iter().find_map(|route| Some((route.subject, route.names(&segments, &words)?)));
    if let Some((subject, names)) = found {
        return Some((Some(subject), target(subject, PathNames(names))?));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["subscriptions", _, .., "providers", "microsoft.eventgrid", "eventsubscriptions", _] => {
            Some((None, ResourcePath::Sourceless(segments[..segments.len() - 4].join("/"))))
        }
        _ => None,
    }
}

fn segments(path: &str) -> impl DoubleEndedIterator<Item = Option<String>> {
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    segments.map(|segment| percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned()))
}

/// The last segment of a path.
pub(super) fn last_name(path: &str) -> Option<String> {
    segments(path).next_back().flatten()
}

/// Reads a path: which one of what there is it speaks of.
pub fn parse(path: &str) -> Option<ResourcePath> {
    find(path).map(|(_, target)| target)
}

/// The name that stands behind this word, the last time that the path has it.
pub fn name_behind(path: &str, word: &str) -> Option<String> {
    let mut segments = path.rsplit('/').filter(|segment| !segment.is_empty());
    let mut behind = segments.next()?;
    for segment in segments {
        if segment.eq_ignore_ascii_case(word) {
            return percent_decode_str(behind).decode_utf8().ok().map(|name| name.into_owned());
        }
        behind = segment;
    }
    None
}

/// The names in a path, each with what it is the name of.
struct PathNames<'a>(Vec<(&'a str, String)>);

impl PathNames<'_> {
    fn get(&self, what: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| *known == what).map(|(_, name)| name.clone())
    }

    fn place(&self) -> Option<AzureScope> {
        Some(AzureScope { subscription: self.get("subscriptionId")?, resource_group: self.get("resourceGroupName") })
    }

    fn topic(&self) -> Option<TopicPath> {
        let scope =
            ArmScope { subscription: self.get("subscriptionId")?, resource_group: self.get("resourceGroupName")? };
        let namespace = self.get("namespaceName").as_deref().map(Name::new);
        let (kind, name) = match self.get("domainName") {
            Some(name) => (TopicKind::Domain, name),
            None if namespace.is_some() => (TopicKind::NamespaceTopic, self.get("topicName")?),
            None => (TopicKind::Topic, self.get("topicName")?),
        };
        let domain_topic = self.get("domainTopicName").as_deref().map(Name::new);
        Some(TopicPath { scope, kind, name: Name::new(&name), namespace, domain_topic })
    }

    fn namespace(&self) -> Option<NamespacePath> {
        let scope =
            ArmScope { subscription: self.get("subscriptionId")?, resource_group: self.get("resourceGroupName")? };
        Some(NamespacePath { scope, name: Name::new(&self.get("namespaceName")?) })
    }
}

fn target(subject: ResourceType, names: PathNames<'_>) -> Option<ResourcePath> {
    Some(match subject {
        ResourceType::Tenants => ResourcePath::Tenants,
        ResourceType::AzureSubscriptions => ResourcePath::AzureSubscriptions,
        ResourceType::AzureSubscription => ResourcePath::AzureSubscription(names.get("subscriptionId")?),
        ResourceType::ResourceGroups => ResourcePath::ResourceGroups(names.get("subscriptionId")?),
        ResourceType::ResourceGroup => ResourcePath::ResourceGroup(ArmScope {
            subscription: names.get("subscriptionId")?,
            resource_group: names.get("resourceGroupName")?,
        }),
        ResourceType::Providers => ResourcePath::Providers(names.get("subscriptionId")?),
        ResourceType::Provider => ResourcePath::Provider(names.get("subscriptionId")?),
        ResourceType::Locations => ResourcePath::Locations(names.get("subscriptionId")?),
        ResourceType::Operations => ResourcePath::Operations,
        ResourceType::TopicTypes => ResourcePath::TopicTypes,
        ResourceType::TopicType => ResourcePath::TopicType(names.get("topicTypeName")?),
        ResourceType::EventTypesOf => ResourcePath::EventTypesOf(names.get("topicTypeName")?),
        ResourceType::Topics(kind) => ResourcePath::Topics(kind, names.place()?),
        ResourceType::Topic(_, verb) => ResourcePath::Topic(names.topic()?, verb),
        ResourceType::Namespaces => ResourcePath::Namespaces(names.place()?),
        ResourceType::Namespace(verb) => ResourcePath::Namespace(names.namespace()?, verb),
        ResourceType::NamespaceTopics => ResourcePath::NamespaceTopics(names.namespace()?),
        ResourceType::DomainTopics => ResourcePath::DomainTopics(names.topic()?),
        ResourceType::DomainTopic => ResourcePath::DomainTopic(names.topic()?),
        ResourceType::Subscriptions(_, form) => ResourcePath::Subscriptions(names.topic()?, form),
        ResourceType::Subscription(_, form, verb) => {
            let (topic, name) = (names.topic()?, names.get("eventSubscriptionName")?);
            let key = topic.domain_topic.as_ref().map_or(name.clone(), |topic| format!("{topic}/{name}"));
            ResourcePath::Subscription(topic, form, key, verb)
        }
        ResourceType::UnsupportedAll(_) => ResourcePath::UnsupportedAll,
        ResourceType::Unsupported(resource_type) => ResourcePath::Unsupported(resource_type),
        ResourceType::AllSubscriptions => ResourcePath::AllSubscriptions {
            place: names.place()?,
            location: names.get("location"),
            topic_type: names.get("topicTypeName"),
        },
    })
}
