//! `gridhook trace`: what became of an event, for everybody who subscribes to its topic or did, as one page of text.

use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded;

use super::{
    client::{self, OutputArgs, OutputFormat, ResourceName, ServerArgs, ServerClient},
    list, print,
};
use crate::escape;

/// The flags of `trace`.
#[derive(Debug, clap::Args)]
pub struct Trace {
    /// The event's id, or its sequence with --sequence
    #[arg(value_name = "EVENT_ID")]
    event: String,
    /// The topic or domain that it was published to; without it all are asked
    #[arg(long, value_name = "TOPIC")]
    topic: Option<ResourceName>,
    /// EVENT_ID is the event's place in the topic's log
    #[arg(long, requires = "topic")]
    sequence: bool,
    /// The Azure subscription whose topics are asked where none is named
    #[arg(long, value_name = "ID", default_value = "local")]
    subscription_id: String,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why there is nothing to print.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The server could not be asked, or refused.
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// It was not found.
    #[error(
        "no event with the id '{id}' was found: {looked}; what is delivered stays as long as journal.retention says, and \
         lines of it may be found by its --sequence"
    )]
    NotFound {
        /// What was asked for.
        id: String,
        /// Where it was looked for.
        looked: String,
    },
}

/// What the server answers, as far as people read it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TraceAnswer {
    topic: String,
    log_from_sequence: u64,
    log_before_sequence: u64,
    events: Vec<TracedEvent>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TracedEvent {
    sequence: u64,
    id: Option<String>,
    event_type: Option<String>,
    subject: Option<String>,
    published: Option<String>,
    subscriptions: Vec<DeliveryHistory>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeliveryHistory {
    subscription: String,
    domain_topic: Option<String>,
    #[serde(default)]
    deleted: bool,
    text: String,
    lines: Vec<LedgerLine>,
    #[serde(default)]
    truncated: bool,
}

/// A line of the ledger, as far as people read it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LedgerLine {
    at: String,
    lane: String,
    text: String,
    response: Option<EndpointAnswer>,
    events: u64,
    first_sequence: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointAnswer {
    by_endpoint: bool,
    text: String,
}

impl Trace {
    /// Asks, and says what is to be printed. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the server cannot be asked, or nothing was found.
    pub async fn run(&self) -> Result<String, TraceError> {
        let session = self.control.session()?;
        let topics = match &self.topic {
            Some(topic) => vec![topic.path("")],
            None => list::logs(&session, &self.subscription_id).await?,
        };
        let (mut found, mut looked) = (Vec::new(), Vec::new());
        for topic in &topics {
            for page in self.pages(&session, topic).await? {
                let answer: TraceAnswer = TraceAnswer::deserialize(&page).map_err(client::ClientError::from)?;
                let TraceAnswer { topic, log_from_sequence: from, log_before_sequence: before, .. } = &answer;
                looked.push(match from < before {
                    true => format!("{topic} keeps the events {from} to {}", before - 1),
                    false => format!("{topic} keeps no events"),
                });
                if !answer.events.is_empty() {
                    found.push((answer, page));
                }
            }
        }
        if found.is_empty() {
            looked.dedup();
            let looked = if topics.is_empty() { "there are no topics".to_owned() } else { looked.join(", ") };
            return Err(TraceError::NotFound { id: self.event.clone(), looked });
        }
        Ok(match self.printed.output {
            OutputFormat::Json => print::json(&Value::from_iter(found.into_iter().map(|(_, page)| page))),
            OutputFormat::Table => found.iter().map(|(answer, _)| answer.to_string()).collect::<Vec<_>>().join("\n\n"),
        })
    }

    /// Everything that one topic has to tell: one page after another.
    async fn pages(&self, session: &ServerClient, topic: &str) -> Result<Vec<Value>, client::ClientError> {
        let (mut pages, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair(if self.sequence { "sequence" } else { "id" }, &self.event);
            if let Some(next) = &next {
                query.append_pair("continue", next);
            }
            let page: Value = session.get(&format!("{topic}/trace?{}", query.finish())).await?;
            next = page["continue"].as_str().map(str::to_owned);
            pages.push(page);
            if next.is_none() {
                return Ok(pages);
            }
        }
    }
}

impl fmt::Display for TraceAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, event) in self.events.iter().enumerate() {
            let between = if place > 0 { "\n\n" } else { "" };
            write!(f, "{between}{}", event.format_trace(&self.topic))?;
        }
        Ok(())
    }
}

impl TracedEvent {
    fn format_trace(&self, topic: &str) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        match (&self.id, &self.published) {
            (Some(id), Some(published)) => {
                write!(text, "event {} in {topic}, sequence {}", escape::text(id), self.sequence).ok();
                write!(text, "\n{published}  published").ok();
                for (name, value) in [("type", &self.event_type), ("subject", &self.subject)] {
                    if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
                        write!(text, ", {name} {}", escape::text(value)).ok();
                    }
                }
            }
            _ => {
                write!(text, "event {} in {topic}\nthe event itself is not kept any more", self.sequence).ok();
            }
        }
        for story in &self.subscriptions {
            story.write_to(&mut text);
        }
        if self.subscriptions.is_empty() {
            text.push_str("\n\nnobody subscribes");
        }
        text
    }
}

impl DeliveryHistory {
    fn write_to(&self, text: &mut String) {
        let of = self.domain_topic.as_ref().map(|topic| format!(" of {}", escape::text(topic))).unwrap_or_default();
        let deleted = if self.deleted { " (deleted)" } else { "" };
        // Writing to a string does not fail.
        write!(text, "\n\n{}{of}{deleted}: {}", escape::text(&self.subscription), escape::text(&self.text)).ok();
        for line in &self.lines {
            line.write_to(text, None);
        }
        if self.truncated {
            text.push_str("\n  and more");
        }
    }
}

impl LedgerLine {
    /// The line and what was said, indented.
    pub(super) fn write_to(&self, text: &mut String, of: Option<&str>) {
        let of = of.map(|of| format!("{of}: ")).unwrap_or_default();
        let lane = if self.lane == "live" { String::new() } else { format!(" [{}]", self.lane) };
        // Writing to a string does not fail.
        write!(text, "\n  {}  {of}{}{lane}", self.at, escape::text(&self.text)).ok();
        if let Some(EndpointAnswer { by_endpoint, text: said }) = &self.response {
            let who = if *by_endpoint { "it said" } else { "because" };
            write!(text, "\n    {who}: {}", escape::text(said)).ok();
        }
    }

    /// Of which events it speaks.
    pub(super) fn events(&self) -> String {
        match self.events {
            1 => format!("event {}", self.first_sequence),
            events => format!("{events} events from {}", self.first_sequence),
        }
    }
}
