//! `gridhook explain`: why an event waits for delivery to an event subscription, and when it is attempted next.

use std::fmt::Write as _;

use awc::http::{Method, StatusCode};
use serde_json::Value;
use url::form_urlencoded;

use super::{
    client::{ClientArgs, ClientError, ResourceName},
    format,
};
use crate::cli::output::{Command, CommandOutcome, Program, block_on};
use crate::clock::Clock;

/// The flags of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gridhook explain orders billing 6b9a
  gridhook explain orders billing 17 --sequence --output json")]
pub struct Explain {
    /// Topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: ResourceName,
    /// Name of the event subscription
    subscription: String,
    /// Event id, or sequence number with --sequence
    #[arg(value_name = "EVENT_ID")]
    event: String,
    /// Read EVENT_ID as a sequence number in the topic's log
    #[arg(long)]
    sequence: bool,
    #[command(flatten)]
    client: ClientArgs,
}

impl Explain {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// The request failed, or the event was not found.
    pub async fn run(&self, clock: &Clock) -> Result<String, ClientError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair(if self.sequence { "sequence" } else { "id" }, &self.event);
        let path = self.topic.subscription(&self.subscription, &format!("/explain?{}", query.finish()));
        let session = self.client.control.session()?;
        let answer: Value = match session.fetch(Method::GET, &path, None::<&Value>).await {
            Err(ClientError::Refused { status: StatusCode::NOT_FOUND, reason }) => {
                return Err(not_found(&self.event, reason));
            }
            answer => answer?,
        };
        self.client.print(&answer, |answer| format_explanation(answer, clock))
    }
}

/// The error for an event that was not found: lists where the server searched. Other responses are passed on.
fn not_found(event: &str, reason: String) -> ClientError {
    let Ok(answer) = serde_json::from_str::<Value>(reason.trim()) else {
        return ClientError::Refused { status: StatusCode::NOT_FOUND, reason };
    };
    let searched = &answer["searched"];
    let of = |key: &str| format::count(&searched[key]);
    ClientError::Input(format!(
        "event '{event}' was not found among {} events in flight, {} pending events and the log from sequence {} to before \
         {}; gridhook trace shows events whose delivery has ended",
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
                "in flight: attempt {} started at {}; the response is due by {}",
                count(&answer["attempt"]),
                at(&answer["since"]),
                at(&answer["deadline"])
            )
        }
        "pending" => format!(
            "pending: {} attempts, the last at {} with outcome {}; the next not before {}",
            count(&answer["attempts"]),
            at(&answer["lastAttempt"]),
            text(&answer["lastOutcome"]),
            at(&answer["nextDue"])
        ),
        "locked" => format!(
            "locked by a client that received it at {}, delivery {}; the lock ends at {} and is renewable until {}",
            at(&answer["received"]),
            count(&answer["deliveryCount"]),
            at(&answer["lockedUntil"]),
            at(&answer["renewableUntil"])
        ),
        "released" => {
            format!("released with a delay: not available before {}; {}", at(&answer["until"]), received(answer, &at))
        }
        "available" => format!("available to clients since {}; {}", at(&answer["since"]), received(answer, &at)),
        "sentByAnEarlierProcess" => "in flight when the server stopped; it is sent again".to_owned(),
        "backlog" => format!("in the backlog, behind {} events", count(&answer["behind"])),
        "filtered" => "filtered out; gridhook subscriptions test-filter shows the reason".to_owned(),
        "deadLetterWaiting" => {
            format!("dead-lettered for {}; the file is due at {}", text(&answer["reason"]), at(&answer["fileDue"]))
        }
        "completed" => "delivery has ended; gridhook trace shows the outcome".to_owned(),
        "notPublished" => "not published yet".to_owned(),
        _ => text(&answer["state"]),
    };
    let (event, of) = (text(&answer["id"]), text(&answer["subscription"]));
    let mut text_lines = format!("event {event}, sequence {}, for {of}: {state}", count(&answer["sequence"]));
    // Writing into a String does not fail.
    for obstacle in answer["obstacles"].as_array().into_iter().flatten() {
        let what = match obstacle["kind"].as_str().unwrap_or_default() {
            "held" => format!("the subscription is held by {}", text(&obstacle["by"])),
            "suspended" => {
                let next = at(&obstacle["nextProbe"]);
                format!("the endpoint is suspended for {}; next probe {next}", text(&obstacle["cause"]))
            }
            "probing" => format!("the endpoint is being probed after {}", text(&obstacle["cause"])),
            "retryAfter" => format!("Retry-After of the endpoint: no request before {}", at(&obstacle["until"])),
            "paced" => format!("paced to {} requests/s", text(&obstacle["rate"])),
            "full" => format!(
                "{} received events are not settled, the limit is {}: clients receive no new ones",
                count(&obstacle["pending"]),
                count(&obstacle["limit"])
            ),
            "noReceiver" => "no client is receiving".to_owned(),
            _ => text(&obstacle["kind"]),
        };
        write!(text_lines, "\n  blocked: {what}").ok();
    }
    let forecast = &answer["forecast"];
    if !forecast.is_null() {
        if answer["deliveryMode"] == "Queue" {
            text_lines.push_str("\n  if no client settles it:");
        } else {
            write!(text_lines, "\n  if each attempt fails with {}:", text(&forecast["ifEachFailsWith"])).ok();
        }
        for attempt in forecast["attempts"].as_array().into_iter().flatten() {
            write!(text_lines, "\n    attempt {} not before {}", count(&attempt["number"]), at(&attempt["notBefore"]))
                .ok();
        }
        let end = &forecast["end"];
        if !end.is_null() {
            write!(text_lines, "\n    dead-lettered or dropped for {} at {}", text(&end["reason"]), at(&end["at"]))
                .ok();
        }
    }
    text_lines
}

/// The number of deliveries to clients, and the outcome of the last one.
fn received(answer: &Value, at: &impl Fn(&Value) -> String) -> String {
    let (times, last) = (format::count(&answer["deliveryCount"]), format::text(&answer["lastOutcome"]));
    format!("received {times} times, the last at {} with outcome {last}", at(&answer["lastReceived"]))
}

impl Command for Explain {
    fn execute(self, _: &Program) -> anyhow::Result<CommandOutcome> {
        block_on(self.run(&Clock::system()))
    }
}
