//! Checkpoints, backups and restores, and damaged backups, which are refused.

use std::{
    fs,
    ops::ControlFlow,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use gridhook::{
    clock::Clock,
    repair::{
        backup::{self, BackupMade, BackupProgress, Backups, Manifest, RestoreReport},
        fsck::CheckStop,
    },
    storage::record_decoders,
    store::{
        Family, Store,
        keys::{self, MetaKind},
        rocks::{OpenError, RocksOptions, RocksStore},
    },
};
use tempfile::TempDir;

use super::{copy_folder, keys_in, put};

/// A store in a data folder, with a folder for backups next to it.
struct StoreWithBackups {
    folder: TempDir,
    store: Arc<RocksStore>,
    backups: Backups,
}

fn go_on(_: BackupProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

impl StoreWithBackups {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let store =
            Arc::new(RocksStore::open(&data, &RocksOptions::default()).expect("a new store"));
        fs::write(data.join("admin-token"), b"secret\n").expect("written");
        let weak = Arc::downgrade(&store);
        let backups = Backups::new(
            weak,
            data,
            RocksOptions::default(),
            record_decoders(),
            Clock::system(),
        );
        Self {
            folder,
            store,
            backups,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the topics `from..to`, each in one batch.
    fn fill(&self, from: u32, to: u32) {
        for topic in from..to {
            put(
                &*self.store,
                Family::Meta,
                keys::meta_key(MetaKind::Topic, &topic.to_be_bytes()),
                vec![topic as u8; 100],
            );
        }
    }

    fn back_up(&self, name: &str) -> BackupMade {
        let turn = self.backups.acquire_permit().expect("nobody else");
        self.backups
            .make_in_folder(&turn, &self.path(name), &mut go_on)
            .expect("made")
    }

    fn restore(&self, from: &str, to: &str) -> Result<RestoreReport, backup::BackupError> {
        let options = RocksOptions::default();
        backup::restore_folder(
            &self.path(from),
            &self.path(to),
            &options,
            record_decoders(),
            &mut go_on,
        )
    }
}

fn topics(folder: &Path) -> usize {
    let store = RocksStore::open(folder, &RocksOptions::default()).expect("a store that is whole");
    let range = keys::meta_of(MetaKind::Topic);
    keys_in(&store, Family::Meta, &range.start, &range.end).len()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_backup_has_what_was_acknowledged_before_it_and_comes_back() {
    let queue = StoreWithBackups::new();
    for (round, name) in ["one", "two", "three"].iter().enumerate() {
        queue.fill(round as u32 * 50, (round as u32 + 1) * 50);
        if round == 1 {
            // Some of the records must be in tables, not only in the log.
            queue.store.compact_log().expect("compacted");
        }
        let BackupMade {
            manifest, report, ..
        } = queue.back_up(name);
        assert!(report.is_sound() && manifest.sound, "{report}");
    }
    queue.fill(150, 160);
    for (round, name) in ["one", "two", "three"].iter().enumerate() {
        let back = format!("{name}-back");
        let RestoreReport { report, .. } = queue.restore(name, &back).expect("restored");
        assert!(report.is_sound(), "{report}");
        assert_eq!(
            names(&queue.path(&back)),
            ["admin-token", "lock", "rocksdb", "watermark"]
        );
        assert_eq!(topics(&queue.path(&back)), (round + 1) * 50);
    }
    assert!(!queue.path("data").join("rocksdb.frozen").exists());
}

#[test]
fn other_users_can_read_neither_a_backup_nor_what_was_restored() {
    let queue = StoreWithBackups::new();
    queue.fill(0, 5);
    queue.back_up("backup");
    queue.restore("backup", "back").expect("restored");
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    for folder in ["backup", "back"] {
        let folder = queue.path(folder);
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        assert_eq!(mode(&folder.join("admin-token")), 0o600);
        assert_eq!(
            fs::read(folder.join("admin-token")).expect("bytes"),
            b"secret\n"
        );
        for name in names(&folder.join("rocksdb"))
            .iter()
            .filter(|name| !name.starts_with("LO"))
        {
            assert_eq!(
                mode(&folder.join("rocksdb").join(name)) & 0o077,
                0,
                "{name}"
            );
        }
    }
}

#[test]
fn a_backup_in_which_any_file_is_missing_cut_or_changed_is_refused_by_name() {
    let queue = StoreWithBackups::new();
    queue.fill(0, 50);
    queue.store.compact_log().expect("compacted");
    queue.fill(50, 60);
    let manifest = queue.back_up("backup").manifest;
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("is missing", |file| fs::remove_file(file).expect("removed")),
        ("bytes instead of", |file| {
            let bytes = fs::read(file).expect("bytes");
            fs::write(file, &bytes[..bytes.len() - 1]).expect("written");
        }),
        ("has a wrong checksum", |file| {
            let mut bytes = fs::read(file).expect("bytes");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            fs::write(file, bytes).expect("written");
        }),
    ];
    let mut refused = 0;
    let mut tried = 0;
    for file in manifest.files.iter().filter(|file| file.bytes > 0) {
        for (reported, damage) in damages {
            let damaged = tempfile::tempdir().expect("a folder");
            copy_folder(&queue.path("backup"), damaged.path()).expect("copied");
            damage(&damaged.path().join(&file.path));
            tried += 1;
            let back = queue.path("back");
            let options = RocksOptions::default();
            let restored = backup::restore_folder(
                damaged.path(),
                &back,
                &options,
                record_decoders(),
                &mut go_on,
            );
            let error = restored.map(drop).expect_err(&file.path).to_string();
            assert!(
                error.contains(&file.path) && error.contains(reported),
                "{} {reported}: {error}",
                file.path
            );
            assert!(!back.exists(), "nothing is left of what was begun");
            refused += 1;
        }
    }
    println!("refused {refused} of {tried} damaged backups");
    assert!(tried >= 15, "{tried}");
}

#[test]
fn a_restore_reads_regular_files_and_no_more_than_the_manifest_names() {
    let fixture = StoreWithBackups::new();
    fixture.fill(0, 10);
    let made = fixture.back_up("backup");
    let token = fixture.path("backup").join("admin-token");
    let table = made
        .manifest
        .files
        .iter()
        .find(|file| file.path.starts_with("rocksdb/"))
        .expect("a file of RocksDB");
    let table = fixture.path("backup").join(&table.path);
    for file in [&token, &table, &fixture.path("backup").join("backup.json")] {
        let whole = fs::read(file).expect("bytes");
        let refused = |expected: &str| {
            let error = fixture
                .restore("backup", "restored")
                .expect_err("refused")
                .to_string();
            assert!(error.contains(expected), "{}: {error}", file.display());
            assert!(!fixture.path("restored").exists(), "nothing is left");
        };
        fs::remove_file(file).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", file).expect("a link");
        refused("is a link, not a file");
        fs::remove_file(file).expect("removed");
        let is_made = std::process::Command::new("mkfifo")
            .arg(file)
            .status()
            .expect("it runs")
            .success();
        assert!(is_made, "a named pipe");
        refused("is not a regular file");
        fs::remove_file(file).expect("removed");
        if !file.ends_with("backup.json") {
            fs::write(file, [&whole[..], &vec![0; 5_000_000]].concat()).expect("written");
            refused("has more than the");
        }
        fs::write(file, whole).expect("written");
    }
    fixture.restore("backup", "restored").expect("whole again");
}

#[test]
fn a_backup_whose_files_are_cut_together_with_what_it_says_of_them_is_refused_by_its_watermark() {
    let queue = StoreWithBackups::new();
    queue.fill(0, 50);
    let mut manifest = queue.back_up("backup").manifest;
    let logs = manifest
        .files
        .iter_mut()
        .filter(|file| file.path.ends_with(".log"));
    let wal = logs
        .max_by_key(|file| file.bytes)
        .expect("a log with something in it");
    let path = queue.path("backup").join(&wal.path);
    let bytes = fs::read(&path).expect("bytes");
    let cut = &bytes[..bytes.len() - 20];
    fs::write(&path, cut).expect("written");
    (wal.bytes, wal.crc32) = (cut.len() as u64, crc32fast::hash(cut));
    fs::write(
        queue.path("backup/backup.json"),
        serde_json::to_vec(&manifest).expect("JSON"),
    )
    .expect("written");
    let error = queue
        .restore("backup", "back")
        .expect_err("it lost something");
    assert!(
        matches!(error, backup::BackupError::Open(OpenError::Behind { .. })),
        "{error}"
    );
    assert!(!queue.path("back").exists());
}

#[test]
fn a_folder_that_is_no_backup_or_unfinished_or_newer_is_refused() {
    let queue = StoreWithBackups::new();
    queue.fill(0, 5);
    let error = queue
        .restore("data", "back")
        .expect_err("a data folder is no backup")
        .to_string();
    assert!(
        error.contains("has no backup.json: it is not a backup, or an unfinished one"),
        "{error}"
    );
    let manifest = queue.back_up("backup").manifest;
    let write = |manifest: &Manifest| {
        fs::write(
            queue.path("backup/backup.json"),
            serde_json::to_vec(manifest).expect("JSON"),
        )
        .expect("written");
    };
    write(&Manifest {
        form: 2,
        ..manifest.clone()
    });
    let error = queue
        .restore("backup", "back")
        .expect_err("it is newer")
        .to_string();
    assert!(
        error.contains("has version 2, and this program knows versions up to 1"),
        "{error}"
    );
    for path in [
        "../outside",
        "rocksdb/../../outside",
        "rocksdb/a/b",
        "/etc/passwd",
    ] {
        let mut strange = manifest.clone();
        path.clone_into(&mut strange.files[0].path);
        write(&strange);
        let error = queue.restore("backup", "back").expect_err(path).to_string();
        assert!(error.contains("which is not part of a backup"), "{error}");
    }
    fs::write(queue.path("backup/backup.json"), b"{").expect("written");
    let error = queue
        .restore("backup", "back")
        .expect_err("it is damaged")
        .to_string();
    assert!(
        error.contains("is damaged: backup.json cannot be read"),
        "{error}"
    );
}

#[test]
fn nothing_that_is_there_is_written_over() {
    let queue = StoreWithBackups::new();
    queue.fill(0, 5);
    let turn = queue.backups.acquire_permit().expect("nobody else");
    let refusal = |path: &Path| {
        let error = queue
            .backups
            .make_in_folder(&turn, path, &mut go_on)
            .map(drop)
            .expect_err("refused")
            .to_string();
        assert!(
            matches!(queue.backups.check_target(Some(path)), Err(reported) if reported.to_string() == error),
            "{error}"
        );
        error
    };
    let mine = queue.path("mine");
    fs::create_dir(&mine).expect("made");
    fs::write(mine.join("thesis"), b"").expect("written");
    assert!(refusal(&mine).contains("is not empty"));
    assert_eq!(names(&mine), ["thesis"]);
    assert!(refusal(Path::new("backup")).contains("is not an absolute path"));
    assert!(refusal(&queue.path("data/backup")).contains("is in the data folder"));
    // One of several stores of a process.
    let weak = Arc::downgrade(&queue.store);
    let of_shard = Backups::new(
        weak,
        queue.path("data"),
        RocksOptions::default(),
        record_decoders(),
        Clock::system(),
    )
    .with_process_dir(Some(queue.folder.path().to_owned()));
    let beside = queue.path("beside");
    let errors = [
        of_shard.check_target(Some(&beside)),
        of_shard.folder_of_shard(&beside, 1).map(drop),
    ];
    for error in errors.map(|refused| {
        refused
            .expect_err("it is in the folder of the process")
            .to_string()
    }) {
        assert!(error.contains("is in the data folder"), "{error}");
    }
    assert!(!beside.exists());
    assert!(refusal(&queue.path("nowhere/backup")).contains("nowhere: No such file"));
    drop(turn);
    fs::remove_file(mine.join("thesis")).expect("removed");
    queue.back_up("mine");
    for name in ["rocksdb", "watermark", "admin-token"] {
        let used = queue.path("used");
        fs::create_dir_all(&used).expect("made");
        fs::write(used.join(name), b"mine").expect("written");
        let error = queue
            .restore("mine", "used")
            .expect_err("there is something")
            .to_string();
        assert!(error.contains(&format!("already has a {name}")), "{error}");
        assert_eq!(names(&used), [name]);
        fs::remove_dir_all(&used).expect("removed");
    }
}

#[test]
fn a_cancelled_backup_leaves_nothing_and_the_next_one_may_begin() {
    let queue = StoreWithBackups::new();
    queue.fill(0, 600);
    let folder = queue.path("backup");
    for pieces in 0..100 {
        let turn = queue
            .backups
            .acquire_permit()
            .expect("the last one is over");
        assert!(matches!(
            queue.backups.acquire_permit(),
            Err(backup::BackupError::Busy)
        ));
        let mut left = pieces;
        let mut watch = |_| {
            left -= 1;
            if left < 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let made = queue.backups.make_in_folder(&turn, &folder, &mut watch);
        if left >= 0 {
            // The observer was not called more often than that.
            assert!(made.is_ok() && pieces > 3, "{pieces}");
            return;
        }
        let error = made.map(drop).expect_err("called off");
        assert!(
            matches!(error, backup::BackupError::Stop(CheckStop::Canceled)),
            "{error}"
        );
        assert!(!folder.exists() && !queue.path("data/rocksdb.frozen").exists());
    }
    panic!("a backup has fewer pieces");
}

#[test]
fn files_of_a_killed_check_are_gone_after_the_next_start() {
    let queue = StoreWithBackups::new();
    queue.fill(0, 5);
    queue
        .store
        .freeze_to(&queue.path("data/rocksdb.frozen"))
        .expect("frozen");
    let killed = queue.path("killed");
    copy_folder(&queue.path("data"), &killed).expect("copied");
    assert!(killed.join("rocksdb.frozen").exists());
    assert_eq!(topics(&killed), 5);
    assert!(!killed.join("rocksdb.frozen").exists());
}

#[test]
fn a_store_that_is_looked_at_is_not_held_up_and_not_changed() {
    let queue = StoreWithBackups::new();
    queue.fill(0, 600);
    let turn = queue.backups.acquire_permit().expect("nobody else");
    let mut between = 600;
    let watch = &mut |_| {
        // During the check.
        queue.fill(between, between + 1);
        between += 1;
        ControlFlow::Continue(())
    };
    let report = queue.backups.check_store(&turn, watch).expect("looked at");
    assert!(report.is_sound(), "{report}");
    let carried = keys::carried(gridhook::event::PartitionId(1), gridhook::event::Seq(7));
    put(
        &*queue.store,
        Family::Carried,
        carried.clone(),
        super::chunk(1, 10),
    );
    let report = queue
        .backups
        .check_store(&turn, &mut go_on)
        .expect("looked at");
    assert!(
        !report.is_sound()
            && report
                .to_string()
                .contains("event 7 is carried and not needed"),
        "{report}"
    );
    assert!(
        queue
            .store
            .get(Family::Carried, &carried)
            .expect("readable")
            .is_some()
    );
}
