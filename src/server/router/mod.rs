//! The front of a node of a cluster with several shards: each request goes to the owners of the
//! shards that it concerns, over a connection between nodes, also if the owner is this node.
//!
//! - [`target`] finds the shards, by the tables of routes.
//! - A request of one shard is forwarded as a standby does it (`forward`): its body and its
//!   response are streams.
//! - A request about a spread topic is sent to one of its shards, or to each. [`pull`] receives
//!   from all of them ([`polls`]).
//! - A request of all shards is sent to each ([`parts`]), and the responses are merged
//!   (`admin::merge`, [`streams`]).
//! - The control plane has all records. This node's copy of it has the topics that are spread, and
//!   the namespaces. [`identity`] requests named tokens and sessions from its owner, and sends them
//!   to other owners.
//! - [`topics`] publishes what event subscriptions of one shard deliver to topics of another.
//! - [`owner`] is what an owner serves to nodes, and to no client.
//!
//! Nothing is stored here, and a node that owns nothing does the same.

mod ended_polls;
mod identity;
pub(super) mod owner;
mod parts;
mod polls;
mod pull;
mod streams;
mod target;
mod topics;

use std::{cell::Cell, ops::Range, rc::Rc, sync::Arc};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    web::{self, Bytes},
};
use hyper::header::ACCEPT_ENCODING;
use ipnet::IpNet;

pub(super) use self::topics::{OtherShards, json_array};
use self::{ended_polls::EndedPolls, identity::Identities, target::Target};
use super::{
    control_copy::ControlCopy,
    forward::{self, Forwarder, Hops, OutgoingRequest, target_of, unavailable_response},
    forward_error::ForwardError,
    front::hop::{self, ListenerSide},
};
use gridhook_admin::{
    Placement, ResponseMerge, SpreadScope, TopicName,
    merge::{shard_in_path, take_shard_parameter},
    placement_of_body,
};
use gridhook_cluster::shard_of;
use gridhook_config::Config;
use gridhook_publish::strip_byte_order_mark;

/// The maximum size of the body of a request that may concern all shards. Only requests to the
/// control plane do.
const BODY_BYTES: usize = 256 * 1024;

/// Forwards the requests of a node to the owners of shards. Clones share it.
#[derive(Clone)]
pub(super) struct ShardRouter {
    /// The control plane is the last one.
    shards: Arc<[Forwarder]>,
    control_copy: ControlCopy,
    proxies: Arc<[IpNet]>,
}

impl ShardRouter {
    /// A router to these shards, in the order of their numbers.
    pub(super) fn new(shards: Vec<Forwarder>, control_copy: ControlCopy, config: &Config) -> Self {
        Self {
            shards: shards.into(),
            control_copy,
            proxies: config.auth.trusted_proxies.clone().into(),
        }
    }

    /// Whether this node owns any shard.
    pub(super) fn owns_any(&self) -> bool {
        self.shards.iter().any(Forwarder::is_owner)
    }

    /// Routes every request without a route of this node's own.
    pub(super) fn configure(&self, cfg: &mut web::ServiceConfig, side: ListenerSide) {
        let shards: Vec<Rc<Hops>> = Hops::new_for_shards(&self.shards, side)
            .map(Rc::new)
            .collect();
        let control = shards.last().expect("a cluster has a control plane");
        let identities = Rc::new(Identities::new(Rc::clone(control)));
        let router = ThreadRouter {
            ended_polls: EndedPolls::new(Rc::clone(control)),
            shards,
            side,
            identities,
            control_copy: self.control_copy.clone(),
            next_part: Cell::new(fastrand::usize(..)),
            proxies: Arc::clone(&self.proxies),
        };
        let router = Rc::new(router);
        cfg.default_service(web::to(
            move |request: HttpRequest, payload: web::Payload| {
                let router = Rc::clone(&router);
                async move {
                    router
                        .route_request(request, payload)
                        .await
                        .unwrap_or_else(|refusal| refusal)
                }
            },
        ));
    }
}

