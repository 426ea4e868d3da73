//! The configuration of RocksDB.
//!
//! Not used, on purpose:
//! - `manual_wal_flush`: a full disk would be a fatal error.
//! - Unordered and pipelined writes, two write queues, `wal_bytes_per_sync`: they allow gaps in the
//!   log.
//! - Recycled logs: old records would follow new ones.
//! - Range deletes, and `min_tombstones_for_range_conversion`, which creates them: range deletes
//!   slow every seek, and the option is new. Instead, drained ranges are compacted because of their
//!   deletes.
//! - `atomic_flush`: a batch over several families is atomic as long as there is a write-ahead log.
//! - `use_fsync`: `fdatasync` also syncs a file's length.
//! - `best_efforts_recovery` and other recovery modes: missing data is reported and never skipped.
//! - Checks that are on by default stay on: `paranoid_checks`, unique ids of tables in the
//!   manifest, and record counts at each flush and compaction. A test reads all options back from
//!   RocksDB's options file.
//!
//! Counters take 640 KiB, whatever is counted: all counters and histograms for each of eight
//! processors or more. Stores beside others share them.
//!
//! Options without a setter are set first, with an option string: the string creates new options,
//! and of the objects that setters attached to the old ones only the counters are kept.

use std::sync::LazyLock;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType,
    DBRecoveryMode, LogLevel, Options, WriteOptions, statistics::StatsLevel,
};

use super::floors::PartitionFloors;
use crate::Family;

/// 8 MiB for each family: RocksDB recovers from a full disk when the size of one buffer is free.
pub(super) const BUFFER: usize = 8 << 20;

/// 256 KiB instead of 1 MiB: otherwise twelve families with a few records each would fill a third
/// of all buffers.
const ARENA: usize = 256 << 10;

/// 256 KiB instead of 1 MiB: RocksDB gets a larger buffer for each file from the kernel, which
/// clears each of its pages, and what is in it has left the processor's caches when it is written.
const FILE_BUFFER: u64 = 256 << 10;

/// 1 MiB: a table is given to the disk while it is written. Otherwise all of it is written at its
/// end, and syncs of the write-ahead log wait for it, because a file system commits the changes of
/// its files together.
const TABLE_SYNC: u64 = 1 << 20;

/// 32 MiB: whole files of the log are deleted, so small ones free space sooner; all files are kept
/// open, so there must not be many.
const LOG_FILE: u64 = 32 << 20;

/// The period after which RocksDB compacts a file again, of the log and of ids: one day. By then
/// everything that may be removed is removed, wherever it is.
const RECOMPACT_AFTER_S: u64 = 24 * 60 * 60;

/// 100 deletes among 1,000 adjacent records trigger a compaction, so that a queue that is drained
/// from its head does not slow seeks.
const DELETES: (usize, usize) = (1000, 100);

/// RocksDB's name of the option that turns off compactions of a family.
pub(super) const NO_COMPACTIONS: &str = "disable_auto_compactions";

/// Options that an operator can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocksOptions {
    /// Maximum size of the ledger. Its oldest lines are removed beyond it.
    pub ledger_bytes: u64,
    /// Maximum size of the stored response excerpts. The oldest are removed beyond it.
    pub excerpts_bytes: u64,
    pub cache_bytes: usize,
    /// Memory for records that are not in a file yet, for all families together.
    pub buffers_bytes: usize,
    /// Maximum size of the write-ahead log. At this size, families that are rarely written are
    /// flushed so that the log can be cut. It bounds what is read again at start.
    pub wal_bytes: u64,
    /// Maximum number of open tables; -1 for no limit. Beyond it, tables are opened when they are
    /// read.
    pub open_tables: i32,
    /// Whether the process has stores beside this one, in folders of the same folder. Most of them
    /// are idle, and take no space in advance: their ballast is one file in that folder, their logs
    /// grow as they are written, and they count together.
    pub is_beside_others: bool,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self {
            ledger_bytes: 1 << 30,
            excerpts_bytes: 128 << 20,
            cache_bytes: 64 << 20,
            buffers_bytes: 32 << 20,
            wal_bytes: 64 << 20,
            open_tables: -1,
            is_beside_others: false,
        }
    }
}

/// The options of writes that are synced before they return.
pub(super) fn synced_writes() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

pub(super) fn new_store(wanted: &RocksOptions) -> Result<Options, rocksdb::Error> {
    let mut options = store_options(wanted)?;
    options.create_if_missing(true);
    Ok(options)
}

/// Options for the whole store. They do not create a missing store.
pub(super) fn store_options(wanted: &RocksOptions) -> Result<Options, rocksdb::Error> {
    let mut counting = if wanted.is_beside_others {
        SHARED_COUNTERS.clone()
    } else {
        counting_options()
    };
    // The first option lets a store open on a full disk; the second refuses a store whose older
    // logs are missing; the manifest of most stores has a few kilobytes, and not 4 MiB.
    let mut options = counting.get_options_from_string(format!(
        "avoid_flush_during_recovery=true;track_and_verify_wals=true;\
         manifest_preallocation_size=65536;allow_fallocate={}",
        !wanted.is_beside_others
    ))?;
    // Families that an older program did not have are created; the format decides whether that is
    // allowed.
    options.create_missing_column_families(true);
    // RocksDB's default would silently drop acknowledged records after a flipped bit.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // One limit for all families: separate limits would need several times the memory for the same
    // effect.
    options.set_db_write_buffer_size(wanted.buffers_bytes);
    options.set_max_total_wal_size(wanted.wal_bytes);
    options.set_max_open_files(wanted.open_tables);
    // One flush and three compactions: more would take CPU from delivery.
    options.set_max_background_jobs(4);
    options.set_writable_file_max_buffer_size(FILE_BUFFER);
    options.set_bytes_per_sync(TABLE_SYNC);
    // RocksDB's own log is for investigating failures: only warnings, at most 16 MiB, and no
    // statistics every ten minutes, which would use up the last space on a full disk.
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(4 << 20);
    options.set_keep_log_file_num(4);
    options.set_stats_dump_period_sec(0);
    Ok(options)
}

