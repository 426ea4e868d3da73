//! OpenAPI descriptions of pull delivery.

use serde_json::{Value, json};

use super::{
    draft::{OperationBuilder, SchemaRegistry},
    publishing::{ANY_VERSION, ASKED, IN_NAMESPACE, IN_NAMESPACE_SCHEMES, version_schema},
};
use gridhook_publish::refusal::AnswerBody;
use gridhook_pull::body::{DELAYS, EVENTS, LockTokensBody, ReceivedBody, SettleResponse, WAIT};

/// Errors that only pull delivery returns.
const PULLED: [(u16, &str); 5] = [
    (
        401,
        "Missing key or token, or one that is not valid for this topic",
    ),
    (
        403,
        "Client address not allowed by the rules of the namespace",
    ),
    (408, "Body not received in time, or too slow"),
    (413, "Too many lock tokens"),
    (503, "Server stopping; retry after `Retry-After`"),
];

/// `POST` of one of the two paths of an operation.
pub(super) fn describe_pull(
    operation: &str,
    path: &str,
    schemas: &mut SchemaRegistry,
) -> OperationBuilder {
    let whose = if path.contains("{namespace}") {
        "Namespace"
    } else {
        "OnlyNamespace"
    };
    let what = match operation {
        "receive" => "Receive and lock events; wait if there are none",
        "acknowledge" => "Acknowledge events as processed",
        "release" => "Release events to be received again, optionally after a delay",
        "reject" => "Reject events: they are dead-lettered or dropped",
        _ => "Renew the locks of events, up to an hour after they were first received",
    };
    let error = schemas.reference_to::<AnswerBody<'static>>();
    let draft = OperationBuilder::new("pull", &format!("{operation}In{whose}"), what)
        .with_query("api-version", ANY_VERSION, &version_schema("2024-06-01"))
        .with_security(&IN_NAMESPACE_SCHEMES);
    let draft = match operation {
        "receive" => draft
            .with_query(
                "maxEvents",
                "Maximum number of events",
                &range_schema(&EVENTS, 1),
            )
            .with_query(
                "maxWaitTime",
                "Seconds to wait for events",
                &range_schema(&WAIT, 60),
            )
            .with_json_response(
                200,
                "The events, each with its lock token",
                &schemas.reference_to::<ReceivedBody>(),
            ),
        _ => {
            let tokens = schemas.reference_to::<LockTokensBody>();
            let draft = draft
                .with_bodies(true, json!({"application/json": {"schema": tokens, "example": {"lockTokens": ["…"]}}}))
                .with_json_response(200, "The result for each lock token", &schemas.reference_to::<SettleResponse>());
            match operation {
                "release" => draft.with_query(
                    "releaseDelayInSeconds",
                    "Seconds until the events can be received again",
                    &json!({"type": "integer", "enum": DELAYS, "default": 0}),
                ),
                _ => draft,
            }
        }
    };
    draft
        .with_errors(&ASKED, &error)
        .with_errors(&PULLED, &error)
        .with_errors(&IN_NAMESPACE, &error)
}

fn range_schema(range: &std::ops::RangeInclusive<u32>, default: u32) -> Value {
    let min = range.start();
    let max = range.end();
    json!({"type": "integer", "minimum": min, "maximum": max, "default": default})
}
