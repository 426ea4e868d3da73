//! The reports about the server itself: settings, editions and their simulation, jobs and dead
//! letters of all event subscriptions.

use std::{process::Command, time::Duration};

use gridhook::policy::outcome::{Outcome, Reason};
use serde_json::{Value, json};

use crate::support::{
    server::{Server, SubscriptionSpec, subscription, wait_for},
    sink::{Behavior, Sink},
};

/// Enough for a slow machine.
const LONG: Duration = Duration::from_secs(60);

/// Runs a command and returns what it prints.
fn cli(server: &Server, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhook"));
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GRIDHOOK_"))
    {
        command.env_remove(name);
    }
    let token = std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    command
        .env("GRIDHOOK_SERVER", format!("http://{}", server.address()))
        .env("GRIDHOOK_TOKEN", token.trim());
    let output = command.args(arguments).output().expect("an end");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

fn get(server: &Server, path: &str) -> Value {
    server.command("GET", path, &Value::Null).json()
}

#[test]
fn the_server_report_has_the_version_and_the_settings_that_differ_and_no_secret() {
    let secret = "a-secret-of-nobody-else";
    let server = Server::start(&[("METRICS__TOKEN", secret), ("DELIVERY__CONCURRENCY", "7")]);
    let report = server.command("GET", "/server", &Value::Null);
    let facts = report.json();
    assert_eq!(
        (&facts["version"], &facts["chaos"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!(false))
    );
    let settings = facts["settings"].as_array().expect("a list");
    let of = |key: &str| {
        settings
            .iter()
            .find(|setting| setting["key"] == key)
            .cloned()
            .unwrap_or_default()
    };
    let concurrency = json!({"key": "delivery.concurrency", "value": "7",
        "origin": "environment variable GRIDHOOK_DELIVERY__CONCURRENCY"});
    assert_eq!(of("delivery.concurrency"), concurrency);
    assert!(
        of("metrics.token")["value"].is_string() && !report.text().contains(secret),
        "{}",
        report.text()
    );
    assert_eq!(
        of("delivery.response_timeout"),
        Value::Null,
        "it has its default"
    );
    assert_eq!(facts["listeners"][0]["name"], "publishers");
    assert!(facts["listeners"][0]["open"].as_u64() >= Some(1), "{facts}");
    for figure in ["residentBytes", "threads", "openFiles", "mostFiles"] {
        assert!(
            facts["process"][figure].as_u64() > Some(0),
            "{figure}: {facts}"
        );
    }
    assert!(facts["diskFreeBytes"].as_u64() > Some(0), "{facts}");
    let output = cli(&server, &["server"]);
    for part in ["delivery.concurrency", env!("CARGO_PKG_VERSION"), " open, "] {
        assert!(
            output.contains(part) && !output.contains(secret),
            "{part}: {output}"
        );
    }
}

/// The names in a list of the page's source.
fn listed(name: &str) -> Vec<&'static str> {
    let source = include_str!("../../src/dashboard/page/js/causes.js");
    let (_, list) = source
        .split_once(&format!("export const {name} = ["))
        .expect("a list");
    let (list, _) = list.split_once("];").expect("its end");
    list.split('\'').skip(1).step_by(2).collect()
}

#[test]
fn the_page_offers_the_steps_outcomes_and_reasons_that_the_server_has() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "billing",
        &SubscriptionSpec::new("http://127.0.0.1:9/"),
    );
    let path = format!("{}/ledger", subscription("orders", "billing"));
    // The manual lists them, because an error with all of them would be too long.
    let manual = |kinds: &[&str]| {
        let rows = include_str!("../../src/manual/delivery.md").lines();
        let rows = rows.filter(|line| {
            kinds
                .iter()
                .any(|kind| line.starts_with(&format!("| {kind}")))
        });
        let mut names: Vec<&str> = rows
            .flat_map(|row| row.rsplit(" | ").next().expect("a cell").split('`'))
            .collect();
        names.retain(|name| name.chars().all(char::is_alphabetic) && !name.is_empty());
        names.sort_unstable();
        names.dedup();
        names
    };
    for path in [
        format!("{path}?outcome=nothing"),
        "/tail?outcome=nothing".to_owned(),
        "/deadLetters?reason=nothing".to_owned(),
    ] {
        let refused = server.admin("GET", &path, &Value::Null);
        let text = refused.text();
        assert!(
            refused.status == 400
                && text.contains("gridhook help delivery lists the allowed names"),
            "{path}: {text}"
        );
    }
    let offered = |lists: &[&str]| {
        let mut names: Vec<&str> = lists.iter().flat_map(|list| listed(list)).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let all = offered(&["STEPS", "OUTCOMES", "REASONS"]);
    assert_eq!(
        manual(&["steps of a delivery", "outcomes of an attempt", "reasons"]),
        all
    );
    assert_eq!(manual(&["reasons"]), offered(&["REASONS"]));
    for name in Outcome::all()
        .map(|outcome| outcome.to_string())
        .chain(Reason::all().map(|reason| reason.to_string()))
    {
        assert!(all.contains(&name.as_str()), "{name} is listed");
    }
    for name in all {
        let response = server.admin("GET", &format!("{path}?outcome={name}"), &Value::Null);
        assert_eq!(response.status, 200, "{name}: {}", response.text());
    }
}

