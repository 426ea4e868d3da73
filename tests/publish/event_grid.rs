//! Event Grid's own schema, rule by rule.

use expect_test::{Expect, expect};

use super::{event_grid, shown};

/// An event with everything that is required, `rest` put behind it.
fn event(rest: &str) -> String {
    format!(
        r#"[{{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z"{rest}}}]"#
    )
}

/// The same without the property `name`, and with `instead`.
fn without(name: &str, instead: &str) -> String {
    let all = [
        ("id", "1"),
        ("subject", "/s"),
        ("eventType", "T"),
        ("eventTime", "2026-11-20T10:00:00Z"),
    ];
    let kept = all
        .iter()
        .filter(|(given, _)| *given != name)
        .map(|(name, value)| format!("\"{name}\":\"{value}\""));
    format!("[{{{}{instead}}}]", kept.collect::<Vec<_>>().join(","))
}

#[track_caller]
fn check(body: &str, expected: Expect) {
    expected.assert_eq(&shown(event_grid(body.as_bytes())));
}

#[test]
fn an_event_is_stamped_and_written_in_one_order() {
    check(
        &event(""),
        expect![[
            r#"{"id":"1","topic":"<id>","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":""}"#
        ]],
    );
    check(
        &event(r#","data":{"a" : 1.50},"dataVersion":"2"  "#),
        expect![[
            r#"{"id":"1","topic":"<id>","subject":"/s","data":{"a" : 1.50},"eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":"2"}"#
        ]],
    );
    check(
        &event(r#","data":null,"dataVersion":null,"metadataVersion":null,"topic":null"#),
        expect![[
            r#"{"id":"1","topic":"<id>","subject":"/s","data":null,"eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":""}"#
        ]],
    );
    check(
        &event(r#","metadataVersion":"1","topic":"""#),
        expect![[
            r#"{"id":"1","topic":"<id>","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":""}"#
        ]],
    );
}

#[test]
fn a_topic_is_the_resource_or_left_out() {
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/orders";
    check(
        &event(&format!(r#","topic":"{id}""#)),
        expect![[
            r#"{"id":"1","topic":"<id>","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":""}"#
        ]],
    );
    check(
        &event(&format!(r#","topic":"{}""#, id.replace('/', r"\/"))),
        expect![[
            r#"{"id":"1","topic":"<id>","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":""}"#
        ]],
    );
    check(
        &event(&format!(r#","topic":"{}""#, id.to_uppercase())),
        expect!["401 Unauthorized: The 'topic' property of an event must be absent or '<id>'."],
    );
    check(
        &event(r#","topic":7"#),
        expect!["401 Unauthorized: The 'topic' property of an event must be absent or '<id>'."],
    );
    check(
        &event(r#","topic":{}"#),
        expect!["nonconforming. Property 'topic' is not a string."],
    );
}

#[test]
fn missing_properties_are_named() {
    check(
        &without("id", ""),
        expect!["requires 'id' property to be set."],
    );
    check(
        &without("subject", ""),
        expect!["requires 'subject' property to be set."],
    );
    check(
        &without("eventType", ""),
        expect!["requires 'eventType' property to be set."],
    );
    check(
        &without("eventTime", ""),
        expect!["requires 'eventTime' property to be set."],
    );
    check("[{}]", expect!["requires 'subject' property to be set."]);
    check(
        &without("id", r#","id":null"#),
        expect!["requires 'id' property to be set."],
    );
    check(
        &without("id", r#","id":"""#),
        expect!["requires 'id' property to be set."],
    );
    check(
        &without("eventType", r#","eventType":"""#),
        expect!["requires 'eventType' property to be set."],
    );
    check(
        &without("id", r#","id":[7]"#),
        expect!["nonconforming. Property 'id' is not a string."],
    );
    check(
        &without("id", r#","id":"\ud800""#),
        expect!["nonconforming. Property 'id' is not a string."],
    );
}

#[test]
fn an_empty_subject_is_a_subject() {
    check(
        &without("subject", r#","subject":"""#),
        expect![[
            r#"{"id":"1","topic":"<id>","subject":"","eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":""}"#
        ]],
    );
}

#[test]
fn other_properties_are_refused_by_name() {
    check(
        &event(r#","source":"x""#),
        expect![
            "nonconforming. Received unexpected property 'source' in JSON which does not conform \
             to the expected schema."
        ],
    );
    check(
        &event(r#","ID":"x""#),
        expect![
            "nonconforming. Received unexpected property 'ID' in JSON which does not conform to \
             the expected schema."
        ],
    );
    check(
        &event(r#","":0"#),
        expect![
            "nonconforming. Received unexpected property '' in JSON which does not conform to the \
             expected schema."
        ],
    );
    check(
        &event(&format!(r#","{}":0"#, "é".repeat(500_000))),
        expect![
            "nonconforming. Received unexpected property \
             'éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé' in JSON which does \
             not conform to the expected schema."
        ],
    );
}

#[test]
fn a_name_written_with_escapes_is_the_same_name() {
    check(
        &without("id", r#","\u0069d":"e""#),
        expect![[
            r#"{"id":"e","topic":"<id>","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":""}"#
        ]],
    );
    check(
        &event(r#","\u0069d":"e""#),
        expect!["nonconforming. Property 'id' is given more than once."],
    );
    check(
        &event(r#","\ud800":"e""#),
        expect!["nonconforming. It is not JSON: unexpected end of hex escape at line 1 column 84."],
    );
}

#[test]
fn a_property_comes_once() {
    check(
        &event(r#","id":"2""#),
        expect!["nonconforming. Property 'id' is given more than once."],
    );
    check(
        &event(r#","data":1,"data":null"#),
        expect!["nonconforming. Property 'data' is given more than once."],
    );
}

#[test]
fn a_time_is_iso_8601() {
    let check = |time: &str, expected: Expect| {
        let body = without("eventTime", &format!(r#","eventTime":"{time}""#));
        let shown = match event_grid(body.as_bytes()) {
            Ok(_) => format!("{time} is taken"),
            refused @ Err(_) => shown(refused),
        };
        expected.assert_eq(&shown);
    };
    check(
        "2020-08-13T17:18:13.1647262Z",
        expect!["2020-08-13T17:18:13.1647262Z is taken"],
    );
    check(
        "2020-08-13T17:18:13+0000",
        expect!["2020-08-13T17:18:13+0000 is taken"],
    );
    check(
        "2020-08-13T17:18:13.123456789-07:30",
        expect!["2020-08-13T17:18:13.123456789-07:30 is taken"],
    );
    check(
        "2020-08-13T17:18:13.164726",
        expect!["2020-08-13T17:18:13.164726 is taken"],
    );
    check(
        "2020-08-13",
        expect!["nonconforming. Property 'eventTime' is not an ISO 8601 date and time."],
    );
    check(
        "2020-02-30T00:00:00Z",
        expect!["nonconforming. Property 'eventTime' is not an ISO 8601 date and time."],
    );
    check(
        "2020-08-13T17:18:13Z[UTC]",
        expect!["nonconforming. Property 'eventTime' is not an ISO 8601 date and time."],
    );
    check(
        "8/13/2020 5:18:13 PM",
        expect!["nonconforming. Property 'eventTime' is not an ISO 8601 date and time."],
    );
    check(
        "yesterday",
        expect!["nonconforming. Property 'eventTime' is not an ISO 8601 date and time."],
    );
}

#[test]
fn a_usual_time_is_one_that_exists() {
    let is_taken = |time: &str| {
        event_grid(without("eventTime", &format!(r#","eventTime":"{time}""#)).as_bytes()).is_ok()
    };
    let usual = "2026-11-20T17:18:13.123456789Z";
    assert!(is_taken(usual));
    for at in 0..usual.len() {
        for byte in b"0123456789-:.TtZz +x" {
            let mut time = usual.as_bytes().to_vec();
            time[at] = *byte;
            let time = String::from_utf8(time).expect("ASCII");
            let exists = time.parse::<jiff::Timestamp>().is_ok()
                || time.parse::<jiff::civil::DateTime>().is_ok();
            assert_eq!(is_taken(&time), exists, "{time}");
        }
    }
    for time in [
        "2026-02-28T00:00:00Z",
        "2024-02-29T23:59:59Z",
        "9999-12-28T23:59:59.9Z",
        "2026-11-20T17:18:13Z",
    ] {
        assert!(is_taken(time), "{time}");
    }
    for time in [
        "2026-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-11-20T17:18:13.1234567890Z",
    ] {
        assert!(!is_taken(time), "{time}");
    }
}

#[test]
fn a_metadata_version_can_only_be_one() {
    check(
        &event(r#","metadataVersion":"2""#),
        expect![[r#"nonconforming. Property 'metadataVersion' can only be "1"."#]],
    );
    check(
        &event(r#","metadataVersion":2"#),
        expect![[r#"nonconforming. Property 'metadataVersion' can only be "1"."#]],
    );
}

#[test]
fn a_number_or_a_boolean_stands_for_its_text() {
    let body = r#"[{"id":12.50,"subject":true,"data":{"id":7},"eventType":-1e3,"eventTime":"2026-11-20T10:00:00Z","dataVersion":1.0,
        "metadataVersion":1}]"#;
    check(
        body,
        expect![[
            r#"{"id":"12.50","topic":"<id>","subject":"true","data":{"id":7},"eventType":"-1e3","eventTime":"2026-11-20T10:00:00Z","metadataVersion":"1","dataVersion":"1.0"}"#
        ]],
    );
    let events = event_grid(body.as_bytes()).expect("an event");
    let texts = [
        events[0].id(),
        events[0].event_type(),
        events[0].subject(),
        events[0].data_version(),
    ];
    assert_eq!(texts, ["12.50", "-1e3", "true", "1.0"]);
    check(
        &without("eventTime", r#","eventTime":7"#),
        expect!["nonconforming. Property 'eventTime' is not an ISO 8601 date and time."],
    );
}

#[test]
fn a_time_may_be_the_last_one_of_net_and_an_offset_is_less_than_a_day() {
    for (time, is_taken) in [
        ("9999-12-31T23:59:59.9999999Z", true),
        ("9999-12-31T23:59:59.9999999+00:00", true),
        ("9999-12-31T23:59:59", true),
        ("9999-12-31T23:59:59-23:59", true),
        ("2026-11-20T10:00:00+23:59", true),
        ("2026-11-20T10:00:00+24:00", false),
        ("2026-11-20T10:00:00-25:59", false),
        ("10000-01-01T00:00:00Z", false),
    ] {
        let body = without("eventTime", &format!(r#","eventTime":"{time}""#));
        assert_eq!(event_grid(body.as_bytes()).is_ok(), is_taken, "{time}");
    }
}

#[test]
fn a_body_is_an_array_of_objects() {
    check(
        "",
        expect!["400 InputJsonInvalid: Unexpected end when reading JSON."],
    );
    check(
        " \r\n",
        expect!["400 InputJsonInvalid: Unexpected end when reading JSON."],
    );
    check("[]", expect!["nonconforming."]);
    check(
        "{}",
        expect!["nonconforming. Token Expected: StartArray, Actual Token Received: StartObject."],
    );
    check(
        "null",
        expect!["nonconforming. Token Expected: StartArray, Actual Token Received: Null."],
    );
    check(
        "[1]",
        expect!["nonconforming. Token Expected: StartObject, Actual Token Received: Integer."],
    );
    check(
        "[1.5e3]",
        expect!["nonconforming. Token Expected: StartObject, Actual Token Received: Float."],
    );
    check(
        "[[]]",
        expect!["nonconforming. Token Expected: StartObject, Actual Token Received: StartArray."],
    );
    check(
        "events",
        expect!["nonconforming. It is not JSON: it does not begin with a JSON value."],
    );
}

#[test]
fn a_body_is_json() {
    check(
        "[",
        expect!["400 InputJsonInvalid: Unexpected end when reading JSON."],
    );
    check(
        r#"[{"id":"1"#,
        expect!["400 InputJsonInvalid: Unexpected end when reading JSON."],
    );
    check(
        r#"[{"id":"1",}]"#,
        expect!["nonconforming. It is not JSON: key must be a string at line 1 column 12."],
    );
    check(
        r#"[{"id":01}]"#,
        expect!["nonconforming. It is not JSON: invalid number at line 1 column 9."],
    );
    check(
        "[{}]]",
        expect!["nonconforming. It is not JSON: trailing characters at line 1 column 5."],
    );
    check(
        "[{},]",
        expect!["nonconforming. It is not JSON: trailing comma at line 1 column 5."],
    );
    check(
        "\u{feff}[]",
        expect!["nonconforming. It is not JSON: it does not begin with a JSON value."],
    );
    check(
        &event("").replace("/s", "/\n"),
        expect![[
            r#"nonconforming. It is not JSON: control character (\u0000-\u001F) found while parsing a string at line 1 column 23."#
        ]],
    );
    expect!["nonconforming. It is not JSON: byte 8 is not UTF-8."]
        .assert_eq(&shown(event_grid(b"[{\"id\":\"\xff\"}]")));
}

#[test]
fn one_bad_event_refuses_the_request() {
    let good = event("");
    let body = format!("[{},{}]", &good[1..good.len() - 1], "{}");
    check(&body, expect!["requires 'subject' property to be set."]);
}

#[test]
fn routing_finds_its_strings() {
    let body = r#"[{"dataVersion":"v\u0031","eventType":"Typ\u00e9","data":{"id":"no"},"subject":"\/s\"","id":"é1",
        "eventTime":"2026-11-20T10:00:00Z"},{"id":"2","subject":"","eventType":"U","eventTime":"2026-11-20T10:00:00Z"}]"#;
    let events = event_grid(body.as_bytes()).expect("both are events");
    let strings = |at: usize| {
        let event = &events[at];
        [
            event.id(),
            event.event_type(),
            event.subject(),
            event.data_version(),
        ]
        .map(|text| text.into_owned())
    };
    assert_eq!(strings(0), ["é1", "Typé", "/s\"", "v1"]);
    assert_eq!(strings(1), ["2", "U", "", ""]);
}
