//! Spread topics: each shard of a cluster has a part of the topic, with a log and actors of its
//! own.
//!
//! The shard that the name hashes to leads, and the others follow: operators change the topic and
//! its event subscriptions only there. Its core sends the definitions of all that it leads to the
//! core of each other shard, which stores them as it stores any topic, so that nothing that serves
//! topics knows of this.
//!
//! - A follower has a topic only while the leader has it: it is created after it, and deleted
//!   before it. So no shard takes an event of a topic that does not exist.
//! - A namespace with spread topics leads as its name does, and its record is part of the
//!   definition.
//! - A change is answered once all shards have it. If one cannot store it in time, the answer says
//!   so; it is sent again in the background, and a repeated request waits for it again.
//! - All that a shard leads is sent at once, and only if it differs from what the other shard has
//!   stored. So nothing depends on which changes were sent before.

use crate::AdminResult;
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use actix_web::web::{self, Bytes};
use futures_util::future::{BoxFuture, join_all};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AdminError, Control,
    arm::{TopicPath, namespace_lock_key},
    model::value_of,
};
use gridhook_cluster::shard_of;
use gridhook_engine::control::registry::{self, Registry};
use gridhook_event::{Name, SubscriptionId};
use gridhook_record::{
    namespace::NamespaceRecord, subscription::SubscriptionRecord, topic::TopicRecord,
};

/// The interval in which shards are looked at that have not stored the last change.
const INTERVAL: Duration = Duration::from_secs(1);

/// The cores of the other shards.
pub trait OtherCores: Send + Sync {
    /// Sends the JSON of [`Definitions`] to the core of a shard, which applies them.
    fn apply_definitions(
        &self,
        shard: usize,
        definitions: Bytes,
    ) -> BoxFuture<'_, Result<(), String>>;
}

/// All spread topics that a shard leads.
#[derive(Debug, Deserialize, Serialize)]
pub struct Definitions {
    leader: usize,
    /// The namespaces of the topics.
    #[serde(default)]
    namespaces: Vec<NamespaceRecord>,
    topics: Vec<TopicDefinition>,
}

/// A spread topic with its event subscriptions, as a follower stores them: without what each shard
/// numbers itself.
#[derive(Debug, Deserialize, Serialize)]
struct TopicDefinition {
    topic: TopicRecord,
    subscriptions: Vec<SubscriptionRecord>,
}

/// What the core of a shard does for the spread topics that it leads.
pub struct SpreadTopics {
    own: usize,
    cores: Box<dyn OtherCores>,
    /// For each shard, the hash of what it has stored last.
    stored: Vec<tokio::sync::Mutex<Option<u64>>>,
    /// The keys of topics, and of the locks of namespaces, that are being deleted.
    leaving: Arc<Mutex<BTreeSet<String>>>,
}

/// A topic or namespace that is being deleted, until this is dropped.
pub(super) struct Leaving {
    key: String,
    all: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}

impl SpreadTopics {
    /// Those of the shard `own`, one of `shards`.
    pub fn new(own: usize, shards: usize, cores: Box<dyn OtherCores>) -> Self {
        let stored = (0..shards).map(|_| tokio::sync::Mutex::default()).collect();
        Self {
            own,
            cores,
            stored,
            leaving: Arc::default(),
        }
    }

    fn led_definitions(&self, registry: &Registry) -> Definitions {
        let leaving = self
            .leaving
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut namespaces = BTreeMap::new();
        let mut topics = Vec::new();
        for topic in registry.list_topics() {
            let record = topic.record();
            let above = record.namespace.as_ref().map(|namespace| &namespace.name);
            let leaves = leaving.contains(&record.key())
                || above.is_some_and(|namespace| leaving.contains(&namespace_lock_key(namespace)));
            if !record.is_spread() || record.is_follower || leaves {
                continue;
            }
            if let Some(namespace) = above.and_then(|name| registry.find_namespace(name.as_str())) {
                namespaces.insert(namespace.key(), follower_of_namespace(&namespace));
            }
            let subscriptions = topic
                .list_subscriptions()
                .iter()
                .map(|record| without_numbers(record))
                .collect();
            topics.push(TopicDefinition {
                topic: follower_of(&record),
                subscriptions,
            });
        }
        Definitions {
            leader: self.own,
            namespaces: namespaces.into_values().collect(),
            topics,
        }
    }

