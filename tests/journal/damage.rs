//! Random damage of a store's files: the store is refused, reports the damage, or the damage has no
//! effect. It never silently has less than it acknowledged.
//!
//! All acknowledged records are remembered and compared with the records that are read after the
//! damage. Below the watermark nothing may be missing. Above it, if the store was killed within a
//! second of the last watermark, the end of the log may be missing as a whole; this is counted
//! separately.

use std::{
    collections::BTreeMap,
    fmt, fs,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use gridhook::{
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    store::{
        Batch, Family, Store,
        keys::{self, MetaKind},
        records::EncodedLines,
        rocks::{RocksOptions, RocksStore},
    },
};
use tempfile::TempDir;

use super::{chunk, copy_folder, scratch};
use crate::support::needs::many;

/// Kinds of a store's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FileKind {
    Wal,
    Sst,
    Manifest,
    Current,
    Options,
    Watermark,
}

const KINDS: [FileKind; 6] = [
    FileKind::Wal,
    FileKind::Sst,
    FileKind::Manifest,
    FileKind::Current,
    FileKind::Options,
    FileKind::Watermark,
];

impl FileKind {
    fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        match name {
            "CURRENT" => Some(Self::Current),
            "watermark" => Some(Self::Watermark),
            _ if name.starts_with("MANIFEST-") => Some(Self::Manifest),
            _ if name.starts_with("OPTIONS-") => Some(Self::Options),
            _ if name.ends_with(".log") => Some(Self::Wal),
            _ if name.ends_with(".sst") => Some(Self::Sst),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Flips a bit.
    Flip,
    /// Truncates the file.
    Cut,
    /// Zeroes a block of 4 KiB.
    Zero,
    /// Deletes the file.
    Remove,
}

const DAMAGES: [Damage; 4] = [Damage::Flip, Damage::Cut, Damage::Zero, Damage::Remove];

impl Damage {
    /// Returns whether the file has changed.
    fn inflict(self, file: &Path, jitter: &mut fastrand::Rng) -> bool {
        let before = fs::read(file).expect("a file that can be read");
        if matches!(self, Self::Remove) {
            fs::remove_file(file).expect("removed");
            return true;
        }
        if before.is_empty() {
            return false;
        }
        let mut bytes = before.clone();
        let at = jitter.usize(..bytes.len());
        match self {
            Self::Flip => bytes[at] ^= 1 << jitter.u32(..8),
            Self::Cut => bytes.truncate(at),
            Self::Zero => {
                let block = at / 4096 * 4096;
                let end = bytes.len().min(block + 4096);
                bytes[block..end].fill(0);
            }
            Self::Remove => {}
        }
        fs::write(file, &bytes).expect("written");
        bytes != before
    }
}

/// All records of a store.
type Records = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

/// The result of damaging a store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The store was refused.
    Refused,
    /// The store was opened and reports damaged records.
    Reported,
    /// All records are there.
    Harmless,
    /// The end of the writes after the last watermark is missing, as a whole.
    Tail,
    /// Records are missing or changed without an error.
    Lost(String),
}

/// How often each result occurred.
#[derive(Default)]
struct Verdicts {
    refused: u32,
    reported: u32,
    harmless: u32,
    tail: u32,
    lost: Vec<String>,
}

impl Verdicts {
    fn count(&mut self, verdict: Verdict, what: &str) {
        match verdict {
            Verdict::Refused => self.refused += 1,
            Verdict::Reported => self.reported += 1,
            Verdict::Harmless => self.harmless += 1,
            Verdict::Tail => self.tail += 1,
            Verdict::Lost(how) => self.lost.push(format!("{what}: {how}")),
        }
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            refused,
            reported,
            harmless,
            tail,
            lost,
        } = self;
        write!(
            f,
            "{refused} refused, {reported} reported when read, {harmless} harmless, {tail} shorter \
             by what came after the watermark, {} lost in silence",
            lost.len()
        )
    }
}

