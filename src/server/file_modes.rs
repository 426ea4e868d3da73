//! What the server keeps is nobody else's business: events, keys, the admin token.
//!
//! Everything that the process makes has mode 0600 or 0700, whatever umask it was started with: RocksDB makes its files
//! itself, with the process's umask. Of a store that an older version or a careless copy left open, the files that make it
//! up are closed at the start; nothing else in the folder is touched, and the folder's own rights are its owner's business.
//!
//! Absent on purpose: encryption. Who reads the disk beside the file system needs another answer than a file's mode.

use std::{
    ffi::OsString,
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use rustix::{
    fs::Mode,
    process::{geteuid, umask},
};
use tracing::warn;

use crate::{
    config::Config,
    policy::dead_letter_store::{StoreAddress, StoreKind},
};

/// Whoever is not the server's own user.
const OTHERS: u32 = 0o077;

/// What a server makes in a data folder, but for dead letters.
const OWN: [&str; 10] = [
    "lock",
    "rocksdb",
    "rocksdb.new",
    "rocksdb.frozen",
    "watermark",
    "watermark.new",
    "ballast",
    "spared",
    "place",
    "admin-token.new",
];

/// What a folder without a store may have all the same: a token that the operator chose, and what a file system makes.
const ALLOWED: [&str; 2] = ["admin-token", "lost+found"];

/// By these a store is known.
const STORE: [&str; 2] = ["rocksdb", "watermark"];

/// What is made from now on is private. A folder that has something in it, and no store, is somebody else's: it is refused.
pub(super) fn keep(config: &Config) -> io::Result<()> {
    umask(Mode::from_raw_mode(OTHERS));
    let data_dir = &config.server.data_dir;
    let mut names = Vec::new();
    match fs::read_dir(data_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => {
            for entry in entries? {
                names.push(entry?.file_name());
            }
        }
    }
    if STORE.iter().any(|name| names.iter().any(|found| found == name)) {
        return Ok(());
    }
    let absolute = std::path::absolute(data_dir)?;
    let folders = config.dead_letter.stores.values().filter_map(|store| below(&absolute, &store.address));
    let known: Vec<OsString> = OWN.into_iter().chain(ALLOWED).map(OsString::from).chain(folders).collect();
    match names.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(stranger) => Err(io::Error::other(format!(
            "{} has no store and is not empty: it has {stranger:?}. Name an empty folder, one that is not there yet, or the \
             data folder of a server (server.data_dir)",
            data_dir.display()
        ))),
    }
}

/// The first folder of a dead-letter store below the data folder.
fn below(data_dir: &Path, address: &StoreAddress) -> Option<OsString> {
    if address.kind != StoreKind::Folder {
        return None;
    }
    let path = Path::new("/").join(address.path.join("/"));
    let inside = path.strip_prefix(data_dir).ok()?;
    inside.components().next().map(|first| first.as_os_str().to_owned())
}

/// Closes the files of the store that others may read. The admin token's file is not narrowed here: its own door asks who
/// could have written it.
pub(super) fn narrow(data_dir: &Path) -> io::Result<()> {
    let mut open = 0;
    for name in OWN {
        let path = data_dir.join(name);
        close(&path, &mut open)?;
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                close(&entry?.path(), &mut open)?;
            }
        }
    }
    if open > 0 {
        warn!(folder = %data_dir.display(), open, "others could read files of the store; they are private now");
    }
    Ok(())
}

fn close(path: &Path, open: &mut usize) -> io::Result<()> {
    let mode = match fs::symlink_metadata(path) {
        // A link is where the operator wants it, and what it leads to is his. RocksDB takes files away meanwhile.
        Ok(meta) if meta.is_symlink() => return Ok(()),
        // What belongs to somebody else is theirs to open.
        Ok(meta) if meta.uid() != geteuid().as_raw() => return Ok(()),
        Ok(meta) => meta.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & OTHERS == 0 {
        return Ok(());
    }
    match fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            *open += 1;
            Ok(())
        }
    }
}
