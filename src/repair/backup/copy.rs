//! Copies, measures and syncs files.

use std::{
    fs,
    io::{self, Read, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{BackupError, BackupObserver, BackupProgress, CopyPace, backup_io_error, folders};
use crate::fsck::CheckStop;
use gridhook_dead_letter::sink::open_regular;

/// 1 MiB: a read takes a few milliseconds on any disk.
const PIECE: usize = 1 << 20;

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopiedFile {
    /// The path relative to the folder, with `/`.
    pub path: String,
    pub bytes: u64,
    /// The CRC-32 of the contents.
    pub crc32: u32,
    /// The hashes of the file's pieces, at a destination with many backups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<String>,
}

/// Copies the files of RocksDB's folder `from` into the new folder `to`. The returned paths are
/// below `name`.
pub(super) fn copy_all(
    from: &Path,
    to: &Path,
    name: &str,
    pace: &mut CopyPace,
    watch: &mut BackupObserver<'_>,
) -> Result<Vec<CopiedFile>, BackupError> {
    let files = files_in(from)?;
    let of = files.iter().map(|(_, bytes)| bytes).sum();
    folders::check_room(to.parent().unwrap_or(to), of)?;
    folders::new_folder(to).map_err(backup_io_error(to))?;
    let mut copies = Vec::new();
    let mut bytes_total = 0;
    for (path, _) in files {
        let Some(file) = path.file_name().and_then(|file| file.to_str()) else {
            continue;
        };
        let mut piece = |bytes| {
            bytes_total += bytes;
            pace.pause_after_work();
            watch(BackupProgress::Copying {
                bytes: bytes_total,
                of,
            })
        };
        copies.push(copy_file(
            &path,
            &to.join(file),
            &format!("{name}/{file}"),
            u64::MAX,
            &mut piece,
        )?);
    }
    folders::sync_folder(to)?;
    Ok(copies)
}

/// Lists the files of a store, without its lock and RocksDB's log for people.
pub(super) fn files_in(folder: &Path) -> Result<Vec<(PathBuf, u64)>, BackupError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(backup_io_error(folder))? {
        let entry = entry.map_err(backup_io_error(folder))?;
        let name = entry.file_name();
        let meta = entry.metadata().map_err(backup_io_error(&entry.path()))?;
        if meta.is_file() && name != "LOCK" && !name.to_string_lossy().starts_with("LOG") {
            files.push((entry.path(), meta.len()));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Copies a file and syncs it, but no more than a byte beyond `bytes_max`. `piece` is called with
/// the length of each copied piece.
pub(super) fn copy_file(
    from: &Path,
    to: &Path,
    name: &str,
    bytes_max: u64,
    piece: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<CopiedFile, BackupError> {
    let mut target = folders::new_file(to).map_err(backup_io_error(to))?;
    let copy = read(from, name, bytes_max, &mut |bytes| {
        target.write_all(bytes).map_err(backup_io_error(to))?;
        match piece(bytes.len() as u64) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CheckStop::Canceled.into()),
        }
    })?;
    target.sync_all().map_err(backup_io_error(to))?;
    Ok(copy)
}

/// Measures an existing file, but no more than a byte beyond `bytes_max`.
pub(super) fn measure_file(
    folder: &Path,
    name: &str,
    bytes_max: u64,
) -> Result<CopiedFile, BackupError> {
    read(&folder.join(name), name, bytes_max, &mut |_| Ok(()))
}

fn read(
    from: &Path,
    name: &str,
    bytes_max: u64,
    take: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<CopiedFile, BackupError> {
    let mut source = open_regular(from)
        .map_err(backup_io_error(from))?
        .take(bytes_max.saturating_add(1));
    let mut buffer = vec![0; PIECE];
    let mut crc = crc32fast::Hasher::new();
    let mut bytes = 0;
    loop {
        let read = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(backup_io_error(from)(error)),
        };
        crc.update(&buffer[..read]);
        bytes += read as u64;
        take(&buffer[..read])?;
    }
    Ok(CopiedFile {
        path: name.to_owned(),
        bytes,
        crc32: crc.finalize(),
        pieces: Vec::new(),
    })
}
