//! `gridhook top`: the busiest and the sickest event subscriptions, as they are now.

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
    client::{self, OutputArgs, OutputFormat, ServerArgs, ServerClient},
    print,
};

/// The flags of `top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keys: q leaves; a, h, b, p, f and i sort by activity, health, backlog, pending deliveries, failures, and requests in flight.
Where there is no terminal the figures are printed once.

Examples:
  gridhook top
  gridhook top --by health --every 5s
  gridhook top --once --limit 10
  gridhook top --output json | jq '.top[0]'"
)]
pub struct Top {
    /// Which come first
    #[arg(long, value_enum, default_value_t)]
    by: SortOrder,
    /// Maximum number of event subscriptions
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// How often the figures are taken
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = every)]
    every: Duration,
    /// Print them once, with the rates of one such time, and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Which come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum SortOrder {
    /// Those that deliver most
    #[default]
    Activity,
    /// Those whose endpoints are worst off
    Health,
    /// Those that have read least of what is published
    Backlog,
    /// Those with the most pending deliveries
    Pending,
    /// Those that fail most
    Failures,
    /// Those with the most requests in flight
    InFlight,
}

impl SortOrder {
    const KEYS: [(u8, Self, &'static str); 6] = [
        (b'a', Self::Activity, "activity"),
        (b'h', Self::Health, "health"),
        (b'b', Self::Backlog, "backlog"),
        (b'p', Self::Pending, "pending"),
        (b'f', Self::Failures, "failures"),
        (b'i', Self::InFlight, "inFlight"),
    ];

    fn name(self) -> &'static str {
        Self::KEYS.iter().find(|(_, by, _)| *by == self).map_or("", |(_, _, word)| *word)
    }
}

/// The server takes rates over half a second at least.
fn every(text: &str) -> Result<Duration, String> {
    let time = humantime_serde::re::humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_allowed = (Duration::from_millis(500)..=Duration::from_secs(30)).contains(&time);
    if is_allowed { Ok(time) } else { Err("allowed is a duration from 500ms to 30s".to_owned()) }
}

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The server could not be asked.
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// The terminal does not do as it is told.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}

impl Top {
    /// Shows them until somebody leaves, or answers with them once. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the server cannot be asked, or the terminal does not obey.
    pub async fn run(self) -> Result<Option<String>, TopError> {
        let session = self.control.session()?;
        let is_live = !self.once && self.printed.output == OutputFormat::Table && screen::is_terminal();
        if is_live {
            // An error of the first question is told on a screen that is as it was.
            self.fetch(&session, self.by).await?;
            self.live(&session).await?;
            return Ok(None);
        }
        self.fetch(&session, self.by).await?;
        tokio::time::sleep(self.every).await;
        let report = self.fetch(&session, self.by).await?;
        Ok(Some(match self.printed.output {
            OutputFormat::Json => print::json(&report),
            OutputFormat::Table => format::page(&report, self.by.name(), false).join("\n"),
        }))
    }

    async fn fetch(&self, session: &ServerClient, by: SortOrder) -> Result<Value, client::ClientError> {
        session.get(&format!("/top?by={}&top={}", by.name(), self.limit)).await
    }

    async fn live(&self, session: &ServerClient) -> Result<(), TopError> {
        let hear = |kind| signal(kind);
        let (mut resized, mut ends) = (
            hear(SignalKind::window_change())?,
            [hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?, hear(SignalKind::hangup())?],
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
                    // In raw mode Ctrl-C is a key like others.
                    None | Some(b'q' | b'Q' | 3) => return Ok(()),
                    Some(key) => {
                        if let Some((_, wanted, _)) = SortOrder::KEYS.iter().find(|(known, _, _)| *known == key) {
                            by = *wanted;
                            lines = self.page(session, by).await;
                        }
                    }
                },
            }
            screen.show(&lines)?;
        }
    }

    /// What is shown; a server that does not answer is told, and asked again.
    async fn page(&self, session: &ServerClient, by: SortOrder) -> Vec<String> {
        match self.fetch(session, by).await {
            Ok(report) => format::page(&report, by.name(), true),
            Err(error) => vec![error.to_string(), "asking again; q leaves".to_owned()],
        }
    }
}

/// What is typed, from a thread of its own, which nobody waits for.
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
