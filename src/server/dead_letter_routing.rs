//! Starts the dead-letter stores, routes dead letters from a subscription to the actor of their
//! store, and supervises these actors.

use std::sync::Arc;

use crate::{
    ServerError, live_subscriptions::LiveSubscriptions, settings, startup::ServerParts,
    system_topic::SystemTopic,
};
use gridhook_admin::DeadLetterHandle;
use gridhook_clock::Clock;
use gridhook_dead_letter as dead_letter;
use gridhook_dead_letter::{
    DeadLetterActor, DeadLetterStores, DeadLetterTarget, DeadLetters, Redrives, WaitingDeadLetters,
    sink::FileFence,
};
use gridhook_engine::{
    control::registry::Registry,
    supervision::{Lifeline, Supervised, SupervisionHistory, supervise_actor},
};
use gridhook_event::Timestamp;
use gridhook_journal as journal;
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

/// The dead-letter stores and their actors.
pub(super) struct DeadLetterService {
    pub(super) stores: DeadLetterStores,
    pub(super) routing: DeadLetterRouting,
    pub(super) handles: Vec<DeadLetterHandle>,
    /// The actors run as long as this is held.
    pub(super) lifeline: Lifeline,
}

/// Starts one actor for each dead-letter store, and routes the dead letters of the journal to them.
pub(super) fn start_dead_letters(
    parts: &ServerParts,
    system_topic: Option<&Arc<SystemTopic>>,
    fence: Option<&FileFence>,
) -> Result<DeadLetterService, ServerError> {
    let ServerParts {
        config,
        clock,
        journal,
        registry,
        ..
    } = parts;
    let notifier = system_topic.map(SystemTopic::notifier);
    let sinks = settings::open_sinks(config)?.into_iter();
    let sinks = sinks.map(|(name, sink)| (name, sink.with_fence(fence.cloned())));
    let sinks: Vec<_> = sinks.collect();
    let routing = DeadLetterRouting {
        registry: Arc::clone(registry),
        named_stores: config.dead_letter.named_stores.clone(),
    };
    let options = dead_letter::WriterOptions::default();
    let stores = DeadLetterStores::new(
        journal,
        clock,
        sinks,
        routing.target_lookup(),
        notifier,
        options,
    );
    let lifeline = Lifeline::new();
    for (subscription_key, due) in journal.reader_pool().all_dead()? {
        if let Some(shared) = registry.shared_state(subscription_key) {
            routing.notify_stores(&stores, &shared, due);
        }
    }
    let mut handles = Vec::new();
    for (name, dead_letters) in stores.list_stores() {
        let store = name.to_owned();
        let history = Arc::new(SupervisionHistory::default());
        let target = dead_letters.clone();
        let factory = DeadLetterActorFactory {
            store: store.clone(),
            dead_letters: dead_letters.clone(),
            history: Arc::clone(&history),
            clock: clock.clone(),
        };
        actix_rt::spawn(supervise_actor(factory, lifeline.new_watch()));
        let inject = Box::new(move |fault| target.inject_fault(fault));
        handles.push(DeadLetterHandle {
            store,
            history,
            inject,
        });
    }
    Ok(DeadLetterService {
        stores,
        routing,
        handles,
        lifeline,
    })
}

/// Resumes the redrives that the last process had not finished.
pub(super) fn resume_redrives(
    parts: &ServerParts,
    stores: &DeadLetterStores,
) -> Result<Redrives, journal::Error> {
    let ServerParts {
        config,
        clock,
        journal,
        registry,
        ..
    } = parts;
    let subscriptions = LiveSubscriptions {
        registry: Arc::clone(registry),
        limits: settings::publish_limits(config),
    };
    let redrives = Redrives::new(
        journal.clone(),
        clock.clone(),
        stores.clone(),
        Arc::new(subscriptions),
    );
    redrives.resume_redrives()?;
    Ok(redrives)
}
