//! `gridhook top`: live figures of the busiest and the least healthy event subscriptions.

mod format;

use std::{pin::pin, time::Duration};

use clap::ValueEnum;
use futures_util::future::{Fuse, FusedFuture, FutureExt};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    client::{ClientResult, ResourceName, ServerArgs, ServerClient},
    output::{self, OutputArgs},
    terminal::{Screen, is_stdio_terminal},
    value::{ValueError, read_duration, whole_number},
};
use gridhook_api::top::{HealthFilter, SortOrder, TopReport};

#[derive(Debug, clap::Args)]
#[command(after_help = keys_and_examples())]
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
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The key that chooses a sort order, and its title.
fn sort_key(order: SortOrder) -> (char, &'static str) {
    match order {
        SortOrder::Activity => ('a', "activity"),
        SortOrder::Health => ('h', "health"),
        SortOrder::Backlog => ('b', "backlog"),
        SortOrder::Pending => ('p', "pending deliveries"),
        SortOrder::Failures => ('f', "failed requests"),
        SortOrder::InFlight => ('i', "requests in flight"),
        SortOrder::DeadLetters => ('d', "events given up"),
        SortOrder::ResponseP50 => ('5', "response time, p50"),
        SortOrder::ResponseP95 => ('9', "response time, p95"),
        SortOrder::ResponseP99 => ('r', "response time, p99"),
        SortOrder::Name => ('n', "name"),
    }
}

/// The keys and the examples, for the help.
fn keys_and_examples() -> String {
    let mut help = "Keys on the live screen: q quits, and these sort:\n".to_owned();
    for order in SortOrder::value_variants() {
        let (key, title) = sort_key(*order);
        help.push_str(&format!("  {key}  {title}\n"));
    }
    help + "Without a terminal, the figures are printed once.\n\n" + EXAMPLES
}

const EXAMPLES: &str = "\
Examples:
  gridhook top
  gridhook top --by health --every 5s
  gridhook top --once --limit 10
  gridhook top domains/shop --health suspended --search billing
  gridhook top --output json | jq '.top[0]'";

/// The name of a value in the query of a request.
fn name_in_query(value: impl Serialize) -> String {
    json!(value).as_str().unwrap_or_default().to_owned()
}

fn parse_interval(text: &str) -> Result<Duration, ValueError> {
    let allowed = Duration::from_millis(500)..=Duration::from_secs(30);
    let interval = read_duration(text).filter(|interval| allowed.contains(interval));
    interval.ok_or(ValueError::Interval)
}

impl Top {
    /// Shows the figures until the operator quits, or returns them once. Needs a running actix
    /// system.
    ///
    /// # Errors
    /// The request failed, or the terminal cannot be used.
    pub async fn run(self) -> ClientResult<Option<String>> {
        let server = self.server.build_client()?;
        let is_live = !self.once && self.output.is_text() && is_stdio_terminal();
        if is_live {
            // An error of the first request appears before the screen is cleared.
            self.fetch_report(&server, self.by).await?;
            self.run_live(&server).await?;
            return Ok(None);
        }
        let report = self.fetch_report(&server, self.by).await?;
        let text =
            |report: &TopReport| format::format_page(report, sort_key(self.by).1, None).join("\n");
        Ok(Some(self.output.format_response(&report, text)?))
    }

    async fn fetch_report(&self, server: &ServerClient, by: SortOrder) -> ClientResult<Value> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("by", &name_in_query(by));
        query.append_pair("top", &self.limit.to_string());
        query.append_pair("skip", &self.skip.to_string());
        if let Some(topic) = &self.topic {
            query.append_pair("topic", &topic.path(""));
        }
        if let Some(search) = &self.search {
            query.append_pair("search", search);
        }
        if let Some(health) = self.health {
            query.append_pair("health", &name_in_query(health));
        }
        server.get(&format!("/top?{}", query.finish())).await
    }

    async fn run_live(&self, server: &ServerClient) -> ClientResult<()> {
        let mut resized = signal(SignalKind::window_change())?;
        let mut screen = Screen::open()?;
        let mut by = self.by;
        let mut lines = Vec::new();
        let mut tick = tokio::time::interval(self.every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Keys and signals must not wait for a request that hangs.
        let mut request = pin!(Fuse::terminated());
        loop {
            tokio::select! {
                page = &mut request => lines = page,
                _ = tick.tick(), if request.is_terminated() => {
                    request.set(self.build_page(server, by).fuse());
                }
                _ = resized.recv() => {}
                key = screen.keyboard.next_key() => {
                    let Some(key) = key else { return Ok(()) };
                    let mut orders = SortOrder::value_variants().iter();
                    if let Some(order) = orders.find(|order| sort_key(**order).0 == char::from(key)) {
                        by = *order;
                        request.set(self.build_page(server, by).fuse());
                    }
                }
            }
            screen.show_lines(&lines)?;
        }
    }

    /// The page to show. A failed request is shown and repeated with the next update.
    async fn build_page(&self, server: &ServerClient, by: SortOrder) -> Vec<String> {
        let report = self.fetch_report(server, by).await;
        match report.and_then(|report| output::read(&report)) {
            Ok(report) => {
                let orders = SortOrder::value_variants().iter();
                let keys: Vec<String> =
                    orders.map(|order| sort_key(*order).0.to_string()).collect();
                format::format_page(&report, sort_key(by).1, Some(&keys.join(" ")))
            }
            Err(error) => vec![error.to_string(), "retrying; q quits".to_owned()],
        }
    }
}
