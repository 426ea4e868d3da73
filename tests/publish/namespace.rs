//! Publishing to topics of namespaces: the mode of a body, data of any kind, and names of
//! extensions.

use ::bytes::Bytes;
use expect_test::{Expect, expect};
use gridhook::{
    event::{Name, Schema},
    publish::{
        PublishLimits,
        schema::{self, EventTarget, RequestContent},
    },
    record::topic::{NamespaceMembership, TopicRecord},
};

use super::{decode, shown};
use crate::support::publisher::topic;

const LONE: &str = r#"{"specversion":"1.0","id":"1","source":"/a","type":"T"}"#;

fn target() -> EventTarget {
    let namespace = Some(NamespaceMembership {
        name: Name::new("plant"),
        retention_days: 1,
    });
    EventTarget::for_topic(&TopicRecord {
        namespace,
        ..topic("orders", Schema::CloudEvents)
    })
}

fn read(content_type: Option<&str>, headers: &[(&str, &[u8])], body: &[u8]) -> String {
    let content = RequestContent {
        content_type,
        attributes: headers.to_vec(),
    };
    shown(
        schema::read_events(
            &target(),
            &content,
            &Bytes::copy_from_slice(body),
            &PublishLimits::default(),
        )
        .map(decode),
    )
}

#[track_caller]
fn check(content_type: Option<&str>, headers: &[(&str, &[u8])], body: &[u8], expected: Expect) {
    expected.assert_eq(&read(content_type, headers, body));
}

const REQUIRED: [(&str, &[u8]); 4] = [
    ("id", b"1"),
    ("source", b"/a"),
    ("type", b"T"),
    ("specversion", b"1.0"),
];

#[track_caller]
fn binary(content_type: Option<&str>, more: &[(&str, &[u8])], body: &[u8], expected: Expect) {
    check(
        content_type,
        &[&REQUIRED[..], more].concat(),
        body,
        expected,
    );
}

#[test]
fn the_body_says_whether_it_is_one_event_or_several_whatever_the_header_says() {
    for content_type in [
        Some("application/cloudevents+json; charset=utf-8"),
        Some("application/cloudevents-batch+json"),
        Some("application/json"),
        Some("text/plain"),
        None,
    ] {
        for body in [LONE.to_owned(), format!(" \r\n[{LONE}]")] {
            let kept = expect![[r#"{"specversion":"1.0","id":"1","source":"/a","type":"T"}"#]];
            check(content_type, &[], body.as_bytes(), kept);
        }
    }
    let ce = Some("application/cloudevents+json");
    check(ce, &[], b"[]", expect!["nonconforming."]);
    check(
        ce,
        &[],
        b"7",
        expect!["nonconforming. Token Expected: StartObject, Actual Token Received: Integer."],
    );
    check(
        ce,
        &[],
        b"",
        expect!["400 InputJsonInvalid: Unexpected end when reading JSON."],
    );
}

#[test]
fn data_that_is_not_called_json_is_kept_in_base64() {
    let _rows = crate::spec::shows(&[
        "S001-079: The context attribute data_base64 is used in the blob when the HTTP \
         content-type or datacontenttype refers to a binary media type.",
        "S001-080: The attribute data is used in the blob in place of data_base64 when the \
         content-type or datacontenttype refers to JSON-formatted content.",
        "S001-081: A media type counts as JSON-formatted only when it is of the form */json or \
         */*+json.",
    ]);
    binary(
        Some("application/vnd.apache.thrift.binary"),
        &[("comexampleothervalue", b"5")],
        b"\x00\xff{",
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","comexampleothervalue":"5","datacontenttype":"application/vnd.apache.thrift.binary","data_base64":"AP97"}"#
        ]],
    );
    binary(
        Some("application/vnd.thing+json; v=1"),
        &[],
        b" {\"a\": 1.50}",
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","datacontenttype":"application/vnd.thing+json; v=1","data":{"a": 1.50}}"#
        ]],
    );
    binary(
        Some("text/plain"),
        &[],
        b"hot",
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","datacontenttype":"text/plain","data_base64":"aG90"}"#
        ]],
    );
    binary(
        None,
        &[],
        b"hot",
        expect![[
            r#"{"id":"1","source":"/a","type":"T","specversion":"1.0","data_base64":"aG90"}"#
        ]],
    );
    binary(
        None,
        &[],
        b"",
        expect![[r#"{"id":"1","source":"/a","type":"T","specversion":"1.0"}"#]],
    );
    binary(
        Some("text/json"),
        &[],
        b"{",
        expect!["400 InputJsonInvalid: Unexpected end when reading JSON."],
    );
    for not_json in [
        "application/jsonp",
        "application/x-json",
        "json/plain",
        "application/thing+jsonl",
    ] {
        let read = read(Some(not_json), &REQUIRED, b"{}");
        assert!(
            read.contains(r#""data_base64":"e30=""#),
            "{not_json}: {read}"
        );
    }
}

#[test]
fn headers_say_everything_once() {
    binary(
        Some("text/plain"),
        &[("datacontenttype", b"text/plain")],
        b"x",
        expect![
            "nonconforming. Header 'ce-datacontenttype' is not allowed: the Content-Type header \
             gives the type of the data."
        ],
    );
    binary(
        Some("application/cloudevents+json"),
        &[],
        LONE.as_bytes(),
        expect![
            "400 InputJsonInvalid: Conflicting content mode: binary mode headers with structured \
             mode content type."
        ],
    );
}

#[test]
fn the_names_of_extensions_have_twenty_characters_at_the_most() {
    let event = |name: &str| {
        format!(r#"{{"specversion":"1.0","id":"1","source":"/a","type":"T","{name}":true}}"#)
    };
    let twenty = "a2345678901234567890";
    check(
        None,
        &[],
        event(twenty).as_bytes(),
        expect![[
            r#"{"specversion":"1.0","id":"1","source":"/a","type":"T","a2345678901234567890":true}"#
        ]],
    );
    check(
        None,
        &[],
        event(&format!("{twenty}1")).as_bytes(),
        expect![
            "nonconforming. The name of the extension 'a23456789012345678901' has more than 20 \
             characters."
        ],
    );
}
