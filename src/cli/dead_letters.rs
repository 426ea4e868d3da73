//! `gridhook dead-letters`: lists, shows, redrives and purges the dead letters of an event
//! subscription.
//!
//! The server processes dead letters in parts; the commands repeat the request until all are done.
//! Acting on all dead letters requires `--all`.

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::{
    client::{
        self, ClientArgs, ClientError, ClientResult, PagedList, ServerClient, SubscriptionArgs,
        encode_segment,
    },
    format::{
        count_with_noun, group_thousands, join, optional_number, optional_text, text_or_dash,
    },
    output::TextTable,
    print, prompt,
    time::parse_past,
    value::{parse_rate, whole_number},
};
use gridhook_api::dead_letters::{
    DeadLetter, DeadLetterFilter, DeadLetterProblem, DeadLetterPurge, DeadLetterRedrive,
    NewDeadLetterView, PageView, PurgedView, RedriveStartedView,
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  gridhook dead-letters list orders billing --reason TimeToLiveExceeded --from 7d
  gridhook dead-letters newest --reason UndeliverableDueToHttpBadRequest
  gridhook dead-letters redrive orders billing --all --rate 50
  gridhook dead-letters purge orders billing --id 17")]
pub enum DeadLetters {
    /// List dead letters, waiting and written
    List(ListArgs),
    /// List the newest dead letters of all event subscriptions
    Newest(NewestArgs),
    /// Show a dead letter with its event
    Show(ShowArgs),
    /// Send dead letters again, to their event subscription only
    Redrive(RedriveArgs),
    /// Delete dead letters permanently
    Purge(PurgeArgs),
}

#[derive(Debug, Args)]
#[command(next_help_heading = FILTER)]
struct FilterArgs {
    /// Only in this stage: waiting (for its file) or written (to a file)
    #[arg(long, value_name = "STAGE")]
    stage: Option<String>,
    /// Only with the last attempt (or else the publication) at or after this time, such as
    /// 2026-11-20 or 2h
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    from: Option<String>,
    /// Only before this time
    #[arg(long, value_name = "TIME", value_parser = parse_past)]
    to: Option<String>,
    /// Only with this dead-letter reason
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Only with this event id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

/// The heading of the filter flags in the help.
const FILTER: &str = "Which dead letters";

impl FilterArgs {
    fn query_pairs(&self) -> Vec<(&'static str, &String)> {
        let Self {
            stage,
            from,
            to,
            reason,
            id,
        } = self;
        let all = [
            ("stage", stage),
            ("from", from),
            ("to", to),
            ("reason", reason),
            ("id", id),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)))
            .collect()
    }

    fn into_body(self) -> Option<DeadLetterFilter> {
        let is_set = !self.query_pairs().is_empty();
        let Self {
            stage,
            from,
            to,
            reason,
            id,
        } = self;
        is_set.then_some(DeadLetterFilter {
            stage,
            from,
            to,
            reason,
            id,
        })
    }
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    #[command(flatten)]
    which: FilterArgs,
    /// Maximum number of dead letters
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole_number::<usize>(1..))]
    limit: usize,
}

#[derive(Debug, Args)]
pub struct NewestArgs {
    /// Only with this dead-letter reason
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Only of event subscriptions with this text in their name
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Maximum number of lines, newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole_number::<u32>(1..))]
    limit: u32,
    #[command(flatten)]
    client: ClientArgs,
}

impl NewestArgs {
    async fn run(self) -> ClientResult {
        let server = self.client.server.build_client()?;
        let list = PagedList {
            path: "/deadLetters".to_owned(),
            query: &[
                ("reason", self.reason.as_deref()),
                ("search", self.search.as_deref()),
            ],
            key: "value",
            page_max: 500,
            limit: self.limit as usize,
        };
        let lines = server.read_pages(list).await?.items;
        self.client
            .output
            .format_list(lines, |lines: &[NewDeadLetterView]| {
                let mut table = TextTable::new([
                    "TIME",
                    "TOPIC",
                    "SUBSCRIPTION",
                    "REASON",
                    "ATTEMPTS",
                    "EVENTS",
                    "SEQUENCE",
                ]);
                for NewDeadLetterView {
                    topic,
                    subscription,
                    line,
                } in lines
                {
                    let reason = optional_text(&line.reason);
                    let attempts = optional_number(line.attempt);
                    let events = group_thousands(line.events);
                    let sequence = group_thousands(line.first_sequence);
                    table.add_row([
                        line.at.clone(),
                        client::short_name(topic),
                        text_or_dash(subscription),
                        reason,
                        attempts,
                        events,
                        sequence,
                    ]);
                }
                table.to_string()
            })
    }
}

