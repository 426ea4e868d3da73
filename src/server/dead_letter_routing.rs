//! The way of a dead letter from a subscription to the actor of its store, and who keeps these actors alive.

use std::sync::Arc;

use crate::{
    clock::Clock,
    control::registry::Registry,
    dead_letter::{self, DeadLetterActor, DeadLetterStores, DeadLetterTarget, DeadLetters, PendingNotice},
    event::Timestamp,
    policy::{dead_letter_store::NamedStores, property},
    subscription::SharedState,
    supervision::{LifelineHeld, Supervised, SupervisionHistory, supervise},
};

/// Knows where dead letters go.
#[derive(Clone)]
pub(super) struct DeadLetterRouting {
    pub(super) registry: Arc<Registry>,
    pub(super) places: NamedStores,
}

impl DeadLetterRouting {
    /// Tells the actors of the stores which letters wait, and where they are to go.
    pub(super) fn notify_stores(&self, stores: &DeadLetterStores, shared: &SharedState, due: Timestamp) {
        if let Some(target) = self.target(shared) {
            stores.waiting(PendingNotice { subscription_key: shared.subscription_key, target, due });
        }
    }

    /// Tells a store whether dead letters still go there.
    pub(super) fn target_lookup(&self) -> dead_letter::TargetLookup {
        let routing = self.clone();
        Box::new(move |subscription_key| routing.target(&*routing.registry.shared(subscription_key)?))
    }

    /// Where a subscription's dead letters go now. [`None`]: nowhere, or to a store that is not there any more, where they
    /// wait until it is.
    fn target(&self, shared: &SharedState) -> Option<DeadLetterTarget> {
        let (plan, topic) = (shared.plan(), self.registry.owner(shared.subscription_key.partition)?);
        let destination = plan.record.dead_letter.as_ref()?;
        let place = match self.places.find(&destination.resource_id, &destination.container) {
            Ok(place) => place,
            Err(error) => {
                let subscription = plan.record.name.as_str();
                tracing::error!(subscription, "dead letters wait for a store: deadLetterDestination {error}");
                return None;
            }
        };
        let edition = &plan.settings.edition.dead_letter;
        Some(DeadLetterTarget {
            store: place.store,
            folder: place.folder,
            subscription_name: plan.record.name.to_string(),
            delivery_schema: plan.record.delivery_schema,
            topic: topic.record().resource_id(),
            source: topic.record().resource_id_of(plan.record.filter.domain_topic.as_deref()),
            form: edition.form,
            properties: property::open(&plan.record.webhook.delivery_properties),
            retry: edition.retry.clone(),
            outage_window: destination.retry_period().unwrap_or(edition.outage_window),
            drop_where_not_found: edition.drop_where_not_found,
        })
    }
}

/// Keeps the actor of a store alive until the line is cut.
pub(super) async fn supervise_actor(
    store: String,
    letters: DeadLetters,
    history: Arc<SupervisionHistory>,
    clock: Clock,
    held: LifelineHeld,
) {
    supervise(DeadLetterActorFactory { store, dead_letters: letters, history, clock }, held).await;
}

/// Builds the lives of a store's actor.
struct DeadLetterActorFactory {
    store: String,
    dead_letters: DeadLetters,
    history: Arc<SupervisionHistory>,
    clock: Clock,
}

impl Supervised for DeadLetterActorFactory {
    type Actor = DeadLetterActor;

    fn name(&self) -> String {
        format!("dead letters of the store {}", self.store)
    }

    fn history(&self) -> &SupervisionHistory {
        &self.history
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn build(&self) -> Option<DeadLetterActor> {
        let (history, clock) = (Arc::clone(&self.history), self.clock.clone());
        Some(self.dead_letters.build().with_on_recovered(move || history.note_recovered(&clock)))
    }
}
