//! Dead letters in object stores: the paths and contents of files, and outages and kills, which
//! cost only time. Azure Blob Storage is Azurite, S3 is moto, Google Cloud Storage is a scripted
//! endpoint.

use serde_json::{Value, json};

use super::{LONG, dead_letter};
use crate::support::{
    cloud::Cloud,
    load::{self, TYPE},
    needs,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// Waits for a request of the test to a store, outside of any runtime.
fn ask<T>(work: impl Future<Output = T>) -> T {
    actix_rt::System::new().block_on(work)
}

/// The files below a folder of the store, with their contents.
fn files(cloud: &Cloud, folder: &str) -> Vec<(String, String)> {
    ask(async {
        let sink = cloud.sink();
        let mut found = Vec::new();
        for listed in sink.list_below(folder, None, 100).await.unwrap_or_default() {
            let file = sink
                .get(&listed.name, 1 << 20)
                .await
                .expect("a file that is listed");
            assert_eq!(file.len() as u64, listed.bytes);
            found.push((listed.name, String::from_utf8(file.to_vec()).expect("text")));
        }
        found
    })
}

/// The ids of the events in all files of a folder, sorted: an id that is there twice is listed
/// twice.
fn ids(cloud: &Cloud, folder: &str) -> Vec<String> {
    let letters = files(cloud, folder).into_iter().flat_map(|(name, file)| {
        serde_json::from_str::<Vec<Value>>(&file)
            .unwrap_or_else(|error| panic!("{name}: {error}: {file}"))
    });
    let id = |letter: Value| {
        let event = if letter["event"].is_object() {
            &letter["event"]
        } else {
            &letter
        };
        event["id"].as_str().expect("an id").to_owned()
    };
    let mut ids: Vec<String> = letters.map(id).collect();
    ids.sort();
    ids
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// A file without its times: what stands behind these names is a moment.
fn timeless(file: &str) -> String {
    let mut out = file.to_owned();
    for name in [
        "publishTime",
        "lastDeliveryAttemptTime",
        "publishutc",
        "deliveryattemptutc",
    ] {
        let key = format!("\"{name}\":\"");
        let mut from = 0;
        while let Some(at) = out[from..].find(&key).map(|at| from + at + key.len()) {
            let time = &out[at..at + 28];
            assert!(
                time.ends_with('Z') && time.as_bytes()[19] == b'.',
                "{name} is {time}"
            );
            out.replace_range(at..at + 28, "…");
            from = at;
        }
    }
    out
}

struct Stage {
    cloud: Cloud,
    server: Server,
    sink: Sink,
    key: String,
}

impl Stage {
    /// A server with a topic of this edition whose only endpoint refuses everything, and a store
    /// for what was given up.
    fn start(address: &str, edition: &str, place: &Value) -> Self {
        let cloud = Cloud::start(address);
        let settings = cloud.settings();
        let settings: Vec<(&str, &str)> = settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let server = Server::start(&settings);
        let sink = Sink::start();
        let key = server.topic_of(
            "orders",
            &json!({"inputSchema": "EventGridSchema", "edition": edition}),
        );
        let header = json!([
            {"name": "X-Kind", "type": "Static", "properties": {"value": "a", "isSecret": false}},
            {"name": "X-Secret", "type": "Static", "properties": {"value": "hidden", "isSecret": true}}
        ]);
        let spec = SubscriptionSpec::new(&sink.url("/hook"))
            .batch(10)
            .webhook("deliveryAttributeMappings", header);
        server.subscribe("orders", "Hook", &spec.dead_letters_at(place));
        sink.set("/hook", Behavior::Respond(400));
        Self {
            cloud,
            server,
            sink,
            key,
        }
    }

    fn give_up(&self, range: std::ops::Range<usize>) {
        let before = self.server.counter("orders", "Hook", "deadLettered");
        let all = before + range.len() as u64;
        self.server
            .publish("orders", &self.key, &load::body(&numbers(range), "/a"));
        wait_for("the events to be given up", LONG, || {
            self.server.counter("orders", "Hook", "deadLettered") == all
        });
    }

    fn wait_for_files(&self, folder: &str, expected: &[String]) {
        wait_for("their files", LONG, || ids(&self.cloud, folder) == expected);
    }

    /// The store is down while more events are given up, and returns.
    fn outage(&mut self, range: std::ops::Range<usize>, killed: bool) {
        self.cloud.stop();
        self.give_up(range);
        wait_for("a file to be refused", LONG, || {
            self.server.logs().contains("cannot store dead-letter file")
        });
        if killed {
            self.server.kill_9();
            self.server.restart();
        }
        self.cloud.resume();
    }

    fn end(mut self) {
        assert_eq!(self.sink.taken("/hook"), 0);
        let log = self.server.logs();
        assert!(
            !log.contains("are lost") && !log.contains("hidden"),
            "{log}"
        );
        self.server.terminate();
        self.server.assert_sound();
    }
}

/// A path's parts, the hour's numbers without zeros in front and a GUID at the end.
fn assert_path(name: &str, folder: &str) {
    let rest = name
        .strip_prefix(folder)
        .and_then(|rest| rest.strip_prefix('/'));
    let parts: Vec<&str> = rest
        .unwrap_or_else(|| panic!("{name} is not in {folder}"))
        .split('/')
        .collect();
    let [numbers @ .., file] = parts.as_slice() else {
        panic!("{name}")
    };
    let plain = |part: &&str| {
        part.parse::<u16>()
            .is_ok_and(|number| number.to_string() == **part)
    };
    assert!(numbers.len() == 4 && numbers.iter().all(plain), "{name}");
    assert!(
        file.strip_suffix(".json")
            .is_some_and(|id| id.parse::<uuid::Uuid>().is_ok()),
        "{name}"
    );
}

#[test]
fn azure_blob_storage_has_every_dead_letter_once_after_an_outage_and_a_kill() {
    if !needs::node() {
        return;
    }
    // The address ends before the container: the subscription names it.
    let place = json!({"resourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/Archive", "blobContainerName": "letters"});
    let mut stage = Stage::start(
        "https://devstoreaccount1.blob.core.windows.net",
        "test",
        &place,
    );
    stage.give_up(0..2);
    stage.wait_for_files("letters/HOOK", &numbers(0..2));
    let found = files(&stage.cloud, "letters/HOOK");
    assert_eq!(found.len(), 1, "{found:?}");
    let (name, file) = &found[0];
    assert_path(name, "letters/HOOK");
    let letters = numbers(0..2).into_iter().map(|id| {
        let fate = r#""deadLetterReason":"UndeliverableDueToHttpBadRequest","deliveryAttempts":1,"lastDeliveryOutcome":"BadRequest","publishTime":"…","lastDeliveryAttemptTime":"…","lastHttpStatusCode":400"#;
        format!("{},{fate}}}", event(&id))
    });
    assert_eq!(
        timeless(file),
        format!("[{}]", letters.collect::<Vec<_>>().join(",\n"))
    );

    stage.outage(2..5, true);
    stage.wait_for_files("letters/HOOK", &numbers(0..5));
    ask(async {
        let sink = stage.cloud.sink();
        let all = sink
            .list_below("letters/HOOK", None, 9)
            .await
            .expect("a listing");
        let behind = sink
            .list_below("letters/HOOK", Some(&all[0].name), 1)
            .await
            .expect("a listing");
        assert_eq!((all.len(), &behind[..]), (2, &all[1..]));
        sink.delete_file(&all[0].name).await.expect("taken away");
        sink.delete_file(&all[0].name)
            .await
            .expect("it is gone already");
        assert!(
            sink.get(&all[0].name, 9)
                .await
                .is_err_and(|error| error.is_not_found())
        );
    });
    stage.end();
}

/// A bucket with a prefix and an address in place of an account, in the form of namespaces; `after`
/// is there after an outage.
fn bucket(address: &str, resource_id: &str, folder: &str, after: &[String]) {
    let mut stage = Stage::start(address, "namespaces", &json!({"resourceId": resource_id}));
    stage.give_up(0..2);
    stage.wait_for_files(folder, &numbers(0..2));
    for (name, file) in files(&stage.cloud, folder) {
        assert_path(&name, folder);
        let first =
            serde_json::from_str::<Vec<Value>>(&file).expect("letters")[0]["event"]["id"].clone();
        let id = first.as_str().expect("an id");
        let fate = r#"{"deadletterreason":"Undeliverable due to client error","deliveryattempts":1,"deliveryresult":"BadRequest","publishutc":"…","deliveryattemptutc":"…"}"#;
        let headers = r#"{"X-Kind":"a"}"#;
        let event = cloud_event(id);
        let expected = format!(
            r#"{{"event":{event},"customDeliveryProperties":{headers},"deadletterProperties":{fate}}}"#
        );
        assert!(timeless(&file).contains(&expected), "{expected}\n{file}");
    }
    stage.outage(2..5, false);
    stage.wait_for_files(folder, after);
    let names: Vec<String> = files(&stage.cloud, folder)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    ask(async {
        let sink = stage.cloud.sink();
        for name in &names {
            sink.delete_file(name).await.expect("taken away");
        }
        assert_eq!(
            sink.list_below(folder, None, 9).await.expect("a listing"),
            []
        );
    });
    stage.end();
}

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

/// The event of [`load::body`], as the beginning of its dead letter in the basic tier.
fn event(id: &str) -> String {
    let data = load::data(id);
    format!(
        r#"{{"id":"{id}","eventTime":"2026-11-20T17:18:13Z","eventType":"{TYPE}","dataVersion":"1","metadataVersion":"1","topic":"{TOPIC}","subject":"/a","data":{data}"#
    )
}

/// The same, as the event of one of namespaces.
fn cloud_event(id: &str) -> String {
    let data = load::data(id);
    format!(
        r#"{{"id":"{id}","source":"{TOPIC}","type":"{TYPE}","time":"2026-11-20T17:18:13Z","subject":"/a","data":{data},"specversion":"1.0"}}"#
    )
}

#[test]
fn s3_has_every_dead_letter_after_an_outage_below_the_prefix_of_its_address() {
    let _rows = crate::spec::shows(&[
        "S001-099: Dead-letter writes are retried so that dead-lettered events become reachable \
         soon after an outage of the dead-letter storage ends.",
    ]);
    if !needs::python() {
        return;
    }
    // The data of moto is lost with its process.
    bucket(
        "s3://letters/kept",
        "s3://letters/kept/here",
        "here/r/orders/Hook",
        &numbers(2..5),
    );
}

#[test]
fn google_cloud_storage_has_every_dead_letter_after_an_outage_in_the_bucket_that_is_named() {
    bucket(
        "gs://",
        "gs://letters/kept",
        "letters/kept/r/orders/Hook",
        &numbers(0..5),
    );
}

#[test]
fn a_destination_in_no_store_is_refused_and_no_credential_is_shown() {
    let settings = [
        ("DEAD_LETTER__FOLDER", ""),
        ("DEAD_LETTER__STORES__CLOUD__URL", "s3://letters/kept"),
        ("DEAD_LETTER__STORES__CLOUD__ACCOUNTS", "archive"),
        ("DEAD_LETTER__STORES__CLOUD__ACCESS_KEY_ID", "hidden-id"),
        (
            "DEAD_LETTER__STORES__CLOUD__SECRET_ACCESS_KEY",
            "hidden-key",
        ),
    ];
    let mut server = Server::start(&settings);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    let asked = |place: Value| {
        let spec = SubscriptionSpec::new(&sink.url("/hook")).dead_letters_at(&place);
        server.put_subscription("orders", "Hook", &spec)
    };
    for (place, expected) in [
        (
            json!({"resourceId": "/r", "blobContainerName": "letters"}),
            "expected one of archive",
        ),
        (
            json!({"resourceId": "s3://letters/other"}),
            "expected one of s3://letters/kept",
        ),
        (
            json!({"resourceId": "s3://letters/kept/../other"}),
            "can't be a part of a dead-letter path",
        ),
        (
            json!({"resourceId": "file:///etc"}),
            "expected one of s3://letters/kept",
        ),
    ] {
        let response = asked(place.clone());
        assert_eq!(response.status, 400, "{place}: {}", response.text());
        assert!(
            response.text().contains(expected),
            "{place}: {}",
            response.text()
        );
    }
    let place = json!({"resourceId": "s3://letters/kept/here"});
    assert!([200, 201].contains(&asked(place.clone()).status));
    let reported = server.get_subscription("orders", "Hook");
    assert_eq!(
        reported.json()["properties"]["deadLetterDestination"]["properties"]["resourceId"],
        place["resourceId"]
    );
    assert!(!reported.text().contains("hidden") && !server.logs().contains("hidden"));
    assert_eq!(
        dead_letter::files(&server),
        Vec::<std::path::PathBuf>::new()
    );
    server.terminate();
}
