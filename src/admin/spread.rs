//! Spread topics: each shard of a cluster has a part of the topic, with a log and actors of its own.
//!
//! The shard that the name hashes to leads: operators change its record and its event subscriptions only there. Its core sends
//! all that it leads to the core of each other shard, which stores copies of the records as it stores any topic, so that
//! nothing that serves topics knows of this.
//!
//! - A copy exists only while the leader has the topic: it is created after it, and deleted before it. So no shard takes an
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
    /// Sends the copies, as JSON of [`Copies`], to the core of a shard, which stores them.
    fn store_copies(&self, shard: usize, copies: Bytes) -> BoxFuture<'_, Result<(), String>>;
}

/// All that a shard leads.
#[derive(Debug, Deserialize, Serialize)]
pub struct Copies {
    leader: usize,
    topics: Vec<TopicCopy>,
}

/// The records of a spread topic, without what each shard numbers itself.
#[derive(Debug, Deserialize, Serialize)]
struct TopicCopy {
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

    fn led(&self, registry: &Registry) -> Vec<TopicCopy> {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let led = registry.topics().into_iter().filter_map(|topic| {
            let record = topic.record();
            let is_led = record.is_spread() && !record.is_copy && !leaving.contains(&record.key());
            let subscriptions = || topic.subscriptions().iter().map(|record| unnumbered(record)).collect();
            is_led.then(|| TopicCopy { topic: copy(&record), subscriptions: subscriptions() })
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
        let copies =
            serde_json::to_vec(&Copies { leader: self.own, topics: led }).map_err(|error| error.to_string())?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&copies);
        let hash = Some(hasher.finish());
        if *stored != hash {
            *stored = None;
            self.cores.store_copies(shard, copies.into()).await?;
            *stored = hash;
        }
        Ok(())
    }
}

/// Sends again what a shard has not stored, such as what is changed without a request.
pub async fn share_copies(control: web::Data<Control>) {
    let Some(spread) = &control.spread else { return };
    loop {
        let registry = &*control.registry;
        let others = (0..spread.stored.len()).filter(|shard| *shard != spread.own);
        let shared = others.map(|shard| async move { (shard, spread.share_with(registry, shard, false).await) });
        for (shard, shared) in join_all(shared).await {
            if let Err(why) = shared {
                tracing::debug!(shard, why, "a shard has not stored the copies of spread topics");
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

    /// The number of this shard, if the topic is spread.
    pub(super) fn shard_of_part(&self, record: &TopicRecord) -> Option<usize> {
        self.spread.as_ref().filter(|_| record.is_spread()).map(|spread| spread.own)
    }

    /// Returns once every shard has a change of a spread topic.
    pub(super) async fn share_change(&self, path: &TopicPath) -> Result<(), AdminError> {
        let Some(spread) = &self.spread else { return Ok(()) };
        match self.registry.topic(&path.key()) {
            Some(topic) if topic.record().is_spread() => spread.share(&self.registry).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Deletes the copies of a spread topic that is deleted next. None is created while the result is held.
    pub(super) async fn delete_copies(&self, record: &TopicRecord) -> Result<Option<Leaving>, AdminError> {
        let Some(spread) = self.spread.as_ref().filter(|_| record.is_spread()) else { return Ok(None) };
        let (key, all) = (record.key(), Arc::clone(&spread.leaving));
        all.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        let leaving = Leaving { key, all };
        spread.share(&self.registry).await?;
        Ok(Some(leaving))
    }

    /// Makes the copies that this shard has of what another one leads the same as those.
    ///
    /// # Errors
    /// If a record cannot be stored. The others were.
    pub async fn store_copies(&self, copies: Copies) -> Result<(), registry::Error> {
        let Copies { leader, topics } = copies;
        let Some(spread) = self.spread.as_ref().filter(|spread| spread.own != leader) else { return Ok(()) };
        let registry = &self.registry;
        for topic in registry.topics() {
            let record = topic.record();
            let is_led_there = record.is_copy && shard_of(record.name.as_str(), spread.stored.len()) == leader;
            // A topic that was deleted and created again is another one.
            let is_same = |copy: &TopicCopy| {
                copy.topic.key() == record.key() && copy.topic.metric_resource_id == record.metric_resource_id
            };
            if is_led_there && !topics.iter().any(is_same) {
                registry.delete_topic(&record.key()).await?;
            }
        }
        let (mut stored, mut failed) = (Ok(()), 0);
        for copy in topics {
            let key = copy.topic.key();
            if let Err(error) = store_copy(registry, copy).await {
                tracing::warn!(%error, topic = key, "the copy of a spread topic cannot be stored");
                (stored, failed) = (Err(error), failed + 1);
            }
        }
        if failed > 1 {
            tracing::warn!(failed, "copies of spread topics cannot be stored");
        }
        stored
    }
}

async fn store_copy(registry: &Arc<Registry>, of_leader: TopicCopy) -> Result<(), registry::Error> {
    let TopicCopy { topic: record, subscriptions } = of_leader;
    let key = record.key();
    let is_same = |known: &TopicRecord| value_of(&copy(known)) == value_of(&record);
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
            registry.put_copy(&key, wanted).await?;
        }
    }
    Ok(())
}

/// The record of the copy in another shard.
fn copy(record: &TopicRecord) -> TopicRecord {
    TopicRecord { partitions: Vec::new(), is_copy: true, ..record.clone() }
}

/// Each shard assigns numbers and versions itself.
fn unnumbered(record: &SubscriptionRecord) -> SubscriptionRecord {
    SubscriptionRecord { number: SubscriptionId(0), version: 0, ..record.clone() }
}
