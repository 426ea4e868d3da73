//! Files of the server cannot be read by other users.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::support::{
    edition::FILE_DELAY,
    load,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

fn open_to_others(path: &Path, found: &mut Vec<PathBuf>) -> usize {
    let meta = fs::symlink_metadata(path).expect("it is there");
    if meta.permissions().mode() & 0o077 != 0 {
        found.push(path.to_owned());
    }
    if !meta.is_dir() {
        return 1;
    }
    let entries = fs::read_dir(path).expect("a folder");
    entries
        .map(|entry| open_to_others(&entry.expect("an entry").path(), found))
        .sum()
}

fn checked(folder: &Path) -> (usize, Vec<PathBuf>) {
    let mut found = Vec::new();
    (open_to_others(folder, &mut found), found)
}

#[test]
fn everything_at_rest_is_private_also_what_was_left_open() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    sink.set("/hook", Behavior::Respond(400));
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).dead_letters("letters"),
    );
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));
    let letters = server.data_dir().join("dead-letters/letters");
    wait_for("a dead letter's file", FILE_DELAY + super::LONG, || {
        checked_if_there(&letters).is_some_and(|files| files > 0)
    });
    let (files, open) = checked(&server.data_dir());
    assert!(
        files > 10 && open.is_empty(),
        "of {files} files others may read {open:?}"
    );

    server.terminate();
    let store = server.data_dir();
    for path in [
        store.join("rocksdb"),
        store.join("rocksdb/CURRENT"),
        store.join("lock"),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    assert!(!checked(&store).1.is_empty(), "the look sees what is open");
    server.restart();
    let (_, open) = checked(&store);
    assert!(open.is_empty(), "after a restart others may read {open:?}");
    assert!(
        server.logs().contains("the files are private now"),
        "and the log says so"
    );
}

fn checked_if_there(folder: &Path) -> Option<usize> {
    folder.exists().then(|| checked(folder).0)
}