#[test]
fn the_editions_say_when_each_status_is_tried_again() {
    let server = Server::start(&[]);
    let report = get(&server, "/editions");
    assert_eq!(report["default"], "test", "the edition of these tests");
    let schedule = |edition: &str, destination: &str, status: Value| {
        let editions = report["editions"].as_array().expect("a list");
        let edition = editions
            .iter()
            .find(|one| one["name"] == edition)
            .expect("it is there");
        let all = edition["schedules"].as_array().expect("a list");
        let found = all
            .iter()
            .find(|one| one["destination"] == destination && one["status"] == status);
        let found = found.expect("a schedule");
        let times = found["attemptsSeconds"].as_array().expect("times").iter();
        (
            times.filter_map(Value::as_f64).collect::<Vec<_>>(),
            found["endsWith"].as_str().expect("a reason").to_owned(),
        )
    };
    // Each wait is the schedule's, and at least that of the status.
    let waits = |least: f64| {
        let steps = [
            10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 10_800.0, 21_600.0, 43_200.0,
        ];
        let mut at = 0.0;
        let later = steps.into_iter().map(move |step: f64| {
            at += step.max(least);
            at
        });
        [0.0]
            .into_iter()
            .chain(later)
            .filter(|at| *at < 86_400.0)
            .collect::<Vec<_>>()
    };
    let expired = "TimeToLiveExceeded".to_owned();
    assert_eq!(
        schedule("current", "webhook", Value::Null),
        (waits(10.0), expired.clone())
    );
    assert_eq!(
        schedule("current", "webhook", json!(503)),
        (waits(30.0), expired.clone())
    );
    assert_eq!(
        schedule("current", "webhook", json!(404)),
        (waits(300.0), expired)
    );
    let refused = (vec![0.0], "UndeliverableDueToHttpBadRequest".to_owned());
    assert_eq!(schedule("current", "webhook", json!(400)), refused);
}

#[test]
fn a_simulation_over_http_is_that_of_the_command_and_is_bounded() {
    let server = Server::start(&[]);
    let plan = json!({"edition": "current", "models": ["outage:5h", "healthy=2"], "subscriptions": 6, "days": 1, "rate": 0.002, "seed": 7});
    let report = server.command("POST", "/simulate", &plan).json();
    let flags = [
        "--edition",
        "current",
        "--model",
        "outage:5h",
        "--model",
        "healthy=2",
        "--subscriptions",
        "6",
        "--days",
        "1",
    ];
    let output = cli(
        &server,
        &[
            &["simulate"],
            &flags[..],
            &["--rate", "0.002", "--seed", "7", "--output", "json"],
        ]
        .concat(),
    );
    assert_eq!(
        report,
        serde_json::from_str::<Value>(&output).expect("JSON")
    );
    assert_eq!(report["models"].as_array().map(Vec::len), Some(2));
    for (body, text) in [
        (json!({"edition": "none"}), "expected one of 2020"),
        (json!({"models": ["broken"]}), "there is no endpoint model"),
        (json!({"rate": 1000}), "expected a number from"),
        (json!({"subscriptions": 1001}), "from 1 to 1000"),
        (
            json!({"subscriptions": 3, "rate": 0.001}),
            "from 20 to 1000",
        ),
        (json!({"days": 31}), "0.001 to 30"),
        (json!({"batch": 0}), "from 1 to 5000"),
        (json!({"other": 1}), "other"),
    ] {
        let response = server.admin("POST", "/simulate", &body);
        assert!(
            response.status == 400 && response.text().contains(text),
            "{body}: {}",
            response.text()
        );
    }
}

