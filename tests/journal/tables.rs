//! Tables with a flipped bit: records in other blocks are read, and missing events are recorded
//! exactly.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gridhook::{
    clock::Clock,
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    journal::{BacklogLimits, Journal, JournalOptions, MetaChange, Shards},
    policy::{
        outcome::Failure,
        record::{DueKey, PendingDelivery, Traffic},
    },
    store::{
        Batch, Family, Store, StoreError,
        damage::LogGap,
        keys::{self, MetaKind},
        layer,
        records::StoredRecord,
        rocks::{RocksOptions, RocksStore},
    },
};
use tempfile::TempDir;

use super::{chunk, copy_folder, scratch};

const PARTITIONS: u32 = 6;

fn small() -> RocksOptions {
    RocksOptions {
        buffers_bytes: 512 << 10,
        wal_bytes: 256 << 10,
        ..RocksOptions::default()
    }
}

fn options() -> JournalOptions {
    JournalOptions {
        outcome_delay: Duration::ZERO,
        group_bytes: 1 << 20,
        shards: Shards::default(),
        limits: BacklogLimits::default(),
    }
}

/// A store whose log is in new and compacted tables, with events of all partitions; and the first
/// sequence and count of each chunk.
fn filled() -> (TempDir, BTreeMap<(u32, u64), u64>) {
    let folder = scratch();
    let store = RocksStore::open(folder.path(), &small()).expect("a new store");
    let mut chunks = BTreeMap::new();
    let mut next = [1u64; PARTITIONS as usize];
    let mut random = fastrand::Rng::with_seed(7);
    for number in 0..1500u32 {
        let partition = random.u32(..PARTITIONS);
        let count = random.u32(1..6);
        let at = &mut next[partition as usize];
        let mut batch = Batch::default();
        batch.put(
            Family::Log,
            keys::log(PartitionId(partition), Seq(*at)),
            chunk(count, random.usize(20..900)),
        );
        chunks.insert((partition, *at), count.into());
        *at += u64::from(count);
        let floor = gridhook::store::records::FloorRecord {
            floor: Seq(1),
            next: Seq(*at),
            ..Default::default()
        };
        batch.put(
            Family::Meta,
            keys::floor_key(PartitionId(partition)),
            floor.encode(),
        );
        store.write(&batch).expect("written");
        if number == 700 {
            store.compact_log().expect("compacted");
        }
    }
    store.close().expect("closed");
    (folder, chunks)
}

fn tables(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("rocksdb"))
        .expect("a store")
        .map(|entry| entry.expect("an entry").path());
    let mut tables: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
        .collect();
    tables.sort();
    tables
}

fn flip(table: &Path, at: usize) {
    let mut bytes = fs::read(table).expect("bytes");
    bytes[at] ^= 1;
    fs::write(table, bytes).expect("written");
}

fn start(
    store: &Arc<RocksStore>,
) -> Result<(Journal, gridhook::journal::WriterThreads), gridhook::journal::Error> {
    let (clock, _) = Clock::new_manual(Timestamp(1_000_000));
    let store: Arc<dyn Store> = Arc::clone(store) as Arc<dyn Store>;
    Journal::start(
        store,
        clock,
        options(),
        Box::new(|_, _| {}),
        Box::new(|_| {}),
    )
}

/// Reads the whole log. Returns the chunks, and the ranges that were reported missing.
fn read(journal: &Journal, partition: u32, slice: usize) -> (Vec<u64>, Vec<(u64, u64)>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let mut found = Vec::new();
    let mut missing = Vec::new();
    let end = journal.log_end(PartitionId(partition)).expect("a log").next;
    let mut at = Seq(1);
    while at < end {
        let read = runtime
            .block_on(
                journal
                    .reader_pool()
                    .read_log(PartitionId(partition), at, end, slice),
            )
            .expect("a response");
        assert!(read.upto > at, "it gets on at {at:?} of {partition}");
        assert!(read.chunks.is_empty() || !read.is_missing);
        if read.is_missing {
            missing.push((at.0, read.upto.0));
        }
        found.extend(read.chunks.iter().map(|chunk| chunk.first.0));
        at = read.upto;
    }
    (found, missing)
}

