//! The requests to nodes for events of a spread topic, while a client waits for them.
//!
//! - A node without events at hand reports it, and the request waits there while it goes to the next
//!   node.
//! - A node says which of the parts it does not serve. The request goes to their owners then, as it
//!   does when the owner of a part changes in the wait.
//! - The response of a node is read, unless it is late or the node has lost the parts. Its connection
//!   ends then, by which the node gives the events back.

use std::{
    cell::{Cell, RefCell},
    pin::{Pin, pin},
    rc::Rc,
    time::Duration,
};

use actix_web::{HttpRequest, HttpResponse, web::Bytes};
use futures_util::{
    StreamExt as _,
    future::{FutureExt as _, select_all},
    stream::FuturesUnordered,
};
use hyper::{HeaderMap, StatusCode};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{ThreadRouter, owner, parts::MERGED_BYTES_MAX, pull::Received, target_at};
use crate::{forward::OwnerResponse, forward_error::ForwardError, front::hop};
use gridhook_pull::{
    node::{ABSENT_NAME, NodeReceive, NodeWait},
    parts::PartEvents,
};

/// The longest time in which a node reports whether events are at hand. Then the request goes to the
/// next one.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(1);

/// The pause before parts are asked again that were not served, or whose wait has ended early. It
/// grows while they are not served.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The longest pause before parts are asked again.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// The requests to nodes that wait for a client.
pub(super) struct Polls {
    pub(super) request: HttpRequest,
    pub(super) leader: usize,
    pub(super) events_max: usize,
    pub(super) until: Instant,
    /// The bearer token, if only the control plane knows it.
    pub(super) bearer: RefCell<Option<String>>,
    /// Its sender is dropped when the requests are canceled.
    pub(super) cancellation: watch::Receiver<()>,
    /// The responses, each with the turn of its node.
    pub(super) responses: mpsc::UnboundedSender<(usize, NodeResponse)>,
}

impl Polls {
    fn note_waiting(&self, turn: usize) {
        self.responses.send((turn, NodeResponse::Waits)).ok();
    }

    async fn wait_until_canceled(&self) {
        self.cancellation.clone().changed().await.ok();
    }
}

/// The parts of a topic that a node owns.
pub(super) struct OwnedParts {
    /// The address of the node; [`None`] for parts without an owner.
    pub(super) address: Option<String>,
    pub(super) shards: Vec<usize>,
}

pub(super) enum NodeResponse {
    /// The node has no events now. Another response may follow.
    Waits,
    Events(Received),
    Refused(HttpResponse),
}

impl ThreadRouter {
    /// The parts of each owner, in this order of shards.
    pub(super) fn group_by_owner(&self, shards: &[usize]) -> Vec<OwnedParts> {
        let mut owners: Vec<OwnedParts> = Vec::new();
        for shard in shards {
            let address = self.shards[*shard].forwarder().owner_address();
            match owners.iter_mut().find(|known| known.address == address) {
                Some(known) => known.shards.push(*shard),
                None => owners.push(OwnedParts {
                    address,
                    shards: vec![*shard],
                }),
            }
        }
        owners
    }

    /// Takes what a node has at hand.
    pub(super) async fn look(
        self: &Rc<Self>,
        parts: &OwnedParts,
        polls: &Polls,
        received: &mut Received,
    ) {
        let Some(address) = &parts.address else {
            return;
        };
        let left = polls.events_max - received.events.len();
        let exchange = async {
            let response = self
                .request_events(address, &parts.shards, polls, None, left)
                .await?;
            self.read_events(parts.shards[0], response, polls.leader)
                .await
        };
        if let Ok(Ok(Some(response))) = timeout(LOOK_MAX, exchange).await {
            received.add_response(response);
        }
    }

