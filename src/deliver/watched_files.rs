//! Files that are read again while the server runs.

use std::{fs, path::PathBuf};

use parking_lot::Mutex;

/// What a look at files has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesChange {
    Unchanged,
    New,
    NotReadable,
}

/// Files with their contents at the last look.
#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    last_look: Mutex<Look>,
}

#[derive(Debug, Default)]
struct Look {
    /// [`None`] if they could not be used.
    contents: Option<Vec<Vec<u8>>>,
    /// Why the files could not be read.
    error: Option<String>,
    /// Why they could not be used.
    unusable: Option<String>,
}

impl WatchedFiles {
    /// Reads the files for the first time. Blocks.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let files = Self {
            paths,
            last_look: Mutex::default(),
        };
        files.look();
        files
    }

    /// Reads the files. An error is logged once, until it changes. Blocks.
    pub fn look(&self) -> FilesChange {
        let contents = self.read();
        let mut last_look = self.last_look.lock();
        match contents {
            Err(error) => {
                if last_look.error.as_ref() != Some(&error) {
                    tracing::error!(
                        error,
                        "a file cannot be read; what it had before stays in use"
                    );
                }
                last_look.error = Some(error);
                FilesChange::NotReadable
            }
            Ok(contents) => {
                last_look.error = None;
                if last_look.contents.as_ref() == Some(&contents) {
                    return FilesChange::Unchanged;
                }
                last_look.contents = Some(contents);
                FilesChange::New
            }
        }
    }

    /// Notes that the files that are new could not be used. They count as new at the next look,
    /// too: they may have been written while they were loaded. Returns whether the error is another
    /// one than the last time.
    pub fn note_unusable(&self, error: &impl ToString) -> bool {
        let error = Some(error.to_string());
        let mut last_look = self.last_look.lock();
        last_look.contents = None;
        let is_other = last_look.unusable != error;
        last_look.unusable = error;
        is_other
    }

    /// Notes that the files that are new are in use.
    pub fn note_used(&self) {
        self.last_look.lock().unusable = None;
    }

    fn read(&self) -> Result<Vec<Vec<u8>>, String> {
        let mut contents = Vec::new();
        for path in &self.paths {
            let content = fs::read(path);
            contents.push(content.map_err(|error| format!("{}: {error}", path.display()))?);
        }
        Ok(contents)
    }
}
