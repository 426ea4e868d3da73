//! `gridhook subscriptions`: manages, holds and probes event subscriptions, and tests their filters
//! and transformations.

mod format;
mod spec;

use std::path::PathBuf;

use awc::http::Method;
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::spec::SubscriptionSpecArgs;
use super::{
    client::{
        ClientArgs, ClientResult, Precondition, ResourceName, ResourceNameKind, ServerClient,
        SubscriptionArgs, read_body, read_input,
    },
    format::group_thousands,
    list, prompt,
    topics::{Creation, create_resource},
    value::whole_number,
};
use gridhook_api::{
    resource::NamedResource,
    retry::{DELIVERIES_MAX, RetriedView},
    status::UnblockRequest,
    subscription::FullUrl,
};
use gridhook_clock::Clock;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  gridhook subscriptions list orders
  gridhook subscriptions create orders billing --endpoint https://example.com/hook --event-type Order.Placed
  gridhook subscriptions show orders billing
  gridhook subscriptions update orders billing --max-attempts 5 --time-to-live 2h
  gridhook subscriptions hold orders billing; gridhook subscriptions resume orders billing
  gridhook subscriptions probe orders billing
  gridhook subscriptions retry orders billing 42
  gridhook subscriptions test-filter orders billing --last 100")]
pub enum Subscriptions {
    /// List the event subscriptions of a topic, or of all topics
    List {
        /// Topic: NAME, domains/NAME, domains/NAME/topics/NAME, namespaces/NAME/topics/NAME or a
        /// resource id
        topic: Option<ResourceName>,
        /// Azure subscription to list if no topic is named
        #[arg(
            long,
            value_name = "ID",
            default_value = "local",
            conflicts_with = "topic"
        )]
        subscription_id: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show the configuration and the status of an event subscription
    Show {
        #[command(flatten)]
        target: SubscriptionArgs,
        /// Show the full URL of the endpoint, which may contain a secret
        #[arg(long)]
        full_url: bool,
    },
    /// Create an event subscription, after endpoint validation
    Create {
        #[command(flatten)]
        target: SubscriptionArgs,
        #[command(flatten)]
        spec: Box<SubscriptionSpecArgs>,
    },
    /// Change the given properties of an event subscription
    Update {
        #[command(flatten)]
        target: SubscriptionArgs,
        #[command(flatten)]
        spec: Box<SubscriptionSpecArgs>,
    },
    /// Delete an event subscription with its pending deliveries
    Delete {
        #[command(flatten)]
        target: SubscriptionArgs,
        /// Skip the confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Hold delivery; requests in flight finish, published events wait
    Hold(SubscriptionArgs),
    /// Resume delivery
    Resume(SubscriptionArgs),
    /// Probe a suspended endpoint now instead of at its next probe time
    Probe(SubscriptionArgs),
    /// Release a suspended endpoint: treat it as healthy
    Release(SubscriptionArgs),
    /// Give up the event that blocks an order key, and deliver those behind it
    Unblock {
        #[command(flatten)]
        target: SubscriptionArgs,
        /// Value of the order key
        #[arg(required_unless_present = "all")]
        key: Option<String>,
        /// Unblock all keys
        #[arg(long, conflicts_with = "key")]
        all: bool,
        /// Attempt the event once more instead of giving it up
        #[arg(long)]
        retry: bool,
    },
    /// Retry pending deliveries now instead of when they are due
    Retry {
        #[command(flatten)]
        target: SubscriptionArgs,
        /// Only these events, by their sequence numbers [default: all]
        #[arg(value_name = "SEQUENCE", value_parser = whole_number::<u64>(0..))]
        sequences: Vec<u64>,
    },
    /// Test the filter on events without sending them
    TestFilter {
        #[command(flatten)]
        test: TestArgs,
        /// File with a draft filter in JSON, to test instead
        #[arg(long, value_name = "FILE")]
        draft: Option<PathBuf>,
    },
    /// Test the transformation on events without sending them
    TestTransform {
        #[command(flatten)]
        test: TestArgs,
        /// File with a draft transformation in JSON, to test instead
        #[arg(long, value_name = "FILE")]
        draft: Option<PathBuf>,
    },
}

