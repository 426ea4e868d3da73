//! What the nodes know of records that the changelog of each shard has acknowledged.
//!
//! Every node writes the highest mark that it knows to its record, and an owner to that of its
//! shard. So it outlives a store, a node and a bucket that was restored from an older backup, as
//! long as one of the others is left. A changelog that ends below the mark has lost records, and no
//! node takes the shard with it.
//!
//! Two marks that contradict each other show that a node went on with such a changelog. Then no
//! node takes the shard: each branch may have events that the other one lacks, and an operator
//! decides.

use super::records::ClusterRecords;
use gridhook_journal::changelog::{KnownMarks, StreamMark};

/// The marks of all shards, as one node knows them.
pub(super) struct ShardMarks(Vec<KnownMarks>);

impl ShardMarks {
    pub(super) fn new(shards: usize) -> Self {
        Self(vec![KnownMarks::default(); shards])
    }

    pub(super) fn known(&self, shard: usize) -> KnownMarks {
        self.0.get(shard).copied().unwrap_or_default()
    }

    /// Raises the highest mark. A mark that contradicts it leaves it as it is.
    pub(super) fn note(&mut self, shard: usize, mark: StreamMark) {
        let Some(known) = self.0.get_mut(shard) else {
            return;
        };
        if known.highest.contradicts(mark) {
            known.conflict.get_or_insert([known.highest, mark]);
        } else {
            known.highest.raise(mark);
        }
    }

    /// Records the marks of all records.
    pub(super) fn note_records(&mut self, records: &ClusterRecords) {
        for shard in 0..self.0.len() {
            records.marks(shard).for_each(|mark| self.note(shard, mark));
        }
    }
}
