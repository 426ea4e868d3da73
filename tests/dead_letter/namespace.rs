//! The form of namespaces, compared with the examples of the documentation (seed 001), byte for
//! byte except line breaks.

use std::time::Duration;

use expect_test::{Expect, expect};
use gridhook::{
    dead_letter::{
        DeadLetterTarget,
        file::{FileBuilder, FileContext, file_path, target_folder},
    },
    event::{Event, Lane, Schema, Timestamp},
    policy::{
        edition::FileLayout,
        outcome::{Failure, LastOutcome, Reason},
        property::{self, DeliveryProperty},
        record::DeadLetterRecord,
    },
};
use serde_json::json;

use super::{event, target};
use crate::spec::fact;

const TOPIC: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/namespaces/mynamespace/topics/mytopic";

/// 2023-06-19T23:28:08.306389Z: the example's time in microseconds.
const PUBLISHED: Timestamp = Timestamp(1_687_217_288_306_389);

/// The example's event.
const STRUCTURED: &str = r#"{"specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"A234-1234-1234","time":"2018-04-05T17:31:00Z","comexampleextension1":"value","comexampleothervalue":5,"datacontenttype":"application/json","data":{"total": 1.0}}"#;

/// The example's other event, as the server stores it after publication in binary mode.
const BINARY: &str = r#"{"specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"A234-1234-1234","time":"2018-04-05T17:31:00Z","comexampleextension1":"value","comexampleothervalue":5,"datacontenttype":"application/vnd.apache.thrift.binary","data_base64":"AAEC"}"#;

/// The example's headers, and a secret one.
fn headers() -> Vec<DeliveryProperty> {
    let header = |name: &str, value: &str, secret: bool| json!({"name": name, "type": "Static", "properties": {"value": value, "isSecret": secret}});
    let dynamic = json!({"name": "Kind", "type": "Dynamic", "properties": {"sourceField": "comexampleextension1"}});
    let absent =
        json!({"name": "Absent", "type": "Dynamic", "properties": {"sourceField": "data.absent"}});
    let all = json!([
        header("Custom-Header-1", "value1", false),
        header("Authorization", "Bearer x", true),
        header("Custom-Header-2", "34", false),
        dynamic,
        absent
    ]);
    serde_json::from_value(all).expect("properties")
}

/// The result in the examples, without the attempt that is before the publication.
fn unauthorized() -> DeadLetterRecord {
    DeadLetterRecord {
        reason: Reason::Undeliverable(Failure::Unauthorized),
        attempts: 3,
        outcome: Failure::Unauthorized.into(),
        status: Some(401),
        published: PUBLISHED,
        tried: Some(PUBLISHED.after(Duration::from_millis(16))),
        given_up: PUBLISHED.after(Duration::from_secs(1)),
    }
}

fn file(properties: &[DeliveryProperty], event: &Event, dead: &DeadLetterRecord) -> String {
    let context = FileContext {
        layout: FileLayout::Namespace,
        delivery: event.schema,
        topic: TOPIC,
        properties,
    };
    let mut draft = FileBuilder::new(usize::MAX);
    assert!(
        draft
            .add(context, event, Lane::LIVE, dead)
            .expect("an event"),
        "there is room"
    );
    draft.finish()
}

fn check(
    properties: &[DeliveryProperty],
    event: &Event,
    dead: &DeadLetterRecord,
    expected: Expect,
) {
    expected.assert_eq(&file(properties, event, dead));
}

fn cloud(wire: &str) -> Event {
    event(
        Schema::CloudEvents,
        wire,
        ["A234-1234-1234", "com.example.someevent", ""],
    )
}

