//! Events about the server itself, on its system topic.

use std::{collections::BTreeMap, sync::Arc};

use gridhook::{clock::Clock, control::system_events::SystemEvents};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LONG, wait_until_settled};
use crate::support::{
    certificates::Authority,
    endpoint::{Endpoint, respond},
    load,
    server::{Server, SubscriptionSpec, subscription, wait_for},
    sink::{Behavior, Sink},
};

pub(super) const UNASKED: (&str, &str) = ("DELIVERY__VALIDATE", "false");
pub(super) const TOPIC: (&str, &str) = ("SYSTEM_TOPIC__NAME", "server");
pub(super) const INTERVAL: (&str, &str) = ("SYSTEM_TOPIC__INTERVAL", "100ms");

/// The events that arrived at the endpoint.
fn events(endpoint: &Endpoint) -> Vec<Value> {
    endpoint
        .requests()
        .iter()
        .map(|request| serde_json::from_slice(&request.body).expect("JSON"))
        .collect()
}

/// The events with this type.
fn events_with_type(endpoint: &Endpoint, event_type: &str) -> Vec<Value> {
    events(endpoint)
        .into_iter()
        .filter(|event| event["type"] == event_type)
        .collect()
}

fn wait_for_type(endpoint: &Endpoint, event_type: &str) -> Value {
    wait_for(event_type, LONG, || {
        !events_with_type(endpoint, event_type).is_empty()
    });
    events_with_type(endpoint, event_type).swap_remove(0)
}

fn counted(server: &Server, result: &str) -> u64 {
    let text = server.command("GET", "/metrics", &Value::Null).text();
    let line = format!("gridhook_system_events_total{{result=\"{result}\"}} ");
    text.lines()
        .find_map(|found| found.strip_prefix(&line)?.parse().ok())
        .expect("a counter")
}

fn cloud_spec(endpoint: &Endpoint) -> SubscriptionSpec {
    SubscriptionSpec::new(&endpoint.url()).schema("CloudEventSchemaV1_0")
}

#[test]
fn changes_health_and_dead_letters_of_event_subscriptions_are_published_once() {
    let mut server = Server::start(&[
        TOPIC,
        INTERVAL,
        UNASKED,
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "1"),
    ]);
    let subscriber = Endpoint::start(vec![respond(200, "", "")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.topic("server", "CloudEventSchemaV1_0");
    server.subscribe("server", "all", &cloud_spec(&subscriber));
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).dead_letters("letters"),
    );
    let path = subscription("orders", "hook");
    let id = path.split('?').next().expect("a path").to_owned();
    assert_creation_is_published(&subscriber, &id);

    change_and_hold(&server, &subscriber, &id);

    dead_letter_an_event(&server, &sink, &subscriber, &key, &id);

    suspend_the_endpoint(&server, &sink, &subscriber, &key, &id);
    // Another process reports the state again, but not the dead letters of the last.
    server.terminate();
    sink.set("/hook", Behavior::Respond(503));
    server.restart();
    wait_for("the state again", LONG, || {
        events_with_type(&subscriber, "Gridhook.SubscriptionSuspended").len() == 2
    });

    delete_the_subscription(&server, &subscriber, &id);

    assert_each_change_is_published_once(&subscriber);
    server.terminate();
    server.assert_sound();
}

fn assert_creation_is_published(subscriber: &Endpoint, id: &str) {
    let created = wait_for_type(subscriber, "Microsoft.EventGrid.SubscriptionCreated");
    assert_eq!(
        (&created["subject"], &created["data"]),
        (&json!(id), &json!({ "eventSubscriptionId": id }))
    );
    assert!(
        created["source"]
            .as_str()
            .is_some_and(|source| source.ends_with("/topics/server")),
        "{created}"
    );
    assert!(
        created["id"].is_string() && created["time"].is_string() && created["specversion"] == "1.0",
        "{created}"
    );
}

fn change_and_hold(server: &Server, subscriber: &Endpoint, id: &str) {
    server.patch("orders", "hook", &json!({ "labels": ["new"] }));
    wait_for_type(subscriber, "Microsoft.EventGrid.SubscriptionUpdated");
    server.post_verb("orders", "hook", "hold");
    let held = wait_for_type(subscriber, "Gridhook.SubscriptionHeld");
    assert_eq!(
        held["data"],
        json!({ "eventSubscriptionId": id, "cause": "operator" })
    );
    server.post_verb("orders", "hook", "resume");
    wait_for_type(subscriber, "Gridhook.SubscriptionResumed");
}

fn dead_letter_an_event(server: &Server, sink: &Sink, subscriber: &Endpoint, key: &str, id: &str) {
    sink.set("/hook", Behavior::Respond(400));
    server.publish("orders", key, &load::body(&["a".to_owned()], "/a"));
    let dead = wait_for_type(subscriber, "Gridhook.SubscriptionDeadLettered");
    assert_eq!(
        dead["data"],
        json!({ "eventSubscriptionId": id, "deadLettered": 1, "deadLetteredTotal": 1 })
    );
    let blob = wait_for_type(subscriber, "Microsoft.Storage.BlobCreated");
    assert_eq!(blob["data"]["contentType"], "application/json", "{blob}");
}

