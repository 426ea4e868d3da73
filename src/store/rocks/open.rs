//! Opens a store, with all checks in the order that they must have.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    ops::ControlFlow,
    path::Path,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use parking_lot::Mutex;
use rocksdb::{Cache, ColumnFamilyDescriptor, DB, Options};
use rustix::process::{getpriority_process, setpriority_process};

use super::{
    FORMAT, OpenError, RocksOptions, RocksStore, WriteModes,
    floors::PartitionFloors,
    folder::DataFolder,
    options::{self, synced_writes},
    pages::Pages,
    received, rocksdb_error,
    trim::Trimmer,
};
use crate::{
    Family, Store, StoreError,
    keys::{self, MetaKind},
    migrate::{self, migrate_store},
    records::{FloorRecord, StoredRecord},
    watermark::{Watermark, WatermarkFile},
};

/// The folder of RocksDB, below the data folder.
pub const STORE: &str = "rocksdb";

/// The checkpoint of a running store that a check or a backup reads, below the data folder. A
/// killed process may leave it behind; the next start removes it.
pub const FROZEN: &str = "rocksdb.frozen";

/// The folder in which a new store is made. An existing one was never used and is removed.
const DRAFT: &str = "rocksdb.new";

/// The niceness of the threads that write and compact tables, above that of other threads.
/// Otherwise each new table delays events by tens of milliseconds where all processors are busy.
/// With much more they would fall behind the writes.
const NICENESS: i32 = 5;

/// The column family that RocksDB always has. It stays empty.
const UNUSED: &str = rocksdb::DEFAULT_COLUMN_FAMILY_NAME;

pub(super) fn open(path: &Path, wanted: &RocksOptions) -> Result<RocksStore, OpenError> {
    let folder = DataFolder::create_and_lock(path, wanted)?;
    received::finish_arrival(path).map_err(|source| open_io_error(&folder, source))?;
    let watermark = find_watermark(&folder, wanted)?;
    let floors = PartitionFloors::default();
    let uncompacted = folder.uncompacted_families();
    let store = path.join(STORE);
    remove(&path.join(FROZEN)).map_err(|source| open_io_error(&folder, source))?;
    sync_logs(&store).map_err(|source| open_io_error(&folder, source))?;
    let open_store = || {
        open_db(
            options::store_options(wanted),
            &store,
            wanted,
            &floors,
            &uncompacted,
        )
    };
    let db = open_with_ballast(&folder, open_store)?;
    let recovered = db.latest_sequence_number();
    let acknowledged = watermark.last_sequence();
    if recovered < acknowledged {
        return Err(OpenError::Behind {
            recovered,
            acknowledged,
        });
    }
    let rocks = wrap_database(db, wanted, floors, watermark, recovered, folder);
    let older = match check_format(&rocks, path) {
        Err(OpenError::Older { found, .. }) => Some(found),
        checked => checked.map(|()| None)?,
    };
    rocks
        .load_pages()
        .map_err(|error| open_error(path, error))?;
    if let Some(found) = older {
        migrate_store(&rocks, found, migrate::OLDEST, &migrate::STEPS)
            .map_err(|error| open_error(path, error))?;
    }
    check_families(&store)?;
    load_floors(&rocks)?;
    let room = rocks
        .folder
        .ensure_ballast()
        .map_err(|source| open_io_error(&rocks.folder, source))?;
    warn_of_copy(&rocks.folder, recovered);
    Ok(RocksStore {
        short: AtomicBool::new(!room),
        ..rocks
    })
}

/// Opens RocksDB. On a full disk the ballast frees the few kilobytes that a new log and a new
/// manifest need.
fn open_with_ballast(
    folder: &DataFolder,
    open_store: impl Fn() -> Result<DB, StoreError>,
) -> Result<DB, OpenError> {
    let result = match open_store() {
        Err(StoreError::Full)
            if folder
                .drop_ballast()
                .map_err(|source| open_io_error(folder, source))? =>
        {
            open_store()
        }
        result => result,
    };
    result.map_err(|error| rocksdb_open_error(&folder.path().join(STORE), error))
}

/// Warns if the folder is a copy. A failure is only logged, too: a full disk must not prevent
/// opening.
fn warn_of_copy(folder: &DataFolder, recovered: u64) {
    match folder.detect_copy() {
        Ok(true) => tracing::warn!(
            folder = %folder.path().display(),
            change = recovered,
            "the data folder is a copy; changes that a server made to the original after the copy \
             are missing, and events that it delivered since then are delivered again"
        ),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(%error, "could not find out whether the data folder is a copy")
        }
    }
}

/// Wraps RocksDB after it opened and recovered.
fn wrap_database(
    db: DB,
    wanted: &RocksOptions,
    floors: PartitionFloors,
    watermark: Watermark,
    recovered: u64,
    folder: DataFolder,
) -> RocksStore {
    let db = Arc::new(db);
    RocksStore {
        trimmer: Trimmer::new(Arc::clone(&db)),
        db,
        options: *wanted,
        writes: WriteModes {
            synced: synced_writes(),
            ..WriteModes::default()
        },
        floors,
        pages: Pages::default(),
        watermark: Mutex::new(watermark),
        acknowledged: recovered.into(),
        full: AtomicBool::new(false),
        short: AtomicBool::new(false),
        failed: OnceLock::new(),
        uncompacted: Mutex::new(folder.uncompacted_families()),
        folder,
    }
}

