//! Programs of Debian's own packages, unpacked into a folder of the build and not installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::needs::runs;

/// The folder that a package and what it needs are unpacked in, or why it cannot be had here;
/// `proof` is a file in it.
pub(crate) fn unpacked(package: &str, needs: &[&str], proof: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package);
    let tools = folder.join("root");
    if tools.join(proof).exists() {
        return Ok(tools);
    }
    fs::create_dir_all(&folder).expect("a folder of tools");
    let mut fetch = Command::new("apt-get");
    fetch
        .args(["-qq", "download", package])
        .args(needs)
        .current_dir(&folder);
    if runs(&mut fetch).is_err() {
        // A machine that has never asked does not know what there is.
        runs(Command::new("apt-get").args(["-qq", "update"]))?;
        runs(&mut fetch)?;
    }
    for entry in fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            runs(Command::new("dpkg-deb").arg("-x").arg(&path).arg(&tools))?;
        }
    }
    Ok(tools)
}
