//! Spread topics: each shard of a cluster has a part of the topic, with a log and actors of its own.
//!
//! The shard that the name hashes to leads, and the others follow: operators change the topic and its event subscriptions only
//! there. Its core sends the definitions of all that it leads to the core of each other shard, which stores them as it stores
//! any topic, so that nothing that serves topics knows of this.
//!
//! - A follower has a topic only while the leader has it: it is created after it, and deleted before it. So no shard takes an
//!   event of a topic that does not exist.
//! - A change is answered once all shards have it. If one cannot store it in time, the answer says so; it is sent again in the
//!   background, and a repeated request waits for it again.
//! - All that a shard leads is sent at once, and only if it differs from what the other shard has stored. So nothing depends on
//!   which changes were sent before.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use actix_web::web::{self, Bytes};
use futures_util::future::{BoxFuture, join_all};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AdminError, Control, arm::TopicPath, model::value_of};
use crate::{
    cluster::shard_of,
    control::{
        record::{subscription::SubscriptionRecord, topic::TopicRecord},
        registry::{self, Registry},
    },
    event::SubscriptionId,
};

/// The interval in which shards are looked at that have not stored the last change.
const INTERVAL: Duration = Duration::from_secs(1);

/// The cores of the other shards.
pub trait OtherCores: Send + Sync {
    /// Sends the JSON of [`Definitions`] to the core of a shard, which applies them.
    fn apply_definitions(&self, shard: usize, definitions: Bytes) -> BoxFuture<'_, Result<(), String>>;
}

/// All spread topics that a shard leads.
#[derive(Debug, Deserialize, Serialize)]
pub struct Definitions {
    leader: usize,
    topics: Vec<TopicDefinition>,
}

/// A spread topic with its event subscriptions, as a follower stores them: without what each shard numbers itself.
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
    /// The keys of topics that are being deleted.
    leaving: Arc<Mutex<BTreeSet<String>>>,
}

/// A topic that is being deleted, until this is dropped.
pub(super) struct Leaving {
    key: String,
    all: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl SpreadTopics {
    /// Those of the shard `own`, one of `shards`.
    pub fn new(own: usize, shards: usize, cores: Box<dyn OtherCores>) -> Self {
        let stored = (0..shards).map(|_| tokio::sync::Mutex::default()).collect();
        Self { own, cores, stored, leaving: Arc::default() }
    }

    fn led(&self, registry: &Registry) -> Vec<TopicDefinition> {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let led = registry.topics().into_iter().filter_map(|topic| {
            let record = topic.record();
            let is_led = record.is_spread() && !record.is_follower && !leaving.contains(&record.key());
            let subscriptions = || topic.subscriptions().iter().map(|record| unnumbered(record)).collect();
            is_led.then(|| TopicDefinition { topic: follower_of(&record), subscriptions: subscriptions() })
        });
        led.collect()
    }

    /// Returns once every other shard has stored what this one leads.
    async fn share(&self, registry: &Registry) -> Result<(), AdminError> {
        let others = (0..self.stored.len()).filter(|shard| *shard != self.own);
        let shared = others.map(|shard| async move {
            let shared = self.share_with(registry, shard, true).await;
            shared.map_err(|why| format!("shard {shard}: {why}"))
        });
        let failed: Vec<String> = join_all(shared).await.into_iter().filter_map(Result::err).collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(AdminError::Unavailable(format!(
            "Not every shard of the spread topic has the change yet ({}). It is sent again until each has it; repeat \
             the request to wait for that.",
            failed.join("; ")
        )))
    }

    /// Sends what this shard leads, unless the other one has it. A shard that never led anything has nothing to tell.
    async fn share_with(&self, registry: &Registry, shard: usize, is_asked: bool) -> Result<(), String> {
        let mut stored = self.stored[shard].lock().await;
        let led = self.led(registry);
        if led.is_empty() && stored.is_none() && !is_asked {
            return Ok(());
        }
        let definitions =
            serde_json::to_vec(&Definitions { leader: self.own, topics: led }).map_err(|error| error.to_string())?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&definitions);
        let hash = Some(hasher.finish());
        if *stored != hash {
            *stored = None;
            self.cores.apply_definitions(shard, definitions.into()).await?;
            *stored = hash;
        }
        Ok(())
    }
}

