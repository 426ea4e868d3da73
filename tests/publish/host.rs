//! The host of a request: trusted headers, valid hosts, and the names of the server.

use std::net::SocketAddr;

use actix_web::{HttpMessage as _, test::TestRequest};
use expect_test::expect;
use gridhook::{
    publish::{
        PublishLimits,
        auth::{
            AuthRules,
            host::{LocalAddress, ReachedUrls, ServerNames},
        },
    },
    record::ingress::IngressSettings,
};
use url::form_urlencoded::byte_serialize;

use super::{http::response_summary, sas::signed};
use crate::support::publisher::{Endpoint, KEY};

const EVENT: &str =
    r#"[{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"}]"#;

const PROXY: &str = "192.168.0.1";
const STRANGER: &str = "10.0.0.1";

/// Behind a proxy, with a public address and two other names.
fn endpoint() -> Endpoint {
    let names = ServerNames {
        public_url: Some("https://grid.example.com/below".parse().expect("a URL")),
        others: vec!["gridhook".to_owned(), "*.events.example.com".to_owned()],
    };
    let trusted_proxies = vec!["192.168.0.0/24".parse().expect("a network")];
    Endpoint::with(
        PublishLimits::default(),
        AuthRules {
            trusted_proxies,
            names,
            ..AuthRules::default()
        },
        &IngressSettings::default(),
    )
}

fn post(path: &str, peer: &str, headers: &[(&str, &str)]) -> TestRequest {
    let peer = SocketAddr::new(peer.parse().expect("an address"), 40_000);
    let request = TestRequest::post()
        .uri(path)
        .peer_addr(peer)
        .set_payload(EVENT);
    headers.iter().fold(request, |request, (name, value)| {
        request.append_header((*name, *value))
    })
}

fn token(resource: &str) -> String {
    signed(
        KEY,
        &byte_serialize(resource.as_bytes()).collect::<String>(),
        "2030-01-02T03%3A04%3A05Z",
    )
}

/// The status of a request that finds its topic by its host.
async fn found(endpoint: &Endpoint, peer: &str, headers: &[(&str, &str)]) -> String {
    let request = post("/api/events", peer, headers).insert_header(("aeg-sas-key", KEY));
    response_summary(endpoint, request)
        .await
        .lines()
        .next()
        .expect("a status")
        .to_owned()
}

#[actix_web::test]
async fn forwarded_headers_count_from_a_trusted_proxy_alone() {
    let endpoint = endpoint();
    for headers in [
        [
            ("host", "none.example.com"),
            ("x-forwarded-host", "orders.example.com"),
        ],
        [
            ("host", "none.example.com"),
            ("x-forwarded-host", "evil.example, Orders.example.com:8080"),
        ],
        [
            ("host", "none.example.com"),
            (
                "forwarded",
                "for=10.1.1.1;host=orders.example.com;proto=https",
            ),
        ],
        [
            ("host", "none.example.com"),
            (
                "forwarded",
                r#"host=evil.example, For="[::1]"; Host="orders.example.com:80""#,
            ),
        ],
        [
            ("host", "none.example.com"),
            (
                "forwarded",
                r#"host="evil.example,host=x", host=orders.example.com"#,
            ),
        ],
    ] {
        assert_eq!(
            found(&endpoint, PROXY, &headers).await,
            "200",
            "{headers:?}"
        );
        assert_eq!(
            found(&endpoint, STRANGER, &headers).await,
            "404",
            "{headers:?}"
        );
    }
    // The header of a stranger is ignored, and its Host is used.
    for (header, value) in [
        ("x-forwarded-host", "none.example.com"),
        ("x-forwarded-host", "h/topics/heat/api/events?"),
        ("forwarded", "host=none.example.com"),
        ("x-forwarded-proto", "gopher"),
    ] {
        let headers = [("host", "orders.example.com"), (header, value)];
        assert_eq!(
            found(&endpoint, STRANGER, &headers).await,
            "200",
            "{headers:?}"
        );
        let of_proxy = found(&endpoint, PROXY, &headers).await;
        assert!(
            ["404", "400"].contains(&of_proxy.as_str()),
            "{headers:?}: {of_proxy}"
        );
    }
    // Of two lines, the nearest proxy wrote the last.
    let twice = [
        ("x-forwarded-host", "none.example.com"),
        ("x-forwarded-host", "orders.example.com"),
    ];
    assert_eq!(found(&endpoint, PROXY, &twice).await, "200");
}

