//! SIGHUP: reloadable settings change while the server runs, and the log reports them. Other
//! signals do no harm.

use std::{collections::BTreeMap, fs, io::Read as _};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LONG, tokens::tail};
use crate::support::{
    certificates::{Authority, DAY, days_left},
    endpoint::{Endpoint, respond},
    load,
    server::{Server, SubscriptionSpec, wait_for},
};

const OLD: &str = "the-old-token-of-the-operator";
const NEW: &str = "the-new-token-of-the-operator";

fn status(server: &Server, path: &str, token: &str) -> u16 {
    server
        .request_without_token(
            "GET",
            path,
            &[("authorization", &format!("Bearer {token}"))],
        )
        .status
}

#[test]
fn a_hangup_reads_tokens_and_the_log_filter_again_and_names_what_needs_a_restart() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("gridhook.toml");
    fs::write(
        &file,
        "[metrics]\ntoken = \"the-old-token-of-prometheus\"\n",
    )
    .expect("written");
    let mut server = Server::with_data_dir(&folder.path().join("data"), &[]);
    server.run_under(&[
        "sh",
        "-c",
        &format!("exec \"$@\" --config {}", file.display()),
        "--",
    ]);
    server.restart();
    fs::write(server.data_dir().join("admin-token"), NEW).expect("written");
    let settings = "[metrics]\ntoken = \"the-new-token-of-prometheus\"\n[log]\nfilter = \
        \"debug\"\n[limits]\ntopics = 7\n";
    fs::write(&file, settings).expect("written");
    assert_eq!(
        status(&server, "/supervision", NEW),
        401,
        "nothing is read by itself"
    );
    server.signal("HUP");
    wait_for("the new tokens", LONG, || {
        server.logs().contains("reloaded")
    });
    assert_eq!(status(&server, "/supervision", NEW), 200);
    assert_eq!(
        status(&server, "/metrics", "the-new-token-of-prometheus"),
        200
    );
    assert_eq!(
        status(&server, "/metrics", "the-old-token-of-prometheus"),
        401
    );
    let log = server.logs();
    assert!(
        log.contains("log_filter=\"debug\"") && log.contains("admin_token=\"new\""),
        "{log}"
    );
    assert!(
        log.contains("need a restart") && log.contains("limits.topics"),
        "{log}"
    );
    let response = server
        .request_without_token(
            "GET",
            "/server",
            &[("authorization", &format!("Bearer {NEW}"))],
        )
        .json();
    let shown = |key: &str| {
        let settings = response["settings"].as_array().expect("a list");
        settings
            .iter()
            .find(|setting| setting["key"] == key)
            .map(|setting| setting["value"].clone())
    };
    assert_eq!(shown("log.filter"), Some(json!("\"debug\"")), "{response}");
    assert_eq!(
        shown("limits.topics"),
        None,
        "it is not in force before a restart: {response}"
    );

    fs::write(&file, "[log]\nfilter = \"loud\"\n").expect("written");
    server.signal("HUP");
    wait_for("the complaint", LONG, || {
        server.logs().contains("nothing is changed")
    });
    for name in ["USR1", "USR2"] {
        server.signal(name);
    }
    assert_eq!(
        status(&server, "/metrics", "the-new-token-of-prometheus"),
        200,
        "it goes on"
    );
    assert_eq!(server.terminate().as_secs() / 60, 0);
}

#[test]
fn an_admin_token_of_the_settings_is_replaced() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("gridhook.toml");
    let write = |token: &str| {
        fs::write(&file, format!("[server]\nadmin_token = \"{token}\"\n")).expect("written")
    };
    write(OLD);
    let mut server = Server::with_data_dir(&folder.path().join("data"), &[]);
    server.run_under(&[
        "sh",
        "-c",
        &format!("exec \"$@\" --config {}", file.display()),
        "--",
    ]);
    server.restart();
    assert_eq!(status(&server, "/supervision", OLD), 200);
    let mut stream = tail(&server, OLD);
    write(NEW);
    server.signal("HUP");
    wait_for("the new token", LONG, || {
        status(&server, "/supervision", NEW) == 200
    });
    assert_eq!(status(&server, "/supervision", OLD), 401);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).ok();
    assert!(
        rest.ends_with(b"0\r\n\r\n"),
        "the tail ends with its token: {}",
        String::from_utf8_lossy(&rest)
    );
    assert!(
        !server.logs().contains(NEW) && !server.logs().contains(OLD),
        "no token is logged"
    );
}