#[test]
fn open_jobs_and_dead_letters_of_all_event_subscriptions_are_in_one_list() {
    let server = Server::start(&[
        ("DELIVERY__VALIDATE", "false"),
        ("JOURNAL__RETENTION", "1d"),
    ]);
    for topic in ["orders", "payments"] {
        server.topic(topic, "EventGridSchema");
        server.subscribe(
            topic,
            "billing",
            &SubscriptionSpec::new("http://127.0.0.1:9/"),
        );
        let event = json!([{"id": "1", "eventType": "Made", "subject": "/a", "dataVersion": "1",
            "eventTime": "2026-11-22T12:00:00Z", "data": {}}]);
        let topic = topic_of(&subscription(topic, "billing"));
        server.command("POST", &format!("{topic}/publish"), &event);
    }
    assert_eq!(get(&server, "/jobs")["open"], 0);
    for topic in ["orders", "payments"] {
        let path = subscription(topic, "billing");
        let job = server
            .command(
                "POST",
                &format!("{path}/replays"),
                &json!({"eventsPerSecond": 0.001}),
            )
            .json();
        let id = job["id"].as_str().expect("an id");
        server.command("POST", &format!("{path}/replays/{id}/pause"), &Value::Null);
    }
    let report = get(&server, "/jobs");
    assert_eq!(report["open"], 2);
    let jobs = report["jobs"].as_array().expect("a list");
    let of = |job: &Value| {
        let text = |key: &str| job[key].as_str().unwrap_or_default().to_owned();
        (
            text("topic"),
            text("subscription"),
            text("kind"),
            text("state"),
        )
    };
    let expected = |topic: &str| {
        (
            topic_of(&subscription(topic, "billing")),
            "billing".into(),
            "replay".into(),
            "paused".into(),
        )
    };
    assert_eq!(
        jobs.iter().map(of).collect::<Vec<_>>(),
        [expected("payments"), expected("orders")],
        "newest first"
    );
    let one = get(&server, "/jobs?top=1");
    assert_eq!(
        (&one["open"], one["jobs"].as_array().map(Vec::len)),
        (&json!(2), Some(1))
    );
    assert_eq!(server.admin("GET", "/jobs?top=0", &Value::Null).status, 400);
    let output = cli(&server, &["replay", "running"]);
    assert!(
        ["orders", "payments", "paused"]
            .iter()
            .all(|part| output.contains(part)),
        "{output}"
    );

    let top = get(&server, "/top?by=deadLetters");
    assert_eq!(
        (&top["deadLettered"], &top["dropped"]),
        (&json!(0), &json!(0))
    );
}

/// Topics and event subscriptions, and the status that their endpoints return.
const FAILING: [(&str, &str, u16); 3] = [
    ("orders", "billing", 400),
    ("orders", "crm", 503),
    ("payments", "billing", 400),
];

#[test]
fn the_newest_dead_letters_of_all_event_subscriptions_are_in_one_list_also_after_a_crash() {
    let sink = Sink::start();
    let mut server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    create_failing_subscriptions(&server, &sink);
    assert_eq!(get(&server, "/deadLetters")["value"], json!([]));
    for (round, topic) in (1..).zip(["orders", "payments", "orders"]) {
        publish_and_give_up(&server, topic, round);
    }
    server.kill_9();
    server.assert_sound();
    server.restart();
    // The outcome of the last moment may not have been on disk. Its event is then sent and given up
    // again.
    for (topic, name, _) in FAILING {
        let expected = if topic == "orders" { 2 } else { 1 };
        wait_for("the dead letter", LONG, || {
            server.counter(topic, name, "deadLettered") == expected
        });
    }
    assert_newest_are_listed_first(&server);
    assert_pages_have_all_lines(&server);
    assert_lines_are_filtered(&server);
    let table = cli(
        &server,
        &["dead-letters", "newest", "--search", "crm", "--limit", "1"],
    );
    assert!(
        table.contains("MaxDeliveryAttemptsExceeded") && table.lines().count() == 2,
        "{table}"
    );
}

