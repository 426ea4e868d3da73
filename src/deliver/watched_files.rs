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
    contents: Vec<Vec<u8>>,
    /// Why the files could not be read.
    error: Option<String>,
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
                if last_look.contents == contents {
                    return FilesChange::Unchanged;
                }
                last_look.contents = contents;
                FilesChange::New
            }
        }
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
