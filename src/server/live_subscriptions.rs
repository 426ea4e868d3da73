//! The subscriptions of the registry, as a redrive uses them.

use std::{pin::Pin, sync::Arc};

use gridhook_dead_letter::{event::DeadLetterEvent, redrive};
use gridhook_engine::control::registry::Registry;
use gridhook_event::{Lane, Schema, SubscriptionKey, chunk::SealedChunk};
use gridhook_policy::record::{
    RedrivePage,
    job::{Job, JobKind},
};
use gridhook_publish as publish;
use gridhook_publish::PublishLimits;

/// Implements [`redrive::SubscriptionDirectory`] with the registry.
pub(super) struct LiveSubscriptions {
    pub(super) registry: Arc<Registry>,
    pub(super) limits: PublishLimits,
}

impl redrive::SubscriptionDirectory for LiveSubscriptions {
    fn running_redrives(&self) -> Vec<(SubscriptionKey, Lane)> {
        let mut found = Vec::new();
        for topic in self.registry.list_topics() {
            for subscription in topic.list_subscriptions() {
                let subscription_key = SubscriptionKey {
                    partition: topic.partition(),
                    subscription: subscription.number,
                };
                let Some(shared) = self.registry.shared_state(subscription_key) else {
                    continue;
                };
                shared.read_state(|state| {
                    let redrives = state
                        .cursor
                        .jobs
                        .iter()
                        .filter(|job| matches!(job.kind, JobKind::Redrive { .. }));
                    found.extend(redrives.map(|job| (subscription_key, job.lane)));
                });
            }
        }
        found
    }

    fn namesakes(&self, subscription_key: SubscriptionKey) -> Vec<SubscriptionKey> {
        let Some(shared) = self.registry.shared_state(subscription_key) else {
            return Vec::new();
        };
        let plan = shared.plan();
        let mut found = Vec::new();
        for topic in self.registry.list_topics() {
            let namesakes = topic
                .list_subscriptions()
                .into_iter()
                .filter(|other| other.name == plan.record.name);
            found.extend(namesakes.map(|other| SubscriptionKey {
                partition: topic.partition(),
                subscription: other.number,
            }));
        }
        found.retain(|other| *other != subscription_key);
        found
    }

    fn is_custom(&self, subscription_key: SubscriptionKey) -> Option<bool> {
        let topic = self
            .registry
            .topic_of_partition(subscription_key.partition)?;
        let _ = self.registry.shared_state(subscription_key)?;
        Some(topic.record().input_schema == Schema::Custom)
    }

    fn running_job(&self, subscription_key: SubscriptionKey, lane: Lane) -> Option<Job> {
        let shared = self.registry.shared_state(subscription_key)?;
        shared.read_state(|state| {
            state
                .cursor
                .jobs
                .iter()
                .find(|job| job.lane == lane)
                .cloned()
        })
    }

    fn convert_dead_letter(
        &self,
        subscription_key: SubscriptionKey,
        dead_letter: &DeadLetterEvent,
    ) -> Result<SealedChunk, String> {
        let problem = || "its event subscription is gone".to_owned();
        let topic = self
            .registry
            .topic_of_partition(subscription_key.partition)
            .ok_or_else(problem)?
            .record();
        let plan = self
            .registry
            .shared_state(subscription_key)
            .ok_or_else(problem)?
            .plan();
        let delivery = plan.record.delivery_schema;
        if !dead_letter.schema.delivery_schemas().contains(&delivery) {
            return Err(format!(
                "its event has the schema {:?}, which cannot be delivered as {delivery:?}",
                dead_letter.schema
            ));
        }
        // An event of a domain names its topic. Any other event takes the topic that it is redriven
        // to.
        let event = match dead_letter.schema {
            Schema::EventGrid if !topic.is_domain() => dead_letter.without_topic(),
            Schema::EventGrid | Schema::CloudEvents | Schema::Custom => dead_letter.event.clone(),
        };
        publish::read_for_redrive(&topic, dead_letter.schema, &event, &self.limits)
    }

    fn redrive_page(
        &self,
        subscription_key: SubscriptionKey,
        page: RedrivePage,
    ) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let redrive = self.registry.redrive_page(subscription_key, page);
        Box::pin(async move { redrive.await.is_ok() })
    }
}
