//! A failing endpoint is called again at the times of the edition.

use std::{collections::VecDeque, time::Duration};

use serde_json::{Value, json};

use super::{LONG, wait_until_settled};
use crate::support::{
    edition::{JITTER, STEPS},
    endpoint::Gate,
    load,
    server::{Server, SubscriptionSpec, operator, subscription, wait_for},
    sink::{Behavior, Sink},
};

/// How late an attempt may be on a machine that stands still for a moment. What it was scheduled
/// for is exact.
const LATE: Duration = Duration::from_secs(5);

#[test]
fn an_endpoint_that_answers_503_three_times_is_asked_again_at_the_times_of_the_edition() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Statuses(VecDeque::from([503, 503, 503])));
    server.publish("orders", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("the event", LONG, || sink.taken("/hook") == 1);
    wait_until_settled(&server, "orders", "hook");

    let arrivals = sink.ledger("/hook").remove("one").expect("it arrived");
    let statuses: Vec<Option<u16>> = arrivals.iter().map(|arrival| arrival.status).collect();
    assert_eq!(statuses, [Some(503), Some(503), Some(503), Some(200)]);
    let attempts: Vec<u32> = arrivals.iter().map(|arrival| arrival.attempts).collect();
    assert_eq!(attempts, [0, 1, 2, 3], "aeg-delivery-count");
    for (pair, step) in arrivals.windows(2).zip(STEPS) {
        let waited = pair[1].at.since(pair[0].answered);
        assert!(
            waited >= step,
            "after {waited:?} instead of {step:?}: early"
        );
        assert!(
            waited <= step.mul_f64(1.0 + JITTER) + LATE,
            "after {waited:?} instead of {step:?}: late"
        );
    }
    let ledger = server
        .command(
            "GET",
            &format!("{}/ledger", subscription("orders", "hook")),
            &Value::Null,
        )
        .json();
    let lines = ledger["lines"].as_array().expect("a list");
    let time = |line: &Value, name: &str| -> jiff::Timestamp {
        line[name]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("no {name}: {line}"))
    };
    let deferred: Vec<&Value> = lines
        .iter()
        .filter(|line| line["step"] == "deferred")
        .collect();
    assert_eq!(deferred.len(), STEPS.len(), "{ledger}");
    for (line, step) in deferred.into_iter().zip(STEPS) {
        let wait = time(line, "nextAttempt")
            .duration_since(time(line, "at"))
            .unsigned_abs();
        assert!(
            (step..=step.mul_f64(1.0 + JITTER)).contains(&wait),
            "{wait:?} instead of {step:?}: {line}"
        );
    }
    for (counter, expected) in [
        ("delivered", 1),
        ("pending", 0),
        ("matched", 1),
        ("requests", 4),
        ("requestsFailed", 3),
        ("dropped", 0),
    ] {
        assert_eq!(
            server.counter("orders", "hook", counter),
            expected,
            "{counter}"
        );
    }
    assert_eq!(
        server.status("orders", "hook")["health"]["state"],
        "healthy"
    );
}