#[test]
fn an_event_of_structured_mode_is_written_with_headers_and_result() {
    let _rows = crate::spec::shows(&[
        "S001-013: Dead-lettered events are stored in the blob destination in the CloudEvents JSON \
         format.",
        "S001-014: The CloudEvents JSON storage format is stated to cover both the structured and \
         the binary content mode.",
        "S001-019: The format used when a dead-lettered event is stored is named a second time, in \
         the section on the format, as the CloudEvents JSON format.",
        "S001-020: A dead-letter record preserves the schema and the format of the event.",
        "S001-021: A dead-letter record holds additional metadata besides the originally published \
         event.",
        "S001-023: The error-condition metadata object is always present in a dead-letter record.",
        "S001-024: The metadata property deadletterreason gives the reason why the event was \
         dead-lettered.",
        "S001-025: The metadata property deliveryattempts gives the number of delivery attempts \
         made before the event was dead-lettered.",
        "S001-026: The metadata property deliveryresult gives the last result of the service's \
         last attempt to deliver the event.",
        "S001-027: The metadata property publishutc gives the UTC time at which the broker \
         persisted and accepted the event.",
        "S001-029: The metadata property deliveryattemptutc gives the UTC time of the last \
         delivery attempt.",
        "S001-030: The error-condition metadata has exactly five described properties: \
         deadletterreason, deliveryattempts, deliveryresult, publishutc and deliveryattemptutc.",
        "S001-031: The custom delivery properties in a dead-letter record are described by a \
         separate object with the key name customDeliveryProperties.",
        "S001-034: A custom delivery property marked as secret is not stored in the dead-letter \
         record.",
        "S001-035: The prose says the property key names and their values in \
         customDeliveryProperties are exactly the same as those set on the event subscription.",
        "S001-039: A custom delivery property with a numeric value is persisted as a JSON string \
         (\"34\"), not as a JSON number, in every example.",
        "S001-040: The general persisted dead-letter JSON has exactly three root properties in \
         this order: event, customDeliveryProperties, deadletterProperties.",
        "S001-041: In the general persisted dead-letter JSON the originally published event sits \
         under the root property event.",
        "S001-042: In the general persisted dead-letter JSON the error-condition metadata sits \
         under the root property deadletterProperties, not brokerProperties.",
        "S001-043: The event object of the general persisted dead-letter JSON has exactly these \
         properties: specversion, type, source, id, time, comexampleextension1, \
         comexampleothervalue, datacontenttype, data.",
        "S001-044: The event object of the general persisted dead-letter JSON has specversion \
         \"1.0\", type \"com.example.someevent\", source \"/mycontext\", id \"A234-1234-1234\", \
         time \"2018-04-05T17:31:00Z\", comexampleextension1 \"value\", comexampleothervalue 5 and \
         datacontenttype \"application/json\".",
        "S001-045: CloudEvents extension attributes (comexampleextension1, comexampleothervalue) \
         are kept beside the core attributes of the event, not in a nested extensions object.",
        "S001-046: A numeric CloudEvents extension attribute (comexampleothervalue) is persisted \
         as the JSON number 5.",
        "S001-047: JSON event data (datacontenttype application/json) is persisted as a nested \
         JSON object under data, not as an encoded string.",
        "S001-049: The deadletterProperties object of the general persisted dead-letter JSON has \
         exactly the properties deadletterreason, deliveryattempts, deliveryresult, publishutc and \
         deliveryattemptutc.",
        "S001-050: The example value of deadletterreason is the string \"Undeliverable due to \
         client error\".",
        "S001-051: The example value of deliveryattempts is the JSON number 3.",
        "S001-052: The example value of deliveryresult is the string \"Unauthorized\".",
        "S001-053: The example value of publishutc is \"2023-06-19T23:28:08.3063899Z\".",
        "S001-055: The example values of publishutc and deliveryattemptutc are JSON strings \
         holding UTC times with the suffix Z and seven fractional digits of a second.",
        "S001-056: A dead-lettered event may be stored according to the CloudEvents structured \
         mode or the CloudEvents binary mode.",
        "S001-064: When an event published in structured mode is dead-lettered, a blob with JSON \
         content is created in the dead-letter storage.",
        "S001-067: In the blob of the structured-mode example every event attribute has the value \
         that was published: specversion \"1.0\", type \"com.example.someevent\", source \
         \"/mycontext\", id \"A234-1234-1234\", time \"2018-04-05T17:31:00Z\", \
         comexampleextension1 \"value\", comexampleothervalue 5, datacontenttype \
         \"application/json\".",
        "S001-069: In the blob of the structured-mode example deadletterProperties is \
         deadletterreason \"Undeliverable due to client error\", deliveryattempts 3, \
         deliveryresult \"Unauthorized\", publishutc \"2023-06-19T23:28:08.3063899Z\", \
         deliveryattemptutc \"2023-06-09T23:28:08.3220145Z\".",
    ]);
    check(
        &property::open(&headers()),
        &cloud(STRUCTURED),
        &unauthorized(),
        expect![[
            r#"[{"event":{"specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"A234-1234-1234","time":"2018-04-05T17:31:00Z","comexampleextension1":"value","comexampleothervalue":5,"datacontenttype":"application/json","data":{"total": 1.0}},"customDeliveryProperties":{"Custom-Header-1":"value1","Custom-Header-2":"34","Kind":"value"},"deadletterProperties":{"deadletterreason":"Undeliverable due to client error","deliveryattempts":3,"deliveryresult":"Unauthorized","publishutc":"2023-06-19T23:28:08.3063890Z","deliveryattemptutc":"2023-06-19T23:28:08.3223890Z"}}]"#
        ]],
    );
}

