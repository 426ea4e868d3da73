//! Receives events for another node of a cluster, from the parts of a spread topic that this process
//! serves: one request for all of them.
//!
//! - The node names shards in the order in which they are asked. A shard that is not served here, or
//!   does not have the topic yet, has no part in the request, and the response says so.
//! - The head of the response says that nothing is at hand (202), or the response has events (200).
//! - A request whose wait ends early has no events. The node asks again, and receives the refusal if
//!   there is one.

use std::{convert::Infallible, time::Duration};

use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse, guard,
    http::{StatusCode, header::HeaderValue},
    web,
};
use futures_util::{future::LocalBoxFuture, stream};
use serde::{Deserialize, Serialize};

use super::{
    LockTokenSealer, NodePolls,
    body::{ReceiveQuery, write_received},
    http::{METHOD, PullRequest, RECEIVE, spelled_paths, success_response},
    poll::{LongPoll, PartPoll},
};
use gridhook_publish::{
    Refusal,
    http::{Publisher, pattern},
};

/// The header of a response with the shards that have no part in it, as JSON.
pub const ABSENT_NAME: &str = "gridhook-absent-shards";

/// What a node asks for, in a header.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeReceive {
    /// The numbers of shards, in the order in which they are asked.
    pub shards: Vec<usize>,
    /// The shard that knows whether the topic exists.
    pub leader: usize,
    /// Set if the request waits for events. Others take what is at hand.
    pub wait: Option<NodeWait>,
}

/// The wait of a request, until it is canceled.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeWait {
    /// The number that the node gave the request.
    pub id: u64,
    pub longest: Duration,
}

/// A shard that this process serves.
pub struct ServedPart {
    pub shard: usize,
    pub publisher: web::Data<Publisher>,
    pub tokens: web::Data<LockTokenSealer>,
    /// Returns once the shard is not served any more. It counts as busy until this is dropped.
    pub end: LocalBoxFuture<'static, ()>,
}

/// A request of a node, with those of its shards that this process serves.
pub struct NodeRequest {
    pub receive: NodeReceive,
    pub parts: Vec<ServedPart>,
}

/// Adds the operation for requests with a [`NodeRequest`], to an app that has a `web::Data` of
/// [`NodePolls`].
pub fn configure(config: &mut web::ServiceConfig) {
    let is_of_node =
        |request: &guard::GuardContext<'_>| request.req_data().contains::<NodeRequest>();
    for (_, path) in spelled_paths().filter(|(operation, _)| *operation == RECEIVE) {
        let resource = web::resource(pattern(&path)).guard(guard::fn_guard(is_of_node));
        config.service(resource.route(web::method(METHOD).to(receive_events)));
    }
}

async fn receive_events(request: HttpRequest, polls: web::Data<NodePolls>) -> HttpResponse {
    let node_request = request.extensions_mut().remove::<NodeRequest>();
    let query = ReceiveQuery::new(request.query_string());
    let (Some(NodeRequest { receive, parts }), Ok(events_max)) = (node_request, query.max_events())
    else {
        return HttpResponse::BadRequest().finish();
    };
    let mut present = Vec::new();
    let mut part_polls = Vec::new();
    for part in parts {
        let shard = part.shard;
        let publisher = part.publisher.clone();
        match begin_part(part, &request).await {
            Ok(Some(part_poll)) => {
                present.push(shard);
                part_polls.push(part_poll);
            }
            Ok(None) => {}
            Err(refusal) if is_absence(&refusal, shard == receive.leader) => {}
            Err(refusal) => return publisher.refuse_in_namespace(&refusal),
        }
    }
    let poll = LongPoll::new(&request, events_max, part_polls);
    let mut response = respond(poll, receive.wait, polls).await;
    let is_absent = |shard: &usize| !present.contains(shard);
    let absent: Vec<usize> = receive.shards.into_iter().filter(is_absent).collect();
    if let Some(value) = absent_value(&absent) {
        let name = actix_web::http::header::HeaderName::from_static(ABSENT_NAME);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Authenticates the client at a part. Returns [`None`] if the part is not served any more.
async fn begin_part(part: ServedPart, request: &HttpRequest) -> Result<Option<PartPoll>, Refusal> {
    let ServedPart {
        publisher,
        tokens,
        mut end,
        ..
    } = part;
    if publisher.has_ended_polls() {
        return Ok(None);
    }
    publisher.check_host(request)?;
    let pull = tokio::select! {
        pull = PullRequest::authenticate(&publisher, request) => pull?,
        () = &mut end => return Ok(None),
    };
    Ok(Some(PartPoll::new(publisher, tokens, pull, end)))
}

/// Whether a part with this refusal cannot say anything about the topic.
fn is_absence(refusal: &Refusal, is_leader: bool) -> bool {
    match refusal.status().0 {
        StatusCode::NOT_FOUND => !is_leader,
        StatusCode::SERVICE_UNAVAILABLE => true,
        _ => false,
    }
}

async fn respond(
    mut poll: LongPoll,
    wait: Option<NodeWait>,
    polls: web::Data<NodePolls>,
) -> HttpResponse {
    poll.look().await;
    let Some(NodeWait { id, longest }) = wait.filter(|_| poll.can_wait()) else {
        return success_response(write_body(poll).await);
    };
    poll.begin();
    // The node learns that nothing is at hand, and reads on.
    HttpResponse::Accepted().streaming(stream::once(async move {
        let open_poll = polls.begin_poll(id);
        tokio::select! {
            biased;
            () = poll.wait_at_most(longest) => {}
            () = open_poll.wait_until_canceled() => {}
        }
        Ok::<_, Infallible>(write_body(poll).await.into())
    }))
}

async fn write_body(poll: LongPoll) -> Vec<u8> {
    poll.finish().await.unwrap_or_else(|_| write_received(&[]))
}

/// The value of [`ABSENT_NAME`], if a shard is absent.
fn absent_value(shards: &[usize]) -> Option<HeaderValue> {
    if shards.is_empty() {
        return None;
    }
    HeaderValue::from_str(&serde_json::to_string(shards).ok()?).ok()
}