#[test]
fn a_subscription_has_the_waits_of_its_own_schedule_or_of_the_edition_that_it_names_also_after_a_crash()
 {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    sink.set("/hook", Behavior::Respond(503));
    let spec = |schedule: &Value| {
        let retry = json!({"retryPolicy": {"maxDeliveryAttempts": 30, "schedule": schedule}});
        SubscriptionSpec::new(&sink.url("/hook")).also(&json!({}), &retry)
    };
    for (schedule, problem) in [
        (
            json!([]),
            "retryPolicy.schedule has 0 waits; expected 1 to 50",
        ),
        (
            json!(["1m", "soon"]),
            r#"retryPolicy.schedule[1] is "soon"; expected a wait from 1s to 7d, such as 30s"#,
        ),
        (json!(["999ms"]), "expected a wait from 1s to 7d"),
        (json!(vec!["1s"; 51]), "has 51 waits"),
        (
            json!("1999"),
            "the edition '1999' does not exist; expected one of 2020, 2021, 2023, current",
        ),
        (
            json!(5),
            "expected the name of an edition, or a list of waits",
        ),
    ] {
        let refused = server.put_subscription("orders", "wrong", &spec(&schedule));
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(
            refused.json()["error"]["message"]
                .as_str()
                .is_some_and(|text| text.contains(problem)),
            "{}",
            refused.text()
        );
    }
    let own = json!(["1h", "2h"]);
    server.subscribe("orders", "own", &spec(&own));
    // The first wait of 2021 is 10 s; that of the topic's edition is shorter than 1 s.
    server.subscribe("orders", "named", &spec(&json!("2021")));
    server.subscribe("orders", "plain", &spec(&Value::Null));
    server.publish("orders", &key, &load::body(&["one".to_owned()], "/a"));
    let first_wait = |server: &Server, name: &str| {
        let ledger = server
            .command(
                "GET",
                &format!("{}/ledger", subscription("orders", name)),
                &Value::Null,
            )
            .json();
        let lines = ledger["lines"].as_array().expect("a list");
        let line = lines.iter().find(|line| line["step"] == "deferred")?;
        let time = |key: &str| {
            line[key]
                .as_str()
                .and_then(|text| text.parse::<jiff::Timestamp>().ok())
        };
        Some(
            time("nextAttempt")?
                .duration_since(time("at")?)
                .unsigned_abs(),
        )
    };
    for (name, step) in [("own", 3600), ("named", 10)] {
        wait_for("a failure", LONG, || first_wait(&server, name).is_some());
        let waited = first_wait(&server, name).expect("it failed");
        let step = Duration::from_secs(step);
        assert!(
            (step..=step.mul_f64(1.2)).contains(&waited),
            "{name} waits {waited:?} instead of {step:?}"
        );
    }
    wait_for("a failure", LONG, || first_wait(&server, "plain").is_some());
    assert!(first_wait(&server, "plain").is_some_and(|waited| waited < Duration::from_secs(1)));
    server.kill_9();
    server.restart();
    let shown = |name: &str| {
        server.get_subscription("orders", name).json()["properties"]["retryPolicy"]["schedule"]
            .clone()
    };
    assert_eq!(
        (shown("own"), shown("named"), shown("plain")),
        (own, json!("2021"), Value::Null)
    );
    // A change applies to the next failure.
    let changed = server.patch(
        "orders",
        "own",
        &json!({"retryPolicy": {"schedule": ["3h"]}}),
    );
    assert_eq!(changed.status, 201, "{}", changed.text());
    assert_eq!(shown("own"), json!(["3h"]));
}

#[test]
fn a_schedule_that_is_shorter_than_minimum_waits_is_warned_of_with_the_real_waits() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    server.topic_of(
        "orders",
        &json!({"inputSchema": "EventGridSchema", "edition": "current"}),
    );
    let warning = "retryPolicy.schedule has waits that are shorter than minimum waits of the \
        topic's edition: after 503 it is 30s, 40s, 10m; after 408 it is 2m, 2m, 10m; after 404, \
        410 it is 5m, 5m, 10m";
    let retry = |schedule: Value| json!({"retryPolicy": {"schedule": schedule}});
    let spec = SubscriptionSpec::new(&sink.url("/hook"));
    let spec = spec.also(&json!({}), &retry(json!(["10s", "40s", "10m"])));
    let path = subscription("orders", "own");
    let body = json!({"properties": spec.properties()});
    let plan = server.command("PUT", &format!("{path}?whatIf=true"), &body);
    assert_eq!(plan.json()["warnings"], json!([warning]));
    let header = format!("299 gridhook \"{warning}\"");
    let created = server.put_subscription("orders", "own", &spec);
    for response in [plan, created] {
        assert_eq!(response.header("warning"), Some(header.as_str()));
    }
    for (schedule, warns) in [(json!(["5m", "1h"]), false), (json!("2021"), true)] {
        let changed = server.patch("orders", "own", &retry(schedule));
        assert_eq!(changed.status, 201, "{}", changed.text());
        assert_eq!(changed.header("warning").is_some(), warns);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("own.json");
    std::fs::write(&file, body.to_string()).expect("written");
    let file = file.to_str().expect("text");
    let topic = path.split("/eventSubscriptions").next().expect("a topic");
    let (status, printed) =
        server.say(&["subscriptions", "create", topic, "second", "--body", file]);
    assert!(status.success(), "{printed}");
    let line = format!("gridhook: warning: {warning}\n");
    assert_eq!(printed.matches(&line).count(), 1, "{printed}");
}

