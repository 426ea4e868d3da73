//! Behaviour that all stores must share.

use std::{ops::ControlFlow, sync::Arc};

use gridhook::{
    clock::Clock,
    journal::replicated::{ReplicatedStore, ReplicationOptions},
    store::{
        Batch, Family, Store,
        rocks::{RocksOptions, RocksStore},
    },
};

use super::{keys_in, put};
use crate::support::{memory_changelog::MemoryChangelog, memory_store::MemoryStore};

fn check(rule: impl Fn(&dyn Store)) {
    rule(&MemoryStore::new());
    let folder = tempfile::tempdir().expect("a folder");
    rule(&RocksStore::open(folder.path(), &RocksOptions::default()).expect("a new store"));
    let folder = tempfile::tempdir().expect("a folder");
    let rocks =
        Arc::new(RocksStore::open(folder.path(), &RocksOptions::default()).expect("a new store"));
    let log = Arc::new(MemoryChangelog::default());
    let replicated = ReplicatedStore::take_shard(
        rocks,
        log,
        "node",
        Clock::system(),
        ReplicationOptions::default(),
    );
    rule(&replicated.expect("a new log"));
}

fn write(store: &dyn Store, build: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::default();
    build(&mut batch);
    store.write(&batch).expect("an honest store writes");
}

fn get(store: &dyn Store, family: Family, key: &[u8]) -> Option<Vec<u8>> {
    store
        .get(family, key)
        .expect("a store that is whole can be read")
        .map(|value| value.to_vec())
}

fn scan(store: &dyn Store, from: &[u8], upper: &[u8], most: usize) -> Vec<u8> {
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], _: &[u8]| {
        found.push(key[0]);
        if found.len() == most {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    store
        .scan(Family::Pending, from, upper, visit)
        .expect("a store that is whole can be read");
    found
}

#[test]
fn a_record_that_was_put_is_there_and_one_that_was_taken_away_is_not() {
    check(|store| {
        assert_eq!(get(store, Family::Pending, b"a"), None);
        write(store, |batch| {
            batch.put(Family::Pending, b"a".to_vec(), &b"1"[..])
        });
        assert_eq!(get(store, Family::Pending, b"a"), Some(b"1".to_vec()));
        write(store, |batch| {
            batch.put(Family::Pending, b"a".to_vec(), &b"2"[..])
        });
        assert_eq!(get(store, Family::Pending, b"a"), Some(b"2".to_vec()));
        write(store, |batch| batch.delete(Family::Pending, b"a".to_vec()));
        assert_eq!(get(store, Family::Pending, b"a"), None);
        write(store, |batch| batch.delete(Family::Pending, b"a".to_vec()));
    });
}

#[test]
fn families_do_not_see_each_other() {
    check(|store| {
        for (index, family) in Family::ALL.into_iter().enumerate() {
            write(store, |batch| {
                batch.put(family, b"same".to_vec(), vec![index as u8])
            });
        }
        for (index, family) in Family::ALL.into_iter().enumerate() {
            assert_eq!(
                get(store, family, b"same"),
                Some(vec![index as u8]),
                "{family:?}"
            );
        }
    });
}

#[test]
fn a_batch_is_applied_in_order() {
    check(|store| {
        write(store, |batch| {
            batch.put(Family::Due, b"k".to_vec(), &b""[..]);
            batch.single_delete(Family::Due, b"k".to_vec());
            batch.put(Family::Due, b"l".to_vec(), &b""[..]);
        });
        assert_eq!(
            (get(store, Family::Due, b"k"), get(store, Family::Due, b"l")),
            (None, Some(Vec::new()))
        );
    });
}

#[test]
fn a_key_may_be_put_again_after_its_single_delete() {
    check(|store| {
        for _ in 0..3 {
            write(store, |batch| {
                batch.put(Family::Due, b"k".to_vec(), &b""[..])
            });
            assert!(get(store, Family::Due, b"k").is_some());
            write(store, |batch| {
                batch.single_delete(Family::Due, b"k".to_vec())
            });
            assert_eq!(get(store, Family::Due, b"k"), None);
        }
    });
}

#[test]
fn a_scan_includes_its_start_excludes_its_end_and_stops_on_request() {
    check(|store| {
        for key in b"bdfh" {
            write(store, |batch| {
                batch.put(Family::Pending, vec![*key], &b"v"[..])
            });
        }
        assert_eq!(scan(store, b"a", b"z", usize::MAX), b"bdfh");
        assert_eq!(scan(store, b"d", b"h", usize::MAX), b"df");
        assert_eq!(scan(store, b"c", b"g", usize::MAX), b"df");
        assert_eq!(scan(store, b"a", b"z", 2), b"bd");
        assert_eq!(scan(store, b"d", b"d", usize::MAX), b"");
        assert_eq!(scan(store, b"h", b"b", usize::MAX), b"");
    });
}

#[test]
fn the_last_record_of_a_range_is_found() {
    check(|store| {
        for key in b"bdfh" {
            write(store, |batch| {
                batch.put(Family::Pending, vec![*key], vec![*key])
            });
        }
        let last = |lower: &[u8], upper: &[u8]| {
            store.last(Family::Pending, lower, upper).expect("readable")
        };
        let record = |key: &[u8]| Some((key.to_vec(), bytes::Bytes::copy_from_slice(key)));
        assert_eq!(last(b"a", b"z"), record(b"h"));
        assert_eq!(last(b"a", b"h"), record(b"f"));
        assert_eq!(last(b"f", b"h"), record(b"f"));
        assert_eq!(last(b"i", b"z"), None);
        assert_eq!(last(b"g", b"h"), None);
        assert_eq!(last(b"h", b"b"), None);
    });
}

#[test]
fn a_visitor_may_read_and_write_the_store_and_does_not_see_it() {
    check(|store| {
        for key in b"bd" {
            write(store, |batch| {
                batch.put(Family::Pending, vec![*key], &b"v"[..])
            });
        }
        let mut seen = Vec::new();
        let visit = &mut |key: &[u8], _: &[u8]| {
            assert!(get(store, Family::Pending, key).is_some());
            write(store, |batch| {
                batch.put(Family::Pending, vec![key[0] + 1], &b"v"[..])
            });
            seen.push(key[0]);
            ControlFlow::Continue(())
        };
        store
            .scan(Family::Pending, b"a", b"z", visit)
            .expect("readable");
        assert_eq!(seen, b"bd");
    });
}

#[test]
fn an_empty_batch_is_written_and_changes_nothing() {
    check(|store| {
        write(store, |_| {});
        store.note_watermark().expect("noted");
    });
}

#[test]
fn an_arc_of_a_store_is_a_store() {
    let store = std::sync::Arc::new(MemoryStore::new());
    put(&store, Family::Meta, b"k".to_vec(), &b"v"[..]);
    assert_eq!(keys_in(&store, Family::Meta, b"a", b"z"), [b"k".to_vec()]);
}
