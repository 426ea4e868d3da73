//! Reads files that others can replace: only regular files. A named pipe would be waited for, a
//! device has no end, and a link leads elsewhere.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// Opens a regular file. Neither waits for a pipe nor follows a link in the last part of the path.
///
/// # Errors
/// If it cannot be opened, or is something else.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(describe_link)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(not_regular("is not a regular file"))
    }
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// If it cannot be read, is something else, or is longer.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(not_regular(&format!("has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn describe_link(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        not_regular("is a link, not a file")
    } else {
        error
    }
}

fn not_regular(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}
