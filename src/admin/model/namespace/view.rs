//! The view of a namespace, without its keys.

use crate::model::system_data::system_data_view;
use gridhook_api::namespace::{NamespaceView, NamespaceViewProperties, TopicsConfiguration};
use gridhook_record::namespace::{NamespaceRecord, PATH_SEGMENT};

/// The view of `record` on a server with this public URL.
pub fn namespace_view(record: &NamespaceRecord, public_url: &str) -> NamespaceView {
    let azure_properties = record.azure_properties.clone();
    let endpoint = format!(
        "{}/{PATH_SEGMENT}/{}",
        public_url.trim_end_matches('/'),
        record.name
    );
    let hostname = endpoint
        .split_once("://")
        .map_or(endpoint.as_str(), |(_, rest)| rest)
        .to_owned();
    NamespaceView {
        id: record.resource_id(),
        name: record.name.to_string(),
        kind: "Microsoft.EventGrid/namespaces".to_owned(),
        location: record.location.clone(),
        tags: record.tags.clone(),
        sku: azure_properties.sku,
        identity: azure_properties.identity,
        system_data: record.system_data.as_ref().map(system_data_view),
        properties: NamespaceViewProperties {
            provisioning_state: "Succeeded".to_owned(),
            endpoint,
            topics_configuration: TopicsConfiguration { hostname },
            is_zone_redundant: azure_properties.is_zone_redundant,
            public_network_access: record.ingress.public_network_access,
            inbound_ip_rules: record.ingress.inbound_ip_rules.clone(),
            minimum_tls_version_allowed: azure_properties.minimum_tls_version_allowed,
        },
    }
}
