//! The rules that hold over every changelog.

use std::sync::Arc;

use gridhook::{
    journal::{
        changelog::{Changelog, ChangelogError},
        replicated::{OwnershipEnd, ShardCopy},
    },
    store::{Batch, Family, Store, StoreError},
};

use super::{OPTIONS, batch, contents, data, owner, take};
use crate::support::{memory_changelog::MemoryChangelog, memory_store::MemoryStore};

/// A rule, on an empty log. The second value is another connection to the same log.
pub(super) type Rule = fn(Arc<dyn Changelog>, Arc<dyn Changelog>);

pub(super) const RULES: [(&str, Rule); 7] = [
    (
        "a log takes a record only behind the expected one",
        a_log_takes_a_record_only_behind_the_expected_one,
    ),
    (
        "a log is trimmed up to a record",
        a_log_is_trimmed_up_to_a_record,
    ),
    (
        "a second owner fences the first",
        a_second_owner_fences_the_first,
    ),
    (
        "an empty folder becomes the same store",
        an_empty_folder_becomes_the_same_store,
    ),
    (
        "a fenced owner follows without a new copy",
        a_fenced_owner_follows_without_a_new_copy,
    ),
    (
        "a released shard has no owner",
        a_released_shard_has_no_owner,
    ),
    (
        "a batch is written with all its operations or not at all",
        a_batch_is_written_with_all_its_operations,
    ),
];

fn a_log_takes_a_record_only_behind_the_expected_one(
    log: Arc<dyn Changelog>,
    other: Arc<dyn Changelog>,
) {
    assert_eq!(log.bounds().expect("reachable").last, 0);
    assert_eq!(log.append(&"a".into(), Some(0)), Ok(1));
    assert_eq!(
        other.append(&"b".into(), Some(0)),
        Err(ChangelogError::WrongLast)
    );
    assert_eq!(
        other.append(&"b".into(), Some(2)),
        Err(ChangelogError::WrongLast)
    );
    assert_eq!(other.append(&"b".into(), Some(1)), Ok(2));
    assert_eq!(log.append(&"c".into(), None), Ok(3));
    let bounds = log.bounds().expect("a log");
    assert_eq!((bounds.first, bounds.last), (1, 3));
    assert!(bounds.bytes > 0);
    for (from, most, expected) in [
        (1, 9, vec!["a", "b", "c"]),
        (2, 1, vec!["b"]),
        (3, 4, vec!["c"]),
        (4, 1, vec![]),
    ] {
        assert_eq!(
            other.read(from, most).expect("readable"),
            expected,
            "{most} from {from}"
        );
    }
}

fn a_log_is_trimmed_up_to_a_record(log: Arc<dyn Changelog>, other: Arc<dyn Changelog>) {
    for sequence in 0..5 {
        assert_eq!(
            log.append(&vec![b'r'; 100].into(), Some(sequence)),
            Ok(sequence + 1)
        );
    }
    for (through, keep_bytes, first) in
        [(2, 1 << 20, 1), (0, 0, 1), (2, 0, 3), (1, 0, 3), (99, 0, 5)]
    {
        log.trim(through, keep_bytes).expect("reachable");
        let bounds = other.bounds().expect("reachable");
        assert_eq!(
            (bounds.first, bounds.last),
            (first, 5),
            "through {through}, keeping {keep_bytes}"
        );
    }
    assert_eq!(other.append(&"next".into(), Some(5)), Ok(6));
    assert_eq!(other.read(4, 1).expect("readable"), [""; 0]);
}

fn a_second_owner_fences_the_first(log: Arc<dyn Changelog>, other: Arc<dyn Changelog>) {
    let (first, local) = owner(&log, "a");
    first.write(&batch("k", 1, 0)).expect("it owns the shard");
    let (second, _) = owner(&other, "b");
    assert!(second.epoch() > first.epoch());
    let before = contents(&local);
    let last = other.bounds().expect("reachable").last;
    for _ in 0..2 {
        assert!(matches!(
            first.write(&batch("k", 2, 0)),
            Err(StoreError::Failed(_))
        ));
        assert_eq!(first.ownership_end(), Some(&OwnershipEnd::Fenced));
    }
    assert_eq!(first.release_shard(), Err(OwnershipEnd::Fenced));
    assert_eq!(
        (contents(&local), other.bounds().expect("reachable").last),
        (before, last),
        "nothing was written"
    );
    second.write(&batch("k", 3, 0)).expect("it owns the shard");
}