#[test]
fn the_first_headers_of_the_documents_are_written_as_they_were_set() {
    let header = |(name, value)| json!({"name": name, "type": "Static", "properties": {"value": value, "isSecret": false}});
    let given: Vec<_> = crate::spec::stated("S001-036")
        .as_object()
        .expect("headers")
        .iter()
        .map(header)
        .collect();
    let given: Vec<DeliveryProperty> = serde_json::from_value(given.into()).expect("properties");
    let written = file(&property::open(&given), &cloud(STRUCTURED), &unauthorized());
    let [found]: [serde_json::Value; 1] = serde_json::from_str(&written).expect("one");
    fact("S001-036", &found["customDeliveryProperties"]);
}

#[test]
fn an_event_of_binary_mode_has_its_data_in_base64() {
    let _rows = crate::spec::shows(&[
        "S001-014: The CloudEvents JSON storage format is stated to cover both the structured and \
         the binary content mode.",
        "S001-056: A dead-lettered event may be stored according to the CloudEvents structured \
         mode or the CloudEvents binary mode.",
        "S001-078: The blob for an event published in binary mode is written in JSON, in the same \
         format as for structured mode.",
        "S001-082: The blob of the binary-mode example has exactly three root properties in this \
         order: event, customDeliveryProperties, deadletterProperties.",
        "S001-083: The event object in the blob of the binary-mode example has exactly these \
         properties: specversion, type, source, id, time, comexampleextension1, \
         comexampleothervalue, datacontenttype, data_base64, and no data property.",
        "S001-084: In the blob of the binary-mode example the ce- header values become attributes \
         without the ce- prefix: specversion \"1.0\", type \"com.example.someevent\", source \
         \"/mycontext\", id \"A234-1234-1234\", time \"2018-04-05T17:31:00Z\", \
         comexampleextension1 \"value\".",
        "S001-088: In the blob of the binary-mode example customDeliveryProperties is \
         {\"Custom-Header-1\":\"value1\",\"Custom-Header-2\":\"34\"}, with the letter case of the \
         configured names kept.",
        "S001-089: In the blob of the binary-mode example deadletterProperties is deadletterreason \
         \"Undeliverable due to client error\", deliveryattempts 3, deliveryresult \
         \"Unauthorized\", publishutc \"2023-06-19T23:28:08.3063899Z\", deliveryattemptutc \
         \"2023-06-09T23:28:08.3220145Z\".",
    ]);
    check(
        &property::open(&headers()),
        &cloud(BINARY),
        &unauthorized(),
        expect![[
            r#"[{"event":{"specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"A234-1234-1234","time":"2018-04-05T17:31:00Z","comexampleextension1":"value","comexampleothervalue":5,"datacontenttype":"application/vnd.apache.thrift.binary","data_base64":"AAEC"},"customDeliveryProperties":{"Custom-Header-1":"value1","Custom-Header-2":"34","Kind":"value"},"deadletterProperties":{"deadletterreason":"Undeliverable due to client error","deliveryattempts":3,"deliveryresult":"Unauthorized","publishutc":"2023-06-19T23:28:08.3063890Z","deliveryattemptutc":"2023-06-19T23:28:08.3223890Z"}}]"#
        ]],
    );
}

