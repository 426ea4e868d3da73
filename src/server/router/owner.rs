//! What the owner of a shard answers to the nodes of its cluster, and to no client: a request of a
//! client has the address of its client, also on a connection between nodes.

use std::{collections::BTreeMap, io, rc::Rc, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, guard, web};
use hyper::{
    Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue},
};
use serde::Deserialize;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::timeout,
};

use super::parts;
use crate::{
    forward::{Hops, OutgoingRequest, RequestBody},
    front::hop::{ListenerSide, OfNode},
    local_topics,
};
use gridhook_admin::{
    Control, Definitions,
    auth::{ForwardedIdentity, bearer_in},
};
use gridhook_event::SubscriptionKey;
use gridhook_policy::record::lease::Lease;
use gridhook_publish::http::Publisher;
use gridhook_pull::{LockTokenSealer, NodePolls};
use gridhook_repair::backup::{BackupError, Backups};

const IDENTITY: &str = "/node/identity";
const NAMESPACES: &str = "/node/namespaces";
const SPREAD: &str = "/node/spread";
pub(super) const TOPICS: &str = "/node/topics";
pub(super) const DEFINITIONS: &str = "/node/definitions";
const PULL: &str = "/node/pull";
pub(crate) const STORE: &str = "/node/store";

/// The pieces of a store that wait for a slow node.
const PIECES_WAITING: usize = 4;

/// The pause before the next one is tried again.
const SLOW_PAUSE: Duration = Duration::from_millis(1);

/// The maximum size of the definitions of all spread topics that a shard leads.
const DEFINITIONS_BYTES: usize = 64 * 1024 * 1024;

/// The maximum size of the events of a delivery to a topic.
const TOPICS_BYTES: usize = 2 * 1024 * 1024;

/// The maximum size of the lock tokens of events that are given back.
const TOKENS_BYTES: usize = 64 * 1024;

/// The longest time for an answer.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Adds the paths, for connections between nodes.
pub(crate) fn configure(cfg: &mut web::ServiceConfig) {
    let of_nodes = |path: &str| {
        let is_of_node =
            |request: &guard::GuardContext<'_>| request.req_data().contains::<OfNode>();
        web::resource(path.to_owned()).guard(guard::fn_guard(is_of_node))
    };
    cfg.service(of_nodes(IDENTITY).route(web::post().to(answer_identity)));
    cfg.service(of_nodes(NAMESPACES).route(web::get().to(answer_namespaces)));
    cfg.service(of_nodes(STORE).route(web::get().to(send_store)));
    let topics = of_nodes(TOPICS).app_data(web::PayloadConfig::new(TOPICS_BYTES));
    cfg.service(of_nodes(SPREAD).route(web::get().to(answer_spread)));
    let definitions =
        of_nodes(DEFINITIONS).app_data(web::JsonConfig::default().limit(DEFINITIONS_BYTES));
    cfg.service(definitions.route(web::put().to(apply_definitions)));
    let pull = of_nodes(PULL).app_data(web::JsonConfig::default().limit(TOKENS_BYTES));
    cfg.service(
        pull.route(web::put().to(take_leases_back))
            .route(web::delete().to(call_poll_off)),
    );
    cfg.service(
        topics
            .route(web::get().to(has_topic))
            .route(web::post().to(publish_forwarded)),
    );
}

async fn answer_identity(request: HttpRequest, control: web::Data<Control>) -> HttpResponse {
    let bearer = request
        .headers()
        .get(actix_web::http::header::AUTHORIZATION)
        .and_then(bearer_in);
    match bearer.and_then(|bearer| control.forwarded_identity(bearer)) {
        Some(identity) => HttpResponse::Ok().json(identity),
        None => HttpResponse::NotFound().finish(),
    }
}

