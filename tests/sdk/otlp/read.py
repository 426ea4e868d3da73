"""Reads requests of OTLP in JSON with OpenTelemetry's own protobuf, and prints the spans in them as one JSON list.

Standard input has a request on each line. What the protobuf does not know is an error.
"""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

# OTLP has these in hexadecimal, where the JSON of protobuf has base64.
IDENTIFIERS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def in_base64(node):
    if isinstance(node, list):
        return [in_base64(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {}
    for key, value in node.items():
        if key in IDENTIFIERS:
            raw = bytes.fromhex(value)
            assert len(raw) == IDENTIFIERS[key] and any(raw), (key, value)
            result[key] = base64.b64encode(raw).decode()
        else:
            result[key] = in_base64(value)
    return result


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


spans = []
for line in sys.stdin:
    request = json_format.ParseDict(in_base64(json.loads(line)), ExportTraceServiceRequest())
    for resource in request.resource_spans:
        assert attributes(resource.resource.attributes)["service.name"] == "gridhook"
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
                spans.append({
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "state": span.trace_state,
                    "name": span.name,
                    "kind": Span.SpanKind.Name(span.kind),
                    "attributes": attributes(span.attributes),
                    "links": [link.trace_id.hex() for link in span.links],
                    "failed": span.status.code == Status.STATUS_CODE_ERROR,
                })
json.dump(spans, sys.stdout)
