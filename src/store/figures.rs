//! Measurements of a store, for the metrics endpoint.

use crate::Family;

/// Measurements of a store. Counters start at 0 with the process.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    /// Free bytes on the store's disk.
    pub free_bytes: Option<u64>,
    pub families: Vec<(Family, FamilyFigures)>,
    /// Syncs of the write-ahead log.
    pub wal_syncs: u64,
    /// Bytes written to the write-ahead log.
    pub wal_bytes: u64,
    /// Microseconds that writes waited for compactions or flushes.
    pub stalled_micros: u64,
    pub is_stopped: bool,
    /// The rate that writes are limited to now, in bytes a second; 0 if they are not limited.
    pub delayed_bytes_per_second: u64,
    pub compaction_read_bytes: u64,
    pub compaction_written_bytes: u64,
    pub flush_written_bytes: u64,
    pub compactions_running: u64,
    pub flushes_running: u64,
    /// Errors of flushes and compactions.
    pub background_errors: u64,
    /// Bytes in use in the block cache.
    pub cache_used_bytes: u64,
    /// Capacity of the block cache, in bytes.
    pub cache_capacity_bytes: u64,
    /// Blocks found in the block cache.
    pub cache_hits: u64,
    pub cache_misses: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyFigures {
    pub table_bytes: u64,
    pub tables: u64,
    /// Bytes in memory tables, not yet in a file.
    pub memtable_bytes: u64,
    pub keys: u64,
    /// Estimated bytes that wait for compaction.
    pub pending_compaction_bytes: u64,
}
