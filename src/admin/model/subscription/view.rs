//! The view of an event subscription.

use super::{destination::hide_secrets, in_form_of, properties};
use crate::model::system_data::system_data_view;
use gridhook_api::{
    resource::ReadOnly,
    subscription::{AnySubscriptionProperties, EventSubscription},
};
use gridhook_record::{
    proposal::{Provisioned, ProvisioningState},
    subscription::SubscriptionRecord,
    topic::TopicRecord,
};

/// The two forms of a subscription's path; they determine `id` and `type` of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathForm {
    /// `…/topics/{t}/eventSubscriptions/{n}`, likewise for domains and domain topics.
    Nested,
    /// `…/topics/{t}/providers/Microsoft.EventGrid/eventSubscriptions/{n}`.
    Scoped,
}

/// An event subscription as clients see it.
pub type SubscriptionView = EventSubscription<AnySubscriptionProperties>;

/// The view of `record` of `topic`.
pub fn subscription_view(
    record: &SubscriptionRecord,
    topic: &TopicRecord,
    form: PathForm,
) -> SubscriptionView {
    view_in_state(record, topic, form, "Succeeded", ReadOnly::default())
}

/// The view of an event subscription whose change may not be validated yet; then it has
/// `endpointInService`.
pub fn provisioned_subscription_view(
    subscription: &Provisioned,
    topic: &TopicRecord,
    form: PathForm,
) -> SubscriptionView {
    let state = match subscription.state {
        ProvisioningState::Succeeded => {
            return subscription_view(&subscription.record, topic, form);
        }
        ProvisioningState::AwaitingManualAction => "AwaitingManualAction",
        ProvisioningState::Failed => "Failed",
    };
    let in_force = subscription.in_force.as_ref();
    let endpoint = in_force.map(|record| record.destination_name()).into();
    view_in_state(&subscription.record, topic, form, state, endpoint)
}

fn view_in_state(
    record: &SubscriptionRecord,
    topic: &TopicRecord,
    form: PathForm,
    provisioning_state: &str,
    endpoint_in_service: ReadOnly<Option<String>>,
) -> SubscriptionView {
    let domain_topic = record.filter.domain_topic.as_deref();
    let in_domain = domain_topic.map_or("", |_| "/topics");
    let source = topic.kind().resource_type();
    let (between, kind) = match form {
        PathForm::Nested => (
            "eventSubscriptions",
            format!("{source}{in_domain}/eventSubscriptions"),
        ),
        PathForm::Scoped => (
            "providers/Microsoft.EventGrid/eventSubscriptions",
            "Microsoft.EventGrid/eventSubscriptions".to_owned(),
        ),
    };
    let topic_id = topic.resource_id_of(domain_topic);
    let id = format!("{topic_id}/{between}/{}", record.name);
    let mut properties_view = properties(record);
    hide_secrets(&mut properties_view, &record.webhook);
    properties_view.topic = topic_id.into();
    properties_view.provisioning_state = provisioning_state.to_owned().into();
    properties_view.endpoint_in_service = endpoint_in_service;
    EventSubscription {
        name: Some(record.name.to_string()),
        properties: in_form_of(topic, properties_view),
        id: id.into(),
        kind: kind.into(),
        system_data: system_data_view(record.system_data.as_ref()),
    }
}
