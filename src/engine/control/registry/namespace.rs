//! Changes and lookups of namespaces.

use std::sync::Arc;

use super::{
    Error, Registry, TopicHandle,
    change::{run_detached, to_json},
};
use crate::control::audit::write_changes;
use gridhook_escape::count_with_noun;
use gridhook_journal::MetaChange;
use gridhook_record::{namespace::NamespaceRecord, topic::TopicRecord};
use gridhook_store::keys::MetaKind;

impl Registry {
    /// A namespace by its name, in any case.
    pub fn find_namespace(&self, name: &str) -> Option<Arc<NamespaceRecord>> {
        let namespaces = self.namespaces.read();
        namespaces.get(&name.to_ascii_lowercase()).cloned()
    }

    /// All namespaces in the order of their names.
    pub fn list_namespaces(&self) -> Vec<Arc<NamespaceRecord>> {
        self.namespaces.read().values().cloned().collect()
    }

    /// The only namespace, if there is exactly one.
    pub fn sole_namespace(&self) -> Option<Arc<NamespaceRecord>> {
        let namespaces = self.namespaces.read();
        namespaces
            .values()
            .next()
            .filter(|_| namespaces.len() == 1)
            .cloned()
    }

    /// The topics of a namespace, by name.
    pub fn namespace_topics(&self, namespace: &str) -> Vec<Arc<TopicHandle>> {
        let mut topics = self.list_topics();
        topics.retain(|topic| is_of(&topic.record(), namespace));
        topics
    }

    /// Creates a namespace or replaces its record.
    pub async fn put_namespace(
        self: &Arc<Self>,
        record: NamespaceRecord,
    ) -> Result<Arc<NamespaceRecord>, Error> {
        let registry = Arc::clone(self);
        run_detached(async move {
            let _guard = registry.numbers.lock().await;
            let key = record.key();
            let max = registry.rules.topics_max;
            if registry.find_namespace(&key).is_none() && registry.list_namespaces().len() >= max {
                let namespaces = count_with_noun(max, "namespace");
                let full = format!("The maximum of {namespaces} is reached (limits.topics).");
                return Err(Error::Full(full));
            }
            let put = MetaChange::Put(MetaKind::Namespace, key, to_json(&record));
            write_changes(&registry.journal, vec![put]).await?;
            Ok(registry.insert_namespace(record))
        })
        .await
    }

    /// Deletes a namespace, its topics and their subscriptions. Returns false if it does not exist.
    pub async fn delete_namespace(self: &Arc<Self>, name: &str) -> Result<bool, Error> {
        let registry = Arc::clone(self);
        let name = name.to_ascii_lowercase();
        run_detached(async move {
            let _guard = registry.numbers.lock().await;
            if registry.find_namespace(&name).is_none() {
                return Ok(false);
            }
            let topics = registry.namespace_topics(&name);
            let mut changes = vec![MetaChange::Delete(MetaKind::Namespace, name.clone())];
            changes.extend(topics.iter().flat_map(Registry::deletion_changes));
            write_changes(&registry.journal, changes).await?;
            registry.remove_namespace(&name);
            for topic in &topics {
                registry.forget_topic(topic);
            }
            Ok(true)
        })
        .await
    }

    pub(super) fn insert_namespace(&self, record: NamespaceRecord) -> Arc<NamespaceRecord> {
        let record = Arc::new(record);
        let mut namespaces = self.namespaces.write();
        namespaces.insert(record.key(), Arc::clone(&record));
        record
    }

    pub(super) fn remove_namespace(&self, key: &str) {
        let mut namespaces = self.namespaces.write();
        namespaces.remove(key);
    }

    /// Checks that the namespace of a topic exists.
    pub(super) fn check_namespace(&self, topic: &TopicRecord) -> Result<(), Error> {
        match &topic.namespace {
            Some(namespace) if self.find_namespace(namespace.name.as_str()).is_none() => Err(
                Error::Unknown(format!("there is no namespace '{}'", namespace.name)),
            ),
            Some(_) | None => Ok(()),
        }
    }
}

fn is_of(topic: &TopicRecord, namespace: &str) -> bool {
    topic
        .namespace
        .as_ref()
        .is_some_and(|of| of.name.as_str().eq_ignore_ascii_case(namespace))
}
