//! Formats topics, domains and namespaces for people.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    client,
    format::{self, NONE, count_with_noun, group_thousands, optional_or_dash, text_or_dash},
    output::TextTable,
};
use gridhook_api::{
    namespace::{Namespace, NamespaceTopic},
    status::{TopicBacklog, TopicStatusView},
    topic::{DomainTopic, Topic},
};

/// A resource that events are published to, or that contains such resources.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
#[expect(
    clippy::large_enum_variant,
    reason = "a command makes a page of them, and prints it"
)]
pub(super) enum TopicResource {
    /// A topic or a domain.
    Topic(Topic),
    DomainTopic(DomainTopic),
    Namespace(Namespace),
    NamespaceTopic(NamespaceTopic),
}

impl TryFrom<Value> for TopicResource {
    type Error = serde_json::Error;

    fn try_from(json: Value) -> Result<Self, Self::Error> {
        match json["type"].as_str().unwrap_or_default() {
            "Microsoft.EventGrid/namespaces" => serde_json::from_value(json).map(Self::Namespace),
            "Microsoft.EventGrid/namespaces/topics" => {
                serde_json::from_value(json).map(Self::NamespaceTopic)
            }
            "Microsoft.EventGrid/domains/topics" => {
                serde_json::from_value(json).map(Self::DomainTopic)
            }
            _ => serde_json::from_value(json).map(Self::Topic),
        }
    }
}

impl TopicResource {
    fn resource_id(&self) -> &str {
        let id = match self {
            Self::Topic(topic) => &topic.id,
            Self::DomainTopic(topic) => &topic.id,
            Self::Namespace(namespace) => &namespace.id,
            Self::NamespaceTopic(topic) => &topic.id,
        };
        id.0.as_deref().unwrap_or_default()
    }

    /// The name and the configuration.
    pub(super) fn format_summary(&self) -> String {
        format!(
            "{}\n{}",
            client::short_name(self.resource_id()),
            self.format_facts()
        )
    }

    /// The configuration, one property per line.
    fn format_facts(&self) -> String {
        let mut facts = vec![("id", text_or_dash(self.resource_id()))];
        match self {
            Self::Topic(topic) => {
                let properties = topic.properties.clone().unwrap_or_default();
                let rules = properties.inbound_ip_rules.iter().flatten();
                let local = if properties.disable_local_auth == Some(true) {
                    "refused"
                } else {
                    ACCEPTED
                };
                facts.extend([
                    ("endpoint", optional_text(&properties.endpoint.0)),
                    ("input schema", optional_text(&properties.input_schema)),
                    ("edition", optional_text(&properties.edition)),
                    (
                        "duplicate window",
                        optional_text(&properties.duplicate_detection_history_time_window),
                    ),
                    (
                        "schema validation",
                        optional_or_dash(properties.schema_validation, |mode| mode.to_string()),
                    ),
                    (
                        "partitions",
                        optional_or_dash(properties.partition_count, |count| count.to_string()),
                    ),
                    ("location", optional_text(&topic.location)),
                    ("tags", optional_or_dash(topic.tags.as_ref(), tag_list)),
                    ("access keys", local.to_owned()),
                    (
                        "public network",
                        optional_or_dash(properties.public_network_access, |access| {
                            access.to_string()
                        }),
                    ),
                    (
                        "allowed from",
                        format_networks(rules.map(|rule| rule.ip_mask.as_str())),
                    ),
                ]);
            }
            Self::Namespace(namespace) => {
                let properties = namespace.properties.clone().unwrap_or_default();
                let rules = properties.inbound_ip_rules.iter().flatten();
                facts.extend([
                    ("endpoint", optional_text(&properties.endpoint.0)),
                    ("location", optional_text(&namespace.location)),
                    ("tags", optional_or_dash(namespace.tags.as_ref(), tag_list)),
                    ("access keys", ACCEPTED.to_owned()),
                    (
                        "public network",
                        optional_or_dash(properties.public_network_access, |access| {
                            access.to_string()
                        }),
                    ),
                    (
                        "allowed from",
                        format_networks(rules.map(|rule| rule.ip_mask.as_str())),
                    ),
                ]);
            }
            Self::NamespaceTopic(topic) => {
                let properties = topic.properties.clone().unwrap_or_default();
                let retention = properties.event_retention_in_days;
                let retention = retention.and_then(|days| u64::try_from(days).ok());
                facts.extend([
                    ("input schema", optional_text(&properties.input_schema)),
                    ("edition", optional_text(&properties.edition)),
                    (
                        "retention",
                        optional_or_dash(retention, |days| count_with_noun(days, "day")),
                    ),
                    (
                        "duplicate window",
                        optional_text(&properties.duplicate_detection_history_time_window),
                    ),
                    (
                        "schema validation",
                        optional_or_dash(properties.schema_validation, |mode| mode.to_string()),
                    ),
                    (
                        "partitions",
                        optional_or_dash(properties.partition_count, |count| count.to_string()),
                    ),
                ]);
            }
            Self::DomainTopic(_) => {}
        }
        format::format_facts(WIDTH, &facts)
    }
}

