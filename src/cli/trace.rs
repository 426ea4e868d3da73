//! `gridhook trace`: shows the delivery history of an event, for all current and former event
//! subscriptions.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    client::{ClientError, ClientResult, ResourceName, ServerArgs},
    format::{count_with_noun, group_thousands},
    list,
    output::{OutputArgs, read},
};
use gridhook_api::{
    ledger::{LedgerResponse, LineView},
    trace::{DeliveryHistory, EventView, TraceView, Transformed},
};
use gridhook_escape as escape;

#[derive(Debug, clap::Args)]
pub struct Trace {
    /// Event id, or sequence number with --sequence
    #[arg(value_name = "EVENT_ID")]
    event: String,
    /// Topic that the event was published to [default: search all topics]
    #[arg(long, value_name = "TOPIC")]
    topic: Option<ResourceName>,
    /// Read EVENT_ID as a sequence number in the topic's log
    #[arg(long, requires = "topic")]
    sequence: bool,
    /// Azure subscription to search if no topic is named
    #[arg(long, value_name = "ID", default_value = "local")]
    subscription_id: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Trace {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// A request failed, or the event was not found.
    pub async fn run(&self) -> ClientResult {
        let server = self.server.build_client()?;
        let topics = match &self.topic {
            Some(topic) => vec![topic.path("")],
            None => list::list_log_ids(&server, &self.subscription_id).await?,
        };
        let key = if self.sequence { "sequence" } else { "id" };
        let query = [(key, Some(self.event.as_str()))];
        let mut traces = Vec::new();
        let mut pages = Vec::new();
        let mut stored_ranges = Vec::new();
        for topic in &topics {
            for page in server.get_pages(&format!("{topic}/trace"), &query).await? {
                let trace: TraceView = read(&page)?;
                stored_ranges.push(format_stored_range(&trace));
                if !trace.events.is_empty() {
                    traces.push(trace);
                    pages.push(page);
                }
            }
        }
        if traces.is_empty() {
            stored_ranges.dedup();
            let scope = if topics.is_empty() {
                "there are no topics".to_owned()
            } else {
                stored_ranges.join(", ")
            };
            return Err(ClientError::Failed(format!(
                "event '{}' was not found: {scope}. Delivered events are stored for \
                 journal.retention; the history of older ones may be found with --topic and \
                 --sequence",
                escape::escape_text(&self.event)
            )));
        }
        self.output.format_list(pages, |_: &[Value]| {
            let texts: Vec<String> = traces.iter().map(format_trace).collect();
            texts.join("\n\n")
        })
    }
}

/// The events that the log of a topic has.
fn format_stored_range(trace: &TraceView) -> String {
    let TraceView {
        topic,
        log_from_sequence: from,
        log_before_sequence: before,
        ..
    } = trace;
    if from < before {
        format!("{topic} stores the events {from} to {}", before - 1)
    } else {
        format!("{topic} stores no events")
    }
}

/// The events with their histories, separated by empty lines.
pub(super) fn format_trace(trace: &TraceView) -> String {
    let events: Vec<String> = trace
        .events
        .iter()
        .map(|event| format_event(event, trace))
        .collect();
    events.join("\n\n")
}

fn format_event(
    event: &EventView,
    TraceView {
        topic,
        log_before_sequence,
        ..
    }: &TraceView,
) -> String {
    if event.id.is_none() && event.sequence >= *log_before_sequence {
        return format!(
            "event {} in {topic}\nnot published yet: the log ends before {log_before_sequence}",
            event.sequence
        );
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    match (&event.id, &event.published) {
        (Some(id), Some(published)) => {
            write!(
                text,
                "event {} in {topic}, sequence {}",
                escape::escape_text(id),
                event.sequence
            )
            .ok();
            write!(text, "\n{published}  published").ok();
            for (name, value) in [("type", &event.event_type), ("subject", &event.subject)] {
                if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
                    write!(text, ", {name} {}", escape::escape_text(value)).ok();
                }
            }
        }
        _ => {
            write!(
                text,
                "event {} in {topic}\nthe event itself is no longer stored",
                event.sequence
            )
            .ok();
        }
    }
    if let (Some(times @ 1..), Some(last)) = (event.duplicates, &event.last_duplicate) {
        let copies = if times == 1 {
            "duplicate was"
        } else {
            "duplicates were"
        };
        write!(
            text,
            "\n{last}  published again; {times} {copies} not stored"
        )
        .ok();
    }
    for history in &event.subscriptions {
        write_history(history, &mut text);
    }
    if event.subscriptions.is_empty() {
        text.push_str("\n\nno event subscriptions");
    }
    text
}

fn write_history(history: &DeliveryHistory, text: &mut String) {
    let domain_topic = history
        .domain_topic
        .as_ref()
        .map(|topic| format!(" of {}", escape::escape_text(topic)))
        .unwrap_or_default();
    let suffix = if history.deleted { " (deleted)" } else { "" };
    // Writing to a string does not fail.
    write!(
        text,
        "\n\n{}{domain_topic}{suffix}: {}",
        escape::escape_text(&history.subscription),
        escape::escape_text(&history.text)
    )
    .ok();
    for line in &history.lines {
        write_line(line, text, None);
    }
    if history.truncated {
        text.push_str("\n  more lines exist");
    }
    if let Some(Transformed {
        bytes,
        sha256,
        excerpt,
        ..
    }) = &history.transformed
    {
        let bytes = count_with_noun(*bytes, "byte");
        let excerpt = escape::escape_text(excerpt);
        write!(
            text,
            "\n  transformed to {bytes}, SHA-256 {sha256}\n    body: {excerpt}"
        )
        .ok();
    }
}

/// Writes the line and the response of the endpoint, indented. `events` name those that it covers.
pub(super) fn write_line(line: &LineView, text: &mut String, events: Option<&str>) {
    let events = events
        .map(|events| format!("{events}: "))
        .unwrap_or_default();
    let lane = if line.lane == "live" {
        String::new()
    } else {
        format!(" [{}]", line.lane)
    };
    // Writing to a string does not fail.
    write!(
        text,
        "\n  {}  {events}{}{lane}",
        line.at,
        escape::escape_text(&line.text)
    )
    .ok();
    if let Some(LedgerResponse {
        by_endpoint,
        text: response,
        ..
    }) = &line.response
        && !response.is_empty()
    {
        let label = if *by_endpoint { "response" } else { "reason" };
        write!(text, "\n    {label}: {}", escape::escape_text(response)).ok();
    }
}

pub(super) fn covered_events(line: &LineView) -> String {
    match line.events {
        1 => format!("sequence {}", line.first_sequence),
        events => format!(
            "{} events from sequence {}",
            group_thousands(events),
            line.first_sequence
        ),
    }
}
