//! The files of the page, embedded in the binary, and where the third-party files among them come from.
//!
//! A new file below `page/` needs one line in [`FILES`]; a third-party file also one entry in [`VENDORED`].

/// Embeds files below `page/`.
macro_rules! page {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("page/", $path)).as_slice())),*]
    };
}

/// Path below `/ui/` and content of each file, sorted by path.
#[rustfmt::skip]
pub const FILES: &[(&str, &[u8])] = page![
    "index.html",
];

/// A third-party file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendoredFile {
    /// Path below `/ui/`.
    pub path: &'static str,
    /// Name of its package.
    pub name: &'static str,
    /// Version of its package.
    pub version: &'static str,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: &'static str,
    /// Licence, as SPDX names it.
    pub licence: &'static str,
}

/// The third-party files, sorted by path. Their licence texts are in `vendor/LICENSES.txt`.
#[rustfmt::skip]
pub const VENDORED: &[VendoredFile] = &[
];
