//! The control plane's changes: topics and subscriptions come, change and go.
//!
//! A change is durable before it is in force. Only one is made at a time: the numbers that it gives out are part of it. It
//! runs to its end, also where whoever asked for it hangs up: what is durable must be in force too.

use std::{
    num::NonZeroU32,
    sync::{Arc, PoisonError},
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Error, Registry, SubscriptionHandle, TopicHandle, domain, validation::kept_rate};
use crate::{
    control::{
        filter_versions,
        record::{subscription::SubscriptionRecord, topic::TopicRecord},
    },
    event::{PartitionId, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{self, MetaChange},
    store::keys::MetaKind,
};

/// The name of the record of the numbers given out.
const NUMBERS: &str = "numbers";

/// The numbers given out so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextNumbers {
    partitions: u32,
    subscriptions: u32,
}

impl NextNumbers {
    fn put(self) -> MetaChange {
        MetaChange::Put(MetaKind::Numbers, NUMBERS.to_owned(), json(&self))
    }
}

/// By what right an endpoint is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidationPermission {
    /// By what it agreed to before, or because nobody asks.
    Kept,
    /// It agreed now, to so many requests a minute.
    Granted(Option<NonZeroU32>),
}

impl Registry {
    /// Creates a topic, or puts `record` in place of it. The partitions are given here.
    pub async fn put_topic(self: &Arc<Self>, record: TopicRecord) -> Result<Arc<TopicHandle>, Error> {
        let registry = Arc::clone(self);
        to_its_end(async move { registry.make_topic(record).await }).await
    }

    /// Deletes a topic and its subscriptions. False where there was none.
    pub async fn delete_topic(self: &Arc<Self>, name: &str) -> Result<bool, Error> {
        let (registry, name) = (Arc::clone(self), name.to_owned());
        to_its_end(async move { registry.remove_topic(&name).await }).await
    }

    /// Creates a subscription, which starts behind the newest event, or puts `record` in place of it. Its number and its
    /// version are given here. Its endpoint is not asked: [`Registry::validate`] does that, where
    /// [`Registry::must_ask`] says so.
    pub async fn put_subscription(
        self: &Arc<Self>,
        topic: &str,
        record: SubscriptionRecord,
    ) -> Result<Arc<SubscriptionRecord>, Error> {
        let (registry, topic) = (Arc::clone(self), topic.to_owned());
        to_its_end(async move { registry.make_subscription(&topic, record, ValidationPermission::Kept, None).await })
            .await
    }

    /// Deletes a subscription: what it owes is canceled. False where there was none.
    pub async fn delete_subscription(self: &Arc<Self>, topic: &str, name: &str) -> Result<bool, Error> {
        let (registry, topic, name) = (Arc::clone(self), topic.to_owned(), name.to_owned());
        to_its_end(async move { registry.remove_subscription(&topic, &name, None).await }).await
    }

    /// Deletes a subscription, if its time has come. False where it has not, and where there was none.
    pub async fn expire(self: &Arc<Self>, topic: &str, name: &str, now: Timestamp) -> Result<bool, Error> {
        let (registry, topic, name) = (Arc::clone(self), topic.to_owned(), name.to_owned());
        to_its_end(async move { registry.remove_subscription(&topic, &name, Some(now)).await }).await
    }

    /// Waits until a subscription is given a time to expire.
    pub async fn expiry_set(&self) {
        self.expiry.notified().await;
    }