struct ThreadRouter {
    shards: Vec<Rc<Hops>>,
    /// The listener that its clients have called.
    side: ListenerSide,
    ended_polls: Rc<EndedPolls>,
    identities: Rc<Identities>,
    control_copy: ControlCopy,
    /// The part at which the next receive request begins. The first one is random, so that threads
    /// begin at different parts.
    next_part: Cell<usize>,
    proxies: Arc<[IpNet]>,
}

/// A request, or the response to one that needs no shard.
type Routed<T> = Result<T, HttpResponse>;

impl ThreadRouter {
    /// The number of the control plane, which comes behind the shards with topics.
    fn control(&self) -> usize {
        self.shards.len() - 1
    }

    /// The numbers of the shards with topics.
    fn topic_shards(&self) -> Range<usize> {
        0..self.control()
    }

    /// The shards that a request of all concerns.
    fn shards_to_merge(&self, merge: ResponseMerge) -> Range<usize> {
        if merge.has_control() {
            0..self.shards.len()
        } else {
            self.topic_shards()
        }
    }

    async fn route_request(
        self: Rc<Self>,
        request: HttpRequest,
        payload: web::Payload,
    ) -> Routed<HttpResponse> {
        match target::choose_target(&request, self.side, &self.proxies) {
            Target::Placed(placement) => self.route_placed(placement, request, payload).await,
            Target::InNamespace {
                label,
                topic,
                scope,
            } => {
                let label = label.as_deref();
                match self.find_newest_namespace(label).await {
                    Some(namespace) => {
                        let topic = TopicName::new(Some(&namespace), &topic);
                        let placement = Placement::Topic(topic, scope);
                        let routing = Rc::clone(&self).route_placed(placement, request, payload);
                        let response = routing.await?;
                        self.check_namespace(label, &namespace, response).await
                    }
                    None => self.refuse_unnamed(&request, payload).await,
                }
            }
        }
    }

    /// Forwards a request about a namespace that nobody knows to any shard, which refuses it.
    async fn refuse_unnamed(
        &self,
        request: &HttpRequest,
        payload: web::Payload,
    ) -> Routed<HttpResponse> {
        // A new node fetches its copy.
        if self.control_copy.read().position == 0 {
            return Err(unavailable_response(
                "this node has not read the namespaces of the cluster yet",
            ));
        }
        let mut outgoing = forward::outgoing_request(request, payload)?;
        parts::mark_part(outgoing.headers_mut(), hop::RECORDED_PART);
        self.forward_to_shard(self.nearest_shard(), request, outgoing)
            .await
    }

