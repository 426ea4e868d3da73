//! `gridhook simulate`: what an edition of the delivery policy does to endpoints of many tempers, in virtual time.
//!
//! The settings are those of the server, so that its edition, its concurrency and its waits are what is tried; a flag
//! goes over each of them.

use std::{
    fmt::Display,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    cli::{
        Serve,
        client::{OutputArgs, OutputFormat},
        print,
    },
    clock::Clock,
    config::{self, Config, Policy},
    event::Timestamp,
    simulate::{self, EVENTS_MAX, EndpointModel, SimulationPlan, SimulationReport},
};

/// The flags of `simulate`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Example: gridhook simulate --edition my.toml --model outage:5h --model healthy=3 --plot my.svg\n\
    Tempers: healthy, slow:SHARE of the response wait, black-hole, flapping:DURATION, outage:DURATION,\n\
    overloaded:REQUESTS a second, small-batches:EVENTS, wrong-address:DURATION, faulty:SHARE of the requests,\n\
    bad-events:SHARE of the events"
)]
pub struct Simulate {
    /// The settings; without it the defaults hold
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The edition: a name that the server knows, or a file [default: policy.edition]
    #[arg(long, value_name = "NAME|FILE")]
    edition: Option<String>,
    /// Endpoint model and its share of the subscriptions; may be repeated [default: a mix of all models]
    #[arg(long, value_name = "NAME[:NUMBER][=SHARE]")]
    model: Vec<String>,
    /// How many subscriptions, each with an endpoint of its own
    #[arg(long, value_name = "N", default_value_t = 1000)]
    subscriptions: u32,
    /// How many days
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    days: f64,
    /// Events published in a second; every subscription gets all of them
    #[arg(long, value_name = "N", default_value_t = 0.01)]
    rate: f64,
    /// Where chance begins: the same number gives the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The most events in a request
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: u32,
    /// The most requests in flight for a subscription [default: delivery.concurrency]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// The subscriptions have no place for dead letters
    #[arg(long)]
    without_dead_letters: bool,
    /// Also draw attempts over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Why nothing was simulated, or not drawn.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The settings, or the edition.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// A flag.
    #[error("flag {flag}: {what}")]
    Flag {
        /// Which.
        flag: &'static str,
        /// What it is, and what is allowed.
        what: String,
    },
    /// The picture.
    #[error(transparent)]
    Draw(#[from] simulate::PlotError),
    /// The picture's file.
    #[error("{} cannot be written: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A minute and a half: less is over before anything is tried again.
const DAYS_MIN: f64 = 0.001;

/// 100 days: more says nothing new, because nothing waits longer than one.
const DAYS_MAX: f64 = 100.0;

/// An event in eleven days.
const RATE_MIN: f64 = 0.000_001;

/// 100,000 subscriptions: some kilobytes each.
const SUBSCRIPTIONS_MAX: u32 = 100_000;

/// As Event Grid allows.
const BATCH_MAX: u32 = 5000;

/// As the server's own setting.
const CONCURRENCY_MAX: u32 = 10_000;

impl Simulate {
    /// Simulates, draws, and gives what is to be printed.
    pub fn run(self, clock: &Clock) -> Result<String, SimulateError> {
        let plan = self.plan()?;
        if let Some(path) = &self.plot {
            // Before the work, not after it: a folder that is not there is told at once.
            fs::write(path, "").map_err(unwritable(path))?;
        }
        let progress = SimulationProgress::new(clock);
        let report = simulate::run(&plan, |share| progress.show(share));
        progress.bar.finish_and_clear();
        if let Some(path) = &self.plot {
            fs::write(path, simulate::draw(&report)?).map_err(unwritable(path))?;
        }
        Ok(self.format_report(&report))
    }

    fn format_report(&self, report: &SimulationReport) -> String {
        match self.printed.output {
            OutputFormat::Table => report.to_string().trim_end().to_owned(),
            OutputFormat::Json => print::json(report),
        }
    }

    fn plan(&self) -> Result<SimulationPlan, SimulateError> {
        let Config { delivery, journal, policy, .. } = Config::load(&Serve::of(self.config.clone(), None).sources())?;
        let days = within("--days", self.days, DAYS_MIN..=DAYS_MAX)?;
        let most = (EVENTS_MAX / (days * 86_400.0)).floor();
        let rate = within("--rate", self.rate, RATE_MIN..=most)?;
        let shares = self.shares(rate)?;
        let asked = self.edition.as_ref().unwrap_or(&policy.edition);
        let edition = match policy.editions.get(asked) {
            Some(edition) => edition,
            None if asked.ends_with(".toml") || Path::new(asked).exists() => policy.editions.read(Path::new(asked))?,
            None => return Err(unknown_edition(&policy, asked)),
        };
        let least = SimulationPlan::subscriptions_min(&shares);
        Ok(SimulationPlan {
            edition,
            subscriptions: within("--subscriptions", self.subscriptions, least..=SUBSCRIPTIONS_MAX)?,
            shares,
            span: Duration::from_secs_f64(days * 86_400.0),
            rate,
            seed: self.seed,
            batch: within("--batch", self.batch, 1..=BATCH_MAX)?,
            concurrency: match self.concurrency {
                Some(concurrency) => within("--concurrency", concurrency, 1..=CONCURRENCY_MAX)?,
                None => u32::try_from(delivery.concurrency).unwrap_or(CONCURRENCY_MAX),
            },
            response_wait: delivery.response_wait,
            outcome_wait: journal.outcome_wait,
            dead_letter: !self.without_dead_letters,
        })
    }

    fn shares(&self, rate: f64) -> Result<Vec<(EndpointModel, u32)>, SimulateError> {
        if self.model.is_empty() {
            return Ok(EndpointModel::mix(rate).to_vec());
        }
        let wrong = |what| SimulateError::Flag { flag: "--model", what };
        let read = |text: &String| {
            let (temper, share) = text.rsplit_once('=').unwrap_or((text, "1"));
            let share = share.parse().ok().filter(|share| (1..=SHARE_MAX).contains(share));
            let share =
                share.ok_or_else(|| format!("{text:?} has no share; allowed is a number from 1 to {SHARE_MAX}"));
            Ok((EndpointModel::parse(temper, rate).map_err(wrong)?, share.map_err(wrong)?))
        };
        self.model.iter().map(read).collect()
    }
}

/// A share is a weight: finer than this nobody means it.
const SHARE_MAX: u32 = 10_000;

fn unknown_edition(policy: &Policy, asked: &str) -> SimulateError {
    let names: Vec<_> = policy.editions.names().collect();
    let what = format!("there is no edition {asked:?}; allowed are {}, or a file", names.join(", "));
    SimulateError::Flag { flag: "--edition", what }
}

fn within<T: PartialOrd + Display>(
    flag: &'static str,
    value: T,
    allowed: std::ops::RangeInclusive<T>,
) -> Result<T, SimulateError> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    let what = format!("it is {value}; allowed is a number from {} to {}", allowed.start(), allowed.end());
    Err(SimulateError::Flag { flag, what })
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> SimulateError {
    let path = path.to_owned();
    move |error| SimulateError::Write { path, error }
}

/// A bar on standard error, once it takes longer than a second.
struct SimulationProgress<'a> {
    bar: ProgressBar,
    clock: &'a Clock,
    from: Timestamp,
}

impl<'a> SimulationProgress<'a> {
    fn new(clock: &'a Clock) -> Self {
        let bar = ProgressBar::new(1000);
        bar.set_draw_target(ProgressDrawTarget::hidden());
        let template = "{bar:40} {percent} % of the time, {eta} left";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is one"));
        Self { bar, clock, from: clock.now() }
    }

    fn show(&self, share: f64) {
        if self.bar.is_hidden() && self.clock.now().since(self.from) >= Duration::from_secs(1) {
            // It stays hidden where standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position((share * 1000.0) as u64);
    }
}
