//! Has the linker pack the relocations of the binary, where the machine's C library can read them.
//! An unpacked one has 24 bytes, and there are 137,000: 3 MB that each start reads and keeps in
//! memory. Only LLD, which Rust brings for this target, and glibc from 2.36 on know the format.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let target = env::var("TARGET");
    let is_native = target == env::var("HOST");
    let has_lld = target.is_ok_and(|target| target == "x86_64-unknown-linux-gnu");
    if is_native && has_lld && read_glibc_version() >= Some((2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's glibc: `getconf` prints `glibc 2.36`.
fn read_glibc_version() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let (_, version) = text.trim().split_once(' ')?;
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
