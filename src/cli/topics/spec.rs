//! What a topic shall be, as flags, and as the control plane's JSON.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::cli::client::{ClientError, body_of, set};

/// What is to be set.
#[derive(Debug, Args)]
pub(super) struct TopicSpecArgs {
    /// The schema that events are published in; it stays what the topic was made with
    #[arg(long, value_name = "SCHEMA", value_enum, help_heading = "Settings")]
    input_schema: Option<InputSchemaArg>,
    /// The edition of the delivery policy that it follows
    #[arg(long, value_name = "EDITION", help_heading = "Settings")]
    edition: Option<String>,
    /// A tag; may be given several times
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair, help_heading = "Settings")]
    tags: Vec<(String, String)>,
    /// Whether access keys and SAS tokens are taken
    #[arg(long, value_name = "BOOL", help_heading = "Settings")]
    local_auth: Option<bool>,
    /// From where events are taken: Enabled, or Disabled for private addresses only
    #[arg(long, value_name = "ACCESS", help_heading = "Settings")]
    public_network_access: Option<String>,
    /// A network that events are taken from, as 10.1.0.0/16; may be given several times
    #[arg(long = "allow-from", value_name = "NETWORK", help_heading = "Settings")]
    allow_from: Vec<String>,
    /// How many days a topic of a namespace keeps events that no subscription has taken
    #[arg(long, value_name = "N", help_heading = "Settings")]
    retention_days: Option<u32>,
    /// Everything else: a file with the JSON that ARM has for it (- is standard input); flags go over it
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    body: Option<PathBuf>,
}

/// Event Grid's input schemas.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum InputSchemaArg {
    #[value(name = "EventGridSchema", alias = "event-grid")]
    EventGrid,
    #[value(name = "CloudEventSchemaV1_0", alias = "cloud-events")]
    CloudEvents,
    #[value(name = "CustomEventSchema", alias = "custom")]
    Custom,
}

pub(in crate::cli) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("allowed is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl TopicSpecArgs {
    /// The body of a PUT.
    pub(super) fn body(&self) -> Result<Value, ClientError> {
        let mut body = body_of(self.body.as_deref())?;
        let schema = self.input_schema.map(|schema| match schema {
            InputSchemaArg::EventGrid => "EventGridSchema",
            InputSchemaArg::CloudEvents => "CloudEventSchemaV1_0",
            InputSchemaArg::Custom => "CustomEventSchema",
        });
        let rules: Vec<Value> =
            self.allow_from.iter().map(|network| json!({"ipMask": network, "action": "Allow"})).collect();
        let given = [
            ("inputSchema", schema.map(Value::from)),
            ("edition", self.edition.clone().map(Value::from)),
            ("eventRetentionInDays", self.retention_days.map(Value::from)),
            ("disableLocalAuth", self.local_auth.map(|taken| (!taken).into())),
            ("publicNetworkAccess", self.public_network_access.clone().map(Value::from)),
            ("inboundIpRules", (!rules.is_empty()).then(|| rules.into())),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                set(&mut body, &["properties", name], value)?;
            }
        }
        for (name, value) in &self.tags {
            set(&mut body, &["tags", name], value.clone().into())?;
        }
        Ok(body)
    }

    /// The body of a PATCH.
    pub(super) fn change(&self) -> Result<Value, ClientError> {
        let body = self.body()?;
        match body.as_object().is_some_and(serde_json::Map::is_empty) {
            true => Err(ClientError::Input("nothing is to be changed; --help lists what can be".to_owned())),
            false => Ok(body),
        }
    }
}
