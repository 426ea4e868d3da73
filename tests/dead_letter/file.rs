use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use gridhook::{
    dead_letter::{
        self,
        file::{FileBuilder, FileContext, event_of, file_path, target_folder},
    },
    deliver::convert::convert_event,
    event::{
        Event, Lane, Schema, Seq, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    policy::{
        outcome::{Failure, LastOutcome, Reason},
        record::DeadLetterRecord,
    },
    publish::{
        PublishLimits,
        schema::{self, EventTarget, RequestContent},
    },
    record::ingress::{InputSchemaMapping, MappedFieldOrDefault},
};
use serde_json::{Value, value::RawValue};

use super::{FORM, PUBLISHED, dead, event, target};
use crate::{
    spec::fact,
    support::{events::events, publisher::topic},
};

fn file(context: FileContext<'_>, events: &[(Event, DeadLetterRecord)]) -> String {
    let mut draft = FileBuilder::new(usize::MAX);
    for (event, dead) in events {
        assert!(
            draft
                .add(context, event, Lane::LIVE, dead)
                .expect("an event"),
            "there is room"
        );
    }
    draft.finish()
}

fn check(context: FileContext<'_>, event: &Event, dead: &DeadLetterRecord, expected: Expect) {
    expected.assert_eq(&file(context, &[(event.clone(), dead.clone())]));
}

fn blob_created() -> Event {
    let wire = r#"{"id":"93902694-901e-008f-6f95-7153a806873c","topic":"/subscriptions/0/myegteststgfoo","subject":"/blobs/myBlobFile.txt","data":{
        "api": "PutBlob",
        "contentLength": 0,
        "storageDiagnostics": { "batchId": "cfb32f79-3006-0010-0095-711faa000000" }
    },"eventType":"Microsoft.Storage.BlobCreated","eventTime":"2020-08-13T17:18:13.1647262Z","metadataVersion":"1","dataVersion":""}"#;
    event(
        Schema::EventGrid,
        wire,
        [
            "93902694",
            "Microsoft.Storage.BlobCreated",
            "/blobs/myBlobFile.txt",
        ],
    )
}

