//! Checks the bodies of fault injection.

use std::time::Duration;

use humantime_serde::re::humantime::parse_duration;

use crate::model::{CheckResult, InvalidRequest, refuse_value};
use gridhook_api::chaos::ActorKind;

/// Maximum duration of a fault.
const DURATION_MAX: Duration = Duration::from_secs(3_600);

/// Maximum delay of a response; the response timeout of endpoints is shorter.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(300);

/// Maximum step of the wall clock.
const STEP_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Maximum number of failing writes.
const WRITES_MAX: u64 = 10_000;

/// The names of an actor that needs both.
pub(super) fn actor_names<'a>(
    topic: Option<&'a str>,
    subscription: Option<&'a str>,
) -> CheckResult<(&'a str, &'a str)> {
    let topic = topic
        .ok_or_else(|| InvalidRequest::new("topic", "is missing; the actor belongs to a topic"))?;
    let Some(subscription) = subscription else {
        let problem = "is missing; the actor belongs to an event subscription";
        return refuse_value("subscription", problem);
    };
    Ok((topic, subscription))
}

/// Checks that the names fit the kind of actor.
pub(super) fn check_names(
    actor: ActorKind,
    topic: Option<&str>,
    subscription: Option<&str>,
) -> CheckResult {
    let needless =
        |target: &str| InvalidRequest::new(target, "does not apply to this actor; leave it out");
    match (actor, topic, subscription) {
        (ActorKind::Topic, None, _) => {
            refuse_value("topic", "is missing; the actor belongs to a topic")
        }
        (ActorKind::Topic, Some(_), Some(_)) => refuse_value(
            "subscription",
            "does not apply to the actor of a topic; leave it out",
        ),
        (ActorKind::Subscription | ActorKind::Delivery, ..) => {
            actor_names(topic, subscription).map(|_| ())
        }
        (ActorKind::DeadLetter, Some(_), _) => Err(needless("topic")),
        (ActorKind::DeadLetter | ActorKind::Random, _, Some(_)) => Err(needless("subscription")),
        (ActorKind::Topic, Some(_), None)
        | (ActorKind::DeadLetter, None, None)
        | (ActorKind::Random, _, None) => Ok(()),
    }
}

pub(super) fn fault_duration(text: &str) -> CheckResult<Duration> {
    bounded_duration("duration", text, DURATION_MAX)
}

/// Whether a step of the clock is back, and its size.
pub(super) fn clock_step(text: &str) -> CheckResult<(bool, Duration)> {
    let size = text.strip_prefix('-');
    let by = bounded_duration("step", size.unwrap_or(text), STEP_MAX)?;
    Ok((size.is_some(), by))
}

pub(super) fn response_share(rate: f64) -> CheckResult<f64> {
    if rate > 0.0 && rate <= 1.0 {
        return Ok(rate);
    }
    refuse_value(
        "rate",
        format!("is {rate}; expected a share above 0 and up to 1"),
    )
}

pub(super) fn check_writes(fail: u64) -> CheckResult {
    if (1..=WRITES_MAX).contains(&fail) {
        return Ok(());
    }
    refuse_value(
        "fail",
        format!("is {fail}; expected 1 to {WRITES_MAX} writes"),
    )
}

pub(super) fn bounded_duration(target: &str, text: &str, most: Duration) -> CheckResult<Duration> {
    let shown = humantime_serde::re::humantime::format_duration(most);
    match parse_duration(text) {
        Ok(duration) if (Duration::from_millis(1)..=most).contains(&duration) => Ok(duration),
        Ok(_) | Err(_) => {
            let expected = format!("a duration from 1ms to {shown}, such as \"500ms\"");
            Err(InvalidRequest::unexpected(target, text, expected))
        }
    }
}
