//! The metrics of the real server, read by the tools that operators use.

mod config;
mod history;
mod prometheus;
mod pulled;
mod text;
mod tools;
mod windows;

use std::{collections::BTreeMap, fs, time::Duration};

use gridhook::{
    config::Editions,
    policy::outcome::{Outcome, Reason},
};
use serde_json::Value;

use crate::support::{
    endpoint::{Endpoint, respond},
    load,
    server::{Server, SubscriptionSpec, subscription, wait_for},
    sink::{Behavior, Sink},
};

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(60);

/// A token that is good for nothing but figures.
const WATCHER: &str = "a-watcher-and-nobody-else";

/// Samples, by name and labels as they stand in the line.
type Samples = BTreeMap<String, f64>;

fn publish(server: &Server, topic: &str, key: &str, ids: &[&str]) {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    server.publish(topic, key, &load::body(&ids, "a"));
}

/// `/metrics` with the watcher's token.
fn scrape(server: &Server) -> String {
    let bearer = format!("Bearer {WATCHER}");
    let response = server
        .client()
        .ask("GET", "/metrics", &[("authorization", &bearer)], b"")
        .expect("a response");
    assert_eq!(response.status, 200, "{}", response.text());
    response.text()
}

fn samples(text: &str) -> Samples {
    let sample = |line: &str| {
        let (name, value) = line
            .rsplit_once(' ')
            .unwrap_or_else(|| panic!("no sample: {line}"));
        (
            name.to_owned(),
            value
                .parse()
                .unwrap_or_else(|error| panic!("{error}: {line}")),
        )
    };
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(sample)
        .collect()
}

/// The metrics of the event subscription at a path, without the prefix of their names and without
/// the labels of the event subscription.
fn figures_at(server: &Server, path: &str) -> Samples {
    let path = format!("{path}/metrics");
    let text = server.command("GET", &path, &Value::Null).text();
    let named = samples(&text).into_iter();
    named
        .map(|(name, value)| (without_subscription(&name), value))
        .collect()
}

/// `gridhook_subscription_NAME{topic="…",subscription="…",LABELS}` as `NAME{LABELS}`.
fn without_subscription(sample: &str) -> String {
    let sample = sample.trim_start_matches("gridhook_subscription_");
    let (name, labels) = sample.split_once('{').expect("labels");
    let mut labels = labels.splitn(3, ',').skip(2);
    labels
        .next()
        .map_or_else(|| name.to_owned(), |labels| format!("{name}{{{labels}"))
}

/// The metrics of an event subscription of a topic.
fn figures(server: &Server, topic: &str, name: &str) -> Samples {
    figures_at(server, &subscription(topic, name))
}

fn assert_figures(figures: &Samples, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        assert_eq!(figures.get(*name), Some(value), "{name}: {figures:#?}");
    }
}

/// A counter that begins with its first event shows no increase, so that no alert would fire.
#[test]
fn each_reason_for_which_an_edition_gives_events_up_begins_with_zero() {
    let sink = Sink::start();
    let server = Server::start(&[]);
    server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let figures = figures(&server, "orders", "all");
    let editions = Editions::load(None, None).expect("the editions of the program");
    for name in editions.names() {
        let edition = editions.get(name).expect("an edition");
        for rules in [&edition.webhook, &edition.resource] {
            let mut outcomes: Vec<Outcome> = rules
                .never_retried_without_status
                .iter()
                .map(|failure| Outcome::Failed(*failure))
                .collect();
            let statuses = rules
                .never_retried
                .iter()
                .chain(&rules.never_retried_with_dead_letter);
            outcomes.extend(statuses.map(|status| Outcome::from_status(*status)));
            for outcome in outcomes {
                let Outcome::Failed(failure) = outcome else {
                    panic!("{name}: {outcome:?} is no failure");
                };
                let reason = Reason::Undeliverable(failure);
                let series = format!("dropped_events_total{{reason=\"{reason}\"}}");
                assert_figures(&figures, &[(&*series, 0.0)]);
            }
        }
    }
}

