//! Schemas of published events for the OpenAPI document. The server parses events by hand, for
//! Event Grid's error messages.
#![expect(dead_code, reason = "only their schemas are used")]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// An event in the Event Grid schema. Other properties are refused.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EventGridEvent {
    /// Identifier; an event that arrives twice has the same one
    #[schema(example = "1")]
    id: String,
    /// In a domain, the name of the domain topic; elsewhere missing, or the resource id of the
    /// topic
    #[schema(example = "berlin")]
    topic: Option<String>,
    /// Subject of the event in the context of its source
    #[schema(example = "orders/1")]
    subject: String,
    /// Kind of the event, by which filters select
    #[schema(example = "order.placed")]
    event_type: String,
    /// Time at which the event happened, in RFC 3339 and UTC
    #[schema(format = DateTime, example = "2040-01-01T00:00:00Z")]
    event_time: String,
    /// Payload, delivered as it was published
    data: Option<Value>,
    /// Version of the schema of the payload
    #[schema(example = "1.0")]
    data_version: Option<String>,
    /// Version of the schema of the event
    metadata_version: Option<String>,
}

/// A CloudEvent of version 1.0, in JSON; other members are its extensions.
#[derive(ToSchema)]
pub(super) struct CloudEvent {
    /// Version of CloudEvents, always `1.0`
    #[schema(example = "1.0")]
    specversion: String,
    /// Id of the event, unique for its source
    #[schema(example = "1")]
    id: String,
    /// Source of the event; in a domain, the name of the domain topic
    #[schema(example = "berlin")]
    source: String,
    /// Kind of the event, by which filters select
    #[schema(example = "order.placed")]
    r#type: String,
    /// Subject of the event in the context of its source
    subject: Option<String>,
    /// Time at which the event happened, in RFC 3339
    #[schema(format = DateTime)]
    time: Option<String>,
    /// Media type of the payload
    datacontenttype: Option<String>,
    /// URI of the schema of the payload
    dataschema: Option<String>,
    /// Payload, delivered as it was published
    data: Option<Value>,
    /// Binary payload of the event, in base64
    data_base64: Option<String>,
}

/// An event of any form, mapped by `inputSchemaMapping` of the topic.
#[derive(ToSchema)]
pub(super) struct CustomEvent {
    #[serde(flatten)]
    members: BTreeMap<String, Value>,
}
