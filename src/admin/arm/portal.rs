//! What a portal link does not permit of the operations that are for portal links.
//!
//! Its holder changes the address of a webhook and nothing else, and sees no event but those of its
//! event subscriptions. What the requests carry does not go to another host (`uses`).

use serde_json::{Value, json};

use super::Call;
use crate::{AdminError, AdminResult, model::parse_body};

/// Checks a PATCH by the holder of a portal link: its only change is the address of a webhook.
pub(super) fn check_change(call: Call<'_>) -> AdminResult<()> {
    let topic = call.find_topic()?;
    let record = call.find_provisioned(&topic)?.record;
    let change = parse_body(call.body)?;
    let is_in_namespace = topic.record().namespace.is_some();
    let at = if is_in_namespace {
        "/properties/deliveryConfiguration/push"
    } else {
        ""
    };
    let address = change.pointer(&format!("{at}/destination/properties/endpointUrl"));
    let address = address.and_then(Value::as_str).unwrap_or_default();
    let mut allowed = json!({"destination": {"properties": {"endpointUrl": address}}});
    if is_in_namespace {
        allowed = json!({"properties": {"deliveryConfiguration": {"push": allowed}}});
    }
    if change != allowed {
        return Err(AdminError::PortalLink(
            "it changes destination.properties.endpointUrl of a webhook and nothing else; in \
             namespaces the destination is in properties.deliveryConfiguration.push",
        ));
    }
    if record.endpoint_type() != Some("WebHook") {
        return Err(AdminError::PortalLink("the destination is not a webhook"));
    }
    Ok(())
}
