//! The consumers' endpoint, described.

use serde_json::json;

use super::{
    draft::{Draft, Schemas},
    publishing::{ANY_VERSION, ASKED, IN_NAMESPACE, version},
};
use crate::{
    publish::refusal::AnswerBody,
    pull::words::{DELAYS, EVENTS, LockTokens, ReceivedBody, Settled, WAIT},
};

/// What can be said to whoever pulls, besides.
const PULLED: [(u16, &str); 5] = [
    (401, "The key or the token is missing, or not good for this topic."),
    (403, "The rules of the namespace do not let this address in."),
    (408, "The body did not come in time, or too slowly."),
    (413, "The list of lock tokens is too large."),
    (503, "The server stops; come again after `Retry-After`."),
];

/// `POST` of one of the two paths of an operation.
pub(super) fn describe(operation: &str, path: &str, schemas: &mut Schemas) -> Draft {
    let whose = if path.contains("{namespace}") { "Namespace" } else { "OnlyNamespace" };
    let what = match operation {
        "receive" => "Receives events and locks them; waits for some where there are none.",
        "acknowledge" => "Says that events are processed: nobody receives them again.",
        "release" => "Gives events back: somebody receives them again, after a delay.",
        "reject" => "Says that nobody will process these events: they become dead letters, or are dropped.",
        _ => "Holds events for longer, up to an hour after they were first received.",
    };
    let error = schemas.of::<AnswerBody<'static>>();
    let between = |range: &std::ops::RangeInclusive<u32>, default: u32| json!({"type": "integer", "minimum": range.start(), "maximum": range.end(), "default": default});
    let draft = Draft::new("pull", &format!("{operation}In{whose}"), what)
        .query("api-version", ANY_VERSION, &version("2024-06-01"))
        .secured(&["keyInAuthorization", "key", "keyInQuery", "token", "tokenInAuthorization", "publisher"]);
    let draft = match operation {
        "receive" => draft
            .query("maxEvents", "No more events than this.", &between(&EVENTS, 1))
            .query("maxWaitTime", "Seconds to wait where there are no events.", &between(&WAIT, 60))
            .answer(200, "The events, each with its lock token; none where none came.", &schemas.of::<ReceivedBody>()),
        _ => {
            let tokens = schemas.of::<LockTokens>();
            let draft = draft
                .bodies(true, json!({"application/json": {"schema": tokens, "example": {"lockTokens": ["…"]}}}))
                .answer(200, "What became of each of them.", &schemas.of::<Settled>());
            match operation {
                "release" => draft.query(
                    "releaseDelayInSeconds",
                    "Nobody receives them earlier.",
                    &json!({"type": "integer", "enum": DELAYS, "default": 0}),
                ),
                _ => draft,
            }
        }
    };
    draft.errors(&ASKED, &error).errors(&PULLED, &error).errors(&IN_NAMESPACE, &error)
}
