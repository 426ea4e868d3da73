//! Files of all five shapes are read. Damaged dead letters are reported and hide no others.

use gridhook::{
    dead_letter::event::{DeadLetterEvent, DeadLetterResult, read},
    event::{Schema, Timestamp},
};
use proptest::prelude::*;

/// A CloudEvent, with white space and numbers that a parser would change.
const CLOUD: &str = r#""specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"A234","data":{ "n" : 1.0,  "s":"\u00fc" }"#;

/// 2023-06-19T23:28:08.306389Z
const PUBLISHED: Timestamp = Timestamp(1_687_217_288_306_389);

fn one(file: &str, custom: bool) -> DeadLetterEvent {
    let mut dead_letters = read(file.as_bytes(), custom).expect("a file");
    assert_eq!(dead_letters.len(), 1, "{file}");
    dead_letters.remove(0).expect("a letter")
}

fn basic() -> DeadLetterResult {
    DeadLetterResult {
        reason: Some("MaxDeliveryAttemptsExceeded".to_owned()),
        attempts: Some(3),
        outcome: Some("NotFound".to_owned()),
        status: Some(404),
        published: Some(PUBLISHED),
        tried: Some(PUBLISHED),
    }
}

fn namespace() -> DeadLetterResult {
    DeadLetterResult {
        reason: Some("Undeliverable due to client error".to_owned()),
        outcome: Some("Unauthorized".to_owned()),
        status: None,
        ..basic()
    }
}

const BASIC_FATE: &str = r#""deadLetterReason":"MaxDeliveryAttemptsExceeded","deliveryAttempts":3,"lastDeliveryOutcome":"NotFound","publishTime":"2023-06-19T23:28:08.3063899Z","lastDeliveryAttemptTime":"2023-06-19T23:28:08.3063899Z","lastHttpStatusCode":404"#;
const NAMESPACE_FATE: &str = r#"{"deadletterreason":"Undeliverable due to client error","deliveryattempts":3,"deliveryresult":"Unauthorized","publishutc":"2023-06-19T23:28:08.3063899Z","deliveryattemptutc":"2023-06-19T23:28:08.3063899Z"}"#;

#[test]
fn an_event_grid_event_is_read_as_it_was() {
    let event = r#""id":"a","eventTime":"2020-08-13T17:18:13Z","eventType":"T","dataVersion":"","subject":"/s","data":{ "n" : 1.0 }"#;
    let dead_letter = one(&format!("[{{{event},{BASIC_FATE}}}]"), false);
    assert_eq!(
        (dead_letter.event, dead_letter.schema),
        (format!("{{{event}}}"), Schema::EventGrid)
    );
    assert_eq!(
        (
            dead_letter.id.as_deref(),
            dead_letter.event_type.as_deref(),
            dead_letter.subject.as_deref()
        ),
        (Some("a"), Some("T"), Some("/s"))
    );
    assert_eq!(dead_letter.result, basic());
}

#[test]
fn a_single_cloud_event_is_read_as_it_was() {
    let fate = r#""deadletterreason":"MaxDeliveryAttemptsExceeded","deliveryattempts":3,"lastdeliveryoutcome":"NotFound","publishtime":"2023-06-19T23:28:08.3063899Z""#;
    for (before, behind) in [("[", "]"), (" ", "\n")] {
        let dead_letter = one(&format!("{before}{{{CLOUD},{fate}}}{behind}"), true);
        assert_eq!(
            (dead_letter.event, dead_letter.schema),
            (format!("{{{CLOUD}}}"), Schema::CloudEvents)
        );
        assert_eq!(
            dead_letter.result,
            DeadLetterResult {
                status: None,
                tried: None,
                ..basic()
            }
        );
    }
}

