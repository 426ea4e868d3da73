//! `gridhook tail`: follows published events and delivery outcomes live.

use std::{io, time::Duration};

use awc::http::Method;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};
use url::form_urlencoded;

use super::{
    client::{self, ResourceName, ServerArgs, short_name},
    format::{self, count_with_noun, group_thousands, text_or_dash},
    output::{CommandError, OutputArgs},
    print::{self, PipeState},
    top::screen::{Keyboard, is_terminal},
    trace::covered_events,
    value::{ValueError, whole_number},
};
use gridhook_api::{
    ledger::LineView,
    tail::{Ended, Published, TailLine, TailMissed},
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
    of: Option<String>,
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
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

#[derive(Debug, thiserror::Error)]
pub enum TailError {
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// Standard output cannot be written.
    #[error(transparent)]
    Print(#[from] print::PrintError),
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

impl CommandError for TailError {
    fn is_usage(&self) -> bool {
        match self {
            Self::Control(error) => error.is_usage(),
            Self::Print(_) | Self::Terminal(_) => false,
        }
    }
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
    pub async fn run(self) -> Result<(), TailError> {
        let session = self.control.open_session()?;
        let path = self.stream_path()?;
        let request = session
            .build_request(Method::GET, &path)
            .timeout(SILENCE)
            .send();
        let result = session.open_lines(request, STREAM_MAX).await;
        let mut lines = match self.named_resource()? {
            Some((topic, subscription)) => {
                let path = subscription
                    .map_or_else(|| topic.path(""), |name| topic.subscription_path(&name, ""));
                session.with_suggestion(&path, result).await?
            }
            None => result?,
        };
        let mut quit = QuitKeys::watch_keys()?;
        let mut printed = 0;
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(SILENCE, lines.next_line()) => next,
                () = quit.next() => return Ok(()),
            };
            let silence = || {
                let silence = format::format_span(SILENCE);
                client::ClientError::Disconnected(format!("no data for {silence}"))
            };
            let line = next.map_err(|_| silence())??;
            if line.trim_ascii().is_empty() {
                continue;
            }
            if self.print_line(line.trim_ascii_end())? == PipeState::Closed {
                return Ok(());
            }
            printed += 1;
            if self.limit.is_some_and(|limit| printed >= limit) {
                return Ok(());
            }
        }
    }

    /// The named topic and event subscription. A name with one slash is TOPIC/SUBSCRIPTION, unless
    /// it names a domain.
    fn named_resource(
        &self,
    ) -> Result<Option<(ResourceName, Option<String>)>, client::ClientError> {
        let Some(text) = &self.of else {
            return Ok(None);
        };
        let of = |text: &str| {
            text.parse::<ResourceName>()
                .map_err(|error: ValueError| client::ClientError::Input(error.to_string()))
        };
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

    fn stream_path(&self) -> Result<String, client::ClientError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        // With a named subscription, the default is outcomes only.
        let target = self.named_resource()?;
        let is_subscription = matches!(target, Some((_, Some(_))));
        let (events, outcomes) = (
            self.events || (!self.outcomes && !is_subscription),
            !self.events,
        );
        query.append_pair("events", if events { "true" } else { "false" });
        query.append_pair("outcomes", if outcomes { "true" } else { "false" });
        if self.data {
            query.append_pair("data", "true");
        }
        if let Some((topic, subscription)) = &target {
            query.append_pair("topic", &topic.path(""));
            if let Some(name) = subscription {
                query.append_pair("subscription", name);
            }
        }
        let status = self.status.map(|status| status.to_string());
        for (key, value) in [
            ("type", &self.event_type),
            ("outcome", &self.outcome),
            ("status", &status),
        ] {
            if let Some(value) = value {
                query.append_pair(key, value);
            }
        }
        Ok(format!("/tail?{}", query.finish()))
    }

    fn print_line(&self, line: &[u8]) -> Result<PipeState, print::PrintError> {
        let line = String::from_utf8_lossy(line);
        let json = || escape::json_line(&line).into_owned();
        let text = || TailLine::parse(&line).map_or_else(|_| json(), |line| format_line(&line));
        print::print_lines(&self.printed.format_line(json, text))
    }
}

/// The keys and signals that end the command, if it runs in a terminal.
struct QuitKeys(Option<(Keyboard, mpsc::Receiver<u8>, [Signal; 3])>);

impl QuitKeys {
    fn watch_keys() -> io::Result<Self> {
        if !is_terminal() {
            return Ok(Self(None));
        }
        let signals = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ]
        .map(signal);
        let [interrupt, terminate, hangup] = signals;
        let signals = [interrupt?, terminate?, hangup?];
        let keyboard = Keyboard::take_terminal()?;
        let keys = keyboard.typed_keys();
        Ok(Self(Some((keyboard, keys, signals))))
    }

    /// Resolves when the command is to end. The terminal is restored when this is dropped.
    async fn next(&mut self) {
        let Some((_, keys, [interrupt, terminate, hangup])) = &mut self.0 else {
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                key = keys.recv() => match key {
                    Some(key) if !Keyboard::is_quit(key) => {}
                    Some(_) | None => return,
                },
                _ = interrupt.recv() => return,
                _ = terminate.recv() => return,
                _ = hangup.recv() => return,
            }
        }
    }
}

fn format_line(line: &TailLine) -> String {
    let topic = |id: &str| escape::escape_text(&short_name(id)).into_owned();
    match line {
        TailLine::Event(Published {
            at,
            topic: of,
            sequence,
            id,
            event_type,
            subject,
            bytes,
            event,
        }) => {
            let [kind, subject, id] = [event_type, subject, id].map(|name| text_or_dash(name));
            let topic = topic(of);
            let sequence = group_thousands(*sequence);
            let bytes = count_with_noun(*bytes as u64, "byte");
            let event = event
                .as_ref()
                .map(|event| format!("\n    {}", escape::json_line(event.get())));
            let event = event.unwrap_or_default();
            format!(
                "{at}  event    {topic}  {sequence}  {kind}  subject {subject}  id {id}  \
                 ({bytes}){event}"
            )
        }
        TailLine::Outcome(ended) => {
            let Ended {
                topic: of,
                subscription,
                line:
                    LineView {
                        at,
                        step,
                        text: sentence,
                        ..
                    },
            } = &**ended;
            let topic = topic(of);
            let subscription = text_or_dash(subscription);
            let which = covered_events(&ended.line);
            format!(
                "{at}  {step:8} {topic}/{subscription}  {which}: {}",
                text_or_dash(sentence)
            )
        }
        TailLine::Missed(TailMissed { count }) => {
            format!(
                "… lost {}: the reader was too slow",
                count_with_noun(*count, "line")
            )
        }
    }
}
