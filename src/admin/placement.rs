//! The choice of the shards of a cluster that serve a request, by the tables of routes and the
//! names in its path.

use std::sync::LazyLock;

use actix_web::{dev::ResourceDef, http::Method};
use serde::Deserialize;
use url::form_urlencoded;

use super::{
    ChaosMode, GridhookRoute,
    arm::path::{self, ArmPath},
    merge::{JsonMerge, SpreadMerge},
};
use gridhook_record::topic::{TopicKind, key, key_in_namespace};

/// How the responses of all shards become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseMerge {
    Json(JsonMerge),
    /// The shards are asked in turn for the one that has it.
    FirstFound,
    /// All shards carry out the request; the first response counts.
    FirstResponse,
    /// Lines of JSON, as they come.
    Lines,
    /// Lines of JSON of one shard after the other.
    OneByOne,
    /// The metrics of the shards that the node owns.
    Metrics,
}

impl ResponseMerge {
    /// Whether the request is sent to the shard with the control plane, too.
    pub fn has_control(self) -> bool {
        matches!(
            self,
            Self::Json(JsonMerge::Audit | JsonMerge::Clock) | Self::OneByOne
        )
    }
}

/// The column of a table of routes: which shards a path concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardScope {
    /// Any: the response does not depend on what a shard has.
    Any,
    /// The shard with the control plane.
    Control,
    All(ResponseMerge),
    /// The shard of the topic in the query; all shards if the query names none.
    ByTopic(ResponseMerge),
    /// The shard of the topic in the body; all shards if the body names none.
    ByBody(ResponseMerge),
}

/// A topic that may be spread, as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicName {
    pub namespace: Option<String>,
    pub name: String,
}

impl TopicName {
    /// The name of a topic, or of a topic in `namespace`.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// The name whose shard has the topic, or leads it if it is spread.
    pub fn leading_name(&self) -> &str {
        self.namespace.as_ref().unwrap_or(&self.name)
    }

    /// The key of the topic's record.
    pub fn topic_key(&self) -> String {
        match &self.namespace {
            Some(namespace) => key_in_namespace(namespace, &self.name),
            None => key(TopicKind::Topic, &self.name),
        }
    }
}

/// The shards that a request about a spread topic concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadScope {
    /// One shard that has an owner, preferably this node.
    Near,
    /// Any shard that has events for a client of pull delivery.
    Receive,
    /// The shards that gave out the lock tokens in the body.
    Settle,
    /// The shard that the request names, or else the one that leads the topic.
    One,
    /// All shards, each with a part of the response.
    Parts(SpreadMerge),
    All(ResponseMerge),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    Any,
    /// The shard with the control plane.
    Control,
    /// The shard of the domain or namespace with this name.
    Named(String),
    /// The shard of this topic, or the shards in the scope if the topic is spread.
    Topic(TopicName, SpreadScope),
    All(ResponseMerge),
    /// The shard that [`placement_of_body`] finds.
    ByBody(ResponseMerge),
}

static PATTERNS: LazyLock<Vec<(ResourceDef, &'static GridhookRoute)>> = LazyLock::new(|| {
    GridhookRoute::all_routes(ChaosMode::Enabled)
        .map(|route| (ResourceDef::new(route.template), route))
        .collect()
});

/// The shards that serve a request to the control plane. A request without a route goes to any shard,
/// which refuses it.
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
    let Some(found) = path::find_route(path) else {
        return Placement::Any;
    };
    let operation = found.route.operation(method);
    let Some(scope) = operation.and_then(|operation| operation.spread) else {
        return Placement::Control;
    };
    match (found.topic_name(), found.top_level()) {
        (Some(topic), _) => Placement::Topic(topic, scope),
        (None, Some(name)) => Placement::Named(name.to_owned()),
        (None, None) => Placement::Control,
    }
}

/// Chooses the shards for a request that may name a topic in its body. A body that cannot be read
/// goes to any shard, which refuses it.
pub fn placement_of_body(merge: ResponseMerge, body: &[u8]) -> Placement {
    #[derive(Deserialize)]
    struct Named {
        topic: Option<String>,
    }
    match serde_json::from_slice(body) {
        Ok(Named { topic: Some(topic) }) => match name_in(&topic) {
            Placed::Topic(topic) => Placement::Named(topic.leading_name().to_owned()),
            Placed::Other(name) => Placement::Named(name),
        },
        Ok(Named { topic: None }) => Placement::All(merge),
        Err(_) => Placement::Any,
    }
}

fn topic_in(query: &str, merge: ResponseMerge) -> Option<Placement> {
    let (_, topic) = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "topic")?;
    Some(match name_in(&topic) {
        Placed::Topic(topic) => Placement::Topic(topic, SpreadScope::All(merge)),
        Placed::Other(name) => Placement::Named(name),
    })
}

/// The topic or other resource that a resource id, or the key of a topic, names.
enum Placed {
    /// A topic that may be spread.
    Topic(TopicName),
    /// Something in the shard of this name.
    Other(String),
}

fn name_in(topic: &str) -> Placed {
    if let Some(path) = path::find_route(topic) {
        let other = || Placed::Other(path.top_level().unwrap_or_default().to_owned());
        return path.topic_name().map_or_else(other, Placed::Topic);
    }
    let topic_of = |namespace, name| Placed::Topic(TopicName::new(namespace, name));
    match topic.split_once(':') {
        None => topic_of(None, topic),
        Some(("topic", name)) => topic_of(None, name),
        Some(("namespace", in_namespace)) => match in_namespace.split_once(':') {
            Some((namespace, name)) => topic_of(Some(namespace), name),
            None => Placed::Other(in_namespace.to_owned()),
        },
        Some(("domain", domain)) => {
            Placed::Other(domain.split(':').next().unwrap_or_default().to_owned())
        }
        Some((name, _)) => topic_of(None, name),
    }
}

impl ArmPath {
    /// The topic that the path is in, if it is one that may be spread.
    fn topic_name(&self) -> Option<TopicName> {
        if self.optional_name("domainName").is_some() {
            return None;
        }
        Some(TopicName::new(
            self.optional_name("namespaceName"),
            self.optional_name("topicName")?,
        ))
    }

    /// The name of the topic, domain or namespace that the path is in.
    fn top_level(&self) -> Option<&str> {
        ["namespaceName", "domainName", "topicName"]
            .into_iter()
            .find_map(|parameter| self.optional_name(parameter))
    }
}
