//! What can be done with dead letters, described.

use serde_json::{Value, json};

use super::{CHANGING, READING, draft};
use crate::admin::{
    arm::{path::SubscriptionVerb, routes::Route},
    dead_letters,
    openapi::draft::{Draft, Schemas},
};

/// What dead letters are asked for by, in a query.
const DEAD_LETTERS: [(&str, &str, &str); 5] = [
    ("place", "`waiting` for their file, or `written`.", "string"),
    ("from", "Last tried, or else published, then or later.", "string"),
    ("to", "Before then.", "string"),
    ("reason", "Why they were given up.", "string"),
    ("id", "Of their event.", "string"),
];

pub(super) fn describe(route: &Route, verb: SubscriptionVerb, schemas: &mut Schemas, error: &Value) -> Draft {
    if verb == SubscriptionVerb::DeadLetter {
        return draft(route, "getDeadLetter", "A dead letter, with its event.")
            .answer(200, "It.", &schemas.of::<dead_letters::WholeView>())
            .answer(409, "It can't be read, and why.", error)
            .errors(&READING, error);
    }
    if verb == SubscriptionVerb::RedriveDeadLetters {
        let body = schemas.of::<dead_letters::RedriveBody>();
        return draft(route, "redriveDeadLetters", "Sends dead letters again, to this event subscription alone.")
            .body(true, &body, json!({"filter": {"reason": "TimeToLiveExceeded"}, "rate": 100}))
            .answer(200, "A dry run: so many.", &schemas.of::<dead_letters::PurgedView>())
            .answer(202, "The job that has begun.", &schemas.of::<dead_letters::BegunView>())
            .errors(&CHANGING, error);
    }
    if verb == SubscriptionVerb::PurgeDeadLetters {
        return draft(route, "purgeDeadLetters", "Gives dead letters up for good, a part at a time; or counts them.")
            .body(true, &schemas.of::<dead_letters::PurgeBody>(), json!({"all": true, "dryRun": true}))
            .answer(
                200,
                "So many; where it has `next`, the rest begins there.",
                &schemas.of::<dead_letters::PurgedView>(),
            )
            .errors(&CHANGING, error);
    }
    let list =
        draft(route, "listDeadLetters", "Its dead letters: those that wait for their file, then those in files.");
    let list =
        DEAD_LETTERS.iter().fold(list, |list, (name, what, kind)| list.query(name, what, &json!({"type": kind})));
    list.query("$top", "How many a page has.", &json!({"type": "integer", "minimum": 1, "maximum": 1000}))
        .query("$skipToken", "Where the page begins, as `nextLink` has it.", &json!({"type": "string"}))
        .answer(200, "A page of them, and where the next one is.", &schemas.of::<dead_letters::PageView>())
        .errors(&READING, error)
}