#[derive(Debug, Args)]
pub struct ShowArgs {
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
    #[arg(long, help_heading = FILTER, conflicts_with_all = ["keys", "id", "reason", "stage", "from", "to"])]
    all: bool,
    /// Only count the dead letters
    #[arg(long)]
    dry_run: bool,
}

impl SelectionArgs {
    /// Requires a filter or `--all`, so that a forgotten flag does not affect all dead letters.
    fn purge_body(self) -> ClientResult<DeadLetterPurge> {
        let filter = self.which.into_body();
        if !self.all && self.keys.is_empty() && filter.is_none() {
            let text = "no dead letters selected; use --key, --id, --reason, --stage, --from or \
                --to, or --all";
            return Err(ClientError::Input(text.to_owned()));
        }
        Ok(DeadLetterPurge {
            filter,
            keys: (!self.keys.is_empty()).then_some(self.keys),
            all: self.all,
            dry_run: self.dry_run,
            after: None,
        })
    }
}

#[derive(Debug, Args)]
pub struct PurgeArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Skip the confirmation
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub struct RedriveArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Maximum events per second
    #[arg(long, value_name = "EVENTS", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Keep files whose dead letters were all sent again
    #[arg(long)]
    keep: bool,
}

impl RedriveArgs {
    async fn run(self) -> ClientResult {
        let Self {
            target,
            selection,
            rate,
            keep,
        } = self;
        let DeadLetterPurge {
            filter,
            keys,
            all,
            dry_run,
            after,
        } = selection.purge_body()?;
        let body = DeadLetterRedrive {
            filter,
            keys,
            all,
            dry_run,
            after,
            rate,
            keep,
            total: None,
        };
        let server = target.client.server.build_client()?;
        let path = target.dead_letters("/redrive");
        if dry_run {
            let outcome = in_parts(&server, &path, |after| DeadLetterRedrive {
                after,
                ..body.clone()
            })
            .await?;
            return Ok(target.format_result(&outcome, "would be sent again"));
        }
        let begun: Value = server.send_post(&path, &body).await?;
        target
            .client
            .output
            .format_response(&begun, |RedriveStartedView { job }| {
                format!("redrive {job} started")
            })
    }
}

impl DeadLetters {
    /// Runs the command and returns the text to print.
    pub async fn run(self) -> ClientResult {
        match self {
            Self::List(list) => list.run().await,
            Self::Newest(newest) => newest.run().await,
            Self::Show(ShowArgs { target, key }) => {
                let path = target.dead_letters(&format!("/{}", encode_segment(&key)));
                let view: Box<RawValue> = target.client.server.build_client()?.get(&path).await?;
                Ok(print::raw_json(&view))
            }
            Self::Redrive(redrive) => redrive.run().await,
            Self::Purge(PurgeArgs {
                target,
                selection,
                yes,
            }) => {
                let body = selection.purge_body()?;
                let server = target.client.server.build_client()?;
                let path = target.dead_letters("/purge");
                if !body.dry_run && !yes {
                    let dry = |after| DeadLetterPurge {
                        after,
                        dry_run: true,
                        ..body.clone()
                    };
                    let count = count_with_noun(
                        in_parts(&server, &path, dry).await?.dead_letters,
                        "dead letter",
                    );
                    prompt::ask_confirmation(&format!("Purge {count} of {}?", target.name()), yes)?;
                }
                let outcome = in_parts(&server, &path, |after| DeadLetterPurge {
                    after,
                    ..body.clone()
                })
                .await?;
                let result = if body.dry_run {
                    "would be purged"
                } else {
                    "purged"
                };
                Ok(target.format_result(&outcome, result))
            }
        }
    }
}

