//! Slow publishers: each loses its connection in time, and delays no other.

use std::{thread, time::Duration};

use super::{
    print,
    raw::{Ended, RawRequest},
};
use crate::support::{
    load,
    server::{Server, events_path},
};

/// Each of the three waits is shorter than this, and two of them are one after the other.
const MOST: Duration = Duration::from_secs(30);

/// Slow publishers, and how the server closes their connections.
fn behaviors(key: &str) -> Vec<(&'static str, Vec<u8>, Option<u8>, bool)> {
    let path = events_path("orders");
    let body = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {key}\r\ncontent-length: 1000000\r\n\r\n["
    );
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {key}\r\ntransfer-encoding: \
         chunked\r\n\r\n"
    );
    let whole = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    // More than the sockets between the two have room for.
    let many = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(400);
    vec![
        ("says nothing", Vec::new(), None, true),
        (
            "its first head a byte at a time",
            b"POST ".to_vec(),
            Some(b'a'),
            true,
        ),
        ("one request, then nothing", whole.into(), None, true),
        (
            "one request, then a head a byte at a time",
            format!("{whole}GET ").into(),
            Some(b'a'),
            true,
        ),
        (
            "two requests, then half a head and nothing",
            format!("{whole}{whole}GET /").into(),
            None,
            true,
        ),
        ("a body a byte at a time", body.into(), Some(b' '), true),
        (
            "a body in chunks that does not begin",
            chunked.into(),
            None,
            true,
        ),
        (
            "many requests, and no answer is read",
            many.into(),
            Some(b' '),
            false,
        ),
    ]
}

fn part(server: &Server, key: &str, most: Duration) -> Vec<(&'static str, Ended)> {
    let at = server.address();
    let threads: Vec<_> = behaviors(key)
        .into_iter()
        .map(|(name, first, drip, reads)| {
            thread::spawn(move || {
                (
                    name,
                    RawRequest {
                        first: &first,
                        drip,
                        reads,
                        most,
                    }
                    .with(at),
                )
            })
        })
        .collect();
    // Others go on meanwhile.
    for number in 0..20 {
        server.publish("orders", key, &load::body(&[number.to_string()], "/a"));
    }
    threads
        .into_iter()
        .map(|thread| thread.join().expect("a connection does not panic"))
        .collect()
}

#[test]
fn a_slow_client_loses_its_connection_and_others_go_on() {
    let waits = [
        ("LIMITS__HEAD_TIMEOUT", "2s"),
        ("LIMITS__IDLE_TIMEOUT", "2s"),
        ("LIMITS__ANSWER_TIMEOUT", "2s"),
        ("PUBLISH__BODY_TIMEOUT", "2s"),
    ];
    let server = Server::start(&waits);
    let key = server.topic("orders", "EventGridSchema");
    let ended = part(&server, &key, MOST);
    let shown = |closed: &Ended| {
        format!(
            "{} after {:.1?}",
            closed.shown(),
            closed.closed.unwrap_or(MOST)
        )
    };
    print(
        "slow publisher → what it got",
        &ended
            .iter()
            .map(|(name, ended)| [(*name).to_owned(), shown(ended)])
            .collect::<Vec<_>>(),
    );
    for (name, ended) in &ended {
        assert!(
            ended.closed.is_some(),
            "{name}: still connected after {MOST:?}"
        );
    }
}

#[test]
fn without_these_timeouts_slow_clients_stay() {
    let waits = [
        ("LIMITS__HEAD_TIMEOUT", "1h"),
        ("LIMITS__IDLE_TIMEOUT", "1h"),
        ("LIMITS__ANSWER_TIMEOUT", "1h"),
        ("PUBLISH__BODY_TIMEOUT", "1h"),
        ("PUBLISH__BODY_BYTES_PER_SECOND", "0"),
    ];
    let server = Server::start(&waits);
    let key = server.topic("orders", "EventGridSchema");
    for (name, ended) in part(&server, &key, Duration::from_secs(6)) {
        assert!(ended.closed.is_none(), "{name}: {ended:?}");
    }
}
