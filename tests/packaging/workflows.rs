//! The workflows of GitHub: they are valid, and they use one release of Rust.

use std::{fs, process::Command};

use super::{output_text, root, tool};
use crate::support::needs::can_run;

const WORKFLOWS: [&str; 2] = [".github/workflows/ci.yml", ".github/workflows/release.yml"];

fn read_file(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_workflows_are_valid() {
    if !can_run("actionlint", Command::new("actionlint").arg("--version")) {
        return;
    }
    let files = WORKFLOWS.map(|name| root().join(name));
    let files = files.each_ref().map(|file| file.to_str().expect("text"));
    let output = tool("actionlint", &files);
    assert!(output.status.success(), "{}", output_text(&output));
}

/// The release of Rust that a workflow installs.
fn toolchain(workflow: &str) -> String {
    let text = read_file(workflow);
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("RUST_TOOLCHAIN: "));
    line.unwrap_or_else(|| panic!("{workflow} pins no toolchain"))
        .to_owned()
}

#[test]
fn workflows_and_the_dev_container_pin_the_same_rust() {
    let [first, second] = WORKFLOWS.map(toolchain);
    assert_eq!(first, second);
    let container = read_file(".devcontainer/devcontainer.json");
    assert!(
        container.contains(&format!("rustup default {first} ")),
        "{container}"
    );
    let manifest = read_file("Cargo.toml");
    let minimum = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let minimum = minimum.expect("a rust-version").trim_matches('"');
    let number = |version: &str| -> Vec<u32> {
        let parts = version
            .split('.')
            .map(|part| part.parse().expect("a number"));
        parts.collect()
    };
    assert!(
        number(minimum) <= number(&first),
        "{minimum} is newer than {first}"
    );
}
