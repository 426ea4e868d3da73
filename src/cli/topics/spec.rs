//! The properties of a topic, from flags to the control plane's JSON.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::{
    client::{ClientError, ClientResult, read_body, set_value},
    value::{ValueError, read_duration, whole_number},
};

#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub struct TopicSpecArgs {
    /// Input schema; cannot be changed after creation
    #[arg(long, value_name = "SCHEMA", value_enum)]
    input_schema: Option<InputSchemaArg>,
    /// Edition of the delivery policy
    #[arg(long, value_name = "EDITION")]
    edition: Option<String>,
    /// Tag; repeatable
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = parse_pair)]
    tags: Vec<(String, String)>,
    /// Whether to accept access keys and SAS tokens
    #[arg(long, value_name = "BOOL")]
    local_auth: Option<bool>,
    /// Public network access: Enabled, or Disabled to accept private addresses only
    #[arg(long, value_name = "ACCESS")]
    public_network_access: Option<String>,
    /// Network to accept events from, such as 10.1.0.0/16; repeatable
    #[arg(long = "allow-from", value_name = "NETWORK")]
    allow_from: Vec<String>,
    /// Retention of events in days (namespace topics only)
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..))]
    retention_days: Option<u32>,
    /// Window of duplicate detection, from 20s to 7d, or off
    #[arg(long, value_name = "DURATION", value_parser = parse_window)]
    duplicate_window: Option<DuplicateWindow>,
    /// Whether to check events against the schemas of their types: off, warn or refuse
    #[arg(long, value_name = "MODE", value_parser = ["off", "warn", "refuse"])]
    schema_validation: Option<String>,
    /// Partitions: 1, or the number of shards of the cluster to spread the topic over all of them;
    /// cannot be changed after creation
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..))]
    partitions: Option<u32>,
    /// File with the ARM JSON for all other properties; - is standard input; flags take precedence
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
}

/// The window of duplicate detection.
#[derive(Clone, Copy, Debug)]
enum DuplicateWindow {
    Off,
    Window(jiff::SignedDuration),
}

fn parse_window(text: &str) -> Result<DuplicateWindow, ValueError> {
    if text == "off" {
        return Ok(DuplicateWindow::Off);
    }
    let window = read_duration(text).filter(|window| window.subsec_nanos() == 0);
    let window = window.and_then(|window| jiff::SignedDuration::try_from(window).ok());
    window
        .map(DuplicateWindow::Window)
        .ok_or(ValueError::DuplicateWindow)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum InputSchemaArg {
    #[value(name = "EventGridSchema", alias = "event-grid")]
    EventGrid,
    #[value(name = "CloudEventSchemaV1_0", alias = "cloud-events")]
    CloudEvents,
    #[value(name = "CustomEventSchema", alias = "custom")]
    Custom,
}

pub(crate) fn parse_pair(text: &str) -> Result<(String, String), ValueError> {
    let (name, value) = text.split_once('=').ok_or(ValueError::Pair)?;
    Ok((name.to_owned(), value.to_owned()))
}

impl TopicSpecArgs {
    pub(super) fn put_body(&self) -> ClientResult<Value> {
        let mut body = read_body(self.body.as_deref())?;
        let schema = self.input_schema.map(|schema| match schema {
            InputSchemaArg::EventGrid => "EventGridSchema",
            InputSchemaArg::CloudEvents => "CloudEventSchemaV1_0",
            InputSchemaArg::Custom => "CustomEventSchema",
        });
        let rules: Vec<Value> = self
            .allow_from
            .iter()
            .map(|network| json!({"ipMask": network, "action": "Allow"}))
            .collect();
        let given = [
            ("inputSchema", schema.map(Value::from)),
            ("edition", self.edition.clone().map(Value::from)),
            ("eventRetentionInDays", self.retention_days.map(Value::from)),
            (
                "duplicateDetectionHistoryTimeWindow",
                self.duplicate_window.map(|window| match window {
                    DuplicateWindow::Off => Value::Null,
                    DuplicateWindow::Window(window) => window.to_string().into(),
                }),
            ),
            (
                "schemaValidation",
                self.schema_validation.clone().map(Value::from),
            ),
            ("partitionCount", self.partitions.map(Value::from)),
            (
                "disableLocalAuth",
                self.local_auth.map(|taken| (!taken).into()),
            ),
            (
                "publicNetworkAccess",
                self.public_network_access.clone().map(Value::from),
            ),
            ("inboundIpRules", (!rules.is_empty()).then(|| rules.into())),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                set_value(&mut body, &["properties", name], value)?;
            }
        }
        for (name, value) in &self.tags {
            set_value(&mut body, &["tags", name], value.clone().into())?;
        }
        Ok(body)
    }

    pub(super) fn patch_body(&self) -> ClientResult<Value> {
        let body = self.put_body()?;
        if body.as_object().is_some_and(serde_json::Map::is_empty) {
            Err(ClientError::Input(
                "no properties to change; --help lists them".to_owned(),
            ))
        } else {
            Ok(body)
        }
    }
}
