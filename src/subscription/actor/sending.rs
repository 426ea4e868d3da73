//! What the actor sends: requests, and bare connections.

use std::{rc::Rc, sync::Arc};

use super::SubscriptionActor;
use crate::{delivery, shared_state::SharedStateMessage};
use gridhook_deliver::{Sender, error::SenderError};
use gridhook_event::{Event, Timestamp};
use gridhook_policy::{Input, OutgoingBatch};

impl SubscriptionActor {
    /// Sends the request in a task of its own.
    pub(super) fn send_request(
        &self,
        request: Arc<OutgoingBatch>,
        events: Vec<Event>,
        now: Timestamp,
    ) {
        if self.shared.is_poisoned() {
            for (item, event) in request.items.iter().zip(&events) {
                self.shared
                    .on_event(*item, event, || self.shared.panic_if_poisoned(event));
            }
        }
        if !self
            .shared
            .begin_request(self.owner.incarnation, Arc::clone(&request))
        {
            return;
        }
        let plan = Arc::clone(&self.plan);
        // Taken here and not in the task, so that the next decision on this thread counts it.
        let permit = self.context.client.sockets.take_permit();
        let lease = self.context.client.lease.clone();
        let faults = Arc::clone(&self.context.response_faults);
        let schema = plan.settings.batch.schema;
        let body = self
            .bodies
            .take_bytes(events.iter().map(|event| event.delivered_len(schema)).sum());
        let resources = delivery::AttemptResources {
            wall: self.context.clock.wall_time(),
            faults,
            tracer: &self.context.tracer,
            permit,
            body,
            lease,
        };
        delivery::start_attempt(
            &self.shared,
            plan,
            self.current_sender(),
            &request,
            events,
            resources,
            now,
        );
    }

    /// The sender. A client certificate may have been replaced; anything else never changes.
    pub(super) fn current_sender(&self) -> Result<Rc<dyn Sender>, SenderError> {
        match (&self.sender, &self.plan.record.webhook.client_certificate) {
            (Ok(sender), None) => Ok(Rc::clone(sender)),
            (Ok(_) | Err(_), _) => self.plan.new_sender(&self.context.client),
        }
    }

    /// Tries a bare connection to the endpoint.
    pub(super) fn check_reachable(&self) {
        let sender = self.current_sender();
        let wait = self.plan.response_timeout();
        let wall = self.context.clock.wall_time();
        self.await_report(async move {
            let is_reachable = match sender {
                // A broker that is starting may accept a connection and send nothing.
                Ok(sender) => matches!(
                    tokio::time::timeout(wait, sender.check_reachable(wall)).await,
                    Ok(Ok(()))
                ),
                Err(_) => false,
            };
            Ok(SharedStateMessage::Input(Input::Connected(is_reachable)))
        });
    }
}
