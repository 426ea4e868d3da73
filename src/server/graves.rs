//! The way of a dead letter from a subscription to the actor of its store, and who keeps these actors alive.

use std::sync::Arc;

use crate::{
    clock::Clock,
    dead_letter::{self, DeadLetterActor, DeadLetters, Notice, Stores, Target},
    event::Timestamp,
    policy::{place::Places, property},
    subscription::Slot,
    topic::{
        registry::Registry,
        supervise::{Chart, Held, Supervised, supervise},
    },
};

/// Knows where dead letters go.
#[derive(Clone)]
pub(super) struct Graves {
    pub(super) registry: Arc<Registry>,
    pub(super) places: Places,
}

impl Graves {
    /// Tells the actors of the stores which letters wait, and where they are to go.
    pub(super) fn tell(&self, stores: &Stores, slot: &Slot, due: Timestamp) {
        if let Some(target) = self.target(slot) {
            stores.waiting(Notice { obligor: slot.obligor, target, due });
        }
    }

    /// Tells a store whether dead letters still go there.
    pub(super) fn aim(&self) -> dead_letter::Aim {
        let graves = self.clone();
        Box::new(move |obligor| graves.target(&*graves.registry.slot(obligor)?))
    }

    /// Where a subscription's dead letters go now. [`None`]: nowhere, or to a store that is not there any more, where they
    /// wait until it is.
    fn target(&self, slot: &Slot) -> Option<Target> {
        let (plan, topic) = (slot.plan(), self.registry.owner(slot.obligor.partition)?);
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
        Some(Target {
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
pub(super) async fn keep(store: String, letters: DeadLetters, chart: Arc<Chart>, clock: Clock, held: Held) {
    supervise(Sexton { store, letters, chart, clock }, held).await;
}

/// Builds the lives of a store's actor.
struct Sexton {
    store: String,
    letters: DeadLetters,
    chart: Arc<Chart>,
    clock: Clock,
}

impl Supervised for Sexton {
    type Actor = DeadLetterActor;

    fn name(&self) -> String {
        format!("dead letters of the store {}", self.store)
    }

    fn chart(&self) -> &Chart {
        &self.chart
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn build(&self) -> Option<DeadLetterActor> {
        let (chart, clock) = (Arc::clone(&self.chart), self.clock.clone());
        Some(self.letters.build().telling(move || chart.acted(&clock)))
    }
}
