//! Bodies and views of domain topics.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{InvalidRequest, check_name, check_same_name, drop_read_only, parse, read, system_data};
use crate::{control::registry::DomainTopic, event::Name};

/// The view of a domain topic.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = DomainTopic)]
pub struct DomainTopicView {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    properties: DomainTopicProperties,
    #[serde(rename = "systemData", skip_serializing_if = "Option::is_none")]
    system_data: Option<system_data::SystemDataView>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DomainTopicProperties)]
struct DomainTopicProperties {
    provisioning_state: &'static str,
}

impl DomainTopicView {
    /// The view of a topic of the domain with this resource id.
    pub fn new(domain: &str, topic: &DomainTopic) -> Self {
        let DomainTopic { name, system_data } = topic;
        Self {
            id: format!("{domain}/topics/{name}"),
            name: name.to_string(),
            kind: "Microsoft.EventGrid/domains/topics",
            properties: DomainTopicProperties { provisioning_state: "Succeeded" },
            system_data: system_data.as_ref().map(system_data::SystemDataView::new),
        }
    }
}

/// The body of a PUT.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DomainTopicBody)]
pub(in crate::admin) struct DomainTopicBody {
    name: Option<String>,
    #[serde(rename = "properties")]
    _properties: Option<NoProperties>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NoProperties {}

/// Checks a PUT of the domain topic `name`, which has no settable properties.
pub fn check(name: &Name, body: &[u8]) -> Result<(), InvalidRequest> {
    check_its_name(name)?;
    let mut value = parse(body)?;
    drop_read_only(&mut value, &["id", "type", "systemData", "properties.provisioningState"]);
    check_same_name(read::<DomainTopicBody>(value)?.name.as_deref(), name.as_str())
}

/// Checks the name of a domain topic.
pub fn check_its_name(name: &Name) -> Result<(), InvalidRequest> {
    check_name("the domain topic's name", name.as_str(), 128)
}
