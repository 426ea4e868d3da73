//! What a process serves itself while another node owns its shards: its readiness, and what its
//! metrics and pages show.

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;

use actix_web::web;
use tokio::signal::unix::{SignalKind, signal};

use super::{ClusterNode, NodeProcess};
use crate::{
    ServerError, ServerInputs, certificates, client_listeners::ClientListeners, io_error, reload,
    settings, startup,
};
use gridhook_admin::{
    StandbyAccess, StandbyContext,
    health::{CoreHealth, NodeShard, ServerHealth, ShardState},
};
use gridhook_clock::{Clock, Lease};
use gridhook_cluster::{Role, ShardProgress};

/// Makes a process a standby: from now on `health` is that of one. Returns the context of what it
/// serves itself, whatever it owns. `nodes` and `cores` have one of each shard.
pub(crate) fn become_standby(
    nodes: &[ClusterNode],
    cores: &[CoreHealth],
    inputs: &ServerInputs,
    address: &ClientListeners,
    health: &web::Data<ServerHealth>,
) -> Result<StandbyContext, ServerError> {
    let ServerInputs { config, .. } = inputs;
    let expiry = config
        .cluster
        .as_ref()
        .map_or(Duration::MAX, |cluster| cluster.expiry);
    let shards = nodes
        .iter()
        .zip(cores)
        .map(|(ClusterNode { claim, process, .. }, core)| {
            let role = claim.role.clone();
            let progress = Arc::clone(&claim.progress);
            let core = core.clone();
            let snapshot = process.membership.snapshot.clone();
            move || {
                let read = snapshot.borrow().read;
                let is_cut_off = read.is_some_and(|read| read.elapsed() >= expiry);
                node_shard(&role.borrow(), is_cut_off, &progress, &core)
            }
        });
    let shards: Vec<_> = shards.collect();
    health.stand_by(move || shards.iter().map(|shard| shard()).collect());
    let NodeProcess {
        cluster_context,
        certificates,
        ..
    } = &*nodes.first().expect("a cluster has a shard").process;
    let readers = settings::metrics_access(config).map_err(io_error("metrics.token"))?;
    let access = web::Data::new(StandbyAccess {
        token: startup::load_admin_token(config)?,
        readers: RwLock::new(readers),
        failed_auth: settings::failed_auth_limiter(config),
        clock: Clock::system(),
    });
    let hangup = signal(SignalKind::hangup()).map_err(io_error("cannot handle signals"))?;
    let sources = inputs.sources.clone();
    let refresh = reload::refresh_standby(
        Arc::downgrade(&access),
        config.server.data_dir.clone(),
        sources,
        inputs.log.clone(),
        hangup,
    );
    actix_rt::spawn(refresh);
    Ok(StandbyContext {
        cluster_context: cluster_context.clone(),
        access,
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
    let may_act = role.lease().is_some_and(Lease::may_act);
    // A hand-over ends the lease before it gives the claim up. It may do so since the line above.
    let is_held = role.lease().is_some();
    let core = core.readiness_of_serving().filter(|_| is_held);
    let failure = progress.failure();
    let state = match role {
        _ if failure.is_some() => ShardState::Failed,
        // Without a majority NATS confirms no renewal, although its records can be read.
        Role::Owner(_) | Role::Draining(_) if !may_act && (is_cut_off || core.is_some()) => {
            ShardState::CutOff
        }
        Role::Owner(_) | Role::Draining(_) if core.is_some() => ShardState::Serving,
        Role::Owner(_) | Role::Draining(_) => ShardState::Starting,
        Role::Standby { .. } if progress.copy_progress().is_some() => ShardState::Fetching,
        Role::Standby { .. } if progress.is_complete() => ShardState::Following,
        Role::Standby { .. } => ShardState::CatchingUp,
    };
    let has_owner = match role {
        Role::Standby { owner } => owner.is_some(),
        // The next owner takes over what this node gives up.
        Role::Owner(_) | Role::Draining(_) => may_act || !is_held,
    };
    NodeShard {
        state,
        has_owner,
        core: core.filter(|_| state == ShardState::Serving),
        failure,
        is_cut_off,
    }
}
