//! The view of an event subscription.

use super::{namespace, settable};
use crate::model::subscription::destination::destination_view;
use crate::model::system_data::system_data_view;
use gridhook_api::subscription::{
    AnySubscriptionProperties, DeadLetterWithIdentity, DeliveryWithIdentityView, DestinationView,
    SubscriptionBodyProperties, SubscriptionView, SubscriptionViewProperties,
};
use gridhook_record::{
    proposal::{Provisioned, ProvisioningState},
    subscription::{ManagedIdentities, ResourceIdentity, SubscriptionRecord},
    topic::{TopicKind, TopicRecord},
};

/// `provisioningState` of an event subscription in force.
pub(super) const SUCCEEDED: &str = "Succeeded";

/// The two forms of a subscription's path; they determine `id` and `type` of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathForm {
    /// `…/topics/{t}/eventSubscriptions/{n}`, likewise for domains and domain topics.
    Nested,
    /// `…/topics/{t}/providers/Microsoft.EventGrid/eventSubscriptions/{n}`.
    Scoped,
}

/// The view of `record` of `topic`.
pub fn subscription_view(
    record: &SubscriptionRecord,
    topic: &TopicRecord,
    form: PathForm,
) -> SubscriptionView {
    let nested = match (topic.kind(), &record.filter.domain_topic) {
        (TopicKind::Topic, _) => "Microsoft.EventGrid/topics/eventSubscriptions",
        (TopicKind::NamespaceTopic, _) => {
            "Microsoft.EventGrid/namespaces/topics/eventSubscriptions"
        }
        (TopicKind::Domain, None) => "Microsoft.EventGrid/domains/eventSubscriptions",
        (TopicKind::Domain, Some(_)) => "Microsoft.EventGrid/domains/topics/eventSubscriptions",
    };
    let (between, kind) = match form {
        PathForm::Nested => ("eventSubscriptions", nested),
        PathForm::Scoped => (
            "providers/Microsoft.EventGrid/eventSubscriptions",
            "Microsoft.EventGrid/eventSubscriptions",
        ),
    };
    let topic_id = topic.resource_id_of(record.filter.domain_topic.as_deref());
    let properties = match topic.kind() {
        TopicKind::NamespaceTopic => {
            AnySubscriptionProperties::Namespace(Box::new(namespace::view(record)))
        }
        TopicKind::Topic | TopicKind::Domain => {
            AnySubscriptionProperties::Topic(Box::new(properties(record, topic_id.clone())))
        }
    };
    SubscriptionView {
        id: format!("{topic_id}/{between}/{}", record.name),
        name: record.name.to_string(),
        kind: kind.to_owned(),
        system_data: record.system_data.as_ref().map(system_data_view),
        properties,
    }
}

/// The view of an event subscription whose change may not be validated yet; then it has
/// `endpointInService`.
pub fn provisioned_subscription_view(
    subscription: &Provisioned,
    topic: &TopicRecord,
    form: PathForm,
) -> SubscriptionView {
    let Provisioned {
        record,
        state,
        in_force,
    } = subscription;
    let mut view = subscription_view(record, topic, form);
    let state = match state {
        ProvisioningState::Succeeded => return view,
        ProvisioningState::AwaitingManualAction => "AwaitingManualAction",
        ProvisioningState::Failed => "Failed",
    };
    let in_service = Some(in_force.as_ref().map(|record| record.destination_name()));
    let (provisioning_state, endpoint_in_service) = match &mut view.properties {
        AnySubscriptionProperties::Namespace(of) => {
            (&mut of.provisioning_state, &mut of.endpoint_in_service)
        }
        AnySubscriptionProperties::Topic(of) => {
            (&mut of.provisioning_state, &mut of.endpoint_in_service)
        }
    };
    state.clone_into(provisioning_state);
    *endpoint_in_service = in_service;
    view
}

fn properties(record: &SubscriptionRecord, topic: String) -> SubscriptionViewProperties {
    let SubscriptionBodyProperties {
        destination: _,
        delivery_with_resource_identity: _,
        filter,
        labels,
        event_delivery_schema,
        transform,
        retry_policy,
        dead_letter_destination,
        dead_letter_with_resource_identity: _,
        expiration_time_utc,
        dead_letter_in_probation,
        on_gone,
        ordering,
        starts_from,
    } = settable(record);
    let ManagedIdentities {
        delivery,
        dead_letter,
    } = record.identities.as_deref().cloned().unwrap_or_default();
    let (destination, delivery_with_resource_identity) =
        identified(destination_view(record), delivery);
    let (dead_letter_destination, dead_letter_with_resource_identity) =
        match (dead_letter_destination, dead_letter) {
            (Some(dead_letter_destination), Some(identity)) => (
                None,
                Some(DeadLetterWithIdentity {
                    identity: Some(identity),
                    dead_letter_destination,
                }),
            ),
            (plain, _) => (plain, None),
        };
    SubscriptionViewProperties {
        topic,
        provisioning_state: SUCCEEDED.to_owned(),
        endpoint_in_service: None,
        destination,
        delivery_with_resource_identity,
        filter: filter.unwrap_or_default(),
        labels: labels.unwrap_or_default(),
        event_delivery_schema: event_delivery_schema.unwrap_or_default(),
        transform,
        retry_policy: retry_policy.unwrap_or_default(),
        dead_letter_destination,
        dead_letter_with_resource_identity,
        dead_letter_in_probation,
        on_gone,
        ordering,
        starts_from,
        expiration_time_utc,
    }
}

/// A destination, or the same with the identity that it is called with.
pub(super) fn identified(
    destination: DestinationView,
    identity: Option<ResourceIdentity>,
) -> (Option<DestinationView>, Option<DeliveryWithIdentityView>) {
    match identity {
        Some(identity) => (
            None,
            Some(DeliveryWithIdentityView {
                identity,
                destination,
            }),
        ),
        None => (Some(destination), None),
    }
}
