//! What the owner of a shard serves to the nodes of its cluster, and to no client: a request of a
//! client has the address of its client, also on a connection between nodes.

use std::{collections::BTreeMap, io, rc::Rc, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, guard, web};
use bytes::Bytes;
use hyper::{
    Request, StatusCode,
    body::Body,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::timeout,
};
use tracing::Span;

use super::parts::MERGED_BYTES_MAX;
use crate::{
    control_copy::FollowedControl,
    forward::{Hops, OutgoingRequest, RequestBody},
    forward_error::ForwardError,
    front::hop::OfNode,
    local_topics,
};
use gridhook_admin::{
    Control,
    auth::{ForwardedIdentity, bearer_in},
};
use gridhook_event::SubscriptionKey;
use gridhook_policy::record::lease::Lease;
use gridhook_publish::http::Publisher;
use gridhook_pull::{LockTokenSealer, NodePolls};
use gridhook_repair::backup::{BackupError, Backups};

const IDENTITY: &str = "/node/identity";
pub(super) const TOPICS: &str = "/node/topics";
pub(super) const FOLLOWED: &str = "/node/followed";
const PULL: &str = "/node/pull";
pub(crate) const STORE: &str = "/node/store";

/// The pieces of a store that wait for a slow node.
const PIECES_WAITING: usize = 4;

/// The pause before a piece that the slow node has no room for is tried again.
const SLOW_PAUSE: Duration = Duration::from_millis(1);

/// The maximum size of the events of a delivery to a topic.
const TOPICS_BYTES: usize = 2 * 1024 * 1024;

/// The maximum size of the lock tokens of events that are given back, and of the numbers of
/// requests that are canceled.
const TOKENS_BYTES: usize = 64 * 1024;

/// The longest time for a response.
pub(super) const OWNER_RESPONSE_MAX: Duration = Duration::from_secs(5);

/// Adds the paths, for connections between nodes.
pub(crate) fn configure(cfg: &mut web::ServiceConfig) {
    let is_of_node = |request: &guard::GuardContext<'_>| request.req_data().contains::<OfNode>();
    let of_nodes = |path: &str| web::resource(path).guard(guard::fn_guard(is_of_node));
    cfg.service(of_nodes(IDENTITY).route(web::post().to(respond_identity)));
    cfg.service(of_nodes(STORE).route(web::get().to(send_store)));
    let topics = of_nodes(TOPICS).app_data(web::PayloadConfig::new(TOPICS_BYTES));
    cfg.service(of_nodes(FOLLOWED).route(web::get().to(wait_until_followed)));
    let pull = of_nodes(PULL).app_data(web::JsonConfig::default().limit(TOKENS_BYTES));
    cfg.service(
        pull.route(web::put().to(return_leases))
            .route(web::delete().to(handle_cancellation)),
    );
    cfg.service(
        topics
            .route(web::get().to(has_topic))
            .route(web::post().to(publish_forwarded)),
    );
}

async fn respond_identity(request: HttpRequest, control: web::Data<Control>) -> HttpResponse {
    let bearer = request
        .headers()
        .get(actix_web::http::header::AUTHORIZATION)
        .and_then(bearer_in);
    match bearer.and_then(|bearer| control.forwarded_identity(bearer)) {
        Some(identity) => HttpResponse::Ok().json(identity),
        None => HttpResponse::NotFound().finish(),
    }
}

/// Sends the store to a node that cannot follow the changelog without it.
async fn send_store(control: web::Data<Control>) -> HttpResponse {
    let permitted = match control.backups.clone() {
        Some(backups) => backups.acquire_permit().map(|permit| (permit, backups)),
        None => Err(BackupError::Closed),
    };
    let (permit, backups) = match permitted {
        Ok(permitted) => permitted,
        Err(error) => return HttpResponse::ServiceUnavailable().body(error.to_string()),
    };
    let (pieces, mut waiting) = mpsc::channel(PIECES_WAITING);
    let span = Span::current();
    tokio::task::spawn_blocking(move || {
        let _entered = span.entered();
        let mut sender = PieceSender {
            pieces,
            backups: Arc::clone(&backups),
        };
        match backups.send_store(&permit, &mut sender) {
            Ok(sent) => {
                tracing::info!(
                    applied = sent.applied,
                    bytes = sent.total_bytes(),
                    "the store was sent to another node"
                )
            }
            Err(error) => {
                tracing::warn!(%error, "the store was not sent to another node");
                // The other node may have gone.
                sender.pieces.try_send(Err(io::Error::other(error))).ok();
            }
        }
    });
    HttpResponse::Ok().streaming(futures_util::stream::poll_fn(move |cx| {
        waiting.poll_recv(cx)
    }))
}

/// Writes to the body of a response, as long as the owner does not stop.
struct PieceSender {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    backups: Arc<Backups>,
}

impl io::Write for PieceSender {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let mut waits = Ok(Bytes::copy_from_slice(piece));
        loop {
            waits = match self.pieces.try_send(waits) {
                Ok(()) => return Ok(piece.len()),
                Err(TrySendError::Full(piece)) if !self.backups.is_stopping() => piece,
                Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            };
            std::thread::sleep(SLOW_PAUSE);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Deserialize)]
struct FollowedPosition {
    position: u64,
}

