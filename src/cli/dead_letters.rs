//! `gridhook dead-letters`: a subscription's dead letters, listed, shown, sent again, purged.
//!
//! What a server does a part at a time is asked for until all is done. Nothing is done to all of them by a slip: that has
//! to be said, with `--all`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{self, ClientError, OutputArgs, OutputFormat, ResourceName, ServerArgs, ServerClient, TextTable, segment},
    format, print, prompt,
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
    verb: DeadLettersCommand,
}

#[derive(Debug, Subcommand)]
enum DeadLettersCommand {
    /// List them, those that wait for their file and those in files
    List(ListArgs),
    /// Show one, with its event
    Show(ShowArgs),
    /// Send some again, to their event subscription alone
    Redrive(RedriveArgs),
    /// Give some up for good
    Purge(PurgeArgs),
}

/// Whose.
#[derive(Debug, Args)]
struct SubscriptionArgs {
    /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: ResourceName,
    /// The event subscription
    subscription: String,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Which.
#[derive(Debug, Args)]
struct FilterArgs {
    /// In this place: waiting or written
    #[arg(long, value_name = "STAGE", help_heading = WHICH)]
    stage: Option<String>,
    /// Last tried, or else published, at this time or later, such as 2026-11-20 or 2h
    #[arg(long, value_name = "TIME", value_parser = past, help_heading = WHICH)]
    from: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = past, help_heading = WHICH)]
    to: Option<String>,
    /// Given up for this reason
    #[arg(long, value_name = "REASON", help_heading = WHICH)]
    reason: Option<String>,
    /// Of the event with this id
    #[arg(long, value_name = "ID", help_heading = WHICH)]
    id: Option<String>,
}

/// The heading of what chooses dead letters, in the help.
const WHICH: &str = "Which dead letters";

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
    whose: SubscriptionArgs,
    #[command(flatten)]
    which: FilterArgs,
    /// Maximum number of dead letters
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    whose: SubscriptionArgs,
    /// Its key, as the list has it
    key: String,
}

/// Which ones something is done to.
#[derive(Debug, Args)]
struct SelectionArgs {
    #[command(flatten)]
    which: FilterArgs,
    /// The one with this key, as the list has it; may be given several times
    #[arg(long = "key", value_name = "KEY", help_heading = WHICH)]
    keys: Vec<String>,
    /// All there are
    #[arg(long, help_heading = WHICH)]
    all: bool,
    /// Only count them
    #[arg(long)]
    dry_run: bool,
}