#[test]
fn events_in_intact_blocks_are_read_and_each_missing_event_is_noted() {
    let (folder, chunks) = filled();
    let mut random = fastrand::Rng::with_seed(11);
    let mut refused = 0;
    let mut damaged = 0;
    for round in 0..30 {
        let copy = scratch();
        copy_folder(folder.path(), copy.path()).expect("copied");
        for _ in 0..1 + round % 3 {
            // Any byte of any table; most tables are of the log.
            let length = |table: &PathBuf| fs::metadata(table).expect("a file").len() as usize;
            let tables = tables(copy.path());
            let mut at = random.usize(..tables.iter().map(length).sum::<usize>());
            for table in &tables {
                if at < length(table) {
                    flip(table, at);
                    break;
                }
                at -= length(table);
            }
        }
        let Ok(store) = RocksStore::open(copy.path(), &small()) else {
            refused += 1;
            continue;
        };
        let store = Arc::new(store);
        let Ok((journal, writer)) = start(&store) else {
            refused += 1;
            continue;
        };
        let slice = [1 << 10, 64 << 10, 1 << 30][round % 3];
        for partition in 0..PARTITIONS {
            let (found, missing) = read(&journal, partition, slice);
            for ((_, first), count) in chunks.range((partition, 0)..(partition + 1, 0)) {
                let is_readable = store
                    .get(Family::Log, &keys::log(PartitionId(partition), Seq(*first)))
                    .is_ok();
                let is_missing = missing
                    .iter()
                    .any(|(from, upto)| from <= first && first + count <= *upto);
                assert_eq!(
                    found.contains(first),
                    is_readable,
                    "chunk {first} of {partition}, round {round}"
                );
                assert_eq!(
                    is_missing, !is_readable,
                    "chunk {first} of {partition}, round {round}: {missing:?}"
                );
            }
            let seen: Vec<LogGap> = journal
                .known_damage()
                .read_summary()
                .gaps
                .into_iter()
                .filter(|gap| gap.partition == partition)
                .collect();
            let lost: u64 = missing.iter().map(|(from, upto)| upto - from).sum();
            assert_eq!(
                seen.iter().map(|gap| gap.count).sum::<u64>(),
                lost,
                "{seen:?} {missing:?}"
            );
            damaged += usize::from(lost > 0);
        }
        journal.close();
        drop(journal);
        writer.join_all();
    }
    println!("{refused} refused, {damaged} partitions with losses");
    assert!(damaged > 5, "{damaged}");
}

/// A store in memory in which a range of keys of one family cannot be read.
struct Rotten {
    store: crate::support::memory_store::MemoryStore,
    family: Family,
    from: Vec<u8>,
    upto: Vec<u8>,
}

impl Rotten {
    fn touches(&self, family: Family, key: &[u8]) -> bool {
        family == self.family && key >= &self.from[..] && key < &self.upto[..]
    }

    fn error<T>(&self) -> Result<T, StoreError> {
        Err(StoreError::Damaged("block checksum mismatch".to_owned()))
    }
}

impl layer::StoreLayer for Rotten {
    type Inner = crate::support::memory_store::MemoryStore;

