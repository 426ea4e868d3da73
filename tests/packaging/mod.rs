//! The packages of the server: the unit and its sandbox, the protocol of readiness, manual and
//! completions, the package of Debian, the image, and the manifests of Kubernetes.

mod compiler;
mod deb;
mod image;
mod image_build;
mod kubernetes;
mod notify;
mod optimized;
mod shell;
mod systemd;
mod unit;
mod workflows;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const BINARY: &str = env!("CARGO_BIN_EXE_gridhook");

/// The folder with Cargo.toml.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of `config/packaging`.
fn read(name: &str) -> String {
    fs::read_to_string(packaged(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn packaged(name: &str) -> PathBuf {
    root().join("config/packaging").join(name)
}

/// Runs a tool of Debian's that `.ci/with-tools` brings.
fn tool(name: &str, arguments: &[&str]) -> Output {
    let output = Command::new(name)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output();
    output.unwrap_or_else(|error| panic!("{name}: {error}; `make test` installs it on Debian"))
}

/// The output of a tool, on either stream.
fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}
