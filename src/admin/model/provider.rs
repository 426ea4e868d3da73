//! The resource provider: its operations, topic types and event types.

use serde::Serialize;
use utoipa::ToSchema;

use crate::control::record::topic::{TopicKind, TopicRecord};

/// An operation of the provider.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ProviderOperation)]
pub struct ProviderOperation {
    name: String,
    is_data_action: bool,
    display: OperationDisplay,
    origin: &'static str,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ProviderOperationDisplay)]
struct OperationDisplay {
    provider: &'static str,
    resource: &'static str,
    operation: &'static str,
    description: String,
}

/// Resource types: path, name for people, and operations.
const OPERATIONS: [(&str, &str, &[&str]); 10] = [
    ("topics", "Topic", &["read", "write", "delete", "listKeys/action", "regenerateKey/action"]),
    ("topics/eventSubscriptions", "Event subscription of a topic", &SUBSCRIPTION),
    ("domains", "Domain", &["read", "write", "delete", "listKeys/action", "regenerateKey/action"]),
    ("domains/topics", "Topic of a domain", &["read", "write", "delete"]),
    ("domains/eventSubscriptions", "Event subscription of a domain", &SUBSCRIPTION),
    ("domains/topics/eventSubscriptions", "Event subscription of a topic of a domain", &SUBSCRIPTION),
    ("eventSubscriptions", "Event subscription", &SUBSCRIPTION),
    ("namespaces", "Namespace", &["read", "write", "delete", "listKeys/action", "regenerateKey/action"]),
    (
        "namespaces/topics",
        "Topic of a namespace",
        &["read", "write", "delete", "listKeys/action", "regenerateKey/action"],
    ),
    ("namespaces/topics/eventSubscriptions", "Event subscription of a topic of a namespace", &SUBSCRIPTION),
];

/// The resource types, as in paths.
pub fn resource_types() -> impl Iterator<Item = &'static str> {
    OPERATIONS.iter().map(|(path, ..)| *path).chain(["operations", "topicTypes"])
}

const SUBSCRIPTION: [&str; 5] = ["read", "write", "delete", "getFullUrl/action", "getDeliveryAttributes/action"];

/// All operations of the provider.
pub fn operations() -> Vec<ProviderOperation> {
    let mut operations = Vec::new();
    for (path, resource, verbs) in OPERATIONS {
        operations.extend(verbs.iter().map(|verb| operation(path, resource, verb, false)));
    }
    operations.push(operation("events", "Events", "send/action", true));
    operations
}

fn operation(path: &str, resource: &'static str, verb: &'static str, is_data_action: bool) -> ProviderOperation {
    let operation = verb.trim_end_matches("/action");
    ProviderOperation {
        name: format!("Microsoft.EventGrid/{path}/{verb}"),
        is_data_action,
        display: OperationDisplay {
            provider: "Microsoft Event Grid",
            resource,
            operation,
            description: format!("{resource}: {operation}"),
        },
        origin: "user,system",
    }
}

/// A topic type.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TopicType {
    id: String,
    /// Name of the topic type, such as `Microsoft.EventGrid.Topics`
    pub name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    properties: TopicTypeProperties,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicTypeProperties)]
struct TopicTypeProperties {
    provider: &'static str,
    resource_type: &'static str,
    display_name: &'static str,
    description: &'static str,
    resource_region_type: &'static str,
    provisioning_state: &'static str,
    source_resource_format: String,
    supported_scopes_for_source: [&'static str; 1],
}

/// The topic type of storage accounts; its only events are about dead-letter files.
const STORAGE: &str = "Microsoft.Storage.StorageAccounts";

/// All topic types.
pub fn topic_types() -> Vec<TopicType> {
    let custom = "Custom events, published to a topic.";
    let domain = "Custom events, published to the topics of a domain.";
    let storage = "Events about dead-letter files, published to the topic of system_topic.name.";
    vec![
        topic_type(type_name(TopicKind::Topic), "Microsoft.EventGrid/topics", "Event Grid Topics", custom),
        topic_type(type_name(TopicKind::Domain), "Microsoft.EventGrid/domains", "Event Grid Domains", domain),
        topic_type(STORAGE, "Microsoft.Storage/storageAccounts", "Storage Accounts", storage),
    ]
}

fn topic_type(
    name: &'static str,
    resource: &'static str,
    display_name: &'static str,
    description: &'static str,
) -> TopicType {
    let (provider, resource_type) = resource.split_once('/').unwrap_or((resource, ""));
    TopicType {
        id: format!("providers/Microsoft.EventGrid/topicTypes/{name}"),
        name,
        kind: "Microsoft.EventGrid/topicTypes",
        properties: TopicTypeProperties {
            provider,
            resource_type,
            display_name,
            description,
            resource_region_type: "RegionalResource",
            provisioning_state: "Succeeded",
            source_resource_format: format!(
                "/subscriptions/{{subscriptionId}}/resourceGroups/{{resourceGroupName}}/providers/{resource}/\
                 {{resourceName}}"
            ),
            supported_scopes_for_source: ["Resource"],
        },
    }
}

/// The topic type of a kind of topic.
pub fn type_name(kind: TopicKind) -> &'static str {
    match kind {
        TopicKind::Topic => "Microsoft.EventGrid.Topics",
        TopicKind::NamespaceTopic => "Microsoft.EventGrid.Namespaces",
        TopicKind::Domain => "Microsoft.EventGrid.Domains",
    }
}

/// An event type that a topic declares.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EventType {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    properties: EventTypeProperties,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct EventTypeProperties {
    display_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_url: Option<String>,
    is_in_default_set: bool,
}

/// The event types of a topic type. Topics and domains have custom events, so none are listed.
pub fn event_types_of(topic_type: &str) -> Vec<EventType> {
    if topic_type != STORAGE {
        return Vec::new();
    }
    let name = "Microsoft.Storage.BlobCreated";
    vec![EventType {
        id: format!("providers/Microsoft.EventGrid/topicTypes/{STORAGE}/eventTypes/{name}"),
        name: name.to_owned(),
        kind: "Microsoft.EventGrid/topicTypes/eventTypes",
        properties: EventTypeProperties {
            display_name: "Blob Created".to_owned(),
            description: Some("A dead-letter file was written.".to_owned()),
            schema_url: None,
            is_in_default_set: true,
        },
    }]
}

/// The event types that a topic declares in `eventTypeInfo`; it may publish others.
pub fn event_types(topic: &TopicRecord) -> Vec<EventType> {
    let declared = topic.azure_properties.event_type_info.as_ref().and_then(|info| info.inline_event_types.as_ref());
    let types = declared.into_iter().flatten().map(|(name, declared)| EventType {
        id: format!("{}/providers/Microsoft.EventGrid/eventTypes/{name}", topic.resource_id()),
        name: name.clone(),
        kind: "Microsoft.EventGrid/topicTypes/eventTypes",
        properties: EventTypeProperties {
            display_name: declared.display_name.clone().unwrap_or_else(|| name.clone()),
            description: declared.description.clone(),
            schema_url: declared.data_schema_url.clone(),
            is_in_default_set: true,
        },
    });
    types.collect()
}