    fn inner(&self) -> &Self::Inner {
        &self.store
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<bytes::Bytes>, StoreError> {
        if self.touches(family, key) {
            self.error()
        } else {
            self.store.get(family, key)
        }
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut gridhook::store::Visit<'_>,
    ) -> Result<(), StoreError> {
        if self.touches(family, from) {
            return self.error();
        }
        let mut is_broken = false;
        let mut broke_off = false;
        self.store.scan(family, from, upper, &mut |key, value| {
            is_broken = self.touches(family, key);
            if is_broken {
                return std::ops::ControlFlow::Break(());
            }
            let flow = visit(key, value);
            broke_off = flow.is_break();
            flow
        })?;
        if is_broken && !broke_off {
            self.error()
        } else {
            Ok(())
        }
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, bytes::Bytes)>, StoreError> {
        match self.store.last(family, lower, upper)? {
            Some((key, _)) if self.touches(family, &key) => self.error(),
            found => Ok(found),
        }
    }

    fn scan_uncached(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut gridhook::store::Visit<'_>,
    ) -> Result<(), StoreError> {
        Store::scan(self, family, from, upper, visit)
    }

    fn last_uncached(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, bytes::Bytes)>, StoreError> {
        Store::last(self, family, lower, upper)
    }
}

#[test]
fn a_read_apart_does_not_fill_the_block_cache() {
    let (folder, chunks) = filled();
    let store = RocksStore::open(folder.path(), &small()).expect("a store that is whole");
    let used = || {
        store
            .figures()
            .expect("RocksDB has figures")
            .cache_used_bytes
    };
    for apart in [true, false] {
        let before = used();
        for (partition, first) in chunks.keys() {
            let partition = PartitionId(*partition);
            let lower = keys::log_of(partition).start;
            let upper = keys::log(partition, Seq(first + 1));
            let found = if apart {
                store.last_uncached(Family::Log, &lower, &upper)
            } else {
                store.last(Family::Log, &lower, &upper)
            };
            assert_eq!(
                found.expect("readable").expect("a chunk").0,
                keys::log(partition, Seq(*first))
            );
        }
        // Files that the opening of the store left may be deleted meanwhile.
        let filled = used().saturating_sub(before);
        assert_eq!(filled < 128 << 10, apart, "{filled} bytes, apart: {apart}");
    }
    store.close().expect("closed");
}

const OF: SubscriptionKey = SubscriptionKey {
    partition: PartitionId(1),
    subscription: SubscriptionId(1),
};

fn pending(seq: u64) -> PendingDelivery {
    let due = Timestamp(10_000 + seq % 7);
    PendingDelivery {
        attempts: 3,
        due,
        last: Failure::Busy.into(),
        status: Some(503),
        tried: Timestamp(9_000),
        received: None,
    }
}

/// Twenty pending deliveries, of which these keys of `family` cannot be read.
fn rotten(
    family: Family,
    from: Vec<u8>,
    upto: Vec<u8>,
) -> (Journal, gridhook::journal::WriterThreads) {
    let store = Arc::new(Rotten {
        store: crate::support::memory_store::MemoryStore::new(),
        family,
        from,
        upto,
    });
    let (clock, _) = Clock::new_manual(Timestamp(1_000_000));
    let (journal, writer) = Journal::start(
        store.clone(),
        clock,
        options(),
        Box::new(|_, _| {}),
        Box::new(|_| {}),
    )
    .expect("started");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let changes = vec![
        MetaChange::CreatePartition(OF.partition),
        MetaChange::Subscribe(OF, None),
    ];
    runtime
        .block_on(journal.write_meta_changes(changes))
        .expect("founded");
    let mut batch = Batch::default();
    for seq in 1..=20 {
        batch.put(Family::Log, keys::log(OF.partition, Seq(seq)), chunk(1, 50));
        batch.put(
            Family::Pending,
            keys::pending(OF.partition, Seq(seq), OF.subscription, Lane::LIVE),
            pending(seq).encode(),
        );
        batch.put(
            Family::Due,
            keys::due(OF, pending(seq).due, Lane::LIVE, Seq(seq)),
            Vec::new(),
        );
    }
    store.write(&batch).expect("written");
    (journal, writer)
}

#[test]
fn due_records_that_cannot_be_read_are_made_from_the_pending_records() {
    let key = |at: u64| keys::due(OF, Timestamp(at), Lane::LIVE, Seq(0));
    let (journal, writer) = rotten(Family::Due, key(10_002), key(10_004));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let (found, all) = runtime
        .block_on(
            journal
                .reader_pool()
                .read_due_keys(OF, DueKey::first_at(Timestamp(0)), 100),
        )
        .expect("a response");
    let mut expected: Vec<DueKey> = (1..=20)
        .map(|seq| DueKey {
            due: pending(seq).due,
            lane: Lane::LIVE,
            seq: Seq(seq),
        })
        .collect();
    expected.sort_unstable();
    assert_eq!((found, all), (expected, true));
    assert_eq!(
        journal.known_damage().read_summary().families,
        [Family::Due]
    );
    journal.close();
    writer.join_all();
}

#[test]
fn the_keys_of_a_job_behind_many_others_are_read_to_the_last() {
    let store = Arc::new(crate::support::memory_store::MemoryStore::new());
    let (clock, _) = Clock::new_manual(Timestamp(1_000_000));
    let (journal, writer) = Journal::start(
        store.clone(),
        clock,
        options(),
        Box::new(|_, _| {}),
        Box::new(|_| {}),
    )
    .expect("started");
    // More than one task of a reader looks at.
    let mut batch = Batch::default();
    for seq in 1..=150_000 {
        let lane = if seq % 50_000 == 0 {
            Lane::FIRST_JOB
        } else {
            Lane::LIVE
        };
        batch.put(
            Family::Due,
            keys::due(OF, Timestamp(seq), lane, Seq(seq)),
            Vec::new(),
        );
    }
    store.write(&batch).expect("written");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let read = |max| {
        let due =
            journal
                .reader_pool()
                .read_due(OF, Traffic::Jobs, DueKey::first_at(Timestamp(0)), max);
        let (keys, all) = runtime.block_on(due).expect("a response");
        (keys.iter().map(|key| key.seq.0).collect::<Vec<_>>(), all)
    };
    assert_eq!(read(100), (vec![50_000, 100_000, 150_000], true));
    assert_eq!(read(2), (vec![50_000, 100_000], false));
    journal.close();
    writer.join_all();
}

/// A store that counts the records that scans visit.
struct CountingStore {
    store: crate::support::memory_store::MemoryStore,
    visits: AtomicU64,
    /// The number of records of the longest scan.
    longest: AtomicU64,
}

impl layer::StoreLayer for CountingStore {
    type Inner = crate::support::memory_store::MemoryStore;

