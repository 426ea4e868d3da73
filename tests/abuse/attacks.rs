//! A table of attacks on the server, and the response to each.

use std::time::Duration;

use super::{LONG, print, raw::RawRequest};
use crate::support::{
    http::header,
    load,
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::Sink,
};

/// No attack is worth more memory than this, all of them one after the other; a head of a gigabyte
/// would be ten times that.
const MEMORY_MAX: u64 = 96 * 1024 * 1024;

/// A gigabyte of a head, in parts: the server must have enough of it long before its end.
const ENDLESS: usize = 64 * 1024 * 1024;

struct Attack {
    name: &'static str,
    request: Vec<u8>,
    /// The allowed results.
    got: &'static [&'static str],
}

fn attack(name: &'static str, request: impl Into<Vec<u8>>, got: &'static [&'static str]) -> Attack {
    Attack {
        name,
        request: request.into(),
        got,
    }
}

/// A request to publish with these further lines in its head, and this body as it stands.
fn post(key: &str, lines: &str, body: &str) -> String {
    format!(
        "POST {} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {key}\r\n{lines}\r\n{body}",
        events_path("orders")
    )
}

/// A well-framed request with this body.
fn body(key: &str, body: &str) -> String {
    post(key, &format!("content-length: {}\r\n", body.len()), body)
}

fn event(member: &str) -> String {
    format!(
        r#"[{{"id":"1","subject":"/a","eventType":"T","eventTime":"2026-11-20T17:18:13Z","dataVersion":"1",{member}}}]"#
    )
}

/// Wrong framing, which a proxy in front might read differently.
fn framing(key: &str) -> Vec<Attack> {
    let good = event(r#""data":1"#);
    let length = format!("content-length: {}\r\n", good.len());
    let with = |lines: &str| post(key, &format!("{length}{lines}"), &good);
    let chunk = |size: &str| {
        post(
            key,
            "transfer-encoding: chunked\r\n",
            &format!("{size}\r\nx\r\n0\r\n\r\n"),
        )
    };
    vec![
        attack(
            "a length and chunks",
            with("transfer-encoding: chunked\r\n"),
            &["400"],
        ),
        attack("two lengths", with("content-length: 1\r\n"), &["400"]),
        attack(
            "a length of two values",
            post(key, "content-length: 1, 2\r\n", "[]"),
            &["400"],
        ),
        attack(
            "a negative length",
            post(key, "content-length: -1\r\n", ""),
            &["400"],
        ),
        attack(
            "a length beyond 64 bits",
            post(key, "content-length: 99999999999999999999\r\n", ""),
            &["400"],
        ),
        attack(
            "a length with a sign",
            post(key, "content-length: +2\r\n", "[]"),
            &["400"],
        ),
        attack(
            "chunks by another name",
            post(key, "transfer-encoding: xchunked\r\n", "0\r\n\r\n"),
            &["400"],
        ),
        attack(
            "chunks that are identity after all",
            post(key, "transfer-encoding: chunked, identity\r\n", "0\r\n\r\n"),
            &["400"],
        ),
        attack(
            "chunks in HTTP/1.0",
            with("transfer-encoding: chunked\r\n").replace("HTTP/1.1", "HTTP/1.0"),
            &["400"],
        ),
        attack(
            "a chunk beyond 64 bits",
            chunk("fffffffffffffffff"),
            &["400", "closed"],
        ),
        attack("a chunk of no size", chunk("x"), &["400", "closed"]),
        attack("a folded header", with("x: a\r\n b\r\n"), &["400"]),
        attack("a space before the colon", with("x : a\r\n"), &["400"]),
        attack("a header without a colon", with("x\r\n"), &["400"]),
        attack("a zero byte in a header", with("x: a\0b\r\n"), &["400"]),
        attack(
            "a bare carriage return in a header",
            with("x: a\rb\r\n"),
            &["400"],
        ),
        attack(
            "no host at all",
            with("").replace("host: x\r\n", ""),
            &["400"],
        ),
        attack("HTTP/0.9", b"GET /\r\n\r\n".to_vec(), &["400", "closed"]),
        attack(
            "HTTP/2 out of the blue",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            &["400", "404", "closed"],
        ),
        attack(
            "HTTP/9.9",
            b"GET / HTTP/9.9\r\n\r\n".to_vec(),
            &["400", "closed"],
        ),
        attack(
            "a tunnel",
            b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
            &["404", "400", "405"],
        ),
        attack(
            "somebody else's address",
            b"GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
            &["404"],
        ),
        attack(
            "another protocol",
            b"GET /healthz HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: \
             upgrade\r\n\r\n"
                .to_vec(),
            &["200", "400"],
        ),
        attack(
            "out of the folder",
            b"GET /topics/../subscriptions HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
            &["404", "401"],
        ),
        attack(
            "out of the folder, encoded",
            b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
            &["404"],
        ),
        attack(
            "around the control plane's door",
            b"GET //subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics \
             HTTP/1.1\r\nhost: x\r\n\r\n"
                .to_vec(),
            &["401", "404"],
        ),
        attack(
            "around it, encoded",
            b"GET /%73ubscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics \
             HTTP/1.1\r\nhost: x\r\n\r\n"
                .to_vec(),
            &["401", "404"],
        ),
    ]
}

/// Requests that exceed a limit.
fn size(key: &str) -> Vec<Attack> {
    let huge = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}", "a".repeat(ENDLESS));
    let many = format!(
        "GET / HTTP/1.1\r\nhost: x\r\n{}\r\n",
        "x: a\r\n".repeat(1_000_000)
    );
    let long_line = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(ENDLESS));
    let forever = post(key, "transfer-encoding: chunked\r\n", "10000\r\n")
        + &("x".repeat(0x10000) + "\r\n10000\r\n").repeat(100);
    vec![
        attack(
            "a header that does not end",
            huge,
            &["400", "431", "closed"],
        ),
        attack("a million headers", many, &["400", "431", "closed"]),
        attack(
            "97 headers",
            format!("GET /healthz HTTP/1.1\r\n{}\r\n", "x: a\r\n".repeat(97)),
            &["400", "431"],
        ),
        attack(
            "an address that does not end",
            long_line,
            &["400", "414", "431", "closed"],
        ),
        attack("chunks without an end", forever, &["413"]),
        attack(
            "a gigabyte is announced",
            post(key, "content-length: 1073741824\r\n", ""),
            &["413"],
        ),
        attack(
            "a body of gzip",
            post(
                key,
                "content-encoding: gzip\r\ncontent-length: 2\r\n",
                "\u{1f}x",
            ),
            &["400"],
        ),
        attack(
            "gzip, twice",
            post(
                key,
                "content-encoding: gzip, gzip\r\ncontent-length: 2\r\n",
                "xx",
            ),
            &["415"],
        ),
    ]
}

