//! A node of a cluster: it follows the changelog into its store until its claim is won, and owns
//! the store until it loses the claim or gives it up. Then it follows again.
//!
//! The store stays open all the time. What belongs to one ownership is a [`Tenure`]: its lease and
//! its replicated store. Both end for good, so whatever still runs on behalf of an ended tenure
//! neither sends nor writes. `serve` stops it all the same.
//!
//! How an ownership ends:
//!
//! - [`Ownership::release`]: the owner has finished, on request or because it stops. It appends a
//!   `RELEASE` to the changelog and gives the claim up, so the next owner waits for nothing.
//! - [`Ownership::give_up_store`]: another node has fenced this one. It gives the claim up and
//!   appends nothing.
//! - [`Ownership::fail`]: a start has failed. The owner releases the shard; a process with this
//!   shard alone leaves the cluster, too.
//! - [`ClusterNode::fail`]: the shard cannot be served before an operator has acted. The claim is
//!   given up, and the record of the node says why.
//! - [`Tenure::fence_off`]: nothing is sent or written any more, and nothing is appended. It comes
//!   before the others if the store was lost.

#[cfg(feature = "nats")]
pub(super) mod check;
mod end_guard;
mod fetch;
mod follow;
mod join;
#[cfg(feature = "nats")]
mod nats;
mod standby_context;
mod standing;
mod tenure;

use std::{
    any::Any,
    net::TcpListener,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use actix_web::web;
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
};

pub(super) use self::{
    end_guard::EndGuard,
    join::{Joined, check_shards, join, join_alone, list_living_nodes},
    standby_context::become_standby,
    standing::Standing,
    tenure::{Ownership, StallReason, Tenure, TenureEnd, WriteStall},
};
use self::{follow::StoppableLog, tenure::StreamLimits};
use super::{
    ServerError, ServerInputs,
    client_listeners::ClientListeners,
    forward::{ForwardTimes, Forwarder},
    front::{
        hop::{HopAcceptor, NodeSecret, OwnerConnector},
        served_shards::{AddShardData, ServedShard, ServedShards},
    },
    io_error,
    listener::{NodeListener, Standby},
    local_store::LocalStore,
    tls::ReloadableCertificate,
};
use gridhook_admin::{
    ClusterContext,
    health::{CoreHealth, ServerHealth},
};
use gridhook_clock::{Clock, ClockRecord, Lease, OwnerClock};
use gridhook_cluster::{
    GivenUp, Role, ShardClaim,
    membership::{Membership, MembershipEnd},
    records::ShardPosition,
    stream_name,
};
use gridhook_event::Timestamp;
use gridhook_journal as journal;
use gridhook_journal::{
    changelog::Changelog,
    replicated::{FollowError, ShardCopy},
};
use gridhook_store::Store;

/// The interval between two syncs of the local store, and between two reports of the positions.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause between two attempts to reach the changelog. A stop waits for it.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The longest time that an owner waits for requests in flight, so that the next one can begin.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Why a node of a cluster cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The file of the secret cannot be used, or a login.
    #[error("{key}: {what}")]
    Setting { key: &'static str, what: String },
    /// The servers of NATS cannot be used.
    #[error("{0}")]
    Engine(String),
    /// The local store does not follow the changelog.
    #[error("the data folder cannot follow the changelog of the cluster: {error}{advice}", advice = advice_for(.error))]
    Follow {
        #[from]
        error: FollowError,
    },
    /// Another running process is the node of this name.
    #[error(
        "another process that runs is the node {node} of this cluster; stop it, or set another \
         cluster.node here"
    )]
    NameTaken { node: String },
    /// The store is a copy of a cluster's.
    #[error(
        "the data folder belongs to a node of a cluster (it has applied records of a changelog), \
         and cluster.engine is \"none\"; start it as a node, or use another folder"
    )]
    Replicated,
}

/// Advises an operator about a store that cannot follow.
fn advice_for(error: &FollowError) -> &'static str {
    match error {
        FollowError::Foreign => {
            "; gridhook help cluster describes how to bring existing topics into a cluster"
        }
        FollowError::Trimmed { .. } => {
            "; whether it is of this cluster is not known, so nothing was changed; start the node \
             with an empty data folder"
        }
        FollowError::RolledBack { .. } => {
            "; nothing was changed, and no node takes the shard: restore a newer backup of NATS, or \
             continue from data folders in a new cluster (gridhook help cluster)"
        }
        FollowError::Forked { .. } => {
            "; nothing was changed, and no node takes the shard: choose the data folders to \
             continue from (gridhook help cluster)"
        }
        FollowError::Missing { .. } | FollowError::Shorter { .. } | FollowError::Broken { .. } => {
            "; nothing was changed, and the data folders of all nodes still have what was \
             acknowledged; gridhook help cluster describes how a new cluster goes on with them"
        }
        FollowError::Log(_) | FollowError::Store(_) => "",
    }
}

