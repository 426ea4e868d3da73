//! Fault injection: bodies, active faults and counters.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema, ValueEnum)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChaosActor)]
pub enum ActorKind {
    /// The actor of the topic, together with those of its event subscriptions
    Topic,
    /// The actor of one of the topic's event subscriptions
    Subscription,
    /// The task of a delivery request; its events may be repeated
    Delivery,
    /// The actor that writes dead letters
    DeadLetter,
    /// A running actor: of a subscription, of a topic or, without a topic, of dead letters
    #[value(skip)]
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ChaosStallTarget {
    Topic,
    Subscription,
    DeadLetter,
    Random,
    Journal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ChaosKillMethod {
    /// Panic
    Panic,
    /// Stop the actor
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChaosResponseFault {
    Drop,
    Delay,
    Corrupt,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChaosKill {
    /// Kind of the actor that ends
    pub actor: ActorKind,
    /// Name of the topic of the actor
    pub topic: Option<String>,
    /// Name of the event subscription
    pub subscription: Option<String>,
    /// How the actor ends: by a panic or by a regular stop
    pub by: ChaosKillMethod,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChaosStall {
    /// Kind of the actor that is stalled, or the journal
    pub actor: ChaosStallTarget,
    /// Name of the topic of the actor
    pub topic: Option<String>,
    /// Name of the event subscription
    pub subscription: Option<String>,
    /// Duration such as `500ms`; at most a minute.
    pub duration: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChaosWrites {
    /// Number of writes to fail
    pub fail: u64,
    /// Duration such as `10s`, after which no write fails.
    pub duration: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChaosResponses {
    /// What happens to a response: `drop`, `delay` or `corrupt`
    pub fault: ChaosResponseFault,
    /// Share of the responses, above 0 and up to 1.
    pub rate: f64,
    /// Delay of a response, for the fault `delay`.
    pub delay: Option<String>,
    /// Only responses of the event subscriptions of this topic.
    pub topic: Option<String>,
    /// Only responses of this event subscription; default all of the topic.
    pub subscription: Option<String>,
    /// Time after which the fault ends by itself, such as `30s`.
    pub duration: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChaosClock {
    /// Step of the clock, such as `1h`, or `-1h` for a clock that is set back.
    pub step: String,
    /// Time after which the clock is set right again, such as `10s`.
    pub duration: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChaosPoison {
    /// Name of the topic of the event
    pub topic: String,
    /// Name of the event subscription
    pub subscription: String,
    /// `id` of the event, as the publisher set it
    pub event_id: String,
    /// Number of actors that the event ends
    pub times: u32,
    /// Time after which the fault ends by itself; default ten minutes.
    pub duration: Option<String>,
}

/// An active fault.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChaosFault)]
pub struct ActiveFault {
    /// Number of the fault, from 1
    pub number: u64,
    /// Kind of the fault
    pub fault: String,
    /// The fault as it was requested
    #[schema(value_type = Object)]
    pub request: Value,
    /// Time at which the fault began
    pub since: String,
    /// Time at which the fault ends by itself
    pub until: String,
}

/// Counts of what faults did since the server started.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChaosCounters)]
pub struct InjectionCounters {
    /// Number of kills of subscription actors
    pub subscriptions_killed: u64,
    /// Number of kills of topic actors
    pub topics_killed: u64,
    /// Number of kills of dead-letter actors
    pub dead_letters_killed: u64,
    /// Number of kills of delivery actors
    pub deliveries_killed: u64,
    /// Number of poisoned events
    pub events_poisoned: u64,
    /// Number of stalled actors
    pub actors_stalled: u64,
    /// Number of stalls of the journal
    pub journal_stalls: u64,
    /// Number of steps of the wall clock
    pub clock_steps: u64,
    /// Number of stalled writes
    pub writes_stalled: u64,
    /// Number of failed writes
    pub writes_failed: u64,
    /// Number of dropped responses
    pub responses_dropped: ResponseCount,
    /// Number of delayed responses
    pub responses_delayed: ResponseCount,
    /// Number of corrupted responses
    pub responses_corrupted: ResponseCount,
}

/// Responses, and the events of their requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = ChaosCount)]
pub struct ResponseCount {
    /// Number of affected responses
    pub responses: u64,
    /// Number of events of these responses
    pub events: u64,
}

/// `GET /chaos`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Chaos)]
pub struct ChaosReport {
    /// Active faults, oldest first
    pub active: Vec<ActiveFault>,
    /// Counts of what the faults did
    pub injected: InjectionCounters,
}
