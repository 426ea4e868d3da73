//! Pull delivery from a spread topic.
//!
//! - A receive request goes to one part after the other. A part without events at hand reports it,
//!   and the request waits there while it goes to the next part; the first with events ends the
//!   wait, and the others are canceled.
//! - What was locked for a client that does not get it is given back, and does not count as a
//!   delivery. So no response of a part is dropped unread.
//! - A lock token goes to the shard that it names.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    pin::{Pin, pin},
    rc::Rc,
    time::Duration,
};

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web::Bytes};
use futures_util::future::join_all;
use hyper::header::HeaderValue;
use serde_json::{json, to_string};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{Routed, ThreadRouter, not_forwarded, owner, parts, target_at, target_of};
use crate::{
    forward::{self, unavailable_response},
    forward_error::ForwardError,
    front::hop::{self, ListenerSide},
};
use gridhook_pull::{
    NodeReceive, Peer,
    body::{LockTokensBody, ReceiveQuery, SettleResponse},
    http::success_response,
    parts::{PartEvent, PartEvents, in_turn, merge_results, tokens_by_part},
};

/// The longest time in which a part reports whether events are at hand. Then the request goes to the
/// next one.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The pause before a part without an owner is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

struct Receive {
    request: HttpRequest,
    side: ListenerSide,
    leader: usize,
    events_max: usize,
    until: Instant,
    /// The bearer token, if only the control plane knows it.
    bearer: RefCell<Option<String>>,
}

enum PartResponse {
    /// The part has no events now. Another response may follow.
    Waits,
    Events(Received),
    Refused(HttpResponse),
}

/// Events that are locked, each with the shard of its part. They are given back when this is
/// dropped.
struct Received {
    router: Rc<ThreadRouter>,
    events: Vec<(usize, PartEvent)>,
}

impl Received {
    /// Adds the events of a response beside that of another part.
    fn add_response(&mut self, part_response: PartResponse) {
        match part_response {
            PartResponse::Events(mut part) => self.events.append(&mut part.events),
            PartResponse::Refused(_) | PartResponse::Waits => {}
        }
    }

    /// Adds the events of the responses that are here.
    fn add_queued(&mut self, responses: &mut mpsc::UnboundedReceiver<(usize, PartResponse)>) {
        while let Ok((_, part_response)) = responses.try_recv() {
            self.add_response(part_response);
        }
    }

    /// The first `events_max` events, and a function that gives them back.
    fn take_events(&mut self, events_max: usize) -> (PartEvents, impl FnOnce() + use<>) {
        let rest = self.events.split_off(events_max.min(self.events.len()));
        let batch = std::mem::replace(&mut self.events, rest);
        let router = Rc::clone(&self.router);
        let tokens = tokens_of(&batch);
        let value = batch.into_iter().map(|(_, event)| event).collect();
        (PartEvents { value }, move || router.give_back(tokens))
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.router.give_back(tokens_of(&self.events));
    }
}

