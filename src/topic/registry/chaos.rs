//! What chaos may do to topics and subscriptions: kill their actors and their requests, and poison events.
//!
//! A death that was asked for counts neither for the delay of the next life nor against an event.

use super::{Error, Registry, known_child};
use crate::subscription::Die;

/// What chaos kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// A topic's actor.
    Topic,
    /// A subscription's actor.
    Subscription,
    /// The task of a request that is on its way.
    Delivery,
}

/// How chaos kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By a panic.
    Panic,
    /// By a stop.
    Stop,
}

/// A kill that chaos asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// In which topic.
    pub topic: String,
    /// Of which subscription; none where the topic itself is meant.
    pub subscription: Option<String>,
    /// What.
    pub what: Victim,
    /// How.
    pub by: By,
}

impl Registry {
    /// Kills, for chaos.
    #[expect(clippy::disallowed_methods, reason = "a kill is sent once, and an actor that is gone needs none")]
    pub fn kill(&self, Kill { topic, subscription, what, by }: Kill) -> Result<(), Error> {
        let topic = self.known(&topic)?;
        let child = subscription.map(|name| known_child(&topic, &name)).transpose()?;
        let die = match by {
            By::Panic => Die::Panicking,
            By::Stop => Die::Stopping,
        };
        let idle = |what: &str| Error::Refused(format!("no {what} runs at present"));
        match (what, child) {
            (Victim::Topic, _) => {
                let mailbox = topic.mailbox().ok_or_else(|| idle("actor of this topic"))?;
                topic.chart().kill_on_purpose();
                mailbox.do_send(die);
            }
            (Victim::Subscription, Some(child)) => {
                let mailbox = child.slot.mailbox().ok_or_else(|| idle("actor of this subscription"))?;
                child.chart.kill_on_purpose();
                mailbox.do_send(die);
            }
            (Victim::Delivery, Some(child)) => match by {
                By::Panic => child.slot.doom_delivery(),
                By::Stop if child.slot.kill_delivery() => {}
                By::Stop => return Err(idle("delivery of this subscription")),
            },
            (Victim::Subscription | Victim::Delivery, None) => {
                return Err(Error::Refused("a subscription must be named".to_owned()));
            }
        }
        Ok(())
    }

    /// Lets an event kill the actor that takes it in hand, so many times.
    pub fn poison(&self, topic: &str, subscription: &str, event_id: &str, times: u32) -> Result<(), Error> {
        known_child(&*self.known(topic)?, subscription)?.slot.poison(event_id, times);
        Ok(())
    }
}
