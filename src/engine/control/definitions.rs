//! The definitions of a cluster with several shards: the records of its control plane, for the
//! shards that have the events.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use bytes::Bytes;

use super::registry::{Error, parse_record};
use gridhook_journal as journal;
use gridhook_journal::replicated::ShardCopy;
use gridhook_record::topic::TopicRecord;
use gridhook_store::{
    Family, Store,
    keys::{self, MetaKind},
};

/// The kinds of records that shards follow.
pub(super) const FOLLOWED_KINDS: [MetaKind; 4] = [
    MetaKind::Namespace,
    MetaKind::Topic,
    MetaKind::DomainTopic,
    MetaKind::Subscription,
];

/// Records by kind and name.
pub(super) type Records = BTreeMap<(MetaKind, String), Bytes>;

/// The records of all topics, domain topics, namespaces and event subscriptions.
#[derive(Debug, Default)]
pub struct Definitions {
    /// The position up to which the store had applied its changelog: the definitions are at least
    /// as new.
    pub position: u64,
    records: Records,
    /// The topics by the key of their records.
    topics: BTreeMap<String, Arc<TopicRecord>>,
}

impl Definitions {
    /// Reads the definitions from the store of the control plane. Blocks. What is the same as
    /// `before` is not parsed again.
    ///
    /// # Errors
    /// If the store or a record cannot be read.
    pub fn read_store(store: &dyn Store, before: &Self) -> Result<Self, Error> {
        let applied = ShardCopy::read_applied(store).map_err(journal::Error::from)?;
        let mut definitions = Self {
            position: applied.map_or(0, |applied| applied.sequence),
            ..Self::default()
        };
        for kind in FOLLOWED_KINDS {
            let range = keys::meta_of(kind);
            let scan = store.scan(Family::Meta, &range.start, &range.end, &mut |key, value| {
                if let Some((_, name)) = keys::parse_meta(key) {
                    let key = (kind, String::from_utf8_lossy(name).into_owned());
                    let known = before.records.get(&key).filter(|known| ***known == *value);
                    let value = known.map_or_else(|| Bytes::copy_from_slice(value), Bytes::clone);
                    definitions.records.insert(key, value);
                }
                ControlFlow::Continue(())
            });
            scan.map_err(journal::Error::from)?;
        }
        for ((_, name), value) in records_from(&definitions.records, MetaKind::Topic) {
            let is_same = before.records.get(&(MetaKind::Topic, name.clone())) == Some(value);
            let topic = match before.topics.get(name).filter(|_| is_same) {
                Some(known) => Arc::clone(known),
                None => Arc::new(parse_record(name, value)?),
            };
            definitions.topics.insert(name.clone(), topic);
        }
        Ok(definitions)
    }

    /// The record of a topic or domain, by its key.
    pub fn find_topic(&self, key: &str) -> Option<&Arc<TopicRecord>> {
        self.topics.get(key)
    }

    pub(super) fn has_no_topic(&self) -> bool {
        self.topics.is_empty()
    }

    /// The keys of the names of all namespaces.
    pub fn namespace_keys(&self) -> impl Iterator<Item = &str> {
        records_from(&self.records, MetaKind::Namespace).map(|((_, name), _)| name.as_str())
    }

    /// The records that a shard has: all namespaces, and the topics for which `is_here` is true,
    /// with everything below them.
    pub(super) fn select_records(&self, is_here: impl Fn(&TopicRecord) -> bool) -> Records {
        let mut selected = Records::new();
        for (key, value) in &self.records {
            let (kind, name) = key;
            let topic = name.split_once('/').map_or(&**name, |(topic, _)| topic);
            if *kind == MetaKind::Namespace
                || self.find_topic(topic).is_some_and(|topic| is_here(topic))
            {
                selected.insert(key.clone(), value.clone());
            }
        }
        selected
    }
}

/// The records of a kind.
pub(super) fn records_from(
    records: &Records,
    kind: MetaKind,
) -> impl Iterator<Item = (&(MetaKind, String), &Bytes)> {
    records
        .range((kind, String::new())..)
        .take_while(move |((found, _), _)| *found == kind)
}
