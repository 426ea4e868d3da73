use std::thread;

use gridhook::{
    event::{PartitionId, Seq},
    store::{Batch, Family, Store, StoreError, keys},
};

use super::{chunk, keys_in, log_in, put};
use crate::support::memory_store::{MemoryStore, WriteFault, WriteHold};

fn try_put(store: &MemoryStore, key: &str) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    batch.put(Family::Meta, key.as_bytes().to_vec(), &b""[..]);
    store.write(&batch)
}

fn found(store: &MemoryStore) -> Vec<String> {
    let keys = keys_in(store, Family::Meta, b"", b"z");
    keys.into_iter()
        .map(|key| String::from_utf8(key).expect("a name"))
        .collect()
}

#[test]
fn acknowledged_writes_survive_a_crash() {
    let store = MemoryStore::new();
    put(&store, Family::Meta, b"a".to_vec(), &b""[..]);
    assert_eq!(found(&store.crash(0)), ["a"]);
}

#[test]
fn a_store_that_has_crashed_takes_no_more_writes() {
    let store = MemoryStore::new();
    let after = store.crash(0);
    assert!(matches!(try_put(&store, "a"), Err(StoreError::Failed(_))));
    assert!(found(&after).is_empty());
}

#[test]
fn a_full_disk_writes_nothing_and_heals() {
    let store = MemoryStore::new();
    store.fail(1..3, WriteFault::Full);
    try_put(&store, "a").expect("there is room");
    assert!(matches!(try_put(&store, "b"), Err(StoreError::Full)));
    assert!(matches!(try_put(&store, "c"), Err(StoreError::Full)));
    try_put(&store, "d").expect("there is room again");
    assert_eq!(
        (found(&store), store.writes()),
        (vec!["a".to_owned(), "d".to_owned()], 4)
    );
    assert_eq!(found(&store.crash(9)), ["a", "d"]);
}

#[test]
fn a_failed_sync_leaves_its_batch_in_doubt_and_ends_all_writing() {
    for (kept, left) in [(0, vec!["a"]), (1, vec!["a", "b"])] {
        let store = MemoryStore::new();
        store.fail(1..2, WriteFault::Failed);
        try_put(&store, "a").expect("honest");
        assert!(matches!(try_put(&store, "b"), Err(StoreError::Failed(_))));
        assert!(matches!(try_put(&store, "c"), Err(StoreError::Failed(_))));
        assert_eq!(
            found(&store),
            ["a"],
            "what was not acknowledged is not read"
        );
        assert_eq!(found(&store.crash(kept)), left);
    }
}

#[test]
fn a_lying_disk_loses_what_no_later_sync_saved() {
    let store = MemoryStore::new();
    store.fail(0..2, WriteFault::Lie);
    store.fail(3..6, WriteFault::Lie);
    for key in ["a", "b", "c", "d", "e", "f"] {
        try_put(&store, key).expect("it says so");
    }
    assert_eq!(found(&store), ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(store.unsynced(), 3);
    assert_eq!(
        found(&store.crash(0)),
        ["a", "b", "c"],
        "the third, honest, write synced those before it"
    );
    assert_eq!(
        found(&store.crash(2)),
        ["a", "b", "c", "d", "e"],
        "a prefix of the rest"
    );
}

/// A write that waits until the hold is dropped.
fn held_write(store: &MemoryStore) -> (WriteHold, thread::JoinHandle<Result<(), StoreError>>) {
    let hold = store.hold();
    let writer = thread::spawn({
        let store = store.clone();
        move || try_put(&store, "a")
    });
    hold.until_a_write_waits();
    (hold, writer)
}

#[test]
fn a_write_waits_while_it_is_held() {
    let store = MemoryStore::new();
    let (hold, writer) = held_write(&store);
    assert!(found(&store).is_empty());
    drop(hold);
    writer.join().expect("no panic").expect("written");
    assert_eq!(found(&store), ["a"]);
}

#[test]
fn a_write_that_waits_when_the_machine_crashes_fails() {
    let store = MemoryStore::new();
    let (_hold, writer) = held_write(&store);
    let after = store.crash(9);
    assert!(matches!(
        writer.join().expect("no panic"),
        Err(StoreError::Failed(_))
    ));
    assert!(found(&after).is_empty());
}

#[test]
#[should_panic(expected = "was put 2 times")]
fn a_single_delete_of_what_was_put_twice_is_a_bug() {
    let mut batch = Batch::default();
    batch.put(Family::Due, b"k".to_vec(), &b""[..]);
    batch.put(Family::Due, b"k".to_vec(), &b""[..]);
    batch.single_delete(Family::Due, b"k".to_vec());
    let refused = MemoryStore::new().write(&batch);
    unreachable!("{refused:?}");
}

#[test]
#[should_panic(expected = "was put 0 times")]
fn a_single_delete_of_what_is_not_there_is_a_bug() {
    let mut batch = Batch::default();
    batch.single_delete(Family::Due, b"k".to_vec());
    let refused = MemoryStore::new().write(&batch);
    unreachable!("{refused:?}");
}

#[test]
#[should_panic(expected = "both Delete and SingleDelete")]
fn a_family_that_sees_both_kinds_of_delete_is_a_bug() {
    let mut batch = Batch::default();
    batch.put(Family::Due, b"k".to_vec(), &b""[..]);
    batch.single_delete(Family::Due, b"k".to_vec());
    batch.delete(Family::Due, b"l".to_vec());
    let refused = MemoryStore::new().write(&batch);
    unreachable!("{refused:?}");
}

#[test]
fn a_floor_drops_what_is_wholly_below_it_in_its_partition() {
    let store = MemoryStore::new();
    for partition in [1, 2] {
        for first in [1, 11, 21] {
            put(
                &store,
                Family::Log,
                keys::log(PartitionId(partition), Seq(first)),
                chunk(10, 5),
            );
        }
    }
    store.drop_log(PartitionId(1), Seq(15)).expect("dropped");
    assert_eq!(
        (log_in(&store, 1), log_in(&store, 2)),
        (vec![11, 21], vec![1, 11, 21])
    );
    assert_eq!(log_in(&store.crash(0), 1), [11, 21]);
}
