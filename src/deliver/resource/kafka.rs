//! `Kafka`: a topic of any Kafka cluster; and `EventHub`, which speaks the same protocol.
//!
//! An event is one record, in the form of the CloudEvents binding for Kafka. The delivery property
//! `PartitionKey` is the key of the record and chooses the partition as Kafka's own clients do; the
//! others are its headers. Without a key, the partitions take turns, a batch for each. A request
//! has succeeded when all replicas in sync have all its records (`acks=all`). The producer is
//! idempotent: a request whose response is lost is repeated, and its records are there once.
//! Records of one request can go to several partitions: if one fails, its events are sent again.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use client::new_producer;

use super::{InvalidProperty, Kind, SenderContext, check_text, last_segment};
use crate::{Sender, error::SenderError};

/// A topic of a Kafka cluster
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = KafkaDestinationProperties)]
pub struct Kafka {
    /// Name of a table of `delivery.resources`, or a resource id that it stands for
    #[schema(example = "cluster")]
    pub resource_id: String,
    /// Name of the topic
    #[schema(example = "orders")]
    pub topic_name: String,
    /// Form of CloudEvents
    #[serde(default, skip_serializing_if = "ContentMode::is_default")]
    pub content_mode: ContentMode,
}

/// The form of CloudEvents in a record: the whole event, or its data with the attributes as headers
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = KafkaContentMode)]
pub enum ContentMode {
    /// The whole event
    #[default]
    Structured,
    /// Its data, with the attributes as headers
    Binary,
}

impl ContentMode {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An event hub
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EventHubDestinationProperties)]
pub struct EventHub {
    /// Resource id of the event hub: `…/eventhubs/NAME` below the id or the name of a table of
    /// `delivery.resources`
    #[schema(example = "hubs/eventhubs/orders")]
    pub resource_id: String,
}

impl Kind for Kafka {
    const SCHEMES: &'static [&'static str] = &["kafka", "kafkas"];
    const HAS_PROPERTIES: bool = true;
    const TAKES_PARTS: bool = true;

    fn entity_name(&self) -> Option<&str> {
        Some(&self.topic_name)
    }

    fn check_properties(&self) -> Result<(), InvalidProperty> {
        check_topic("topicName", &self.topic_name)
    }

    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
        new_producer(at, &self.topic_name, self.content_mode)
    }
}

impl Kind for EventHub {
    const SCHEMES: &'static [&'static str] = &["kafka", "kafkas"];
    const HAS_PROPERTIES: bool = true;
    const TAKES_PARTS: bool = true;

    fn check_properties(&self) -> Result<(), InvalidProperty> {
        if self
            .resource_id
            .to_ascii_lowercase()
            .contains("/eventhubs/")
        {
            return check_topic("resourceId", last_segment(&self.resource_id));
        }
        let shown_id = self.resource_id.escape_debug();
        let problem = format!("is \"{shown_id}\"; expected an id that ends with /eventhubs/NAME");
        Err(InvalidProperty {
            key: "resourceId",
            problem,
        })
    }

    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
        new_producer(at, last_segment(&self.resource_id), ContentMode::Structured)
    }
}

fn check_topic(key: &'static str, name: &str) -> Result<(), InvalidProperty> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    check_text(
        key,
        name,
        1..=249,
        is_allowed,
        "letters, digits, dots, underscores and hyphens",
    )
}

#[path = "kafka/client.rs"]
mod client;
