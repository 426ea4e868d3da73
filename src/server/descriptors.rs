//! File descriptors, shared out at the start: the store, those who connect, and deliveries have a part each.
//!
//! A store that cannot open its next log has failed for good, and the process ends. So the store's part is set aside before
//! anybody connects, and nobody else can use it: beyond their part publishers are refused with 503, and deliveries wait.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ServerError;

/// With fewer the parts would be too small to work with.
pub const MIN: usize = 512;

/// Nobody has use for more, and the system may allow any number.
const MAX: usize = 1 << 24;

/// Standard streams, locks, the parts of the runtime, the files of the dead-letter stores, backups, redirects of the log.
const BASE: usize = 96;

/// Of each thread that serves or delivers: its poller, its wakers, its signals.
const OF_THREAD: usize = 8;

/// The store has at least so many: its logs, the files that are written, and the tables of eleven families.
const STORE_MIN: usize = 192;

/// Of all that is open for the store, so much is not a table: logs, manifests, files that are written.
const NOT_TABLES: usize = 64;

/// Callers who find no place are told so: so many at a time at the most.
const TOLD_MAX: usize = 256;

/// The parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// All that there are.
    pub limit: usize,
    /// Of the store.
    pub store: usize,
    /// Of connections of publishers and operators.
    pub inbound: usize,
    /// Of callers who find no place, while they are told so.
    pub told: usize,
    /// Of requests to endpoints that are in flight.
    pub outbound: usize,
    /// Of connections to endpoints that wait for the next request.
    pub idle: usize,
}

impl DescriptorBudget {
    /// The parts of `limit` descriptors for a process with so many threads that serve or deliver.
    pub fn of(limit: usize, threads: usize) -> Result<Self, ServerError> {
        let store = (limit / 8).max(STORE_MIN);
        let base = BASE + OF_THREAD * threads;
        let rest = limit.saturating_sub(store + base);
        if limit < MIN || rest < MIN / 4 {
            return Err(ServerError::Descriptors { limit, least: MIN.max(STORE_MIN + base + MIN / 4) });
        }
        let told = TOLD_MAX.min(rest / 16);
        let inbound = rest / 2 - told;
        let outbound = rest * 3 / 8;
        // What is left beyond is the margin for two threads that take the same place, and for the rest of the world.
        let idle = rest / 16;
        Ok(Self { limit, store, inbound, told, outbound, idle })
    }

    /// How many tables the store may have open.
    pub fn tables(&self) -> i32 {
        i32::try_from(self.store - NOT_TABLES).unwrap_or(i32::MAX)
    }
}

/// Takes as many as the system allows, and shares them out.
pub(super) fn take(threads: usize) -> Result<DescriptorBudget, ServerError> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, ..limit };
    let current = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => wanted.current,
        Err(error) => {
            tracing::warn!(%error, allowed = limit.current, "the limit of open files stays as it is");
            limit.current
        }
    };
    let limit = current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX).min(MAX);
    let budget = DescriptorBudget::of(limit, threads)?;
    tracing::info!(
        limit = budget.limit,
        store = budget.store,
        connections = budget.inbound,
        requests = budget.outbound,
        "file descriptors are shared out"
    );
    Ok(budget)
}
