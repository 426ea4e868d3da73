//! The bounds of connections, in all and from one address, and the two listeners.

use std::{
    io::Read,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::LONG;
use crate::support::{
    http::Client,
    server::{Server, events_path, wait_for},
};

const TOKEN: &str = "a-token-of-the-operator";

/// A connection from one of the addresses of loopback.
fn from(host: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)).into())
        .expect("loopback has many addresses");
    socket.connect(&to.into()).expect("a connection");
    let stream = TcpStream::from(socket);
    stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("a stream takes its option");
    stream
}

/// The response to a connection that sends nothing; empty if it was admitted.
fn read_all(mut stream: &TcpStream) -> String {
    let mut reported = String::new();
    // An admitted connection gets nothing, so the read times out.
    stream.read_to_string(&mut reported).ok();
    reported
}

/// Opens `count` connections, and waits until `refused` of them are.
fn hold(host: u8, count: usize, refused: usize, to: SocketAddr) -> Vec<TcpStream> {
    let mut streams: Vec<_> = (0..count).map(|_| (from(host, to), false)).collect();
    wait_for(
        &format!("{refused} of {count} connections to be refused"),
        LONG,
        || {
            for (stream, is_refused) in &mut streams {
                let text = read_all(stream);
                *is_refused |=
                    text.starts_with("HTTP/1.1 503 ") && text.contains("retry-after: 1\r\n");
            }
            streams.iter().filter(|(_, is_refused)| *is_refused).count() == refused
        },
    );
    streams.into_iter().map(|(stream, _)| stream).collect()
}

#[test]
fn one_address_has_its_share_of_the_connections_and_all_have_no_more_than_the_bound() {
    let patient = [
        ("LIMITS__IDLE_TIMEOUT", "1h"),
        ("LIMITS__HEAD_TIMEOUT", "1h"),
    ];
    let bounds = [
        ("LIMITS__CONNECTIONS", "12"),
        ("LIMITS__CONNECTIONS_PER_ADDRESS", "8"),
    ];
    let server = Server::start(&[patient, bounds].concat());
    // Eight of the first address are admitted, and as many of the second one as are left.
    let first = hold(2, 10, 2, server.address());
    let second = hold(3, 6, 2, server.address());
    drop((first, second));
    wait_for("the connections to be given back", LONG, || {
        Client::new(server.address())
            .ask("GET", "/healthz", &[], b"")
            .is_ok_and(|response| response.status == 200)
    });
}

#[test]
fn one_address_leaves_a_quarter_of_the_operators_connections_to_others() {
    let server = Server::start(&[
        ("SERVER__ADMIN_LISTEN", "127.0.0.1:0"),
        ("LIMITS__ADMIN_CONNECTIONS", "8"),
        ("LIMITS__IDLE_TIMEOUT", "1h"),
        ("LIMITS__HEAD_TIMEOUT", "1h"),
    ]);
    let log = server.logs();
    let admin = log
        .lines()
        .find_map(|line| line.strip_prefix("the control plane is at http://"));
    let admin: SocketAddr = admin
        .expect("it says where")
        .trim()
        .parse()
        .expect("an address");
    let _one = hold(2, 10, 4, admin);
    hold(3, 2, 0, admin);
}

#[test]
fn without_the_bound_every_connection_is_admitted() {
    let server = Server::start(&[
        ("LIMITS__IDLE_TIMEOUT", "1h"),
        ("LIMITS__HEAD_TIMEOUT", "1h"),
    ]);
    hold(2, 10, 0, server.address());
}

#[test]
fn operators_and_publishers_can_have_addresses_of_their_own() {
    let server = Server::start(&[
        ("SERVER__ADMIN_LISTEN", "127.0.0.1:0"),
        ("SERVER__ADMIN_TOKEN", TOKEN),
    ]);
    let log = server.logs();
    let admin = log
        .lines()
        .find_map(|line| line.strip_prefix("the control plane is at http://"));
    let admin: SocketAddr = admin
        .expect("it says where")
        .trim()
        .parse()
        .expect("an address");
    let bearer = format!("Bearer {TOKEN}");
    let ask = |at: SocketAddr, method: &str, path: &str| {
        let response = Client::new(at).ask(method, path, &[("authorization", &bearer)], b"{}");
        response.expect("a response").status
    };
    let topic = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";
    assert_eq!(ask(admin, "PUT", topic), 201, "operators make a topic");
    for (method, path) in [
        ("GET", topic),
        ("GET", "/providers/Microsoft.EventGrid/operations"),
        ("GET", "/openapi.json"),
    ] {
        assert_eq!(
            ask(server.address(), method, path),
            404,
            "publishers' address has no {path}"
        );
        assert_eq!(ask(admin, method, path), 200, "{path}");
    }
    assert_eq!(ask(admin, "PUT", &topic.replace("orders", "payments")), 201);
    // Links lead to where the client came from: the publishers' address has none of these paths.
    for (path, field) in [
        (
            "/subscriptions/s/providers/Microsoft.EventGrid/topics?$top=1",
            "nextLink",
        ),
        ("/metadata/endpoints", "resourceManager"),
    ] {
        let response = Client::new(admin)
            .ask("GET", path, &[("authorization", &bearer)], b"")
            .expect("a response");
        let link = response.json()[field].as_str().expect("a link").to_owned();
        assert!(
            link.starts_with(&format!("http://{admin}/")),
            "{path}: {link}"
        );
    }
    assert_eq!(
        ask(admin, "POST", &events_path("orders")),
        404,
        "operators' address takes no events"
    );
    assert_eq!(
        ask(server.address(), "POST", &events_path("orders")),
        400,
        "publishers' does, if they are any"
    );
    let validate = "/eventsubscriptions/x/validate";
    assert_eq!(
        (
            ask(server.address(), "PUT", validate),
            ask(admin, "PUT", validate)
        ),
        (405, 404),
        "endpoints are validated there"
    );
    for path in ["/healthz", "/readyz"] {
        assert_eq!(
            (ask(server.address(), "GET", path), ask(admin, "GET", path)),
            (200, 200),
            "{path} is at both"
        );
    }
}

#[test]
fn an_error_names_the_reached_bound_of_the_control_plane() {
    let server = Server::start(&[
        ("LIMITS__TOPICS", "2"),
        ("LIMITS__SUBSCRIPTIONS_PER_TOPIC", "1"),
        ("DELIVERY__VALIDATE", "false"),
    ]);
    server.topic("one", "EventGridSchema");
    server.topic("two", "EventGridSchema");
    let scope = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics";
    let three = server.admin("PUT", &format!("{scope}/three"), &serde_json::json!({}));
    assert_eq!(
        (three.status, three.text().contains("limits.topics")),
        (409, true),
        "{}",
        three.text()
    );
    server.command("DELETE", &format!("{scope}/two"), &Value::Null);
    server.topic("three", "EventGridSchema");

    let spec = crate::support::server::SubscriptionSpec::new("http://127.0.0.1:9/");
    server.subscribe("one", "first", &spec);
    let second = server.put_subscription("one", "second", &spec);
    let named = second.text().contains("limits.subscriptions_per_topic");
    assert_eq!((second.status, named), (409, true), "{}", second.text());
    server.subscribe("one", "first", &spec);
}
