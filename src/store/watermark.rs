//! How much was acknowledged, written down apart from the store.
//!
//! RocksDB cannot tell a log that ends early from one that was cut: it does not know how far it was synced. So its
//! latest sequence number after an acknowledged sync is kept here, in a small file of its own, and a store that
//! recovers less is refused with the gap instead of being taken for whole.
//!
//! ```text
//! slot: magic 8 | turn 8 | sequence number 8 | crc32 of these 4, all big-endian
//! ```
//!
//! The file has two slots, written in turn and in place, each in a block of 4 KiB of its own: a torn write damages the
//! slot that was being written, never the other one, also on a disk whose sectors have 4 KiB. The valid slot of the
//! later turn counts. So a torn write costs one step back, which can only make the check milder by one second;
//! a file with no valid slot was damaged otherwise, and says nothing about the store: it is refused.
//!
//! The file never changes its length, so that a write needs no space on a full disk and `sync_data` is enough.
//! [`Watermark::create`] is also the door for a later `--accept-loss`: what is accepted becomes the new watermark.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use super::codec::RecordReader;

/// The largest sector of today's disks, and the page of the system's cache: what may be torn together.
const BLOCK: usize = 4096;

/// Two: the one that is being written, and the one that is safe meanwhile.
const SLOTS: u64 = 2;

const MAGIC: [u8; 8] = *b"gridmark";

/// What a watermark file was found to be.
#[derive(Debug)]
pub enum WatermarkFile {
    /// There is none.
    Missing,
    /// There is one, and neither of its slots is valid.
    Damaged,
    /// It is whole, or one slot is.
    Whole(Watermark),
}

/// What a watermark file says that is only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkValue {
    /// There is none.
    Missing,
    /// There is one, and neither of its slots is valid.
    Damaged,
    /// So much was acknowledged.
    Whole(u64),
}

/// Reads the file at `path`, which may be one that cannot be written.
pub fn read(path: &Path) -> io::Result<WatermarkValue> {
    match File::open(path) {
        Ok(mut file) => {
            Ok(newest(&mut file)?.map_or(WatermarkValue::Damaged, |(_, sequence)| WatermarkValue::Whole(sequence)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(WatermarkValue::Missing),
        Err(error) => Err(error),
    }
}

/// The open file.
#[derive(Debug)]
pub struct Watermark {
    file: File,
    turn: u64,
    sequence: u64,
}

impl Watermark {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> io::Result<WatermarkFile> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(WatermarkFile::Missing),
            Err(error) => return Err(error),
        };
        Ok(match newest(&mut file)? {
            Some((turn, sequence)) => WatermarkFile::Whole(Self { file, turn, sequence }),
            None => WatermarkFile::Damaged,
        })
    }

    /// Makes the file at `path` anew: both slots say `sequence`. It appears whole or not at all.
    pub fn create(path: &Path, sequence: u64) -> io::Result<Self> {
        let draft = path.with_extension("new");
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        for turn in 0..SLOTS {
            let mut block = encode(turn, sequence);
            block.resize(BLOCK, 0);
            file.write_all(&block)?;
        }
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { file, turn: SLOTS - 1, sequence })
    }

    /// The sequence number that was written last.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Writes `sequence` over the older slot and syncs it, if it is not what is written already.
    pub fn note(&mut self, sequence: u64) -> io::Result<()> {
        if sequence == self.sequence {
            return Ok(());
        }
        let turn = self.turn + 1;
        self.file.seek(SeekFrom::Start(turn % SLOTS * BLOCK as u64))?;
        self.file.write_all(&encode(turn, sequence))?;
        self.file.sync_data()?;
        (self.turn, self.sequence) = (turn, sequence);
        Ok(())
    }
}

/// Turn and sequence number of the valid slot of the later turn.
fn newest(file: &mut File) -> io::Result<Option<(u64, u64)>> {
    let mut bytes = Vec::new();
    file.take(SLOTS * BLOCK as u64).read_to_end(&mut bytes)?;
    Ok(bytes.chunks(BLOCK).filter_map(decode).max())
}

fn encode(turn: u64, sequence: u64) -> Vec<u8> {
    let mut shared = [MAGIC, turn.to_be_bytes(), sequence.to_be_bytes()].concat();
    let crc = crc32fast::hash(&shared);
    shared.extend_from_slice(&crc.to_be_bytes());
    shared
}

/// Turn and sequence number of a slot, if it is valid.
fn decode(block: &[u8]) -> Option<(u64, u64)> {
    let mut reader = RecordReader::new(block);
    let signed = RecordReader::new(block).take(MAGIC.len() + 16)?;
    let magic = reader.take(MAGIC.len())?;
    let (turn, sequence, crc) = (reader.u64()?, reader.u64()?, reader.u32()?);
    (magic == MAGIC && crc == crc32fast::hash(signed) && turn < u64::MAX).then_some((turn, sequence))
}
