//! A real Prometheus collects from the real server.

use std::{
    fs::{self, File},
    io::Write,
    net::SocketAddr,
    process::{Child, Stdio},
};

use serde_json::Value;

use super::{LONG, WATCHER, publish, scrape, tools, wait_until_passed};
use crate::support::{
    http::Client,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// A Prometheus, until it is dropped.
struct Prometheus {
    child: Child,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// It scrapes the server once a second.
    fn start(server: &Server) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/config/prometheus/gridhook.rules.yml"
        );
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nrule_files: \
             [{rules}]\nscrape_configs:\n  - \
             {{job_name: gridhook, authorization: {{credentials: {WATCHER}}}, static_configs: [{{targets: [\"{}\"]}}]}}\n",
            server.address()
        );
        let file = folder.path().join("prometheus.yml");
        let log = folder.path().join("log");
        fs::write(&file, config).expect("a file");
        let out = File::create(&log).expect("a log");
        let child = tools::program("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a log"))
            .stderr(out)
            .spawn()
            .expect("Prometheus starts");
        let mut at = None;
        wait_for("Prometheus to listen", LONG, || {
            let output = fs::read_to_string(&log).unwrap_or_default();
            let line = output
                .lines()
                .find(|line| line.contains("msg=\"Listening on\""));
            at = line.and_then(|line| line.rsplit_once("address=")?.1.trim().parse().ok());
            at.is_some()
        });
        Self {
            child,
            at: at.expect("it was waited for"),
            _folder: folder,
        }
    }

    /// The value of a query that has one; nothing before it is known.
    fn value(&self, query: &str) -> Option<f64> {
        let query: String = url::form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let response = Client::new(self.at).exchange(
            format!(
                "GET /api/v1/query?query={query} HTTP/1.0\r\nhost: {}\r\naccept-encoding: \
                 identity\r\n\r\n",
                self.at
            )
            .as_bytes(),
        );
        let reported: Value = response
            .ok()
            .filter(|response| response.status == 200)?
            .json();
        reported["data"]["result"][0]["value"][1]
            .as_str()?
            .parse()
            .ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_real_prometheus_collects_what_happened() {
    let sink = Sink::start();
    let server = Server::start(&[("METRICS__TOKEN", WATCHER)]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "billing",
        &SubscriptionSpec::new(&sink.url("/good")),
    );
    publish(&server, "orders", &key, &["1", "2", "3"]);
    wait_until_passed(&server, "orders", "billing", 3);
    let prometheus = Prometheus::start(&server);
    let eventually = |query: &str, value: f64| {
        wait_for(&format!("{query} to be {value}"), LONG, || {
            prometheus.value(query) == Some(value)
        });
    };
    eventually("up{job=\"gridhook\"}", 1.0);
    eventually(
        "gridhook_subscription_delivered_events_total{topic=\"orders\",subscription=\"billing\"}",
        3.0,
    );
    eventually(
        "sum(gridhook_subscription_attempts_total{outcome=\"Delivered\"})",
        3.0,
    );
    eventually(
        "gridhook_topic_published_events_total{topic=\"orders\"}",
        3.0,
    );
    eventually(
        "gridhook_subscription_response_seconds_bucket{le=\"+Inf\"}",
        3.0,
    );
    eventually("count(gridhook_rocksdb_table_bytes)", 12.0);
    publish(&server, "orders", &key, &["4"]);
    eventually(
        "gridhook_subscription_delivered_events_total{topic=\"orders\",subscription=\"billing\"}",
        4.0,
    );
    // An alert on the increase sees also the first event that is given up.
    sink.set("/bad", Behavior::Respond(400));
    let lost_key = server.topic("lost", "EventGridSchema");
    server.subscribe("lost", "bad", &SubscriptionSpec::new(&sink.url("/bad")));
    let dropped = "gridhook_subscription_dropped_events_total{topic=\"lost\"}";
    eventually(&format!("sum({dropped})"), 0.0);
    publish(&server, "lost", &lost_key, &["1"]);
    eventually(&format!("sum(increase({dropped}[10m])) > bool 0"), 1.0);
    // It asks for OpenMetrics first: that form is read here, and the other by promtool below.
    wait_for("a whole scrape", LONG, || {
        prometheus
            .value("scrape_samples_scraped{job=\"gridhook\"}")
            .is_some_and(|samples| samples > 200.0)
    });
}

#[test]
fn promtool_finds_nothing_to_complain_of() {
    let sink = Sink::start();
    let server = Server::start(&[("METRICS__TOKEN", WATCHER)]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "billing",
        &SubscriptionSpec::new(&sink.url("/good")),
    );
    publish(&server, "orders", &key, &["1"]);
    wait_until_passed(&server, "orders", "billing", 1);
    let text = scrape(&server);
    let mut check = tools::program("promtool");
    let child = check
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("promtool starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(text.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        output.status.success() && printed.trim().is_empty(),
        "{printed}"
    );
}
