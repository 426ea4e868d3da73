//! `gridhook subscriptions`: event subscriptions, listed, shown, made, changed, deleted, held, probed; and their filters
//! tried.

mod told;
mod wish;

use std::path::PathBuf;

use awc::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::wish::Wish;
use super::{
    ask,
    control::{self, Asked, Error, Kind, Resource, Session, body_of, read_input},
    list,
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
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// All of a topic, a domain or a topic of a domain; without one, all there are
    List {
        /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
        topic: Option<Resource>,
        /// The Azure subscription that is listed where no topic is named
        #[arg(long, value_name = "ID", default_value = "local", conflicts_with = "topic")]
        subscription_id: String,
        #[command(flatten)]
        asked: Asked,
    },
    /// One of them: how it was set up, and how it is
    Show {
        #[command(flatten)]
        which: Which,
        /// Tell the whole address of its endpoint, which may have a secret in it
        #[arg(long)]
        full_url: bool,
    },
    /// Make one that is not there yet; its endpoint is asked first
    Create {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        wish: Box<Wish>,
    },
    /// Change one: what is not named stays as it is
    Update {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        wish: Box<Wish>,
    },
    /// Delete one; what it owes is not delivered any more
    Delete {
        #[command(flatten)]
        which: Which,
        /// Do not ask first
        #[arg(long)]
        yes: bool,
    },
    /// Send nothing for now; what is in flight is finished, what is published waits
    Hold(Which),
    /// Send again
    Resume(Which),
    /// Ask a suspended endpoint now, not when its time has come
    Probe(Which),
    /// A suspended endpoint is healthy from now on
    Release(Which),
    /// Try the filter on events: which match, and what stops the others; nothing is sent
    TestFilter {
        #[command(flatten)]
        which: Which,
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
struct Which {
    /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: Resource,
    /// The event subscription
    subscription: String,
    #[command(flatten)]
    asked: Asked,
}

/// The newest events that a filter is tried on where nobody says how many.
const LAST: u64 = 100;

impl Subscriptions {
    /// Does it; what is to be printed. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the server cannot be asked, or refuses.
    pub async fn run(self, clock: &Clock) -> Result<String, Error> {
        match self.verb {
            Verb::List { topic, subscription_id, asked } => {
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
                asked.print(&Value::from(all), told::listed)
            }
            Verb::Show { which, full_url } => which.show(full_url, clock).await,
            Verb::Create { which, wish } => which.create(&wish).await,
            Verb::Update { which, wish } => which.update(&wish).await,
            Verb::Delete { which, yes } => which.delete(yes).await,
            Verb::Hold(which) => which.say("hold", clock).await,
            Verb::Resume(which) => which.say("resume", clock).await,
            Verb::Probe(which) => which.say("probe", clock).await,
            Verb::Release(which) => which.say("release", clock).await,
            Verb::TestFilter { which, last, events, filter } => which.test_filter(last, events, filter).await,
        }
    }
}

/// All event subscriptions of a topic, or of all topics of a namespace.
async fn all_of(session: &Session, topic: &Resource) -> Result<Vec<Value>, Error> {
    let mut paths = vec![topic.path("/eventSubscriptions")];
    if topic.kind() == Kind::Namespace {
        let topics = list::all(session, &topic.path("/topics")).await?;
        paths = topics.iter().map(|topic| format!("{}/eventSubscriptions", list::id(topic))).collect();
    }
    let mut all = Vec::new();
    for path in paths {
        // Read to its end without a hint: a topic that is not there is asked for once more, for that.
        all.append(&mut match list::all(session, &path).await {
            Err(Error::Refused { .. }) => vec![session.get(&path).await?],
            found => found?,
        });
    }
    Ok(all)
}

impl Which {
    fn path(&self, rest: &str) -> String {
        self.topic.subscription(&self.subscription, rest)
    }

    fn name(&self) -> String {
        format!("{} of {}", self.subscription, control::short(&self.topic.path("")))
    }

    async fn show(&self, full_url: bool, clock: &Clock) -> Result<String, Error> {
        let session = self.asked.control.session()?;
        let mut subscription: Value = session.get(&self.path("")).await?;
        if full_url {
            let full: Value = session.ask(Method::POST, &self.path("/getFullUrl"), None::<&Value>).await?;
            let properties = &mut subscription["properties"];
            let webhook = match self.topic.kind() {
                Kind::NamespaceTopic => &mut properties["deliveryConfiguration"]["push"]["destination"]["properties"],
                Kind::Topic | Kind::DomainTopic | Kind::Namespace => &mut properties["destination"]["properties"],
            };
            webhook["endpointUrl"] = full["endpointUrl"].clone();
        }
        // One that waits for its endpoint's word for the first time has no state yet.
        let status = match session.ask_only(Method::GET, &self.path("/status"), None::<&Value>).await {
            Ok(status) => status,
            Err(Error::Refused { .. }) => Value::Null,
            Err(error) => return Err(error),
        };
        self.asked.print(&json!({"eventSubscription": subscription, "status": status}), |answer| {
            format!("{}\n{}", self.name(), told::shown(answer, clock))
        })
    }

    async fn create(&self, wish: &Wish) -> Result<String, Error> {
        let body = wish.body(self.topic.kind(), None)?;
        let (session, path) = (self.asked.control.session()?, self.path(""));
        if is_there(&session, &path).await? {
            let words = format!("{} is there already; gridhook subscriptions update changes it", self.name());
            return Err(Error::Input(words));
        }
        let made: Value = session.ask(Method::PUT, &path, Some(&body)).await?;
        self.asked.print(&made, |made| format!("made {}\n{}", self.name(), told::facts(made)))
    }

    async fn update(&self, wish: &Wish) -> Result<String, Error> {
        let session = self.asked.control.session()?;
        let kind = self.topic.kind();
        // What the flags mean in a namespace depends on whether events are pushed or pulled.
        let existing: Option<Value> = match kind {
            Kind::NamespaceTopic => Some(session.get(&self.path("")).await?),
            Kind::Topic | Kind::DomainTopic | Kind::Namespace => None,
        };
        let change = wish.change(kind, existing.as_ref())?;
        let changed: Value = session.ask(Method::PATCH, &self.path(""), Some(&change)).await?;
        self.asked.print(&changed, |changed| format!("changed {}\n{}", self.name(), told::facts(changed)))
    }

    async fn delete(&self, yes: bool) -> Result<String, Error> {
        let session = self.asked.control.session()?;
        let subscription: Value = session.get(&self.path("")).await?;
        ask::is_sure(&format!("Delete {}, and what it owes?", self.name()), yes)?;
        session.ask::<Value>(Method::DELETE, &self.path(""), None::<&Value>).await?;
        self.asked.print(&json!({"deleted": subscription["id"]}), |_| format!("deleted {}", self.name()))
    }

    async fn say(&self, word: &str, clock: &Clock) -> Result<String, Error> {
        let session = self.asked.control.session()?;
        let status: Value = session.ask(Method::POST, &self.path(&format!("/{word}")), None::<&Value>).await?;
        self.asked.print(&status, |status| format!("{}\n{}", self.name(), told::state(status, clock)))
    }

    async fn test_filter(
        &self,
        last: Option<u64>,
        events: Option<PathBuf>,
        filter: Option<PathBuf>,
    ) -> Result<String, Error> {
        let mut body = json!({});
        if let Some(path) = &filter {
            body["filter"] = body_of(Some(path))?;
        }
        match &events {
            Some(path) => body["events"] = read_input(path)?,
            None => body["last"] = last.unwrap_or(LAST).into(),
        }
        let report: Value = self.asked.control.session()?.post(&self.path("/testFilter"), &body).await?;
        self.asked.print(&report, told::tested)
    }
}
