//! Headers and bodies of requests.

use gridhook::{
    deliver::{
        Destination, OutgoingRequest, build,
        convert::convert_event,
        request::{RequestError, header_value},
    },
    event::{
        EventRanges,
        Schema::{self, CloudEvents, Custom, EventGrid},
        Seq, Timestamp,
        chunk::{Chunk, ChunkBuilder, EncodedEvent, RunningTotals},
    },
    policy::property::DeliveryProperty,
};
use serde_json::json;

use super::event;

const WIRE: &str = concat!(
    r#"{"id":"a-1","topic":"/t","subject":"s/1","eventType":"Made","eventTime":"2026-01-01T00:00:00Z","#,
    r#""data":{ "n": 1.50, "u":"\u00e9" },"dataVersion":"2.0","metadataVersion":"1"}"#
);
const CLOUD: &str = r#"{"specversion":"1.0","id":"c-1","source":"/s","type":"Made","data":[1]}"#;

fn destination(input: Schema, delivery: Schema, batched: bool) -> Destination {
    Destination::new(
        "https://example.com/hook",
        "my-Sub",
        input,
        delivery,
        batched,
    )
    .expect("a good destination")
}

fn header<'a>(outgoing: &'a OutgoingRequest, name: &str) -> Option<&'a str> {
    outgoing
        .lines
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn a_single_event_is_an_array_with_its_headers() {
    let _rows = crate::spec::shows(&[
        "S000-006: By default, Event Grid delivers one event at a time to a subscriber.",
        "S000-007: In a default (unbatched) delivery the payload is an array that holds exactly \
         one event.",
        "S000-054, S002-005, S003-006: By default, Event Grid sends each event to subscribers \
         individually.",
        "S000-076: By default, Event Grid adds only one event to each delivery request.",
        "S002-006, S003-007: The subscriber receives an array with a single event.",
    ]);
    let event = event(EventGrid, WIRE, "a-1", "2.0");
    let made = build(&destination(EventGrid, EventGrid, false), &[event], 3).expect("readable");
    assert_eq!(made.body, format!("[{WIRE}]"));
    assert_eq!(
        header(&made, "content-type"),
        Some("application/json; charset=utf-8")
    );
    assert_eq!(header(&made, "aeg-event-type"), Some("Notification"));
    assert_eq!(header(&made, "aeg-subscription-name"), Some("MY-SUB"));
    assert_eq!(header(&made, "aeg-delivery-count"), Some("3"));
    assert_eq!(header(&made, "aeg-metadata-version"), Some("1"));
    assert_eq!(header(&made, "aeg-data-version"), Some("2.0"));
    assert_eq!(header(&made, "aeg-output-event-id"), Some("a-1"));
    assert_eq!(header(&made, "webhook-request-origin"), None);
}

#[test]
fn a_batch_has_no_headers_of_one_event() {
    let events = [
        event(EventGrid, WIRE, "a-1", "2.0"),
        event(EventGrid, WIRE, "a-1", "2.0"),
    ];
    let made = build(&destination(EventGrid, EventGrid, true), &events, 0).expect("readable");
    assert_eq!(made.body, format!("[{WIRE},{WIRE}]"));
    assert_eq!(header(&made, "aeg-delivery-count"), Some("0"));
    assert_eq!(header(&made, "aeg-data-version"), None);
    assert_eq!(header(&made, "aeg-output-event-id"), None);
}

