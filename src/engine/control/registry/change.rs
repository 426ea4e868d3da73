//! Changes of topics and subscriptions.
//!
//! A change is durable before it takes effect. Changes run one at a time, because each may assign
//! numbers. A change runs to completion even if its client disconnects: what is durable must also
//! take effect.

use std::{num::NonZeroU32, sync::Arc};

use bytes::Bytes;
use serde::Serialize;

use super::{
    Error, Registry, SubscriptionHandle, TopicHandle, domain, refused_plan,
    validation::{ChangeBasis, inherited_rate},
};
use crate::control::{
    audit::{AuditedOperation, write_changes},
    filter_versions,
};
use gridhook_event::{PartitionId, SubscriptionId, SubscriptionKey, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::MetaChange;
use gridhook_record::{numbers::NextNumbers, subscription::SubscriptionRecord, topic::TopicRecord};
use gridhook_store::keys::MetaKind;
use gridhook_subscription::DeliveryPlan;

/// Name of the record of assigned numbers.
const NUMBERS: &str = "numbers";

pub(super) fn put_numbers(numbers: NextNumbers) -> MetaChange {
    MetaChange::Put(MetaKind::Numbers, NUMBERS.to_owned(), to_json(&numbers))
}

/// The validation on which an endpoint may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidationPermission {
    /// An earlier validation is still valid, or validation is off.
    Kept,
    /// The endpoint was validated now, with this many requests per minute.
    Granted(Option<NonZeroU32>),
}

impl Registry {
    /// Creates a topic or replaces its record. Assigns the partition.
    pub async fn put_topic(
        self: &Arc<Self>,
        record: TopicRecord,
    ) -> Result<Arc<TopicHandle>, Error> {
        let registry = Arc::clone(self);
        run_detached(async move { registry.make_topic(record).await }).await
    }

    /// Deletes a topic and its subscriptions. Returns false if it does not exist.
    pub async fn delete_topic(self: &Arc<Self>, name: &str) -> Result<bool, Error> {
        let registry = Arc::clone(self);
        let name = name.to_owned();
        run_detached(async move { registry.remove_topic(&name).await }).await
    }

    /// Creates a subscription, which begins behind the newest event, or replaces its record.
    /// Assigns the number and the version. Does not validate the endpoint: if
    /// [`Registry::needs_validation`] says so, call [`Registry::validate_endpoint`] instead.
    pub async fn put_subscription(
        self: &Arc<Self>,
        topic: &str,
        record: SubscriptionRecord,
        basis: ChangeBasis,
    ) -> Result<Arc<SubscriptionRecord>, Error> {
        let registry = Arc::clone(self);
        let topic = topic.to_owned();
        run_detached(async move {
            registry
                .make_subscription(&topic, record, ValidationPermission::Kept, basis)
                .await
        })
        .await
    }

    /// Deletes a subscription and cancels its pending deliveries. False if it does not exist.
    pub async fn delete_subscription(
        self: &Arc<Self>,
        topic: &str,
        name: &str,
    ) -> Result<bool, Error> {
        let registry = Arc::clone(self);
        let topic = topic.to_owned();
        let name = name.to_owned();
        run_detached(async move { registry.remove_subscription(&topic, &name, None).await }).await
    }

    /// Deletes a subscription if it has expired. Returns false if it has not, or does not exist.
    pub async fn delete_if_expired(
        self: &Arc<Self>,
        topic: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let registry = Arc::clone(self);
        let topic = topic.to_owned();
        let name = name.to_owned();
        run_detached(async move { registry.remove_subscription(&topic, &name, Some(now)).await })
            .await
    }

    /// Waits until a subscription gets an expiration time.
    pub async fn wait_until_expiry_set(&self) {
        self.expiry.notified().await;
    }

