//! The pieces of files: which ones a backup may name, how they are named and how they are written.
//!
//! A piece is named by the hash of its contents, and in a cluster also by the epoch of the owner
//! that wrote it. A folder does not check what it stores, so each backup reads the pieces that were
//! read longest ago, and in a number of backups all of them are read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    ops::ControlFlow,
    path::Path,
};

use data_encoding::HEXLOWER;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

use super::{BACKUPS, PIECE, PIECES, Repository, Unusable};
use crate::{
    backup::{BackupError, CopiedFile, backup_io_error, seal::SealKey},
    fsck::CheckStop,
};
use gridhook_event::Timestamp;

/// A backup to a folder checks one of this number of stored pieces.
const CHECKED_SHARE: usize = 16;

/// A backup to a folder checks at least this number of stored pieces.
const CHECKED_MIN: usize = 16;

impl Repository {
    /// The stored pieces that a backup may name, with their lengths. In a folder the pieces that
    /// were read longest ago are read. One that is damaged or cannot be read is left out, so that
    /// the backup writes it again.
    ///
    /// The time of a piece is that of its last check. That of a damaged one stays: unless it is
    /// written again, the next backup reads it first, and none keeps the others from their turn.
    pub(in crate::backup) fn usable_pieces(
        &self,
        now: Timestamp,
        step: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<UsablePieces, BackupError> {
        let mut pieces = self.list_files(PIECES)?;
        if let Some(epoch) = self.sink.epoch() {
            let lasting = self.pieces_of_newest()?;
            let is_own = |name: &str| piece_epoch(name) == Some(epoch);
            pieces.retain(|piece| is_own(&piece.name) || lasting.contains(&piece.name));
        }
        if let Some(folder) = &self.destination.folder {
            // A time that is still to come says nothing.
            pieces.sort_by_key(|piece| Some(piece.modified).filter(|modified| *modified <= now));
            let mut pieces_to_check = pieces.len().div_ceil(CHECKED_SHARE).max(CHECKED_MIN);
            let mut usable = Vec::with_capacity(pieces.len());
            for piece in pieces {
                if pieces_to_check > 0 {
                    if step().is_break() {
                        return Err(CheckStop::Canceled.into());
                    }
                    if let Err(error) = self.check_piece(&piece.name) {
                        tracing::warn!(%error, "a stored piece is written again if the store still \
                            has it");
                        continue;
                    }
                    note_check(&folder.join(&piece.name));
                    pieces_to_check -= 1;
                }
                usable.push(piece);
            }
            pieces = usable;
        }
        let mut by_hash = UsablePieces::new();
        for piece in pieces {
            let name = piece.name.rsplit('/').next().unwrap_or_default();
            by_hash.insert(piece_hash(name).to_owned(), (name.to_owned(), piece.bytes));
        }
        Ok(by_hash)
    }

    /// The paths of the pieces of the newest sound backup.
    fn pieces_of_newest(&self) -> Result<BTreeSet<String>, BackupError> {
        let backups = self.list_files(BACKUPS)?;
        if backups.is_empty() {
            return Ok(BTreeSet::new());
        }
        let readable = self.list_backups()?.readable;
        let newest = readable.into_iter().rfind(|backup| backup.manifest.sound);
        let files = newest.into_iter().flat_map(|backup| backup.manifest.files);
        Ok(files
            .flat_map(|file| file.pieces)
            .map(|piece| piece_path(&piece))
            .collect())
    }

    /// Reads a piece and compares it with its name.
    fn check_piece(&self, name: &str) -> Result<(), BackupError> {
        let (_, hash) = name.rsplit_once('/').unwrap_or_default();
        match self.get(name, self.stored_length(PIECE))? {
            Ok((bytes, is_sealed)) if self.hash(&bytes, is_sealed) == piece_hash(hash) => Ok(()),
            Ok(_) => Err(self.problem_error(format!("is damaged: {name} has a wrong checksum"))),
            Err(Unusable::Missing) => {
                Err(self.problem_error(format!("is damaged: {name} is missing")))
            }
            Err(Unusable::Sealed(problem)) => Err(self.problem_error(problem)),
        }
    }

    /// Stores the file `from` as `name`. `known` has the pieces that are there; `piece` is called
    /// for each piece with its length, and the number of bytes that were written for it.
    pub(in crate::backup) fn store_file(
        &self,
        from: &Path,
        name: &str,
        known: &mut UsablePieces,
        piece: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<CopiedFile, BackupError> {
        let mut source = File::open(from).map_err(backup_io_error(from))?;
        let mut crc = crc32fast::Hasher::new();
        let mut bytes = 0;
        let mut pieces = Vec::new();
        loop {
            let mut buffer = Vec::with_capacity(PIECE);
            Read::by_ref(&mut source)
                .take(PIECE as u64)
                .read_to_end(&mut buffer)
                .map_err(backup_io_error(from))?;
            if buffer.is_empty() {
                break;
            }
            crc.update(&buffer);
            bytes += buffer.len() as u64;
            let hash = self.hash(&buffer, self.destination.key.is_some());
            let length = self.stored_length(buffer.len());
            let usable = known.get(&hash).filter(|(_, bytes)| *bytes == length);
            let (name, written) = match usable {
                Some((name, _)) => (name.clone(), 0),
                None => {
                    let name = self.piece_name(&hash);
                    self.put_verified(&piece_path(&name), &buffer)?;
                    known.insert(hash, (name.clone(), length));
                    (name, length)
                }
            };
            pieces.push(name);
            if piece(buffer.len() as u64, written).is_break() {
                return Err(CheckStop::Canceled.into());
            }
        }
        Ok(CopiedFile {
            path: name.to_owned(),
            bytes,
            crc32: crc.finalize(),
            pieces,
        })
    }

    /// The name of a new piece with this hash.
    fn piece_name(&self, hash: &str) -> String {
        match self.sink.epoch() {
            Some(epoch) => format!("{hash}.{epoch}"),
            None => hash.to_owned(),
        }
    }

    pub(super) fn hash(&self, bytes: &[u8], is_sealed: bool) -> String {
        let hash = match &self.destination.key {
            Some(key) if is_sealed => key.hash(bytes).to_vec(),
            _ => ring::digest::digest(&ring::digest::SHA256, bytes)
                .as_ref()
                .to_vec(),
        };
        HEXLOWER.encode(&hash)
    }

    pub(super) fn stored_length(&self, bytes: usize) -> u64 {
        (if self.destination.key.is_some() {
            SealKey::sealed_length(bytes)
        } else {
            bytes
        }) as u64
    }
}

/// Sets the time of a piece that was read.
fn note_check(piece: &Path) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    if let Err(error) = utimensat(CWD, piece, &times, AtFlags::empty()) {
        tracing::warn!(piece = %piece.display(), %error, "the time of a stored piece cannot be \
            set: backups may read the same ones each time");
    }
}

/// The stored pieces that a backup may name, by hash: their names and lengths.
pub(in crate::backup) type UsablePieces = BTreeMap<String, (String, u64)>;

pub(super) fn piece_hash(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// The epoch in the name or the path of a piece.
fn piece_epoch(name: &str) -> Option<u64> {
    name.rsplit_once('.')?.1.parse().ok()
}

/// The path of a piece. Folders with thousands of files are slow.
pub(super) fn piece_path(name: &str) -> String {
    format!("{PIECES}/{}/{name}", name.get(..2).unwrap_or_default())
}
