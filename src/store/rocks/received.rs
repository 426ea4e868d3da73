//! A store that another node of a cluster has sent, on its way to the place of the store in a data
//! folder.
//!
//! ```text
//! DATA/received.new/  what has arrived so far
//! DATA/received/      a whole store with its watermark
//! ```
//!
//! The rename of the first to the second decides. A process that is killed before it has the store
//! that it had; one that is killed afterwards completes the replacement when it next opens the
//! store.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    folder::UNCOMPACTED_NAME,
    open::{STORE, remove},
};

const ARRIVING: &str = "received.new";
const ARRIVED: &str = "received";
const WATERMARK: &str = "watermark";

/// The folder in `data_dir` for a store that arrives, with its watermark. The next opening of the
/// store removes it.
pub fn arriving_folder(data_dir: &Path) -> PathBuf {
    data_dir.join(ARRIVING)
}

/// Makes the store that has arrived the store of `data_dir`. Its files must be synced, and the
/// store of the folder closed.
pub fn accept_arrived(data_dir: &Path) -> io::Result<()> {
    File::open(arriving_folder(data_dir))?.sync_all()?;
    fs::rename(arriving_folder(data_dir), data_dir.join(ARRIVED))?;
    File::open(data_dir)?.sync_all()
}

/// Removes what has not arrived as a whole, and puts a store that was accepted in its place. May be
/// repeated after any of its steps.
pub(super) fn finish_arrival(data_dir: &Path) -> io::Result<()> {
    remove(&arriving_folder(data_dir))?;
    let arrival = data_dir.join(ARRIVED);
    let store = arrival.join(STORE);
    if store.try_exists()? {
        remove(&data_dir.join(STORE))?;
        if_there(fs::rename(
            arrival.join(WATERMARK),
            data_dir.join(WATERMARK),
        ))?;
        // This file names families of the store before.
        if_there(fs::remove_file(data_dir.join(UNCOMPACTED_NAME)))?;
        File::open(data_dir)?.sync_all()?;
        fs::rename(store, data_dir.join(STORE))?;
        File::open(data_dir)?.sync_all()?;
    }
    remove(&arrival)
}

fn if_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