/// Sends again what a shard has not stored, such as what is changed without a request.
pub async fn share_definitions(control: web::Data<Control>) {
    let Some(spread) = &control.spread else { return };
    loop {
        let registry = &*control.registry;
        let others = (0..spread.stored.len()).filter(|shard| *shard != spread.own);
        let shared = others.map(|shard| async move { (shard, spread.share_with(registry, shard, false).await) });
        for (shard, shared) in join_all(shared).await {
            if let Err(why) = shared {
                tracing::debug!(shard, why, "a shard has not stored the definitions of spread topics");
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

impl Control {
    /// The number of shards of the cluster; 1 without several.
    pub(super) fn shards(&self) -> u32 {
        self.spread.as_ref().map_or(1, |spread| spread.stored.len() as u32)
    }

    /// The number of this shard, in a cluster with several.
    pub(super) fn shard(&self) -> Option<usize> {
        self.spread.as_ref().map(|spread| spread.own)
    }

    /// The number of this shard, if the topic is spread.
    pub(super) fn shard_of_part(&self, record: &TopicRecord) -> Option<usize> {
        self.shard().filter(|_| record.is_spread())
    }

    /// Returns once every shard has a change of a spread topic.
    pub(super) async fn share_change(&self, path: &TopicPath) -> Result<(), AdminError> {
        let Some(spread) = &self.spread else { return Ok(()) };
        match self.registry.topic(&path.key()) {
            Some(topic) if topic.record().is_spread() => spread.share(&self.registry).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Deletes the other parts of a spread topic that is deleted next. None is created while the result is held.
    pub(super) async fn delete_followers(&self, record: &TopicRecord) -> Result<Option<Leaving>, AdminError> {
        let Some(spread) = self.spread.as_ref().filter(|_| record.is_spread()) else { return Ok(None) };
        let (key, all) = (record.key(), Arc::clone(&spread.leaving));
        all.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        let leaving = Leaving { key, all };
        spread.share(&self.registry).await?;
        Ok(Some(leaving))
    }

    /// Makes what this shard has of the topics that another one leads the same as there.
    ///
    /// # Errors
    /// If a record cannot be stored. The others were.
    pub async fn apply_definitions(&self, definitions: Definitions) -> Result<(), registry::Error> {
        let Definitions { leader, topics } = definitions;
        let Some(spread) = self.spread.as_ref().filter(|spread| spread.own != leader) else { return Ok(()) };
        let registry = &self.registry;
        for topic in registry.topics() {
            let record = topic.record();
            let is_led_there = record.is_follower && shard_of(record.name.as_str(), spread.stored.len()) == leader;
            // A topic that was deleted and created again is another one.
            let is_same = |TopicDefinition { topic, .. }: &TopicDefinition| {
                topic.key() == record.key() && topic.metric_resource_id == record.metric_resource_id
            };
            if is_led_there && !topics.iter().any(is_same) {
                registry.delete_topic(&record.key()).await?;
            }
        }
        let (mut stored, mut failed) = (Ok(()), 0);
        for definition in topics {
            let key = definition.topic.key();
            if let Err(error) = apply_definition(registry, definition).await {
                tracing::warn!(%error, topic = key, "the definition of a spread topic cannot be stored");
                (stored, failed) = (Err(error), failed + 1);
            }
        }
        if failed > 1 {
            tracing::warn!(failed, "definitions of spread topics cannot be stored");
        }
        stored
    }
}

async fn apply_definition(registry: &Arc<Registry>, of_leader: TopicDefinition) -> Result<(), registry::Error> {
    let TopicDefinition { topic: record, subscriptions } = of_leader;
    let key = record.key();
    let is_same = |known: &TopicRecord| value_of(&follower_of(known)) == value_of(&record);
    let topic = match registry.topic(&key).filter(|known| is_same(&known.record())) {
        Some(known) => known,
        None => registry.put_topic(record).await?,
    };
    let known: Vec<(String, Value)> =
        topic.subscriptions().iter().map(|known| (known.key(), value_of(&unnumbered(known)))).collect();
    for (name, _) in &known {
        if !subscriptions.iter().any(|wanted| wanted.key() == *name) {
            registry.delete_subscription(&key, name).await?;
        }
    }
    for wanted in subscriptions {
        let (name, value) = (wanted.key(), value_of(&wanted));
        if !known.iter().any(|(of, known)| *of == name && *known == value) {
            registry.put_follower(&key, wanted).await?;
        }
    }
    Ok(())
}

/// The record of a follower.
fn follower_of(record: &TopicRecord) -> TopicRecord {
    TopicRecord { partitions: Vec::new(), is_follower: true, ..record.clone() }
}

/// Each shard assigns numbers and versions itself.
fn unnumbered(record: &SubscriptionRecord) -> SubscriptionRecord {
    SubscriptionRecord { number: SubscriptionId(0), version: 0, ..record.clone() }
}
