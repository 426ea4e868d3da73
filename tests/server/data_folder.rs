//! The data folder: only what a server made in it is touched, and an error names what is wrong with
//! it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use gridhook::store::{
    Batch, Family, Store,
    keys::{self, MetaKind},
    rocks::{RocksOptions, RocksStore},
};
use serde_json::{Value, json};

use super::LONG;
use crate::{
    journal::copy_folder,
    support::{
        http::Client,
        load,
        port::ReservedPort,
        server::{Server, events_path, wait_for},
    },
};

/// The status of a process whose store failed: sysexits' I/O error.
const EX_IOERR: i32 = 74;

const TOKEN: &str = "the-operators-own-token";

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn gridhook(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhook"));
    command
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the binary starts")
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

#[test]
fn a_folder_with_something_else_in_it_is_refused_by_name_and_not_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("home");
    fs::create_dir_all(home.join("photos")).expect("made");
    fs::write(home.join("photos/cat.jpg"), b"meow").expect("written");
    for (path, mode) in [("photos/cat.jpg", 0o664), ("photos", 0o775), ("", 0o755)] {
        set_mode(&home.join(path), mode);
    }
    let output = gridhook(
        &["serve", "--listen", "127.0.0.1:0", "--data-dir", "home"],
        folder.path(),
    );
    let text = output_text(&output);
    assert!(
        !output.status.success()
            && text.contains("home has no store and is not empty: it has \"photos\""),
        "{text}"
    );
    assert_eq!(
        [
            mode(&home),
            mode(&home.join("photos")),
            mode(&home.join("photos/cat.jpg"))
        ],
        [0o755, 0o775, 0o664]
    );
    assert_eq!(
        fs::read_dir(&home).expect("a folder").count(),
        1,
        "nothing was made in it"
    );
}

#[test]
fn a_volume_with_rights_of_its_own_and_what_others_keep_in_a_data_folder_stay_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("volume");
    fs::create_dir_all(data_dir.join("lost+found")).expect("made");
    set_mode(&data_dir, 0o2775);
    let mut server = Server::with_data_dir(&data_dir, &[]);
    server.restart();
    server.topic("orders", "EventGridSchema");
    server.terminate();
    fs::write(data_dir.join("notes.txt"), b"of the operator").expect("written");
    set_mode(&data_dir.join("notes.txt"), 0o644);
    set_mode(&data_dir.join("watermark"), 0o644);
    server.restart();
    assert_eq!(mode(&data_dir), 0o2775, "the folder was there before");
    assert_eq!(mode(&data_dir.join("notes.txt")), 0o644);
    assert_eq!(
        mode(&data_dir.join("watermark")),
        0o600,
        "what a server made is private"
    );
    server.terminate();
}

#[test]
fn a_backup_is_restored_to_a_relative_path_with_the_rights_of_new_files() {
    let mut server = Server::start(&[]);
    server.topic("orders", "EventGridSchema");
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    let (status, reported) = server.say(&["backup", backup.to_str().expect("text")]);
    assert!(status.success(), "{reported}");
    server.terminate();
    let output = gridhook(&["restore", "backup", "--data-dir", "data"], folder.path());
    assert!(output.status.success(), "{}", output_text(&output));
    let mut paths = vec![folder.path().join("data")];
    while let Some(path) = paths.pop() {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        if path.is_dir() {
            paths.extend(
                fs::read_dir(&path)
                    .expect("a folder")
                    .map(|entry| entry.expect("an entry").path()),
            );
        }
    }
    let output = gridhook(&["restore", "backup", "--data-dir", "data"], folder.path());
    assert!(
        !output.status.success() && output_text(&output).contains("nothing is overwritten"),
        "{}",
        output_text(&output)
    );
}