#[actix_web::test]
async fn a_host_is_a_host_and_nothing_else() {
    let endpoint = endpoint();
    for good in [
        "orders.example.com",
        "ORDERS.Example.com.",
        "orders.example.com:8080",
        "orders.my_net:",
        "orders.localhost",
    ] {
        assert_eq!(
            found(&endpoint, STRANGER, &[("host", good)]).await,
            "200",
            "{good}"
        );
        assert_eq!(
            found(&endpoint, PROXY, &[("x-forwarded-host", good)]).await,
            "200",
            "{good}"
        );
    }
    // No topic is called like the first number of an address.
    for good in [
        "127.0.0.1",
        "127.0.0.1:80",
        "[::1]:8080",
        "orders",
        "localhost:8080",
    ] {
        assert_eq!(
            found(&endpoint, STRANGER, &[("host", good)]).await,
            "404",
            "{good}"
        );
    }
    for bad in [
        "orders.example.com/topics/heat/api/events?",
        "orders.example.com/",
        "orders.example.com?x",
        "orders.example.com#x",
        "me@orders.example.com",
        "orders.example.com\\x",
        "orders.example.com:80:80",
        "orders.example.com:65536",
        "orders.example.com:+80",
        "orders.example.com:a",
        "orders%2eexample.com",
        "orders example.com",
        "http://orders.example.com",
        "[::1",
        "[orders.example.com]",
        "::1",
        "",
        ":80",
        "ördérs.example.com",
    ] {
        assert_eq!(
            found(&endpoint, STRANGER, &[("host", bad)]).await,
            "400",
            "{bad:?}"
        );
        assert_eq!(
            found(&endpoint, PROXY, &[("x-forwarded-host", bad)]).await,
            "400",
            "{bad:?}"
        );
        // A backslash escapes there.
        let quoted = format!("host=\"{}\"", bad.replace('\\', "\\\\"));
        assert_eq!(
            found(&endpoint, PROXY, &[("forwarded", &quoted)]).await,
            "400",
            "{bad:?}"
        );
    }
    let twice = [
        ("host", "orders.example.com"),
        ("host", "orders.example.com"),
    ];
    assert_eq!(found(&endpoint, STRANGER, &twice).await, "400");
    let request = post(
        "/api/events",
        STRANGER,
        &[("host", "h/x"), ("aeg-sas-key", KEY)],
    );
    expect![[r#"
        400
        BadRequest / InvalidHost: The 'Host' header is not a host. Allowed is one host with or without a port, such as events.example.com or 10.1.2.3:8080. …"#]].assert_eq(&response_summary(&endpoint, request).await);
    let proto = [
        ("host", "orders.example.com"),
        ("x-forwarded-proto", "gopher"),
    ];
    assert_eq!(found(&endpoint, PROXY, &proto).await, "400");
}

/// The outcome of a token for `resource` if the topic `orders` is published to at `host`, on this
/// path.
async fn shown(endpoint: &Endpoint, path: &str, host: &str, resource: &str) -> String {
    let request = post(
        path,
        STRANGER,
        &[("host", host), ("aeg-sas-token", &token(resource))],
    );
    let reported = response_summary(endpoint, request).await;
    match reported.as_str() {
        "200" => reported,
        reported if reported.contains("is for another resource") => "another resource".to_owned(),
        reported if reported.contains("does not have as a name") => "another host".to_owned(),
        reported => panic!("{reported}"),
    }
}

#[actix_web::test]
async fn a_token_is_for_the_route_at_a_name_of_the_server() {
    let endpoint = endpoint();
    const PATH: &str = "/topics/orders/api/events";
    for (path, host, resource, expected) in [
        // Names that the server has, each the one that was called.
        (
            PATH,
            "127.0.0.1:18080",
            "http://127.0.0.1:18080/topics/orders/api/events",
            "200",
        ),
        (
            PATH,
            "localhost:1",
            "http://localhost:1/TOPICS/Orders/api/events/",
            "200",
        ),
        (PATH, "[::1]:1", "http://[::1]:1/topics/orders", "200"),
        // The endpoint of a server that listens on all addresses.
        (PATH, "0.0.0.0:1", "http://0.0.0.0:1/topics/orders", "200"),
        (PATH, "[::]:1", "http://[::]:1/topics/orders", "200"),
        (
            PATH,
            "gridhook:8080",
            "http://gridhook:8080/topics/orders/api/events?api-version=2018-01-01",
            "200",
        ),
        (PATH, "grid.example.com", "http://grid.example.com", "200"),
        (
            PATH,
            "a.events.example.com",
            "http://a.events.example.com/topics/orders",
            "200",
        ),
        (
            PATH,
            "anything.example",
            "https://grid.example.com/below/topics/orders/api/events",
            "200",
        ),
        // By the host's first label: the host says for which topic the token is.
        (
            "/api/events",
            "orders.grid.example.com",
            "http://orders.grid.example.com/api/events",
            "200",
        ),
        (
            "/api/events",
            "orders.events.example.com",
            "http://orders.events.example.com/api/events",
            "200",
        ),
        (
            "/api/events",
            "orders.grid.example.com",
            "http://custom.grid.example.com/api/events",
            "another resource",
        ),
        (
            "/api/events",
            "orders.grid.example.com",
            "https://grid.example.com/below/api/events",
            "another resource",
        ),
        (
            "/api/events",
            "orders.grid.example.com",
            "https://grid.example.com/below/topics/orders/api/events",
            "200",
        ),
        (
            "/api/events",
            "orders.grid.example.com",
            "https://grid.example.com/below/topics/custom/api/events",
            "another resource",
        ),
        // Another topic, another port, another name of the server than the one that was called.
        (
            PATH,
            "localhost:1",
            "http://localhost:1/topics/custom/api/events",
            "another resource",
        ),
        (
            PATH,
            "localhost:1",
            "http://localhost:1/topics/ord",
            "another resource",
        ),
        (
            PATH,
            "localhost:1",
            "http://localhost:1/topics/custom/../orders/api/events",
            "200",
        ),
        (
            PATH,
            "localhost:1",
            "http://localhost:2/topics/orders/api/events",
            "another resource",
        ),
        (
            PATH,
            "localhost:1",
            "http://gridhook:1/topics/orders/api/events",
            "another resource",
        ),
        // The called host must be a name of the server.
        (
            PATH,
            "evil.example",
            "http://evil.example/topics/orders/api/events",
            "another host",
        ),
        (
            PATH,
            "203.0.113.1:8080",
            "http://203.0.113.1:8080/topics/orders/api/events",
            "another host",
        ),
        (
            PATH,
            "a.b.events.example.com",
            "http://a.b.events.example.com/topics/orders",
            "another host",
        ),
        (
            PATH,
            "events.example.com",
            "http://events.example.com/topics/orders",
            "another host",
        ),
        (
            PATH,
            "evil.example",
            "http://evil.example/topics/custom/api/events",
            "another resource",
        ),
    ] {
        assert_eq!(
            shown(&endpoint, path, host, resource).await,
            expected,
            "{resource} at {host}{path}"
        );
    }
}

#[actix_web::test]
async fn a_proxy_says_by_which_scheme_and_name_it_was_called() {
    let endpoint = endpoint();
    let token = token("https://a.events.example.com/topics/orders/api/events");
    let ask = |peer: &'static str, headers: &[(&str, &str)]| {
        let headers = [headers, &[("aeg-sas-token", token.as_str())]].concat();
        post("/topics/orders/api/events", peer, &headers)
    };
    let forwarded = [
        ("host", "inner"),
        ("x-forwarded-host", "a.events.example.com"),
        ("x-forwarded-proto", "HTTPS"),
    ];
    assert_eq!(
        response_summary(&endpoint, ask(PROXY, &forwarded)).await,
        "200"
    );
    assert!(
        response_summary(&endpoint, ask(STRANGER, &forwarded))
            .await
            .starts_with("401")
    );
    let standard = [
        ("host", "inner"),
        ("forwarded", "proto=https;host=a.events.example.com"),
    ];
    assert_eq!(
        response_summary(&endpoint, ask(PROXY, &standard)).await,
        "200"
    );
    let plain = [("host", "a.events.example.com")];
    assert!(
        response_summary(&endpoint, ask(PROXY, &plain))
            .await
            .starts_with("401"),
        "it was called by http"
    );
}

#[test]
fn a_link_follows_what_a_trusted_proxy_sends_and_a_name_of_the_server() {
    let names = ServerNames {
        public_url: Some("https://grid.example.com/below".parse().expect("a URL")),
        others: vec!["admin.example.com".to_owned()],
    };
    let urls = ReachedUrls {
        proxies: vec!["192.168.0.0/24".parse().expect("a network")],
        names,
    };
    let url = |peer: &str, headers: &[(&str, &str)]| {
        let request = post("/metadata/endpoints", peer, headers).to_http_request();
        let address = "10.0.0.9:8081".parse().expect("an address");
        request.extensions_mut().insert(LocalAddress {
            address,
            secure: true,
        });
        urls.reached_url(&request).expect("a URL")
    };
    let own = "https://10.0.0.9:8081";
    for headers in [
        [("host", "evil.example"), ("x-other", "")],
        [
            ("host", "10.0.0.9:8081"),
            ("x-forwarded-host", "evil.example"),
        ],
        [
            ("host", "10.0.0.9:8081"),
            ("forwarded", "host=evil.example;proto=http"),
        ],
        [("host", "evil.example"), ("x-forwarded-proto", "http")],
    ] {
        assert_eq!(url(STRANGER, &headers), own, "{headers:?}");
    }
    assert_eq!(
        url(STRANGER, &[("host", "admin.example.com:8443")]),
        "https://admin.example.com:8443"
    );
    assert_eq!(
        url(PROXY, &[("host", "any.example")]),
        "https://any.example"
    );
    let by_proxy = [
        ("host", "10.0.0.9"),
        ("forwarded", "host=shop.example;proto=http"),
    ];
    assert_eq!(url(PROXY, &by_proxy), "http://shop.example");
}