impl SubscriptionArgs {
    fn dead_letters(&self, rest: &str) -> String {
        self.path(&format!("/deadLetters{rest}"))
    }

    fn format_result(&self, done: &PurgedView, result: &str) -> String {
        self.client.output.format_value(
            done,
            |PurgedView {
                 dead_letters,
                 problems,
                 ..
             }| {
                let first = format!("{} {result}", count_with_noun(*dead_letters, "dead letter"));
                let problems = problems.iter().map(format_problem);
                join(std::iter::once(first).chain(problems), "\n")
            },
        )
    }
}

impl ListArgs {
    async fn run(self) -> ClientResult {
        let Self {
            target,
            which,
            limit,
        } = self;
        let server = target.client.server.build_client()?;
        let mut all = ListedDeadLetters {
            value: Vec::new(),
            problems: Vec::new(),
            complete: false,
        };
        let mut token: Option<String> = None;
        while !all.complete && all.value.len() < limit {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            let most = (limit - all.value.len()).clamp(1, 1000).to_string();
            query
                .extend_pairs(which.query_pairs())
                .append_pair("$top", &most);
            if let Some(token) = &token {
                query.append_pair("$skipToken", token);
            }
            let page: PageView = server
                .get(&target.dead_letters(&format!("?{}", query.finish())))
                .await?;
            all.value.extend(page.value);
            all.problems.extend(page.problems);
            token = page.next_link.as_deref().and_then(skip_token);
            all.complete = token.is_none();
        }
        Ok(target.client.output.format_value(&all, format_table))
    }
}

/// All pages of a list.
#[derive(Serialize)]
struct ListedDeadLetters {
    value: Vec<DeadLetter>,
    problems: Vec<DeadLetterProblem>,
    /// Whether the list has all dead letters, and was not cut at a limit.
    complete: bool,
}

/// The skip token in the link to the next page.
fn skip_token(link: &str) -> Option<String> {
    let (_, query) = link.split_once('?')?;
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == "$skipToken")
        .map(|(_, token)| token.into_owned())
}

fn format_table(all: &ListedDeadLetters) -> String {
    let mut table = TextTable::new([
        "STAGE",
        "EVENT ID",
        "REASON",
        "ATTEMPTS",
        "LAST OUTCOME",
        "LAST ATTEMPT",
        "KEY",
    ]);
    for dead_letter in &all.value {
        table.add_row([
            text_or_dash(&dead_letter.stage),
            optional_text(&dead_letter.id),
            optional_text(&dead_letter.dead_letter_reason),
            optional_number(dead_letter.delivery_attempts),
            optional_text(&dead_letter.last_delivery_outcome),
            optional_text(&dead_letter.last_delivery_attempt_time),
            text_or_dash(&dead_letter.key),
        ]);
    }
    let more =
        (!all.complete).then(|| "more dead letters exist; raise --limit to show them".to_owned());
    let lines = std::iter::once(table.to_string())
        .chain(more)
        .chain(all.problems.iter().map(format_problem));
    join(lines, "\n")
}

fn format_problem(DeadLetterProblem { path, reason }: &DeadLetterProblem) -> String {
    format!(
        "cannot be read: {}: {}",
        text_or_dash(path),
        text_or_dash(reason)
    )
}

/// Repeats the request until all parts are done, and sums the results.
async fn in_parts<B: Serialize>(
    server: &ServerClient,
    path: &str,
    body: impl Fn(Option<String>) -> B,
) -> ClientResult<PurgedView> {
    let mut all: PurgedView = server.send_post(path, &body(None)).await?;
    while let Some(after) = all.next.take() {
        let part: PurgedView = server.send_post(path, &body(Some(after))).await?;
        all.dead_letters += part.dead_letters;
        all.problems.extend(part.problems);
        all.next = part.next;
    }
    Ok(all)
}
