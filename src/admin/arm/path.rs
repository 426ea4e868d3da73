//! ARM's paths: fixed words compared without case, names kept as they are given.
//!
//! A table of routes cannot say this (routes compare with case), so a path is read here, by one pure function. Doubled
//! slashes are nothing: Azure's clients put a scope that begins with one behind another.

use percent_encoding::percent_decode_str;

use crate::{admin::model::subscription::Form, policy::record::Command, topic::record::Scope};

/// A topic, as a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPath {
    /// Where it is said to live.
    pub scope: Scope,
    /// Its name.
    pub name: String,
}

/// What is done with a topic.
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
    /// All topics of a subscription of Azure's, or of one resource group in it.
    Topics {
        /// The subscription.
        subscription: String,
        /// The resource group, if one is named.
        resource_group: Option<String>,
    },
    /// A topic.
    Topic(TopicPath, TopicVerb),
    /// All event subscriptions of a topic.
    Subscriptions(TopicPath, Form),
    /// An event subscription.
    Subscription(TopicPath, Form, String, SubscriptionVerb),
}

/// Reads a path; [`None`] where it is none of ARM's that we know.
pub fn parse(path: &str) -> Option<Target> {
    let names: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned()))
        .collect::<Option<_>>()?;
    let words: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["subscriptions", _, "providers", "microsoft.eventgrid", "topics"] => {
            Some(Target::Topics { subscription: names[1].clone(), resource_group: None })
        }
        ["subscriptions", _, "resourcegroups", _, "providers", "microsoft.eventgrid", "topics", rest @ ..] => {
            let scope = Scope { subscription: names[1].clone(), resource_group: names[3].clone() };
            below_topics(scope, rest, &names[7..])
        }
        _ => None,
    }
}

fn below_topics(scope: Scope, words: &[&str], names: &[String]) -> Option<Target> {
    let Some(name) = names.first() else {
        return Some(Target::Topics { subscription: scope.subscription, resource_group: Some(scope.resource_group) });
    };
    let topic = TopicPath { scope, name: name.clone() };
    match &words[1..] {
        [] => Some(Target::Topic(topic, TopicVerb::Itself)),
        ["listkeys"] => Some(Target::Topic(topic, TopicVerb::ListKeys)),
        ["regeneratekey"] => Some(Target::Topic(topic, TopicVerb::RegenerateKey)),
        ["status"] => Some(Target::Topic(topic, TopicVerb::Status)),
        ["eventsubscriptions", rest @ ..] => below_subscriptions(topic, Form::Nested, rest, &names[2..]),
        ["providers", "microsoft.eventgrid", "eventsubscriptions", rest @ ..] => {
            below_subscriptions(topic, Form::Scoped, rest, &names[4..])
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
    Some(Target::Subscription(topic, form, name.clone(), verb))
}
