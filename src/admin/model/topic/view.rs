//! The view of a topic or a domain.

use super::settable_body;
use crate::model::system_data::system_data_view;
use gridhook_api::topic::Topic;
use gridhook_record::{
    azure_properties::{DataResidency, HostKind, Sku, Tier},
    topic::TopicRecord,
};

/// The view of `record` on a server with this public URL.
pub fn topic_view(record: &TopicRecord, public_url: &str) -> Topic {
    let word = record.kind().path_segment();
    let public_url = public_url.trim_end_matches('/');
    let mut topic = settable_body(record);
    topic.id = record.resource_id().into();
    topic.name = Some(record.name.to_string());
    topic.kind_of_resource = record.kind().resource_type().to_owned().into();
    topic.sku.get_or_insert(Sku { name: Tier::Basic });
    topic.kind.get_or_insert(HostKind::Azure);
    topic.system_data = system_data_view(record.system_data.as_ref());
    let properties = topic.properties.get_or_insert_default();
    properties.provisioning_state = "Succeeded".to_owned().into();
    properties.endpoint = format!("{public_url}/{word}/{}/api/events", record.name).into();
    properties.metric_resource_id = record.metric_resource_id.clone().into();
    properties
        .data_residency_boundary
        .get_or_insert(DataResidency::WithinGeopair);
    topic
}
