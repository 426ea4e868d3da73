//! Fits the memory budgets into the limit of the control group, and returns free memory to the
//! system.
//!
//! The kernel kills a process that exceeds the limit of its control group (a container, a unit). So
//! the limit is read at the start, and budgets of the settings are reduced to fit, with a warning.
//! Below a minimum the server does not start.
//!
//! The allocator (mimalloc) keeps free pages for a second, and checks that time only when a page is
//! freed. An idle server frees none, and would keep the pages of its start for ever.

use std::{fs, hint::black_box, path::Path};

use bytesize::ByteSize;

use super::ServerError;
use gridhook_config::{Config, count_with_control};

/// A size that the allocator serves with a page of its own.
const PIECE: usize = 1 << 20;

/// The memory of the program, its threads, RocksDB and the allocator outside the budgets.
const BASE: u64 = 72 << 20;

/// The memory of a request in flight to an endpoint beside its event: its body and the buffers of
/// its connection.
const OF_REQUEST: u64 = 64 << 10;

/// The minimum of each budget. With less, one large request could not be accepted.
const TAIL_MIN: u64 = 1 << 20;
const BUFFERS_MIN: u64 = 4 << 20;
const CACHE_MIN: u64 = 2 << 20;
const READS_MIN: u64 = 2 << 20;
const COMPUTE_MIN: u64 = 2 << 20;

/// Bodies in flight above this size are given up before any other budget is reduced: they serve
/// bursts only.
const BODIES_FIRST: u64 = 16 << 20;

/// A larger value means no limit: version 1 of control groups reports that by a huge number.
const NO_LIMIT: u64 = 1 << 60;

/// The lowest memory limit of the control groups of this process.
pub(super) fn read_memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    lowest_limit(&groups, |path| fs::read_to_string(path).ok())
}

/// The lowest memory limit of the control groups that `groups`, the text of `/proc/self/cgroup`,
/// names. `read` reads a file.
pub fn lowest_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut lowest: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (roots, file) = match controllers {
            "" => (["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => (
                ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"],
                "memory.limit_in_bytes",
            ),
            _ => continue,
        };
        // A container may see its own group as the root, whatever its path is.
        for group in Path::new(group.trim_start_matches('/')).ancestors() {
            for root in roots {
                let limit = read(&Path::new(root).join(group).join(file))
                    .and_then(|text| text.trim().parse().ok());
                lowest = [lowest, limit.filter(|bytes| *bytes < NO_LIMIT)]
                    .into_iter()
                    .flatten()
                    .min();
            }
        }
    }
    lowest
}

