//! The way of a dead letter from a subscription to the dead-letter actor, and who keeps that actor alive.

use std::sync::Arc;

use crate::{
    clock::Clock,
    dead_letter::{DeadLetterActor, DeadLetters, Notice, Target},
    event::Timestamp,
    subscription::Slot,
    topic::{
        registry::Registry,
        supervise::{Chart, Held, Supervised, supervise},
    },
};

/// Tells the dead-letter actor which letters wait, and where they are to go.
pub(super) struct Graves {
    pub(super) registry: Arc<Registry>,
    pub(super) letters: DeadLetters,
}

impl Graves {
    pub(super) fn tell(&self, slot: &Slot, due: Timestamp) {
        let (plan, topic) = (slot.plan(), self.registry.owner(slot.obligor.partition));
        let (Some(topic), Some(destination)) = (topic, &plan.record.dead_letter) else { return };
        let edition = &plan.settings.edition.dead_letter;
        let target = Target {
            container: destination.container.clone(),
            subscription_name: plan.record.name.to_string(),
            delivery_schema: plan.record.delivery_schema,
            topic: topic.record().resource_id(),
            outage_window: edition.outage_window,
            drop_where_not_found: edition.drop_where_not_found,
        };
        self.letters.waiting(Notice { obligor: slot.obligor, target, due });
    }
}

/// Keeps the dead-letter actor alive until the line is cut.
pub(super) async fn keep(letters: DeadLetters, chart: Arc<Chart>, clock: Clock, held: Held) {
    supervise(Sexton { letters, chart, clock }, held).await;
}

/// Builds the lives of the dead-letter actor.
struct Sexton {
    letters: DeadLetters,
    chart: Arc<Chart>,
    clock: Clock,
}

impl Supervised for Sexton {
    type Actor = DeadLetterActor;

    fn name(&self) -> String {
        "dead letters".to_owned()
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
