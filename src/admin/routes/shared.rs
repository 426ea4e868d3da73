//! Parameters, errors and descriptions that the rows of the table of routes share.

use utoipa::ToSchema;

use crate::openapi::{
    Description, Errors, Query,
    QueryType::{Flag, Number, OneOf, Text},
    SchemaRegistry, any_text, describe,
};
use gridhook_api::store::ProgressLine;

pub(super) const INVALID_QUERY: Errors = &[(400, "Invalid query")];

/// Errors of a body that does not arrive.
pub(super) const UNREAD_BODY: Errors =
    &[(408, "Body not received in time"), (413, "Body too large")];

const CHAOS: Errors = &[
    (400, "Invalid body, or no target for the fault"),
    (404, "No such topic or event subscription"),
    (409, "Too many active faults"),
    (503, "Store temporarily unwritable"),
];

/// Errors of operations on the store.
const STORE: Errors = &[
    (400, "Invalid folder"),
    (409, "Another check or backup is running"),
    (413, "Body too large"),
    (503, "Closed store"),
];

/// Errors of lists that read the store.
pub(super) const STORED_LIST: Errors = &[
    (400, "Invalid query"),
    (404, "No such topic"),
    (500, "Damaged store"),
    (503, "Store temporarily unreadable"),
];

/// Errors of operations on a cluster.
pub(super) const CLUSTER: Errors = &[
    (400, "Invalid body"),
    NO_NODE[0],
    (
        409,
        "The node gives everything up or is alive, or the records cannot be written",
    ),
];

pub(super) const NO_NODE: Errors = &[(404, "No such node or shard, or no node of a cluster")];

pub(super) const SESSION: Errors = &[
    (400, "Not possible with this token"),
    (404, "Dashboard disabled"),
];

const TOPIC_ID: Query = Query(
    "topic",
    Text,
    "Resource id of the only topic, domain or domain topic",
);

pub(super) const FIGURES: &[Query] = &[
    Query("top", Number, "Maximum event subscriptions: 1 to 500"),
    Query(
        "skip",
        Number,
        "Event subscriptions before the first listed one: 0 to 1,000,000",
    ),
    Query(
        "by",
        OneOf(&[
            "activity",
            "health",
            "backlog",
            "pending",
            "failures",
            "inFlight",
            "deadLetters",
            "responseP50",
            "responseP95",
            "responseP99",
            "name",
        ]),
        "Figure to sort by, highest first; names are ascending",
    ),
    Query(
        "search",
        Text,
        "Text in the name or the endpoint of the listed event subscriptions",
    ),
    TOPIC_ID,
    Query(
        "health",
        OneOf(&[
            "healthy",
            "unhealthy",
            "failing",
            "suspended",
            "probing",
            "held",
            "waiting",
            "slow",
            "idle",
        ]),
        "State of the listed event subscriptions",
    ),
    Query(
        "window",
        OneOf(&["1m", "1h", "24h"]),
        "Recorded window of rates and shares; default 1m",
    ),
];

pub(super) const HISTORY: &[Query] = &[
    Query(
        "range",
        OneOf(&["10m", "3h", "24h"]),
        "Period until now; default 10m",
    ),
    Query(
        "topic",
        Text,
        "Resource id of the topic or the domain; default the whole server",
    ),
    Query(
        "subscription",
        Text,
        "Name of the event subscription of this topic",
    ),
    Query(
        "destinations",
        Flag,
        "Whether to add the course of the four busiest event subscriptions",
    ),
];

pub(super) const TAIL: &[Query] = &[
    Query("events", Flag, "Whether to include events"),
    Query("outcomes", Flag, "Whether to include outcomes"),
    Query("data", Flag, "Whether to include the data of events"),
    TOPIC_ID,
    Query(
        "subscription",
        Text,
        "Name of the event subscriptions whose outcomes are included",
    ),
    Query("type", Text, "Type of the included events"),
    Query(
        "outcome",
        Text,
        "Step of the included outcomes, outcome of an attempt, or reason for which an event was \
         given up",
    ),
    Query("status", Number, "HTTP status of the included attempts"),
];

pub(super) const SUPERVISION: &[Query] = &[
    Query("top", Number, "Maximum actors listed by name: 1 to 1,000"),
    Query("topic", Text, "Resource id or key of the only topic"),
];

const CONTINUE: Query = Query("continue", Text, "Value of `continue` in the last page");

pub(super) const NEWEST_DEAD_LETTERS: &[Query] = &[
    Query("top", Number, "Maximum lines: 1 to 500; default 100"),
    CONTINUE,
    Query("reason", Text, "`deadLetterReason`, compared without case"),
    Query(
        "topic",
        Text,
        "Resource id of a topic, a domain or a domain topic",
    ),
    Query(
        "search",
        Text,
        "Part of the name of the event subscription, compared without case",
    ),
];

pub(super) const AUDIT: &[Query] = &[
    Query("top", Number, "Maximum operations: 1 to 1,000; default 100"),
    CONTINUE,
    Query("operator", Text, "Name of the only operator"),
    Query(
        "search",
        Text,
        "Part of the method and path, or of the id of the request, compared without case",
    ),
    Query("refused", Flag, "Whether to list refused operations only"),
];

const VALIDATION: &[Query] = &[
    Query("id", Text, VALIDATION_VALUE),
    Query("t", Text, VALIDATION_VALUE),
    Query("apiVersion", Text, VALIDATION_VALUE),
    Query("token", Text, VALIDATION_VALUE),
];

const VALIDATION_VALUE: &str = "Value from the validation address";

/// The confirmation of an endpoint.
pub(super) const fn validation(id: &'static str) -> Description {
    describe(
        id,
        "Confirm the validation of an endpoint, by the address from its validation request",
    )
    .with(VALIDATION)
    .header(
        "WebHook-Allowed-Rate",
        "Requests a minute that the endpoint accepts, or `*`",
    )
    .returns_types("The endpoint is validated", &[("text/plain", any_text)])
    .fails(&[
        (400, "Invalid request rate"),
        (404, "No such pending validation"),
        (409, "Validation request not answered yet"),
        (410, "Validation expired"),
        (500, "Unknown whether the validation was stored"),
        (503, "Store temporarily unwritable"),
    ])
}

/// A job on the store, whose response is sent line by line.
pub(super) const fn store_job(description: Description) -> Description {
    description
        .returns_types(
            "Lines of JSON: progress, then a report, the backup, or an error",
            &[(
                "application/x-ndjson",
                SchemaRegistry::reference_to::<ProgressLine>,
            )],
        )
        .fails(STORE)
}

/// The injection of a fault, with an example of its body.
pub(super) const fn fault<T: ToSchema>(
    id: &'static str,
    summary: &'static str,
    example: &'static str,
) -> Description {
    describe(id, summary)
        .takes::<T>(true, example)
        .fails(CHAOS)
        .fails(UNREAD_BODY)
}
