//! Parses ARM's paths: keywords are compared without case, names are kept as given.
//!
//! actix-web's routes compare with case, so a pure function looks up the path in the table of [`super::routes`]. Doubled
//! slashes are ignored, because Azure's clients append scopes that begin with a slash.

use percent_encoding::percent_decode_str;

use super::routes::{ROUTES, ResourceType};
use crate::{
    admin::model::subscription::PathForm,
    control::record::topic::{self, ArmScope, TopicKind},
    event::Name,
    policy::record::Command,
};

/// An Azure subscription, or one resource group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureScope {
    /// The Azure subscription.
    pub subscription: String,
    /// The resource group, if the path has one.
    pub resource_group: Option<String>,
}

/// A topic, a domain or a domain topic in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPath {
    /// Azure subscription and resource group.
    pub scope: ArmScope,
    /// Kind of the topic.
    pub kind: TopicKind,
    /// The name.
    pub name: Name,
    /// The namespace of a namespace topic.
    pub namespace: Option<Name>,
    /// The domain topic, if the path has one.
    pub domain_topic: Option<Name>,
}

impl TopicPath {
    /// The key of the topic or the domain.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => topic::key_in_namespace(namespace.as_str(), self.name.as_str()),
            None => topic::key(self.kind, self.name.as_str()),
        }
    }

    /// Resource type and name, such as `Microsoft.EventGrid/topics/orders`.
    pub fn resource(&self) -> String {
        let above = self.namespace.as_ref().map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        let own = format!("Microsoft.EventGrid/{above}{}/{}", self.kind.path_segment(), self.name);
        self.domain_topic.as_ref().map_or(own.clone(), |topic| format!("{own}/topics/{topic}"))
    }
}

/// A namespace in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePath {
    /// Azure subscription and resource group.
    pub scope: ArmScope,
    /// The name.
    pub name: Name,
}

/// An operation on a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceAction {
    /// GET, PUT, PATCH and DELETE of the namespace.
    Itself,
    /// `listKeys`.
    ListKeys,
    /// `regenerateKey`.
    RegenerateKey,
}

impl NamespaceAction {
    /// All operations with their path suffixes.
    pub(super) const ALL: [(Self, &str); 3] =
        [(Self::Itself, ""), (Self::ListKeys, "/listKeys"), (Self::RegenerateKey, "/regenerateKey")];
}

/// An operation on a topic or a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicAction {
    /// GET, PUT, PATCH and DELETE of the topic.
    Itself,
    /// `listKeys`.
    ListKeys,
    /// `regenerateKey`.
    RegenerateKey,
    /// `status` (not in Azure).
    Status,
    /// `trace` (not in Azure).
    Trace,
    /// `eventTypes`, the declared event types.
    EventTypes,
    /// `privateEndpointConnections`.
    PrivateEndpointConnections,
}

impl TopicAction {
    /// All operations with their path suffixes.
    pub(super) const ALL: [(Self, &str); 7] = [
        (Self::Itself, ""),
        (Self::ListKeys, "/listKeys"),
        (Self::RegenerateKey, "/regenerateKey"),
        (Self::Status, "/status"),
        (Self::Trace, "/trace"),
        (Self::EventTypes, "/providers/Microsoft.EventGrid/eventTypes"),
        (Self::PrivateEndpointConnections, "/privateEndpointConnections"),
    ];

    /// The operations on a namespace topic.
    pub(super) const OF_NAMESPACE: [(Self, &str); 5] = [
        (Self::Itself, ""),
        (Self::ListKeys, "/listKeys"),
        (Self::RegenerateKey, "/regenerateKey"),
        (Self::Status, "/status"),
        (Self::Trace, "/trace"),
    ];
}

/// An operation on an event subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionAction {
    /// GET, PUT, PATCH and DELETE of the event subscription.
    Itself,
    /// `getFullUrl`.
    GetFullUrl,
    /// `getDeliveryAttributes`.
    GetDeliveryAttributes,
    /// `testFilter` (not in Azure).
    TestFilter,
    /// `status` (not in Azure).
    Status,
    /// `metrics` (not in Azure).
    Metrics,
    /// `explain` (not in Azure).
    Explain,
    /// `deadLetters` (not in Azure).
    DeadLetters,
    /// `deadLetters/redrive`.
    RedriveDeadLetters,
    /// `deadLetters/purge`.
    PurgeDeadLetters,
    /// `deadLetters/{key}`, one dead letter.
    DeadLetter,
    /// `ledger` (not in Azure).
    Ledger,
    /// `replays` and the paths below it (not in Azure).
    Replay(ReplayAction),
    /// `hold`, `resume`, `probe` and `release` (not in Azure).
    Command(Command),
}

/// An operation on replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayAction {
    /// GET lists replays, POST starts one.
    All,
    /// GET of one replay.
    One,
    /// `pause`.
    Pause,
    /// `resume`.
    Resume,
    /// `cancel`.
    Cancel,
}

impl SubscriptionAction {
    /// All operations with their path suffixes.
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

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcePath {
    /// All tenants.
    Tenants,
    /// All Azure subscriptions.
    AzureSubscriptions,
    /// One of them.
    AzureSubscription(String),
    /// All resource groups of an Azure subscription.
    ResourceGroups(String),
    /// One of them.
    ResourceGroup(ArmScope),
    /// The providers of an Azure subscription.
    Providers(String),
    /// The provider.
    Provider(String),
    /// The locations of an Azure subscription.
    Locations(String),
    /// The operations of the provider.
    Operations,
    /// All topic types.
    TopicTypes,
    /// One of them.
    TopicType(String),
    /// The event types of a topic type.
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
    /// All event subscriptions of a topic, a domain or a domain topic.
    Subscriptions(TopicPath, PathForm),
    /// An event subscription, by the key of its record: its name, prefixed with the domain topic and a slash.
    Subscription(TopicPath, PathForm, String, SubscriptionAction),
    /// All event subscriptions of an Azure subscription or resource group.
    AllSubscriptions {
        /// The scope.
        place: AzureScope,
        /// Only of topics and domains in this location.
        location: Option<String>,
        /// Only of this topic type.
        topic_type: Option<String>,
    },
    /// All resources of an unsupported type.
    UnsupportedAll,
    /// A resource of an unsupported type, by its type.
    Unsupported(&'static str),
    /// An event subscription of a resource that is not a source of events here.
    Sourceless(String),
}

/// Parses a path into its route and its target; [`None`] for an unknown path.
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

/// Parses a path into its target.
pub fn parse(path: &str) -> Option<ResourcePath> {
    find(path).map(|(_, target)| target)
}

/// The name after the last occurrence of this keyword.
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

/// The names in a path, with their parameter names.
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
