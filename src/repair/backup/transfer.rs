//! The store of a node of a cluster as another node receives it.
//!
//! ```text
//! a line of JSON with the position of the store and its files (`SentStore`), and its CRC-32
//! each file, and its CRC-32
//! ```
//!
//! A store that was received is whole and opens, or it is removed. What puts it in place is
//! `store::rocks::received`.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Write},
    path::Path,
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    BackupError, BackupPermit, Backups, CopyPace, FolderGuard, STORE, WATERMARK, backup_io_error,
    copy, folders,
};
use crate::fsck::CheckStop;
use gridhook_clock::Clock;
use gridhook_event::Timestamp;
use gridhook_store::{
    StoreError,
    records::AppliedPosition,
    rocks::{OpenError, ReadOnlyStore, RocksOptions, received},
    watermark::Watermark,
};

/// The version of the form.
const VERSION: u32 = 1;

/// 64 KiB: a limit of the rate holds within parts of a second.
const PIECE: usize = 64 << 10;

/// The maximum size of the first line: some hundred thousand files.
const HEAD_BYTES: u64 = 16 << 20;

/// The first line of a transfer, before the contents of the files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentStore {
    version: u32,
    /// RocksDB's last sequence number in the store.
    sequence: u64,
    /// The last record of the changelog that the store has applied.
    pub applied: u64,
    files: Vec<SentFile>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SentFile {
    name: String,
    bytes: u64,
}

impl SentStore {
    /// The bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.files
            .iter()
            .map(|file| file.bytes)
            .fold(0, u64::saturating_add)
    }
}

/// Why a store was not received. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The store does not suit the receiver.
    #[error("{0}")]
    Refused(String),
    #[error("the transfer ended early: {0}")]
    Early(io::Error),
    /// What was received is not what was sent.
    #[error("the transfer is damaged: {0}")]
    Damaged(String),
    /// The store that was received does not open.
    #[error("the store that was received does not open: {0}")]
    Open(#[from] OpenError),
    /// The store cannot be written.
    #[error(transparent)]
    Local(#[from] BackupError),
}

/// Limits a transfer to a number of bytes a second.
struct Rate<'a> {
    clock: &'a Clock,
    began: Timestamp,
    bytes_per_second: u64,
    sent: u64,
}

impl Rate<'_> {
    /// Counts sent bytes. Returns the pause that keeps to the rate.
    fn pause_after(&mut self, bytes: usize) -> Duration {
        self.sent += bytes as u64;
        let due = Duration::from_secs_f64(self.sent as f64 / self.bytes_per_second.max(1) as f64);
        due.saturating_sub(self.clock.now().since(self.began))
    }
}

impl Backups {
    /// The maximum of bytes a second of a transfer to another node.
    #[must_use]
    pub fn with_transfer_rate(self, transfer_rate: u64) -> Self {
        Self {
            transfer_rate,
            ..self
        }
    }

    /// Sends the store as it is now to another node of the cluster. Blocks for a long time.
    pub fn send_store(
        &self,
        _: &BackupPermit,
        to: &mut dyn Write,
    ) -> Result<SentStore, BackupError> {
        let (frozen, guard) = self.freeze_store()?;
        let position =
            last_applied(&frozen).map_err(|error| CheckStop::from(StoreError::damaged(error)))?;
        let mut files = Vec::new();
        for (path, bytes) in copy::files_in(&guard.0)? {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default()
                .to_owned();
            files.push(SentFile { name, bytes });
        }
        let head = SentStore {
            version: VERSION,
            sequence: frozen.last_sequence(),
            applied: position,
            files,
        };
        drop(frozen);
        self.send_files(&head, &guard, to)?;
        Ok(head)
    }

    fn send_files(
        &self,
        sent: &SentStore,
        frozen: &FolderGuard,
        to: &mut dyn Write,
    ) -> Result<(), BackupError> {
        let mut write = |bytes: &[u8]| {
            to.write_all(bytes).map_err(backup_io_error(Path::new(
                "the connection of the other node",
            )))
        };
        let mut head =
            serde_json::to_vec(sent).expect("a head has no maps with other keys than text");
        head.push(b'\n');
        write(&head)?;
        write(&crc32fast::hash(&head).to_be_bytes())?;
        let mut rate = Rate {
            clock: &self.clock,
            began: self.clock.now(),
            bytes_per_second: self.transfer_rate,
            sent: 0,
        };
        let mut pace = CopyPace::new(&self.clock);
        let mut buffer = vec![0; PIECE];
        for SentFile { name, bytes } in &sent.files {
            let path = frozen.0.join(name);
            let mut file = File::open(&path).map_err(backup_io_error(&path))?;
            let mut left = *bytes;
            let mut crc = crc32fast::Hasher::new();
            while left > 0 {
                let piece = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
                let piece = &mut buffer[..piece];
                file.read_exact(piece).map_err(backup_io_error(&path))?;
                crc.update(piece);
                left -= piece.len() as u64;
                pace.pause_after_work();
                thread::sleep(rate.pause_after(piece.len()));
                if self.is_stopping() {
                    return Err(CheckStop::Canceled.into());
                }
                write(piece)?;
            }
            write(&crc.finalize().to_be_bytes())?;
        }
        Ok(())
    }
}

