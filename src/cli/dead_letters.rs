//! `gridhook dead-letters`: a subscription's dead letters, listed, shown, sent again, purged.
//!
//! What a server does a part at a time is asked for until all is done. Nothing is done to all of them by a slip: that has
//! to be said, with `--all`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::control::{Control, Error, Output, Printed, Resource, Session, Table, segment};

/// The flags of `dead-letters`.
#[derive(Debug, Args)]
pub struct DeadLetters {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List them, those that wait for their file and those in files
    List(List),
    /// Show one, with its event
    Show(Show),
    /// Send some again, to their event subscription alone
    Redrive(Redrive),
    /// Give some up for good
    Purge(Purge),
}

/// Whose.
#[derive(Debug, Args)]
struct Whose {
    /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: Resource,
    /// The event subscription
    subscription: String,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    printed: Printed,
}

/// Which.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which")]
struct Which {
    /// In this place: waiting or written
    #[arg(long, value_name = "PLACE")]
    place: Option<String>,
    /// Last tried, or else published, then or later
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Before then
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Given up for this reason
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Of the event with this id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

impl Which {
    fn pairs(&self) -> Vec<(&'static str, &String)> {
        let Self { place, from, to, reason, id } = self;
        let all = [("place", place), ("from", from), ("to", to), ("reason", reason), ("id", id)];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).collect()
    }
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    which: Which,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    whose: Whose,
    /// Its key, as the list has it
    key: String,
}

/// Which ones something is done to.
#[derive(Debug, Args)]
struct Meant {
    #[command(flatten)]
    which: Which,
    /// These, by their keys
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// All there are
    #[arg(long)]
    all: bool,
    /// Only count them
    #[arg(long)]
    dry_run: bool,
}

impl Meant {
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
struct Purge {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    meant: Meant,
}

#[derive(Debug, Args)]
struct Redrive {
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    meant: Meant,
    /// At most so many events in a second
    #[arg(long, value_name = "EVENTS")]
    rate: Option<f64>,
    /// Keep files of which everything was sent again
    #[arg(long)]
    keep: bool,
}

impl Redrive {
    async fn run(self) -> Result<String, Error> {
        let Self { whose, meant, rate, keep } = self;
        let (session, path) = (whose.control.session()?, whose.path("/redrive"));
        if meant.dry_run {
            let done = in_parts(&session, &path, meant.body()).await?;
            return Ok(whose.told(&done, "would be sent again"));
        }
        let mut body = meant.body();
        body["keep"] = keep.into();
        if let Some(rate) = rate {
            body["rate"] = rate.into();
        }
        let begun: Value = session.post(&path, &body).await?;
        Ok(match whose.printed.output {
            Output::Json => pretty(&begun),
            Output::Table => format!("redrive {} has begun", begun["job"]),
        })
    }
}

impl DeadLetters {
    /// Does it; what is to be printed.
    pub async fn run(self) -> Result<String, Error> {
        match self.verb {
            Verb::List(list) => list.run().await,
            Verb::Show(Show { whose, key }) => {
                let told: Value = whose.control.session()?.get(&whose.path(&format!("/{}", segment(&key)))).await?;
                Ok(pretty(&told))
            }
            Verb::Redrive(redrive) => redrive.run().await,
            Verb::Purge(Purge { whose, meant }) => {
                let done = in_parts(&whose.control.session()?, &whose.path("/purge"), meant.body()).await?;
                let word = if meant.dry_run { "would be purged" } else { "purged" };
                Ok(whose.told(&done, word))
            }
        }
    }
}

impl Whose {
    fn path(&self, rest: &str) -> String {
        self.topic.subscription(&self.subscription, &format!("/deadLetters{rest}"))
    }

    fn told(&self, done: &Value, word: &str) -> String {
        match self.printed.output {
            Output::Json => pretty(done),
            Output::Table => {
                let lines = std::iter::once(format!("{} dead letters {word}", done["letters"])).chain(problems(done));
                lines.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl List {
    async fn run(self) -> Result<String, Error> {
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
        let all = json!({"value": value, "problems": told_problems, "whole": is_whole});
        Ok(match whose.printed.output {
            Output::Json => pretty(&all),
            Output::Table => table(&all),
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
    let mut table = Table::new(["PLACE", "EVENT", "REASON", "ATTEMPTS", "LAST OUTCOME", "LAST ATTEMPT", "KEY"]);
    let cell = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    for letter in all["value"].as_array().into_iter().flatten() {
        let names = [
            "place",
            "id",
            "deadLetterReason",
            "deliveryAttempts",
            "lastDeliveryOutcome",
            "lastDeliveryAttemptTime",
            "key",
        ];
        table.line(names.map(|name| cell(&letter[name])));
    }
    let more = (all["whole"] == false).then(|| "there are more: a higher --limit shows them".to_owned());
    let lines = std::iter::once(table.to_string()).chain(more).chain(problems(all));
    lines.collect::<Vec<_>>().join("\n")
}

fn problems(all: &Value) -> impl Iterator<Item = String> {
    let problems = all["problems"].as_array().into_iter().flatten();
    problems.filter_map(|problem| Some(format!("not read: {}: {}", problem["at"].as_str()?, problem["why"].as_str()?)))
}

/// Asks until all is done; the sum of the answers.
async fn in_parts(session: &Session, path: &str, mut body: Value) -> Result<Value, Error> {
    let (mut letters, mut told_problems): (u64, Vec<Value>) = (0, Vec::new());
    loop {
        let done: Value = session.post(path, &body).await?;
        letters += done["letters"].as_u64().unwrap_or_default();
        told_problems.extend(done["problems"].as_array().into_iter().flatten().cloned());
        match &done["next"] {
            Value::String(next) => body["after"] = next.as_str().into(),
            _ => return Ok(json!({"letters": letters, "dryRun": body["dryRun"], "problems": told_problems})),
        }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}
