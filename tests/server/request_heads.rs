//! Fields of request heads that the HTTP library would treat otherwise than HTTP asks for.

use std::{
    io::{BufReader, Read, Write},
    sync::Arc,
};

use super::LONG;
use crate::support::{
    certificates::Authority,
    http::{Stream, header, read_head},
    load,
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::Sink,
};

/// A connection of a client.
struct Connection(BufReader<Stream>);

impl Connection {
    fn open(server: &Server, tls: Option<&Arc<rustls::ClientConfig>>) -> Self {
        Self(BufReader::new(
            Stream::connect(server.address(), tls).expect("a connection"),
        ))
    }

    fn send(&mut self, bytes: &str) {
        self.0
            .get_mut()
            .write_all(bytes.as_bytes())
            .and_then(|()| self.0.get_mut().flush())
            .expect("it is open");
    }

    /// The head of the next response, whose body is read, too.
    fn head(&mut self) -> String {
        let head = read_head(&mut self.0).expect("a response");
        let length =
            header(&head, "content-length").map_or(0, |length| length.parse().expect("a number"));
        self.0.read_exact(&mut vec![0; length]).expect("a body");
        head
    }

    fn status(&mut self) -> String {
        self.head().split(' ').nth(1).expect("a status").to_owned()
    }
}

fn head(path: &str, key: &str, lines: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {key}\r\n{lines}content-length: \
         {length}\r\n\r\n"
    )
}

/// The fields of clients that offer another protocol.
const OFFERS: [&str; 7] = [
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \
     AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n",
    "connection: upgrade\r\n",
    "Connection: keep-alive,  UPGRADE \r\nupgrade: websocket\r\n",
    "Upgrade: h2c\r\n",
    "UPGRADE: websocket\r\n",
    "connection: keep-alive\r\nconnection: upgrade\r\nupgrade: foo/2\r\n",
    "",
];

