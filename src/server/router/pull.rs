//! Pull delivery from a spread topic.
//!
//! - A receive request goes to one node after the other, for all parts that it owns. A node without
//!   events at hand reports it, and the request waits there while it goes to the next node; the
//!   first with events ends the wait, and the others are canceled.
//! - A node says which of the parts it does not serve. The request goes to their owners then, as it
//!   does when the owner of a part changes in the wait.
//! - What was locked for a client that does not get it is given back, and does not count as a
//!   delivery. So the response of a node is read, unless it is late or the node has lost the parts.
//!   Its connection ends then, by which the node gives the events back.
//! - A lock token goes to the shard that it names.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::{Pin, pin},
    rc::Rc,
    time::Duration,
};

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web::Bytes};
use futures_util::{
    StreamExt as _,
    future::{FutureExt as _, join_all, select_all},
    stream::FuturesUnordered,
};
use hyper::HeaderMap;
use serde_json::{json, to_string};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{Routed, ThreadRouter, not_forwarded, owner, parts, target_at, target_of};
use crate::{
    forward::{self, OwnerResponse, unavailable_response},
    forward_error::ForwardError,
    front::hop::{self, ListenerSide},
};
use gridhook_pull::{
    LockTokenSealer, Peer,
    body::{LockTokensBody, ReceiveQuery, SettleResponse},
    http::{METHOD, success_response},
    node::{ABSENT_NAME, NodeReceive, NodeWait},
    parts::{PartEvent, PartEvents, in_turn, merge_results, tokens_by_part},
};

/// The longest time in which a node reports whether events are at hand. Then the request goes to the
/// next one.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The pause before parts are asked again that were not served, or whose wait has ended early. It
/// grows while they are not served.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The longest pause before parts are asked again.
const LONG_PAUSE: Duration = Duration::from_secs(1);

struct Receive {
    request: HttpRequest,
    leader: usize,
    events_max: usize,
    until: Instant,
    /// The bearer token, if only the control plane knows it.
    bearer: RefCell<Option<String>>,
}

/// What the requests have in common that wait for a client.
struct Polls {
    receive: Rc<Receive>,
    /// Its sender is dropped when the requests are canceled.
    cancellation: watch::Receiver<()>,
    /// The responses, each with the turn of its node.
    responses: mpsc::UnboundedSender<(usize, NodeResponse)>,
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
struct OwnedParts {
    /// The address of the node; [`None`] for parts without an owner.
    address: Option<String>,
    shards: Vec<usize>,
}

enum NodeResponse {
    /// The node has no events now. Another response may follow.
    Waits,
    Events(Received),
    Refused(HttpResponse),
}

/// Events that are locked. They are given back when this is dropped.
struct Received {
    router: Rc<ThreadRouter>,
    leader: usize,
    events: Vec<PartEvent>,
}

impl Received {
    /// Adds the events of a response beside that of another node.
    fn add_response(&mut self, response: NodeResponse) {
        match response {
            NodeResponse::Events(mut others) => self.events.append(&mut others.events),
            NodeResponse::Refused(_) | NodeResponse::Waits => {}
        }
    }

    /// Adds the events of the responses that are here.
    fn add_queued(&mut self, responses: &mut mpsc::UnboundedReceiver<(usize, NodeResponse)>) {
        while let Ok((_, response)) = responses.try_recv() {
            self.add_response(response);
        }
    }