fn an_empty_folder_becomes_the_same_store(log: Arc<dyn Changelog>, other: Arc<dyn Changelog>) {
    let (first, local) = owner(&log, "a");
    for index in 0..20 {
        first
            .write(&batch(
                &format!("k{}", index % 7),
                index,
                (index as usize * 97) % 900,
            ))
            .expect("written");
    }
    first.write(&Batch::default()).expect("nothing to write");
    let (_, copied) = owner(&other, "b");
    assert_eq!(data(&local), data(&copied));
    // Through a log whose owner has changed, too.
    let mut copy =
        ShardCopy::open(Arc::new(MemoryStore::new()), log, OPTIONS).expect("the log is whole");
    assert_eq!(
        copy.catch_up().expect("the log is whole").sequence,
        other.bounds().expect("reachable").last
    );
}

fn a_fenced_owner_follows_without_a_new_copy(log: Arc<dyn Changelog>, other: Arc<dyn Changelog>) {
    let (first, local) = owner(&log, "a");
    first.write(&batch("k", 1, 500)).expect("it owns the shard");
    let (second, newer) = owner(&other, "b");
    second
        .write(&batch("l", 2, 500))
        .expect("it owns the shard");
    assert!(first.write(&batch("k", 3, 500)).is_err());
    let mut copy = ShardCopy::open(Arc::new(local.clone()), Arc::clone(&log), OPTIONS)
        .expect("no longer than the log");
    copy.catch_up().expect("the log is whole");
    assert_eq!(contents(&local), contents(&newer));
    take(&log, &local, "a")
        .expect("it may own again")
        .write(&batch("k", 3, 0))
        .expect("it owns the shard");
    assert!(second.write(&batch("l", 4, 0)).is_err());
}

fn a_released_shard_has_no_owner(log: Arc<dyn Changelog>, other: Arc<dyn Changelog>) {
    let (first, local) = owner(&log, "a");
    first.write(&batch("k", 1, 0)).expect("it owns the shard");
    assert_eq!(first.release_shard(), Ok(()));
    assert_eq!(first.release_shard(), Err(OwnershipEnd::Released));
    assert!(first.write(&batch("k", 2, 0)).is_err());
    assert_eq!(first.ownership_end(), Some(&OwnershipEnd::Released));
    let (second, copied) = owner(&other, "b");
    assert_eq!(data(&local), data(&copied));
    second.write(&batch("k", 3, 0)).expect("it owns the shard");
}

fn a_batch_is_written_with_all_its_operations(log: Arc<dyn Changelog>, other: Arc<dyn Changelog>) {
    let (first, local) = owner(&log, "a");
    let mut all = Batch::default();
    for family in Family::ALL {
        all.put(family, vec![0xff; 40], vec![family as u8; 30]);
    }
    all.put(Family::Due, b"gone".to_vec(), Vec::new());
    first.write(&all).expect("it owns the shard");
    let mut fewer = Batch::default();
    fewer.single_delete(Family::Due, b"gone".to_vec());
    fewer.delete(Family::Cursor, vec![0xff; 40]);
    first.write(&fewer).expect("it owns the shard");
    let written = data(&local);
    assert_eq!(written.len(), Family::ALL.len() - 1);
    assert_eq!(data(&owner(&other, "b").1), written);
    assert_eq!(
        first.applied_sequence(),
        first.epoch() + log.bounds().expect("reachable").last - 2
    );
}

#[test]
fn the_memory_changelog_keeps_the_contract() {
    for (name, rule) in RULES {
        println!("{name}");
        let log = MemoryChangelog::default();
        rule(Arc::new(log.clone()), Arc::new(log));
    }
}

#[test]
fn the_synced_position_of_the_local_store_is_known_once_it_is_synced() {
    let log: Arc<dyn Changelog> = Arc::new(MemoryChangelog::default());
    let (first, _) = owner(&log, "a");
    first.write(&batch("k", 1, 0)).expect("it owns the shard");
    assert_eq!((first.applied_sequence(), first.flushed_sequence()), (2, 0));
    first.note_watermark().expect("noted");
    first.write(&batch("k", 1, 0)).expect("it owns the shard");
    assert_eq!((first.applied_sequence(), first.flushed_sequence()), (3, 2));
}
