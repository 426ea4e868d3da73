//! What the server keeps is nobody else's business: events, keys, the admin token.
//!
//! Everything that the process makes has mode 0600 or 0700, whatever umask it was started with: RocksDB makes its files
//! itself, with the process's umask. A folder that an older version or a careless copy left open is closed at the start,
//! with all that is in it.
//!
//! Absent on purpose: encryption. Who reads the disk beside the file system needs another answer than a file's mode.

use std::{
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

/// Whoever is not the server's own user.
const OTHERS: u32 = 0o077;

/// Folders lie in folders no deeper than this: dead letters are seven deep.
const DEPTH_MAX: usize = 16;

/// Keeps the folder, and what is made from now on, private. The admin token's file is not narrowed here: its own door asks
/// who could have written it.
pub(super) fn keep(data_dir: &Path) -> io::Result<()> {
    umask(Mode::from_raw_mode(OTHERS));
    match fs::metadata(data_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Nobody gets through it to what is inside, which may be very much.
        Ok(meta) if meta.permissions().mode() & OTHERS == 0 => return Ok(()),
        Ok(_) | Err(_) => {}
    }
    let mut open = 0;
    narrow(data_dir, 0, &mut open)?;
    if open > 0 {
        warn!(folder = %data_dir.display(), open, "others could read what is in the data folder; it is private now");
    }
    Ok(())
}

fn narrow(path: &Path, depth: usize, open: &mut usize) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let mode = meta.permissions().mode();
    // A link is where the operator wants it, and what it leads to is his.
    if meta.is_symlink() || path == crate::admin::auth::token_path(path.parent().unwrap_or(path)) {
        return Ok(());
    }
    // What belongs to somebody else, as a volume of a group does, is theirs to open; what we make in it is ours alone.
    if mode & OTHERS != 0 && meta.uid() == geteuid().as_raw() {
        fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
        *open += 1;
    }
    if meta.is_dir() && depth < DEPTH_MAX {
        for entry in fs::read_dir(path)? {
            narrow(&entry?.path(), depth + 1, open)?;
        }
    }
    Ok(())
}
