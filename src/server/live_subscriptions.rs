//! What a redrive must know of subscriptions, and ask of them: the registry has all of it.

use std::{pin::Pin, sync::Arc};

use crate::{
    control::registry::Registry,
    dead_letter::{event::DeadLetterEvent, redrive},
    event::{Lane, Schema, SubscriptionKey},
    policy::record::{
        RedrivePage,
        job::{Job, JobKind},
    },
    publish::{self, PublishLimits},
    store::chunk::SealedChunk,
};

/// The subscriptions that there are.
pub(super) struct LiveSubscriptions {
    pub(super) registry: Arc<Registry>,
    pub(super) limits: PublishLimits,
}

impl redrive::SubscriptionDirectory for LiveSubscriptions {
    fn redrives(&self) -> Vec<(SubscriptionKey, Lane)> {
        let mut found = Vec::new();
        for topic in self.registry.topics() {
            for subscription in topic.subscriptions() {
                let subscription_key =
                    SubscriptionKey { partition: topic.partition(), subscription: subscription.number };
                let jobs =
                    self.registry.shared(subscription_key).map(|shared| shared.state().cursor.jobs).unwrap_or_default();
                let redrives = jobs.iter().filter(|job| matches!(job.kind, JobKind::Redrive { .. }));
                found.extend(redrives.map(|job| (subscription_key, job.lane)));
            }
        }
        found
    }

    fn namesakes(&self, subscription_key: SubscriptionKey) -> Vec<SubscriptionKey> {
        let Some(shared) = self.registry.shared(subscription_key) else { return Vec::new() };
        let plan = shared.plan();
        let mut found = Vec::new();
        for topic in self.registry.topics() {
            let namesakes = topic.subscriptions().into_iter().filter(|other| other.name == plan.record.name);
            found.extend(
                namesakes.map(|other| SubscriptionKey { partition: topic.partition(), subscription: other.number }),
            );
        }
        found.retain(|other| *other != subscription_key);
        found
    }

    fn is_custom(&self, subscription_key: SubscriptionKey) -> Option<bool> {
        let (topic, _) = (self.registry.owner(subscription_key.partition)?, self.registry.shared(subscription_key)?);
        Some(topic.record().input_schema == Schema::Custom)
    }

    fn job(&self, subscription_key: SubscriptionKey, lane: Lane) -> Option<Job> {
        let jobs = self.registry.shared(subscription_key)?.state().cursor.jobs;
        jobs.into_iter().find(|job| job.lane == lane)
    }

    fn convert(&self, subscription_key: SubscriptionKey, letter: &DeadLetterEvent) -> Result<SealedChunk, String> {
        let gone = || "its event subscription is gone".to_owned();
        let topic = self.registry.owner(subscription_key.partition).ok_or_else(gone)?.record();
        let plan = self.registry.shared(subscription_key).ok_or_else(gone)?.plan();
        let delivery = plan.record.delivery_schema;
        if !letter.schema.deliveries().contains(&delivery) {
            return Err(format!(
                "its event is in the schema {:?}, which can't be delivered in {delivery:?}",
                letter.schema
            ));
        }
        // In a domain it says which topic it is for; elsewhere it is this one's, wherever it comes from.
        let event = match letter.schema {
            Schema::EventGrid if !topic.is_domain() => letter.without_topic(),
            Schema::EventGrid | Schema::CloudEvents | Schema::Custom => letter.event.clone(),
        };
        publish::again(&topic, letter.schema, &event, &self.limits)
    }

    fn take_back(
        &self,
        subscription_key: SubscriptionKey,
        page: RedrivePage,
    ) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let taken = self.registry.take_back(subscription_key, page);
        Box::pin(async move { taken.await.is_ok() })
    }
}
