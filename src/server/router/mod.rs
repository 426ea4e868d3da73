//! The front of a node of a cluster with several shards: each request goes to the owners of the
//! shards that it concerns, over a connection between nodes, also if the owner is this node.
//!
//! - [`target`] finds the shards, by the tables of routes.
//! - A request of one shard is forwarded as a standby does it (`forward`): its body and its
//!   response are streams.
//! - A request about a spread topic is sent to one of its shards, or to each. [`pull`] receives
//!   from all of them.
//! - A request of all shards is sent to each ([`parts`]), and the answers are merged
//!   (`admin::merge`, [`streams`]).
//! - The control shard has the named tokens and the sessions. [`identity`] asks its owner, and
//!   tells other owners.
//! - [`topics`] publishes what event subscriptions of one shard deliver to topics of another.
//! - [`owner`] is what an owner answers to nodes, and to no client.
//!
//! Nothing is stored here, and a node that owns nothing does the same.

mod identity;
pub(super) mod owner;
mod parts;
mod pull;
mod streams;
mod target;
mod topics;

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    web::{self, Bytes},
};
use ipnet::IpNet;
use tokio::time::Instant;

pub(super) use self::topics::OtherShards;
use self::{identity::Identities, target::Target};
use super::{
    forward::{self, Forwarder, Hops, OutgoingRequest, unavailable_response},
    front::hop::{self, ListenerSide},
};
use gridhook_admin::{
    Merge, Placement, SpreadScope, TopicName,
    merge::{shard_in, shard_in_path},
    placement_of_body,
};
use gridhook_cluster::shard_of;
use gridhook_config::Config;

/// The shard with the named tokens and the sessions.
const CONTROL: usize = 0;

/// The maximum size of the body of a request that may concern all shards. Only requests to the
/// control plane do.
const BODY_BYTES: usize = 256 * 1024;

/// How long the names of namespaces from the shards are used for a host with one of these names.
const NAMESPACES_FRESH: Duration = Duration::from_secs(1);

/// How long they are used for a host without: the namespace may be new.
const NAMELESS_FRESH: Duration = Duration::from_millis(100);

/// How long the names of spread topics from an owner are used before they are asked for again. One
/// that is new is like any topic of its shard meanwhile, and no event of one that was deleted is
/// accepted.
const SPREAD_FRESH: Duration = Duration::from_secs(1);

/// How old they may be while they are asked for.
const SPREAD_STALE: Duration = Duration::from_secs(5);

/// What forwards the requests of a node. Clones share it.
#[derive(Clone)]
pub(super) struct ShardRouter {
    shards: Arc<[Forwarder]>,
    proxies: Arc<[IpNet]>,
}

impl ShardRouter {
    /// A router to these shards, in the order of their numbers.
    pub(super) fn new(shards: Vec<Forwarder>, config: &Config) -> Self {
        Self {
            shards: shards.into(),
            proxies: config.auth.trusted_proxies.clone().into(),
        }
    }

    /// Whether this node owns a shard.
    pub(super) fn owns_any(&self) -> bool {
        self.shards.iter().any(Forwarder::is_owner)
    }

    /// Routes every request without a route of this node's own.
    pub(super) fn configure(&self, cfg: &mut web::ServiceConfig, side: ListenerSide) {
        let shards: Vec<Rc<Hops>> = self.shards.iter().cloned().map(Hops::new).collect();
        let identities = Rc::new(Identities::new(Rc::clone(&shards[CONTROL])));
        let router = ThreadRouter {
            shards,
            identities,
            namespaces: RefCell::default(),
            spread: RefCell::default(),
            is_asking: Cell::new(false),
            turn: Cell::new(fastrand::usize(..)),
            proxies: Arc::clone(&self.proxies),
        };
        let router = Rc::new(router);
        cfg.default_service(web::to(
            move |request: HttpRequest, payload: web::Payload| {
                let router = Rc::clone(&router);
                async move {
                    router
                        .route_request(request, payload, side)
                        .await
                        .unwrap_or_else(|refused| refused)
                }
            },
        ));
    }
}

