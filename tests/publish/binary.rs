//! CloudEvents in binary mode: attributes in headers, data in the body.

use ::bytes::Bytes;
use expect_test::{Expect, expect};
use gridhook::{
    event::{Name, Schema},
    publish::{
        PublishLimits, Refusal,
        schema::{self, EventTarget, RequestContent},
    },
    record::topic::NamespaceMembership,
};
use proptest::prelude::*;

use super::{Event, decode, shown, target};
use crate::support::publisher::topic;

fn read(content_type: &str, headers: &[(&str, &[u8])], body: &str) -> Result<Vec<Event>, Refusal> {
    let content = RequestContent {
        content_type: Some(content_type),
        attributes: headers.to_vec(),
    };
    let body = Bytes::copy_from_slice(body.as_bytes());
    schema::read_events(
        &target(Schema::CloudEvents),
        &content,
        &body,
        &PublishLimits::default(),
    )
    .map(decode)
}

/// With everything that is required.
fn all<'a>(more: &[(&'a str, &'a [u8])]) -> Vec<(&'a str, &'a [u8])> {
    let required: [(&str, &[u8]); 4] = [
        ("id", b"1"),
        ("source", b"/a"),
        ("type", b"T"),
        ("specversion", b"1.0"),
    ];
    let replaced = |name: &str| more.iter().any(|(other, _)| *other == name);
    required
        .into_iter()
        .filter(|(name, _)| !replaced(name))
        .chain(more.iter().copied())
        .collect()
}

#[track_caller]
fn check(more: &[(&str, &[u8])], body: &str, expected: Expect) {
    expected.assert_eq(&shown(read("application/json", &all(more), body)));
}

#[test]
fn an_event_is_kept_in_its_json_form_with_its_data_untouched() {
    check(
        &[],
        r#"{ "a": 1.50, "u":"\u00e9" }"#,
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","datacontenttype":"application/json","data":{ "a": 1.50, "u":"\u00e9" }}"#
        ]],
    );
    check(
        &[
            ("subject", b"s"),
            ("time", b"2018-04-05T17:31:00Z"),
            ("ext1", b"5"),
        ],
        " 1e400 \n",
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","subject":"s","time":"2018-04-05T17:31:00Z","ext1":"5","datacontenttype":"application/json","data":1e400}"#
        ]],
    );
    let events = read(
        "Application/JSON; charset=UTF-8",
        &all(&[("id", b"\xc3\xa9")]),
        "null",
    )
    .expect("it is one");
    assert_eq!(events[0].id(), "é");
    expect![[r#"{"source":"/a","type":"T","specversion":"1.0","id":"é","datacontenttype":"Application/JSON; charset=UTF-8","data":null}"#]].assert_eq(&String::from_utf8_lossy(&events[0].to_wire_bytes()));
}

#[test]
fn values_are_percent_decoded_and_unquoted() {
    check(
        &[("subject", b"Euro%20%E2%82%AC%20%F0%9F%98%80 %22x%22")],
        "1",
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","subject":"Euro € 😀 \"x\"","datacontenttype":"application/json","data":1}"#
        ]],
    );
    check(
        &[("subject", br#""a \"b\" \\ %25""#)],
        "1",
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","subject":"a \"b\" \\ %","datacontenttype":"application/json","data":1}"#
        ]],
    );
    check(
        &[("subject", b"100%"), ("ext", b"%zz")],
        "1",
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","subject":"100%","ext":"%zz","datacontenttype":"application/json","data":1}"#
        ]],
    );
    check(
        &[("subject", b"%ff")],
        "1",
        expect!["nonconforming. Header 'ce-subject' is not UTF-8."],
    );
}

#[test]
fn a_header_that_is_missing_is_named() {
    for name in ["id", "source", "type", "specversion"] {
        let headers: Vec<_> = all(&[])
            .into_iter()
            .filter(|(given, _)| *given != name)
            .collect();
        let expected = format!(
            "400 InvalidCloudEventHeader: ce-{name} header is missing for the cloud event. Please \
             check required attributes at \
             https://github.com/cloudevents/spec/blob/v1.0/spec.md#required-attributes"
        );
        assert_eq!(shown(read("application/json", &headers, "1")), expected);
        assert_eq!(
            shown(read("application/json", &all(&[(name, b" ")]), "1")),
            expected
        );
    }
}

