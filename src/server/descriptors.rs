//! Divides the file descriptors between the store, connections and deliveries at the start.
//!
//! A store that cannot open its next log fails for good, and the process ends. So the store's part
//! is reserved. Connections beyond their part receive 503, and deliveries beyond theirs wait.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ServerError;

/// The minimum, below which the parts would be too small.
pub const MIN: usize = 512;

/// The maximum that is used; the system may allow any number.
const MAX: usize = 1 << 24;

/// The descriptors of standard streams, locks, the runtime, dead-letter files, backups and log
/// redirects.
const BASE: usize = 96;

/// The descriptors of each thread that serves or delivers: its poller, wakers and signals.
const PER_THREAD: usize = 8;

/// The minimum of the store: its logs, the files being written, and the tables of twelve column
/// families.
const STORE_MIN: usize = 192;

/// The store's open files that are not tables: logs, manifests, files being written.
const NOT_TABLES: usize = 64;

/// The maximum number of rejected connections that receive a response at the same time.
const REFUSALS_MAX: usize = 256;

/// The division of the file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorBudget {
    pub limit: usize,
    pub store: usize,
    /// Descriptors of connections of publishers and operators.
    pub inbound: usize,
    /// Descriptors of rejected connections, while they receive a response.
    pub refusals: usize,
    /// Descriptors of requests in flight to endpoints.
    pub outbound: usize,
    /// Descriptors of idle connections to endpoints, which also borrow what requests in flight do
    /// not need.
    pub idle: usize,
}

impl DescriptorBudget {
    /// Divides `limit` descriptors in a process with `threads` threads that serve or deliver.
    ///
    /// # Errors
    /// If `limit` is too low.
    pub fn with_limit(limit: usize, threads: usize) -> Result<Self, ServerError> {
        let store = (limit / 8).max(STORE_MIN);
        let base = BASE + PER_THREAD * threads;
        let rest = limit.saturating_sub(store + base);
        if limit < MIN || rest < MIN / 4 {
            return Err(ServerError::Descriptors {
                limit,
                least: MIN.max(STORE_MIN + base + MIN / 4),
            });
        }
        let refusals = REFUSALS_MAX.min(rest / 16);
        let inbound = rest / 2 - refusals;
        let outbound = rest * 3 / 8;
        // The remainder is a margin, for two threads that take the last descriptor at once and for
        // other libraries.
        let idle = rest / 16;
        Ok(Self {
            limit,
            store,
            inbound,
            refusals,
            outbound,
            idle,
        })
    }

    /// The maximum number of open tables of the store.
    pub fn open_tables_max(&self) -> i32 {
        i32::try_from(self.store - NOT_TABLES).unwrap_or(i32::MAX)
    }
}

/// The share of a process with several cores that is for its clients, and for what it forwards.
const FRONT_SHARE: usize = 4;

/// The division of a process with a core for each shard.
pub struct SharedBudget {
    /// The share of the listeners for clients.
    pub front: DescriptorBudget,
    pub core: DescriptorBudget,
    /// Descriptors of connections of nodes: what the cores have for their clients, and the front
    /// for deliveries.
    pub node_connections: usize,
}

/// The threads of a process with a core for each shard.
#[derive(Clone, Copy, Debug)]
pub struct ProcessThreads {
    pub cores: usize,
    /// The threads that serve clients.
    pub front: usize,
    /// The threads of each core.
    pub of_core: usize,
}

impl SharedBudget {
    /// Divides `limit` descriptors among the cores, and the threads that serve clients.
    ///
    /// # Errors
    /// If `limit` is too low.
    pub fn with_limit(limit: usize, threads: ProcessThreads) -> Result<Self, ServerError> {
        let ProcessThreads {
            cores,
            front,
            of_core,
        } = threads;
        let front_limit = limit / FRONT_SHARE;
        let front = DescriptorBudget::with_limit(front_limit, front)
            .map_err(|error| scale_error(error, limit, FRONT_SHARE))?;
        let parts = (cores * FRONT_SHARE).div_ceil(FRONT_SHARE - 1);
        let core = DescriptorBudget::with_limit((limit - front_limit) / cores, of_core)
            .map_err(|error| scale_error(error, limit, parts))?;
        Ok(Self {
            front,
            core,
            node_connections: front.outbound + cores * core.inbound,
        })
    }
}

/// Scales the error of a budget that has one of `parts` of all descriptors to the numbers of all.
fn scale_error(error: ServerError, limit: usize, parts: usize) -> ServerError {
    match error {
        ServerError::Descriptors { least, .. } => ServerError::Descriptors {
            limit,
            least: least * parts,
        },
        other => other,
    }
}

/// Raises the soft limit to the hard limit, and divides the descriptors.
pub(super) fn claim_descriptors(threads: usize) -> Result<DescriptorBudget, ServerError> {
    let budget = DescriptorBudget::with_limit(raise_limit(), threads)?;
    tracing::info!(
        limit = budget.limit,
        store = budget.store,
        connections = budget.inbound,
        requests = budget.outbound,
        "file descriptors divided"
    );
    Ok(budget)
}

/// Raises the soft limit to the hard limit, and returns it.
pub(super) fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised_limit = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let current = match setrlimit(Resource::Nofile, raised_limit) {
        Ok(()) => raised_limit.current,
        Err(error) => {
            tracing::warn!(%error, allowed = limit.current, "the limit of open files cannot be \
                raised");
            limit.current
        }
    };
    current
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX)
        .min(MAX)
}
