//! `gridhook topics`: manages topics, domains, namespaces and their access keys.

mod format;
mod spec;

use awc::http::{Method, StatusCode};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::{format::TopicResource, spec::TopicSpecArgs};
use super::{
    client::{
        self, ClientArgs, ClientError, ClientResult, Precondition, ResourceName, ResourceNameKind,
        ServerClient,
    },
    format::{count_with_noun, text_or_dash},
    list,
    output::TextTable,
    prompt,
};
use gridhook_api::{resource::NamedResource, topic::SharedAccessKeys, what_if::Difference};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  gridhook topics list
  gridhook topics create orders --input-schema CloudEventSchemaV1_0 --tag team=shop
  gridhook topics create domains/shop
  gridhook topics update orders --allow-from 10.1.0.0/16
  gridhook topics keys orders --regenerate key2 --yes
  gridhook topics delete orders --yes")]
pub enum Topics {
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
        #[arg(long, value_name = "KEY", value_parser = ["key1", "key2"])]
        regenerate: Option<String>,
        /// Skip the confirmation
        #[arg(long, requires = "regenerate")]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct TopicArgs {
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
    pub async fn run(self) -> ClientResult {
        match self {
            Self::List {
                domain,
                subscription_id,
                client,
            } => list_topics(&client, domain, &subscription_id).await,
            Self::Show(target) => target.show_topic().await,
            Self::Create { target, spec } => target.create_topic(&spec).await,
            Self::Update { target, spec } => target.update_topic(&spec).await,
            Self::Delete { target, yes } => target.delete_topic(yes).await,
            Self::Keys {
                target,
                regenerate,
                yes,
            } => target.show_keys(regenerate, yes).await,
        }
    }
}

async fn list_topics(
    client: &ClientArgs,
    domain: Option<ResourceName>,
    subscription_id: &str,
) -> ClientResult {
    let server = client.server.build_client()?;
    let paths = match domain {
        Some(domain) => vec![domain.path("/topics")],
        None => list::KINDS
            .iter()
            .map(|kind| list::list_path(subscription_id, kind))
            .collect(),
    };
    let mut all: Vec<Value> = Vec::new();
    for path in paths {
        all.extend(list::read_list(&server, &path).await?);
    }
    client
        .output
        .format_list(all, |all: &[TopicResource]| format::format_list(all))
}

impl TopicArgs {
    async fn show_topic(&self) -> ClientResult {
        let server = self.client.server.build_client()?;
        let topic: Value = server.get(&self.topic.path("")).await?;
        let parts = match self.topic.kind() {
            ResourceNameKind::Namespace => {
                let topics = list::list_names(&server, &self.topic.path("/topics")).await?;
                json!({"namespace": topic, "topics": topics})
            }
            kind @ (ResourceNameKind::Topic
            | ResourceNameKind::NamespaceTopic
            | ResourceNameKind::DomainTopic) => {
                // A domain topic has no log and therefore no status.
                let status = match kind {
                    ResourceNameKind::DomainTopic => Value::Null,
                    _ => server.get(&self.topic.path("/status")).await?,
                };
                let subscriptions =
                    list::list_names(&server, &self.topic.path("/eventSubscriptions")).await?;
                json!({"topic": topic, "status": status, "eventSubscriptions": subscriptions})
            }
        };
        self.client.format_response(&parts, format::format_parts)
    }

    async fn create_topic(&self, spec: &TopicSpecArgs) -> ClientResult {
        let body = spec.put_body()?;
        let server = self.client.server.build_client()?;
        let path = self.topic.path("");
        let name = client::short_name(&path);
        let Creation { resource, verb } = create_resource(
            &server,
            &path,
            &body,
            &name,
            &format!("gridhook topics update {name}"),
        )
        .await?;
        self.client
            .format_response(&resource, |topic: &TopicResource| {
                format!("{verb} {}", topic.format_summary())
            })
    }

    async fn update_topic(&self, spec: &TopicSpecArgs) -> ClientResult {
        let change = spec.patch_body()?;
        let server = self.client.server.build_client()?;
        let updated: Value = server
            .send_request(Method::PATCH, &self.topic.path(""), Some(&change))
            .await?;
        self.client
            .format_response(&updated, |topic: &TopicResource| {
                format!("changed {}", topic.format_summary())
            })
    }

    async fn delete_topic(&self, yes: bool) -> ClientResult {
        let server = self.client.server.build_client()?;
        let path = self.topic.path("");
        let (topic, shown) = server.get_tagged(&path).await?;
        let NamedResource { id, .. } = serde_json::from_value(topic)?;
        let name = client::short_name(&id);
        let (list, noun) = match self.topic.kind() {
            ResourceNameKind::Namespace => ("/topics", "topic"),
            _ => ("/eventSubscriptions", "event subscription"),
        };
        let below = list::list_ids(&server, &self.topic.path(list)).await?;
        let below = count_with_noun(below.len() as u64, noun);
        prompt::ask_confirmation(&format!("Delete {name}, its events and its {below}?"), yes)?;
        server.delete(&path, &shown).await?;
        Ok(self
            .client
            .output
            .format_value(&json!({"deleted": id}), |_| format!("deleted {name}")))
    }

    async fn show_keys(&self, regenerate: Option<String>, yes: bool) -> ClientResult {
        let server = self.client.server.build_client()?;
        let keys: Value = match regenerate {
            None => {
                server
                    .send_request(Method::POST, &self.topic.path("/listKeys"), None::<&Value>)
                    .await?
            }
            Some(name) => {
                let question = format!(
                    "Regenerate {name} of {}? Publishers that use it will be refused.",
                    client::short_name(&self.topic.path(""))
                );
                prompt::ask_confirmation(&question, yes)?;
                server
                    .send_post(
                        &self.topic.path("/regenerateKey"),
                        &json!({"keyName": name}),
                    )
                    .await?
            }
        };
        self.client
            .format_response(&keys, |SharedAccessKeys { key1, key2 }| {
                let mut table = TextTable::new(["NAME", "KEY"]);
                for (name, key) in [("key1", key1), ("key2", key2)] {
                    table.add_row([name.to_owned(), text_or_dash(key)]);
                }
                table.to_string()
            })
    }
}

/// The result of a creation.
pub(super) struct Creation {
    pub(super) resource: Value,
    /// What became of the resource: created, or there already.
    pub(super) verb: &'static str,
}

/// Creates a resource. If it exists with the same properties, it is put again: the response to the
/// first request may have been lost, or not every shard of a spread topic may have the change yet.
/// Another one is changed with `command`.
pub(super) async fn create_resource(
    server: &ServerClient,
    path: &str,
    body: &Value,
    name: &str,
    command: &str,
) -> ClientResult<Creation> {
    match server
        .send_change(Method::PUT, path, &Precondition::Missing, Some(body))
        .await
    {
        Err(error) if error.has_status(StatusCode::PRECONDITION_FAILED) => {
            let what_if = format!("{path}?whatIf=true");
            match server
                .exchange_json::<Difference>(Method::PUT, &what_if, &Precondition::None, Some(body))
                .await
            {
                Ok((Difference { changes, .. }, tag)) if changes.is_empty() => {
                    let resource = server
                        .send_change(Method::PUT, path, &tag, Some(body))
                        .await?;
                    Ok(Creation {
                        resource,
                        verb: "exists, unchanged:",
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
            verb: "created",
        }),
    }
}
