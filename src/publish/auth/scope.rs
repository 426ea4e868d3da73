//! What a door belongs to: a topic or a domain, with rules and keys of its own; or a topic of a namespace, where the
//! namespace has the rules, and its keys are as good as the topic's.

use actix_web::HttpRequest;

use crate::{
    control::record::{
        ingress::IngressSettings,
        namespace::{self, NamespaceRecord},
        topic::{AccessKeys, TopicKind, TopicRecord},
    },
    event::Name,
    publish::Refusal,
};

/// Where somebody wants in.
pub(in crate::publish) struct KeyScope<'a> {
    /// What it is called when somebody is sent away.
    pub(super) name: &'a Name,
    /// Who may come, and from where.
    pub(super) ingress: &'a IngressSettings,
    /// The keys that are good.
    pub(super) keys: Vec<&'a AccessKeys>,
    kind: TopicKind,
    /// What it is a topic of.
    namespace: Option<&'a Name>,
}

impl<'a> KeyScope<'a> {
    /// A topic's, or a domain's.
    pub(in crate::publish) fn of(topic: &'a TopicRecord) -> Self {
        let (keys, kind) = (vec![&topic.keys], topic.kind());
        Self { name: &topic.name, ingress: &topic.ingress, keys, kind, namespace: None }
    }

    /// That of a topic of a namespace.
    pub(in crate::publish) fn in_namespace(namespace: &'a NamespaceRecord, topic: &'a TopicRecord) -> Self {
        let (keys, kind) = (vec![&namespace.keys, &topic.keys], topic.kind());
        Self { name: &topic.name, ingress: &namespace.ingress, keys, kind, namespace: Some(&namespace.name) }
    }

    /// Whether it is a namespace's: there are ways to show a key that others do not have.
    pub(super) fn is_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    /// The path of what the request is for, below the server's own address: the names of the matched route, all spelled
    /// out.
    pub(super) fn path<'b>(&'b self, request: &'b HttpRequest) -> Vec<&'b str> {
        let (above, own) = match self.namespace {
            Some(namespace) => (vec![namespace::PATH_SEGMENT, namespace.as_str()], ["topics", self.name.as_str()]),
            None => (vec![self.kind.path_segment(), self.name.as_str()], ["api", "events"]),
        };
        let subscription = request.match_info().get("subscription").map(|name| ["eventsubscriptions", name]);
        above.into_iter().chain(own).chain(subscription.into_iter().flatten()).collect()
    }

    /// The same as the route has it: the host names what the path does not.
    pub(super) fn routed<'b>(&'b self, request: &'b HttpRequest) -> Vec<&'b str> {
        let names = request.match_info();
        let named = match self.namespace {
            Some(_) => names.get("namespace"),
            None => names.get("topic").or(names.get("domain")),
        };
        let mut path = self.path(request);
        if named.is_none() {
            path.drain(..2);
        }
        path
    }

    /// Nobody said anything.
    pub(super) fn no_credential(&self) -> Refusal {
        if self.is_namespace() { Refusal::NoAuthorization } else { Refusal::NoKey }
    }

    /// Something was said in a way that is not known here.
    pub(super) fn unknown_scheme(&self) -> Refusal {
        if self.is_namespace() { Refusal::NoAuthorization } else { Refusal::Scheme }
    }
}
