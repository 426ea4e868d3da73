//! Commands do what they say, ask before they do much, and lead on.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use super::Folder;
use crate::support::{
    server::{Server, wait_for},
    sink::{Behavior, Sink},
};

const LONG: Duration = Duration::from_secs(60);

fn event(id: &str, subject: &str, data: &str) -> String {
    format!(
        r#"{{"id": "{id}", "eventType": "Order.Placed", "subject": "{subject}", "eventTime": "2026-01-01T00:00:00Z",
        "dataVersion": "1", "data": {data}}}"#
    )
}

fn publish(server: &Server, folder: &Folder, topic: &str, events: &[String]) {
    folder.write("events.json", &format!("[{}]", events.join(",")));
    folder.done(server, &["publish", topic, "events.json"]);
}

fn status(server: &Server, folder: &Folder, name: &str) -> Value {
    let shown = folder.done(
        server,
        &["subscriptions", "show", "orders", name, "--output", "json"],
    );
    serde_json::from_str::<Value>(&shown).expect("JSON")["status"].take()
}

#[test]
fn a_flag_for_a_subject_keeps_the_other_filters_of_a_namespace() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let folder = Folder::with_token_from(&server);
    let heat = "namespaces/plant/topics/heat";
    folder.done(&server, &["topics", "create", "namespaces/plant"]);
    folder.done(&server, &["topics", "create", heat]);
    let filters = json!([
        {"operatorType": "NumberGreaterThan", "key": "data.degrees", "value": 100},
        {"operatorType": "StringBeginsWith", "key": "subject", "values": ["/old"]},
        {"operatorType": "StringContains", "key": "subject", "values": ["boiler"]},
    ]);
    folder.write(
        "body.json",
        &json!({"properties": {"filtersConfiguration": {"filters": filters}}}).to_string(),
    );
    let filters_of = |text: &str| {
        let subscription: Value = serde_json::from_str(text).expect("JSON");
        let filters = subscription["properties"]["filtersConfiguration"]["filters"]
            .as_array()
            .expect("a list")
            .clone();
        let short = |filter: &Value| {
            format!(
                "{} {} {}{}",
                filter["operatorType"], filter["key"], filter["values"], filter["value"]
            )
        };
        filters
            .iter()
            .map(short)
            .collect::<Vec<_>>()
            .join("\n")
            .replace('"', "")
            .replace("null", "")
    };
    for (name, mode) in [
        ("work", vec!["--pull"]),
        ("hook", vec!["--endpoint", &sink.url("/a")]),
    ] {
        let create = [
            &[
                "subscriptions",
                "create",
                heat,
                name,
                "--body",
                "body.json",
                "--output",
                "json",
            ][..],
            &mode,
        ];
        let created = folder.done(
            &server,
            &[&create.concat()[..], &["--subject-ends-with", ".hot"]].concat(),
        );
        expect![[r#"
            NumberGreaterThan data.degrees 100
            StringBeginsWith subject [/old]
            StringContains subject [boiler]
            StringEndsWith subject [.hot]"#]]
        .assert_eq(&filters_of(&created));
        let update = [
            "subscriptions",
            "update",
            heat,
            name,
            "--subject-begins-with",
            "/x",
            "--output",
            "json",
        ];
        expect![[r#"
            NumberGreaterThan data.degrees 100
            StringContains subject [boiler]
            StringEndsWith subject [.hot]
            StringBeginsWith subject [/x]"#]]
        .assert_eq(&filters_of(&folder.done(&server, &update)));
    }
}

#[test]
fn a_flag_takes_precedence_over_both_forms_of_a_file() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let folder = Folder::with_token_from(&server);
    folder.done(&server, &["topics", "create", "orders"]);
    folder.done(
        &server,
        &[
            "subscriptions",
            "create",
            "orders",
            "billing",
            "--endpoint",
            &sink.url("/a"),
        ],
    );
    for (text, given) in [
        (
            r#"{"filter": {"subjectBeginsWith": "/file", "subjectEndsWith": ".file"}}"#,
            "/one",
        ),
        (
            r#"{"properties": {"filter": {"subjectBeginsWith": "/file", "subjectEndsWith": ".file"}}}"#,
            "/two",
        ),
    ] {
        folder.write("change.json", text);
        let update = [
            "subscriptions",
            "update",
            "orders",
            "billing",
            "--body",
            "change.json",
            "--output",
            "json",
        ];
        let changed = folder.done(
            &server,
            &[&update[..], &["--subject-begins-with", given]].concat(),
        );
        let changed: Value = serde_json::from_str(&changed).expect("JSON");
        let filter = &changed["properties"]["filter"];
        assert_eq!(
            (&filter["subjectBeginsWith"], &filter["subjectEndsWith"]),
            (&given.into(), &".file".into())
        );
    }
}

#[test]
fn what_exists_is_not_said_to_be_created() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let folder = Folder::with_token_from(&server);
    let url = sink.url("/a");
    let subscription = [
        "subscriptions",
        "create",
        "orders",
        "billing",
        "--endpoint",
        &url,
    ];
    for (arguments, name) in [
        (&["topics", "create", "orders"][..], "orders"),
        (&subscription, "billing of orders"),
    ] {
        let first = folder.done(&server, arguments);
        let again = folder.done(&server, arguments);
        assert_eq!(
            first.lines().next(),
            Some(format!("created {name}").as_str())
        );
        assert_eq!(
            again.lines().next(),
            Some(format!("exists, unchanged: {name}").as_str())
        );
    }
    let tailed = folder.refused(&server, &["tail", "orders/biling"]);
    assert!(
        tailed.error.contains("404")
            && tailed
                .error
                .ends_with("was not found. Did you mean billing?"),
        "{tailed:?}"
    );
}

#[test]
fn only_other_values_than_the_defaults_are_changed_settings() {
    let folder = Folder::new();
    let defaults = include_str!("../../config/gridhook.toml");
    folder.write("gridhook.toml", defaults);
    let check = ["config", "check", "--changed", "--config", "gridhook.toml"];
    expect!["KEY  VALUE  FROM"].assert_eq(&folder.run(&check, &[]).out);
    let ended = folder.run(&check, &[("GRIDHOOK_LOG__FORMAT", "json")]);
    expect![[r#"
        KEY         VALUE   FROM
        log.format  "json"  environment variable GRIDHOOK_LOG__FORMAT"#]]
    .assert_eq(&ended.out);
}

#[test]
fn a_replay_and_a_purge_ask_with_the_number_of_events() {
    let server = Server::start(&[("JOURNAL__RETENTION", "1h")]);
    let sink = Sink::start();
    let folder = Folder::with_token_from(&server);
    folder.done(&server, &["topics", "create", "orders"]);
    let flags = [
        "--endpoint",
        &sink.url("/a"),
        "--max-attempts",
        "1",
        "--dead-letters",
        "/r",
        "--container",
        "letters",
    ];
    folder.done(
        &server,
        &[
            &["subscriptions", "create", "orders", "billing"][..],
            &flags,
        ]
        .concat(),
    );
    sink.set("/a", Behavior::Respond(400));
    publish(
        &server,
        &folder,
        "orders",
        &["1", "2", "3"].map(|id| event(id, "/a", "{}")),
    );
    wait_for("three dead letters", LONG, || {
        status(&server, &folder, "billing")["counters"]["deadLettered"] == 3
    });

    let says = |arguments: &[&str]| folder.refused(&server, arguments);
    let replay = ["replay", "start", "orders", "billing"];
    let purge = ["dead-letters", "purge", "orders", "billing"];
    let refused = says(&replay);
    expect![
        "gridhook: no events selected; use --from, --to, --from-sequence or --to-sequence, or --all"
    ]
    .assert_eq(&refused.error);
    assert_eq!(refused.code, Some(2));
    let asked = |command: &[&str], flags: &[&str]| says(&[command, flags].concat()).error;
    expect![
        "gridhook: Send 3 events to billing of orders again? Nothing was done: confirmation needs \
         a terminal or --yes"
    ]
    .assert_eq(&asked(&replay, &["--all"]));
    expect![
        "gridhook: Send 1 event to billing of orders again? Nothing was done: confirmation needs a \
         terminal or --yes"
    ]
    .assert_eq(&asked(&replay, &["--from-sequence", "3"]));
    expect![
        "gridhook: Purge 3 dead letters of billing of orders? Nothing was done: confirmation needs \
         a terminal or --yes"
    ]
    .assert_eq(&asked(&purge, &["--from", "1h"]));
    expect![
        "gridhook: Purge 1 dead letter of billing of orders? Nothing was done: confirmation needs \
         a terminal or --yes"
    ]
    .assert_eq(&asked(&purge, &["--id", "2"]));
    expect!["1 dead letter purged"]
        .assert_eq(&folder.done(&server, &[&purge[..], &["--id", "2", "--yes"]].concat()));
    let started = folder.done(
        &server,
        &[&replay[..], &["--all", "--yes", "--output", "json"]].concat(),
    );
    let started: Value = serde_json::from_str(&started).expect("JSON");
    assert_eq!(
        (&started["kind"], &started["toSequence"]),
        (&"replay".into(), &3.into()),
        "{started}"
    );
}

#[test]
fn a_dead_letter_is_shown_as_it_was_published() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let folder = Folder::with_token_from(&server);
    folder.done(&server, &["topics", "create", "orders"]);
    let flags = [
        "--endpoint",
        &sink.url("/a"),
        "--max-attempts",
        "1",
        "--dead-letters",
        "/r",
        "--container",
        "letters",
    ];
    folder.done(
        &server,
        &[
            &["subscriptions", "create", "orders", "billing"][..],
            &flags,
        ]
        .concat(),
    );
    sink.set("/a", Behavior::Respond(400));
    let data = r#"{"z": 12.50, "a": [1e2, {}, [ ]], "text": "a \"{\" : , b"}"#;
    publish(&server, &folder, "orders", &[event("1", "/a", data)]);
    let mut key = String::new();
    wait_for("a dead letter", LONG, || {
        let list = folder.done(
            &server,
            &[
                "dead-letters",
                "list",
                "orders",
                "billing",
                "--output",
                "json",
            ],
        );
        let list: Value = serde_json::from_str(&list).expect("JSON");
        key = list["value"][0]["key"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        !key.is_empty()
    });
    let shown = folder.done(
        &server,
        &["dead-letters", "show", "orders", "billing", &key],
    );
    let shown = shown
        .split("\"data\": ")
        .nth(1)
        .unwrap_or(&shown)
        .split("\n    }")
        .next()
        .unwrap_or_default()
        .to_owned();
    expect![[r#"
        {
              "z": 12.50,
              "a": [
                1e2,
                {},
                []
              ],
              "text": "a \"{\" : , b""#]]
    .assert_eq(&shown);
}

#[test]
fn explanations_and_histories_lead_on() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let folder = Folder::with_token_from(&server);
    folder.done(&server, &["topics", "create", "orders"]);
    folder.done(
        &server,
        &[
            "subscriptions",
            "create",
            "orders",
            "billing",
            "--endpoint",
            &sink.url("/a"),
        ],
    );
    publish(&server, &folder, "orders", &[event("t1", "/a", "{}")]);
    let trace = "gridhook trace 1 --sequence --topic orders";
    let explanation = format!("delivery has ended; {trace} shows the outcome");
    wait_for("the end of the delivery", LONG, || {
        folder
            .done(
                &server,
                &["explain", "orders", "billing", "1", "--sequence"],
            )
            .contains(&explanation)
    });
    let traced = folder.done(&server, &trace.split(' ').skip(1).collect::<Vec<_>>());
    assert!(
        traced.contains("billing: delivered at attempt 1"),
        "{traced}"
    );
    expect![[r#"
        event 999 in orders
        not published yet: the log ends before 2"#]]
    .assert_eq(&folder.done(
        &server,
        &["trace", "999", "--sequence", "--topic", "orders"],
    ));
    let ledger = folder.done(&server, &["ledger", "orders", "billing"]);
    assert!(
        ledger.contains("  sequence 1: ") && !ledger.contains("event 1"),
        "{ledger}"
    );
}

#[test]
fn blocked_order_keys_are_shown_with_what_unblocks_them() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let folder = Folder::with_token_from(&server);
    folder.done(&server, &["topics", "create", "orders"]);
    let order = [
        "--ordering-key",
        "subject",
        "--on-failure",
        "block",
        "--max-attempts",
        "1",
    ];
    let create = [
        "subscriptions",
        "create",
        "orders",
        "ordered",
        "--endpoint",
        &sink.url("/a"),
    ];
    folder.done(&server, &[&create[..], &order].concat());
    sink.set("/a", Behavior::Respond(400));
    let events: Vec<String> = (1..=8)
        .map(|number| event(&number.to_string(), &format!("/{number}"), "{}"))
        .collect();
    publish(&server, &folder, "orders", &events);
    wait_for("blocked keys", LONG, || {
        status(&server, &folder, "ordered")["order"]["blockedKeys"] == 8
    });
    let shown = folder.done(&server, &["subscriptions", "show", "orders", "ordered"]);
    let line = "order             8 keys blocked; gridhook subscriptions unblock orders ordered \
        KEY, or --all";
    assert!(shown.lines().any(|shown| shown == line), "{shown}");
}

#[test]
fn a_change_of_many_values_is_audited_in_short_lines() {
    let server = Server::start(&[]);
    let folder = Folder::with_token_from(&server);
    let allow: Vec<String> = (0..64)
        .map(|number| format!("10.0.{number}.0/24"))
        .collect();
    let flags: Vec<&str> = allow
        .iter()
        .flat_map(|network| ["--allow-from", network])
        .collect();
    folder.done(
        &server,
        &[&["topics", "create", "orders"][..], &flags].concat(),
    );
    let printed = folder.done(&server, &["audit", "--search", "PUT"]);
    assert!(printed.lines().count() > 3, "{printed}");
    let long: Vec<&str> = printed
        .lines()
        .skip(2)
        .filter(|line| line.chars().count() > 200)
        .collect();
    assert!(
        long.is_empty()
            && printed.contains("    inboundIpRules: ") | printed.contains("    properties."),
        "{printed}"
    );
}
