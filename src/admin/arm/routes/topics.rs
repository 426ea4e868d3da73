//! Routes of topics, domains and topics of domains. In a summary, `{noun}` is `topic` or `domain`,
//! and `{resource}` the plural.

use serde_json::{Value, json};

use super::{
    super::{
        domain_topics, event_types,
        operation::{ArmOperation, PathOperations, delete, get, handler, list, patch, post, put},
        topics,
    },
    subscriptions::TEST_FILTER,
};
use crate::{
    auth::Access,
    events,
    merge::SpreadMerge,
    openapi::{
        CHANGING, Description, Errors, Query,
        QueryType::{NonEmptyText, NumberBetween, NumberFrom, Text},
        READING, SchemaRegistry, any_object, describe,
    },
    operate, test_filter, trace,
};
use gridhook_api::{
    events::EventList,
    provider::EventType,
    status::TopicStatusView,
    topic::{DeclaredEventType, DomainTopic, RegenerateKey, SharedAccessKeys, Topic},
    trace::{TOP_MAX, TraceView},
};

/// Parameters that name an event.
pub(super) const ONE_EVENT: &[Query] = &[
    Query("id", NonEmptyText, "Id of the event"),
    Query(
        "sequence",
        NumberFrom(1),
        "Sequence number of the event, instead of its id",
    ),
];

/// Parameters of pages of lines.
pub(super) const PAGE_OF_LINES: &[Query] = &[
    Query(
        "top",
        NumberBetween(1, TOP_MAX as u64),
        "Maximum lines in a page",
    ),
    Query(
        "continue",
        Text,
        "Start of the page, taken from the page before",
    ),
];

const EVENTS: &[Query] = &[
    Query(
        "top",
        NumberBetween(1, events::TOP_MAX as u64),
        "Maximum events in a page",
    ),
    Query(
        "before",
        Text,
        "Sequence number before which the page ends, or `before` of the last page",
    ),
    Query("type", Text, "Type of the listed events"),
    Query("subject", Text, "Text in the subject of the listed events"),
    Query("id", Text, "Id of the listed events"),
];

const PUBLISHING: Errors = &[
    (400, "Event not accepted"),
    (429, "Too many events"),
    (503, "Backlog full, or store temporarily unwritable"),
];

fn events_to_publish(_: &mut SchemaRegistry) -> Value {
    let event = json!({"type": "object"});
    json!({"anyOf": [event, {"type": "array", "items": event}]})
}

pub(super) static TOPIC_LIST: [ArmOperation; 1] = [list(
    handler!(topics::list),
    describe("list", "List {resource}").pages::<Topic>(),
)];

