//! The course of the figures outlives the process.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::support::server::Server;

#[test]
fn a_server_that_stops_leaves_its_history_to_the_next_one() {
    let mut server = Server::start(&[]);
    let path = server.data_dir().join("history");
    assert!(!path.exists());
    server.terminate();
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    server.restart();
    assert!(
        !server.logs().contains("the saved history"),
        "{}",
        server.logs()
    );
    server.terminate();
    fs::write(&path, b"damaged").expect("a file");
    server.restart();
    assert!(server.logs().contains("the saved history cannot be read"));
}
