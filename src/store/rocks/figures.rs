//! Measurements of RocksDB: its properties, and the counters of its statistics, which it returns as
//! text.

use rocksdb::properties;

use super::RocksStore;
use crate::{
    Family,
    figures::{FamilyFigures, StoreFigures},
};

/// The number of levels of a family: RocksDB's default.
const LEVELS: usize = 7;

impl RocksStore {
    /// Reads all measurements. RocksDB takes locks for a moment; no disk is read, except to find
    /// the free space.
    pub(super) fn read_figures(&self) -> StoreFigures {
        let whole = |name| or_zero(self.db.property_int_value(name));
        let text = self
            .db
            .property_value(properties::OPTIONS_STATISTICS)
            .ok()
            .flatten()
            .unwrap_or_default();
        let ticker = |name| parse_ticker(&text, name);
        let log = self.column_family(Family::Log);
        let of_log = |name| or_zero(self.db.property_int_value_cf(log, name));
        StoreFigures {
            free_bytes: self.free_bytes().ok(),
            families: Family::ALL
                .map(|family| (family, self.figures_of(family)))
                .to_vec(),
            wal_syncs: ticker("rocksdb.wal.synced"),
            wal_bytes: ticker("rocksdb.wal.bytes"),
            stalled_micros: ticker("rocksdb.stall.micros"),
            is_stopped: whole(properties::IS_WRITE_STOPPED) > 0,
            delayed_bytes_per_second: whole(properties::ACTUAL_DELAYED_WRITE_RATE),
            compaction_read_bytes: ticker("rocksdb.compact.read.bytes"),
            compaction_written_bytes: ticker("rocksdb.compact.write.bytes"),
            flush_written_bytes: ticker("rocksdb.flush.write.bytes"),
            compactions_running: whole(properties::NUM_RUNNING_COMPACTIONS),
            flushes_running: whole(properties::NUM_RUNNING_FLUSHES),
            background_errors: whole(properties::BACKGROUND_ERRORS),
            // All families share one cache.
            cache_used_bytes: of_log(properties::BLOCK_CACHE_USAGE),
            cache_capacity_bytes: of_log(properties::BLOCK_CACHE_CAPACITY),
            cache_hits: ticker("rocksdb.block.cache.hit"),
            cache_misses: ticker("rocksdb.block.cache.miss"),
        }
    }

    fn figures_of(&self, family: Family) -> FamilyFigures {
        let handle = self.column_family(family);
        let whole = |name| or_zero(self.db.property_int_value_cf(handle, name));
        let tables = |level| {
            let name = properties::num_files_at_level(level);
            or_zero(self.db.property_int_value_cf(handle, &*name))
        };
        FamilyFigures {
            table_bytes: whole(properties::LIVE_SST_FILES_SIZE),
            tables: (0..LEVELS).map(tables).sum(),
            memtable_bytes: whole(properties::CUR_SIZE_ALL_MEM_TABLES),
            keys: whole(properties::ESTIMATE_NUM_KEYS),
            pending_compaction_bytes: whole(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
        }
    }
}

/// Parses a counter of the statistics. A line is `rocksdb.wal.synced COUNT : 12`.
fn parse_ticker(text: &str, name: &str) -> u64 {
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_prefix("COUNT :"));
    count.map_or(0, |count| count.trim().parse().unwrap_or(0))
}

/// A property, or 0 if it is unknown: missing measurements are no reason to fail.
fn or_zero(property: Result<Option<u64>, rocksdb::Error>) -> u64 {
    property.ok().flatten().unwrap_or(0)
}