#[test]
fn the_data_of_a_custom_event_is_the_event() {
    let envelope = r#""id":"a","eventTime":"2020-08-13T17:18:13Z","eventType":"T","dataVersion":"1.0","topic":"/t","subject":"s""#;
    let file = format!(r#"[{{{envelope},{BASIC_FATE},"data":{{ "my" : [1e3] }}}}]"#);
    let dead_letter = one(&file, true);
    assert_eq!(
        (dead_letter.event.as_str(), dead_letter.schema),
        (r#"{ "my" : [1e3] }"#, Schema::Custom)
    );
    assert_eq!(
        (dead_letter.id.as_deref(), dead_letter.result),
        (Some("a"), basic()),
        "its envelope says what it is"
    );
    assert_eq!(
        one(&file, false).schema,
        Schema::EventGrid,
        "in another topic it is an event like any"
    );
}

#[test]
fn the_form_of_a_namespace_is_read_under_each_of_its_names() {
    for name in [
        "deadletterProperties",
        "deadLetterProperties",
        "brokerProperties",
    ] {
        for delivery in [
            r#""customDeliveryProperties":{"custom-header-1":"value1"},"#,
            "",
        ] {
            let dead_letter = one(
                &format!(r#"[{{"event":{{{CLOUD}}},{delivery}"{name}":{NAMESPACE_FATE}}}]"#),
                false,
            );
            assert_eq!(
                (dead_letter.event, dead_letter.schema),
                (format!("{{{CLOUD}}}"), Schema::CloudEvents),
                "{name}"
            );
            assert_eq!(
                (dead_letter.id.as_deref(), dead_letter.result),
                (Some("A234"), namespace()),
                "{name}"
            );
        }
    }
}

#[test]
fn the_flat_form_of_a_namespace_is_read_without_the_added_properties() {
    let file = format!(
        r#"{{{CLOUD},"customDeliveryProperties":{{"a":"b"}},"deadletterProperties":{NAMESPACE_FATE}}}"#
    );
    let dead_letter = one(&file, false);
    assert_eq!(
        (dead_letter.event, dead_letter.schema, dead_letter.result),
        (format!("{{{CLOUD}}}"), Schema::CloudEvents, namespace())
    );
}

#[test]
fn an_event_of_the_binary_mode_keeps_its_base64() {
    let event = r#"{"specversion":"1.0","type":"t","source":"/s","id":"b","datacontenttype":"application/vnd.apache.thrift.binary","data_base64":"AAEC"}"#;
    let dead_letter = one(
        &format!(r#"[{{"event":{event},"deadletterProperties":{NAMESPACE_FATE}}}]"#),
        false,
    );
    assert_eq!(
        (dead_letter.event.as_str(), dead_letter.schema),
        (event, Schema::CloudEvents)
    );
}

#[test]
fn a_damaged_dead_letter_is_reported_and_hides_no_other() {
    let good = format!(r#"{{"id":"a","eventType":"T",{BASIC_FATE}}}"#);
    let table = [
        ("17", "invalid type"),
        (r#"{"id":"a"}"#, "it is not a dead letter"),
        (r#"{"deadLetterReason":"x"}"#, "its event has no id"),
        (
            r#"{"event":{"id":"a"},"deadletterProperties":{}}"#,
            "it has no specversion",
        ),
        (
            r#"{"event":{"specversion":"1.0"},"deadletterProperties":{}}"#,
            "has no id",
        ),
        (
            r#"{"specversion":"1.0","id":"a","deadletterProperties":[]}"#,
            "deadletterProperties: invalid type",
        ),
    ];
    for (bad, problem) in table {
        let dead_letters =
            read(format!("[{good},{bad},{good}]").as_bytes(), false).expect("a file");
        assert!(dead_letters[0].is_ok() && dead_letters[2].is_ok(), "{bad}");
        let why = dead_letters[1].as_ref().expect_err(bad);
        assert!(why.contains(problem), "{bad}: {why}");
    }
    let without_data = read(format!("[{good}]").as_bytes(), true)
        .expect("a file")
        .remove(0);
    assert!(
        without_data
            .expect_err("no data")
            .contains("missing field `data`")
    );
    for (file, problem) in [
        ("", "EOF"),
        ("[", "EOF"),
        ("[{}", "EOF"),
        (r#"{"id":"#, "EOF"),
        ("17", "invalid type"),
        ("[] []", "trailing characters"),
        (r#"[{"id":"a",}]"#, "key must be a string"),
    ] {
        let why = read(file.as_bytes(), false).expect_err(file);
        assert!(why.contains(problem), "{file}: {why}");
    }
    assert_eq!(
        read(b"[\xff]", false),
        Err("byte 1 is not UTF-8".to_owned())
    );
    let many = format!("[{}0]", "0,".repeat(100_000));
    assert!(
        read(many.as_bytes(), false)
            .expect_err("too many")
            .contains("at most 100000 are read")
    );
}

proptest! {
    #[test]
    fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), custom in any::<bool>()) {
        read(&bytes, custom).ok();
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_no_file(cut in 1usize..300) {
        let file = format!(r#"[{{"event":{{{CLOUD}}},"deadletterProperties":{NAMESPACE_FATE}}}]"#);
        prop_assume!(cut < file.len());
        prop_assert!(read(&file.as_bytes()[..cut], false).is_err());
    }
}
