//! CloudEvents 1.0, rule by rule.

use expect_test::{Expect, expect};
use gridhook::{event::Schema, publish::PublishLimits};

use super::{cloud_event, cloud_events, read, shown};

/// An event with everything that is required, `rest` put behind it.
fn event(rest: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"1","source":"/a","type":"T"{rest}}}"#)
}

fn without(name: &str, instead: &str) -> String {
    let all = [
        ("specversion", "1.0"),
        ("id", "1"),
        ("source", "/a"),
        ("type", "T"),
    ];
    let kept = all
        .iter()
        .filter(|(given, _)| *given != name)
        .map(|(name, value)| format!("\"{name}\":\"{value}\""));
    format!("{{{}{instead}}}", kept.collect::<Vec<_>>().join(","))
}

#[track_caller]
fn check(body: &str, expected: Expect) {
    expected.assert_eq(&shown(cloud_event(body.as_bytes())));
}

#[track_caller]
fn is_taken(body: &str) {
    assert_eq!(shown(cloud_event(body.as_bytes())), body);
}

#[test]
fn an_event_is_kept_as_it_was_sent() {
    is_taken(&event(""));
    is_taken(&event(
        r#" , "data" : { "a":1.0, "a":-0 } , "\u0074ime":"2018-04-05T17:31:00Z""#,
    ));
    let padded = format!("\r\n {} \t", event(""));
    assert_eq!(shown(cloud_event(padded.as_bytes())), event(""));
}

