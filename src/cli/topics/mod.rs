//! `gridhook topics`: topics and domains, listed, shown, made, changed and deleted; and their keys.

mod wish;

use awc::http::{Method, StatusCode};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use self::wish::Wish;
pub(super) use self::wish::pair;
use super::{
    ask,
    control::{self, Asked, Error, Kind, Resource, Session, Table},
    list, words,
};

/// The flags of `topics`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gridhook topics list
  gridhook topics create orders --input-schema CloudEventSchemaV1_0 --tag team=shop
  gridhook topics create domains/shop
  gridhook topics update orders --allow-from 10.1.0.0/16
  gridhook topics keys orders --regenerate key2 --yes
  gridhook topics delete orders --yes")]
pub struct Topics {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// All topics, domains and namespaces, or all topics of one of these two
    List {
        /// A domain or a namespace, as domains/NAME: its topics are listed
        #[arg(value_name = "DOMAIN")]
        domain: Option<Resource>,
        /// The Azure subscription that is listed
        #[arg(long, value_name = "ID", default_value = "local", conflicts_with = "domain")]
        subscription_id: String,
        #[command(flatten)]
        asked: Asked,
    },
    /// One of them: how it was set up, how it is, and who subscribes
    Show(Which),
    /// Make one that is not there yet
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
    /// Delete one, with its events and its subscriptions
    Delete {
        #[command(flatten)]
        which: Which,
        /// Do not ask first
        #[arg(long)]
        yes: bool,
    },
    /// Show its access keys
    Keys {
        #[command(flatten)]
        which: Which,
        /// Make one of them anew; the other one goes on working
        #[arg(long, value_name = "KEY", value_enum)]
        regenerate: Option<Key>,
        /// Do not ask first
        #[arg(long, requires = "regenerate")]
        yes: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Key {
    Key1,
    Key2,
}

#[derive(Debug, Args)]
struct Which {
    /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: Resource,
    #[command(flatten)]
    asked: Asked,
}

impl Topics {
    /// Does it; what is to be printed. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the server cannot be asked, or refuses.
    pub async fn run(self) -> Result<String, Error> {
        match self.verb {
            Verb::List { domain, subscription_id, asked } => list_of(&asked, domain, &subscription_id).await,
            Verb::Show(which) => which.show().await,
            Verb::Create { which, wish } => which.create(&wish).await,
            Verb::Update { which, wish } => which.update(&wish).await,
            Verb::Delete { which, yes } => which.delete(yes).await,
            Verb::Keys { which, regenerate, yes } => which.keys(regenerate, yes).await,
        }
    }
}

async fn list_of(asked: &Asked, domain: Option<Resource>, subscription_id: &str) -> Result<String, Error> {
    let session = asked.control.session()?;
    let paths = match domain {
        Some(domain) => vec![domain.path("/topics")],
        None => list::KINDS.iter().map(|kind| list::path(subscription_id, kind)).collect(),
    };
    let mut all = Vec::new();
    for path in paths {
        all.extend(list::all(&session, &path).await?);
    }
    asked.print(&Value::from(all), listed)
}

impl Which {
    async fn show(&self) -> Result<String, Error> {
        let session = self.asked.control.session()?;
        let topic: Value = session.get(&self.topic.path("")).await?;
        let names = |all: Vec<Value>| -> Value { all.iter().map(|one| one["name"].clone()).collect() };
        let answer = match self.topic.kind() {
            Kind::Namespace => {
                let topics = list::all(&session, &self.topic.path("/topics")).await?;
                json!({"namespace": topic, "topics": names(topics)})
            }
            kind @ (Kind::Topic | Kind::NamespaceTopic | Kind::DomainTopic) => {
                // A topic of a domain has no log of its own, and so no state either.
                let status = match kind {
                    Kind::DomainTopic => Value::Null,
                    _ => session.get(&self.topic.path("/status")).await?,
                };
                let subscriptions = list::all(&session, &self.topic.path("/eventSubscriptions")).await?;
                json!({"topic": topic, "status": status, "eventSubscriptions": names(subscriptions)})
            }
        };
        self.asked.print(&answer, shown)
    }

    async fn create(&self, wish: &Wish) -> Result<String, Error> {
        let body = wish.body()?;
        let (session, path) = (self.asked.control.session()?, self.topic.path(""));
        if is_there(&session, &path).await? {
            let name = control::short(&path);
            return Err(Error::Input(format!("{name} is there already; gridhook topics update {name} changes it")));
        }
        let made: Value = session.ask(Method::PUT, &path, Some(&body)).await?;
        self.asked.print(&made, |made| format!("made {}\n{}", name_of(made), facts(made)))
    }

    async fn update(&self, wish: &Wish) -> Result<String, Error> {
        let change = wish.change()?;
        let session = self.asked.control.session()?;
        let changed: Value = session.ask(Method::PATCH, &self.topic.path(""), Some(&change)).await?;
        self.asked.print(&changed, |changed| format!("changed {}\n{}", name_of(changed), facts(changed)))
    }

    async fn delete(&self, yes: bool) -> Result<String, Error> {
        let (session, path) = (self.asked.control.session()?, self.topic.path(""));
        let topic: Value = session.get(&path).await?;
        let name = name_of(&topic);
        let below = match self.topic.kind() {
            Kind::Namespace => format!("its {} topics", list::all(&session, &self.topic.path("/topics")).await?.len()),
            Kind::Topic | Kind::NamespaceTopic | Kind::DomainTopic => {
                let subscriptions = list::all(&session, &self.topic.path("/eventSubscriptions")).await?.len();
                format!("its {subscriptions} event subscriptions")
            }
        };
        ask::is_sure(&format!("Delete {name}, its events and {below}?"), yes)?;
        session.ask::<Value>(Method::DELETE, &path, None::<&Value>).await?;
        self.asked.print(&json!({"deleted": topic["id"]}), |_| format!("deleted {name}"))
    }

    async fn keys(&self, regenerate: Option<Key>, yes: bool) -> Result<String, Error> {
        let session = self.asked.control.session()?;
        let keys: Value = match regenerate {
            None => session.ask(Method::POST, &self.topic.path("/listKeys"), None::<&Value>).await?,
            Some(key) => {
                let name = match key {
                    Key::Key1 => "key1",
                    Key::Key2 => "key2",
                };
                let question = format!(
                    "Make {name} of {} anew? Publishers that use it are refused from then on.",
                    control::short(&self.topic.path(""))
                );
                ask::is_sure(&question, yes)?;
                session.post(&self.topic.path("/regenerateKey"), &json!({"keyName": name})).await?
            }
        };
        self.asked.print(&keys, |keys| {
            let mut table = Table::new(["NAME", "KEY"]);
            for name in ["key1", "key2"] {
                table.line([name.to_owned(), words::text(&keys[name])]);
            }
            table.to_string()
        })
    }
}

/// Whether there is something at a path.
pub(super) async fn is_there(session: &Session, path: &str) -> Result<bool, Error> {
    match session.ask_only::<Value>(Method::GET, path, None::<&Value>).await {
        Ok(_) => Ok(true),
        Err(Error::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn name_of(resource: &Value) -> String {
    control::short(resource["id"].as_str().unwrap_or_default())
}

fn listed(all: &Value) -> String {
    let mut table = Table::new(["NAME", "SCHEMA", "EDITION", "LOCATION", "ENDPOINT"]);
    for topic in all.as_array().into_iter().flatten() {
        let properties = &topic["properties"];
        let cell = |key: &str| words::text(&properties[key]);
        let location = words::text(&topic["location"]);
        table.line([name_of(topic), cell("inputSchema"), cell("edition"), location, cell("endpoint")]);
    }
    table.to_string()
}

fn shown(answer: &Value) -> String {
    let namespace = &answer["namespace"];
    if !namespace.is_null() {
        let topics = words::text(&answer["topics"]);
        return format!("{}\n{}\ntopics               {topics}", name_of(namespace), facts(namespace));
    }
    let (topic, status) = (&answer["topic"], &answer["status"]);
    let subscribers = words::text(&answer["eventSubscriptions"]);
    let mut lines = format!("{}\n{}\nevent subscriptions  {subscribers}", name_of(topic), facts(topic));
    let crowd = &status["crowd"];
    if !crowd.is_null() {
        let (laggard, bytes) = (words::text(&crowd["laggard"]), words::count(&crowd["backlogBytes"]));
        let full = if status["full"] == true { "full: publishers are refused" } else { "almost full" };
        lines.push_str(&format!("\nbacklog              {full}; {laggard} lags by {bytes} bytes"));
    }
    lines
}

/// How it was set up, a fact a line.
fn facts(topic: &Value) -> String {
    let properties = &topic["properties"];
    let tags = topic["tags"].as_object().into_iter().flatten();
    let tags: Vec<_> = tags.map(|(name, value)| format!("{name}={}", words::text(value))).collect();
    let rules = properties["inboundIpRules"].as_array().into_iter().flatten();
    let rules: Vec<_> = rules.map(|rule| words::text(&rule["ipMask"])).collect();
    let local = if properties["disableLocalAuth"] == true { "no" } else { "yes" };
    let all = [
        ("id", words::text(&topic["id"])),
        ("endpoint", words::text(&properties["endpoint"])),
        ("input schema", words::text(&properties["inputSchema"])),
        ("edition", words::text(&properties["edition"])),
        (
            "keeps events",
            properties["eventRetentionInDays"].as_u64().map_or(String::new(), |days| format!("{days} days")),
        ),
        ("location", words::text(&topic["location"])),
        ("tags", tags.join(", ")),
        ("keys are taken", if properties["endpoint"].is_string() { local.to_owned() } else { String::new() }),
        ("public network", words::text(&properties["publicNetworkAccess"])),
        ("allowed from", rules.join(", ")),
    ];
    let told = all.iter().filter(|(_, value)| !value.is_empty() && value != words::NONE);
    told.map(|(name, value)| format!("{name:19}  {value}")).collect::<Vec<_>>().join("\n")
}