    /// The first `events_max` events, and a function that gives them back.
    fn take_events(&mut self, events_max: usize) -> (PartEvents, impl FnOnce() + use<>) {
        let rest = self.events.split_off(events_max.min(self.events.len()));
        let value = std::mem::replace(&mut self.events, rest);
        let router = Rc::clone(&self.router);
        let tokens = tokens_of(&value, self.leader);
        (PartEvents { value }, move || router.give_back(tokens))
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.router.give_back(tokens_of(&self.events, self.leader));
    }
}

/// The lock tokens of events, by the shards that they name.
fn tokens_of(events: &[PartEvent], leader: usize) -> BTreeMap<usize, Vec<String>> {
    let mut tokens: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for event in events {
        let token = &event.broker_properties.lock_token;
        let shard = LockTokenSealer::part_of(token).unwrap_or(leader);
        tokens.entry(shard).or_default().push(token.clone());
    }
    tokens
}

impl ThreadRouter {
    /// Receives events from the parts of a topic.
    pub(super) async fn receive_events(
        self: &Rc<Self>,
        leader: usize,
        request: &HttpRequest,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let query = ReceiveQuery::new(request.query_string());
        let wait = query.max_wait().ok();
        let wait = wait.filter(|_| request.method() == METHOD);
        let (Ok(events_max), Some(wait)) = (query.max_events(), wait) else {
            // The leader returns the error.
            let outgoing = forward::outgoing_whole(request, target_of(request), Bytes::new());
            return self
                .forward_to_shard(leader, request, outgoing.ok_or_else(not_forwarded)?, side)
                .await;
        };
        let events_max = events_max as usize;
        let receive = Rc::new(Receive {
            request: request.clone(),
            leader,
            events_max,
            until: Instant::now() + wait,
            bearer: RefCell::default(),
        });
        let peer = request.conn_data::<Peer>().cloned().unwrap_or_default();
        let mut received = Received {
            router: Rc::clone(self),
            leader,
            events: Vec::new(),
        };
        self.poll_nodes(&receive, &mut received, &peer).await?;
        if peer.is_gone() {
            return Err(unavailable_response(ForwardError::ClientGone));
        }
        let (events, give_back) = received.take_events(events_max);
        if !events.value.is_empty() {
            peer.unless_written(give_back);
        }
        Ok(success_response(
            to_string(&events).expect("strings are always written"),
        ))
    }

    /// Receives the events that the nodes have now. If there are none, waits at every node until one
    /// has events, the time is over or the client is gone. Once there are events, other nodes are
    /// not asked for more.
    async fn poll_nodes(
        self: &Rc<Self>,
        receive: &Rc<Receive>,
        received: &mut Received,
        peer: &Peer,
    ) -> Routed<()> {
        let is_near: Vec<bool> = self.shards[self.topic_shards()]
            .iter()
            .map(|hops| hops.forwarder().serves())
            .collect();
        let turn = self.next_part.get();
        self.next_part.set(turn.wrapping_add(1));
        let (sender, mut responses) = mpsc::unbounded_channel();
        // Dropping the sender cancels the requests.
        let (_sender, cancellation) = watch::channel(());
        let polls = Rc::new(Polls {
            receive: Rc::clone(receive),
            cancellation,
            responses: sender,
        });
        let mut is_over = false;
        let owners = self.group_by_owner(&in_turn(turn, &is_near));
        for (turn, parts) in owners.into_iter().enumerate() {
            if received.events.len() >= receive.events_max {
                break;
            }
            let has_owner = parts.address.is_some();
            if !is_over {
                actix_rt::spawn(Rc::clone(self).poll_node(
                    turn,
                    parts,
                    Rc::clone(&polls),
                    RETRY_PAUSE,
                ));
                if has_owner {
                    let response = receive_response(&mut responses, Some(turn), received);
                    is_over = timeout(LOOK_MAX, response).await.unwrap_or(Ok(false))?;
                }
            } else if is_near[parts.shards[0]] {
                self.look(&parts, receive, received).await;
            }
        }
        if !is_over {
            self.wait_for_events(receive, &mut responses, received, peer)
                .await?;
        }
        received.add_queued(&mut responses);
        Ok(())
    }