    fn inner(&self) -> &Self::Inner {
        &self.store
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut gridhook::store::Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut visits = 0;
        let scan = self.store.scan(family, from, upper, &mut |key, value| {
            visits += 1;
            visit(key, value)
        });
        self.visits.fetch_add(visits, Ordering::Relaxed);
        self.longest.fetch_max(visits, Ordering::Relaxed);
        scan
    }
}

/// A job's window asks for the keys behind those that it has, so that a walk over all of them looks
/// at each of the subscription's own keys once, in parts between which other reads run.
#[test]
fn a_walk_over_the_keys_of_a_job_looks_once_at_each_key() {
    const KEYS: u64 = 200_000;
    const PART: u64 = 65_536;
    let inner = crate::support::memory_store::MemoryStore::new();
    let store = Arc::new(CountingStore {
        store: inner.clone(),
        visits: AtomicU64::new(0),
        longest: AtomicU64::new(0),
    });
    let (clock, _) = Clock::new_manual(Timestamp(1_000_000));
    let (journal, writer) = Journal::start(
        store.clone(),
        clock,
        options(),
        Box::new(|_, _| {}),
        Box::new(|_| {}),
    )
    .expect("started");
    let mut batch = Batch::default();
    for seq in 1..=KEYS {
        let lane = if seq % 100 == 0 {
            Lane::FIRST_JOB
        } else {
            Lane::LIVE
        };
        let key = keys::due(OF, Timestamp(seq), lane, Seq(seq));
        batch.put(Family::Due, key, Vec::new());
    }
    inner.write(&batch).expect("written");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let walk = |max| {
        let mut from = DueKey::first_at(Timestamp(0));
        let mut job_keys = 0;
        store.visits.store(0, Ordering::Relaxed);
        loop {
            let due = journal.reader_pool().read_due(OF, Traffic::Jobs, from, max);
            let (keys, all) = runtime.block_on(due).expect("a response");
            job_keys += keys.len() as u64;
            match keys.last() {
                Some(last) if !all => from = last.next(),
                Some(_) | None => break,
            }
        }
        assert_eq!(job_keys, KEYS / 100);
        store.visits.load(Ordering::Relaxed)
    };
    // A read that ends before the last key looks at one more.
    for max in [100, 10_000] {
        let visits = walk(max);
        assert!(visits <= KEYS + 20, "{visits} of {KEYS} keys");
    }
    let longest = store.longest.load(Ordering::Relaxed);
    assert!(longest <= PART + 1, "{longest} in one part");
    journal.close();
    writer.join_all();
}

#[test]
fn a_pending_event_whose_record_cannot_be_read_is_delivered_all_the_same() {
    let key = |seq: u64| keys::pending(OF.partition, Seq(seq), OF.subscription, Lane(0));
    let (journal, writer) = rotten(Family::Pending, key(5), key(9));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let wanted = (1..=20).map(|seq| (Lane::LIVE, Seq(seq))).collect();
    let found = runtime
        .block_on(journal.reader_pool().fetch_pending(OF, wanted, 1 << 20))
        .expect("a response");
    assert_eq!(found.len(), 20);
    for fetched in found {
        let known = fetched.pending.expect("it is pending");
        let is_remade = (5..9).contains(&fetched.seq.0);
        assert_eq!(
            (known.due, known.attempts == 3),
            (pending(fetched.seq.0).due, !is_remade),
            "{:?}",
            fetched.seq
        );
        assert!(fetched.event.is_some(), "{:?}", fetched.seq);
    }
    assert_eq!(
        journal.known_damage().read_summary().families,
        [Family::Pending]
    );
    journal.close();
    writer.join_all();
}

#[test]
fn an_event_that_cannot_be_read_is_missing_and_the_others_of_the_fetch_come() {
    let key = |seq: u64| keys::log(OF.partition, Seq(seq));
    let (journal, writer) = rotten(Family::Log, key(7), key(9));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let wanted = (1..=20).map(|seq| (Lane::LIVE, Seq(seq))).collect();
    let found = runtime
        .block_on(journal.reader_pool().fetch_pending(OF, wanted, 1 << 20))
        .expect("a response");
    let missing: Vec<u64> = found
        .iter()
        .filter(|found| found.event.is_none())
        .map(|found| found.seq.0)
        .collect();
    assert_eq!(missing, [7, 8]);
    assert_eq!(
        journal.known_damage().read_summary().gaps,
        [LogGap {
            partition: 1,
            first: 7,
            count: 2
        }]
    );
    journal.close();
    writer.join_all();
}

#[test]
fn all_records_of_a_kind_are_read_in_pages_without_filling_the_block_cache() {
    let folder = scratch();
    let store = Arc::new(RocksStore::open(folder.path(), &small()).expect("a new store"));
    let names: Vec<String> = (0..1_500)
        .map(|number| format!("orders/{number:04}"))
        .collect();
    let mut random = fastrand::Rng::with_seed(3);
    for name in &names {
        let value: Vec<u8> = (0..1_000).map(|_| random.u8(..)).collect();
        let mut batch = Batch::default();
        batch.put(
            Family::Meta,
            keys::meta_key(MetaKind::Subscription, name.as_bytes()),
            value,
        );
        // The next kind is not read.
        batch.put(
            Family::Meta,
            keys::meta_key(MetaKind::Topic, name.as_bytes()),
            b"topic".to_vec(),
        );
        store.write(&batch).expect("written");
    }
    store.close().expect("closed");
    drop(store);
    let store = Arc::new(RocksStore::open(folder.path(), &small()).expect("a store that is whole"));
    let (journal, writer) = start(&store).expect("started");
    let used = || {
        store
            .figures()
            .expect("RocksDB has figures")
            .cache_used_bytes
    };
    let before = used();
    let read: Vec<String> = journal
        .reader_pool()
        .all_meta(MetaKind::Subscription)
        .map(|record| record.expect("readable").0)
        .collect();
    assert_eq!(read, names);
    let filled = used().saturating_sub(before);
    assert!(filled < 128 << 10, "{filled} bytes");
    assert_eq!(
        journal.reader_pool().all_meta(MetaKind::Namespace).count(),
        0
    );
    drop(journal);
    drop(writer);
    store.close().expect("closed");
}
