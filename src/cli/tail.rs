//! `gridhook tail`: events as they are published and what becomes of them, as it happens.

use std::time::Duration;

use awc::http::{Method, StatusCode};
use futures_util::StreamExt;
use serde_json::Value;
use url::form_urlencoded;

use super::{
    client::{self, OutputArgs, OutputFormat, ResourceName, ServerArgs, short},
    format, http,
    print::{self, PipeState},
    suggestion,
};
use crate::escape;

/// The flags of `tail`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Lines are told as things happen, not from the store: whoever reads too slowly misses some, and is told how
many. gridhook ledger and gridhook trace know the past.

Examples:
  gridhook tail
  gridhook tail orders --events --type Order.Placed --data
  gridhook tail orders/billing --outcomes --outcome deferred
  gridhook tail domains/shop/topics/europe --limit 10 --output json"
)]
pub struct TailCommand {
    /// The topic (NAME, domains/NAME, domains/NAME/topics/NAME or a resource id), or TOPIC/SUBSCRIPTION; without it all
    #[arg(value_name = "TOPIC[/SUBSCRIPTION]")]
    of: Option<String>,
    /// Events only
    #[arg(long, conflicts_with = "outcomes")]
    events: bool,
    /// Outcomes only
    #[arg(long)]
    outcomes: bool,
    /// Events of this type only
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Such outcomes only: delivered, deferred, deadLettered and the others of gridhook ledger, or one such as Busy
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Attempts that ended with this status only
    #[arg(long, value_name = "STATUS")]
    status: Option<u16>,
    /// Print the events themselves, too
    #[arg(long)]
    data: bool,
    /// End after this number of lines
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// It was not asked, or said no at once.
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// It is gone.
    #[error("the server broke off: {0}")]
    BrokeOff(String),
    /// The lines cannot be printed.
    #[error(transparent)]
    Print(#[from] print::PrintError),
}

/// A server that is alive writes something every few seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// A year: what is followed has no end.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl TailCommand {
    /// Prints what happens until nobody wants more. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the server cannot be asked, refuses, or breaks off.
    pub async fn run(self) -> Result<(), TailError> {
        let session = self.control.session()?;
        let path = self.path()?;
        let broke = |error: &dyn std::fmt::Display| TailError::BrokeOff(error.to_string());
        let sent = session.request(Method::GET, &path).timeout(SILENCE).send().await;
        let mut answer = sent.map_err(|error| session.not_reached(&error))?.timeout(LONGEST);
        if !answer.status().is_success() {
            let status = answer.status();
            let body = answer.body().await.map_err(|error| broke(&error))?;
            let mut reason = http::reason(&body);
            if status == StatusCode::NOT_FOUND
                && let Some((topic, _)) = self.named()?
            {
                reason += &suggestion::suggestion(&session, &topic.path("")).await;
            }
            return Err(client::ClientError::Refused { status, reason }.into());
        }
        let (mut text, mut printed) = (Vec::new(), 0);
        loop {
            let piece = match tokio::time::timeout(SILENCE, answer.next()).await {
                Ok(Some(piece)) => piece.map_err(|error| broke(&error))?,
                Ok(None) => return Err(TailError::BrokeOff("it stops".to_owned())),
                Err(_) => return Err(TailError::BrokeOff(format!("it was silent for {}", format::span(SILENCE)))),
            };
            text.extend_from_slice(&piece);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                if self.print(line.trim_ascii_end())? == PipeState::Gone {
                    return Ok(());
                }
                printed += 1;
                if self.limit.is_some_and(|limit| printed >= limit) {
                    return Ok(());
                }
            }
        }
    }

    /// The topic and the event subscription that are named. A name with one slash is both, unless it is a domain's.
    fn named(&self) -> Result<Option<(ResourceName, Option<String>)>, client::ClientError> {
        let Some(text) = &self.of else { return Ok(None) };
        let of = |text: &str| text.parse::<ResourceName>().map_err(client::ClientError::Input);
        if let Ok(topic) = text.parse::<ResourceName>()
            && !text.to_ascii_lowercase().contains("/eventsubscriptions/")
        {
            return Ok(Some((topic, None)));
        }
        match text.rsplit_once('/') {
            Some((topic, name)) => {
                let topic = topic.strip_suffix("/eventSubscriptions").unwrap_or(topic);
                Ok(Some((of(topic)?, Some(name.to_owned()))))
            }
            None => Ok(Some((of(text)?, None))),
        }
    }

    fn path(&self) -> Result<String, client::ClientError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        // Who names a subscription wants to know what becomes of its events.
        let named = self.named()?;
        let is_subscription = matches!(named, Some((_, Some(_))));
        let (events, outcomes) = (self.events || (!self.outcomes && !is_subscription), !self.events);
        query.append_pair("events", if events { "true" } else { "false" });
        query.append_pair("outcomes", if outcomes { "true" } else { "false" });
        if self.data {
            query.append_pair("data", "true");
        }
        if let Some((topic, subscription)) = &named {
            query.append_pair("topic", &topic.path(""));
            if let Some(name) = subscription {
                query.append_pair("subscription", name);
            }
        }
        let status = self.status.map(|status| status.to_string());
        for (key, value) in [("type", &self.event_type), ("outcome", &self.outcome), ("status", &status)] {
            if let Some(value) = value {
                query.append_pair(key, value);
            }
        }
        Ok(format!("/tail?{}", query.finish()))
    }

    fn print(&self, line: &[u8]) -> Result<PipeState, print::PrintError> {
        match (self.printed.output, serde_json::from_slice::<Value>(line)) {
            (OutputFormat::Table, Ok(value)) => print::out(&format_line(&value)),
            (OutputFormat::Table, Err(_)) | (OutputFormat::Json, _) => {
                print::out(&escape::json_line(&String::from_utf8_lossy(line)))
            }
        }
    }
}

fn format_line(line: &Value) -> String {
    let text = |key: &str| format::text(&line[key]);
    let topic = escape::text(&short(line["topic"].as_str().unwrap_or_default())).into_owned();
    match line["kind"].as_str().unwrap_or_default() {
        "event" => {
            let (sequence, bytes) = (format::count(&line["sequence"]), format::count(&line["bytes"]));
            let event = match &line["event"] {
                Value::Null => String::new(),
                event => format!("\n    {}", print::json_line(event)),
            };
            let [at, id, kind, subject] = ["at", "id", "eventType", "subject"].map(text);
            format!("{at}  event    {topic}  {sequence}  {kind}  subject {subject}  id {id}  ({bytes} bytes){event}")
        }
        "outcome" => {
            let (count, first) = (line["events"].as_u64().unwrap_or_default(), text("firstSequence"));
            let which = if count == 1 { format!("event {first}") } else { format!("{count} events from {first}") };
            let [at, step, subscription, sentence] = ["at", "step", "subscription", "text"].map(text);
            format!("{at}  {step:8} {topic}/{subscription}  {which}: {sentence}")
        }
        "missed" => format!(
            "… missed {} events and outcomes: they came faster than this could be read",
            format::count(&line["count"])
        ),
        _ => print::json_line(line),
    }
}
