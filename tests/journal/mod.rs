//! Tests of `store`, `journal` and `repair`: record formats, both stores, the writer, damage,
//! checks and repairs.

mod backlog;
mod backups;
mod behaviour;
mod changelog;
mod chunks;
mod damage;
mod duplicates;
mod formats;
mod fsck;
mod full_disk;
mod id_filter;
mod keys;
mod ledger;
mod memory;
mod options;
mod pages;
mod position;
mod prefixes;
mod records;
mod repository;
mod rocks;
mod sabotage;
mod shards;
mod tables;
mod transfers;
mod trims;
mod watermark;
pub(crate) mod writer;

use std::{fs, io, ops::ControlFlow, path::Path};

use bytes::{BufMut, Bytes};
use gridhook::{
    event::{
        EventRanges, Schema, Seq, TextRange, Timestamp,
        chunk::{ChunkBuilder, EncodedEvent, RunningTotals},
    },
    store::{Batch, Family, Store},
};

/// A stamped chunk of `count` events with `bytes` bytes each.
fn chunk(count: u32, bytes: usize) -> Bytes {
    let mut draft = ChunkBuilder::new(Schema::EventGrid);
    for index in 0..count {
        draft.push(|out| {
            let start = out.len() as u32;
            let mut noise = u64::from(index) + 1;
            out.extend((0..bytes).map(|_| {
                // Bytes that do not compress.
                noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (noise >> 56) as u8
            }));
            let wire_end = out.len();
            out.put_slice(b"tail");
            EncodedEvent {
                wire_end,
                ranges: EventRanges {
                    id: TextRange {
                        start,
                        len: bytes.min(9) as u32,
                    },
                    ..EventRanges::default()
                },
            }
        });
    }
    let sealed = draft.into_chunks();
    assert!(sealed.len() <= 1, "too much for one chunk");
    let sealed = sealed.into_iter().next().expect("a chunk has events");
    sealed.stamp_record(
        Timestamp(1_000),
        RunningTotals {
            count: 7,
            bytes: 70,
        },
    )
}

fn put(store: &impl Store, family: Family, key: Vec<u8>, value: impl Into<Bytes>) {
    let mut batch = Batch::default();
    batch.put(family, key, value);
    store.write(&batch).expect("an honest store writes");
}

fn keys_in(store: &impl Store, family: Family, from: &[u8], upper: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let visit = &mut |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    };
    store
        .scan(family, from, upper, visit)
        .expect("a store that is whole can be read");
    keys
}

/// The first sequences of a partition's chunks.
fn log_in(store: &impl Store, partition: u32) -> Vec<u64> {
    use gridhook::{event::PartitionId, store::keys};
    let range = keys::log_of(PartitionId(partition));
    let keys = keys_in(store, Family::Log, &range.start, &range.end);
    keys.iter()
        .map(|key| {
            keys::parse_log(key)
                .map(|(_, Seq(first))| first)
                .expect("a key of the log")
        })
        .collect()
}

/// A folder for tests that open hundreds of stores: in memory if possible, because syncs are fast
/// there.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    folder.expect("a folder")
}

/// Copies a folder: the state of the disk if the process were killed now.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if entry.file_name() != "ballast" {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
