//! How much memory there is, and that what is not needed goes back to the system.
//!
//! The limit of a control group (a container, a unit) kills the process that passes it, without a word. So it is read at the
//! start, and what the settings let the server keep in memory is made smaller to fit, and that is told; below a minimum the
//! server does not start.
//!
//! The allocator keeps what is free for a second, as it may be asked for again, and looks at that when somebody frees a
//! whole page of it. A server that nobody asks for anything frees none, and would keep for ever what its start took.

use std::{fs, hint::black_box, path::Path, time::Duration};

use bytesize::ByteSize;

use super::ServerError;
use crate::config::Config;

/// Longer than the allocator keeps what is free, and seldom enough to cost nothing.
const EVERY: Duration = Duration::from_secs(2);

/// So large a piece is a page of its own.
const PIECE: usize = 1 << 20;

/// The program itself, its threads, and what RocksDB and the allocator take beside the budgets.
const BASE: u64 = 72 << 20;

/// What each request in flight to an endpoint may hold beside its event: its body, and the buffers of its connection.
const OF_REQUEST: u64 = 64 << 10;

/// The least that the budgets can be: with less one large request could not be taken.
const TAIL_MIN: u64 = 1 << 20;
const BUFFERS_MIN: u64 = 4 << 20;
const CACHE_MIN: u64 = 2 << 20;
const READS_MIN: u64 = 2 << 20;

/// From here on nobody set a limit: the first version of control groups says so by a number that no machine has.
const NO_LIMIT: u64 = 1 << 60;

/// The lowest limit of the control groups that the process is in; [`None`] where there is none.
pub(super) fn limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    lowest(&groups, |path| fs::read_to_string(path).ok())
}

/// The same, of what `/proc/self/cgroup` says and of what is in files.
pub fn lowest(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut lowest: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (roots, file) = match controllers {
            "" => (["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (["/sys/fs/cgroup/memory", "/sys/fs/cgroup"], "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // A container may see its own group as the root, whatever its path is called.
        for group in Path::new(group.trim_start_matches('/')).ancestors() {
            for root in roots {
                let told = read(&Path::new(root).join(group).join(file)).and_then(|told| told.trim().parse().ok());
                lowest = [lowest, told.filter(|bytes| *bytes < NO_LIMIT)].into_iter().flatten().min();
            }
        }
    }
    lowest
}

/// Makes what the settings let the server keep in memory fit into `limit`, and says what it made of it.
///
/// # Errors
/// Where it cannot.
pub fn fit(config: &mut Config, limit: u64) -> Result<(), ServerError> {
    // The kernel counts the pages of files that are read and written, too.
    let room = limit - limit / 8;
    // A body is there as it came, and once more as it is stored.
    let publishers = 2 * config.publish.bytes_in_flight as u64;
    let (tail, cache) = (config.topic.recent_events_bytes as u64, config.journal.block_cache_bytes as u64);
    let (buffers, reads) = (config.journal.write_buffer_bytes as u64, config.limits.read_bytes as u64);
    let event = config.publish.event_bytes as u64 + OF_REQUEST;
    // One subscription whose endpoint hangs with the largest events, each there as it is stored and as it is sent.
    let requests = 2 * event * config.delivery.concurrency as u64;
    let publishers_min = 2 * config.publish.request_bytes as u64;
    let least = BASE + publishers_min + TAIL_MIN + BUFFERS_MIN + CACHE_MIN + READS_MIN + 2 * event;
    if room < least {
        return Err(ServerError::Memory { limit: ByteSize(limit), least: ByteSize(least + least / 7) });
    }
    let wanted = publishers + tail + cache + buffers + reads + requests;
    if BASE + wanted <= room {
        return Ok(());
    }
    // What is beyond the least is shared in proportion.
    let share = |value: u64, min: u64| {
        let (more, all) = (value.saturating_sub(min), wanted.saturating_sub(least - BASE).max(1));
        let share = u128::from(more) * u128::from(room - least) / u128::from(all);
        value.min(min + u64::try_from(share).unwrap_or(u64::MAX))
    };
    let bytes = |value: u64, min: u64| usize::try_from(share(value, min)).unwrap_or(usize::MAX);
    config.publish.bytes_in_flight = bytes(publishers, publishers_min) / 2;
    config.topic.recent_events_bytes = bytes(tail, TAIL_MIN);
    config.journal.block_cache_bytes = bytes(cache, CACHE_MIN);
    config.journal.write_buffer_bytes = bytes(buffers, BUFFERS_MIN);
    config.limits.read_bytes = bytes(reads, READS_MIN);
    config.delivery.concurrency = (bytes(requests, 2 * event) / (2 * event) as usize).max(1);
    let told = |bytes: usize| ByteSize(bytes as u64).to_string();
    tracing::warn!(
        limit = %ByteSize(limit),
        publish.bytes_in_flight = told(config.publish.bytes_in_flight),
        topic.recent_events_bytes = told(config.topic.recent_events_bytes),
        journal.block_cache_bytes = told(config.journal.block_cache_bytes),
        journal.write_buffer_bytes = told(config.journal.write_buffer_bytes),
        limits.read_bytes = told(config.limits.read_bytes),
        delivery.concurrency = config.delivery.concurrency,
        "the control group allows less memory than the settings; these are made smaller to fit"
    );
    Ok(())
}

/// Frees such a page, again and again.
pub(super) async fn return_free_pages() {
    loop {
        tokio::time::sleep(EVERY).await;
        drop(black_box(Vec::<u8>::with_capacity(PIECE)));
    }
}
