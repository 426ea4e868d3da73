//! The store of a node that another node receives: whole or not at all, and in its place whenever
//! the process is killed.

use std::{fs, io, path::Path, sync::Arc};

use gridhook::{
    clock::Clock,
    repair::backup::{self, Backups, SentStore, StoreReceiver, TransferError},
    storage::record_decoders,
    store::{
        Family,
        keys::{self, MetaKind},
        records::{AppliedPosition, StoredRecord},
        rocks::{RocksOptions, RocksStore, received},
    },
};
use tempfile::TempDir;

use super::{keys_in, put};

/// The last record that the sender has applied.
const APPLIED: u64 = 700;

/// A receiver that notes what arrives, and refuses what it is to refuse.
#[derive(Default)]
struct TestReceiver {
    begun: Option<(u64, u64)>,
    progress: Vec<u64>,
    refuses_begin: bool,
    refuses_whole: bool,
}

fn refuse_if(refuses: bool) -> Result<(), TransferError> {
    if refuses {
        return Err(TransferError::Refused("not wanted".to_owned()));
    }
    Ok(())
}

impl StoreReceiver for TestReceiver {
    fn begin(&mut self, sent: &SentStore) -> Result<(), TransferError> {
        self.begun = Some((sent.applied, sent.total_bytes()));
        refuse_if(self.refuses_begin)
    }

    fn note_arrived(&mut self, bytes: u64) {
        self.progress.push(bytes);
    }

    fn accept(&mut self, _: &SentStore) -> Result<(), TransferError> {
        refuse_if(self.refuses_whole)
    }
}

/// A store that was sent, and the folder of another one.
struct StoreTransfer {
    folder: TempDir,
    sent: Vec<u8>,
}

impl StoreTransfer {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("sender");
        let store =
            Arc::new(RocksStore::open(&data, &RocksOptions::default()).expect("a new store"));
        fill(&store, 50);
        let applied = AppliedPosition {
            sequence: APPLIED,
            ..AppliedPosition::default()
        };
        put(
            &*store,
            Family::Meta,
            keys::meta_key(MetaKind::Applied, b""),
            applied.encode(),
        );
        let weak = Arc::downgrade(&store);
        let backups = Backups::new(
            weak,
            data.clone(),
            RocksOptions::default(),
            record_decoders(),
            Clock::system(),
        );
        let mut sent = Vec::new();
        let permit = backups.acquire_permit().expect("nobody else");
        assert_eq!(
            backups
                .send_store(&permit, &mut sent)
                .expect("it is sent")
                .applied,
            APPLIED
        );
        assert!(!data.join("rocksdb.frozen").exists());
        fill(
            &RocksStore::open(&folder.path().join("data"), &RocksOptions::default())
                .expect("a new store"),
            3,
        );
        Self { folder, sent }
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn receive(&self, sent: &[u8]) -> Result<SentStore, TransferError> {
        self.receive_with(sent, &mut TestReceiver::default())
    }

    fn receive_with(
        &self,
        mut sent: &[u8],
        receiver: &mut TestReceiver,
    ) -> Result<SentStore, TransferError> {
        backup::receive_store(&self.data(), &mut sent, &RocksOptions::default(), receiver)
    }
}

fn fill(store: &RocksStore, topics: u32) {
    for topic in 0..topics {
        put(
            store,
            Family::Meta,
            keys::meta_key(MetaKind::Topic, &topic.to_be_bytes()),
            vec![topic as u8; 100],
        );
    }
}

/// The number of topics in the store of a data folder.
fn topics(data: &Path) -> usize {
    let store = RocksStore::open(data, &RocksOptions::default()).expect("a store that is whole");
    let range = keys::meta_of(MetaKind::Topic);
    keys_in(&store, Family::Meta, &range.start, &range.end).len()
}

#[test]
fn a_store_that_was_received_takes_the_place_of_the_one_before_once_it_is_accepted() {
    let fixture = StoreTransfer::new();
    let data = fixture.data();
    fs::write(data.join("spared"), "meta\n").expect("a file");
    let mut receiver = TestReceiver::default();
    let received = fixture.receive_with(&fixture.sent, &mut receiver);
    let received = received.expect("it is whole");
    assert_eq!(receiver.begun, Some((APPLIED, received.total_bytes())));
    let progress = receiver.progress;
    assert!(
        progress.is_sorted() && progress.last() == Some(&received.total_bytes()),
        "{progress:?}"
    );
    // Killed before it is accepted.
    assert_eq!(topics(&data), 3);
    assert!(!received::arriving_folder(&data).exists());
    fixture.receive(&fixture.sent).expect("it is whole");
    received::accept_arrived(&data).expect("it is accepted");
    assert_eq!(topics(&data), 50);
    assert!(!data.join("received").exists() && !data.join("spared").exists());
    assert_eq!(topics(&data), 50);
}

