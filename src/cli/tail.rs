//! `gridhook tail`: follows published events and delivery outcomes live.

use std::time::Duration;

use awc::http::Method;
use url::form_urlencoded;

use super::{
    client::{ClientError, ClientResult, ResourceName, ServerArgs, short_name},
    format::{self, count_with_noun, group_thousands, text_or_dash},
    output::OutputArgs,
    print::{self, PipeState, PrintError},
    terminal::{Keyboard, is_stdio_terminal},
    trace::covered_events,
    value::{ValueError, whole_number},
};
use gridhook_api::{
    ledger::LineView,
    tail::{Published, TailLine, TailMissed},
};
use gridhook_escape as escape;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Lines are live, not from the store. A slow reader loses lines; the number of lost lines is printed. For the past,
use gridhook ledger and gridhook trace.

Examples:
  gridhook tail
  gridhook tail orders --events --type Order.Placed --data
  gridhook tail orders/billing --outcomes --outcome deferred
  gridhook tail domains/shop/topics/europe --limit 10 --output json")]
pub struct TailCommand {
    /// Topic (NAME, domains/NAME, domains/NAME/topics/NAME, namespaces/NAME/topics/NAME or a
    /// resource id), or TOPIC/SUBSCRIPTION [default: all topics]
    #[arg(value_name = "TOPIC[/SUBSCRIPTION]")]
    target: Option<String>,
    /// Print published events only
    #[arg(long, conflicts_with = "outcomes")]
    events: bool,
    /// Print delivery outcomes only
    #[arg(long)]
    outcomes: bool,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only this outcome: delivered, deferred, deadLettered or another one of gridhook ledger, or
    /// one such as Busy
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Only attempts with this response status
    #[arg(long, value_name = "STATUS", value_parser = whole_number::<u16>(100..=599))]
    status: Option<u16>,
    /// Also print the events
    #[arg(long)]
    data: bool,
    /// Stop after this number of lines
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A running server writes a line or a keep-alive every few seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// Maximum duration of a response: one year, because a tail has no end.
const STREAM_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl TailCommand {
    /// Prints lines until the limit, or until standard output is closed. Needs a running actix
    /// system.
    ///
    /// # Errors
    /// The request failed, or the connection ended.
    pub async fn run(self) -> ClientResult<()> {
        let server = self.server.build_client()?;
        let target = self.parse_target()?;
        let request = server
            .build_request(Method::GET, &self.stream_path(target.as_ref()))
            .timeout(SILENCE)
            .send();
        let result = server.open_lines(request, STREAM_MAX).await;
        let mut lines = match &target {
            Some(target) => server.with_suggestion(&target.path(), result).await?,
            None => result?,
        };
        let mut keyboard = if is_stdio_terminal() {
            Some(Keyboard::open()?)
        } else {
            None
        };
        let mut line_count = 0;
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(SILENCE, lines.next_line()) => next,
                () = wait_for_quit(keyboard.as_mut()) => return Ok(()),
            };
            let line = next.unwrap_or_else(|_| {
                let silence = format::format_span(SILENCE);
                Err(ClientError::Disconnected(format!("no data for {silence}")))
            })?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            if self.print_line(line.trim_ascii_end())? == PipeState::Closed {
                return Ok(());
            }
            line_count += 1;
            if self.limit.is_some_and(|limit| line_count >= limit) {
                return Ok(());
            }
        }
    }

    /// The named topic and event subscription. A name with one slash is TOPIC/SUBSCRIPTION, unless
    /// it names a domain.
    fn parse_target(&self) -> ClientResult<Option<TailTarget>> {
        let Some(text) = &self.target else {
            return Ok(None);
        };
        let is_subscription_id = text.to_ascii_lowercase().contains("/eventsubscriptions/");
        let topic = match text.parse() {
            Ok(topic) if !is_subscription_id => {
                return Ok(Some(TailTarget {
                    topic,
                    subscription: None,
                }));
            }
            Ok(_) | Err(_) => text.rsplit_once('/'),
        };
        let (topic, subscription) = match topic {
            Some((topic, name)) => {
                let topic = topic.strip_suffix("/eventSubscriptions").unwrap_or(topic);
                (topic, Some(name.to_owned()))
            }
            None => (text.as_str(), None),
        };
        let topic = topic
            .parse()
            .map_err(|error: ValueError| ClientError::Input(error.to_string()))?;
        Ok(Some(TailTarget {
            topic,
            subscription,
        }))
    }

    fn stream_path(&self, target: Option<&TailTarget>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        // With a named subscription, the default is outcomes only.
        let is_subscription = target.is_some_and(|target| target.subscription.is_some());
        let events = self.events || (!self.outcomes && !is_subscription);
        let outcomes = !self.events;
        query.append_pair("events", &events.to_string());
        query.append_pair("outcomes", &outcomes.to_string());
        let status = self.status.map(|status| status.to_string());
        let topic = target.map(|target| target.topic.path(""));
        for (key, value) in [
            ("data", self.data.then_some("true")),
            ("topic", topic.as_deref()),
            (
                "subscription",
                target.and_then(|target| target.subscription.as_deref()),
            ),
            ("type", self.event_type.as_deref()),
            ("outcome", self.outcome.as_deref()),
            ("status", status.as_deref()),
        ] {
            query.extend_pairs(value.map(|value| (key, value)));
        }
        format!("/tail?{}", query.finish())
    }

    fn print_line(&self, line: &[u8]) -> Result<PipeState, PrintError> {
        let line = String::from_utf8_lossy(line);
        let json = || escape::json_line(&line).into_owned();
        let text = || TailLine::parse(&line).map_or_else(|_| json(), |line| format_line(&line));
        print::print_lines(&self.output.format_line(json, text))
    }
}

