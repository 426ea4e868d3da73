//! Programs of Debian's own packages, unpacked into a folder of the build and not installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder that a package and what it needs are unpacked in, if it can be had here; `proof` is a file in it.
pub(crate) fn unpacked(package: &str, needs: &[&str], proof: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package);
    let tools = folder.join("root");
    if tools.join(proof).exists() {
        return Some(tools);
    }
    fs::create_dir_all(&folder).expect("a folder of tools");
    let mut fetch = Command::new("apt-get");
    fetch.args(["-qq", "download", package]).args(needs).current_dir(&folder);
    if !try_run(&format!("apt-get download {package}"), &mut fetch) {
        return None;
    }
    for entry in fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "deb")
            && !try_run("dpkg-deb", Command::new("dpkg-deb").arg("-x").arg(&path).arg(&tools))
        {
            return None;
        }
    }
    Some(tools)
}

/// Runs a command, and says so where that is not possible here.
pub(crate) fn try_run(what: &str, command: &mut Command) -> bool {
    match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!("skipped, no {what} here: {}", String::from_utf8_lossy(&output.stderr).trim());
            false
        }
        Err(error) => {
            println!("skipped, no {what} here: {error}");
            false
        }
    }
}