fn create_failing_subscriptions(server: &Server, sink: &Sink) {
    for (topic, name, status) in FAILING {
        if name == "billing" {
            server.topic(topic, "EventGridSchema");
        }
        let path = format!("/{topic}/{name}");
        sink.set(&path, Behavior::Respond(status));
        let spec = SubscriptionSpec::new(&sink.url(&path))
            .dead_letters_at(&json!({"resourceId": "/r", "blobContainerName": "letters"}));
        let spec = spec.also(
            &json!({}),
            &json!({"retryPolicy": {"maxDeliveryAttempts": 1}}),
        );
        server.subscribe(topic, name, &spec);
    }
}

/// Publishes an event, and waits until all event subscriptions of the topic have given it up.
fn publish_and_give_up(server: &Server, topic: &str, round: u32) {
    let event = json!([{"id": round.to_string(), "eventType": "Made", "subject": "/a",
        "dataVersion": "1", "eventTime": "2026-11-22T12:00:00Z", "data": {}}]);
    let path = format!("{}/publish", topic_of(&subscription(topic, "x")));
    server.command("POST", &path, &event);
    let expected = if round == 3 { 2 } else { 1 };
    for (_, name, _) in FAILING.iter().filter(|(of, ..)| *of == topic) {
        wait_for("the dead letter", LONG, || {
            server.counter(topic, name, "deadLettered") == expected
        });
    }
}

/// A page of the list of the newest dead letters.
fn newest_dead_letters(server: &Server, query: &str) -> Value {
    get(server, &format!("/deadLetters{query}"))
}

/// The topic, the event subscription and the sequence of each line of a page.
fn lines(page: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for line in page["value"].as_array().expect("a list") {
        let topic = line["topic"]
            .as_str()
            .and_then(|topic| topic.rsplit('/').next())
            .expect("a topic");
        let subscription = line["subscription"].as_str().expect("a name");
        lines.push(format!("{topic}/{subscription} {}", line["firstSequence"]));
    }
    lines
}

fn assert_newest_are_listed_first(server: &Server) {
    let mut all = lines(&newest_dead_letters(server, ""));
    assert_eq!(all.len(), 5, "{all:?}");
    all[..2].sort();
    all[3..].sort();
    assert_eq!(
        all,
        [
            "orders/billing 2",
            "orders/crm 2",
            "payments/billing 1",
            "orders/billing 1",
            "orders/crm 1"
        ]
    );
}

fn assert_pages_have_all_lines(server: &Server) {
    let mut pages = Vec::new();
    let mut next = String::new();
    for _ in 0..20 {
        let page = newest_dead_letters(server, &format!("?top=1{next}"));
        pages.extend(lines(&page));
        let Some(token) = page["continue"].as_str() else {
            break;
        };
        next = format!("&continue={token}");
    }
    assert_eq!(pages, lines(&newest_dead_letters(server, "")));
}

fn assert_lines_are_filtered(server: &Server) {
    let topic = topic_of(&subscription("orders", "x"));
    for (query, expected) in [
        (
            "?reason=maxdeliveryattemptsexceeded",
            vec!["orders/crm 2", "orders/crm 1"],
        ),
        ("?search=CR", vec!["orders/crm 2", "orders/crm 1"]),
        (
            &*format!("?topic={topic}&search=bill"),
            vec!["orders/billing 2", "orders/billing 1"],
        ),
        ("?search=none", Vec::new()),
    ] {
        assert_eq!(
            lines(&newest_dead_letters(server, query)),
            expected,
            "{query}"
        );
    }
    for query in ["?reason=soon", "?top=0", "?continue=x", "?topic=orders"] {
        assert_eq!(
            server
                .admin("GET", &format!("/deadLetters{query}"), &Value::Null)
                .status,
            400,
            "{query}"
        );
    }
}

fn topic_of(subscription: &str) -> String {
    subscription
        .split("/eventSubscriptions/")
        .next()
        .expect("a topic")
        .to_owned()
}
