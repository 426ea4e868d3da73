//! Spans in OTLP's JSON: protobuf names in camelCase, hexadecimal identifiers, 64-bit numbers as
//! strings.

use serde_json::{Value as Json, json};

use super::{AttributeValue, Span, SpanContext};
use gridhook_event::{Timestamp, WallTime};

/// OTLP's status of a failed span.
const STATUS_ERROR: u32 = 2;

/// The body of an export request for `spans` of this server. A collector has spans of other
/// machines, too, so their times are those of `to_wall`.
pub fn encode_spans(
    spans: &[Span],
    server: &str,
    to_wall: impl Fn(Timestamp) -> WallTime,
) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        encode_attribute("service.name", &"gridhook".into()),
        encode_attribute("service.version", &version.into()),
        encode_attribute("service.instance.id", &server.into()),
    ];
    let scope = json!({"name": "gridhook", "version": version});
    let spans: Vec<Json> = spans.iter().map(|span| span_json(span, &to_wall)).collect();
    let all = json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]});
    all.to_string().into_bytes()
}

fn span_json(span: &Span, to_wall: &impl Fn(Timestamp) -> WallTime) -> Json {
    let mut json = context_json(&span.context);
    if let Some(parent) = span.parent {
        json["parentSpanId"] = parent.to_string().into();
    }
    json["name"] = span.name.as_str().into();
    json["kind"] = (span.kind as u32).into();
    json["startTimeUnixNano"] = unix_nanos(to_wall(span.began)).into();
    json["endTimeUnixNano"] = unix_nanos(to_wall(span.ended)).into();
    json["attributes"] = span
        .attributes
        .iter()
        .map(|(key, value)| encode_attribute(key, value))
        .collect();
    if !span.links.is_empty() {
        json["links"] = span.links.iter().map(context_json).collect();
    }
    if let Some(why) = &span.error {
        json["status"] = json!({"code": STATUS_ERROR, "message": why});
    }
    json
}

fn context_json(context: &SpanContext) -> Json {
    let mut json =
        json!({"traceId": context.trace.to_string(), "spanId": context.span.to_string()});
    if let Some(state) = &context.state {
        json["traceState"] = (**state).into();
    }
    json
}

fn encode_attribute(key: &str, value: &AttributeValue) -> Json {
    let value = match value {
        AttributeValue::Text(text) => json!({"stringValue": text}),
        AttributeValue::Number(number) => json!({"intValue": number.to_string()}),
    };
    json!({"key": key, "value": value})
}

fn unix_nanos(wall: WallTime) -> String {
    wall.since_epoch().as_nanos().to_string()
}
