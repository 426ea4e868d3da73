//! Event subscriptions of namespace topics: bodies have properties at other places
//! (`deliveryConfiguration`, `filtersConfiguration`), but the same checks and records as all others.

use serde_json::Value;

use super::{RecordReader, destination, identity};
use crate::model::{BODY, CheckResult, InvalidRequest, read, refuse_value, take_value};
use gridhook_api::subscription::{
    SubscriptionProperties,
    namespace::{NamespaceSubscriptionProperties, PUSH, QUEUE, translate_path},
};
use gridhook_record::subscription::{ManagedIdentities, SubscriptionRecord};

/// The destination of dead letters, in `push` or `queue`.
const DEAD_LETTER: &str = "deadLetterDestinationWithResourceIdentity";

/// Moves the destination out of `deliveryWithResourceIdentity`, and returns its identity.
pub(super) fn unwrap_identity(
    properties: &mut Value,
    existing: Option<&SubscriptionRecord>,
) -> CheckResult<ManagedIdentities> {
    let existing = existing.and_then(SubscriptionRecord::delivery_identity);
    let push = properties
        .pointer_mut("/deliveryConfiguration/push")
        .filter(|push| push.is_object());
    let delivery = match push {
        Some(push) => identity::DELIVERY
            .unwrap_destination(push, existing)
            .map_err(|invalid| invalid.prefixed_with("deliveryConfiguration.push"))?,
        None => existing.cloned(),
    };
    Ok(ManagedIdentities {
        delivery,
        dead_letter: None,
    })
}

/// The `deliveryMode` of an event subscription.
pub(crate) fn delivery_mode(record: &SubscriptionRecord) -> &'static str {
    if record.is_pulled() { QUEUE } else { PUSH }
}

/// The delivery mode cannot change: pending deliveries belong to one of the two modes.
pub(crate) fn check_mode(
    before: &SubscriptionRecord,
    requested: &SubscriptionRecord,
) -> CheckResult {
    if before.is_pulled() == requested.is_pulled() {
        return Ok(());
    }
    let is = delivery_mode(before);
    let problem = format!(
        "cannot be changed; expected {is}, or delete the event subscription and create it again"
    );
    refuse_value("properties.deliveryConfiguration.deliveryMode", problem)
}

/// Removes from the current properties the other form of a property that the patch sets, because
/// both together are refused.
pub(super) fn drop_conflicting(properties: &mut Value, patch: &Value) {
    let given = &patch["deliveryConfiguration"]["push"];
    let Some(push) = properties.pointer_mut("/deliveryConfiguration/push") else {
        return;
    };
    if !given[DEAD_LETTER]["StorageBlob"].is_null() {
        drop(take_value(push, DEAD_LETTER));
    }
    destination::drop_conflicting(push, &given["destination"]);
}

/// Reads the properties of an event subscription. Errors have the keys of this form.
pub(super) fn read_record(
    reader: &RecordReader<'_>,
    properties: Value,
    identities: ManagedIdentities,
) -> CheckResult<SubscriptionRecord> {
    let properties: NamespaceSubscriptionProperties = read(properties)?;
    let dead_letter = properties.delivery_configuration.dead_letter();
    let is_documented_form =
        dead_letter.is_some_and(|given| given.dead_letter_destination.is_none());
    let properties = SubscriptionProperties::try_from(properties)
        .map_err(|error| InvalidRequest::new(error.at, error.problem))?;
    let is_pulled = properties.queue.is_some();
    reader.read(properties, identities).map_err(|invalid| {
        let mut target = if invalid.target == BODY {
            "deliveryConfiguration.push".to_owned()
        } else {
            translate_path(&invalid.target, is_pulled)
        };
        if is_documented_form {
            target = target
                .replace(".deadLetterDestination.properties", ".StorageBlob")
                .replace(".deadLetterDestination.", ".");
        }
        InvalidRequest { target, ..invalid }
    })
}
