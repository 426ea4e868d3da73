//! `/cluster`: the nodes of a cluster and what each owns, as the node that responds sees it.
//!
//! An owner checks the tokens of all operators. A standby has not read them: it serves the admin
//! token itself, and forwards requests with other tokens. Changes go to the owner, which records
//! them in the audit trail. While there is none, a standby makes those that may be what a new owner
//! waits for.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::RwLock;

use actix_web::{
    HttpRequest, HttpResponse, Resource, guard,
    http::header::{AUTHORIZATION, HeaderMap},
    web,
};

use super::{
    AdminError, ListenerRole,
    admin_token::AdminToken,
    arm::read_json,
    auth::{bearer_in, bearer_token},
    health::{self, ServerHealth},
    metrics::{CertificateEnds, MetricsAccess, standby_exposition},
};
use crate::{AdminResult, respond_json};
use gridhook_api::cluster::{
    ClusterNodeView, ClusterView, CopyView, DrainBody, ForgetBody, MoveBody, NodeState,
    OwnershipView, SettingDifferenceView, ShardFailureView, ShardOwnershipView,
};
use gridhook_clock::Clock;
use gridhook_cluster::{
    balance::NodeId,
    control_of,
    membership::{ClusterSnapshot, Membership, RequestError},
    records::{
        ClusterRecords, CopyProgress, NodeRecord, OwnershipRecord, SettingDifference, Versioned,
    },
};
use gridhook_metrics::{Counter, ListenerCounters};
use gridhook_publish::auth::failed_auth::FailedAuthLimiter;

/// The cluster as a node sees it, and what it has counted.
pub struct ClusterContext {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the node.
    pub node: String,
    /// This node's part in the cluster.
    pub membership: Membership,
    pub forwarded: Arc<ForwardCounters>,
    /// How often this node replaced its store by a copy of an owner's.
    pub copies: Counter,
    /// The size at which the stream of each shard takes no more; [`None`] for the limit of NATS.
    pub stream_bytes_max: Vec<Option<u64>>,
}

/// Counts of the requests that this node forwarded.
#[derive(Debug, Default)]
pub struct ForwardCounters {
    /// Requests to which the owner responded.
    pub answered: Counter,
    /// Requests that no owner accepted or responded to.
    pub failed: Counter,
    /// Requests to owners, also those of the node itself.
    pub sent: Counter,
}

impl ClusterContext {
    /// The cluster as this node sees it.
    pub(super) fn snapshot(&self) -> ClusterSnapshot {
        self.membership.snapshot.borrow().clone()
    }

    /// The nodes and what they own, as the API shows them.
    pub fn cluster_view(&self) -> ClusterView {
        let snapshot = self.snapshot();
        let differences = match &snapshot.me {
            Some(me) => snapshot.records.setting_differences(me, &snapshot.alive),
            None => BTreeSet::new(),
        };
        let nodes = snapshot.records.nodes.iter();
        let nodes = nodes.map(|(name, node)| node_view(&snapshot, name, node, &differences));
        ClusterView {
            name: self.cluster.clone(),
            node: self.node.clone(),
            problem: snapshot.problem.clone(),
            read_seconds_ago: snapshot.read.map(|read| read.elapsed().as_secs_f64()),
            takeovers: snapshot.takeovers,
            nodes: nodes.collect(),
        }
    }

    /// Whether a living node owns the control plane.
    fn has_owner(&self) -> bool {
        let snapshot = self.membership.snapshot.borrow();
        let owner = snapshot
            .records
            .shards
            .last()
            .and_then(|shard| shard.value.owner_id.as_ref());
        owner.is_some_and(|owner| snapshot.alive.contains(owner))
    }

    fn ownership_view(&self) -> OwnershipView {
        let records = self.snapshot().records;
        let mut shards = Vec::new();
        for (number, shard) in records.shards.iter().enumerate() {
            if shard.revision > 0 {
                shards.push(shard_ownership_view(&records, number, shard));
            }
        }
        OwnershipView { value: shards }
    }
}

