//! OpenAPI descriptions of the routes of Azure Resource Manager.

pub(crate) mod account;
pub(crate) mod dead_letters;
pub(crate) mod deployments;
pub(crate) mod events;
pub(crate) mod namespaces;
pub(crate) mod subscriptions;
pub(crate) mod topics;

use serde_json::{Value, json};

use super::draft::{OperationBuilder, SchemaRegistry, error, list_of};
use crate::arm::routes::Route;
use gridhook_api::{
    provider::{EventType, ProviderOperation, TopicType},
    trace::TOP_MAX,
    what_if::Difference,
};

/// Errors of all operations.
pub(super) const ALWAYS: [(u16, &str); 4] = [
    (400, "Invalid body or query"),
    (404, "No such resource"),
    (408, "Body not received in time"),
    (413, "Body too large"),
];

/// Errors of operations that read the store.
const READING: [(u16, &str); 2] = [
    (500, "Damaged store"),
    (503, "Store temporarily unreadable"),
];

/// Errors of changes.
const CHANGING: [(u16, &str); 3] = [
    (
        409,
        "Name taken under another scope, or a concurrent change",
    ),
    (500, "Unknown whether the change was made"),
    (503, "Store temporarily unwritable"),
];

/// An operation whose id has the resource type, because ids are unique.
fn draft(route: &Route, id: &str, summary: &str) -> OperationBuilder {
    OperationBuilder::new(route.tag, &format!("{id}{}", route.id), summary)
}

fn list(draft: OperationBuilder, item: Value) -> OperationBuilder {
    draft.answer(200, "The whole list", &list_of(item))
}

fn paged(draft: OperationBuilder, item: Value) -> OperationBuilder {
    draft
        .query(
            "$filter",
            "Filter by name: `contains(name, 'text')`, `name eq 'text'`, `and`, `or`, `not`",
            &json!({"type": "string"}),
        )
        .query(
            "$top",
            "Maximum items in a page",
            &json!({"type": "integer", "minimum": 1, "maximum": 100}),
        )
        .query(
            "$skipToken",
            "Start of the page, taken from `nextLink`",
            &json!({"type": "string"}),
        )
        .answer(
            200,
            "A page of the list, with the link to the next page",
            &list_of(item),
        )
}

/// Adds the parameters of pages of lines.
fn paging(draft: OperationBuilder) -> OperationBuilder {
    draft
        .query(
            "top",
            "Maximum lines in a page",
            &json!({"type": "integer", "minimum": 1, "maximum": TOP_MAX}),
        )
        .query(
            "continue",
            "Start of the page, taken from the page before",
            &json!({"type": "string"}),
        )
}

/// Adds the parameters that name an event.
fn of_event(draft: OperationBuilder) -> OperationBuilder {
    let what = "Sequence number of the event, instead of its id";
    draft
        .query(
            "id",
            "Id of the event",
            &json!({"type": "string", "minLength": 1}),
        )
        .query("sequence", what, &json!({"type": "integer", "minimum": 1}))
}

/// A PUT, with the parameter `whatIf`.
fn put(draft: OperationBuilder, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft
        .query(
            "whatIf",
            "Whether to report the changes without making them",
            &json!({"type": "boolean"}),
        )
        .answer(
            200,
            "The changes that would be made; only with `whatIf`",
            &schemas.of::<Difference>(),
        )
        .errors(&CHANGING, &error())
}

fn delete(route: &Route, summary: &str) -> OperationBuilder {
    draft(route, "delete", summary)
        .done(204, "The resource is deleted")
        .errors(&CHANGING, &error())
}

pub(crate) fn operations(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let item = schemas.of::<ProviderOperation>();
    list(
        draft(
            route,
            "listOperations",
            "List the operations of the provider",
        ),
        item,
    )
}

pub(crate) fn topic_types(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    list(
        draft(route, "listTopicTypes", "List topic types"),
        schemas.of::<TopicType>(),
    )
}

pub(crate) fn topic_type(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(route, "getTopicType", "Get a topic type").answer(
        200,
        "The topic type",
        &schemas.of::<TopicType>(),
    )
}

pub(crate) fn event_types(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the event types of a topic type (always empty)";
    list(
        draft(route, "listEventTypes", summary),
        schemas.of::<EventType>(),
    )
}

pub(crate) fn list_unsupported(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    let summary = format!(
        "List {}, which are not supported (always empty)",
        route.resource
    );
    list(draft(route, "list", &summary), json!({"type": "object"}))
}

pub(crate) fn get_unsupported(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    let summary = format!(
        "Get one of {}, which are not supported (always 404)",
        route.resource
    );
    let never = json!({"type": "object"});
    draft(route, "get", &summary)
        .answer(200, "Never sent: none exists", &never)
        .errors(&CHANGING, &error())
}

pub(crate) fn put_unsupported(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    refused(route, "put")
}

pub(crate) fn patch_unsupported(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    refused(route, "patch")
}

fn refused(route: &Route, id: &str) -> OperationBuilder {
    let summary = format!(
        "Refuse to create or change {}, which are not supported",
        route.resource
    );
    let any = json!({"type": "object"});
    let draft = draft(route, id, &summary).body(false, &any, json!({}));
    draft
        .answer(201, "Never sent: none can be created", &any)
        .errors(&CHANGING, &error())
}

pub(crate) fn delete_unsupported(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    delete(
        route,
        &format!(
            "Delete one of {}, which are not supported (no effect)",
            route.resource
        ),
    )
}