#[test]
fn without_headers_there_is_no_object_for_them_and_no_attempt_where_none_was_made() {
    let _rows = crate::spec::shows(&[
        "S001-033: The persisted dead-letter JSON may hold one or more of the custom delivery \
         properties, so customDeliveryProperties is not stated to be always present.",
    ]);
    let dead = DeadLetterRecord {
        reason: Reason::TimeToLiveExceeded,
        attempts: 0,
        outcome: LastOutcome::Probation,
        status: None,
        tried: None,
        ..unauthorized()
    };
    check(
        &[],
        &cloud(r#"{"specversion":"1.0","id":"a","source":"/s","type":"T"}"#),
        &dead,
        expect![[
            r#"[{"event":{"specversion":"1.0","id":"a","source":"/s","type":"T"},"deadletterProperties":{"deadletterreason":"Time to live was exceeded.","deliveryattempts":0,"deliveryresult":"Probation","publishutc":"2023-06-19T23:28:08.3063890Z"}}]"#
        ]],
    );
}

#[test]
fn an_attempt_is_never_before_the_publication() {
    let dead = DeadLetterRecord {
        tried: Some(PUBLISHED.before(Duration::from_secs(864_000))),
        ..unauthorized()
    };
    assert!(
        file(&[], &cloud(STRUCTURED), &dead)
            .contains(r#""deliveryattemptutc":"2023-06-19T23:28:08.3063890Z""#)
    );
}

#[test]
fn every_reason_is_a_sentence() {
    let sentence = |reason| {
        let file = file(
            &[],
            &cloud(STRUCTURED),
            &DeadLetterRecord {
                reason,
                ..unauthorized()
            },
        );
        let read: serde_json::Value = serde_json::from_str(&file).expect("a file");
        read[0]["deadletterProperties"]["deadletterreason"]
            .as_str()
            .expect("a reason")
            .to_owned()
    };
    let of = |outcome| sentence(Reason::Undeliverable(outcome));
    for outcome in [
        Failure::BadRequest,
        Failure::Unauthorized,
        Failure::Forbidden,
        Failure::NotFound,
    ] {
        assert_eq!(of(outcome), "Undeliverable due to client error");
    }
    assert_eq!(
        sentence(Reason::ProbationCausedByClientError),
        "Undeliverable due to client error"
    );
    assert_eq!(
        sentence(Reason::MaxDeliveryAttemptsExceeded),
        "Maximum delivery attempts was exceeded."
    );
    assert_eq!(
        sentence(Reason::TimeToLiveExceeded),
        "Time to live was exceeded."
    );
    assert_eq!(sentence(Reason::Rejected), "Event was rejected.");
    assert_eq!(sentence(Reason::Quarantined), "Event is a poison message.");
    assert_eq!(of(Failure::TimedOut), "Undeliverable due to TimedOut");
}

#[test]
fn an_event_that_clients_pulled_without_acknowledgement_says_so() {
    for (reason, says) in [
        (Reason::Rejected, "Event was rejected."),
        (
            Reason::MaxDeliveryAttemptsExceeded,
            "Event was not acknowledged nor rejected.",
        ),
        (
            Reason::TimeToLiveExceeded,
            "Event was not acknowledged nor rejected.",
        ),
    ] {
        let dead = DeadLetterRecord {
            reason,
            outcome: LastOutcome::Delivering,
            status: None,
            ..unauthorized()
        };
        let file = file(&[], &cloud(STRUCTURED), &dead);
        assert!(
            file.contains(&format!(r#""deliveryresult":"{says}""#)),
            "{file}"
        );
    }
}

#[test]
fn events_of_other_schemas_are_written_as_cloud_events() {
    let grid = r#"{"id":"1","topic":"/t","subject":"/a","data":{"x": 1.0},"eventType":"T","eventTime":"2026-11-20T12:00:00Z","metadataVersion":"1","dataVersion":"1"}"#;
    let dead = unauthorized();
    check(
        &[],
        &event(Schema::EventGrid, grid, ["1", "T", "/a"]),
        &dead,
        expect![[
            r#"[{"event":{"id":"1","source":"/t","type":"T","time":"2026-11-20T12:00:00Z","subject":"/a","data":{"x": 1.0},"specversion":"1.0"},"deadletterProperties":{"deadletterreason":"Undeliverable due to client error","deliveryattempts":3,"deliveryresult":"Unauthorized","publishutc":"2023-06-19T23:28:08.3063890Z","deliveryattemptutc":"2023-06-19T23:28:08.3223890Z"}}]"#
        ]],
    );
    check(
        &[],
        &event(Schema::Custom, r#"{"own": [1.0]}"#, ["1", "T", "/a"]),
        &dead,
        expect![[
            r#"[{"event":{"specversion":"1.0","type":"T","source":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/namespaces/mynamespace/topics/mytopic","id":"1","time":"2020-08-13T17:18:14.0265750Z","subject":"/a","datacontenttype":"application/json","data":{"own": [1.0]}},"deadletterProperties":{"deadletterreason":"Undeliverable due to client error","deliveryattempts":3,"deliveryresult":"Unauthorized","publishutc":"2023-06-19T23:28:08.3063890Z","deliveryattemptutc":"2023-06-19T23:28:08.3223890Z"}}]"#
        ]],
    );
}

#[test]
fn a_file_has_several_events_and_an_invalid_one_changes_nothing() {
    let _rows = crate::spec::shows(&[
        "S001-092: A single dead-letter blob may hold one or more events, so the minimum is 1 and \
         no maximum is given.",
    ]);
    let context = FileContext {
        layout: FileLayout::Namespace,
        delivery: Schema::CloudEvents,
        topic: TOPIC,
        properties: &[],
    };
    let mut draft = FileBuilder::new(usize::MAX);
    for wire in [STRUCTURED, BINARY] {
        draft
            .add(context, &cloud(wire), Lane::LIVE, &unauthorized())
            .expect("an event");
        draft
            .add(
                context,
                &cloud(r#"{"specversion""#),
                Lane::LIVE,
                &unauthorized(),
            )
            .expect_err("it is no object");
    }
    let read: Vec<serde_json::Value> = serde_json::from_str(&draft.finish()).expect("an array");
    assert_eq!(
        read.iter()
            .map(|dead_letter| dead_letter["event"]["id"] == "A234-1234-1234")
            .collect::<Vec<_>>(),
        [true, true]
    );
}

#[test]
fn a_path_keeps_the_case_of_names_and_has_no_leading_zeros() {
    let _rows = crate::spec::shows(&[
        "S001-090: A dead-letter blob is a JSON file whose file name is a globally unique \
         identifier (GUID).",
        "S001-091: The example dead-letter blob name is 480b2295-0c38-40d0-b25a-f34b30aac1a9.json: \
         a hyphenated lower-case GUID followed by the extension .json.",
        "S001-094: The dead-letter folder structure is \
         <container_name>/<namespace_name>/<topic_name>/<event_subscription_name>/<year>/<month>/\
         <day>/<UTC_hour>, with the blob file below the hour folder.",
        "S001-095: The hour folder of a dead-letter blob is the hour in UTC.",
        "S001-096: The example of a full dead-letter blob path is \
         /mycontainer/mynamespace/mytopic/myeventsubscription/2023/9/23/2/\
         480b2295-0c38-40d0-b25a-f34b30aac1a9.json \
         (printed with a stray < after the first slash).",
        "S001-097: In the example dead-letter blob path the month (9) and the hour (2) are written \
         without a leading zero.",
        "S001-098: In the example dead-letter blob path the year is written with four digits \
         (2023).",
    ]);
    let id = uuid::uuid!("480b2295-0c38-40d0-b25a-f34b30aac1a9");
    // 2023-09-23T02:03:04Z
    let made = Timestamp(1_695_434_584_000_000);
    let target = |topic: &str| DeadLetterTarget {
        layout: FileLayout::Namespace,
        topic: topic.to_owned(),
        subscription_name: "myeventsubscription".to_owned(),
        ..target("mycontainer")
    };
    expect![
        "mycontainer/mynamespace/mytopic/myeventsubscription/2023/9/23/2/480b2295-0c38-40d0-b25a-f34b30aac1a9.json"
    ]
    .assert_eq(&file_path(&target_folder(&target(TOPIC)), made, id));
    let outside = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders";
    expect!["mycontainer/g/orders/myeventsubscription"].assert_eq(&target_folder(&target(outside)));
}

#[test]
fn topics_whose_names_are_words_of_a_resource_id_have_folders_of_their_own() {
    let below = |group: &str, rest: &str| {
        let topic =
            format!("/subscriptions/s/resourceGroups/{group}/providers/Microsoft.EventGrid/{rest}");
        target_folder(&DeadLetterTarget {
            layout: FileLayout::Namespace,
            topic,
            subscription_name: "hook".to_owned(),
            ..target("mycontainer")
        })
    };
    for group in [
        "g",
        "namespaces",
        "resourceGroups",
        "RESOURCEGROUPS",
        "providers",
        "domains",
    ] {
        assert_eq!(
            below(group, "topics/orders"),
            format!("mycontainer/{group}/orders/hook")
        );
        for parent in ["plant", "other", "namespaces", "resourceGroups", "topics"] {
            for kind in ["namespaces", "domains"] {
                let found = below(group, &format!("{kind}/{parent}/topics/heat"));
                assert_eq!(
                    found,
                    format!("mycontainer/{parent}/heat/hook"),
                    "in {group}"
                );
            }
        }
    }
}
