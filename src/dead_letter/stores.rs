//! All stores, each with its own actor and order of turns: an unreachable store does not delay the
//! others.
//!
//! A subscription's dead letters are queued at one store. When its destination changes, the new
//! store is notified with the next dead letter, at the latest at the next turn of the old store. So
//! dead letters for a store that never returns can be redirected. A running turn ends first,
//! because both would write the same totals.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::{
    DeadLetterTarget, DeadLetters, Notifier, Sink, SubscriptionLocks, TargetLookup,
    WaitingDeadLetters, WriterContext, WriterOptions,
};
use gridhook_clock::Clock;
use gridhook_event::SubscriptionKey;
use gridhook_journal::Journal;

/// A handle of the dead letters of all stores. Cheap to clone.
#[derive(Clone)]
pub struct DeadLetterStores(Arc<BTreeMap<String, DeadLetters>>);

impl DeadLetterStores {
    /// Dead letters for these stores, by name. `notifier` announces files.
    pub fn new(
        journal: &Journal,
        clock: &Clock,
        sinks: impl IntoIterator<Item = (String, Sink)>,
        find_target: TargetLookup,
        notifier: Option<Notifier>,
        options: WriterOptions,
    ) -> Self {
        let mut all: BTreeMap<String, DeadLetters> = BTreeMap::new();
        let context = WriterContext {
            notifier: notifier.map(Arc::new),
            find_target: Some(Arc::new(find_target)),
            reading: Arc::new(Semaphore::new(1)),
            locks: SubscriptionLocks::default(),
            all: Arc::default(),
        };
        for (name, sink) in sinks {
            let dead_letters = DeadLetters::with(
                journal.clone(),
                clock.clone(),
                sink,
                options,
                context.clone(),
            );
            all.insert(name, dead_letters);
        }
        let all = Arc::new(all);
        // `context` was created above, so nothing else has set it.
        context.all.get_or_init(|| Arc::downgrade(&all));
        Self(all)
    }

    pub fn get(&self, name: &str) -> Option<&DeadLetters> {
        self.0.get(name)
    }

    /// The current store of a subscription's dead letters, and the target in it. Without a
    /// destination, any store and no target: some dead letters may still wait. [`None`] if there
    /// are no stores.
    pub fn current_store(
        &self,
        subscription_key: SubscriptionKey,
    ) -> Option<(&DeadLetters, Option<DeadLetterTarget>)> {
        let first = self.0.values().next()?;
        let target = first
            .0
            .context
            .find_target
            .as_ref()
            .and_then(|find_target| find_target(subscription_key));
        match target.as_ref().and_then(|target| self.get(&target.store)) {
            Some(dead_letters) => Some((dead_letters, target)),
            None => Some((first, None)),
        }
    }

    /// All stores, with their names.
    pub fn list_stores(&self) -> impl Iterator<Item = (&str, &DeadLetters)> {
        self.0
            .iter()
            .map(|(name, dead_letters)| (name.as_str(), dead_letters))
    }

    /// Queues dead letters at the store of their target, and at no other. False if that store does
    /// not exist: they stay in the journal.
    pub fn queue_waiting(&self, waiting: WaitingDeadLetters) -> bool {
        for (name, dead_letters) in self.list_stores() {
            if *name != waiting.target.store {
                dead_letters.forget_subscription(waiting.subscription_key);
            }
        }
        let store = self.0.get(&waiting.target.store);
        if let Some(dead_letters) = store {
            dead_letters.queue_waiting(waiting);
        }
        store.is_some()
    }

    /// Starts no more files, and waits at most `wait` for running turns. True if all have ended.
    pub async fn finish_turns(&self, wait: Duration) -> bool {
        join_all(
            self.0
                .values()
                .map(|dead_letters| dead_letters.finish_turns(wait)),
        )
        .await
        .into_iter()
        .all(|settled| settled)
    }
}