#[test]
fn a_batch_has_any_number_of_events() {
    let body = format!("[ {} , {}\n]", event(""), event(r#","data":[ 1 ]"#));
    assert_eq!(
        shown(cloud_events(body.as_bytes())),
        format!("{}\n{}", event(""), event(r#","data":[ 1 ]"#))
    );
    expect!["nonconforming."].assert_eq(&shown(cloud_events(b"[]")));
    expect!["nonconforming. Token Expected: StartArray, Actual Token Received: StartObject."]
        .assert_eq(&shown(cloud_events(event("").as_bytes())));
    expect!["nonconforming. Token Expected: StartObject, Actual Token Received: Null."]
        .assert_eq(&shown(cloud_events(b"[null]")));
}

#[test]
fn the_content_type_says_how_many() {
    let check = |content_type: &str, body: &str, expected: Expect| {
        let result = read(
            Schema::CloudEvents,
            content_type,
            body.as_bytes(),
            &PublishLimits::default(),
        );
        expected.assert_eq(&shown(result));
    };
    let batch = format!("[{}]", event(""));
    check(
        "application/json",
        &event(""),
        expect![[r#"{"specversion":"1.0","id":"1","source":"/a","type":"T"}"#]],
    );
    check(
        "application/json",
        &batch,
        expect!["nonconforming. Token Expected: StartObject, Actual Token Received: StartArray."],
    );
    check(
        "Application/CloudEvents-Batch+JSON ;charset=UTF-8",
        &batch,
        expect![[r#"{"specversion":"1.0","id":"1","source":"/a","type":"T"}"#]],
    );
    check(
        "application/cloudevents+json",
        &batch,
        expect!["nonconforming. Token Expected: StartObject, Actual Token Received: StartArray."],
    );
    check(
        "application/xml",
        &event(""),
        expect![
            "415 InvalidContentType: The Content-Type header is either missing or it doesn't have \
             a valid value. The content type header must either be application/cloudevents+json; \
             charset=utf-8 or application/cloudevents-batch+json; charset=UTF-8."
        ],
    );
    check(
        "application/cloudevents+xml",
        &event(""),
        expect![
            "415 InvalidContentType: The Content-Type header is either missing or it doesn't have \
             a valid value. The content type header must either be application/cloudevents+json; \
             charset=utf-8 or application/cloudevents-batch+json; charset=UTF-8."
        ],
    );
    check(
        "",
        &event(""),
        expect![
            "415 InvalidContentType: The Content-Type header is either missing or it doesn't have \
             a valid value. The content type header must either be application/cloudevents+json; \
             charset=utf-8 or application/cloudevents-batch+json; charset=UTF-8."
        ],
    );
}

#[test]
fn missing_properties_are_named() {
    check(
        &without("id", ""),
        expect!["requires 'id' property to be set."],
    );
    check(
        &without("source", ""),
        expect!["requires 'source' property to be set."],
    );
    check(
        &without("type", ""),
        expect!["requires 'eventType' property to be set."],
    );
    check(
        &without("specversion", ""),
        expect!["requires 'specversion' property to be set."],
    );
    check(
        &without("id", r#","id":"""#),
        expect!["requires 'id' property to be set."],
    );
    check(
        &without("source", r#","source":null"#),
        expect!["requires 'source' property to be set."],
    );
    check(
        &without("type", r#","type":1"#),
        expect!["nonconforming. Property 'type' is not a string."],
    );
    check(
        &without("specversion", r#","specversion":"0.3""#),
        expect![[r#"nonconforming. Property 'specversion' can only be "1.0"."#]],
    );
    check(
        &without("specversion", r#","specversion":1.0"#),
        expect!["nonconforming. Property 'specversion' is not a string."],
    );
}

#[test]
fn optional_attributes_are_strings_or_null() {
    is_taken(&event(
        r#","subject":null,"time":null,"datacontenttype":null,"dataschema":null"#,
    ));
    is_taken(&event(
        r#","subject":"","datacontenttype":"application/cloudevents+json; charset=utf-8","dataschema":"x:y""#,
    ));
    check(
        &event(r#","subject":7"#),
        expect!["nonconforming. Property 'subject' is not a string."],
    );
    check(
        &event(r#","datacontenttype":{}"#),
        expect!["nonconforming. Property 'datacontenttype' is not a string."],
    );
    check(
        &event(r#","dataschema":["x"]"#),
        expect!["nonconforming. Property 'dataschema' is not a string."],
    );
    check(
        &event(r#","subject":"\udc00""#),
        expect!["nonconforming. Property 'subject' is not a string."],
    );
}

#[test]
fn a_time_is_rfc_3339() {
    for time in [
        "9999-12-31T23:59:59.9999999Z",
        "2018-04-05T17:31:00+23:59",
        "2018-04-05T17:31:00Z",
        "2018-04-05t17:31:00.123456789z",
        "2018-04-05T17:31:00-07:00",
        "2016-12-31T23:59:60Z",
    ] {
        is_taken(&event(&format!(r#","time":"{time}""#)));
    }
    let wrong = [
        "2018-04-05T17:31:00",
        "2018-04-05T17:31:00+0000",
        "2018-04-05T17:31:00+24:00",
        "2018-04-05T17:31:00-25:59",
        "2018-04-05T17:31Z",
        "2018-04-05",
        "2018-13-05T17:31:00Z",
        "",
        "2018-04-05T17:31:00Z[UTC]",
        "2018-04-05T17:31:00,5Z",
    ];
    for time in wrong {
        assert_eq!(
            shown(cloud_event(
                event(&format!(r#","time":"{time}""#)).as_bytes()
            )),
            "nonconforming. Property 'time' is not an RFC 3339 date and time."
        );
    }
}

#[test]
fn extensions_have_simple_names_and_values() {
    is_taken(&event(
        r#","comexampleextension1":"value","a":5,"b":-2147483648,"c":true,"d":null,"0":"""#,
    ));
    check(
        &event(r#","Upper":"x""#),
        expect![
            "nonconforming. Received unexpected property 'Upper' in JSON which does not conform to \
             the expected schema."
        ],
    );
    check(
        &event(r#","with_underscore":"x""#),
        expect![
            "nonconforming. Received unexpected property 'with_underscore' in JSON which does not \
             conform to the expected schema."
        ],
    );
    check(
        &event(r#","":"x""#),
        expect![
            "nonconforming. Received unexpected property '' in JSON which does not conform to the \
             expected schema."
        ],
    );
    check(
        &event(r#","a":1.5"#),
        expect![
            "nonconforming. Extension 'a' is not a string, a boolean or an integer of 32 bits."
        ],
    );
    check(
        &event(r#","a":2147483648"#),
        expect![
            "nonconforming. Extension 'a' is not a string, a boolean or an integer of 32 bits."
        ],
    );
    check(
        &event(r#","a":{}"#),
        expect![
            "nonconforming. Extension 'a' is not a string, a boolean or an integer of 32 bits."
        ],
    );
    check(
        &event(r#","a":[]"#),
        expect![
            "nonconforming. Extension 'a' is not a string, a boolean or an integer of 32 bits."
        ],
    );
    check(
        &event(r#","a":"\ud800""#),
        expect![
            "nonconforming. Extension 'a' is not a string, a boolean or an integer of 32 bits."
        ],
    );
}

#[test]
fn a_member_comes_once() {
    check(
        &event(r#","id":"2""#),
        expect!["nonconforming. Property 'id' is given more than once."],
    );
    check(
        &event(r#","ext":"2","\u0065xt":"3""#),
        expect!["nonconforming. Property 'ext' is given more than once."],
    );
}

#[test]
fn data_is_json_or_base64_not_both() {
    is_taken(&event(r#","data_base64":"aGVsbG8=""#));
    is_taken(&event(r#","data_base64":"\/\/8=""#));
    is_taken(&event(r#","data_base64":"""#));
    is_taken(&event(r#","data":null,"data_base64":"AA==""#));
    check(
        &event(r#","data":{},"data_base64":"AA==""#),
        expect!["nonconforming. Properties 'data' and 'data_base64' are both given."],
    );
    check(
        &event(r#","data_base64":"hello""#),
        expect!["nonconforming. Property 'data_base64' is not base64."],
    );
    check(
        &event(r#","data_base64":{}"#),
        expect!["nonconforming. Property 'data_base64' is not a string."],
    );
}

#[test]
fn routing_finds_its_strings() {
    let body = r#" {"type" : "T\u0079pe","data":{"id":"no"},"subject": "\/s","id":"é","source":"x","specversion":"1.0"}"#;
    let events = cloud_event(body.as_bytes()).expect("it is an event");
    let event = &events[0];
    let strings = [
        event.id(),
        event.event_type(),
        event.subject(),
        event.data_version(),
    ];
    assert_eq!(strings, ["é", "Type", "/s", ""]);
    let events = cloud_event(self::event(r#","subject":null"#).as_bytes()).expect("it is an event");
    assert_eq!(events[0].subject(), "");
}
