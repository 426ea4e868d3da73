//! ARM's paths: fixed words compared without case, names kept as they are given.
//!
//! actix-web's routes cannot say this (they compare with case), so a path is looked up here, in a table of our own
//! ([`super::routes`]), by one pure function. Doubled slashes are nothing: Azure's clients put a scope that begins with one behind
//! another.

use percent_encoding::percent_decode_str;

use super::routes::{ROUTES, Subject};
use crate::{
    admin::model::subscription::Form,
    event::Name,
    policy::record::Command,
    topic::record::{self, Kind, Scope},
};

/// A subscription of Azure's, or one resource group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The subscription.
    pub subscription: String,
    /// The resource group, if one is named.
    pub resource_group: Option<String>,
}

/// A topic, a domain or a topic of a domain, as a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPath {
    /// Where it is said to live.
    pub scope: Scope,
    /// Whether it is a topic or a domain.
    pub kind: Kind,
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
            Some(namespace) => record::key_in_namespace(namespace.as_str(), self.name.as_str()),
            None => record::key(self.kind, self.name.as_str()),
        }
    }

    /// As ARM calls it: `Microsoft.EventGrid/topics/orders`.
    pub fn resource(&self) -> String {
        let above = self.namespace.as_ref().map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        let own = format!("Microsoft.EventGrid/{above}{}/{}", self.kind.word(), self.name);
        self.domain_topic.as_ref().map_or(own.clone(), |topic| format!("{own}/topics/{topic}"))
    }
}

/// A namespace, as a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePath {
    /// Where it is said to live.
    pub scope: Scope,
    /// Its name.
    pub name: Name,
}

/// What is done with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceVerb {
    /// The namespace itself is put, read, changed, deleted.
    Itself,
    /// `listKeys`.
    ListKeys,
    /// `regenerateKey`.
    RegenerateKey,
}

impl NamespaceVerb {
    /// All of them, and what stands for them behind the name of a namespace.
    pub(super) const ALL: [(Self, &str); 3] =
        [(Self::Itself, ""), (Self::ListKeys, "/listKeys"), (Self::RegenerateKey, "/regenerateKey")];
}

/// What is done with a topic or a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicVerb {
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

impl TopicVerb {
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
pub enum SubscriptionVerb {
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
    Replay(ReplayVerb),
    /// `hold`, `resume`, `probe` and `release`, words of ours.
    Command(Command),
}

/// What is done with replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayVerb {
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

impl SubscriptionVerb {
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
        (Self::Replay(ReplayVerb::All), "/replays"),
        (Self::Replay(ReplayVerb::One), "/replays/{replayId}"),
        (Self::Replay(ReplayVerb::Pause), "/replays/{replayId}/pause"),
        (Self::Replay(ReplayVerb::Resume), "/replays/{replayId}/resume"),
        (Self::Replay(ReplayVerb::Cancel), "/replays/{replayId}/cancel"),
        (Self::Command(Command::Hold), "/hold"),
        (Self::Command(Command::Resume), "/resume"),
        (Self::Command(Command::Probe), "/probe"),
        (Self::Command(Command::Release), "/release"),
    ];
}

