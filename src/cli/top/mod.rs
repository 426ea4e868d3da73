//! `gridhook top`: live figures of the busiest and the least healthy event subscriptions.

mod format;
pub(super) mod screen;

use std::{io, time::Duration};

use clap::ValueEnum;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use self::screen::{Keyboard, Screen};
use super::{
    client::{self, ResourceName, ServerArgs, ServerClient},
    output::{self, CommandError, OutputArgs},
    value::{ValueError, read_duration, whole_number},
};
use gridhook_api::top::{HealthFilter, SortOrder, TopReport};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quits; a, h, b, p, f, i, d, r and n sort by activity, health, backlog, pending deliveries, failures, requests
in flight, dead letters, response time and name. Without a terminal, the figures are printed once.

Examples:
  gridhook top
  gridhook top --by health --every 5s
  gridhook top --once --limit 10
  gridhook top domains/shop --health suspended --search billing
  gridhook top --output json | jq '.top[0]'")]
pub struct Top {
    /// Sort order
    #[arg(long, value_enum, default_value_t)]
    by: SortOrder,
    /// Topic (NAME, domains/NAME, domains/NAME/topics/NAME, namespaces/NAME/topics/NAME or a
    /// resource id) [default: all topics]
    topic: Option<ResourceName>,
    /// Text in the names or the endpoints of the event subscriptions
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// State of the event subscriptions
    #[arg(long, value_enum)]
    health: Option<HealthFilter>,
    /// Number of event subscriptions to skip
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole_number::<u32>(0..=1_000_000))]
    skip: u32,
    /// Maximum number of event subscriptions
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole_number::<u32>(1..=500))]
    limit: u32,
    /// Interval between updates
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval)]
    every: Duration,
    /// Print the figures once
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// The key, the order, its name in a request, and its title.
const SORT_KEYS: [(u8, SortOrder, &str, &str); 11] = [
    (b'a', SortOrder::Activity, "activity", "activity"),
    (b'h', SortOrder::Health, "health", "health"),
    (b'b', SortOrder::Backlog, "backlog", "backlog"),
    (b'p', SortOrder::Pending, "pending", "pending deliveries"),
    (b'f', SortOrder::Failures, "failures", "failed requests"),
    (b'i', SortOrder::InFlight, "inFlight", "requests in flight"),
    (b'd', SortOrder::DeadLetters, "deadLetters", "dead letters"),
    (
        b'5',
        SortOrder::ResponseP50,
        "responseP50",
        "response time, p50",
    ),
    (
        b'9',
        SortOrder::ResponseP95,
        "responseP95",
        "response time, p95",
    ),
    (
        b'r',
        SortOrder::ResponseP99,
        "responseP99",
        "response time, p99",
    ),
    (b'n', SortOrder::Name, "name", "name"),
];

fn sort_name(order: SortOrder) -> &'static str {
    SORT_KEYS
        .iter()
        .find(|(_, known, ..)| *known == order)
        .map_or("", |(_, _, name, _)| *name)
}

fn sort_title(order: SortOrder) -> &'static str {
    SORT_KEYS
        .iter()
        .find(|(_, known, ..)| *known == order)
        .map_or("", |(.., title)| *title)
}

/// The keys that choose an order.
fn sort_keys() -> String {
    SORT_KEYS
        .map(|(key, ..)| char::from(key).to_string())
        .join(" ")
}

fn parse_interval(text: &str) -> Result<Duration, ValueError> {
    let allowed = Duration::from_millis(500)..=Duration::from_secs(30);
    let interval = read_duration(text).filter(|interval| allowed.contains(interval));
    interval.ok_or(ValueError::Interval)
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

impl CommandError for TopError {
    fn is_usage(&self) -> bool {
        match self {
            Self::Control(error) => error.is_usage(),
            Self::Terminal(_) => false,
        }
    }
}

impl Top {
    /// Shows the figures until the operator quits, or returns them once. Needs a running actix
    /// system.
    ///
    /// # Errors
    /// The request failed, or the terminal cannot be used.
    pub async fn run(self) -> Result<Option<String>, TopError> {
        let session = self.control.open_session()?;
        let is_live = !self.once && self.printed.is_text() && screen::is_terminal();
        if is_live {
            // An error of the first request appears before the screen is cleared.
            self.fetch_report(&session, self.by).await?;
            self.run_live(&session).await?;
            return Ok(None);
        }
        let report = self.fetch_report(&session, self.by).await?;
        let text =
            |report: &TopReport| format::format_page(report, sort_title(self.by), "").join("\n");
        Ok(Some(self.printed.format_response(&report, text)?))
    }

    async fn fetch_report(
        &self,
        session: &ServerClient,
        by: SortOrder,
    ) -> Result<Value, client::ClientError> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("by", sort_name(by));
        query.append_pair("top", &self.limit.to_string());
        query.append_pair("skip", &self.skip.to_string());
        if let Some(topic) = &self.topic {
            query.append_pair("topic", &topic.path(""));
        }
        if let Some(search) = &self.search {
            query.append_pair("search", search);
        }
        if let Some(health) = self.health.and_then(|health| health.to_possible_value()) {
            query.append_pair("health", health.get_name());
        }
        session.get(&format!("/top?{}", query.finish())).await
    }

    async fn run_live(&self, session: &ServerClient) -> Result<(), TopError> {
        let install = |kind| signal(kind);
        let mut resized = install(SignalKind::window_change())?;
        let mut ends = [
            install(SignalKind::interrupt())?,
            install(SignalKind::terminate())?,
            install(SignalKind::hangup())?,
        ];
        let mut screen = Screen::take_terminal()?;
        let mut keys = screen.typed_keys();
        let mut by = self.by;
        let mut lines = Vec::new();
        let mut tick = tokio::time::interval(self.every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let [interrupt, terminate, hangup] = &mut ends;
        loop {
            tokio::select! {
                _ = tick.tick() => lines = self.build_page(session, by).await,
                _ = resized.recv() => {}
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
                key = keys.recv() => match key {
                    None => return Ok(()),
                    Some(key) if Keyboard::is_quit(key) => return Ok(()),
                    Some(key) => {
                        if let Some((_, order, ..)) = SORT_KEYS.iter().find(|(known, ..)| *known == key) {
                            by = *order;
                            lines = self.build_page(session, by).await;
                        }
                    }
                },
            }
            screen.show_lines(&lines)?;
        }
    }

    /// The page to show. A failed request is shown and repeated with the next update.
    async fn build_page(&self, session: &ServerClient, by: SortOrder) -> Vec<String> {
        match self
            .fetch_report(session, by)
            .await
            .and_then(|report| output::read(&report))
        {
            Ok(report) => format::format_page(&report, sort_title(by), &sort_keys()),
            Err(error) => vec![error.to_string(), "retrying; q quits".to_owned()],
        }
    }
}
