//! An idle server is small.

use super::LONG;
use crate::support::server::{Server, wait_for};

/// Beside the program itself, which is half of it.
const IDLE: u64 = 56 << 20;

#[test]
fn an_idle_server_gives_back_what_its_start_took() {
    let server = Server::start(&[]);
    let most = server.most_resident();
    wait_for("memory to be given back", LONG, || server.resident() < most.min(IDLE));
}
