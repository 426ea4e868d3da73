//! RocksDB's options, read back from the file in which RocksDB stores them. So a changed setting,
//! or a changed default of a new RocksDB, fails a test.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path};

use gridhook::store::{
    Family,
    rocks::{RocksOptions, RocksStore},
};

type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// The newest options file of the store.
fn read(folder: &Path) -> Sections {
    let entries = fs::read_dir(folder.join("rocksdb"))
        .expect("a store")
        .map(|entry| entry.expect("an entry").path());
    let is_options = |path: &std::path::PathBuf| path.to_string_lossy().contains("OPTIONS-");
    let newest = entries.filter(is_options).max().expect("a file of options");
    let text = fs::read_to_string(newest).expect("text");
    let mut sections = Sections::new();
    let mut section = String::new();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name.to_owned();
        } else if let Some((key, value)) = line.split_once('=') {
            sections
                .entry(section.clone())
                .or_default()
                .insert(key.to_owned(), value.to_owned());
        }
    }
    sections
}

fn check(sections: &Sections, section: &str, expected: &[(&str, &str)]) {
    let found = sections
        .get(section)
        .unwrap_or_else(|| panic!("no {section}"));
    for (key, value) in expected {
        assert_eq!(
            found.get(*key).map(String::as_str),
            Some(*value),
            "{key} of {section}"
        );
    }
}

/// The options that durability depends on, and those that must never be on.
const STORE: [(&str, &str); 24] = [
    ("wal_recovery_mode", "kTolerateCorruptedTailRecords"),
    ("track_and_verify_wals", "true"),
    ("avoid_flush_during_recovery", "true"),
    ("paranoid_checks", "true"),
    ("verify_sst_unique_id_in_manifest", "true"),
    ("flush_verify_memtable_count", "true"),
    ("compaction_verify_record_count", "true"),
    ("max_open_files", "-1"),
    ("max_background_jobs", "4"),
    ("best_efforts_recovery", "false"),
    ("manual_wal_flush", "false"),
    ("unordered_write", "false"),
    ("enable_pipelined_write", "false"),
    ("two_write_queues", "false"),
    ("wal_bytes_per_sync", "0"),
    ("bytes_per_sync", "1048576"),
    ("writable_file_max_buffer_size", "262144"),
    ("recycle_log_file_num", "0"),
    ("allow_mmap_writes", "false"),
    ("atomic_flush", "false"),
    ("create_if_missing", "false"),
    ("use_fsync", "false"),
    ("allow_fallocate", "true"),
    ("manifest_preallocation_size", "65536"),
];

#[test]
fn the_store_is_set_up_as_it_was_chosen() {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = RocksOptions {
        ledger_bytes: 77 << 20,
        buffers_bytes: 33 << 20,
        wal_bytes: 66 << 20,
        ..RocksOptions::default()
    };
    // The first start creates the store, the second opens it.
    drop(RocksStore::open(folder.path(), &wanted).expect("a new store"));
    drop(RocksStore::open(folder.path(), &wanted).expect("a store that is there"));
    let sections = read(folder.path());
    check(&sections, "DBOptions", &STORE);
    let buffers = wanted.buffers_bytes.to_string();
    let wal = wanted.wal_bytes.to_string();
    check(
        &sections,
        "DBOptions",
        &[
            ("db_write_buffer_size", &buffers),
            ("max_total_wal_size", &wal),
        ],
    );

    let buffer = (8 << 20).to_string();
    check(
        &sections,
        "CFOptions \"default\"",
        &[("write_buffer_size", &buffer)],
    );
    for family in Family::ALL {
        let section = format!("CFOptions \"{}\"", family.name());
        check(
            &sections,
            &section,
            &[
                ("write_buffer_size", &buffer),
                ("arena_block_size", "262144"),
            ],
        );
        // Small or random records are not compressed.
        let is_compressed = [
            Family::Log,
            Family::Ledger,
            Family::Excerpt,
            Family::Carried,
        ]
        .contains(&family);
        let compression = if is_compressed {
            "kLZ4Compression"
        } else {
            "kNoCompression"
        };
        check(&sections, &section, &[("compression", compression)]);
        let style = if [Family::Ledger, Family::Excerpt].contains(&family) {
            "kCompactionStyleFIFO"
        } else {
            "kCompactionStyleLevel"
        };
        check(&sections, &section, &[("compaction_style", style)]);
        let table = format!("TableOptions/BlockBasedTable \"{}\"", family.name());
        check(
            &sections,
            &table,
            &[
                ("cache_index_and_filter_blocks", "true"),
                ("pin_l0_filter_and_index_blocks_in_cache", "true"),
                ("checksum", "kXXH3"),
            ],
        );
        let filtered = matches!(
            family,
            Family::Pending | Family::Carried | Family::PublishedIds
        );
        assert_eq!(
            sections[&table]["filter_policy"] != "nullptr",
            filtered,
            "{}",
            family.name()
        );
        let log = [
            ("periodic_compaction_seconds", "86400"),
            ("target_file_size_base", "33554432"),
            ("max_write_buffer_number", "4"),
            (
                "compression_per_level",
                "kNoCompression:kNoCompression:kLZ4Compression",
            ),
        ];
        if family == Family::Log {
            check(&sections, &section, &log);
            assert_eq!(
                sections[&section]["compaction_filter_factory"],
                "gridhook.floors"
            );
        }
        if family == Family::Ledger {
            let fifo = &sections[&section]["compaction_options_fifo"];
            assert!(
                fifo.contains(&format!("max_table_files_size={};", wanted.ledger_bytes)),
                "{fifo}"
            );
        }
    }
}

/// The bytes that the files of a folder take on the disk, also those that nobody has written yet.
fn bytes_on_disk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder");
    let bytes = entries.map(|entry| {
        let entry = entry.expect("an entry");
        let info = entry.metadata().expect("its sizes");
        let inside = if info.is_dir() {
            bytes_on_disk(&entry.path())
        } else {
            0
        };
        inside + info.blocks() * 512
    });
    bytes.sum()
}

#[test]
fn an_idle_store_beside_others_takes_two_megabytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = RocksOptions {
        is_beside_others: true,
        ..RocksOptions::default()
    };
    let stores = ["0", "1"].map(|name| folder.path().join(name));
    // The first start creates the stores, the next ones open them.
    for _ in 0..3 {
        drop(stores.each_ref().map(|path| {
            let store = RocksStore::open(path, &wanted).expect("a store");
            let bytes = bytes_on_disk(path);
            assert!(bytes < 2 << 20, "{bytes} bytes");
            store
        }));
    }
    let ballast = fs::metadata(folder.path().join("ballast")).expect("one of both");
    assert_eq!(ballast.len(), 32 << 20);
    check(
        &read(&stores[0]),
        "DBOptions",
        &[("allow_fallocate", "false")],
    );
}
