//! The alert rules and the dashboard use series that the server exports.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde_json::Value;

use super::{LONG, WATCHER, publish, scrape, tools};
use crate::support::{
    certificates::Authority,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn promtool() -> Command {
    let mut command = tools::program("promtool");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus"));
    command
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("gridhook_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

/// The names of all series of a scrape.
fn series_names(text: &str) -> BTreeSet<String> {
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(name)
        .collect()
}

/// The queries of a dashboard, wherever they stand.
fn queries(of: &Value, found: &mut Vec<String>) {
    match of {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("expr" | "definition", Value::String(query)) => found.push(query.clone()),
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| queries(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn promtool_takes_the_rules_and_each_alert_is_set_off_by_what_it_says() {
    tools::run(promtool().args(["check", "rules", "gridhook.rules.yml"]));
    tools::run(promtool().args(["check", "config", "--syntax-only", "prometheus.yml"]));
    let reported = tools::run(promtool().args(["test", "rules", "gridhook.rules.test.yml"]));
    assert!(reported.contains("SUCCESS"), "{reported}");
    let rules = file("prometheus/gridhook.rules.yml");
    let tests = file("prometheus/gridhook.rules.test.yml");
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(
            tests.contains(&format!("        alertname: {alert}\n")),
            "{alert} has no test"
        );
        assert!(
            tests.contains(&format!("alertname: {alert}, exp_alerts: []")),
            "{alert} is not tried where all is well"
        );
        assert!(
            include_str!("../../src/manual/metrics.md").contains(alert),
            "the manual does not say what {alert} means"
        );
    }
}

#[test]
fn the_server_exports_every_series_that_rules_and_dashboard_use() {
    let dashboard: Value = serde_json::from_str(&file("grafana/gridhook.json")).expect("JSON");
    let mut asked = Vec::new();
    queries(&dashboard, &mut asked);
    assert!(asked.len() > 40, "{} queries", asked.len());
    let rules: String = file("prometheus/gridhook.rules.yml")
        .lines()
        .filter(|line| line.contains("expr:"))
        .collect();
    let wanted: BTreeSet<String> = asked
        .iter()
        .flat_map(|query| names(query))
        .chain(names(&rules))
        .collect();

    let sink = Sink::start();
    sink.set("/refusing", Behavior::Respond(400));
    sink.set("/down", Behavior::Respond(503));
    let certificates = tempfile::tempdir().expect("a folder");
    Authority::new()
        .issue("gridhook")
        .write(certificates.path(), "shop");
    let server = Server::start(&[
        ("METRICS__TOKEN", WATCHER),
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "2"),
        (
            "DELIVERY__CLIENT_CERTIFICATES_DIR",
            &certificates.path().display().to_string(),
        ),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "buried",
        &SubscriptionSpec::new(&sink.url("/refusing")).dead_letters("letters"),
    );
    server.subscribe(
        "orders",
        "dropped",
        &SubscriptionSpec::new(&sink.url("/refusing")),
    );
    server.subscribe("orders", "down", &SubscriptionSpec::new(&sink.url("/down")));
    publish(&server, "orders", &key, &["1", "2", "3"]);
    assert_eq!(
        server
            .request_without_token("POST", "/topics/orders/api/events", &[])
            .status,
        401
    );
    assert_eq!(
        server
            .request_without_token("POST", "/topics/nowhere/api/events", &[])
            .status,
        404
    );
    // Some are there only while an endpoint is suspended, or while an event waits for its next
    // attempt.
    let mut seen = BTreeSet::new();
    // Nodes of a cluster have series of their own (`server::cluster`).
    let mut missing: BTreeSet<String> = wanted
        .into_iter()
        .filter(|name| !name.starts_with("gridhook_cluster_"))
        .collect();
    wait_for("every series to appear once", LONG, || {
        seen.extend(series_names(&scrape(&server)));
        missing.retain(|name| !seen.contains(name));
        if !missing.is_empty() {
            println!("not yet: {missing:?}");
        }
        missing.is_empty()
    });
}
