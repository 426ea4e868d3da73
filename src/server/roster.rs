//! What a redrive must know of subscriptions, and ask of them: the registry has all of it.

use std::{pin::Pin, sync::Arc};

use crate::{
    dead_letter::{letter::Letter, redrive},
    event::{Lane, Obligor, Schema},
    journal::chunk::Sealed,
    policy::record::{
        TakenBack,
        job::{Job, JobKind},
    },
    publish::{self, Limits},
    topic::registry::Registry,
};

/// The subscriptions that there are.
pub(super) struct Roster {
    pub(super) registry: Arc<Registry>,
    pub(super) limits: Limits,
}

impl redrive::Roster for Roster {
    fn redrives(&self) -> Vec<(Obligor, Lane)> {
        let mut found = Vec::new();
        for topic in self.registry.topics() {
            for subscription in topic.subscriptions() {
                let obligor = Obligor { partition: topic.partition(), subscription: subscription.number };
                let jobs = self.registry.slot(obligor).map(|slot| slot.state().cursor.jobs).unwrap_or_default();
                let redrives = jobs.iter().filter(|job| matches!(job.kind, JobKind::Redrive { .. }));
                found.extend(redrives.map(|job| (obligor, job.lane)));
            }
        }
        found
    }

    fn namesakes(&self, obligor: Obligor) -> Vec<Obligor> {
        let Some(slot) = self.registry.slot(obligor) else { return Vec::new() };
        let plan = slot.plan();
        let mut found = Vec::new();
        for topic in self.registry.topics() {
            let namesakes = topic.subscriptions().into_iter().filter(|other| other.name == plan.record.name);
            found.extend(namesakes.map(|other| Obligor { partition: topic.partition(), subscription: other.number }));
        }
        found.retain(|other| *other != obligor);
        found
    }

    fn is_custom(&self, obligor: Obligor) -> Option<bool> {
        let (topic, _) = (self.registry.owner(obligor.partition)?, self.registry.slot(obligor)?);
        Some(topic.record().input_schema == Schema::Custom)
    }

    fn job(&self, obligor: Obligor, lane: Lane) -> Option<Job> {
        let jobs = self.registry.slot(obligor)?.state().cursor.jobs;
        jobs.into_iter().find(|job| job.lane == lane)
    }

    fn recast(&self, obligor: Obligor, letter: &Letter) -> Result<Sealed, String> {
        let gone = || "its event subscription is gone".to_owned();
        let topic = self.registry.owner(obligor.partition).ok_or_else(gone)?.record();
        let plan = self.registry.slot(obligor).ok_or_else(gone)?.plan();
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

    fn take_back(&self, obligor: Obligor, page: TakenBack) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let taken = self.registry.take_back(obligor, page);
        Box::pin(async move { taken.await.is_ok() })
    }
}
