//! One run of the server: the phases of its start in order, and its end. The owner of a cluster's
//! store has a run for each ownership.
//!
//! Each phase is a struct in a file of its own, with what later phases need of it: `bound`,
//! `owned_store`, `recovered`, `delivery` and `listening`. A start that fails, or that a signal
//! ends, closes what the phases before have opened.

mod bound;
mod delivery;
mod listening;
mod owned_store;
mod recovered;
mod stop;

use std::{rc::Rc, sync::Arc};

use actix_web::web;

pub(super) use self::{
    bound::{Bound, StartEnd},
    delivery::Delivery,
    owned_store::JournalTarget,
    recovered::Recovered,
};
use self::{
    listening::Listening,
    owned_store::OwnedStore,
    stop::{RunEnd, Running},
};
use super::{
    Launch, ProcessState, ServerError, dead_letter_routing,
    error::io_error,
    node::Ownership,
    reload::{Reload, ReloadSignals},
    settings,
    shutdown::StopSignals,
    startup, use_rules,
};
use gridhook_admin as admin;
use gridhook_admin::{ChaosTargets, Control, metrics::MetricSources};
use gridhook_engine::control::registry::StartQueue;
use gridhook_pull::LockTokenSealer;
use gridhook_store::rocks::RocksStore;

/// How a run has ended.
pub(super) enum RunOutcome {
    /// Another run follows.
    RunAgain,
    ProcessEnds,
}

/// Runs the server until a signal stops it, its ownership of a cluster's store has ended, or its
/// clock is set back.
pub(super) async fn run_server(
    launch: &Launch,
    state: &mut ProcessState,
) -> Result<RunOutcome, ServerError> {
    // The first step, because a signal without a handler ends the process.
    let reload_signals = ReloadSignals::install().map_err(io_error("cannot handle signals"))?;
    let mut bound = Bound::open(launch, state)?;
    // A signal that arrives while a server begins again stops it once it serves.
    let earlier_signals = state
        .signals
        .take_if(|_| launch.inputs.config.cluster.is_none());
    let Some(OwnedStore {
        local,
        target,
        mut ownership,
    }) = OwnedStore::take_store(launch, state, &mut bound).await?
    else {
        return bound.stop(state).await;
    };
    let targets = ChaosTargets::default();
    let (recovered, starts) =
        match Recovered::read(launch, &bound, &local, target, &targets, ownership.as_ref()) {
            Ok(recovered) => recovered,
            Err(error) => {
                return bound
                    .abandon_start(ownership, StartEnd::Failed(error))
                    .await;
            }
        };
    let preparation = Prepared::open(
        launch,
        &recovered,
        &bound,
        &local,
        starts,
        targets,
        ownership.as_mut(),
    );
    let Prepared {
        delivery,
        control,
        tokens,
    } = match preparation.await {
        Ok(prepared) => prepared,
        Err(end) => return recovered.abandon_start(bound, ownership, end).await,
    };
    actix_rt::spawn(admin::record_history(control.clone()));
    let reload = Rc::new(build_reload(
        launch, &recovered, &delivery, &bound, &control,
    ));
    actix_rt::spawn(reload.run(reload_signals, launch.inputs.config.clone()));
    // The service manager may stop the server as soon as it is ready.
    let mut stop_signals = match earlier_signals {
        Some(signals) => signals,
        None => StopSignals::install()?,
    };
    let listening = match Listening::begin(
        &recovered,
        &delivery,
        &control,
        bound,
        tokens,
        ownership.as_ref(),
    )
    .await
    {
        Ok(listening) => listening,
        Err(error) => {
            recovered.close(ownership.as_ref()).await;
            if let Some(ownership) = ownership {
                ownership.fail().await;
            }
            return Err(error);
        }
    };
    let timekeeper = Rc::clone(&recovered.timekeeper);
    let end = RunEnd::wait_for_end(ownership, &mut stop_signals, &timekeeper).await?;
    let running = Running {
        recovered,
        delivery,
        control,
        listening,
    };
    let outcome = running.stop(end).await?;
    if launch.inputs.config.cluster.is_none() {
        state.signals = Some(stop_signals);
    }
    Ok(outcome)
}