struct ThreadRouter {
    shards: Vec<Rc<Hops>>,
    identities: Rc<Identities>,
    /// The names of all namespaces, and when they were received.
    namespaces: RefCell<Option<(Instant, Rc<[String]>)>>,
    /// The keys of all spread topics, and when they were received.
    spread: RefCell<Option<(Instant, Rc<HashSet<String>>)>>,
    /// Whether they are being asked for.
    is_asking: Cell<bool>,
    /// The number of receive requests to spread topics.
    turn: Cell<usize>,
    proxies: Arc<[IpNet]>,
}

/// A request, or the response to one that is answered already.
type Routed<T> = Result<T, HttpResponse>;

impl ThreadRouter {
    async fn route_request(
        self: Rc<Self>,
        request: HttpRequest,
        payload: web::Payload,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let placement = match target::choose_target(&request, side, &self.proxies) {
            Target::Placed(placement) => placement,
            Target::InNamespace {
                label,
                topic,
                scope,
            } => match self.find_namespace(label.as_deref()).await? {
                Some(namespace) => {
                    Placement::Topic(TopicName::new(Some(&namespace), &topic), scope)
                }
                None => {
                    let mut outgoing =
                        forward::outgoing_request(&request, payload).ok_or_else(not_forwarded)?;
                    parts::mark_part(outgoing.headers_mut(), hop::RECORDED_PART);
                    return self
                        .forward_to_shard(self.nearest_shard(), &request, outgoing, side)
                        .await;
                }
            },
        };
        let (placement, body) = match placement {
            Placement::ByBody(merge) => {
                let body = read(payload).await?;
                (placement_of_body(merge, &body), Body::Read(body))
            }
            Placement::Any
            | Placement::Control
            | Placement::Named(_)
            | Placement::Topic(..)
            | Placement::All(_) => (placement, Body::Unread(payload)),
        };
        let placement = match placement {
            // A lock token says whether its topic is spread, also to a node that does not know it
            // yet.
            Placement::Topic(topic, scope)
                if scope == SpreadScope::Settle || self.is_spread(&topic).await =>
            {
                let leader = shard_of(topic.leading_name(), self.shards.len());
                return self
                    .route_spread_request(leader, scope, request, body, side)
                    .await;
            }
            placed => placed,
        };
        let shard = match placement {
            Placement::Control => CONTROL,
            Placement::Named(name) => shard_of(&name, self.shards.len()),
            Placement::Topic(topic, _) => shard_of(topic.leading_name(), self.shards.len()),
            Placement::Any | Placement::ByBody(_) => self.nearest_shard(),
            Placement::All(merge) => {
                let body = body.read().await?;
                return self.merge_responses(merge, request, body, side).await;
            }
        };
        let outgoing = outgoing_request(&request, body).ok_or_else(not_forwarded)?;
        self.forward_to_shard(shard, &request, outgoing, side).await
    }

    /// A request about a spread topic.
    async fn route_spread_request(
        self: Rc<Self>,
        leader: usize,
        scope: SpreadScope,
        request: HttpRequest,
        body: Body,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let addressed = match scope {
            SpreadScope::Near => {
                let outgoing = outgoing_request(&request, body).ok_or_else(not_forwarded)?;
                return self.publish_nearby(leader, &request, outgoing, side).await;
            }
            SpreadScope::Receive => return self.receive_events(leader, &request, side).await,
            SpreadScope::Settle => {
                return self
                    .settle_locks(leader, &request, body.read().await?, side)
                    .await;
            }
            SpreadScope::One | SpreadScope::Parts(_) | SpreadScope::All(_) => {
                addressed_shard(&request, scope)
            }
        };
        let body = body.read().await?;
        if let Some((shard, target)) = addressed.filter(|(shard, _)| *shard < self.shards.len()) {
            let mut outgoing =
                forward::outgoing_whole(&request, &target, body).ok_or_else(not_forwarded)?;
            if scope == SpreadScope::One {
                // The owner knows by this that the request names the shard.
                parts::mark_part(outgoing.headers_mut(), hop::RECORDED_PART);
            }
            return self.forward_to_shard(shard, &request, outgoing, side).await;
        }
        match scope {
            SpreadScope::Parts(merge) => {
                self.merge_parts(merge, leader, &request, body, side).await
            }
            SpreadScope::All(merge) => self.merge_responses(merge, request, body, side).await,
            SpreadScope::Near | SpreadScope::Receive | SpreadScope::Settle | SpreadScope::One => {
                let outgoing =
                    outgoing_request(&request, Body::Read(body)).ok_or_else(not_forwarded)?;
                self.forward_to_shard(leader, &request, outgoing, side)
                    .await
            }
        }
    }

