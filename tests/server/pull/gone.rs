//! Clients that disconnect: while they wait, and before they read a response.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    time::Duration,
};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::{Consumer, LONG, TOPIC, publish, start, succeeded};
use crate::support::server::{Server, wait_for};

/// A client that asks for events, and has room for little of a response.
fn ask(server: &Server, shown: &str, most: usize) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .set_recv_buffer_size(4_096)
        .expect("a socket takes its option");
    socket
        .connect(&server.address().into())
        .expect("the server listens");
    let head = format!(
        "POST {TOPIC}/eventsubscriptions/once:receive?maxEvents={most}&maxWaitTime=120 HTTP/1.1\r\n\
         host: plant\r\nauthorization: {shown}\r\ncontent-length: 0\r\n\r\n"
    );
    (&socket).write_all(head.as_bytes()).expect("it is sent");
    socket
}

/// Sockets of the server's that are connected to a client at `port`.
fn established(server: &Server, port: u16) -> usize {
    let table =
        std::fs::read_to_string(format!("/proc/{}/net/tcp", server.id())).unwrap_or_default();
    let own = format!(":{:04X}", server.address().port());
    let peer = format!(":{port:04X}");
    let line = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let mut ends = |end: &String| {
            words
                .next()
                .is_some_and(|word| word.ends_with(end.as_str()))
        };
        ends(&own) && ends(&peer)
    };
    table.lines().filter(line).count()
}

fn port(socket: &Socket) -> u16 {
    let address: SocketAddr = socket
        .local_addr()
        .expect("an address")
        .as_socket()
        .expect("of IPv4");
    address.port()
}

#[test]
fn a_client_that_goes_away_while_it_waits_holds_nothing() {
    let (server, shown) = start(&[("LIMITS__IDLE_TIMEOUT", "1m")], &[("once", 60, 1)]);
    let mut live = Consumer::new(&server, &shown, "once");
    for (number, how) in ["closed", "reset", "half closed", "closed"]
        .into_iter()
        .enumerate()
    {
        let gone = ask(&server, &shown, 10);
        let port = port(&gone);
        // It is a client that waits by then, mostly; it must not matter.
        std::thread::sleep(Duration::from_millis(50));
        let kept = match how {
            "closed" => None,
            "reset" => {
                gone.set_linger(Some(Duration::ZERO))
                    .expect("a socket takes its option");
                None
            }
            _ => {
                gone.shutdown(Shutdown::Write).expect("it is closed");
                Some(gone.try_clone().expect("a second handle"))
            }
        };
        drop(gone);
        if kept.is_none() {
            wait_for("the server to see it", LONG, || {
                established(&server, port) == 0
            });
        }
        publish(&server, &shown, number..number + 1);
        let got = live.receive(10);
        let ids: Vec<(&str, u64)> = got.iter().map(|event| (event.id(), event.count)).collect();
        assert_eq!(
            ids,
            [(number.to_string().as_str(), 1)],
            "{how}: at once, and by its first attempt"
        );
        assert_eq!(succeeded(&live.settle("acknowledge", &[&got[0].token])), 1);
        drop(kept);
    }
}

#[test]
fn events_of_an_unread_answer_go_to_another_client_without_an_attempt() {
    let (server, shown) = start(&[("LIMITS__IDLE_TIMEOUT", "1m")], &[("once", 60, 1)]);
    let headers = [
        ("authorization", shown.as_str()),
        ("content-type", "application/cloudevents-batch+json"),
    ];
    for request in 0..4 {
        let event = |id: usize| {
            let data = "x".repeat(38_000);
            json!({"specversion": "1.0", "id": (25 * request + id).to_string(), "source": "/oven", "type": "hot", "data": data})
        };
        let body = Value::from((0..25).map(event).collect::<Vec<_>>()).to_string();
        let response = server.client().ask(
            "POST",
            &format!("{TOPIC}:publish"),
            &headers,
            body.as_bytes(),
        );
        assert_eq!(response.expect("a response").status, 200);
    }
    let mut live = Consumer::new(&server, &shown, "once");
    for how in ["closed", "reset"] {
        let gone = ask(&server, &shown, 100);
        let mut begun = [0; 12];
        (&gone).read_exact(&mut begun).expect("an answer begins");
        assert_eq!(&begun, b"HTTP/1.1 200");
        if how == "reset" {
            gone.set_linger(Some(Duration::ZERO))
                .expect("a socket takes its option");
        }
        drop(gone);
    }
    let mut ids = Vec::new();
    wait_for("all of them", LONG, || {
        let got = live
            .try_receive(100)
            .expect("a waiting client receives an answer");
        assert!(
            got.iter().all(|event| event.count == 1),
            "no attempt was spent"
        );
        let tokens: Vec<&str> = got.iter().map(|event| event.token.as_str()).collect();
        if !tokens.is_empty() {
            assert_eq!(
                succeeded(&live.settle("acknowledge", &tokens)),
                tokens.len()
            );
        }
        ids.extend(got.iter().map(|event| event.id().to_owned()));
        ids.len() >= 100
    });
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 100, "each once");
}
