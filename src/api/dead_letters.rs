//! Bodies and views of the operations on dead letters.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

use super::ledger::LineView;

/// Selection of dead letters.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterFilter {
    /// `waiting` or `written`; default both
    pub stage: Option<String>,
    /// Earliest time of the last attempt, or of the publish if there was none; default no limit
    pub from: Option<String>,
    /// Time before which the last attempt was made; default no limit
    pub to: Option<String>,
    /// `deadLetterReason`, compared without case; default any
    pub reason: Option<String>,
    /// Id of the event; default any
    pub id: Option<String>,
}

/// A purge of dead letters.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterPurge {
    /// Selection of dead letters by their stage, time, reason or id
    pub filter: Option<DeadLetterFilter>,
    /// Keys of the selected dead letters
    pub keys: Option<Vec<String>>,
    /// Whether to select all dead letters; default false
    #[serde(default)]
    pub all: bool,
    /// Whether to count without a purge; default false
    #[serde(default)]
    pub dry_run: bool,
    /// `next` of the last response; default the beginning
    pub after: Option<String>,
}

/// A redrive of dead letters.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterRedrive {
    /// Selection of dead letters by their stage, time, reason or id
    pub filter: Option<DeadLetterFilter>,
    /// Keys of the selected dead letters
    pub keys: Option<Vec<String>>,
    /// Whether to select all dead letters; default false
    #[serde(default)]
    pub all: bool,
    /// Whether to count without a redrive, and to report what cannot be sent; default false
    #[serde(default)]
    pub dry_run: bool,
    /// `next` of the last dry run; default the beginning
    pub after: Option<String>,
    /// Maximum events for each second; default the limits of the endpoint
    pub rate: Option<f64>,
    /// Whether to keep a file of which every dead letter was sent; default false
    #[serde(default)]
    pub keep: bool,
    /// Number of dead letters as dry runs counted them; the progress of the job shows it
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// A started redrive.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = RedriveStarted)]
pub struct RedriveStartedView {
    /// Number of the job, unique in the event subscription
    pub job: u16,
}

/// Result of the operation
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLettersPurged)]
pub struct PurgedView {
    /// Number of selected dead letters
    pub dead_letters: u64,
    /// Whether to count without a change
    pub dry_run: bool,
    /// Files that could not be read; they are left as they are
    pub problems: Vec<DeadLetterProblem>,
    /// Value of `after` for the next request; missing at the end
    pub next: Option<String>,
}

/// Files that could not be read and were left as they are
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DeadLetterProblem {
    /// Path of the file that could not be read
    pub path: String,
    /// Why the file cannot be read, in a sentence
    pub reason: String,
}

/// A page of dead letters.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetters)]
pub struct PageView {
    /// Dead letters of this page
    pub value: Vec<DeadLetter>,
    /// Files that could not be read; they are left as they are
    pub problems: Vec<DeadLetterProblem>,
    /// Address of the next page
    pub next_link: Option<String>,
}

/// A dead letter.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Key of the dead letter, for further requests
    pub key: String,
    /// `waiting` until the dead letter is in a file, then `written`
    pub stage: String,
    /// `id` of the event, as the publisher set it
    pub id: Option<String>,
    /// `eventType` of the event, or `type` in CloudEvents
    pub event_type: Option<String>,
    /// Subject of the event in the context of its source
    pub subject: Option<String>,
    /// Reason why delivery was given up
    pub dead_letter_reason: Option<String>,
    /// How often the event was sent to the endpoint
    pub delivery_attempts: Option<u32>,
    /// Outcome of the last delivery attempt
    pub last_delivery_outcome: Option<String>,
    /// HTTP status of the last delivery attempt
    pub last_http_status_code: Option<u16>,
    /// Time at which the event was published
    pub publish_time: Option<String>,
    /// Time of the last delivery attempt
    pub last_delivery_attempt_time: Option<String>,
    /// Time at which the file of a waiting dead letter is due
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_due: Option<String>,
    /// Path of the file of a written dead letter, below the folder of the event subscription
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Position in the file or in the list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// A dead letter with its event.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterWithEvent {
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// Schema of the event
    pub schema: String,
    /// The event as it was published, byte for byte.
    #[schema(value_type = Object)]
    pub event: Box<RawValue>,
}

/// Events of all event subscriptions that became dead letters.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = NewestDeadLetters)]
pub struct NewestDeadLettersView {
    /// Current time of the server
    pub now: String,
    /// Lines of the ledgers, newest first. Their dead letters may have been redriven or purged
    /// since.
    pub value: Vec<NewDeadLetterView>,
    /// Value of the parameter `continue` for the next page; missing at the end. A page without
    /// lines may have it.
    pub r#continue: Option<String>,
}

/// Events that became dead letters at the same time, with their event subscription.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = DeadLetterLine)]
pub struct NewDeadLetterView {
    /// Resource id of the topic.
    pub topic: String,
    /// Name of the event subscription.
    pub subscription: String,
    #[serde(flatten)]
    pub line: LineView,
}
