//! The shards that a request concerns.

use std::sync::LazyLock;

use actix_web::{
    HttpRequest,
    dev::{Path, ResourceDef, Url},
};
use ipnet::IpNet;

use crate::front::hop::ListenerSide;
use gridhook_admin::{Placement, SpreadScope, TopicName, placement};
use gridhook_publish::{
    auth::host,
    http::{PATHS, pattern},
    namespace::publish_paths,
};
use gridhook_pull::http::{RECEIVE, spelled_paths};

pub(super) enum Target {
    /// The shard that the table of routes names.
    Placed(Placement),
    /// A topic of the namespace that the host names with this label, or of the only namespace.
    InNamespace {
        label: Option<String>,
        /// The name of the topic.
        topic: String,
        /// The shards that the request concerns if the topic is spread.
        scope: SpreadScope,
    },
}

/// The form of a path of publishers or consumers.
#[derive(Clone, Copy)]
enum Addressed {
    /// The path has the name of a topic.
    Topic,
    /// The path has the name of a domain.
    Domain,
    /// The host has the name of a topic or domain.
    Host,
    /// The path has the name of a topic of a namespace. The name of the namespace may be in the
    /// host.
    InNamespace(SpreadScope),
}

static PATTERNS: LazyLock<Vec<(ResourceDef, Addressed)>> = LazyLock::new(|| {
    let topics = PATHS
        .map(|path| (path.to_owned(), addressed_by_path(path)))
        .into_iter();
    let pulls = spelled_paths().map(|(operation, path)| {
        let scope = if operation == RECEIVE {
            SpreadScope::Receive
        } else {
            SpreadScope::Settle
        };
        (path, Addressed::InNamespace(scope))
    });
    let publishes = publish_paths().map(|path| (path, Addressed::InNamespace(SpreadScope::Near)));
    // Nearly every client sends the paths as they are written, which are found faster than any
    // spelling of them.
    let written = topics
        .clone()
        .map(|(path, addressed)| (ResourceDef::new(path), addressed));
    let spelling = topics
        .chain(publishes)
        .chain(pulls)
        .map(|(path, of)| (ResourceDef::new(pattern(&path)), of));
    written.chain(spelling).collect()
});

/// The form of a path of publishers or consumers, by its parameters.
fn addressed_by_path(path: &str) -> Addressed {
    match path {
        _ if path.contains("{topic}") => Addressed::Topic,
        _ if path.contains("{domain}") => Addressed::Domain,
        _ => Addressed::Host,
    }
}

/// Chooses the target of a request that a client has sent to a listener.
pub(super) fn choose_target(
    request: &HttpRequest,
    side: ListenerSide,
    proxies: &[IpNet],
) -> Target {
    if side == ListenerSide::Publishers {
        let mut path = Path::new(Url::new(request.uri().clone()));
        let found = PATTERNS
            .iter()
            .find(|(pattern, _)| pattern.capture_match_info(&mut path));
        if let Some((_, addressed)) = found {
            let parameter_value =
                |parameter: &str| path.get(parameter).unwrap_or_default().to_owned();
            let topic =
                |name: &str| Placement::Topic(TopicName::new(None, name), SpreadScope::Near);
            let near = |name: &str| Target::Placed(topic(name));
            return match *addressed {
                Addressed::Topic => near(&parameter_value("topic")),
                Addressed::Domain => Target::Placed(Placement::Named(parameter_value("domain"))),
                Addressed::Host => {
                    let label = host::label_of(request, proxies);
                    label.map_or(Target::Placed(Placement::Any), |label| near(&label))
                }
                Addressed::InNamespace(scope) => match path.get("namespace") {
                    Some(namespace) => {
                        let topic = TopicName::new(Some(namespace), &parameter_value("topic"));
                        Target::Placed(Placement::Topic(topic, scope))
                    }
                    None => {
                        let label = host::label_of(request, proxies);
                        let topic = parameter_value("topic");
                        Target::InNamespace {
                            label,
                            topic,
                            scope,
                        }
                    }
                },
            };
        }
    }
    Target::Placed(placement(
        request.method(),
        request.path(),
        request.query_string(),
    ))
}