pub(super) static TOPIC: [ArmOperation; 4] = [
    get(
        handler!(topics::get),
        describe("get", "Get a {noun}").returns::<Topic>(200, "The resource, without its keys"),
    ),
    put(
        handler!(topics::put),
        describe("put", "Create or replace a {noun}")
            .takes::<Topic>(false, r#"{"location": "local", "tags": {"team": "shop"}}"#)
            .returns::<Topic>(201, "The created or changed resource"),
    )
    .with_difference(handler!(topics::difference)),
    patch(
        handler!(topics::patch),
        describe("patch", "Change a {noun} with a JSON merge patch")
            .takes::<Topic>(false, r#"{"location": "local", "tags": {"team": "shop"}}"#)
            .returns::<Topic>(201, "The changed resource"),
    ),
    delete(
        handler!(topics::delete),
        describe(
            "delete",
            "Delete a {noun}, its events and its event subscriptions",
        )
        .returns_nothing(204, "The resource is deleted"),
    ),
];

pub(super) const LIST_KEYS: Description = describe("listKeys", "List the access keys")
    .returns::<SharedAccessKeys>(200, "Both access keys");

pub(super) const REGENERATE_KEY: Description =
    describe("regenerateKey", "Replace one of the access keys")
        .takes::<RegenerateKey>(true, r#"{"keyName": "key1"}"#)
        .returns::<SharedAccessKeys>(200, "Both access keys")
        .fails(CHANGING);

pub(super) static TOPIC_ACTIONS: PathOperations<8> = [
    (
        "/listKeys",
        &[post(Access::ADMIN, handler!(topics::list_keys), LIST_KEYS)],
    ),
    (
        "/regenerateKey",
        &[post(
            Access::ADMIN,
            handler!(topics::regenerate_key),
            REGENERATE_KEY,
        )],
    ),
    (
        "/status",
        &[get(
            handler!(operate::topic_status),
            describe(
                "status",
                "Get the figures of a topic, its log, and the event subscription that lags most",
            )
            .returns::<TopicStatusView>(200, "The status of the topic")
            .fails(READING),
        )
        .in_parts(SpreadMerge::Figures)],
    ),
    (
        "/trace",
        &[get(
            handler!(trace::trace_event),
            describe(
                "trace",
                "Trace an event through all event subscriptions, by id or sequence number",
            )
            .with(PAGE_OF_LINES)
            .with(ONE_EVENT)
            .returns::<TraceView>(200, "The history of the event")
            .fails(READING),
        )
        .in_parts(SpreadMerge::Pages)],
    ),
    (
        "/events",
        &[get(
            handler!(events::list_events),
            describe("events", "List the stored events of a topic, newest first")
                .with(EVENTS)
                .returns::<EventList>(200, "The page of events")
                .fails(READING),
        )
        .in_parts(SpreadMerge::Events)],
    ),
    (
        "/events/{sequence}",
        &[get(
            handler!(events::get),
            describe(
                "event",
                "Get a stored event, byte for byte; of a spread topic, that of the named shard",
            )
            .returns_types(
                "The event in the input schema of the topic",
                &[
                    ("application/json", any_object),
                    ("application/cloudevents+json", any_object),
                ],
            )
            .fails(READING),
        )
        .served_by_named_shard()],
    ),
    (
        "/publish",
        &[post(
            Access::OPERATE,
            handler!(events::publish_events),
            describe(
                "publish",
                "Publish events with the token of an operator, in the input schema of the topic",
            )
            .takes_json(
                true,
                events_to_publish,
                r#"[{"id": "1", "eventType": "Test", "subject": "/test",
                    "eventTime": "2040-01-01T00:00:00Z", "dataVersion": "1",
                    "data": {"test": true}}]"#,
            )
            .returns_nothing(200, "The events are stored")
            .fails(PUBLISHING),
        )
        .served_nearby()],
    ),
    (
        "/testFilter",
        &[post(
            Access::READ,
            handler!(test_filter::test_filter),
            TEST_FILTER,
        )
        .in_parts(SpreadMerge::Tests)],
    ),
];

/// The event types of every topic.
pub(super) static EVENT_TYPES: PathOperations<2> = [
    (
        "/eventTypes",
        &[get(
            handler!(event_types::list),
            describe(
                "listEventTypes",
                "List the event types of a topic with their schemas and examples",
            )
            .lists::<DeclaredEventType>(),
        )],
    ),
    (
        "/eventTypes/{eventTypeName}",
        &[
            get(
                handler!(event_types::get),
                describe("getEventType", "Get an event type of a topic")
                    .returns::<DeclaredEventType>(200, "The event type"),
            ),
            put(
                handler!(event_types::put),
                describe("putEventType", "Create or replace an event type of a topic")
                    .takes::<DeclaredEventType>(
                        true,
                        r#"{"properties": {"description": "An order was placed", "versions":
                            {"1": {"schema": {"type": "object", "required": ["total"]},
                                "examples": [{"total": 5}]}}}}"#,
                    )
                    .returns::<DeclaredEventType>(201, "The created or changed event type"),
            )
            .with_difference(handler!(event_types::difference)),
            delete(
                handler!(event_types::delete),
                describe("deleteEventType", "Delete an event type of a topic")
                    .returns_nothing(204, "The event type does not exist any more"),
            ),
        ],
    ),
];

/// Operations on topics and domains, which topics of namespaces do not have.
pub(super) static TOPIC_LISTS: PathOperations<2> = [
    (
        "/providers/Microsoft.EventGrid/eventTypes",
        &[get(
            handler!(topics::event_types),
            describe("eventTypes", "List the event types that a topic declares")
                .lists::<EventType>(),
        )],
    ),
    (
        "/privateEndpointConnections",
        &[get(
            handler!(topics::private_endpoint_connections),
            describe(
                "privateEndpointConnections",
                "List private endpoint connections (always empty)",
            )
            .lists_json(any_object),
        )],
    ),
];

pub(super) static DOMAIN_TOPICS: PathOperations<2> = [
    (
        "",
        &[list(
            handler!(domain_topics::list),
            describe("list", "List the topics of a domain").pages::<DomainTopic>(),
        )],
    ),
    (
        "/{domainTopicName}",
        &[
            get(
                handler!(domain_topics::get),
                describe("get", "Get a topic of a domain")
                    .returns::<DomainTopic>(200, "The domain topic"),
            ),
            put(
                handler!(domain_topics::put),
                describe("put", "Create a topic of a domain")
                    .takes::<DomainTopic>(false, "{}")
                    .returns::<DomainTopic>(201, "The created or existing domain topic"),
            )
            .with_difference(handler!(domain_topics::difference)),
            delete(
                handler!(domain_topics::delete),
                describe(
                    "delete",
                    "Delete a topic of a domain and its event subscriptions",
                )
                .returns_nothing(204, "The resource is deleted"),
            ),
        ],
    ),
];
