//! The view of an event subscription.

use std::num::NonZeroU32;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{DeadLetterBody, FilterBody, OrderingBody, RetryBody, destination, identity, namespace, settable};
use crate::{
    admin::model::{drop_read_only, merge, system_data, value_of},
    control::record::{
        proposal::{Provisioned, ProvisioningState},
        subscription::{SubscriptionRecord, Webhook},
        topic::{TopicKind, TopicRecord},
    },
};

/// The two forms of a subscription's path; they determine `id` and `type` of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathForm {
    /// `…/topics/{t}/eventSubscriptions/{n}`, likewise for domains and domain topics.
    Nested,
    /// `…/topics/{t}/providers/Microsoft.EventGrid/eventSubscriptions/{n}`.
    Scoped,
}

/// The view of an event subscription, without the query of its endpoint.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = EventSubscription)]
pub struct SubscriptionView {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "systemData", skip_serializing_if = "Option::is_none")]
    system_data: Option<system_data::SystemDataView>,
    #[schema(value_type = SubscriptionViewSchema)]
    properties: Value,
}

/// The properties of a view in the OpenAPI document.
#[derive(ToSchema)]
#[schema(as = EventSubscriptionProperties)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a view is merged from settable and read-only properties")]
struct SubscriptionViewSchema {
    topic: String,
    provisioning_state: String,
    /// Endpoint that receives events until a new endpoint is validated.
    endpoint_in_service: Option<String>,
    /// With `endpointBaseUrl` instead of `endpointUrl`, whose query may be a secret.
    destination: Option<Value>,
    /// In place of `destination`
    delivery_with_resource_identity: Option<Value>,
    filter: FilterBody,
    labels: Vec<String>,
    event_delivery_schema: String,
    retry_policy: RetryBody,
    dead_letter_destination: Option<DeadLetterBody>,
    /// In place of `deadLetterDestination`
    dead_letter_with_resource_identity: Option<identity::DeadLetterWithIdentity>,
    ordering: Option<OrderingBody>,
    expiration_time_utc: Option<String>,
}

impl SubscriptionView {
    /// The view of `record` of `topic`.
    pub fn new(record: &SubscriptionRecord, topic: &TopicRecord, form: PathForm) -> Self {
        let nested = match (topic.kind(), &record.filter.domain_topic) {
            (TopicKind::Topic, _) => "Microsoft.EventGrid/topics/eventSubscriptions",
            (TopicKind::NamespaceTopic, _) => "Microsoft.EventGrid/namespaces/topics/eventSubscriptions",
            (TopicKind::Domain, None) => "Microsoft.EventGrid/domains/eventSubscriptions",
            (TopicKind::Domain, Some(_)) => "Microsoft.EventGrid/domains/topics/eventSubscriptions",
        };
        let (between, kind) = match form {
            PathForm::Nested => ("eventSubscriptions", nested),
            PathForm::Scoped => {
                ("providers/Microsoft.EventGrid/eventSubscriptions", "Microsoft.EventGrid/eventSubscriptions")
            }
        };
        let topic_id = topic.resource_id_of(record.filter.domain_topic.as_deref());
        let properties = match topic.kind() {
            TopicKind::NamespaceTopic => namespace::view_json(record),
            TopicKind::Topic | TopicKind::Domain => settable_json(record, &topic_id),
        };
        Self {
            id: format!("{topic_id}/{between}/{}", record.name),
            name: record.name.to_string(),
            kind,
            system_data: record.system_data.as_ref().map(system_data::SystemDataView::new),
            properties,
        }
    }

    /// The view of an event subscription whose change may not be validated yet; then it has `endpointInService`.
    pub fn provisioned(subscription: &Provisioned, topic: &TopicRecord, form: PathForm) -> Self {
        let Provisioned { record, state, in_force } = subscription;
        let mut view = Self::new(record, topic, form);
        let state = match state {
            ProvisioningState::Succeeded => return view,
            ProvisioningState::AwaitingManualAction => "AwaitingManualAction",
            ProvisioningState::Failed => "Failed",
        };
        view.properties["provisioningState"] = state.into();
        view.properties["endpointInService"] = in_force.as_ref().map(|record| record.destination_name()).into();
        view
    }
}

fn settable_json(record: &SubscriptionRecord, topic_id: &str) -> Value {
    let mut properties = value_of(&settable(record));
    destination::view(&mut properties["destination"], record);
    identity::wrap(&mut properties, &record.identities);
    merge(&mut properties, value_of(&SubscriptionViewProperties { topic: topic_id, provisioning_state: "Succeeded" }));
    properties
}

/// Turns the settable properties of a webhook into its view.
pub(super) fn webhook_view(properties: &mut Value, webhook: &Webhook) {
    drop_read_only(properties, &["endpointUrl"]);
    merge(
        properties,
        value_of(&WebhookView { endpoint_base_url: webhook.base_url(), allowed_rate: webhook.allowed_rate }),
    );
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubscriptionViewProperties<'a> {
    topic: &'a str,
    provisioning_state: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WebhookView {
    endpoint_base_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_rate: Option<NonZeroU32>,
}