    async fn make_topic(&self, mut record: TopicRecord) -> Result<Arc<TopicHandle>, Error> {
        let mut numbers = self.numbers.lock().await;
        // Also where no subscription is to be planned yet.
        self.edition(&record)?;
        self.check_namespace(&record)?;
        let key = record.key();
        let Some(topic) = self.topic(&key) else {
            let most = self.rules.topics_max;
            if self.topics.read().unwrap_or_else(PoisonError::into_inner).len() >= most {
                let full = format!("There are {most} topics and domains, and there may be no more (limits.topics).");
                return Err(Error::Full(full));
            }
            let partition = PartitionId(numbers.partitions + 1);
            let next = NextNumbers { partitions: partition.0, ..*numbers };
            record.partitions = vec![partition];
            let put = MetaChange::Put(MetaKind::Topic, key, json(&record));
            self.journal.change(vec![MetaChange::Found(partition), put, next.put()]).await?;
            *numbers = next;
            let topic = self.new_topic(record)?;
            self.insert(Arc::clone(&topic));
            return Ok(topic);
        };
        record.partitions = vec![topic.partition()];
        let record = Arc::new(record);
        let mut plans = Vec::new();
        for child in topic.children() {
            plans.push((Arc::clone(&child), self.plan(&record, Arc::clone(&child.shared.plan().record))?));
        }
        self.journal.change(vec![MetaChange::Put(MetaKind::Topic, key, json(&*record))]).await?;
        topic.set_record(record);
        for (child, plan) in plans {
            child.shared.set_plan(plan);
        }
        topic.changed();
        Ok(topic)
    }

    async fn remove_topic(&self, name: &str) -> Result<bool, Error> {
        let _turn = self.numbers.lock().await;
        let Some(topic) = self.topic(name) else { return Ok(false) };
        self.journal.change(Self::deletion(&topic)).await?;
        self.forget(&topic);
        Ok(true)
    }

    /// What takes a topic, and all that hangs on it, out of the store.
    pub(super) fn deletion(topic: &Arc<TopicHandle>) -> Vec<MetaChange> {
        let key = topic.record().key();
        let mut changes =
            vec![MetaChange::Delete(MetaKind::Topic, key.clone()), MetaChange::Abandon(topic.partition())];
        changes.extend(topic.domain_topics().iter().map(|below| domain::delete(topic, &below.name)));
        changes.extend(topic.children().iter().flat_map(|child| unsubscribe(&key, child)));
        changes.extend(topic.proposals().iter().filter_map(|proposal| topic.withdraw(&proposal.record.key())));
        changes
    }

    /// It is out of the store: nothing of it runs any more, and its endpoints are told.
    pub(super) fn forget(&self, topic: &Arc<TopicHandle>) {
        let (key, children) = (topic.record().key(), topic.children());
        self.topics.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.partitions.write().unwrap_or_else(PoisonError::into_inner).remove(&topic.partition());
        topic.end();
        for child in children {
            self.bid_farewell(topic, &child.shared.plan());
        }
    }

    /// A change that was made from `basis` is refused where the subscription is another by now.
    pub(super) async fn make_subscription(
        &self,
        topic: &str,
        mut record: SubscriptionRecord,
        permission: ValidationPermission,
        basis: Option<Arc<SubscriptionRecord>>,
    ) -> Result<Arc<SubscriptionRecord>, Error> {
        let mut numbers = self.numbers.lock().await;
        let topic = self.known(topic)?;
        let key = record.key();
        self.check_basis(&topic, &key, basis.as_ref())?;
        let name = format!("{}/{key}", topic.record().key());
        let before = topic.child_named(&key);
        let domain_topic = self.first_of(&topic, &record)?;
        record.webhook.allowed_rate = match permission {
            ValidationPermission::Granted(rate) => rate,
            ValidationPermission::Kept => {
                kept_rate(before.as_ref().map(|child| child.shared.plan().record.clone()).as_deref(), &record)
            }
        };
        let mut changes = Vec::new();
        let mut next = *numbers;
        match &before {
            Some(child) => {
                record.number = child.number();
                record.version = child.shared.plan().record.version + 1;
                // It began where it began.
                record.starts_from = child.shared.plan().record.starts_from;
            }
            None => {
                self.check_room(&topic, &key)?;
                next.subscriptions += 1;
                record.number = SubscriptionId(next.subscriptions);
                record.version = 1;
                let start = topic.start(record.starts_from).await?;
                let subscription_key = SubscriptionKey { partition: topic.partition(), subscription: record.number };
                changes.push(MetaChange::Subscribe(subscription_key, start));
                changes.push(next.put());
            }
        }
        let record = Arc::new(record);
        let plan = self.plan(&topic.record(), Arc::clone(&record))?;
        plan.check(&self.rules.delivery).map_err(|error| Error::Refused(error.to_string()))?;
        let subscription_key = SubscriptionKey { partition: topic.partition(), subscription: record.number };
        let known = before.as_ref().map(|child| Arc::clone(&child.shared.plan().record));
        changes.extend(filter_versions::change(&self.journal, subscription_key, known.as_deref(), &record).await?);
        changes.push(MetaChange::Put(MetaKind::Subscription, name, json(&*record)));
        changes.extend(topic.withdraw(&key));
        changes.extend(domain_topic.iter().map(|first| domain::put(&topic, first)));
        self.journal.change(changes).await?;
        *numbers = next;
        topic.set_proposal(None, &key);
        if let Some(first) = domain_topic {
            topic.set_domain_topic(first);
        }
        match before {
            Some(child) => child.shared.set_plan(plan),
            None => topic.add_child(plan, None),
        }
        topic.changed();
        if record.expires.is_some() {
            self.expiry.notify_one();
        }
        Ok(record)
    }