fn tokens_of(events: &[(usize, PartEvent)]) -> BTreeMap<usize, Vec<String>> {
    let mut tokens: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (shard, event) in events {
        tokens
            .entry(*shard)
            .or_default()
            .push(event.broker_properties.lock_token.clone());
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
        let (Ok(events_max), Ok(wait)) = (query.max_events(), query.max_wait()) else {
            // The leader returns the error.
            let outgoing = forward::outgoing_whole(request, target_of(request), Bytes::new());
            return self
                .forward_to_shard(leader, request, outgoing.ok_or_else(not_forwarded)?, side)
                .await;
        };
        let events_max = events_max as usize;
        let until = Instant::now() + wait;
        let bearer = RefCell::default();
        let receive = Rc::new(Receive {
            request: request.clone(),
            side,
            leader,
            events_max,
            until,
            bearer,
        });
        let peer = request.conn_data::<Peer>().cloned().unwrap_or_default();
        let mut received = Received {
            router: Rc::clone(self),
            events: Vec::new(),
        };
        self.poll_shards(&receive, &mut received, &peer).await?;
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

    /// Receives the events that the parts have now. If there are none, waits at every part until one
    /// has events, the time is over or the client is gone. Once there are events, other nodes are
    /// not asked for more.
    async fn poll_shards(
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
        let mut is_over = false;
        for shard in in_turn(turn, &is_near) {
            let count = received.events.len();
            if count >= receive.events_max || (is_over && (count == 0 || !is_near[shard])) {
                break;
            }
            if is_over {
                self.look(shard, receive, received).await;
                continue;
            }
            let router = Rc::clone(self);
            let poll = router.poll(
                shard,
                Rc::clone(receive),
                cancellation.clone(),
                sender.clone(),
            );
            actix_rt::spawn(poll);
            if self.shards[shard].forwarder().has_owner() {
                let response = receive_response(&mut responses, Some(shard), received);
                is_over = timeout(LOOK_MAX, response).await.unwrap_or(Ok(false))?;
            }
        }
        if !is_over {
            self.wait_for_events(receive, &mut responses, received, peer)
                .await?;
        }
        received.add_queued(&mut responses);
        Ok(())
    }

    /// Takes what a part has at hand.
    async fn look(self: &Rc<Self>, shard: usize, receive: &Receive, received: &mut Received) {
        if !self.shards[shard].forwarder().has_owner() {
            return;
        }
        let left = receive.events_max - received.events.len();
        let exchange = self.request_events(shard, receive, NodeReceive::Look, left, || {});
        if let Ok(Ok(part_response)) = timeout(LOOK_MAX, exchange).await {
            received.add_response(part_response);
        }
    }

    /// Waits until a part has events, or returns for another reason.
    async fn wait_for_events(
        &self,
        receive: &Receive,
        responses: &mut mpsc::UnboundedReceiver<(usize, PartResponse)>,
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

    /// Waits at a part, whichever node owns it, until it responds or is canceled.
    async fn poll(
        self: Rc<Self>,
        shard: usize,
        receive: Rc<Receive>,
        mut cancellation: watch::Receiver<()>,
        to: mpsc::UnboundedSender<(usize, PartResponse)>,
    ) {
        loop {
            let longest = receive.until.saturating_duration_since(Instant::now());
            if longest.is_zero() {
                return;
            }
            let id = fastrand::u64(..);
            let note_waiting = || drop(to.send((shard, PartResponse::Waits)));
            let exchange = self.request_events(
                shard,
                &receive,
                NodeReceive::Wait { id, longest },
                receive.events_max,
                note_waiting,
            );
            let mut exchange = pin!(exchange);
            let (part_response, is_over) = tokio::select! {
                part_response = &mut exchange => (part_response, false),
                _ = cancellation.changed() => (self.cancel_poll(shard, id, exchange).await, true),
            };
            match part_response {
                Ok(part_response) => {
                    // If the client has its response, this drops the events, which gives them back.
                    to.send((shard, part_response)).ok();
                    return;
                }
                Err(_) if is_over => return,
                Err(_) => {
                    note_waiting();
                    tokio::select! {
                        () = sleep(RETRY_PAUSE) => {}
                        _ = cancellation.changed() => return,
                    }
                }
            }
        }
    }

    /// Cancels a request, and returns its response.
    async fn cancel_poll(
        &self,
        shard: usize,
        id: u64,
        exchange: Pin<&mut impl Future<Output = Result<PartResponse, ForwardError>>>,
    ) -> Result<PartResponse, ForwardError> {
        self.ended_polls[shard].cancel_poll(id);
        timeout(owner::OWNER_RESPONSE_MAX, exchange)
            .await
            .unwrap_or(Err(ForwardError::Late))
    }

    async fn request_events(
        self: &Rc<Self>,
        shard: usize,
        receive: &Receive,
        mode: NodeReceive,
        events_max: usize,
        note_waiting: impl FnOnce(),
    ) -> Result<PartResponse, ForwardError> {
        let request = &receive.request;
        let target = target_at(
            request.path(),
            &with_max_events(request.query_string(), events_max),
        );
        let mut outgoing = forward::outgoing_whole(request, &target, Bytes::new())
            .ok_or(ForwardError::Unforwardable)?;
        let headers = outgoing.headers_mut();
        headers.insert(
            hop::RECEIVE_NAME,
            HeaderValue::from_str(&mode.to_header()).map_err(|_| ForwardError::Unforwardable)?,
        );
        // The router reads the body, so it must not be compressed.
        headers.remove(hyper::header::ACCEPT_ENCODING);
        if shard != self.control() {
            *receive.bearer.borrow_mut() = self.identities.identify_caller(headers).await?;
        }
        let longest = match mode {
            NodeReceive::Look => LOOK_MAX,
            NodeReceive::Wait { longest, .. } => longest,
        };
        let response = self.shards[shard]
            .send_to_owner(outgoing, receive.side, longest)
            .await?;
        match StatusCode::from_u16(response.response.status().as_u16()) {
            Ok(status @ (StatusCode::OK | StatusCode::ACCEPTED)) => {
                if status == StatusCode::ACCEPTED {
                    note_waiting();
                }
                let (_, body) = parts::collect_body(&self.shards[shard], response).await?;
                let events: PartEvents =
                    serde_json::from_slice(&body).map_err(|_| ForwardError::Unreadable)?;
                Ok(PartResponse::Events(Received {
                    router: Rc::clone(self),
                    events: events
                        .value
                        .into_iter()
                        .map(|event| (shard, event))
                        .collect(),
                }))
            }
            Ok(StatusCode::NOT_FOUND) if shard != receive.leader => Err(ForwardError::NoTopicYet),
            Ok(StatusCode::SERVICE_UNAVAILABLE) => Err(ForwardError::Unready),
            _ => Ok(PartResponse::Refused(
                self.shards[shard].relay_response(response, None),
            )),
        }
    }

    /// Gives events back to their parts.
    fn give_back(self: &Rc<Self>, tokens: BTreeMap<usize, Vec<String>>) {
        for (shard, tokens) in tokens {
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

/// Receives a response that ends the wait, and returns whether there was one: a part may say
/// before that it waits.
async fn receive_response(
    responses: &mut mpsc::UnboundedReceiver<(usize, PartResponse)>,
    part: Option<usize>,
    received: &mut Received,
) -> Routed<bool> {
    while let Some((shard, part_response)) = responses.recv().await {
        match part_response {
            PartResponse::Waits if Some(shard) == part => return Ok(false),
            PartResponse::Waits => {}
            PartResponse::Events(_) => {
                received.add_response(part_response);
                return Ok(true);
            }
            PartResponse::Refused(response) => {
                received.add_queued(responses);
                let has_events = !received.events.is_empty();
                return if has_events { Ok(true) } else { Err(response) };
            }
        }
    }
    Ok(true)
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