/// A topic, or one of its event subscriptions.
struct TailTarget {
    topic: ResourceName,
    subscription: Option<String>,
}

impl TailTarget {
    fn path(&self) -> String {
        match &self.subscription {
            Some(name) => self.topic.subscription_path(name, ""),
            None => self.topic.path(""),
        }
    }
}

/// Resolves when a key or a signal ends the command, if it runs in a terminal.
async fn wait_for_quit(keyboard: Option<&mut Keyboard>) {
    let Some(keyboard) = keyboard else {
        return std::future::pending().await;
    };
    while keyboard.next_key().await.is_some() {}
}

fn format_line(line: &TailLine) -> String {
    match line {
        TailLine::Event(published) => format_event(published),
        TailLine::Outcome(ended) => {
            let topic = topic_name(&ended.topic);
            let subscription = text_or_dash(&ended.subscription);
            let events = covered_events(&ended.line);
            let LineView { at, step, text, .. } = &ended.line;
            let text = text_or_dash(text);
            format!("{at}  {step:8} {topic}/{subscription}  {events}: {text}")
        }
        TailLine::Missed(TailMissed { count }) => {
            let lines = count_with_noun(*count, "line");
            format!("… lost {lines}: the reader was too slow")
        }
    }
}

fn topic_name(id: &str) -> String {
    escape::escape_text(&short_name(id)).into_owned()
}

fn format_event(published: &Published) -> String {
    let at = &published.at;
    let topic = topic_name(&published.topic);
    let sequence = group_thousands(published.sequence);
    let event_type = text_or_dash(&published.event_type);
    let subject = text_or_dash(&published.subject);
    let id = text_or_dash(&published.id);
    let bytes = count_with_noun(published.bytes as u64, "byte");
    let event = published
        .event
        .as_ref()
        .map(|event| format!("\n    {}", escape::json_line(event.get())));
    let event = event.unwrap_or_default();
    format!(
        "{at}  event    {topic}  {sequence}  {event_type}  subject {subject}  id {id}  \
         ({bytes}){event}"
    )
}