/// A used store, and its acknowledged writes in order.
struct Used {
    folder: TempDir,
    /// The records at the last watermark.
    noted: Records,
    /// The records that each later batch added.
    later: Vec<Batch>,
    // A killed store is simulated by copying the folder of an open one.
    _store: Option<RocksStore>,
}

fn apply(records: &mut Records, batch: &Batch) {
    use gridhook::store::WriteOp;
    for op in &batch.without_outcomes().0 {
        match op {
            WriteOp::Outcomes(..) => panic!("these are records"),
            WriteOp::Put(family, key, value) => {
                records.insert((*family, key.clone()), value.to_vec())
            }
            WriteOp::Delete(family, key) | WriteOp::SingleDelete(family, key) => {
                records.remove(&(*family, key.clone()))
            }
        };
    }
}

const SUBSCRIPTION_KEY: SubscriptionKey = SubscriptionKey {
    partition: PartitionId(1),
    subscription: SubscriptionId(1),
};

/// One step of use: a chunk, a pending delivery that is added and settled, a cursor, a job.
fn step(number: u64) -> Batch {
    let mut batch = Batch::default();
    batch.put(
        Family::Log,
        keys::log(SUBSCRIPTION_KEY.partition, Seq(1 + number * 4)),
        chunk(4, 900),
    );
    let pending_key = |seq: u64| {
        keys::pending(
            SUBSCRIPTION_KEY.partition,
            Seq(seq),
            SUBSCRIPTION_KEY.subscription,
            Lane::LIVE,
        )
    };
    let due = |seq: u64| {
        keys::due(
            SUBSCRIPTION_KEY,
            Timestamp(1000 + seq),
            Lane::LIVE,
            Seq(seq),
        )
    };
    batch.put(Family::Pending, pending_key(number), vec![number as u8; 40]);
    batch.put(Family::Due, due(number), Vec::new());
    if let Some(old) = number.checked_sub(20) {
        batch.delete(Family::Pending, pending_key(old));
        batch.single_delete(Family::Due, due(old));
    }
    batch.put_outcomes(
        SUBSCRIPTION_KEY,
        Some(number.to_be_bytes().to_vec().into()),
        EncodedLines::default(),
    );
    batch.put(
        Family::Meta,
        keys::meta_key(MetaKind::Topic, &number.to_be_bytes()),
        vec![number as u8; 60],
    );
    batch.put(
        Family::Carried,
        keys::carried(SUBSCRIPTION_KEY.partition, Seq(number)),
        chunk(1, 200),
    );
    batch
}

/// Small buffers, so that a small store has tables, several logs and a manifest with several
/// versions.
fn small() -> RocksOptions {
    RocksOptions {
        buffers_bytes: 512 << 10,
        wal_bytes: 256 << 10,
        ..RocksOptions::default()
    }
}

/// Opens the store three times and writes to it each time.
fn used(is_killed: bool) -> Used {
    let folder = scratch();
    let mut records = Records::new();
    let mut store = None;
    for process in 0..3 {
        drop(store.take());
        let opened = RocksStore::open(folder.path(), &small()).expect("a store that is whole");
        for number in process * 150..(process + 1) * 150 {
            let batch = step(number);
            opened.write(&batch).expect("written");
            apply(&mut records, &batch);
        }
        opened.note_watermark().expect("noted");
        store = Some(opened);
    }
    let opened = store.take().expect("a store");
    let range = keys::meta_of(MetaKind::Format);
    let format = opened
        .last(Family::Meta, &range.start, &range.end)
        .expect("readable")
        .expect("a format");
    records.insert((Family::Meta, format.0), format.1.to_vec());
    let mut used = Used {
        folder,
        noted: records,
        later: Vec::new(),
        _store: None,
    };
    if is_killed {
        for number in 450..456 {
            let batch = step(number);
            opened.write(&batch).expect("written");
            used.later.push(batch);
        }
        used._store = Some(opened);
    } else {
        opened.close().expect("closed");
    }
    used
}