/// Unusual forms of JSON.
fn json(key: &str) -> Vec<Attack> {
    let deep = |levels: usize| format!(r#""data":{}{}"#, "[".repeat(levels), "]".repeat(levels));
    vec![
        attack(
            "100,000 levels",
            body(key, &event(&deep(100_000))),
            &["400"],
        ),
        attack(
            "100,000 levels that do not end",
            body(key, &"[".repeat(100_000)),
            &["400"],
        ),
        attack("125 levels", body(key, &event(&deep(125))), &["400"]),
        attack("124 levels", body(key, &event(&deep(124))), &["200"]),
        attack(
            "a number beyond all",
            body(key, &event(r#""data":1e999999999"#)),
            &["200"],
        ),
        attack(
            "a number of 100,000 digits",
            body(key, &event(&format!(r#""data":{}"#, "9".repeat(100_000)))),
            &["200"],
        ),
        attack(
            "half a surrogate in data",
            body(key, &event(r#""data":"\ud800""#)),
            &["200"],
        ),
        attack(
            "half a surrogate in an id",
            body(
                key,
                &event(r#""data":1"#).replace(r#""id":"1""#, r#""id":"\ud800""#),
            ),
            &["400"],
        ),
        attack(
            "an id twice",
            body(key, &event(r#""id":"2","data":1"#)),
            &["400"],
        ),
        attack(
            "a member of data twice",
            body(key, &event(r#""data":{"a":1,"a":2}"#)),
            &["200"],
        ),
        attack(
            "something behind the end",
            body(key, &(event(r#""data":1"#) + "[]")),
            &["400"],
        ),
        attack(
            "a byte order mark",
            body(key, &format!("\u{feff}{}", event(r#""data":1"#))),
            &["200"],
        ),
        attack(
            "a zero byte in data",
            body(key, &event("\"data\":\"\0\"")),
            &["400"],
        ),
        attack(
            "no UTF-8",
            [
                body(key, "")
                    .replace("content-length: 0", "content-length: 4")
                    .as_bytes(),
                b"[\xff\xfe]",
            ]
            .concat(),
            &["400"],
        ),
    ]
}

#[test]
fn every_attack_gets_its_answer_and_affects_no_other_client() {
    let server = Server::start(&[("LIMITS__FAILED_KEYS", "1000")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let memory = server.resident();
    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    for Attack { name, request, got } in framing(&key)
        .into_iter()
        .chain(size(&key))
        .chain(json(&key))
    {
        // A client that keeps the connection open after its response is asked to close it.
        let ended = RawRequest {
            first: &request,
            drip: None,
            reads: true,
            most: Duration::from_secs(8),
        }
        .until_answered(server.address());
        let shown = ended.shown();
        if !got.contains(&shown.as_str()) {
            wrong.push(format!(
                "{name}: {shown}, and not one of {got:?}: {:.300}",
                ended.response
            ));
        }
        rows.push([name.to_owned(), shown]);
    }
    print("attack → what it got", &rows);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let grown = server.most_resident().saturating_sub(memory);
    println!(
        "memory: {} MiB at first, {} MiB more at the most",
        memory >> 20,
        grown >> 20
    );
    assert!(grown < MEMORY_MAX, "{grown} bytes more than before");

    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    server.publish("orders", &key, &load::body(&["good".to_owned()], "/a"));
    wait_for("the one good event", LONG, || sink.taken("/hook") == 1);
    assert!(!server.logs().contains("panicked"), "nobody panicked");
}

#[test]
fn text_of_events_and_settings_cannot_break_a_header() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("clouds", "CloudEventSchemaV1_0");
    let property = |value: &str| {
        serde_json::json!({"deliveryAttributeMappings": [
            {"name": "x-static", "type": "Static", "properties": {"value": value, "isSecret": true}},
            {"name": "x-dynamic", "type": "Dynamic", "properties": {"sourceField": "data.way"}}]})
    };
    let spec = SubscriptionSpec::new(&sink.url("/hook")).schema("CloudEventSchemaV1_0");
    for value in ["a\r\nx-evil: 1", "a\nb", "a\0b", "a\u{7f}", "\u{e9}"] {
        let response = server.put_subscription(
            "clouds",
            "hook",
            &spec.clone().also(&property(value), &serde_json::json!({})),
        );
        assert_eq!(response.status, 400, "{value:?}: {}", response.text());
    }
    for url in [
        "http://127.0.0.1:1/\r\nx-evil: 1",
        "http://a:b@127.0.0.1/",
        "http://@127.0.0.1/",
        "http://good.test\\@127.0.0.1/",
        "http:\\\\127.0.0.1/",
        "http:127.0.0.1/",
        "http://127.0.0.1/#x",
        "gopher://127.0.0.1/",
        "file:///etc/passwd",
    ] {
        let response = server.put_subscription(
            "clouds",
            "hook",
            &SubscriptionSpec::new(url).schema("CloudEventSchemaV1_0"),
        );
        assert_eq!(response.status, 400, "{url:?}: {}", response.text());
    }
    server.subscribe(
        "clouds",
        "hook",
        &spec.also(&property("good"), &serde_json::json!({})),
    );
    let evil = r#"1\r\nx-evil: 1"#;
    let body = format!(
        r#"{{"specversion":"1.0","id":"{evil}","source":"{evil}","type":"{evil}","subject":"{evil}","data":{{"way":"{evil}"}}}}"#
    );
    let headers = [
        ("aeg-sas-key", key.as_str()),
        ("content-type", "application/cloudevents+json"),
    ];
    let response = server
        .client()
        .ask("POST", &events_path("clouds"), &headers, body.as_bytes())
        .expect("a response");
    assert_eq!(response.status, 200, "{}", response.text());
    wait_for("the event", LONG, || sink.taken("/hook") == 1);
    let heads = sink.heads("/hook");
    let [head] = heads.as_slice() else {
        panic!("one request: {heads:?}")
    };
    assert_eq!(header(head, "x-evil"), None, "{head}");
    assert_eq!(header(head, "x-static"), Some("good"), "{head}");
    assert_eq!(
        header(head, "x-dynamic"),
        None,
        "a value that could break a header is no value: {head}"
    );
    assert_eq!(
        header(head, "aeg-output-event-id"),
        Some("1%0D%0Ax-evil:%201"),
        "{head}"
    );
}
