use std::{
    fs,
    path::{Path, PathBuf},
    process, thread,
    time::Duration,
};

use gridhook::{
    event::{PartitionId, Seq},
    store::{
        Batch, Family, Store,
        keys::{self, MetaKind},
        records::{FloorRecord, StoredRecord},
        rocks::{FORMAT, OpenError, ReadOnlyStore, RocksOptions, RocksStore},
    },
};
use tempfile::TempDir;

use super::{chunk, copy_folder, keys_in, log_in, put};
use crate::support::server::wait_for;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn open(folder: &Path) -> RocksStore {
    RocksStore::open(folder, &RocksOptions::default()).expect("a store that is whole")
}

fn refused(folder: &Path) -> OpenError {
    RocksStore::open(folder, &RocksOptions::default()).expect_err("a store that must not be opened")
}

/// Writes the jobs `from..to`, each in one batch.
fn fill(store: &RocksStore, from: u32, to: u32) {
    for job in from..to {
        put(
            store,
            Family::Meta,
            keys::meta_key(MetaKind::Job, &job.to_be_bytes()),
            vec![job as u8; 100],
        );
    }
}

fn jobs(store: &RocksStore) -> usize {
    let range = keys::meta_of(MetaKind::Job);
    keys_in(store, Family::Meta, &range.start, &range.end).len()
}

/// RocksDB's log files, the newest last.
fn wals(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("rocksdb")).expect("a store");
    let mut wals: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    wals.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    wals.sort();
    wals
}

/// The log file with the writes since the store was opened.
fn fullest_wal(folder: &Path) -> PathBuf {
    let size = |path: &PathBuf| fs::metadata(path).expect("a file").len();
    wals(folder)
        .into_iter()
        .max_by_key(size)
        .expect("a store has a log")
}

/// The niceness of a thread, from the line that Linux has of it.
#[cfg(target_os = "linux")]
fn niceness(task: &Path) -> i32 {
    let line = fs::read_to_string(task.join("stat")).expect("it runs");
    let (_, fields) = line.rsplit_once(')').expect("the name ends");
    fields
        .split_whitespace()
        .nth(16)
        .and_then(|field| field.parse().ok())
        .expect("a number")
}

#[cfg(target_os = "linux")]
#[test]
fn tables_are_written_and_compacted_at_a_lower_priority_than_events() {
    let folder = folder();
    let before = niceness(Path::new("/proc/thread-self"));
    let _store = open(folder.path());
    assert_eq!(
        niceness(Path::new("/proc/thread-self")),
        before,
        "the thread that opens it keeps its priority"
    );
    let tasks = fs::read_dir("/proc/self/task")
        .expect("the threads")
        .map(|task| task.expect("a thread").path());
    let background = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("rocksdb:"))
    };
    let found: Vec<i32> = tasks
        .filter(background)
        .map(|task| niceness(&task))
        .collect();
    assert!(
        !found.is_empty()
            && found
                .iter()
                .all(|niceness| *niceness == (before + 5).min(19)),
        "{found:?}"
    );
}

#[test]
fn a_store_that_is_closed_and_opened_again_has_everything() {
    let folder = folder();
    for round in 0..4 {
        let store = open(folder.path());
        assert_eq!(jobs(&store), round * 50);
        fill(&store, round as u32 * 50, (round as u32 + 1) * 50);
        store.note_watermark().expect("noted");
    }
}

#[test]
fn acknowledged_writes_are_there_after_a_kill_at_any_moment() {
    let _rows = crate::spec::shows(&[
        "S000-001: Event Grid provides durable delivery.",
        "S002-001, S003-001: Events are delivered durably.",
    ]);
    let folder = folder();
    let store_before = 40;
    let store = open(folder.path());
    fill(&store, 0, store_before);
    for killed in 0..5 {
        let at = folder_after_kill(&folder);
        let survivor = open(at.path());
        assert_eq!(jobs(&survivor), (store_before + killed * 10) as usize);
        fill(
            &store,
            store_before + killed * 10,
            store_before + (killed + 1) * 10,
        );
        store.note_watermark().expect("noted");
    }
}

fn folder_after_kill(running: &TempDir) -> TempDir {
    let killed = folder();
    copy_folder(running.path(), killed.path()).expect("copied");
    killed
}

