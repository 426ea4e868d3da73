//! Formats topics, domains and namespaces for people.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    client,
    format::{
        self, count_with_noun, group_thousands, join, optional_number, optional_or_dash,
        optional_text, text_or_dash,
    },
    output::TextTable,
};
use gridhook_api::{
    namespace::{Namespace, NamespaceTopic},
    status::{TopicBacklog, TopicStatusView},
    topic::{DomainTopic, Topic, TopicProperties},
};

/// A resource that events are published to, or that contains such resources, with the properties
/// of a topic that it has.
#[derive(Default, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct TopicResource {
    id: String,
    location: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    properties: TopicProperties,
    retention_days: Option<i64>,
    access_keys: Option<String>,
}

impl TryFrom<Value> for TopicResource {
    type Error = serde_json::Error;

    fn try_from(json: Value) -> Result<Self, Self::Error> {
        match json["type"].as_str().unwrap_or_default() {
            "Microsoft.EventGrid/namespaces" => {
                serde_json::from_value(json).map(Self::from_namespace)
            }
            "Microsoft.EventGrid/namespaces/topics" => {
                serde_json::from_value(json).map(Self::from_namespace_topic)
            }
            "Microsoft.EventGrid/domains/topics" => {
                let topic: DomainTopic = serde_json::from_value(json)?;
                Ok(Self {
                    id: topic.id.0.unwrap_or_default(),
                    ..Self::default()
                })
            }
            _ => serde_json::from_value(json).map(Self::from_topic),
        }
    }
}

impl TopicResource {
    /// A topic or a domain.
    fn from_topic(topic: Topic) -> Self {
        let properties = topic.properties.unwrap_or_default();
        let is_refused = properties.disable_local_auth == Some(true);
        Self {
            id: topic.id.0.unwrap_or_default(),
            location: topic.location,
            tags: topic.tags,
            access_keys: Some(if is_refused { "refused" } else { ACCEPTED }.to_owned()),
            properties,
            retention_days: None,
        }
    }

    fn from_namespace(namespace: Namespace) -> Self {
        let properties = namespace.properties.unwrap_or_default();
        Self {
            id: namespace.id.0.unwrap_or_default(),
            location: namespace.location,
            tags: namespace.tags,
            properties: TopicProperties {
                endpoint: properties.endpoint,
                public_network_access: properties.public_network_access,
                inbound_ip_rules: properties.inbound_ip_rules,
                ..TopicProperties::default()
            },
            retention_days: None,
            access_keys: Some(ACCEPTED.to_owned()),
        }
    }

    fn from_namespace_topic(topic: NamespaceTopic) -> Self {
        let properties = topic.properties.unwrap_or_default();
        let window = properties.duplicate_detection_history_time_window;
        Self {
            id: topic.id.0.unwrap_or_default(),
            properties: TopicProperties {
                input_schema: properties.input_schema,
                edition: properties.edition,
                duplicate_detection_history_time_window: window,
                schema_validation: properties.schema_validation,
                partition_count: properties.partition_count,
                ..TopicProperties::default()
            },
            retention_days: properties.event_retention_in_days,
            ..Self::default()
        }
    }

    /// The name and the facts.
    pub(super) fn format_summary(&self) -> String {
        format!("{}\n{}", client::short_name(&self.id), self.format_facts())
    }

    fn format_facts(&self) -> String {
        let properties = &self.properties;
        let retention = self
            .retention_days
            .and_then(|days| u64::try_from(days).ok());
        let rules = properties.inbound_ip_rules.iter().flatten();
        let facts = [
            ("id", text_or_dash(&self.id)),
            ("endpoint", optional_text(&properties.endpoint.0)),
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
                optional_number(properties.schema_validation),
            ),
            ("partitions", optional_number(properties.partition_count)),
            ("location", optional_text(&self.location)),
            ("tags", optional_or_dash(self.tags.as_ref(), tag_list)),
            ("access keys", optional_text(&self.access_keys)),
            (
                "public network",
                optional_number(properties.public_network_access),
            ),
            (
                "allowed from",
                format_networks(rules.map(|rule| rule.ip_mask.as_str())),
            ),
        ];
        format::format_facts(WIDTH, &facts)
    }
}

/// Width of the names of facts.
const WIDTH: usize = 19;

/// Shown where access keys are accepted.
const ACCEPTED: &str = "accepted";

fn tag_list(tags: &BTreeMap<String, String>) -> String {
    let tags = tags.iter();
    let pairs = tags.map(|(name, value)| format!("{name}={}", text_or_dash(value)));
    join(pairs, ", ")
}

fn format_networks<'a>(masks: impl Iterator<Item = &'a str>) -> String {
    join(masks.map(text_or_dash), ", ")
}

/// A table of topics, domains and namespaces.
pub(super) fn format_list(all: &[TopicResource]) -> String {
    let mut table = TextTable::new(["NAME", "SCHEMA", "EDITION", "LOCATION", "ENDPOINT"]);
    for resource in all {
        let properties = &resource.properties;
        table.add_row([
            client::short_name(&resource.id),
            optional_text(&properties.input_schema),
            optional_text(&properties.edition),
            optional_text(&resource.location),
            optional_text(&properties.endpoint.0),
        ]);
    }
    table.to_string()
}

/// The parts of `topics show`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopicParts {
    #[serde(alias = "namespace")]
    topic: TopicResource,
    /// The topics of a namespace; [`None`] for a topic or a domain.
    topics: Option<Vec<String>>,
    status: Option<TopicStatusView>,
    #[serde(default)]
    event_subscriptions: Vec<String>,
}

/// The configuration, the status and the contents of a topic, a domain or a namespace.
pub(super) fn format_parts(parts: &TopicParts) -> String {
    let TopicParts {
        topic,
        topics,
        status,
        event_subscriptions,
    } = parts;
    let mut lines = topic.format_summary();
    if let Some(topics) = topics {
        let topics = format::join_texts(topics);
        lines.push_str(&format!("\ntopics               {topics}"));
        return lines;
    }
    let subscriptions = format::join_texts(event_subscriptions);
    lines.push_str(&format!("\nevent subscriptions  {subscriptions}"));
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
