//! The files of a destination: each is sealed if there is a key, and read back after it is written.

use super::{Found, Repository, Unusable};
use crate::backup::{BackupError, folders, seal::HEAD};
use gridhook_dead_letter::sink::ListedFile;

impl Repository {
    /// Encrypts a file if there is a key, writes it and reads it back.
    pub(super) fn put_verified(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        let content = match &self.destination.key {
            Some(key) => key
                .seal_file(name, bytes)
                .ok_or_else(|| self.problem_error("cannot be written: no random numbers"))?,
            None => bytes.to_vec(),
        };
        self.put_stored(name, content)
    }

    /// Writes a file as it is stored, and reads it back.
    pub(super) fn put_stored(&self, name: &str, stored: Vec<u8>) -> Result<(), BackupError> {
        if let Some(folder) = &self.destination.folder {
            folders::check_room(folder, stored.len() as u64)?;
        }
        let content = bytes::Bytes::from(stored);
        let written = self
            .runtime
            .block_on(self.sink.put_file(name, content.clone()));
        written.map_err(|error| {
            self.problem_error(format!(
                "cannot be written: {name}: {error}; repair the destination, or set another one in \
                 backup.store.url"
            ))
        })?;
        let result = self
            .runtime
            .block_on(self.sink.get(name, content.len() as u64));
        match result
            .map_err(|error| self.problem_error(format!("cannot be read back: {name}: {error}")))?
        {
            result if result == content => Ok(()),
            _ => Err(self.problem_error(format!("returned other bytes than were written: {name}"))),
        }
    }

    pub(super) fn get(&self, name: &str, bytes_max: u64) -> Result<Found, BackupError> {
        let content = match self.runtime.block_on(self.sink.get(name, bytes_max)) {
            Ok(stored) => stored,
            Err(error) if error.is_not_found() => return Ok(Err(Unusable::Missing)),
            Err(error) => {
                return Err(self.problem_error(format!("cannot be read: {name}: {error}")));
            }
        };
        match (&self.destination.key, content.starts_with(HEAD)) {
            (_, false) => Ok(Ok((content.to_vec(), false))),
            (None, true) => Err(self.problem_error(format!(
                "is encrypted: {name} needs the key of backup.key_file"
            ))),
            (Some(key), true) => {
                let plain = key.open(name, &content).ok_or_else(|| {
                    Unusable::Sealed(format!(
                        "is damaged: {name} cannot be decrypted, or has another key; use another \
                         backup"
                    ))
                });
                Ok(plain.map(|plain| (plain, true)))
            }
        }
    }

    pub(super) fn delete_file(&self, name: &str) -> Result<(), BackupError> {
        let result = self.runtime.block_on(self.sink.delete_file(name));
        result.map_err(|error| {
            self.problem_error(format!("cannot be written: {name} is not removed: {error}"))
        })
    }

    pub(super) fn list_files(&self, below: &str) -> Result<Vec<ListedFile>, BackupError> {
        let result = self
            .runtime
            .block_on(self.sink.list_below(below, None, usize::MAX));
        result.map_err(|error| self.problem_error(format!("cannot be listed: {error}")))
    }
}
