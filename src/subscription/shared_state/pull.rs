//! Clients that pull: receive requests that wait, and claims on leases that wait for the actor.
//!
//! Invariants:
//! - A waiting client costs a map entry, no task and no timer. It keeps waiting across
//!   incarnations.
//! - A claim that an incarnation took before it panicked has no result: it is unknown whether the
//!   claim took effect, and its client receives an error that says so.
//! - The deletion of the subscription ends all waits.
//! - Events that were handed to a client that has gone are taken back at once and do not count as
//!   an attempt.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use super::SharedState;
use gridhook_event::{Event, Timestamp};
use gridhook_policy::{
    Input,
    record::lease::{Lease, LeaseAction, LeaseClaim, LeaseResult, ReceiveId},
};

/// The events that a client received, with their leases.
pub type Received = Vec<(Lease, Event)>;

/// The id of a claim that needs no reply.
const NO_REPLY: u64 = 0;

/// Waiting clients and their claims.
#[derive(Debug, Default)]
pub(super) struct PullQueue {
    last: u64,
    waiting: BTreeMap<ReceiveId, (u32, oneshot::Sender<Received>)>,
    claims: BTreeMap<u64, oneshot::Sender<Vec<LeaseResult>>>,
    inputs: VecDeque<Input>,
}

impl PullQueue {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether no request of a client waits or is claimed.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.claims.is_empty() && self.inputs.is_empty()
    }

    /// Begins a new incarnation: it receives all waiting clients, and the claims that no earlier
    /// incarnation took.
    pub(super) fn begin_incarnation(&mut self) {
        self.inputs.retain(|input| matches!(input, Input::Claim(_)));
        let waiting_claims: BTreeSet<u64> = self
            .inputs
            .iter()
            .filter_map(|input| {
                if let Input::Claim(claim) = input {
                    Some(claim.id)
                } else {
                    None
                }
            })
            .collect();
        self.claims.retain(|id, _| waiting_claims.contains(id));
        self.inputs.extend(
            self.waiting
                .iter()
                .map(|(id, (events_max, _))| Input::Receive(*id, *events_max)),
        );
    }

    pub(super) fn take_inputs(&mut self) -> VecDeque<Input> {
        std::mem::take(&mut self.inputs)
    }
}

fn taken_back(leases: Vec<Lease>) -> Input {
    Input::Claim(LeaseClaim {
        id: NO_REPLY,
        action: LeaseAction::Return,
        leases,
    })
}

/// The claim that returns events that no client received.
fn give_back(events: Received) -> Input {
    let leases = events.into_iter().map(|(lease, _)| lease).collect();
    taken_back(leases)
}

/// A client that waits for events. Dropping it ends the wait.
#[derive(Debug)]
pub struct WaitingClient {
    shared: Arc<SharedState>,
    id: ReceiveId,
    answer: oneshot::Receiver<Received>,
}

impl WaitingClient {
    /// Returns events once there are any. None are returned if the client must ask again.
    pub fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        // The sender is dropped when the subscription is deleted.
        Pin::new(&mut self.answer)
            .poll(cx)
            .map(Result::unwrap_or_default)
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.answer.close();
        let left = self.answer.try_recv().unwrap_or_default();
        let mut inner = self.shared.lock_inner();
        let Some(queue) = &mut inner.queue else {
            return;
        };
        if queue.waiting.remove(&self.id).is_some() {
            queue.inputs.push_back(Input::Withdraw(self.id));
        }
        if !left.is_empty() {
            queue.inputs.push_back(give_back(left));
        }
        if !queue.inputs.is_empty() {
            self.shared.wake_actor(inner);
        }
    }
}

impl SharedState {
    /// Waits for up to `events_max` events.
    pub fn receive_events(self: &Arc<Self>, events_max: u32) -> WaitingClient {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock_inner();
        let is_deleted = inner.is_deleted;
        let queue = inner.queue.get_or_insert_default();
        let id = ReceiveId(queue.next());
        if !is_deleted {
            queue.waiting.insert(id, (events_max, reply));
            queue.inputs.push_back(Input::Receive(id, events_max));
        }
        self.wake_actor(inner);
        WaitingClient {
            shared: Arc::clone(self),
            id,
            answer,
        }
    }

    /// Passes a client's claim on its leases to the actor. The response arrives once it is durable,
    /// and never if the actor panics or the subscription is deleted before that.
    pub fn claim_leases(
        &self,
        action: LeaseAction,
        leases: Vec<Lease>,
    ) -> oneshot::Receiver<Vec<LeaseResult>> {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock_inner();
        let is_deleted = inner.is_deleted;
        let queue = inner.queue.get_or_insert_default();
        let id = queue.next();
        if !is_deleted {
            queue.claims.insert(id, reply);
            queue
                .inputs
                .push_back(Input::Claim(LeaseClaim { id, action, leases }));
        }
        self.wake_actor(inner);
        answer
    }

    /// Returns the events of a response that did not reach its client. They do not count as an
    /// attempt.
    pub fn take_back_leases(&self, leases: Vec<Lease>) {
        let mut inner = self.lock_inner();
        inner
            .queue
            .get_or_insert_default()
            .inputs
            .push_back(taken_back(leases));
        self.wake_actor(inner);
    }

    /// Whether a client may receive events at once, as far as the last write says: a part of the
    /// log is unread, or a pending delivery is due.
    pub fn may_have_events(&self, now: Timestamp) -> bool {
        let end = self.lock_inner().end;
        self.read_state(|state| {
            state.low < end || state.cursor.next_due.is_some_and(|due| due <= now)
        })
    }

    pub fn waiting_clients(&self) -> usize {
        self.lock_inner()
            .queue
            .as_ref()
            .map_or(0, |queue| queue.waiting.len())
    }

    /// Whether no actor runs. The topic's actor starts one when it learns of work.
    pub fn has_no_actor(&self) -> bool {
        self.lock_inner()
            .mailbox
            .as_ref()
            .is_none_or(|mailbox| !mailbox.connected())
    }

    /// Hands over events that are durably leased to the client. If the client has gone, returns the
    /// input that takes them back.
    pub fn hand_over(&self, to: ReceiveId, events: Received) -> Option<Input> {
        let waiting = self
            .lock_inner()
            .queue
            .as_mut()
            .and_then(|queue| queue.waiting.remove(&to));
        let left = match waiting {
            Some((_, reply)) => reply.send(events).err()?,
            None => events,
        };
        (!left.is_empty()).then(|| give_back(left))
    }

    pub fn report_results(&self, to: u64, verdicts: Vec<LeaseResult>) {
        if let Some(reply) = self
            .lock_inner()
            .queue
            .as_mut()
            .and_then(|queue| queue.claims.remove(&to))
        {
            // The client may have gone. The claim took effect all the same.
            reply.send(verdicts).ok();
        }
    }
}
