//! How RocksDB is set up. Every line has a reason; a line that is missing has one too.
//!
//! Absent on purpose:
//! - `manual_wal_flush`: a full disk is then fatal.
//! - Unordered and pipelined writes, two write queues, `wal_bytes_per_sync`: holes in the log.
//! - Recycling of logs: old records behind new ones.
//! - Range deletes, and `min_tombstones_for_range_conversion`, which makes them: the one slows every seek, the other is
//!   young. What drains is compacted by its deletes instead.
//! - `atomic_flush`: one batch over several families is atomic while there is a log.
//! - `use_fsync`: `fdatasync` is as safe for a file whose length it syncs too.
//! - `best_efforts_recovery`, and any recovery but one: what is missing is told and never skipped.
//! - Checks that are on by themselves stay on: `paranoid_checks`, unique ids of tables in the manifest, the counts of
//!   records at each flush and compaction. A test reads all of this back from RocksDB's own file of options.
//!
//! What has no setter is set by an option string, first: the string makes new options out of old ones, and what setters
//! attached to the old ones would not follow.

use rocksdb::{
    BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType, DBRecoveryMode, LogLevel, Options, WriteOptions,
    statistics::StatsLevel,
};

use super::floors::PartitionFloors;
use crate::store::Family;

/// 8 MiB for each family: RocksDB heals from a full disk when one buffer's worth is free.
pub(super) const BUFFER: usize = 8 << 20;

/// 256 KiB instead of 1 MiB: eleven families that hold a few records each shall not take a third of all buffers.
const ARENA: usize = 256 << 10;

/// 32 MiB: the log's files are dropped whole, so small ones give space back sooner; and they are all open, so they must
/// not be many.
const LOG_FILE: u64 = 32 << 20;

/// A day: a chunk below the floor goes then at the latest, wherever it is.
const LOG_PERIOD_S: u64 = 24 * 60 * 60;

/// Of 1,000 records beside each other, 100 taken away: a queue that is drained from its head is compacted before
/// seeking becomes slow.
const DELETES: (usize, usize) = (1000, 100);

/// RocksDB's name of the option that leaves a family's tables as they are.
pub(super) const SPARE: &str = "disable_auto_compactions";

/// What an operator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocksOptions {
    /// How large the ledger may grow before its oldest lines go.
    pub ledger_bytes: u64,
    /// How large what endpoints said may grow before the oldest of it goes.
    pub excerpts_bytes: u64,
    /// How much memory blocks of the store may take for reading.
    pub cache_bytes: usize,
    /// How much memory all families together may take for what is not in a file yet.
    pub buffers_bytes: usize,
    /// How large the write-ahead log may grow: a family that is seldom written keeps it from being cut; at this size it
    /// is flushed. It bounds what is read again at start.
    pub wal_bytes: u64,
    /// How many tables are open at once, at most; -1 for all of them. Further ones are opened when they are read.
    pub open_tables: i32,
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
        }
    }
}

/// The one kind of write there is. Writes of different kinds would not share a sync.
pub(super) fn synced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

/// What holds for a store that is yet to be made.
pub(super) fn new_store(set: &RocksOptions) -> Result<Options, rocksdb::Error> {
    let mut options = store(set)?;
    options.create_if_missing(true);
    Ok(options)
}

/// What holds for the whole store. A store that is gone is not made anew in its place.
pub(super) fn store(set: &RocksOptions) -> Result<Options, rocksdb::Error> {
    // The first lets a store open on a full disk; the second refuses one whose older logs are missing.
    let mut options =
        Options::default().get_options_from_string("avoid_flush_during_recovery=true;track_and_verify_wals=true")?;
    // A family that this program has and an older one had not is made; the format says whether that is meant.
    options.create_missing_column_families(true);
    // RocksDB's default would drop acknowledged records behind a flipped bit, in silence.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // One bound for all families: nine that each had their own would need nine times the memory to be as lazy.
    options.set_db_write_buffer_size(set.buffers_bytes);
    options.set_max_total_wal_size(set.wal_bytes);
    options.set_max_open_files(set.open_tables);
    // One flush and three compactions: of more, the cores that deliver would notice.
    options.set_max_background_jobs(4);
    // RocksDB's own log is for whoever looks into an accident: warnings, 16 MiB of them at most, and no figures every ten
    // minutes, which on a full disk would be what takes the last of the room.
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(4 << 20);
    options.set_keep_log_file_num(4);
    options.set_stats_dump_period_sec(0);
    // Counters alone: times and histograms would be taken at every read, and what a sync takes we measure ourselves.
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    Ok(options)
}

