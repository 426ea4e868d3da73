//! `destination` of an event subscription: a webhook, or one of the kinds of [`Resource`].

use serde_json::{Map, Value};

use super::{WEBHOOK, attribute, check, is_namespaced, secrets, value_of};
use crate::model::{
    CheckResult, EditionRanges, InvalidRequest, canonical_name, read, refuse_value, take_value,
    text_at,
};
use gridhook_api::{
    resource::ReadOnly,
    subscription::{Destination, SubscriptionProperties, WebhookProperties},
};
use gridhook_deliver::resource::{REFUSED, Resource};
use gridhook_event::Schema;
use gridhook_record::{
    subscription::{SubscriptionRecord, Webhook},
    topic::TopicRecord,
};

const PROPERTIES: &str = "destination.properties";

/// Checks the `endpointType` of a destination of `topic`, and returns its canonical name.
fn check_type(given: &str, topic: &TopicRecord) -> CheckResult<String> {
    let name = canonical_name(given, Resource::ENDPOINT_TYPES);
    // From namespace to namespace, events could go round for ever.
    let is_circular = name == "NamespaceTopic" && is_namespaced(topic);
    if Resource::ENDPOINT_TYPES.contains(&name) && !is_circular {
        return Ok(name.to_owned());
    }
    let refused = REFUSED
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(given));
    let problem = match refused {
        _ if is_circular => "is \"NamespaceTopic\"; expected the other kinds, because this is a \
            topic of a namespace"
            .to_owned(),
        Some((name, reason)) => format!("is \"{name}\", which is not supported: {reason}"),
        None => {
            format!(
                "is \"{}\"; expected one of {}",
                given.escape_debug(),
                Resource::ENDPOINT_TYPES.join(", ")
            )
        }
    };
    refuse_value("destination.endpointType", problem)
}

/// Reads a destination of an event subscription of `topic`.
pub(super) fn read_destination(
    body: Destination,
    topic: &TopicRecord,
    existing: Option<&SubscriptionRecord>,
    delivery: Schema,
    ranges: &EditionRanges,
) -> CheckResult<(Webhook, Option<Resource>)> {
    let input = topic.input_schema;
    let endpoint_type = check_type(&body.endpoint_type, topic)?;
    let mut value = Value::Object(body.properties);
    secrets::restore_secrets(&endpoint_type, &mut value, existing)?;
    let under = |invalid: InvalidRequest| invalid.prefixed_with(PROPERTIES);
    if endpoint_type == WEBHOOK {
        let given: WebhookProperties = read(value).map_err(under)?;
        let endpoint_url = check::read_endpoint_url(given.endpoint_url.clone())?;
        return Ok((
            Webhook {
                endpoint_url,
                ..webhook_from_properties(given, input, delivery, ranges)?
            },
            None,
        ));
    }
    let Value::Object(mut properties) = value else {
        unreachable!("the properties of a destination are an object")
    };
    // Batches and delivery properties are stored with the settings of webhooks.
    let mut common = Map::new();
    let has = [
        (Resource::has_batches(&endpoint_type), "maxEventsPerBatch"),
        (
            Resource::has_batches(&endpoint_type),
            "preferredBatchSizeInKilobytes",
        ),
        (
            Resource::has_properties(&endpoint_type),
            "deliveryAttributeMappings",
        ),
    ];
    for (_, key) in has.into_iter().filter(|(has, _)| *has) {
        common.extend(properties.remove(key).map(|value| (key.to_owned(), value)));
    }
    let common: WebhookProperties = read(Value::Object(common)).map_err(under)?;
    let resource = Map::from_iter([
        ("endpointType".to_owned(), endpoint_type.into()),
        ("properties".to_owned(), Value::Object(properties)),
    ]);
    let resource: Resource =
        read(Value::Object(resource)).map_err(|invalid| invalid.prefixed_with("destination"))?;
    resource.check(delivery).map_err(|invalid| {
        InvalidRequest::new(format!("{PROPERTIES}.{}", invalid.key), invalid.problem)
    })?;
    Ok((
        webhook_from_properties(common, input, delivery, ranges)?,
        Some(resource),
    ))
}

/// The destination of a record, with secrets.
pub(super) fn destination(record: &SubscriptionRecord) -> Destination {
    let webhook = webhook_properties(&record.webhook);
    let Some(resource) = &record.resource else {
        let Value::Object(properties) = value_of(&webhook) else {
            unreachable!("a struct is an object")
        };
        return Destination {
            endpoint_type: WEBHOOK.to_owned(),
            properties,
        };
    };
    let mut value = value_of(resource);
    let Some(Value::Object(mut properties)) = take_value(&mut value, "properties") else {
        unreachable!("the properties of a destination are an object")
    };
    if Resource::has_batches(resource.name()) {
        properties.insert(
            "maxEventsPerBatch".to_owned(),
            webhook.max_events_per_batch.into(),
        );
        let size = webhook.preferred_batch_size_in_kilobytes.into();
        properties.insert("preferredBatchSizeInKilobytes".to_owned(), size);
    }
    if let Some(mappings) = webhook.delivery_attribute_mappings {
        properties.insert("deliveryAttributeMappings".to_owned(), mappings.into());
    }
    Destination {
        endpoint_type: resource.name().to_owned(),
        properties,
    }
}