/// A node as the node with this snapshot sees it.
fn node_view(
    snapshot: &ClusterSnapshot,
    name: &str,
    node: &Versioned<NodeRecord>,
    differences: &BTreeSet<SettingDifference>,
) -> ClusterNodeView {
    let records = &snapshot.records;
    let record = &node.value;
    let shards = 0..records.shards.len();
    let mut owns: Vec<usize> = shards
        .clone()
        .filter(|shard| records.shards[*shard].value.owner_id.as_ref() == Some(&record.id))
        .collect();
    let owns_any = !owns.is_empty();
    let control = control_of(records.shards.len());
    let owns_control_plane = control.is_some_and(|control| owns.contains(&control));
    owns.retain(|shard| Some(*shard) != control);
    let is_alive = snapshot.alive.contains(&record.id);
    let mut copies = Vec::new();
    for (shard, position) in record.positions.iter().enumerate() {
        if let Some(CopyProgress { received, bytes }) = position.copy.filter(|_| is_alive) {
            copies.push(CopyView {
                shard,
                received,
                bytes,
            });
        }
    }
    let differences = differences
        .iter()
        .filter(|difference| difference.node == *name);
    let positions = record.positions.iter();
    let failures = record.failures.iter();
    ClusterNodeView {
        name: name.to_owned(),
        id: record.id.0.clone(),
        address: record.address.clone(),
        version: record.version.clone(),
        state: node_state(snapshot, name, record, owns_any),
        owns,
        owns_control_plane,
        applied: positions.clone().map(|position| position.applied).collect(),
        flushed: positions.map(|position| position.flushed).collect(),
        copies,
        complete: shards.filter(|shard| record.is_complete(*shard)).collect(),
        setting_differences: differences.map(difference_view).collect(),
        failures: failures
            .map(|(shard, cause)| ShardFailureView {
                shard: *shard,
                cause: cause.clone(),
            })
            .collect(),
        last_renewal: node.written.clone(),
    }
}

fn node_state(
    snapshot: &ClusterSnapshot,
    name: &str,
    record: &NodeRecord,
    owns_any: bool,
) -> NodeState {
    let drain = snapshot.records.drained.get(name);
    let is_drained = drain.is_some_and(|(is_drained, _)| *is_drained);
    if !snapshot.alive.contains(&record.id) {
        NodeState::Dead
    } else if is_drained && owns_any {
        NodeState::Draining
    } else if is_drained {
        NodeState::Drained
    } else if !record.failures.is_empty() {
        NodeState::Failed
    } else if record.behind {
        NodeState::CatchingUp
    } else if record.leaving {
        NodeState::Leaving
    } else {
        NodeState::Alive
    }
}

fn difference_view(difference: &SettingDifference) -> SettingDifferenceView {
    SettingDifferenceView {
        setting: difference.setting.clone(),
        here: difference.here.clone(),
        there: difference.there.clone(),
    }
}

fn shard_ownership_view(
    records: &ClusterRecords,
    number: usize,
    shard: &Versioned<OwnershipRecord>,
) -> ShardOwnershipView {
    let record = shard.value.clone();
    let name = |id: &NodeId| node_name(records, id);
    let nodes = records.nodes.iter();
    let copies = nodes.filter(|(_, node)| node.value.is_complete(number));
    ShardOwnershipView {
        fully_qualified_namespace: record.scope.fully_qualified_namespace,
        event_hub_name: record.scope.event_hub_name,
        consumer_group: record.scope.consumer_group,
        partition_id: if control_of(records.shards.len()) == Some(number) {
            "control".to_owned()
        } else {
            record.partition_id
        },
        owner_name: record.owner_id.as_ref().map(name),
        owner_id: record.owner_id.map(|owner| owner.0),
        last_modified_time: shard.written.clone(),
        e_tag: shard.revision.to_string(),
        wanted_by: record.wanted_by.as_ref().map(name),
        claims: record.claims,
        copies: copies.map(|(name, _)| name.clone()).collect(),
    }
}