/// All that a server needs before it listens.
struct Prepared {
    delivery: Delivery,
    control: web::Data<Control>,
    tokens: web::Data<LockTokenSealer>,
}

impl Prepared {
    async fn open(
        launch: &Launch,
        recovered: &Recovered,
        bound: &Bound,
        local: &Arc<RocksStore>,
        starts: StartQueue,
        mut targets: ChaosTargets,
        ownership: Option<&mut Ownership<'_>>,
    ) -> Result<Self, StartEnd> {
        let owner = ownership.as_deref();
        let delivery =
            Delivery::start(launch, recovered, bound, starts, &mut targets, owner).await?;
        let control = build_control(launch, recovered, &delivery, bound, local, targets, owner)?;
        let tokens = write_declared(&control, launch, recovered, ownership).await?;
        Ok(Self {
            delivery,
            control,
            tokens: web::Data::new(tokens),
        })
    }
}

/// The control plane with all its parts. Redrives that the last process had not finished go on.
fn build_control(
    launch: &Launch,
    recovered: &Recovered,
    delivery: &Delivery,
    bound: &Bound,
    local: &Arc<RocksStore>,
    targets: ChaosTargets,
    ownership: Option<&Ownership<'_>>,
) -> Result<web::Data<Control>, ServerError> {
    let Recovered {
        parts,
        backups,
        started,
        ..
    } = recovered;
    let redrives = dead_letter_routing::resume_redrives(parts, &delivery.stores)?;
    let cluster = ownership.map(|ownership| ownership.node.process.cluster_context.clone());
    let sources = MetricSources {
        cluster,
        ..startup::build_metric_sources(recovered, delivery, bound)
    };
    let exposition = settings::metrics_exposition(&parts.config, sources, *started)
        .map_err(io_error("metrics.token"))?;
    let mut control =
        startup::build_control(parts, &bound.address, delivery.system_topic.as_ref())?
            .with_dead_letters(redrives)
            .with_chaos_targets(targets)
            .with_dashboard(parts.config.server.dashboard);
    if parts.config.server.dashboard {
        control = control.with_history_file(parts.config.server.data_dir.join(admin::HISTORY_FILE));
    }
    control.backups = Some(Arc::clone(backups));
    control.failed_auth = Arc::clone(&delivery.failed_auth);
    control.operators.clone_from(&delivery.operators);
    control.exposition = exposition;
    control.uses = use_rules::read(&parts.config, recovered.client.connections.clone())?;
    control.shard = launch.core.as_ref().map(|core| core.placement(local));
    Ok(web::Data::new(control))
}

/// Makes the first writes: what `server.apply` declares, and the key of lock tokens. A node may be
/// stopped, or lose the store, meanwhile.
async fn write_declared(
    control: &Control,
    launch: &Launch,
    recovered: &Recovered,
    ownership: Option<&mut Ownership<'_>>,
) -> Result<LockTokenSealer, StartEnd> {
    let write = async {
        startup::apply_declared(control, launch.inputs.declared.clone()).await?;
        let tokens = LockTokenSealer::load_or_create(&recovered.parts.journal).await?;
        Ok(match &launch.core {
            Some(core) => tokens.with_shard(core.others.own),
            None => tokens,
        })
    };
    match ownership {
        None => write.await.map_err(StartEnd::Failed),
        Some(ownership) => ownership.run_unless_ended(write).await,
    }
}

fn build_reload(
    launch: &Launch,
    recovered: &Recovered,
    delivery: &Delivery,
    bound: &Bound,
    control: &web::Data<Control>,
) -> Reload {
    Reload {
        sources: launch.inputs.sources.clone(),
        log: launch.inputs.log.clone(),
        token: recovered.token.clone(),
        control: control.clone(),
        certificate: bound.address.shown.clone(),
        identities: recovered.client.identities.clone(),
        trust: recovered.client.trust.clone(),
        keys: delivery.keys.clone(),
    }
}
