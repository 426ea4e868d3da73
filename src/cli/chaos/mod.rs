//! `gridhook chaos`: injects faults into a running server under load, and verifies that no
//! acknowledged event is lost.
//!
//! A run creates its own topic with event subscriptions that deliver to a webhook in this process,
//! publishes to it, and kills actors. Other topics are affected only by faults of the journal and
//! the clock, which all topics share. The run deletes everything it created, also after a signal.
//!
//! The same seed gives the same sequence of kills; their timing relative to the server's work
//! differs.

mod faults;
mod kills;
mod ledger;
mod load;
mod run;
mod verdict;
mod webhook;

use std::{io, net::SocketAddr, time::Duration};

use url::Url;

use self::run::CleanUpError;
pub use self::{
    ledger::{DeliveryLedger, LedgerSummary},
    verdict::ChaosVerdict,
};
use super::{
    client::{self, ServerArgs, server_url},
    output::{CommandError, CommandOutcome, OutputArgs},
    value::{
        ValueError, number_within, parse_address, parse_duration, positive_duration, whole_number,
    },
};
use gridhook_api::chaos::{ActorKind, ChaosKillMethod};

#[derive(Clone, Debug, clap::Args)]
pub struct ChaosCommand {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Duration of load and faults
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = positive_duration)]
    duration: Duration,
    /// Published events per second
    #[arg(long, value_name = "EVENTS", default_value_t = 1_000, value_parser = whole_number::<u32>(1..=100_000))]
    rate: u32,
    /// Number of event subscriptions of the topic
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole_number::<u32>(1..=100))]
    subscriptions: u32,
    /// Maximum events in one request to the webhook
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole_number::<u32>(1..=5_000))]
    batch_events: u32,
    /// Interval between kills; 0s disables kills
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = parse_duration)]
    kill_every: Duration,
    /// Actors and tasks to kill
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "subscription,topic,dead-letter"
    )]
    kill: Vec<ActorKind>,
    /// How to kill them
    #[arg(long, value_enum, value_delimiter = ',', default_value = "panic,stop")]
    kill_by: Vec<ChaosKillMethod>,
    /// Seed of the random kills [default: random]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(0..))]
    seed: Option<u64>,
    #[command(flatten)]
    faults: FaultArgs,
    /// Address of the webhook; port 0 chooses a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = parse_address)]
    listen: SocketAddr,
    /// URL of the webhook as seen by the server, if it differs from --listen
    #[arg(long, value_name = "URL", value_parser = server_url)]
    endpoint: Option<Url>,
    /// URL to publish to, if the control plane has its own address (server.admin_listen)
    #[arg(long, value_name = "URL", value_parser = server_url)]
    publish_to: Option<Url>,
    /// Maximum time to wait for missing events after the load has ended
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    settle: Duration,
}

/// Faults besides kills. Faults of the journal and the clock affect all topics.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Faults")]
struct FaultArgs {
    /// Interval between the faults below
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    fault_every: Duration,
    /// Stall the journal's writes for this time
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    stall_journal: Option<Duration>,
    /// Stall one of the topic's actors for this time
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    stall_actors: Option<Duration>,
    /// Fail this number of journal writes, as a full disk would
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..))]
    fail_writes: Option<u64>,
    /// Shift the wall clock by this step (such as 1h or -1h) for half of --fault-every
    #[arg(long, value_name = "STEP", value_parser = check_step, allow_hyphen_values = true)]
    skew_clock: Option<String>,
    /// Drop this share (0 to 1) of the webhook's responses; their events are repeated
    #[arg(long, value_name = "RATE", value_parser = number_within(0.0..=1.0))]
    drop_responses: Option<f64>,
    /// Corrupt this share (0 to 1) of the webhook's responses; their events are repeated
    #[arg(long, value_name = "RATE", value_parser = number_within(0.0..=1.0))]
    corrupt_responses: Option<f64>,
    /// Delay this share (0 to 1) of the webhook's responses by --delay
    #[arg(long, value_name = "RATE", value_parser = number_within(0.0..=1.0))]
    delay_responses: Option<f64>,
    /// Delay of responses
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "500ms",
        value_parser = positive_duration,
        requires = "delay_responses")]
    delay: Duration,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    #[error(
        "fault injection is disabled; start the server with chaos.enabled = true \
         (GRIDHOOK_CHAOS__ENABLED=true)"
    )]
    Off,
    #[error("{what}: {error}")]
    Server {
        what: &'static str,
        error: Box<client::ClientError>,
    },
    #[error("the webhook cannot listen on {address}: {error}")]
    Webhook {
        address: SocketAddr,
        error: io::Error,
    },
    /// Handlers for signals could not be installed.
    #[error("signal handlers cannot be installed: {0}")]
    Signals(#[from] io::Error),
    /// The topic of the run could not be deleted.
    #[error(
        "the topic {topic} could not be deleted; delete it with gridhook topics delete {topic}: \
         {error}"
    )]
    CleanUp {
        topic: String,
        error: Box<CleanUpError>,
    },
}

impl CommandError for ChaosError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Server { error, .. } if error.is_usage())
    }
}

impl ChaosCommand {
    /// Runs the scenario and formats its verdict.
    pub(super) async fn run_scenario(
        self,
        clock: gridhook_clock::Clock,
    ) -> Result<CommandOutcome, ChaosError> {
        let output = self.output;
        let verdict = run::run(self, clock).await?;
        Ok(CommandOutcome::new(
            output.format_value(&verdict, ToString::to_string),
            verdict.is_ok(),
        ))
    }
}

fn name_of(subscription: usize) -> String {
    format!("ledger-{subscription}")
}

/// Checks a step of the clock, which the server reads.
fn check_step(text: &str) -> Result<String, ValueError> {
    let length = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_step = humantime_serde::re::humantime::parse_duration(length).is_ok();
    if is_step {
        Ok(text.to_owned())
    } else {
        Err(ValueError::ClockStep)
    }
}

/// Whether the server refused the request, as opposed to a failure.
fn is_refusal(error: &client::ClientError) -> bool {
    matches!(error, client::ClientError::Refused { status, .. } if status.is_client_error())
}