#[test]
fn a_record_with_a_field_of_a_newer_version_is_refused_by_name() {
    let mut server = Server::start(&[]);
    server.topic("orders", "EventGridSchema");
    server.terminate();
    let store = RocksStore::open(&server.data_dir(), &RocksOptions::default()).expect("a store");
    let range = keys::meta_of(MetaKind::Topic);
    let (key, value) = store
        .last(Family::Meta, &range.start, &range.end)
        .expect("readable")
        .expect("a topic");
    let mut record: Value = serde_json::from_slice(&value).expect("JSON");
    record["invented_later"] = json!(1);
    let mut batch = Batch::default();
    batch.put(Family::Meta, key, record.to_string().into_bytes());
    store.write(&batch).expect("written");
    store.close().expect("closed");
    drop(store);
    let (status, text) = server
        .try_restart()
        .expect_err("a field that would be lost");
    assert!(!status.success());
    for part in [
        "orders",
        "unknown field `invented_later`",
        "A newer gridhook wrote it",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_copied_folder_is_reported_once() {
    let mut server = Server::start(&[]);
    server.topic("orders", "EventGridSchema");
    server.terminate();
    let data_dir = server.data_dir();
    let older = data_dir.with_file_name("older");
    copy_folder(&data_dir, &older).expect("copied");
    server.restart();
    server.terminate();
    assert!(!server.logs().contains("is a copy"), "{}", server.logs());
    // An older state of the whole folder, with its watermark, is brought back.
    fs::remove_dir_all(&data_dir).expect("removed");
    copy_folder(&older, &data_dir).expect("copied");
    server.restart();
    assert!(
        server.logs().contains("the data folder is a copy"),
        "{}",
        server.logs()
    );
    server.terminate();
    server.restart();
    assert_eq!(
        server.logs().matches("the data folder is a copy").count(),
        1,
        "{}",
        server.logs()
    );
    server.terminate();
}

#[test]
fn a_copy_is_reported_although_it_has_the_inode_numbers_of_the_original() {
    let mut server = Server::start(&[]);
    server.terminate();
    let place = server.data_dir().join("place");
    let content = fs::read(&place).expect("readable");
    // ext4 gives the new file the inode number of the removed one. Where another is given, it is a
    // copy nevertheless.
    fs::remove_file(&place).expect("removed");
    fs::write(&place, content).expect("written");
    server.restart();
    assert!(
        server.logs().contains("the data folder is a copy"),
        "{}",
        server.logs()
    );
    server.terminate();
}

#[test]
fn a_store_that_fails_ends_the_process_with_its_status_where_nothing_can_be_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = ReservedPort::new();
    let at = port.address;
    // Files of the process end at a mebibyte: writing the log fails there, and not for want of
    // room.
    let script = format!(
        "trap '' XFSZ; ulimit -f 2048; exec {} serve --listen {at} --data-dir data 2>/dev/full",
        env!("CARGO_BIN_EXE_gridhook")
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .current_dir(folder.path())
        .stdout(Stdio::null());
    command.env("GRIDHOOK_SERVER__ADMIN_TOKEN", TOKEN);
    let mut child = command.spawn().expect("a shell");
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    let ask =
        |method: &str, path: &str, body: &[u8]| Client::new(at).ask(method, path, &headers, body);
    wait_for("the server", LONG, || {
        ask("GET", "/readyz", b"").is_ok_and(|response| response.status == 200)
    });
    let path = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders?api-version=2025-02-15";
    let response = ask("PUT", path, b"{\"location\":\"here\"}").expect("a response");
    assert!(response.status < 300, "{}", response.text());
    let noise = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..2000)
            .map(|_| format!("{:032x}", random.u128(..)))
            .collect::<String>()
    };
    for seed in 0..100 {
        if ask(
            "POST",
            &events_path("orders"),
            &load::body(&[seed.to_string()], &noise(seed)),
        )
        .is_err()
        {
            break;
        }
    }
    let mut status = None;
    wait_for("its end", LONG, || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    assert_eq!(
        status.and_then(|status| status.code()),
        Some(EX_IOERR),
        "{status:?}"
    );
}