fn suspend_the_endpoint(server: &Server, sink: &Sink, subscriber: &Endpoint, key: &str, id: &str) {
    sink.set("/hook", Behavior::Respond(503));
    server.publish("orders", key, &load::body(&["b".to_owned()], "/a"));
    let suspended = wait_for_type(subscriber, "Gridhook.SubscriptionSuspended");
    assert_eq!(
        (
            &suspended["subject"],
            &suspended["data"]["consecutiveSuspensions"]
        ),
        (&json!(id), &json!(1))
    );
    for key in ["cause", "since", "until"] {
        assert!(suspended["data"][key].is_string(), "{suspended}");
    }
}

fn delete_the_subscription(server: &Server, subscriber: &Endpoint, id: &str) {
    server.unsubscribe("orders", "hook");
    let deleted = wait_for_type(subscriber, "Microsoft.EventGrid.SubscriptionDeleted");
    assert_eq!(deleted["data"], json!({ "eventSubscriptionId": id }));
    // The record follows the change.
    let is_deletion = |event: &Value| event["data"]["method"] == "DELETE";
    let deletion = || {
        events_with_type(subscriber, "Gridhook.OperatorAction")
            .into_iter()
            .find(is_deletion)
    };
    wait_for("the record of the deletion", LONG, || deletion().is_some());
    let deletion = deletion().expect("it was there");
    assert!(
        deletion["data"]["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("/hook")),
        "{deletion}"
    );
    assert!(
        deletion["data"]["requestId"].is_string() && deletion["data"]["status"].is_number(),
        "{deletion}"
    );
}

fn assert_each_change_is_published_once(subscriber: &Endpoint) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for event in events(subscriber) {
        *counts
            .entry(event["type"].as_str().expect("a type").to_owned())
            .or_default() += 1;
    }
    counts.remove("Gridhook.OperatorAction");
    counts.remove("Gridhook.DiskLow");
    let expected = [
        ("Gridhook.SubscriptionDeadLettered", 1),
        ("Gridhook.SubscriptionHeld", 1),
        ("Gridhook.SubscriptionResumed", 1),
        ("Gridhook.SubscriptionSuspended", 2),
        ("Microsoft.EventGrid.SubscriptionCreated", 1),
        ("Microsoft.EventGrid.SubscriptionDeleted", 1),
        ("Microsoft.EventGrid.SubscriptionUpdated", 1),
        ("Microsoft.Storage.BlobCreated", 1),
    ];
    assert_eq!(
        counts,
        expected
            .map(|(name, count)| (name.to_owned(), count))
            .into()
    );
}

