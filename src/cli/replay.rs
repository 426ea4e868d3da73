//! `gridhook replay`: sends stored events to one event subscription again.

use std::{fmt::Write as _, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{
    client::{self, ClientArgs, ClientError, ResourceName, ServerClient},
    output::{Command, CommandOutcome, Program, TextTable, block_on},
    print,
    time::past,
};

/// The flags of `replay`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gridhook replay start orders billing --from 2h --dry-run
  gridhook replay start orders billing --from-sequence 1 --rate 100 --watch
  gridhook replay pause orders billing 16")]
pub struct Replay {
    #[command(subcommand)]
    command: ReplayCommand,
}

#[derive(Debug, Subcommand)]
enum ReplayCommand {
    /// Start a replay
    Start {
        #[command(flatten)]
        target: SubscriptionArgs,
        /// Only events published at or after this time, such as 2026-01-31T12:00:00Z or 2h [default: the oldest stored]
        #[arg(long, value_name = "TIME", value_parser = past, conflicts_with = "from_sequence")]
        from: Option<String>,
        /// Only events published before this time [default: now]
        #[arg(long, value_name = "TIME", value_parser = past, conflicts_with = "to_sequence")]
        to: Option<String>,
        /// Only events from this sequence number on
        #[arg(long, value_name = "N")]
        from_sequence: Option<u64>,
        /// Only events up to and including this sequence number
        #[arg(long, value_name = "N")]
        to_sequence: Option<u64>,
        /// Maximum events per second
        #[arg(long, value_name = "EVENTS")]
        rate: Option<f64>,
        /// Count the events without sending them
        #[arg(long, conflicts_with = "watch")]
        dry_run: bool,
        /// Show the progress until the replay has ended
        #[arg(long)]
        watch: bool,
    },
    /// List the running and the last ended replays of an event subscription
    List {
        #[command(flatten)]
        target: SubscriptionArgs,
    },
    /// Show a replay
    Show {
        #[command(flatten)]
        job: JobArgs,
        /// Show the progress until the replay has ended
        #[arg(long)]
        watch: bool,
    },
    /// Pause a replay
    Pause(JobArgs),
    /// Resume a paused replay
    Resume(JobArgs),
    /// Cancel a replay; events that were delivered stay delivered
    Cancel(JobArgs),
}

#[derive(Debug, Args)]
struct SubscriptionArgs {
    /// Topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: ResourceName,
    /// Name of the event subscription
    subscription: String,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, Args)]
struct JobArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    /// Id of the replay, from the list
    id: String,
}

/// The interval between requests for a watched replay.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The width of the progress bar in characters.
const BAR_WIDTH: u64 = 30;

impl Replay {
    /// Runs the command and returns the text to print.
    pub async fn run(self) -> Result<String, ClientError> {
        match self.command {
            ReplayCommand::Start { target, from, to, from_sequence, to_sequence, rate, dry_run, watch } => {
                let given = [
                    ("from", from.map(Value::from)),
                    ("to", to.map(Value::from)),
                    ("fromSequence", from_sequence.map(Value::from)),
                    ("toSequence", to_sequence.map(Value::from)),
                    ("eventsPerSecond", rate.map(Value::from)),
                    ("dryRun", dry_run.then_some(true.into())),
                ];
                let body: Map<String, Value> =
                    given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
                let session = target.client.control.session()?;
                let answer: Value = session.post(&target.path(""), &Value::Object(body)).await?;
                match (dry_run, watch) {
                    (true, _) => target.client.print(&answer, counted),
                    (false, true) => target.watch(&session, text(&answer, "id")).await,
                    (false, false) => target.client.print(&answer, format_job),
                }
            }
            ReplayCommand::List { target } => {
                let answer: Value = target.client.control.session()?.get(&target.path("")).await?;
                target.client.print(&answer, listed)
            }
            ReplayCommand::Show { job: JobArgs { target, id }, watch } => {
                let session = target.client.control.session()?;
                if watch {
                    return target.watch(&session, id).await;
                }
                let answer: Value = session.get(&target.path(&format!("/{}", client::segment(&id)))).await?;
                target.client.print(&answer, format_job)
            }
            ReplayCommand::Pause(job) => job.run_action("pause").await,
            ReplayCommand::Resume(job) => job.run_action("resume").await,
            ReplayCommand::Cancel(job) => job.run_action("cancel").await,
        }
    }
}