/// Opens the copy of a damaged store in the folder `path` and returns its last sequence number. It
/// does not check the watermark, and nothing of the log is discarded.
pub(super) fn open_damaged(
    path: &Path,
    wanted: &RocksOptions,
) -> Result<(RocksStore, u64), OpenError> {
    let folder = DataFolder::create_and_lock(path, wanted)?;
    let floors = PartitionFloors::default();
    let db = open_db(
        options::damaged_store_options(wanted),
        &path.join(STORE),
        wanted,
        &floors,
        &Family::ALL.into(),
    );
    let db = db.map_err(|error| rocksdb_open_error(&path.join(STORE), error))?;
    let last_sequence = db.latest_sequence_number();
    let watermark = Watermark::create(&path.join("watermark"), last_sequence)
        .map_err(|source| open_io_error(&folder, source))?;
    let rocks = wrap_database(db, wanted, floors, watermark, last_sequence, folder);
    match check_format(&rocks, path) {
        // An unreadable format record is taken for one of the formats that a store with these
        // families can have, and a format that is too old for a server is read, because every
        // record has its version.
        Ok(()) | Err(OpenError::Damaged(_) | OpenError::Older { .. }) => {}
        Err(error) => return Err(error),
    }
    rocks
        .store_readable_pages()
        .map_err(|error| open_error(path, error))?;
    check_families(&path.join(STORE))?;
    Ok((rocks, last_sequence))
}

/// Reads the watermark, and makes the store if there is none. This is the first check: a store
/// without a watermark is not touched.
fn find_watermark(folder: &DataFolder, wanted: &RocksOptions) -> Result<Watermark, OpenError> {
    let file = folder.path().join("watermark");
    let exists = folder
        .path()
        .join(STORE)
        .try_exists()
        .map_err(|source| open_io_error(folder, source))?;
    let watermark_file = Watermark::open(&file).map_err(|source| open_io_error(folder, source))?;
    match (watermark_file, exists) {
        (WatermarkFile::Whole(watermark), true) => Ok(watermark),
        (WatermarkFile::Missing, true) => Err(OpenError::NoWatermark {
            file,
            problem: "is missing",
        }),
        (WatermarkFile::Damaged, _) => Err(OpenError::NoWatermark {
            file,
            problem: "is damaged",
        }),
        (WatermarkFile::Whole(watermark), false) if watermark.last_sequence() > 0 => {
            Err(OpenError::Behind {
                recovered: 0,
                acknowledged: watermark.last_sequence(),
            })
        }
        (WatermarkFile::Missing | WatermarkFile::Whole(_), false) => {
            make_draft(folder, wanted)?;
            let watermark =
                Watermark::create(&file, 0).map_err(|source| open_io_error(folder, source))?;
            adopt_draft(folder.path()).map_err(|source| open_io_error(folder, source))?;
            Ok(watermark)
        }
    }
}

/// Makes a store that contains nothing but its format.
fn make_draft(folder: &DataFolder, wanted: &RocksOptions) -> Result<(), OpenError> {
    let draft = folder.path().join(DRAFT);
    remove(&draft).map_err(|source| open_io_error(folder, source))?;
    let refuse = |error| open_error(folder.path(), error);
    let db = open_db(
        options::new_store(wanted),
        &draft,
        wanted,
        &PartitionFloors::default(),
        &BTreeSet::new(),
    )
    .map_err(refuse)?;
    let meta = db
        .cf_handle(Family::Meta.name())
        .expect("every family was opened with the store");
    let key = keys::meta_key(MetaKind::Format, b"");
    db.put_cf_opt(meta, key, FORMAT.to_be_bytes(), &synced_writes())
        .map_err(|error| refuse(rocksdb_error(error)))
}

/// Removes a folder, if it exists.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Renames the draft to the store.
fn adopt_draft(folder: &Path) -> io::Result<()> {
    File::open(folder.join(DRAFT))?.sync_all()?;
    fs::rename(folder.join(DRAFT), folder.join(STORE))?;
    File::open(folder)?.sync_all()
}

/// Syncs the write-ahead logs that a killed process left. RocksDB reads them without a sync and
/// starts a new log after them. If a recovered record was only in the page cache and were lost in a
/// later power cut, the new log would follow a gap, and nothing would detect it.
fn sync_logs(store: &Path) -> io::Result<()> {
    for entry in fs::read_dir(store)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            File::open(path)?.sync_all()?;
        }
    }
    File::open(store)?.sync_all()
}

