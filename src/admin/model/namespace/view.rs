//! The view of a namespace, without its keys.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    admin::model::system_data,
    control::record::{
        azure_properties::{Identity, TlsVersion},
        ingress::{IpRule, PublicNetworkAccess},
        namespace::{NamespaceRecord, NamespaceSku, PATH_SEGMENT},
    },
};

/// The view of a namespace.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Namespace)]
pub struct NamespaceView {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    location: String,
    tags: BTreeMap<String, String>,
    sku: NamespaceSku,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_data: Option<system_data::SystemDataView>,
    properties: NamespaceViewProperties,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NamespaceProperties)]
struct NamespaceViewProperties {
    provisioning_state: &'static str,
    /// Address of the data plane.
    endpoint: String,
    topics_configuration: TopicsConfiguration,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_zone_redundant: Option<bool>,
    public_network_access: PublicNetworkAccess,
    inbound_ip_rules: Vec<IpRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_tls_version_allowed: Option<TlsVersion>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = TopicsConfiguration)]
struct TopicsConfiguration {
    /// The endpoint without its scheme.
    hostname: String,
}

impl NamespaceView {
    /// The view of `record` on a server with this public URL.
    pub fn new(record: &NamespaceRecord, public_url: &str) -> Self {
        let azure_properties = record.azure_properties.clone();
        let endpoint = format!("{}/{PATH_SEGMENT}/{}", public_url.trim_end_matches('/'), record.name);
        let hostname = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, rest)| rest).to_owned();
        Self {
            id: record.resource_id(),
            name: record.name.to_string(),
            kind: "Microsoft.EventGrid/namespaces",
            location: record.location.clone(),
            tags: record.tags.clone(),
            sku: azure_properties.sku,
            identity: azure_properties.identity,
            system_data: record.system_data.as_ref().map(system_data::SystemDataView::new),
            properties: NamespaceViewProperties {
                provisioning_state: "Succeeded",
                endpoint,
                topics_configuration: TopicsConfiguration { hostname },
                is_zone_redundant: azure_properties.is_zone_redundant,
                public_network_access: record.ingress.public_network_access,
                inbound_ip_rules: record.ingress.inbound_ip_rules.clone(),
                minimum_tls_version_allowed: azure_properties.minimum_tls_version_allowed,
            },
        }
    }
}
