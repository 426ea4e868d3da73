//! Invalid events are refused with the documented error and not stored, and the server continues.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::support::{
    http::{Client, Response},
    load,
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::Sink,
};

struct Publisher {
    server: Server,
    key: String,
}

impl Publisher {
    fn post(&self, path: &str, key: Option<&str>, body: &[u8]) -> Response {
        let headers: Vec<(&str, &str)> = key.map(|key| ("aeg-sas-key", key)).into_iter().collect();
        Client::new(self.server.address())
            .ask("POST", path, &headers, body)
            .expect("a publisher is answered")
    }

    fn refuses(&self, what: &str, body: &[u8], status: u16, code: &str, detail: &str) {
        let response = self.post(&events_path("orders"), Some(&self.key), body);
        assert_eq!(
            response.codes(),
            (status, code.to_owned(), detail.to_owned()),
            "{what}: {}",
            response.text()
        );
    }

    /// A body that comes in chunks, without a length; the last chunk never comes.
    fn post_chunks(&self, bytes: usize) -> Response {
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {}\r\ntransfer-encoding: chunked\r\n\r\n",
            events_path("orders"),
            self.key
        );
        let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
        let chunks = chunk.repeat(bytes.div_ceil(0x10000));
        Client::new(self.server.address())
            .exchange(&[head.as_bytes(), &chunks].concat())
            .expect("a publisher is answered")
    }
}

/// An event without its last letters, and so on.
fn bodies() -> Vec<(&'static str, Vec<u8>, u16, &'static str, &'static str)> {
    let whole = load::body(&["one".to_owned(), "two".to_owned()], "/a");
    let text = String::from_utf8(whole.clone()).expect("it is text");
    let invalid = || ("BadRequest", "InputJsonInvalid");
    let bad = |what, body: Vec<u8>| (what, body, 400, invalid().0, invalid().1);
    let mut latin = whole.clone();
    let at = text.find("one").expect("an id");
    latin[at] = 0xe9;
    let large = load::body(&["x".repeat(1_100_000)], "/a");
    let larger = load::body(&["x".repeat(1_600_000)], "/a");
    let too_large = ("RequestEntityTooLarge", "PayloadTooLarge");
    vec![
        bad("nothing", Vec::new()),
        bad("truncated", whole[..whole.len() - 5].to_vec()),
        bad("no JSON", b"hello".to_vec()),
        bad("no events", b"[]".to_vec()),
        bad("a number", b"17".to_vec()),
        bad("an object", b"{}".to_vec()),
        bad("an array of nothing", b"[null]".to_vec()),
        bad(
            "another schema",
            br#"[{"specversion":"1.0","id":"1","source":"s","type":"t"}]"#.to_vec(),
        ),
        bad(
            "one good, one bad",
            text.replacen("\"id\":\"two\",\"subject\"", "\"subject\"", 1)
                .into_bytes(),
        ),
        bad("no UTF-8", latin),
        bad("a million arrays", "[".repeat(1_000_000).into_bytes()),
        bad(
            "half a million arrays, closed",
            ["[".repeat(500_000), "]".repeat(500_000)]
                .concat()
                .into_bytes(),
        ),
        bad("deep data", deep(&text)),
        ("a large event", large, 413, too_large.0, too_large.1),
        ("a large request", larger, 413, too_large.0, too_large.1),
    ]
}

fn deep(text: &str) -> Vec<u8> {
    let data = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    text.replacen(&load::data("one"), &data, 1).into_bytes()
}

#[test]
fn garbage_is_refused_with_the_documented_error_and_nothing_of_it_is_stored() {
    let sink = Sink::start();
    let server = Server::start(&[("PUBLISH__BODY_TIMEOUT", "300ms")]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    let publisher = Publisher { server, key };
    for (what, body, status, code, detail) in bodies() {
        publisher.refuses(what, &body, status, code, detail);
    }
    let good = load::body(&["good".to_owned()], "/a");
    let path = events_path("orders");
    for (what, path, key, status, code, detail) in [
        (
            "a wrong key",
            &path,
            Some("bm90IHRoZSBrZXk="),
            401,
            "Unauthorized",
            "Unauthorized",
        ),
        (
            "a key that is none",
            &path,
            Some("!"),
            401,
            "Unauthorized",
            "Unauthorized",
        ),
        (
            "an empty key",
            &path,
            Some(""),
            400,
            "BadRequest",
            "InvalidSas",
        ),
        ("no key", &path, None, 401, "Unauthorized", "Unauthorized"),
        (
            "no such topic",
            &events_path("nobody"),
            Some(&*publisher.key),
            404,
            "NotFound",
            "ResourceNotFound",
        ),
    ] {
        let response = publisher.post(path, key, &good);
        assert_eq!(
            response.codes(),
            (status, code.to_owned(), detail.to_owned()),
            "{what}: {}",
            response.text()
        );
    }
    let too_large = (
        413,
        "RequestEntityTooLarge".to_owned(),
        "PayloadTooLarge".to_owned(),
    );
    assert_eq!(
        publisher.post_chunks(2_000_000).codes(),
        too_large,
        "too large, without a length"
    );
    let slow = publisher.post_chunks(65_536).codes();
    assert_eq!(
        slow,
        (
            408,
            "RequestTimeout".to_owned(),
            "RequestTimeout".to_owned()
        ),
        "a body that never ends"
    );

    publisher.server.publish("orders", &publisher.key, &good);
    wait_for("the one good event", super::LONG, || {
        sink.taken("/hook") == 1
    });
    super::wait_until_settled(&publisher.server, "orders", "hook");
    let passed = publisher.server.counter("orders", "hook", "passed");
    assert_eq!(
        (passed, sink.ledger("/hook").len()),
        (1, 1),
        "nothing else was stored"
    );
}

#[test]
fn bytes_that_are_no_http_disturb_no_other_client() {
    let server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    let noise: Vec<u8> = (0..100_000u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for garbage in [
        &noise[..],
        b"GET",
        b"POST /topics/orders/api/events HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"\r\n\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_millis(300)))
            .expect("a stream takes its option");
        // It may be closed on us.
        stream.write_all(garbage).ok();
        stream.read_to_end(&mut Vec::new()).ok();
    }
    let hanging: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(server.address()).expect("a connection"))
        .collect();
    server.publish("orders", &key, &load::body(&["good".to_owned()], "/a"));
    drop(hanging);
}
