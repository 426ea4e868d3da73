//! A shard of a cluster with several follows the control plane: it creates, changes and deletes its
//! topics and event subscriptions as the [`Definitions`] say.
//!
//! Invariants:
//! - The records, numbers included, are those of the control plane byte for byte. So what was
//!   deleted and created again is another topic or event subscription.
//! - How far a shard has followed is in the batch of what it changed. Older definitions, such as
//!   those of a node that lags, change nothing.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{
    Error, Registry, SubscriptionHandle, TopicHandle,
    change::{deletion_of_subscription, put_numbers, run_detached},
    parse_record, to_json,
};
use crate::control::{
    definitions::{Definitions, FOLLOWED_KINDS, Records, records_from},
    filter_versions,
};
use gridhook_event::{Name, SubscriptionKey};
use gridhook_journal::MetaChange;
use gridhook_record::{
    followed::FollowedRecord,
    namespace::NamespaceRecord,
    subscription::SubscriptionRecord,
    topic::{DomainTopic, TopicRecord},
};
use gridhook_store::keys::MetaKind;
use gridhook_subscription::DeliveryPlan;

/// The name of the record of how far the shard has followed.
const POSITION: &str = "";

const NO_CONTROL_PLANE: &str = "the control plane of this cluster has no topic, and the shard has \
    topics of another cluster; nothing was changed: restore the control plane, too, whose number is \
    that of the shards (gridhook help cluster)";

/// How many numbers a control plane skips after its store was restored: more than one assigns
/// between two backups.
const SKIPPED_NUMBERS: u32 = 1 << 20;

/// The place of a shard in its cluster, from which its topics follow.
#[derive(Clone, Debug)]
pub struct ShardTopics {
    /// The identifier of the cluster.
    pub cluster: Arc<str>,
    /// The number of the shard.
    pub own: usize,
    pub shards: usize,
    /// Returns the shard of a name, of this number of shards.
    pub shard_of: fn(&str, usize) -> usize,
}

impl ShardTopics {
    /// Whether the shard has the topic, or leads it if it is spread.
    pub fn is_leading(&self, topic: &TopicRecord) -> bool {
        (self.shard_of)(topic.leading_name().as_str(), self.shards) == self.own
    }

    /// Whether the shard has the topic, or a part of it.
    pub fn is_here(&self, topic: &TopicRecord) -> bool {
        topic.is_spread() || self.is_leading(topic)
    }
}

/// The definitions that a shard has followed last.
pub(super) struct Followed {
    /// [`None`] in an empty store.
    position: Option<FollowedRecord>,
    records: Records,
}

impl Followed {
    fn has_topics(&self) -> bool {
        records_from(&self.records, MetaKind::Topic)
            .next()
            .is_some()
    }
}

/// A change in memory, made once the changes of the store are durable.
enum Effect {
    InsertNamespace(Box<NamespaceRecord>),
    RemoveNamespace(String),
    InsertTopic(Arc<TopicHandle>),
    RemoveTopic(Arc<TopicHandle>),
    ChangeTopic(Arc<TopicHandle>, Arc<TopicRecord>),
    SetDomainTopic(Arc<TopicHandle>, DomainTopic),
    RemoveDomainTopic(Arc<TopicHandle>, Name),
    InsertSubscription(Arc<TopicHandle>, Arc<DeliveryPlan>),
    ChangeSubscription(Arc<TopicHandle>, Arc<SubscriptionHandle>, Arc<DeliveryPlan>),
    RemoveSubscription(Arc<TopicHandle>, Arc<SubscriptionHandle>),
}

/// The changes of one write.
#[derive(Default)]
struct Plan {
    changes: Vec<MetaChange>,
    effects: Vec<Effect>,
    /// The topics as they will be, by key.
    topics: BTreeMap<String, Arc<TopicHandle>>,
    /// Why a record cannot be followed. The other records are followed nevertheless.
    failure: Option<Error>,
}

