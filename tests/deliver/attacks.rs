//! Attacks by subscriptions and endpoints: a table of routes to an internal address, and one of
//! malicious responses.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use gridhook::{
    deliver::{AddressRules, ClientOptions, Destination, RequestTimeouts, WebhookClient},
    event::{Schema, WallTime},
    policy::outcome::{Failure, Outcome},
};

use super::{AMPLE, options, outgoing, post_to, with_names};
use crate::support::endpoint::{Endpoint, Script, Step, respond};

/// Ways to write 127.0.0.1. Each reaches it if it is allowed.
const SPELLINGS: [(&str, &str); 11] = [
    ("the address", "127.0.0.1"),
    ("short", "127.1"),
    ("of three parts", "127.0.1"),
    ("hexadecimal", "0x7f.0.0.1"),
    ("hexadecimal, as one number", "0x7f000001"),
    ("octal", "0177.0.0.01"),
    ("decimal, as one number", "2130706433"),
    ("with a dot at its end", "127.0.0.1."),
    ("in full-width digits", "\u{ff11}\u{ff12}\u{ff17}.0.0.1"),
    ("percent-encoded", "%31%32%37.0.0.1"),
    ("mapped into IPv6", "[::ffff:127.0.0.1]"),
];

/// Addresses that no public endpoint has.
const INNER: [(&str, &str); 22] = [
    ("loopback of IPv6", "[::1]"),
    ("no address at all", "0.0.0.0"),
    ("no address at all, IPv6", "[::]"),
    ("a private network", "10.0.0.1"),
    ("another one", "172.16.5.4"),
    ("a third", "192.168.1.1"),
    ("a carrier's network", "100.64.0.1"),
    ("the metadata of AWS, Azure and Google", "169.254.169.254"),
    ("the same as one number", "2852039166"),
    ("the same in octal", "0251.0376.0251.0376"),
    ("the metadata of AWS, IPv6", "[fd00:ec2::254]"),
    ("the metadata of Alibaba", "100.100.100.200"),
    ("the host of Azure's machines", "168.63.129.16"),
    ("metadata mapped into IPv6", "[::ffff:a9fe:a9fe]"),
    ("metadata compatible with IPv6", "[::169.254.169.254]"),
    (
        "metadata behind a translator (NAT64)",
        "[64:ff9b::a9fe:a9fe]",
    ),
    (
        "metadata behind a local translator",
        "[64:ff9b:1::a9fe:a9fe]",
    ),
    ("metadata in a tunnel (6to4)", "[2002:a9fe:a9fe::1]"),
    ("a tunnel (Teredo)", "[2001:0:4136:e378::1]"),
    ("link-local of IPv6", "[fe80::1]"),
    ("a private network of IPv6", "[fd12:3456::1]"),
    ("everybody at once", "255.255.255.255"),
];

fn strict() -> AddressRules {
    AddressRules {
        allow_http: true,
        ..AddressRules::default()
    }
}

fn show(name: &str, what: &str, got: &str) {
    println!("  {name:44} {what:32} {got}");
}

#[actix_rt::test]
async fn no_spelling_and_no_inner_address_passes_unless_its_network_is_allowed() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let port = endpoint.address().port();
    let strict = WebhookClient::new(ClientOptions {
        rules: strict(),
        ..options()
    });
    let open = WebhookClient::new(options());
    println!("address → what it got");
    for (name, host) in SPELLINGS {
        let url = format!("http://{host}:{port}/");
        let before = endpoint.connections();
        let refused = post_to(&strict, &url, AMPLE).await;
        show(name, host, &refused.detail);
        assert_eq!(
            (refused.outcome, endpoint.connections()),
            (Outcome::Failed(Failure::SocketError), before),
            "{host}"
        );
        assert!(
            refused.detail.contains("is private or reserved"),
            "{host}: {}",
            refused.detail
        );
        // Only the network matters: if it is allowed, the same URL works.
        assert_eq!(
            post_to(&open, &url, AMPLE).await.outcome,
            Outcome::Delivered,
            "{host}"
        );
    }
    for (name, host) in INNER {
        let refused = post_to(&strict, &format!("http://{host}:{port}/"), AMPLE).await;
        show(name, host, &refused.detail);
        assert!(
            refused.detail.contains("is private or reserved"),
            "{host}: {}",
            refused.detail
        );
    }
}

