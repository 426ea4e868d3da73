//! `destination` of an event subscription: a webhook, or one of the kinds of [`Resource`].

use serde_json::{Map, Value};

use super::{WEBHOOK, attribute, check, secrets, value_of};
use crate::model::{EditionRanges, InvalidRequest, read, take, text_at};
use gridhook_api::subscription::{
    DestinationBody, DestinationView, ResourceView, ResourceViewProperties, WebhookBody,
    WebhookView,
};
use gridhook_deliver::resource::{REFUSED, Resource};
use gridhook_event::Schema;
use gridhook_record::subscription::{SubscriptionRecord, Webhook};

/// The properties of a record that a destination has.
pub(super) type Destination = (Webhook, Option<Resource>);

const PROPERTIES: &str = "destination.properties";

/// Checks `endpointType`.
pub(super) fn check_type(properties: &Value) -> Result<(), InvalidRequest> {
    let at = "destination.endpointType";
    let Some(given) = text_at(properties, at) else {
        return Ok(());
    };
    if Resource::ENDPOINT_TYPES.contains(&given) {
        return Ok(());
    }
    let refused = REFUSED
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(given));
    let problem = match refused {
        Some((name, reason)) => format!("is \"{name}\", which is not supported: {reason}"),
        None => {
            format!(
                "is \"{}\"; allowed are {}",
                given.escape_debug(),
                Resource::ENDPOINT_TYPES.join(", ")
            )
        }
    };
    Err(InvalidRequest::new(at, problem))
}

/// Reads a destination whose `endpointType` was checked.
pub(crate) fn read_destination(
    body: DestinationBody,
    input: Schema,
    delivery: Schema,
    ranges: &EditionRanges,
) -> Result<Destination, InvalidRequest> {
    let DestinationBody {
        endpoint_type,
        properties,
    } = body;
    let under = |invalid: InvalidRequest| invalid.under(PROPERTIES);
    if endpoint_type == WEBHOOK {
        let given: WebhookBody = read(Value::Object(properties)).map_err(under)?;
        let endpoint_url = check::endpoint_url(given.endpoint_url.clone())?;
        return Ok((
            Webhook {
                endpoint_url,
                ..webhook_from_body(given, input, delivery, ranges)?
            },
            None,
        ));
    }
    // Batches and delivery properties are stored with the settings of webhooks.
    let mut properties = properties;
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
    let common: WebhookBody = read(Value::Object(common)).map_err(under)?;
    let resource = Map::from_iter([
        ("endpointType".to_owned(), endpoint_type.into()),
        ("properties".to_owned(), Value::Object(properties)),
    ]);
    let resource: Resource =
        read(Value::Object(resource)).map_err(|invalid| invalid.under("destination"))?;
    resource.check(delivery).map_err(|invalid| {
        InvalidRequest::new(format!("{PROPERTIES}.{}", invalid.key), invalid.problem)
    })?;
    Ok((
        webhook_from_body(common, input, delivery, ranges)?,
        Some(resource),
    ))
}

/// The settable properties of a record's destination, with secrets.
pub(crate) fn destination_body(record: &SubscriptionRecord) -> DestinationBody {
    let webhook = webhook_body(&record.webhook);
    let Some(resource) = &record.resource else {
        let Value::Object(properties) = value_of(&webhook) else {
            unreachable!("a struct is an object")
        };
        return DestinationBody {
            endpoint_type: WEBHOOK.to_owned(),
            properties,
        };
    };
    let mut value = value_of(resource);
    let Some(Value::Object(mut properties)) = take(&mut value, "properties") else {
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
    DestinationBody {
        endpoint_type: resource.name().to_owned(),
        properties,
    }
}

/// Removes from the current properties what another kind of destination in `patch` does not have.
pub(super) fn give_way(current: &mut Value, patch: &Value) {
    let now = text_at(current, "destination.endpointType").unwrap_or_default();
    if patch["endpointType"]
        .as_str()
        .is_some_and(|given| !now.eq_ignore_ascii_case(given))
    {
        drop(take(current, "destination.properties"));
    }
}

/// The destination of a record, without secrets.
pub(crate) fn destination_view(record: &SubscriptionRecord) -> DestinationView {
    if record.resource.is_none() {
        let mut settings = WebhookBody {
            endpoint_url: None,
            ..webhook_body(&record.webhook)
        };
        settings.signing.iter_mut().for_each(secrets::hide_signing);
        settings
            .delivery_attribute_mappings
            .iter_mut()
            .for_each(|mappings| secrets::hide_attributes(mappings));
        return DestinationView::WebHook(Box::new(WebhookView {
            endpoint_base_url: record.webhook.base_url(),
            allowed_rate: record.webhook.allowed_rate,
            settings,
        }));
    }
    let DestinationBody {
        endpoint_type,
        mut properties,
    } = destination_body(record);
    if let Some(Value::Array(mappings)) = properties.get_mut("deliveryAttributeMappings") {
        secrets::hide_attributes(mappings);
    }
    let properties: ResourceViewProperties = serde_json::from_value(properties.into())
        .expect("every kind of destination has a resource id");
    DestinationView::Resource(ResourceView {
        endpoint_type,
        properties,
    })
}

/// The settings without the address.
pub(crate) fn webhook_from_body(
    body: WebhookBody,
    input: Schema,
    delivery: Schema,
    ranges: &EditionRanges,
) -> Result<Webhook, InvalidRequest> {
    let (max_events_per_batch, preferred_batch_size_in_kilobytes) = check::batch(
        body.max_events_per_batch,
        body.preferred_batch_size_in_kilobytes,
        ranges,
    )?;
    Ok(Webhook {
        endpoint_url: String::new(),
        max_events_per_batch,
        preferred_batch_size_in_kilobytes,
        allowed_rate: None,
        max_requests_per_second: check::limit(
            "maxRequestsPerSecond",
            body.max_requests_per_second,
            10_000,
        )?,
        response_timeout_in_seconds: check::limit(
            "responseTimeoutInSeconds",
            body.response_timeout_in_seconds,
            230,
        )?,
        minimum_tls_version: body.minimum_tls_version_allowed.unwrap_or_default(),
        token_audience: check::token_audience(
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
pub(crate) fn webhook_body(webhook: &Webhook) -> WebhookBody {
    WebhookBody {
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
    }
}
