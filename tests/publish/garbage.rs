//! Invalid and extreme bodies: each gets a response, without a panic or a stack overflow.

use expect_test::{Expect, expect};
use gridhook::{
    deliver::convert::convert_event,
    event::{Event, Schema},
    publish::PublishLimits,
};
use proptest::prelude::*;

use super::{cloud_event, cloud_events, custom, event_grid, read, shown};
use crate::support::{events::events, fuzz::cases};

#[track_caller]
fn check(data: &str, expected: Expect) {
    let body = format!(
        r#"[{{"id":"1","subject":"","eventType":"T","eventTime":"2026-11-20T10:00:00Z","data":{data}}}]"#
    );
    let shown = match event_grid(body.as_bytes()) {
        Ok(events) => {
            assert!(
                events[0]
                    .to_wire_bytes()
                    .windows(data.len())
                    .any(|part| part == data.as_bytes()),
                "data is kept"
            );
            "taken as it is".to_owned()
        }
        refused @ Err(_) => shown(refused),
    };
    expected.assert_eq(&shown);
}

#[test]
fn a_million_nested_arrays_are_refused() {
    let nested = "[".repeat(1_000_000);
    expect!["400 InputJsonInvalid: Unexpected end when reading JSON."]
        .assert_eq(&shown(event_grid(nested.as_bytes())));
    expect!["nonconforming. Token Expected: StartObject, Actual Token Received: StartArray."]
        .assert_eq(&shown(cloud_event(nested.as_bytes())));
    check(
        &format!("{}{}", "[".repeat(500_000), "]".repeat(500_000)),
        expect!["nonconforming. An event is nested more than 125 levels deep."],
    );
    check(
        &format!("{}0{}", r#"{"":"#.repeat(200_000), "}".repeat(200_000)),
        expect!["nonconforming. An event is nested more than 125 levels deep."],
    );
    check(
        &"[".repeat(1_000_000),
        expect!["nonconforming. It is not JSON: expected value at line 1 column 1000083."],
    );
}

#[test]
fn the_deepest_data_taken_can_be_read_again() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    check(&nested(124), expect!["taken as it is"]);
    check(
        &nested(125),
        expect!["nonconforming. An event is nested more than 125 levels deep."],
    );
    // Brackets in strings are text.
    check(
        &format!(r#"["{}","\"{}"]"#, "[".repeat(1_000), "{".repeat(1_000)),
        expect!["taken as it is"],
    );
    // Wide is not deep.
    check(
        &format!("[{}[]]", "[],".repeat(1_000)),
        expect!["taken as it is"],
    );
    let body = format!(
        r#"{{"specversion":"1.0","id":"1","source":"a","type":"T","data":{}}}"#,
        nested(124)
    );
    let events = cloud_event(body.as_bytes()).expect("it is not too deep");
    let delivered = format!(
        r#"[{{"event":{}}}]"#,
        String::from_utf8_lossy(&events[0].to_wire_bytes())
    );
    assert!(serde_json::from_str::<serde_json::Value>(&delivered).is_ok());
}

#[test]
fn odd_data_that_is_json_is_taken() {
    check("1e400", expect!["taken as it is"]);
    check(r#""\ud800""#, expect!["taken as it is"]);
    check(r#""\u0000""#, expect!["taken as it is"]);
    check("{\"a\":1,\"a\":2}", expect!["taken as it is"]);
    check(
        &format!("{{{}\"z\":0}}", r#""a":1,"#.repeat(100_000)),
        expect!["taken as it is"],
    );
}

#[test]
fn data_that_is_not_json_is_refused() {
    check(
        "NaN",
        expect!["nonconforming. It is not JSON: expected value at line 1 column 83."],
    );
    check(
        "-",
        expect!["nonconforming. It is not JSON: invalid number at line 1 column 84."],
    );
    check(
        "1.",
        expect!["nonconforming. It is not JSON: invalid number at line 1 column 85."],
    );
    check(
        "+1",
        expect!["nonconforming. It is not JSON: expected value at line 1 column 83."],
    );
    check(
        ".5",
        expect!["nonconforming. It is not JSON: expected value at line 1 column 83."],
    );
    check(
        "'a'",
        expect!["nonconforming. It is not JSON: expected value at line 1 column 83."],
    );
    check(
        "\"\u{0}\"",
        expect![[
            r#"nonconforming. It is not JSON: control character (\u0000-\u001F) found while parsing a string at line 1 column 83."#
        ]],
    );
    check(
        "\u{0}",
        expect!["nonconforming. It is not JSON: expected value at line 1 column 83."],
    );
    check(
        r#""\x""#,
        expect!["nonconforming. It is not JSON: invalid escape at line 1 column 85."],
    );
    check(
        r#""\u12""#,
        expect!["nonconforming. It is not JSON: invalid escape at line 1 column 89."],
    );
    check(
        "{\"a\"}",
        expect!["nonconforming. It is not JSON: expected `:` at line 1 column 87."],
    );
    check(
        "[1 2]",
        expect!["nonconforming. It is not JSON: expected `,` or `]` at line 1 column 86."],
    );
    check(
        "/* */ 1",
        expect!["nonconforming. It is not JSON: expected value at line 1 column 83."],
    );
}

#[test]
fn a_hundred_thousand_extensions_take_no_time() {
    let extensions: String = (0..100_000)
        .map(|number| format!(r#","x{number}":0"#))
        .collect();
    let body =
        format!(r#"{{"specversion":"1.0","id":"1","source":"a","type":"T"{extensions},"x7":0}}"#);
    let limits = PublishLimits {
        event_bytes_max: usize::MAX,
        request_bytes_max: usize::MAX,
        ..PublishLimits::default()
    };
    let result = read(
        Schema::CloudEvents,
        "application/json",
        body.as_bytes(),
        &limits,
    );
    expect!["nonconforming. Property 'x7' is given more than once."].assert_eq(&shown(result));
}

/// Each body has a result. If it is accepted, the events are JSON with the strings of the body.
fn assert_answered(body: &[u8]) {
    for result in [
        event_grid(body),
        cloud_event(body),
        cloud_events(body),
        custom(body),
    ] {
        let Ok(events) = result else { continue };
        for event in events {
            let wire: serde_json::Value = match serde_json::from_slice(&event.to_wire_bytes()) {
                Ok(wire) => wire,
                // JSON that has no meaning in Rust: numbers beyond f64, lone surrogates. It is
                // still JSON.
                Err(_) => {
                    serde_json::from_slice::<serde::de::IgnoredAny>(&event.to_wire_bytes())
                        .expect("a wire form is JSON");
                    continue;
                }
            };
            let (id, type_name) = match event.schema {
                Schema::EventGrid => ("id", "eventType"),
                Schema::CloudEvents => ("id", "type"),
                Schema::Custom => {
                    assert_enveloped(&event);
                    continue;
                }
            };
            assert_eq!(wire[id], *event.id());
            assert_eq!(wire[type_name], *event.event_type());
        }
    }
}

/// Asserts that a custom event can be delivered in the other schemas.
fn assert_enveloped(event: &Event) {
    for schema in [Schema::EventGrid, Schema::CloudEvents] {
        let form = convert_event(event, schema).expect("a custom event has an envelope");
        let form: serde_json::Value = serde_json::from_slice(&form).expect("an envelope is JSON");
        let type_name = if schema == Schema::EventGrid {
            "eventType"
        } else {
            "type"
        };
        assert_eq!(
            (&form["id"], &form[type_name]),
            (&(*event.id()).into(), &(*event.event_type()).into())
        );
    }
}

fn valid_bodies() -> Vec<Vec<u8>> {
    let small = |schema| {
        events(schema, 3)
            .filter(|event| event.json.len() < 600)
            .take(40)
    };
    let grid = small(Schema::EventGrid).map(|event| format!("[{}]", event.json).into_bytes());
    let cloud = small(Schema::CloudEvents).map(|event| event.json.into_bytes());
    let names = [
        ("id", "eventId"),
        ("eventType", "myEventTypeField"),
        ("eventTime", "when"),
        ("dataVersion", "ver"),
    ];
    let renamed = |json: String| {
        names.iter().fold(json, |json, (name, member)| {
            json.replace(&format!("\"{name}\""), &format!("\"{member}\""))
        })
    };
    let custom =
        small(Schema::EventGrid).map(|event| format!("[{}]", renamed(event.json)).into_bytes());
    grid.chain(cloud).chain(custom).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(4_000)))]

    #[test]
    fn a_valid_body_with_bytes_changed_is_answered(
        which in 0usize..120,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..6),
    ) {
        thread_local!(static BODIES: Vec<Vec<u8>> = valid_bodies());
        let mut body = BODIES.with(|bodies| bodies[which].clone());
        for (at, byte, kind) in changes {
            if body.is_empty() {
                break;
            }
            let at = at.index(body.len());
            match kind {
                0 => body[at] = byte,
                1 => body.insert(at, b"[]{}\",:\\ntf0-e\0\xff"[usize::from(byte) % 16]),
                2 => drop(body.remove(at)),
                _ => body.truncate(at),
            }
        }
        assert_answered(&body);
    }

    #[test]
    fn any_bytes_are_answered(body in prop::collection::vec(any::<u8>(), 0..200)) {
        assert_answered(&body);
    }

    #[test]
    fn any_punctuation_is_answered(body in r#"[\[\]{}",:\\ a01.eE+-]{0,60}"#) {
        assert_answered(body.as_bytes());
    }
}