#[actix_rt::test]
async fn names_are_refused_by_their_addresses() {
    let endpoint = Endpoint::start(vec![respond(200, "connection: close\r\n", "")]);
    let at = endpoint.address();
    let inner = |text: &str| SocketAddr::new(text.parse().expect(text), at.port());
    let one = |found: Vec<SocketAddr>| with_names(move |_, _| Some(Ok(found.clone())));
    println!("name → what it got");
    for (name, found) in [
        ("a name of loopback", vec![at]),
        ("a name of metadata", vec![inner("169.254.169.254")]),
        (
            "a name of a mapped address",
            vec![inner("::ffff:127.0.0.1")],
        ),
        ("a name of good and bad", vec![inner("8.8.8.8"), at]),
        ("a name of bad and good", vec![at, inner("8.8.8.8")]),
    ] {
        let client = WebhookClient::new(ClientOptions {
            rules: strict(),
            ..one(found)
        });
        let refused = post_to(&client, "http://inner.test/", AMPLE).await;
        show(name, "inner.test", &refused.detail);
        assert!(
            refused.detail.contains("inner.test resolves to"),
            "{name}: {}",
            refused.detail
        );
    }
    assert_eq!(endpoint.connections(), 0);

    // The allowed address stands for a public one, the address of the second lookup for an internal
    // one.
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lookups);
    let bad = inner("127.0.0.2");
    let names = with_names(move |_, _| {
        Some(Ok(vec![if count.fetch_add(1, Ordering::SeqCst) == 0 {
            at
        } else {
            bad
        }]))
    });
    let only = AddressRules {
        allow_networks: vec!["127.0.0.1/32".parse().expect("a network")],
        ..strict()
    };
    let client = WebhookClient::new(ClientOptions {
        rules: only,
        ..names
    });
    assert_eq!(
        post_to(&client, "http://rebinding.test/", AMPLE)
            .await
            .outcome,
        Outcome::Delivered
    );
    assert_eq!(
        lookups.load(Ordering::SeqCst),
        1,
        "there is no second lookup between the check and the connection"
    );
    let second = post_to(&client, "http://rebinding.test/", AMPLE).await;
    show(
        "a name that changes its answer",
        "rebinding.test",
        &second.detail,
    );
    assert!(
        second.detail.contains("resolves to 127.0.0.2"),
        "{}",
        second.detail
    );
}

#[actix_rt::test]
async fn a_server_does_not_deliver_to_itself_whatever_is_allowed() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let at = endpoint.address();
    let client = |own: SocketAddr| {
        let names = with_names(move |_, _| Some(Ok(vec![at])));
        WebhookClient::new(ClientOptions {
            rules: AddressRules {
                own: vec![own],
                ..AddressRules::loopback()
            },
            ..names
        })
    };
    let everywhere = SocketAddr::from(([0, 0, 0, 0], at.port()));
    let everywhere6 = SocketAddr::from(([0u16; 8], at.port()));
    for own in [at, everywhere, everywhere6] {
        for url in [
            format!("http://{at}/"),
            format!("http://own.test:{}/", at.port()),
            format!("http://[::ffff:127.0.0.1]:{}/", at.port()),
        ] {
            let refused = post_to(&client(own), &url, AMPLE).await;
            assert!(
                refused.detail.contains("is this server itself"),
                "{own} {url}: {}",
                refused.detail
            );
        }
    }
    assert_eq!(endpoint.connections(), 0);
    let another = SocketAddr::new(at.ip(), at.port().wrapping_add(1));
    assert_eq!(
        post_to(&client(another), &format!("http://{at}/"), AMPLE)
            .await
            .outcome,
        Outcome::Delivered
    );
}

#[test]
fn an_ambiguous_address_is_refused() {
    for (name, url) in [
        ("a user before the host", "http://8.8.8.8@127.0.0.1/"),
        ("a user and a password", "http://a:b@127.0.0.1/"),
        ("no user before the host", "http://@127.0.0.1/"),
        ("a backslash before a user", "http://good.test\\@127.0.0.1/"),
        ("a backslash for a slash", "http://127.0.0.1\\@good.test/"),
        ("backslashes for slashes", "http:\\\\127.0.0.1/"),
        ("one slash", "http:/127.0.0.1/"),
        ("three slashes", "http:///127.0.0.1/"),
        ("no slash", "http:127.0.0.1"),
        ("a fragment before it", "http://127.0.0.1#@8.8.8.8/"),
        ("a line of its own", "http://127.0.0.1/\r\nhost: x"),
        ("another protocol", "gopher://127.0.0.1/_x"),
        ("a file", "file:///etc/passwd"),
        ("no port that there is", "http://127.0.0.1:65536/"),
        ("a zone", "http://[fe80::1%25eth0]/"),
        ("a number that is none", "http://0x7g.1/"),
    ] {
        let made = Destination::new(url, "s", Schema::EventGrid, Schema::EventGrid, false);
        match made {
            Err(error) => show(
                name,
                url.escape_debug().to_string().as_str(),
                &error.to_string(),
            ),
            // The URL standard removes line ends. The rest is unambiguous.
            Ok(destination) => {
                assert_eq!(name, "a line of its own", "{url}");
                assert!(!destination.url().as_str().contains(['\r', '\n']), "{url}");
            }
        }
    }
}

fn say(text: &str) -> Step {
    Step::Say(text.as_bytes().to_vec())
}