fn wait_until_passed(server: &Server, topic: &str, name: &str, events: u64) {
    wait_for(&format!("{name} to pass {events}"), LONG, || {
        let status = server.status(topic, name);
        let counters = &status["counters"];
        counters["passed"] == events && counters["pending"] == 0 && status["inFlight"] == 0
    });
}

#[test]
fn the_figures_of_a_subscription_say_what_became_of_each_event_also_after_a_kill() {
    let sink = Sink::start();
    sink.set("/refusing", Behavior::Respond(400));
    // On a host of its own, because connections are shared by host: its first request needs a new
    // one.
    let flaky_sink = Sink::start();
    flaky_sink.set("/flaky", Behavior::Statuses([503, 503].into()));
    let mut server = Server::start(&[("DELIVERY__SUSPEND_AFTER_FAILURES", "100")]);
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
    server.subscribe(
        "orders",
        "flaky",
        &SubscriptionSpec::new(&flaky_sink.url("/flaky")),
    );
    server.subscribe(
        "orders",
        "picky",
        &SubscriptionSpec::new(&sink.url("/good")).types(&["Other"]),
    );
    publish(&server, "orders", &key, &["1", "2", "3"]);
    for name in ["buried", "dropped", "flaky", "picky"] {
        wait_until_passed(&server, "orders", name, 3);
    }
    wait_for("the dead letters to be in a file", LONG, || {
        figures(&server, "orders", "buried")["dead_letters_written_total"] == 3.0
    });
    let look = |server: &Server| {
        assert_figures(
            &figures(server, "orders", "buried"),
            &[
                ("matched_events_total", 3.0),
                (
                    "dead_lettered_events_total{reason=\"UndeliverableDueToHttpBadRequest\"}",
                    3.0,
                ),
                ("attempts_total{outcome=\"Delivered\"}", 0.0),
                ("attempts_total{outcome=\"BadRequest\"}", 3.0),
                ("dead_letters_waiting", 0.0),
            ],
        );
        assert_figures(
            &figures(server, "orders", "dropped"),
            &[(
                "dropped_events_total{reason=\"UndeliverableDueToHttpBadRequest\"}",
                3.0,
            )],
        );
        assert_figures(
            &figures(server, "orders", "picky"),
            &[
                ("filtered_events_total", 3.0),
                ("matched_events_total", 0.0),
            ],
        );
        let flaky = figures(server, "orders", "flaky");
        assert_figures(
            &flaky,
            &[
                ("delivered_events_total", 3.0),
                ("attempts_total{outcome=\"Delivered\"}", 3.0),
                ("attempts_total{outcome=\"Busy\"}", 2.0),
                ("suspended", 0.0),
                ("backlog_events", 0.0),
            ],
        );
        flaky
    };
    let flaky = look(&server);
    assert_figures(
        &flaky,
        &[
            ("response_seconds_count", 5.0),
            ("batch_events_sum", 5.0),
            ("delivery_seconds_count", 3.0),
            ("phase_seconds_count{phase=\"tls\"}", 0.0),
            ("phase_seconds_count{phase=\"first_byte\"}", 5.0),
            ("phase_seconds_count{phase=\"body\"}", 5.0),
        ],
    );
    let connections = flaky["phase_seconds_count{phase=\"connect\"}"];
    assert!((1.0..=5.0).contains(&connections), "{flaky:#?}");
    server.kill_9();
    server.restart();
    // Events that were sent to nobody are passed again if this was not yet on disk.
    wait_until_passed(&server, "orders", "picky", 3);
    // Measured since the process started, as the help says.
    assert_figures(&look(&server), &[("response_seconds_count", 0.0)]);
}

