//! Events arrive as they were published: `data` byte for byte, through the log.

use std::collections::{BTreeMap, HashMap};

use gridhook::{
    deliver::convert::convert_event,
    event::{Event, Schema},
    publish::PublishLimits,
};
use serde_json::{Value, json, value::RawValue};

use super::{cloud_event, custom, event_grid, read};
use crate::spec::{fact, stated};
use crate::support::events::{Generated, SUBJECTS, TYPES, events};

/// The value of `name`, exactly as it stands in the event's wire form.
fn member(event: &Event, name: &str) -> String {
    let wire = event.to_wire_bytes();
    let members: HashMap<String, &RawValue> =
        serde_json::from_slice(&wire).expect("a wire form is a JSON object");
    members[name].get().to_owned()
}

#[test]
fn the_specification_s_blob_event_keeps_its_data() {
    let _rows = crate::spec::shows(&[
        "S000-119, S003-095: A delivered event in the Event Grid schema has the top-level \
         properties id, eventTime, eventType, dataVersion, metadataVersion, topic, subject and \
         data.",
        "S000-123, S003-099: In the Event Grid schema example, topic is the full resource path of \
         the event source.",
        "S003-096: In the Event Grid schema examples, eventTime is a UTC time with seven \
         fractional digits and a trailing Z, such as 2020-08-13T17:18:13.1647262Z.",
        "S003-097: In the Event Grid schema, dataVersion may be the empty string.",
        "S003-098: In the Event Grid schema examples, metadataVersion is the string \"1\".",
        "S003-100: In the Event Grid schema, subject may be a resource path such as \
         /blobServices/default/containers/deadletter/blobs/myBlobFile.txt.",
        "S003-101: The example event of type Microsoft.Storage.BlobCreated carries in data the \
         properties api, clientRequestId, requestId, eTag, contentType, contentLength, blobType, \
         url, sequencer and storageDiagnostics.batchId.",
    ]);
    let sent = include_str!("../data/blob-created.event-grid.json");
    let given: Vec<HashMap<String, &RawValue>> = serde_json::from_str(sent).expect("it is JSON");
    let events = event_grid(sent.as_bytes()).expect("it is an event");
    let delivered = convert_event(&events[0], Schema::EventGrid).expect("it is of that schema");
    let mut reported: HashMap<String, &RawValue> =
        serde_json::from_slice(&delivered).expect("it is JSON");
    let topic = reported.remove("topic").map(|topic| topic.get());
    assert_eq!(
        topic,
        Some(r#""/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders""#)
    );
    let text = |members: &HashMap<String, &RawValue>| -> BTreeMap<String, String> {
        members
            .iter()
            .map(|(name, value)| (name.clone(), value.get().to_owned()))
            .collect()
    };
    assert_eq!(
        text(&reported),
        text(&given[0]),
        "each property is there, as it was sent, and no other"
    );
    let mut found: Value = serde_json::from_slice(&delivered).expect("it is JSON");
    for (id, name) in [
        ("S000-120", "eventTime"),
        ("S000-121", "dataVersion"),
        ("S000-122", "metadataVersion"),
        ("S000-124", "subject"),
        ("S000-125", "data"),
    ] {
        fact(id, &found[name]);
    }
    for id in ["S000-119", "S003-095"] {
        // The topic is the only property that the server writes.
        found["topic"] = stated(id)["topic"].clone();
        assert_eq!(found, *stated(id), "{id}");
    }
    assert_eq!(member(&events[0], "data"), given[0]["data"].get());
    assert_eq!(events[0].id(), "93902694-901e-008f-6f95-7153a806873c");
    assert_eq!(events[0].event_type(), "Microsoft.Storage.BlobCreated");
    assert_eq!(
        events[0].subject(),
        "/blobServices/default/containers/deadletter/blobs/myBlobFile.txt"
    );
}

#[test]
fn the_specification_s_cloud_events_are_kept_whole() {
    let _rows = crate::spec::shows(&[
        "S003-114: The CloudEvents 1.0 example event carries the lower-case attribute dataversion \
         with the string \"1.0\".",
        "S003-115: In the CloudEvents 1.0 example, datacontenttype is application/json and data is \
         a JSON object.",
    ]);
    for sent in [
        include_str!("../data/foo.cloud-event.json"),
        include_str!("../data/someevent.cloud-event.json"),
    ] {
        let events = cloud_event(sent.as_bytes()).expect("it is an event");
        assert_eq!(events[0].to_wire_bytes(), sent.trim());
    }
    let sent = include_str!("../data/foo.cloud-event.json");
    let events = cloud_event(sent.as_bytes()).expect("it is an event");
    let delivered = convert_event(&events[0], Schema::CloudEvents).expect("it is of that schema");
    let mut found: Value = serde_json::from_slice(&delivered).expect("it is JSON");
    // The documents leave the version out, without which it is no CloudEvent.
    assert_eq!(
        found
            .as_object_mut()
            .and_then(|found| found.remove("specversion")),
        Some("1.0".into())
    );
    for id in ["S000-171", "S003-112"] {
        fact(id, &found);
    }
    fact("S000-172", &found["dataversion"]);
    fact(
        "S000-173",
        &json!({"datacontenttype": found["datacontenttype"], "data": found["data"]}),
    );
}

#[test]
fn a_time_that_cloud_events_does_not_allow_is_written_in_utc() {
    for (sent, expected) in [
        (
            "2026-11-20T10:00:00.50+01:00",
            Some("2026-11-20T10:00:00.50+01:00"),
        ),
        ("2026-11-20t10:00:00z", Some("2026-11-20t10:00:00z")),
        ("2016-12-31T23:59:60Z", Some("2016-12-31T23:59:60Z")),
        (r"2026-11-20T10:00:00\u005a", Some("2026-11-20T10:00:00Z")),
        ("2026-11-20T10:00:00", Some("2026-11-20T10:00:00Z")),
        (
            "2026-11-20T10:00:00.123456789",
            Some("2026-11-20T10:00:00.123456789Z"),
        ),
        ("2026-11-20T10:00:00+0000", Some("2026-11-20T10:00:00Z")),
        ("2026-11-20 10:00+01", Some("2026-11-20T09:00:00Z")),
        ("20261120T100000,5Z", Some("2026-11-20T10:00:00.5Z")),
        // RFC 3339 has no years before 0 and after 9999, and `time` is optional.
        ("-000001-11-20T10:00:00Z", None),
    ] {
        let as_event_grid =
            format!(r#"[{{"id":"1","subject":"/s","eventType":"T","eventTime":"{sent}"}}]"#);
        let as_custom = format!(r#"[{{"eventId":"1","ver":"1","when":"{sent}"}}]"#);
        for published in [
            event_grid(as_event_grid.as_bytes()),
            custom(as_custom.as_bytes()),
        ] {
            let event = &published.expect("it is an event")[0];
            let form = convert_event(event, Schema::CloudEvents).expect("it is converted");
            let found: Value = serde_json::from_slice(&form).expect("it is JSON");
            assert_eq!(
                found
                    .get("time")
                    .map(|time| time.as_str().expect("it is text")),
                expected,
                "{sent}"
            );
            // A topic for CloudEvents accepts the delivered event, as a topic of a namespace does.
            assert!(cloud_event(&form).is_ok(), "{sent}");
        }
    }
}

/// In requests as large as the limit allows.
fn requests(all: impl Iterator<Item = Generated>) -> impl Iterator<Item = Vec<Generated>> {
    let mut all = all.peekable();
    std::iter::from_fn(move || {
        let mut request = Vec::new();
        let mut len = 0;
        while let Some(next) = all.next_if(|next| len + next.json.len() < 1_000_000) {
            len += next.json.len() + 2;
            request.push(next);
        }
        (!request.is_empty()).then_some(request)
    })
}

fn assert_kept(schema: Schema, content_type: &str) {
    for request in requests(events(schema, 7).take(5_000)) {
        let sent: Vec<&str> = request.iter().map(|event| event.json.as_str()).collect();
        let body = format!("[{}]", sent.join(",\n"));
        let events = read(
            schema,
            content_type,
            body.as_bytes(),
            &PublishLimits::default(),
        )
        .expect("they are events");
        assert_eq!(events.len(), request.len());
        for (sent, event) in request.iter().zip(&events) {
            assert_eq!(member(event, "data"), sent.data, "{}", sent.id);
            assert_eq!(event.id(), sent.id);
            assert_eq!(event.event_type(), sent.event_type);
            assert_eq!(event.subject(), sent.subject);
            assert_eq!(event.schema, sent.schema);
            if schema == Schema::CloudEvents {
                assert_eq!(event.to_wire_bytes(), sent.json);
            }
        }
    }
}

#[test]
fn five_thousand_generated_events_keep_their_data() {
    assert_kept(Schema::EventGrid, "application/json");
    assert_kept(Schema::CloudEvents, "application/cloudevents-batch+json");
}

#[test]
fn the_generated_set_has_what_it_promises() {
    let all: Vec<Generated> = events(Schema::EventGrid, 1).take(20_000).collect();
    let bytes: usize = all.iter().map(|event| event.json.len()).sum();
    assert!(
        bytes < 30_000_000,
        "a hundred thousand would have {} MB",
        bytes / 200_000
    );
    let sizes = all.iter().map(|event| event.json.len());
    assert!(sizes.clone().all(|len| len < 66_000) && sizes.clone().any(|len| len > 48_000));
    assert!(sizes.filter(|len| *len < 400).count() > 1_000);
    for wanted in [
        "1e308",
        "5e-324",
        "-0.0",
        "1E+2",
        "123456789012345678901234567890",
        r"\u0000",
        r"\ud83d\ude00",
        r"\/",
    ] {
        assert!(
            all.iter().any(|event| event.data.contains(wanted)),
            "{wanted}"
        );
    }
    assert!(
        TYPES
            .iter()
            .all(|name| all.iter().any(|event| event.event_type == *name))
    );
    assert!(
        SUBJECTS
            .iter()
            .all(|(_, text)| all.iter().any(|event| event.subject == *text))
    );
    let again: Vec<Generated> = events(Schema::EventGrid, 1).take(100).collect();
    assert!(again.iter().zip(&all).all(|(a, b)| a.json == b.json));
}