#[test]
fn certificates_of_the_server_and_of_its_requests_are_read_again() {
    let authority = Authority::new();
    let folder = TempDir::new().expect("a folder");
    let certificates = folder.path().join("certificates");
    fs::create_dir(&certificates).expect("a folder");
    fs::write(folder.path().join("ca.pem"), authority.pem()).expect("written");
    let [first, second] = [30, 90].map(|days| authority.ending("127.0.0.1", days * DAY));
    first.write(folder.path(), "server");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let settings = [
        ("SERVER__TLS_CERTIFICATE", path("server.crt")),
        ("SERVER__TLS_KEY", path("server.key")),
        // Only the signal makes the server read it.
        ("SERVER__TLS_RELOAD", "1h".to_owned()),
        ("DELIVERY__TLS_ROOTS", path("ca.pem")),
        ("DELIVERY__CLIENT_CERTIFICATES_DIR", path("certificates")),
    ];
    let settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let server = Server::start_tls(&settings, authority.client());
    let key = server.topic("orders", "EventGridSchema");
    let script = respond(200, "webhook-allowed-origin: *\r\n", "");
    let endpoint = Endpoint::start_tls(vec![script], authority.demanding("localhost"));
    let url = format!("https://localhost:{}/hook", endpoint.address().port());
    let spec = SubscriptionSpec::new(&url)
        .schema("CloudEventSchemaV1_0")
        .webhook("clientCertificate", json!("shop"));
    let refused = server.put_subscription("orders", "hook", &spec);
    assert_eq!(
        refused.status,
        400,
        "there is no such certificate yet: {}",
        refused.text()
    );
    let ends = || days_left(&server.command("GET", "/metrics", &Value::Null).text());
    assert_eq!(ends(), BTreeMap::from([(path("server.crt"), 30)]));

    authority
        .ending("gridhook", 60 * DAY)
        .write(&certificates, "shop");
    second.write(folder.path(), "server");
    assert_eq!(
        ends(),
        BTreeMap::from([(path("server.crt"), 30)]),
        "those in use, not those of the files"
    );
    server.signal("HUP");
    wait_for("the report", LONG, || server.logs().contains("reloaded"));
    let log = server.logs();
    assert!(
        log.contains("certificate=\"new\"") && log.contains("new: shop"),
        "{log}"
    );
    let mut client = server.client();
    client.ask("GET", "/healthz", &[], b"").expect("it answers");
    assert_eq!(client.certificate(), Some(second.certificate.to_vec()));
    assert_eq!(
        ends(),
        BTreeMap::from([
            (path("server.crt"), 90),
            (path("certificates/shop.crt"), 60)
        ])
    );
    server.subscribe("orders", "hook", &spec);
    server.publish("orders", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("the event to be delivered", LONG, || {
        server.counter("orders", "hook", "delivered") == 1
    });

    // Another identity from another authority is not believed: requests show the new one, though a
    // connection is open.
    let stranger = Authority::new();
    stranger.issue("gridhook").write(&certificates, "shop");
    server.signal("HUP");
    wait_for("the second report", LONG, || {
        server.logs().matches("reloaded").count() == 2
    });
    server.publish("orders", &key, &load::body(&["two".to_owned()], "/a"));
    wait_for("the request to fail", LONG, || {
        server.status("orders", "hook")["counters"]["requestsFailed"].as_u64() >= Some(1)
    });
    // Half a pair keeps the old certificate, and is logged.
    fs::write(certificates.join("shop.key"), "nothing").expect("written");
    server.signal("HUP");
    wait_for("the complaint", LONG, || {
        server.logs().contains("client certificate cannot be used")
    });
    authority.issue("gridhook").write(&certificates, "shop");
    server.signal("HUP");
    wait_for("the event to be delivered", LONG, || {
        server.counter("orders", "hook", "delivered") == 2
    });
    assert_eq!(
        server.command("GET", "/supervision", &Value::Null).status,
        200
    );
}
