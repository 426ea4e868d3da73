//! `transform` of an event subscription, an extension of gridhook.

use std::collections::BTreeMap;

use utoipa::ToSchema;

use crate::{
    admin::model::InvalidRequest,
    control::record::subscription::SubscriptionRecord,
    policy::transform::{Program, Transform},
};

/// A transformation in the OpenAPI document.
#[derive(ToSchema)]
#[schema(as = Transform)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the stored form is read")]
pub(in crate::admin) struct TransformSchema {
    /// JMESPath expression of the JSON value that is delivered instead of the event; default the event
    #[schema(example = "{text: subject}")]
    body: Option<String>,
    /// HTTP method: `PATCH`, `POST` or `PUT`; default `POST`
    #[schema(example = "PUT")]
    method: Option<String>,
    /// Expression of a segment or a list of segments to append to the path of the endpoint
    #[schema(example = "['orders', id]")]
    path_suffix: Option<String>,
    /// Expressions of headers, by name
    headers: Option<BTreeMap<String, String>>,
}

/// Checks `transform` for an event subscription with these other properties.
pub(in crate::admin) fn program(transform: &Transform, record: &SubscriptionRecord) -> Result<Program, InvalidRequest> {
    if record.is_pulled() {
        return Err(InvalidRequest::new("transform", "is set, and deliveryMode is Queue; allowed is Push"));
    }
    if let Some(kind) = record.endpoint_type().filter(|kind| !["WebHook", "AzureFunction"].contains(kind)) {
        let problem = format!("is set, and the destination is {kind}; allowed are WebHook and AzureFunction");
        return Err(InvalidRequest::new("transform", problem));
    }
    let batched = record.webhook.max_events_per_batch > 1;
    Program::new(transform, batched, record.delivery_schema)
        .map_err(|invalid| InvalidRequest::new(invalid.at, invalid.problem).under("transform"))
}