/// The name of a node, or its identifier if it has no record.
fn node_name(records: &ClusterRecords, id: &NodeId) -> String {
    match records.find_node(id) {
        Some(node) => node.name.clone(),
        None => id.0.clone(),
    }
}

/// The context of a node; an error for a server without a cluster.
fn cluster_context(request: &HttpRequest) -> AdminResult<&ClusterContext> {
    let cluster_context = request.app_data::<web::Data<ClusterContext>>();
    let no_cluster = "This server is no node of a cluster (cluster.engine is none).";
    cluster_context
        .map(|cluster_context| &***cluster_context)
        .ok_or_else(|| AdminError::NotFound(no_cluster.to_owned()))
}

impl From<RequestError> for AdminError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Shard { .. }
            | RequestError::NotAlive(..)
            | RequestError::NoRecord(..) => Self::NotFound(format!("{error}.")),
            _ => Self::Conflict(format!("{error}.")),
        }
    }
}

/// `GET /cluster/status`.
pub(super) async fn get_status(request: HttpRequest) -> AdminResult {
    respond_json(&cluster_context(&request)?.cluster_view())
}

/// `GET /cluster/ownership`.
pub(super) async fn ownership(request: HttpRequest) -> AdminResult {
    respond_json(&cluster_context(&request)?.ownership_view())
}

/// `POST /cluster/move`: requests that the owner of a shard gives it up to another node.
pub(super) async fn move_shard(request: HttpRequest, body: web::Payload) -> AdminResult {
    let cluster_context = cluster_context(&request)?;
    let MoveBody { shard, node } = read_json(body).await?;
    cluster_context.membership.move_shard(shard, node).await?;
    Ok(HttpResponse::Accepted().json(cluster_context.ownership_view()))
}

/// `POST /cluster/drain`: requests that a node gives up what it owns and claims nothing, or ends that.
pub(super) async fn drain_node(request: HttpRequest, body: web::Payload) -> AdminResult {
    let cluster_context = cluster_context(&request)?;
    let DrainBody { node, drain } = read_json(body).await?;
    cluster_context.membership.drain_node(node, drain).await?;
    Ok(HttpResponse::Accepted().json(cluster_context.cluster_view()))
}

/// `POST /cluster/forget`: removes the record of a node that is gone for good.
pub(super) async fn forget_node(request: HttpRequest, body: web::Payload) -> AdminResult {
    let cluster_context = cluster_context(&request)?;
    let ForgetBody { node } = read_json(body).await?;
    cluster_context.membership.forget_node(node).await?;
    respond_json(&cluster_context.cluster_view())
}

/// Drains a node by a standby while there is no owner. The change is in the log in place of the audit
/// trail.
async fn drain_without_owner(request: HttpRequest, body: web::Payload) -> AdminResult {
    log_change(&request);
    drain_node(request, body).await
}

/// Forgets a node, as [`drain_without_owner`] drains one.
async fn forget_without_owner(request: HttpRequest, body: web::Payload) -> AdminResult {
    log_change(&request);
    forget_node(request, body).await
}

fn log_change(request: &HttpRequest) {
    let client = request.peer_addr().map(|peer| peer.ip().to_string());
    tracing::warn!(
        path = request.path(),
        client,
        "there is no owner, so this node serves an operator"
    );
}

/// What a standby responds with itself, instead of forwarding the request.
#[derive(Clone)]
pub struct StandbyContext {
    pub cluster_context: web::Data<ClusterContext>,
    /// Who may read what the standby serves.
    pub access: web::Data<StandbyAccess>,
    pub listeners: Vec<Arc<ListenerCounters>>,
    pub certificates: CertificateEnds,
    pub health: web::Data<ServerHealth>,
}

/// The access to what a standby serves itself.
pub struct StandbyAccess {
    pub token: AdminToken,
    /// Who may read the metrics without it.
    pub readers: RwLock<MetricsAccess>,
    /// Delays refusals to an address that tries many tokens.
    pub failed_auth: FailedAuthLimiter,
    /// The time of a refusal.
    pub clock: Clock,
}