    /// Whether a topic may have one more subscription. What is proposed counts: it needs no more than its endpoint's word.
    pub(super) fn check_room(&self, topic: &TopicHandle, key: &str) -> Result<(), Error> {
        let most = self.rules.subscriptions_max;
        let proposed = topic.proposals().iter().filter(|proposal| proposal.record.key() != key).count();
        if topic.child_named(key).is_some() || topic.children().len() + proposed < most {
            return Ok(());
        }
        let (kind, name) = (if topic.record().is_domain() { "domain" } else { "topic" }, topic.record().name.clone());
        Err(Error::Full(format!(
            "The {kind} {name} has {most} event subscriptions, and may have no more (limits.subscriptions_per_topic)."
        )))
    }

    /// Removes a subscription and what is proposed for it; where a time is given, only what of them has expired by then.
    async fn remove_subscription(&self, topic: &str, name: &str, by: Option<Timestamp>) -> Result<bool, Error> {
        let _turn = self.numbers.lock().await;
        let topic = self.known(topic)?;
        let is_gone = |expires: Option<Timestamp>| by.is_none_or(|by| expires.is_some_and(|expires| expires <= by));
        let (in_force, proposed) = (topic.child_named(name), topic.proposal(name));
        let child = in_force.as_ref().filter(|child| is_gone(child.shared.plan().record.expires));
        let proposal = proposed.as_ref().filter(|proposal| is_gone(proposal.record.expires));
        let key = topic.record().key();
        let mut changes: Vec<MetaChange> = proposal.and_then(|_| topic.withdraw(name)).into_iter().collect();
        changes.extend(child.into_iter().flat_map(|child| unsubscribe(&key, child)));
        if changes.is_empty() {
            return Ok(false);
        }
        let stays = in_force.is_some() != child.is_some() || proposed.is_some() != proposal.is_some();
        let domain_topic = if stays { None } else { domain::last_of(&topic, name) };
        changes.extend(domain_topic.iter().map(|name| domain::delete(&topic, name)));
        self.journal.change(changes).await?;
        if proposal.is_some() {
            topic.set_proposal(None, name);
        }
        if let Some(name) = domain_topic {
            topic.remove_domain_topic(&name);
        }
        if let Some(child) = child {
            topic.remove_child(name);
            topic.changed();
            self.bid_farewell(&topic, &child.shared.plan());
        }
        Ok(true)
    }
}

/// Runs a change in a task of its own: a handler is dropped with its connection, and would leave the change half done.
pub(super) async fn to_its_end<T: 'static>(
    change: impl Future<Output = Result<T, Error>> + 'static,
) -> Result<T, Error> {
    // A change that panics may have been made; the journal knows.
    actix_rt::spawn(change).await.unwrap_or(Err(Error::Journal(journal::Error::Closed)))
}

pub(super) fn unsubscribe(topic_key: &str, child: &SubscriptionHandle) -> Vec<MetaChange> {
    let name = format!("{topic_key}/{}", child.shared.plan().record.key());
    vec![MetaChange::Delete(MetaKind::Subscription, name), MetaChange::Unsubscribe(child.shared.subscription_key)]
}

pub(crate) fn json(record: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(record).expect("a record of strings and numbers is JSON"))
}
