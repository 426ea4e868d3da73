//! `gridhook chaos`: parts of a running server are killed at random under load, and everything that it acknowledged is
//! accounted for.
//!
//! It makes a topic of its own, with event subscriptions that deliver to a webhook in this process, publishes to it, and
//! kills. Other topics are not touched, unless a fault is asked for that the whole server has one of: its journal, its
//! clock. Whatever was made is taken away at the end, also where a signal came.
//!
//! The same seed draws the same victims in the same order; what they were doing when they died is up to the machine.

mod faults;
mod kills;
mod ledger;
mod load;
mod run;
mod verdict;
mod webhook;

use std::{io, net::SocketAddr, time::Duration};

use clap::ValueEnum;
use humantime_serde::re::humantime::parse_duration;
use url::Url;

pub use self::{
    ledger::{AccountSummary, DeliveryAccount},
    verdict::ChaosVerdict,
};
use super::client::{self, OutputArgs, OutputFormat, ServerArgs};

/// The flags of `chaos`.
#[derive(Clone, Debug, clap::Args)]
pub struct ChaosCommand {
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
    /// How long to publish and to kill
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = some_time)]
    duration: Duration,
    /// How many events to publish in a second
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// How many event subscriptions the topic has
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    subscriptions: u32,
    /// The most events in one request to the webhook
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    batch_events: u32,
    /// How often somebody is killed; 0s kills nobody
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = parse_duration)]
    kill_every: Duration,
    /// Who may be killed
    #[arg(long, value_enum, value_delimiter = ',', default_value = "subscription,topic,dead-letter")]
    kill: Vec<VictimKind>,
    /// By what
    #[arg(long, value_enum, value_delimiter = ',', default_value = "panic,stop")]
    by: Vec<KillMethod>,
    /// What draws the victims; without it another one each time
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    faults: FaultArgs,
    /// Where the webhook listens; port 0 is a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The webhook's address as the server reaches it, where that is another
    #[arg(long, value_name = "URL")]
    endpoint: Option<Url>,
    /// Where publishers connect, where the control plane has an address of its own (server.admin_listen)
    #[arg(long, value_name = "URL")]
    publish_to: Option<Url>,
    /// How long to wait for what has not arrived when the load has ended
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    settle: Duration,
}

/// What else is broken. The whole server has one journal and one clock: other topics feel that too.
#[derive(Clone, Debug, Default, clap::Args)]
struct FaultArgs {
    /// How often one of the faults below begins
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = some_time, help_heading = "Faults")]
    fault_every: Duration,
    /// The journal's writes wait so long
    #[arg(long, value_name = "DURATION", help_heading = "Faults")]
    stall_journal: Option<String>,
    /// One of the topic's actors does nothing for so long
    #[arg(long, value_name = "DURATION", help_heading = "Faults")]
    stall_actors: Option<String>,
    /// So many of the journal's writes fail, as on a full disk
    #[arg(long, value_name = "N", help_heading = "Faults")]
    fail_writes: Option<u64>,
    /// The wall clock is set by so much (as 1h, or -1h), and right again after half of --fault-every
    #[arg(long, value_name = "STEP", allow_hyphen_values = true, help_heading = "Faults")]
    skew_clock: Option<String>,
    /// This share of the webhook's responses is lost, all the time: their events are repeated
    #[arg(long, value_name = "RATE", help_heading = "Faults")]
    drop_responses: Option<f64>,
    /// This share of them is damaged: their events are repeated
    #[arg(long, value_name = "RATE", help_heading = "Faults")]
    corrupt_responses: Option<f64>,
    /// This share of them comes later, by --delay
    #[arg(long, value_name = "RATE", help_heading = "Faults")]
    delay_responses: Option<f64>,
    /// By how much
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "500ms",
        requires = "delay_responses",
        help_heading = "Faults"
    )]
    delay: String,
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum VictimKind {
    /// The actor of one of the topic's event subscriptions
    Subscription,
    /// The topic's actor, and those of its subscriptions with it
    Topic,
    /// The actor that writes dead letters
    DeadLetter,
    /// The task of a request: its events may be repeated
    Delivery,
}

/// How somebody is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KillMethod {
    /// It panics
    Panic,
    /// It stops
    Stop,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// The server does not let anything be broken.
    #[error("the server does not allow it: start it with chaos.enabled = true (GRIDHOOK_CHAOS__ENABLED=true)")]
    Off,
    /// The server did not do as it was asked.
    #[error("{what}: {error}")]
    Server {
        /// What was asked.
        what: &'static str,
        /// What it said.
        error: Box<client::ClientError>,
    },
    /// There is no webhook.
    #[error("the webhook cannot listen on {address}: {error}")]
    Webhook {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// Nobody would hear a Ctrl-C.
    #[error("signals cannot be heard: {0}")]
    Signals(io::Error),
    /// Something is left behind.
    #[error("the topic {topic} could not be deleted, delete it by hand: {why}")]
    CleanUp {
        /// Which.
        topic: String,
        /// Why not.
        why: String,
    },
}

impl ChaosCommand {
    /// How the verdict is to be printed.
    pub fn output(&self) -> OutputFormat {
        self.printed.output
    }

    /// Runs the schedule, and says what it came to. What was made is taken away, whatever happens.
    pub async fn run(self, clock: crate::clock::Clock) -> Result<ChaosVerdict, ChaosError> {
        run::run(self, clock).await
    }
}

/// The name of a subscription.
fn name_of(subscription: usize) -> String {
    format!("ledger-{subscription}")
}

fn some_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("allowed is a duration above zero".to_owned()) } else { Ok(time) }
}

/// Whether a server said no, and did not fail.
fn is_refusal(error: &client::ClientError) -> bool {
    matches!(error, client::ClientError::Refused { status, .. } if status.is_client_error())
}