    /// Sends no definition of what has this key until the result is dropped.
    fn begin_deletion(&self, key: String) -> Leaving {
        let all = Arc::clone(&self.leaving);
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone());
        Leaving { key, all }
    }

    /// Returns once every other shard has stored what this one leads.
    async fn share_definitions(&self, registry: &Registry) -> AdminResult<()> {
        let others = (0..self.stored.len()).filter(|shard| *shard != self.own);
        let shared = others.map(|shard| async move {
            let shared = self.share_with(registry, shard, true).await;
            shared.map_err(|why| format!("shard {shard}: {why}"))
        });
        let failures: Vec<String> = join_all(shared)
            .await
            .into_iter()
            .filter_map(Result::err)
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        Err(AdminError::Unavailable(format!(
            "Not every shard of the spread topic has the change yet ({}). It is sent again until \
             each has it; repeat the request to wait for that.",
            failures.join("; ")
        )))
    }

    /// Sends what this shard leads, unless the other one has it. A shard that never led anything
    /// has nothing to tell.
    async fn share_with(
        &self,
        registry: &Registry,
        shard: usize,
        is_asked: bool,
    ) -> Result<(), String> {
        let mut stored = self.stored[shard].lock().await;
        let led = self.led_definitions(registry);
        if led.topics.is_empty() && stored.is_none() && !is_asked {
            return Ok(());
        }
        let definitions = serde_json::to_vec(&led).map_err(|error| error.to_string())?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&definitions);
        let hash = Some(hasher.finish());
        if *stored != hash {
            *stored = None;
            self.cores
                .apply_definitions(shard, definitions.into())
                .await?;
            *stored = hash;
        }
        Ok(())
    }
}