/// The counters of the stores of a process that has several.
static SHARED_COUNTERS: LazyLock<Options> = LazyLock::new(counting_options);

/// Default options with counters.
fn counting_options() -> Options {
    let mut options = Options::default();
    options.enable_statistics();
    // Counters only: timers and histograms would cost time at every read, and the journal measures
    // syncs itself.
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    options
}

/// Options for a copy of a damaged store, from which everything readable is recovered. Recovered
/// records are flushed at once, so the damaged logs are not read again.
pub(super) fn damaged_store_options(wanted: &RocksOptions) -> Result<Options, rocksdb::Error> {
    let mut options = store_options(wanted)?
        .get_options_from_string("track_and_verify_wals=false;avoid_flush_during_recovery=false")?;
    // Recovery up to the first damage is not enough: RocksDB refuses it if any family was flushed
    // after that point.
    options.set_wal_recovery_mode(DBRecoveryMode::SkipAnyCorruptedRecord);
    // A missing table, or one with an unreadable index, is an error only when it is read.
    options.set_paranoid_checks(false);
    Ok(options)
}

/// Options for an unused family. Its buffer must be small too: RocksDB recovers from a full disk
/// only when the largest buffer of any family is free, and its default is 64 MiB.
pub(super) fn unused_family_options() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(BUFFER);
    options
}

pub(super) fn family_options(
    family: Family,
    wanted: &RocksOptions,
    cache: &Cache,
    floors: &PartitionFloors,
) -> Result<Options, rocksdb::Error> {
    let mut options = match family {
        Family::Ledger => fifo_options(wanted.ledger_bytes)?,
        Family::Excerpt => fifo_options(wanted.excerpts_bytes)?,
        Family::Meta
        | Family::Log
        | Family::Cursor
        | Family::Pending
        | Family::Due
        | Family::Carried
        | Family::Pin
        | Family::Dead
        | Family::Ids
        | Family::PublishedIds => Options::default(),
    };
    options.set_write_buffer_size(BUFFER);
    options.set_arena_block_size(ARENA);
    let mut table = BlockBasedOptions::default();
    // Indexes and filters are cached like blocks, so the cache bounds memory, however many files
    // are open. Those of the newest files stay, because every read uses them.
    table.set_block_cache(cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let (window, deletes) = DELETES;
    match family {
        Family::Log => {
            // Chunks are large and are read in order, and larger blocks compress better. Records of
            // the other families are small, are read one by one and hardly compress.
            table.set_block_size(16 << 10);
            // Most events are delivered and removed before they reach the third level, so nothing
            // is compressed on the way there. Only a backlog is.
            let new = DBCompressionType::None;
            let lz4 = DBCompressionType::Lz4;
            options.set_compression_type(lz4);
            options.set_compression_per_level(&[new, new, lz4]);
            options.set_target_file_size_base(LOG_FILE);
            options.set_periodic_compaction_seconds(RECOMPACT_AFTER_S);
            options.set_compaction_filter_factory(floors.clone());
            // New buffers can fill while two are being flushed.
            options.set_max_write_buffer_number(4);
        }
        Family::Ids => {
            // Bits of Bloom filters do not compress.
            options.set_compression_type(DBCompressionType::None);
            options.set_periodic_compaction_seconds(RECOMPACT_AFTER_S);
            options.set_compaction_filter_factory(floors.clone());
        }
        Family::PublishedIds => {
            // Keys are random, so a compaction of the first level rewrites the next one too, and
            // drops what has ended.
            options.set_compression_type(DBCompressionType::None);
            options.set_periodic_compaction_seconds(RECOMPACT_AFTER_S);
            options.set_compaction_filter_factory(floors.clone());
            // Nearly every lookup is for an id that is not there. Filters are read in parts: those
            // of a week of ids are larger than the cache.
            table.set_bloom_filter(10.0, false);
            table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
            table.set_partition_filters(true);
        }
        Family::Ledger | Family::Excerpt => {
            table.set_block_size(16 << 10);
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_compaction_style(DBCompactionStyle::Fifo);
        }
        Family::Carried => {
            table.set_block_size(16 << 10);
            table.set_bloom_filter(10.0, false);
            options.set_compression_type(DBCompressionType::Lz4);
            options.add_compact_on_deletion_collector_factory(window, deletes, 0.0);
        }
        Family::Pending => {
            // Most lookups are for single events that have no record, as in `Family::Carried`.
            table.set_bloom_filter(10.0, false);
            options.set_compression_type(DBCompressionType::None);
            options.add_compact_on_deletion_collector_factory(window, deletes, 0.0);
        }
        Family::Due | Family::Pin | Family::Dead => {
            options.set_compression_type(DBCompressionType::None);
            options.add_compact_on_deletion_collector_factory(window, deletes, 0.0);
        }
        Family::Meta | Family::Cursor => options.set_compression_type(DBCompressionType::None),
    }
    options.set_block_based_table_factory(&table);
    Ok(options)
}

/// The options of a family that drops its oldest tables above this size.
fn fifo_options(bytes: u64) -> Result<Options, rocksdb::Error> {
    Options::default().get_options_from_string(format!(
        // Limit by size only: a limit by age needs all tables open.
        "ttl=0;compaction_options_fifo={{max_table_files_size={bytes};allow_compaction=true}}"
    ))
}
