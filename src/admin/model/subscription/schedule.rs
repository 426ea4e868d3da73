//! Checks of the retry schedule of an event subscription, and of all limits of an edition.

use humantime_serde::re::humantime::{format_duration, parse_duration};

use super::dead_letter::retry_period;
use crate::model::{CheckResult, EditionRanges, InvalidRequest, refuse_value};
use gridhook_policy::retry::LongerWaits;
use gridhook_record::subscription::{RetryPolicy, RetryScheduleSpec, SubscriptionRecord};

/// Checks that a schedule of its own has no wait that is shorter than the edition's least wait,
/// which would apply instead.
pub(super) fn check_schedule(
    at: &str,
    record: &SubscriptionRecord,
    ranges: &EditionRanges,
) -> CheckResult {
    let Some(RetryScheduleSpec::Waits(waits)) = record.retry_schedule.as_deref() else {
        return Ok(());
    };
    let min = if record.resource.is_some() {
        ranges.resource_wait_min
    } else {
        ranges.webhook_wait_min
    };
    for (index, text) in waits.iter().enumerate() {
        // The plan refuses a text that is no duration.
        if parse_duration(text).is_ok_and(|wait| wait < min) {
            let min = format_duration(min);
            let problem = format!(
                "is \"{text}\", and the edition of the topic waits {min} after any failure; \
                 expected a wait from {min} to 7d"
            );
            return refuse_value(format!("{at}[{index}]"), problem);
        }
    }
    Ok(())
}

/// The waits of a schedule that a warning shows.
const WAITS_SHOWN: usize = 6;

/// Warns that the waits of an own schedule are longer after some failures.
pub(crate) fn longer_waits_warning(longer: &[LongerWaits]) -> Option<String> {
    let after: Vec<String> = longer.iter().map(waits_after).collect();
    (!after.is_empty()).then(|| {
        format!(
            "retryPolicy.schedule has waits that are shorter than minimum waits of the topic's \
             edition: {}",
            after.join("; ")
        )
    })
}

fn waits_after(LongerWaits { statuses, waits }: &LongerWaits) -> String {
    let shown = waits.iter().take(WAITS_SHOWN);
    let mut texts: Vec<String> = shown
        .map(|wait| format_duration(*wait).to_string())
        .collect();
    if waits.len() > WAITS_SHOWN {
        texts.push("...".to_owned());
    }
    let after = if statuses.is_empty() {
        "any failure".to_owned()
    } else {
        let statuses: Vec<String> = statuses.iter().map(u16::to_string).collect();
        statuses.join(", ")
    };
    format!("after {after} it is {}", texts.join(", "))
}

/// Checks `record` against the limits of a new edition of its topic.
pub fn check_limits(record: &SubscriptionRecord, ranges: &EditionRanges) -> CheckResult {
    let RetryPolicy {
        max_delivery_attempts: attempts,
        event_time_to_live_in_minutes: minutes,
    } = record.retry;
    ranges
        .attempts
        .check_value("maxDeliveryAttempts", Some(attempts.into()))
        .and_then(|_| {
            ranges
                .time_to_live_minutes
                .check_value("eventTimeToLiveInMinutes", Some(minutes.into()))
        })
        .and_then(|_| {
            let days = record
                .dead_letter
                .as_ref()
                .and_then(|destination| destination.retry_period_days);
            retry_period(days.map(i64::from), ranges)
        })
        .and_then(|_| check_schedule("schedule", record, ranges))
        .map_err(|invalid| {
            let name = &record.name;
            InvalidRequest::new(
                "properties.edition",
                format!("does not fit the event subscription {name}, whose {invalid}"),
            )
        })
}
