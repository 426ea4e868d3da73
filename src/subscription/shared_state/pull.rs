//! Clients that pull: those who wait, and the words of those who hold something, on their way to the life that answers them.
//!
//! Invariants:
//! - Who waits costs a place in a map: no task, no timer of the actor's. He waits on through the lives of the actor.
//! - A word that a life took along when it died is answered by nobody: whether it holds is not known, and its client is told
//!   so.
//! - What is handed to a client that is gone by then is taken back at once, and was no attempt.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::SharedState;
use crate::{
    event::Event,
    policy::{
        Input,
        record::lease::{Lease, LeaseAction, LeaseClaim, LeaseResult, ReceiveId},
    },
};

/// What a client received.
pub type Received = Vec<(Lease, Event)>;

/// Nobody hears what became of this word.
const NOBODY: u64 = 0;

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct PullQueue {
    last: u64,
    waiting: BTreeMap<ReceiveId, (u32, oneshot::Sender<Received>)>,
    words: BTreeMap<u64, oneshot::Sender<Vec<LeaseResult>>>,
    news: VecDeque<Input>,
}

impl PullQueue {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether nobody waits for anything.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.words.is_empty() && self.news.is_empty()
    }

    /// A new life begins: it hears of all who wait, and of the words that no earlier one has heard.
    pub(super) fn begin(&mut self) {
        self.news.retain(|input| matches!(input, Input::Claim(_)));
        let unheard: BTreeSet<u64> = self
            .news
            .iter()
            .filter_map(|input| if let Input::Claim(claim) = input { Some(claim.id) } else { None })
            .collect();
        self.words.retain(|id, _| unheard.contains(id));
        self.news.extend(self.waiting.iter().map(|(id, (events_max, _))| Input::Receive(*id, *events_max)));
    }

    pub(super) fn take(&mut self) -> VecDeque<Input> {
        std::mem::take(&mut self.news)
    }
}

fn taken_back(leases: Vec<Lease>) -> Input {
    Input::Claim(LeaseClaim { id: NOBODY, verb: LeaseAction::TakeBack, leases })
}

/// The word that gives events back which nobody took.
fn give_back(events: Received) -> Input {
    let leases = events.into_iter().map(|(lease, _)| lease).collect();
    taken_back(leases)
}

/// A client that waits. It waits no more when this is dropped.
#[derive(Debug)]
pub struct WaitingClient {
    shared: Arc<SharedState>,
    id: ReceiveId,
    answer: oneshot::Receiver<Received>,
}

impl WaitingClient {
    /// The events, when there are any; none where the client shall come again.
    pub async fn events(&mut self) -> Received {
        // The sender goes with the subscription.
        (&mut self.answer).await.unwrap_or_default()
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.answer.close();
        let left = self.answer.try_recv().unwrap_or_default();
        let mut inner = self.shared.lock();
        if inner.queue.waiting.remove(&self.id).is_some() {
            inner.queue.news.push_back(Input::Withdraw(self.id));
        }
        if !left.is_empty() {
            inner.queue.news.push_back(give_back(left));
        }
        if !inner.queue.news.is_empty() {
            inner.wake();
        }
    }
}

impl SharedState {
    /// A client waits for up to `events_max` events.
    pub fn receive(self: &Arc<Self>, events_max: u32) -> WaitingClient {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock();
        let id = ReceiveId(inner.queue.next());
        inner.queue.waiting.insert(id, (events_max, reply));
        inner.queue.news.push_back(Input::Receive(id, events_max));
        inner.wake();
        WaitingClient { shared: Arc::clone(self), id, answer }
    }

    /// A client says what it did with what it holds. The answer comes when it is durable, and does not where the actor dies
    /// over it.
    pub fn claim(&self, verb: LeaseAction, leases: Vec<Lease>) -> oneshot::Receiver<Vec<LeaseResult>> {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock();
        let id = inner.queue.next();
        inner.queue.words.insert(id, reply);
        inner.queue.news.push_back(Input::Claim(LeaseClaim { id, verb, leases }));
        inner.wake();
        answer
    }

    /// The answer with these did not reach its client: they are for another one, and it was no attempt.
    pub fn take_back_leases(&self, leases: Vec<Lease>) {
        let mut inner = self.lock();
        inner.queue.news.push_back(taken_back(leases));
        inner.wake();
    }

    /// How many clients wait.
    pub fn waiting(&self) -> usize {
        self.lock().queue.waiting.len()
    }

    /// Whether no life hears: the topic's actor builds one where it is told that there is something to do.
    pub fn is_asleep(&self) -> bool {
        self.lock().mailbox.as_ref().is_none_or(|mailbox| !mailbox.connected())
    }

    /// Hands events over that are durably the client's own. Where it is gone, what gives them back.
    pub(in crate::subscription) fn hand_over(&self, to: ReceiveId, events: Received) -> Option<Input> {
        let waiting = self.lock().queue.waiting.remove(&to);
        let left = match waiting {
            Some((_, reply)) => reply.send(events).err()?,
            None => events,
        };
        (!left.is_empty()).then(|| give_back(left))
    }

    /// Tells what became of a word.
    pub(in crate::subscription) fn report_results(&self, to: u64, verdicts: Vec<LeaseResult>) {
        if let Some(reply) = self.lock().queue.words.remove(&to) {
            // Whoever asked may have gone; it is done all the same.
            reply.send(verdicts).ok();
        }
    }
}