#[test]
fn an_endpoint_that_only_fails_is_held_until_it_is_resumed_also_after_a_crash() {
    let mut server = Server::start(&[("DELIVERY__HOLD_AFTER_FAILING", "1s")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Respond(503));
    let mut published = 0;
    wait_for("the hold", LONG, || {
        published += 1;
        server.publish("orders", &key, &load::body(&[published.to_string()], "/a"));
        server.status("orders", "hook")["heldBy"] == "EndpointFailing"
    });
    server.kill_9();
    server.restart();
    assert_eq!(server.status("orders", "hook")["heldBy"], "EndpointFailing");
    assert_eq!(
        server.admin("GET", "/top", &Value::Null).json()["top"][0]["heldBy"],
        "EndpointFailing"
    );
    let metrics = server.admin("GET", "/metrics", &Value::Null).text();
    let is_failing = |line: &str| {
        line.starts_with("gridhook_subscription_endpoint_failing{")
            && line.contains("\"hook\"")
            && line.ends_with(" 1")
    };
    assert!(metrics.lines().any(is_failing), "{metrics}");
    sink.set("/hook", Behavior::Respond(200));
    server.post_verb("orders", "hook", "resume");
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(server.counter("orders", "hook", "delivered"), published);
    assert!(server.status("orders", "hook")["heldBy"].is_null());
    server.terminate();
    server.assert_sound();
}

#[test]
fn ten_failures_in_a_row_suspend_the_endpoint_and_a_probe_brings_it_back() {
    let server = Server::start(&[("DELIVERY__CONCURRENCY", "1")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Respond(503));
    let ids: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    server.publish("orders", &key, &load::body(&ids, "/a"));
    wait_for("the suspension", LONG, || {
        server.status("orders", "hook")["health"]["state"] == "suspended"
    });
    wait_for("a second suspension", LONG, || {
        server.status("orders", "hook")["health"]["consecutiveSuspensions"].as_u64() >= Some(2)
    });
    sink.set("/hook", Behavior::Respond(200));
    wait_for("all events", LONG, || sink.taken("/hook") == ids.len());
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(
        server.status("orders", "hook")["health"]["state"],
        "healthy"
    );
    assert_eq!(server.counter("orders", "hook", "delivered"), 50);
}

#[test]
fn an_endpoint_that_says_retry_after_gets_no_request_before_new_events_included() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::RetryAfter(429, 3));
    server.publish("orders", &key, &load::body(&["first".to_owned()], "/a"));
    wait_for("its outcome", LONG, || {
        server.counter("orders", "hook", "requestsFailed") == 1
    });
    for number in 0..5 {
        server.publish(
            "orders",
            &key,
            &load::body(&[format!("early-{number}")], "/a"),
        );
    }
    // The next process knows what the endpoint has asked for.
    server.kill_9();
    server.restart();
    server.publish("orders", &key, &load::body(&["late".to_owned()], "/a"));
    wait_for("all events", LONG, || sink.taken("/hook") == 7);
    let ledger = sink.ledger("/hook");
    let refused = ledger["first"][0].answered;
    for (id, arrivals) in &ledger {
        for arrival in arrivals
            .iter()
            .filter(|arrival| arrival.status == Some(200))
        {
            let waited = arrival.at.since(refused);
            assert!(
                waited >= Duration::from_millis(2900),
                "{id} came after {waited:?}"
            );
        }
    }
}

#[test]
fn retry_after_holds_all_subscriptions_with_the_url_back_and_no_others_of_the_host() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let [orders, bills] = ["orders", "bills"].map(|topic| server.topic(topic, "EventGridSchema"));
    server.subscribe(
        "orders",
        "asked",
        &SubscriptionSpec::new(&sink.url("/hook")),
    );
    server.subscribe("bills", "other", &SubscriptionSpec::new(&sink.url("/hook")));
    server.subscribe(
        "bills",
        "neighbour",
        &SubscriptionSpec::new(&sink.url("/neighbour")),
    );
    sink.set("/hook", Behavior::RetryAfter(503, 3600));
    server.publish("orders", &orders, &load::body(&["first".to_owned()], "/a"));
    let is_held = |server: &Server, topic: &str, name: &str, id: &str| {
        let path = format!("{}/explain?id={id}", subscription(topic, name));
        server
            .command("GET", &path, &Value::Null)
            .text()
            .contains("retryAfter")
    };
    wait_for("its outcome", LONG, || {
        is_held(&server, "orders", "asked", "first")
    });
    server.publish("bills", &bills, &load::body(&["second".to_owned()], "/a"));
    assert!(
        is_held(&server, "bills", "other", "second"),
        "although it never called the endpoint"
    );
    wait_for("the other URL", LONG, || sink.taken("/neighbour") == 1);
    server.kill_9();
    server.restart();
    assert!(
        is_held(&server, "bills", "other", "second"),
        "the next process knows the wait"
    );
    server.publish("bills", &bills, &load::body(&["third".to_owned()], "/a"));
    wait_for("the other URL", LONG, || sink.taken("/neighbour") == 2);
    assert_eq!(
        sink.look("/hook", |ledger| ledger.values().flatten().count()),
        1,
        "{:?}",
        sink.ledger("/hook")
    );
    server.post_verb("bills", "other", "release");
    wait_for("the events of the released subscription", LONG, || {
        sink.taken("/hook") == 2
    });
    assert_eq!(
        sink.ledger("/hook")["first"].len(),
        1,
        "the subscription that was asked still waits"
    );
}

