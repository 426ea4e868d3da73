//! Clients whose event subscription is deleted, or whose key is replaced, while they wait or while
//! they send a request.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Consumer, LONG, RG, TOPIC, publish, start};
use crate::support::server::Server;

/// A request whose response is not read yet.
struct OpenRequest(TcpStream);

impl OpenRequest {
    /// Sends the head of a request, and as much of its body as is given.
    fn send(server: &Server, shown: &str, path: &str, length: usize, body: &str) -> Self {
        let mut stream = TcpStream::connect(server.address()).expect("the server listens");
        stream.set_read_timeout(Some(LONG)).expect("a time limit");
        let head = format!(
            "POST {TOPIC}/eventsubscriptions/{path} HTTP/1.1\r\nhost: plant\r\n\
             authorization: {shown}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).expect("it is sent");
        Self(stream)
    }

    fn send_rest(&mut self, body: &str) {
        self.0.write_all(body.as_bytes()).expect("it is sent");
    }

    /// The status of the response.
    fn status(mut self) -> u16 {
        let mut line = [0; 12];
        self.0.read_exact(&mut line).expect("a response in time");
        String::from_utf8_lossy(&line[9..])
            .parse()
            .expect("a status")
    }
}

fn delete(server: &Server, path: &str) {
    server.command(
        "DELETE",
        &format!("{RG}/plant/topics/heat{path}"),
        &Value::Null,
    );
}

#[test]
fn a_client_that_waits_for_events_of_a_deleted_subscription_learns_of_it() {
    let (server, shown) = start(&[], &[("one", 60, 10), ("two", 60, 10)]);
    for (queue, deleted) in [("one", "/eventSubscriptions/one"), ("two", "")] {
        let path = format!("{queue}:receive?maxWaitTime=120");
        let waiting = OpenRequest::send(&server, &shown, &path, 0, "");
        // Mostly, the client waits by then. Otherwise it is refused, which is the same here.
        thread::sleep(Duration::from_millis(300));
        let deleted_at = Instant::now();
        delete(&server, deleted);
        assert_eq!(waiting.status(), 404, "{queue}");
        assert!(deleted_at.elapsed() < Duration::from_secs(60), "{queue}");
    }
}

#[test]
fn a_lock_token_that_arrives_after_the_deletion_is_answered() {
    let (server, shown) = start(&[("LIMITS__IDLE_TIMEOUT", "1m")], &[("one", 60, 10)]);
    publish(&server, &shown, 0..1);
    let received = Consumer::new(&server, &shown, "one").receive(1);
    let body = json!({"lockTokens": [received[0].token]}).to_string();
    let mut request = OpenRequest::send(&server, &shown, "one:acknowledge", body.len(), "");
    // The request is authenticated, and its body is missing.
    thread::sleep(Duration::from_millis(300));
    delete(&server, "/eventSubscriptions/one");
    request.send_rest(&body);
    assert_eq!(request.status(), 404);
}

#[test]
fn a_replaced_key_receives_nothing_by_a_wait_that_began_before() {
    let (server, shown) = start(&[], &[("one", 60, 10)]);
    let keys = server.command("POST", &format!("{RG}/plant/listKeys"), &Value::Null);
    let other = keys.json()["key2"]
        .as_str()
        .map(|key| format!("SharedAccessKey {key}"));
    let other = other.expect("a second key");
    let path = "one:receive?maxWaitTime=120";
    let waiting = OpenRequest::send(&server, &shown, path, 0, "");
    thread::sleep(Duration::from_millis(1_500));
    let regenerate = format!("{RG}/plant/regenerateKey");
    server.command("POST", &regenerate, &json!({"keyName": "key1"}));
    publish(&server, &other, 0..1);
    assert_eq!(waiting.status(), 401);
    let received = Consumer::new(&server, &other, "one").receive(1);
    assert_eq!((received[0].id(), received[0].count), ("0", 1));
}