/// What a path speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The directories of users.
    Tenants,
    /// All subscriptions of Azure's that resources name.
    AzureSubscriptions,
    /// One of them.
    AzureSubscription(String),
    /// All resource groups of one of them.
    ResourceGroups(String),
    /// One of them.
    ResourceGroup(Scope),
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
    Topics(Kind, Place),
    /// A topic or a domain.
    Topic(TopicPath, TopicVerb),
    /// All namespaces.
    Namespaces(Place),
    /// A namespace.
    Namespace(NamespacePath, NamespaceVerb),
    /// All topics of a namespace.
    NamespaceTopics(NamespacePath),
    /// All topics of a domain.
    DomainTopics(TopicPath),
    /// A topic of a domain.
    DomainTopic(TopicPath),
    /// All event subscriptions of a topic, of a domain itself, or of a topic of a domain.
    Subscriptions(TopicPath, Form),
    /// An event subscription, by the key of its record: its name, and before it, with a slash, that of the domain's topic.
    Subscription(TopicPath, Form, String, SubscriptionVerb),
    /// All event subscriptions of a place.
    AllSubscriptions {
        /// Where.
        place: Place,
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
pub fn find(path: &str) -> Option<(Option<Subject>, Target)> {
    let segments: Vec<String> = segments(path).collect::<Option<_>>()?;
    if segments.iter().any(|segment| segment.contains('/')) {
        return None;
    }
    let words: Vec<String> = segments.iter().map(|segment| segment.to_ascii_lowercase()).collect();
    let found = ROUTES.iter().find_map(|route| Some((route.subject, route.names(&segments, &words)?)));
    if let Some((subject, names)) = found {
        return Some((Some(subject), target(subject, Names(names))?));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["subscriptions", _, .., "providers", "microsoft.eventgrid", "eventsubscriptions", _] => {
            Some((None, Target::Sourceless(segments[..segments.len() - 4].join("/"))))
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
pub fn parse(path: &str) -> Option<Target> {
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
struct Names<'a>(Vec<(&'a str, String)>);

impl Names<'_> {
    fn get(&self, what: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| *known == what).map(|(_, name)| name.clone())
    }

    fn place(&self) -> Option<Place> {
        Some(Place { subscription: self.get("subscriptionId")?, resource_group: self.get("resourceGroupName") })
    }

    fn topic(&self) -> Option<TopicPath> {
        let scope = Scope { subscription: self.get("subscriptionId")?, resource_group: self.get("resourceGroupName")? };
        let namespace = self.get("namespaceName").as_deref().map(Name::new);
        let (kind, name) = match self.get("domainName") {
            Some(name) => (Kind::Domain, name),
            None if namespace.is_some() => (Kind::NamespaceTopic, self.get("topicName")?),
            None => (Kind::Topic, self.get("topicName")?),
        };
        let domain_topic = self.get("domainTopicName").as_deref().map(Name::new);
        Some(TopicPath { scope, kind, name: Name::new(&name), namespace, domain_topic })
    }

    fn namespace(&self) -> Option<NamespacePath> {
        let scope = Scope { subscription: self.get("subscriptionId")?, resource_group: self.get("resourceGroupName")? };
        Some(NamespacePath { scope, name: Name::new(&self.get("namespaceName")?) })
    }
}

fn target(subject: Subject, names: Names<'_>) -> Option<Target> {
    Some(match subject {
        Subject::Tenants => Target::Tenants,
        Subject::AzureSubscriptions => Target::AzureSubscriptions,
        Subject::AzureSubscription => Target::AzureSubscription(names.get("subscriptionId")?),
        Subject::ResourceGroups => Target::ResourceGroups(names.get("subscriptionId")?),
        Subject::ResourceGroup => Target::ResourceGroup(Scope {
            subscription: names.get("subscriptionId")?,
            resource_group: names.get("resourceGroupName")?,
        }),
        Subject::Providers => Target::Providers(names.get("subscriptionId")?),
        Subject::Provider => Target::Provider(names.get("subscriptionId")?),
        Subject::Locations => Target::Locations(names.get("subscriptionId")?),
        Subject::Operations => Target::Operations,
        Subject::TopicTypes => Target::TopicTypes,
        Subject::TopicType => Target::TopicType(names.get("topicTypeName")?),
        Subject::EventTypesOf => Target::EventTypesOf(names.get("topicTypeName")?),
        Subject::Topics(kind) => Target::Topics(kind, names.place()?),
        Subject::Topic(_, verb) => Target::Topic(names.topic()?, verb),
        Subject::Namespaces => Target::Namespaces(names.place()?),
        Subject::Namespace(verb) => Target::Namespace(names.namespace()?, verb),
        Subject::NamespaceTopics => Target::NamespaceTopics(names.namespace()?),
        Subject::DomainTopics => Target::DomainTopics(names.topic()?),
        Subject::DomainTopic => Target::DomainTopic(names.topic()?),
        Subject::Subscriptions(_, form) => Target::Subscriptions(names.topic()?, form),
        Subject::Subscription(_, form, verb) => {
            let (topic, name) = (names.topic()?, names.get("eventSubscriptionName")?);
            let key = topic.domain_topic.as_ref().map_or(name.clone(), |topic| format!("{topic}/{name}"));
            Target::Subscription(topic, form, key, verb)
        }
        Subject::UnsupportedAll(_) => Target::UnsupportedAll,
        Subject::Unsupported(resource_type) => Target::Unsupported(resource_type),
        Subject::AllSubscriptions => Target::AllSubscriptions {
            place: names.place()?,
            location: names.get("location"),
            topic_type: names.get("topicTypeName"),
        },
    })
}