    /// Deletes partitions and subscriptions without a record: a crash interrupted a change of several
    /// shards. No other change runs yet.
    pub(super) fn discard_unnamed(&mut self, subscriptions: impl Iterator<Item = SubscriptionKey>) {
        let names = self.partitions.get_mut();
        let partitions = self
            .journal
            .list_partitions()
            .into_iter()
            .filter(|partition| !names.contains_key(partition));
        let mut changes: Vec<MetaChange> = subscriptions.map(MetaChange::Unsubscribe).collect();
        changes.extend(partitions.map(MetaChange::DeletePartition));
        if !changes.is_empty() {
            tracing::warn!(?changes, "completing a change that a crash interrupted");
            self.journal.discard_unnamed(changes);
        }
    }

    async fn make_topic(&self, mut record: TopicRecord) -> Result<Arc<TopicHandle>, Error> {
        let mut numbers = self.numbers.lock().await;
        // Checked here because a topic without subscriptions makes no plan.
        self.require_edition(&record.edition)?;
        self.check_namespace(&record)?;
        let key = record.key();
        let Some(topic) = self.find_topic(&key) else {
            let max = self.rules.topics_max;
            if self.topics.read().len() >= max {
                let full =
                    format!("The maximum of {max} topics and domains is reached (limits.topics).");
                return Err(Error::Full(full));
            }
            let partition = PartitionId(numbers.partitions + 1);
            let next = NextNumbers {
                partitions: partition.0,
                ..*numbers
            };
            record.partitions = vec![partition];
            let put = MetaChange::Put(MetaKind::Topic, key, to_json(&record));
            // A number is assigned once, even if the change is refused: some of it may be written.
            *numbers = next;
            write_changes(
                &self.journal,
                vec![
                    MetaChange::CreatePartition(partition),
                    put,
                    put_numbers(next),
                ],
            )
            .await?;
            let topic = self.new_topic(record)?;
            self.insert(Arc::clone(&topic));
            return Ok(topic);
        };
        record.partitions = vec![topic.partition()];
        let record = Arc::new(record);
        let mut plans = Vec::new();
        for child in topic.list_children() {
            let plan = self.new_plan(&record, Arc::clone(&child.shared.plan().record))?;
            plans.push((child, plan));
        }
        write_changes(
            &self.journal,
            vec![MetaChange::Put(MetaKind::Topic, key, to_json(&*record))],
        )
        .await?;
        topic.set_record(record);
        for (child, plan) in plans {
            child.shared.set_plan(plan);
        }
        topic.notify_changed();
        Ok(topic)
    }

    async fn remove_topic(&self, name: &str) -> Result<bool, Error> {
        let _guard = self.numbers.lock().await;
        let Some(topic) = self.find_topic(name) else {
            return Ok(false);
        };
        write_changes(&self.journal, Self::deletion_changes(&topic)).await?;
        self.forget_topic(&topic);
        Ok(true)
    }

    /// The changes that delete a topic and everything below it.
    pub(super) fn deletion_changes(topic: &Arc<TopicHandle>) -> Vec<MetaChange> {
        let key = topic.record().key();
        let mut changes = vec![
            MetaChange::Delete(MetaKind::Topic, key.clone()),
            MetaChange::DeletePartition(topic.partition()),
        ];
        changes.extend(
            topic
                .domain_topics()
                .iter()
                .map(|domain_topic| domain::delete_change(topic, &domain_topic.name)),
        );
        changes.extend(
            topic
                .list_children()
                .iter()
                .flat_map(|child| deletion_of_subscription(&key, child)),
        );
        changes.extend(
            topic
                .list_proposals()
                .iter()
                .filter_map(|proposal| topic.withdrawal_change(&proposal.record.key())),
        );
        changes
    }

    /// Removes a deleted topic from memory, stops its actors and notifies its endpoints.
    pub(super) fn forget_topic(&self, topic: &Arc<TopicHandle>) {
        let children = topic.list_children();
        self.drop_topic(topic);
        for child in children {
            self.notify_deleted(topic, &child.shared.plan());
        }
    }

    /// Removes a topic from memory and stops its actors.
    pub(super) fn drop_topic(&self, topic: &Arc<TopicHandle>) {
        let key = topic.record().key();
        self.topics.write().remove(&key);
        self.partitions.write().remove(&topic.partition());
        topic.stop_all();
    }

