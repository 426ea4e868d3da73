//! Redriven dead letters are sent to their subscription alone, once, marked and counted, whenever
//! the server is killed.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use super::{
    LONG,
    dead_letter::{files, ids_in_files},
    wait_until_settled,
};
use crate::support::{
    load,
    server::{Server, SubscriptionSpec, operator, subscription, wait_for},
    sink::{self, Arrival, Behavior, Sink},
};

const CONTAINER: &str = "letters";

/// Requests of jobs at once: a quarter of an endpoint's.
const JOBS_AT_ONCE: usize = 4;

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:03}")).collect()
}

/// A server with the subscription `Hook`, whose endpoint refuses, and `other`, whose endpoint does
/// not.
fn start(spec: impl FnOnce(SubscriptionSpec) -> SubscriptionSpec) -> (Server, Sink, String) {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "Hook",
        &spec(SubscriptionSpec::new(&sink.url("/hook")).dead_letters(CONTAINER)),
    );
    server.subscribe(
        "orders",
        "other",
        &SubscriptionSpec::new(&sink.url("/other")),
    );
    sink.set("/hook", Behavior::Respond(400));
    (server, sink, key)
}

/// The output of `gridhook dead-letters` for a subscription `Hook`.
pub(super) fn command(server: &Server, topic: &str, verb: &str, rest: &[&str]) -> Value {
    let topic = subscription(topic, "x").replace("/eventSubscriptions/x", "");
    let arguments = [
        &["dead-letters", verb, &topic, "Hook", "--output", "json"],
        rest,
    ]
    .concat();
    let printed =
        operator(server, &arguments).unwrap_or_else(|error| panic!("{verb} {rest:?}: {error}"));
    serde_json::from_str(&printed).expect("JSON")
}

fn listed(server: &Server, topic: &str) -> usize {
    found(server, topic, &[])
}

fn found(server: &Server, topic: &str, which: &[&str]) -> usize {
    command(server, topic, "list", which)["value"]
        .as_array()
        .map_or(0, Vec::len)
}

/// The column of jobs.
fn replayed(server: &Server, topic: &str, counter: &str) -> u64 {
    let status = server.status(topic, "Hook");
    // The status shows it from the first job on.
    let Some(column) = status.get("replayed") else {
        return 0;
    };
    column[counter]
        .as_u64()
        .unwrap_or_else(|| panic!("{counter}: {status}"))
}

fn give_up(server: &Server, key: &str, ids: &[String], before: u64) {
    server.publish("orders", key, &load::body(ids, "/a"));
    let given_up = before + ids.len() as u64;
    wait_for("the events to be given up", LONG, || {
        server.counter("orders", "Hook", "deadLettered") == given_up
    });
}

