//! `transform` of an event subscription, an extension of gridhook.

use crate::model::{CheckResult, InvalidRequest, refuse_value};
use gridhook_policy::transform::{Program, Transform};
use gridhook_record::subscription::SubscriptionRecord;

const KEY: &str = "transform";

/// Checks `transform` for an event subscription with these other properties.
pub(crate) fn compile_program(
    transform: &Transform,
    record: &SubscriptionRecord,
) -> CheckResult<Program> {
    if record.is_pulled() {
        return refuse_value(KEY, "is set, and deliveryMode is Queue; expected Push");
    }
    if let Some(kind) = record
        .endpoint_type()
        .filter(|kind| !["WebHook", "AzureFunction"].contains(kind))
    {
        let problem =
            format!("is set, and the destination is {kind}; expected WebHook or AzureFunction");
        return refuse_value(KEY, problem);
    }
    let batched = record.webhook.max_events_per_batch > 1;
    Program::new(transform, batched, record.delivery_schema).map_err(|invalid| {
        let is_whole = invalid.at == KEY;
        let refusal = InvalidRequest::new(invalid.at, invalid.problem);
        if is_whole {
            refusal
        } else {
            refusal.prefixed_with(KEY)
        }
    })
}