    /// Publishes to a spread topic: to one of this node's own shards, or to any with an owner.
    async fn publish_nearby(
        &self,
        leader: usize,
        request: &HttpRequest,
        outgoing: OutgoingRequest,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let those = |is_one: fn(&Forwarder) -> bool| {
            let shards = self
                .shards
                .iter()
                .enumerate()
                .filter(|(_, hops)| is_one(hops.forwarder()));
            fastrand::choice(shards.map(|(shard, _)| shard).collect::<Vec<_>>())
        };
        let shard = those(Forwarder::serves)
            .or_else(|| those(Forwarder::has_other_owner))
            .or_else(|| those(Forwarder::has_owner))
            .unwrap_or(leader);
        let answer = self
            .forward_to_shard(shard, request, outgoing, side)
            .await?;
        if answer.status() == StatusCode::NOT_FOUND && shard != leader {
            // It was deleted since its name was received. The next request asks for the names.
            self.spread.borrow_mut().take();
            return Err(unavailable_response(
                "the shards of the topic have changed; repeat the request",
            ));
        }
        Ok(answer)
    }

    /// Whether a topic is spread, as an owner near by says.
    async fn is_spread(self: &Rc<Self>, topic: &TopicName) -> bool {
        let cached_names = self.spread.borrow().clone();
        let names = match cached_names {
            None => self.ask_for_spread().await,
            // A thread may have had no request for long.
            Some((at, names)) if at.elapsed() >= SPREAD_STALE => {
                Some(self.ask_for_spread().await.unwrap_or(names))
            }
            Some((at, names)) => {
                if at.elapsed() >= SPREAD_FRESH && !self.is_asking.replace(true) {
                    let router = Rc::clone(self);
                    actix_rt::spawn(async move {
                        router.ask_for_spread().await;
                        router.is_asking.set(false);
                    });
                }
                Some(names)
            }
        };
        names.is_some_and(|names| names.contains(&topic.topic_key()))
    }

    async fn ask_for_spread(&self) -> Option<Rc<HashSet<String>>> {
        let names = owner::spread_topics(&self.shards[self.nearest_shard()])
            .await
            .ok()?;
        let names: Rc<HashSet<String>> = Rc::new(names.into_iter().collect());
        *self.spread.borrow_mut() = Some((Instant::now(), Rc::clone(&names)));
        Some(names)
    }

    /// A shard whose owner is near: this node, if it owns one.
    fn nearest_shard(&self) -> usize {
        let mut shards = self.shards.iter().map(|hops| hops.forwarder());
        let first = shards.clone().position(Forwarder::serves);
        first
            .or_else(|| shards.position(Forwarder::has_owner))
            .unwrap_or(CONTROL)
    }

    async fn forward_to_shard(
        &self,
        shard: usize,
        request: &HttpRequest,
        mut outgoing: OutgoingRequest,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let is_named = self.identify_caller(shard, &mut outgoing).await?;
        let ended = is_named.map(|bearer| Rc::clone(&self.identities).wait_until_refused(bearer));
        Ok(self.shards[shard]
            .forward_request(request, outgoing, side, ended)
            .await)
    }

    /// Tells the owner of a shard who the caller is, if only the control shard knows. Returns the
    /// bearer token then.
    async fn identify_caller(
        &self,
        shard: usize,
        outgoing: &mut OutgoingRequest,
    ) -> Routed<Option<String>> {
        if shard == CONTROL {
            return Ok(None);
        }
        self.identities
            .identify_caller(outgoing.headers_mut())
            .await
            .map_err(unavailable_response)
    }