#[test]
fn a_second_process_is_refused_with_the_number_of_the_first() {
    let folder = folder();
    let store = open(folder.path());
    match refused(folder.path()) {
        OpenError::InUse { process, .. } => assert_eq!(process, process::id().to_string()),
        other => panic!("{other}"),
    }
    drop(store);
    open(folder.path());
}

#[test]
fn a_lock_that_is_about_to_be_released_is_waited_for() {
    let folder = folder();
    drop(open(folder.path()));
    let held = fs::File::open(folder.path().join("lock")).expect("a lock file");
    held.lock().expect("a free lock");
    let released = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        drop(held);
    });
    open(folder.path());
    released.join().expect("no panic");
}

#[test]
fn a_newer_store_is_refused_with_both_versions() {
    let folder = folder();
    put(
        &open(folder.path()),
        Family::Meta,
        keys::meta_key(MetaKind::Format, b""),
        (FORMAT + 1).to_be_bytes().to_vec(),
    );
    let error = refused(folder.path());
    assert!(
        matches!(error, OpenError::Newer { found, known } if (found, known) == (FORMAT + 1, FORMAT))
    );
    let text = error.to_string();
    assert!(
        text.contains(&format!("format {}", FORMAT + 1))
            && text.contains(&format!("up to {FORMAT}")),
        "{text}"
    );
}

#[test]
fn a_newer_store_with_a_family_of_its_own_is_refused_for_its_format() {
    let folder = folder();
    put(
        &open(folder.path()),
        Family::Meta,
        keys::meta_key(MetaKind::Format, b""),
        (FORMAT + 1).to_be_bytes().to_vec(),
    );
    let inner = folder.path().join("rocksdb");
    let options = rocksdb::Options::default();
    let names = rocksdb::DB::list_cf(&options, &inner).expect("families");
    let mut db = rocksdb::DB::open_cf(&options, &inner, names).expect("a store");
    db.create_cf("future", &options).expect("one more");
    drop(db);
    assert!(matches!(refused(folder.path()), OpenError::Newer { .. }));
}

#[test]
fn a_store_without_its_format_is_damaged() {
    let folder = folder();
    let mut batch = Batch::default();
    batch.delete(Family::Meta, keys::meta_key(MetaKind::Format, b""));
    open(folder.path()).write(&batch).expect("written");
    assert!(matches!(refused(folder.path()), OpenError::Damaged(_)));
}

#[test]
fn a_store_without_its_manifest_is_refused_and_cannot_be_salvaged() {
    for file in ["CURRENT", "MANIFEST"] {
        let folder = folder();
        fill(&open(folder.path()), 0, 20);
        let entries = fs::read_dir(folder.path().join("rocksdb")).expect("a folder");
        let mut paths = entries.map(|entry| entry.expect("a file").path());
        let is_wanted = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(file)
        };
        let damaged = paths.find(is_wanted).expect("a file");
        let mut bytes = fs::read(&damaged).expect("bytes");
        bytes[3] ^= 4;
        fs::write(&damaged, bytes).expect("written");
        assert!(matches!(refused(folder.path()), OpenError::NoManifest(_)));
        let salvaged = RocksStore::open_damaged(folder.path(), &RocksOptions::default());
        assert!(matches!(salvaged, Err(OpenError::NoManifest(_))));
        let read = ReadOnlyStore::open(folder.path(), &RocksOptions::default());
        assert!(matches!(read, Err(OpenError::NoManifest(_))));
    }
}

#[test]
fn a_bit_flipped_in_the_middle_of_the_log_is_refused() {
    let folder = folder();
    let store = open(folder.path());
    fill(&store, 0, 200);
    let length = fs::metadata(fullest_wal(folder.path()))
        .expect("a file")
        .len() as usize;
    for part in [3, 5, 8] {
        let killed = folder_after_kill(&folder);
        let wal = fullest_wal(killed.path());
        let mut bytes = fs::read(&wal).expect("bytes");
        bytes[length * part / 10] ^= 4;
        fs::write(&wal, bytes).expect("written");
        assert!(matches!(refused(killed.path()), OpenError::Damaged(_)));
    }
}

