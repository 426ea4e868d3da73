//! `gridhook topics`: topics and domains, listed, shown, made, changed and deleted; and their keys.

mod spec;

use awc::http::{Method, StatusCode};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use self::spec::TopicSpecArgs;
pub(super) use self::spec::pair;
use super::{
    client::{self, ClientArgs, ClientError, ResourceName, ResourceNameKind, ServerClient, TextTable},
    format, list, prompt,
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
    verb: TopicsCommand,
}

#[derive(Debug, Subcommand)]
enum TopicsCommand {
    /// All topics, domains and namespaces, or all topics of one of these two
    List {
        /// A domain or a namespace, as domains/NAME: its topics are listed
        #[arg(value_name = "DOMAIN")]
        domain: Option<ResourceName>,
        /// The Azure subscription that is listed
        #[arg(long, value_name = "ID", default_value = "local", conflicts_with = "domain")]
        subscription_id: String,
        #[command(flatten)]
        asked: ClientArgs,
    },
    /// One of them: how it was set up, how it is, and who subscribes
    Show(TopicArgs),
    /// Make one that is not there yet
    Create {
        #[command(flatten)]
        which: TopicArgs,
        #[command(flatten)]
        wish: Box<TopicSpecArgs>,
    },
    /// Change one: what is not named stays as it is
    Update {
        #[command(flatten)]
        which: TopicArgs,
        #[command(flatten)]
        wish: Box<TopicSpecArgs>,
    },
    /// Delete one, with its events and its subscriptions
    Delete {
        #[command(flatten)]
        which: TopicArgs,
        /// Do not ask first
        #[arg(long)]
        yes: bool,
    },
    /// Show its access keys
    Keys {
        #[command(flatten)]
        which: TopicArgs,
        /// Make one of them anew; the other one goes on working
        #[arg(long, value_name = "KEY", value_enum)]
        regenerate: Option<KeyName>,
        /// Do not ask first
        #[arg(long, requires = "regenerate")]
        yes: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeyName {
    Key1,
    Key2,
}

#[derive(Debug, Args)]
struct TopicArgs {
    /// The topic: NAME, domains/NAME, domains/NAME/topics/NAME or a resource id
    topic: ResourceName,
    #[command(flatten)]
    asked: ClientArgs,
}

impl Topics {
    /// Does it; what is to be printed. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where the server cannot be asked, or refuses.
    pub async fn run(self) -> Result<String, ClientError> {
        match self.verb {
            TopicsCommand::List { domain, subscription_id, asked } => list_of(&asked, domain, &subscription_id).await,
            TopicsCommand::Show(which) => which.show().await,
            TopicsCommand::Create { which, wish } => which.create(&wish).await,
            TopicsCommand::Update { which, wish } => which.update(&wish).await,
            TopicsCommand::Delete { which, yes } => which.delete(yes).await,
            TopicsCommand::Keys { which, regenerate, yes } => which.keys(regenerate, yes).await,
        }
    }
}

async fn list_of(
    asked: &ClientArgs,
    domain: Option<ResourceName>,
    subscription_id: &str,
) -> Result<String, ClientError> {
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

impl TopicArgs {
    async fn show(&self) -> Result<String, ClientError> {
        let session = self.asked.control.session()?;
        let topic: Value = session.get(&self.topic.path("")).await?;
        let names = |all: Vec<Value>| -> Value { all.iter().map(|one| one["name"].clone()).collect() };
        let answer = match self.topic.kind() {
            ResourceNameKind::Namespace => {
                let topics = list::all(&session, &self.topic.path("/topics")).await?;
                json!({"namespace": topic, "topics": names(topics)})
            }
            kind @ (ResourceNameKind::Topic | ResourceNameKind::NamespaceTopic | ResourceNameKind::DomainTopic) => {
                // A topic of a domain has no log of its own, and so no state either.
                let status = match kind {
                    ResourceNameKind::DomainTopic => Value::Null,
                    _ => session.get(&self.topic.path("/status")).await?,
                };
                let subscriptions = list::all(&session, &self.topic.path("/eventSubscriptions")).await?;
                json!({"topic": topic, "status": status, "eventSubscriptions": names(subscriptions)})
            }
        };
        self.asked.print(&answer, format_topic)
    }

    async fn create(&self, wish: &TopicSpecArgs) -> Result<String, ClientError> {
        let body = wish.body()?;
        let (session, path) = (self.asked.control.session()?, self.topic.path(""));
        if is_there(&session, &path).await? {
            let name = client::short(&path);
            return Err(ClientError::Input(format!(
                "{name} is there already; gridhook topics update {name} changes it"
            )));
        }
        let made: Value = session.fetch(Method::PUT, &path, Some(&body)).await?;
        self.asked.print(&made, |made| format!("made {}\n{}", name_of(made), facts(made)))
    }

    async fn update(&self, wish: &TopicSpecArgs) -> Result<String, ClientError> {
        let change = wish.change()?;
        let session = self.asked.control.session()?;
        let changed: Value = session.fetch(Method::PATCH, &self.topic.path(""), Some(&change)).await?;
        self.asked.print(&changed, |changed| format!("changed {}\n{}", name_of(changed), facts(changed)))
    }

    async fn delete(&self, yes: bool) -> Result<String, ClientError> {
        let (session, path) = (self.asked.control.session()?, self.topic.path(""));
        let topic: Value = session.get(&path).await?;
        let name = name_of(&topic);
        let below = match self.topic.kind() {
            ResourceNameKind::Namespace => {
                format!("its {} topics", list::all(&session, &self.topic.path("/topics")).await?.len())
            }
            ResourceNameKind::Topic | ResourceNameKind::NamespaceTopic | ResourceNameKind::DomainTopic => {
                let subscriptions = list::all(&session, &self.topic.path("/eventSubscriptions")).await?.len();
                format!("its {subscriptions} event subscriptions")
            }
        };
        prompt::is_sure(&format!("Delete {name}, its events and {below}?"), yes)?;
        session.fetch::<Value>(Method::DELETE, &path, None::<&Value>).await?;
        self.asked.print(&json!({"deleted": topic["id"]}), |_| format!("deleted {name}"))
    }

    async fn keys(&self, regenerate: Option<KeyName>, yes: bool) -> Result<String, ClientError> {
        let session = self.asked.control.session()?;
        let keys: Value = match regenerate {
            None => session.fetch(Method::POST, &self.topic.path("/listKeys"), None::<&Value>).await?,
            Some(key) => {
                let name = match key {
                    KeyName::Key1 => "key1",
                    KeyName::Key2 => "key2",
                };
                let question = format!(
                    "Make {name} of {} anew? Publishers that use it are refused from then on.",
                    client::short(&self.topic.path(""))
                );
                prompt::is_sure(&question, yes)?;
                session.post(&self.topic.path("/regenerateKey"), &json!({"keyName": name})).await?
            }
        };
        self.asked.print(&keys, |keys| {
            let mut table = TextTable::new(["NAME", "KEY"]);
            for name in ["key1", "key2"] {
                table.line([name.to_owned(), format::text(&keys[name])]);
            }
            table.to_string()
        })
    }
}

/// Whether there is something at a path.
pub(super) async fn is_there(session: &ServerClient, path: &str) -> Result<bool, ClientError> {
    match session.ask_only::<Value>(Method::GET, path, None::<&Value>).await {
        Ok(_) => Ok(true),
        Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn name_of(resource: &Value) -> String {
    client::short(resource["id"].as_str().unwrap_or_default())
}

fn listed(all: &Value) -> String {
    let mut table = TextTable::new(["NAME", "SCHEMA", "EDITION", "LOCATION", "ENDPOINT"]);
    for topic in all.as_array().into_iter().flatten() {
        let properties = &topic["properties"];
        let cell = |key: &str| format::text(&properties[key]);
        let location = format::text(&topic["location"]);
        table.line([name_of(topic), cell("inputSchema"), cell("edition"), location, cell("endpoint")]);
    }
    table.to_string()
}

fn format_topic(answer: &Value) -> String {
    let namespace = &answer["namespace"];
    if !namespace.is_null() {
        let topics = format::text(&answer["topics"]);
        return format!("{}\n{}\ntopics               {topics}", name_of(namespace), facts(namespace));
    }
    let (topic, status) = (&answer["topic"], &answer["status"]);
    let subscribers = format::text(&answer["eventSubscriptions"]);
    let mut lines = format!("{}\n{}\nevent subscriptions  {subscribers}", name_of(topic), facts(topic));
    let backlog = &status["largestBacklog"];
    if !backlog.is_null() {
        let (subscription, bytes) = (format::text(&backlog["subscription"]), format::count(&backlog["bytes"]));
        let full = if status["full"] == true { "full: publishers are refused" } else { "almost full" };
        lines.push_str(&format!("\nbacklog              {full}; {subscription} lags by {bytes} bytes"));
    }
    lines
}

/// How it was set up, a fact a line.
fn facts(topic: &Value) -> String {
    let properties = &topic["properties"];
    let tags = topic["tags"].as_object().into_iter().flatten();
    let tags: Vec<_> = tags.map(|(name, value)| format!("{name}={}", format::text(value))).collect();
    let rules = properties["inboundIpRules"].as_array().into_iter().flatten();
    let rules: Vec<_> = rules.map(|rule| format::text(&rule["ipMask"])).collect();
    let local = if properties["disableLocalAuth"] == true { "no" } else { "yes" };
    let all = [
        ("id", format::text(&topic["id"])),
        ("endpoint", format::text(&properties["endpoint"])),
        ("input schema", format::text(&properties["inputSchema"])),
        ("edition", format::text(&properties["edition"])),
        (
            "keeps events",
            properties["eventRetentionInDays"].as_u64().map_or(String::new(), |days| format!("{days} days")),
        ),
        ("location", format::text(&topic["location"])),
        ("tags", tags.join(", ")),
        ("keys are taken", if properties["endpoint"].is_string() { local.to_owned() } else { String::new() }),
        ("public network", format::text(&properties["publicNetworkAccess"])),
        ("allowed from", rules.join(", ")),
    ];
    let told = all.iter().filter(|(_, value)| !value.is_empty() && value != format::NONE);
    told.map(|(name, value)| format!("{name:19}  {value}")).collect::<Vec<_>>().join("\n")
}
