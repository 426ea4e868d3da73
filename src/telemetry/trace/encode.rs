//! Spans in OTLP's JSON: protobuf names in camelCase, hexadecimal identifiers, 64-bit numbers as strings.

use serde_json::{Value as Json, json};

use super::{AttributeValue, Span, SpanContext};

/// OTLP's status of a failed span.
const STATUS_ERROR: u32 = 2;

/// The body of an export request for `spans` of this server.
pub fn encode(spans: &[Span], server: &str) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        attribute("service.name", &"gridhook".into()),
        attribute("service.version", &version.into()),
        attribute("service.instance.id", &server.into()),
    ];
    let scope = json!({"name": "gridhook", "version": version});
    let spans: Vec<Json> = spans.iter().map(span).collect();
    let all = json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]});
    all.to_string().into_bytes()
}

fn span(span: &Span) -> Json {
    let mut json = context_json(&span.context);
    if let Some(parent) = span.parent {
        json["parentSpanId"] = parent.to_string().into();
    }
    json["name"] = span.name.as_str().into();
    json["kind"] = (span.kind as u32).into();
    json["startTimeUnixNano"] = nanos(span.began.0).into();
    json["endTimeUnixNano"] = nanos(span.ended.0).into();
    json["attributes"] = span.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
    if !span.links.is_empty() {
        json["links"] = span.links.iter().map(context_json).collect();
    }
    if let Some(why) = &span.error {
        json["status"] = json!({"code": STATUS_ERROR, "message": why});
    }
    json
}

fn context_json(context: &SpanContext) -> Json {
    let mut json = json!({"traceId": context.trace.to_string(), "spanId": context.span.to_string()});
    if let Some(state) = &context.state {
        json["traceState"] = (**state).into();
    }
    json
}

fn attribute(key: &str, value: &AttributeValue) -> Json {
    let value = match value {
        AttributeValue::Text(text) => json!({"stringValue": text}),
        AttributeValue::Number(number) => json!({"intValue": number.to_string()}),
    };
    json!({"key": key, "value": value})
}

fn nanos(micros: u64) -> String {
    (u128::from(micros) * 1000).to_string()
}
