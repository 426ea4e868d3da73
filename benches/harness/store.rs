//! RocksDB alone, as a relay needs it that loses nothing: one thread writes all that has come
//! meanwhile in one batch, with one sync, and removes with it what was delivered.

use std::{path::Path, sync::mpsc, thread};

use bytes::Bytes;
use rocksdb::{DB, WriteBatch, WriteOptions};
use tokio::sync::oneshot;

/// A store with a thread of its own.
#[derive(Clone)]
pub(super) struct Store {
    writes: mpsc::Sender<Write>,
}

enum Write {
    /// An event, and who waits until it is on disk.
    Put(Bytes, oneshot::Sender<u64>),
    /// An event that was delivered.
    Delete(u64),
}

impl Store {
    /// A new store in `folder`.
    pub(super) fn create(folder: &Path) -> Self {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        let db = DB::open(&options, folder).expect("a folder for a store");
        let (writes, taken) = mpsc::channel();
        thread::spawn(move || write(&db, &taken));
        Self { writes }
    }

    /// Writes an event, and returns its number once it is on disk.
    pub(super) async fn put(&self, event: Bytes) -> u64 {
        let (done, wait) = oneshot::channel();
        self.writes
            .send(Write::Put(event, done))
            .expect("a thread that writes");
        wait.await.expect("a disk that takes it")
    }

    /// Removes an event with the next one that is written.
    pub(super) fn delete(&self, number: u64) {
        self.writes
            .send(Write::Delete(number))
            .expect("a thread that writes");
    }
}

fn write(db: &DB, taken: &mpsc::Receiver<Write>) {
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    let mut next = 0_u64;
    let mut batch = WriteBatch::default();
    while let Ok(first) = taken.recv() {
        let mut waiting = Vec::new();
        for write in std::iter::once(first).chain(taken.try_iter()) {
            match write {
                Write::Put(event, done) => {
                    batch.put(next.to_be_bytes(), event);
                    waiting.push((next, done));
                    next += 1;
                }
                Write::Delete(number) => batch.delete(number.to_be_bytes()),
            }
        }
        if waiting.is_empty() {
            continue;
        }
        db.write_opt(std::mem::take(&mut batch), &synced)
            .expect("a disk that takes it");
        for (number, done) in waiting {
            // The publisher may be gone.
            done.send(number).ok();
        }
    }
}
