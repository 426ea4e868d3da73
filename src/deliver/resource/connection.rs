//! The services that the operator configured, and how a `resourceId` names one.

use std::{collections::BTreeMap, fmt, sync::Arc};

use ipnet::IpNet;
use url::Url;

use super::Resource;
use crate::{
    error::UnknownService,
    identity::ServerIdentity,
    proxy::{self, EgressProxy},
};

/// A secret of a service. Never shown.
#[derive(Clone)]
pub struct Credential(String);

impl Credential {
    pub fn new(secret: &str) -> Self {
        Self(secret.to_owned())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

#[derive(Clone, Debug)]
pub struct Connection {
    /// The name of the table in the settings.
    pub name: String,
    pub url: Url,
    /// The resource ids that the connection stands for, besides its name; also of all resources
    /// below them.
    pub resource_ids: Vec<String>,
    /// The credentials by the name of the setting.
    pub credentials: BTreeMap<&'static str, Credential>,
}

impl Connection {
    pub fn find_credential(&self, name: &str) -> Option<&str> {
        self.credentials.get(name).map(Credential::expose)
    }

    /// Whether an egress proxy is used for it: it is called by HTTP, or is a proxy itself.
    pub fn is_proxied(&self) -> bool {
        matches!(self.url.scheme(), "http" | "https" | proxy::SCHEME)
    }

    /// Whether `resource_id` is this service or below it.
    fn stands_for(&self, resource_id: &str) -> bool {
        let id = resource_id.trim_start_matches('/');
        is_same_or_above(&self.name, id)
            || self
                .resource_ids
                .iter()
                .any(|known| is_same_or_above(known, id))
    }
}

/// Whether `id` is `name` or begins with it and a slash. Resource ids are equal without case.
fn is_same_or_above(name: &str, id: &str) -> bool {
    let name = name.trim_matches('/');
    let Some((head, rest)) = id.split_at_checked(name.len()) else {
        return false;
    };
    !name.is_empty()
        && head.eq_ignore_ascii_case(name)
        && (rest.is_empty() || rest.starts_with('/'))
}

/// All configured services, and the identity of the server.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    all: Arc<Vec<Connection>>,
    identity: Option<Arc<ServerIdentity>>,
    /// Networks that are connected without a proxy.
    bypass: Arc<Vec<IpNet>>,
}

impl Connections {
    /// The services of the settings, the identity of the server, and the networks that are
    /// connected without a proxy.
    pub fn new(all: Vec<Connection>, identity: Option<ServerIdentity>, bypass: Vec<IpNet>) -> Self {
        Self {
            all: Arc::new(all),
            identity: identity.map(Arc::new),
            bypass: Arc::new(bypass),
        }
    }

    pub fn find_proxy(&self, name: &str) -> Option<EgressProxy> {
        let service = self.proxies().find(|known| known.name == name)?.clone();
        Some(EgressProxy {
            service,
            bypass: Arc::clone(&self.bypass),
        })
    }

    pub fn proxy_names(&self) -> Vec<&str> {
        self.proxies().map(|known| known.name.as_str()).collect()
    }

    fn proxies(&self) -> impl Iterator<Item = &Connection> {
        self.all
            .iter()
            .filter(|known| known.url.scheme() == proxy::SCHEME)
    }

    /// The identity of the server towards endpoints that demand tokens.
    pub fn identity(&self) -> Option<&Arc<ServerIdentity>> {
        self.identity.as_ref()
    }

    /// The service that `resource` names; [`None`] for a kind that needs none.
    ///
    /// # Errors
    /// If no service of its kind has that name or id.
    pub fn find_for(&self, resource: &Resource) -> Result<Option<&Connection>, UnknownService> {
        let schemes = resource.schemes();
        if schemes.is_empty() {
            return Ok(None);
        }
        let of_kind = |known: &&Connection| schemes.contains(&known.url.scheme());
        let connections: Vec<&Connection> = self.all.iter().filter(of_kind).collect();
        let id = resource.resource_id();
        if let Some(connection) = connections.iter().find(|known| known.stands_for(id)) {
            return Ok(Some(connection));
        }
        let names: Vec<&str> = connections
            .iter()
            .flat_map(|known| [&known.name].into_iter().chain(&known.resource_ids))
            .map(String::as_str)
            .collect();
        let expectation = match names.as_slice() {
            [] => format!("there is none with a URL of {}", schemes.join(", ")),
            names => format!("expected one of {}", names.join(", ")),
        };
        Err(UnknownService {
            given: id.escape_debug().to_string(),
            expectation,
        })
    }
}
