//! The systemd unit: systemd accepts every line, and the server works within its filter of system
//! calls.

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use super::{BINARY, output_text, read, tool};
use crate::support::{
    disk::has_strace,
    load,
    needs::can_run,
    server::{Server, SubscriptionSpec, wait_for},
    sink::Sink,
};

const UNIT: &str = "gridhook.service";

/// How long a traced server may take.
const LONG: Duration = Duration::from_secs(120);

/// Whether systemd's own tools are there.
fn has_systemd() -> bool {
    can_run("systemd", Command::new("systemd-analyze").arg("--version"))
}

/// The unit as it would be with this build, in a folder of its own.
fn installed() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(UNIT);
    let unit = read(UNIT);
    assert!(
        unit.contains("ExecStart=/usr/bin/gridhook serve "),
        "the package puts the binary there"
    );
    fs::write(
        &path,
        unit.replace("=/usr/bin/gridhook", &format!("={BINARY}")),
    )
    .expect("a unit");
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit_and_little_exposed() {
    if !has_systemd() {
        return;
    }
    let (_folder, path) = installed();
    let output = tool("systemd-analyze", &["verify", "--man=no", &path]);
    // It speaks of the machine's own units, too.
    let ours: Vec<String> = output_text(&output)
        .lines()
        .filter(|line| line.contains("gridhook"))
        .map(str::to_owned)
        .collect();
    assert!(output.status.success() && ours.is_empty(), "{ours:#?}");

    let wrong = read(UNIT)
        .replace("=/usr/bin/gridhook", &format!("={BINARY}"))
        .replace("ProtectHome", "ProtectHut");
    fs::write(&path, wrong).expect("a unit");
    let reported = output_text(&tool("systemd-analyze", &["verify", "--man=no", &path]));
    assert!(
        reported.contains("ProtectHut"),
        "systemd reports an unknown line: {reported}"
    );
}

#[test]
fn the_unit_exposes_little() {
    if !has_systemd() {
        return;
    }
    let (_folder, path) = installed();
    // A tenth of its points are more than 2.0, which is as much as a server on the network can do
    // without.
    let output = tool(
        "systemd-analyze",
        &["security", "--offline=true", "--threshold=20", &path],
    );
    let printed = output_text(&output);
    let last = printed
        .lines()
        .rfind(|line| line.contains("exposure level"))
        .unwrap_or(&printed)
        .to_owned();
    println!("{}", last.trim());
    assert!(output.status.success(), "{last}");
}

/// The system calls of a set of systemd's, and of the sets in it.
fn calls(set: &str) -> BTreeSet<String> {
    let output = tool("systemd-analyze", &["syscall-filter", set]);
    assert!(output.status.success(), "{}", output_text(&output));
    let printed = output_text(&output);
    let lines = printed
        .lines()
        .skip(1)
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let all = lines.flat_map(|line| {
        if line.starts_with('@') {
            calls(line)
        } else {
            [line.to_owned()].into()
        }
    });
    all.collect()
}

/// The system calls that the unit allows.
fn allowed() -> BTreeSet<String> {
    let unit = read(UNIT);
    let mut allowed = BTreeSet::new();
    for filter in unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
    {
        match filter.strip_prefix('~') {
            Some(set) => allowed = &allowed - &calls(set),
            None => allowed.extend(calls(filter)),
        }
    }
    assert!(
        allowed.len() > 200 && !allowed.contains("mount"),
        "{} calls",
        allowed.len()
    );
    allowed
}

#[test]
fn all_that_the_server_calls_passes_the_units_filter() {
    if !has_systemd() || !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::with_data_dir(&folder.path().join("data"), &[]);
    let sink = Sink::start();
    let counts = tempfile::NamedTempFile::new().expect("a file");
    let file = counts.path().display().to_string();
    server.run_under(&["strace", "-f", "-qqq", "-c", "-U", "name", "-o", &file]);
    server.restart();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    server.publish(
        "orders",
        &key,
        &load::body(&["one".to_owned(), "two".to_owned()], "/a"),
    );
    wait_for("two events", LONG, || sink.taken("/hook") == 2);
    assert!(server.say(&["fsck", "--online"]).0.success());
    server.terminate();

    let output = fs::read_to_string(counts.path()).expect("a list of calls");
    // The head and the sum of the table are not calls.
    let lines = output
        .lines()
        .map(str::trim)
        .filter(|line| line.chars().all(is_of_a_name));
    let made: BTreeSet<String> = lines
        .filter(|line| !["syscall", "total"].contains(line))
        .map(str::to_owned)
        .collect();
    assert!(
        ["fdatasync", "accept4", "sendto", "execve"]
            .iter()
            .all(|call| made.contains(*call)),
        "{made:?}"
    );
    let allowed = allowed();
    let refused: Vec<&String> = made.difference(&allowed).collect();
    println!("{} different system calls", made.len());
    assert!(
        refused.is_empty(),
        "the unit does not let it call {refused:?}"
    );
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[test]
fn a_unit_that_forbids_what_the_server_does_is_detected() {
    if !has_systemd() {
        return;
    }
    let strict = calls("@basic-io");
    assert!(!strict.contains("fdatasync") && allowed().contains("fdatasync"));
}
