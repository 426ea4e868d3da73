//! Headers that name the host of a request, on every route: an invalid host is 400, and headers of
//! proxies count from trusted proxies only.

use super::LONG;
use crate::support::{
    load,
    server::{Server, events_path, subscription},
};

const ARM: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid";

/// One of each kind: method and path.
fn routes() -> Vec<(&'static str, String)> {
    vec![
        ("POST", events_path("orders")),
        ("OPTIONS", events_path("orders")),
        ("POST", "/api/events".to_owned()),
        ("POST", "/domains/none/api/events".to_owned()),
        ("POST", "/topics/heat:publish".to_owned()),
        ("POST", "/namespaces/plant/topics/heat:publish".to_owned()),
        (
            "POST",
            "/namespaces/plant/topics/heat/eventsubscriptions/work:receive".to_owned(),
        ),
        (
            "POST",
            "/topics/heat/eventsubscriptions/work:acknowledge".to_owned(),
        ),
        ("GET", format!("{ARM}/topics/orders")),
        ("GET", format!("{ARM}/topics")),
        ("GET", subscription("orders", "none")),
        ("GET", "/healthz".to_owned()),
        ("GET", "/readyz".to_owned()),
        ("GET", "/metrics".to_owned()),
        ("GET", "/openapi.json".to_owned()),
        ("GET", "/top".to_owned()),
        ("GET", "/eventsubscriptions/none/validate?id=x".to_owned()),
        ("GET", "/nowhere".to_owned()),
    ]
}

fn status(server: &Server, method: &str, path: &str, lines: &str, body: &[u8]) -> u16 {
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{lines}content-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), body].concat();
    let response = server
        .client()
        .exchange(&request)
        .unwrap_or_else(|error| panic!("{method} {path} {lines}: {error}"));
    response.status
}

#[test]
fn an_invalid_host_is_refused_on_every_route_and_forged_headers_change_nothing() {
    let server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    let shown = format!("aeg-sas-key: {key}\r\n");
    let body = load::body(&["1".to_owned()], "/a");
    for (method, path) in routes() {
        let body = if method == "POST" {
            body.as_slice()
        } else {
            b""
        };
        let ask = |lines: &str| status(&server, method, &path, &format!("{lines}{shown}"), body);
        let plain = ask("host: 127.0.0.1\r\n");
        assert_ne!(plain, 400, "{method} {path}");
        for forged in [
            "x-forwarded-host: orders.example.com\r\n",
            "x-forwarded-host: h/topics/heat/api/events?\r\n",
            "x-forwarded-host: h\r\nx-forwarded-host: \r\n",
            "x-forwarded-proto: https://h/x?\r\n",
            "forwarded: host=orders.example.com;proto=https\r\n",
            "forwarded: host=\"h/topics/heat/api/events?\"\r\n",
            "x-forwarded-for: 10.1.2.3\r\nx-real-ip: 10.1.2.3\r\n",
            "x-original-url: /api/events\r\nx-rewrite-url: /api/events\r\n",
            "x-http-method-override: DELETE\r\n",
        ] {
            assert_eq!(
                ask(&format!("host: 127.0.0.1\r\n{forged}")),
                plain,
                "{method} {path} {forged}"
            );
        }
        for bad in [
            "",
            "host: \r\n",
            "host: h/x\r\n",
            "host: h/topics/heat/api/events?\r\n",
            "host: me@h\r\n",
            "host: h:x\r\n",
            "host: h, h\r\n",
            "host: h\r\nhost: h\r\n",
        ] {
            assert_eq!(ask(bad), 400, "{method} {path} {bad:?}");
        }
    }
    // The whole address in the first line, and an older client without a host.
    let first = |line: &str, lines: &str| {
        let request = format!("{line}\r\n{lines}\r\n");
        let talk = super::raw::RawRequest {
            first: request.as_bytes(),
            drip: None,
            reads: true,
            most: LONG,
        };
        talk.until_answered(server.address())
            .response
            .get(9..12)
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(first("GET http://h/healthz HTTP/1.1", "host: x\r\n"), "200");
    assert_eq!(
        first("GET http://me@h/healthz HTTP/1.1", "host: x\r\n"),
        "400"
    );
    assert_eq!(first("GET /healthz HTTP/1.0", ""), "200");
}