#[test]
fn a_torn_last_record_that_was_not_acknowledged_is_tolerated() {
    let folder = folder();
    let store = open(folder.path());
    fill(&store, 0, 100);
    store.note_watermark().expect("noted");
    fill(&store, 100, 101);
    let killed = folder_after_kill(&folder);
    cut(&fullest_wal(killed.path()), 7);
    assert_eq!(jobs(&open(killed.path())), 100);
}

#[test]
fn a_log_that_was_cut_below_the_watermark_is_refused_with_the_gap() {
    let folder = folder();
    let store = open(folder.path());
    fill(&store, 0, 100);
    store.note_watermark().expect("noted");
    let killed = folder_after_kill(&folder);
    cut(&fullest_wal(killed.path()), 7);
    let error = refused(killed.path());
    assert!(
        matches!(error, OpenError::Behind { recovered, acknowledged } if recovered + 1 == acknowledged)
    );
    assert!(error.to_string().contains("1 are missing"), "{error}");
    assert!(
        matches!(refused(killed.path()), OpenError::Behind { .. }),
        "and again, as nothing was changed"
    );
}

#[test]
fn unsynced_writes_may_be_missing_until_the_watermark_is_stored() {
    let folder = folder();
    let store = open(folder.path());
    let unsynced = |job: u32| {
        let mut batch = Batch::default();
        batch.put(
            Family::Meta,
            keys::meta_key(MetaKind::Job, &job.to_be_bytes()),
            vec![job as u8; 100],
        );
        store.write_unsynced(&batch).expect("written");
    };
    fill(&store, 0, 50);
    (50..100).for_each(unsynced);
    let killed = folder_after_kill(&folder);
    cut(&fullest_wal(killed.path()), 7);
    assert_eq!(jobs(&open(killed.path())), 99);
    store.note_watermark().expect("noted");
    let killed = folder_after_kill(&folder);
    assert_eq!(jobs(&open(killed.path())), 100);
    let killed = folder_after_kill(&folder);
    cut(&fullest_wal(killed.path()), 7);
    assert!(matches!(refused(killed.path()), OpenError::Behind { .. }));
}

#[test]
fn a_store_that_was_refused_opens_when_the_missing_file_is_back() {
    let folder = folder();
    let store = open(folder.path());
    fill(&store, 0, 100);
    store.note_watermark().expect("noted");
    let killed = folder_after_kill(&folder);
    let wal = fullest_wal(killed.path());
    let whole = fs::read(&wal).expect("bytes");
    cut(&wal, 7);
    assert!(matches!(refused(killed.path()), OpenError::Behind { .. }));
    fs::write(&wal, whole).expect("written");
    assert_eq!(jobs(&open(killed.path())), 100);
}

#[test]
fn a_torn_record_is_tolerated_again_when_newer_logs_follow_it() {
    let folder = folder();
    let store = open(folder.path());
    fill(&store, 0, 100);
    let mut killed = folder_after_kill(&folder);
    for round in 0..3 {
        cut(wals(killed.path()).last().expect("a store has a log"), 7);
        let survivor = open(killed.path());
        assert_eq!(jobs(&survivor), 99 + round * 200);
        fill(
            &survivor,
            1000 * (round as u32 + 1),
            1000 * (round as u32 + 1) + 200,
        );
        survivor.note_watermark().expect("noted");
        let next = folder_after_kill(&killed);
        assert_eq!(jobs(&open(next.path())), 99 + round * 200 + 200);
        fill(&survivor, 5000, 5001);
        killed = folder_after_kill(&killed);
    }
}

fn cut(file: &Path, bytes: u64) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(file)
        .expect("a file");
    let length = file.metadata().expect("a length").len();
    file.set_len(length - bytes).expect("cut");
}

#[test]
fn an_older_store_brought_back_under_a_newer_watermark_is_refused() {
    let folder = folder();
    let store = open(folder.path());
    fill(&store, 0, 10);
    let old = folder_after_kill(&folder);
    fill(&store, 10, 30);
    store.note_watermark().expect("noted");
    fs::copy(
        folder.path().join("watermark"),
        old.path().join("watermark"),
    )
    .expect("copied");
    let error = refused(old.path());
    assert!(
        matches!(error, OpenError::Behind { recovered, acknowledged } if recovered + 20 == acknowledged)
    );
}