#[test]
fn an_event_grid_event_is_written_as_in_the_sample() {
    let _rows = crate::spec::shows(&[
        "S000-126, S003-103: A dead-lettered event in the Event Grid schema keeps the properties \
         of the delivered event (id, eventTime, eventType, dataVersion, metadataVersion, topic, \
         subject, data), unchanged.",
        "S000-128, S003-102: A dead-lettered event in the Event Grid schema adds, at top level \
         after data, the properties deadLetterReason, deliveryAttempts, lastDeliveryOutcome, \
         publishTime and lastDeliveryAttemptTime.",
        "S000-129, S003-105: In the dead-lettered Event Grid schema example, deadLetterReason is \
         the string MaxDeliveryAttemptsExceeded.",
        "S000-130, S003-106: In the dead-lettered Event Grid schema example, deliveryAttempts is \
         the JSON number 1.",
        "S000-131, S003-107: In the dead-lettered Event Grid schema example, lastDeliveryOutcome \
         is the string NotFound.",
        "S000-132, S003-108: In the dead-lettered Event Grid schema example, publishTime is \
         2020-08-13T17:18:14.0265758Z (seven fractional digits), which is later than eventTime.",
        "S000-133, S003-109: In the dead-lettered Event Grid schema example, \
         lastDeliveryAttemptTime is 2020-08-13T17:18:14.0465788Z (seven fractional digits), which \
         is later than publishTime.",
        "S003-094: Events and dead-lettered events come in three delivery schema formats: Event \
         Grid schema, CloudEvents 1.0 schema and custom schema.",
        "S003-104: In the Event Grid schema, the dead-letter properties stand at the top level of \
         the event, after data.",
        "S003-110: In the dead-letter examples that have both times, lastDeliveryAttemptTime is \
         not earlier than publishTime.",
        "S003-111: An event can be dead-lettered with deadLetterReason \
         MaxDeliveryAttemptsExceeded, deliveryAttempts 1 and lastDeliveryOutcome NotFound.",
    ]);
    check(
        FORM,
        &blob_created(),
        &dead(),
        expect![[r#"
            [{"id":"93902694-901e-008f-6f95-7153a806873c","eventTime":"2020-08-13T17:18:13.1647262Z","eventType":"Microsoft.Storage.BlobCreated","dataVersion":"","metadataVersion":"1","topic":"/subscriptions/0/myegteststgfoo","subject":"/blobs/myBlobFile.txt","data":{
                    "api": "PutBlob",
                    "contentLength": 0,
                    "storageDiagnostics": { "batchId": "cfb32f79-3006-0010-0095-711faa000000" }
                },"deadLetterReason":"MaxDeliveryAttemptsExceeded","deliveryAttempts":1,"lastDeliveryOutcome":"NotFound","publishTime":"2020-08-13T17:18:14.0265750Z","lastDeliveryAttemptTime":"2020-08-13T17:18:14.0465750Z"}]"#]],
    );
}

#[test]
fn a_status_is_written_and_a_missing_attempt_is_not() {
    let refused = DeadLetterRecord {
        reason: Reason::Undeliverable(Failure::BadRequest),
        outcome: Failure::BadRequest.into(),
        status: Some(400),
        ..dead()
    };
    let untried = DeadLetterRecord {
        reason: Reason::ProbationCausedByClientError,
        attempts: 0,
        outcome: LastOutcome::Probation,
        tried: None,
        ..dead()
    };
    let small = event(Schema::EventGrid, r#"{"id":"a"}"#, ["a", "t", "s"]);
    let text = file(FORM, &[(small.clone(), refused), (small, untried)]);
    expect![[r#"
        [{"id":"a","deadLetterReason":"UndeliverableDueToHttpBadRequest","deliveryAttempts":1,"lastDeliveryOutcome":"BadRequest","publishTime":"2020-08-13T17:18:14.0265750Z","lastDeliveryAttemptTime":"2020-08-13T17:18:14.0465750Z","lastHttpStatusCode":400},
        {"id":"a","deadLetterReason":"UndeliverableDueToProbationCausedByClientError","deliveryAttempts":0,"lastDeliveryOutcome":"Probation","publishTime":"2020-08-13T17:18:14.0265750Z"}]"#]]
    .assert_eq(&text);
}

#[test]
fn a_dead_letter_of_a_replay_names_its_job() {
    let marked = |schema, wire, mark| {
        let mut draft = FileBuilder::new(usize::MAX);
        let event = event(schema, wire, ["a", "t", "s"]);
        draft
            .add(
                FileContext {
                    delivery: schema,
                    ..FORM
                },
                &event,
                Lane(17),
                &dead(),
            )
            .expect("an event");
        let text = draft.finish();
        assert!(text.contains(mark), "{text}");
        let again = event_of(&text[1..text.len() - 1], false).expect("an event");
        assert!(!again.to_lowercase().contains("replayjob"), "{again}");
    };
    marked(Schema::EventGrid, r#"{"id":"a"}"#, r#""replayJob":"17"}"#);
    marked(
        Schema::CloudEvents,
        r#"{"id":"a","specversion":"1.0","source":"s","type":"t"}"#,
        r#""replayjob":"17"}"#,
    );
}

#[test]
fn a_cloud_event_is_written_as_in_the_sample_with_names_in_lower_case() {
    let _rows = crate::spec::shows(&[
        "S000-175, S003-117: A dead-lettered event in the CloudEvents schema keeps the properties \
         of the delivered event (id, source, dataversion, subject, type, datacontenttype, data), \
         unchanged.",
        "S000-176, S003-116: A dead-lettered event in the CloudEvents schema adds, at top level \
         after data, the all-lower-case properties deadletterreason, deliveryattempts, \
         lastdeliveryoutcome and publishtime.",
        "S000-177, S003-120: In the dead-lettered CloudEvents example, deadletterreason is the \
         string MaxDeliveryAttemptsExceeded.",
        "S000-178, S003-121: In the dead-lettered CloudEvents example, deliveryattempts is the \
         JSON number 1.",
        "S000-179, S003-122: In the dead-lettered CloudEvents example, lastdeliveryoutcome is the \
         string NotFound.",
        "S000-180, S003-123: In the dead-lettered CloudEvents example, publishtime is \
         2020-08-13T21:21:36.4018726Z (UTC, seven fractional digits).",
        "S000-181, S003-124: The dead-lettered CloudEvents example, as printed, has no property \
         for the time of the last delivery attempt.",
        "S003-094: Events and dead-lettered events come in three delivery schema formats: Event \
         Grid schema, CloudEvents 1.0 schema and custom schema.",
        "S003-118: In the CloudEvents 1.0 schema, the dead-letter properties are spelled entirely \
         in lower case.",
        "S003-119: In the CloudEvents 1.0 schema, the dead-letter properties stand at the top \
         level of the event, after data.",
    ]);
    let wire = r#"{
    "id": "caee971c-3ca0-4254-8f99-1395b394588e",
    "source": "mysource",
    "dataversion": "1.0",
    "subject": "mySubject",
    "type": "fooEventType",
    "datacontenttype": "application/json",
    "data": {
        "prop1": "value1",
        "prop2": 5
    }
}"#;
    check(
        FileContext {
            delivery: Schema::CloudEvents,
            ..FORM
        },
        &event(
            Schema::CloudEvents,
            wire,
            ["caee971c", "fooEventType", "mySubject"],
        ),
        &dead(),
        expect![[r#"
            [{"id":"caee971c-3ca0-4254-8f99-1395b394588e","source":"mysource","dataversion":"1.0","subject":"mySubject","type":"fooEventType","datacontenttype":"application/json","data":{
                    "prop1": "value1",
                    "prop2": 5
                },"deadletterreason":"MaxDeliveryAttemptsExceeded","deliveryattempts":1,"lastdeliveryoutcome":"NotFound","publishtime":"2020-08-13T17:18:14.0265750Z"}]"#]],
    );
}

#[test]
fn a_cloud_event_that_was_dead_lettered_before_has_no_name_twice() {
    let wire = r#"{"id":"a","deadletterreason":"Quarantined","deliveryattempts":9,"data":1}"#;
    check(
        FORM,
        &event(Schema::CloudEvents, wire, ["a", "t", ""]),
        &dead(),
        expect![
            r#"[{"id":"a","data":1,"deadletterreason":"MaxDeliveryAttemptsExceeded","deliveryattempts":1,"lastdeliveryoutcome":"NotFound","publishtime":"2020-08-13T17:18:14.0265750Z"}]"#
        ],
    );
}

#[test]
fn an_event_grid_event_delivered_as_a_cloud_event_is_written_as_one() {
    check(
        FileContext {
            delivery: Schema::CloudEvents,
            ..FORM
        },
        &event(
            Schema::EventGrid,
            r#"{"id":"a","topic":"/t","subject":"","data":1.0,"eventType":"T","eventTime":"2020-08-13T17:18:13Z","metadataVersion":"1","dataVersion":""}"#,
            ["a", "T", ""],
        ),
        &dead(),
        expect![
            r#"[{"id":"a","source":"/t","type":"T","time":"2020-08-13T17:18:13Z","data":1.0,"specversion":"1.0","deadletterreason":"MaxDeliveryAttemptsExceeded","deliveryattempts":1,"lastdeliveryoutcome":"NotFound","publishtime":"2020-08-13T17:18:14.0265750Z"}]"#
        ],
    );
}

#[test]
fn a_custom_event_is_written_in_an_envelope_with_its_object_last() {
    let wire = r#"{ "prop1": "my property", "prop2": 5, "myEventType": "fooEventType" }"#;
    check(
        FileContext {
            delivery: Schema::Custom,
            ..FORM
        },
        &event(
            Schema::Custom,
            wire,
            ["8bc07e6f", "my\\\"EventType", "subjectDefault"],
        ),
        &dead(),
        expect![[
            r#"[{"id":"8bc07e6f","eventTime":"2020-08-13T17:18:14.0265750Z","eventType":"my\"EventType","dataVersion":"1.0","metadataVersion":"1","topic":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/myCustomSchemaTopic","subject":"subjectDefault","deadLetterReason":"MaxDeliveryAttemptsExceeded","deliveryAttempts":1,"lastDeliveryOutcome":"NotFound","publishTime":"2020-08-13T17:18:14.0265750Z","lastDeliveryAttemptTime":"2020-08-13T17:18:14.0465750Z","data":{ "prop1": "my property", "prop2": 5, "myEventType": "fooEventType" }}]"#
        ]],
    );
}

/// The sample's envelope says `myEventType`, although the event has a property of that name with
/// another value: in that topic the type is constant. A dead letter has the delivery schema.
#[test]
fn a_custom_event_delivered_as_a_cloud_event_is_dead_lettered_as_one() {
    let wire = r#"{ "prop1": "my property", "n": 1.50 }"#;
    let event = event(
        Schema::Custom,
        wire,
        ["8bc07e6f", "my\\\"EventType", "subjectDefault"],
    );
    let sent = convert_event(&event, Schema::CloudEvents).expect("it can be delivered");
    let text = file(
        FileContext {
            delivery: Schema::CloudEvents,
            ..FORM
        },
        &[(event, dead())],
    );
    let dead_letter = text.trim_start_matches('[').trim_end_matches(']');
    let fate = r#","deadletterreason":"MaxDeliveryAttemptsExceeded","deliveryattempts":1,"lastdeliveryoutcome":"NotFound","publishtime":"2020-08-13T17:18:14.0265750Z"}"#;
    let sent = std::str::from_utf8(&sent).expect("JSON is UTF-8");
    assert_eq!(
        dead_letter,
        format!("{}{fate}", sent.strip_suffix('}').expect("an object"))
    );
    // It is read as the event that would have been delivered.
    let read = gridhook::dead_letter::event::DeadLetterEvent::read(dead_letter, true)
        .expect("a dead letter");
    assert_eq!(
        (read.event.as_str(), read.schema),
        (sent, Schema::CloudEvents)
    );
}

#[test]
fn the_specification_s_custom_event_is_dead_lettered_in_its_envelope() {
    let _rows = crate::spec::shows(&[
        "S000-184, S003-127: A dead-lettered event in the custom schema is wrapped in an Event \
         Grid envelope with the properties id, eventTime, eventType, dataVersion, metadataVersion, \
         topic, subject, deadLetterReason, deliveryAttempts, lastDeliveryOutcome, publishTime, \
         lastDeliveryAttemptTime and data, in this order.",
        "S000-185, S003-130: In the dead-lettered custom schema example, id is a GUID string \
         (8bc07e6f-0885-4729-90e4-7c3f052bd754) that does not occur in the original event.",
        "S000-186, S003-131: In the dead-lettered custom schema example, eventTime is equal to \
         publishTime (2020-08-13T18:11:29.4121391Z).",
        "S000-190, S003-135: In the dead-lettered custom schema example, topic is the resource \
         path of the topic, of the form \
         /subscriptions/.../resourceGroups/.../providers/Microsoft.EventGrid/topics/<topic-name>.",
        "S000-195: In the dead-lettered custom schema example, lastDeliveryAttemptTime is \
         2020-08-13T18:11:29.4277644Z, which is later than publishTime.",
        "S003-094: Events and dead-lettered events come in three delivery schema formats: Event \
         Grid schema, CloudEvents 1.0 schema and custom schema.",
        "S003-128: In the custom schema, data of the dead-lettered event is the publisher's whole \
         original object, unchanged.",
        "S003-129: In the custom schema, the dead-letter properties stand at the top level of the \
         envelope, before data.",
        "S003-132: In the custom schema's dead-letter example, eventType is myEventType although \
         the original object's myEventType property is fooEventType.",
        "S003-133: In the custom schema's dead-letter example, dataVersion is \"1.0\".",
        "S003-134: In the custom schema's dead-letter example, metadataVersion is the string \
         \"1\".",
        "S003-136: In the custom schema's dead-letter example, subject is subjectDefault, a value \
         that is not in the original object.",
        "S003-137: In the custom schema's dead-letter example, deadLetterReason is \
         MaxDeliveryAttemptsExceeded, deliveryAttempts is 1 and lastDeliveryOutcome is NotFound.",
        "S003-138: In the custom schema's dead-letter example, publishTime and \
         lastDeliveryAttemptTime are UTC times with seven fractional digits and a trailing Z.",
    ]);
    let sent = include_str!("../data/my-event.custom.json");
    let default = |text: &str| {
        Some(MappedFieldOrDefault {
            source_field: None,
            default_value: Some(text.to_owned()),
        })
    };
    let mut topic = topic("myCustomSchemaTopic", Schema::Custom);
    topic.ingress.mapping = Some(InputSchemaMapping {
        event_type: default("myEventType"),
        subject: default("subjectDefault"),
        data_version: default("1.0"),
        ..InputSchemaMapping::default()
    });
    let draft = schema::read_events(
        &EventTarget::for_topic(&topic),
        &RequestContent::default(),
        &sent.into(),
        &PublishLimits::default(),
    );
    let sealed = draft
        .expect("it is an event")
        .into_chunks()
        .remove(0)
        .stamp_record(PUBLISHED, RunningTotals::default());
    let chunk = Chunk::decode(Seq(7), sealed).expect("what was written is read");
    let event = chunk
        .decode_events()
        .expect("what was written is read")
        .remove(0);
    let own = sent
        .trim()
        .trim_start_matches('[')
        .trim_end_matches(']')
        .trim();
    let sent = convert_event(&event, Schema::Custom).expect("it is of that schema");
    assert_eq!(sent, own);
    let sent: Value = serde_json::from_slice(&sent).expect("JSON");
    fact("S000-183", &sent);
    fact("S003-126", &sent);

    let text = file(
        FileContext {
            delivery: Schema::Custom,
            topic: &topic.resource_id(),
            ..FORM
        },
        &[(event, dead())],
    );
    let [dead_letter]: [&RawValue; 1] = serde_json::from_str(&text).expect("an array of one");
    let id = text.split('"').nth(3).expect("the id comes first");
    assert!(
        id.parse::<uuid::Uuid>().is_ok() && !own.contains(id),
        "a GUID that the event does not have: {id}"
    );
    expect![[r#"{"id":"<guid>","eventTime":"2020-08-13T17:18:14.0265750Z","eventType":"myEventType","dataVersion":"1.0","metadataVersion":"1","topic":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/myCustomSchemaTopic","subject":"subjectDefault","deadLetterReason":"MaxDeliveryAttemptsExceeded","deliveryAttempts":1,"lastDeliveryOutcome":"NotFound","publishTime":"2020-08-13T17:18:14.0265750Z","lastDeliveryAttemptTime":"2020-08-13T17:18:14.0465750Z","data":<the event>}"#]]
        .assert_eq(&dead_letter.get().replace(id, "<guid>").replace(own, "<the event>"));
    let found: Value = serde_json::from_str(dead_letter.get()).expect("JSON");
    for (id, name) in [
        ("S000-187", "eventType"),
        ("S000-188", "dataVersion"),
        ("S000-189", "metadataVersion"),
        ("S000-191", "subject"),
        ("S000-192", "deadLetterReason"),
        ("S000-193", "deliveryAttempts"),
        ("S000-194", "lastDeliveryOutcome"),
        ("S000-196", "data"),
    ] {
        fact(id, &found[name]);
    }
}

#[test]
fn data_is_byte_for_byte_what_was_published() {
    for schema in [Schema::EventGrid, Schema::CloudEvents] {
        let generated: Vec<_> = events(schema, 11).take(1_000).collect();
        let put: Vec<_> = generated
            .iter()
            .map(|one| {
                (
                    event(schema, &one.json, [&one.id, &one.event_type, &one.subject]),
                    dead(),
                )
            })
            .collect();
        let text = file(
            FileContext {
                delivery: schema,
                ..FORM
            },
            &put,
        );
        let read: Vec<BTreeMap<String, &RawValue>> =
            serde_json::from_str(&text).expect("a JSON array of objects");
        assert_eq!(read.len(), generated.len());
        for (read, generated) in read.iter().zip(&generated) {
            assert_eq!(read["data"].get(), generated.data);
        }
    }
}

#[test]
fn the_event_of_a_dead_letter_is_what_it_was_before() {
    let _rows = crate::spec::shows(&[
        "S000-101, S002-039, S003-078: Undelivered events can be pulled from the dead-letter \
         storage so that their delivery can be resumed.",
    ]);
    let wire = r#"{"id":"a","eventTime":"2020-08-13T17:18:13Z","eventType":"T","dataVersion":"1","metadataVersion":"1","topic":"/t","subject":"s","data":{ "a" : 1.0 }}"#;
    let cloud = r#"{"specversion":"1.0","id":"a","source":"/s","type":"T","tenant":"x","data":{ "a" : 1.0 }}"#;
    let own = r#"{ "deadLetterReason": "mine", "data": 5 }"#;
    for (schema, wire) in [
        (Schema::EventGrid, wire),
        (Schema::CloudEvents, cloud),
        (Schema::Custom, own),
    ] {
        let text = file(
            FileContext {
                delivery: schema,
                ..FORM
            },
            &[(event(schema, wire, ["a", "T", "s"]), dead())],
        );
        let [dead_letter]: [&RawValue; 1] = serde_json::from_str(&text).expect("an array of one");
        assert_eq!(
            event_of(dead_letter.get(), schema == Schema::Custom).expect("a dead letter"),
            wire
        );
    }
    assert!(event_of(r#"{"id":"no envelope"}"#, true).is_err());
    assert!(event_of("[1]", false).is_err());
}

#[test]
fn a_file_has_a_limit_but_takes_at_least_one_event() {
    let event = event(Schema::EventGrid, r#"{"id":"a"}"#, ["a", "t", "s"]);
    for bytes_max in [0, 500] {
        let mut draft = FileBuilder::new(bytes_max);
        let added = (0..)
            .take_while(|_| {
                draft
                    .add(FORM, &event, Lane::LIVE, &dead())
                    .expect("an event")
            })
            .count();
        assert_eq!(draft.event_count(), added);
        let text = draft.finish();
        assert!(
            added == 1 && bytes_max == 0 || added == 2 && text.len() <= bytes_max,
            "{added} in {}",
            text.len()
        );
        serde_json::from_str::<Vec<BTreeMap<String, &RawValue>>>(&text).expect("whole");
    }
}

#[test]
fn an_invalid_event_is_refused_and_leaves_the_file_unchanged() {
    let mut draft = FileBuilder::new(1 << 20);
    let whole = event(Schema::EventGrid, r#"{"id":"a"}"#, ["a", "t", "s"]);
    draft
        .add(FORM, &whole, Lane::LIVE, &dead())
        .expect("an event");
    for (schema, wire) in [
        (Schema::EventGrid, "[1]"),
        (Schema::CloudEvents, r#"{"id":"a"}x"#),
        (Schema::Custom, r#"{"id":"#),
    ] {
        draft
            .add(
                FORM,
                &event(schema, wire, ["a", "t", "s"]),
                Lane::LIVE,
                &dead(),
            )
            .expect_err("it is no object");
    }
    assert_eq!(
        (draft.event_count(), draft.finish()),
        (1, file(FORM, &[(whole, dead())]))
    );
}

#[test]
fn a_path_has_the_name_in_upper_case_and_no_leading_zeros() {
    let id = uuid::Uuid::from_u128(0x1111_1111_1111_1111_1111_1111_1111_1111);
    // 2019-08-08T05:06:07Z
    let target = dead_letter::DeadLetterTarget {
        subscription_name: "my-blob-subscription".to_owned(),
        ..target("myblobcontainer")
    };
    let path = file_path(
        &target_folder(&target),
        Timestamp(1_565_240_767_000_000),
        id,
    );
    expect![
        "myblobcontainer/MY-BLOB-SUBSCRIPTION/2019/8/8/5/11111111-1111-1111-1111-111111111111.json"
    ]
    .assert_eq(&path);
}
