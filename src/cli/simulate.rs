//! `gridhook simulate`: runs an edition of the delivery policy against endpoint models, in virtual
//! time.
//!
//! Edition, concurrency and timeouts come from the server's settings; flags override them.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Serve,
    output::{CommandError, CommandResult, OutputArgs},
    progress::Progress,
    value::{number_within, parse_rate, whole_number},
};
use gridhook_config::{Config, Policy};
use gridhook_simulate as simulate;
use gridhook_simulate::{EVENTS_MAX, EndpointModel, SimulationPlan};

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Endpoint models: healthy, slow:SHARE of the response timeout, black-hole, \
        flapping:DURATION, outage:DURATION,\n\
        overloaded:REQUESTS per second, small-batches:EVENTS, wrong-address:DURATION, faulty:SHARE \
        of the requests,\n\
        bad-events:SHARE of the events\n\n\
        Example:\n  gridhook simulate --edition my.toml --model outage:5h --model healthy=3"
)]
pub struct Simulate {
    /// Settings file [default: none, the default settings apply]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Edition of the delivery policy: a name or a TOML file [default: policy.edition]
    #[arg(long, value_name = "EDITION")]
    edition: Option<String>,
    /// Endpoint model and its share of the subscriptions; repeatable [default: a mix of all models]
    #[arg(long, value_name = "NAME[:NUMBER][=SHARE]")]
    model: Vec<String>,
    /// Number of event subscriptions, each with its own endpoint
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = whole_number::<u32>(1..=u64::from(SUBSCRIPTIONS_MAX))
    )]
    subscriptions: u32,
    /// Simulated time in days
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = number_within(DAYS_MIN..=DAYS_MAX))]
    days: f64,
    /// Published events per second; every subscription receives all of them
    #[arg(long, value_name = "EVENTS", default_value_t = 0.01, value_parser = parse_rate)]
    rate: f64,
    /// Seed of the random numbers; the same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// Maximum events in one request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u32>(1..=u64::from(BATCH_MAX)))]
    batch: u32,
    /// Maximum requests in flight for each subscription [default: delivery.concurrency]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=u64::from(CONCURRENCY_MAX)))]
    concurrency: Option<u32>,
    /// Simulate subscriptions without a dead-letter destination
    #[arg(long)]
    without_dead_letters: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// A flag has a wrong value.
#[derive(Debug, thiserror::Error)]
#[error("flag {flag}: {problem}")]
struct FlagError {
    flag: &'static str,
    /// The value, and the allowed ones.
    problem: String,
}

impl CommandError for FlagError {
    fn is_usage(&self) -> bool {
        true
    }
}

/// Minimum simulated days, about 86 seconds: a shorter simulation ends before the first retry.
const DAYS_MIN: f64 = 0.001;

/// Maximum simulated days: events live one day at most, so a longer simulation only repeats itself.
const DAYS_MAX: f64 = 100.0;

/// Minimum events per second: one event in eleven days.
const RATE_MIN: f64 = 0.000_001;

/// Maximum subscriptions: each takes some kilobytes of memory.
const SUBSCRIPTIONS_MAX: u32 = 100_000;

/// Maximum events per request, as in Event Grid.
const BATCH_MAX: u32 = 5000;

/// The limit of the setting delivery.concurrency.
const CONCURRENCY_MAX: u32 = 10_000;

impl Simulate {
    /// Runs the simulation and returns the text to print.
    pub(super) fn run(self) -> CommandResult<String> {
        let plan = self.build_plan()?;
        let progress = Progress::with_bar("{bar:40} {percent} % simulated, {eta} left", Some(1000));
        let report = simulate::run(&plan, |share| {
            progress.set_position((share * 1000.0) as u64);
        });
        drop(progress);
        Ok(self
            .output
            .format_value(&report, |report| report.to_string().trim_end().to_owned()))
    }

    fn build_plan(&self) -> CommandResult<SimulationPlan> {
        let Config {
            delivery,
            journal,
            policy,
            ..
        } = Serve::load_config(self.config.clone(), None)?;
        let days = self.days;
        let most = (EVENTS_MAX / (days * 86_400.0)).floor();
        let rate = check_range("--rate", self.rate, RATE_MIN..=most)?;
        let shares = self.endpoint_shares(rate)?;
        let name = self.edition.as_ref().unwrap_or(&policy.edition);
        let edition = match policy.editions.get(name) {
            Some(edition) => edition,
            None if name.ends_with(".toml") || Path::new(name).exists() => {
                policy.editions.read(Path::new(name))?
            }
            None => return Err(unknown_edition(&policy, name).into()),
        };
        let least = SimulationPlan::subscriptions_min(&shares);
        Ok(SimulationPlan {
            edition,
            subscriptions: check_range(
                "--subscriptions",
                self.subscriptions,
                least..=SUBSCRIPTIONS_MAX,
            )?,
            shares,
            span: Duration::from_secs_f64(days * 86_400.0),
            rate,
            seed: self.seed,
            batch: self.batch,
            concurrency: self
                .concurrency
                .unwrap_or_else(|| u32::try_from(delivery.concurrency).unwrap_or(CONCURRENCY_MAX)),
            response_timeout: delivery.response_timeout,
            outcome_delay: journal.outcome_delay,
            dead_letter: !self.without_dead_letters,
        })
    }

    fn endpoint_shares(&self, rate: f64) -> Result<Vec<(EndpointModel, u32)>, FlagError> {
        if self.model.is_empty() {
            return Ok(EndpointModel::practical_mix(rate).to_vec());
        }
        let mut shares = Vec::new();
        for text in &self.model {
            let share = EndpointModel::parse_share(text, rate);
            shares.push(share.map_err(|error| FlagError {
                flag: "--model",
                problem: error.to_string(),
            })?);
        }
        Ok(shares)
    }
}

fn unknown_edition(policy: &Policy, name: &str) -> FlagError {
    let names: Vec<_> = policy.editions.names().collect();
    let problem = format!(
        "there is no edition {name:?}; expected one of {}, or a TOML file",
        names.join(", ")
    );
    FlagError {
        flag: "--edition",
        problem,
    }
}

fn check_range<T: PartialOrd + Display>(
    flag: &'static str,
    value: T,
    allowed: std::ops::RangeInclusive<T>,
) -> Result<T, FlagError> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    let problem = format!(
        "the value is {value}; expected a number from {} to {}",
        allowed.start(),
        allowed.end()
    );
    Err(FlagError { flag, problem })
}
