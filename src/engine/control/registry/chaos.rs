//! Fault injection into topics, subscriptions and their requests.
//!
//! An intended end counts neither for the delay of the next restart nor against an event.

use super::{Error, Registry, known_child};
use gridhook_chaos::{ActorFault, Inject, response_faults::FaultTarget};

/// The actor that a fault is injected into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChaosVictim {
    Topic(String),
    Subscription(String, String),
}

/// How chaos ends the task of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKill {
    Panic,
    /// A running task is aborted.
    Stop,
}

impl Registry {
    /// Injects a fault into an actor.
    #[expect(
        clippy::disallowed_methods,
        reason = "sent once; an actor that has ended needs no fault"
    )]
    pub fn inject_fault(&self, victim: &ChaosVictim, fault: ActorFault) -> Result<(), Error> {
        match victim {
            ChaosVictim::Topic(topic) => {
                let topic = self.require_topic(topic)?;
                let mailbox = topic
                    .actor_address()
                    .ok_or_else(|| not_running("actor of this topic"))?;
                mailbox.do_send(Inject {
                    fault,
                    mark: topic.supervision_history().intended_stop(),
                });
            }
            ChaosVictim::Subscription(topic, name) => {
                let child = known_child(&*self.require_topic(topic)?, name)?;
                let mailbox = child
                    .shared
                    .actor_address()
                    .ok_or_else(|| not_running("actor of this subscription"))?;
                mailbox.do_send(Inject {
                    fault,
                    mark: child.history.intended_stop(),
                });
            }
        }
        Ok(())
    }

    /// Ends the task of a request.
    pub fn kill_delivery(
        &self,
        topic: &str,
        subscription: &str,
        by: TaskKill,
    ) -> Result<(), Error> {
        let child = known_child(&*self.require_topic(topic)?, subscription)?;
        match by {
            TaskKill::Panic => child.shared.doom_delivery(),
            TaskKill::Stop if child.shared.kill_delivery() => {}
            TaskKill::Stop => return Err(not_running("delivery of this subscription")),
        }
        Ok(())
    }

    /// The running actors of one topic or of all topics.
    pub fn running_actors(&self, topic: Option<&str>) -> Result<Vec<ChaosVictim>, Error> {
        let topics = match topic {
            Some(topic) => vec![self.require_topic(topic)?],
            None => self.list_topics(),
        };
        let mut running = Vec::new();
        for topic in topics {
            let key = topic.record().key();
            for child in topic.list_children() {
                if child.shared.actor_address().is_some() {
                    let name = child.shared.plan().record.key();
                    running.push(ChaosVictim::Subscription(key.clone(), name));
                }
            }
            if topic.actor_address().is_some() {
                running.push(ChaosVictim::Topic(key));
            }
        }
        Ok(running)
    }

    /// The target of response faults: all subscriptions, those of a topic, or one.
    pub fn fault_target(
        &self,
        topic: Option<&str>,
        subscription: Option<&str>,
    ) -> Result<FaultTarget, Error> {
        let Some(topic) = topic else {
            return Ok(FaultTarget::All);
        };
        let topic = self.require_topic(topic)?;
        Ok(match subscription {
            None => FaultTarget::Topic(topic.partition()),
            Some(name) => {
                FaultTarget::Subscription(known_child(&topic, name)?.shared.subscription_key)
            }
        })
    }

    /// Makes an event panic the actor that processes it, this many times.
    pub fn poison_event(
        &self,
        topic: &str,
        subscription: &str,
        event_id: &str,
        times: u32,
    ) -> Result<(), Error> {
        known_child(&*self.require_topic(topic)?, subscription)?
            .shared
            .poison_event(event_id, times);
        Ok(())
    }

    /// Removes the faults of a subscription.
    pub fn clear_faults(&self, topic: &str, subscription: &str) {
        // A deleted subscription has none.
        if let Some(child) = self
            .find_topic(topic)
            .and_then(|topic| topic.find_child_named(subscription))
        {
            child.shared.clear_faults();
        }
    }
}

fn not_running(what: &str) -> Error {
    Error::Refused(format!("no {what} is running"))
}
