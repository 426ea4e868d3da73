//! Deliveries through an egress proxy of the test, which makes the requested connections or fails.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    thread,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::LONG;
use crate::support::{
    accept::Acceptor,
    certificates::Authority,
    endpoint::{Endpoint, respond},
    http::read_head,
    load,
    server::{SCOPE, Server, SubscriptionSpec, operator, subscription, wait_for},
};

/// `gridhook` and this password log in.
const PASSWORD: &str = "s3cret of the proxy";

const LOGIN: &str = "Z3JpZGhvb2s6czNjcmV0IG9mIHRoZSBwcm94eQ==";

/// How the proxy handles a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Connect,
    Refuse(u16),
    Hang,
}

struct ProxyState {
    mode: Mutex<Mode>,
    heads: Mutex<Vec<String>>,
}

/// A proxy on loopback.
struct Proxy {
    shared: Arc<ProxyState>,
    acceptor: Acceptor,
}

impl Proxy {
    fn start() -> Self {
        let mode = Mutex::new(Mode::Connect);
        let heads = Mutex::default();
        let shared = Arc::new(ProxyState { mode, heads });
        let serving = Arc::clone(&shared);
        Self {
            shared,
            acceptor: Acceptor::start(move |stream| serving.serve(stream)),
        }
    }

    fn set(&self, mode: Mode) {
        *self.shared.mode.lock() = mode;
    }

    fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().clone()
    }
}

impl ProxyState {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let head = read_head(&mut std::io::BufReader::with_capacity(1, &stream))?;
        let to = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let logged_in = head.contains(&format!("Proxy-Authorization: Basic {LOGIN}\r\n"));
        self.heads.lock().push(head);
        let mode = *self.mode.lock();
        match mode {
            Mode::Connect if logged_in => {
                let onward = TcpStream::connect(to)?;
                stream.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")?;
                let mut from = stream.try_clone()?;
                let mut into = onward.try_clone()?;
                thread::spawn(move || {
                    std::io::copy(&mut from, &mut into).ok();
                    into.shutdown(Shutdown::Both).ok();
                });
                std::io::copy(&mut (&onward), &mut stream)?;
            }
            Mode::Connect => {
                stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")?
            }
            Mode::Refuse(status) => {
                stream.write_all(format!("HTTP/1.1 {status} No\r\n\r\n").as_bytes())?
            }
            // Until the other side gives up.
            Mode::Hang => {
                stream.read_exact(&mut [0]).ok();
            }
        }
        Ok(())
    }
}

/// The settings of a server whose proxy `egress` is at `proxy` and has this file as its password.
fn settings(proxy: &Proxy, password: &std::path::Path) -> Vec<(&'static str, String)> {
    vec![
        (
            "DELIVERY__RESOURCES__EGRESS__URL",
            format!("proxy://{}", proxy.acceptor.at),
        ),
        (
            "DELIVERY__RESOURCES__EGRESS__USERNAME",
            "gridhook".to_owned(),
        ),
        (
            "DELIVERY__RESOURCES__EGRESS__PASSWORD_FILE",
            password.display().to_string(),
        ),
        ("LOG__FILTER", "debug".to_owned()),
    ]
}

