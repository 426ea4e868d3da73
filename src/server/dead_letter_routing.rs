//! Routes dead letters from a subscription to the actor of their store, and supervises these
//! actors.

use std::sync::Arc;

use gridhook_clock::Clock;
use gridhook_dead_letter as dead_letter;
use gridhook_dead_letter::{
    DeadLetterActor, DeadLetterStores, DeadLetterTarget, DeadLetters, WaitingDeadLetters,
};
use gridhook_engine::{
    control::registry::Registry,
    supervision::{Supervised, SupervisionHistory},
};
use gridhook_event::Timestamp;
use gridhook_policy::{dead_letter_store::NamedStores, property};
use gridhook_subscription::SharedState;

/// Finds the destination of dead letters.
#[derive(Clone)]
pub(super) struct DeadLetterRouting {
    pub(super) registry: Arc<Registry>,
    pub(super) named_stores: NamedStores,
}

impl DeadLetterRouting {
    /// Notifies the actor of the destination's store of pending dead letters.
    pub(super) fn notify_stores(
        &self,
        stores: &DeadLetterStores,
        shared: &SharedState,
        due: Timestamp,
    ) {
        if let Some(target) = self.find_target(shared) {
            stores.queue_waiting(WaitingDeadLetters {
                subscription_key: shared.subscription_key,
                target,
                due,
            });
        }
    }

    /// The lookup by which a store finds the current destination of a subscription's dead letters.
    pub(super) fn target_lookup(&self) -> dead_letter::TargetLookup {
        let routing = self.clone();
        Box::new(move |subscription_key| {
            routing.find_target(&*routing.registry.shared_state(subscription_key)?)
        })
    }

    /// The current destination of a subscription's dead letters; [`None`] where it has none, or its
    /// store is not configured. In that case they wait until it is.
    fn find_target(&self, shared: &SharedState) -> Option<DeadLetterTarget> {
        let plan = shared.plan();
        let topic = self
            .registry
            .topic_of_partition(shared.subscription_key.partition)?;
        let destination = plan.record.dead_letter.as_ref()?;
        let target = match self
            .named_stores
            .find_destination(&destination.resource_id, &destination.container)
        {
            Ok(found) => found,
            Err(error) => {
                let subscription = plan.record.name.as_str();
                tracing::error!(subscription, %error, "dead letters wait for a store");
                return None;
            }
        };
        let edition = &plan.settings.edition.dead_letter;
        Some(DeadLetterTarget {
            store: target.store,
            folder: target.folder,
            subscription_name: plan.record.name.to_string(),
            delivery_schema: plan.record.delivery_schema,
            topic: topic.record().resource_id(),
            source: topic
                .record()
                .resource_id_of(plan.record.filter.domain_topic.as_deref()),
            layout: edition.layout,
            properties: property::open(&plan.record.webhook.delivery_properties),
            delay: edition.delay,
            retry: edition.retry.clone(),
            outage_window: destination.retry_period().unwrap_or(edition.outage_window),
            drop_where_not_found: edition.drop_where_not_found,
        })
    }
}

/// Builds each incarnation of a store's actor.
pub(super) struct DeadLetterActorFactory {
    pub(super) store: String,
    pub(super) dead_letters: DeadLetters,
    pub(super) history: Arc<SupervisionHistory>,
    pub(super) clock: Clock,
}

impl Supervised for DeadLetterActorFactory {
    type Actor = DeadLetterActor;

    fn name(&self) -> String {
        format!("dead letters of the store {}", self.store)
    }

    fn supervision_history(&self) -> &SupervisionHistory {
        &self.history
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn build(&self) -> Option<DeadLetterActor> {
        let history = Arc::clone(&self.history);
        let clock = self.clock.clone();
        Some(
            self.dead_letters
                .build()
                .with_on_recovered(move || history.note_recovered(&clock)),
        )
    }
}
