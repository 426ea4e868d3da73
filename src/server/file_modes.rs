//! Keeps the data folder private: it has events, keys and the admin token.
//!
//! Everything that the process creates has mode 0600 or 0700, whatever umask it was started with;
//! RocksDB creates its files with the process's umask. At the start, files of a store that others
//! could read are made private. Nothing else in the folder changes, and the mode of the folder
//! itself is the operator's choice.
//!
//! Not here: encryption. A file mode does not protect against reading the disk directly.

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

use gridhook_config::Config;
use gridhook_policy::dead_letter_store::{StoreAddress, StoreKind};

/// The mode bits of the group and of others.
const OTHERS: u32 = 0o077;

/// The entries of a data folder, except dead letters.
const OWN: [&str; 14] = [
    "lock",
    "rocksdb",
    "rocksdb.new",
    "rocksdb.frozen",
    "watermark",
    "watermark.new",
    "ballast",
    "spared",
    "place",
    "received",
    "received.new",
    "cluster-id",
    "cluster-id.new",
    "admin-token.new",
];

/// The entries that a folder without a store may have: a token that the operator chose, and what a
/// file system creates.
const ALLOWED: [&str; 2] = ["admin-token", "lost+found"];

/// The entries that identify a store, or the stores of a node with several shards.
const STORE: [&str; 3] = ["rocksdb", "watermark", super::shards::FOLDER];

/// Makes new files private. Refuses a folder that is not empty and has no store, because it is not
/// gridhook's.
pub(super) fn restrict_modes(config: &Config) -> io::Result<()> {
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
    if STORE
        .iter()
        .any(|name| names.iter().any(|found| found == name))
    {
        return Ok(());
    }
    let absolute = std::path::absolute(data_dir)?;
    let folders = config
        .dead_letter
        .stores
        .values()
        .filter_map(|store| first_folder_below(&absolute, &store.address));
    let own_names: Vec<OsString> = OWN
        .into_iter()
        .chain(ALLOWED)
        .map(OsString::from)
        .chain(folders)
        .collect();
    match names.iter().find(|name| !own_names.contains(name)) {
        None => Ok(()),
        Some(foreign) => Err(io::Error::other(format!(
            "{} has no store and is not empty: it has {foreign:?}. Name an empty folder, one that \
             is not there yet, or the data folder of a server (server.data_dir)",
            data_dir.display()
        ))),
    }
}

/// The first folder of a dead-letter store below the data folder.
fn first_folder_below(data_dir: &Path, address: &StoreAddress) -> Option<OsString> {
    if address.kind != StoreKind::Folder {
        return None;
    }
    let path = Path::new("/").join(address.path.join("/"));
    let inside = path.strip_prefix(data_dir).ok()?;
    inside
        .components()
        .next()
        .map(|first| first.as_os_str().to_owned())
}

/// Makes the store's files private. The admin token's file is excluded, because
/// [`gridhook_admin::admin_token`] checks who could have written it.
pub(super) fn narrow_modes(data_dir: &Path) -> io::Result<()> {
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
        warn!(folder = %data_dir.display(), open, "others could read files of the store; the files \
            are private now");
    }
    Ok(())
}

fn close(path: &Path, open: &mut usize) -> io::Result<()> {
    let mode = match fs::symlink_metadata(path) {
        // The operator placed the link, and its target is not gridhook's. RocksDB deletes files
        // meanwhile.
        Ok(meta) if meta.is_symlink() => return Ok(()),
        // A file of another user is left alone.
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
