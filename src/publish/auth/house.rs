//! What a door belongs to: a topic or a domain, with rules and keys of its own; or a topic of a namespace, where the
//! namespace has the rules, and its keys are as good as the topic's.

use crate::{
    event::Name,
    publish::Refusal,
    topic::{
        ingress::Ingress,
        namespace::{self, NamespaceRecord},
        record::{Keys, TopicRecord},
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
    /// Whether it is a namespace's: there are ways to show a key that others do not have.
    pub(super) is_namespace: bool,
    /// Where it is below the server's own address, which a SAS token may name.
    pub(super) path: String,
}

impl<'a> House<'a> {
    /// A topic's, or a domain's.
    pub(in crate::publish) fn of(topic: &'a TopicRecord) -> Self {
        let path = format!("/{}/{}/api/events", topic.kind().word(), topic.name);
        Self { name: &topic.name, ingress: &topic.ingress, keys: vec![&topic.keys], is_namespace: false, path }
    }

    /// That of a topic of a namespace.
    pub(in crate::publish) fn in_namespace(namespace: &'a NamespaceRecord, topic: &'a TopicRecord) -> Self {
        let path = format!("/{}/{}/topics/{}", namespace::WORD, namespace.name, topic.name);
        let keys = vec![&namespace.keys, &topic.keys];
        Self { name: &topic.name, ingress: &namespace.ingress, keys, is_namespace: true, path }
    }

    /// Nobody said anything.
    pub(super) fn nothing_shown(&self) -> Refusal {
        if self.is_namespace { Refusal::NoAuthorization } else { Refusal::NoKey }
    }

    /// Something was said in a way that is not known here.
    pub(super) fn unknown_scheme(&self) -> Refusal {
        if self.is_namespace { Refusal::NoAuthorization } else { Refusal::Scheme }
    }
}
