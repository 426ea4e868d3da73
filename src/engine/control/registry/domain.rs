//! The topics of a domain.
//!
//! A domain is one log with one actor, and each of its events names its topic. A domain topic costs
//! only a record, and an event for a topic that does not exist is accepted. Domain topics may be
//! created with their first subscription and deleted with their last.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Error, Registry, TopicHandle,
    change::{deletion_of_subscription, run_detached, to_json},
};
use crate::control::audit::write_changes;
use gridhook_escape::count_with_noun;
use gridhook_event::Name;
use gridhook_journal::MetaChange;
use gridhook_record::{
    proposal::Provisioned,
    subscription::{SubscriptionRecord, SystemData},
    topic::DomainTopic,
};
use gridhook_store::keys::MetaKind;

/// The topics of a domain, by the key of their names.
pub(super) type DomainTopics = BTreeMap<String, DomainTopic>;

impl TopicHandle {
    /// The topics of this domain, by name.
    pub fn domain_topics(&self) -> Vec<DomainTopic> {
        self.domain_topics.read().values().cloned().collect()
    }

    pub fn domain_topic(&self, name: &str) -> Option<DomainTopic> {
        let topics = self.domain_topics.read();
        topics.get(&name.to_ascii_lowercase()).cloned()
    }

    pub(super) fn set_domain_topic(&self, topic: DomainTopic) {
        self.domain_topics.write().insert(topic.name.key(), topic);
    }

    pub(super) fn remove_domain_topic(&self, name: &Name) {
        self.domain_topics.write().remove(&name.key());
    }
}

impl Registry {
    /// Creates or updates a topic of a domain. The name keeps its original case.
    pub async fn put_domain_topic(
        self: &Arc<Self>,
        domain: &str,
        mut topic: DomainTopic,
    ) -> Result<DomainTopic, Error> {
        let registry = Arc::clone(self);
        let domain = domain.to_owned();
        run_detached(async move {
            let _guard = registry.numbers.lock().await;
            let domain = registry.require_topic(&domain)?;
            match domain.domain_topic(topic.name.as_str()) {
                Some(known) => topic.name = known.name,
                None => registry.check_domain_topic_limit(&domain)?,
            }
            write_changes(&registry.journal, vec![put_change(&domain, &topic)]).await?;
            domain.set_domain_topic(topic.clone());
            Ok(topic)
        })
        .await
    }

    /// Deletes a topic of a domain and its subscriptions. False if it does not exist.
    pub async fn delete_domain_topic(
        self: &Arc<Self>,
        domain: &str,
        name: &str,
    ) -> Result<bool, Error> {
        let registry = Arc::clone(self);
        let domain = domain.to_owned();
        let name = name.to_owned();
        run_detached(async move {
            let _guard = registry.numbers.lock().await;
            let domain = registry.require_topic(&domain)?;
            let Some(DomainTopic { name, .. }) = domain.domain_topic(&name) else {
                return Ok(false);
            };
            let key = domain.record().key();
            let mut children = domain.list_children();
            children.retain(|child| is_of(&child.shared.plan().record, Some(name.as_str())));
            let mut proposals = domain.list_proposals();
            proposals.retain(|proposal| is_of(&proposal.record, Some(name.as_str())));
            let mut changes = vec![delete_change(&domain, &name)];
            changes.extend(
                children
                    .iter()
                    .flat_map(|child| deletion_of_subscription(&key, child)),
            );
            changes.extend(
                proposals
                    .iter()
                    .filter_map(|proposal| domain.withdrawal_change(&proposal.record.key())),
            );
            write_changes(&registry.journal, changes).await?;
            for proposal in &proposals {
                domain.set_proposal(None, &proposal.record.key());
            }
            for child in &children {
                domain.remove_child(&child.shared.plan().record.key());
            }
            domain.remove_domain_topic(&name);
            domain.notify_changed();
            for child in &children {
                registry.notify_deleted(&domain, &child.shared.plan());
            }
            Ok(true)
        })
        .await
    }

    /// The subscriptions of a topic or a domain, as clients see them; with `domain_topic`, those of
    /// this topic of the domain.
    pub fn provisioned_of(
        &self,
        topic: &TopicHandle,
        domain_topic: Option<&str>,
    ) -> Vec<Provisioned> {
        let mut all = self.all_provisioned(topic);
        all.retain(|one| is_of(&one.record, domain_topic));
        all
    }

    /// The domain topic that is created with its first subscription, by the same identity.
    pub(super) fn auto_created_topic(
        &self,
        domain: &TopicHandle,
        subscription: &SubscriptionRecord,
    ) -> Result<Option<DomainTopic>, Error> {
        let Some(name) = &subscription.filter.domain_topic else {
            return Ok(None);
        };
        if domain.domain_topic(name).is_some() {
            return Ok(None);
        }
        if !domain
            .record()
            .domain
            .is_some_and(|topics| topics.auto_create)
        {
            return Err(Error::Unknown(format!(
                "the domain has no topic '{name}', and autoCreateTopicWithFirstSubscription is \
                 false: PUT the topic first"
            )));
        }
        self.check_domain_topic_limit(domain)?;
        let system_data =
            subscription
                .system_data
                .as_ref()
                .map(|SystemData { modified, .. }| SystemData {
                    created: Some(modified.clone()),
                    modified: modified.clone(),
                });
        Ok(Some(DomainTopic {
            name: Name::new(name),
            system_data,
        }))
    }

    fn check_domain_topic_limit(&self, domain: &TopicHandle) -> Result<(), Error> {
        let max = self.rules.domain_topics_max;
        if domain.domain_topics.read().len() < max {
            return Ok(());
        }
        Err(Error::Full(format!(
            "The domain '{}' has the maximum of {} (topic.domain_topics).",
            domain.record().name,
            count_with_noun(max, "topic")
        )))
    }
}

/// The domain topic that is deleted with its last subscription.
pub(super) fn auto_deleted_topic(domain: &TopicHandle, key: &str) -> Option<Name> {
    // A subscription's name has no slash.
    let (name, _) = key.rsplit_once('/')?;
    let name = domain.domain_topic(name)?.name;
    let goes = domain
        .record()
        .domain
        .is_some_and(|topics| topics.auto_delete);
    let mut records = domain.list_subscriptions();
    records.extend(
        domain
            .list_proposals()
            .iter()
            .map(|proposal| Arc::clone(&proposal.record)),
    );
    let is_other = |one: &SubscriptionRecord| {
        is_of(one, Some(name.as_str())) && !one.key().eq_ignore_ascii_case(key)
    };
    let is_only = !records.iter().any(|one| is_other(one));
    (goes && is_only).then_some(name)
}

pub(super) fn put_change(domain: &TopicHandle, topic: &DomainTopic) -> MetaChange {
    MetaChange::Put(
        MetaKind::DomainTopic,
        record_name(domain, &topic.name),
        to_json(topic),
    )
}

pub(super) fn delete_change(domain: &TopicHandle, name: &Name) -> MetaChange {
    MetaChange::Delete(MetaKind::DomainTopic, record_name(domain, name))
}

fn record_name(domain: &TopicHandle, name: &Name) -> String {
    format!("{}/{}", domain.record().key(), name.key())
}

fn is_of(subscription: &SubscriptionRecord, domain_topic: Option<&str>) -> bool {
    match (&subscription.filter.domain_topic, domain_topic) {
        (None, None) => true,
        (Some(is), Some(asked)) => is.eq_ignore_ascii_case(asked),
        (Some(_), None) | (None, Some(_)) => false,
    }
}
