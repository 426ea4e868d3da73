//! An event subscription as it is told.

use serde::Serialize;
use serde_json::Value;
use url::Url;

use super::settable;
use crate::{
    admin::model::{drop_read_only, merge, value_of},
    subscription::record::SubscriptionRecord,
    topic::record::TopicRecord,
};

/// Which of the two paths a subscription is spoken of by: its id and its type are told accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `…/topics/{t}/eventSubscriptions/{n}`.
    Nested,
    /// `…/topics/{t}/providers/Microsoft.EventGrid/eventSubscriptions/{n}`.
    Scoped,
}

/// A subscription as it is told: without the query of its endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    properties: Value,
}

impl View {
    /// What a client is told of the subscription `record` of `topic`.
    pub fn new(record: &SubscriptionRecord, topic: &TopicRecord, form: Form) -> Self {
        let (between, kind) = match form {
            Form::Nested => ("eventSubscriptions", "Microsoft.EventGrid/topics/eventSubscriptions"),
            Form::Scoped => {
                ("providers/Microsoft.EventGrid/eventSubscriptions", "Microsoft.EventGrid/eventSubscriptions")
            }
        };
        let topic_id = topic.resource_id();
        let mut properties = value_of(&settable(record));
        drop_read_only(&mut properties, &["destination.properties.endpointUrl"]);
        merge(
            &mut properties,
            value_of(&Told {
                topic: &topic_id,
                provisioning_state: "Succeeded",
                destination: ToldDestination {
                    properties: ToldWebhook {
                        endpoint_base_url: base_url(&record.webhook.endpoint_url),
                        minimum_tls_version_allowed: "1.2",
                    },
                },
            }),
        );
        Self { id: format!("{topic_id}/{between}/{}", record.name), name: record.name.to_string(), kind, properties }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    topic: &'a str,
    provisioning_state: &'static str,
    destination: ToldDestination,
}

#[derive(Serialize)]
struct ToldDestination {
    properties: ToldWebhook,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldWebhook {
    endpoint_base_url: String,
    minimum_tls_version_allowed: &'static str,
}

/// An address without what may be secret in it: query, fragment, user and password.
fn base_url(endpoint_url: &str) -> String {
    let Ok(url) = Url::parse(endpoint_url) else { return String::new() };
    match url.port() {
        Some(port) => format!("{}://{}:{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path()),
        None => format!("{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path()),
    }
}
