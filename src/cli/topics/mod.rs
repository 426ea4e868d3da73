//! `gridhook topics`: manages topics, domains, namespaces and their access keys.

mod format;
mod spec;

use awc::http::{Method, StatusCode};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use self::{format::TopicResource, spec::TopicSpecArgs};
use super::{
    client::{
        self, ClientArgs, ClientError, Precondition, ResourceName, ResourceNameKind, ServerClient,
    },
    format::{counted, text},
    list,
    output::TextTable,
    prompt,
};
use gridhook_api::{resource::NamedResource, topic::SharedAccessKeys, what_if::Difference};

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
    command: TopicsCommand,
}

#[derive(Debug, Subcommand)]
enum TopicsCommand {
    /// List topics, domains and namespaces, or the topics of a domain or a namespace
    List {
        /// Domain or namespace whose topics to list, such as domains/NAME
        #[arg(value_name = "DOMAIN")]
        domain: Option<ResourceName>,
        /// Azure subscription to list
        #[arg(
            long,
            value_name = "ID",
            default_value = "local",
            conflicts_with = "domain"
        )]
        subscription_id: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show the configuration, status and event subscriptions of a topic
    Show(TopicArgs),
    /// Create a topic, a domain or a namespace
    Create {
        #[command(flatten)]
        target: TopicArgs,
        #[command(flatten)]
        spec: Box<TopicSpecArgs>,
    },
    /// Change the given properties of a topic
    Update {
        #[command(flatten)]
        target: TopicArgs,
        #[command(flatten)]
        spec: Box<TopicSpecArgs>,
    },
    /// Delete a topic with its events and event subscriptions
    Delete {
        #[command(flatten)]
        target: TopicArgs,
        /// Skip the confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Show or regenerate the access keys of a topic
    Keys {
        #[command(flatten)]
        target: TopicArgs,
        /// Regenerate this key; the other key stays valid
        #[arg(long, value_name = "KEY", value_enum)]
        regenerate: Option<KeyName>,
        /// Skip the confirmation
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
    /// Topic: NAME, domains/NAME, domains/NAME/topics/NAME, namespaces/NAME/topics/NAME or a
    /// resource id
    topic: ResourceName,
    #[command(flatten)]
    client: ClientArgs,
}

impl Topics {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// A flag cannot be used, or a request failed.
    pub async fn run(self) -> Result<String, ClientError> {
        match self.command {
            TopicsCommand::List {
                domain,
                subscription_id,
                client,
            } => list_of(&client, domain, &subscription_id).await,
            TopicsCommand::Show(target) => target.show().await,
            TopicsCommand::Create { target, spec } => target.create(&spec).await,
            TopicsCommand::Update { target, spec } => target.update(&spec).await,
            TopicsCommand::Delete { target, yes } => target.delete(yes).await,
            TopicsCommand::Keys {
                target,
                regenerate,
                yes,
            } => target.keys(regenerate, yes).await,
        }
    }
}

async fn list_of(
    client: &ClientArgs,
    domain: Option<ResourceName>,
    subscription_id: &str,
) -> Result<String, ClientError> {
    let session = client.control.session()?;
    let paths = match domain {
        Some(domain) => vec![domain.path("/topics")],
        None => list::KINDS
            .iter()
            .map(|kind| list::path(subscription_id, kind))
            .collect(),
    };
    let mut all: Vec<Value> = Vec::new();
    for path in paths {
        all.extend(list::all(&session, &path).await?);
    }
    client
        .printed
        .list(all, |all: &[TopicResource]| format::listed(all))
}

impl TopicArgs {
    async fn show(&self) -> Result<String, ClientError> {
        let session = self.client.control.session()?;
        let topic: Value = session.get(&self.topic.path("")).await?;
        let answer = match self.topic.kind() {
            ResourceNameKind::Namespace => {
                let topics = list::names(&session, &self.topic.path("/topics")).await?;
                json!({"namespace": topic, "topics": topics})
            }
            kind @ (ResourceNameKind::Topic
            | ResourceNameKind::NamespaceTopic
            | ResourceNameKind::DomainTopic) => {
                // A domain topic has no log and therefore no status.
                let status = match kind {
                    ResourceNameKind::DomainTopic => Value::Null,
                    _ => session.get(&self.topic.path("/status")).await?,
                };
                let subscriptions =
                    list::names(&session, &self.topic.path("/eventSubscriptions")).await?;
                json!({"topic": topic, "status": status, "eventSubscriptions": subscriptions})
            }
        };
        self.client.print(&answer, format::shown)
    }

    async fn create(&self, spec: &TopicSpecArgs) -> Result<String, ClientError> {
        let body = spec.body()?;
        let (session, path) = (self.client.control.session()?, self.topic.path(""));
        let name = client::short(&path);
        let Creation { resource, is_new } = create(
            &session,
            &path,
            &body,
            &name,
            &format!("gridhook topics update {name}"),
        )
        .await?;
        let done = if is_new {
            "created"
        } else {
            "exists, unchanged:"
        };
        self.client.print(&resource, |topic: &TopicResource| {
            format!("{done} {}", topic.summary())
        })
    }

    async fn update(&self, spec: &TopicSpecArgs) -> Result<String, ClientError> {
        let change = spec.change()?;
        let session = self.client.control.session()?;
        let changed: Value = session
            .fetch(Method::PATCH, &self.topic.path(""), Some(&change))
            .await?;
        self.client.print(&changed, |topic: &TopicResource| {
            format!("changed {}", topic.summary())
        })
    }

    async fn delete(&self, yes: bool) -> Result<String, ClientError> {
        let (session, path) = (self.client.control.session()?, self.topic.path(""));
        let (topic, shown) = session.get_tagged(&path).await?;
        let NamedResource { id, .. } = serde_json::from_value(topic)?;
        let name = client::short(&id);
        let below = match self.topic.kind() {
            ResourceNameKind::Namespace => {
                let topics = list::ids(&session, &self.topic.path("/topics"))
                    .await?
                    .len();
                format!("its {}", counted(topics as u64, "topic"))
            }
            ResourceNameKind::Topic
            | ResourceNameKind::NamespaceTopic
            | ResourceNameKind::DomainTopic => {
                let subscriptions = list::ids(&session, &self.topic.path("/eventSubscriptions"))
                    .await?
                    .len();
                format!(
                    "its {}",
                    counted(subscriptions as u64, "event subscription")
                )
            }
        };
        prompt::confirm(&format!("Delete {name}, its events and {below}?"), yes)?;
        session
            .change::<Value>(Method::DELETE, &path, &shown, None::<&Value>)
            .await?;
        Ok(self
            .client
            .printed
            .format(&json!({"deleted": id}), |_| format!("deleted {name}")))
    }

    async fn keys(&self, regenerate: Option<KeyName>, yes: bool) -> Result<String, ClientError> {
        let session = self.client.control.session()?;
        let keys: Value = match regenerate {
            None => {
                session
                    .fetch(Method::POST, &self.topic.path("/listKeys"), None::<&Value>)
                    .await?
            }
            Some(key) => {
                let name = match key {
                    KeyName::Key1 => "key1",
                    KeyName::Key2 => "key2",
                };
                let question = format!(
                    "Regenerate {name} of {}? Publishers that use it will be refused.",
                    client::short(&self.topic.path(""))
                );
                prompt::confirm(&question, yes)?;
                session
                    .post(
                        &self.topic.path("/regenerateKey"),
                        &json!({"keyName": name}),
                    )
                    .await?
            }
        };
        self.client.print(&keys, |SharedAccessKeys { key1, key2 }| {
            let mut table = TextTable::new(["NAME", "KEY"]);
            for (name, key) in [("key1", key1), ("key2", key2)] {
                table.line([name.to_owned(), text(key)]);
            }
            table.to_string()
        })
    }
}

/// The result of a creation.
pub(super) struct Creation {
    pub(super) resource: Value,
    /// Whether it did not exist before.
    pub(super) is_new: bool,
}

/// Creates a resource. If it exists with the same properties, it is put again: the answer to the
/// first request may have been lost, or not every shard of a spread topic may have the change yet.
/// Another one is changed with `command`.
pub(super) async fn create(
    session: &ServerClient,
    path: &str,
    body: &Value,
    name: &str,
    command: &str,
) -> Result<Creation, ClientError> {
    match session
        .change(Method::PUT, path, &Precondition::Missing, Some(body))
        .await
    {
        Err(ClientError::Refused {
            status: StatusCode::PRECONDITION_FAILED,
            ..
        }) => {
            let what_if = format!("{path}?whatIf=true");
            match session
                .exchange::<Difference>(Method::PUT, &what_if, &Precondition::None, Some(body))
                .await
            {
                Ok((Difference { changes, .. }, tag)) if changes.is_empty() => {
                    let same = tag.map_or(Precondition::None, Precondition::Tag);
                    let resource = session.change(Method::PUT, path, &same, Some(body)).await?;
                    Ok(Creation {
                        resource,
                        is_new: false,
                    })
                }
                Ok(_) | Err(ClientError::Refused { .. }) => Err(ClientError::Failed(format!(
                    "{name} already exists; change it with {command}"
                ))),
                Err(error) => Err(error),
            }
        }
        result => result.map(|resource| Creation {
            resource,
            is_new: true,
        }),
    }
}
