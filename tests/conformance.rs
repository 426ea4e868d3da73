//! The public conformance suites of JMESPath, JSON Schema and CloudEvents.
//!
//! `tests/data` has the facts of their cases. What gridhook does otherwise on purpose is listed
//! here, with the reason and the number of cases, so that a case that is neither met nor listed
//! fails, and so does one that is listed and met.

use ::bytes::Bytes;
use gridhook::{
    control::catalogue,
    event::{Event, EventRanges, Schema, Seq, TextRange, Timestamp, chunk::ChunkBuilder},
    policy::transform::{Program, Transform},
    publish::{
        PublishLimits,
        refusal::Refusal,
        schema::{self, EventTarget, RequestContent},
    },
    record::azure_properties::EventTypeInfo,
};
use serde_json::{Value, json};

use crate::support::publisher::topic;

/// A schema by its name, and examples with whether they are valid.
type SchemaCases = (String, Value, Vec<(Value, bool)>);

/// Schemas that are refused when an event type is declared, although the draft allows them: what
/// the reason says, why it is so, and how many schemas of the suite it concerns. All others are
/// met.
const REFUSED_SCHEMAS: [(&str, &str, usize); 5] = [
    (
        "expected $ref with a JSON pointer",
        "anchors and dynamic references, whose expansion is not bounded before use",
        23,
    ),
    (
        "expected $id at the top",
        "schemas inside with an address of their own",
        11,
    ),
    (
        "and nothing is fetched",
        "references to another document",
        25,
    ),
    (
        "expected schemas without recursion",
        "the work for an event is bounded",
        2,
    ),
    ("has the $schema", "another dialect", 2),
];

/// Whether two values are equal as JMESPath compares them: 1 and 1.0 are one number.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| is_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let has_equal = |(name, value)| {
                right
                    .get::<String>(name)
                    .is_some_and(|other| is_equal(value, other))
            };
            left.len() == right.len() && left.iter().all(has_equal)
        }
        _ => left == right,
    }
}

fn event(data: &Value) -> Event {
    let wire = json!({ "data": data }).to_string();
    let whole = TextRange {
        start: 0,
        len: wire.len() as u32,
    };
    Event::new(
        Seq(1),
        Timestamp(0),
        Schema::EventGrid,
        Bytes::from(wire),
        whole,
        EventRanges::default(),
    )
}

fn transform(expression: &str, event: &Event) -> Result<Value, String> {
    let transform = Transform {
        body: Some(format!("data | {expression}")),
        ..Transform::default()
    };
    let program =
        Program::new(&transform, false, Schema::EventGrid).map_err(|error| error.to_string())?;
    let made = program
        .apply(event, Schema::EventGrid)
        .map_err(|error| error.to_string())?;
    Ok(
        serde_json::from_slice(&made.body.expect("there is an expression"))
            .expect("a body is JSON"),
    )
}

/// All cases are met.
#[test]
fn transformations_conform_to_the_suite_of_jmespath() {
    let groups: Vec<(String, Value, Vec<Vec<Value>>)> =
        serde_json::from_str(include_str!("data/jmespath.json")).expect("the facts");
    let mut count = 0;
    for (_, given, cases) in groups {
        let event = event(&given);
        for case in cases {
            count += 1;
            let expression = case[0].as_str().expect("an expression");
            match (transform(expression, &event), case.get(2)) {
                (Ok(result), Some(expected)) => {
                    assert!(is_equal(&result, expected), "{expression}: {result}")
                }
                (Err(error), Some(expected)) => panic!("{expression}: {error}, and not {expected}"),
                (Ok(result), None) => panic!("{expression}: {result}, and not {}", case[1]),
                (Err(_), None) => {}
            }
        }
    }
    assert_eq!(count, 861);
}

/// Declares an event type with this schema and these examples of its data.
fn check(schema: &Value, examples: &[Value]) -> Result<(), String> {
    let version = json!({"schema": schema, "examples": examples});
    let types = json!({"kind": "Inline", "inlineEventTypes": {"T": {"versions": {"1": version}}}});
    let types: EventTypeInfo = serde_json::from_value(types).expect("a declaration");
    catalogue::validate_event_types(&types).map_err(|error| error.to_string())
}

