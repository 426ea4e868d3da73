//! Duplicate detection in the real server: a publisher that got no response before `kill -9` sends
//! its events again.

use serde_json::{Value, json};

use super::LONG;
use crate::support::{
    load,
    server::{Server, SubscriptionSpec, wait_for},
    sink::Sink,
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

fn publish(server: &Server, key: &str, ids: &[&str]) {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    server.publish("orders", key, &load::body(&ids, "s"));
}

fn metric(server: &Server, name: &str) -> String {
    let name = format!("{name}{{topic=\"orders\"}} ");
    let text = server.command("GET", "/metrics", &Value::Null).text();
    text.lines()
        .find_map(|line| line.strip_prefix(&name))
        .unwrap_or_else(|| panic!("no {name}"))
        .to_owned()
}

#[test]
fn events_that_are_sent_again_after_kill_9_are_stored_once_counted_and_shown() {
    let mut server = Server::start(&[("JOURNAL__RETENTION", "1h")]);
    let sink = Sink::start();
    let key = server.topic_of("orders", &json!({"inputSchema": "EventGridSchema"}));
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    // An id from before the detection is not known.
    publish(&server, &key, &["old"]);
    let (status, text) = server.say(&["topics", "update", TOPIC, "--duplicate-window", "PT12H"]);
    assert!(status.success(), "{text}");
    publish(&server, &key, &["old", "a", "b"]);
    server.kill_9();
    server.restart();
    publish(&server, &key, &["a", "b", "c", "c"]);
    publish(&server, &key, &["a"]);
    server.kill_9();
    server.assert_sound();
    server.restart();
    publish(&server, &key, &["b"]);
    assert_eq!(
        metric(&server, "gridhook_topic_published_events_total"),
        "5",
        "old twice, a, b, c"
    );
    assert_eq!(
        metric(&server, "gridhook_topic_duplicate_events_total"),
        "1",
        "since the process started"
    );
    assert_eq!(server.topic_status("orders")["duplicateEvents"], 1);
    wait_for("the delivery", LONG, || {
        server.counter("orders", "hook", "delivered") == 5
    });

    let trace = |id: &str| {
        server
            .command("GET", &format!("{TOPIC}/trace?id={id}"), &Value::Null)
            .json()
    };
    for (id, duplicates) in [("a", 2), ("b", 2), ("c", 1)] {
        let events = trace(id)["events"].clone();
        assert_eq!(events.as_array().map(Vec::len), Some(1), "{events}");
        assert_eq!(events[0]["duplicates"], duplicates, "{events}");
        assert!(events[0]["lastDuplicate"].is_string(), "{events}");
    }
    let old = trace("old")["events"].clone();
    let duplicates: Vec<_> = old
        .as_array()
        .expect("a list")
        .iter()
        .map(|event| event["duplicates"].clone())
        .collect();
    assert_eq!(
        duplicates,
        [Value::Null, json!(0)],
        "the record is of the second one"
    );
    let (status, text) = server.say(&["trace", "a", "--subscription-id", "s"]);
    assert!(
        status.success() && text.contains("published again; 2 duplicates were not stored"),
        "{text}"
    );

    let (status, text) = server.say(&["topics", "update", TOPIC, "--duplicate-window", "off"]);
    assert!(status.success(), "{text}");
    publish(&server, &key, &["a"]);
    assert_eq!(
        metric(&server, "gridhook_topic_published_events_total"),
        "6"
    );
    let response = server.admin(
        "PATCH",
        TOPIC,
        &json!({"properties": {"duplicateDetectionHistoryTimeWindow": "PT19S"}}),
    );
    assert_eq!(response.status, 400, "{}", response.text());
    assert!(
        response.text().contains("from PT20S to P7D"),
        "{}",
        response.text()
    );
}
