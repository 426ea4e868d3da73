//! Many backups at one destination: what they share, what is removed, damage and encryption.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt as _, stream::BoxStream};
use gridhook::{
    clock::{Clock, Lease},
    dead_letter::{Sink, sink::FileFence},
    policy::backup::BackupRetention,
    repair::{
        backup::{
            self, BackupAt, BackupDestination, BackupError, BackupMade, BackupObserver,
            BackupProgress, Backups, Repository, SealKey,
        },
        fsck::CheckStop,
    },
    storage::record_decoders,
    store::{
        Family, Store,
        keys::{self, MetaKind},
        rocks::{RocksOptions, RocksStore},
    },
};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, local::LocalFileSystem,
    path::Path as ObjectPath,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::Instant;

use super::{keys_in, put};

/// Keeps everything.
const ALL: BackupRetention = BackupRetention {
    count: 100,
    age: Duration::ZERO,
};

/// A store, and a folder as the destination of its backups.
struct StoreWithDestination {
    folder: TempDir,
    store: Arc<RocksStore>,
}

impl StoreWithDestination {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let store =
            Arc::new(RocksStore::open(&data, &RocksOptions::default()).expect("a new store"));
        fs::write(data.join("admin-token"), b"secret\n").expect("written");
        Self { folder, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the topics `from..to`, of 10 KB each that cannot be compressed.
    fn fill(&self, from: u32, to: u32) {
        for topic in from..to {
            let mut value = vec![0; 10_000];
            fastrand::Rng::with_seed(topic.into()).fill(&mut value);
            put(
                &*self.store,
                Family::Meta,
                keys::meta_key(MetaKind::Topic, &topic.to_be_bytes()),
                value,
            );
        }
    }

    fn key(&self, byte: u8) -> Arc<SealKey> {
        let path = self.path(&format!("key-{byte}"));
        // 32 bytes in base64.
        let text = format!(
            "{}=\n",
            char::from(b'A' + byte).to_string().repeat(42) + "A"
        );
        fs::write(&path, text).expect("written");
        Arc::new(SealKey::read(&path).expect("a key"))
    }

    fn destination(
        &self,
        retention: BackupRetention,
        key: Option<Arc<SealKey>>,
    ) -> BackupDestination {
        let folder = self.path("destination");
        let root = folder.clone();
        let open = Arc::new(move || Sink::in_folder(&root));
        let address = format!("file://{}", folder.display());
        BackupDestination {
            address,
            folder: Some(folder),
            open,
            key,
            retention,
        }
    }

    fn backups(&self, destination: &BackupDestination) -> Backups {
        let store = Arc::downgrade(&self.store);
        let options = RocksOptions::default();
        Backups::new(
            store,
            self.path("data"),
            options,
            record_decoders(),
            Clock::system(),
        )
        .with_destination(Some(destination.clone()))
    }

    fn try_back_up(&self, destination: &BackupDestination) -> Result<BackupMade, BackupError> {
        let backups = self.backups(destination);
        let turn = backups.acquire_permit().expect("nobody else");
        let made = backups.make_at_destination(&turn, &mut |_| ControlFlow::Continue(()));
        let counts = backups.read_figures().expect("a destination");
        assert_eq!(counts.failures, u64::from(made.is_err()));
        assert_eq!(counts.last_success.is_some(), made.is_ok());
        made
    }

    fn back_up(&self, destination: &BackupDestination) -> BackupMade {
        let made = self
            .try_back_up(destination)
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(
            made.report.is_sound() && made.manifest.sound,
            "{}",
            made.report
        );
        made
    }

    /// Restores a backup, and counts the topics in it.
    fn restore(
        &self,
        destination: &BackupDestination,
        name: Option<&str>,
    ) -> Result<usize, BackupError> {
        let repository = Repository::open(destination, false)?;
        let stored = repository.find_sound(name, &mut |_| ())?;
        let back = tempfile::tempdir().expect("a folder");
        let options = RocksOptions::default();
        let folder = back.path().join("data");
        let watch = &mut |_: BackupProgress| ControlFlow::Continue(());
        let restored = backup::restore_stored(
            BackupAt {
                repository: &repository,
                backup: &stored,
            },
            &folder,
            &options,
            record_decoders(),
            watch,
        );
        if let Err(error) = restored {
            assert!(!folder.exists(), "nothing is left of what was begun");
            return Err(error);
        }
        assert_eq!(
            fs::read(folder.join("admin-token")).expect("bytes"),
            b"secret\n"
        );
        let store = RocksStore::open(&folder, &options).expect("a store that is whole");
        let range = keys::meta_of(MetaKind::Topic);
        Ok(keys_in(&store, Family::Meta, &range.start, &range.end).len())
    }

    fn names(&self, destination: &BackupDestination) -> Vec<String> {
        let repository = Repository::open(destination, false).expect("it is there");
        repository
            .list_backups()
            .expect("all can be read")
            .readable
            .into_iter()
            .map(|backup| backup.name)
            .collect()
    }
}

/// A folder on a disk with a bad sector: one file cannot be read until it is written again. Files
/// that are deleted stay, if they are listed instead.
#[derive(Debug)]
struct BadSector(
    LocalFileSystem,
    Mutex<Option<ObjectPath>>,
    Option<Arc<Mutex<Vec<ObjectPath>>>>,
);

impl fmt::Display for BadSector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a folder on a disk with a bad sector")
    }
}

