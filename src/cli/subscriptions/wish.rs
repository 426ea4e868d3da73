//! What an event subscription shall be, as flags, and as the control plane's JSON.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use humantime_serde::re::humantime::parse_duration;
use serde_json::Value;

use crate::cli::control::{Error, body_of, set};

/// What is to be set.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(super) struct Wish {
    /// Where events are sent
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Only events of this type; may be given several times
    #[arg(long = "event-type", value_name = "TYPE")]
    event_types: Vec<String>,
    /// Only events whose subject begins so
    #[arg(long, value_name = "TEXT")]
    subject_begins_with: Option<String>,
    /// Only events whose subject ends so
    #[arg(long, value_name = "TEXT")]
    subject_ends_with: Option<String>,
    /// The schema that events are delivered in, as CloudEventSchemaV1_0
    #[arg(long, value_name = "SCHEMA")]
    delivery_schema: Option<String>,
    /// So often an event is tried
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// For so long an event is tried, in whole minutes, as 90m or 24h
    #[arg(long, value_name = "DURATION", value_parser = minutes)]
    time_to_live: Option<u64>,
    /// So many events in one request at the most
    #[arg(long, value_name = "N")]
    batch_events: Option<u32>,
    /// So many kilobytes in one request, preferably
    #[arg(long, value_name = "N")]
    batch_kilobytes: Option<u32>,
    /// What is given up goes there: a storage account's resource id, or an address such as s3://bucket/prefix
    #[arg(long, value_name = "ID_OR_URL")]
    dead_letters: Option<String>,
    /// The container of that storage account
    #[arg(long, value_name = "NAME", requires = "dead_letters")]
    container: Option<String>,
    /// A label; may be given several times
    #[arg(long = "label", value_name = "TEXT")]
    labels: Vec<String>,
    /// When it is deleted by itself, as 2040-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// For a new one: begin with what was published at this time or later
    #[arg(long, value_name = "TIME")]
    starts_from: Option<String>,
    /// Everything else: a file with the JSON that ARM has for it (- is standard input); flags go over it
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
}

/// Event Grid counts the time to live in minutes.
fn minutes(text: &str) -> Result<u64, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    let is_whole = time == Duration::from_secs(time.as_secs()) && time.as_secs().is_multiple_of(60);
    if is_whole { Ok(time.as_secs() / 60) } else { Err("allowed are whole minutes, such as 90m or 24h".to_owned()) }
}

impl Wish {
    /// The body of a PUT.
    pub(super) fn body(&self) -> Result<Value, Error> {
        let mut body = body_of(self.body.as_deref())?;
        let list = |list: &[String]| (!list.is_empty()).then(|| Value::from(list.to_vec()));
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let kind = |given: &Option<String>, kind: &str| given.as_ref().map(|_| Value::from(kind));
        let webhook = "destination.properties";
        let given = [
            ("destination.endpointType".to_owned(), kind(&self.endpoint, "WebHook")),
            (format!("{webhook}.endpointUrl"), text(&self.endpoint)),
            (format!("{webhook}.maxEventsPerBatch"), self.batch_events.map(Value::from)),
            (format!("{webhook}.preferredBatchSizeInKilobytes"), self.batch_kilobytes.map(Value::from)),
            ("filter.includedEventTypes".to_owned(), list(&self.event_types)),
            ("filter.subjectBeginsWith".to_owned(), text(&self.subject_begins_with)),
            ("filter.subjectEndsWith".to_owned(), text(&self.subject_ends_with)),
            ("eventDeliverySchema".to_owned(), text(&self.delivery_schema)),
            ("retryPolicy.maxDeliveryAttempts".to_owned(), self.max_attempts.map(Value::from)),
            ("retryPolicy.eventTimeToLiveInMinutes".to_owned(), self.time_to_live.map(Value::from)),
            ("deadLetterDestination.endpointType".to_owned(), kind(&self.dead_letters, "StorageBlob")),
            ("deadLetterDestination.properties.resourceId".to_owned(), text(&self.dead_letters)),
            ("deadLetterDestination.properties.blobContainerName".to_owned(), text(&self.container)),
            ("labels".to_owned(), list(&self.labels)),
            ("expirationTimeUtc".to_owned(), text(&self.expires)),
            ("startsFrom".to_owned(), text(&self.starts_from)),
        ];
        for (at, value) in given {
            if let Some(value) = value {
                let path: Vec<&str> = std::iter::once("properties").chain(at.split('.')).collect();
                set(&mut body, &path, value)?;
            }
        }
        Ok(body)
    }

    /// The body of a PATCH, which has no `properties` around it: a file may be of either form.
    pub(super) fn change(&self) -> Result<Value, Error> {
        let mut body = self.body()?;
        let mut change = body.get_mut("properties").map_or(Value::Null, Value::take);
        let flat = body.as_object().into_iter().flatten().filter(|(key, _)| *key != "properties");
        for (key, value) in flat {
            set(&mut change, &[key], value.clone())?;
        }
        match change.is_null() {
            true => Err(Error::Input("nothing is to be changed; --help lists what can be".to_owned())),
            false => Ok(change),
        }
    }
}
