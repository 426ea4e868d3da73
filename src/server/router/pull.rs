//! The requests of consumers of a spread topic.
//!
//! - A receive request goes to one node after the other, for all parts that it owns ([`polls`]). The
//!   first with events ends the wait, and the others are canceled.
//! - What was locked for a client that does not get it is given back, and does not count as a
//!   delivery.
//! - A lock token goes to the shard that it names.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use actix_web::{HttpRequest, HttpResponse, web::Bytes};
use futures_util::future::join_all;
use hyper::StatusCode;
use serde_json::{json, to_string};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    Routed, ThreadRouter, owner,
    parts::{self, MERGED_BYTES_MAX},
    polls::{LOOK_MAX, NodeResponse, Polls, RETRY_PAUSE},
    target_of,
};
use crate::{
    forward::{self, unavailable_response},
    forward_error::ForwardError,
};
use gridhook_pull::{
    LockTokenSealer, Peer,
    body::{LockTokensBody, ReceiveQuery, SettleResponse},
    http::{METHOD, success_response},
    parts::{PartEvent, PartEvents, in_turn, merge_results, tokens_by_part},
};

/// Events that are locked. They are given back when this is dropped.
pub(super) struct Received {
    pub(super) router: Rc<ThreadRouter>,
    pub(super) leader: usize,
    pub(super) events: Vec<PartEvent>,
}

impl Received {
    /// Adds the events of a response beside that of another node.
    pub(super) fn add_response(&mut self, response: NodeResponse) {
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
    ) -> Routed<HttpResponse> {
        let query = ReceiveQuery::new(request.query_string());
        let wait = query.max_wait().ok();
        let wait = wait.filter(|_| request.method() == METHOD);
        let (Ok(events_max), Some(wait)) = (query.max_events(), wait) else {
            // The leader returns the error.
            let outgoing = forward::outgoing_whole(request, target_of(request), Bytes::new())?;
            return self.forward_to_shard(leader, request, outgoing).await;
        };
        let (sender, responses) = mpsc::unbounded_channel();
        // Dropping this cancels the requests.
        let (_cancellation_sender, cancellation) = watch::channel(());
        let polls = Rc::new(Polls {
            request: request.clone(),
            leader,
            events_max: events_max as usize,
            until: Instant::now() + wait,
            bearer: RefCell::default(),
            cancellation,
            responses: sender,
        });
        let peer = request.conn_data::<Peer>().cloned().unwrap_or_default();
        let mut received = Received {
            router: Rc::clone(self),
            leader,
            events: Vec::new(),
        };
        self.poll_nodes(&polls, responses, &mut received, &peer)
            .await?;
        if peer.is_gone() {
            return Err(ForwardError::ClientGone.into());
        }
        let (events, give_back) = received.take_events(polls.events_max);
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
        polls: &Rc<Polls>,
        mut responses: mpsc::UnboundedReceiver<(usize, NodeResponse)>,
        received: &mut Received,
        peer: &Peer,
    ) -> Routed<()> {
        let is_near: Vec<bool> = self.shards[self.topic_shards()]
            .iter()
            .map(|hops| hops.forwarder().serves())
            .collect();
        let turn = self.next_part.get();
        self.next_part.set(turn.wrapping_add(1));
        let mut is_over = false;
        let owners = self.group_by_owner(&in_turn(turn, &is_near));
        for (turn, parts) in owners.into_iter().enumerate() {
            if received.events.len() >= polls.events_max {
                break;
            }
            let has_owner = parts.address.is_some();
            if !is_over {
                let polls = Rc::clone(polls);
                let poll = Rc::clone(self).poll_node(turn, parts, polls, RETRY_PAUSE);
                actix_rt::spawn(poll);
                if has_owner {
                    let response = receive_response(&mut responses, Some(turn), received);
                    is_over = timeout(LOOK_MAX, response).await.unwrap_or(Ok(false))?;
                }
            } else if is_near[parts.shards[0]] {
                self.look(&parts, polls, received).await;
            }
        }
        if !is_over {
            self.wait_for_events(polls, &mut responses, received, peer)
                .await?;
        }
        received.add_queued(&mut responses);
        Ok(())
    }

    /// Waits until a node has events, or returns for another reason.
    async fn wait_for_events(
        &self,
        polls: &Polls,
        responses: &mut mpsc::UnboundedReceiver<(usize, NodeResponse)>,
        received: &mut Received,
        peer: &Peer,
    ) -> Routed<()> {
        let bearer = polls.bearer.borrow().clone();
        let token_end = async {
            match bearer {
                Some(bearer) => Rc::clone(&self.identities).wait_until_refused(bearer).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = receive_response(responses, None, received) => result.map(drop),
            () = peer.wait_until_gone() => Ok(()),
            () = sleep_until(polls.until) => Ok(()),
            () = self.shards[polls.leader].forwarder().wait_until_stopped() => Ok(()),
            reason = token_end => Err(unavailable_response(reason)),
        }
    }

    /// Gives events back to their parts.
    pub(super) fn give_back(self: &Rc<Self>, tokens: BTreeMap<usize, Vec<String>>) {
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
    ) -> Routed<HttpResponse> {
        let tokens = LockTokensBody::read(&body);
        let by_part = tokens
            .as_ref()
            .map(|tokens| tokens_by_part(tokens, leader, self.control()))
            .unwrap_or_default();
        let Some(tokens) = tokens.ok().filter(|_| by_part.len() > 1) else {
            // The leader returns the error of a body.
            let shard = by_part.into_keys().next().unwrap_or(leader);
            let outgoing = forward::outgoing_whole(request, target_of(request), body)?;
            return self.forward_to_shard(shard, request, outgoing).await;
        };
        let exchanges = by_part.iter().map(|(shard, part_tokens)| async {
            let settlement = self.settle_at(*shard, request, part_tokens);
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
    ) -> Result<Result<SettleResponse, HttpResponse>, ForwardError> {
        let body = json!({"lockTokens": tokens}).to_string().into();
        let (outgoing, _) = self
            .build_readable(shard, request, target_of(request), body)
            .await?;
        let response = self.shards[shard]
            .send_to_owner(outgoing, parts::RESPONSE_WAIT_MAX)
            .await?;
        if response.response.status() != StatusCode::OK {
            return Ok(Err(self.shards[shard].relay_response(response, None)));
        }
        let (_, body) = self.shards[shard]
            .read_whole(response, MERGED_BYTES_MAX)
            .await?;
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
