//! The resource provider: its operations, topic types and event types.

use gridhook_api::provider::{
    EventType, EventTypeProperties, ProviderOperation, ProviderOperationDisplay, TopicType,
    TopicTypeProperties,
};
use gridhook_record::topic::{TopicKind, TopicRecord};

/// Resource types: path, name for people, and operations.
const OPERATIONS: [(&str, &str, &[&str]); 10] = [
    ("topics", "Topic", &WITH_KEYS),
    (
        "topics/eventSubscriptions",
        "Event subscription of a topic",
        &SUBSCRIPTION,
    ),
    ("domains", "Domain", &WITH_KEYS),
    (
        "domains/topics",
        "Topic of a domain",
        &["read", "write", "delete"],
    ),
    (
        "domains/eventSubscriptions",
        "Event subscription of a domain",
        &SUBSCRIPTION,
    ),
    (
        "domains/topics/eventSubscriptions",
        "Event subscription of a topic of a domain",
        &SUBSCRIPTION,
    ),
    ("eventSubscriptions", "Event subscription", &SUBSCRIPTION),
    ("namespaces", "Namespace", &WITH_KEYS),
    ("namespaces/topics", "Topic of a namespace", &WITH_KEYS),
    (
        "namespaces/topics/eventSubscriptions",
        "Event subscription of a topic of a namespace",
        &SUBSCRIPTION,
    ),
];

/// The resource types, as in paths.
pub fn resource_types() -> impl Iterator<Item = &'static str> {
    OPERATIONS
        .iter()
        .map(|(path, ..)| *path)
        .chain(["operations", "topicTypes"])
}

const WITH_KEYS: [&str; 5] = [
    "read",
    "write",
    "delete",
    "listKeys/action",
    "regenerateKey/action",
];

const SUBSCRIPTION: [&str; 5] = [
    "read",
    "write",
    "delete",
    "getFullUrl/action",
    "getDeliveryAttributes/action",
];

pub fn list_operations() -> Vec<ProviderOperation> {
    let mut operations = Vec::new();
    for (path, resource, verbs) in OPERATIONS {
        operations.extend(
            verbs
                .iter()
                .map(|verb| describe_operation(path, resource, verb, false)),
        );
    }
    operations.push(describe_operation("events", "Events", "send/action", true));
    operations
}

fn describe_operation(
    path: &str,
    resource: &str,
    verb: &str,
    is_data_action: bool,
) -> ProviderOperation {
    let operation = verb.trim_end_matches("/action");
    ProviderOperation {
        name: format!("Microsoft.EventGrid/{path}/{verb}"),
        is_data_action,
        display: ProviderOperationDisplay {
            provider: "Microsoft Event Grid".to_owned(),
            resource: resource.to_owned(),
            operation: operation.to_owned(),
            description: format!("{resource}: {operation}"),
        },
        origin: "user,system".to_owned(),
    }
}

/// The topic type of storage accounts; its only events are about dead-letter files.
const STORAGE: &str = "Microsoft.Storage.StorageAccounts";

pub fn topic_types() -> Vec<TopicType> {
    let custom = "Custom events, published to a topic.";
    let domain = "Custom events, published to the topics of a domain.";
    let storage = "Events about dead-letter files, published to the topic of system_topic.name.";
    vec![
        topic_type(
            type_name(TopicKind::Topic),
            "Microsoft.EventGrid/topics",
            "Event Grid Topics",
            custom,
        ),
        topic_type(
            type_name(TopicKind::Domain),
            "Microsoft.EventGrid/domains",
            "Event Grid Domains",
            domain,
        ),
        topic_type(
            STORAGE,
            "Microsoft.Storage/storageAccounts",
            "Storage Accounts",
            storage,
        ),
    ]
}

fn topic_type(name: &str, resource: &str, display_name: &str, description: &str) -> TopicType {
    let (provider, resource_type) = resource.split_once('/').unwrap_or((resource, ""));
    TopicType {
        id: format!("providers/Microsoft.EventGrid/topicTypes/{name}"),
        name: name.to_owned(),
        kind: "Microsoft.EventGrid/topicTypes".to_owned(),
        properties: TopicTypeProperties {
            provider: provider.to_owned(),
            resource_type: resource_type.to_owned(),
            display_name: display_name.to_owned(),
            description: description.to_owned(),
            resource_region_type: "RegionalResource".to_owned(),
            provisioning_state: "Succeeded".to_owned(),
            source_resource_format: format!(
                "/subscriptions/{{subscriptionId}}/resourceGroups/{{resourceGroupName}}/providers/\
                 {resource}/{{resourceName}}"
            ),
            supported_scopes_for_source: vec!["Resource".to_owned()],
        },
    }
}

pub fn type_name(kind: TopicKind) -> &'static str {
    match kind {
        TopicKind::Topic => "Microsoft.EventGrid.Topics",
        TopicKind::NamespaceTopic => "Microsoft.EventGrid.Namespaces",
        TopicKind::Domain => "Microsoft.EventGrid.Domains",
    }
}

/// The event types of a topic type: one for the storage type, none for topics and domains, whose
/// events are custom.
pub fn event_types_of(topic_type: &str) -> Vec<EventType> {
    if topic_type != STORAGE {
        return Vec::new();
    }
    let name = "Microsoft.Storage.BlobCreated";
    vec![EventType {
        id: format!("providers/Microsoft.EventGrid/topicTypes/{STORAGE}/eventTypes/{name}"),
        name: name.to_owned(),
        kind: "Microsoft.EventGrid/topicTypes/eventTypes".to_owned(),
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
    let declared_types = topic
        .azure_properties
        .event_type_info
        .as_ref()
        .and_then(|info| info.inline_event_types.as_ref());
    let types = declared_types
        .into_iter()
        .flatten()
        .map(|(name, declared)| EventType {
            id: format!(
                "{}/providers/Microsoft.EventGrid/eventTypes/{name}",
                topic.resource_id()
            ),
            name: name.clone(),
            kind: "Microsoft.EventGrid/topicTypes/eventTypes".to_owned(),
            properties: EventTypeProperties {
                display_name: declared
                    .display_name
                    .clone()
                    .unwrap_or_else(|| name.clone()),
                description: declared.description.clone(),
                schema_url: declared.data_schema_url.clone(),
                is_in_default_set: true,
            },
        });
    types.collect()
}