#[test]
fn a_changed_url_does_not_keep_the_retry_after_of_the_old_one_and_the_old_one_does() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let to = |path: &str| SubscriptionSpec::new(&sink.url(path));
    server.subscribe("orders", "moved", &to("/old"));
    server.subscribe("orders", "stays", &to("/old").prefix("/stays"));
    sink.set("/old", Behavior::RetryAfter(503, 3600));
    server.publish("orders", &key, &load::body(&["first".to_owned()], "/a"));
    let waits = |server: &Server, name: &str| {
        let path = format!("{}/explain?id=first", subscription("orders", name));
        server
            .command("GET", &path, &Value::Null)
            .text()
            .contains("retryAfter")
    };
    wait_for("its outcome", LONG, || waits(&server, "moved"));
    // A change of something else keeps the wait.
    server.patch("orders", "moved", &json!({"labels": ["x"]}));
    server.publish(
        "orders",
        &key,
        &load::body(&["second".to_owned()], "/stays"),
    );
    assert!(waits(&server, "moved"));
    server.subscribe("orders", "moved", &to("/new"));
    wait_for("the other event at the new URL", LONG, || {
        sink.taken("/new") == 1
    });
    // The event that failed keeps its time, until an operator brings it forward.
    let retried = server.command(
        "POST",
        &format!("{}/retry", subscription("orders", "moved")),
        &json!({"all": true}),
    );
    assert_eq!(retried.json(), json!({"events": 1}));
    wait_for("the event that failed", LONG, || sink.taken("/new") == 2);
    server.subscribe("orders", "late", &to("/new").prefix("/late"));
    server.kill_9();
    server.restart();
    server.publish("orders", &key, &load::body(&["third".to_owned()], "/late"));
    wait_for("the event after a kill", LONG, || {
        server.counter("orders", "late", "delivered") == 1
    });
    wait_until_settled(&server, "orders", "moved");
    assert_eq!(
        sink.look("/old", |ledger| ledger.values().flatten().count()),
        1,
        "{:?}",
        sink.ledger("/old")
    );
    assert_eq!(server.counter("orders", "stays", "requests"), 0);
}

#[test]
fn an_answer_of_the_old_url_after_the_change_holds_nothing_back() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let gate = Gate::default();
    let key = server.topic("orders", "EventGridSchema");
    let to = |path: &str| SubscriptionSpec::new(&sink.url(path));
    server.subscribe("orders", "moved", &to("/old"));
    server.subscribe("orders", "other", &to("/new").prefix("/other"));
    sink.set("/old", Behavior::GatedRetryAfter(gate.clone(), 3600));
    server.publish("orders", &key, &load::body(&["first".to_owned()], "/a"));
    wait_for("the request", LONG, || {
        server.status("orders", "moved")["inFlight"] == 1
    });
    server.subscribe("orders", "moved", &to("/new"));
    gate.open();
    wait_for("its outcome", LONG, || {
        server.counter("orders", "moved", "requestsFailed") == 1
    });
    server.publish(
        "orders",
        &key,
        &load::body(&["second".to_owned()], "/other"),
    );
    let delivered = |server: &Server, name: &str| server.counter("orders", name, "delivered");
    wait_for("the event of both", LONG, || {
        ["moved", "other"]
            .iter()
            .all(|name| delivered(&server, name) == 1)
    });
    server.kill_9();
    server.restart();
    server.publish("orders", &key, &load::body(&["third".to_owned()], "/other"));
    wait_for("the event after a kill", LONG, || {
        ["moved", "other"]
            .iter()
            .all(|name| delivered(&server, name) == 2)
    });
    assert_eq!(
        server.counter("orders", "moved", "pending"),
        1,
        "the event that failed keeps its time"
    );
}

