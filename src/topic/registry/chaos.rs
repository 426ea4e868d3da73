//! What chaos may do to topics and subscriptions: let their actors and their requests suffer, and poison events.
//!
//! A death that was asked for counts neither for the delay of the next life nor against an event.

use std::sync::Arc;

use super::{Child, Error, Registry, Topic, known_child};
pub use crate::subscription::disturb::{Count, Counts, Disturbance, Mischief, Rule, Whose as WhoseAnswers};
use crate::{
    chaos::{Ordeal, Suffer},
    subscription::disturb::Whose,
};

/// What suffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    /// A topic's actor.
    Topic(String),
    /// A subscription's actor.
    Subscription(String, String),
}

/// How chaos kills the task of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By a panic: the next one.
    Panic,
    /// By force: one that is on its way.
    Stop,
}

impl Registry {
    /// Lets an actor suffer.
    #[expect(clippy::disallowed_methods, reason = "sent once, and an actor that is gone needs none")]
    pub fn suffer(&self, victim: &Victim, ordeal: Ordeal) -> Result<(), Error> {
        match victim {
            Victim::Topic(topic) => {
                let topic = self.known(topic)?;
                let mailbox = topic.mailbox().ok_or_else(|| idle("actor of this topic"))?;
                mailbox.do_send(Suffer { ordeal, mark: topic.chart().mark() });
            }
            Victim::Subscription(topic, name) => {
                let child = known_child(&*self.known(topic)?, name)?;
                let mailbox = child.slot.mailbox().ok_or_else(|| idle("actor of this subscription"))?;
                mailbox.do_send(Suffer { ordeal, mark: child.chart.mark() });
            }
        }
        Ok(())
    }

    /// Kills the task of a request.
    pub fn kill_delivery(&self, topic: &str, subscription: &str, by: By) -> Result<(), Error> {
        let child = known_child(&*self.known(topic)?, subscription)?;
        match by {
            By::Panic => child.slot.doom_delivery(),
            By::Stop if child.slot.kill_delivery() => {}
            By::Stop => return Err(idle("delivery of this subscription")),
        }
        Ok(())
    }

    /// The actors that live now, of one topic or of all, one for each subscription and each topic.
    pub fn living(&self, topic: Option<&str>) -> Result<Vec<Victim>, Error> {
        let topics = match topic {
            Some(topic) => vec![self.known(topic)?],
            None => self.topics(),
        };
        let living = |topic: &Arc<Topic>| {
            let key = topic.record().key();
            let children = topic.children().into_iter().filter(|child| child.slot.mailbox().is_some());
            let name = |child: Arc<Child>| Victim::Subscription(key.clone(), child.slot.plan().record.key());
            let mut living: Vec<Victim> = children.map(name).collect();
            living.extend(topic.mailbox().map(|_| Victim::Topic(key.clone())));
            living
        };
        Ok(topics.iter().flat_map(living).collect())
    }

    /// Whose answers are meant: those of all, of a topic, or of a subscription.
    pub fn whose(&self, topic: Option<&str>, subscription: Option<&str>) -> Result<Whose, Error> {
        let Some(topic) = topic else { return Ok(Whose::All) };
        let topic = self.known(topic)?;
        Ok(match subscription {
            None => Whose::Topic(topic.partition()),
            Some(name) => Whose::Subscription(known_child(&topic, name)?.slot.obligor),
        })
    }

    /// Lets an event kill the actor that takes it in hand, so many times.
    pub fn poison(&self, topic: &str, subscription: &str, event_id: &str, times: u32) -> Result<(), Error> {
        known_child(&*self.known(topic)?, subscription)?.slot.poison(event_id, times);
        Ok(())
    }

    /// Takes the poison out of a subscription's event, where it is there still.
    pub fn spare(&self, topic: &str, subscription: &str) {
        // One that is gone needs none.
        if let Some(child) = self.topic(topic).and_then(|topic| topic.child_named(subscription)) {
            child.slot.spare();
        }
    }
}

fn idle(what: &str) -> Error {
    Error::Refused(format!("no {what} runs at present"))
}