fn check_offers(
    server: &Server,
    key: &str,
    tls: Option<&Arc<rustls::ClientConfig>>,
    prefix: &str,
) -> usize {
    let path = events_path("orders");
    let mut connection = Connection::open(server, tls);
    let mut count = 0;
    let mut next_body = || {
        count += 1;
        load::body(&[format!("{prefix}-{count}")], "/a")
    };
    for lines in OFFERS {
        let body = next_body();
        let body = std::str::from_utf8(&body).expect("JSON");
        let request = head(&path, key, lines, body.len()) + body;
        connection.send(&request);
        let response = connection.head();
        assert!(
            response.starts_with("HTTP/1.1 200 "),
            "{lines:?}: {response}"
        );
        assert_eq!(
            (
                header(&response, "connection"),
                header(&response, "upgrade")
            ),
            (None, None),
            "{lines:?}"
        );
        // Byte by byte, so that every name and value is cut.
        let body = next_body();
        let body = std::str::from_utf8(&body).expect("JSON");
        for byte in (head(&path, key, lines, body.len()) + body).chars() {
            connection.send(&byte.to_string());
        }
        assert_eq!(connection.status(), "200", "{lines:?}");
        let chunk = next_body();
        let chunk = std::str::from_utf8(&chunk).expect("JSON");
        let chunks =
            head(&path, key, lines, 0).replace("content-length: 0", "transfer-encoding: chunked");
        connection.send(&format!(
            "{chunks}{:x}\r\n{chunk}\r\n0\r\n\r\n",
            chunk.len()
        ));
        assert_eq!(connection.status(), "200", "{lines:?}");
    }
    // Two requests at once, of which the first has the text of an offer in its body.
    let text = format!("{prefix}-text\r\nconnection: upgrade\r\n");
    let body = serde_json::to_string(
        &serde_json::json!([{"id": format!("{prefix}-0"), "subject": "/a", "eventType": "T",
        "eventTime": "2026-11-20T10:00:00Z", "data": text}]),
    )
    .expect("JSON");
    let offer = head(&path, key, OFFERS[0], body.len()) + &body;
    connection.send(&(offer.clone() + &offer));
    assert_eq!([connection.status(), connection.status()], ["200", "200"]);
    connection.send(
        "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    );
    assert_eq!(connection.status(), "200");
    connection.send("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\n\r\n");
    assert_eq!(header(&connection.head(), "connection"), Some("close"));
    count + 2
}

#[test]
fn an_offer_of_another_protocol_is_ignored_and_its_connection_is_kept() {
    let sink = Sink::start();
    let server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let count = check_offers(&server, &key, None, "plain");
    wait_for("every event", LONG, || {
        server.counter("orders", "all", "delivered") == count as u64
    });

    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    authority.issue("127.0.0.1").write(folder.path(), "server");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let certificate = path("server.crt");
    let private = path("server.key");
    let settings = [
        ("SERVER__TLS_CERTIFICATE", certificate.as_str()),
        ("SERVER__TLS_KEY", &private),
    ];
    let server = Server::start_tls(&settings, authority.client());
    let key = server.topic("orders", "EventGridSchema");
    check_offers(&server, &key, Some(&authority.client()), "tls");
}

#[test]
fn a_body_is_asked_for_only_where_it_is_read() {
    let server = Server::start(&[("PUBLISH__REQUEST_BYTES", "2MiB")]);
    let key = server.topic("orders", "EventGridSchema");
    let path = events_path("orders");
    let waits = "Expect: 100-continue\r\n";
    let topic = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";
    let put = |token: &str, length: usize| {
        head(topic, "", waits, length)
            .replace("POST", "PUT")
            .replace("aeg-sas-key: ", &format!("authorization: {token}"))
    };
    let admin = std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let admin = format!("Bearer {}", admin.trim());
    for (name, request, status) in [
        ("a wrong key", head(&path, "wrong", waits, 1_000_000), "401"),
        (
            "too long a body",
            head(&path, &key, waits, 50_000_000),
            "413",
        ),
        (
            "no such topic",
            head(&events_path("nobody"), &key, waits, 1_000),
            "404",
        ),
        ("no such path", head("/nowhere", &key, waits, 1_000), "404"),
        ("an operator without a token", put("", 1_000), "401"),
        (
            "an operator with too long a body",
            put(&admin, 50_000_000),
            "413",
        ),
    ] {
        let mut connection = Connection::open(&server, None);
        connection.send(&request);
        assert_eq!(connection.status(), status, "{name}");
    }
    let mut connection = Connection::open(&server, None);
    for lines in [
        waits,
        "expect: 100-Continue\r\nconnection: upgrade\r\n",
        waits,
    ] {
        let body = load::body(&["one".to_owned()], "/a");
        let body = std::str::from_utf8(&body).expect("JSON");
        connection.send(&head(&path, &key, lines, body.len()));
        assert_eq!(connection.status(), "100");
        connection.send(body);
        assert_eq!(connection.status(), "200");
        // The client that does not wait may get the interim response, too.
        connection.send(&(head(&path, &key, lines, body.len()) + body));
        let statuses = [connection.status(), connection.status()];
        assert_eq!(statuses, ["100", "200"]);
        // A request without the field never does.
        connection.send(&(head(&path, &key, "", body.len()) + body));
        assert_eq!(connection.status(), "200");
    }
    connection.send(&put(&admin, 2));
    assert_eq!(connection.status(), "100");
    connection.send("{}");
    assert!(connection.status().starts_with('2'));
    // A client of HTTP/1.0 knows no interim responses.
    let body = load::body(&["one".to_owned()], "/a");
    let body = std::str::from_utf8(&body).expect("JSON");
    connection.send(&(head(&path, &key, waits, body.len()).replace("HTTP/1.1", "HTTP/1.0") + body));
    assert_eq!(connection.status(), "200");
}

#[test]
fn a_malformed_request_is_no_error_of_the_server() {
    let mut server = Server::start(&[]);
    for lines in [
        "bad header: x\r\n",
        "x\u{1}: y\r\n",
        "content-length: -1\r\n",
        "transfer-encoding: what\r\n",
    ] {
        let mut connection = Connection::open(&server, None);
        connection.send(&format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{lines}\r\n"));
        assert_eq!(connection.status(), "400", "{lines:?}");
    }
    // The lines are written when the connections end, so the server ends first.
    server.terminate();
    assert!(!server.logs().contains("ERROR"), "{}", server.logs());
}