    /// Creates or changes a subscription. Fails if the subscription is no longer `basis`.
    pub(super) async fn make_subscription(
        &self,
        topic: &str,
        mut record: SubscriptionRecord,
        permission: ValidationPermission,
        basis: ChangeBasis,
    ) -> Result<Arc<SubscriptionRecord>, Error> {
        let mut numbers = self.numbers.lock().await;
        let topic = self.require_topic(topic)?;
        let key = record.key();
        self.check_basis(&topic, &key, &basis)?;
        let child = topic.find_child_named(&key);
        let previous_record = child
            .as_ref()
            .map(|child| Arc::clone(&child.shared.plan().record));
        let domain_topic = self.auto_created_topic(&topic, &record)?;
        record.webhook.allowed_rate = match permission {
            ValidationPermission::Granted(rate) => rate,
            ValidationPermission::Kept => inherited_rate(previous_record.as_deref(), &record),
        };
        let mut changes = Vec::new();
        let mut next_numbers = *numbers;
        match &previous_record {
            Some(previous) => {
                record.number = previous.number;
                record.version = previous.version + 1;
                // The beginning never changes.
                record.starts_from.clone_from(&previous.starts_from);
            }
            None => {
                self.check_subscription_limit(&topic, &key)?;
                next_numbers.subscriptions += 1;
                record.number = SubscriptionId(next_numbers.subscriptions);
                record.version = 1;
                let start = topic.find_start(record.starts_from.as_deref()).await?;
                let subscription_key = subscription_key(&topic, &record);
                changes.push(MetaChange::Subscribe(subscription_key, start));
                changes.push(put_numbers(next_numbers));
            }
        }
        let record = Arc::new(record);
        let plan = self.new_plan(&topic.record(), Arc::clone(&record))?;
        plan.check_rules(&self.rules.delivery)
            .map_err(refused_plan)?;
        let version_changes = filter_versions::version_changes(
            &self.journal,
            subscription_key(&topic, &record),
            previous_record.as_deref(),
            &record,
        );
        changes.extend(version_changes.await?);
        changes.push(MetaChange::Put(
            MetaKind::Subscription,
            format!("{}/{key}", topic.record().key()),
            to_json(&*record),
        ));
        changes.extend(topic.withdrawal_change(&key));
        if let Some(new_topic) = &domain_topic {
            changes.push(domain::put_change(&topic, new_topic));
        }
        *numbers = next_numbers;
        write_changes(&self.journal, changes).await?;
        if let Some(new_topic) = domain_topic {
            topic.set_domain_topic(new_topic);
        }
        self.apply_plan(&topic, child.as_deref(), plan).await;
        Ok(record)
    }

    /// Puts the stored plan of a subscription in force. `child` is the subscription before the
    /// change.
    async fn apply_plan(
        &self,
        topic: &Arc<TopicHandle>,
        child: Option<&SubscriptionHandle>,
        plan: Arc<DeliveryPlan>,
    ) {
        let record = Arc::clone(&plan.record);
        let event_type = match child {
            Some(child) => {
                child.shared.set_plan(plan);
                "Microsoft.EventGrid.SubscriptionUpdated"
            }
            None => {
                // Without its cursor, which the journal has just written, it would have no backlog
                // until its actor runs.
                let reader_pool = self.journal.reader_pool();
                let cursor = reader_pool.read_cursor(subscription_key(topic, &record));
                topic.add_child(plan, cursor.await.ok());
                "Microsoft.EventGrid.SubscriptionCreated"
            }
        };
        // Not before: between the two calls a reader would find neither the proposal nor the
        // subscription.
        topic.set_proposal(None, &record.key());
        topic.notify_changed();
        self.report_change(event_type, topic, &record);
        if record.expires.is_some() {
            self.expiry.notify_one();
        }
    }

    /// Checks a record as [`Self::put_subscription`] does, without a change.
    ///
    /// # Errors
    /// If the record would be refused.
    pub fn check_subscription(
        &self,
        topic: &str,
        record: &SubscriptionRecord,
    ) -> Result<(), Error> {
        let topic = self.require_topic(topic)?;
        self.auto_created_topic(&topic, record)?;
        self.check_subscription_limit(&topic, &record.key())?;
        let plan = self.new_plan(&topic.record(), Arc::new(record.clone()))?;
        plan.check_rules(&self.rules.delivery).map_err(refused_plan)
    }