#[test]
fn they_arrive_once_and_marked_wherever_they_were_and_their_neighbours_get_nothing_twice() {
    let (mut server, sink, key) = start(|spec| spec.batch(3));
    let all = ids(9);
    give_up(&server, &key, &all[..6], 0);
    wait_for("their file", LONG, || ids_in_files(&server) == all[..6]);
    give_up(&server, &key, &all[6..], 6);
    wait_for("the neighbour to have all", LONG, || {
        sink.taken("/other") == 9
    });
    sink.set("/hook", Behavior::Respond(200));

    assert_eq!(
        command(&server, "orders", "redrive", &["--all", "--dry-run"])["deadLetters"],
        9
    );
    assert_eq!(sink.taken("/hook"), 0, "a dry run sends nothing");
    let job = command(&server, "orders", "redrive", &["--id", "002"])["job"]
        .as_u64()
        .expect("a job");
    wait_for("one to arrive", LONG, || sink.taken("/hook") == 1);
    wait_for("the rest to be listed", LONG, || {
        listed(&server, "orders") == 8
    });
    let next = command(&server, "orders", "redrive", &["--all"])["job"]
        .as_u64()
        .expect("a job");
    assert!(next > job, "each has a number of its own");
    wait_for("all to arrive", LONG, || sink.taken("/hook") == 9);
    wait_for("nothing to be left", LONG, || {
        listed(&server, "orders") == 0 && files(&server).is_empty()
    });

    let is_again = |arrival: &&Arrival| arrival.redrive.is_some();
    sink.look("/hook", |ledger| {
        for id in &all {
            let again: Vec<&Arrival> = ledger[id].iter().filter(is_again).collect();
            assert_eq!(again.len(), 1, "{id}: {:?}", ledger[id]);
            let expected = if id == "002" { job } else { next };
            assert_eq!(
                (again[0].redrive, again[0].attempts),
                (u16::try_from(expected).ok(), 0),
                "{id}: it begins anew"
            );
            assert_eq!(
                again[0].data,
                sink::hash(&load::data(id)),
                "{id}: byte for byte"
            );
            assert!(
                ledger[id]
                    .iter()
                    .filter(|arrival| !is_again(arrival))
                    .all(|arrival| !arrival.is_taken())
            );
        }
    });
    sink.look("/other", |ledger| {
        assert!(
            ledger
                .values()
                .all(|arrivals| arrivals.len() == 1 && arrivals[0].redrive.is_none()),
            "{ledger:?}"
        );
    });
    wait_until_settled(&server, "orders", "Hook");
    wait_for("them to be counted", LONG, || {
        replayed(&server, "orders", "delivered") == 9
    });
    assert_eq!(server.counter("orders", "Hook", "deadLettered"), 9);
    assert_eq!(
        server.counter("orders", "Hook", "delivered"),
        0,
        "they have a column of their own"
    );
    for (counter, expected) in [
        ("matched", 9),
        ("delivered", 9),
        ("pending", 0),
        ("deadLettered", 0),
        ("dropped", 0),
    ] {
        assert_eq!(replayed(&server, "orders", counter), expected, "{counter}");
    }
    server.terminate();
    server.assert_sound();
}

#[test]
fn an_event_that_fails_again_is_a_dead_letter_again_and_is_redriven_once() {
    let _rows = crate::spec::shows(&[
        "S004-073: Care is needed with poison messages (messages that cannot be processed) when \
         retrying.",
    ]);
    let (mut server, sink, key) = start(|spec| spec);
    give_up(&server, &key, &ids(4), 0);
    wait_for("their files", LONG, || ids_in_files(&server) == ids(4));
    command(&server, "orders", "redrive", &["--all"]);
    wait_for("them to be given up again", LONG, || {
        replayed(&server, "orders", "deadLettered") == 4
    });
    wait_for("the redrive to end", LONG, || {
        server.logs().contains("redrive ended")
    });
    wait_for("them to be in files again", LONG, || {
        found(&server, "orders", &["--stage", "written"]) == 4
    });
    assert_eq!(
        (ids_in_files(&server), listed(&server, "orders")),
        (ids(4), 4),
        "and nowhere else"
    );
    assert!(
        sink.ledger("/hook")
            .values()
            .all(|arrivals| arrivals.len() == 2),
        "once, and once again"
    );
    sink.set("/hook", Behavior::Respond(200));
    command(
        &server,
        "orders",
        "redrive",
        &["--reason", "UndeliverableDueToHttpBadRequest"],
    );
    wait_for("them to arrive", LONG, || sink.taken("/hook") == 4);
    wait_for("their files to go", LONG, || files(&server).is_empty());
    wait_for("them to be counted", LONG, || {
        replayed(&server, "orders", "delivered") == 4
    });
    assert_eq!(
        (
            replayed(&server, "orders", "matched"),
            replayed(&server, "orders", "deadLettered")
        ),
        (8, 4)
    );
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_kill_in_the_middle_loses_none_and_repeats_what_was_in_flight_at_most() {
    let (mut server, sink, key) = start(|spec| spec);
    let all = ids(60);
    give_up(&server, &key, &all[..50], 0);
    wait_for("their files", LONG, || ids_in_files(&server) == all[..50]);
    give_up(&server, &key, &all[50..], 50);
    sink.set("/hook", Behavior::Slow(Duration::from_millis(30), 200));
    command(&server, "orders", "redrive", &["--all"]);
    for taken in [8, 25, 45] {
        wait_for("some to arrive", LONG, || sink.taken("/hook") >= taken);
        server.kill_9();
        server.assert_sound();
        server.restart();
    }
    wait_for("all to arrive", LONG, || sink.taken("/hook") == 60);
    wait_for("nothing to be left", LONG, || {
        listed(&server, "orders") == 0 && files(&server).is_empty()
    });
    let repeated: usize = sink.look("/hook", |ledger| {
        let again = ledger
            .values()
            .map(|arrivals| arrivals.iter().filter(|arrival| arrival.is_taken()).count());
        again.map(|taken| taken - 1).sum()
    });
    // Outcomes of the last moment before a kill may not be on disk: they wait up to 10 ms for
    // others.
    assert!(
        repeated <= 3 * 4 * JOBS_AT_ONCE,
        "{repeated} arrived once more"
    );
    wait_for("them to be counted", LONG, || {
        replayed(&server, "orders", "delivered") == 60
    });
    server.terminate();
    server.assert_sound();
}

/// A file below the folder of the subscription `Hook`.
fn put_file(server: &Server, name: &str, text: &str) -> PathBuf {
    let folder = server
        .data_dir()
        .join("dead-letters")
        .join(CONTAINER)
        .join("HOOK/2023/6/19/23");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), text).expect("a file");
    folder.join(name)
}