#[test]
fn a_store_that_is_gone_is_not_made_anew_under_its_watermark() {
    let folder = folder();
    let store = open(folder.path());
    fill(&store, 0, 10);
    store.note_watermark().expect("noted");
    drop(store);
    fs::remove_dir_all(folder.path().join("rocksdb")).expect("removed");
    assert!(matches!(
        refused(folder.path()),
        OpenError::Behind { recovered: 0, .. }
    ));
}

#[test]
fn a_store_whose_watermark_is_missing_or_damaged_is_refused() {
    let folder = folder();
    fill(&open(folder.path()), 0, 10);
    let mark = folder.path().join("watermark");
    let whole = fs::read(&mark).expect("bytes");
    fs::write(&mark, vec![0; whole.len()]).expect("written");
    assert!(matches!(
        refused(folder.path()),
        OpenError::NoWatermark {
            problem: "is damaged",
            ..
        }
    ));
    fs::remove_file(&mark).expect("removed");
    assert!(matches!(
        refused(folder.path()),
        OpenError::NoWatermark {
            problem: "is missing",
            ..
        }
    ));
    fs::write(&mark, whole).expect("written");
    assert_eq!(jobs(&open(folder.path())), 10);
}

#[test]
fn a_store_whose_making_was_interrupted_is_made_again() {
    let folder = folder();
    fs::create_dir(folder.path().join("rocksdb.new")).expect("made");
    fs::write(folder.path().join("rocksdb.new/CURRENT"), b"half").expect("written");
    drop(open(folder.path()));
    assert!(!folder.path().join("rocksdb.new").exists());
    let interrupted = self::folder();
    fs::copy(
        folder.path().join("watermark"),
        interrupted.path().join("watermark"),
    )
    .expect("copied");
    open(interrupted.path());
}

/// Four partitions, each with chunks of ten events of 4 KiB.
fn fill_log(store: &RocksStore) {
    for first in (0..600).step_by(10) {
        let mut batch = Batch::default();
        for partition in 1..5 {
            batch.put(
                Family::Log,
                keys::log(PartitionId(partition), Seq(first + 1)),
                chunk(10, 4096),
            );
        }
        store.write(&batch).expect("written");
    }
}

/// Writes so many events of 6 kB to files of the log, in chunks of ten.
fn fill_files(store: &RocksStore, events: u64) {
    for first in (0..events).step_by(10) {
        put(
            store,
            Family::Log,
            keys::log(PartitionId(1), Seq(first + 1)),
            chunk(10, 6000),
        );
    }
    store.compact_log().expect("compacted");
}

fn log_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder.join("rocksdb")).expect("a store");
    let files = entries.map(|entry| entry.expect("an entry"));
    let tables = files.filter(|file| {
        file.path()
            .extension()
            .is_some_and(|extension| extension == "sst")
    });
    tables
        .map(|file| file.metadata().expect("a length").len())
        .sum()
}

#[test]
fn a_floor_frees_the_log_below_it_and_touches_nothing_else() {
    let folder = folder();
    let store = open(folder.path());
    fill_log(&store);
    store.compact_log().expect("compacted");
    let before = log_bytes(folder.path());
    // The chunk at 501 reaches over this floor.
    store.drop_log(PartitionId(2), Seq(505)).expect("dropped");
    assert!(log_in(&store, 2).ends_with(&(501..600).step_by(10).collect::<Vec<_>>()));
    store.compact_log().expect("compacted");
    assert_eq!(
        log_in(&store, 2),
        (501..600).step_by(10).collect::<Vec<_>>()
    );
    for partition in [1, 3, 4] {
        assert_eq!(
            log_in(&store, partition),
            (1..600).step_by(10).collect::<Vec<_>>(),
            "partition {partition}"
        );
    }
    let after = log_bytes(folder.path());
    assert!(
        after < before * 85 / 100,
        "{before} bytes before, {after} after"
    );
}

#[test]
fn a_floor_on_the_edge_of_a_chunk_frees_that_chunk_and_keeps_the_next() {
    let folder = folder();
    let store = open(folder.path());
    fill_log(&store);
    store.drop_log(PartitionId(1), Seq(501)).expect("dropped");
    store.compact_log().expect("compacted");
    assert_eq!(log_in(&store, 1)[0], 501);
}

