//! `gridhook explain`: why an event waits for delivery to an event subscription, and when it is
//! attempted next.

use std::fmt::Write as _;

use awc::http::{Method, StatusCode};
use serde_json::Value;
use url::form_urlencoded;

use super::{
    client::{ClientArgs, ClientError, ResourceName, short},
    format::{self, counted, number, text},
};
use gridhook_api::explain::{ExplainView, NotFoundView, ObstacleView, SearchedView, StateView};
use gridhook_clock::Clock;

/// The flags of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gridhook explain orders billing 6b9a
  gridhook explain orders billing 17 --sequence --output json")]
pub struct Explain {
    /// Topic: NAME, domains/NAME, domains/NAME/topics/NAME, namespaces/NAME/topics/NAME or a
    /// resource id
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
        let path = self
            .topic
            .subscription(&self.subscription, &format!("/explain?{}", query.finish()));
        let session = self.client.control.session()?;
        let answer: Value = match session.fetch(Method::GET, &path, None::<&Value>).await {
            Err(ClientError::Refused {
                status: StatusCode::NOT_FOUND,
                reason,
            }) => {
                return Err(not_found(&self.event, reason));
            }
            answer => answer?,
        };
        let topic = short(&self.topic.path(""));
        self.client
            .print(&answer, |answer| format_explanation(answer, &topic, clock))
    }
}

/// The error for an event that was not found: lists where the server searched. Other responses are
/// passed on.
fn not_found(event: &str, reason: String) -> ClientError {
    let Ok(NotFoundView { searched, .. }) = serde_json::from_str(reason.trim()) else {
        return ClientError::Refused {
            status: StatusCode::NOT_FOUND,
            reason,
        };
    };
    let SearchedView {
        events_in_flight,
        events_pending,
        log_from_sequence,
        log_before_sequence,
    } = searched;
    ClientError::Failed(format!(
        "event '{}' was not found among {} in flight, {} and the log from sequence {} to before \
         {}. Of an older event gridhook trace SEQUENCE --sequence --topic TOPIC shows the outcome",
        text(event),
        counted(events_in_flight as u64, "event"),
        counted(events_pending as u64, "pending event"),
        number(log_from_sequence),
        number(log_before_sequence)
    ))
}

fn format_explanation(answer: &ExplainView, topic: &str, clock: &Clock) -> String {
    let at = |time: &str| format::when(time, clock);
    let id = format::optional(answer.id.as_deref(), text);
    let (sequence, state) = (number(answer.sequence), format_state(answer, topic, &at));
    let mut lines = format!(
        "event {id}, sequence {sequence}, for {}: {state}",
        text(&answer.subscription)
    );
    // Writing into a String does not fail.
    for obstacle in &answer.obstacles {
        write!(lines, "\n  blocked: {}", format_obstacle(obstacle, &at)).ok();
    }
    if let Some(forecast) = &answer.forecast {
        if answer.delivery_mode == "Queue" {
            lines.push_str("\n  if no client settles it:");
        } else {
            write!(
                lines,
                "\n  if each attempt fails with {}:",
                text(&forecast.if_each_fails_with)
            )
            .ok();
        }
        for attempt in &forecast.attempts {
            write!(
                lines,
                "\n    attempt {} not before {}",
                attempt.number,
                at(&attempt.not_before)
            )
            .ok();
        }
        if let Some(end) = &forecast.end {
            // The time to live ends an event at the attempt that is due next, not between two
            // attempts.
            let when = if end.reason == "TimeToLiveExceeded" {
                ", when its next attempt would be due"
            } else {
                ""
            };
            write!(
                lines,
                "\n    dead-lettered or dropped for {} at {}{when}",
                text(&end.reason),
                at(&end.at)
            )
            .ok();
        }
    }
    lines
}

fn format_state(answer: &ExplainView, topic: &str, at: &impl Fn(&str) -> String) -> String {
    let received = |times: u32, outcome: &str, last: &str| {
        let times = counted(times.into(), "time");
        format!(
            "received {times}, the last at {} with outcome {}",
            at(last),
            text(outcome)
        )
    };
    match &answer.state {
        StateView::InFlight {
            attempt,
            since,
            deadline,
        } => {
            format!(
                "in flight: attempt {attempt} started at {}; the response is due by {}",
                at(since),
                at(deadline)
            )
        }
        StateView::Pending {
            next_due,
            attempts,
            last_outcome,
            last_attempt,
            ..
        } => format!(
            "pending: {}, the last at {} with outcome {}; the next not before {}",
            counted((*attempts).into(), "attempt"),
            at(last_attempt),
            text(last_outcome),
            at(next_due)
        ),
        StateView::Blocking { last_outcome, .. } => {
            format!(
                "blocks its order key after {last_outcome}: gridhook subscriptions unblock {topic} \
                 {} KEY gives it up",
                text(&answer.subscription)
            )
        }
        StateView::HeldBack { .. } => {
            "held back: an earlier event of its order key goes first".to_owned()
        }
        StateView::Locked {
            delivery_count,
            received,
            locked_until,
            renewable_until,
        } => format!(
            "locked by a client that received it at {}, delivery {delivery_count}; the lock ends \
             at {} and is renewable until {}",
            at(received),
            at(locked_until),
            at(renewable_until)
        ),
        StateView::Released {
            until,
            delivery_count,
            last_outcome,
            last_received,
        } => {
            let received = received(*delivery_count, last_outcome, last_received);
            format!(
                "released with a delay: not available before {}; {received}",
                at(until)
            )
        }
        StateView::Available {
            since,
            delivery_count,
            last_outcome,
            last_received,
        } => {
            let received = received(*delivery_count, last_outcome, last_received);
            format!("available to clients since {}; {received}", at(since))
        }
        StateView::SentByAnEarlierProcess => {
            "in flight when the server stopped; it is sent again".to_owned()
        }
        StateView::Backlog { behind } => {
            format!("in the backlog, behind {}", counted(*behind, "event"))
        }
        StateView::Filtered => {
            "filtered out; gridhook subscriptions test-filter shows the reason".to_owned()
        }
        StateView::DeadLetterWaiting { reason, file_due } => format!(
            "dead-lettered for {}; the file is due at {}",
            format::optional(reason.as_deref(), text),
            format::optional(file_due.as_deref(), at)
        ),
        // By its id it is found only while the log has it; its sequence is enough for the ledger.
        StateView::Completed => format!(
            "delivery has ended; gridhook trace {} --sequence --topic {topic} shows the outcome",
            answer.sequence
        ),
        StateView::NotPublished => "not published yet".to_owned(),
    }
}

fn format_obstacle(obstacle: &ObstacleView, at: &impl Fn(&str) -> String) -> String {
    match obstacle {
        ObstacleView::Held { by } => format!("the subscription is held by {}", text(by)),
        ObstacleView::Suspended {
            cause, next_probe, ..
        } => {
            format!(
                "the endpoint is suspended for {}; next probe {}",
                text(cause),
                at(next_probe)
            )
        }
        ObstacleView::Probing { cause, .. } => {
            format!("the endpoint is being probed after {}", text(cause))
        }
        ObstacleView::RetryAfter { until } => {
            format!(
                "Retry-After of the endpoint: no request before {}",
                at(until)
            )
        }
        ObstacleView::Paced { rate } => format!("paced to {rate:?} requests/s"),
        ObstacleView::Full { pending, limit } => format!(
            "{} not settled, the limit is {}: clients receive no new ones",
            counted(*pending, "received event"),
            number((*limit).into())
        ),
        ObstacleView::NoReceiver => "no client is receiving".to_owned(),
    }
}
