//! The rules and keys that apply to a topic. A topic or domain has its own; for a topic of a
//! namespace the namespace has the rules, and keys of both are valid.

use std::collections::BTreeMap;

use actix_web::HttpRequest;

use crate::Refusal;
use gridhook_event::Name;
use gridhook_record::{
    ingress::IngressSettings,
    namespace::{self, NamespaceRecord},
    token::ScopedResource,
    topic::{AccessKeys, TopicKind, TopicRecord},
};

/// The resource that a request authenticates for.
pub(crate) struct KeyScope<'a> {
    pub(super) name: &'a Name,
    /// The address rules and the authentication settings.
    pub(super) ingress: &'a IngressSettings,
    pub(super) keys: Vec<&'a AccessKeys>,
    kind: TopicKind,
    /// The namespace of the topic, if any.
    namespace: Option<&'a Name>,
    /// The tags of the topic and its namespace.
    tags: Vec<&'a BTreeMap<String, String>>,
}

impl<'a> KeyScope<'a> {
    /// The scope of a topic or domain.
    pub(crate) fn for_topic(topic: &'a TopicRecord) -> Self {
        let keys = vec![&topic.keys];
        let kind = topic.kind();
        Self {
            name: &topic.name,
            ingress: &topic.ingress,
            keys,
            kind,
            namespace: None,
            tags: vec![&topic.tags],
        }
    }

    /// The scope of a topic of a namespace.
    pub(crate) fn in_namespace(namespace: &'a NamespaceRecord, topic: &'a TopicRecord) -> Self {
        let keys = vec![&namespace.keys, &topic.keys];
        let kind = topic.kind();
        let tags = vec![&topic.tags, &namespace.tags];
        Self {
            name: &topic.name,
            ingress: &namespace.ingress,
            keys,
            kind,
            namespace: Some(&namespace.name),
            tags,
        }
    }

    /// Whether the topic is in a namespace, which has further ways to send a key.
    pub(super) fn is_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    /// The full path of the resource below the server's URL, from the names of the matched route.
    pub(super) fn full_path<'b>(&'b self, request: &'b HttpRequest) -> Vec<&'b str> {
        let (above, own) = match self.namespace {
            Some(namespace) => (
                vec![namespace::PATH_SEGMENT, namespace.as_str()],
                ["topics", self.name.as_str()],
            ),
            None => (
                vec![self.kind.path_segment(), self.name.as_str()],
                ["api", "events"],
            ),
        };
        let subscription = request
            .match_info()
            .get("subscription")
            .map(|name| ["eventsubscriptions", name]);
        above
            .into_iter()
            .chain(own)
            .chain(subscription.into_iter().flatten())
            .collect()
    }

    /// The path as the route has it, without names that the host gives.
    pub(super) fn routed_path<'b>(&'b self, request: &'b HttpRequest) -> Vec<&'b str> {
        let names = request.match_info();
        let top_name = match self.namespace {
            Some(_) => names.get("namespace"),
            None => names.get("topic").or(names.get("domain")),
        };
        let mut path = self.full_path(request);
        if top_name.is_none() {
            path.drain(..2);
        }
        path
    }

    /// The resource that a token must cover.
    pub(super) fn token_resource(&self, request: &HttpRequest) -> ScopedResource {
        let path = self
            .full_path(request)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let mut resource = ScopedResource {
            path,
            labels: Vec::new(),
        };
        for tags in &self.tags {
            resource.add_tags(tags);
        }
        resource
    }

    /// The refusal of a request without a credential.
    pub(super) fn no_credential(&self) -> Refusal {
        if self.is_namespace() {
            Refusal::NoAuthorization
        } else {
            Refusal::NoKey
        }
    }

    pub(super) fn unknown_scheme(&self) -> Refusal {
        if self.is_namespace() {
            Refusal::NoAuthorization
        } else {
            Refusal::Scheme
        }
    }
}
