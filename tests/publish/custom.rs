//! A custom schema: any objects, and a mapping to the fields of Event Grid.

use expect_test::{Expect, expect};
use gridhook::{
    deliver::convert::convert_event,
    event::{Event, Schema},
};

use super::{custom, shown};

fn one(object: &str) -> Event {
    let events = custom(format!("[{object}]").as_bytes());
    let mut events = events.unwrap_or_else(|refusal| panic!("{object}: {refusal}"));
    assert_eq!(events.len(), 1);
    events.remove(0)
}

#[track_caller]
fn check(object: &str, expected: Expect) {
    let shown = match custom(format!("[{object}]").as_bytes()) {
        Ok(events) => {
            let event = &events[0];
            assert_eq!(event.to_wire_bytes(), object.trim());
            let time = event.event_time();
            let strings = [
                event.id(),
                event.event_type(),
                event.subject(),
                event.data_version(),
            ];
            format!("{strings:?} {time:?}")
        }
        refused @ Err(_) => shown(refused),
    };
    expected.assert_eq(&shown);
}

#[test]
fn the_mapping_says_where_the_properties_are() {
    check(
        r#"{"eventId":"e-1","when":"2026-11-20T10:00:00Z","myEventTypeField":"T","path":"/p","ver":"2","data":{"a": 1.0}}"#,
        expect![[r#"["e-1", "T", "/p", "2"] Some("2026-11-20T10:00:00Z")"#]],
    );
    check(
        r#"{"eventId":"\u0061/\"b\"","ver":"","path":""}"#,
        expect![[r#"["a/\"b\"", "CustomType", "", ""] None"#]],
    );
    check(
        r#"{"eventId":17,"ver":1.50,"path":true,"myEventTypeField":-1e3}"#,
        expect![[r#"["17", "-1e3", "true", "1.50"] None"#]],
    );
    check(
        r#"{"eventId":"1","ver":"1","myEventTypeField":null,"path":null,"when":null,"t":null}"#,
        expect![[r#"["1", "CustomType", "Default\"Subject", "1"] None"#]],
    );
    check(
        r#" { "ver" : "1" , "eventId" : "x" , "data" : { "eventId" : "y" } } "#,
        expect![[r#"["x", "CustomType", "Default\"Subject", "1"] None"#]],
    );
    check(
        r#"{"eventId":"1","ver":"1","t":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders"}"#,
        expect![[r#"["1", "CustomType", "Default\"Subject", "1"] None"#]],
    );
}

#[test]
fn missing_properties_are_generated_or_refused() {
    let event = one(r#"{"ver":"1","eventId":""}"#);
    let id = uuid::Uuid::parse_str(&event.id()).expect("a made id is a GUID");
    assert_eq!(id.get_version_num(), 4);
    assert_ne!(one(r#"{"ver":"1"}"#).id(), event.id());
    assert_eq!(
        (event.event_type().as_ref(), event.subject().as_ref()),
        ("CustomType", "Default\"Subject")
    );
    assert_eq!(event.event_time(), None, "the time of arrival is the log's");
    // `dataVersion` is mapped and has no default.
    check(
        r#"{"eventId":"1"}"#,
        expect!["requires 'ver' property to be set."],
    );
    check(
        r#"{"eventId":"1","ver":null}"#,
        expect!["requires 'ver' property to be set."],
    );
    let two = custom(br#"[{"eventId":"1","ver":"1"},{"eventId":"2"}]"#);
    expect!["requires 'ver' property to be set."].assert_eq(&shown(two));
}

#[test]
fn a_value_that_cannot_be_a_property_is_refused() {
    check(
        r#"{"ver":{}}"#,
        expect![
            "nonconforming. Property 'ver', which is the event's 'dataVersion', is not a string, a \
             number or a boolean."
        ],
    );
    check(
        r#"{"ver":"1","eventId":["a"]}"#,
        expect![
            "nonconforming. Property 'eventId', which is the event's 'id', is not a string, a \
             number or a boolean."
        ],
    );
    check(
        r#"{"ver":"1","path":"\ud800"}"#,
        expect![
            "nonconforming. Property 'path', which is the event's 'subject', is not a string, a \
             number or a boolean."
        ],
    );
    check(
        r#"{"ver":"1","when":"yesterday"}"#,
        expect![
            "nonconforming. Property 'when', which is the event's 'eventTime', is not an ISO 8601 \
             date and time."
        ],
    );
    check(
        r#"{"ver":"1","when":1700000000}"#,
        expect![
            "nonconforming. Property 'when', which is the event's 'eventTime', is not an ISO 8601 \
             date and time."
        ],
    );
    check(
        r#"{"ver":"1","ver":"2"}"#,
        expect!["nonconforming. Property 'ver' is given more than once."],
    );
    check(
        r#"{"ver":"1","t":"/other"}"#,
        expect!["401 Unauthorized: The 'topic' property of an event must be absent or '<id>'."],
    );
}

#[test]
fn a_body_is_an_array_of_objects() {
    let check = |body: &str, expected: Expect| expected.assert_eq(&shown(custom(body.as_bytes())));
    check(
        "{}",
        expect!["nonconforming. Token Expected: StartArray, Actual Token Received: StartObject."],
    );
    check("[]", expect!["nonconforming."]);
    check(
        "[1]",
        expect!["nonconforming. Token Expected: StartObject, Actual Token Received: Integer."],
    );
    check(
        "",
        expect!["400 InputJsonInvalid: Unexpected end when reading JSON."],
    );
    check(
        "[{]",
        expect!["nonconforming. It is not JSON: key must be a string at line 1 column 3."],
    );
    check(
        &format!(
            r#"[{{"ver":"1","x":{}1{}}}]"#,
            "[".repeat(125),
            "]".repeat(125)
        ),
        expect!["nonconforming. An event is nested more than 125 levels deep."],
    );
}

const OBJECT: &str = r#"{"eventId":"e\"1","when":"2026-11-20T10:00:00+01:00","path":"/\u00e9","ver":1,"n":[ 1.50, 1e400 ],"u":"\ud800"}"#;

#[test]
fn it_is_delivered_as_it_came_or_whole_in_an_envelope() {
    let _rows = crate::spec::shows(&[
        "S000-118: There are three delivery schema formats: Event Grid schema, CloudEvents 1.0 \
         schema and custom schema.",
    ]);
    let event = one(OBJECT);
    let of = |schema| {
        let form = convert_event(&event, schema).expect("there is a way");
        String::from_utf8(form.to_vec())
            .expect("it is text")
            .replace(OBJECT, "<object>")
    };
    assert_eq!(of(Schema::Custom), "<object>");
    expect![[r#"{"id":"e\"1","topic":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders","subject":"/\u00e9","data":<object>,"eventType":"CustomType","eventTime":"2026-11-20T10:00:00+01:00","metadataVersion":"1","dataVersion":"1"}"#]].assert_eq(&of(Schema::EventGrid));
    expect![[r#"{"id":"e\"1","source":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders","type":"CustomType","time":"2026-11-20T10:00:00+01:00","subject":"/\u00e9","data":<object>,"specversion":"1.0"}"#]].assert_eq(&of(Schema::CloudEvents));
}

#[test]
fn an_envelope_has_the_defaults_and_the_time_of_arrival() {
    let object = r#"{"ver":"","eventId":"1","path":"","when":null}"#;
    let event = one(object);
    let of = |schema| {
        let form = convert_event(&event, schema).expect("there is a way");
        let value: serde_json::Value = serde_json::from_slice(&form).expect("it is JSON");
        assert_eq!(
            value["data"],
            serde_json::from_str::<serde_json::Value>(object).expect("it is JSON")
        );
        String::from_utf8(form.to_vec())
            .expect("it is text")
            .replace(object, "<object>")
    };
    expect![[r#"{"id":"1","topic":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders","subject":"","data":<object>,"eventType":"CustomType","eventTime":"1970-01-01T00:00:00.0000010Z","metadataVersion":"1","dataVersion":""}"#]].assert_eq(&of(Schema::EventGrid));
    expect![[r#"{"id":"1","source":"/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders","type":"CustomType","time":"1970-01-01T00:00:00.0000010Z","data":<object>,"specversion":"1.0"}"#]].assert_eq(&of(Schema::CloudEvents));
}