/// The events of a test, and the event subscription that is tested.
#[derive(Debug, Args)]
pub struct TestArgs {
    #[command(flatten)]
    target: SubscriptionArgs,
    /// Test this number of the newest events of the topic [default: 100]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..), conflicts_with = "file")]
    last: Option<u64>,
    /// File with events in the topic's input schema: a JSON object or array; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The default number of events for a test.
const LAST_DEFAULT: u64 = 100;

impl Subscriptions {
    /// Runs the command and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// A flag cannot be used, or a request failed.
    pub async fn run(self, clock: &Clock) -> ClientResult {
        match self {
            Self::List {
                topic,
                subscription_id,
                client,
            } => {
                let server = client.server.build_client()?;
                let all = match topic {
                    Some(topic) => list_subscriptions(&server, &topic).await?,
                    None => {
                        let mut all: Vec<Value> = list::read_list(
                            &server,
                            &list::list_path(&subscription_id, "eventSubscriptions"),
                        )
                        .await?;
                        // Azure's list does not contain event subscriptions of namespaces.
                        for topic in list::namespace_topics(&server, &subscription_id).await? {
                            all.extend(
                                list::read_list(&server, &format!("{topic}/eventSubscriptions"))
                                    .await?,
                            );
                        }
                        all
                    }
                };
                client
                    .output
                    .format_list(all, |all: &[format::ShownSubscription]| {
                        format::format_list(all)
                    })
            }
            Self::Show { target, full_url } => target.show_subscription(full_url, clock).await,
            Self::Create { target, spec } => target.create_subscription(&spec).await,
            Self::Update { target, spec } => target.update_subscription(&spec).await,
            Self::Delete { target, yes } => target.delete_subscription(yes).await,
            Self::Hold(target) => target.run_action("hold", None, clock).await,
            Self::Resume(target) => target.run_action("resume", None, clock).await,
            Self::Probe(target) => target.run_action("probe", None, clock).await,
            Self::Release(target) => target.run_action("release", None, clock).await,
            Self::Unblock {
                target,
                key,
                all: _,
                retry,
            } => {
                target
                    .run_action("unblock", Some(json!(UnblockRequest { key, retry })), clock)
                    .await
            }
            Self::Retry { target, sequences } => target.retry_deliveries(sequences).await,
            Self::TestFilter { test, draft } => {
                test.run("testFilter", "filter", draft, format::format_filter_test)
                    .await
            }
            Self::TestTransform { test, draft } => {
                test.run(
                    "testTransform",
                    "transform",
                    draft,
                    format::format_transform_test,
                )
                .await
            }
        }
    }
}

/// All event subscriptions of a topic, or of all topics of a namespace.
async fn list_subscriptions(
    server: &ServerClient,
    topic: &ResourceName,
) -> ClientResult<Vec<Value>> {
    let mut paths = vec![topic.path("/eventSubscriptions")];
    if topic.kind() == ResourceNameKind::Namespace {
        let topics = list::list_ids(server, &topic.path("/topics")).await?;
        paths = topics
            .iter()
            .map(|topic| format!("{topic}/eventSubscriptions"))
            .collect();
    }
    let mut all = Vec::new();
    for path in paths {
        let subscriptions = list::read_list(server, &path).await;
        all.extend(server.with_suggestion(&path, subscriptions).await?);
    }
    Ok(all)
}

impl SubscriptionArgs {
    async fn show_subscription(&self, full_url: bool, clock: &Clock) -> ClientResult {
        let server = self.client.server.build_client()?;
        let mut subscription: Value = server.get(&self.path("")).await?;
        if full_url {
            let FullUrl { endpoint_url } = server
                .send_request(Method::POST, &self.path("/getFullUrl"), None::<&Value>)
                .await?;
            let mut part = &mut subscription["properties"];
            if self.topic.kind() == ResourceNameKind::NamespaceTopic {
                part = &mut part["deliveryConfiguration"]["push"];
            }
            if part["deliveryWithResourceIdentity"].is_object() {
                part = &mut part["deliveryWithResourceIdentity"];
            }
            part["destination"]["properties"]["endpointUrl"] = endpoint_url.into();
        }
        // Before its first endpoint validation, a subscription has no status.
        let status = server.find(Method::GET, &self.path("/status")).await?;
        let status = status.unwrap_or(Value::Null);
        let parts = json!({"eventSubscription": subscription, "status": status});
        self.client.format_response(&parts, |parts| {
            let text = format::format_subscription(parts, &self.command_arguments(), clock);
            format!("{}\n{text}", self.name())
        })
    }