/// Reduces the memory budgets of the settings to fit into `limit`, and logs the result.
///
/// # Errors
/// If the minimum does not fit.
pub fn fit_budgets(config: &mut Config, limit: u64) -> Result<(), ServerError> {
    // The kernel also counts the page cache.
    let room = limit - limit / 8;
    // A body is held as received and as stored.
    let publishers = 2 * config.publish.bytes_in_flight as u64;
    let tail = config.topic.recent_events_bytes as u64;
    let cache = config.journal.block_cache_bytes as u64;
    let buffers = config.journal.write_buffer_bytes as u64;
    let reads = config.limits.read_bytes as u64;
    let compute = config.limits.compute_bytes as u64;
    let event = config.publish.event_bytes as u64 + OF_REQUEST;
    let bodies_max = config.delivery.bytes_in_flight as u64;
    let publishers_min = 2 * config.publish.request_bytes as u64;
    let least = BASE
        + publishers_min
        + TAIL_MIN
        + BUFFERS_MIN
        + CACHE_MIN
        + READS_MIN
        + COMPUTE_MIN
        + 2 * event;
    if room < least {
        return Err(ServerError::Memory {
            limit: ByteSize(limit),
            least: ByteSize(least + least / 7),
        });
    }
    let others = publishers + tail + cache + buffers + reads + compute;
    let bodies_fitting = room.saturating_sub(BASE + others);
    if bodies_fitting >= bodies_max {
        return Ok(());
    }
    let bodies = bodies_fitting.max(BODIES_FIRST).min(bodies_max);
    let demand = others + bodies;
    // The memory above the minimum is shared in proportion.
    let proportion = Proportion {
        room: room - least,
        demand: demand.saturating_sub(least - BASE).max(1),
    };
    let bytes = |value: u64, min: u64| proportion.fit_budget(value, min);
    config.publish.bytes_in_flight = bytes(publishers, publishers_min) / 2;
    config.topic.recent_events_bytes = bytes(tail, TAIL_MIN);
    config.journal.block_cache_bytes = bytes(cache, CACHE_MIN);
    config.journal.write_buffer_bytes = bytes(buffers, BUFFERS_MIN);
    config.limits.read_bytes = bytes(reads, READS_MIN);
    config.limits.compute_bytes = bytes(compute, COMPUTE_MIN);
    config.delivery.bytes_in_flight = bytes(bodies, 2 * event);
    let size = |bytes: usize| ByteSize(bytes as u64).to_string();
    tracing::warn!(
        limit = %ByteSize(limit),
        publish.bytes_in_flight = size(config.publish.bytes_in_flight),
        topic.recent_events_bytes = size(config.topic.recent_events_bytes),
        journal.block_cache_bytes = size(config.journal.block_cache_bytes),
        journal.write_buffer_bytes = size(config.journal.write_buffer_bytes),
        limits.read_bytes = size(config.limits.read_bytes),
        limits.compute_bytes = size(config.limits.compute_bytes),
        delivery.bytes_in_flight = size(config.delivery.bytes_in_flight),
        "settings are reduced to fit the memory limit of the control group"
    );
    Ok(())
}

/// How much of what the budgets demand above their minimums there is room for, in bytes.
struct Proportion {
    room: u64,
    demand: u64,
}

impl Proportion {
    fn fit_budget(&self, value: u64, min: u64) -> usize {
        let more = u128::from(value.saturating_sub(min));
        let share = more * u128::from(self.room) / u128::from(self.demand);
        let budget = value.min(min + u64::try_from(share).unwrap_or(u64::MAX));
        usize::try_from(budget).unwrap_or(usize::MAX)
    }
}

/// Divides the memory budgets of a process among its cores: one for each of `shards`, and one for
/// the control plane. Each core can accept the largest request.
pub fn divide_budgets(config: &mut Config, shards: usize) {
    let divide = |bytes: usize, parts: usize, min: u64| {
        bytes.min((bytes / parts).max(usize::try_from(min).unwrap_or(usize::MAX)))
    };
    // The control plane takes no events, so it uses no budget for them.
    let divide_among_shards = |bytes: usize, min: u64| divide(bytes, shards, min);
    let cores = count_with_control(shards);
    let divide_among_cores = |bytes: usize, min: u64| divide(bytes, cores, min);
    config.publish.bytes_in_flight = divide_among_shards(
        config.publish.bytes_in_flight,
        config.publish.request_bytes as u64,
    );
    config.topic.recent_events_bytes =
        divide_among_shards(config.topic.recent_events_bytes, TAIL_MIN);
    config.delivery.bytes_in_flight = divide_among_shards(
        config.delivery.bytes_in_flight,
        config.publish.event_bytes as u64,
    );
    config.journal.block_cache_bytes =
        divide_among_cores(config.journal.block_cache_bytes, CACHE_MIN);
    config.journal.write_buffer_bytes =
        divide_among_cores(config.journal.write_buffer_bytes, BUFFERS_MIN);
    config.limits.read_bytes = divide_among_cores(config.limits.read_bytes, READS_MIN);
}

/// Frees a page, so that the allocator returns the other free pages. To be called periodically, at
/// longer intervals than it keeps free pages.
pub(super) fn return_free_pages() {
    drop(black_box(Vec::<u8>::with_capacity(PIECE)));
}
