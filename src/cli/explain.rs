//! `gridhook explain`: why an event waits for delivery to an event subscription, and when it is
//! attempted next.

use std::fmt::Write as _;

use awc::http::StatusCode;
use serde_json::Value;
use url::form_urlencoded;

use super::{
    client::{ClientArgs, ClientError, ClientResult, ResourceName, short_name},
    format::{self, count_with_noun, group_thousands, text_or_dash},
};
use gridhook_api::explain::{
    EventNotFound, ExplainView, ForecastView, ObstacleView, SearchedView, StateView,
};
use gridhook_clock::Clock;

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
    pub async fn run(&self, clock: &Clock) -> ClientResult {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair(if self.sequence { "sequence" } else { "id" }, &self.event);
        let path = self
            .topic
            .subscription_path(&self.subscription, &format!("/explain?{}", query.finish()));
        let server = self.client.server.build_client()?;
        let explanation: Value = match server.get(&path).await {
            Err(ClientError::Refused { status, reason }) if status == StatusCode::NOT_FOUND => {
                return Err(not_found_error(&self.event, reason));
            }
            response => response?,
        };
        let topic = short_name(&self.topic.path(""));
        self.client.format_response(&explanation, |explanation| {
            format_explanation(explanation, &topic, clock)
        })
    }
}

/// The error for an event that was not found: lists where the server searched. Other responses are
/// passed on.
fn not_found_error(event: &str, reason: String) -> ClientError {
    let Ok(EventNotFound { searched, .. }) = serde_json::from_str(reason.trim()) else {
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
        text_or_dash(event),
        count_with_noun(events_in_flight as u64, "event"),
        count_with_noun(events_pending as u64, "pending event"),
        group_thousands(log_from_sequence),
        group_thousands(log_before_sequence)
    ))
}

fn format_explanation(explanation: &ExplainView, topic: &str, clock: &Clock) -> String {
    let at = |time: &str| format::format_instant(time, clock);
    let id = format::optional_text(&explanation.id);
    let sequence = group_thousands(explanation.sequence);
    let state = format_state(explanation, topic, &at);
    let mut text = format!(
        "event {id}, sequence {sequence}, for {}: {state}",
        text_or_dash(&explanation.subscription)
    );
    for obstacle in &explanation.obstacles {
        text.push_str("\n  blocked: ");
        text.push_str(&format_obstacle(obstacle, &at));
    }
    if let Some(forecast) = &explanation.forecast {
        text.push_str(&format_forecast(forecast, &explanation.delivery_mode, &at));
    }
    text
}

/// The attempts that would follow, each on a line.
fn format_forecast(
    forecast: &ForecastView,
    delivery_mode: &str,
    at: &impl Fn(&str) -> String,
) -> String {
    let mut text = if delivery_mode == "Queue" {
        "\n  if no client settles it:".to_owned()
    } else {
        let outcome = text_or_dash(&forecast.if_each_fails_with);
        format!("\n  if each attempt fails with {outcome}:")
    };
    for attempt in &forecast.attempts {
        let number = attempt.number;
        let not_before = at(&attempt.not_before);
        // Writing into a String does not fail.
        write!(text, "\n    attempt {number} not before {not_before}").ok();
    }
    if let Some(end) = &forecast.end {
        let reason = text_or_dash(&end.reason);
        let time = at(&end.at);
        write!(
            text,
            "\n    dead-lettered or dropped for {reason} at {time}"
        )
        .ok();
        if end.reason == "TimeToLiveExceeded" {
            // The time to live ends an event at the attempt that is due next, not between two
            // attempts.
            text.push_str(", when its next attempt would be due");
        }
    }
    text
}

fn format_state(explanation: &ExplainView, topic: &str, at: &impl Fn(&str) -> String) -> String {
    match &explanation.state {
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
            count_with_noun((*attempts).into(), "attempt"),
            at(last_attempt),
            text_or_dash(last_outcome),
            at(next_due)
        ),
        StateView::Blocking { last_outcome, .. } => {
            format!(
                "blocks its order key after {last_outcome}: gridhook subscriptions unblock {topic} \
                 {} KEY gives it up",
                text_or_dash(&explanation.subscription)
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
            let deliveries = format_deliveries(*delivery_count, last_outcome, &at(last_received));
            format!(
                "released with a delay: not available before {}; {deliveries}",
                at(until)
            )
        }
        StateView::Available {
            since,
            delivery_count,
            last_outcome,
            last_received,
        } => {
            let deliveries = format_deliveries(*delivery_count, last_outcome, &at(last_received));
            format!("available to clients since {}; {deliveries}", at(since))
        }
        StateView::SentByAnEarlierProcess => {
            "in flight when the server stopped; it is sent again".to_owned()
        }
        StateView::Backlog { behind } => {
            format!(
                "in the backlog, behind {}",
                count_with_noun(*behind, "event")
            )
        }
        StateView::Filtered => {
            "filtered out; gridhook subscriptions test-filter shows the reason".to_owned()
        }
        StateView::DeadLetterWaiting { reason, file_due } => format!(
            "dead-lettered for {}; the file is due at {}",
            format::optional_text(reason),
            format::optional_or_dash(file_due.as_deref(), at)
        ),
        // By its id it is found only while the log has it; its sequence is enough for the ledger.
        StateView::Completed => format!(
            "delivery has ended; gridhook trace {} --sequence --topic {topic} shows the outcome",
            explanation.sequence
        ),
        StateView::NotPublished => "not published yet".to_owned(),
    }
}

/// How often clients have received an event.
fn format_deliveries(count: u32, last_outcome: &str, last_received: &str) -> String {
    let times = count_with_noun(count.into(), "time");
    let outcome = text_or_dash(last_outcome);
    format!("received {times}, the last at {last_received} with outcome {outcome}")
}

fn format_obstacle(obstacle: &ObstacleView, at: &impl Fn(&str) -> String) -> String {
    match obstacle {
        ObstacleView::Held { by } => format!("the subscription is held by {}", text_or_dash(by)),
        ObstacleView::Suspended {
            cause, next_probe, ..
        } => {
            format!(
                "the endpoint is suspended for {}; next probe {}",
                text_or_dash(cause),
                at(next_probe)
            )
        }
        ObstacleView::Probing { cause, .. } => {
            format!("the endpoint is being probed after {}", text_or_dash(cause))
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
            count_with_noun(*pending, "received event"),
            group_thousands((*limit).into())
        ),
        ObstacleView::NoReceiver => "no client is receiving".to_owned(),
    }
}
