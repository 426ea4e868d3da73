//! `gridhook dead-letters`: lists, shows, redrives and purges the dead letters of an event subscription.
//!
//! The server processes dead letters in parts; the commands repeat the request until all are done. Acting on all dead
//! letters requires `--all`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{self, ClientError, ResourceName, ServerArgs, ServerClient, segment},
    format,
    output::{Command, CommandOutcome, OutputArgs, Program, TextTable, block_on},
    print, prompt,
    time::past,
};

/// The flags of `dead-letters`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gridhook dead-letters list orders billing --reason TimeToLiveExceeded --from 7d
  gridhook dead-letters redrive orders billing --all --rate 50
  gridhook dead-letters purge orders billing --id 17")]
pub struct DeadLetters {
    #[command(subcommand)]
    command: DeadLettersCommand,
}

#[derive(Debug, Subcommand)]
enum DeadLettersCommand {
    /// List dead letters, waiting and written
    List(ListArgs),
    /// Show a dead letter with its event
    Show(ShowArgs),
    /// Send dead letters again, to their event subscription only
    Redrive(RedriveArgs),
    /// Delete dead letters permanently
    Purge(PurgeArgs),
}

/// The event subscription.
#[derive(Debug, Args)]
struct SubscriptionArgs {
    /// Topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: ResourceName,
    /// Name of the event subscription
    subscription: String,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// The filter for dead letters.
#[derive(Debug, Args)]
struct FilterArgs {
    /// Only in this stage: waiting (for its file) or written (to a file)
    #[arg(long, value_name = "STAGE", help_heading = FILTER)]
    stage: Option<String>,
    /// Only with the last attempt (or else the publication) at or after this time, such as 2026-11-20 or 2h
    #[arg(long, value_name = "TIME", value_parser = past, help_heading = FILTER)]
    from: Option<String>,
    /// Only before this time
    #[arg(long, value_name = "TIME", value_parser = past, help_heading = FILTER)]
    to: Option<String>,
    /// Only with this dead-letter reason
    #[arg(long, value_name = "REASON", help_heading = FILTER)]
    reason: Option<String>,
    /// Only with this event id
    #[arg(long, value_name = "ID", help_heading = FILTER)]
    id: Option<String>,
}

/// The heading of the filter flags in the help.
const FILTER: &str = "Which dead letters";

impl FilterArgs {
    fn pairs(&self) -> Vec<(&'static str, &String)> {
        let Self { stage, from, to, reason, id } = self;
        let all = [("stage", stage), ("from", from), ("to", to), ("reason", reason), ("id", id)];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).collect()
    }
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    #[command(flatten)]
    which: FilterArgs,
    /// Maximum number of dead letters
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    /// Key of the dead letter, from the list
    key: String,
}

/// The dead letters to act on.
#[derive(Debug, Args)]
struct SelectionArgs {
    #[command(flatten)]
    which: FilterArgs,
    /// Only the dead letter with this key, from the list; repeatable
    #[arg(long = "key", value_name = "KEY", help_heading = FILTER)]
    keys: Vec<String>,
    /// All dead letters of the event subscription
    #[arg(long, help_heading = FILTER)]
    all: bool,
    /// Only count the dead letters
    #[arg(long)]
    dry_run: bool,
}

impl SelectionArgs {
    /// Requires a filter or `--all`, so that a forgotten flag does not affect all dead letters.
    fn check(&self) -> Result<(), ClientError> {
        if self.all || !self.keys.is_empty() || !self.which.pairs().is_empty() {
            return Ok(());
        }
        let text = "no dead letters selected; use --key, --id, --reason, --stage, --from or --to, or --all";
        Err(ClientError::Input(text.to_owned()))
    }

    fn body(&self) -> Value {
        let mut body = json!({"all": self.all, "dryRun": self.dry_run});
        let filter: serde_json::Map<String, Value> = self
            .which
            .pairs()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Value::from(value.as_str())))
            .collect();
        if !filter.is_empty() {
            body["filter"] = filter.into();
        }
        if !self.keys.is_empty() {
            body["keys"] = json!(self.keys);
        }
        body
    }
}

#[derive(Debug, Args)]
struct PurgeArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Skip the confirmation
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct RedriveArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Maximum events per second
    #[arg(long, value_name = "EVENTS")]
    rate: Option<f64>,
    /// Keep files whose dead letters were all sent again
    #[arg(long)]
    keep: bool,
}

impl RedriveArgs {
    async fn run(self) -> Result<String, ClientError> {
        let Self { target, selection, rate, keep } = self;
        selection.check()?;
        let (session, path) = (target.control.session()?, target.path("/redrive"));
        if selection.dry_run {
            let done = in_parts(&session, &path, selection.body()).await?;
            return Ok(target.format_result(&done, "would be sent again"));
        }
        let mut body = selection.body();
        body["keep"] = keep.into();
        if let Some(rate) = rate {
            body["rate"] = rate.into();
        }
        let begun: Value = session.post(&path, &body).await?;
        Ok(target.printed.format(&begun, |begun| format!("redrive {} started", begun["job"])))
    }
}

