//! Who keeps the actors alive: builds each life of a topic and of a subscription, on the arbiter that its number falls to.
//!
//! A topic is kept from the first thing there is to do until it is deleted or idle; then the next thing to do starts it
//! again. Its subscriptions hang on the life of its actor: they end with it, and the next life starts those that owe
//! something.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix::ArbiterHandle;

use crate::{
    clock::Clock,
    control::registry::{StartPlan, SubscriptionHandle, TopicHandle},
    fanout::TopicActor,
    journal,
    subscription::{SubscriptionActor, SubscriptionContext},
    supervision::{IncarnationEnd, LifelineHeld, Supervised, SupervisionHistory, supervise},
};

/// How long a subscription waits that could not be opened.
const OPEN_WAIT: Duration = Duration::from_secs(1);

/// Where actors live, and what they need of the world.
#[derive(Clone)]
pub struct ActorHosts {
    /// One for each core.
    pub arbiters: Arc<Vec<ArbiterHandle>>,
    /// What subscriptions need: one for all of them.
    pub world: Arc<SubscriptionContext>,
    /// How often a topic looks after its subscriptions; mostly [`LOOK`](crate::fanout::LOOK).
    pub look: Duration,
}

impl ActorHosts {
    /// The arbiter that this number falls to.
    pub fn arbiter(&self, number: u32) -> &ArbiterHandle {
        &self.arbiters[number as usize % self.arbiters.len()]
    }

    /// Lets an actor live on the arbiter that this number falls to.
    fn keep(&self, number: u32, keeper: impl Supervised + Send, held: LifelineHeld) {
        // False where the arbiter has ended, and the server with it.
        let _running = self.arbiter(number).spawn_fn(move || {
            actix_rt::spawn(supervise(keeper, held));
        });
    }
}

/// Keeps the actors of topics alive. Runs until `starts` ends with its registry, and all of them end with it.
pub async fn run(mut starts: StartPlan, hosts: ActorHosts) {
    while let Some(topic) = starts.recv().await {
        let (number, held) = (topic.partition().0, topic.held());
        hosts.keep(number, TopicFactory { topic, hosts: hosts.clone(), retired: Arc::default() }, held);
    }
}

/// Keeps the actor of a subscription alive, as it is now, until the line is cut.
pub(crate) fn keep_subscription(
    child: Arc<SubscriptionHandle>,
    topic: Arc<TopicHandle>,
    hosts: &ActorHosts,
    held: LifelineHeld,
) {
    child.serve_anew();
    hosts.keep(child.number().0, SubscriptionFactory { child, topic, hosts: hosts.clone() }, held);
}

/// Builds the lives of a topic.
struct TopicFactory {
    topic: Arc<TopicHandle>,
    hosts: ActorHosts,
    /// Set by an actor that ends because it is idle.
    retired: Arc<AtomicBool>,
}

impl Supervised for TopicFactory {
    type Actor = TopicActor;

    fn name(&self) -> String {
        self.topic.record().name.to_string()
    }

    fn history(&self) -> &SupervisionHistory {
        self.topic.history()
    }

    fn clock(&self) -> &Clock {
        &self.hosts.world.clock
    }

    async fn build(&self) -> Option<TopicActor> {
        Some(TopicActor::new(Arc::clone(&self.topic), self.hosts.clone(), Arc::clone(&self.retired)))
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// Builds the lives of a subscription.
struct SubscriptionFactory {
    child: Arc<SubscriptionHandle>,
    topic: Arc<TopicHandle>,
    hosts: ActorHosts,
}

impl Supervised for SubscriptionFactory {
    type Actor = SubscriptionActor;

    fn name(&self) -> String {
        format!("{}/{}", self.topic.record().key(), self.child.shared.plan().record.key())
    }

    fn history(&self) -> &SupervisionHistory {
        &self.child.history
    }

    fn clock(&self) -> &Clock {
        &self.hosts.world.clock
    }

    async fn build(&self) -> Option<SubscriptionActor> {
        loop {
            let (world, tail, shared) =
                (Arc::clone(&self.hosts.world), Arc::clone(self.topic.tail()), Arc::clone(&self.child.shared));
            let (child, clock) = (Arc::clone(&self.child), world.clock.clone());
            let first_act = Box::new(move || child.history.acted(&clock));
            match SubscriptionActor::build(world, tail, shared, first_act).await {
                Ok(actor) => return Some(actor),
                // Deleted meanwhile, or the server ends.
                Err(journal::Error::Unknown | journal::Error::Closed) => return None,
                Err(
                    error @ (journal::Error::Full
                    | journal::Error::Fenced
                    | journal::Error::Backlog(_)
                    | journal::Error::Damaged(_)),
                ) => {
                    tracing::error!(subscription = self.name(), %error, "a subscription cannot be opened");
                    tokio::time::sleep(OPEN_WAIT).await;
                }
            }
        }
    }

    fn on_end(&self, how: IncarnationEnd) {
        if self.child.shared.take_achieved() {
            self.child.history.thrive();
        }
        match how {
            IncarnationEnd::Panicked => self.child.shared.died(false),
            IncarnationEnd::Killed | IncarnationEnd::Stopped | IncarnationEnd::Orphaned => self.child.shared.died(true),
        }
    }
}