/// A function that opens and reads a store.
type Reader = fn(&Path) -> Result<Result<Records, String>, String>;

/// Opens and reads the store as a server does: an error, or all records, by scans and by lookups.
fn read(folder: &Path) -> Result<Result<Records, String>, String> {
    let store = RocksStore::open(folder, &small()).map_err(|error| error.to_string())?;
    let mut records = Records::new();
    for family in Family::ALL {
        let scanned = store.scan(family, &[0], &[0xff; 4], &mut |key, value| {
            // The contents of pages are read as records.
            if keys::parse_outcome_page(key).is_none() {
                records.insert((family, key.to_vec()), value.to_vec());
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = scanned {
            return Ok(Err(error.to_string()));
        }
    }
    // Lookups use filters and indexes that scans do not.
    for key in records.keys().cloned().collect::<Vec<_>>() {
        match store.get(key.0, &key.1) {
            Ok(Some(found)) => drop(records.insert(key, found.to_vec())),
            Ok(None) => drop(records.remove(&key)),
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
    Ok(Ok(records))
}

fn judge(used: &Used, folder: &Path, read: Reader) -> Verdict {
    let records = match catch_unwind(AssertUnwindSafe(|| read(folder))) {
        Ok(Ok(Ok(records))) => records,
        Ok(Ok(Err(_))) => return Verdict::Reported,
        Ok(Err(_)) => return Verdict::Refused,
        Err(_) => return Verdict::Lost("it panicked".to_owned()),
    };
    let mut expected = used.noted.clone();
    let mut states = vec![expected.clone()];
    for batch in &used.later {
        apply(&mut expected, batch);
        states.push(expected.clone());
    }
    match states.iter().rposition(|state| *state == records) {
        Some(place) if place == used.later.len() => Verdict::Harmless,
        Some(_) => Verdict::Tail,
        None => {
            let missing = count_families(expected.keys().filter(|key| !records.contains_key(*key)));
            let strange = records
                .iter()
                .filter(|(key, value)| expected.get(*key) != Some(*value));
            let strange = count_families(strange.map(|(key, _)| key));
            Verdict::Lost(format!(
                "of {} records are missing {missing:?}, strange {strange:?}",
                expected.len()
            ))
        }
    }
}

/// How many records of each family these are.
fn count_families<'a>(
    keys: impl Iterator<Item = &'a (Family, Vec<u8>)>,
) -> BTreeMap<Family, usize> {
    let mut counts = BTreeMap::new();
    for (family, _) in keys {
        *counts.entry(*family).or_default() += 1;
    }
    counts
}

/// The files of a kind, sorted.
fn files(folder: &Path, kind: FileKind) -> Vec<PathBuf> {
    let entries = [folder.to_owned(), folder.join("rocksdb")]
        .map(|folder| fs::read_dir(folder).expect("a folder"));
    let mut files: Vec<_> = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|path| FileKind::from_path(path) == Some(kind));
    files.sort();
    files
}

/// A consistent copy of the folder: background work of the store may be in progress.
fn picture(used: &Used) -> TempDir {
    for _ in 0..100 {
        let picture = scratch();
        // A table may be deleted while it is copied.
        let detect_copy = copy_folder(used.folder.path(), picture.path()).is_ok();
        if detect_copy && judge(used, copy(picture.path()).path(), read) == Verdict::Harmless {
            return picture;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("a store that nobody damaged is not whole");
}

/// Damages each kind of file in each way, `rounds` times.
fn damage(
    used: &Used,
    rounds: u64,
    kinds: &[FileKind],
    read: Reader,
) -> BTreeMap<FileKind, Verdicts> {
    let mut verdicts: BTreeMap<FileKind, Verdicts> = BTreeMap::new();
    let still = picture(used);
    for (kind, damage) in kinds
        .iter()
        .flat_map(|kind| DAMAGES.map(|damage| (*kind, damage)))
    {
        for round in 0..rounds {
            let mut jitter =
                fastrand::Rng::with_seed(round * 100 + kind as u64 * 10 + damage as u64);
            let folder = copy(still.path());
            let files = files(folder.path(), kind);
            let file = &files[jitter.usize(..files.len())];
            if !damage.inflict(file, &mut jitter) {
                continue;
            }
            let name = file
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            let verdict = judge(used, folder.path(), read);
            let names: Vec<_> = files
                .iter()
                .map(|file| file.file_name().expect("a name"))
                .collect();
            verdicts.entry(kind).or_default().count(
                verdict,
                &format!("{damage:?} of {name} of {names:?}, round {round}"),
            );
        }
    }
    verdicts
}

fn copy(from: &Path) -> TempDir {
    let folder = scratch();
    copy_folder(from, folder.path()).expect("copied");
    folder
}

fn no_damage_is_silent(is_killed: bool, state: &str) {
    let used = used(is_killed);
    let verdicts = damage(&used, many(4, 40), &KINDS, read);
    for (kind, verdicts) in &verdicts {
        println!("{kind:?} of a {state} store: {verdicts}");
    }
    for (kind, verdicts) in verdicts {
        assert!(
            verdicts.lost.is_empty(),
            "{kind:?} of a {state} store: {:#?}",
            verdicts.lost
        );
        assert!(
            is_killed || verdicts.tail == 0,
            "the watermark of a store that was closed is exact"
        );
    }
}

#[test]
fn no_damage_to_a_store_that_was_closed_is_silent() {
    no_damage_is_silent(false, "closed");
}

#[test]
fn no_damage_to_a_store_that_was_killed_is_silent() {
    no_damage_is_silent(true, "killed");
}

/// Opens the store with RocksDB's default options.
fn read_with_defaults(folder: &Path) -> Result<Result<Records, String>, String> {
    let options = rocksdb::Options::default();
    let path = folder.join("rocksdb");
    let names = rocksdb::DB::list_cf(&options, &path).map_err(|error| error.to_string())?;
    let db = rocksdb::DB::open_cf(&options, &path, names).map_err(|error| error.to_string())?;
    let mut records = Records::new();
    for family in Family::ALL {
        let handle = db.cf_handle(family.name()).ok_or("a family is missing")?;
        for record in db.iterator_cf(handle, rocksdb::IteratorMode::Start) {
            match record {
                Ok((key, value)) => {
                    drop(records.insert((family, key.into_vec()), value.into_vec()))
                }
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
    }
    Ok(Ok(records))
}

#[test]
fn with_default_options_the_same_damage_is_silent() {
    let used = used(false);
    let verdicts = damage(&used, many(4, 50), &[FileKind::Wal], read_with_defaults);
    println!(
        "logs, by RocksDB's own defaults: {}",
        verdicts[&FileKind::Wal]
    );
    assert!(
        !verdicts[&FileKind::Wal].lost.is_empty(),
        "the test would not notice a loss"
    );
}

#[test]
fn a_manifest_that_ends_anywhere_is_never_silent() {
    let used = used(false);
    let still = picture(&used);
    let manifest = |folder: &Path| files(folder, FileKind::Manifest).pop().expect("a manifest");
    let length = fs::metadata(manifest(still.path())).expect("a file").len();
    // An odd step, so that cuts are not aligned with blocks.
    let step = many((length as usize / 40) | 1, 1);
    let mut verdicts = Verdicts::default();
    for end in (0..length).step_by(step) {
        let folder = copy(still.path());
        let file = fs::OpenOptions::new()
            .write(true)
            .open(manifest(folder.path()))
            .expect("a manifest");
        file.set_len(end).expect("cut");
        verdicts.count(judge(&used, folder.path(), read), &format!("cut at {end}"));
    }
    println!("a manifest of {length} bytes that ends at every {step}th place: {verdicts}");
    assert!(verdicts.lost.is_empty(), "{:#?}", verdicts.lost);
}
