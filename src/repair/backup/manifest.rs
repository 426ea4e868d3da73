//! The manifest of a backup.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use super::{BackupError, CopiedFile, MANIFEST, backup_io_error};
use gridhook_dead_letter::sink::read_regular;
use gridhook_event::Timestamp;

/// The version of the manifest that this program writes and reads.
const FORM: u32 = 1;

/// A manifest has some 100 bytes for each piece: this is enough for 5 TiB.
pub(super) const MANIFEST_MAX: u64 = 64 << 20;

/// The manifest of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    pub form: u32,
    /// The version of gridhook that made it.
    pub gridhook: String,
    pub made: String,
    /// The last sequence number of RocksDB in it.
    pub sequence: u64,
    /// Whether the store was sound. A store with problems is backed up too.
    pub sound: bool,
    pub files: Vec<CopiedFile>,
}

impl Manifest {
    /// The bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.files
            .iter()
            .fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    pub fn begin_time(&self) -> Timestamp {
        let made = self
            .made
            .parse::<jiff::Timestamp>()
            .map(|made| made.as_microsecond());
        Timestamp(
            made.ok()
                .and_then(|made| u64::try_from(made).ok())
                .unwrap_or_default(),
        )
    }

    /// Reads the manifest of the backup in `folder`.
    pub fn read(folder: &Path) -> Result<Self, BackupError> {
        let refuse = |problem| problem_of_backup(folder, problem);
        let bytes = match read_regular(&folder.join(MANIFEST), MANIFEST_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(refuse(format!(
                    "has no {MANIFEST}: it is not a backup, or an unfinished one"
                )));
            }
            Err(source) => return Err(backup_io_error(&folder.join(MANIFEST))(source)),
        };
        Self::parse(folder, MANIFEST, &bytes)
    }

    /// Parses the manifest `file` of the backup at `backup`.
    pub(super) fn parse(backup: &Path, file: &str, bytes: &[u8]) -> Result<Self, BackupError> {
        let refuse = |problem| problem_of_backup(backup, problem);
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| refuse(format!("is damaged: {file} cannot be read: {error}")))?;
        if manifest.form > FORM {
            let form = manifest.form;
            return Err(refuse(format!(
                "has version {form}, and this program knows versions up to {FORM}"
            )));
        }
        Ok(manifest)
    }

    pub(super) fn new(made: Timestamp, sequence: u64, sound: bool, files: Vec<CopiedFile>) -> Self {
        let gridhook = env!("CARGO_PKG_VERSION").to_owned();
        let made = made.to_string();
        Self {
            form: FORM,
            gridhook,
            made,
            sequence,
            sound,
            files,
        }
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, BackupError> {
        serde_json::to_vec_pretty(self)
            .map_err(io::Error::other)
            .map_err(backup_io_error(Path::new(MANIFEST)))
    }
}

pub(super) fn problem_of_backup(backup: &Path, problem: String) -> BackupError {
    BackupError::Backup {
        backup: backup.to_owned(),
        problem,
    }
}
