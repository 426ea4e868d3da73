//! OpenAPI descriptions of the operations on dead letters.

use serde_json::json;

use super::{CHANGING, OperationBuilder, READING, Route, SchemaRegistry, draft, error};
use gridhook_api::dead_letters::{
    DeadLetterDetailView, PageView, PurgeBody, PurgedView, RedriveBody, RedriveStartedView,
};

/// Query parameters that select dead letters.
const FILTERS: [(&str, &str); 5] = [
    (
        "stage",
        "Stage of the dead letters: `waiting` for their file, or `written` to it",
    ),
    (
        "from",
        "Earliest time of the last attempt, or else of the publish",
    ),
    (
        "to",
        "Time before which the last attempt, or else the publish, was",
    ),
    ("reason", "Reason of the dead letter"),
    ("id", "Id of the event"),
];

pub(crate) fn list(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (list, text) = (
        draft(route, "listDeadLetters", "List dead letters"),
        json!({"type": "string"}),
    );
    FILTERS
        .iter()
        .fold(list, |list, (name, what)| list.query(name, what, &text))
        .query(
            "$top",
            "Maximum items in a page",
            &json!({"type": "integer", "minimum": 1, "maximum": 1000}),
        )
        .query(
            "$skipToken",
            "Start of the page, taken from `nextLink`",
            &text,
        )
        .answer(
            200,
            "A page of dead letters, with the link to the next page",
            &schemas.of::<PageView>(),
        )
        .errors(&READING, &error())
}

pub(crate) fn get(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(route, "getDeadLetter", "Get a dead letter with its event")
        .answer(
            200,
            "The dead letter and its event",
            &schemas.of::<DeadLetterDetailView>(),
        )
        .answer(409, "Unreadable dead letter, with the cause", &error())
        .errors(&READING, &error())
}

pub(crate) fn redrive(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let body = schemas.of::<RedriveBody>();
    draft(
        route,
        "redriveDeadLetters",
        "Redrive dead letters to this event subscription",
    )
    .body(
        true,
        &body,
        json!({"filter": {"reason": "TimeToLiveExceeded"}, "rate": 100}),
    )
    .answer(200, "The count of a dry run", &schemas.of::<PurgedView>())
    .answer(
        202,
        "The redrive that began",
        &schemas.of::<RedriveStartedView>(),
    )
    .errors(&CHANGING, &error())
}

pub(crate) fn purge(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let body = schemas.of::<PurgeBody>();
    draft(
        route,
        "purgeDeadLetters",
        "Purge dead letters, a part at a time, or count them with `dryRun`",
    )
    .body(true, &body, json!({"all": true, "dryRun": true}))
    .answer(
        200,
        "The number of purged dead letters; `next` is the start of the rest",
        &schemas.of::<PurgedView>(),
    )
    .errors(&CHANGING, &error())
}