#[test]
fn metrics_need_their_token_and_the_token_opens_nothing_else() {
    let server = Server::start(&[("METRICS__TOKEN", WATCHER)]);
    server.topic("orders", "EventGridSchema");
    let ask = |path: &str, token: &str| {
        server.request_without_token(
            "GET",
            path,
            &[("authorization", &format!("Bearer {token}"))],
        )
    };
    let admin = fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    assert_eq!(
        server.request_without_token("GET", "/metrics", &[]).status,
        401
    );
    assert_eq!(ask("/metrics", "a-watcher-and-somebody-else").status, 401);
    assert_eq!(ask("/supervision", WATCHER).status, 401);
    assert_eq!(ask("/metrics", admin.trim()).status, 200);
    let response = ask("/metrics", WATCHER);
    assert_eq!(response.status, 200);
    assert_eq!(
        response.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let open_metrics = [
        ("authorization", &*format!("Bearer {WATCHER}")),
        ("accept", "application/openmetrics-text"),
    ];
    let response = server.request_without_token("GET", "/metrics", &open_metrics);
    assert_eq!(
        response.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(response.text().ends_with("# EOF\n"));
    drop(server);
    let public = Server::start(&[("METRICS__PUBLIC", "true")]);
    assert_eq!(
        public.request_without_token("GET", "/metrics", &[]).status,
        200
    );
    assert_eq!(
        public
            .request_without_token("GET", "/supervision", &[])
            .status,
        401
    );
}

#[test]
fn beyond_the_bounds_series_are_summed_up_and_no_sum_falls() {
    let sink = Sink::start();
    let bounds = [
        ("METRICS__SUBSCRIPTIONS", "2"),
        ("METRICS__SUBSCRIPTIONS_PER_TOPIC", "1"),
        ("METRICS__TOPICS", "1"),
    ];
    let server = Server::start(&[&[("METRICS__TOKEN", WATCHER)], &bounds[..]].concat());
    for topic in ["one", "two"] {
        let key = server.topic(topic, "EventGridSchema");
        for name in ["first", "second", "third"] {
            server.subscribe(topic, name, &SubscriptionSpec::new(&sink.url("/good")));
        }
        publish(&server, topic, &key, &["1", "2"]);
        for name in ["first", "second", "third"] {
            wait_until_passed(&server, topic, name, 2);
        }
    }
    const MATCHED: &str = "gridhook_subscription_matched_events_total";
    let matched = |samples: &Samples| -> Vec<(String, f64)> {
        let of = samples.iter().filter(|(name, _)| name.starts_with(MATCHED));
        of.map(|(name, value)| (name[MATCHED.len()..].to_owned(), *value))
            .collect()
    };
    let before = matched(&samples(&scrape(&server)));
    assert_eq!(
        before.len(),
        3,
        "one by name, the rest of its topic, the other topic: {before:?}"
    );
    assert_eq!(
        before.iter().map(|(_, value)| value).sum::<f64>(),
        12.0,
        "{before:?}"
    );
    let named = before
        .iter()
        .find(|(labels, _)| !labels.contains("_other"))
        .expect("one is named")
        .0
        .clone();
    let topic = if named.contains("one") { "one" } else { "two" };
    let rest = format!("{{topic=\"{topic}\",subscription=\"_other\"}}");
    assert!(before.contains(&(rest.clone(), 4.0)), "{before:?}");
    // One of the rest goes for good, and the named one, too: another takes its place.
    let name = ["first", "second", "third"]
        .into_iter()
        .find(|name| !named.contains(name))
        .expect("there are three");
    server.unsubscribe(topic, name);
    let after = matched(&samples(&scrape(&server)));
    assert!(
        after.contains(&(rest.clone(), 4.0)),
        "it does not fall: {after:?}"
    );
    let name = ["first", "second", "third"]
        .into_iter()
        .find(|name| named.contains(name))
        .expect("it is named");
    server.unsubscribe(topic, name);
    let after = matched(&samples(&scrape(&server)));
    assert!(
        !after.iter().any(|(labels, _)| *labels == named),
        "{after:?}"
    );
    assert!(
        after
            .iter()
            .filter(|(labels, _)| !labels.contains("_other"))
            .all(|(_, value)| *value == 2.0),
        "{after:?}"
    );
}

#[test]
fn answers_to_publishers_and_callers_are_counted() {
    let server = Server::start(&[("METRICS__TOKEN", WATCHER)]);
    let key = server.topic("orders", "EventGridSchema");
    publish(&server, "orders", &key, &["1", "2", "3"]);
    let response = server.request_without_token(
        "POST",
        "/topics/orders/api/events",
        &[("aeg-sas-key", "not-the-key")],
    );
    assert_eq!(response.status, 401);
    assert_eq!(
        server
            .request_without_token(
                "POST",
                "/topics/nowhere/api/events",
                &[("aeg-sas-key", "x")]
            )
            .status,
        404
    );
    wait_for("the topic's actor to match", LONG, || {
        samples(&scrape(&server)).get("gridhook_topic_unmatched_events_total{topic=\"orders\"}")
            == Some(&3.0)
    });
    let reported = samples(&scrape(&server));
    let value = |name: &str| {
        *reported
            .get(name)
            .unwrap_or_else(|| panic!("{name} is missing: {reported:#?}"))
    };
    assert_eq!(
        value("gridhook_topic_published_events_total{topic=\"orders\"}"),
        3.0
    );
    assert_eq!(
        value("gridhook_topic_publish_seconds_count{topic=\"orders\"}"),
        1.0
    );
    assert_eq!(
        value(
            "gridhook_topic_refused_requests_total{topic=\"orders\",status=\"401\",code=\"Unauthorized\"}"
        ),
        1.0
    );
    assert_eq!(
        value(
            "gridhook_publish_unknown_topic_requests_total{status=\"404\",code=\"ResourceNotFound\"}"
        ),
        1.0
    );
    assert!(value("gridhook_http_responses_total{listener=\"publishers\",code=\"4xx\"}") >= 2.0);
    assert!(value("gridhook_http_open_connections{listener=\"publishers\"}") >= 1.0);
    assert!(value("gridhook_journal_sync_seconds_count") >= 2.0);
    assert!(
        value("gridhook_rocksdb_wal_syncs_total") >= value("gridhook_journal_sync_seconds_count")
    );
    assert!(value("gridhook_rocksdb_estimated_keys{family=\"log\"}") >= 1.0);
    assert!(value("gridhook_store_disk_free_bytes") > 0.0);
    assert_eq!(
        (value("gridhook_ready"), value("gridhook_journal_writable")),
        (1.0, 1.0)
    );
    assert!(value("process_resident_memory_bytes") > 1e6 && value("process_open_fds") > 3.0);
    let started = value("process_start_time_seconds");
    let now = gridhook::clock::Clock::system().now().0 as f64 / 1e6;
    assert!(
        (now - 3600.0..=now + 5.0).contains(&started),
        "{started}, and it is {now}"
    );
}

#[test]
fn spans_are_counted_by_what_became_of_them_where_they_are_recorded() {
    const EXPORTED: &str = "gridhook_trace_spans_total{end=\"exported\"}";
    // One server at a time.
    let silent = scrape(&Server::start(&[("METRICS__TOKEN", WATCHER)]));
    assert!(
        !silent.contains("gridhook_trace_spans_total"),
        "nobody records any"
    );
    let collector = Endpoint::start(vec![respond(
        200,
        "content-type: application/json\r\n",
        "{}",
    )]);
    let url = format!("http://{}/", collector.address());
    let traced = [
        ("TELEMETRY__OTLP_ENDPOINT", &*url),
        ("TELEMETRY__BATCH_DELAY", "20ms"),
        ("METRICS__TOKEN", WATCHER),
    ];
    let server = Server::start(&traced);
    let key = server.topic("orders", "EventGridSchema");
    publish(&server, "orders", &key, &["1"]);
    wait_for("spans to be exported", LONG, || {
        samples(&scrape(&server))[EXPORTED] >= 2.0
    });
    let reported = samples(&scrape(&server));
    for end in ["dropped", "failed"] {
        assert_eq!(
            reported[&format!("gridhook_trace_spans_total{{end=\"{end}\"}}")],
            0.0
        );
    }
}