impl SelectionArgs {
    /// Nothing is done to all of them by a slip.
    fn check(&self) -> Result<(), ClientError> {
        if self.all || !self.keys.is_empty() || !self.which.pairs().is_empty() {
            return Ok(());
        }
        let text =
            "it is not said which dead letters; allowed are --key, --id, --reason, --stage, --from and --to, or --all";
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
    whose: SubscriptionArgs,
    #[command(flatten)]
    meant: SelectionArgs,
    /// Do not ask first
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct RedriveArgs {
    #[command(flatten)]
    whose: SubscriptionArgs,
    #[command(flatten)]
    meant: SelectionArgs,
    /// Maximum events per second
    #[arg(long, value_name = "EVENTS")]
    rate: Option<f64>,
    /// Keep files of which everything was sent again
    #[arg(long)]
    keep: bool,
}

impl RedriveArgs {
    async fn run(self) -> Result<String, ClientError> {
        let Self { whose, meant, rate, keep } = self;
        meant.check()?;
        let (session, path) = (whose.control.session()?, whose.path("/redrive"));
        if meant.dry_run {
            let done = in_parts(&session, &path, meant.body()).await?;
            return Ok(whose.format_result(&done, "would be sent again"));
        }
        let mut body = meant.body();
        body["keep"] = keep.into();
        if let Some(rate) = rate {
            body["rate"] = rate.into();
        }
        let begun: Value = session.post(&path, &body).await?;
        Ok(match whose.printed.output {
            OutputFormat::Json => print::json(&begun),
            OutputFormat::Table => format!("redrive {} has begun", begun["job"]),
        })
    }
}

impl DeadLetters {
    /// Does it; what is to be printed.
    pub async fn run(self) -> Result<String, ClientError> {
        match self.verb {
            DeadLettersCommand::List(list) => list.run().await,
            DeadLettersCommand::Show(ShowArgs { whose, key }) => {
                let told: Value = whose.control.session()?.get(&whose.path(&format!("/{}", segment(&key)))).await?;
                Ok(print::json(&told))
            }
            DeadLettersCommand::Redrive(redrive) => redrive.run().await,
            DeadLettersCommand::Purge(PurgeArgs { whose, meant, yes }) => {
                meant.check()?;
                let session = whose.control.session()?;
                if meant.all && !meant.dry_run {
                    let dry = json!({"all": true, "dryRun": true});
                    let count = in_parts(&session, &whose.path("/purge"), dry).await?["deadLetters"].clone();
                    let of = format!("{} of {}", whose.subscription, client::short(&whose.topic.path("")));
                    prompt::is_sure(&format!("Purge all {} dead letters of {of}?", format::count(&count)), yes)?;
                }
                let done = in_parts(&session, &whose.path("/purge"), meant.body()).await?;
                let word = if meant.dry_run { "would be purged" } else { "purged" };
                Ok(whose.format_result(&done, word))
            }
        }
    }
}

impl SubscriptionArgs {
    fn path(&self, rest: &str) -> String {
        self.topic.subscription(&self.subscription, &format!("/deadLetters{rest}"))
    }

    fn format_result(&self, done: &Value, word: &str) -> String {
        match self.printed.output {
            OutputFormat::Json => print::json(done),
            OutputFormat::Table => {
                let lines =
                    std::iter::once(format!("{} dead letters {word}", done["deadLetters"])).chain(problems(done));
                lines.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl ListArgs {
    async fn run(self) -> Result<String, ClientError> {
        let Self { whose, which, limit } = self;
        let session = whose.control.session()?;
        let (mut value, mut told_problems): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
        let mut token: Option<String> = None;
        let is_whole = loop {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(which.pairs()).append_pair("$top", &(limit - value.len()).clamp(1, 1000).to_string());
            if let Some(token) = &token {
                query.append_pair("$skipToken", token);
            }
            let page: Value = session.get(&whose.path(&format!("?{}", query.finish()))).await?;
            value.extend(page["value"].as_array().into_iter().flatten().cloned());
            told_problems.extend(page["problems"].as_array().into_iter().flatten().cloned());
            token = page["nextLink"].as_str().and_then(skip_token);
            if token.is_none() || value.len() >= limit {
                break token.is_none();
            }
        };
        let all = json!({"value": value, "problems": told_problems, "complete": is_whole});
        Ok(match whose.printed.output {
            OutputFormat::Json => print::json(&all),
            OutputFormat::Table => table(&all),
        })
    }
}

/// Where the next page begins, as a link to it says.
fn skip_token(link: &str) -> Option<String> {
    let (_, query) = link.split_once('?')?;
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == "$skipToken")
        .map(|(_, token)| token.into_owned())
}

fn table(all: &Value) -> String {
    let mut table = TextTable::new(["STAGE", "EVENT", "REASON", "ATTEMPTS", "LAST OUTCOME", "LAST ATTEMPT", "KEY"]);
    for letter in all["value"].as_array().into_iter().flatten() {
        let names = [
            "stage",
            "id",
            "deadLetterReason",
            "deliveryAttempts",
            "lastDeliveryOutcome",
            "lastDeliveryAttemptTime",
            "key",
        ];
        table.line(names.map(|name| format::text(&letter[name])));
    }
    let more = (all["complete"] == false).then(|| "there are more: a higher --limit shows them".to_owned());
    let lines = std::iter::once(table.to_string()).chain(more).chain(problems(all));
    lines.collect::<Vec<_>>().join("\n")
}

fn problems(all: &Value) -> impl Iterator<Item = String> {
    let problems = all["problems"].as_array().into_iter().flatten();
    problems
        .map(|problem| format!("not read: {}: {}", format::text(&problem["path"]), format::text(&problem["reason"])))
}

/// Asks until all is done; the sum of the answers.
async fn in_parts(session: &ServerClient, path: &str, mut body: Value) -> Result<Value, ClientError> {
    let (mut dead_letters, mut told_problems): (u64, Vec<Value>) = (0, Vec::new());
    loop {
        let done: Value = session.post(path, &body).await?;
        dead_letters += done["deadLetters"].as_u64().unwrap_or_default();
        told_problems.extend(done["problems"].as_array().into_iter().flatten().cloned());
        match &done["next"] {
            Value::String(next) => body["after"] = next.as_str().into(),
            _ => return Ok(json!({"deadLetters": dead_letters, "dryRun": body["dryRun"], "problems": told_problems})),
        }
    }
}
