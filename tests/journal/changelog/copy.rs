//! Local stores that follow a changelog: what is refused, stale responses, positions, floors and a
//! lost tail.

use std::{path::Path, sync::Arc};

use gridhook::{
    clock::Clock,
    event::{PartitionId, Seq, Timestamp},
    journal::replicated::{ReplicatedStore, ShardCopy},
    store::{
        Batch, Family, Store,
        keys::{self, MetaKind},
        records::{FloorRecord, StoredRecord},
        rocks::{RocksOptions, RocksStore},
    },
};

use super::{OPTIONS, batch, data, log, owner, take};
use crate::{
    journal::{chunk, copy_folder, log_in, scratch},
    support::{memory_changelog::AppendFault, memory_store::MemoryStore},
};

#[test]
fn a_store_with_data_of_its_own_is_refused() {
    let (memory, log) = log();
    let store = MemoryStore::new();
    store.write(&batch("k", 1, 0)).expect("written");
    let error = take(&log, &store, "a")
        .err()
        .expect("it is not of the log")
        .to_string();
    assert_eq!(
        error,
        "the local store has data that does not come from a changelog; use an empty data folder"
    );
    assert_eq!(memory.appends(), 0);
}

#[test]
fn a_copy_is_behind_what_it_applied_until_a_batch_is_complete() {
    let (memory, log) = log();
    let (first, _) = owner(&log, "a");
    first.write(&batch("k", 1, 0)).expect("it owns the shard");
    memory.fail([AppendFault::None, AppendFault::None, AppendFault::Crash]);
    first.write(&batch("l", 2, 600)).expect_err("it dies");
    let store = MemoryStore::new();
    let mut copy = ShardCopy::open(Arc::new(store.clone()), Arc::clone(&log), OPTIONS)
        .expect("the log is whole");
    assert_eq!(copy.catch_up().expect("the log is whole").sequence, 2);
    assert_eq!(
        (memory.records().len(), copy.applied_position().sequence),
        (4, 2)
    );
    // Records up to its position may be trimmed.
    memory.drop_first(2);
    drop(take(&log, &store, "b").expect("it has the rest"));
}

#[test]
fn stale_answers_of_a_new_leader_are_asked_again() {
    let (memory, log) = log();
    let (first, local) = owner(&log, "a");
    first.write(&batch("k", 1, 0)).expect("it owns the shard");
    for answers in 1..6 {
        memory.answer_stale(answers);
        drop(
            take(&log, &local, "a")
                .unwrap_or_else(|error| panic!("{answers} stale answers: {error}")),
        );
    }
}

#[test]
fn a_copy_frees_the_log_below_the_floors_that_it_applies() {
    let (_, log) = log();
    let (first, _) = owner(&log, "a");
    for seq in [1, 11, 21] {
        let mut batch = Batch::default();
        batch.put(
            Family::Log,
            keys::log(PartitionId(1), Seq(seq)),
            chunk(10, 9),
        );
        first.write(&batch).expect("it owns the shard");
    }
    let mut batch = Batch::default();
    let record = FloorRecord {
        floor: Seq(15),
        ..FloorRecord::default()
    };
    batch.put(
        Family::Meta,
        keys::floor_key(PartitionId(1)),
        record.encode(),
    );
    first.write(&batch).expect("it owns the shard");
    let store = MemoryStore::new();
    let mut copy =
        ShardCopy::open(Arc::new(store.clone()), log, OPTIONS).expect("the log is whole");
    copy.catch_up().expect("the log is whole");
    assert_eq!(log_in(&store, 1), [11, 21]);
}

#[test]
fn a_store_on_disk_that_lost_its_unsynced_tail_follows_the_log_again() {
    let (memory, log) = log();
    let folder = scratch();
    let killed = scratch();
    let open = |folder: &Path| {
        let rocks =
            RocksStore::open(folder, &RocksOptions::default()).expect("whole up to its watermark");
        let (clock, _hand) = Clock::new_manual(Timestamp(1_000_000));
        ReplicatedStore::take_shard(Arc::new(rocks), Arc::clone(&log), "a", clock, OPTIONS)
            .expect("no longer than the log")
    };
    let first = open(folder.path());
    let write = |owner: &ReplicatedStore, value: u64| {
        owner.write(&batch(&format!("k{}", value % 7), value, 300))
    };
    (0..20).for_each(|value| write(&first, value).expect("it owns the shard"));
    first.note_watermark().expect("noted");
    // The state after a power cut: the logs as they were at the last sync.
    copy_folder(folder.path(), killed.path()).expect("copied");
    (20..40).for_each(|value| write(&first, value).expect("it owns the shard"));
    let last = memory.records().len() as u64;
    assert_eq!(first.applied_sequence(), last);
    let again = open(killed.path());
    assert_eq!(
        (again.epoch(), again.applied_sequence()),
        (last + 1, last + 1)
    );
    let mut found = data(&again);
    found.remove(&(Family::Meta, keys::meta_key(MetaKind::Format, b"")));
    assert_eq!(found, data(&owner(&log, "b").1));
}
