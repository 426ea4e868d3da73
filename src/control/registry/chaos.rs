//! What chaos may do to topics and subscriptions: let their actors and their requests suffer, and poison events.
//!
//! A death that was asked for counts neither for the delay of the next life nor against an event.

use std::sync::Arc;

use super::{Error, Registry, SubscriptionHandle, TopicHandle, known_child};
pub use crate::chaos::response_faults::{
    FaultCount, FaultCounts, FaultInjection, FaultRule, FaultTarget as WhoseAnswers, ResponseFault,
};
use crate::chaos::{ActorFault, Inject, response_faults::FaultTarget};

/// What suffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChaosVictim {
    /// A topic's actor.
    Topic(String),
    /// A subscription's actor.
    Subscription(String, String),
}

/// How chaos kills the task of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKill {
    /// By a panic: the next one.
    Panic,
    /// By force: one that is on its way.
    Stop,
}

impl Registry {
    /// Lets an actor suffer.
    #[expect(clippy::disallowed_methods, reason = "sent once, and an actor that is gone needs none")]
    pub fn inject(&self, victim: &ChaosVictim, ordeal: ActorFault) -> Result<(), Error> {
        match victim {
            ChaosVictim::Topic(topic) => {
                let topic = self.known(topic)?;
                let mailbox = topic.mailbox().ok_or_else(|| idle("actor of this topic"))?;
                mailbox.do_send(Inject { fault: ordeal, mark: topic.history().intended_stop() });
            }
            ChaosVictim::Subscription(topic, name) => {
                let child = known_child(&*self.known(topic)?, name)?;
                let mailbox = child.shared.mailbox().ok_or_else(|| idle("actor of this subscription"))?;
                mailbox.do_send(Inject { fault: ordeal, mark: child.history.intended_stop() });
            }
        }
        Ok(())
    }

    /// Kills the task of a request.
    pub fn kill_delivery(&self, topic: &str, subscription: &str, by: TaskKill) -> Result<(), Error> {
        let child = known_child(&*self.known(topic)?, subscription)?;
        match by {
            TaskKill::Panic => child.shared.doom_delivery(),
            TaskKill::Stop if child.shared.kill_delivery() => {}
            TaskKill::Stop => return Err(idle("delivery of this subscription")),
        }
        Ok(())
    }

    /// The actors that live now, of one topic or of all, one for each subscription and each topic.
    pub fn living(&self, topic: Option<&str>) -> Result<Vec<ChaosVictim>, Error> {
        let topics = match topic {
            Some(topic) => vec![self.known(topic)?],
            None => self.topics(),
        };
        let living = |topic: &Arc<TopicHandle>| {
            let key = topic.record().key();
            let children = topic.children().into_iter().filter(|child| child.shared.mailbox().is_some());
            let name = |child: Arc<SubscriptionHandle>| {
                ChaosVictim::Subscription(key.clone(), child.shared.plan().record.key())
            };
            let mut living: Vec<ChaosVictim> = children.map(name).collect();
            living.extend(topic.mailbox().map(|_| ChaosVictim::Topic(key.clone())));
            living
        };
        Ok(topics.iter().flat_map(living).collect())
    }

    /// Whose answers are meant: those of all, of a topic, or of a subscription.
    pub fn fault_target(&self, topic: Option<&str>, subscription: Option<&str>) -> Result<FaultTarget, Error> {
        let Some(topic) = topic else { return Ok(FaultTarget::All) };
        let topic = self.known(topic)?;
        Ok(match subscription {
            None => FaultTarget::Topic(topic.partition()),
            Some(name) => FaultTarget::Subscription(known_child(&topic, name)?.shared.subscription_key),
        })
    }

    /// Lets an event kill the actor that takes it in hand, so many times.
    pub fn poison(&self, topic: &str, subscription: &str, event_id: &str, times: u32) -> Result<(), Error> {
        known_child(&*self.known(topic)?, subscription)?.shared.poison(event_id, times);
        Ok(())
    }

    /// Takes the poison out of a subscription's event, where it is there still.
    pub fn spare(&self, topic: &str, subscription: &str) {
        // One that is gone needs none.
        if let Some(child) = self.topic(topic).and_then(|topic| topic.child_named(subscription)) {
            child.shared.clear_faults();
        }
    }
}

fn idle(what: &str) -> Error {
    Error::Refused(format!("no {what} runs at present"))
}
