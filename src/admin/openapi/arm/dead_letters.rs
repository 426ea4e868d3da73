//! OpenAPI descriptions of the operations on dead letters.

use serde_json::{Value, json};

use super::{CHANGING, READING, draft};
use crate::{
    admin::{
        arm::{path::SubscriptionAction, routes::Route},
        openapi::draft::{OperationBuilder, SchemaRegistry},
    },
    api::dead_letters,
};

/// Query parameters that select dead letters.
const DEAD_LETTERS: [(&str, &str, &str); 5] = [
    ("stage", "Stage of the dead letters: `waiting` for their file, or `written` to it", "string"),
    ("from", "Earliest time of the last attempt, or else of the publish", "string"),
    ("to", "Time before which the last attempt, or else the publish, was", "string"),
    ("reason", "Reason of the dead letter", "string"),
    ("id", "Id of the event", "string"),
];

pub(super) fn describe(
    route: &Route,
    verb: SubscriptionAction,
    schemas: &mut SchemaRegistry,
    error: &Value,
) -> OperationBuilder {
    if verb == SubscriptionAction::DeadLetter {
        return draft(route, "getDeadLetter", "Get a dead letter with its event")
            .answer(200, "The dead letter and its event", &schemas.of::<dead_letters::DeadLetterDetailView>())
            .answer(409, "Unreadable dead letter, with the cause", error)
            .errors(&READING, error);
    }
    if verb == SubscriptionAction::RedriveDeadLetters {
        let body = schemas.of::<dead_letters::RedriveBody>();
        return draft(route, "redriveDeadLetters", "Redrive dead letters to this event subscription")
            .body(true, &body, json!({"filter": {"reason": "TimeToLiveExceeded"}, "rate": 100}))
            .answer(200, "The count of a dry run", &schemas.of::<dead_letters::PurgedView>())
            .answer(202, "The redrive that began", &schemas.of::<dead_letters::RedriveStartedView>())
            .errors(&CHANGING, error);
    }
    if verb == SubscriptionAction::PurgeDeadLetters {
        return draft(route, "purgeDeadLetters", "Purge dead letters, a part at a time, or count them with `dryRun`")
            .body(true, &schemas.of::<dead_letters::PurgeBody>(), json!({"all": true, "dryRun": true}))
            .answer(
                200,
                "The number of purged dead letters; `next` is the start of the rest",
                &schemas.of::<dead_letters::PurgedView>(),
            )
            .errors(&CHANGING, error);
    }
    let list = draft(route, "listDeadLetters", "List dead letters");
    let list =
        DEAD_LETTERS.iter().fold(list, |list, (name, what, kind)| list.query(name, what, &json!({"type": kind})));
    list.query("$top", "Maximum items in a page", &json!({"type": "integer", "minimum": 1, "maximum": 1000}))
        .query("$skipToken", "Start of the page, taken from `nextLink`", &json!({"type": "string"}))
        .answer(200, "A page of dead letters, with the link to the next page", &schemas.of::<dead_letters::PageView>())
        .errors(&READING, error)
}
