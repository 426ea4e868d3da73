//! The values that a filter reads, schema by schema, and how much of an event it reads.

use bytes::Bytes;
use expect_test::expect;
use gridhook::{
    event::{Event, EventRanges, Schema, Seq, TextRange, Timestamp},
    policy::filter::{Filter, key::FilterKey},
};
use serde_json::json;

use super::{cloud_event, event_grid, filter, stored};

fn is(key: &str, text: &str) -> Filter {
    filter(json!({"advancedFilters": [{"operatorType": "StringIn", "key": key, "values": [text]}]}))
}

fn absent(key: &str) -> Filter {
    filter(json!({"advancedFilters": [{"operatorType": "IsNullOrUndefined", "key": key}]}))
}

#[test]
fn the_keys_of_an_event_grid_event_are_found_in_any_case() {
    let event = event_grid(
        r#"{"id":"i","topic":"/t","subject":"s","data":{"a":{"B":{"c.d":"dot","C":"deep"}},"l":[{"x":"y"}]},
        "eventType":"e","eventTime":"2026-01-01T00:00:00Z","metadataVersion":"1","dataVersion":"v"}"#,
    );
    for (key, text) in [
        ("id", "i"),
        ("ID", "i"),
        ("topic", "/t"),
        ("subject", "s"),
        ("eventType", "e"),
        ("eventtype", "e"),
        ("dataversion", "v"),
        ("data.a.b.c", "deep"),
        ("Data.A.b.C", "deep"),
    ] {
        assert!(is(key, text).matches(&event), "{key}");
        assert!(!absent(key).matches(&event), "{key}");
    }
    // A key cannot name a member with a dot, or an element of an array.
    for key in [
        "data.a.b.c.d",
        "data.l.x",
        "data.l.0.x",
        "data.none",
        "data.none.deeper",
        "data.a.b.c.deeper",
    ] {
        assert!(absent(key).matches(&event), "{key}");
    }
    assert!(!absent("data.a").matches(&event) && !absent("data").matches(&event));
    let empty = event_grid(r#"{"id":"i","subject":"","eventType":"e"}"#);
    assert!(
        is("subject", "").matches(&empty)
            && !absent("subject").matches(&empty)
            && absent("data").matches(&empty)
    );
    assert!(absent("dataVersion").matches(&empty) && absent("topic").matches(&empty));
}

#[test]
fn the_keys_of_a_cloud_event_are_its_attributes_and_extensions() {
    let event = cloud_event(
        r#"{"id":"i","source":"/s","type":"t","specversion":"1.0","comexampleextension1":"ext","comexampleothervalue":5,
        "time":"2026-01-01T00:00:00Z","data":{"x":"y"}}"#,
    );
    for (key, text) in [
        ("id", "i"),
        ("source", "/s"),
        ("type", "t"),
        ("Type", "t"),
        ("specversion", "1.0"),
        ("comexampleextension1", "ext"),
        ("data.x", "y"),
    ] {
        assert!(is(key, text).matches(&event), "{key}");
    }
    assert!(absent("subject").matches(&event) && absent("dataversion").matches(&event));
    // Strict: the extension is a number.
    assert!(!is("comexampleothervalue", "5").matches(&event));
    let number = json!({"advancedFilters": [{"operatorType": "NumberIn", "key": "comexampleothervalue", "values": [5]}]});
    assert!(filter(number).matches(&event));
}

#[test]
fn the_names_that_attributes_had_before_cloud_events_1_0_are_keys_too() {
    let event = cloud_event(
        r#"{"id":"i","source":"/s","type":"t","specversion":"1.0","dataschema":"/v/2"}"#,
    );
    for (key, text) in [
        ("eventid", "i"),
        ("eventID", "i"),
        ("eventType", "t"),
        ("eventtypeversion", "/v/2"),
    ] {
        assert!(
            is(key, text).matches(&event) && !absent(key).matches(&event),
            "{key}"
        );
    }
    assert!(absent("eventtypeversion").matches(&cloud_event(
        r#"{"id":"i","source":"/s","type":"t","specversion":"1.0"}"#
    )));
    let own = cloud_event(
        r#"{"id":"i","source":"/s","type":"t","specversion":"1.0","eventid":"own","eventtype":"own","eventtypeversion":"1"}"#,
    );
    for (key, text) in [
        ("eventid", "own"),
        ("eventtype", "own"),
        ("eventtypeversion", "1"),
    ] {
        assert!(
            is(key, text).matches(&own),
            "{key}: an extension of that name goes first"
        );
    }
}

