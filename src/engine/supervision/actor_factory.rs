//! Builds each incarnation of the actors of topics and subscriptions, on the arbiter that is chosen
//! by a number of theirs.
//!
//! A topic's actor is supervised from its first work until the topic is deleted or idle. New work
//! starts it again. The actors of its subscriptions end with it, and its next incarnation starts
//! those that have work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix::ArbiterHandle;

use crate::{
    control::registry::{StartQueue, SubscriptionHandle, TopicHandle},
    fanout::TopicActor,
    supervision::{IncarnationEnd, LifelineWatch, Supervised, SupervisionHistory, supervise_actor},
};
use gridhook_clock::Clock;
use gridhook_journal as journal;
use gridhook_subscription::{SubscriptionActor, SubscriptionContext};

/// Pause before opening a subscription is retried.
const OPEN_WAIT: Duration = Duration::from_secs(1);

/// The arbiters that actors run on, and the services that they use.
#[derive(Clone)]
pub struct ActorHosts {
    pub arbiters: Arc<Vec<ArbiterHandle>>,
    pub context: Arc<SubscriptionContext>,
    /// Interval of a topic's periodic check; usually
    /// [`CHECK_INTERVAL`](crate::fanout::CHECK_INTERVAL).
    pub check_interval: Duration,
}

impl ActorHosts {
    pub fn arbiter_for(&self, number: u32) -> &ArbiterHandle {
        &self.arbiters[number as usize % self.arbiters.len()]
    }

    /// Supervises an actor on the arbiter for this number.
    fn spawn_supervised(
        &self,
        number: u32,
        supervised: impl Supervised + Send,
        lifeline: LifelineWatch,
    ) {
        // False if the arbiter has ended because the server stops.
        let _running = self.arbiter_for(number).spawn_fn(move || {
            actix_rt::spawn(supervise_actor(supervised, lifeline));
        });
    }
}

/// Supervises the actors of topics. Runs until the registry drops the sender of `starts`.
pub async fn run(mut starts: StartQueue, hosts: ActorHosts) {
    while let Some(topic) = starts.recv().await {
        let number = topic.partition().0;
        let lifeline = topic.watch_lifeline();
        hosts.spawn_supervised(
            number,
            TopicFactory {
                topic,
                hosts: hosts.clone(),
                retired: Arc::default(),
            },
            lifeline,
        );
    }
}

/// Supervises the actor of a subscription, with its current plan, until the lifeline is cut.
pub fn supervise_subscription(
    child: Arc<SubscriptionHandle>,
    topic: Arc<TopicHandle>,
    hosts: &ActorHosts,
    lifeline: LifelineWatch,
) {
    child.note_served_plan();
    hosts.spawn_supervised(
        child.host_number(),
        SubscriptionFactory {
            child,
            topic,
            hosts: hosts.clone(),
        },
        lifeline,
    );
}

/// Builds the incarnations of a topic's actor.
struct TopicFactory {
    topic: Arc<TopicHandle>,
    hosts: ActorHosts,
    /// Set by an actor that stops because it is idle.
    retired: Arc<AtomicBool>,
}

impl Supervised for TopicFactory {
    type Actor = TopicActor;

    fn name(&self) -> String {
        self.topic.record().name.to_string()
    }

    fn supervision_history(&self) -> &SupervisionHistory {
        self.topic.supervision_history()
    }

    fn clock(&self) -> &Clock {
        &self.hosts.context.clock
    }

    async fn build(&self) -> Option<TopicActor> {
        Some(TopicActor::new(
            Arc::clone(&self.topic),
            self.hosts.clone(),
            Arc::clone(&self.retired),
        ))
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// Builds the incarnations of a subscription's actor.
struct SubscriptionFactory {
    child: Arc<SubscriptionHandle>,
    topic: Arc<TopicHandle>,
    hosts: ActorHosts,
}

impl Supervised for SubscriptionFactory {
    type Actor = SubscriptionActor;

    fn name(&self) -> String {
        format!(
            "{}/{}",
            self.topic.record().key(),
            self.child.shared.plan().record.key()
        )
    }

    fn supervision_history(&self) -> &SupervisionHistory {
        &self.child.history
    }

    fn clock(&self) -> &Clock {
        &self.hosts.context.clock
    }

    async fn build(&self) -> Option<SubscriptionActor> {
        loop {
            let context = Arc::clone(&self.hosts.context);
            let recent = Arc::clone(self.topic.recent_events());
            let shared = Arc::clone(&self.child.shared);
            let child = Arc::clone(&self.child);
            let clock = context.clock.clone();
            let on_recovered = Box::new(move || child.history.note_recovered(&clock));
            match SubscriptionActor::build(context, recent, shared, on_recovered).await {
                Ok(actor) => return Some(actor),
                // Deleted meanwhile, or the server stops.
                Err(journal::Error::Unknown | journal::Error::Closed) => return None,
                Err(
                    error @ (journal::Error::Full
                    | journal::Error::Fenced
                    | journal::Error::Backlog(_)
                    | journal::Error::Damaged(_)),
                ) => {
                    tracing::error!(subscription = self.name(), %error, "cannot open subscription; \
                        retrying");
                    tokio::time::sleep(OPEN_WAIT).await;
                }
            }
        }
    }

    fn on_end(&self, how: IncarnationEnd) {
        if self.child.shared.take_progress() {
            self.child.history.note_progress();
        }
        self.child
            .shared
            .on_incarnation_end(matches!(how, IncarnationEnd::Panicked));
    }

    /// Starts the actor again if requests wait. The topic's actor stops an idle one, and a request
    /// before its end has found it running.
    fn on_stopped(&self) {
        if self.child.shared.has_requests() {
            self.topic.ensure_actor(&self.child.shared);
        }
    }
}
