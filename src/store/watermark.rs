//! The last acknowledged sequence number, stored outside RocksDB.
//!
//! RocksDB cannot distinguish a log that ends early from one that was cut, because it does not know
//! how far the log was synced. So its latest sequence number after an acknowledged sync is stored
//! in a small file, and a store that recovers less is refused.
//!
//! ```text
//! slot: magic 8 | turn 8 | sequence number 8 | crc32 of the fields before it 4
//! ```
//!
//! The number after a field is its length in bytes. All are big-endian.
//!
//! The file has two slots, written alternately and in place, each in its own block of 4 KiB: a torn
//! write damages the slot being written and never the other one, also on a disk with 4 KiB sectors.
//! The valid slot with the later turn counts. After a torn write the older slot weakens the check
//! by one second. A file without a valid slot was damaged in another way and is refused.
//!
//! The file never changes its length, so a write needs no space on a full disk and `sync_data` is
//! enough. Accepting a loss stores the recovered sequence number with [`Watermark::create`].

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use gridhook_event::codec::RecordReader;

/// The largest common sector size and the size of a page: the unit that may be torn.
const BLOCK: usize = 4096;

/// Two: one that is being written, and one that is safe meanwhile.
const SLOTS: u64 = 2;

const MAGIC: [u8; 8] = *b"gridmark";

/// The result of opening a watermark file.
#[derive(Debug)]
pub enum WatermarkFile {
    Missing,
    Damaged,
    /// At least one slot is valid.
    Whole(Watermark),
}

/// The result of reading a watermark file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkValue {
    Missing,
    Damaged,
    /// The last acknowledged sequence number.
    Whole(u64),
}

/// Reads the file at `path`, which may be read-only.
pub fn read(path: &Path) -> io::Result<WatermarkValue> {
    match File::open(path) {
        Ok(mut file) => Ok(newest_slot(&mut file)?
            .map_or(WatermarkValue::Damaged, |(_, sequence)| {
                WatermarkValue::Whole(sequence)
            })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(WatermarkValue::Missing),
        Err(error) => Err(error),
    }
}

#[derive(Debug)]
pub struct Watermark {
    file: File,
    turn: u64,
    sequence: u64,
}

impl Watermark {
    pub fn open(path: &Path) -> io::Result<WatermarkFile> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(WatermarkFile::Missing);
            }
            Err(error) => return Err(error),
        };
        Ok(match newest_slot(&mut file)? {
            Some((turn, sequence)) => WatermarkFile::Whole(Self {
                file,
                turn,
                sequence,
            }),
            None => WatermarkFile::Damaged,
        })
    }

    /// Creates or replaces the file at `path` with `sequence` in both slots. It appears whole or
    /// not at all.
    pub fn create(path: &Path, sequence: u64) -> io::Result<Self> {
        let draft = path.with_extension("new");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        for turn in 0..SLOTS {
            let mut block = encode_slot(turn, sequence);
            block.resize(BLOCK, 0);
            file.write_all(&block)?;
        }
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self {
            file,
            turn: SLOTS - 1,
            sequence,
        })
    }

    /// The sequence number that was written last.
    pub fn last_sequence(&self) -> u64 {
        self.sequence
    }

    /// Writes `sequence` to the older slot and syncs it, unless it is already stored.
    pub fn store_sequence(&mut self, sequence: u64) -> io::Result<()> {
        if sequence == self.sequence {
            return Ok(());
        }
        let turn = self.turn + 1;
        self.file
            .seek(SeekFrom::Start(turn % SLOTS * BLOCK as u64))?;
        self.file.write_all(&encode_slot(turn, sequence))?;
        self.file.sync_data()?;
        (self.turn, self.sequence) = (turn, sequence);
        Ok(())
    }
}

/// Turn and sequence number of the valid slot with the later turn.
fn newest_slot(file: &mut File) -> io::Result<Option<(u64, u64)>> {
    let mut bytes = Vec::new();
    file.take(SLOTS * BLOCK as u64).read_to_end(&mut bytes)?;
    Ok(bytes.chunks(BLOCK).filter_map(decode_slot).max())
}

fn encode_slot(turn: u64, sequence: u64) -> Vec<u8> {
    let mut slot = [MAGIC, turn.to_be_bytes(), sequence.to_be_bytes()].concat();
    let crc = crc32fast::hash(&slot);
    slot.extend_from_slice(&crc.to_be_bytes());
    slot
}

/// Turn and sequence number of a slot, if it is valid.
fn decode_slot(block: &[u8]) -> Option<(u64, u64)> {
    let mut reader = RecordReader::new(block);
    let content = RecordReader::new(block).take(MAGIC.len() + 16)?;
    let magic = reader.take(MAGIC.len())?;
    let turn = reader.u64()?;
    let sequence = reader.u64()?;
    let crc = reader.u32()?;
    (magic == MAGIC && crc == crc32fast::hash(content) && turn < u64::MAX)
        .then_some((turn, sequence))
}
