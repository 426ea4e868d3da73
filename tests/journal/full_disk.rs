//! A full disk: a small file system of the test's own.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use gridhook::store::{
    Batch, Family, Store, StoreError,
    keys::{self, MetaKind},
    rocks::{OpenError, RocksOptions, RocksStore},
};

use super::keys_in;
use crate::support::disk::Mount;

fn try_open(disk: &Mount) -> Result<RocksStore, OpenError> {
    RocksStore::open(&disk.path().join("data"), &RocksOptions::default())
}

fn open(disk: &Mount) -> RocksStore {
    try_open(disk).expect("a store that is whole")
}

fn write(store: &RocksStore, job: u32) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    batch.put(
        Family::Log,
        keys::meta_key(MetaKind::Job, &job.to_be_bytes()),
        vec![job as u8; 50_000],
    );
    store.write(&batch)
}

/// Writes jobs from `first` on until the disk is full. Returns the first job that was refused.
fn write_until_full(store: &RocksStore, first: u32) -> u32 {
    for job in first..first + 10_000 {
        match write(store, job) {
            Ok(()) => {}
            Err(StoreError::Full) => return job,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk never filled")
}

/// Retries for as long as RocksDB may take to notice free space (it checks every five seconds).
fn write_until_healed(store: &RocksStore, job: u32) {
    let began = Instant::now();
    loop {
        match write(store, job) {
            Ok(()) => return,
            Err(StoreError::Full) => {}
            Err(other) => panic!("{other}"),
        }
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "the store did not heal"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn jobs(store: &RocksStore) -> u32 {
    keys_in(store, Family::Log, &[0], &[0xff]).len() as u32
}

#[test]
fn a_full_disk_loses_nothing_and_heals_by_its_ballast_alone() {
    let Some(disk) = Mount::tmpfs(128) else {
        return;
    };
    let store = open(&disk);
    let ballast = disk.path().join("data/ballast");
    assert!(ballast.exists() && !store.is_short_of_space());
    let filler = disk.fill(3 << 20);
    let written = write_until_full(&store, 0);
    assert!(!ballast.exists() && store.is_short_of_space());
    assert_eq!(
        jobs(&store),
        written,
        "what was acknowledged is read on a full disk"
    );
    write_until_healed(&store, written);
    assert_eq!(jobs(&store), written + 1);
    store.note_watermark().expect("noted");
    assert!(
        store.is_short_of_space(),
        "there is no room for the ballast yet"
    );
    fs::remove_file(filler).expect("removed");
    write(&store, written + 1).expect("there is room");
    store.note_watermark().expect("noted");
    assert!(ballast.exists() && !store.is_short_of_space());
    drop(store);
    assert_eq!(jobs(&open(&disk)), written + 2);
}

/// A store whose ballast would be on another file system.
fn open_with_ballast_on(disk: &Mount) -> (tempfile::TempDir, RocksStore) {
    let folder = tempfile::tempdir().expect("a folder");
    link_ballast(folder.path(), disk);
    let store = RocksStore::open(folder.path(), &RocksOptions::default()).expect("a store");
    (folder, store)
}

fn link_ballast(folder: &Path, disk: &Mount) {
    symlink(disk.path().join("ballast"), folder.join("ballast")).expect("a link");
}

#[test]
fn a_ballast_that_finds_no_space_is_reported_and_made_later() {
    let Some(small) = Mount::tmpfs(1) else {
        return;
    };
    let (folder, store) = open_with_ballast_on(&small);
    let ballast = folder.path().join("ballast");
    assert!(store.is_short_of_space() && fs::symlink_metadata(&ballast).is_err());
    store.note_watermark().expect("noted");
    assert!(!store.is_short_of_space() && ballast.exists());
}

#[test]
fn a_file_system_that_cannot_allocate_in_advance_is_asked_once() {
    let Some(memory) = Mount::ramfs() else {
        return;
    };
    let (folder, store) = open_with_ballast_on(&memory);
    let ballast = folder.path().join("ballast");
    assert!(!store.is_short_of_space() && fs::symlink_metadata(&ballast).is_err());
    link_ballast(folder.path(), &memory);
    store.note_watermark().expect("noted");
    assert!(fs::symlink_metadata(&ballast).is_ok(), "it is as it was");
    assert!(!store.is_short_of_space());
}

#[test]
fn a_store_on_a_full_disk_is_opened_and_heals() {
    let Some(disk) = Mount::tmpfs(128) else {
        return;
    };
    let store = open(&disk);
    let filler = disk.fill(3 << 20);
    let written = write_until_full(&store, 0);
    store.note_watermark().expect("noted");
    drop(store);
    fs::remove_file(filler).expect("removed");
    let filler = disk.fill(0);
    assert!(
        matches!(try_open(&disk), Err(OpenError::Full { .. })),
        "not a byte is left, and no ballast"
    );
    fs::remove_file(filler).expect("removed");
    let filler = disk.fill(1 << 20);
    assert_eq!(jobs(&open(&disk)), written, "a megabyte is enough to open");
    fs::remove_file(filler).expect("removed");
    let store = open(&disk);
    write_until_healed(&store, written);
    assert_eq!(jobs(&store), written + 1);
}

#[test]
fn a_store_on_a_full_disk_is_opened_by_its_ballast() {
    let Some(disk) = Mount::tmpfs(128) else {
        return;
    };
    let store = open(&disk);
    for job in 0..100 {
        write(&store, job).expect("there is room");
    }
    store.note_watermark().expect("noted");
    drop(store);
    disk.fill(0);
    let store = open(&disk);
    assert_eq!(jobs(&store), 100);
    assert!(store.is_short_of_space());
}

/// The process ends so that the next start helps, which then has files to make.
#[test]
fn a_store_without_a_free_inode_has_no_space_however_many_bytes_are_free() {
    let Some(disk) = Mount::with_inodes(200) else {
        return;
    };
    let store = open(&disk);
    write(&store, 0).expect("there is space");
    let folder = disk.path().join("others");
    fs::create_dir(&folder).expect("a folder");
    for file in 0.. {
        if fs::write(folder.join(file.to_string()), "").is_err() {
            break;
        }
    }
    write_until_full(&store, 1);
    assert!(!store.is_full_despite_space());
    fs::remove_dir_all(&folder).expect("removed");
    assert!(store.is_full_despite_space());
}
