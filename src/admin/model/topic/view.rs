//! The view of a topic or a domain.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::{ingress, schema_name};
use crate::{
    admin::model::system_data,
    control::record::{
        azure_properties::{DataResidency, EventTypeInfo, ExtendedLocation, HostKind, Identity, Sku, Tier, TlsVersion},
        topic::{TopicKind, TopicRecord},
    },
};

/// The view of a topic or a domain, without its keys.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Topic)]
pub struct TopicView {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind_of_resource: &'static str,
    location: String,
    tags: BTreeMap<String, String>,
    sku: Sku,
    kind: HostKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_location: Option<ExtendedLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_data: Option<system_data::SystemDataView>,
    properties: TopicViewProperties,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicProperties)]
struct TopicViewProperties {
    provisioning_state: &'static str,
    endpoint: String,
    input_schema: &'static str,
    metric_resource_id: String,
    #[serde(flatten)]
    ingress: ingress::IngressBody,
    data_residency_boundary: DataResidency,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_tls_version_allowed: Option<TlsVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type_info: Option<EventTypeInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_create_topic_with_first_subscription: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_delete_topic_with_last_subscription: Option<bool>,
    edition: String,
}

impl TopicView {
    /// The view of `record` on a server with this public URL.
    pub fn new(record: &TopicRecord, public_url: &str) -> Self {
        let azure_properties = record.azure_properties.clone();
        let (word, public_url) = (record.kind().path_segment(), public_url.trim_end_matches('/'));
        Self {
            id: record.resource_id(),
            name: record.name.to_string(),
            kind_of_resource: match record.kind() {
                TopicKind::Topic | TopicKind::NamespaceTopic => "Microsoft.EventGrid/topics",
                TopicKind::Domain => "Microsoft.EventGrid/domains",
            },
            location: record.location.clone(),
            tags: record.tags.clone(),
            sku: azure_properties.sku.unwrap_or(Sku { name: Tier::Basic }),
            kind: azure_properties.kind.unwrap_or(HostKind::Azure),
            extended_location: azure_properties.extended_location,
            identity: azure_properties.identity,
            system_data: record.system_data.as_ref().map(system_data::SystemDataView::new),
            properties: TopicViewProperties {
                provisioning_state: "Succeeded",
                endpoint: format!("{public_url}/{word}/{}/api/events", record.name),
                input_schema: schema_name(record.input_schema),
                metric_resource_id: record.metric_resource_id.clone(),
                ingress: ingress::IngressBody::of(&record.ingress),
                data_residency_boundary: azure_properties
                    .data_residency_boundary
                    .unwrap_or(DataResidency::WithinGeopair),
                minimum_tls_version_allowed: azure_properties.minimum_tls_version_allowed,
                event_type_info: azure_properties.event_type_info,
                auto_create_topic_with_first_subscription: record.domain.map(|topics| topics.auto_create),
                auto_delete_topic_with_last_subscription: record.domain.map(|topics| topics.auto_delete),
                edition: record.edition.clone(),
            },
        }
    }
}
