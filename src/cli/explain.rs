//! `gridhook explain`: why an event waits for an event subscription, and when it is tried next.

use std::fmt::Write as _;

use awc::http::{Method, StatusCode};
use serde_json::Value;
use url::form_urlencoded;

use super::{
    client::{ClientArgs, ClientError, ResourceName},
    format,
};
use crate::clock::Clock;

/// The flags of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gridhook explain orders billing 6b9a
  gridhook explain orders billing 17 --sequence --output json")]
pub struct Explain {
    /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: ResourceName,
    /// The event subscription
    subscription: String,
    /// The event's id, or its sequence with --sequence
    #[arg(value_name = "EVENT_ID")]
    event: String,
    /// EVENT_ID is the event's place in the topic's log
    #[arg(long)]
    sequence: bool,
    #[command(flatten)]
    asked: ClientArgs,
}

impl Explain {
    /// Asks, and says what is to be printed. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the server cannot be asked, or does not find it.
    pub async fn run(&self, clock: &Clock) -> Result<String, ClientError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair(if self.sequence { "sequence" } else { "id" }, &self.event);
        let path = self.topic.subscription(&self.subscription, &format!("/explain?{}", query.finish()));
        let session = self.asked.control.session()?;
        let answer: Value = match session.fetch(Method::GET, &path, None::<&Value>).await {
            Err(ClientError::Refused { status: StatusCode::NOT_FOUND, reason }) => {
                return Err(nowhere(&self.event, reason));
            }
            answer => answer?,
        };
        self.asked.print(&answer, |answer| format_explanation(answer, clock))
    }
}

/// An event that was not found is told as where it was looked for; what is no such answer is told as it came.
fn nowhere(event: &str, reason: String) -> ClientError {
    let Ok(answer) = serde_json::from_str::<Value>(reason.trim()) else {
        return ClientError::Refused { status: StatusCode::NOT_FOUND, reason };
    };
    let looked = &answer["searched"];
    let of = |key: &str| format::count(&looked[key]);
    ClientError::Input(format!(
        "no event '{event}' was found among {} in flight, {} pending and the log from {} to before {}; gridhook trace knows \
         what became of those that have ended",
        of("eventsInFlight"),
        of("eventsPending"),
        of("logFromSequence"),
        of("logBeforeSequence")
    ))
}

fn format_explanation(answer: &Value, clock: &Clock) -> String {
    let at = |value: &Value| format::when(value, clock);
    let (text, count) = (format::text, format::count);
    let state = match answer["state"].as_str().unwrap_or_default() {
        "inFlight" => {
            format!(
                "in flight: attempt {} since {}; its answer is waited for until {}",
                count(&answer["attempt"]),
                at(&answer["since"]),
                at(&answer["deadline"])
            )
        }
        "pending" => format!(
            "owed: {} attempts, the last at {} with {}; the next not before {}",
            count(&answer["attempts"]),
            at(&answer["lastAttempt"]),
            text(&answer["lastOutcome"]),
            at(&answer["nextDue"])
        ),
        "locked" => format!(
            "with a client that received it at {}, delivery {}; locked until {}, renewable until {}",
            at(&answer["received"]),
            count(&answer["deliveryCount"]),
            at(&answer["lockedUntil"]),
            at(&answer["renewableUntil"])
        ),
        "released" => {
            format!("given back, nobody receives it before {}; {}", at(&answer["until"]), received(answer, &at))
        }
        "available" => format!("for the next client, since {}; {}", at(&answer["since"]), received(answer, &at)),
        "sentByAnEarlierProcess" => "sent by an earlier process of the server; it is sent again".to_owned(),
        "backlog" => format!("in the backlog: {} events are before it", count(&answer["behind"])),
        "filtered" => "the filter does not let it through (gridhook subscriptions test-filter says why)".to_owned(),
        "deadLetterWaiting" => {
            format!("a dead letter for {}; its file is due at {}", text(&answer["reason"]), at(&answer["fileDue"]))
        }
        "completed" => "over: gridhook trace tells what became of it".to_owned(),
        "notPublished" => "not published yet".to_owned(),
        _ => text(&answer["state"]),
    };
    let (event, of) = (text(&answer["id"]), text(&answer["subscription"]));
    let mut told = format!("event {event}, sequence {}, for {of}: {state}", count(&answer["sequence"]));
    // Writing into a String does not fail.
    for obstacle in answer["obstacles"].as_array().into_iter().flatten() {
        let what = match obstacle["kind"].as_str().unwrap_or_default() {
            "held" => format!("the subscription is held by {}", text(&obstacle["by"])),
            "suspended" => {
                let next = at(&obstacle["nextProbe"]);
                format!("the endpoint is suspended for {}; next probe {next}", text(&obstacle["cause"]))
            }
            "probing" => format!("the endpoint is being probed, after {}", text(&obstacle["cause"])),
            "retryAfter" => format!("the endpoint asked for no request before {}", at(&obstacle["until"])),
            "paced" => format!("at most {} requests a second", text(&obstacle["rate"])),
            "full" => format!(
                "{} events were received and have not ended, and {} may be: clients get no new ones",
                count(&obstacle["pending"]),
                count(&obstacle["limit"])
            ),
            "noReceiver" => "no client waits for events".to_owned(),
            _ => text(&obstacle["kind"]),
        };
        write!(told, "\n  in its way: {what}").ok();
    }
    let forecast = &answer["forecast"];
    if !forecast.is_null() {
        if answer["deliveryMode"] == "Queue" {
            told.push_str("\n  if no client says anything about it:");
        } else {
            write!(told, "\n  if each attempt fails with {}:", text(&forecast["ifEachFailsWith"])).ok();
        }
        for attempt in forecast["attempts"].as_array().into_iter().flatten() {
            write!(told, "\n    attempt {} not before {}", count(&attempt["number"]), at(&attempt["notBefore"])).ok();
        }
        let end = &forecast["end"];
        if !end.is_null() {
            write!(told, "\n    given up for {} at {}", text(&end["reason"]), at(&end["at"])).ok();
        }
    }
    told
}

/// How often a client had it, and how that ended the last time.
fn received(answer: &Value, at: &impl Fn(&Value) -> String) -> String {
    let (times, last) = (format::count(&answer["deliveryCount"]), format::text(&answer["lastOutcome"]));
    format!("received {times} times, the last at {} with {last}", at(&answer["lastReceived"]))
}
