//! Peers and files that are not what they seem: a broker that sends endless data, and files of
//! backups that are pipes or damaged.

use std::{fs, io::Write, net::TcpListener, path::PathBuf, process::Command};

use serde_json::{Value, json};

use super::LONG;
use crate::support::{
    load,
    needs::many,
    server::{Server, SubscriptionSpec, say},
};

/// The memory that one peer may use. Without a bound it was 600 MB.
const MEMORY_MAX: u64 = 96 * 1024 * 1024;

/// The data that the broker sends as long as its client reads.
const ENDLESS: u64 = 600 * 1024 * 1024;

/// A broker of NATS that greets, and then sends bytes without an end. The channel has the number of
/// bytes of each connection.
fn endless(greeting: &'static [u8]) -> (String, std::sync::mpsc::Receiver<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", listener.local_addr().expect("an address"));
    let (sender, sent) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let piece = vec![b'x'; 1 << 20];
            let mut bytes = 0;
            let mut written = stream.write_all(greeting);
            while written.is_ok() && bytes < ENDLESS {
                bytes += piece.len() as u64;
                written = stream.write_all(&piece);
            }
            if sender.send(bytes).is_err() {
                return;
            }
        }
    });
    (url, sent)
}

#[test]
fn a_nats_server_that_sends_without_an_end_fills_no_memory() {
    let greetings: [&[u8]; 3] = [
        b"INFO ",
        b"INFO {\"max_payload\":1048576,\"headers\":true}\r\nPONG\r\nMSG _INBOX.x.0 1 \
         629145600\r\n",
        b"INFO {\"max_payload\":1048576,\"headers\":true}\r\nHMSG _INBOX.x.0 1 629145500 \
         629145600\r\n",
    ];
    for greeting in greetings {
        let (url, sent) = endless(greeting);
        let server = Server::start(&[
            ("DELIVERY__VALIDATE", "false"),
            ("DELIVERY__RESOURCES__SERVICE__URL", &url),
        ]);
        let key = server.topic("orders", "EventGridSchema");
        let properties = json!({"resourceId": "service", "subject": "orders"});
        let destination =
            json!({"destination": {"endpointType": "Nats", "properties": properties}});
        server.subscribe(
            "orders",
            "sub",
            &SubscriptionSpec::new("").also(&json!({}), &destination),
        );
        let before = server.resident();
        server.publish("orders", &key, &load::body(&["1".to_owned()], "/blue"));
        // It connects again and again.
        for _ in 0..many(1, 20) {
            let bytes = sent.recv_timeout(LONG).expect("the connection ends");
            assert!(bytes < 64 << 20, "{bytes} bytes were read of {greeting:?}");
        }
        let grown = server.most_resident().saturating_sub(before);
        assert!(grown < MEMORY_MAX, "{} MiB after {greeting:?}", grown >> 20);
    }
}

/// The names in a folder, ascending.
fn names(folder: &PathBuf) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_pipe_holds_up_no_backup_and_a_flipped_bit_hides_no_other() {
    let beside = tempfile::tempdir().expect("a folder");
    let folder = beside.path().join("backups");
    let url = format!("file://{}", folder.display());
    let server = Server::start(&[("BACKUP__STORE__URL", &url)]);
    server.topic("orders", "EventGridSchema");
    let back_up = || server.admin("POST", "/store/backup", &json!({})).text();
    for _ in 0..2 {
        let lines = back_up();
        assert!(lines.contains("\"report\""), "{lines}");
    }
    for _ in 0..many(1, 20) {
        let owner = folder.join("server.json");
        let whole = fs::read(&owner).expect("bytes");
        fs::remove_file(&owner).expect("removed");
        assert!(
            Command::new("mkfifo")
                .arg(&owner)
                .status()
                .expect("it runs")
                .success()
        );
        let lines = back_up();
        assert!(
            lines.contains("server.json") && lines.contains("is not a regular file"),
            "{lines}"
        );
        fs::remove_file(&owner).expect("removed");
        fs::write(&owner, whole).expect("written");
        let lines = back_up();
        assert!(
            lines.contains("\"report\"") && !lines.contains("\"error\""),
            "{lines}"
        );
    }

    let manifests = folder.join("backups");
    let all = names(&manifests);
    let oldest = manifests.join(&all[0]);
    let mut bytes = fs::read(&oldest).expect("bytes");
    bytes[0] ^= 1;
    fs::write(&oldest, bytes).expect("written");
    let (status, listed) = say(&["backup", "list", &url, "--output", "json"]);
    let listed: Value =
        serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {listed}"));
    let listed = listed["value"].as_array().expect("a list");
    let problems = listed
        .iter()
        .filter(|backup| backup.get("problem").is_some())
        .count();
    assert!(!status.success(), "a damaged backup is no success");
    assert_eq!((listed.len(), problems), (all.len(), 1), "{listed:?}");
    let restored = beside.path().join("restored");
    let (status, reported) = say(&[
        "restore",
        &url,
        "--data-dir",
        restored.to_str().expect("text"),
    ]);
    assert!(
        status.success() && reported.contains("the store is sound"),
        "{reported}"
    );
    assert_eq!(server.command("GET", "/healthz", &Value::Null).status, 200);
}