    async fn merge_responses(
        self: Rc<Self>,
        merge: Merge,
        request: HttpRequest,
        body: Bytes,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        match merge {
            Merge::Found => self.find_response(&request, &body, side).await,
            Merge::Each => self.do_on_each(&request, &body, side).await,
            Merge::Metrics => self.merge_metrics(&request, side).await,
            Merge::Lines => self.stream_lines(request, side).await,
            Merge::InTurn => self.in_turn(request, body, side).await,
            Merge::List
            | Merge::Union
            | Merge::Top
            | Merge::History
            | Merge::Jobs
            | Merge::DeadLetters
            | Merge::Audit
            | Merge::Supervision
            | Merge::Clock
            | Merge::Sum => self.merge_json(merge, &request, &body, side).await,
        }
    }

    /// The namespace that a host names, or the only one.
    async fn find_namespace(&self, label: Option<&str>) -> Routed<Option<String>> {
        let is_named = |name: &String| label.is_some_and(|label| name.eq_ignore_ascii_case(label));
        let mut all = self.read_namespaces(NAMESPACES_FRESH).await?;
        if label.is_some() && !all.iter().any(is_named) {
            all = self.read_namespaces(NAMELESS_FRESH).await?;
        }
        let namespace = all.iter().find(|name| is_named(name));
        let sole = || all.first().filter(|_| all.len() == 1);
        Ok(namespace.or_else(sole).cloned())
    }

    async fn read_namespaces(&self, fresh: Duration) -> Routed<Rc<[String]>> {
        let cached_names = self.namespaces.borrow().clone();
        if let Some((_, names)) = cached_names.filter(|(at, _)| at.elapsed() < fresh) {
            return Ok(names);
        }
        let requests = self.shards.iter().map(owner::fetch_namespaces);
        let found: Result<Vec<Vec<String>>, _> = futures_util::future::join_all(requests)
            .await
            .into_iter()
            .collect();
        let names: Rc<[String]> = found.map_err(unavailable_response)?.concat().into();
        *self.namespaces.borrow_mut() = Some((Instant::now(), Rc::clone(&names)));
        Ok(names)
    }
}

/// The shard that a request about a spread topic names, and what it is asked there.
fn addressed_shard(request: &HttpRequest, scope: SpreadScope) -> Option<(usize, String)> {
    if let Some((shard, query)) = shard_in(request.query_string()) {
        return Some((shard, target_at(request.path(), &query)));
    }
    let (shard, path) = shard_in_path(request.path()).filter(|_| scope == SpreadScope::One)?;
    Some((shard, target_at(&path, request.query_string())))
}

/// The body of a request.
enum Body {
    Unread(web::Payload),
    Read(Bytes),
}

impl Body {
    async fn read(self) -> Routed<Bytes> {
        match self {
            Self::Read(body) => Ok(body),
            Self::Unread(payload) => read(payload).await,
        }
    }
}

fn outgoing_request(request: &HttpRequest, body: Body) -> Option<OutgoingRequest> {
    match body {
        Body::Read(body) => forward::outgoing_whole(request, target_of(request), body),
        Body::Unread(payload) => forward::outgoing_request(request, payload),
    }
}

async fn read(payload: web::Payload) -> Routed<Bytes> {
    match payload.to_bytes_limited(BODY_BYTES).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) => Err(HttpResponse::from_error(error)),
        Err(_) => Err(HttpResponse::PayloadTooLarge().finish()),
    }
}

fn target_of(request: &HttpRequest) -> &str {
    request
        .uri()
        .path_and_query()
        .map_or("/", |target| target.as_str())
}

fn target_at(path: &str, query: &str) -> String {
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

fn not_forwarded() -> HttpResponse {
    unavailable_response("the request cannot be forwarded")
}

/// A response that no cache may store.
fn merged_response(content_type: &str, body: impl Into<Bytes>) -> HttpResponse {
    let body: Bytes = body.into();
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, content_type))
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(body)
}