/// Opens RocksDB with our families and with unknown ones, which `check_families` reports.
fn open_db(
    options: Result<Options, rocksdb::Error>,
    store: &Path,
    wanted: &RocksOptions,
    floors: &PartitionFloors,
    uncompacted: &BTreeSet<Family>,
) -> Result<DB, StoreError> {
    let options_of_all = options.map_err(rocksdb_error)?;
    let cache = Cache::new_lru_cache(wanted.cache_bytes);
    let mut families = vec![ColumnFamilyDescriptor::new(
        UNUSED,
        options::unused_family_options(),
    )];
    for family in Family::ALL {
        let mut options =
            options::family_options(family, wanted, &cache, floors).map_err(rocksdb_error)?;
        options.set_disable_auto_compactions(uncompacted.contains(&family));
        families.push(ColumnFamilyDescriptor::new(family.name(), options));
    }
    if store.join("CURRENT").is_file() {
        for name in unknown_families(store)? {
            families.push(ColumnFamilyDescriptor::new(
                name,
                options::unused_family_options(),
            ));
        }
    }
    run_with_low_priority(|| DB::open_cf_descriptors(&options_of_all, store, families))
        .map_err(rocksdb_error)
}

/// Runs `open` on a thread whose priority is lower by [`NICENESS`]. The threads that RocksDB starts
/// inherit that.
fn run_with_low_priority<T: Send>(open: impl FnOnce() -> T + Send) -> T {
    let run = || {
        lower_priority();
        open()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("open".to_owned())
            .spawn_scoped(scope, run);
        let result = thread
            .expect("a process that cannot start a thread cannot start")
            .join();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lowers the priority of this thread. On other systems than Linux a thread has none of its own.
fn lower_priority() {
    if cfg!(target_os = "linux") {
        let result = getpriority_process(None)
            .and_then(|niceness| setpriority_process(None, niceness + NICENESS));
        if let Err(error) = result {
            tracing::debug!(%error, "the priority of RocksDB's threads stays as it is");
        }
    }
}

fn unknown_families(store: &Path) -> Result<Vec<String>, StoreError> {
    let mut names = DB::list_cf(&Options::default(), store).map_err(rocksdb_error)?;
    names.retain(|name| name != UNUSED && Family::ALL.iter().all(|family| family.name() != name));
    Ok(names)
}

pub(super) fn check_format(store: &dyn Store, folder: &Path) -> Result<(), OpenError> {
    let format_bytes = store
        .get(Family::Meta, &keys::meta_key(MetaKind::Format, b""))
        .map_err(|error| open_error(folder, error))?
        .ok_or_else(|| OpenError::Damaged("its format is missing".to_owned()))?;
    // These four bytes are the same in every format, because they identify it.
    let format_number = <[u8; 4]>::try_from(&format_bytes[..]).map(u32::from_be_bytes);
    match format_number {
        Ok(FORMAT) => Ok(()),
        Ok(format_number) if format_number > FORMAT => Err(OpenError::Newer {
            found: format_number,
            known: FORMAT,
        }),
        Ok(format_number) if format_number >= migrate::OLDEST => Err(OpenError::Older {
            found: format_number,
            known: FORMAT,
        }),
        Ok(_) | Err(_) => Err(OpenError::Damaged("its format is unknown".to_owned())),
    }
}

pub(super) fn check_families(store: &Path) -> Result<(), OpenError> {
    let others = unknown_families(store).map_err(|error| open_error(store, error))?;
    match others.first() {
        None => Ok(()),
        Some(name) => Err(OpenError::Damaged(format!(
            "it has a family {name:?} that is not of its format"
        ))),
    }
}

/// Loads the floors. Until then the compaction filter keeps everything.
fn load_floors(rocks: &RocksStore) -> Result<(), OpenError> {
    let range = keys::meta_of(MetaKind::Floor);
    let mut problem = None;
    let result = rocks.scan(
        Family::Meta,
        &range.start,
        &range.end,
        &mut |key, value| match (keys::parse_floor(key), FloorRecord::decode(value)) {
            (Some(partition), Ok(record)) => {
                rocks.floors.raise_floor(partition, record.floor);
                ControlFlow::Continue(())
            }
            (None, _) | (_, Err(_)) => {
                problem = Some(format!("the floor under the key {key:?} cannot be read"));
                ControlFlow::Break(())
            }
        },
    );
    result.map_err(|error| open_error(rocks.folder.path(), error))?;
    problem.map_or(Ok(()), |damage| Err(OpenError::Damaged(damage)))
}

/// The error of opening RocksDB's folder `store`.
pub(super) fn rocksdb_open_error(store: &Path, error: StoreError) -> OpenError {
    match error {
        StoreError::Damaged(what) if DB::list_cf(&Options::default(), store).is_err() => {
            OpenError::NoManifest(what)
        }
        error => open_error(store.parent().unwrap_or(store), error),
    }
}

pub(super) fn open_error(folder: &Path, error: StoreError) -> OpenError {
    match error {
        StoreError::Full => OpenError::Full {
            folder: folder.to_owned(),
        },
        StoreError::Damaged(what) => OpenError::Damaged(what),
        StoreError::Failed(what) => OpenError::Failed(what),
    }
}

fn open_io_error(folder: &DataFolder, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::StorageFull => OpenError::Full {
            folder: folder.path().to_owned(),
        },
        _ => OpenError::Folder {
            folder: folder.path().to_owned(),
            source,
        },
    }
}