#[async_trait::async_trait]
impl ObjectStore for BadSector {
    async fn put_opts(
        &self,
        path: &ObjectPath,
        bytes: PutPayload,
        how: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.1.lock().take_if(|bad| bad == path);
        self.0.put_opts(path, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        path: &ObjectPath,
        how: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, how).await
    }

    async fn get_opts(
        &self,
        path: &ObjectPath,
        how: GetOptions,
    ) -> object_store::Result<GetResult> {
        let is_bad = self.1.lock().as_ref() == Some(path);
        if is_bad {
            return Err(object_store::Error::Generic {
                store: "folder",
                source: "Input/output error".into(),
            });
        }
        self.0.get_opts(path, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<ObjectPath>>,
    ) -> BoxStream<'static, object_store::Result<ObjectPath>> {
        let Some(late) = self.2.clone() else {
            return self.0.delete_stream(paths);
        };
        let note = move |path: &object_store::Result<ObjectPath>| {
            let path = path.as_ref().expect("a path").clone();
            late.lock().push(path);
        };
        paths.inspect(note).boxed()
    }

    fn list(
        &self,
        below: Option<&ObjectPath>,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.0.list(below)
    }

    async fn list_with_delimiter(
        &self,
        below: Option<&ObjectPath>,
    ) -> object_store::Result<ListResult> {
        self.0.list_with_delimiter(below).await
    }

    async fn copy_opts(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        how: CopyOptions,
    ) -> object_store::Result<()> {
        self.0.copy_opts(from, to, how).await
    }
}

/// All files below a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path);
        }
    }
    found
}

