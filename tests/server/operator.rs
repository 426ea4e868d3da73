//! The commands of an operator against the real server: topics, event subscriptions, why an event
//! waits.

use expect_test::expect;
use serde_json::Value;

use super::LONG;
use crate::support::{
    load,
    server::{Server, operator, say, wait_for},
    sink::{Behavior, Sink},
};

fn json(reported: &str) -> Value {
    serde_json::from_str(reported).unwrap_or_else(|error| panic!("{error}: {reported}"))
}

/// Runs a command that succeeds, and returns its output.
fn done(server: &Server, arguments: &[&str]) -> String {
    operator(server, arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

/// Runs a command that is refused, and returns its message.
fn refused(server: &Server, arguments: &[&str]) -> String {
    operator(server, arguments).expect_err("a refusal")
}

/// Ports and times differ from run to run.
fn masked(server: &Server, text: &str) -> String {
    text.replace(&server.address().to_string(), "SERVER")
}

#[test]
fn topics_are_made_changed_listed_and_deleted() {
    let server = Server::start(&[]);
    let output = done(
        &server,
        &[
            "topics",
            "create",
            "orders",
            "--tag",
            "team=shop",
            "--allow-from",
            "127.0.0.0/8",
        ],
    );
    expect![[r#"
        created orders
        id                   /subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/orders
        endpoint             http://SERVER/topics/orders/api/events
        input schema         EventGridSchema
        edition              test
        location             local
        tags                 team=shop
        access keys          accepted
        public network       Enabled
        allowed from         127.0.0.0/8"#]]
    .assert_eq(&masked(&server, &output));
    expect!["gridhook: orders already exists; change it with gridhook topics update orders"]
        .assert_eq(&refused(&server, &["topics", "create", "orders"]));
    // The same again: a response may have been lost.
    let again = done(
        &server,
        &[
            "topics",
            "create",
            "orders",
            "--tag",
            "team=shop",
            "--allow-from",
            "127.0.0.0/8",
        ],
    );
    assert_eq!(again, output.replace("created", "exists, unchanged:"));

    done(
        &server,
        &[
            "topics",
            "create",
            "domains/shop",
            "--input-schema",
            "CloudEventSchemaV1_0",
        ],
    );
    done(&server, &["topics", "create", "domains/shop/topics/europe"]);
    expect![[r#"
        NAME          SCHEMA                EDITION  LOCATION  ENDPOINT
        orders        EventGridSchema       test     local     http://SERVER/topics/orders/api/events
        domains/shop  CloudEventSchemaV1_0  test     local     http://SERVER/domains/shop/api/events"#]]
    .assert_eq(&masked(&server, &done(&server, &["topics", "list"])));
    let topics = json(&done(
        &server,
        &["topics", "list", "domains/shop", "--output", "json"],
    ));
    assert_eq!(topics["value"][0]["name"], "europe", "{topics}");

    let changed = done(
        &server,
        &[
            "topics",
            "update",
            "orders",
            "--local-auth",
            "false",
            "--output",
            "json",
        ],
    );
    let properties = &json(&changed)["properties"];
    assert_eq!(
        (
            &properties["disableLocalAuth"],
            &properties["inboundIpRules"][0]["ipMask"]
        ),
        (&true.into(), &"127.0.0.0/8".into())
    );
    assert!(refused(&server, &["topics", "update", "orders"]).contains("no properties to change"));

    let [before, after] = [&[][..], &["--regenerate", "key2", "--yes"]].map(|more| {
        json(&done(
            &server,
            &[&["topics", "keys", "orders", "--output", "json"], more].concat(),
        ))
    });
    assert_eq!(before["key1"], after["key1"]);
    assert_ne!(before["key2"], after["key2"]);

    expect![
        "gridhook: Delete orders, its events and its 0 event subscriptions? Nothing was done: \
         confirmation needs a terminal or --yes"
    ]
    .assert_eq(&refused(&server, &["topics", "delete", "orders"]));
    expect!["deleted orders"].assert_eq(&done(&server, &["topics", "delete", "orders", "--yes"]));
    let left = json(&done(&server, &["topics", "list", "--output", "json"]));
    assert_eq!(left["value"].as_array().map(Vec::len), Some(1), "{left}");
}

#[test]
fn subscriptions_are_made_changed_held_and_shown_and_their_filters_tried() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let url = sink.url("/hook?code=secret");
    done(&server, &["topics", "create", "orders"]);
    create_and_show(&server, &url);

    let listed = done(&server, &["subscriptions", "list"]);
    assert!(
        listed.starts_with("TOPIC") && listed.contains("\norders"),
        "{listed}"
    );
    change_attempts(&server);

    hold_and_explain(&server);
    let resumed = json(&done(
        &server,
        &[
            "subscriptions",
            "resume",
            "orders",
            "billing",
            "--output",
            "json",
        ],
    ));
    assert_eq!(resumed["heldBy"], Value::Null);
    let healthy = refused(&server, &["subscriptions", "probe", "orders", "billing"]);
    assert!(healthy.contains("the endpoint is healthy"), "{healthy}");
    assert_eq!(
        done(
            &server,
            &["subscriptions", "delete", "orders", "billing", "--yes"]
        ),
        "deleted billing of orders"
    );
}

fn create_and_show(server: &Server, url: &str) {
    let flags = [
        "--endpoint",
        url,
        "--subject-begins-with",
        "/a",
        "--time-to-live",
        "2h",
        "--dead-letters",
        "/r",
    ];
    let made = done(
        server,
        &[
            &["subscriptions", "create", "orders", "billing"][..],
            &flags,
            &["--container", "dead"],
        ]
        .concat(),
    );
    assert!(
        made.contains("subject begins    /a") && made.contains("attempts within 2h"),
        "{made}"
    );
    assert!(
        made.contains("dead letters      /r/dead") && !made.contains("secret"),
        "{made}"
    );
    let output = done(
        server,
        &["subscriptions", "show", "orders", "billing", "--full-url"],
    );
    assert!(
        output.contains("code=secret") && output.contains("health            healthy"),
        "{output}"
    );
}

fn change_attempts(server: &Server) {
    let changed = [
        "subscriptions",
        "update",
        "orders",
        "billing",
        "--max-attempts",
        "7",
        "--output",
        "json",
    ];
    let changed = json(&done(server, &changed));
    let retry = &changed["properties"]["retryPolicy"];
    assert_eq!(
        (
            &retry["maxDeliveryAttempts"],
            &retry["eventTimeToLiveInMinutes"]
        ),
        (&7.into(), &120.into())
    );
}

fn hold_and_explain(server: &Server) {
    let key = json(&done(
        server,
        &["topics", "keys", "orders", "--output", "json"],
    ));
    let key = key["key1"].as_str().expect("a key");
    assert!(
        done(server, &["subscriptions", "hold", "orders", "billing"])
            .contains("held by           operator")
    );
    server.publish("orders", key, &load::body(&["first".to_owned()], "/a"));
    server.publish("orders", key, &load::body(&["other".to_owned()], "/b"));
    let tested = done(
        server,
        &[
            "subscriptions",
            "test-filter",
            "orders",
            "billing",
            "--last",
            "10",
        ],
    );
    assert!(
        tested.starts_with("1 of 2 events match") && tested.contains("subjectBeginsWith"),
        "{tested}"
    );
    let explained = done(server, &["explain", "orders", "billing", "first"]);
    assert!(
        explained.contains("event first, sequence 1, for billing: "),
        "{explained}"
    );
    assert!(
        explained.contains("blocked: the subscription is held by operator"),
        "{explained}"
    );
    let nowhere = refused(server, &["explain", "orders", "billing", "second"]);
    assert!(
        nowhere.contains("event 'second' was not found among 0 events in flight"),
        "{nowhere}"
    );
}

#[test]
fn a_suspended_endpoint_is_shown_with_its_probe_and_probed() {
    let server = Server::start(&[
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "1"),
        ("POLICY__EDITION", "current"),
    ]);
    let sink = Sink::start();
    done(
        &server,
        &["topics", "create", "orders", "--edition", "current"],
    );
    done(
        &server,
        &[
            "subscriptions",
            "create",
            "orders",
            "billing",
            "--endpoint",
            &sink.url("/hook"),
        ],
    );
    sink.set("/hook", Behavior::Respond(503));
    let key = json(&done(
        &server,
        &["topics", "keys", "orders", "--output", "json"],
    ));
    server.publish(
        "orders",
        key["key1"].as_str().expect("a key"),
        &load::body(&["first".to_owned()], "/a"),
    );
    let shown = || done(&server, &["subscriptions", "show", "orders", "billing"]);
    wait_for("the endpoint to be suspended", LONG, || {
        shown().contains("suspended for Busy; next probe 20")
    });
    assert!(shown().contains("(in "), "{}", shown());
    let probed = done(&server, &["subscriptions", "probe", "orders", "billing"]);
    assert!(
        probed.contains("probing") || probed.contains("suspended"),
        "{probed}"
    );
}

#[test]
fn an_unknown_name_is_reported_with_similar_ones() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    done(&server, &["topics", "create", "orders"]);
    done(&server, &["topics", "create", "invoices"]);
    done(
        &server,
        &[
            "subscriptions",
            "create",
            "orders",
            "billing",
            "--endpoint",
            &sink.url("/hook"),
        ],
    );
    let ends = |arguments: &[&str], end: &str| {
        let message = refused(&server, arguments);
        assert!(message.ends_with(end), "{arguments:?}: {message}");
    };
    ends(
        &["topics", "show", "ordres"],
        "was not found. Did you mean orders?",
    );
    ends(
        &["topics", "show", "zzz"],
        "was not found. Existing names: invoices, orders.",
    );
    ends(
        &["subscriptions", "show", "orders", "biling"],
        "was not found. Did you mean billing?",
    );
    ends(
        &["subscriptions", "list", "order"],
        "was not found. Did you mean orders?",
    );
    ends(
        &["ledger", "orders", "x"],
        "was not found. Existing names: billing.",
    );
    ends(
        &["topics", "show", "domains/shop"],
        "was not found. There are no domains.",
    );
    let elsewhere =
        "/subscriptions/local/resourceGroups/other/providers/Microsoft.EventGrid/topics/orders";
    ends(
        &["topics", "show", elsewhere],
        "use its resource id, \
         /subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/orders",
    );
}

#[test]
fn errors_of_an_absent_server_and_a_wrong_token_say_what_to_do() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "wrong").expect("a file");
    let (token, at) = (
        token.to_str().expect("text"),
        format!("http://{}", server.address()),
    );
    let (status, reported) = say(&["topics", "list", "--server", &at, "--token-file", token]);
    assert!(
        !status.success()
            && reported.contains("401")
            && reported.contains("use --token-file for another"),
        "{reported}"
    );
    let (status, reported) = say(&["topics", "list", "--server", &at, "--token-file", "nowhere"]);
    assert!(
        !status.success() && reported.contains("nowhere cannot be read"),
        "{reported}"
    );
    let (status, reported) = say(&[
        "topics",
        "list",
        "--server",
        "http://127.0.0.1:9",
        "--token-file",
        token,
    ]);
    assert!(
        !status.success() && reported.contains("check that the server runs"),
        "{reported}"
    );
}
