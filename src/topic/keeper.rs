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
    journal,
    subscription::{SubscriptionActor, World},
    topic::{
        actor::TopicActor,
        registry::{Child, Starts, Topic},
        supervise::{Chart, End, Held, Supervised, supervise},
    },
};

/// How long a subscription waits that could not be opened.
const OPEN_WAIT: Duration = Duration::from_secs(1);

/// Where actors live, and what they need of the world.
#[derive(Clone)]
pub struct Hosts {
    /// One for each core.
    pub arbiters: Arc<Vec<ArbiterHandle>>,
    /// What subscriptions need: one for all of them.
    pub world: Arc<World>,
    /// How often a topic looks after its subscriptions; mostly [`LOOK`](super::LOOK).
    pub look: Duration,
}

impl Hosts {
    /// The arbiter that this number falls to.
    pub fn arbiter(&self, number: u32) -> &ArbiterHandle {
        &self.arbiters[number as usize % self.arbiters.len()]
    }

    /// Lets an actor live on the arbiter that this number falls to.
    fn keep(&self, number: u32, keeper: impl Supervised + Send, held: Held) {
        // False where the arbiter has ended, and the server with it.
        let _running = self.arbiter(number).spawn_fn(move || {
            actix_rt::spawn(supervise(keeper, held));
        });
    }
}

/// Keeps the actors of topics alive. Runs until `starts` ends with its registry, and all of them end with it.
pub async fn run(mut starts: Starts, hosts: Hosts) {
    while let Some(topic) = starts.recv().await {
        let (number, held) = (topic.partition().0, topic.held());
        hosts.keep(number, TopicKeeper { topic, hosts: hosts.clone(), retired: Arc::default() }, held);
    }
}

/// Keeps the actor of a subscription alive, as it is now, until the line is cut.
pub(super) fn keep_subscription(child: Arc<Child>, topic: Arc<Topic>, hosts: &Hosts, held: Held) {
    child.serve_anew();
    hosts.keep(child.number().0, SubscriptionKeeper { child, topic, hosts: hosts.clone() }, held);
}

/// Builds the lives of a topic.
struct TopicKeeper {
    topic: Arc<Topic>,
    hosts: Hosts,
    /// Set by an actor that ends because it is idle.
    retired: Arc<AtomicBool>,
}

impl Supervised for TopicKeeper {
    type Actor = TopicActor;

    fn name(&self) -> String {
        self.topic.record().name.to_string()
    }

    fn chart(&self) -> &Chart {
        self.topic.chart()
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
struct SubscriptionKeeper {
    child: Arc<Child>,
    topic: Arc<Topic>,
    hosts: Hosts,
}

impl Supervised for SubscriptionKeeper {
    type Actor = SubscriptionActor;

    fn name(&self) -> String {
        format!("{}/{}", self.topic.record().key(), self.child.slot.plan().record.key())
    }

    fn chart(&self) -> &Chart {
        &self.child.chart
    }

    fn clock(&self) -> &Clock {
        &self.hosts.world.clock
    }

    async fn build(&self) -> Option<SubscriptionActor> {
        loop {
            let (world, tail, slot) =
                (Arc::clone(&self.hosts.world), Arc::clone(self.topic.tail()), Arc::clone(&self.child.slot));
            let (child, clock) = (Arc::clone(&self.child), world.clock.clone());
            let first_act = Box::new(move || child.chart.acted(&clock));
            match SubscriptionActor::build(world, tail, slot, first_act).await {
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

    fn ended(&self, how: End) {
        if self.child.slot.take_achieved() {
            self.child.chart.thrive();
        }
        match how {
            End::Panicked => self.child.slot.died(false),
            End::Killed | End::Stopped | End::Orphaned => self.child.slot.died(true),
        }
    }
}