/// A former owner that is paused while it removes pieces, and the next one, whose backup has the
/// same contents.
#[test]
fn what_a_former_owner_still_removes_is_in_no_backup_of_the_next_one() {
    let fixture = StoreWithDestination::new();
    let other = StoreWithDestination::new();
    fixture.fill(0, 200);
    other.fill(200, 300);
    let newest = BackupRetention {
        count: 1,
        age: Duration::ZERO,
    };
    let plain = fixture.destination(newest, None);
    let late_deletes = Arc::new(Mutex::new(Vec::new()));
    let lease = Lease::new_unrenewed();
    lease.renew_until(Instant::now() + Duration::from_secs(600));
    let fence = |epoch| {
        let lease = lease.clone();
        Some(FileFence { lease, epoch })
    };
    let root = fixture.path("destination");
    let deferred = Arc::clone(&late_deletes);
    let open = Arc::new(move || {
        fs::create_dir_all(&root).expect("a folder");
        let folder = LocalFileSystem::new_with_prefix(&root).expect("a folder");
        let late = Some(Arc::clone(&deferred));
        let store = BadSector(folder, Mutex::new(None), late);
        Ok(Sink::over_store(Arc::new(store)))
    });
    let former = BackupDestination {
        open,
        ..plain.clone()
    }
    .with_fence(fence(5));
    let next = plain.clone().with_fence(fence(9));
    let back_up = |fixture: &StoreWithDestination, destination: &BackupDestination| {
        let backups = fixture.backups(destination).owned_by(Some("c".to_owned()));
        let turn = backups.acquire_permit().expect("nobody else");
        let made = backups.make_at_destination(&turn, &mut |_| ControlFlow::Continue(()));
        made.unwrap_or_else(|error| panic!("{error}"))
    };
    back_up(&fixture, &former);
    // Nothing of the first backup is in this one.
    back_up(&other, &former);
    let deletes = std::mem::take(&mut *late_deletes.lock());
    assert!(deletes.len() > 1, "{deletes:?}");
    back_up(&fixture, &next);
    for path in deletes {
        let file = fixture.path("destination").join(path.as_ref());
        if file.exists() {
            fs::remove_file(file).expect("deleted");
        }
    }
    assert_eq!(fixture.restore(&next, None).expect("a sound backup"), 200);
    // Its next backups share what did not change.
    let again = back_up(&fixture, &next);
    assert!(again.written < 10_000, "{} bytes", again.written);
    let later = plain.with_fence(fence(12));
    let again = back_up(&fixture, &later);
    assert!(again.written < 10_000, "{} bytes", again.written);
    assert_eq!(fixture.restore(&later, None).expect("a sound backup"), 200);
}

#[test]
fn backups_share_what_did_not_change_and_each_comes_back() {
    let fixture = StoreWithDestination::new();
    for key in [None, Some(fixture.key(1))] {
        let destination = fixture.destination(ALL, key.clone());
        let known = if key.is_some() {
            fixture.names(&destination)
        } else {
            Vec::new()
        };
        let topics = if key.is_some() { 400 } else { 0 };
        fixture.fill(topics, topics + 200);
        fixture
            .store
            .compact_family(Family::Meta)
            .expect("compacted");
        let first = fixture.back_up(&destination);
        assert!(
            first.written > first.manifest.total_bytes() / 2,
            "{} of {}",
            first.written,
            first.manifest.total_bytes()
        );
        fixture.fill(topics + 200, topics + 210);
        let second = fixture.back_up(&destination);
        assert!(
            second.written < 600_000,
            "{} of {} bytes",
            second.written,
            second.manifest.total_bytes()
        );
        assert!(second.manifest.total_bytes() > 2_000_000);
        let third = fixture.back_up(&destination);
        assert!(
            third.written < 10_000,
            "{} bytes for no change",
            third.written
        );
        let names = fixture.names(&destination);
        for (made, expected) in names[known.len()..].iter().zip([200, 210, 210]) {
            let found = fixture.restore(&destination, Some(made)).expect("restored");
            assert_eq!(
                found,
                if key.is_some() {
                    210 + expected
                } else {
                    expected
                }
            );
        }
        fixture.fill(topics + 210, topics + 400);
        assert_eq!(
            fixture.restore(&destination, None).expect("the newest"),
            if key.is_some() { 420 } else { 210 }
        );
        if key.is_none() {
            // The next round begins with 210 topics, as if the others had never been.
            let all: Vec<_> = (210..400_u32)
                .map(|topic| keys::meta_key(MetaKind::Topic, &topic.to_be_bytes()))
                .collect();
            let mut batch = gridhook::store::Batch::default();
            all.into_iter()
                .for_each(|key| batch.delete(Family::Meta, key));
            fixture.store.write(&batch).expect("written");
        }
    }
}

