//! A backup of a destination, as the source of a restore.

use std::{io::Write, ops::ControlFlow, path::Path};

use super::{
    PIECE, Repository, StoredBackup, Unusable,
    pieces::{piece_hash, piece_path},
};
use crate::{
    backup::{BackupError, CopiedFile, Manifest, backup_io_error, folders, restore::Source},
    fsck::CheckStop,
};

/// A backup and the destination that has it.
#[derive(Clone, Copy)]
pub struct BackupAt<'a> {
    pub repository: &'a Repository,
    pub backup: &'a StoredBackup,
}

/// A backup of a destination, to restore from.
pub(in crate::backup) struct StoredSource<'a> {
    pub(in crate::backup) at: BackupAt<'a>,
    /// Whether the copy of a damaged piece is as damaged, with zeros where nothing can be read.
    pub(in crate::backup) accepts_loss: bool,
}

impl Source for StoredSource<'_> {
    fn location(&self) -> &Path {
        Path::new(self.at.repository.address())
    }

    fn read_manifest(&self) -> Result<Manifest, BackupError> {
        Ok(self.at.backup.manifest.clone())
    }

    fn copy_file(
        &self,
        file: &CopiedFile,
        to: Option<&Path>,
        piece: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<CopiedFile, BackupError> {
        let mut target = to
            .map(|to| folders::new_file(to).map_err(backup_io_error(to)))
            .transpose()?;
        let mut crc = crc32fast::Hasher::new();
        let mut bytes = 0;
        for hash in &file.pieces {
            let name = piece_path(hash);
            let of_file = |what: &str| {
                self.at.repository.problem_error(format!(
                    "is damaged: {name} of {} {what}; use another backup",
                    file.path
                ))
            };
            let content = self
                .at
                .repository
                .get(&name, self.at.repository.stored_length(PIECE))?;
            let content = match content {
                Ok((content, is_sealed))
                    if is_sealed == self.at.backup.is_sealed
                        && self.at.repository.hash(&content, is_sealed) == piece_hash(hash) =>
                {
                    content
                }
                content if self.accepts_loss => {
                    let mut readable = content.map(|(bytes, _)| bytes).unwrap_or_default();
                    readable.resize(
                        usize::try_from(file.bytes.saturating_sub(bytes))
                            .unwrap_or(PIECE)
                            .min(PIECE),
                        0,
                    );
                    readable
                }
                Ok(_) => return Err(of_file("has a wrong checksum")),
                Err(Unusable::Missing) => return Err(of_file("is missing")),
                Err(Unusable::Sealed(problem)) => {
                    return Err(self.at.repository.problem_error(problem));
                }
            };
            crc.update(&content);
            bytes += content.len() as u64;
            if bytes > file.bytes {
                return Err(of_file("is beyond its length"));
            }
            if let (Some(target), Some(to)) = (&mut target, to) {
                target.write_all(&content).map_err(backup_io_error(to))?;
            }
            if piece(content.len() as u64).is_break() {
                return Err(CheckStop::Canceled.into());
            }
        }
        if let (Some(target), Some(to)) = (target, to) {
            target.sync_all().map_err(backup_io_error(to))?;
        }
        Ok(CopiedFile {
            bytes,
            crc32: crc.finalize(),
            ..file.clone()
        })
    }
}