/// Removes from the current properties what another kind of destination in `patch` does not have.
pub(super) fn drop_conflicting(current: &mut Value, patch: &Value) {
    let now = text_at(current, "destination.endpointType").unwrap_or_default();
    if patch["endpointType"]
        .as_str()
        .is_some_and(|given| !now.eq_ignore_ascii_case(given))
    {
        drop(take_value(current, "destination.properties"));
    }
}

/// Hides the secrets of a destination.
pub(super) fn hide_secrets(properties: &mut SubscriptionProperties, webhook: &Webhook) {
    let identified = properties.delivery_with_resource_identity.as_mut();
    let destination = identified.map(|with| &mut with.destination);
    let Some(destination) = destination.or(properties.destination.as_mut()) else {
        return;
    };
    let is_webhook = destination.endpoint_type == WEBHOOK;
    let shown = &mut destination.properties;
    if is_webhook {
        shown.remove("endpointUrl");
        shown.insert("endpointBaseUrl".to_owned(), webhook.base_url().into());
        if let Some(rate) = webhook.allowed_rate {
            shown.insert("allowedRate".to_owned(), rate.get().into());
        }
    }
    if let Some(signing) = shown.get_mut("signing") {
        secrets::hide_signing(signing);
    }
    if let Some(Value::Array(mappings)) = shown.get_mut("deliveryAttributeMappings") {
        secrets::hide_attributes(mappings);
    }
}

/// The settings without the address.
fn webhook_from_properties(
    body: WebhookProperties,
    input: Schema,
    delivery: Schema,
    ranges: &EditionRanges,
) -> CheckResult<Webhook> {
    let (max_events_per_batch, preferred_batch_size_in_kilobytes) = check::read_batch(
        body.max_events_per_batch,
        body.preferred_batch_size_in_kilobytes,
        ranges,
    )?;
    Ok(Webhook {
        endpoint_url: String::new(),
        max_events_per_batch,
        preferred_batch_size_in_kilobytes,
        allowed_rate: None,
        max_requests_per_second: check::read_limit(
            "maxRequestsPerSecond",
            body.max_requests_per_second,
            10_000,
        )?,
        response_timeout_in_seconds: check::read_limit(
            "responseTimeoutInSeconds",
            body.response_timeout_in_seconds,
            230,
        )?,
        minimum_tls_version: body.minimum_tls_version_allowed.unwrap_or_default(),
        token_audience: check::read_token_audience(
            body.azure_active_directory_tenant_id,
            body.azure_active_directory_application_id_or_uri,
        )?
        .map(Box::new),
        client_certificate: body.client_certificate,
        proxy: body.proxy,
        signing: body.signing.map(Box::new),
        delivery_properties: attribute::read(
            "destination.properties.deliveryAttributeMappings",
            body.delivery_attribute_mappings.unwrap_or_default(),
            input,
            delivery,
        )?,
    })
}

/// The settable properties of a webhook.
fn webhook_properties(webhook: &Webhook) -> WebhookProperties {
    WebhookProperties {
        endpoint_url: Some(webhook.endpoint_url.clone()),
        max_events_per_batch: Some(webhook.max_events_per_batch.into()),
        preferred_batch_size_in_kilobytes: Some(webhook.preferred_batch_size_in_kilobytes.into()),
        max_requests_per_second: webhook
            .max_requests_per_second
            .map(|limit| limit.get().into()),
        response_timeout_in_seconds: webhook
            .response_timeout_in_seconds
            .map(|limit| limit.get().into()),
        minimum_tls_version_allowed: Some(webhook.minimum_tls_version),
        azure_active_directory_tenant_id: webhook
            .token_audience
            .as_ref()
            .and_then(|one| one.tenant.clone()),
        azure_active_directory_application_id_or_uri: webhook
            .token_audience
            .as_ref()
            .map(|one| one.application.clone()),
        client_certificate: webhook.client_certificate.clone(),
        proxy: webhook.proxy.clone(),
        signing: webhook.signing.as_deref().cloned(),
        delivery_attribute_mappings: (!webhook.delivery_properties.is_empty())
            .then(|| attribute::to_json(&webhook.delivery_properties)),
        endpoint_base_url: ReadOnly::default(),
        allowed_rate: ReadOnly::default(),
    }
}