#[test]
fn schemas_of_event_types_conform_to_the_suite_of_json_schema() {
    let groups: Vec<SchemaCases> =
        serde_json::from_str(include_str!("data/json-schema-2020-12.json")).expect("the facts");
    let mut met = 0;
    let mut refused = [0; REFUSED_SCHEMAS.len()];
    for (name, schema, cases) in groups {
        if let Err(error) = check(&schema, &[]) {
            let reason = REFUSED_SCHEMAS
                .iter()
                .position(|(says, ..)| error.contains(says));
            refused[reason.unwrap_or_else(|| panic!("{name}: {error}"))] += 1;
            continue;
        }
        for (example, is_valid) in cases {
            met += 1;
            let checked = check(&schema, std::slice::from_ref(&example));
            assert_eq!(checked.is_ok(), is_valid, "{name}: {example}: {checked:?}");
        }
    }
    assert_eq!(
        (met, refused),
        (1_160, REFUSED_SCHEMAS.map(|(_, _, count)| count))
    );
}

/// The stored form of a CloudEvent.
fn publish(content_type: &str, attributes: &[(&str, &str)], body: &str) -> Value {
    let draft = read(content_type, attributes, body)
        .unwrap_or_else(|refusal| panic!("{content_type}: {refusal:?}"));
    let events = crate::publish::decode(draft);
    serde_json::from_slice(&events[0].to_wire_bytes()).expect("JSON")
}

fn read(
    content_type: &str,
    attributes: &[(&str, &str)],
    body: &str,
) -> Result<ChunkBuilder, Refusal> {
    let attributes = attributes
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    let content = RequestContent {
        content_type: Some(content_type),
        attributes,
    };
    let body = Bytes::copy_from_slice(body.as_bytes());
    let target = EventTarget::for_topic(&topic("t", Schema::CloudEvents));
    schema::read_events(&target, &content, &body, &PublishLimits::default())
}

#[test]
fn published_cloud_events_conform_to_the_suite_of_cloud_events() {
    let common = [
        ("specversion", "1.0"),
        ("type", "com.example.someevent"),
        ("time", "2018-04-05T03:56:24Z"),
        ("id", "1234-1234-1234"),
        ("source", "/mycontext/subcontext"),
    ];
    let expected = |content_type: &str| {
        let mut event: Value = common
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        event["datacontenttype"] = json!(content_type);
        event["data"] = json!({"message": "Hello World!"});
        event
    };
    let data = "{\n    \"message\": \"Hello World!\"\n}";
    for content_type in ["application/json", "application/json; charset=utf-8"] {
        assert_eq!(publish(content_type, &common, data), expected(content_type));
    }
    let structured = expected("application/json").to_string();
    for content_type in [
        "application/cloudevents+json",
        "application/cloudevents+json; charset=utf-8",
    ] {
        assert_eq!(
            publish(content_type, &[], &structured),
            expected("application/json")
        );
    }
    // The events of the suite's YAML, in binary mode.
    let source = "//github.com/cloudevents/cloudeventsconformance/yaml/v1.yaml";
    for (id, content_type, data, member, value) in [
        (
            "0003",
            "application/json; charset=utf-8",
            "\"Hello, 🌎!\"\n",
            "data",
            json!("Hello, 🌎!"),
        ),
        (
            "0004",
            "application/json; charset=utf-8",
            "{\"msg\":\"Hello, 🌎!\"}\n",
            "data",
            json!({"msg": "Hello, 🌎!"}),
        ),
        (
            "0005",
            "application/json; charset=utf-8",
            "[\"Hello\",\"🌎!\"]\n",
            "data",
            json!(["Hello", "🌎!"]),
        ),
    ] {
        let id = format!("conformance-{id}");
        let attributes = [
            ("specversion", "1.0"),
            ("type", "io.cloudevents.minimum"),
            ("id", id.as_str()),
            ("source", source),
        ];
        let event = publish(content_type, &attributes, data);
        assert_eq!(event[member], value, "{event}");
        assert_eq!(
            (&event["id"], &event["datacontenttype"]),
            (&json!(id), &json!(content_type))
        );
    }
    // A deliberate difference: in binary mode a custom topic takes JSON only, as Event Grid does. A
    // namespace topic takes all.
    for (content_type, body) in [
        ("text/plain; charset=us-ascii", "Hello, World!\n"),
        ("text/plain; charset=utf-8", "Hello, 🌎!\n"),
        ("application/xml; charset=utf-8", "<msg>Hello, 🌎!</msg>\n"),
    ] {
        let refused = read(content_type, &common, body);
        assert!(
            matches!(refused, Err(Refusal::BinaryContentType { .. })),
            "{content_type}: {:?}",
            refused.err()
        );
    }
    let extensions = [
        ("specversion", "1.0"),
        ("type", "com.example.someevent"),
        ("id", "4321-4321-4321"),
        ("source", "/mycontext/subcontext"),
        ("comexampleextension1", "value"),
        ("comexampleextension2", "{\"othervalue\": 5}"),
    ];
    let event = publish("application/json", &extensions, "{\"world\":\"hello\"}");
    assert_eq!(event["comexampleextension2"], json!("{\"othervalue\": 5}"));
}