async fn answer_namespaces(control: web::Data<Control>) -> HttpResponse {
    let namespaces = control.registry().list_namespaces();
    let led_namespaces = namespaces.iter().filter(|namespace| !namespace.is_follower);
    HttpResponse::Ok().json(
        led_namespaces
            .map(|namespace| namespace.name.to_string())
            .collect::<Vec<_>>(),
    )
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
    tokio::task::spawn_blocking(move || {
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
                // It has gone.
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
    pieces: mpsc::Sender<io::Result<bytes::Bytes>>,
    backups: Arc<Backups>,
}

impl io::Write for PieceSender {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let mut waits = Ok(bytes::Bytes::copy_from_slice(piece));
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

async fn answer_spread(control: web::Data<Control>) -> HttpResponse {
    let records = control
        .registry()
        .list_topics()
        .into_iter()
        .map(|topic| topic.record());
    let keys: Vec<String> = records
        .filter(|record| record.is_spread())
        .map(|record| record.key())
        .collect();
    HttpResponse::Ok().json(keys)
}

async fn apply_definitions(
    definitions: web::Json<Definitions>,
    control: web::Data<Control>,
) -> HttpResponse {
    match control.apply_definitions(definitions.into_inner()).await {
        Ok(()) => HttpResponse::Ok().finish(),
        Err(error) => HttpResponse::ServiceUnavailable().body(error.to_string()),
    }
}

/// Takes events back that no client received.
async fn take_leases_back(
    given: web::Json<Vec<String>>,
    tokens: web::Data<LockTokenSealer>,
    control: web::Data<Control>,
) -> HttpResponse {
    let mut leases: BTreeMap<SubscriptionKey, Vec<Lease>> = BTreeMap::new();
    for (key, lease) in given.iter().filter_map(|token| tokens.read(token)) {
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

#[derive(Deserialize)]
struct NumberedPoll {
    id: u64,
}

async fn call_poll_off(
    poll: web::Query<NumberedPoll>,
    polls: web::Data<NodePolls>,
) -> HttpResponse {
    polls.call_off(poll.id);
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
    events: web::Bytes,
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

/// What the owner of the control shard knows of a bearer token.
pub(super) async fn fetch_identity(
    control: &Rc<Hops>,
    bearer: &str,
) -> Result<Option<ForwardedIdentity>, &'static str> {
    let value = HeaderValue::try_from(format!("Bearer {bearer}"))
        .map_err(|_| "the token cannot be forwarded")?;
    let mut outgoing = internal_request("POST", IDENTITY)?;
    outgoing.headers_mut().insert(AUTHORIZATION, value);
    match send_request(control, outgoing).await? {
        (StatusCode::OK, body) => serde_json::from_slice(&body)
            .map(Some)
            .map_err(|_| UNREADABLE),
        (StatusCode::NOT_FOUND, _) => Ok(None),
        _ => Err("the owner of the control shard, which knows the tokens, does not answer"),
    }
}

/// The names of the namespaces of a shard.
pub(super) async fn fetch_namespaces(shard: &Rc<Hops>) -> Result<Vec<String>, &'static str> {
    match send_request(shard, internal_request("GET", NAMESPACES)?).await? {
        (StatusCode::OK, body) => serde_json::from_slice(&body).map_err(|_| UNREADABLE),
        _ => Err("the owner of a shard, which may have the namespace, does not answer"),
    }
}

/// Gives events back to the part of a shard.
pub(super) async fn take_back(shard: &Rc<Hops>, tokens: &[String]) -> Result<(), &'static str> {
    let body = serde_json::to_vec(tokens).map_err(|_| "the tokens cannot be sent")?;
    let request = Request::builder()
        .method("PUT")
        .uri(PULL)
        .header(HOST, "localhost");
    let request = request
        .header(CONTENT_TYPE, "application/json")
        .header(CONTENT_LENGTH, body.len());
    let request = request
        .body(RequestBody::from_bytes(body.into()))
        .map_err(|_| "the request cannot be made")?;
    send_request(shard, request).await.map(drop)
}

/// Calls a receive request off that waits at a shard.
pub(super) async fn call_off(shard: &Rc<Hops>, id: u64) -> Result<(), &'static str> {
    send_request(
        shard,
        internal_request("DELETE", &format!("{PULL}?id={id}"))?,
    )
    .await
    .map(drop)
}

/// The keys of all spread topics, as the owner of a shard knows them.
pub(super) async fn spread_topics(shard: &Rc<Hops>) -> Result<Vec<String>, &'static str> {
    match send_request(shard, internal_request("GET", SPREAD)?).await? {
        (StatusCode::OK, body) => serde_json::from_slice(&body).map_err(|_| UNREADABLE),
        _ => Err("the owner of a shard, which knows the spread topics, does not answer"),
    }
}

pub(super) const UNREADABLE: &str = "the owner has another version, which cannot be understood";

fn internal_request(method: &str, path: &str) -> Result<OutgoingRequest, &'static str> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost");
    request
        .body(RequestBody::from_bytes(bytes::Bytes::new()))
        .map_err(|_| "the request cannot be made")
}

async fn send_request(
    shard: &Rc<Hops>,
    outgoing: OutgoingRequest,
) -> Result<(StatusCode, bytes::Bytes), &'static str> {
    let answered = async {
        let answered = shard
            .send_to_owner(outgoing, ListenerSide::Operators, ANSWER_MAX)
            .await?;
        let status = answered.response.status();
        Ok((status, parts::collect_body(shard, answered).await?.1))
    };
    timeout(ANSWER_MAX, answered)
        .await
        .unwrap_or(Err("the owner does not answer in time"))
}
