//! `gridhook subscriptions`: event subscriptions, listed, shown, made, changed, deleted, held, probed; and their filters
//! tried.

mod format;
mod spec;

use std::path::PathBuf;

use awc::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::spec::SubscriptionSpecArgs;
use super::{
    client::{self, ClientArgs, ClientError, ResourceName, ResourceNameKind, ServerClient, body_of, read_input},
    list, prompt,
    topics::is_there,
};
use crate::clock::Clock;

/// The flags of `subscriptions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gridhook subscriptions list orders
  gridhook subscriptions create orders billing --endpoint https://example.com/hook --event-type Order.Placed
  gridhook subscriptions show orders billing
  gridhook subscriptions update orders billing --max-attempts 5 --time-to-live 2h
  gridhook subscriptions hold orders billing; gridhook subscriptions resume orders billing
  gridhook subscriptions probe orders billing
  gridhook subscriptions test-filter orders billing --last 100")]
pub struct Subscriptions {
    #[command(subcommand)]
    verb: SubscriptionsCommand,
}

#[derive(Debug, Subcommand)]
enum SubscriptionsCommand {
    /// All of a topic, a domain or a topic of a domain; without one, all there are
    List {
        /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
        topic: Option<ResourceName>,
        /// The Azure subscription that is listed where no topic is named
        #[arg(long, value_name = "ID", default_value = "local", conflicts_with = "topic")]
        subscription_id: String,
        #[command(flatten)]
        asked: ClientArgs,
    },
    /// One of them: how it was set up, and how it is
    Show {
        #[command(flatten)]
        which: SubscriptionArgs,
        /// Tell the whole address of its endpoint, which may have a secret in it
        #[arg(long)]
        full_url: bool,
    },
    /// Make one that is not there yet; its endpoint is asked first
    Create {
        #[command(flatten)]
        which: SubscriptionArgs,
        #[command(flatten)]
        wish: Box<SubscriptionSpecArgs>,
    },
    /// Change one: what is not named stays as it is
    Update {
        #[command(flatten)]
        which: SubscriptionArgs,
        #[command(flatten)]
        wish: Box<SubscriptionSpecArgs>,
    },
    /// Delete one; what it owes is not delivered any more
    Delete {
        #[command(flatten)]
        which: SubscriptionArgs,
        /// Do not ask first
        #[arg(long)]
        yes: bool,
    },
    /// Send nothing for now; what is in flight is finished, what is published waits
    Hold(SubscriptionArgs),
    /// Send again
    Resume(SubscriptionArgs),
    /// Ask a suspended endpoint now, not when its time has come
    Probe(SubscriptionArgs),
    /// A suspended endpoint is healthy from now on
    Release(SubscriptionArgs),
    /// Try the filter on events: which match, and what stops the others; nothing is sent
    TestFilter {
        #[command(flatten)]
        which: SubscriptionArgs,
        /// So many of the newest events of the topic
        #[arg(long, value_name = "N", conflicts_with = "events")]
        last: Option<u64>,
        /// A file with events as a publisher would send them: one, or a JSON array (- is standard input)
        #[arg(long, value_name = "FILE")]
        events: Option<PathBuf>,
        /// A file with another filter, as JSON: that one is tried
        #[arg(long, value_name = "FILE")]
        filter: Option<PathBuf>,
    },
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

/// The newest events that a filter is tried on where nobody says how many.
const LAST: u64 = 100;

impl Subscriptions {
    /// Does it; what is to be printed. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the server cannot be asked, or refuses.
    pub async fn run(self, clock: &Clock) -> Result<String, ClientError> {
        match self.verb {
            SubscriptionsCommand::List { topic, subscription_id, asked } => {
                let session = asked.control.session()?;
                let all = match topic {
                    Some(topic) => all_of(&session, &topic).await?,
                    None => {
                        let mut all = list::all(&session, &list::path(&subscription_id, "eventSubscriptions")).await?;
                        // Azure's list has none of namespaces.
                        for topic in list::namespace_topics(&session, &subscription_id).await? {
                            let path = format!("{}/eventSubscriptions", list::id(&topic));
                            all.extend(list::all(&session, &path).await?);
                        }
                        all
                    }
                };
                asked.print(&Value::from(all), format::listed)
            }
            SubscriptionsCommand::Show { which, full_url } => which.show(full_url, clock).await,
            SubscriptionsCommand::Create { which, wish } => which.create(&wish).await,
            SubscriptionsCommand::Update { which, wish } => which.update(&wish).await,
            SubscriptionsCommand::Delete { which, yes } => which.delete(yes).await,
            SubscriptionsCommand::Hold(which) => which.run_action("hold", clock).await,
            SubscriptionsCommand::Resume(which) => which.run_action("resume", clock).await,
            SubscriptionsCommand::Probe(which) => which.run_action("probe", clock).await,
            SubscriptionsCommand::Release(which) => which.run_action("release", clock).await,
            SubscriptionsCommand::TestFilter { which, last, events, filter } => {
                which.test_filter(last, events, filter).await
            }
        }
    }
}

/// All event subscriptions of a topic, or of all topics of a namespace.
async fn all_of(session: &ServerClient, topic: &ResourceName) -> Result<Vec<Value>, ClientError> {
    let mut paths = vec![topic.path("/eventSubscriptions")];
    if topic.kind() == ResourceNameKind::Namespace {
        let topics = list::all(session, &topic.path("/topics")).await?;
        paths = topics.iter().map(|topic| format!("{}/eventSubscriptions", list::id(topic))).collect();
    }
    let mut all = Vec::new();
    for path in paths {
        // Read to its end without a hint: a topic that is not there is asked for once more, for that.
        all.append(&mut match list::all(session, &path).await {
            Err(ClientError::Refused { .. }) => vec![session.get(&path).await?],
            found => found?,
        });
    }
    Ok(all)
}

impl SubscriptionArgs {
    fn path(&self, rest: &str) -> String {
        self.topic.subscription(&self.subscription, rest)
    }

