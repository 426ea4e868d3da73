//! ARM's paths: fixed words compared without case, names kept as they are given.
//!
//! A table of routes cannot say this (routes compare with case), so a path is read here, by one pure function. Doubled
//! slashes are nothing: Azure's clients put a scope that begins with one behind another.

use percent_encoding::percent_decode_str;

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
    /// Which topic of the domain is meant, if one is.
    pub domain_topic: Option<Name>,
}

impl TopicPath {
    /// How the topic or the domain is looked up.
    pub fn key(&self) -> String {
        record::key(self.kind, self.name.as_str())
    }

    /// As ARM calls it: `Microsoft.EventGrid/topics/orders`.
    pub fn resource(&self) -> String {
        let own = format!("Microsoft.EventGrid/{}/{}", self.kind.word(), self.name);
        self.domain_topic.as_ref().map_or(own.clone(), |topic| format!("{own}/topics/{topic}"))
    }
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
    /// `eventTypes`, of what it says it publishes.
    EventTypes,
    /// `privateEndpointConnections`.
    PrivateEndpointConnections,
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
    /// `explain`, a word of ours.
    Explain,
    /// `hold`, `resume`, `probe` and `release`, words of ours.
    Command(Command),
}

/// What a path speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
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
    /// An event subscription of something that has no events here.
    Sourceless(String),
}

/// Reads a path; [`None`] where it is none of ARM's that we know.
pub fn parse(path: &str) -> Option<Target> {
    let names: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned()))
        .collect::<Option<_>>()?;
    if names.iter().any(|name| name.contains('/')) {
        return None;
    }
    let words: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["providers", "microsoft.eventgrid", "operations"] => Some(Target::Operations),
        ["providers", "microsoft.eventgrid", "topictypes"] => Some(Target::TopicTypes),
        ["providers", "microsoft.eventgrid", "topictypes", _] => Some(Target::TopicType(names[3].clone())),
        ["providers", "microsoft.eventgrid", "topictypes", _, "eventtypes"] => {
            Some(Target::EventTypesOf(names[3].clone()))
        }
        ["subscriptions", _, "resourcegroups", _, "providers", "microsoft.eventgrid", rest @ ..] => {
            let place = Place { subscription: names[1].clone(), resource_group: Some(names[3].clone()) };
            below_place(place, rest, &names[6..])
        }
        ["subscriptions", _, "providers", "microsoft.eventgrid", rest @ ..] => {
            let place = Place { subscription: names[1].clone(), resource_group: None };
            below_place(place, rest, &names[4..])
        }
        ["subscriptions", _, .., "providers", "microsoft.eventgrid", "eventsubscriptions", _] => {
            Some(Target::Sourceless(names[..names.len() - 4].join("/")))
        }
        _ => None,
    }
}

fn below_place(place: Place, words: &[&str], names: &[String]) -> Option<Target> {
    let all = |place, location, topic_type| Some(Target::AllSubscriptions { place, location, topic_type });
    match words {
        ["topics"] => Some(Target::Topics(Kind::Topic, place)),
        ["domains"] => Some(Target::Topics(Kind::Domain, place)),
        ["eventsubscriptions"] => all(place, None, None),
        ["locations", _, "eventsubscriptions"] => all(place, Some(names[1].clone()), None),
        ["topictypes", _, "eventsubscriptions"] => all(place, None, Some(names[1].clone())),
        ["locations", _, "topictypes", _, "eventsubscriptions"] => {
            all(place, Some(names[1].clone()), Some(names[3].clone()))
        }
        ["eventsubscriptions", _] => Some(Target::Sourceless(match place.resource_group {
            Some(group) => format!("subscriptions/{}/resourceGroups/{group}", place.subscription),
            None => format!("subscriptions/{}", place.subscription),
        })),
        [kind @ ("topics" | "domains"), _, rest @ ..] => {
            let scope = Scope { subscription: place.subscription, resource_group: place.resource_group? };
            let kind = if *kind == "topics" { Kind::Topic } else { Kind::Domain };
            let topic = TopicPath { scope, kind, name: Name::new(&names[1]), domain_topic: None };
            below_topic(topic, rest, &names[2..])
        }
        _ => None,
    }
}

fn below_topic(mut topic: TopicPath, words: &[&str], names: &[String]) -> Option<Target> {
    let verb = match (topic.kind, words) {
        (_, []) => TopicVerb::Itself,
        (_, ["listkeys"]) => TopicVerb::ListKeys,
        (_, ["regeneratekey"]) => TopicVerb::RegenerateKey,
        (_, ["status"]) => TopicVerb::Status,
        (_, ["privateendpointconnections"]) => TopicVerb::PrivateEndpointConnections,
        (_, ["providers", "microsoft.eventgrid", "eventtypes"]) => TopicVerb::EventTypes,
        (Kind::Domain, ["topics"]) => return Some(Target::DomainTopics(topic)),
        (Kind::Domain, ["topics", _, rest @ ..]) => {
            topic.domain_topic = Some(Name::new(&names[1]));
            return match rest {
                [] => Some(Target::DomainTopic(topic)),
                rest => subscriptions_of(topic, rest, &names[2..]),
            };
        }
        _ => return subscriptions_of(topic, words, names),
    };
    Some(Target::Topic(topic, verb))
}

fn subscriptions_of(topic: TopicPath, words: &[&str], names: &[String]) -> Option<Target> {
    match words {
        ["eventsubscriptions", rest @ ..] => below_subscriptions(topic, Form::Nested, rest, &names[1..]),
        ["providers", "microsoft.eventgrid", "eventsubscriptions", rest @ ..] => {
            below_subscriptions(topic, Form::Scoped, rest, &names[3..])
        }
        _ => None,
    }
}

fn below_subscriptions(topic: TopicPath, form: Form, words: &[&str], names: &[String]) -> Option<Target> {
    let Some(name) = names.first() else { return Some(Target::Subscriptions(topic, form)) };
    let verb = match &words[1..] {
        [] => SubscriptionVerb::Itself,
        ["getfullurl"] => SubscriptionVerb::GetFullUrl,
        ["getdeliveryattributes"] => SubscriptionVerb::GetDeliveryAttributes,
        ["testfilter"] => SubscriptionVerb::TestFilter,
        ["status"] => SubscriptionVerb::Status,
        ["explain"] => SubscriptionVerb::Explain,
        ["hold"] => SubscriptionVerb::Command(Command::Hold),
        ["resume"] => SubscriptionVerb::Command(Command::Resume),
        ["probe"] => SubscriptionVerb::Command(Command::Probe),
        ["release"] => SubscriptionVerb::Command(Command::Release),
        _ => return None,
    };
    let key = topic.domain_topic.as_ref().map_or(name.clone(), |topic| format!("{topic}/{name}"));
    Some(Target::Subscription(topic, form, key, verb))
}