/// What the receiver of a store decides and learns meanwhile.
pub trait StoreReceiver {
    /// Called before the files come, and may refuse them.
    fn begin(&mut self, sent: &SentStore) -> Result<(), TransferError>;

    /// Called with the bytes of the files that have arrived.
    fn note_arrived(&mut self, bytes: u64);

    /// Called once the store is whole, and may still refuse it.
    fn accept(&mut self, sent: &SentStore) -> Result<(), TransferError>;
}

/// Receives a store for `data_dir`. Blocks for a long time.
///
/// # Errors
/// If the store is not whole, does not open or is refused, or cannot be written.
pub fn receive_store(
    data_dir: &Path,
    from: &mut dyn Read,
    options: &RocksOptions,
    receiver: &mut dyn StoreReceiver,
) -> Result<SentStore, TransferError> {
    let mut from = BufReader::with_capacity(PIECE, from);
    let head = read_head(&mut from)?;
    receiver.begin(&head)?;
    let folder = received::arriving_folder(data_dir);
    folders::remove(&folder)?;
    folders::check_room(data_dir, head.total_bytes())?;
    folders::new_folder(&folder).map_err(backup_io_error(&folder))?;
    let guard = FolderGuard(folder.clone());
    Watermark::create(&folder.join(WATERMARK), head.sequence).map_err(backup_io_error(&folder))?;
    let store = folder.join(STORE);
    folders::new_folder(&store).map_err(backup_io_error(&store))?;
    let mut byte_count = 0;
    for file in &head.files {
        receive_file(&mut from, file, &store.join(&file.name), &mut |bytes| {
            byte_count += bytes;
            receiver.note_arrived(byte_count);
        })?;
    }
    if !from.fill_buf().map_err(TransferError::Early)?.is_empty() {
        return Err(TransferError::Damaged(
            "more was sent than was announced".to_owned(),
        ));
    }
    folders::sync_folder(&store)?;
    folders::sync_folder(&folder)?;
    let store_copy = ReadOnlyStore::open(&folder, options)?;
    let position = last_applied(&store_copy).map_err(TransferError::Damaged)?;
    if (store_copy.last_sequence(), position) != (head.sequence, head.applied) {
        return Err(TransferError::Damaged(format!(
            "it has applied {} instead of {}",
            gridhook_escape::count_with_noun(position, "record"),
            head.applied
        )));
    }
    drop(store_copy);
    receiver.accept(&head)?;
    std::mem::forget(guard);
    Ok(head)
}

fn read_head(from: &mut BufReader<&mut dyn Read>) -> Result<SentStore, TransferError> {
    let mut line = Vec::new();
    from.take(HEAD_BYTES)
        .read_until(b'\n', &mut line)
        .map_err(TransferError::Early)?;
    check_crc(from, crc32fast::hash(&line), "its head")?;
    let head: SentStore = serde_json::from_slice(&line)
        .map_err(|error| TransferError::Damaged(format!("its head: {error}")))?;
    if head.version != VERSION {
        let what = format!(
            "the other node sends the form {}, and this one reads {VERSION}",
            head.version
        );
        return Err(TransferError::Refused(what));
    }
    let is_name = |name: &str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    match head.files.iter().find(|file| !is_name(&file.name)) {
        Some(file) => Err(TransferError::Damaged(format!(
            "the name {:?} is not that of a file of a store",
            file.name
        ))),
        None => Ok(head),
    }
}

fn receive_file(
    from: &mut BufReader<&mut dyn Read>,
    file: &SentFile,
    to: &Path,
    arrived: &mut dyn FnMut(u64),
) -> Result<(), TransferError> {
    let mut target = folders::new_file(to).map_err(backup_io_error(to))?;
    let mut left = file.bytes;
    let mut crc = crc32fast::Hasher::new();
    let mut buffer = vec![0; PIECE];
    while left > 0 {
        let piece = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        let read = from
            .read(&mut buffer[..piece])
            .map_err(TransferError::Early)?;
        if read == 0 {
            return Err(TransferError::Early(io::ErrorKind::UnexpectedEof.into()));
        }
        crc.update(&buffer[..read]);
        target
            .write_all(&buffer[..read])
            .map_err(backup_io_error(to))?;
        left -= read as u64;
        arrived(read as u64);
    }
    check_crc(from, crc.finalize(), &file.name)?;
    target.sync_all().map_err(backup_io_error(to))?;
    Ok(())
}

fn check_crc(from: &mut dyn Read, found: u32, what: &str) -> Result<(), TransferError> {
    let mut expected_crc = [0; 4];
    from.read_exact(&mut expected_crc)
        .map_err(TransferError::Early)?;
    if u32::from_be_bytes(expected_crc) == found {
        return Ok(());
    }
    Err(TransferError::Damaged(format!(
        "{what} has a wrong checksum"
    )))
}

/// The last record of the changelog that the store of a node has applied.
fn last_applied(store: &ReadOnlyStore) -> Result<u64, String> {
    match AppliedPosition::read(store) {
        Ok(Some(position)) => Ok(position.sequence),
        Ok(None) => Err("it is not the store of a node of a cluster".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
