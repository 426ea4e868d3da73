//! The replicated store: rules that hold over every changelog (`contract`), a changelog that loses,
//! delays, repeats and changes records (`faults`), local stores that follow one (`copy`), and
//! servers of NATS that are killed (`nats`).

mod contract;
mod copy;
mod faults;
mod nats;
mod record;

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc, time::Duration};

use bytes::Bytes;
use gridhook::{
    clock::Clock,
    event::Timestamp,
    journal::{
        changelog::{Changelog, record::NEWEST_FORMAT},
        replicated::{FollowError, ReplicatedStore, ReplicationOptions},
    },
    store::{
        Batch, Family, Store, WriteOp,
        keys::{self, MetaKind},
    },
};

use crate::support::{memory_changelog::MemoryChangelog, memory_store::MemoryStore};

/// Small records, so that few writes make a chain of parts, and short pauses.
pub(super) const OPTIONS: ReplicationOptions = ReplicationOptions {
    record_bytes_max: 200,
    pause: Duration::from_millis(1),
    pause_max: Duration::from_millis(2),
    tries: 8,
    format: NEWEST_FORMAT,
};

/// A log, and what its records say.
fn log() -> (MemoryChangelog, Arc<dyn Changelog>) {
    let log = MemoryChangelog::default();
    (log.clone(), Arc::new(log))
}

/// The owner of the shard with this log, and its local store.
fn owner(log: &Arc<dyn Changelog>, node: &str) -> (ReplicatedStore, MemoryStore) {
    let store = MemoryStore::new();
    let owner = take(log, &store, node).expect("the log is whole");
    (owner, store)
}

fn take(
    log: &Arc<dyn Changelog>,
    store: &MemoryStore,
    node: &str,
) -> Result<ReplicatedStore, FollowError> {
    let (clock, _hand) = Clock::new_manual(Timestamp(1_000_000));
    ReplicatedStore::take_shard(
        Arc::new(store.clone()),
        Arc::clone(log),
        node,
        clock,
        OPTIONS,
    )
}

/// A batch that writes one value. One of `bytes` over 200 has parts.
fn batch(key: &str, value: u64, bytes: usize) -> Batch {
    let mut batch = Batch::default();
    batch.put(
        Family::Pending,
        key.as_bytes().to_vec(),
        value_of(value, bytes),
    );
    batch
}

fn value_of(value: u64, bytes: usize) -> Vec<u8> {
    let mut text = value.to_string().into_bytes();
    text.resize(text.len().max(bytes), b'.');
    text
}

type Contents = BTreeMap<(Family, Vec<u8>), Bytes>;

/// Everything that a store has.
fn contents(store: &dyn Store) -> Contents {
    let mut contents = Contents::new();
    for family in Family::ALL {
        let visit = &mut |key: &[u8], value: &[u8]| {
            contents.insert((family, key.to_vec()), Bytes::copy_from_slice(value));
            ControlFlow::Continue(())
        };
        store
            .scan(family, &[], &[0xff; 64], visit)
            .expect("a store that is whole can be read");
    }
    contents
}

/// The records of a batch of [`batch`].
fn entry(batch: &Batch) -> ((Family, Vec<u8>), Bytes) {
    let [WriteOp::Put(family, key, value)] = &batch.0[..] else {
        panic!("one put")
    };
    ((*family, key.clone()), value.clone())
}

/// The same without the position in the log.
fn data(store: &dyn Store) -> Contents {
    let mut contents = contents(store);
    contents.remove(&(Family::Meta, keys::meta_key(MetaKind::Applied, b"")));
    contents
}