impl DeadLetters {
    /// Runs the command and returns the text to print.
    pub async fn run(self) -> Result<String, ClientError> {
        match self.command {
            DeadLettersCommand::List(list) => list.run().await,
            DeadLettersCommand::Show(ShowArgs { target, key }) => {
                let view: Value = target.control.session()?.get(&target.path(&format!("/{}", segment(&key)))).await?;
                Ok(print::json(&view))
            }
            DeadLettersCommand::Redrive(redrive) => redrive.run().await,
            DeadLettersCommand::Purge(PurgeArgs { target, selection, yes }) => {
                selection.check()?;
                let session = target.control.session()?;
                if selection.all && !selection.dry_run {
                    let dry = json!({"all": true, "dryRun": true});
                    let count = in_parts(&session, &target.path("/purge"), dry).await?["deadLetters"].clone();
                    let of = format!("{} of {}", target.subscription, client::short(&target.topic.path("")));
                    prompt::confirm(&format!("Purge all {} dead letters of {of}?", format::count(&count)), yes)?;
                }
                let done = in_parts(&session, &target.path("/purge"), selection.body()).await?;
                let result = if selection.dry_run { "would be purged" } else { "purged" };
                Ok(target.format_result(&done, result))
            }
        }
    }
}

impl SubscriptionArgs {
    fn path(&self, rest: &str) -> String {
        self.topic.subscription(&self.subscription, &format!("/deadLetters{rest}"))
    }

    fn format_result(&self, done: &Value, result: &str) -> String {
        self.printed.format(done, |done| {
            let first = format!("{} dead letters {result}", done["deadLetters"]);
            std::iter::once(first).chain(problems(done)).collect::<Vec<_>>().join("\n")
        })
    }
}

impl ListArgs {
    async fn run(self) -> Result<String, ClientError> {
        let Self { target, which, limit } = self;
        let session = target.control.session()?;
        let (mut value, mut all_problems): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
        let mut token: Option<String> = None;
        let is_complete = loop {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(which.pairs()).append_pair("$top", &(limit - value.len()).clamp(1, 1000).to_string());
            if let Some(token) = &token {
                query.append_pair("$skipToken", token);
            }
            let page: Value = session.get(&target.path(&format!("?{}", query.finish()))).await?;
            value.extend(page["value"].as_array().into_iter().flatten().cloned());
            all_problems.extend(page["problems"].as_array().into_iter().flatten().cloned());
            token = page["nextLink"].as_str().and_then(skip_token);
            if token.is_none() || value.len() >= limit {
                break token.is_none();
            }
        };
        let all = json!({"value": value, "problems": all_problems, "complete": is_complete});
        Ok(target.printed.format(&all, table))
    }
}

/// The skip token in the link to the next page.
fn skip_token(link: &str) -> Option<String> {
    let (_, query) = link.split_once('?')?;
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == "$skipToken")
        .map(|(_, token)| token.into_owned())
}

fn table(all: &Value) -> String {
    let mut table = TextTable::new(["STAGE", "EVENT ID", "REASON", "ATTEMPTS", "LAST OUTCOME", "LAST ATTEMPT", "KEY"]);
    for dead_letter in all["value"].as_array().into_iter().flatten() {
        let names = [
            "stage",
            "id",
            "deadLetterReason",
            "deliveryAttempts",
            "lastDeliveryOutcome",
            "lastDeliveryAttemptTime",
            "key",
        ];
        table.line(names.map(|name| format::text(&dead_letter[name])));
    }
    let more = (all["complete"] == false).then(|| "more dead letters exist; raise --limit to show them".to_owned());
    let lines = std::iter::once(table.to_string()).chain(more).chain(problems(all));
    lines.collect::<Vec<_>>().join("\n")
}

fn problems(all: &Value) -> impl Iterator<Item = String> {
    let problems = all["problems"].as_array().into_iter().flatten();
    problems.map(|problem| {
        format!("cannot be read: {}: {}", format::text(&problem["path"]), format::text(&problem["reason"]))
    })
}

/// Repeats the request until all parts are done, and sums the results.
async fn in_parts(session: &ServerClient, path: &str, mut body: Value) -> Result<Value, ClientError> {
    let (mut count, mut all_problems): (u64, Vec<Value>) = (0, Vec::new());
    loop {
        let done: Value = session.post(path, &body).await?;
        count += done["deadLetters"].as_u64().unwrap_or_default();
        all_problems.extend(done["problems"].as_array().into_iter().flatten().cloned());
        match &done["next"] {
            Value::String(next) => body["after"] = next.as_str().into(),
            _ => return Ok(json!({"deadLetters": count, "dryRun": body["dryRun"], "problems": all_problems})),
        }
    }
}

impl Command for DeadLetters {
    fn execute(self, _: &Program) -> anyhow::Result<CommandOutcome> {
        block_on(self.run())
    }
}