#[actix_rt::test]
async fn a_redirect_is_not_followed() {
    let inner = Endpoint::start(vec![respond(200, "", "")]);
    for status in [301, 302, 303, 307, 308] {
        let endpoint = Endpoint::start(vec![respond(
            status,
            &format!("location: {}\r\n", inner.url()),
            "",
        )]);
        let got = post_to(&WebhookClient::new(options()), &endpoint.url(), AMPLE).await;
        assert_ne!(got.outcome, Outcome::Delivered, "{status}");
    }
    assert_eq!(inner.connections(), 0);
}

/// The response timeout of the attacks.
const WAIT: Duration = Duration::from_millis(600);

/// The actions of a malicious endpoint, and the outcomes that they may have.
fn attacks() -> Vec<(&'static str, Script, &'static [Outcome])> {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n";
    let zipped = respond(
        200,
        "content-encoding: gzip\r\n",
        "\u{1f}\u{8b} as if it were zipped",
    );
    vec![
        (
            "a head, then a byte a minute",
            vec![
                say(head),
                Step::Trickle(vec![b'x'; 100], Duration::from_secs(60)),
            ],
            &[Outcome::Delivered],
        ),
        (
            "half a head, then nothing",
            vec![say("HTTP/1.1 200 OK\r\nx: "), Step::Hang],
            // The final status line decides.
            &[Outcome::Delivered],
        ),
        (
            "a body that does not end",
            vec![
                say("HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n"),
                Step::Forever(vec![b'x'; 4096]),
            ],
            &[Outcome::Delivered],
        ),
        (
            "chunks that do not end",
            vec![
                say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
                Step::Forever(b"5\r\nhello\r\n".to_vec()),
            ],
            &[Outcome::Delivered],
        ),
        ("a zipped bomb", zipped, &[Outcome::Delivered]),
        (
            "a header that does not end",
            vec![
                say("HTTP/1.1 200 OK\r\nx: "),
                Step::Forever(vec![b'a'; 4096]),
            ],
            &[Outcome::Delivered],
        ),
        (
            "headers that do not end",
            vec![
                say("HTTP/1.1 200 OK\r\n"),
                Step::Forever(b"x: a\r\n".repeat(500)),
            ],
            &[Outcome::Delivered],
        ),
        (
            "interim answers that do not end",
            vec![Step::Forever(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(500))],
            &[
                Outcome::Failed(Failure::GenericError),
                Outcome::Failed(Failure::SocketError),
                Outcome::Failed(Failure::Busy),
            ],
        ),
        (
            "two lengths",
            vec![
                say("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"),
                Step::Close,
            ],
            &[Outcome::Delivered],
        ),
        (
            "a negative length",
            vec![
                say("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
                Step::Close,
            ],
            &[Outcome::Delivered],
        ),
        (
            "a status of five digits",
            vec![
                say("HTTP/1.1 20000 OK\r\ncontent-length: 0\r\n\r\n"),
                Step::Close,
            ],
            &[Outcome::Failed(Failure::GenericError)],
        ),
        (
            "a tunnel",
            respond(101, "upgrade: x\r\nconnection: upgrade\r\n", ""),
            &[
                Outcome::Failed(Failure::GenericError),
                Outcome::Failed(Failure::SocketError),
                Outcome::Failed(Failure::TimedOut),
            ],
        ),
    ]
}

#[actix_rt::test]
async fn a_malicious_endpoint_uses_only_its_own_time_limit() {
    println!("endpoint → what it got");
    for (name, script, outcomes) in attacks() {
        assert_attack_is_bounded(name, script, outcomes).await;
    }
}

async fn assert_attack_is_bounded(name: &str, script: Script, outcomes: &[Outcome]) {
    let endpoint = Endpoint::start(vec![script]);
    let client = WebhookClient::new(options());
    let destination = Destination::new(
        &endpoint.url(),
        "s",
        Schema::EventGrid,
        Schema::EventGrid,
        false,
    )
    .expect("good");
    let start = tokio::time::Instant::now();
    let got = client
        .send_within_limit(
            &destination,
            outgoing("[{}]"),
            &RequestTimeouts { response: WAIT },
            WallTime(0),
        )
        .await;
    let elapsed = start.elapsed();
    show(
        name,
        &format!("{:?} {:?}", got.outcome, got.status),
        &format!("{:.80} ({} bytes kept)", got.detail, got.body.len()),
    );
    assert!(
        outcomes.contains(&got.outcome) || got.status.is_some_and(|status| status < 200),
        "{name}: {:?} {}",
        got.outcome,
        got.detail
    );
    assert_ne!(
        (got.outcome, got.status),
        (Outcome::Delivered, None),
        "{name}"
    );
    assert!(
        got.body.len() <= 4096,
        "{name}: {} bytes of it are kept",
        got.body.len()
    );
    // The time limit, and what a busy machine adds.
    assert!(
        elapsed < WAIT + Duration::from_secs(20),
        "{name}: {elapsed:?}"
    );
}