    /// Waits at a node until it has events, refuses the client, or is canceled. Parts that it does
    /// not serve are asked again after `pause`, and soon those that it loses, whether it responds or
    /// not, and those whose wait ends before.
    pub(super) async fn poll_node(
        self: Rc<Self>,
        turn: usize,
        parts: OwnedParts,
        polls: Rc<Polls>,
        pause: Duration,
    ) {
        let OwnedParts { address, shards } = parts;
        let Some(address) = address else {
            let owners = shards
                .iter()
                .map(|shard| Box::pin(self.shards[*shard].forwarder().wait_until_owned()));
            tokio::select! {
                _ = select_all(owners) => {}
                () = polls.wait_until_canceled() => return,
            }
            self.ask_again(turn, shards, polls, RETRY_PAUSE);
            return;
        };
        let longest = polls.until.saturating_duration_since(Instant::now());
        if longest.is_zero() {
            return;
        }
        let id = fastrand::u64(..);
        let waiting = RefCell::new(shards.clone());
        let pause = Cell::new(pause);
        let exchange = async {
            let wait = Some(NodeWait { id, longest });
            let response = self
                .request_events(&address, &shards, &polls, wait, polls.events_max)
                .await?;
            if response.response.status() == StatusCode::ACCEPTED {
                polls.note_waiting(turn);
                let mut absent = absent_shards(response.response.headers());
                // Those that the node has lost are asked again already.
                absent.retain(|shard| waiting.borrow().contains(shard));
                waiting.borrow_mut().retain(|shard| !absent.contains(shard));
                self.ask_again(turn, absent, Rc::clone(&polls), pause.replace(RETRY_PAUSE));
            }
            self.read_events(shards[0], response, polls.leader).await
        };
        let mut exchange = pin!(exchange);
        let mut losses: FuturesUnordered<_> = shards
            .iter()
            .map(|shard| {
                let forwarder = self.shards[*shard].forwarder();
                let loss = forwarder.wait_until_lost(address.clone());
                loss.map(|()| *shard)
            })
            .collect();
        // Parts that are lost one after the other are asked again together.
        let mut lost = Vec::new();
        let mut ask_lost_at = Instant::now();
        let response = loop {
            tokio::select! {
                // A response that is here is read.
                biased;
                response = &mut exchange => break response,
                () = polls.wait_until_canceled() => {
                    break self.cancel_poll(&address, id, exchange, losses).await;
                }
                next = losses.next() => {
                    // A node that has lost all parts may hang.
                    let Some(shard) = next else {
                        self.ended_polls.cancel_poll(&address, id);
                        break Err(ForwardError::OwnerChanged);
                    };
                    if lost.is_empty() {
                        ask_lost_at = Instant::now() + RETRY_PAUSE;
                    }
                    lost.push(shard);
                }
                () = sleep_until(ask_lost_at), if !lost.is_empty() => {
                    let is_lost = |shard: &mut usize| lost.contains(shard);
                    let asked: Vec<usize> = waiting.borrow_mut().extract_if(.., is_lost).collect();
                    lost.clear();
                    self.ask_again(turn, asked, Rc::clone(&polls), Duration::ZERO);
                }
            }
        };
        match response {
            // If the client has its response, this drops the events, which gives them back.
            Ok(Some(response)) => drop(polls.responses.send((turn, response))),
            // Each further request would lock events that no client receives.
            Err(error @ (ForwardError::TooLarge | ForwardError::Unreadable)) => {
                if polls.responses.is_closed() {
                    return;
                }
                tracing::error!(%error, address, "a request to receive events of a node failed");
                let refusal = NodeResponse::Refused(error.into());
                polls.responses.send((turn, refusal)).ok();
            }
            Ok(None) | Err(_) => {
                polls.note_waiting(turn);
                self.ask_again(turn, waiting.take(), Rc::clone(&polls), pause.get());
            }
        }
    }