#[test]
fn event_subscriptions_that_receive_system_events_cause_none() {
    let mut server = Server::start(&[TOPIC, INTERVAL, UNASKED]);
    let subscriber = Endpoint::start(vec![respond(200, "", "")]);
    let sink = Sink::start();
    sink.set("/deaf", Behavior::Respond(400));
    server.topic("server", "CloudEventSchemaV1_0");
    server.topic("orders", "EventGridSchema");
    server.subscribe(
        "server",
        "all",
        &cloud_spec(&subscriber).types(&[
            "Gridhook.SubscriptionHeld",
            "Gridhook.SubscriptionResumed",
            "Gridhook.SubscriptionDeadLettered",
            "Microsoft.EventGrid.SubscriptionCreated",
            "Microsoft.Storage.BlobCreated",
        ]),
    );
    let deaf = || {
        SubscriptionSpec::new(&sink.url("/deaf"))
            .schema("CloudEventSchemaV1_0")
            .dead_letters("letters")
    };
    server.subscribe("server", "deaf", &deaf());
    // It reaches another topic, whose event subscription is just as deaf.
    let namespace =
        "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces/relay";
    let relayed = format!("{namespace}/topics/relayed");
    let push = json!({
        "maxDeliveryCount": 1,
        "destination": {"endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/deaf")}},
        "deadLetterDestinationWithResourceIdentity": {
            "endpointType": "StorageBlob", "StorageBlob": {"blobContainerName": "relayed", "resourceId": "/r"},
        },
    });
    let pushed =
        json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Push", "push": push}}});
    server.command("PUT", namespace, &json!({"location": "local"}));
    server.command("PUT", &relayed, &json!({}));
    server.command(
        "PUT",
        &format!("{relayed}/eventSubscriptions/deaf"),
        &pushed,
    );
    // Before it receives system events.
    wait_for_type(&subscriber, "Microsoft.EventGrid.SubscriptionCreated");
    let destination =
        json!({"endpointType": "NamespaceTopic", "properties": {"resourceId": relayed}});
    let chain = SubscriptionSpec::new("").also(&json!({}), &json!({"destination": destination}));
    server.subscribe("server", "chain", &chain.schema("CloudEventSchemaV1_0"));

    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    server.post_verb("orders", "hook", "hold");
    wait_for_type(&subscriber, "Gridhook.SubscriptionHeld");
    wait_until_settled(&server, "server", "deaf");
    let status = |path: &str| {
        server
            .command("GET", &format!("{path}/status"), &Value::Null)
            .json()
    };
    for path in [
        subscription("server", "deaf"),
        format!("{relayed}/eventSubscriptions/deaf"),
    ] {
        wait_for("dead letters of both", LONG, || {
            status(&path)["counters"]["deadLettered"].as_u64() > Some(0)
        });
    }
    server.post_verb("orders", "hook", "resume");
    wait_for_type(&subscriber, "Gridhook.SubscriptionResumed");
    // The look that found the end of the hold has seen the dead letters, too.
    wait_for("what was published before", LONG, || {
        events(&subscriber).len() >= 4
    });
    let subjects: Vec<String> = events(&subscriber)
        .iter()
        .map(|event| event["subject"].as_str().expect("a subject").to_owned())
        .collect();
    let about = |end: &str| {
        subjects
            .iter()
            .filter(|subject| subject.ends_with(end))
            .count()
    };
    let of_hook = about("/topics/orders/eventSubscriptions/hook");
    let of_relayed = about("/topics/relayed/eventSubscriptions/deaf");
    assert_eq!(
        (of_hook, of_relayed, subjects.len()),
        (3, 1, 4),
        "{subjects:?}"
    );
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_full_disk_and_certificates_that_end_are_reported_once() {
    let folder = TempDir::new().expect("a folder");
    let identity = TempDir::new().expect("a folder");
    Authority::new().expired("hook").write(folder.path(), "erp");
    Authority::new()
        .expired_rsa("gridhook")
        .write(identity.path(), "identity");
    let [certificate, key] = ["crt", "key"].map(|kind| {
        identity
            .path()
            .join(format!("identity.{kind}"))
            .display()
            .to_string()
    });
    let disk = ("SYSTEM_TOPIC__DISK_FREE_BYTES", "64 TiB");
    let certificates = (
        "DELIVERY__CLIENT_CERTIFICATES_DIR",
        folder.path().to_str().expect("UTF-8"),
    );
    // Nothing that is published before the topic exists is expected.
    let server = Server::start(&[
        TOPIC,
        INTERVAL,
        UNASKED,
        disk,
        certificates,
        ("DELIVERY__IDENTITY_TOKEN_URL", "http://127.0.0.1:9/token"),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        ("DELIVERY__IDENTITY_CERTIFICATE_FILE", &certificate),
        ("DELIVERY__IDENTITY_KEY_FILE", &key),
    ]);
    wait_for("three events without a topic", LONG, || {
        counted(&server, "dropped") >= 3
    });
    assert!(server.logs().contains("the topic does not exist"));
    let subscriber = Endpoint::start(vec![respond(200, "", "")]);
    server.topic("server", "EventGridSchema");
    server.subscribe("server", "all", &SubscriptionSpec::new(&subscriber.url()));
    let mut server = server;
    server.terminate();
    server.restart();
    let bodies = |event_type: &str| -> Vec<Value> {
        let one = |body: &[u8]| {
            serde_json::from_slice::<[Value; 1]>(body).expect("an array of one")[0].clone()
        };
        let all: Vec<Value> = subscriber
            .requests()
            .iter()
            .map(|request| one(&request.body))
            .collect();
        all.into_iter()
            .filter(|event| event["eventType"] == event_type)
            .collect()
    };
    let certificates = || bodies("Gridhook.CertificateNearExpiry");
    wait_for("all events", LONG, || {
        certificates().len() >= 2 && !bodies("Gridhook.DiskLow").is_empty()
    });
    let mut subjects: Vec<Value> = certificates()
        .iter()
        .map(|event| event["subject"].clone())
        .collect();
    subjects.sort_by_key(Value::to_string);
    assert_eq!(subjects, ["delivery.identity_certificate_file", "erp"]);
    for certificate in certificates() {
        let data = &certificate["data"];
        assert_eq!(
            (&data["expired"], &data["expires"]),
            (&json!(true), &json!("2020-01-01T00:00:00.0000000Z"))
        );
    }
    let disk = bodies("Gridhook.DiskLow");
    assert_eq!(
        (disk.len(), &disk[0]["data"]["limitBytes"]),
        (1, &json!(64_u64 << 40))
    );
    assert!(counted(&server, "published") >= 3);
}

#[test]
fn a_full_queue_drops_events_and_counts_them() {
    let (events, waiting): (Arc<SystemEvents>, _) = SystemEvents::new(Clock::system());
    for _ in 0..1030 {
        events.report_event("Gridhook.DiskLow", "disk".to_owned(), None, json!({}));
    }
    assert_eq!(
        (waiting.len(), events.event_counts()),
        (1024, [("published", 0), ("dropped", 6)])
    );
}
