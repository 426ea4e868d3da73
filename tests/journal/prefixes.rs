//! RocksDB's log, truncated at every length that a power cut could leave: a prefix of the writes is
//! recovered, in whole batches.

use std::{fs, path::Path};

use gridhook::store::{
    Batch, Family, Store,
    keys::{self, MetaKind},
    rocks::{RocksOptions, RocksStore},
    watermark::Watermark,
};

use super::{copy_folder, keys_in, scratch};
use crate::support::needs::many;

const BATCHES: u32 = 40;

/// A batch with two records in different families.
fn batch(number: u32) -> Batch {
    let mut batch = Batch::default();
    let value = vec![number as u8; 20 + (number as usize * 37) % 400];
    batch.put(
        Family::Meta,
        keys::meta_key(MetaKind::Job, &number.to_be_bytes()),
        value.clone(),
    );
    batch.put(Family::Pending, number.to_be_bytes().to_vec(), value);
    batch
}

/// The number of recovered batches. Each must be whole, and none may follow a missing one.
fn recovered(folder: &Path) -> u32 {
    let store = RocksStore::open(folder, &RocksOptions::default())
        .expect("a log that ends early is no damage");
    let range = keys::meta_of(MetaKind::Job);
    let jobs = keys_in(&store, Family::Meta, &range.start, &range.end);
    let pending = keys_in(&store, Family::Pending, &[0], &[0xff]);
    let count = u32::try_from(jobs.len()).expect("few");
    assert_eq!(
        pending,
        (0..count)
            .map(|number| number.to_be_bytes().to_vec())
            .collect::<Vec<_>>()
    );
    let expected = (0..count)
        .map(|number| keys::meta_key(MetaKind::Job, &number.to_be_bytes()))
        .collect::<Vec<_>>();
    assert_eq!(jobs, expected);
    count
}

#[test]
fn a_log_that_ends_anywhere_has_a_prefix_of_what_was_written() {
    let folder = scratch();
    let store = RocksStore::open(folder.path(), &RocksOptions::default()).expect("a new store");
    let newest = |folder: &Path| {
        let entries = fs::read_dir(folder.join("rocksdb"))
            .expect("a store")
            .map(|entry| entry.expect("an entry").path());
        entries
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .max()
            .expect("a log")
    };
    let length = |folder: &Path| fs::metadata(newest(folder)).expect("a log").len();
    // The length of the log after each synced batch.
    let mut ends = Vec::new();
    for number in 0..BATCHES {
        store.write(&batch(number)).expect("written");
        ends.push(length(folder.path()));
    }
    let last = *ends.last().expect("batches");
    let every = many(211, 7);
    let anywhere = (0..last).step_by(every);
    let edges = ends
        .iter()
        .step_by(every / 30 + 1)
        .flat_map(|end| [*end - 1, *end]);
    let mut cuts = 0;
    for cut in anywhere.chain(edges) {
        let killed = scratch();
        copy_folder(folder.path(), killed.path()).expect("copied");
        let log = fs::OpenOptions::new()
            .write(true)
            .open(newest(killed.path()))
            .expect("a log");
        log.set_len(cut).expect("cut");
        // The length of the cut decides how much must be there, so the watermark is set to 0.
        Watermark::create(&killed.path().join("watermark"), 0).expect("a new watermark");
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(
            recovered(killed.path()),
            u32::try_from(whole).expect("few"),
            "cut at {cut} of {last}"
        );
        cuts += 1;
    }
    println!(
        "{cuts} cuts of a log of {last} bytes: each recovered every batch that was whole, and no \
         other"
    );
}
