//! The shards that a request concerns.

use std::sync::LazyLock;

use actix_web::{
    HttpRequest,
    dev::{Path, ResourceDef, Url},
};
use ipnet::IpNet;

use crate::{
    admin::{Placement, SpreadScope, placement},
    publish::{
        auth::host,
        http::{PATHS, pattern},
        namespace::publish_paths,
    },
    pull::http::{OPERATIONS, operation_paths},
    server::front::hop::ListenerSide,
};

/// Where a request goes.
pub(super) enum Target {
    /// What the table of its route says.
    Placed(Placement),
    /// To the shard of the namespace that the host names with this label, or of the only namespace.
    NamespaceOf(Option<String>),
}

/// The form of a path of publishers or consumers.
#[derive(Clone, Copy)]
enum Addressed {
    /// The path has the name of a topic in this parameter.
    Topic(&'static str),
    /// The path has the name in this parameter.
    Named(&'static str),
    /// The host has the name of a topic or domain.
    Host,
    /// The host may have the name of a namespace.
    Namespace,
}

static PATTERNS: LazyLock<Vec<(ResourceDef, Addressed)>> = LazyLock::new(|| {
    let topics = PATHS.map(str::to_owned).into_iter().map(|path| (path, Addressed::Host));
    let settled = OPERATIONS.into_iter().flat_map(operation_paths);
    let namespaces = publish_paths().into_iter().chain(settled).map(|path| (path, Addressed::Namespace));
    // Nearly every client sends the paths as they are written, which are found faster than any spelling of them.
    let written =
        topics.clone().map(|(path, otherwise)| (ResourceDef::new(path.as_str()), addressed(&path, otherwise)));
    let spelled = topics
        .chain(namespaces)
        .map(|(path, otherwise)| (ResourceDef::new(pattern(&path)), addressed(&path, otherwise)));
    written.chain(spelled).collect()
});

/// What a path addresses by its parameters.
fn addressed(path: &str, otherwise: Addressed) -> Addressed {
    let has = |parameter: &str| path.contains(&format!("{{{parameter}}}"));
    match otherwise {
        _ if has("namespace") => Addressed::Named("namespace"),
        Addressed::Host if has("topic") => Addressed::Topic("topic"),
        Addressed::Host if has("domain") => Addressed::Named("domain"),
        otherwise => otherwise,
    }
}

/// Where a request goes that a client has sent to a listener.
pub(super) fn target(request: &HttpRequest, side: ListenerSide, proxies: &[IpNet]) -> Target {
    if side == ListenerSide::Publishers {
        let mut path = Path::new(Url::new(request.uri().clone()));
        let found = PATTERNS.iter().find(|(pattern, _)| pattern.capture_match_info(&mut path));
        if let Some((_, addressed)) = found {
            return match addressed {
                Addressed::Topic(parameter) => {
                    let name = path.get(parameter).unwrap_or_default().to_owned();
                    Target::Placed(Placement::Topic(name, SpreadScope::Near))
                }
                Addressed::Named(parameter) => {
                    Target::Placed(Placement::Named(path.get(parameter).unwrap_or_default().to_owned()))
                }
                Addressed::Host => {
                    let label = host::label_of(request, proxies);
                    let named = |name| Placement::Topic(name, SpreadScope::Near);
                    Target::Placed(label.map_or(Placement::Any, named))
                }
                Addressed::Namespace => Target::NamespaceOf(host::label_of(request, proxies)),
            };
        }
    }
    Target::Placed(placement(request.method(), request.path(), request.query_string()))
}