/// What holds for a copy of a damaged store, of which everything is taken that can be read. That is flushed at once: the damaged
/// logs are not read again.
pub(super) fn damaged(set: &RocksOptions) -> Result<Options, rocksdb::Error> {
    let mut options =
        store(set)?.get_options_from_string("track_and_verify_wals=false;avoid_flush_during_recovery=false")?;
    // Up to the first damage would not do: RocksDB refuses that where any family was flushed behind it.
    options.set_wal_recovery_mode(DBRecoveryMode::SkipAnyCorruptedRecord);
    // A table that is missing, or whose index cannot be read, is found out about when it is read.
    options.set_paranoid_checks(false);
    options.create_missing_column_families(true);
    Ok(options)
}

/// What holds for a family that we do not use. Its buffer counts all the same: RocksDB does not heal from a full disk
/// before as much is free as the largest buffer of any family has, and its default is 64 MiB.
pub(super) fn unused() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(BUFFER);
    options
}

/// What holds for one family.
pub(super) fn family(
    family: Family,
    wanted: &RocksOptions,
    cache: &Cache,
    floors: &PartitionFloors,
) -> Result<Options, rocksdb::Error> {
    let bounded = |bytes: u64| {
        Options::default().get_options_from_string(format!(
            // By size alone: an age would also need all tables open, whatever the process may open.
            "ttl=0;compaction_options_fifo={{max_table_files_size={bytes};allow_compaction=true}}"
        ))
    };
    let mut options = match family {
        Family::Ledger => bounded(wanted.ledger_bytes)?,
        Family::Excerpt => bounded(wanted.excerpts_bytes)?,
        Family::Meta
        | Family::Log
        | Family::Cursor
        | Family::Pending
        | Family::Due
        | Family::Held
        | Family::Pin
        | Family::Dead
        | Family::Ids => Options::default(),
    };
    options.set_write_buffer_size(BUFFER);
    options.set_arena_block_size(ARENA);
    let mut table = BlockBasedOptions::default();
    // Indexes and filters count as blocks: memory is bounded by the cache, however many files are open. Those of the newest
    // files, which every read asks, stay.
    table.set_block_cache(cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let (window, deletes) = DELETES;
    match family {
        Family::Log => {
            // Chunks are read in order and are large: larger blocks compress better. The other families are read record by
            // record and are small and hardly compress.
            table.set_block_size(16 << 10);
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_target_file_size_base(LOG_FILE);
            options.set_periodic_compaction_seconds(LOG_PERIOD_S);
            options.set_compaction_filter_factory(floors.clone());
            // A second buffer may fill while two are being flushed.
            options.set_max_write_buffer_number(4);
        }
        Family::Ids => {
            // The filters of 64 blocks of the log: bits that are as good as random.
            options.set_compression_type(DBCompressionType::None);
            options.set_periodic_compaction_seconds(LOG_PERIOD_S);
            options.set_compaction_filter_factory(floors.clone());
        }
        Family::Ledger | Family::Excerpt => {
            table.set_block_size(16 << 10);
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_compaction_style(DBCompactionStyle::Fifo);
        }
        Family::Held => {
            table.set_block_size(16 << 10);
            table.set_bloom_filter(10.0, false);
            options.set_compression_type(DBCompressionType::Lz4);
            options.add_compact_on_deletion_collector_factory(window, deletes, 0.0);
        }
        Family::Pending => {
            // Asked for single events that are mostly not there, like `held`.
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