    async fn create_subscription(&self, spec: &SubscriptionSpecArgs) -> ClientResult {
        let body = spec.put_body(self.topic.kind())?;
        let server = self.client.server.build_client()?;
        let path = self.path("");
        let command = format!("gridhook subscriptions update {}", self.command_arguments());
        let Creation { resource, verb } =
            create_resource(&server, &path, &body, &self.name(), &command).await?;
        self.client.format_response(&resource, |subscription| {
            format!(
                "{verb} {}\n{}",
                self.name(),
                format::format_facts(subscription)
            )
        })
    }

    async fn update_subscription(&self, spec: &SubscriptionSpecArgs) -> ClientResult {
        let server = self.client.server.build_client()?;
        let kind = self.topic.kind();
        // In a namespace, the JSON form depends on push or pull delivery. An endpoint is sent with
        // the type of the destination only if that changes.
        let mut existing = None;
        let mut precondition = Precondition::None;
        if kind == ResourceNameKind::NamespaceTopic || spec.endpoint.is_some() {
            let (subscription, tag) = server.get_tagged(&self.path("")).await?;
            existing = Some(subscription);
            precondition = tag;
        }
        let change = spec.patch_body(kind, existing.as_ref())?;
        let subscription: Value = server
            .send_change(Method::PATCH, &self.path(""), &precondition, Some(&change))
            .await?;
        self.client.format_response(&subscription, |subscription| {
            format!(
                "changed {}\n{}",
                self.name(),
                format::format_facts(subscription)
            )
        })
    }

    async fn delete_subscription(&self, yes: bool) -> ClientResult {
        let server = self.client.server.build_client()?;
        let (subscription, tag) = server.get_tagged(&self.path("")).await?;
        let NamedResource { id, .. } = serde_json::from_value(subscription)?;
        prompt::ask_confirmation(
            &format!("Delete {} and its pending deliveries?", self.name()),
            yes,
        )?;
        server.delete(&self.path(""), &tag).await?;
        Ok(self
            .client
            .output
            .format_value(&json!({"deleted": id}), |_| {
                format!("deleted {}", self.name())
            }))
    }

    async fn run_action(&self, action: &str, body: Option<Value>, clock: &Clock) -> ClientResult {
        let server = self.client.server.build_client()?;
        let status: Value = server
            .send_request(
                Method::POST,
                &self.path(&format!("/{action}")),
                body.as_ref(),
            )
            .await?;
        self.client.format_response(&status, |status| {
            format!(
                "{}\n{}",
                self.name(),
                format::format_status(status, &self.command_arguments(), clock)
            )
        })
    }

    /// Walks all parts, because the server limits the deliveries of one request.
    async fn retry_deliveries(&self, sequences: Vec<u64>) -> ClientResult {
        let server = self.client.server.build_client()?;
        let mut rest = sequences
            .chunks(DELIVERIES_MAX)
            .map(|part| json!({"sequences": part}));
        let mut body = rest.next().unwrap_or_else(|| json!({"all": true}));
        let mut events = 0;
        let waits_until = loop {
            let part: RetriedView = server.send_post(&self.path("/retry"), &body).await?;
            events += part.events;
            match (part.next, rest.next()) {
                (Some(next), _) => body["after"] = next.into(),
                (None, Some(sequences)) => body = sequences,
                (None, None) => break part.waits_until,
            }
        };
        let wait = waits_until
            .as_ref()
            .map(|until| format!("; the endpoint is not called until {until}"));
        let wait = wait.unwrap_or_default();
        let due = if events == 1 {
            "1 pending delivery is".to_owned()
        } else {
            format!("{} pending deliveries are", group_thousands(events))
        };
        let json = json!({"events": events, "waitsUntil": waits_until});
        Ok(self
            .client
            .output
            .format_value(&json, |_| format!("{}: {due} due now{wait}", self.name())))
    }
}

impl TestArgs {
    /// Tests what the event subscription, or the draft of its `key` in a file, makes of the events.
    async fn run<R: DeserializeOwned>(
        self,
        action: &str,
        key: &str,
        draft: Option<PathBuf>,
        format: impl Fn(&R) -> String,
    ) -> ClientResult {
        let Self { target, last, file } = self;
        let mut body = json!({});
        if let Some(path) = &draft {
            body[key] = read_body(Some(path))?;
        }
        match &file {
            Some(path) => body["events"] = read_input(path)?,
            None => body["last"] = last.unwrap_or(LAST_DEFAULT).into(),
        }
        let path = target.path(&format!("/{action}"));
        let report: Value = target
            .client
            .server
            .build_client()?
            .send_post(&path, &body)
            .await?;
        target.client.format_response(&report, format)
    }
}