#[test]
fn without_the_right_key_nothing_of_an_encrypted_backup_is_read() {
    let fixture = StoreWithDestination::new();
    fixture.fill(0, 20);
    let sealed = fixture.destination(ALL, Some(fixture.key(1)));
    fixture.back_up(&sealed);
    for file in files(&fixture.path("destination"))
        .iter()
        .filter(|file| !file.ends_with("server.json"))
    {
        let bytes = fs::read(file).expect("bytes");
        assert!(
            bytes.starts_with(b"gridhook sealed 1\n"),
            "{}",
            file.display()
        );
        assert!(
            !bytes.windows(6).any(|part| part == b"secret"),
            "{}",
            file.display()
        );
    }
    let error = |key| {
        fixture
            .restore(&fixture.destination(ALL, key), None)
            .expect_err("refused")
            .to_string()
    };
    assert!(
        error(None).contains("needs the key of backup.key_file"),
        "{}",
        error(None)
    );
    let wrong = error(Some(fixture.key(2)));
    assert!(
        wrong.contains("cannot be decrypted, or has another key"),
        "{wrong}"
    );
    assert_eq!(fixture.restore(&sealed, None).expect("restored"), 20);
    // Write access to the destination is not enough to replace it by an unencrypted one.
    let without = fixture.backups(&fixture.destination(ALL, None));
    let turn = without.acquire_permit().expect("nobody else");
    without
        .make_at_destination(&turn, &mut |_| ControlFlow::Continue(()))
        .expect("made");
    let plain = error(Some(fixture.key(1)));
    assert!(plain.contains("has the unencrypted backup"), "{plain}");
}

#[test]
fn a_damaged_piece_or_manifest_is_named_and_other_backups_are_restored() {
    let fixture = StoreWithDestination::new();
    fixture.fill(0, 50);
    fixture
        .store
        .compact_family(Family::Meta)
        .expect("compacted");
    for key in [None, Some(fixture.key(3))] {
        let destination = fixture.destination(ALL, key);
        fixture.back_up(&destination);
        let name = fixture.names(&destination).pop().expect("a backup");
        let mine = Repository::open(&destination, false)
            .expect("it is there")
            .find_sound(None, &mut |_| ())
            .expect("the newest");
        for file in &mine.manifest.files {
            let Some(hash) = file.pieces.first() else {
                continue;
            };
            let piece = format!("pieces/{}/{hash}", &hash[..2]);
            let path = fixture.path("destination").join(&piece);
            let bytes = fs::read(&path).expect("bytes");
            let mut changed = bytes.clone();
            *changed.last_mut().expect("not empty") ^= 1;
            for (damage, expected) in [
                (Some(&changed[..]), "is damaged"),
                (None, "is missing"),
                (Some(&bytes[1..]), "is damaged"),
            ] {
                match damage {
                    // As if it had been read longer ago than the others: its length may say
                    // nothing.
                    Some(damage) => {
                        fs::write(&path, damage).expect("written");
                        set_read(&path, SystemTime::UNIX_EPOCH);
                    }
                    None => fs::remove_file(&path).expect("removed"),
                }
                let error = fixture
                    .restore(&destination, Some(&name))
                    .expect_err(&file.path)
                    .to_string();
                assert!(
                    error.contains(&piece) && error.contains(expected),
                    "{}: {error}",
                    file.path
                );
                // The next backup writes it again.
                let again = fixture.try_back_up(&destination);
                if file.path.ends_with(".sst") {
                    assert!(
                        again.is_ok_and(|made| made.written >= bytes.len() as u64),
                        "{}",
                        file.path
                    );
                    assert_eq!(
                        fixture
                            .restore(&destination, Some(&name))
                            .expect("whole again"),
                        50
                    );
                }
            }
            fs::write(&path, bytes).expect("written");
        }
        let manifest = fixture
            .path("destination")
            .join(format!("backups/{name}.json"));
        let whole = fs::read(&manifest).expect("bytes");
        fs::write(&manifest, &whole[..whole.len() - 9]).expect("written");
        let error = fixture
            .restore(&destination, Some(&name))
            .expect_err("damaged")
            .to_string();
        assert!(
            error.contains(&format!("backups/{name}.json")) && error.contains("is damaged"),
            "{error}"
        );
        fs::write(&manifest, whole).expect("written");
        fs::remove_dir_all(fixture.path("destination")).expect("removed");
    }
}

