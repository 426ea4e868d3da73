//! Bodies and views of domain topics.

use super::{InvalidRequest, check_name, check_same_name, drop_read_only, parse, read};
use crate::model::system_data::system_data_view;
use gridhook_api::topic::{DomainTopicBody, DomainTopicProperties, DomainTopicView};
use gridhook_event::Name;
use gridhook_record::topic::DomainTopic;

/// The view of a topic of the domain with this resource id.
pub fn domain_topic_view(domain: &str, topic: &DomainTopic) -> DomainTopicView {
    let DomainTopic { name, system_data } = topic;
    DomainTopicView {
        id: format!("{domain}/topics/{name}"),
        name: name.to_string(),
        kind: "Microsoft.EventGrid/domains/topics".to_owned(),
        properties: DomainTopicProperties {
            provisioning_state: "Succeeded".to_owned(),
        },
        system_data: system_data.as_ref().map(system_data_view),
    }
}

/// Checks a PUT of the domain topic `name`, which has no settable properties.
pub fn check(name: &Name, body: &[u8]) -> Result<(), InvalidRequest> {
    check_its_name(name)?;
    let mut value = parse(body)?;
    drop_read_only(
        &mut value,
        &["id", "type", "systemData", "properties.provisioningState"],
    );
    check_same_name(
        read::<DomainTopicBody>(value)?.name.as_deref(),
        name.as_str(),
    )
}

/// Checks the name of a domain topic.
pub fn check_its_name(name: &Name) -> Result<(), InvalidRequest> {
    check_name("the domain topic's name", name.as_str(), 128)
}