    fn name(&self) -> String {
        format!("{} of {}", self.subscription, client::short(&self.topic.path("")))
    }

    async fn show(&self, full_url: bool, clock: &Clock) -> Result<String, ClientError> {
        let session = self.asked.control.session()?;
        let mut subscription: Value = session.get(&self.path("")).await?;
        if full_url {
            let full: Value = session.fetch(Method::POST, &self.path("/getFullUrl"), None::<&Value>).await?;
            let properties = &mut subscription["properties"];
            let webhook = match self.topic.kind() {
                ResourceNameKind::NamespaceTopic => {
                    &mut properties["deliveryConfiguration"]["push"]["destination"]["properties"]
                }
                ResourceNameKind::Topic | ResourceNameKind::DomainTopic | ResourceNameKind::Namespace => {
                    &mut properties["destination"]["properties"]
                }
            };
            webhook["endpointUrl"] = full["endpointUrl"].clone();
        }
        // One that waits for its endpoint's word for the first time has no state yet.
        let status = match session.ask_only(Method::GET, &self.path("/status"), None::<&Value>).await {
            Ok(status) => status,
            Err(ClientError::Refused { .. }) => Value::Null,
            Err(error) => return Err(error),
        };
        self.asked.print(&json!({"eventSubscription": subscription, "status": status}), |answer| {
            format!("{}\n{}", self.name(), format::format_subscription(answer, clock))
        })
    }

    async fn create(&self, wish: &SubscriptionSpecArgs) -> Result<String, ClientError> {
        let body = wish.body(self.topic.kind(), None)?;
        let (session, path) = (self.asked.control.session()?, self.path(""));
        if is_there(&session, &path).await? {
            let words = format!("{} is there already; gridhook subscriptions update changes it", self.name());
            return Err(ClientError::Input(words));
        }
        let made: Value = session.fetch(Method::PUT, &path, Some(&body)).await?;
        self.asked.print(&made, |made| format!("made {}\n{}", self.name(), format::facts(made)))
    }

    async fn update(&self, wish: &SubscriptionSpecArgs) -> Result<String, ClientError> {
        let session = self.asked.control.session()?;
        let kind = self.topic.kind();
        // What the flags mean in a namespace depends on whether events are pushed or pulled.
        let existing: Option<Value> = match kind {
            ResourceNameKind::NamespaceTopic => Some(session.get(&self.path("")).await?),
            ResourceNameKind::Topic | ResourceNameKind::DomainTopic | ResourceNameKind::Namespace => None,
        };
        let change = wish.change(kind, existing.as_ref())?;
        let changed: Value = session.fetch(Method::PATCH, &self.path(""), Some(&change)).await?;
        self.asked.print(&changed, |changed| format!("changed {}\n{}", self.name(), format::facts(changed)))
    }

    async fn delete(&self, yes: bool) -> Result<String, ClientError> {
        let session = self.asked.control.session()?;
        let subscription: Value = session.get(&self.path("")).await?;
        prompt::is_sure(&format!("Delete {}, and what it owes?", self.name()), yes)?;
        session.fetch::<Value>(Method::DELETE, &self.path(""), None::<&Value>).await?;
        self.asked.print(&json!({"deleted": subscription["id"]}), |_| format!("deleted {}", self.name()))
    }

    async fn run_action(&self, word: &str, clock: &Clock) -> Result<String, ClientError> {
        let session = self.asked.control.session()?;
        let status: Value = session.fetch(Method::POST, &self.path(&format!("/{word}")), None::<&Value>).await?;
        self.asked.print(&status, |status| format!("{}\n{}", self.name(), format::state(status, clock)))
    }

    async fn test_filter(
        &self,
        last: Option<u64>,
        events: Option<PathBuf>,
        filter: Option<PathBuf>,
    ) -> Result<String, ClientError> {
        let mut body = json!({});
        if let Some(path) = &filter {
            body["filter"] = body_of(Some(path))?;
        }
        match &events {
            Some(path) => body["events"] = read_input(path)?,
            None => body["last"] = last.unwrap_or(LAST).into(),
        }
        let report: Value = self.asked.control.session()?.post(&self.path("/testFilter"), &body).await?;
        self.asked.print(&report, format::tested)
    }
}
