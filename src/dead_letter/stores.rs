//! All stores, each with an actor and an order of turns of its own: one that is out of reach keeps no other waiting.
//!
//! A subscription's dead letters are at one store's desk. When its destination changes, the new store is told: with the next
//! dead letter, and at the latest when the old one's next turn asks where they go. So what waits for a store that does not
//! come back can be sent elsewhere. A turn that is in hand ends first, because both would write the same account.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::{
    DeadLetterTarget, DeadLetters, Notifier, PendingNotice, Sink, StagingQueues, TargetLookup, WriterContext,
    WriterOptions,
};
use crate::{clock::Clock, event::SubscriptionKey, journal::Journal};

/// A handle of the dead letters of all stores: cheap to clone.
#[derive(Clone)]
pub struct DeadLetterStores(Arc<BTreeMap<String, DeadLetters>>);

impl DeadLetterStores {
    /// The dead letters that go to these stores, by name, where `aim` says; `notifier` tells of their files.
    pub fn new(
        journal: &Journal,
        clock: &Clock,
        sinks: impl IntoIterator<Item = (String, Sink)>,
        (aim, notifier): (TargetLookup, Option<Notifier>),
        options: WriterOptions,
    ) -> Self {
        let mut all: BTreeMap<String, DeadLetters> = BTreeMap::new();
        let means = WriterContext {
            notifier: notifier.map(Arc::new),
            aim: Some(Arc::new(aim)),
            reading: Arc::new(Semaphore::new(1)),
            queues: StagingQueues::default(),
            all: Arc::default(),
        };
        for (name, sink) in sinks {
            let letters = DeadLetters::with(journal.clone(), clock.clone(), sink, options, means.clone());
            all.insert(name, letters);
        }
        let all = Arc::new(all);
        // Nobody else has set it: the means are of this moment.
        means.all.get_or_init(|| Arc::downgrade(&all));
        Self(all)
    }

    /// The store of that name.
    pub fn get(&self, name: &str) -> Option<&DeadLetters> {
        self.0.get(name)
    }

    /// The store that a subscription's dead letters go to now, and where in it. Without a destination, any store, and no
    /// place: some may wait all the same. [`None`] where there are no stores.
    pub fn of(&self, subscription_key: SubscriptionKey) -> Option<(&DeadLetters, Option<DeadLetterTarget>)> {
        let first = self.0.values().next()?;
        let target = first.0.means.aim.as_ref().and_then(|aim| aim(subscription_key));
        match target.as_ref().and_then(|target| self.get(&target.store)) {
            Some(letters) => Some((letters, target)),
            None => Some((first, None)),
        }
    }

    /// All of them, with their names.
    pub fn all(&self) -> impl Iterator<Item = (&str, &DeadLetters)> {
        self.0.iter().map(|(name, letters)| (name.as_str(), letters))
    }

    /// Tells that something waits, to the store of its target and to no other. False where there is no such store: then
    /// it goes on waiting, in the journal.
    pub fn waiting(&self, notice: PendingNotice) -> bool {
        for (name, letters) in self.all() {
            if *name != notice.target.store {
                letters.forget(notice.subscription_key);
            }
        }
        let store = self.0.get(&notice.target.store);
        if let Some(letters) = store {
            letters.waiting(notice);
        }
        store.is_some()
    }

    /// Begins no more files, and waits until those in hand are finished, at most for `wait`. True where they are.
    pub async fn settle(&self, wait: Duration) -> bool {
        join_all(self.0.values().map(|letters| letters.settle(wait))).await.into_iter().all(|settled| settled)
    }
}
