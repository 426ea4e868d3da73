//! `gridhook top`: live figures of the busiest and the least healthy event subscriptions.

mod format;
mod screen;

use std::{io, time::Duration};

use clap::ValueEnum;
use serde_json::Value;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use self::screen::Screen;
use super::{
    client::{self, ResourceName, ServerArgs, ServerClient},
    output::{self, OutputArgs},
};
use gridhook_api::top::{HealthFilter, SortOrder, TopReport};

/// The flags of `top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keys: q quits; a, h, b, p, f, i, d, r and n sort by activity, health, backlog, pending deliveries, failures, requests
in flight, dead letters, response time and name. Without a terminal, the figures are printed once.

Examples:
  gridhook top
  gridhook top --by health --every 5s
  gridhook top --once --limit 10
  gridhook top domains/shop --status suspended --search billing
  gridhook top --output json | jq '.top[0]'"
)]
pub struct Top {
    /// Sort order
    #[arg(long, value_enum, default_value_t)]
    by: SortOrder,
    /// Topic (NAME, domains/NAME, domains/NAME/topics/NAME or a resource id) [default: all topics]
    topic: Option<ResourceName>,
    /// Text in the names or the endpoints of the event subscriptions
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// State of the event subscriptions
    #[arg(long, value_enum)]
    status: Option<HealthFilter>,
    /// Number of event subscriptions to skip
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    skip: u32,
    /// Maximum number of event subscriptions
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Interval between updates
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = every)]
    every: Duration,
    /// Print the figures once
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// The orders: their keys, and their names in the query.
const SORT_KEYS: [(u8, SortOrder, &str); 9] = [
    (b'a', SortOrder::Activity, "activity"),
    (b'h', SortOrder::Health, "health"),
    (b'b', SortOrder::Backlog, "backlog"),
    (b'p', SortOrder::Pending, "pending"),
    (b'f', SortOrder::Failures, "failures"),
    (b'i', SortOrder::InFlight, "inFlight"),
    (b'd', SortOrder::DeadLetters, "deadLetters"),
    (b'r', SortOrder::ResponseTime, "responseTime"),
    (b'n', SortOrder::Name, "name"),
];

fn sort_name(order: SortOrder) -> &'static str {
    SORT_KEYS.iter().find(|(_, known, _)| *known == order).map_or("", |(_, _, name)| *name)
}

/// Parses the interval.
fn every(text: &str) -> Result<Duration, String> {
    let time = humantime_serde::re::humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_allowed = (Duration::from_millis(500)..=Duration::from_secs(30)).contains(&time);
    if is_allowed { Ok(time) } else { Err("allowed is a duration from 500ms to 30s".to_owned()) }
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The request failed.
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

impl Top {
    /// Shows the figures until the operator quits, or returns them once. Needs a running actix system.
    ///
    /// # Errors
    /// The request failed, or the terminal cannot be used.
    pub async fn run(self) -> Result<Option<String>, TopError> {
        let session = self.control.session()?;
        let is_live = !self.once && self.printed.is_text() && screen::is_terminal();
        if is_live {
            // An error of the first request appears before the screen is cleared.
            self.fetch(&session, self.by).await?;
            self.live(&session).await?;
            return Ok(None);
        }
        let report = self.fetch(&session, self.by).await?;
        let text = |report: &TopReport| format::page(report, sort_name(self.by), false).join("\n");
        Ok(Some(self.printed.response(&report, text)?))
    }

    async fn fetch(&self, session: &ServerClient, by: SortOrder) -> Result<Value, client::ClientError> {
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
        if let Some(status) = self.status.and_then(|status| status.to_possible_value()) {
            query.append_pair("health", status.get_name());
        }
        session.get(&format!("/top?{}", query.finish())).await
    }

    async fn live(&self, session: &ServerClient) -> Result<(), TopError> {
        let install = |kind| signal(kind);
        let (mut resized, mut ends) = (
            install(SignalKind::window_change())?,
            [install(SignalKind::interrupt())?, install(SignalKind::terminate())?, install(SignalKind::hangup())?],
        );
        let mut screen = Screen::take()?;
        let mut keys = keys();
        let (mut by, mut lines) = (self.by, Vec::new());
        let mut tick = tokio::time::interval(self.every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let [interrupt, terminate, hangup] = &mut ends;
        loop {
            tokio::select! {
                _ = tick.tick() => lines = self.page(session, by).await,
                _ = resized.recv() => {}
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
                key = keys.recv() => match key {
                    // In raw mode, Ctrl-C is the byte 3.
                    None | Some(b'q' | b'Q' | 3) => return Ok(()),
                    Some(key) => {
                        if let Some((_, order, _)) = SORT_KEYS.iter().find(|(known, _, _)| *known == key) {
                            by = *order;
                            lines = self.page(session, by).await;
                        }
                    }
                },
            }
            screen.show(&lines)?;
        }
    }

    /// The page to show. A failed request is shown and repeated with the next update.
    async fn page(&self, session: &ServerClient, by: SortOrder) -> Vec<String> {
        match self.fetch(session, by).await.and_then(|report| output::read(&report)) {
            Ok(report) => format::page(&report, sort_name(by), true),
            Err(error) => vec![error.to_string(), "retrying; q quits".to_owned()],
        }
    }
}

/// The typed keys, read on a separate thread that is not joined.
fn keys() -> mpsc::Receiver<u8> {
    let (send, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut byte = [0];
        while io::Read::read(&mut stdin, &mut byte).is_ok_and(|read| read == 1) && send.blocking_send(byte[0]).is_ok() {
        }
    });
    keys
}