#[test]
fn a_custom_event_is_an_array_too() {
    let made = build(
        &destination(Custom, Custom, false),
        &[event(Custom, r#"{"x":1}"#, "", "")],
        0,
    )
    .expect("readable");
    assert_eq!(made.body, r#"[{"x":1}]"#);
    assert_eq!(
        header(&made, "content-type"),
        Some("application/json; charset=utf-8")
    );
    assert_eq!(header(&made, "aeg-data-version"), None);
}

#[test]
fn a_cloud_event_is_an_object_unless_the_subscription_is_batched() {
    let one = [event(CloudEvents, CLOUD, "c-1", "")];
    let alone = build(&destination(CloudEvents, CloudEvents, false), &one, 0).expect("readable");
    assert_eq!(alone.body, CLOUD);
    assert_eq!(
        header(&alone, "content-type"),
        Some("application/cloudevents+json; charset=utf-8")
    );
    assert_eq!(header(&alone, "aeg-metadata-version"), Some("1.0"));
    assert_eq!(
        header(&alone, "webhook-request-origin"),
        Some("eventgrid.azure.net")
    );
    assert_eq!(header(&alone, "aeg-data-version"), None);
    assert_eq!(header(&alone, "aeg-output-event-id"), Some("c-1"));
    let batched = build(&destination(CloudEvents, CloudEvents, true), &one, 0).expect("readable");
    assert_eq!(batched.body, format!("[{CLOUD}]"));
    assert_eq!(
        header(&batched, "content-type"),
        Some("application/cloudevents-batch+json; charset=utf-8")
    );
}

#[test]
fn an_event_grid_event_becomes_a_cloud_event_with_its_data_untouched() {
    let made = build(
        &destination(EventGrid, CloudEvents, false),
        &[event(EventGrid, WIRE, "a-1", "2.0")],
        0,
    );
    let expected = concat!(
        r#"{"id":"a-1","source":"/t","type":"Made","time":"2026-01-01T00:00:00Z","subject":"s/1","#,
        r#""data":{ "n": 1.50, "u":"\u00e9" },"specversion":"1.0"}"#
    );
    assert_eq!(made.expect("readable").body, expected);
}

#[test]
fn only_some_schemas_can_be_converted() {
    let _rows = crate::spec::shows(&[
        "S000-118, S003-094: There are three delivery schema formats: Event Grid schema, \
         CloudEvents 1.0 schema and custom schema.",
    ]);
    let paths = [EventGrid, CloudEvents, Custom].map(|from| {
        [EventGrid, CloudEvents, Custom]
            .map(|to| Destination::new("https://example.com/hook", "s", from, to, false).is_ok())
    });
    assert_eq!(
        paths,
        [
            [true, true, false],
            [false, true, false],
            [true, true, true]
        ]
    );
}

#[test]
fn a_conversion_is_made_once_and_shared() {
    let mut draft = ChunkBuilder::new(EventGrid);
    draft.push(|out| {
        out.extend_from_slice(WIRE.as_bytes());
        EncodedEvent {
            wire_end: out.len(),
            ranges: EventRanges::default(),
        }
    });
    let sealed = draft
        .into_chunks()
        .remove(0)
        .stamp_record(Timestamp(1), RunningTotals::default());
    let chunk = Chunk::decode(Seq::FIRST, sealed).expect("what was written is read");
    let event = chunk
        .decode_events()
        .expect("what was written is read")
        .remove(0);
    let forms =
        [&event, &event.clone()].map(|event| convert_event(event, CloudEvents).expect("readable"));
    assert_eq!(forms[0].as_ptr(), forms[1].as_ptr());
    assert_eq!(
        convert_event(&event.detach_from_chunk(), CloudEvents).expect("readable"),
        forms[0]
    );
}

#[test]
fn an_event_that_violates_its_schema_is_reported_and_not_sent() {
    let broken = event(EventGrid, r#"{"id":"#, "", "");
    let made = build(&destination(EventGrid, CloudEvents, false), &[broken], 0);
    assert!(
        matches!(made, Err(RequestError::Unreadable { .. })),
        "{made:?}"
    );
}

fn property(name: &str, kind: &str, properties: serde_json::Value) -> DeliveryProperty {
    serde_json::from_value(json!({"name": name, "type": kind, "properties": properties}))
        .expect("a property")
}

#[test]
fn a_request_has_the_properties_of_its_subscription_and_of_its_event() {
    let destination = destination(EventGrid, EventGrid, true).with_properties(&[
        property(
            "Authorization",
            "Static",
            json!({"value": "Bearer swordfish", "isSecret": true}),
        ),
        property("X-Count", "Dynamic", json!({"sourceField": "data.n"})),
        property("X-Word", "Dynamic", json!({"sourceField": "data.U"})),
        property("X-None", "Dynamic", json!({"sourceField": "data.none"})),
        property("X-Kind", "Dynamic", json!({"sourceField": "eventType"})),
    ]);
    let event = event(EventGrid, WIRE, "a-1", "2.0");
    let made = build(&destination, &[event.clone(), event], 0).expect("readable");
    let headers: Vec<String> = made
        .properties
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    // The number as it is written, in characters that a header can carry.
    assert_eq!(
        headers,
        [
            "Authorization: Bearer swordfish",
            "X-Count: 1.50",
            "X-Word: %C3%A9",
            "X-Kind: Made"
        ]
    );
    assert!(
        !format!("{made:?} {destination:?}").contains("swordfish"),
        "{made:?} {destination:?}"
    );
}

#[test]
fn a_value_that_no_header_can_carry_is_omitted() {
    let destination = destination(CloudEvents, CloudEvents, false).with_properties(&[property(
        "X",
        "Dynamic",
        json!({"sourceField": "data.x"}),
    )]);
    let value = |json: &str| {
        let wire = format!(
            r#"{{"specversion":"1.0","id":"c-1","source":"/s","type":"Made","data":{{"x":{json}}}}}"#
        );
        let made =
            build(&destination, &[event(CloudEvents, &wire, "c-1", "")], 0).expect("readable");
        made.properties.into_iter().next().map(|(_, value)| value)
    };
    let long = |count| format!("\"{}\"", "x".repeat(count));
    let controls = [
        r#""a\r\nb: c""#,
        r#""\u0000""#,
        r#""\u0085""#,
        r#""\ud800""#,
    ];
    for gone in controls
        .into_iter()
        .chain(["\"\"", "null", "[1]", "{}", &long(4097)])
    {
        assert_eq!(value(gone), None, "{gone}");
    }
    assert_eq!(
        value(&format!("\"{}\"", "é".repeat(1000))),
        None,
        "encoded it has 6,000 bytes"
    );
    assert_eq!(value(&long(4096)).map(|value| value.len()), Some(4096));
    assert_eq!(value("true").as_deref(), Some("true"));
    assert_eq!(value("-1e400").as_deref(), Some("-1e400"));
    assert_eq!(value(r#"" a%b ""#).as_deref(), Some("%20a%25b%20"));
}

#[test]
fn event_data_cannot_break_a_header() {
    let check = |text: &str, expected: &str| assert_eq!(header_value(text), expected, "{text:?}");
    check("plain id/1%", "plain id/1%");
    check("", "");
    check("a\r\nx: y", "a%0D%0Ax:%20y");
    check("zero\0", "zero%00");
    check("ünï 100%", "%C3%BCn%C3%AF%20100%25");
    check(" edge", "%20edge");
    let long = header_value(&"é".repeat(100_000));
    assert!(long.len() == 2_048 && long.ends_with("..."));
}

#[test]
fn an_endpoint_that_cannot_be_called_is_refused_with_a_reason() {
    let check = |url: &str, expected: &str| {
        let error = Destination::new(url, "s", EventGrid, EventGrid, false)
            .expect_err(url)
            .to_string();
        assert!(error.contains(expected), "{url}: {error}");
    };
    check("nonsense", "is not a URL");
    check("ftp://example.com/", "begins with `ftp:`");
    check("https:///", "is not a URL");
    check("https://good@example.com/", "user name or a password");
    check("https://:pw@example.com/", "user name or a password");
    check("https://good.test\\@example.com/", "backslash");
    check("https://example.com/?a=\\", "backslash");
    check("https:/example.com/", "no host after");
    check("http://127.0.0.1#@good", "fragment");
    check(
        &format!("https://example.com/{}", "x".repeat(9_000)),
        "more than 8192",
    );
    let pair = Destination::new("https://example.com/", "s", CloudEvents, EventGrid, false);
    assert_eq!(
        pair,
        Err(RequestError::Schema {
            from: CloudEvents,
            to: EventGrid
        })
    );
}

/// The publisher's timestamp is delivered unchanged, with all digits, in every schema.
#[test]
fn the_publishers_time_keeps_its_hundred_nanoseconds() {
    const TIME: &str = "2020-08-13T17:18:14.0265758Z";
    let wire = WIRE.replace("2026-01-01T00:00:00Z", TIME);
    let stored = event(EventGrid, &wire, "a-1", "2.0");
    for schema in [EventGrid, CloudEvents] {
        let sent = convert_event(&stored, schema).expect("it can be delivered");
        assert!(
            String::from_utf8_lossy(&sent).contains(TIME),
            "{schema:?}: {sent:?}"
        );
    }
}