#[test]
fn the_keys_of_a_custom_event_are_mapped_names_and_its_own() {
    // The mapping made id, type and subject of other members, and keeps them behind the wire form.
    let wire = r#"{"no":"7","kind":"Made","path":"/p","subject":"its own","nested":{"x":"y"}}"#;
    let behind = format!("{wire}7Madesubject");
    let at = |text: &str, from: usize| TextRange {
        start: from as u32,
        len: text.len() as u32,
    };
    let ranges = EventRanges {
        id: at("7", wire.len()),
        event_type: at("Made", wire.len() + 1),
        subject: at("subject", wire.len() + 5),
        ..EventRanges::default()
    };
    let whole = TextRange {
        start: 0,
        len: wire.len() as u32,
    };
    let event = Event::new(
        Seq(1),
        Timestamp(0),
        Schema::Custom,
        Bytes::from(behind),
        whole,
        ranges,
    );
    for (key, text) in [
        ("id", "7"),
        ("eventType", "Made"),
        ("subject", "subject"),
        ("path", "/p"),
        ("nested.x", "y"),
        ("data.nested.x", "y"),
        ("data.subject", "its own"),
    ] {
        assert!(is(key, text).matches(&event), "{key}");
    }
    assert!(absent("dataVersion").matches(&event) && absent("data.nothing").matches(&event));
    let own = stored(
        Schema::Custom,
        r#"{"data":{"x":"inner"},"x":"outer"}"#,
        ["-", "-", "-", "-"],
    );
    assert!(is("data.x", "inner").matches(&own) && is("x", "outer").matches(&own));
}

#[test]
fn keys_that_a_schema_does_not_have_are_reported() {
    let shown = |key: &str, schema| {
        FilterKey::from(key.to_owned())
            .check_schema(schema)
            .map_err(|error| error.to_string())
    };
    for key in [
        "id",
        "TOPIC",
        "subject",
        "EventType",
        "dataVersion",
        "data",
        "data.x.y-z",
        "data.ä ö",
    ] {
        assert_eq!(shown(key, Schema::EventGrid), Ok(()), "{key}");
    }
    for key in ["id", "source", "type", "anyextension1", "data", "data.x"] {
        assert_eq!(shown(key, Schema::CloudEvents), Ok(()), "{key}");
    }
    for key in ["anything", "a.b.c"] {
        assert_eq!(shown(key, Schema::Custom), Ok(()), "{key}");
    }
    let wrong = [
        shown("eventTime", Schema::EventGrid),
        shown("source", Schema::EventGrid),
        shown("subject.x", Schema::EventGrid),
        shown("", Schema::EventGrid),
        shown("data..x", Schema::EventGrid),
        shown("source.x", Schema::CloudEvents),
        shown("with-hyphen", Schema::CloudEvents),
        shown("a.", Schema::Custom),
    ];
    let lines: Vec<String> = wrong
        .into_iter()
        .map(|shown| shown.expect_err("it is refused"))
        .collect();
    expect![[r#"
        is "eventTime"; expected id, topic, subject, eventType, dataVersion, data or data.<path> for events in EventGridSchema
        is "source"; expected id, topic, subject, eventType, dataVersion, data or data.<path> for events in EventGridSchema
        is "subject.x"; expected id, topic, subject, eventType, dataVersion, data or data.<path> for events in EventGridSchema
        is "", in which a name is empty; expected names joined by single dots, such as data.order.total
        is "data..x", in which a name is empty; expected names joined by single dots, such as data.order.total
        is "source.x"; expected an attribute (id, source, type, subject, ...), an extension, data or data.<path> for events in CloudEventSchemaV1_0
        is "with-hyphen"; expected an attribute (id, source, type, subject, ...), an extension, data or data.<path> for events in CloudEventSchemaV1_0
        is "a.", in which a name is empty; expected names joined by single dots, such as data.order.total"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn unreadable_members_are_absent_and_the_last_of_duplicate_members_counts() {
    for wire in [
        r#"{"id":"i","eventType":"e","data":{"x":"y"}"#,
        r#"{"id":"i","eventType":"e","data":{"x":}}"#,
        r#"{"id":"i","eventType":"e","data":{"x":"y","\ud800":1}}"#,
        "",
        "[1",
        "\u{feff}",
    ] {
        let event = event_grid(wire);
        assert!(
            !is("data.x", "y").matches(&event) && absent("data.x").matches(&event),
            "{wire}"
        );
    }
    let lone = event_grid(r#"{"id":"i","data":{"x":"\ud800"}}"#);
    assert!(!absent("data.x").matches(&lone) && !is("data.x", "").matches(&lone));
    let twice = event_grid(r#"{"id":"i","data":{"x":"first","X":"last"}}"#);
    assert!(is("data.x", "last").matches(&twice) && !is("data.x", "first").matches(&twice));
    let escaped = event_grid(r#"{"id":"i","data" : { "\u0078" : "\u0079" }}"#);
    assert!(is("data.x", "y").matches(&escaped));
}

#[test]
fn a_key_is_not_in_the_language_json_path() {
    for (key, is_taken) in [
        ("data.order.total", true),
        ("data.a[b]", true),
        ("data.$ref", true),
        ("data[x", true),
        ("$.data.x", false),
        ("$", false),
        ("data.items[0].id", false),
        ("data.items[-1]", false),
        ("data.items[*].id", false),
    ] {
        for schema in [Schema::EventGrid, Schema::CloudEvents, Schema::Custom] {
            let checked = FilterKey::from(key.to_owned()).check_schema(schema);
            let is_json_path = checked.is_err_and(|error| error.to_string().contains("JSONPath"));
            assert_eq!(is_json_path, !is_taken, "{key}");
        }
    }
}
