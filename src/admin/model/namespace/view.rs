//! The view of a namespace, without its keys.

use super::settable_body;
use crate::model::system_data::system_data_view;
use gridhook_api::namespace::{Namespace, TopicsConfiguration};
use gridhook_record::namespace::{NamespaceRecord, PATH_SEGMENT};

/// The view of `record` on a server with this public URL.
pub fn namespace_view(record: &NamespaceRecord, public_url: &str) -> Namespace {
    let public_url = public_url.trim_end_matches('/');
    let endpoint = format!("{public_url}/{PATH_SEGMENT}/{}", record.name);
    let hostname = endpoint
        .split_once("://")
        .map_or(endpoint.as_str(), |(_, rest)| rest)
        .to_owned();
    let mut namespace = settable_body(record);
    namespace.id = record.resource_id().into();
    namespace.name = Some(record.name.to_string());
    namespace.kind = "Microsoft.EventGrid/namespaces".to_owned().into();
    namespace.system_data = system_data_view(record.system_data.as_ref());
    let properties = namespace.properties.get_or_insert_default();
    properties.provisioning_state = "Succeeded".to_owned().into();
    properties.endpoint = endpoint.into();
    properties.topics_configuration = TopicsConfiguration { hostname }.into();
    namespace
}
