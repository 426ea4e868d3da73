//! The README's guarantees about files at rest.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::LONG;
use crate::support::{
    edition::FILE_DELAY,
    load,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// Runs a command with umask 0.
const CARELESS: [&str; 4] = ["sh", "-c", "umask 0; exec \"$@\"", "sh"];

/// The files below a folder, and what of all below it is open to others.
fn files(path: &Path, open: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    let meta = fs::symlink_metadata(path).expect("it is there");
    if meta.permissions().mode() & 0o077 != 0 {
        open.push(path.to_owned());
    }
    if !meta.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| files(&path, open)).collect()
}

fn assert_private(folder: &Path) {
    let mut open = Vec::new();
    let files = files(folder, &mut open);
    assert!(
        files.len() > 3 && open.is_empty(),
        "of {} files others may use {open:?}",
        files.len()
    );
}

#[test]
fn every_file_is_private_with_any_umask_also_in_a_backup() {
    let folder = tempfile::tempdir().expect("a folder");
    let [data, backup] = ["data", "backup"].map(|name| folder.path().join(name));
    let mut server = Server::with_data_dir(&data, &[]);
    let sink = Sink::start();
    server.run_under(&CARELESS);
    server.restart();
    let key = server.topic("orders", "EventGridSchema");
    sink.set("/hook", Behavior::Respond(400));
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).dead_letters("letters"),
    );
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));
    let letters = data.join("dead-letters/letters");
    wait_for("a dead letter's file", FILE_DELAY + LONG, || {
        letters.exists()
            && files(&letters, &mut Vec::new())
                .iter()
                .any(|file| file.extension().is_some())
    });
    let (status, reported) = server.say(&["backup", backup.to_str().expect("text")]);
    assert!(status.success(), "{reported}");
    assert_private(&data);
    assert_private(&backup);
    server.terminate();
}
