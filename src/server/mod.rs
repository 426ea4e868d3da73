//! Wiring: the order of start and stop.
//!
//! Start: the addresses are bound and `startup_responder` answers there; the store is opened and recovered; the actors of
//! subscriptions with pending deliveries run before `/readyz` returns 200. Stop: long polls are answered; publishers are
//! served for up to one second and then refused; requests in flight finish within `server.shutdown_timeout`; the journal is
//! flushed. A second signal ends the process at once.

mod backup_schedule;
mod certificates;
mod chaos;
mod dead_letter_routing;
pub mod descriptors;
mod error;
mod file_modes;
mod forward;
mod front;
mod issuer;
mod listener;
mod live_subscriptions;
mod local_topics;
pub mod memory;
mod node;
mod reload;
mod router;
mod serve;
mod service_notifier;
mod settings;
mod shutdown;
mod startup;
mod startup_responder;
mod system_topic;
mod timekeeping;
mod tls;

use std::{collections::BTreeMap, net::TcpListener, path::PathBuf, sync::Arc, time::Duration};

use actix::{Arbiter, ArbiterHandle};

use self::{
    descriptors::DescriptorBudget,
    error::io_error,
    node::ClusterNode,
    serve::{Served, serve},
    shutdown::StopSignals,
};
pub use self::{error::ServerError, settings::editions};
use crate::{
    cli::destination,
    config::{self, Config},
    declared::{self, Declared},
    fanout::CHECK_INTERVAL,
    store::rocks::RocksStore,
    subscription::SubscriptionContext,
    supervision::actor_factory::ActorHosts,
    telemetry::LogFilter,
};

/// The interval between two checks whether the store is released at the end.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// The number of these checks.
const CLOSE_POLLS: u32 = 5000;

/// Runs the server until a signal stops it.
///
/// # Errors
/// If the server cannot start, or cannot stop cleanly.
pub fn run(mut config: Config, sources: config::SettingSources, log: LogFilter) -> Result<(), ServerError> {
    if let Some(limit) = memory::limit() {
        memory::fit(&mut config, limit)?;
    }
    let budget = descriptors::take(2 * cores() + workers(&config))?;
    let declared = declared(&config)?;
    file_modes::keep(&config).map_err(io_error("the data folder"))?;
    let launch = Launch { config, sources, log, declared, budget };
    let mut kept = Kept::default();
    let served = loop {
        // All tasks of an ownership end with its system.
        match actix_rt::System::new().block_on(serve(&launch, &mut kept)) {
            Ok(Served::Ownership) => {}
            Ok(Served::All) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    drop(kept.node);
    if let Some(store) = kept.store {
        close(store);
    }
    served
}

/// Reads every file that the settings name, without starting a server.
///
/// # Errors
/// If a server could not start with these files.
pub fn check(config: &Config) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tls::listening(&config.server)?;
    let budget = descriptors::take(cores())?;
    settings::client(config, &[], &budget)?;
    issuer::check(config)?;
    destination::destination(&config.backup, None)?;
    Ok(())
}

/// Closes the store on this thread once no other thread holds it. RocksDB must not be used or closed on another thread
/// while the process destroys its globals.
fn close(store: Arc<RocksStore>) {
    for _ in 0..CLOSE_POLLS {
        if Arc::strong_count(&store) == 1 {
            return;
        }
        std::thread::sleep(CLOSE_POLL);
    }
    tracing::warn!("the store is still in use at the end");
    // Closing it here could race with its user. The writer has ended, so nothing is lost.
    std::mem::forget(store);
}

/// Reads the file of `server.apply` before anything is opened.
fn declared(config: &Config) -> Result<Option<Declared>, ServerError> {
    let load = |file: &PathBuf| declared::load(file, &declared::ResourceGroup::default(), &BTreeMap::new());
    Ok(config.server.apply.as_ref().map(load).transpose()?)
}

/// What stays when an ownership ends.
#[derive(Default)]
struct Kept {
    sockets: Vec<TcpListener>,
    store: Option<Arc<RocksStore>>,
    node: Option<ClusterNode>,
    /// Of a node. Another server is ended by a signal that arrives while it starts.
    signals: Option<StopSignals>,
}

/// The inputs of a start.
struct Launch {
    config: Config,
    sources: config::SettingSources,
    log: LogFilter,
    declared: Option<Declared>,
    budget: DescriptorBudget,
}

/// The threads of the actors. Dropping this stops every actor and joins the threads.
struct Arbiters(Vec<Arbiter>);

impl Arbiters {
    fn start(count: usize) -> Self {
        Self((0..count).map(|_| Arbiter::new()).collect())
    }

    fn handles(&self) -> Vec<ArbiterHandle> {
        self.0.iter().map(Arbiter::handle).collect()
    }

    fn hosts(&self, context: SubscriptionContext) -> ActorHosts {
        ActorHosts { arbiters: Arc::new(self.handles()), context: Arc::new(context), check_interval: CHECK_INTERVAL }
    }
}

impl Drop for Arbiters {
    fn drop(&mut self) {
        for arbiter in &self.0 {
            arbiter.stop();
        }
        for arbiter in self.0.drain(..) {
            if arbiter.join().is_err() {
                tracing::error!("an arbiter panicked");
            }
        }
    }
}

/// The number of threads that serve HTTP.
fn workers(config: &Config) -> usize {
    if config.server.workers == 0 { cores() } else { config.server.workers }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