#[test]
fn a_damaged_manifest_hides_no_other_backup_and_is_named() {
    let fixture = StoreWithDestination::new();
    let destination = fixture.destination(ALL, None);
    for round in 0..3 {
        fixture.fill(round, round + 1);
        fixture.back_up(&destination);
    }
    let names = fixture.names(&destination);
    let manifest = fixture
        .path("destination")
        .join(format!("backups/{}.json", names[0]));
    let mut bytes = fs::read(&manifest).expect("bytes");
    bytes[0] ^= 1;
    fs::write(&manifest, bytes).expect("written");
    let repository = Repository::open(&destination, false).expect("it is there");
    let list = repository.list_backups().expect("the others are listed");
    assert_eq!(
        list.readable
            .iter()
            .map(|backup| &backup.name)
            .collect::<Vec<_>>(),
        [&names[1], &names[2]]
    );
    let [unreadable] = &list.unreadable[..] else {
        panic!("{:?}", list.unreadable)
    };
    assert!(
        unreadable.name == names[0] && unreadable.problem.contains("is damaged"),
        "{unreadable:?}"
    );
    let mut warned = Vec::new();
    let newest = repository
        .find_sound(None, &mut |one| warned.push(one.name.clone()))
        .expect("the newest");
    assert_eq!(
        (newest.name, warned),
        (names[2].clone(), vec![names[0].clone()])
    );
    assert_eq!(fixture.restore(&destination, None).expect("restored"), 3);
    // Its pieces may be needed: nothing is removed until an operator has looked at it.
    let few = BackupRetention { count: 1, ..ALL };
    let backups = fixture.backups(&fixture.destination(few, None));
    backups
        .make_at_destination(&backups.acquire_permit().expect("nobody else"), &mut |_| {
            ControlFlow::Continue(())
        })
        .expect("made");
    assert_eq!(
        (
            fixture.names(&destination).len(),
            backups.read_figures().expect("a destination").failures
        ),
        (3, 1)
    );
    fs::remove_file(&manifest).expect("removed");
    fixture.back_up(&fixture.destination(few, None));
    assert_eq!(fixture.names(&destination).len(), 1);
}

#[test]
fn a_named_pipe_in_the_place_of_a_file_holds_up_no_backup() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let fixture = StoreWithDestination::new();
        let destination = fixture.destination(ALL, None);
        fixture.back_up(&destination);
        let owner = fixture.path("destination").join("server.json");
        let whole = fs::read(&owner).expect("bytes");
        fs::remove_file(&owner).expect("removed");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&owner)
                .status()
                .expect("it runs")
                .success()
        );
        let refused = fixture
            .try_back_up(&destination)
            .expect_err("refused")
            .to_string();
        fs::remove_file(&owner).expect("removed");
        fs::write(&owner, whole).expect("written");
        fixture.back_up(&destination);
        sender.send(refused).expect("the test waits");
    });
    let refused = receiver
        .recv_timeout(Duration::from_secs(60))
        .expect("nothing waits for the pipe");
    assert!(
        refused.contains("server.json") && refused.contains("is not a regular file"),
        "{refused}"
    );
}

fn set_read(piece: &Path, at: SystemTime) {
    File::open(piece)
        .and_then(|piece| piece.set_modified(at))
        .expect("its time is set");
}

fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1)
}

/// Fifteen backups whose pieces seem to be unread for long, and the one that is unread for longest
/// damaged: the first piece of a table that the newest backup names.
struct DamagedPiece {
    fixture: StoreWithDestination,
    destination: BackupDestination,
    pieces: BTreeSet<PathBuf>,
    newest: String,
}

impl DamagedPiece {
    fn new() -> Self {
        let fixture = StoreWithDestination::new();
        let destination = fixture.destination(ALL, None);
        for round in 0..15 {
            fixture.fill(round, round + 1);
            fixture
                .store
                .compact_family(Family::Meta)
                .expect("compacted");
            fixture.back_up(&destination);
        }
        let newest = Repository::open(&destination, false)
            .expect("it is there")
            .find_sound(None, &mut |_| ())
            .expect("the newest");
        let table = newest
            .manifest
            .files
            .iter()
            .find(|file| file.path.ends_with(".sst"))
            .expect("a table");
        let hash = &table.pieces[0];
        let damaged = fixture
            .path("destination")
            .join(format!("pieces/{}/{hash}", &hash[..2]));
        let mut bytes = fs::read(&damaged).expect("bytes");
        bytes[9] ^= 1;
        fs::write(&damaged, bytes).expect("written");
        let pieces = files(&fixture.path("destination/pieces"));
        assert!(pieces.len() > 40, "{}", pieces.len());
        pieces.iter().for_each(|piece| set_read(piece, long_ago()));
        set_read(&damaged, SystemTime::UNIX_EPOCH);
        fixture.restore(&destination, None).expect_err("damaged");
        Self {
            fixture,
            destination,
            pieces,
            newest: newest.name,
        }
    }
}