/// What the nodes of all shards of a process have in common.
pub(super) struct NodeProcess {
    /// The identifier of the cluster, which no other one has.
    pub(super) cluster_id: String,
    name: String,
    pub(super) membership: Membership,
    /// The cluster as the node shows it to operators.
    pub(super) cluster_context: web::Data<ClusterContext>,
    secret: NodeSecret,
    connector: OwnerConnector,
    /// TLS of the listener for other nodes.
    tls: Option<rustls::ServerConfig>,
    /// The certificates that the node shows to other nodes and to the servers of NATS.
    pub(super) certificates: Vec<Arc<ReloadableCertificate>>,
    /// Host and port by which other nodes reach this one.
    address: String,
    /// Whether the process stops.
    stopping: watch::Sender<bool>,
    /// The listener for other nodes.
    listener: TcpListener,
    /// The shards that are served there.
    served_shards: ServedShards,
    /// The threads on which a standby reads and applies the changelog.
    blocking: Handle,
    /// The connections of the records and of the system account. Their threads end with them. Their
    /// type is hidden, because a build without NATS lacks it.
    _connections: Box<dyn Any + Send + Sync>,
}

/// A process as a node of a shard.
pub(super) struct ClusterNode {
    pub(super) process: Arc<NodeProcess>,
    claim: ShardClaim,
    /// The membership of a node with one shard. With several shards the process has it.
    member: Option<tokio::task::JoinHandle<MembershipEnd>>,
    /// Whether the shard is all of the process.
    is_alone: bool,
    log: Arc<StoppableLog>,
    /// The number of looks in a row that found the changelog to be lost: by the follower, and by
    /// claims that failed for it.
    lost_looks: Arc<AtomicU32>,
    store: Arc<LocalStore>,
    stream: StreamLimits,
    /// The interval between two reads of a standby.
    follow_interval: Duration,
    /// Ends the pause between two reads of a standby, or the next one.
    pub(super) haste: Arc<Notify>,
}

impl ClusterNode {
    /// Claims no shard any more, and gives up what it has once the server has.
    pub(super) fn begin_leave(&self) {
        self.process.stopping.send_replace(true);
        self.process.membership.begin_leave();
    }

    /// Returns once the node has left: another one may take over at once.
    pub(super) async fn wait_until_left(&mut self) {
        if let Some(member) = self.member.take() {
            wait_until_left(member, std::slice::from_ref(self)).await;
        }
    }

    /// Gives up claims that are won although the process stops.
    async fn give_up_late(&self) {
        let mut role = self.claim.role.clone();
        while let Some(lease) = wait_for_claim(&mut role).await {
            self.claim.give_up(&lease, GivenUp::Released);
        }
    }

    /// Records that the shard cannot be served before an operator has acted. Another node takes it.
    pub(super) fn fail(&self, cause: String) {
        let shard = self.claim.shard;
        let progress = &self.claim.progress;
        if progress.failure().as_ref() != Some(&cause) {
            tracing::error!(shard, error = cause, "this node cannot serve the shard");
        }
        progress.note_failure(Some(cause));
        let role = self.claim.role.borrow().clone();
        if let Some(lease) = role.lease() {
            self.claim.give_up(lease, GivenUp::Failed);
        }
    }

    pub(super) fn local_store(&self) -> &Arc<LocalStore> {
        &self.store
    }

    /// The end of the shard's changelog.
    pub(super) fn changelog_end(&self) -> ChangelogEnd {
        ChangelogEnd(Arc::clone(&self.log))
    }

    pub(super) fn shard(&self) -> usize {
        self.claim.shard
    }

    /// The name of the stream with its changelog.
    pub(super) fn stream_name(&self) -> String {
        let ClusterContext {
            cluster,
            stream_bytes_max,
            ..
        } = &**self.process.cluster_context;
        stream_name(cluster, self.claim.shard, stream_bytes_max.len())
    }

    /// The clock of the last owner.
    pub(super) fn owner_clock(&self) -> Option<OwnerClock> {
        let snapshot = self.process.membership.snapshot.borrow();
        let (name, at) = snapshot.records.latest_owner(self.claim.shard)?;
        let is_here = name == self.process.name;
        Some(OwnerClock {
            time: Timestamp(at.time),
            expiry_is_paused: at.expiry_paused,
            is_here,
        })
    }

