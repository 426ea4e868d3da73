//! A topic has one event for each file of dead letters.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::{Value, json};

use super::{LONG, dead_letter::files, wait_until_settled};
use crate::support::{
    endpoint::{Endpoint, respond},
    load,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// An endpoint that follows a script is asked nothing before.
const UNASKED: (&str, &str) = ("DELIVERY__VALIDATE", "false");
/// Only files of dead letters are of interest here.
const FILES: &[&str] = &["Microsoft.Storage.BlobCreated"];
const NOTICES: (&str, &str) = ("SYSTEM_TOPIC__NAME", "storage");

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// The GUIDs of the files that are there.
fn guids(server: &Server) -> BTreeSet<String> {
    let stem = |file: &PathBuf| {
        file.file_stem()
            .and_then(|stem| stem.to_str())
            .expect("text")
            .to_owned()
    };
    files(server).iter().map(stem).collect()
}

#[test]
fn each_file_of_dead_letters_is_an_event_for_subscribers_of_the_system_topic() {
    let _rows = crate::spec::shows(&[
        "S000-114: An event subscription on the dead-letter blob storage lets Event Grid be used \
         to respond to undelivered events.",
        "S000-115, S002-051, S003-092: Each time the dead-letter blob storage receives an \
         undelivered event, Event Grid notifies the handler subscribed to that storage.",
        "S002-050, S003-091: To be notified when an event has been sent to the dead-letter \
         location, an event subscription is created for the dead-letter blob storage.",
    ]);
    let mut server = Server::start(&[NOTICES, UNASKED]);
    let reported = Endpoint::start(vec![respond(200, "", "")]);
    let refusing = Endpoint::start(vec![respond(400, "", "never")]);
    let key = server.topic("orders", "EventGridSchema");
    server.topic("storage", "EventGridSchema");
    server.subscribe(
        "storage",
        "files",
        &SubscriptionSpec::new(&reported.url()).types(FILES),
    );
    // The notices' own dead letters are written, and are no notices.
    server.subscribe(
        "storage",
        "deaf",
        &SubscriptionSpec::new(&refusing.url())
            .types(FILES)
            .dead_letters("unheard"),
    );
    server.subscribe(
        "orders",
        "Hook",
        &SubscriptionSpec::new(&refusing.url())
            .batch(10)
            .dead_letters("letters"),
    );
    server.publish("orders", &key, &load::body(&ids(5), "/a"));
    wait_for("both files", LONG, || files(&server).len() == 2);
    wait_until_settled(&server, "storage", "files");
    wait_until_settled(&server, "storage", "deaf");

    let (letters, unheard): (Vec<PathBuf>, Vec<PathBuf>) = files(&server)
        .into_iter()
        .partition(|file| file.iter().any(|part| part == "letters"));
    assert_eq!((letters.len(), unheard.len()), (1, 1));
    assert_eq!(
        server.counter("storage", "files", "matched"),
        1,
        "one file is announced, the other is of the topic itself"
    );
    let requests = reported.requests();
    let [event]: [Value; 1] = serde_json::from_slice(&requests[0].body).expect("an array of one");
    let path = letters[0].display().to_string();
    let id = letters[0].file_stem().and_then(|stem| stem.to_str());
    let below = &path[path.find("HOOK/").expect("the subscription's folder")..];
    assert_eq!(event["eventType"], "Microsoft.Storage.BlobCreated");
    assert_eq!(
        event["subject"],
        format!("/blobServices/default/containers/letters/blobs/{below}")
    );
    assert!(
        event["topic"]
            .as_str()
            .is_some_and(|topic| topic.ends_with("/topics/storage")),
        "{event}"
    );
    assert_eq!(
        (
            &event["id"],
            &event["dataVersion"],
            &event["metadataVersion"]
        ),
        (&json!(id), &json!(""), &json!("1"))
    );
    let mut data = event["data"].as_object().expect("an object").clone();
    let at = ["eTag", "sequencer"].map(|name| {
        data.remove(name)
            .and_then(|value| value.as_str().map(str::to_owned))
    });
    assert!(
        at.iter().flatten().all(|text| !text.is_empty()) && at.iter().all(Option::is_some),
        "{at:?}"
    );
    let expected = json!({
        "api": "PutBlob", "clientRequestId": id, "requestId": id, "contentType": "application/json",
        "contentLength": fs::metadata(&letters[0]).expect("a file").len(), "blobType": "BlockBlob",
        "url": format!("file://{}", fs::canonicalize(&letters[0]).expect("a path").display()),
        "storageDiagnostics": {"batchId": id}});
    assert_eq!(Value::Object(data), expected);
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_system_topic_that_is_missing_or_takes_no_such_event_costs_no_dead_letter() {
    let mut server = Server::start(&[NOTICES]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "Hook",
        &SubscriptionSpec::new(&sink.url("/hook"))
            .batch(10)
            .dead_letters("letters"),
    );
    sink.set("/hook", Behavior::Respond(400));
    for (round, why) in ["the topic does not exist", "the topic has a custom schema"]
        .into_iter()
        .enumerate()
    {
        server.publish("orders", &key, &load::body(&ids(3), "/a"));
        wait_for("the file", LONG, || files(&server).len() == round + 1);
        wait_for("a line in the log", LONG, || server.logs().contains(why));
        let mapping = json!({"inputSchemaMappingType": "Json", "properties": {
            "eventType": {"sourceField": "type"}, "subject": {"sourceField": "subject"}, "dataVersion": {"defaultValue": "1"}}});
        server.topic_of(
            "storage",
            &json!({"inputSchema": "CustomEventSchema", "inputSchemaMapping": mapping}),
        );
    }
    wait_until_settled(&server, "orders", "Hook");
    server.terminate();
    server.assert_sound();
    let (_, reported) = server.fsck();
    assert!(!reported.contains("dead letters"), "none waits: {reported}");
}

#[test]
fn after_a_kill_each_written_file_has_its_event_at_least_once() {
    let _rows = crate::spec::shows(&[
        "S000-115, S002-051, S003-092: Each time the dead-letter blob storage receives an \
         undelivered event, Event Grid notifies the handler subscribed to that storage.",
    ]);
    let mut server = Server::start(&[NOTICES]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.topic("storage", "EventGridSchema");
    server.subscribe(
        "storage",
        "files",
        &SubscriptionSpec::new(&sink.url("/files")).types(FILES),
    );
    server.subscribe(
        "orders",
        "Hook",
        &SubscriptionSpec::new(&sink.url("/hook"))
            .batch(10)
            .dead_letters("letters"),
    );
    sink.set("/hook", Behavior::Respond(400));
    for round in 1..=5 {
        let more: Vec<String> = (0..4).map(|number| format!("{round}-{number}")).collect();
        server.publish("orders", &key, &load::body(&more, "/a"));
        wait_for("the file", LONG, || files(&server).len() == round);
        server.kill_9();
        server.assert_sound();
        server.restart();
        let shown = || {
            sink.ledger("/files")
                .into_keys()
                .collect::<BTreeSet<String>>()
        };
        wait_for("all files to be announced", LONG, || {
            shown() == guids(&server)
        });
    }
    assert_eq!(
        files(&server).len(),
        5,
        "a file that was written again has its name"
    );
    server.terminate();
    server.assert_sound();
}