impl Registry {
    /// Makes what this shard has the same as the definitions. Returns false, and changes nothing,
    /// if they are older than those that it has followed before.
    ///
    /// # Errors
    /// If the store is of a release whose shards had control planes of their own, the changes
    /// cannot be written, or a record cannot be followed; then the others were.
    pub async fn follow_definitions(
        self: &Arc<Self>,
        definitions: Arc<Definitions>,
        shard: ShardTopics,
    ) -> Result<bool, Error> {
        let registry = Arc::clone(self);
        run_detached(async move {
            let mut followed = registry.followed.lock().await;
            let state = match &mut *followed {
                Some(state) => state,
                none => none.insert(registry.read_followed().await?),
            };
            let position = FollowedRecord {
                cluster: shard.cluster.to_string(),
                position: definitions.position,
            };
            let last_position = state.position.as_ref();
            let last_position = last_position.filter(|last| last.cluster == position.cluster);
            if last_position.is_some_and(|last| last.position > position.position) {
                return Ok(false);
            }
            // The stores of another cluster were restored, and the control plane was not.
            if last_position.is_none() && definitions.has_no_topic() && state.has_topics() {
                return Err(Error::Refused(NO_CONTROL_PLANE.to_owned()));
            }
            let records = definitions.select_records(|topic| shard.is_here(topic));
            if last_position.is_some() && records == state.records {
                return Ok(true);
            }
            let mut plan = registry.plan_changes(&state.records, &records).await?;
            plan.changes.push(put_position(&position));
            registry.journal.write_meta_changes(plan.changes).await?;
            *state = Followed {
                position: Some(position),
                records,
            };
            for effect in plan.effects {
                registry.apply_effect(effect, &shard).await;
            }
            match plan.failure {
                // The record is tried again with the next definitions.
                Some(error) => {
                    *followed = None;
                    Err(error)
                }
                None => Ok(true),
            }
        })
        .await
    }

    /// Stores the cluster of a control plane. One that goes on with restored stores skips numbers:
    /// the shards may have records of some that this store has not assigned yet.
    ///
    /// # Errors
    /// If that cannot be written.
    pub async fn note_cluster(self: &Arc<Self>, cluster: &str) -> Result<(), Error> {
        let mut numbers = self.numbers.lock().await;
        let known = self.read_position().await?;
        if known.is_some_and(|known| known.cluster == cluster) {
            return Ok(());
        }
        let mut next = *numbers;
        if next.partitions > 0 || next.subscriptions > 0 {
            next.partitions = next.partitions.saturating_add(SKIPPED_NUMBERS);
            next.subscriptions = next.subscriptions.saturating_add(SKIPPED_NUMBERS);
        }
        let position = FollowedRecord {
            cluster: cluster.to_owned(),
            position: 0,
        };
        let changes = vec![put_position(&position), put_numbers(next)];
        self.journal.write_meta_changes(changes).await?;
        *numbers = next;
        Ok(())
    }

    async fn read_position(&self) -> Result<Option<FollowedRecord>, Error> {
        let reads = self.journal.reader_pool();
        let position = reads.read_meta(MetaKind::Followed, POSITION.to_owned());
        let position = position.await?;
        position
            .map(|value| parse_record("followed", &value))
            .transpose()
    }

    /// Reads what the shard has followed last.
    async fn read_followed(&self) -> Result<Followed, Error> {
        let reads = self.journal.reader_pool();
        let mut records = Records::new();
        for kind in FOLLOWED_KINDS {
            for (name, value) in reads.meta_from(kind, String::new()).await? {
                records.insert((kind, name), value);
            }
        }
        let position = self.read_position().await?;
        // The empty control plane of a cluster that was just updated must delete nothing.
        if position.is_none() && !records.is_empty() {
            return Err(Error::Refused(
                "the shard has topics of a release in which each shard had a control plane of its \
                 own; nothing was changed: create the topics in a new cluster, and keep this one \
                 until its events are delivered"
                    .to_owned(),
            ));
        }
        Ok(Followed { position, records })
    }

