//! Bodies and views of domain topics.

use super::{CheckResult, check_name, check_same_name, parse_body, read};
use crate::model::system_data::system_data_view;
use gridhook_api::topic::{DomainTopic as DomainTopicView, DomainTopicProperties};
use gridhook_event::Name;
use gridhook_record::topic::DomainTopic;

/// The view of a topic of the domain with this resource id.
pub fn domain_topic_view(domain: &str, topic: &DomainTopic) -> DomainTopicView {
    let DomainTopic { name, system_data } = topic;
    DomainTopicView {
        id: format!("{domain}/topics/{name}").into(),
        name: Some(name.to_string()),
        kind: "Microsoft.EventGrid/domains/topics".to_owned().into(),
        properties: Some(DomainTopicProperties {
            provisioning_state: "Succeeded".to_owned().into(),
        }),
        system_data: system_data_view(system_data.as_ref()),
    }
}

/// Checks a PUT of the domain topic `name`, which has no settable properties.
pub fn check_put(name: &Name, body: &[u8]) -> CheckResult {
    check_its_name(name)?;
    let topic: DomainTopicView = read(parse_body(body)?)?;
    check_same_name(topic.name.as_deref(), name.as_str())
}

/// Checks the name of a domain topic.
pub fn check_its_name(name: &Name) -> CheckResult {
    check_name("the domain topic's name", name.as_str(), 128)
}