impl JobArgs {
    async fn run_action(self, action: &str) -> Result<String, ClientError> {
        let Self { target, id } = self;
        let path = target.path(&format!("/{}/{action}", client::segment(&id)));
        let answer: Value = target.client.control.session()?.post(&path, &json!({})).await?;
        target.client.print(&answer, format_job)
    }
}

impl SubscriptionArgs {
    fn path(&self, rest: &str) -> String {
        self.topic.subscription(&self.subscription, &format!("/replays{rest}"))
    }

    /// Shows a progress line until the replay has ended, then the replay.
    async fn watch(&self, session: &ServerClient, id: String) -> Result<String, ClientError> {
        let path = self.path(&format!("/{}", client::segment(&id)));
        loop {
            let job: Value = session.get(&path).await?;
            let state = text(&job, "state");
            print::update(&bar(&job));
            if !["running", "paused", "canceling"].contains(&state.as_str()) {
                print::note("");
                return self.client.print(&job, format_job);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The progress line of a replay.
fn bar(job: &Value) -> String {
    let (passed, of) = (number(job, "/progress/passed"), number(job, "/progress/total").max(1));
    let full = (passed.min(of) * BAR_WIDTH / of) as usize;
    let mut line = format!("[{}{}] {passed}/{of}", "#".repeat(full), ".".repeat(BAR_WIDTH as usize - full));
    let counts =
        [("delivered", "delivered"), ("pending", "pending"), ("deadLettered", "dead-lettered"), ("dropped", "dropped")];
    for (key, word) in counts {
        let count = number(job, &format!("/counters/{key}"));
        if count > 0 || key == "delivered" {
            // Writing into a String cannot fail.
            write!(line, ", {count} {word}").ok();
        }
    }
    match text(job, "state").as_str() {
        "running" => line + &eta(job).map_or(String::new(), |eta| format!(", {eta} left")),
        state => format!("{line}, {state}"),
    }
}

fn eta(job: &Value) -> Option<String> {
    let seconds = job.pointer("/progress/etaSeconds")?.as_u64()?;
    Some(humantime::format_duration(Duration::from_secs(seconds)).to_string())
}

fn counted(answer: &Value) -> String {
    let [from, to, stored, matching] =
        ["/fromSequence", "/toSequence", "/stored", "/matching"].map(|at| number(answer, at));
    format!("{matching} of {stored} stored events match (sequence numbers {from} to {to}); nothing was sent")
}

fn listed(answer: &Value) -> String {
    jobs(answer["value"].as_array().into_iter().flatten())
}

fn format_job(job: &Value) -> String {
    jobs(std::iter::once(job))
}

fn jobs<'a>(jobs: impl Iterator<Item = &'a Value>) -> String {
    let mut table = TextTable::new([
        "ID",
        "STATE",
        "SEQUENCES",
        "PASSED",
        "MATCHED",
        "DELIVERED",
        "PENDING",
        "DEAD-LETTERED",
        "DROPPED",
        "FAILED",
        "LEFT",
        "STARTED",
    ]);
    for job in jobs {
        let count = |key: &str| number(job, &format!("/counters/{key}")).to_string();
        table.line([
            text(job, "id"),
            text(job, "state"),
            format!("{}-{}", number(job, "/fromSequence"), number(job, "/toSequence")),
            format!("{}/{}", number(job, "/progress/passed"), number(job, "/progress/total")),
            count("matched"),
            count("delivered"),
            count("pending"),
            count("deadLettered"),
            count("dropped"),
            count("requestsFailed"),
            eta(job).unwrap_or_else(|| "-".to_owned()),
            text(job, "started"),
        ]);
    }
    table.to_string()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, at: &str) -> u64 {
    value.pointer(at).and_then(Value::as_u64).unwrap_or_default()
}

impl Command for Replay {
    fn execute(self, _: &Program) -> anyhow::Result<CommandOutcome> {
        block_on(self.run())
    }
}
