//! What is done with events before they are sent: they are transformed when they are read, and a
//! batch is freed of events that expired or cannot be transformed when it leaves.

use std::collections::HashSet;

use super::Subscription;
use crate::{batch::ReadyEvent, order::OrderHash, outcome::Reason};
use gridhook_event::{Event, Timestamp, Transformation};

impl Subscription {
    /// The events with what is delivered instead of them. Their size decides which of them are in a
    /// request.
    pub(super) fn transform_all(&self, events: Vec<Event>) -> Vec<Event> {
        if self.settings.transform.is_none() {
            return events;
        }
        events
            .into_iter()
            .map(|event| self.transform_event(event))
            .collect()
    }

    pub(super) fn transform_event(&self, event: Event) -> Event {
        match &self.settings.transform {
            Some(program) => program.transform(event, self.settings.batch.schema),
            None => event,
        }
    }

    /// Gives up the events of a batch that expired or cannot be transformed; returns the others.
    /// The later ones of the same order key are held back: the key may be blocked, and no write has
    /// the end of the event.
    pub(super) fn prepare_batch(
        &mut self,
        batch: Vec<ReadyEvent>,
        now: Timestamp,
    ) -> Vec<ReadyEvent> {
        if self.settings.transform.is_none()
            && !batch.iter().any(|ready| self.is_expired(ready, now))
        {
            return batch;
        }
        let mut given_up: HashSet<OrderHash> = HashSet::new();
        let prepare_event = |ready: ReadyEvent| {
            if self.is_expired(&ready, now) {
                given_up.extend(ready.order);
                self.give_up(ready.item, Reason::TimeToLiveExceeded, ready.last, now);
                return None;
            }
            if ready.order.is_some_and(|key| given_up.contains(&key)) {
                self.set_aside(ready, now);
                return None;
            }
            if let Some(Transformation::Failed(reason)) = ready.event.transformation() {
                given_up.extend(ready.order);
                self.fail_transformation(ready.item, reason.clone(), now);
                return None;
            }
            Some(ready)
        };
        batch.into_iter().filter_map(prepare_event).collect()
    }
}
