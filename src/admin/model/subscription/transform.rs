//! `transform` of an event subscription, an extension of gridhook.

use crate::model::{CheckResult, InvalidRequest, refuse_value};
use gridhook_policy::transform::{Program, Transform};
use gridhook_record::subscription::SubscriptionRecord;

/// Checks `transform` for an event subscription with these other properties.
pub(crate) fn compile_program(
    transform: &Transform,
    record: &SubscriptionRecord,
) -> CheckResult<Program> {
    if record.is_pulled() {
        return refuse_value(
            "transform",
            "is set, and deliveryMode is Queue; expected Push",
        );
    }
    if let Some(kind) = record
        .endpoint_type()
        .filter(|kind| !["WebHook", "AzureFunction"].contains(kind))
    {
        let problem =
            format!("is set, and the destination is {kind}; expected WebHook or AzureFunction");
        return refuse_value("transform", problem);
    }
    let batched = record.webhook.max_events_per_batch > 1;
    Program::new(transform, batched, record.delivery_schema).map_err(|invalid| {
        InvalidRequest::new(invalid.at, invalid.problem).prefixed_with("transform")
    })
}