    /// The parts of each owner, in this order of shards.
    fn group_by_owner(&self, shards: &[usize]) -> Vec<OwnedParts> {
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
    async fn look(self: &Rc<Self>, parts: &OwnedParts, receive: &Receive, received: &mut Received) {
        let Some(address) = &parts.address else {
            return;
        };
        let left = receive.events_max - received.events.len();
        let exchange = async {
            let response = self
                .request_events(address, &parts.shards, receive, None, left)
                .await?;
            self.read_events(parts.shards[0], response, receive.leader)
                .await
        };
        if let Ok(Ok(Some(response))) = timeout(LOOK_MAX, exchange).await {
            received.add_response(response);
        }
    }

    /// Waits until a node has events, or returns for another reason.
    async fn wait_for_events(
        &self,
        receive: &Receive,
        responses: &mut mpsc::UnboundedReceiver<(usize, NodeResponse)>,
        received: &mut Received,
        peer: &Peer,
    ) -> Routed<()> {
        let bearer = receive.bearer.borrow().clone();
        let token_end = async {
            match bearer {
                Some(bearer) => Rc::clone(&self.identities).wait_until_refused(bearer).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = receive_response(responses, None, received) => result.map(drop),
            () = peer.wait_until_gone() => Ok(()),
            () = sleep_until(receive.until) => Ok(()),
            () = self.shards[receive.leader].forwarder().wait_until_stopped() => Ok(()),
            reason = token_end => Err(unavailable_response(reason)),
        }
    }

    /// Waits at a node until it has events, refuses the client, or is canceled. Parts that it does
    /// not serve are asked again after `pause`, and soon those that it loses, whether it responds or
    /// not, and those whose wait ends before.
    async fn poll_node(
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
        let receive = &polls.receive;
        let longest = receive.until.saturating_duration_since(Instant::now());
        if longest.is_zero() {
            return;
        }
        let id = fastrand::u64(..);
        let waiting = RefCell::new(shards.clone());
        let pause = Cell::new(pause);
        let exchange = async {
            let wait = Some(NodeWait { id, longest });
            let response = self
                .request_events(&address, &shards, receive, wait, receive.events_max)
                .await?;
            if response.response.status() == hyper::StatusCode::ACCEPTED {
                polls.note_waiting(turn);
                let mut absent = absent_shards(response.response.headers());
                // Those that the node has lost are asked again already.
                absent.retain(|shard| waiting.borrow().contains(shard));
                waiting.borrow_mut().retain(|shard| !absent.contains(shard));
                self.ask_again(turn, absent, Rc::clone(&polls), pause.replace(RETRY_PAUSE));
            }
            self.read_events(shards[0], response, receive.leader).await
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
                let refusal = NodeResponse::Refused(unavailable_response(error));
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
        receive: &Receive,
        wait: Option<NodeWait>,
        events_max: usize,
    ) -> Result<OwnerResponse, ForwardError> {
        let request = &receive.request;
        let target = target_at(
            request.path(),
            &with_max_events(request.query_string(), events_max),
        );
        let mut outgoing = forward::outgoing_whole(request, &target, Bytes::new())
            .ok_or(ForwardError::Unforwardable)?;
        let node_receive = NodeReceive {
            shards: shards.to_vec(),
            leader: receive.leader,
            wait,
        };
        let headers = outgoing.headers_mut();
        headers.insert(
            hop::RECEIVE_NAME,
            hop::receive_value(&node_receive).ok_or(ForwardError::Unforwardable)?,
        );
        // The router reads the body, so it must not be compressed.
        headers.remove(hyper::header::ACCEPT_ENCODING);
        *receive.bearer.borrow_mut() = self.identities.identify_caller(headers).await?;
        self.shards[receive.leader]
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
            hyper::StatusCode::OK | hyper::StatusCode::ACCEPTED => {}
            hyper::StatusCode::SERVICE_UNAVAILABLE => return Err(ForwardError::Unready),
            _ => {
                let refusal = hops.relay_response(response, None);
                return Ok(Some(NodeResponse::Refused(refusal)));
            }
        }
        let whole = hops.read_until(response, parts::MERGED_BYTES_MAX, std::future::pending());
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

    /// Gives events back to their parts.
    fn give_back(self: &Rc<Self>, tokens: BTreeMap<usize, Vec<String>>) {
        let parts = self.topic_shards();
        for (shard, tokens) in tokens
            .into_iter()
            .filter(|(shard, _)| parts.contains(shard))
        {
            let router = Rc::clone(self);
            // If it fails, the events come again when their locks expire.
            actix_rt::spawn(
                async move { owner::take_back(&router.shards[shard], &tokens).await.ok() },
            );
        }
    }

    /// Settles the lock tokens of a request in the shards that they name.
    pub(super) async fn settle_locks(
        &self,
        leader: usize,
        request: &HttpRequest,
        body: Bytes,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let tokens = LockTokensBody::read(&body);
        let by_part = tokens
            .as_ref()
            .map(|tokens| tokens_by_part(tokens, leader, self.control()))
            .unwrap_or_default();
        let Some(tokens) = tokens.ok().filter(|_| by_part.len() > 1) else {
            // The leader returns the error of a body.
            let shard = by_part.into_keys().next().unwrap_or(leader);
            let outgoing = forward::outgoing_whole(request, target_of(request), body)
                .ok_or_else(not_forwarded)?;
            return self.forward_to_shard(shard, request, outgoing, side).await;
        };
        let exchanges = by_part.iter().map(|(shard, part_tokens)| async {
            let settlement = self.settle_at(*shard, request, part_tokens, side);
            timeout(parts::RESPONSE_WAIT_MAX, settlement)
                .await
                .unwrap_or(Err(ForwardError::Late))
        });
        let mut results = Vec::new();
        let mut unknown = SettleResponse::default();
        let mut refusal = None;
        for ((shard, part_tokens), result) in by_part.iter().zip(join_all(exchanges).await) {
            match result {
                Ok(Ok(response)) => {
                    results.push(response);
                    continue;
                }
                Ok(Err(response)) => refusal = refusal.or(Some(response)),
                Err(error) => {
                    refusal = refusal.or_else(|| Some(parts::no_response(*shard, error)));
                }
            }
            for token in part_tokens {
                unknown.add(token.clone(), None);
            }
        }
        if let Some(refusal) = refusal.filter(|_| results.is_empty()) {
            return Err(refusal);
        }
        let has_2023_fields = ReceiveQuery::new(request.query_string()).has_2023_fields();
        results.push(if has_2023_fields {
            unknown.with_2023_fields()
        } else {
            unknown
        });
        Ok(success_response(
            to_string(&merge_results(&tokens, results)).expect("strings are always written"),
        ))
    }

    async fn settle_at(
        &self,
        shard: usize,
        request: &HttpRequest,
        tokens: &[String],
        side: ListenerSide,
    ) -> Result<Result<SettleResponse, HttpResponse>, ForwardError> {
        let body = json!({"lockTokens": tokens}).to_string().into();
        let mut outgoing = forward::outgoing_whole(request, target_of(request), body)
            .ok_or(ForwardError::Unforwardable)?;
        // The body is read here.
        outgoing
            .headers_mut()
            .remove(hyper::header::ACCEPT_ENCODING);
        if shard != self.control() {
            self.identities
                .identify_caller(outgoing.headers_mut())
                .await?;
        }
        let response = self.shards[shard]
            .send_to_owner(outgoing, side, parts::RESPONSE_WAIT_MAX)
            .await?;
        if response.response.status().as_u16() != StatusCode::OK.as_u16() {
            return Ok(Err(self.shards[shard].relay_response(response, None)));
        }
        let (_, body) = parts::collect_body(&self.shards[shard], response).await?;
        serde_json::from_slice(&body)
            .map(Ok)
            .map_err(|_| ForwardError::Unreadable)
    }
}

/// Receives a response that ends the wait, and returns whether there was one: a node may say
/// before that it waits.
async fn receive_response(
    responses: &mut mpsc::UnboundedReceiver<(usize, NodeResponse)>,
    node: Option<usize>,
    received: &mut Received,
) -> Routed<bool> {
    while let Some((turn, response)) = responses.recv().await {
        match response {
            NodeResponse::Waits if Some(turn) == node => return Ok(false),
            NodeResponse::Waits => {}
            NodeResponse::Events(_) => {
                received.add_response(response);
                return Ok(true);
            }
            NodeResponse::Refused(refusal) => {
                received.add_queued(responses);
                let has_events = !received.events.is_empty();
                return if has_events { Ok(true) } else { Err(refusal) };
            }
        }
    }
    Ok(true)
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
