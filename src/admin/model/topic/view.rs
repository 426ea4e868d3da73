//! The view of a topic or a domain.

use super::schema_name;
use crate::model::system_data::system_data_view;
use crate::model::topic::ingress::ingress_body;
use gridhook_api::topic::{TopicView, TopicViewProperties};
use gridhook_record::{
    azure_properties::{DataResidency, HostKind, Sku, Tier},
    topic::{TopicKind, TopicRecord},
};

/// The view of `record` on a server with this public URL.
pub fn topic_view(record: &TopicRecord, public_url: &str) -> TopicView {
    let azure_properties = record.azure_properties.clone();
    let (word, public_url) = (
        record.kind().path_segment(),
        public_url.trim_end_matches('/'),
    );
    TopicView {
        id: record.resource_id(),
        name: record.name.to_string(),
        kind_of_resource: match record.kind() {
            TopicKind::Topic | TopicKind::NamespaceTopic => "Microsoft.EventGrid/topics",
            TopicKind::Domain => "Microsoft.EventGrid/domains",
        }
        .to_owned(),
        location: record.location.clone(),
        tags: record.tags.clone(),
        sku: azure_properties.sku.unwrap_or(Sku { name: Tier::Basic }),
        kind: azure_properties.kind.unwrap_or(HostKind::Azure),
        extended_location: azure_properties.extended_location,
        identity: azure_properties.identity,
        system_data: record.system_data.as_ref().map(system_data_view),
        properties: TopicViewProperties {
            provisioning_state: "Succeeded".to_owned(),
            endpoint: format!("{public_url}/{word}/{}/api/events", record.name),
            input_schema: schema_name(record.input_schema).to_owned(),
            metric_resource_id: record.metric_resource_id.clone(),
            ingress: ingress_body(&record.ingress),
            partition_count: record.declared_partition_count(),
            data_residency_boundary: azure_properties
                .data_residency_boundary
                .unwrap_or(DataResidency::WithinGeopair),
            minimum_tls_version_allowed: azure_properties.minimum_tls_version_allowed,
            event_type_info: azure_properties.event_type_info,
            auto_create_topic_with_first_subscription: record
                .domain
                .map(|topics| topics.auto_create),
            auto_delete_topic_with_last_subscription: record
                .domain
                .map(|topics| topics.auto_delete),
            edition: record.edition.clone(),
        },
    }
}