    /// The changes from the records of the store to those of the definitions.
    async fn plan_changes(&self, stored: &Records, definitions: &Records) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        for ((kind, name), _) in records_from(stored, MetaKind::Namespace) {
            if !definitions.contains_key(&(*kind, name.clone())) {
                plan.changes.push(MetaChange::Delete(*kind, name.clone()));
                plan.effects.push(Effect::RemoveNamespace(name.clone()));
            }
        }
        for ((kind, name), value) in records_from(definitions, MetaKind::Namespace) {
            if stored.get(&(*kind, name.clone())) != Some(value) {
                let record = parse_record(name, value)?;
                plan.put(
                    *kind,
                    name,
                    value,
                    Effect::InsertNamespace(Box::new(record)),
                );
            }
        }
        for topic in self.list_topics() {
            let key = topic.record().key();
            let is_same = |record: TopicRecord| record.partitions == topic.record().partitions;
            let name = (MetaKind::Topic, key.clone());
            if stays(&name, stored, definitions, is_same)? {
                plan.topics.insert(key, topic);
            } else {
                plan.changes.extend(Self::deletion_changes(&topic));
                plan.effects.push(Effect::RemoveTopic(topic));
            }
        }
        for ((kind, name), value) in records_from(definitions, MetaKind::Topic) {
            let is_known = stored.get(&(*kind, name.clone())) == Some(value);
            match plan.topics.get(name).cloned() {
                Some(_) if is_known => {}
                Some(topic) => {
                    let record = Arc::new(parse_record(name, value)?);
                    plan.put(*kind, name, value, Effect::ChangeTopic(topic, record));
                }
                None => {
                    let topic = self.new_topic(parse_record(name, value)?)?;
                    plan.topics.insert(name.clone(), Arc::clone(&topic));
                    plan.changes
                        .push(MetaChange::CreatePartition(topic.partition()));
                    plan.put(*kind, name, value, Effect::InsertTopic(topic));
                }
            }
        }
        self.plan_domain_topics(stored, definitions, &mut plan)?;
        self.plan_subscriptions(stored, definitions, &mut plan)
            .await?;
        Ok(plan)
    }

    fn plan_domain_topics(
        &self,
        stored: &Records,
        definitions: &Records,
        plan: &mut Plan,
    ) -> Result<(), Error> {
        for ((kind, name), _) in records_from(stored, MetaKind::DomainTopic) {
            let Some((domain, below)) = plan.find_topic(name) else {
                continue;
            };
            let is_gone = !definitions.contains_key(&(*kind, name.clone()));
            if let Some(topic) = domain.domain_topic(below).filter(|_| is_gone) {
                plan.changes.push(MetaChange::Delete(*kind, name.clone()));
                plan.effects
                    .push(Effect::RemoveDomainTopic(domain, topic.name));
            }
        }
        for ((kind, name), value) in records_from(definitions, MetaKind::DomainTopic) {
            let Some((domain, below)) = plan.find_topic(name) else {
                continue;
            };
            let is_known = stored.get(&(*kind, name.clone())) == Some(value);
            if !is_known || domain.domain_topic(below).is_none() {
                let topic = parse_record(name, value)?;
                plan.put(*kind, name, value, Effect::SetDomainTopic(domain, topic));
            }
        }
        Ok(())
    }

    async fn plan_subscriptions(
        &self,
        stored: &Records,
        definitions: &Records,
        plan: &mut Plan,
    ) -> Result<(), Error> {
        for (key, topic) in plan.topics.clone() {
            for child in topic.list_children() {
                let name = format!("{key}/{}", child.shared.plan().record.key());
                let is_same = |record: SubscriptionRecord| record.number == child.number();
                if !stays(
                    &(MetaKind::Subscription, name),
                    stored,
                    definitions,
                    is_same,
                )? {
                    plan.changes.extend(deletion_of_subscription(&key, &child));
                    plan.effects
                        .push(Effect::RemoveSubscription(Arc::clone(&topic), child));
                }
            }
        }
        for ((kind, name), value) in records_from(definitions, MetaKind::Subscription) {
            let Some((topic, below)) = plan.find_topic(name) else {
                continue;
            };
            let child = topic.find_child_named(below);
            let is_known = stored.get(&(*kind, name.clone())) == Some(value);
            if child.is_some() && is_known {
                continue;
            }
            let record: Arc<SubscriptionRecord> = Arc::new(parse_record(name, value)?);
            let child = child.filter(|child| child.number() == record.number);
            let result = self
                .plan_subscription(&topic, child, Arc::clone(&record))
                .await;
            match result {
                Ok((changes, effect)) => {
                    plan.changes.extend(changes);
                    plan.put(*kind, name, value, effect);
                }
                Err(error) => {
                    tracing::warn!(%error, subscription = name, "the event subscription cannot be \
                        followed");
                    plan.failure = Some(error);
                }
            }
        }
        Ok(())
    }

    /// The changes that create an event subscription, or change `child`.
    async fn plan_subscription(
        &self,
        topic: &Arc<TopicHandle>,
        child: Option<Arc<SubscriptionHandle>>,
        record: Arc<SubscriptionRecord>,
    ) -> Result<(Vec<MetaChange>, Effect), Error> {
        let delivery = self.new_plan(&topic.record(), Arc::clone(&record))?;
        let subscription_key = SubscriptionKey {
            partition: topic.partition(),
            subscription: record.number,
        };
        let before = child
            .as_ref()
            .map(|child| Arc::clone(&child.shared.plan().record));
        let mut changes = filter_versions::version_changes(
            &self.journal,
            subscription_key,
            before.as_deref(),
            &record,
        )
        .await?;
        let topic = Arc::clone(topic);
        let effect = match child {
            Some(child) => Effect::ChangeSubscription(topic, child, delivery),
            None => {
                let start = topic
                    .find_nearest_start(record.starts_from.as_deref())
                    .await?;
                changes.push(MetaChange::Subscribe(subscription_key, start));
                Effect::InsertSubscription(topic, delivery)
            }
        };
        Ok((changes, effect))
    }

    async fn apply_effect(&self, effect: Effect, shard: &ShardTopics) {
        match effect {
            Effect::InsertNamespace(record) => drop(self.insert_namespace(*record)),
            Effect::RemoveNamespace(key) => self.remove_namespace(&key),
            Effect::InsertTopic(topic) => self.insert(topic),
            Effect::RemoveTopic(topic) => {
                for record in topic.list_subscriptions() {
                    self.report_followed(
                        "Microsoft.EventGrid.SubscriptionDeleted",
                        &topic,
                        &record,
                        shard,
                    );
                }
                self.drop_topic(&topic);
            }
            Effect::ChangeTopic(topic, record) => {
                for child in topic.list_children() {
                    let plan = self.new_plan(&record, Arc::clone(&child.shared.plan().record));
                    match plan {
                        Ok(plan) => child.shared.set_plan(plan),
                        Err(error) => tracing::warn!(%error, topic = record.key(), "the event \
                            subscription goes on as it was"),
                    }
                }
                topic.set_record(record);
                topic.notify_changed();
            }
            Effect::SetDomainTopic(domain, topic) => domain.set_domain_topic(topic),
            Effect::RemoveDomainTopic(domain, name) => domain.remove_domain_topic(&name),
            Effect::InsertSubscription(topic, plan) => {
                let subscription_key = SubscriptionKey {
                    partition: topic.partition(),
                    subscription: plan.record.number,
                };
                let record = Arc::clone(&plan.record);
                let cursor = self.journal.reader_pool().read_cursor(subscription_key);
                topic.add_child(plan, cursor.await.ok());
                topic.notify_changed();
                self.report_followed(
                    "Microsoft.EventGrid.SubscriptionCreated",
                    &topic,
                    &record,
                    shard,
                );
            }
            Effect::ChangeSubscription(topic, child, plan) => {
                let record = Arc::clone(&plan.record);
                child.shared.set_plan(plan);
                topic.notify_changed();
                self.report_followed(
                    "Microsoft.EventGrid.SubscriptionUpdated",
                    &topic,
                    &record,
                    shard,
                );
            }
            Effect::RemoveSubscription(topic, child) => {
                let record = Arc::clone(&child.shared.plan().record);
                topic.remove_child(&record.key());
                topic.notify_changed();
                self.report_followed(
                    "Microsoft.EventGrid.SubscriptionDeleted",
                    &topic,
                    &record,
                    shard,
                );
            }
        }
    }

    /// Reports a change to the system topic, once for all shards.
    fn report_followed(
        &self,
        event_type: &'static str,
        topic: &TopicHandle,
        record: &SubscriptionRecord,
        shard: &ShardTopics,
    ) {
        if shard.is_leading(&topic.record()) {
            self.report_change(event_type, topic, record);
        }
    }
}

/// Whether what has a record is still definitions, and not another one of the same name. Only a record
/// that was changed is read.
fn stays<T: DeserializeOwned>(
    key: &(MetaKind, String),
    stored: &Records,
    definitions: &Records,
    is_same: impl Fn(T) -> bool,
) -> Result<bool, Error> {
    match definitions.get(key) {
        None => Ok(false),
        Some(value) if stored.get(key) == Some(value) => Ok(true),
        Some(value) => parse_record(&key.1, value).map(is_same),
    }
}

fn put_position(position: &FollowedRecord) -> MetaChange {
    MetaChange::Put(MetaKind::Followed, POSITION.to_owned(), to_json(position))
}

impl Plan {
    fn put(&mut self, kind: MetaKind, name: &str, value: &Bytes, effect: Effect) {
        self.changes
            .push(MetaChange::Put(kind, name.to_owned(), value.clone()));
        self.effects.push(effect);
    }

    /// The topic of a record below one, as it will be, and the rest of the record's name.
    fn find_topic<'a>(&self, name: &'a str) -> Option<(Arc<TopicHandle>, &'a str)> {
        let (topic, below) = name.split_once('/')?;
        Some((Arc::clone(self.topics.get(topic)?), below))
    }
}