    /// Waits at the owners of these parts after `pause`, unless that is canceled.
    fn ask_again(
        self: &Rc<Self>,
        turn: usize,
        shards: Vec<usize>,
        polls: Rc<Polls>,
        pause: Duration,
    ) {
        if shards.is_empty() {
            return;
        }
        let router = Rc::clone(self);
        actix_rt::spawn(async move {
            tokio::select! {
                () = sleep(pause) => {}
                () = polls.wait_until_canceled() => return,
            }
            let next_pause = LONG_PAUSE.min(2 * pause);
            for parts in router.group_by_owner(&shards) {
                let polls = Rc::clone(&polls);
                let poll = Rc::clone(&router).poll_node(turn, parts, polls, next_pause);
                actix_rt::spawn(poll);
            }
        });
    }

    /// Cancels a request, and returns its response, unless the node loses all parts before.
    async fn cancel_poll(
        &self,
        address: &str,
        id: u64,
        exchange: Pin<&mut impl Future<Output = Result<Option<NodeResponse>, ForwardError>>>,
        losses: FuturesUnordered<impl Future<Output = usize>>,
    ) -> Result<Option<NodeResponse>, ForwardError> {
        self.ended_polls.cancel_poll(address, id);
        tokio::select! {
            biased;
            response = timeout(owner::OWNER_RESPONSE_MAX, exchange) => {
                response.unwrap_or(Err(ForwardError::Late))
            }
            _ = losses.count() => Err(ForwardError::OwnerChanged),
        }
    }

    /// Requests events of parts from a node.
    async fn request_events(
        &self,
        address: &str,
        shards: &[usize],
        polls: &Polls,
        wait: Option<NodeWait>,
        events_max: usize,
    ) -> Result<OwnerResponse, ForwardError> {
        let request = &polls.request;
        let query = with_max_events(request.query_string(), events_max);
        let target = target_at(request.path(), &query);
        let (mut outgoing, bearer) = self
            .build_readable(polls.leader, request, &target, Bytes::new())
            .await?;
        *polls.bearer.borrow_mut() = bearer;
        let node_receive = NodeReceive {
            shards: shards.to_vec(),
            leader: polls.leader,
            wait,
        };
        let value = hop::receive_value(&node_receive).ok_or(ForwardError::Unforwardable)?;
        outgoing.headers_mut().insert(hop::RECEIVE_NAME, value);
        self.shards[polls.leader]
            .send_to_node(outgoing, address)
            .await
    }

    /// What the response of a node says to the client. It says nothing if it has no events. The
    /// node owns `shard`: once it does not, a refusal is cut off.
    async fn read_events(
        self: &Rc<Self>,
        shard: usize,
        response: OwnerResponse,
        leader: usize,
    ) -> Result<Option<NodeResponse>, ForwardError> {
        let hops = &self.shards[shard];
        match response.response.status() {
            StatusCode::OK | StatusCode::ACCEPTED => {}
            StatusCode::SERVICE_UNAVAILABLE => return Err(ForwardError::Unready),
            _ => {
                let refusal = hops.relay_response(response, None);
                return Ok(Some(NodeResponse::Refused(refusal)));
            }
        }
        let whole = hops.read_until(response, MERGED_BYTES_MAX, std::future::pending());
        let (_, body) = whole.await?;
        let events: PartEvents =
            serde_json::from_slice(&body).map_err(|_| ForwardError::Unreadable)?;
        let received = Received {
            router: Rc::clone(self),
            leader,
            events: events.value,
        };
        let has_events = !received.events.is_empty();
        Ok(has_events.then_some(NodeResponse::Events(received)))
    }
}

/// The shards that have no part in a response.
fn absent_shards(headers: &HeaderMap) -> Vec<usize> {
    let value = headers.get(ABSENT_NAME);
    let shards = value.and_then(|value| serde_json::from_slice(value.as_bytes()).ok());
    shards.unwrap_or_default()
}

/// The query with another `maxEvents`.
fn with_max_events(query: &str, most: usize) -> String {
    let mut changed = url::form_urlencoded::Serializer::new(String::new());
    let others = url::form_urlencoded::parse(query.as_bytes())
        .filter(|(key, _)| !key.eq_ignore_ascii_case("maxEvents"));
    changed
        .extend_pairs(others)
        .append_pair("maxEvents", &most.to_string());
    changed.finish()
}