    /// Refuses a response that there is no such topic, if this node chose the namespace before it
    /// knew the newest ones.
    async fn check_namespace(
        &self,
        label: Option<&str>,
        chosen: &str,
        response: HttpResponse,
    ) -> Routed<HttpResponse> {
        if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            self.control_copy.catch_up_together().await;
            if self.find_namespace(label).as_deref() != Some(chosen) {
                return Err(unavailable_response(
                    "the namespaces of the cluster have changed; repeat the request",
                ));
            }
        }
        Ok(response)
    }

    async fn route_placed(
        self: Rc<Self>,
        placement: Placement,
        request: HttpRequest,
        payload: web::Payload,
    ) -> Routed<HttpResponse> {
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
                if scope == SpreadScope::Settle || self.is_spread(&topic) =>
            {
                let leader = shard_of(topic.leading_name(), self.control());
                return self
                    .route_spread_request(leader, scope, request, body)
                    .await;
            }
            placed => placed,
        };
        let shard = match placement {
            Placement::Control => self.control(),
            Placement::Named(name) => shard_of(&name, self.control()),
            Placement::Topic(topic, _) => shard_of(topic.leading_name(), self.control()),
            Placement::Any | Placement::ByBody(_) => self.nearest_shard(),
            Placement::All(merge) => {
                let body = body.read().await?;
                return self.merge_responses(merge, request, body).await;
            }
        };
        let outgoing = outgoing_request(&request, body)?;
        self.forward_to_shard(shard, &request, outgoing).await
    }

    /// A request about a spread topic.
    async fn route_spread_request(
        self: Rc<Self>,
        leader: usize,
        scope: SpreadScope,
        request: HttpRequest,
        body: Body,
    ) -> Routed<HttpResponse> {
        match scope {
            SpreadScope::Near => {
                let outgoing = outgoing_request(&request, body)?;
                return self.publish_nearby(leader, &request, outgoing).await;
            }
            SpreadScope::Receive => return self.receive_events(leader, &request).await,
            SpreadScope::Settle => {
                let body = body.read().await?;
                return self.settle_locks(leader, &request, body).await;
            }
            SpreadScope::One | SpreadScope::Parts(_) | SpreadScope::All(_) => {}
        }
        let addressed = addressed_shard(&request, scope);
        let body = body.read().await?;
        if let Some((shard, target)) =
            addressed.filter(|(shard, _)| self.topic_shards().contains(shard))
        {
            let mut outgoing = forward::outgoing_whole(&request, &target, body)?;
            if scope == SpreadScope::One {
                // The owner knows by this that the request names the shard.
                parts::mark_part(outgoing.headers_mut(), hop::RECORDED_PART);
            }
            return self.forward_to_shard(shard, &request, outgoing).await;
        }
        match scope {
            SpreadScope::Parts(merge) => self.merge_parts(merge, leader, &request, body).await,
            SpreadScope::All(merge) => self.merge_responses(merge, request, body).await,
            SpreadScope::Near | SpreadScope::Receive | SpreadScope::Settle | SpreadScope::One => {
                let outgoing = outgoing_request(&request, Body::Read(body))?;
                self.forward_to_shard(leader, &request, outgoing).await
            }
        }
    }

    /// Publishes to a spread topic: to one of this node's own shards, or to any with an owner.
    async fn publish_nearby(
        &self,
        leader: usize,
        request: &HttpRequest,
        outgoing: OutgoingRequest,
    ) -> Routed<HttpResponse> {
        let shard = self
            .choose_shard(Forwarder::serves)
            .or_else(|| self.choose_shard(Forwarder::has_other_owner))
            .or_else(|| self.choose_shard(Forwarder::has_owner))
            .unwrap_or(leader);
        let response = self.forward_to_shard(shard, request, outgoing).await?;
        if response.status() == StatusCode::NOT_FOUND && shard != leader {
            // The topic was deleted, and this node does not know it yet.
            return Err(unavailable_response(
                "the shards of the topic have changed; repeat the request",
            ));
        }
        Ok(response)
    }

    /// Whether a topic is spread. One that is new is like any topic of its shard until this node
    /// knows it.
    fn is_spread(&self, topic: &TopicName) -> bool {
        let definitions = self.control_copy.read();
        let record = definitions.find_topic(&topic.topic_key());
        record.is_some_and(|record| record.is_spread())
    }

    /// Any of the shards with topics whose forwarder fits.
    fn choose_shard(&self, fits: fn(&Forwarder) -> bool) -> Option<usize> {
        let shards = self.shards[self.topic_shards()].iter().enumerate();
        let fitting = shards.filter(|(_, hops)| fits(hops.forwarder()));
        fastrand::choice(fitting.map(|(shard, _)| shard).collect::<Vec<_>>())
    }

    /// A shard whose owner is near: this node, if it owns one.
    fn nearest_shard(&self) -> usize {
        let mut shards = self.shards.iter().map(|hops| hops.forwarder());
        let first = shards.clone().position(Forwarder::serves);
        first
            .or_else(|| shards.position(Forwarder::has_owner))
            .unwrap_or(0)
    }

    async fn forward_to_shard(
        &self,
        shard: usize,
        request: &HttpRequest,
        mut outgoing: OutgoingRequest,
    ) -> Routed<HttpResponse> {
        let is_named = self.identify_caller(shard, &mut outgoing).await?;
        let ended = is_named.map(|bearer| Rc::clone(&self.identities).wait_until_refused(bearer));
        Ok(self.shards[shard]
            .forward_request(request, outgoing, ended)
            .await)
    }

    /// Tells the owner of a shard who the caller is, if only the control plane knows. Returns the
    /// bearer token then.
    async fn identify_caller(
        &self,
        shard: usize,
        outgoing: &mut OutgoingRequest,
    ) -> Result<Option<String>, ForwardError> {
        if shard == self.control() {
            return Ok(None);
        }
        let headers = outgoing.headers_mut();
        self.identities.identify_caller(headers).await
    }

    /// The request to a shard whose response is read here, and the bearer token as
    /// [`Self::identify_caller`] returns it.
    async fn build_readable(
        &self,
        shard: usize,
        request: &HttpRequest,
        target: &str,
        body: Bytes,
    ) -> Result<(OutgoingRequest, Option<String>), ForwardError> {
        let mut outgoing = forward::outgoing_whole(request, target, body)?;
        // The response must not be compressed.
        outgoing.headers_mut().remove(ACCEPT_ENCODING);
        let bearer = self.identify_caller(shard, &mut outgoing).await?;
        Ok((outgoing, bearer))
    }

    async fn merge_responses(
        self: Rc<Self>,
        merge: ResponseMerge,
        request: HttpRequest,
        body: Bytes,
    ) -> Routed<HttpResponse> {
        match merge {
            ResponseMerge::FirstFound => self.find_response(&request, &body).await,
            ResponseMerge::FirstResponse => self.do_on_each(&request, &body).await,
            ResponseMerge::Metrics => self.merge_metrics(&request).await,
            ResponseMerge::Lines => self.stream_lines(request).await,
            ResponseMerge::OneByOne => self.in_turn(request, body).await,
            ResponseMerge::Json(merge) => self.merge_json(merge, &request, &body).await,
        }
    }

    /// The namespace that a host names, or the only one, also if another node has just created it.
    async fn find_newest_namespace(&self, label: Option<&str>) -> Option<String> {
        let known = self.find_namespace(label);
        if known.is_some() || self.control_copy.read().position == 0 {
            return known;
        }
        self.control_copy.catch_up_together().await;
        self.find_namespace(label)
    }

    /// The namespace that a host names, or the only one.
    fn find_namespace(&self, label: Option<&str>) -> Option<String> {
        let definitions = self.control_copy.read();
        let is_named = |key: &&str| label.is_some_and(|label| key.eq_ignore_ascii_case(label));
        let named = definitions.namespace_keys().find(is_named);
        let mut all = definitions.namespace_keys();
        let sole = all.next().filter(|_| all.next().is_none());
        named.or(sole).map(str::to_owned)
    }
}

/// The shard that a request about a spread topic names, and the path and query for it.
fn addressed_shard(request: &HttpRequest, scope: SpreadScope) -> Option<(usize, String)> {
    if let Some((shard, query)) = take_shard_parameter(request.query_string()) {
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

fn outgoing_request(request: &HttpRequest, body: Body) -> Result<OutgoingRequest, ForwardError> {
    match body {
        Body::Read(body) => forward::outgoing_whole(request, target_of(request), body),
        Body::Unread(payload) => forward::outgoing_request(request, payload),
    }
}

async fn read(payload: web::Payload) -> Routed<Bytes> {
    match payload.to_bytes_limited(BODY_BYTES).await {
        // The owner of a shard strips it, too, and must not understand more than this node.
        Ok(Ok(body)) => Ok(strip_byte_order_mark(body)),
        Ok(Err(error)) => Err(HttpResponse::from_error(error)),
        Err(_) => Err(HttpResponse::PayloadTooLarge().finish()),
    }
}

fn target_at(path: &str, query: &str) -> String {
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

/// A response that no cache may store.
fn merged_response(content_type: &str, body: impl Into<Bytes>) -> HttpResponse {
    let body: Bytes = body.into();
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, content_type))
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(body)
}
