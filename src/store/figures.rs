//! Measurements of a store, for the metrics endpoint.

use crate::store::Family;

/// A store. Counters begin with the process.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    /// Bytes that may still be written to its disk.
    pub free_bytes: Option<u64>,
    /// Its families.
    pub families: Vec<(Family, FamilyFigures)>,
    /// Syncs of the write-ahead log.
    pub wal_syncs: u64,
    /// Bytes that were written to it.
    pub wal_bytes: u64,
    /// Microseconds in which writes had to wait for compactions or flushes.
    pub stalled_micros: u64,
    /// Whether writes are stopped now.
    pub is_stopped: bool,
    /// To how many bytes a second they are slowed down now; 0 where they are not.
    pub delayed_bytes_per_second: u64,
    /// Bytes that compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes that they wrote.
    pub compaction_written_bytes: u64,
    /// Bytes that flushes wrote.
    pub flush_written_bytes: u64,
    /// Compactions that run now.
    pub compactions_running: u64,
    /// Flushes that run now.
    pub flushes_running: u64,
    /// Errors of what it does by itself.
    pub background_errors: u64,
    /// Bytes of the block cache that are in use.
    pub cache_used_bytes: u64,
    /// Bytes that it may use.
    pub cache_capacity_bytes: u64,
    /// Blocks that were found in it.
    pub cache_hits: u64,
    /// Blocks that were not.
    pub cache_misses: u64,
}

/// A family of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyFigures {
    /// Bytes of its files.
    pub table_bytes: u64,
    /// Its files.
    pub tables: u64,
    /// Bytes of it that are in no file yet.
    pub memtable_bytes: u64,
    /// About how many records it has.
    pub keys: u64,
    /// About how many bytes of its files wait for a compaction.
    pub pending_compaction_bytes: u64,
}
