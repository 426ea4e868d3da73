//! `gridhook replay`: sends stored events to one event subscription again.

use std::{fmt::Write as _, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{self, ClientArgs, ClientError, ClientResult, ServerClient, SubscriptionArgs},
    format::{count_with_noun, format_span, optional_number, optional_or_dash},
    output::{TextTable, read},
    progress::StateLine,
    prompt,
    time::parse_past,
    value::{parse_rate, whole_number},
};
use gridhook_api::{
    jobs::OpenJob,
    replay::{DryRun, JobProgress, ReplayBody, ReplayView},
    resource::Page,
    status::CountersView,
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  gridhook replay start orders billing --from 2h --dry-run
  gridhook replay start orders billing --from-sequence 1 --rate 100 --watch
  gridhook replay pause orders billing 16")]
pub enum Replay {
    /// Start a replay
    Start {
        #[command(flatten)]
        target: SubscriptionArgs,
        /// Only events published at or after this time, such as 2026-01-31T12:00:00Z or 2h
        /// [default: the oldest stored]
        #[arg(long, value_name = "TIME", value_parser = parse_past, conflicts_with = "from_sequence")]
        from: Option<String>,
        /// Only events published before this time [default: now]
        #[arg(long, value_name = "TIME", value_parser = parse_past, conflicts_with = "to_sequence")]
        to: Option<String>,
        /// Only events from this sequence number on
        #[arg(long, value_name = "N", value_parser = whole_number::<u64>(0..))]
        from_sequence: Option<u64>,
        /// Only events up to and including this sequence number
        #[arg(long, value_name = "N", value_parser = whole_number::<u64>(0..))]
        to_sequence: Option<u64>,
        /// All stored events
        #[arg(long, conflicts_with_all = ["from", "to", "from_sequence", "to_sequence"])]
        all: bool,
        /// Maximum events per second
        #[arg(long, value_name = "EVENTS", value_parser = parse_rate)]
        rate: Option<f64>,
        /// Count the events without sending them
        #[arg(long, conflicts_with = "watch")]
        dry_run: bool,
        /// Show the progress until the replay has ended
        #[arg(long)]
        watch: bool,
        /// Skip the confirmation
        #[arg(long)]
        yes: bool,
    },
    /// List the running and the last ended replays of an event subscription
    List(SubscriptionArgs),
    /// List the replays and redrives of all event subscriptions that have not ended
    Running(ClientArgs),
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
pub struct JobArgs {
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
    pub async fn run(self) -> ClientResult {
        match self {
            Self::Start {
                target,
                from,
                to,
                from_sequence,
                to_sequence,
                all,
                rate,
                dry_run,
                watch,
                yes,
            } => {
                let has_range = from.is_some()
                    || to.is_some()
                    || from_sequence.is_some()
                    || to_sequence.is_some();
                if !has_range && !all {
                    let text = "no events selected; use --from, --to, --from-sequence or \
                        --to-sequence, or --all";
                    return Err(ClientError::Input(text.to_owned()));
                }
                let body = ReplayBody {
                    from,
                    to,
                    from_sequence,
                    to_sequence,
                    events_per_second: rate,
                    dry_run,
                };
                target.start_replay(body, watch, yes).await
            }
            Self::List(target) => {
                let text = |page: &Page<ReplayView>| format_jobs(&page.value);
                let path = target.path("/replays");
                target.client.get_and_format(&path, text).await
            }
            Self::Running(client) => {
                let report: Value = client.server.build_client()?.get("/jobs?top=1000").await?;
                let jobs = report["jobs"].as_array().cloned().unwrap_or_default();
                client.output.format_list(jobs, |jobs: &[OpenJob]| {
                    let mut table = TextTable::new([
                        "TOPIC",
                        "SUBSCRIPTION",
                        "ID",
                        "KIND",
                        "STATE",
                        "PASSED",
                        "TOTAL",
                    ]);
                    for OpenJob {
                        topic,
                        subscription,
                        job,
                    } in jobs
                    {
                        let kind = job.kind.clone();
                        let state = job.state.clone();
                        let JobProgress { passed, total, .. } = &job.progress;
                        let total = optional_number(*total);
                        let topic = client::short_name(topic);
                        let id = job.id.clone();
                        table.add_row([
                            topic,
                            subscription.clone(),
                            id,
                            kind,
                            state,
                            passed.to_string(),
                            total,
                        ]);
                    }
                    table.to_string()
                })
            }
            Self::Show {
                job: JobArgs { target, id },
                watch,
            } => {
                if watch {
                    let server = target.client.server.build_client()?;
                    return target.watch_replay(&server, id).await;
                }
                let path = target.job_path(&id, "");
                target.client.get_and_format(&path, format_job).await
            }
            Self::Pause(job) => job.run_action("/pause").await,
            Self::Resume(job) => job.run_action("/resume").await,
            Self::Cancel(job) => job.run_action("/cancel").await,
        }
    }
}

impl JobArgs {
    async fn run_action(self, action: &str) -> ClientResult {
        let Self { target, id } = self;
        let path = target.job_path(&id, action);
        target
            .client
            .post_and_format(&path, &json!({}), format_job)
            .await
    }
}

impl SubscriptionArgs {
    /// The path of a replay, with `rest` behind it.
    fn job_path(&self, id: &str, rest: &str) -> String {
        self.path(&format!("/replays/{}{rest}", client::encode_segment(id)))
    }

    async fn start_replay(&self, body: ReplayBody, watch: bool, yes: bool) -> ClientResult {
        let server = self.client.server.build_client()?;
        let path = self.path("/replays");
        if body.dry_run {
            let report: Value = server.send_post(&path, &body).await?;
            return self.client.format_response(&report, format_dry_run);
        }
        if !yes {
            let DryRun { matching, .. } = server
                .send_post(
                    &path,
                    &ReplayBody {
                        dry_run: true,
                        ..body.clone()
                    },
                )
                .await?;
            prompt::ask_confirmation(
                &format!(
                    "Send {} to {} again?",
                    count_with_noun(matching, "event"),
                    self.name()
                ),
                yes,
            )?;
        }
        let job: Value = server.send_post(&path, &body).await?;
        if watch {
            self.watch_replay(&server, read::<ReplayView>(&job)?.id)
                .await
        } else {
            self.client.format_response(&job, format_job)
        }
    }

    /// Shows a progress line until the replay has ended, then the replay. The replay does not
    /// depend on this command.
    async fn watch_replay(&self, server: &ServerClient, id: String) -> ClientResult {
        let path = self.job_path(&id, "");
        let mut line = StateLine::default();
        loop {
            let json: Value = tokio::select! {
                response = server.get(&path) => response?,
                _ = tokio::signal::ctrl_c() => break,
            };
            let job: ReplayView = read(&json)?;
            line.show(&job.state, &progress_line(&job));
            if !is_open(&job.state) {
                line.end();
                return self.client.format_response(&json, format_job);
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = tokio::signal::ctrl_c() => break,
            }
        }
        line.end();
        Err(self.watch_stopped_error(&id))
    }

    /// The message for an operator who ends the command before the replay.
    fn watch_stopped_error(&self, id: &str) -> ClientError {
        let replay = format!("{} {id}", self.command_arguments());
        ClientError::Failed(format!(
            "the replay {id} goes on; gridhook replay show {replay} --watch shows its progress, \
             gridhook replay cancel {replay} ends it"
        ))
    }
}

/// Whether a job in this state goes on.
fn is_open(state: &str) -> bool {
    matches!(state, "running" | "paused" | "canceling")
}

fn progress_line(
    ReplayView {
        state,
        progress,
        counters,
        ..
    }: &ReplayView,
) -> String {
    let passed = progress.passed;
    let total = progress.total.unwrap_or_default().max(1);
    let full = (passed.min(total) * BAR_WIDTH / total) as usize;
    let mut line = format!(
        "[{}{}] {passed}/{total}, {} delivered",
        "#".repeat(full),
        ".".repeat(BAR_WIDTH as usize - full),
        counters.delivered
    );
    let CountersView {
        pending,
        dead_lettered,
        dropped,
        ..
    } = counters;
    for (count, word) in [
        (pending, "pending"),
        (dead_lettered, "dead-lettered"),
        (dropped, "dropped"),
    ] {
        if *count > 0 {
            // Writing into a String cannot fail.
            write!(line, ", {count} {word}").ok();
        }
    }
    match state.as_str() {
        "running" => {
            line + &remaining_time(progress).map_or(String::new(), |eta| format!(", {eta} left"))
        }
        state => format!("{line}, {state}"),
    }
}

fn remaining_time(progress: &JobProgress) -> Option<String> {
    progress
        .eta_seconds
        .map(|seconds| format_span(Duration::from_secs(seconds)))
}

fn format_dry_run(
    DryRun {
        from_sequence,
        to_sequence,
        stored,
        matching,
    }: &DryRun,
) -> String {
    let stored = count_with_noun(*stored, "stored event");
    format!(
        "{matching} of {stored} match (sequence numbers {from_sequence} to {to_sequence}); nothing \
         was sent"
    )
}

fn format_job(job: &ReplayView) -> String {
    format_jobs(std::slice::from_ref(job))
}

fn format_jobs(jobs: &[ReplayView]) -> String {
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
    for ReplayView {
        id,
        state,
        from_sequence,
        to_sequence,
        started,
        progress,
        counters,
        ..
    } in jobs
    {
        table.add_row([
            id.clone(),
            state.clone(),
            optional_or_dash(from_sequence.zip(*to_sequence), |(from, to)| {
                format!("{from}-{to}")
            }),
            format!("{}/{}", progress.passed, optional_number(progress.total)),
            counters.matched.to_string(),
            counters.delivered.to_string(),
            counters.pending.to_string(),
            counters.dead_lettered.to_string(),
            counters.dropped.to_string(),
            counters.requests_failed.to_string(),
            optional_or_dash(remaining_time(progress), |eta| eta),
            started.clone(),
        ]);
    }
    table.to_string()
}
