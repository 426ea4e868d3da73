//! `gridhook replay`: events that are stored, sent to one event subscription once more.

use std::{fmt::Write as _, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{
    client::{self, ClientArgs, ClientError, ResourceName, ServerClient, TextTable},
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
    verb: ReplayCommand,
}

#[derive(Debug, Subcommand)]
enum ReplayCommand {
    /// Begin one
    Start {
        #[command(flatten)]
        of: SubscriptionArgs,
        /// Events appended at this time or later, such as 2026-01-31T12:00:00Z or 2h [default: all that is stored]
        #[arg(long, value_name = "TIME", value_parser = past, conflicts_with = "from_sequence")]
        from: Option<String>,
        /// Events appended before this time [default: all that is stored by now]
        #[arg(long, value_name = "TIME", value_parser = past, conflicts_with = "to_sequence")]
        to: Option<String>,
        /// Events from this sequence on
        #[arg(long, value_name = "N")]
        from_sequence: Option<u64>,
        /// Events up to this sequence, with it
        #[arg(long, value_name = "N")]
        to_sequence: Option<u64>,
        /// Maximum events per second
        #[arg(long, value_name = "EVENTS")]
        rate: Option<f64>,
        /// Count what would be sent, and send nothing
        #[arg(long, conflicts_with = "watch")]
        dry_run: bool,
        /// Show how far it is until it has ended
        #[arg(long)]
        watch: bool,
    },
    /// All of an event subscription: those that go on, and the last that have ended
    List {
        #[command(flatten)]
        of: SubscriptionArgs,
    },
    /// One of them
    Show {
        #[command(flatten)]
        which: JobArgs,
        /// Show how far it is until it has ended
        #[arg(long)]
        watch: bool,
    },
    /// Send nothing of it for now
    Pause(JobArgs),
    /// Go on with it
    Resume(JobArgs),
    /// End it; what has been delivered stays delivered
    Cancel(JobArgs),
}

#[derive(Debug, Args)]
struct SubscriptionArgs {
    /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: ResourceName,
    /// The event subscription
    subscription: String,
    #[command(flatten)]
    asked: ClientArgs,
}

#[derive(Debug, Args)]
struct JobArgs {
    #[command(flatten)]
    of: SubscriptionArgs,
    /// Its id, as list shows it
    id: String,
}

/// How often a watched job is asked for.
const LOOK: Duration = Duration::from_millis(500);

/// So many characters a bar has.
const BAR: u64 = 30;

impl Replay {
    /// Does it; what is to be printed.
    pub async fn run(self) -> Result<String, ClientError> {
        match self.verb {
            ReplayCommand::Start { of, from, to, from_sequence, to_sequence, rate, dry_run, watch } => {
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
                let session = of.asked.control.session()?;
                let answer: Value = session.post(&of.path(""), &Value::Object(body)).await?;
                match (dry_run, watch) {
                    (true, _) => of.asked.print(&answer, counted),
                    (false, true) => of.watch(&session, text(&answer, "id")).await,
                    (false, false) => of.asked.print(&answer, format_job),
                }
            }
            ReplayCommand::List { of } => {
                let answer: Value = of.asked.control.session()?.get(&of.path("")).await?;
                of.asked.print(&answer, listed)
            }
            ReplayCommand::Show { which: JobArgs { of, id }, watch } => {
                let session = of.asked.control.session()?;
                if watch {
                    return of.watch(&session, id).await;
                }
                let answer: Value = session.get(&of.path(&format!("/{}", client::segment(&id)))).await?;
                of.asked.print(&answer, format_job)
            }
            ReplayCommand::Pause(which) => which.run_action("pause").await,
            ReplayCommand::Resume(which) => which.run_action("resume").await,
            ReplayCommand::Cancel(which) => which.run_action("cancel").await,
        }
    }
}

impl JobArgs {
    async fn run_action(self, word: &str) -> Result<String, ClientError> {
        let Self { of, id } = self;
        let path = of.path(&format!("/{}/{word}", client::segment(&id)));
        let answer: Value = of.asked.control.session()?.post(&path, &json!({})).await?;
        of.asked.print(&answer, format_job)
    }
}

impl SubscriptionArgs {
    fn path(&self, rest: &str) -> String {
        self.topic.subscription(&self.subscription, &format!("/replays{rest}"))
    }

    /// Shows one line that changes until the job has ended, and then the job.
    async fn watch(&self, session: &ServerClient, id: String) -> Result<String, ClientError> {
        let path = self.path(&format!("/{}", client::segment(&id)));
        loop {
            let job: Value = session.get(&path).await?;
            let state = text(&job, "state");
            print::update(&bar(&job));
            if !["running", "paused", "canceling"].contains(&state.as_str()) {
                print::note("");
                return self.asked.print(&job, format_job);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// A line with how far a job is.
fn bar(job: &Value) -> String {
    let (passed, of) = (number(job, "/progress/passed"), number(job, "/progress/total").max(1));
    let full = (passed.min(of) * BAR / of) as usize;
    let mut line = format!("[{}{}] {passed}/{of}", "#".repeat(full), ".".repeat(BAR as usize - full));
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
    format!("{matching} of {stored} stored events match (sequences {from} to {to}); nothing was sent")
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
        "DEAD",
        "DROPPED",
        "FAILED",
        "LEFT",
        "BEGAN",
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