#[test]
fn a_backup_to_a_folder_reads_some_of_the_pieces_and_each_in_its_turn() {
    let DamagedPiece {
        fixture,
        destination,
        pieces,
        newest,
    } = DamagedPiece::new();
    let unread = || {
        let modified = |piece: &&PathBuf| {
            fs::metadata(piece)
                .and_then(|piece| piece.modified())
                .expect("its time")
        };
        pieces
            .iter()
            .filter(|piece| modified(piece) <= long_ago())
            .count()
    };
    let mut backups = 0;
    while unread() > 0 {
        let before = unread();
        fixture.back_up(&destination);
        let read = before - unread();
        // One is damaged, and does not count.
        assert!((16.min(before)..=17).contains(&read), "{read} of {before}");
        backups += 1;
    }
    assert!(backups >= 3, "{backups}");
    assert_eq!(
        fixture.restore(&destination, None).expect("whole again"),
        15
    );
    assert_eq!(
        fixture
            .restore(&destination, Some(&newest))
            .expect("whole again"),
        15
    );
}

#[test]
fn a_damaged_piece_that_a_canceled_backup_found_is_found_again() {
    let DamagedPiece {
        fixture,
        destination,
        newest,
        ..
    } = DamagedPiece::new();
    let backups = fixture.backups(&destination);
    let mut checks = 0;
    let canceled =
        backups.make_at_destination(&backups.acquire_permit().expect("nobody else"), &mut |_| {
            checks += 1;
            if checks < 10 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    canceled.expect_err("canceled after the damaged piece was read");
    fixture
        .restore(&destination, None)
        .expect_err("still damaged");
    fixture.back_up(&destination);
    assert_eq!(
        fixture
            .restore(&destination, Some(&newest))
            .expect("whole again"),
        15
    );
}

#[test]
fn a_piece_that_cannot_be_read_is_written_again() {
    let fixture = StoreWithDestination::new();
    fixture.fill(0, 50);
    fixture
        .store
        .compact_family(Family::Meta)
        .expect("compacted");
    let plain = fixture.destination(ALL, None);
    fixture.back_up(&plain);
    let stored = Repository::open(&plain, false)
        .expect("it is there")
        .find_sound(None, &mut |_| ())
        .expect("the newest");
    let table = stored
        .manifest
        .files
        .iter()
        .find(|file| file.path.ends_with(".sst"))
        .expect("a table");
    let bad = ObjectPath::from(format!(
        "pieces/{}/{}",
        &table.pieces[0][..2],
        table.pieces[0]
    ));
    let folder = LocalFileSystem::new_with_prefix(fixture.path("destination")).expect("a folder");
    let disk = Arc::new(BadSector(folder, Mutex::new(Some(bad.clone())), None));
    let open = Arc::clone(&disk);
    let damaged = BackupDestination {
        open: Arc::new(move || Ok(Sink::over_store(open.clone()))),
        ..plain.clone()
    };
    let error = fixture
        .restore(&damaged, None)
        .expect_err("it cannot be read")
        .to_string();
    assert!(
        error.contains(bad.as_ref()) && error.contains("Input/output error"),
        "{error}"
    );
    let made = fixture.back_up(&damaged);
    assert!(made.written >= table.bytes, "{} bytes", made.written);
    assert_eq!(*disk.1.lock(), None, "it was written again");
    for name in [None, Some(stored.name.as_str())] {
        assert_eq!(fixture.restore(&damaged, name).expect("whole again"), 50);
    }
}

#[test]
fn the_readable_part_of_a_damaged_backup_is_copied_next_to_the_data_folder() {
    let fixture = StoreWithDestination::new();
    fixture.fill(0, 20);
    let destination = fixture.destination(ALL, None);
    fixture.back_up(&destination);
    let repository = Repository::open(&destination, false).expect("it is there");
    let stored = repository
        .find_sound(None, &mut |_| ())
        .expect("the newest");
    let file = stored
        .manifest
        .files
        .iter()
        .find(|file| file.pieces.len() == 1)
        .expect("a file with one piece");
    let hash = &file.pieces[0];
    let piece = fixture
        .path("destination")
        .join(format!("pieces/{}/{hash}", &hash[..2]));
    fs::remove_file(&piece).expect("removed");
    let salvage = |copy: &Path, _: &mut BackupObserver<'_>| {
        assert_eq!(copy.parent(), Some(&*fixture.path("")));
        let copied = fs::read(copy.join(&file.path)).expect("bytes");
        assert_eq!(
            (copied.len() as u64, copied.iter().all(|byte| *byte == 0)),
            (file.bytes, true)
        );
        Ok(())
    };
    let watch = &mut |_: BackupProgress| ControlFlow::Continue(());
    backup::with_readable_copy(
        BackupAt {
            repository: &repository,
            backup: &stored,
        },
        &fixture.path("restored/"),
        watch,
        salvage,
    )
    .expect("copied");
}

#[test]
fn a_destination_belongs_to_the_server_that_wrote_to_it_first() {
    let fixture = StoreWithDestination::new();
    fixture.fill(0, 10);
    for key in [None, Some(fixture.key(4))] {
        let destination = fixture.destination(ALL, key);
        fixture.back_up(&destination);
        let before = files(&fixture.path("destination"));
        // A copy of the store in another data folder, as after a restore.
        let other = fixture.path("other");
        fs::create_dir_all(&other).expect("made");
        let store = Arc::downgrade(&fixture.store);
        let options = RocksOptions::default();
        let other = Backups::new(store, other, options, record_decoders(), Clock::system())
            .with_destination(Some(destination.clone()));
        let turn = other.acquire_permit().expect("nobody else");
        for refused in [
            other.newest_backup_time().map(drop),
            other
                .make_at_destination(&turn, &mut |_| ControlFlow::Continue(()))
                .map(drop),
        ] {
            let error = refused.expect_err("another server's").to_string();
            assert!(
                error.contains("belongs to the server") && error.contains("delete server.json"),
                "{error}"
            );
        }
        assert_eq!(other.read_figures().expect("a destination").failures, 2);
        assert_eq!(
            files(&fixture.path("destination")),
            before,
            "nothing was written"
        );
        assert_eq!(
            fixture
                .restore(&destination, None)
                .expect("everybody may restore"),
            10
        );
        fixture.back_up(&destination);
        // The operator gives it to the other one.
        fs::remove_file(fixture.path("destination/server.json")).expect("removed");
        other
            .make_at_destination(&turn, &mut |_| ControlFlow::Continue(()))
            .expect("its own now");
        let error = fixture
            .try_back_up(&destination)
            .map(drop)
            .expect_err("no longer")
            .to_string();
        assert!(error.contains("belongs to the server"), "{error}");
        fs::remove_dir_all(fixture.path("destination")).expect("removed");
    }
}

#[test]
fn retention_removes_expired_backups_and_only_the_pieces_that_no_backup_has() {
    let fixture = StoreWithDestination::new();
    let few = fixture.destination(
        BackupRetention {
            count: 2,
            age: Duration::ZERO,
        },
        None,
    );
    let mut before = 0;
    for round in 0..5 {
        fixture.fill(round * 20, (round + 1) * 20);
        fixture
            .store
            .compact_family(Family::Meta)
            .expect("compacted");
        fixture.back_up(&few);
        let names = fixture.names(&few);
        assert_eq!(names.len(), (round as usize + 1).min(2), "{names:?}");
        for (made, topics) in names.iter().rev().zip([(round + 1) * 20, round * 20]) {
            assert_eq!(
                fixture.restore(&few, Some(made)).expect("restored"),
                topics as usize
            );
        }
        let now = files(&fixture.path("destination")).len();
        assert!(round < 2 || now <= before + 6, "{now} files after {before}");
        before = now;
    }
    // A manifest that cannot be read stops the removal: its pieces are not known.
    let names = fixture.names(&few);
    let manifest = fixture
        .path("destination")
        .join(format!("backups/{}.json", names[0]));
    let whole = fs::read(&manifest).expect("bytes");
    fs::write(&manifest, b"{").expect("written");
    let pieces = files(&fixture.path("destination/pieces"));
    fixture.fill(100, 101);
    let backups = fixture.backups(&few);
    let turn = backups.acquire_permit().expect("nobody else");
    backups
        .make_at_destination(&turn, &mut |_| ControlFlow::Continue(()))
        .expect("the backup itself is made");
    assert_eq!(backups.read_figures().expect("a destination").failures, 1);
    assert!(files(&fixture.path("destination/pieces")).is_superset(&pieces));
    fs::write(&manifest, whole).expect("written");
    assert_eq!(fixture.names(&few).len(), 3);
    assert_eq!(
        fixture.restore(&few, Some(&names[0])).expect("restored"),
        80
    );
}

#[test]
fn an_interrupted_backup_leaves_the_others_and_its_pieces_are_used_by_the_next() {
    let fixture = StoreWithDestination::new();
    let destination = fixture.destination(ALL, None);
    fixture.fill(0, 100);
    fixture
        .store
        .compact_family(Family::Meta)
        .expect("compacted");
    fixture.back_up(&destination);
    fixture.fill(100, 500);
    fixture
        .store
        .compact_family(Family::Meta)
        .expect("compacted");
    let mut tried = 0;
    for after in 0.. {
        let backups = fixture.backups(&destination);
        let turn = backups.acquire_permit().expect("nobody else");
        let mut steps = 0;
        let made = backups.make_at_destination(&turn, &mut |progress| {
            steps += usize::from(matches!(progress, BackupProgress::Copying { .. }));
            if steps > after {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(!fixture.path("data/rocksdb.frozen").exists());
        match made {
            Err(BackupError::Stop(CheckStop::Canceled)) => tried += 1,
            Ok(made) => {
                assert!(
                    made.written < made.manifest.total_bytes() / 2,
                    "{} of {}",
                    made.written,
                    made.manifest.total_bytes()
                );
                break;
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(
            fixture.names(&destination).len(),
            1,
            "an unfinished backup is none"
        );
        assert_eq!(
            fixture
                .restore(&destination, None)
                .expect("the earlier one"),
            100
        );
        assert_eq!(
            backups.read_figures().expect("a destination").failures,
            0,
            "a stop is no failure"
        );
    }
    assert!(tried > 3, "{tried}");
    assert_eq!(
        fixture.restore(&destination, None).expect("the new one"),
        500
    );
}

#[test]
fn a_missing_destination_is_reported_and_not_created() {
    let fixture = StoreWithDestination::new();
    fixture.fill(0, 5);
    let mut destination = fixture.destination(ALL, None);
    let error = fixture
        .restore(&destination, None)
        .expect_err("nothing is there")
        .to_string();
    assert!(
        error.contains("there is no folder") && error.contains("destination"),
        "{error}"
    );
    assert!(
        !fixture.path("destination").exists(),
        "reading makes nothing"
    );
    let away = fixture.path("mnt/destination");
    let root = away.clone();
    (destination.folder, destination.open) = (Some(away), Arc::new(move || Sink::in_folder(&root)));
    let error = fixture
        .try_back_up(&destination)
        .map(drop)
        .expect_err("the disk is away")
        .to_string();
    assert!(
        error.contains("there is no folder") && error.contains("mnt"),
        "{error}"
    );
    fs::create_dir(fixture.path("mnt")).expect("made");
    fixture.back_up(&destination);
    assert_eq!(fixture.restore(&destination, None).expect("restored"), 5);
    for key in ["", "short", "AAAA", "!"] {
        fs::write(fixture.path("key"), key).expect("written");
        let error = SealKey::read(&fixture.path("key")).expect_err(key);
        let error = error.to_string();
        assert!(error.contains("32 bytes in base64"), "{error}");
    }
}