#[test]
fn files_of_all_five_shapes_are_sent_again_and_damaged_ones_stay() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let scope = subscription("x", "y").replace("/x/eventSubscriptions/y", "");
    let mapping = json!({"inputSchemaMappingType": "Json", "properties": {
        "eventType": {"defaultValue": "T"}, "subject": {"defaultValue": "s"}, "dataVersion": {"defaultValue": "1"}}});
    server.topic("orders", "EventGridSchema");
    server.topic("clouds", "CloudEventSchemaV1_0");
    let custom =
        json!({"properties": {"inputSchema": "CustomEventSchema", "inputSchemaMapping": mapping}});
    server.command("PUT", &format!("{scope}/customs"), &custom);

    let basic = r#""deadLetterReason":"MaxDeliveryAttemptsExceeded","deliveryAttempts":3,"lastDeliveryOutcome":"NotFound","publishTime":"2023-06-19T23:28:08.3063899Z","lastDeliveryAttemptTime":"2023-06-19T23:28:08.3063899Z""#;
    let cloud_fate = r#""deadletterreason":"MaxDeliveryAttemptsExceeded","deliveryattempts":3,"lastdeliveryoutcome":"NotFound","publishtime":"2023-06-19T23:28:08.3063899Z""#;
    let namespace = r#"{"deadletterreason":"Undeliverable due to client error","deliveryattempts":3,"deliveryresult":"Unauthorized","publishutc":"2023-06-19T23:28:08.3063899Z","deliveryattemptutc":"2023-06-19T23:28:08.3063899Z"}"#;
    let cloud = |id: &str, data: &str| {
        format!(r#""specversion":"1.0","type":"t","source":"/s","id":"{id}",{data}"#)
    };
    let data = r#""data":{ "n" : 1.0 }"#;
    let event_grid = format!(
        r#"[{{"id":"eg","eventTime":"2020-08-13T17:18:13Z","eventType":"T","dataVersion":"","metadataVersion":"1","topic":"/subscriptions/of/another/place","subject":"/s",{data},{basic}}}]"#
    );
    let own = format!(
        r#"[{{"id":"x","eventTime":"2020-08-13T17:18:13Z","eventType":"T","dataVersion":"1.0","metadataVersion":"1","topic":"/t","subject":"s",{basic},"data":{{"id":"custom",{data}}}}}]"#
    );
    let clouds = [
        ("flat", format!("{{{},{cloud_fate}}}", cloud("flat", data))),
        (
            "structured",
            format!(
                r#"{{"event":{{{}}},"customDeliveryProperties":{{"a":"b"}},"deadletterProperties":{namespace}}}"#,
                cloud("structured", data)
            ),
        ),
        (
            "namespace-flat",
            format!(
                r#"{{{},"customDeliveryProperties":{{}},"deadLetterProperties":{namespace}}}"#,
                cloud("namespace-flat", data)
            ),
        ),
        (
            "binary",
            format!(
                r#"{{"event":{{{}}},"deadletterProperties":{namespace}}}"#,
                cloud(
                    "binary",
                    r#""datacontenttype":"application/x","data_base64":"AAEC""#
                )
            ),
        ),
    ];
    let clouds: Vec<(&str, String)> = clouds
        .into_iter()
        .map(|(id, letter)| (id, format!("[{letter}]")))
        .collect();
    let of = |id: &'static str, text: String| vec![(id, text)];
    let table = [
        ("orders", "", of("eg", event_grid)),
        ("clouds", "", clouds),
        ("customs", "CustomInputSchema", of("custom", own)),
    ];
    for (topic, schema, letters) in table {
        let spec = SubscriptionSpec::new(&sink.url(&format!("/{topic}"))).dead_letters(CONTAINER);
        server.subscribe(
            topic,
            "Hook",
            &if schema.is_empty() {
                spec
            } else {
                spec.schema(schema)
            },
        );
        let damaged = put_file(&server, "damaged.json", r#"[{"id":"cut"#);
        for (id, text) in &letters {
            put_file(&server, &format!("{id}.json"), text);
        }
        let counted = command(&server, topic, "redrive", &["--all", "--dry-run"]);
        assert_eq!(
            (
                counted["deadLetters"].as_u64(),
                counted["problems"].as_array().map(Vec::len)
            ),
            (Some(letters.len() as u64), Some(1)),
            "{counted}"
        );
        command(&server, topic, "redrive", &["--all"]);
        wait_for("all to arrive", LONG, || {
            sink.taken(&format!("/{topic}")) == letters.len()
        });
        wait_for("their files to go", LONG, || {
            files(&server) == [damaged.clone()]
        });
        let (arrived, expected): (BTreeSet<String>, BTreeSet<String>) = (
            sink.ledger(&format!("/{topic}")).into_keys().collect(),
            letters.iter().map(|(id, _)| (*id).to_owned()).collect(),
        );
        assert_eq!(arrived, expected, "{topic}");
        for (id, arrivals) in sink.ledger(&format!("/{topic}")) {
            let expected = if id == "binary" {
                r#""AAEC""#
            } else {
                r#"{ "n" : 1.0 }"#
            };
            assert_eq!(
                (arrivals.len(), arrivals[0].data),
                (1, sink::hash(expected)),
                "{id}"
            );
            assert!(arrivals[0].redrive.is_some(), "{id}");
        }
        fs::remove_file(damaged).expect("the file is there");
        server.unsubscribe(topic, "Hook");
    }
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_dead_letter_that_cannot_be_sent_is_reported_and_stays() {
    let (mut server, _sink, _key) = start(|spec| spec);
    let fate = r#""deadletterreason":"x","deliveryattempts":1,"lastdeliveryoutcome":"NotFound","publishtime":"2023-06-19T23:28:08Z""#;
    let file = put_file(
        &server,
        "cloud.json",
        &format!(r#"[{{"specversion":"1.0","type":"t","source":"/s","id":"c",{fate}}}]"#),
    );
    let counted = command(&server, "orders", "redrive", &["--all", "--dry-run"]);
    assert_eq!(counted["deadLetters"], 0, "{counted}");
    let why = counted["problems"][0]["reason"].as_str().expect("a reason");
    assert!(
        why.contains("CloudEvents") && why.contains("EventGrid"),
        "{why}"
    );
    command(&server, "orders", "redrive", &["--all"]);
    wait_for("the redrive to end", LONG, || {
        server.logs().contains("redrive ended")
    });
    assert_eq!(files(&server), [file]);
    assert_eq!(replayed(&server, "orders", "matched"), 0);
    server.terminate();
    server.assert_sound();
}

/// Azure's path of a dead letter has no topic in it: subscriptions of one name and container share
/// a folder.
#[test]
fn subscriptions_of_two_topics_that_share_a_folder_get_none_of_each_others_dead_letters() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let topics = ["heat", "cold"];
    for topic in topics {
        let path = format!("/{topic}");
        let key = server.topic(topic, "EventGridSchema");
        server.subscribe(
            topic,
            "Hook",
            &SubscriptionSpec::new(&sink.url(&path)).dead_letters(CONTAINER),
        );
        sink.set(&path, Behavior::Respond(400));
        let all: Vec<String> = ids(4).iter().map(|id| format!("{topic}-{id}")).collect();
        server.publish(topic, &key, &load::body(&all, "/a"));
        wait_for("the events to be given up", LONG, || {
            server.counter(topic, "Hook", "deadLettered") == 4
        });
    }
    wait_for("their files", LONG, || ids_in_files(&server).len() == 8);
    let of = |topic: &str| -> Vec<String> {
        ids_in_files(&server)
            .into_iter()
            .filter(|id| id.starts_with(topic))
            .collect()
    };
    for topic in topics {
        assert_eq!(listed(&server, topic), 4, "{topic}");
        assert_eq!(
            command(&server, topic, "redrive", &["--all", "--dry-run"])["deadLetters"],
            4,
            "{topic}"
        );
        sink.set(&format!("/{topic}"), Behavior::Respond(200));
    }
    command(&server, "heat", "redrive", &["--all"]);
    wait_for("its own to arrive", LONG, || sink.taken("/heat") == 4);
    wait_for("its own files to go", LONG, || of("heat").is_empty());
    assert!(
        sink.ledger("/heat")
            .keys()
            .all(|id| id.starts_with("heat-")),
        "{:?}",
        sink.ledger("/heat")
    );
    assert_eq!(
        (
            of("cold").len(),
            listed(&server, "cold"),
            sink.taken("/cold")
        ),
        (4, 4, 0),
        "the other's are untouched"
    );
    // A purge of the first, which has none left, takes none of the other's.
    assert_eq!(
        command(&server, "heat", "purge", &["--all", "--yes"])["deadLetters"],
        0
    );
    assert_eq!(of("cold").len(), 4);
    command(&server, "cold", "redrive", &["--all"]);
    wait_for("the other's own to arrive", LONG, || {
        sink.taken("/cold") == 4
    });
    assert!(
        sink.ledger("/cold")
            .keys()
            .all(|id| id.starts_with("cold-"))
    );
    wait_for("nothing to be left", LONG, || files(&server).is_empty());
    server.terminate();
    server.assert_sound();
}

/// A custom event that is delivered as a CloudEvent is put aside as one, and is sent again as the
/// same one.
#[test]
fn a_custom_event_that_was_to_be_delivered_as_a_cloud_event_comes_back_as_the_same_one() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let mapping = json!({"inputSchemaMappingType": "Json", "properties": {"id": {"sourceField": "id"},
        "eventType": {"defaultValue": "T"}, "subject": {"defaultValue": "s"}, "dataVersion": {"defaultValue": "1"}}});
    let key = server.topic_of(
        "customs",
        &json!({"inputSchema": "CustomEventSchema", "inputSchemaMapping": mapping}),
    );
    let spec = SubscriptionSpec::new(&sink.url("/hook"))
        .dead_letters(CONTAINER)
        .schema("CloudEventSchemaV1_0");
    server.subscribe("customs", "Hook", &spec);
    sink.set("/hook", Behavior::Respond(400));
    server.publish("customs", &key, br#"[{"id":"c-1","data":{ "n" : 1.0 }}]"#);
    wait_for("its file", LONG, || files(&server).len() == 1);
    let text = fs::read_to_string(&files(&server)[0]).expect("a file");
    for part in [
        r#""id":"c-1""#,
        r#""specversion":"1.0""#,
        r#""type":"T""#,
        r#""data":{"id":"c-1","data":{ "n" : 1.0 }}"#,
        r#""deadletterreason""#,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    sink.set("/hook", Behavior::Respond(200));
    command(&server, "customs", "redrive", &["--all"]);
    wait_for("it to arrive", LONG, || sink.taken("/hook") == 1);
    assert_eq!(
        sink.ledger("/hook").into_keys().collect::<Vec<_>>(),
        ["c-1"]
    );
    wait_for("its file to go", LONG, || files(&server).is_empty());
    server.terminate();
    server.assert_sound();
}
