//! What a door belongs to: a topic or a domain, with rules and keys of its own; or a topic of a namespace, where the
//! namespace has the rules, and its keys are as good as the topic's.

use crate::{
    event::Name,
    publish::Refusal,
    topic::{
        ingress::Ingress,
        namespace::{self, NamespaceRecord},
        record::{Keys, Kind, TopicRecord},
    },
};

/// Where somebody wants in.
pub(in crate::publish) struct House<'a> {
    /// What it is called when somebody is sent away.
    pub(super) name: &'a Name,
    /// Who may come, and from where.
    pub(super) ingress: &'a Ingress,
    /// The keys that are good.
    pub(super) keys: Vec<&'a Keys>,
    kind: Kind,
    /// What it is a topic of.
    namespace: Option<&'a Name>,
}

impl<'a> House<'a> {
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

    /// Where it is below the server's own address, which a SAS token may name.
    pub(super) fn path(&self) -> String {
        match self.namespace {
            Some(namespace) => format!("/{}/{namespace}/topics/{}", namespace::WORD, self.name),
            None => format!("/{}/{}/api/events", self.kind.word(), self.name),
        }
    }

    /// Nobody said anything.
    pub(super) fn nothing_shown(&self) -> Refusal {
        if self.is_namespace() { Refusal::NoAuthorization } else { Refusal::NoKey }
    }

    /// Something was said in a way that is not known here.
    pub(super) fn unknown_scheme(&self) -> Refusal {
        if self.is_namespace() { Refusal::NoAuthorization } else { Refusal::Scheme }
    }
}