    /// Reports the time of this node's clock, which the next owner continues.
    pub(super) fn share_time(&self, tenure: &Tenure, clock: Clock) {
        let progress = Arc::clone(&self.claim.progress);
        let store = Arc::clone(&tenure.store);
        let epoch = store.epoch();
        actix_rt::spawn(async move {
            while store.ownership_end().is_none() {
                let expiry_paused = clock.expiry_is_paused();
                if let Some(ClockRecord {
                    reported: Timestamp(time),
                    ..
                }) = clock.to_record(None)
                {
                    progress.record_clock(ShardPosition {
                        time,
                        expiry_paused,
                        epoch,
                        ..ShardPosition::default()
                    });
                }
                tokio::time::sleep(SYNC_INTERVAL).await;
            }
        });
    }

    /// Makes this node a standby: from now on `health` is that of one. Returns what it serves
    /// itself, and the forwarder of the rest.
    pub(super) fn become_standby(
        &self,
        inputs: &ServerInputs,
        address: &ClientListeners,
        health: &web::Data<ServerHealth>,
    ) -> Result<Standby, ServerError> {
        let context = become_standby(
            std::slice::from_ref(self),
            &[CoreHealth::default()],
            inputs,
            address,
            health,
        )?;
        Ok(Standby {
            context,
            forwarder: self.build_forwarder(ForwardTimes::from_config(&inputs.config), None),
        })
    }

    /// Builds the forwarder of requests to the owner of the shard. `core`: the health of the shard's
    /// core in this process, if it has others beside it.
    pub(super) fn build_forwarder(
        &self,
        times: ForwardTimes,
        core: Option<CoreHealth>,
    ) -> Forwarder {
        Forwarder {
            shard: self.claim.shard,
            role: self.claim.role.clone(),
            own: self.process.address.clone(),
            connector: self.process.connector.clone(),
            times,
            counters: Arc::clone(&self.process.cluster_context.forwarded),
            stopping: self.process.stopping.subscribe(),
            core,
        }
    }

    /// The listener for other nodes, and this node's part of the handshake there.
    pub(super) fn listener_of_nodes(&self) -> Result<NodeListener, ServerError> {
        let listener = self
            .process
            .listener
            .try_clone()
            .map_err(io_error("cluster.node_listen"))?;
        Ok(NodeListener {
            listener,
            acceptor: HopAcceptor::new(
                &self.process.secret,
                &self.process.address,
                self.process.served_shards.count(),
            ),
            tls: self.process.tls.clone(),
            shards: self.process.served_shards.clone(),
        })
    }

    /// Serves the shard to the nodes of the cluster from now on.
    pub(super) fn serve_shard(&self, add_data: AddShardData) -> ServedShard {
        self.process.served_shards.serve(self.claim.shard, add_data)
    }

    /// Gives a claim up, and waits up to [`DRAIN_MAX`] until the member has written that.
    async fn give_claim_up(&self, lease: &Lease, why: GivenUp) {
        let mut role = self.claim.role.clone();
        self.claim.give_up(lease, why);
        let role_change = role.wait_for(|role| !role.is_of(lease));
        // Otherwise the claim expires.
        tokio::time::timeout(DRAIN_MAX, role_change).await.ok();
    }
}

/// Returns once a process has left: another one may take over at once. `nodes` are those of all its
/// shards.
pub(super) async fn wait_until_left(
    member: tokio::task::JoinHandle<MembershipEnd>,
    nodes: &[ClusterNode],
) {
    let late_claims = futures_util::future::join_all(nodes.iter().map(ClusterNode::give_up_late));
    let departure = async { tokio::join!(member, late_claims) };
    if tokio::time::timeout(SYNC_INTERVAL, departure)
        .await
        .is_err()
    {
        tracing::warn!("the records of the cluster were not changed in time; they expire");
    }
}

/// Refuses the store of a node of a cluster.
pub(super) fn check_unreplicated(store: &dyn Store) -> Result<(), ServerError> {
    match ShardCopy::read_applied(store).map_err(journal::Error::from)? {
        Some(_) => Err(ClusterError::Replicated.into()),
        None => Ok(()),
    }
}

#[derive(Clone)]
pub(super) struct ChangelogEnd(Arc<StoppableLog>);

impl ChangelogEnd {
    /// The sequence of the changelog's last record; [`None`] if it cannot be read.
    pub(super) async fn read(&self) -> Option<u64> {
        let log = Arc::clone(&self.0);
        let bounds = tokio::task::spawn_blocking(move || log.bounds()).await;
        Some(bounds.ok()?.ok()?.last)
    }
}

/// The lease of a claim of this node, once it has one that was not given up; [`None`] once there
/// are no claims any more.
async fn wait_for_claim(role: &mut watch::Receiver<Role>) -> Option<Lease> {
    let role = role.wait_for(|role| role.lease().is_some()).await;
    role.ok()?.lease().cloned()
}