async fn wait_until_followed(
    query: web::Query<FollowedPosition>,
    followed: web::Data<FollowedControl>,
) -> HttpResponse {
    match followed.wait_until_followed(query.position).await {
        Ok(()) => HttpResponse::Ok().finish(),
        Err(delay) => HttpResponse::ServiceUnavailable().body(delay.to_string()),
    }
}

/// Releases events that no client received.
async fn return_leases(
    tokens: web::Json<Vec<String>>,
    sealer: web::Data<LockTokenSealer>,
    control: web::Data<Control>,
) -> HttpResponse {
    let mut leases: BTreeMap<SubscriptionKey, Vec<Lease>> = BTreeMap::new();
    for (key, lease) in tokens.iter().filter_map(|token| sealer.read(token)) {
        leases.entry(key).or_default().push(lease);
    }
    for (key, leases) in leases {
        let registry = control.registry();
        // The subscription may have been deleted.
        if let (Some(topic), Some(shared)) = (
            registry.topic_of_partition(key.partition),
            registry.shared_state(key),
        ) {
            shared.take_back_leases(leases);
            topic.ensure_actor(&shared);
        }
    }
    HttpResponse::Ok().finish()
}

async fn handle_cancellation(
    ids: web::Json<Vec<u64>>,
    polls: web::Data<NodePolls>,
) -> HttpResponse {
    polls.cancel_polls(&ids);
    HttpResponse::Ok().finish()
}

#[derive(Deserialize)]
struct NamedTopic {
    topic: String,
}

async fn has_topic(named: web::Query<NamedTopic>, control: web::Data<Control>) -> HttpResponse {
    match local_topics::find_namespace_topic(control.registry(), &named.topic) {
        Some(_) => HttpResponse::Ok().finish(),
        None => HttpResponse::NotFound().finish(),
    }
}

/// Publishes what an event subscription of another shard delivers.
async fn publish_forwarded(
    named: web::Query<NamedTopic>,
    events: Bytes,
    control: web::Data<Control>,
    publisher: web::Data<Publisher>,
) -> HttpResponse {
    let Some(topic) = local_topics::find_namespace_topic(control.registry(), &named.topic) else {
        return HttpResponse::NotFound().body(format!("there is no topic {}", named.topic));
    };
    match publisher.forward_events(&topic, events).await {
        Ok(()) => HttpResponse::Ok().finish(),
        Err(refusal) => HttpResponse::build(refusal.status().0).body(refusal.to_string()),
    }
}

/// Fetches the records about a bearer token from the owner of the control plane.
pub(super) async fn fetch_identity(
    control: &Rc<Hops>,
    bearer: &str,
) -> Result<Option<ForwardedIdentity>, ForwardError> {
    let value =
        HeaderValue::try_from(format!("Bearer {bearer}")).map_err(|_| ForwardError::Token)?;
    let mut outgoing = node_request("POST", IDENTITY, RequestBody::from_bytes(Bytes::new()))?;
    outgoing.headers_mut().insert(AUTHORIZATION, value);
    match send_request(control, outgoing).await? {
        (StatusCode::OK, body) => serde_json::from_slice(&body)
            .map(Some)
            .map_err(|_| ForwardError::Unreadable),
        (StatusCode::NOT_FOUND, _) => Ok(None),
        _ => Err(ForwardError::NoControlPlane),
    }
}

/// Gives events back to the part of a shard.
pub(super) async fn take_back(shard: &Rc<Hops>, tokens: &[String]) -> Result<(), ForwardError> {
    let outgoing = node_request("PUT", PULL, json_body(&tokens)?)?;
    send_request(shard, outgoing).await.map(drop)
}

/// Cancels receive requests that wait at a node.
pub(super) async fn cancel_polls(
    hops: &Hops,
    address: &str,
    ids: &[u64],
) -> Result<(), ForwardError> {
    let outgoing = node_request("DELETE", PULL, json_body(&ids)?)?;
    let exchange = async {
        let response = hops.send_to_node(outgoing, address).await?;
        let whole = hops.read_until(response, MERGED_BYTES_MAX, std::future::pending());
        whole.await.map(drop)
    };
    timeout(OWNER_RESPONSE_MAX, exchange)
        .await
        .unwrap_or(Err(ForwardError::Late))
}

fn json_body(value: &impl Serialize) -> Result<RequestBody, ForwardError> {
    let body = serde_json::to_vec(value).map_err(|_| ForwardError::Unforwardable)?;
    Ok(RequestBody::from_bytes(body.into()))
}

/// A request of the node itself, with JSON.
pub(crate) fn node_request<B: Body>(
    method: &str,
    target: &str,
    body: B,
) -> Result<Request<B>, ForwardError> {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .header(CONTENT_LENGTH, body.size_hint().lower());
    request.body(body).map_err(|_| ForwardError::Unforwardable)
}

async fn send_request(
    shard: &Rc<Hops>,
    outgoing: OutgoingRequest,
) -> Result<(StatusCode, Bytes), ForwardError> {
    let call = shard.call_owner(outgoing, OWNER_RESPONSE_MAX, MERGED_BYTES_MAX);
    timeout(OWNER_RESPONSE_MAX, call)
        .await
        .unwrap_or(Err(ForwardError::Late))
}
