//! Which shards of a cluster answer a request, by the tables of routes and the names in its path.

use std::sync::LazyLock;

use actix_web::{dev::ResourceDef, http::Method};
use serde::Deserialize;
use url::form_urlencoded;

use super::{
    ChaosMode, GridhookRoute,
    arm::path::{self, ArmPath},
    merge::PartsMerge,
};

/// How the answers of all shards become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// A page of a list of resources.
    List,
    /// JSON whose lists are joined.
    Union,
    /// The shards are asked in turn for the one that has it.
    Found,
    /// All shards do it; the first answer counts.
    Each,
    /// `/top`.
    Top,
    /// `/history`.
    History,
    /// `/jobs`.
    Jobs,
    /// `/deadLetters`.
    DeadLetters,
    /// `/audit`.
    Audit,
    /// `/supervision`.
    Supervision,
    /// `/clock`.
    Clock,
    /// Numbers are added, lists are joined.
    Sum,
    /// Lines of JSON, as they come.
    Lines,
    /// Lines of JSON of one shard after the other.
    InTurn,
    /// The metrics of the shards that the node owns.
    Metrics,
}

/// The column of a table of routes: which shards a path concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardScope {
    /// Any: the answer does not depend on what a shard has.
    Any,
    /// The control shard, which has the tokens and the sessions.
    Control,
    /// All.
    All(Merge),
    /// That of the topic in the query, or all without one.
    ByTopic(Merge),
    /// That of the topic in the body, or all without one.
    ByBody(Merge),
}

/// Which shards a request concerns that is about a spread topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadScope {
    /// One that has an owner, best this node.
    Near,
    /// The one that the request names, or the one that leads it.
    One,
    /// All, with a part of the answer each.
    Parts(PartsMerge),
    /// All.
    All(Merge),
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// To any shard.
    Any,
    /// To the control shard.
    Control,
    /// To the shard of the topic, domain or namespace with this name: also of a spread topic, which that shard leads.
    Named(String),
    /// To the shard of the topic with this name, or to these if it is spread.
    Topic(String, SpreadScope),
    /// To all shards.
    All(Merge),
    /// To the shard that [`placement_of_body`] finds.
    ByBody(Merge),
}

static PATTERNS: LazyLock<Vec<(ResourceDef, &'static GridhookRoute)>> = LazyLock::new(|| {
    GridhookRoute::all(ChaosMode::Enabled).map(|route| (ResourceDef::new(route.template), route)).collect()
});

/// Where a request to the control plane goes. What no route knows goes to any shard, which refuses it.
pub fn placement(method: &Method, path: &str, query: &str) -> Placement {
    if let Some((_, route)) = PATTERNS.iter().find(|(pattern, _)| pattern.is_match(path)) {
        return match route.shards {
            ShardScope::Any => Placement::Any,
            ShardScope::Control => Placement::Control,
            ShardScope::All(merge) => Placement::All(merge),
            ShardScope::ByTopic(merge) => topic_in(query, merge).unwrap_or(Placement::All(merge)),
            ShardScope::ByBody(merge) => Placement::ByBody(merge),
        };
    }
    let Some(found) = path::find(path) else { return Placement::Any };
    let operation = found.route.operation(method);
    if let Some(name) = found.top_level() {
        let spread = operation.and_then(|operation| operation.spread).filter(|_| found.is_in_topic());
        return spread
            .map_or_else(|| Placement::Named(name.to_owned()), |spread| Placement::Topic(name.to_owned(), spread));
    }
    let merge = operation.and_then(|operation| operation.merge);
    merge.map_or(Placement::Any, Placement::All)
}

/// Where a request goes that may name a topic in its body. A body that cannot be read goes to any shard, which refuses it.
pub fn placement_of_body(merge: Merge, body: &[u8]) -> Placement {
    #[derive(Deserialize)]
    struct Named {
        topic: Option<String>,
    }
    match serde_json::from_slice(body) {
        Ok(Named { topic: Some(topic) }) => Placement::Named(name_in(&topic).0),
        Ok(Named { topic: None }) => Placement::All(merge),
        Err(_) => Placement::Any,
    }
}

fn topic_in(query: &str, merge: Merge) -> Option<Placement> {
    let (_, topic) = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "topic")?;
    let (name, is_topic) = name_in(&topic);
    Some(if is_topic { Placement::Topic(name, SpreadScope::All(merge)) } else { Placement::Named(name) })
}

/// The top-level name in a resource id, or in the key of a topic; and whether it is that of a topic that may be spread.
fn name_in(topic: &str) -> (String, bool) {
    if let Some(path) = path::find(topic) {
        return (path.top_level().unwrap_or_default().to_owned(), path.is_in_topic());
    }
    if !topic.contains(':') {
        return (topic.to_owned(), true);
    }
    let mut parts = topic.split(':');
    let (name, is_topic) = match parts.next() {
        Some("namespace" | "domain") => (parts.next(), false),
        Some("topic") => (topic.split_once(':').map(|(_, name)| name), true),
        first => (first, true),
    };
    (name.unwrap_or_default().to_owned(), is_topic)
}

impl ArmPath {
    /// Whether the path is in a topic that may be spread.
    fn is_in_topic(&self) -> bool {
        ["namespaceName", "domainName"].into_iter().all(|parameter| self.optional(parameter).is_none())
    }

    /// The name of the topic, domain or namespace that the path is in.
    fn top_level(&self) -> Option<&str> {
        ["namespaceName", "domainName", "topicName"].into_iter().find_map(|parameter| self.optional(parameter))
    }
}
