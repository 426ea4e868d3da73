//! Parses ARM's paths: keywords are compared without case, names are kept as given.
//!
//! actix-web's routes compare with case, so a pure function looks up the path in the table of
//! [`super::routes`]. Doubled slashes are ignored, because Azure's clients append scopes that begin
//! with a slash.

use percent_encoding::percent_decode_str;

use super::routes::{ArmRoute, ROUTES};
use crate::{AdminError, AdminResult};
use gridhook_event::Name;
use gridhook_record::{
    token::ScopedResource,
    topic::{self, ArmScope, TopicKind},
};

/// An Azure subscription, or one resource group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureScope {
    pub subscription: String,
    /// The resource group, if the path has one.
    pub resource_group: Option<String>,
}

/// A topic, a domain or a domain topic in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPath {
    /// Azure subscription and resource group.
    pub scope: ArmScope,
    pub kind: TopicKind,
    pub name: Name,
    pub namespace: Option<Name>,
    /// The domain topic, if the path has one.
    pub domain_topic: Option<Name>,
}

impl TopicPath {
    /// The key of the topic or the domain.
    pub fn topic_key(&self) -> String {
        match &self.namespace {
            Some(namespace) => topic::key_in_namespace(namespace.as_str(), self.name.as_str()),
            None => topic::key(self.kind, self.name.as_str()),
        }
    }

    /// Resource type and name, such as `Microsoft.EventGrid/topics/orders`.
    pub fn resource_name(&self) -> String {
        let above = self
            .namespace
            .as_ref()
            .map(|name| format!("namespaces/{name}/"))
            .unwrap_or_default();
        let own = format!(
            "Microsoft.EventGrid/{above}{}/{}",
            self.kind.path_segment(),
            self.name
        );
        self.domain_topic
            .as_ref()
            .map_or(own.clone(), |topic| format!("{own}/topics/{topic}"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePath {
    /// Azure subscription and resource group.
    pub scope: ArmScope,
    pub name: Name,
}

/// A path of a route, and the names in it.
pub struct ArmPath {
    pub route: &'static ArmRoute,
    /// The values of the route's parameters.
    pub names: Vec<(&'static str, String)>,
}

/// Finds the route of a path; [`None`] for an unknown path.
pub fn find_route(path: &str) -> Option<ArmPath> {
    let segments: Vec<String> = split_segments(path).collect::<Option<_>>()?;
    if segments.iter().any(|segment| segment.contains('/')) {
        return None;
    }
    let words: Vec<String> = segments
        .iter()
        .map(|segment| segment.to_ascii_lowercase())
        .collect();
    ROUTES.iter().find_map(|route| {
        Some(ArmPath {
            route,
            names: route.names(&segments, &words)?,
        })
    })
}

/// The resource whose event subscription a path names, if it is not a source of events here.
pub(super) fn other_source(path: &str) -> Option<String> {
    let segments: Vec<String> = split_segments(path).collect::<Option<_>>()?;
    let words: Vec<String> = segments
        .iter()
        .map(|segment| segment.to_ascii_lowercase())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [
            "subscriptions",
            _,
            ..,
            "providers",
            "microsoft.eventgrid",
            "eventsubscriptions",
            _,
        ] => Some(segments[..segments.len() - 4].join("/")),
        _ => None,
    }
}

fn split_segments(path: &str) -> impl DoubleEndedIterator<Item = Option<String>> {
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    segments.map(|segment| {
        percent_decode_str(segment)
            .decode_utf8()
            .ok()
            .map(|text| text.into_owned())
    })
}

impl ArmPath {
    /// The name that a parameter has; an error is a bug in the table of routes.
    pub(crate) fn name(&self, parameter: &str) -> AdminResult<&str> {
        self.optional_name(parameter)
            .ok_or(AdminError::Broken("the path has no such parameter"))
    }

    /// The name that a parameter has, if the path has it.
    pub(crate) fn optional_name(&self, parameter: &str) -> Option<&str> {
        self.names
            .iter()
            .find(|(known, _)| *known == parameter)
            .map(|(_, name)| name.as_str())
    }

    /// The resource that the path names, without labels; [`None`] for a list of all topics and the
    /// like.
    pub(super) fn scoped_resource(&self) -> Option<ScopedResource> {
        let kinds = [
            ("namespaceName", "namespaces"),
            ("domainName", "domains"),
            ("topicName", "topics"),
            ("domainTopicName", "topics"),
            ("eventSubscriptionName", "eventSubscriptions"),
        ];
        let names = kinds
            .into_iter()
            .filter_map(|(parameter, kind)| Some([kind, self.optional_name(parameter)?]));
        let path: Vec<String> = names.flatten().map(str::to_owned).collect();
        (!path.is_empty()).then(|| ScopedResource {
            path,
            labels: Vec::new(),
        })
    }

    pub(super) fn last_name(&self) -> &str {
        self.names.last().map_or("", |(_, name)| name)
    }

    /// Azure subscription and resource group.
    pub(super) fn arm_scope(&self) -> AdminResult<ArmScope> {
        let subscription = self.name("subscriptionId")?;
        let resource_group = self.name("resourceGroupName")?;
        Ok(ArmScope {
            subscription: subscription.to_owned(),
            resource_group: resource_group.to_owned(),
        })
    }

    /// Azure subscription, and the resource group if the path has one.
    pub fn azure_scope(&self) -> AdminResult<AzureScope> {
        let resource_group = self.optional_name("resourceGroupName").map(str::to_owned);
        Ok(AzureScope {
            subscription: self.name("subscriptionId")?.to_owned(),
            resource_group,
        })
    }

    /// The topic, the domain or the domain topic.
    pub fn topic(&self) -> AdminResult<TopicPath> {
        let namespace = self.optional_name("namespaceName").map(Name::new);
        let (kind, name) = match self.optional_name("domainName") {
            Some(name) => (TopicKind::Domain, name),
            None if namespace.is_some() => (TopicKind::NamespaceTopic, self.name("topicName")?),
            None => (TopicKind::Topic, self.name("topicName")?),
        };
        let domain_topic = self.optional_name("domainTopicName").map(Name::new);
        Ok(TopicPath {
            scope: self.arm_scope()?,
            kind,
            name: Name::new(name),
            namespace,
            domain_topic,
        })
    }

    /// Whether the path is that of a topic, a domain or a domain topic itself.
    pub(crate) fn is_topic(&self) -> bool {
        let ends = |name: &&str| self.route.template.ends_with(&format!("/{{{name}}}"));
        ["topicName", "domainName", "domainTopicName"]
            .iter()
            .any(ends)
    }

    /// Whether the path is that of a resource group itself.
    pub(super) fn is_resource_group(&self) -> bool {
        self.route.template.ends_with("/{resourceGroupName}")
    }

    pub(super) fn namespace(&self) -> AdminResult<NamespacePath> {
        Ok(NamespacePath {
            scope: self.arm_scope()?,
            name: Name::new(self.name("namespaceName")?),
        })
    }

    /// The key of the event subscription: its name, prefixed with the domain topic and a slash.
    pub fn subscription(&self) -> AdminResult<String> {
        let name = self.name("eventSubscriptionName")?;
        Ok(self.optional_name("domainTopicName").map_or_else(
            || name.to_owned(),
            |topic| format!("{}/{name}", Name::new(topic)),
        ))
    }
}