impl StandbyAccess {
    pub fn set_metrics_access(&self, readers: MetricsAccess) {
        *self.readers.write() = readers;
    }

    fn permits_reader(&self, token: Option<&str>) -> bool {
        let readers = self.readers.read();
        readers.permits_reader(token)
    }

    fn has_admin_token(&self, headers: &HeaderMap) -> bool {
        let token = headers.get(AUTHORIZATION).and_then(bearer_in);
        token.is_some_and(|token| self.token.matches(token))
    }

    /// Checks that a request has the admin token.
    async fn authorize_request(&self, request: &HttpRequest) -> AdminResult<()> {
        let token = bearer_token(request).ok_or(AdminError::NoToken)?;
        if self.token.matches(token) {
            return Ok(());
        }
        self.failed_auth
            .delay_refusal(request, self.clock.now())
            .await;
        Err(AdminError::WrongToken)
    }
}

/// Adds the paths that a standby serves itself.
pub fn configure_standby(
    cfg: &mut web::ServiceConfig,
    context: &StandbyContext,
    side: ListenerRole,
) {
    configure_front(cfg, context, side, || false);
}

/// Adds the paths that a node with several shards serves itself. The metrics of one that owns a
/// shard are not among them.
pub fn configure_front(
    cfg: &mut web::ServiceConfig,
    context: &StandbyContext,
    side: ListenerRole,
    owns_any: impl Fn() -> bool + 'static,
) {
    cfg.app_data(context.health.clone())
        .app_data(context.cluster_context.clone())
        .app_data(context.access.clone())
        .service(web::resource("/healthz").to(health::healthz))
        .service(web::resource("/readyz").to(health::readyz));
    if side == ListenerRole::Publishers {
        return;
    }
    let StandbyContext {
        listeners,
        certificates,
        ..
    } = context.clone();
    let metrics = move |request: HttpRequest, access: web::Data<StandbyAccess>| {
        let listeners = listeners.clone();
        let certificates = certificates.clone();
        async move {
            if !access.permits_reader(bearer_token(&request)) {
                access.authorize_request(&request).await?;
            }
            standby_metrics(&request, &listeners, certificates).await
        }
    };
    let owns_none = guard::fn_guard(move |_| !owns_any());
    cfg.service(
        web::resource("/metrics")
            .guard(owns_none)
            .route(web::get().to(metrics)),
    );
    let own = |path: &'static str| admin_resource(path, context.access.clone());
    let ownerless = || {
        let cluster_context = context.cluster_context.clone();
        guard::fn_guard(move |_| !cluster_context.has_owner())
    };
    cfg.service(own("/cluster/status").guard(guard::Get()).to(get_status));
    cfg.service(own("/cluster/ownership").guard(guard::Get()).to(ownership));
    cfg.service(
        own("/cluster/drain")
            .guard(guard::Post())
            .guard(ownerless())
            .to(drain_without_owner),
    );
    cfg.service(
        own("/cluster/forget")
            .guard(guard::Post())
            .guard(ownerless())
            .to(forget_without_owner),
    );
}

/// A resource for requests with the admin token. Requests with other tokens are forwarded to the
/// owner, which has their records.
fn admin_resource(path: &str, access: web::Data<StandbyAccess>) -> Resource {
    web::resource(path).guard(guard::fn_guard(move |request| {
        access.has_admin_token(request.head().headers())
    }))
}

async fn standby_metrics(
    request: &HttpRequest,
    listeners: &[Arc<ListenerCounters>],
    certificates: CertificateEnds,
) -> AdminResult {
    let health = request
        .app_data::<web::Data<ServerHealth>>()
        .ok_or(AdminError::Broken("no health is set up"))?;
    // Files are read.
    let ends = web::block(move || certificates()).await?;
    Ok(standby_exposition(
        request,
        cluster_context(request)?,
        health.readiness().ready,
        listeners,
        &ends,
    ))
}