#[test]
fn a_floor_drops_whole_files_at_once() {
    let folder = folder();
    let store = open(folder.path());
    fill_files(&store, 6000);
    store.drop_log(PartitionId(1), Seq(5995)).expect("dropped");
    // On another thread, but before the store is closed.
    drop(store);
    let left = log_in(&open(folder.path()), 1);
    assert!(
        left.len() < 500 && left.last() == Some(&5991),
        "{} chunks are left",
        left.len()
    );
}

#[test]
fn a_long_part_of_the_log_is_dropped_file_by_file_and_a_close_leaves_the_rest() {
    let folder = folder();
    let store = open(folder.path());
    fill_files(&store, 18_000);
    let before = log_bytes(folder.path());
    store
        .drop_log(PartitionId(1), Seq(17_995))
        .expect("dropped");
    drop(store);
    let store = open(folder.path());
    assert_eq!(log_in(&store, 1).last(), Some(&17_991));
    // The next floor deletes what is left.
    store
        .drop_log(PartitionId(1), Seq(17_995))
        .expect("dropped");
    wait_for("files to be deleted", Duration::from_secs(10), || {
        log_bytes(folder.path()) < before / 3
    });
    assert_eq!(log_in(&store, 1).last(), Some(&17_991));
}

#[test]
fn what_a_floor_is_about_to_free_does_not_fill_the_block_cache() {
    let folder = folder();
    let store = open(folder.path());
    fill_files(&store, 6000);
    let used = || {
        store
            .figures()
            .expect("RocksDB has figures")
            .cache_used_bytes
    };
    let is_table = |entry: &fs::DirEntry| {
        entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "sst")
    };
    let tables = || {
        fs::read_dir(folder.path().join("rocksdb"))
            .expect("a store")
            .flatten()
            .filter(is_table)
            .count()
    };
    let before = used();
    let tables_before = tables();
    for floor in (15..1000).step_by(10) {
        store.drop_log(PartitionId(1), Seq(floor)).expect("dropped");
        thread::sleep(Duration::from_millis(1));
    }
    // Floors are looked at in order, on another thread.
    store.drop_log(PartitionId(1), Seq(5995)).expect("dropped");
    wait_for("files to be deleted", Duration::from_secs(10), || {
        tables() < tables_before
    });
    let filled = used().saturating_sub(before);
    assert!(filled < 256 << 10, "{filled} bytes");
}

#[test]
fn floors_are_known_again_after_a_restart() {
    let folder = folder();
    let store = open(folder.path());
    fill_log(&store);
    let floor = FloorRecord {
        floor: Seq(301),
        next: Seq(601),
        ..FloorRecord::default()
    };
    put(
        &store,
        Family::Meta,
        keys::floor_key(PartitionId(3)),
        floor.encode(),
    );
    drop(store);
    let store = open(folder.path());
    store.compact_log().expect("compacted");
    assert_eq!(
        log_in(&store, 3),
        (301..600).step_by(10).collect::<Vec<_>>()
    );
    assert_eq!(log_in(&store, 4).len(), 60);
}

#[test]
fn a_floor_that_cannot_be_read_is_damage() {
    let folder = folder();
    put(
        &open(folder.path()),
        Family::Meta,
        keys::floor_key(PartitionId(3)),
        &b"\x01"[..],
    );
    assert!(matches!(refused(folder.path()), OpenError::Damaged(_)));
}

#[test]
fn a_drained_queue_leaves_nothing_to_step_over() {
    let folder = folder();
    let store = open(folder.path());
    for round in 0..20u64 {
        let mut batch = Batch::default();
        (0..500).for_each(|key| {
            batch.put(
                Family::Due,
                (round * 500 + key).to_be_bytes().to_vec(),
                &b""[..],
            )
        });
        store.write(&batch).expect("written");
        let mut batch = Batch::default();
        (0..500).for_each(|key| {
            batch.single_delete(Family::Due, (round * 500 + key).to_be_bytes().to_vec())
        });
        store.write(&batch).expect("written");
    }
    assert!(keys_in(&store, Family::Due, &[0], &[0xff]).is_empty());
}