fn start(settings: &[(&'static str, String)]) -> Server {
    let settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    Server::start(&settings)
}

fn password(folder: &TempDir) -> std::path::PathBuf {
    let file = folder.path().join("password");
    std::fs::write(&file, PASSWORD).expect("written");
    file
}

fn cloud(url: &str) -> SubscriptionSpec {
    SubscriptionSpec::new(url).schema("CloudEventSchemaV1_0")
}

#[test]
fn a_proxy_of_the_server_gets_checked_addresses_for_http_and_https() {
    let proxy = Proxy::start();
    let authority = Authority::new();
    let folder = TempDir::new().expect("a folder");
    let roots = folder.path().join("ca.pem");
    std::fs::write(&roots, authority.pem()).expect("written");
    let mut settings = settings(&proxy, &password(&folder));
    settings.push(("DELIVERY__PROXY", "egress".to_owned()));
    settings.push(("DELIVERY__TLS_ROOTS", roots.display().to_string()));
    settings.push((
        "DELIVERY__RESOURCES__CLUSTER__URL",
        "kafka://127.0.0.1:9092".to_owned(),
    ));
    let server = start(&settings);
    let logs = server.logs();
    let warned: Vec<&str> = logs
        .lines()
        .filter(|line| line.contains("connected without the proxy"))
        .collect();
    assert!(
        matches!(warned[..], [line] if line.contains("cluster") && line.contains("kafka://127.0.0.1:9092")),
        "{warned:?}"
    );
    let script = || vec![respond(200, "webhook-allowed-origin: *\r\n", "")];
    let plain = Endpoint::start(script());
    let secure = Endpoint::start_tls(
        script(),
        authority.endpoint("localhost", rustls::ALL_VERSIONS),
    );
    let direct = Endpoint::start(script());
    let key = server.topic("orders", "EventGridSchema");
    // The certificate is for the name, which the proxy never gets.
    server.subscribe(
        "orders",
        "secure",
        &cloud(&format!(
            "https://localhost:{}/hook",
            secure.address().port()
        )),
    );
    server.subscribe("orders", "plain", &cloud(&plain.url()));
    let through = proxy.heads().len();
    let topic = format!("{SCOPE}/orders");
    let create = [
        "subscriptions",
        "create",
        &topic,
        "direct",
        "--endpoint",
        &direct.url(),
        "--proxy",
        "none",
    ];
    operator(
        &server,
        &[&create[..], &["--delivery-schema", "CloudEventSchemaV1_0"]].concat(),
    )
    .expect("it is made");
    assert_eq!(
        proxy.heads().len(),
        through,
        "a subscription may connect directly"
    );
    server.publish("orders", &key, &load::body(&["a".to_owned()], "/a"));
    for name in ["secure", "plain", "direct"] {
        wait_for(name, LONG, || {
            server.counter("orders", name, "delivered") == 1
        });
    }
    let heads = proxy.heads();
    for endpoint in [&plain, &secure] {
        let address = endpoint.address();
        let expected = format!(
            "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\nProxy-Authorization: Basic \
             {LOGIN}\r\n\r\n"
        );
        assert!(heads.contains(&expected), "{heads:?}");
    }
    assert!(
        heads.iter().all(
            |head| !head.contains("localhost") && !head.contains(&direct.address().to_string())
        )
    );
    // The rules for addresses hold behind a proxy, too: it is never asked.
    let refused = server.put_subscription("orders", "private", &cloud("http://10.1.2.3/hook"));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused.text().contains("10.1.2.3 is private or reserved"),
        "{}",
        refused.text()
    );
    assert!(!proxy.heads().iter().any(|head| head.contains("10.1.2.3")));
    let unknown = server.put_subscription(
        "orders",
        "unknown",
        &cloud(&plain.url()).webhook("proxy", json!("elsewhere")),
    );
    let expected = "properties.destination.properties.proxy is \\\"elsewhere\\\", which does not exist; \
        expected egress, or none for a direct connection";
    assert!(
        unknown.status == 400 && unknown.text().contains(expected),
        "{}",
        unknown.text()
    );
}

#[test]
fn a_proxy_that_refuses_or_hangs_fails_the_attempt_and_is_named_without_its_credentials() {
    let proxy = Proxy::start();
    let folder = TempDir::new().expect("a folder");
    let file = password(&folder);
    let mut settings = settings(&proxy, &file);
    settings.push(("DELIVERY__RECONNECT_INTERVAL", "0s".to_owned()));
    settings.push(("DELIVERY__IDLE_CONNECTION_TIMEOUT", "50ms".to_owned()));
    settings.push(("DELIVERY__SUSPEND_AFTER_FAILURES", "100".to_owned()));
    let server = start(&settings);
    let hook = Endpoint::start(vec![respond(200, "webhook-allowed-origin: *\r\n", "")]);
    let key = server.topic("orders", "EventGridSchema");
    let spec = cloud(&hook.url())
        .webhook("proxy", json!("egress"))
        .webhook("responseTimeoutInSeconds", json!(1));
    server.subscribe("orders", "hook", &spec.attempts(1));
    let shown = server.get_subscription("orders", "hook").json();
    assert_eq!(
        shown["properties"]["destination"]["properties"]["proxy"],
        "egress"
    );
    let asked = hook.requests().len();
    let cases = [
        (
            Mode::Refuse(407),
            "SocketError",
            "the proxy egress responded 407",
        ),
        (
            Mode::Refuse(502),
            "SocketError",
            "the proxy egress responded 502",
        ),
        (Mode::Hang, "TimedOut", "within 1s"),
    ];
    for (number, (mode, outcome, detail)) in cases.into_iter().enumerate() {
        // The connection of the validation is idle; only a new one asks the proxy.
        wait_for("no open connection", LONG, || {
            hook.closed() == hook.connections()
        });
        proxy.set(mode);
        server.publish("orders", &key, &load::body(&[number.to_string()], "/a"));
        let path = format!("{}/ledger", subscription("orders", "hook"));
        let ledger = || server.command("GET", &path, &Value::Null).text();
        wait_for(detail, LONG, || ledger().contains(detail));
        let ledger = ledger();
        assert!(ledger.contains(outcome), "{detail}: {ledger}");
        for secret in [PASSWORD, LOGIN] {
            assert!(
                !ledger.contains(secret) && !server.logs().contains(secret),
                "shown: {secret}"
            );
        }
    }
    assert_eq!(hook.requests().len(), asked, "nothing went past the proxy");
    proxy.set(Mode::Connect);
    server.publish("orders", &key, &load::body(&["last".to_owned()], "/a"));
    wait_for("the event", LONG, || {
        server.counter("orders", "hook", "delivered") == 1
    });
}