fn optional_text(value: &Option<String>) -> String {
    optional_or_dash(value.as_deref(), text_or_dash)
}

/// Width of the names of facts.
const WIDTH: usize = 19;

/// Shown where access keys are accepted.
const ACCEPTED: &str = "accepted";

fn tag_list(tags: &BTreeMap<String, String>) -> String {
    tags.iter()
        .map(|(name, value)| format!("{name}={}", text_or_dash(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn format_networks<'a>(masks: impl Iterator<Item = &'a str>) -> String {
    masks.map(text_or_dash).collect::<Vec<_>>().join(", ")
}

/// A table of topics, domains and namespaces.
pub(super) fn format_list(all: &[TopicResource]) -> String {
    let mut table = TextTable::new(["NAME", "SCHEMA", "EDITION", "LOCATION", "ENDPOINT"]);
    for resource in all {
        let [schema, edition, location, endpoint] = match resource {
            TopicResource::Topic(topic) => {
                let properties = topic.properties.clone().unwrap_or_default();
                [
                    optional_text(&properties.input_schema),
                    optional_text(&properties.edition),
                    optional_text(&topic.location),
                    optional_text(&properties.endpoint.0),
                ]
            }
            TopicResource::Namespace(namespace) => {
                let properties = namespace.properties.clone().unwrap_or_default();
                [
                    NONE.to_owned(),
                    NONE.to_owned(),
                    optional_text(&namespace.location),
                    optional_text(&properties.endpoint.0),
                ]
            }
            TopicResource::NamespaceTopic(topic) => {
                let properties = topic.properties.clone().unwrap_or_default();
                [
                    optional_text(&properties.input_schema),
                    optional_text(&properties.edition),
                    NONE.to_owned(),
                    NONE.to_owned(),
                ]
            }
            TopicResource::DomainTopic(_) => [NONE; 4].map(str::to_owned),
        };
        table.add_row([
            client::short_name(resource.resource_id()),
            schema,
            edition,
            location,
            endpoint,
        ]);
    }
    table.to_string()
}

/// The parts of `topics show`: those of a namespace, or those of another resource.
#[derive(Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
#[expect(
    clippy::large_enum_variant,
    reason = "a command makes one, and prints it"
)]
pub(super) enum TopicParts {
    Namespace {
        namespace: TopicResource,
        topics: Vec<String>,
    },
    Topic {
        topic: TopicResource,
        status: Option<TopicStatusView>,
        event_subscriptions: Vec<String>,
    },
}

/// The configuration, the status and the contents of a topic, a domain or a namespace.
pub(super) fn format_parts(parts: &TopicParts) -> String {
    let (topic, status, subscriptions) = match parts {
        TopicParts::Namespace { namespace, topics } => {
            return format!(
                "{}\ntopics               {}",
                namespace.format_summary(),
                format::join_texts(topics)
            );
        }
        TopicParts::Topic {
            topic,
            status,
            event_subscriptions,
        } => (topic, status, event_subscriptions),
    };
    let mut lines = format!(
        "{}\nevent subscriptions  {}",
        topic.format_summary(),
        format::join_texts(subscriptions)
    );
    if let Some(TopicStatusView {
        full,
        largest_backlog: Some(TopicBacklog {
            subscription,
            bytes,
        }),
        ..
    }) = status
    {
        let subscription = text_or_dash(subscription);
        let bytes = count_with_noun(*bytes, "byte");
        let full = if *full {
            "full; publishers are refused"
        } else {
            "almost full"
        };
        lines.push_str(&format!(
            "\nbacklog              {full}; {subscription} is furthest behind, by {bytes}"
        ));
    }
    if let Some(TopicStatusView {
        duplicate_events: events @ 1..,
        ..
    }) = status
    {
        lines.push_str(&format!(
            "\nduplicates           {}",
            group_thousands(*events)
        ));
    }
    lines
}
