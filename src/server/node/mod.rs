//! A node of a cluster: it follows the changelog into its store until its claim is won, and owns
//! the store until it loses the claim or gives it up. Then it follows again.
//!
//! The store stays open all the time. What belongs to one ownership is a [`Tenure`]: its lease and
//! its replicated store. Both end for good, so whatever still runs on behalf of an ended tenure
//! neither sends nor writes. `serve` stops it all the same.

#[cfg(feature = "nats")]
pub(super) mod check;
mod fetch;
mod follow;
mod join;
mod tenure;

use std::{
    any::Any,
    net::TcpListener,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use actix_web::web;
use tokio::sync::watch;

use self::{
    fetch::may_fetch,
    follow::{LOST_LOOKS, StoppableLog, is_lost, replication_options},
    tenure::{StreamLimits, claim_ended},
};
pub(super) use self::{
    follow::FollowPace,
    join::{Joined, join, join_alone, living},
    tenure::{Ownership, StallReason, Tenure, TenureEnd, WriteStall},
};
use super::{
    ServerError, certificates,
    client_address::ClientAddress,
    forward::Forwarder,
    front::hop::{NodeSecret, OwnerConnector},
    io_error,
    listener::{NodeListener, Standby},
    local_store::LocalStore,
    settings,
    shutdown::StopSignals,
    startup,
    tls::ReloadableCertificate,
};
use gridhook_admin::{
    ClusterContext, StandbyAccess, StandbyContext,
    health::{CoreHealth, NodeShard, ServerHealth, ShardState},
};
use gridhook_clock::{Clock, ClockRecord, Lease, OwnerClock};
use gridhook_cluster::{
    GivenUp, Role, ShardClaim, ShardProgress,
    membership::{Membership, MembershipEnd},
    records::ShardPosition,
    stream_name,
};
use gridhook_config::Config;
use gridhook_event::Timestamp;
use gridhook_journal as journal;
use gridhook_journal::{
    changelog::{Changelog, ChangelogError},
    replicated::{FollowError, ReplicatedStore, ReplicationOptions, ShardCopy},
};
use gridhook_store::Store;

/// The interval between two syncs of the local store, and between two reports of the positions.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause between two attempts to reach the changelog. A stop waits for it.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The longest time that an owner waits for requests in flight, so that the next one can begin.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The longest time for the end of an ownership. Nothing is sent or written meanwhile; a process
/// that cannot end its threads ends itself.
const END_MAX: Duration = Duration::from_secs(30);

/// How long the signal that ends a process may be on its way to each of its shards.
const SIGNAL_WAIT: Duration = Duration::from_secs(1);

/// The pause before a store that could not follow the changelog is tried again.
const FAILED_PAUSE: Duration = Duration::from_secs(10);

/// The part of it after which a write that waits for the changelog ends without an answer.
const WRITES_WAIT: Duration = Duration::from_secs(10);

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
    /// Another process is the node of this name.
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

/// What an operator does about a store that cannot follow.
fn advice_for(error: &FollowError) -> &'static str {
    match error {
        FollowError::Foreign => {
            "; gridhook help cluster tells how to bring existing topics into a cluster"
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

/// What follows from a wait of a standby.
pub(super) enum Standing {
    /// The node owns the store.
    Owner(Tenure),
    /// A signal stops the process.
    Stopped,
}

/// A node, as long as its process runs.
pub(super) struct ClusterNode {
    /// The identifier of the cluster, which no other one has.
    pub(super) id: String,
    name: String,
    claim: ShardClaim,
    pub(super) membership: Membership,
    /// What the node shows of its cluster.
    pub(super) cluster_context: web::Data<ClusterContext>,
    secret: NodeSecret,
    connector: OwnerConnector,
    /// TLS of the listener for other nodes.
    tls: Option<rustls::ServerConfig>,
    /// What the node shows to other nodes and to the servers of NATS.
    pub(super) certificates: Vec<Arc<ReloadableCertificate>>,
    /// How other nodes reach this one.
    address: String,
    /// Of a node with one shard. That of several shards is the process's.
    member: Option<tokio::task::JoinHandle<MembershipEnd>>,
    log: Arc<StoppableLog>,
    /// How often the changelog was found to be lost, in a row, also by claims that could not be
    /// served.
    lost: Arc<AtomicU32>,
    store: Arc<LocalStore>,
    /// The limits of the stream.
    stream: StreamLimits,
    /// The interval between two reads of a standby, and what ends one.
    follow_interval: Duration,
    pace: Arc<FollowPace>,
    /// Whether the process stops. All nodes of a process share it.
    stopping: Arc<watch::Sender<bool>>,
    /// The listener for other nodes. Bound as long as the process runs, and served by the owner.
    listener: TcpListener,
    /// The connection that the records of the cluster need.
    _records: Box<dyn Any + Send>,
}

impl ClusterNode {
    /// Takes no shard any more, and gives up what it has once the server has.
    pub(super) fn begin_leave(&self) {
        self.stopping.send_replace(true);
        self.membership.begin_leave();
    }

    /// Returns once the node has left: another one may take over at once.
    pub(super) async fn left(&mut self) {
        if let Some(member) = self.member.take() {
            left(member, std::slice::from_ref(self)).await;
        }
    }

    /// Gives up claims that are won although the process stops.
    async fn give_up_late(&self) {
        let mut role = self.claim.role.clone();
        while let Some(lease) = wait_for_claim(&mut role).await {
            self.claim.give_up(&lease, GivenUp::Released);
        }
    }

    /// Whether its shard is all of the process.
    pub(super) fn is_alone(&self) -> bool {
        self.member.is_some()
    }

    /// The shard cannot be served before an operator has acted. Another node takes it.
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

    /// The pauses between two reads of a standby.
    pub(super) fn follow_pace(&self) -> Arc<FollowPace> {
        Arc::clone(&self.pace)
    }

    /// The end of its changelog.
    pub(super) fn changelog_end(&self) -> ChangelogEnd {
        ChangelogEnd(Arc::clone(&self.log))
    }

    /// The number of the shard.
    pub(super) fn shard(&self) -> usize {
        self.claim.shard
    }

    /// The name of the stream with its changelog.
    pub(super) fn stream_name(&self) -> String {
        let ClusterContext {
            cluster,
            stream_bytes_max,
            ..
        } = &**self.cluster_context;
        stream_name(cluster, self.claim.shard, stream_bytes_max.len())
    }

    /// The clock of the last owner.
    pub(super) fn owner_clock(&self) -> Option<OwnerClock> {
        let snapshot = self.membership.snapshot.borrow();
        let (name, at) = snapshot.records.latest_owner(self.claim.shard)?;
        let is_here = name == self.name;
        Some(OwnerClock {
            time: Timestamp(at.time),
            expiry_is_paused: at.expiry_paused,
            is_here,
        })
    }

    /// Tells the next owner the time.
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
                    progress.continue_clock(ShardPosition {
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

    /// What a standby answers itself, and what forwards the rest. From now on `health` is that of a
    /// standby.
    pub(super) fn build_standby(
        &self,
        config: &Config,
        address: &ClientAddress,
        health: &web::Data<ServerHealth>,
    ) -> Result<Standby, ServerError> {
        let context = standby_context(
            std::slice::from_ref(self),
            &[CoreHealth::default()],
            config,
            address,
            health,
        )?;
        Ok(Standby {
            context,
            forwarder: self.build_forwarder(config),
        })
    }

    /// What forwards requests to the owner of the shard.
    pub(super) fn build_forwarder(&self, config: &Config) -> Forwarder {
        let counters = Arc::clone(&self.cluster_context.forwarded);
        let idle_max = config.limits.idle_timeout / 2;
        Forwarder::new(
            self.claim.role.clone(),
            self.address.clone(),
            self.connector.clone(),
            idle_max,
            counters,
            self.stopping.subscribe(),
        )
    }

    /// The listener for other nodes, and this node's part of the handshake there.
    pub(super) fn listener_of_nodes(&self) -> Result<NodeListener, ServerError> {
        let listener = self
            .listener
            .try_clone()
            .map_err(io_error("cluster.node_listen"))?;
        Ok(NodeListener {
            listener,
            acceptor: self.secret.hop_acceptor(&self.address),
            tls: self.tls.clone(),
        })
    }

    /// Follows the changelog until the claim is won, and takes the shard.
    ///
    /// # Errors
    /// If the local store cannot follow the changelog.
    pub(super) async fn stand_by(
        &mut self,
        clock: &Clock,
        signals: &mut StopSignals,
    ) -> Result<Standing, ServerError> {
        loop {
            if let Some(cause) = self.store.failure() {
                self.fail(cause.to_owned());
                if self.wait_for_end(signals).await? {
                    continue;
                }
                return self.stop_standing().await;
            }
            let mut follower = self.follow();
            let mut role = self.claim.role.clone();
            let lease = tokio::select! {
                // The claims of a process that stops end at the same time.
                biased;
                () = signals.wait_for_signal() => None,
                failed = follower.wait_for_failure() => {
                    follower.stop().await;
                    let goes_on = if may_fetch(&self.store, &self.id, &failed) {
                        self.replace_store(&failed, signals).await?
                    } else {
                        self.wait_after_failure(failed, signals).await?
                    };
                    if goes_on {
                        continue;
                    }
                    return self.stop_standing().await;
                }
                lease = wait_for_claim(&mut role) => {
                    if lease.is_none()
                        && let Err(ended) = self.stop_or_fail(signals).await
                    {
                        follower.stop().await;
                        return Err(ended);
                    }
                    lease
                }
            };
            self.log
                .is_stopped
                .store(lease.is_none(), Ordering::Release);
            follower.stop().await;
            let Some(lease) = lease else {
                return self.stop_standing().await;
            };
            let taken = {
                let mut take = pin!(self.take_ownership(lease.clone(), clock.clone()));
                let interruption = tokio::select! {
                    biased;
                    () = signals.wait_for_signal() => Err(None),
                    end = claim_ended(&mut role, &lease) => Err(Some(end)),
                    taken = &mut take => Ok(taken),
                };
                if interruption.is_err() {
                    // Another node need not wait for the answer to an append. It fences what may
                    // have been appended.
                    self.claim.give_up(&lease, GivenUp::Released);
                    self.log.is_stopped.store(true, Ordering::Release);
                    take.await.iter().for_each(Tenure::fence_off);
                }
                interruption
            };
            let taken = match taken {
                Ok(taken) => taken,
                Err(None) => return self.stop_standing().await,
                Err(Some(end)) => {
                    match end {
                        TenureEnd::Asked => {
                            tracing::info!("asked to give the store up while it was taken")
                        }
                        TenureEnd::Lost => {
                            tracing::info!("the claim was lost while the store was taken")
                        }
                    }
                    self.log.is_stopped.store(false, Ordering::Release);
                    continue;
                }
            };
            match taken {
                Ok(tenure) => return Ok(Standing::Owner(tenure)),
                Err(error) if self.may_try_again(&error) => {
                    if matches!(error, FollowError::Log(ChangelogError::Full)) {
                        // Only an owner trims it otherwise.
                        tenure::trim_changelog(
                            Arc::clone(&self.log) as _,
                            &self.claim.progress,
                            self.stream.without_kept_records(),
                        )
                        .await;
                    }
                    tracing::warn!(shard = self.claim.shard, %error, "the claimed shard was not \
                        taken; another node may try");
                    self.give_claim_up(&lease, GivenUp::Failed).await;
                }
                Err(error) => {
                    // Another node need not wait for the claim to expire.
                    self.give_claim_up(&lease, GivenUp::Failed).await;
                    if !self.wait_after_failure(error, signals).await? {
                        return self.stop_standing().await;
                    }
                }
            }
        }
    }

    /// Whether the shard may be served later that could not be taken.
    fn may_try_again(&self, error: &FollowError) -> bool {
        let is_lost_now = is_lost(error) && !self.is_lost_for_good();
        matches!(error, FollowError::Log(_))
            || is_lost_now
            || may_fetch(&self.store, &self.id, error)
    }

    async fn stop_standing(&mut self) -> Result<Standing, ServerError> {
        self.begin_leave();
        self.left().await;
        Ok(Standing::Stopped)
    }

    /// Waits after the store could not follow the changelog. Returns false if a signal stops the
    /// process; otherwise it may be tried again.
    ///
    /// # Errors
    /// If the claims of this node have ended.
    async fn wait_after_failure(
        &self,
        error: FollowError,
        signals: &mut StopSignals,
    ) -> Result<bool, ServerError> {
        self.fail(ClusterError::from(error).to_string());
        self.wait_for_end(signals).await
    }

    /// Waits a while for the end of the process. Returns false if a signal stops it.
    ///
    /// # Errors
    /// If the claims of this node have ended.
    async fn wait_for_end(&self, signals: &mut StopSignals) -> Result<bool, ServerError> {
        let mut role = self.claim.role.clone();
        let role_end = async { while role.changed().await.is_ok() {} };
        tokio::select! {
            biased;
            () = signals.wait_for_signal() => Ok(false),
            () = role_end => self.stop_or_fail(signals).await,
            () = tokio::time::sleep(FAILED_PAUSE) => Ok(true),
        }
    }

    /// What follows from the end of the claims: all end with the first shard of a process that
    /// stops, whose signal reaches the others at the same time. Returns false if it does.
    ///
    /// # Errors
    /// If no signal comes.
    async fn stop_or_fail(&self, signals: &mut StopSignals) -> Result<bool, ServerError> {
        let signal = tokio::time::timeout(SIGNAL_WAIT, signals.wait_for_signal());
        if signal.await.is_ok() {
            return Ok(false);
        }
        let end = self.membership.snapshot.borrow().end;
        Err(match end {
            Some(MembershipEnd::NameTaken) => ClusterError::NameTaken {
                node: self.name.clone(),
            },
            Some(MembershipEnd::Left) | None => {
                ClusterError::Engine("the claims of this node have ended".to_owned())
            }
        }
        .into())
    }

    /// Counts a look that found the changelog to be lost.
    fn is_lost_for_good(&self) -> bool {
        self.lost.fetch_add(1, Ordering::AcqRel) >= LOST_LOOKS
    }

    /// Appends the fence, and applies what is before it.
    async fn take_ownership(&self, lease: Lease, clock: Clock) -> Result<Tenure, FollowError> {
        let store = self.store.open_store();
        let name = self.name.clone();
        let log: Arc<dyn Changelog> = Arc::clone(&self.log) as _;
        let began = clock.now();
        let read = clock.clone();
        let options = ReplicationOptions {
            format: self.claim.progress.format.load(Ordering::Acquire),
            ..replication_options()
        };
        let opening = tokio::task::spawn_blocking(move || {
            ReplicatedStore::open(store, log, &name, clock, options)
        });
        let store = Arc::new(opening.await.expect("opening a store does not panic")?);
        let took = read.now().since(began);
        tracing::info!(
            shard = self.claim.shard,
            epoch = store.epoch(),
            ?took,
            "this node owns the store"
        );
        let progress = Arc::clone(&self.claim.progress);
        let log: Arc<dyn Changelog> = Arc::clone(&self.log) as _;
        actix_rt::spawn(tenure::report_positions(
            progress,
            Arc::clone(&store),
            log,
            self.stream,
        ));
        Ok(Tenure::begin(lease, store, self.claim.role.clone()))
    }

    /// Gives the shard up, and returns once the driver knows.
    pub(super) async fn give_up(&self, tenure: &Tenure, why: GivenUp) {
        self.give_claim_up(&tenure.lease, why).await;
    }

    /// Gives a claim up. The driver has written that afterwards, if it could, and answers with
    /// another role.
    async fn give_claim_up(&self, lease: &Lease, why: GivenUp) {
        let mut role = self.claim.role.clone();
        self.claim.give_up(lease, why);
        let given_up = role.wait_for(|role| !role.is_of(lease));
        // Otherwise the claim expires.
        tokio::time::timeout(DRAIN_MAX, given_up).await.ok();
    }
}

/// What a process answers itself, whatever it owns. `nodes` and `cores` have one of each shard.
/// From now on `health` is that of a standby.
pub(super) fn standby_context(
    nodes: &[ClusterNode],
    cores: &[CoreHealth],
    config: &Config,
    address: &ClientAddress,
    health: &web::Data<ServerHealth>,
) -> Result<StandbyContext, ServerError> {
    let expiry = config
        .cluster
        .as_ref()
        .map_or(Duration::MAX, |cluster| cluster.expiry);
    let shards = nodes.iter().zip(cores).map(
        |(
            ClusterNode {
                claim, membership, ..
            },
            core,
        )| {
            let role = claim.role.clone();
            let progress = Arc::clone(&claim.progress);
            let core = core.clone();
            let snapshot = membership.snapshot.clone();
            move || {
                let read = snapshot.borrow().read;
                let is_cut_off = read.is_some_and(|read| read.elapsed() >= expiry);
                node_shard(&role.borrow(), is_cut_off, &progress, &core)
            }
        },
    );
    let shards: Vec<_> = shards.collect();
    health.stand_by(move || shards.iter().map(|shard| shard()).collect());
    let ClusterNode {
        cluster_context,
        certificates,
        ..
    } = nodes.first().expect("a cluster has a shard");
    Ok(StandbyContext {
        cluster_context: cluster_context.clone(),
        access: web::Data::new(StandbyAccess {
            token: startup::admin_token(config)?,
            failed_auth: settings::failed_auth_limiter(config),
            clock: Clock::system(),
        }),
        readers: settings::metrics_access(config).map_err(io_error("metrics.token"))?,
        listeners: address.counters.clone(),
        certificates: certificates::certificate_expiries(certificates::certificates_of_standby(
            config,
            address,
            certificates,
        )),
        health: health.clone(),
    })
}

fn node_shard(
    role: &Role,
    is_cut_off: bool,
    progress: &ShardProgress,
    core: &CoreHealth,
) -> NodeShard {
    let lease = role.lease();
    let may_act = lease.is_some_and(Lease::may_act);
    let core = core.readiness_of_serving().filter(|_| lease.is_some());
    let failure = progress.failure();
    let state = match role {
        _ if failure.is_some() => ShardState::Failed,
        Role::Owner(_) | Role::Draining(_) if is_cut_off && !may_act => ShardState::CutOff,
        Role::Owner(_) | Role::Draining(_) if core.is_some() => ShardState::Serving,
        Role::Owner(_) | Role::Draining(_) => ShardState::Starting,
        Role::Standby { .. } if progress.copy_progress().is_some() => ShardState::Fetching,
        Role::Standby { .. } if progress.is_complete() => ShardState::Following,
        Role::Standby { .. } => ShardState::CatchingUp,
    };
    let has_owner = match role {
        Role::Standby { owner } => owner.is_some(),
        Role::Owner(_) | Role::Draining(_) => state != ShardState::CutOff,
    };
    NodeShard {
        state,
        has_owner,
        core: core.filter(|_| state == ShardState::Serving),
        failure,
        is_cut_off,
    }
}

/// Returns once a process has left: another one may take over at once. `nodes` are all of it.
pub(super) async fn left(member: tokio::task::JoinHandle<MembershipEnd>, nodes: &[ClusterNode]) {
    let late = futures_util::future::join_all(nodes.iter().map(ClusterNode::give_up_late));
    let left = async { tokio::join!(member, late) };
    if tokio::time::timeout(SYNC_INTERVAL, left).await.is_err() {
        tracing::warn!("the records of the cluster were not changed in time; they expire");
    }
}

/// The lease of a claim of this node, once it has one that was not given up; [`None`] once there
/// are no claims any more.
async fn wait_for_claim(role: &mut watch::Receiver<Role>) -> Option<Lease> {
    let role = role.wait_for(|role| role.lease().is_some()).await;
    role.ok()?.lease().cloned()
}

/// Ends the writes of an ended tenure that wait for the changelog, and later the process, if its
/// threads cannot be joined in time.
pub(super) struct EndGuard {
    _done: std::sync::mpsc::Sender<()>,
}

impl EndGuard {
    pub(super) fn begin(store: Arc<ReplicatedStore>) -> Self {
        let (done, is_done) = std::sync::mpsc::channel();
        let span = tracing::Span::current();
        std::thread::Builder::new()
            .name("end".to_owned())
            .spawn(move || span.in_scope(|| watch_end(&store, &is_done)))
            .expect("a thread");
        Self { _done: done }
    }
}

/// Returns once the tenure has ended. Aborts the process if that takes too long.
fn watch_end(store: &ReplicatedStore, is_done: &std::sync::mpsc::Receiver<()>) {
    let ends_within =
        |wait| is_done.recv_timeout(wait) != Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    if ends_within(WRITES_WAIT) {
        return;
    }
    store.stop();
    if !ends_within(END_MAX - WRITES_WAIT) {
        tracing::error!(after = ?END_MAX, "a thread of the former owner does not end");
        std::process::abort();
    }
}

/// Refuses the store of a node of a cluster.
pub(super) fn check_unreplicated(store: &dyn Store) -> Result<(), ServerError> {
    match ShardCopy::read_applied(store).map_err(journal::Error::from)? {
        Some(_) => Err(ClusterError::Replicated.into()),
        None => Ok(()),
    }
}

/// The end of a changelog.
#[derive(Clone)]
pub(super) struct ChangelogEnd(Arc<StoppableLog>);

impl ChangelogEnd {
    /// The sequence of its last record; [`None`] if it cannot be read.
    pub(super) async fn read(&self) -> Option<u64> {
        let log = Arc::clone(&self.0);
        let bounds = tokio::task::spawn_blocking(move || log.bounds()).await;
        Some(bounds.ok()?.ok()?.last)
    }
}