#[test]
fn a_replacement_that_was_killed_at_any_step_is_completed_by_the_next_start() {
    let steps: [&dyn Fn(&Path); 5] = [
        &|_| {},
        &|data| fs::remove_file(data.join("rocksdb/CURRENT")).expect("a file"),
        &|data| fs::remove_dir_all(data.join("rocksdb")).expect("a folder"),
        &|data| {
            fs::rename(data.join("received/watermark"), data.join("watermark")).expect("a file")
        },
        &|data| fs::rename(data.join("received/rocksdb"), data.join("rocksdb")).expect("a folder"),
    ];
    for killed in 0..steps.len() {
        let fixture = StoreTransfer::new();
        let data = fixture.data();
        fixture.receive(&fixture.sent).expect("it is whole");
        received::accept_arrived(&data).expect("it is accepted");
        for step in &steps[..=killed] {
            step(&data);
        }
        assert_eq!(topics(&data), 50, "killed after step {killed}");
        assert!(!data.join("received").exists());
    }
}

#[test]
fn a_transfer_that_was_cut_or_altered_is_refused_and_leaves_nothing() {
    let fixture = StoreTransfer::new();
    let refused = |sent: &[u8], what: &str| {
        let error = fixture.receive(sent).expect_err(what);
        assert!(
            matches!(error, TransferError::Early(_) | TransferError::Damaged(_)),
            "{what}: {error}"
        );
        assert!(
            !received::arriving_folder(&fixture.data()).exists(),
            "{what}"
        );
    };
    let bytes = fixture.sent.len();
    for at in (0..bytes).step_by(bytes / 60).chain([bytes - 1]) {
        refused(&fixture.sent[..at], &format!("{at} of {bytes} bytes"));
        let mut altered = fixture.sent.clone();
        altered[at] ^= 0x10;
        refused(&altered, &format!("byte {at} of {bytes} is another one"));
    }
    refused(
        &[&fixture.sent[..], b"x"].concat(),
        "more than was announced",
    );
    assert_eq!(topics(&fixture.data()), 3);
}

#[test]
fn a_transfer_that_the_receiver_does_not_want_changes_nothing() {
    let fixture = StoreTransfer::new();
    let at_begin = TestReceiver {
        refuses_begin: true,
        ..TestReceiver::default()
    };
    let once_whole = TestReceiver {
        refuses_whole: true,
        ..TestReceiver::default()
    };
    for mut receiver in [at_begin, once_whole] {
        let received = fixture.receive_with(&fixture.sent, &mut receiver);
        assert!(matches!(received, Err(TransferError::Refused(_))));
        assert!(!received::arriving_folder(&fixture.data()).exists());
        assert_eq!(topics(&fixture.data()), 3);
    }
}

#[test]
fn a_transfer_keeps_its_rate_and_ends_when_the_receiver_has_gone() {
    struct Gone(usize);
    impl io::Write for Gone {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        Arc::new(RocksStore::open(folder.path(), &RocksOptions::default()).expect("a new store"));
    put(
        &*store,
        Family::Meta,
        keys::meta_key(MetaKind::Applied, b""),
        AppliedPosition::default().encode(),
    );
    put(
        &*store,
        Family::Meta,
        keys::meta_key(MetaKind::Topic, b"large"),
        vec![7; 512 << 10],
    );
    let backups = |rate| {
        let data = folder.path().to_owned();
        let backups = Backups::new(
            Arc::downgrade(&store),
            data,
            RocksOptions::default(),
            record_decoders(),
            Clock::system(),
        );
        backups.with_transfer_rate(rate)
    };
    let began = std::time::Instant::now();
    let limited = backups(4 << 20);
    let permit = limited.acquire_permit().expect("nobody else");
    let sent = limited
        .send_store(&permit, &mut io::sink())
        .expect("it is sent");
    let least = std::time::Duration::from_secs_f64(sent.total_bytes() as f64 / f64::from(4 << 20));
    assert!(
        began.elapsed() >= least,
        "{:?} instead of {least:?}",
        began.elapsed()
    );
    assert!(limited.send_store(&permit, &mut Gone(4)).is_err());
    assert!(!folder.path().join("rocksdb.frozen").exists());
}
