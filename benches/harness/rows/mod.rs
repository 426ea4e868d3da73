//! The budgets, a file for what is measured together.

pub(crate) mod backlog;
pub(crate) mod batches;
pub(crate) mod cluster;
pub(crate) mod destinations;
pub(crate) mod endpoints;
pub(crate) mod fan_out;
pub(crate) mod features;
pub(crate) mod https;
pub(crate) mod latency;
pub(crate) mod many;
pub(crate) mod neighbours;
pub(crate) mod pull;
pub(crate) mod single;
pub(crate) mod slow_disk;
pub(crate) mod steady;
pub(crate) mod width;

/// What is on in a server if a row says nothing else.
pub(crate) const USUAL: &str =
    "journal synced, ledger, health, access key, filter by type and subject";

pub(crate) const MEGABYTE: f64 = 1024.0 * 1024.0;