/// Sends again what a shard has not stored, such as what is changed without a request.
pub async fn share_definitions(control: web::Data<Control>) {
    let Some(spread) = &control.spread else {
        return;
    };
    loop {
        let registry = &*control.registry;
        let others = (0..spread.stored.len()).filter(|shard| *shard != spread.own);
        let shared = others
            .map(|shard| async move { (shard, spread.share_with(registry, shard, false).await) });
        for (shard, shared) in join_all(shared).await {
            if let Err(why) = shared {
                tracing::debug!(
                    shard,
                    why,
                    "a shard has not stored the definitions of spread topics"
                );
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

impl Control {
    /// The number of shards of the cluster; 1 without several.
    pub(super) fn shard_count(&self) -> u32 {
        self.spread
            .as_ref()
            .map_or(1, |spread| spread.stored.len() as u32)
    }

    /// The number of this shard, in a cluster with several.
    pub(super) fn shard_number(&self) -> Option<usize> {
        self.spread.as_ref().map(|spread| spread.own)
    }

    /// The number of this shard, if the topic is spread.
    pub(super) fn shard_of_part(&self, record: &TopicRecord) -> Option<usize> {
        self.shard_number().filter(|_| record.is_spread())
    }

    /// Returns once every shard has a change of a spread topic.
    pub(super) async fn share_change(&self, path: &TopicPath) -> AdminResult<()> {
        let Some(spread) = &self.spread else {
            return Ok(());
        };
        match self.registry.find_topic(&path.topic_key()) {
            Some(topic) if topic.record().is_spread() => {
                spread.share_definitions(&self.registry).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns once every shard has a change of a namespace with spread topics.
    pub(super) async fn share_namespace(&self, name: &Name) -> AdminResult<()> {
        match self
            .spread
            .as_ref()
            .filter(|_| self.has_spread_topics(name))
        {
            Some(spread) => spread.share_definitions(&self.registry).await,
            None => Ok(()),
        }
    }

    fn has_spread_topics(&self, namespace: &Name) -> bool {
        self.registry
            .namespace_topics(namespace.as_str())
            .iter()
            .any(|topic| topic.record().is_spread())
    }

    /// Deletes the other parts of a spread topic that is deleted next. None is created while the
    /// result is held.
    pub(super) async fn delete_followers(
        &self,
        record: &TopicRecord,
    ) -> AdminResult<Option<Leaving>> {
        self.delete_followers_of(record.key(), record.is_spread())
            .await
    }

    /// The same for a namespace and its topics.
    pub(super) async fn delete_followers_of_namespace(
        &self,
        name: &Name,
    ) -> AdminResult<Option<Leaving>> {
        self.delete_followers_of(namespace_lock_key(name), self.has_spread_topics(name))
            .await
    }

    async fn delete_followers_of(
        &self,
        key: String,
        has_any: bool,
    ) -> AdminResult<Option<Leaving>> {
        let Some(spread) = self.spread.as_ref().filter(|_| has_any) else {
            return Ok(None);
        };
        let leaving = spread.begin_deletion(key);
        spread.share_definitions(&self.registry).await?;
        Ok(Some(leaving))
    }

    /// Makes what this shard has of the topics that another one leads the same as there.
    ///
    /// # Errors
    /// If a record cannot be stored. The others were.
    pub async fn apply_definitions(&self, definitions: Definitions) -> Result<(), registry::Error> {
        let Definitions {
            leader,
            namespaces,
            topics,
        } = definitions;
        let Some(spread) = self.spread.as_ref().filter(|spread| spread.own != leader) else {
            return Ok(());
        };
        let registry = &self.registry;
        let is_led = |name: &Name| shard_of(name.as_str(), spread.stored.len()) == leader;
        for topic in registry.list_topics() {
            let record = topic.record();
            let is_led_there = record.is_follower && is_led(record.leading_name());
            // A topic that was deleted and created again is another one.
            let is_same = |TopicDefinition { topic, .. }: &TopicDefinition| {
                topic.key() == record.key() && topic.metric_resource_id == record.metric_resource_id
            };
            if is_led_there && !topics.iter().any(is_same) {
                registry.delete_topic(&record.key()).await?;
            }
        }
        for known in registry.list_namespaces() {
            let is_left = !namespaces
                .iter()
                .any(|definition| definition.key() == known.key());
            if known.is_follower && is_led(&known.name) && is_left {
                registry.delete_namespace(known.name.as_str()).await?;
            }
        }
        let mut stored = Ok(());
        let mut failed = 0;
        for definition in namespaces {
            let key = definition.key();
            let known = registry.find_namespace(definition.name.as_str());
            if known.is_some_and(|known| value_of(&*known) == value_of(&definition)) {
                continue;
            }
            if let Err(error) = registry.put_namespace(definition).await {
                tracing::warn!(%error, namespace = key, "the namespace of a spread topic cannot be \
                    stored");
                (stored, failed) = (Err(error), failed + 1);
            }
        }
        for definition in topics {
            let key = definition.topic.key();
            if let Err(error) = apply_definition(registry, definition).await {
                tracing::warn!(%error, topic = key, "the definition of a spread topic cannot be \
                    stored");
                (stored, failed) = (Err(error), failed + 1);
            }
        }
        if failed > 1 {
            tracing::warn!(failed, "definitions of spread topics cannot be stored");
        }
        stored
    }
}

async fn apply_definition(
    registry: &Arc<Registry>,
    of_leader: TopicDefinition,
) -> Result<(), registry::Error> {
    let TopicDefinition {
        topic: record,
        subscriptions,
    } = of_leader;
    let key = record.key();
    let is_same = |known: &TopicRecord| value_of(&follower_of(known)) == value_of(&record);
    let topic = match registry
        .find_topic(&key)
        .filter(|known| is_same(&known.record()))
    {
        Some(known) => known,
        None => registry.put_topic(record).await?,
    };
    let stored_subscriptions: Vec<(String, Value)> = topic
        .list_subscriptions()
        .iter()
        .map(|known| (known.key(), value_of(&without_numbers(known))))
        .collect();
    for (name, _) in &stored_subscriptions {
        if !subscriptions.iter().any(|wanted| wanted.key() == *name) {
            registry.delete_subscription(&key, name).await?;
        }
    }
    for wanted in subscriptions {
        let name = wanted.key();
        let value = value_of(&wanted);
        if !stored_subscriptions
            .iter()
            .any(|(of, known)| *of == name && *known == value)
        {
            registry.put_follower(&key, wanted).await?;
        }
    }
    Ok(())
}

fn follower_of(record: &TopicRecord) -> TopicRecord {
    TopicRecord {
        partitions: Vec::new(),
        is_follower: true,
        ..record.clone()
    }
}

fn follower_of_namespace(record: &NamespaceRecord) -> NamespaceRecord {
    NamespaceRecord {
        is_follower: true,
        ..record.clone()
    }
}

/// Each shard assigns numbers and versions itself.
fn without_numbers(record: &SubscriptionRecord) -> SubscriptionRecord {
    SubscriptionRecord {
        number: SubscriptionId(0),
        version: 0,
        ..record.clone()
    }
}
