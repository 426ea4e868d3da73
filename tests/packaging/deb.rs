//! The Debian package: its files exist, its settings are valid, its scripts are shell. If `cargo
//! deb` is installed, the package is built and inspected.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use gridhook::config::{Config, SettingSources};
use toml::{Table, Value};

use super::{BINARY, output_text, packaged, read, root, tool};
use crate::support::needs::can_run;

fn metadata() -> Table {
    let manifest: Table = fs::read_to_string(root().join("Cargo.toml"))
        .expect("a manifest")
        .parse()
        .expect("TOML");
    manifest["package"]["metadata"]["deb"]
        .as_table()
        .expect("metadata")
        .clone()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("{key} is a text in {value}"))
}

/// Source and target of each file of the package.
fn assets() -> BTreeMap<String, String> {
    let assets = metadata()["assets"].as_array().expect("a list").clone();
    assets
        .iter()
        .map(|asset| {
            (
                text(asset, "source").to_owned(),
                text(asset, "dest").to_owned(),
            )
        })
        .collect()
}

#[test]
fn every_file_of_the_package_is_there_or_made_by_make_deb() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("a Makefile");
    let mut missing = Vec::new();
    for source in assets().keys() {
        let is_there = match source.strip_prefix("target/release/") {
            Some("gridhook") => true,
            // What the binary writes: the folder is the Makefile's.
            Some(made) => made
                .strip_prefix("packaging/")
                .is_some_and(|_| makefile.contains("/packaging")),
            None => root().join(source).exists(),
        };
        if !is_there {
            missing.push(source.clone());
        }
    }
    assert!(missing.is_empty() && assets().len() > 5, "{missing:?}");
    let metadata = metadata();
    let kept: Vec<&str> = metadata["conf-files"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let targets: Vec<String> = assets()
        .values()
        .map(|target| format!("/{target}"))
        .collect();
    assert!(
        kept.iter()
            .all(|file| targets.iter().any(|target| target == file)),
        "{kept:?} are in {targets:?}"
    );
}

#[test]
fn the_package_and_the_unit_mean_the_same_places() {
    let unit = read("gridhook.service");
    let targets = assets();
    let there = |path: &str| {
        targets
            .values()
            .any(|target| path.trim_start_matches('/').starts_with(target.as_str()))
    };
    for path in ["/usr/bin/gridhook", "/etc/gridhook/gridhook.toml"] {
        assert!(unit.contains(path) && there(path), "{path}");
    }
    assert!(read("sysusers.conf").starts_with("u gridhook ") && unit.contains("User=gridhook\n"));
    assert!(
        read("debian/postinst").contains("/var/lib/gridhook")
            && unit.contains("StateDirectory=gridhook gridhook-backups\n")
    );
}

#[test]
fn the_packages_settings_can_be_used_and_its_scripts_are_shell() {
    let sources = SettingSources {
        file: Some(packaged("gridhook.toml")),
        ..SettingSources::default()
    };
    let config = Config::load(&sources).expect("settings");
    assert!(
        config.server.is_loopback_only(),
        "a server that nobody configured is nobody else's business"
    );
    for script in ["debian/postinst", "debian/postrm"] {
        let path = packaged(script);
        let output = tool("sh", &["-n", path.to_str().expect("text")]);
        assert!(output.status.success(), "{}", output_text(&output));
        // Where this stands, what starts and stops the unit is put in.
        assert!(read(script).contains("\n#DEBHELPER#\n"), "{script}");
    }
}

/// Makes the package of this build in a folder. `None` where `cargo deb` cannot be had and
/// `GRIDHOOK_SKIP` says so.
pub(super) fn package(folder: &Path) -> Option<PathBuf> {
    if !can_run(
        "cargo-deb",
        Command::new("cargo").args(["deb", "--version"]),
    ) {
        return None;
    }
    // The steps of `make deb`, in a target folder of the test.
    let target = folder.join("target");
    let release = target.join("release");
    let made = release.join("packaging");
    fs::create_dir_all(made.join("completions")).expect("a folder");
    std::os::unix::fs::symlink(BINARY, release.join("gridhook")).expect("a link");
    let write = |arguments: &[&str]| {
        Command::new(BINARY)
            .args(arguments)
            .output()
            .expect("the binary starts")
            .stdout
    };
    write(&["man", made.join("man").to_str().expect("text")]);
    for (shell, name) in [
        ("bash", "gridhook"),
        ("zsh", "_gridhook"),
        ("fish", "gridhook.fish"),
    ] {
        fs::write(
            made.join("completions").join(name),
            write(&["completions", shell]),
        )
        .expect("a script");
    }
    let package = folder.join("gridhook.deb");
    let output = Command::new("cargo")
        .args([
            "deb",
            "--no-build",
            "--no-strip",
            "--fast",
            "--locked",
            "-o",
        ])
        .arg(&package)
        .current_dir(root())
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", output_text(&output));
    Some(package)
}

#[test]
fn the_package_has_what_it_says_and_depends_on_what_it_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(package) = package(folder.path()) else {
        return;
    };
    let listed = output_text(&tool(
        "dpkg-deb",
        &["--contents", package.to_str().expect("text")],
    ));
    for path in [
        "./usr/bin/gridhook",
        "./etc/gridhook/gridhook.toml",
        "/gridhook.service",
        "man1/gridhook-serve.1",
    ] {
        assert!(listed.contains(path), "{path} is in\n{listed}");
    }
    let reported = output_text(&tool(
        "dpkg-deb",
        &["--info", package.to_str().expect("text")],
    ));
    assert!(
        reported.contains("postinst") && reported.contains("conffiles"),
        "{reported}"
    );
    // Found in the binary by a tool that cargo-deb does without where it is missing.
    for library in ["libc6 (>=", "libstdc++6 (>="] {
        assert!(reported.contains(library), "{library} is in\n{reported}");
    }
}