#[test]
fn the_rules_are_those_of_every_cloud_event() {
    check(
        &[("specversion", b"0.3")],
        "1",
        expect![[r#"nonconforming. Property 'specversion' can only be "1.0"."#]],
    );
    check(
        &[("time", b"yesterday")],
        "1",
        expect!["nonconforming. Property 'time' is not an RFC 3339 date and time."],
    );
    check(
        &[("with-hyphen", b"x")],
        "1",
        expect![
            "nonconforming. Received unexpected property 'with-hyphen' in JSON which does not \
             conform to the expected schema."
        ],
    );
    check(
        &[("id", b"1"), ("id", b"2")],
        "1",
        expect!["nonconforming. Property 'id' is given more than once."],
    );
    check(
        &[("datacontenttype", b"text/plain")],
        "1",
        expect!["nonconforming. Property 'datacontenttype' is given more than once."],
    );
    check(
        &[("data", b"x")],
        "1",
        expect!["nonconforming. Property 'data' is given more than once."],
    );
    check(
        &[("data_base64", b"AAAA")],
        "1",
        expect!["nonconforming. Properties 'data' and 'data_base64' are both given."],
    );
}

#[test]
fn the_body_is_json() {
    check(
        &[],
        "  ",
        expect!["400 InputJsonInvalid: Unexpected end when reading JSON."],
    );
    check(
        &[],
        "{} {}",
        expect!["nonconforming. It is not JSON: trailing characters at line 1 column 4."],
    );
    check(
        &[],
        "text",
        expect!["nonconforming. It is not JSON: expected ident at line 1 column 2."],
    );
    check(
        &[],
        &format!("{}{}", "[".repeat(125), "]".repeat(125)),
        expect!["nonconforming. An event is nested more than 125 levels deep."],
    );
    let large = format!("\"{}\"", "x".repeat(1_049_600));
    check(
        &[],
        &large,
        expect!["413 PayloadTooLarge: The maximum size (1049600) has been exceeded."],
    );
    for content_type in [
        "text/plain",
        "application/xml",
        "",
        "application/octet-stream",
    ] {
        let refused = shown(read(content_type, &all(&[]), "1"));
        let expected = match content_type {
            "" => "415 InvalidContentType: The Content-Type header is either missing".to_owned(),
            given => format!(
                "415 InvalidContentType: The Content-Type header of an event in binary mode is \
                 '{given}'; expected application/json. A topic of a namespace takes data of any \
                 type; here, send it as data_base64 in structured mode \
                 (application/cloudevents+json)."
            ),
        };
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

#[test]
fn an_event_without_data_is_the_same_for_a_topic_and_for_a_namespace() {
    let event = r#"{"id":"1","source":"/a","type":"T","specversion":"1.0"}"#;
    let of_kind = |kind: &str| event.replace('}', &format!(r#","datacontenttype":"{kind}"}}"#));
    let mut record = topic("orders", Schema::CloudEvents);
    record.namespace = Some(NamespaceMembership {
        name: Name::new("plant"),
        retention_days: 1,
    });
    let in_namespace = EventTarget::for_topic(&record);
    for (content_type, expected) in [
        (None, event.to_owned()),
        (Some("application/json"), of_kind("application/json")),
        (
            Some("application/octet-stream"),
            of_kind("application/octet-stream"),
        ),
    ] {
        for target in [&target(Schema::CloudEvents), &in_namespace] {
            let content = RequestContent {
                content_type,
                attributes: all(&[]),
            };
            let events =
                schema::read_events(target, &content, &Bytes::new(), &PublishLimits::default())
                    .map(decode);
            assert_eq!(shown(events), expected);
        }
    }
    let headers = all(&[("type", b"")]);
    let missing = shown(read("application/json", &headers, ""));
    assert!(
        missing.starts_with("400 InvalidCloudEventHeader: ce-type header is missing"),
        "{missing}"
    );
}

#[test]
fn two_modes_at_once_are_a_conflict() {
    for content_type in [
        "application/cloudevents+json",
        "application/cloudevents-batch+json; charset=utf-8",
    ] {
        expect![
            "400 InputJsonInvalid: Conflicting content mode: binary mode headers with structured \
             mode content type."
        ]
        .assert_eq(&shown(read(content_type, &[("type", b"T")], "{}")));
    }
    // Headers of other names do not make a mode.
    let event = r#"{"specversion":"1.0","id":"1","source":"/a","type":"T"}"#;
    assert_eq!(
        shown(read("application/json", &[("tracing", b"x")], event)),
        event
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_headers_are_answered(
        headers in prop::collection::vec(("(id|type|source|specversion|subject|time|data|[a-z0-9-]{0,6})", prop::collection::vec(any::<u8>(), 0..12)), 0..8),
        body in r#"[\[\]{}",:\\ a01.eE+-]{0,20}"#,
    ) {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        for headers in [all(&headers), headers] {
            let Ok(events) = read("application/json", &headers, &body) else { continue };
            for event in events {
                let wire = event.to_wire_bytes();
                prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&wire).is_ok());
                prop_assert!(!event.id().is_empty() && !event.event_type().is_empty());
            }
        }
    }
}
