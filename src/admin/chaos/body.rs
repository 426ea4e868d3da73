//! Bodies of fault injection, and their limits.

use std::time::Duration;

use humantime_serde::re::humantime::parse_duration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{admin::model::InvalidRequest, store::faults::STALL_MAX};

/// Maximum duration of a fault.
const DURATION_MAX: Duration = Duration::from_secs(3_600);

/// Maximum delay of a response; the response timeout of endpoints is shorter.
const DELAY_MAX: Duration = Duration::from_secs(300);

/// Maximum step of the wall clock.
const STEP_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Maximum number of failing writes.
const WRITES_MAX: u64 = 10_000;

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChaosActor)]
pub(super) enum ActorKind {
    Topic,
    Subscription,
    Delivery,
    DeadLetter,
    /// A running actor: of a subscription, of a topic or, without a topic, of dead letters
    Random,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChaosStallTarget)]
pub(super) enum StallTarget {
    Topic,
    Subscription,
    DeadLetter,
    Random,
    Journal,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ChaosKillMethod)]
pub(super) enum KillMethod {
    Panic,
    Stop,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ChaosResponseFault)]
pub(super) enum VictimKind {
    Drop,
    Delay,
    Corrupt,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChaosKill)]
pub(in crate::admin) struct KillBody {
    pub(super) actor: ActorKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subscription: Option<String>,
    pub(super) by: KillMethod,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChaosStall)]
pub(in crate::admin) struct StallBody {
    pub(super) actor: StallTarget,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subscription: Option<String>,
    /// Duration such as `500ms`; at most a minute.
    pub(super) duration: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChaosWrites)]
pub(in crate::admin) struct WritesBody {
    /// Number of writes to fail
    pub(super) fail: u64,
    /// Duration such as `10s`, after which no write fails.
    pub(super) duration: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChaosResponses)]
pub(in crate::admin) struct ResponsesBody {
    pub(super) fault: VictimKind,
    /// Share of the responses, above 0 and up to 1.
    pub(super) rate: f64,
    /// Delay of a response, for the fault `delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay: Option<String>,
    /// Only responses of the event subscriptions of this topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) topic: Option<String>,
    /// Only this one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subscription: Option<String>,
    /// Such as `30s`.
    pub(super) duration: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChaosClock)]
pub(in crate::admin) struct ClockBody {
    /// Such as `1h`, or `-1h` for a clock that is set back.
    pub(super) step: String,
    /// Such as `10s`: then it is set right again.
    pub(super) duration: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = ChaosPoison)]
pub(in crate::admin) struct PoisonBody {
    pub(super) topic: String,
    pub(super) subscription: String,
    pub(super) event_id: String,
    pub(super) times: u32,
    /// After which it is forgotten: ten minutes where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration: Option<String>,
}

/// The names of an actor that needs both.
pub(super) fn names<'a>(
    topic: Option<&'a str>,
    subscription: Option<&'a str>,
) -> Result<(&'a str, &'a str), InvalidRequest> {
    let topic = topic.ok_or_else(|| InvalidRequest::new("topic", "is missing; the actor belongs to a topic"))?;
    let missing = || InvalidRequest::new("subscription", "is missing; the actor belongs to an event subscription");
    Ok((topic, subscription.ok_or_else(missing)?))
}

/// Checks that the names fit the kind of actor.
pub(super) fn check_names(
    actor: ActorKind,
    topic: Option<&str>,
    subscription: Option<&str>,
) -> Result<(), InvalidRequest> {
    let needless = |target: &str| InvalidRequest::new(target, "does not apply to this actor; leave it out");
    match (actor, topic, subscription) {
        (ActorKind::Topic, None, _) => Err(InvalidRequest::new("topic", "is missing; the actor belongs to a topic")),
        (ActorKind::Topic, Some(_), Some(_)) => {
            Err(InvalidRequest::new("subscription", "does not apply to the actor of a topic; leave it out"))
        }
        (ActorKind::Subscription | ActorKind::Delivery, ..) => names(topic, subscription).map(|_| ()),
        (ActorKind::DeadLetter, Some(_), _) => Err(needless("topic")),
        (ActorKind::DeadLetter | ActorKind::Random, _, Some(_)) => Err(needless("subscription")),
        (ActorKind::Topic, Some(_), None) | (ActorKind::DeadLetter, None, None) | (ActorKind::Random, _, None) => {
            Ok(())
        }
    }
}

/// Duration of a fault.
pub(super) fn time(text: &str) -> Result<Duration, InvalidRequest> {
    duration("duration", text, DURATION_MAX)
}

/// Duration of a stall.
pub(super) fn stall_time(text: &str) -> Result<Duration, InvalidRequest> {
    duration("duration", text, STALL_MAX)
}

/// Delay of a response.
pub(super) fn delay(text: &str) -> Result<Duration, InvalidRequest> {
    duration("delay", text, DELAY_MAX)
}

/// Direction (true is back) and size of a step of the clock.
pub(super) fn step(text: &str) -> Result<(bool, Duration), InvalidRequest> {
    let (back, by) = match text.strip_prefix('-') {
        Some(by) => (true, by),
        None => (false, text),
    };
    Ok((back, duration("step", by, STEP_MAX)?))
}

/// Share of the responses.
pub(super) fn rate(rate: f64) -> Result<f64, InvalidRequest> {
    if rate > 0.0 && rate <= 1.0 {
        return Ok(rate);
    }
    Err(InvalidRequest::new("rate", format!("is {rate}; allowed is a share above 0 and up to 1")))
}

/// Checks the number of failing writes.
pub(super) fn check_writes(fail: u64) -> Result<(), InvalidRequest> {
    if (1..=WRITES_MAX).contains(&fail) {
        return Ok(());
    }
    Err(InvalidRequest::new("fail", format!("is {fail}; allowed are 1 to {WRITES_MAX} writes")))
}

fn duration(target: &str, text: &str, most: Duration) -> Result<Duration, InvalidRequest> {
    let shown = humantime_serde::re::humantime::format_duration(most);
    let wrong = || {
        InvalidRequest::new(
            target,
            format!("is \"{text}\"; allowed is a duration from 1ms to {shown}, such as \"500ms\""),
        )
    };
    let read = parse_duration(text).map_err(|_| wrong())?;
    if read < Duration::from_millis(1) || read > most { Err(wrong()) } else { Ok(read) }
}