    /// Checks the maximum number of subscriptions of a topic. Proposals count: each needs only a
    /// confirmation.
    pub(super) fn check_subscription_limit(
        &self,
        topic: &TopicHandle,
        key: &str,
    ) -> Result<(), Error> {
        let max = self.rules.subscriptions_max;
        let proposal_count = topic
            .list_proposals()
            .iter()
            .filter(|proposal| proposal.record.key() != key)
            .count();
        if topic.find_child_named(key).is_some()
            || topic.list_children().len() + proposal_count < max
        {
            return Ok(());
        }
        let kind = if topic.record().is_domain() {
            "domain"
        } else {
            "topic"
        };
        let name = topic.record().name.clone();
        Err(Error::Full(format!(
            "The {kind} {name} has the maximum of {max} event subscriptions \
             (limits.subscriptions_per_topic)."
        )))
    }

    /// Removes a subscription and its proposal; with `now`, only what has expired by then.
    async fn remove_subscription(
        &self,
        topic: &str,
        name: &str,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let _guard = self.numbers.lock().await;
        let topic = self.require_topic(topic)?;
        let is_removed = |expires: Option<Timestamp>| {
            now.is_none_or(|now| expires.is_some_and(|expires| expires <= now))
        };
        let existing_child = topic.find_child_named(name);
        let existing_proposal = topic.find_proposal(name);
        let child = existing_child
            .as_ref()
            .filter(|child| is_removed(child.shared.plan().record.expires));
        let proposal = existing_proposal
            .as_ref()
            .filter(|proposal| is_removed(proposal.record.expires));
        let key = topic.record().key();
        let mut changes: Vec<MetaChange> = proposal
            .and_then(|_| topic.withdrawal_change(name))
            .into_iter()
            .collect();
        changes.extend(
            child
                .into_iter()
                .flat_map(|child| deletion_of_subscription(&key, child)),
        );
        if changes.is_empty() {
            return Ok(false);
        }
        let is_any_left = existing_child.is_some() != child.is_some()
            || existing_proposal.is_some() != proposal.is_some();
        let domain_topic = if is_any_left {
            None
        } else {
            domain::auto_deleted_topic(&topic, name)
        };
        changes.extend(
            domain_topic
                .iter()
                .map(|name| domain::delete_change(&topic, name)),
        );
        write_changes(&self.journal, changes).await?;
        if proposal.is_some() {
            topic.set_proposal(None, name);
        }
        if let Some(name) = domain_topic {
            topic.remove_domain_topic(&name);
        }
        if let Some(child) = child {
            topic.remove_child(name);
            topic.notify_changed();
            self.notify_deleted(&topic, &child.shared.plan());
        }
        Ok(true)
    }
}

fn subscription_key(topic: &TopicHandle, record: &SubscriptionRecord) -> SubscriptionKey {
    SubscriptionKey {
        partition: topic.partition(),
        subscription: record.number,
    }
}

/// Runs a change in a task of its own. A handler is dropped with its connection and would leave the
/// change half done.
pub(super) async fn run_detached<T: 'static>(
    change: impl Future<Output = Result<T, Error>> + 'static,
) -> Result<T, Error> {
    let task = match AuditedOperation::current() {
        Some(operation) => actix_rt::spawn(operation.execute(change)),
        None => actix_rt::spawn(change),
    };
    // A change that panicked may have been written to the journal.
    task.await
        .unwrap_or(Err(Error::Journal(journal::Error::Closed)))
}

pub(super) fn deletion_of_subscription(
    topic_key: &str,
    child: &SubscriptionHandle,
) -> Vec<MetaChange> {
    let name = format!("{topic_key}/{}", child.shared.plan().record.key());
    vec![
        MetaChange::Delete(MetaKind::Subscription, name),
        MetaChange::Unsubscribe(child.shared.subscription_key),
    ]
}

pub fn to_json(record: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(record).expect("a record of strings and numbers is JSON"))
}