#[test]
fn an_operator_retries_one_pending_event_and_then_all_of_them() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let spec = SubscriptionSpec::new(&sink.url("/hook"))
        .also(&json!({}), &json!({"retryPolicy": {"schedule": ["1h"]}}));
    server.subscribe("orders", "hook", &spec);
    sink.set(
        "/hook",
        Behavior::Statuses(VecDeque::from([503, 503, 503, 503])),
    );
    let ids: Vec<String> = ["one", "two", "three", "four"].map(str::to_owned).to_vec();
    for id in &ids {
        server.publish("orders", &key, &load::body(std::slice::from_ref(id), "/a"));
    }
    wait_for("their failures", LONG, || {
        server.counter("orders", "hook", "requestsFailed") == 4
    });
    let path = format!("{}/retry", subscription("orders", "hook"));
    let retried = server
        .command("POST", &path, &json!({"sequences": [2, 99]}))
        .json();
    assert_eq!(retried, json!({"events": 1}));
    wait_for("the event", LONG, || sink.taken("/hook") == 1);
    assert_eq!(sink.ledger("/hook")["two"].len(), 2);
    wait_for("its end", LONG, || {
        server.counter("orders", "hook", "pending") == 3
    });
    let topic = path.split("/eventSubscriptions/").next().expect("a topic");
    // The counters are those of the write in progress; the history is on disk once it is durable.
    let traced = || operator(&server, &["trace", "two", "--topic", topic]).expect("a history");
    wait_for("the early attempt in its history", LONG, || {
        traced().contains("before its time")
    });
    // The new due times are on disk before the response to the command, also if no attempt has an
    // outcome.
    sink.set("/hook", Behavior::Hang);
    let output = operator(&server, &["subscriptions", "retry", topic, "hook"]).expect("done");
    assert!(output.contains("3 pending deliveries"), "{output}");
    server.kill_9();
    server.assert_sound();
    sink.set("/hook", Behavior::Respond(200));
    server.restart();
    wait_for("all events", LONG, || sink.taken("/hook") == 4);
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(
        server.command("POST", &path, &json!({"all": true})).json(),
        json!({"events": 0})
    );
    let output = operator(&server, &["audit", "--search", "/retry"]).expect("a table");
    assert!(
        output.contains("sequences") && output.contains("all"),
        "{output}"
    );
    for (body, text) in [
        (json!({}), "sequences"),
        (json!({"sequences": []}), "1 to 1000"),
        (json!({"sequences": vec![2; 1001]}), "1 to 1000"),
        (json!({"all": true, "sequences": [2]}), "either"),
        (json!({"sequences": [2], "after": "x"}), "with or without"),
        (json!({"all": true, "after": "x"}), "next"),
    ] {
        let response = server.admin("POST", &path, &body);
        assert!(
            response.status == 400 && response.text().contains(text),
            "{body}: {}",
            response.text()
        );
    }
    let many = [
        &["subscriptions", "retry", topic, "hook"][..],
        &["2"].repeat(1001),
    ]
    .concat();
    let output = operator(&server, &many).expect("more than one request");
    assert!(output.contains("0 pending deliveries"), "{output}");
    server.post_verb("orders", "hook", "hold");
    let response = server.admin("POST", &path, &json!({"all": true}));
    assert!(
        response.status == 409 && response.text().contains("resume it first"),
        "{}",
        response.text()
    );
}

#[test]
fn events_that_an_endpoint_refuses_do_not_suspend_it() {
    let server = Server::start(&[("DELIVERY__CONCURRENCY", "1")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Statuses(VecDeque::from([400; 30])));
    let ids: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    server.publish("orders", &key, &load::body(&ids, "/a"));
    wait_for("the good events", LONG, || sink.taken("/hook") == 10);
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(server.counter("orders", "hook", "dropped"), 30);
    assert_eq!(
        server.status("orders", "hook")["health"]["state"],
        "healthy"
    );
    let arrivals: Vec<_> = sink.ledger("/hook").into_values().flatten().collect();
    let first = arrivals.iter().map(|one| one.at).min();
    let last = arrivals.iter().map(|one| one.at).max();
    let took = last.expect("some").since(first.expect("some"));
    assert!(took < LONG, "{took:?}");
}
