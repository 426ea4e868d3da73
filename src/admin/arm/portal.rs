//! What a portal link does not permit of the operations that are for portal links.
//!
//! Its holder changes the address of a webhook and nothing else, and sees no event but those of its event subscriptions.

use actix_web::http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{no_subscription, path::ArmPath, topic};
use crate::{
    admin::{AdminError, Control},
    control::record::subscription::{SubscriptionRecord, Webhook},
    policy::property::PropertySource,
};

/// The only change: of a webhook's address.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointChange {
    destination: ChangedDestination,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangedDestination {
    endpoint_type: Option<ChangedEndpointType>,
    properties: ChangedEndpoint,
}

#[derive(Deserialize)]
enum ChangedEndpointType {
    WebHook,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangedEndpoint {
    endpoint_url: String,
}

/// Checks a request of the holder of a portal link.
pub(super) fn check(control: &Control, path: &ArmPath, method: &Method, body: &[u8]) -> Result<(), AdminError> {
    if *method == Method::PATCH {
        let (of, name) = (path.topic()?, path.subscription()?);
        let found = control.registry.provisioned(&*topic(control, &of)?, &name);
        return check_change(&found.ok_or_else(|| no_subscription(&of, &name))?.record, body);
    }
    let is_test = ["/testFilter", "/testTransform"].iter().any(|end| path.route.template.ends_with(end));
    let takes_newest = |body: Value| body.get("last").is_some();
    if is_test && serde_json::from_slice(body).is_ok_and(takes_newest) {
        let why = "the newest events of a topic are not for one event subscription only; give events to test";
        return Err(AdminError::PortalLink(why));
    }
    Ok(())
}

fn check_change(record: &SubscriptionRecord, body: &[u8]) -> Result<(), AdminError> {
    let Ok(EndpointChange {
        destination: ChangedDestination { endpoint_type: Some(ChangedEndpointType::WebHook) | None, properties },
    }) = serde_json::from_slice(body)
    else {
        return Err(AdminError::PortalLink(
            "it changes destination.properties.endpointUrl of a webhook and nothing else",
        ));
    };
    if record.endpoint_type() != Some("WebHook") {
        return Err(AdminError::PortalLink("the destination is not a webhook"));
    }
    if has_secret(&record.webhook) && origin(&properties.endpoint_url) != origin(&record.webhook.endpoint_url) {
        let why = "the requests have a secret or an access token, which another host would receive; an operator can change \
                   the address";
        return Err(AdminError::PortalLink(why));
    }
    Ok(())
}

/// Whether requests have something that only this endpoint may receive. A signature is not: it does not show its key.
fn has_secret(webhook: &Webhook) -> bool {
    let is_secret = |source: &PropertySource| matches!(source, PropertySource::Static { is_secret: true, .. });
    let is_with_secret = webhook.delivery_properties.iter().any(|property| is_secret(&property.source));
    is_with_secret || webhook.token_audience.is_some()
}

fn origin(address: &str) -> Option<url::Origin> {
    Some(url::Url::parse(address).ok()?.origin())
}
