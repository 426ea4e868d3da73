//! Names of resources in commands, and their paths.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{ClientError, ClientResult};
use crate::value::ValueError;

/// The name of a topic, a domain or a namespace in a command: `orders`, `domains/shop`,
/// `domains/shop/topics/eu`, or a full resource id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceName(String);

/// Unreserved characters of RFC 3986; all others are percent-encoded.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The default scope; a resource in another scope needs its full resource id.
const SCOPE: &str = "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid";

impl std::str::FromStr for ResourceName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let segments: Vec<_> = text
            .split('/')
            .filter(|segment| !segment.is_empty())
            .collect();
        let own = match segments[..] {
            [topic] => format!("{SCOPE}/topics/{}", encode_segment(topic)),
            ["topics" | "domains" | "namespaces", name] => {
                format!("{SCOPE}/{}/{}", segments[0], encode_segment(name))
            }
            [above @ ("domains" | "namespaces"), name, "topics", topic] => {
                format!(
                    "{SCOPE}/{above}/{}/topics/{}",
                    encode_segment(name),
                    encode_segment(topic)
                )
            }
            [first, ..] if text.starts_with('/') && first.eq_ignore_ascii_case("subscriptions") => {
                segments
                    .iter()
                    .map(|name| format!("/{}", encode_segment(name)))
                    .collect()
            }
            _ => return Err(ValueError::ResourceName),
        };
        Ok(Self(own))
    }
}

impl ResourceName {
    /// The path of the resource, followed by `rest`.
    pub fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.0)
    }

    /// The path of an event subscription of the resource, followed by `rest`.
    pub fn subscription_path(&self, name: &str, rest: &str) -> String {
        format!(
            "{}/eventSubscriptions/{}{rest}",
            self.0,
            encode_segment(name)
        )
    }
}

impl ResourceName {
    /// The path to publish events to.
    pub(crate) fn publishing_path(&self) -> ClientResult {
        match self.types_and_names()[..] {
            [("topics", name)] => Ok(format!("/topics/{name}/api/events")),
            [("domains", name)] => Ok(format!("/domains/{name}/api/events")),
            [("namespaces", namespace), ("topics", name)] => {
                Ok(format!("/namespaces/{namespace}/topics/{name}:publish"))
            }
            [("domains", domain), ("topics", _)] => Err(ClientError::Input(format!(
                "cannot publish to a topic of a domain; publish to the domain, domains/{domain}, \
                 and name the topic in each event"
            ))),
            _ => Err(ClientError::Input(format!(
                "cannot publish to {}; expected a topic, a domain or a topic of a namespace",
                short_name(&self.0)
            ))),
        }
    }

    pub(crate) fn kind(&self) -> ResourceNameKind {
        match self.types_and_names()[..] {
            [("namespaces", _)] => ResourceNameKind::Namespace,
            [("namespaces", _), ("topics", _)] => ResourceNameKind::NamespaceTopic,
            [("domains", _), ("topics", _)] => ResourceNameKind::DomainTopic,
            _ => ResourceNameKind::Topic,
        }
    }

    /// Pairs of type (in lower case) and name, after the provider.
    fn types_and_names(&self) -> Vec<(&'static str, &str)> {
        const TYPES: [&str; 3] = ["topics", "domains", "namespaces"];
        let segments: Vec<&str> = self.0.split('/').collect();
        let provider = segments
            .iter()
            .position(|segment| segment.eq_ignore_ascii_case("Microsoft.EventGrid"));
        let rest = provider
            .and_then(|at| segments.get(at + 1..))
            .unwrap_or_default();
        let mut names = Vec::new();
        for pair in rest.chunks_exact(2) {
            let resource_type = TYPES
                .into_iter()
                .find(|known| known.eq_ignore_ascii_case(pair[0]));
            names.push((resource_type.unwrap_or_default(), pair[1]));
        }
        names
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceNameKind {
    /// A topic or a domain: has a log and event subscriptions.
    Topic,
    /// A topic of a domain: has event subscriptions and shares the domain's log.
    DomainTopic,
    /// A namespace: has topics only.
    Namespace,
    /// A topic of a namespace: has a log, and event subscriptions with a different JSON form.
    NamespaceTopic,
}

/// The name of a resource in a command: short in the default scope, otherwise the full id.
pub fn short_name(id: &str) -> String {
    match id
        .strip_prefix(SCOPE)
        .map(|rest| rest.trim_start_matches('/'))
    {
        Some(rest) => rest.strip_prefix("topics/").unwrap_or(rest).to_owned(),
        None => id.to_owned(),
    }
}

/// A name, percent-encoded as a path segment.
pub fn encode_segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}
